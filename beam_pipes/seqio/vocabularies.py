"""Vocabularies. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "BertWordPieceVocabulary": "beam_pipes.tasks.vocabularies",
    "ByteVocabulary": "beam_pipes.tasks.vocabularies",
    "FullCodepointVocabulary": "beam_pipes.tasks.vocabularies",
    "PAD_ID": "beam_pipes.tasks.vocabularies",
    "PartialCodepointVocabulary": "beam_pipes.tasks.vocabularies",
    "PassThroughVocabulary": "beam_pipes.tasks.vocabularies",
    "SentencePieceVocabulary": "beam_pipes.tasks.vocabularies",
    "TokenizersVocabulary": "beam_pipes.tasks.vocabularies",
    "UnigramVocabulary": "beam_pipes.tasks.vocabularies",
    "Vocabulary": "beam_pipes.tasks.vocabularies",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
