"""A vocabulary for what is ids already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary


class PassThroughVocabulary(Vocabulary):
    """Encodes and decodes nothing: `encode([1, 2]) == [1, 2]`. For features that arrive as ids or numbers.

    Args:
        size: number of ids; 0 where the feature is not made of ids.
        eos_id: decoding stops at it; None for no end.
    """

    def __init__(self, size: int, eos_id: Any = None) -> None:
        self._size = size
        self._eos_id = eos_id
        super().__init__()

    @property
    def size(self) -> int:
        return self._size

    @property
    def _base_vocab_size(self) -> int:
        return self._size

    @property
    def eos_id(self) -> Any:
        return self._eos_id

    @property
    def unk_id(self) -> int | None:
        return None

    def _encode(self, s: Sequence[Any]) -> Sequence[Any]:
        return s

    def _decode(self, ids: Sequence[Any]) -> Sequence[Any]:
        return ids

    def _encode_tf(self, s: Any) -> Any:
        return s

    def _decode_tf(self, ids: Any) -> Any:
        return ids

    def config(self) -> dict[str, Any]:
        return {"size": self._size, "eos_id": self._eos_id}
