"""A closed list of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text


class UnigramVocabulary(Vocabulary):
    """One id a word of a closed list, for labels.

    With `["the", "dog"]`: `encode("dog") == [2]`, `encode("cat") == [3]`. Id 0 is padding, then the words in their
    order, then the unknown word. `decode` gives all words, with spaces between.

    Args:
        unigrams: the words.
        split_on_space: the text is several words with spaces between; else the whole text is one word, and `decode_tf`
            gives the first word of each sequence.
    """

    def __init__(self, unigrams: Sequence[str], split_on_space: bool = False) -> None:
        super().__init__()
        self._words = ["PAD", *(as_text(word) for word in unigrams), "UNK"]
        self._split_on_space = split_on_space
        self._id_of = {word: i for i, word in reversed(list(enumerate(self._words[:-1])))}

    @property
    def bos_id(self) -> int | None:
        return None

    @property
    def eos_id(self) -> int | None:
        return None

    @property
    def unk_id(self) -> int:
        return len(self._words) - 1

    @property
    def _base_vocab_size(self) -> int:
        return len(self._words)

    def _encode(self, s: Any) -> list[int]:
        text = as_text(s)
        words = text.split(" ") if self._split_on_space else [text]
        return [self._id_of.get(word, self.unk_id) for word in words]

    def _decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[i] for i in ids)

    def _decode_tf(self, ids: Any) -> Any:
        return super()._decode_tf(ids if self._split_on_space else ids[..., :1])

    def config(self) -> dict[str, Any]:
        return {"unigrams": self._words[1:-1], "split_on_space": self._split_on_space}
