"""A chosen set of Unicode code points as ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text


class PartialCodepointVocabulary(Vocabulary):
    """One id a code point of a closed set: with `[97, 98]`, `encode("abz") == [3, 4, 2]`.

    Ids 0, 1 and 2 are padding, EOS and unknown, the given code points follow in their order.

    Args:
        codepoints: numbers of the characters, `[ord(c) for c in alphabet]`.
        extra_ids: number of sentinels after them.
    """

    PAD_CODEPOINT = 0
    EOS_CODEPOINT = 0xE005
    UNK_CODEPOINT = 0xE004
    PAD_ID = 0
    EOS_ID = 1
    UNK_ID = 2

    def __init__(self, codepoints: Sequence[int], extra_ids: int = 0) -> None:
        self._id_of = {
            self.PAD_CODEPOINT: self.PAD_ID,
            self.EOS_CODEPOINT: self.EOS_ID,
            self.UNK_CODEPOINT: self.UNK_ID,
        }
        for codepoint in codepoints:
            self._id_of.setdefault(int(codepoint), len(self._id_of))
        self._codepoint_of = {i: codepoint for codepoint, i in self._id_of.items()}
        super().__init__(extra_ids=extra_ids)

    @classmethod
    def create_from_file(cls, vocab_file: str, extra_ids: int = 0) -> PartialCodepointVocabulary:
        """Reads a file with one code point a line, in decimal: `97` is the letter a.

        Raises:
            TaskError: a line is not a number.
        """
        from beam_pipes.tasks.in_tensorflow.file_patterns import read_bytes

        codepoints = []
        for number, line in enumerate(read_bytes(vocab_file).decode("utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                codepoints.append(int(line))
            except ValueError as error:
                raise TaskError(
                    f"{vocab_file} line {number}: expected a code point in decimal, got {line!r}; "
                    f"write ord(character), one a line",
                    path=vocab_file,
                    line=number,
                ) from error
        return cls(codepoints, extra_ids)

    @property
    def eos_id(self) -> int:
        return self.EOS_ID

    @property
    def pad_id(self) -> int:
        return self.PAD_ID

    @property
    def unk_id(self) -> int:
        return self.UNK_ID

    @property
    def _base_vocab_size(self) -> int:
        return len(self._id_of)

    def _encode(self, s: Any) -> list[int]:
        return [self._id_of.get(ord(character), self.UNK_ID) for character in as_text(s)]

    def _decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(self._codepoint_of.get(i, self.UNK_CODEPOINT)) for i in ids if i != self.EOS_ID)

    def config(self) -> dict[str, Any]:
        return {"codepoints": list(self._id_of)[3:], "extra_ids": self.extra_ids}
