"""Vocabularies: text to ids and back; loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.tasks.vocabularies.bert_word_piece import BertWordPieceVocabulary as BertWordPieceVocabulary
    from beam_pipes.tasks.vocabularies.byte_pairs import TiktokenVocabulary as TiktokenVocabulary
    from beam_pipes.tasks.vocabularies.characters import ByteVocabulary as ByteVocabulary
    from beam_pipes.tasks.vocabularies.characters import FullCodepointVocabulary as FullCodepointVocabulary
    from beam_pipes.tasks.vocabularies.characters import (
        PartialCodepointVocabulary as PartialCodepointVocabulary,
    )
    from beam_pipes.tasks.vocabularies.characters import UnigramVocabulary as UnigramVocabulary
    from beam_pipes.tasks.vocabularies.sentence_piece import SentencePieceVocabulary as SentencePieceVocabulary
    from beam_pipes.tasks.vocabularies.tokenizers import TokenizersVocabulary as TokenizersVocabulary
    from beam_pipes.tasks.vocabularies.vocabulary import PAD_ID as PAD_ID
    from beam_pipes.tasks.vocabularies.vocabulary import PassThroughVocabulary as PassThroughVocabulary
    from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary as Vocabulary

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "bert_word_piece": "BertWordPieceVocabulary",
        "byte_pairs": "TiktokenVocabulary",
        "characters": "ByteVocabulary FullCodepointVocabulary PartialCodepointVocabulary UnigramVocabulary",
        "sentence_piece": "SentencePieceVocabulary",
        "tokenizers": "TokenizersVocabulary",
        "vocabulary": "PAD_ID PassThroughVocabulary Vocabulary",
    },
)
__all__ = __dir__()
