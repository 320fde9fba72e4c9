"""A vocabulary of a few texts with chosen ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text


class MockVocabulary(Vocabulary):
    """Encodes the texts of a dict, and nothing else: `MockVocabulary({"hi": [5, 6]}).encode("hi") == [5, 6]`.

    Args:
        encode_dict: text → ids.
        vocab_size: what the vocabulary says of its size; None for one more than the largest id.
    """

    def __init__(self, encode_dict: Mapping[Any, Sequence[int]], vocab_size: int | None = None) -> None:
        self._ids_of = {as_text(text): list(ids) for text, ids in encode_dict.items()}
        largest = max((i for ids in self._ids_of.values() for i in ids), default=1)
        self._size = largest + 1 if vocab_size is None else vocab_size
        super().__init__()

    @property
    def eos_id(self) -> int:
        return 1

    @property
    def unk_id(self) -> int | None:
        return None

    @property
    def _base_vocab_size(self) -> int:
        return self._size

    def _encode(self, s: Any) -> list[int]:
        return self._ids_of[as_text(s)]

    def _decode(self, ids: Sequence[int]) -> str:
        kept = [i for i in ids if i != self.eos_id]
        for text, known in self._ids_of.items():
            if list(ids) == known or kept == known:
                return text
        raise KeyError(f"no text of the mock vocabulary has the ids {list(ids)}")

    def config(self) -> dict[str, Any]:
        return {"encode_dict": self._ids_of, "vocab_size": self._size}
