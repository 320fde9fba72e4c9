"""Vocabularies: text to ids and back. `VOCABULARIES` is the table of their names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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

VOCABULARIES = {
    "BertWordPieceVocabulary": "bert_word_piece",
    "ByteVocabulary": "characters",
    "FullCodepointVocabulary": "characters",
    "PartialCodepointVocabulary": "characters",
    "PassThroughVocabulary": "vocabulary",
    "SentencePieceVocabulary": "sentence_piece",
    "TiktokenVocabulary": "byte_pairs",
    "TokenizersVocabulary": "tokenizers",
    "UnigramVocabulary": "characters",
}
_MODULE_OF = {**VOCABULARIES, "Vocabulary": "vocabulary", "PAD_ID": "vocabulary"}

__all__ = ["PAD_ID", "VOCABULARIES", "Vocabulary", *VOCABULARIES]


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
