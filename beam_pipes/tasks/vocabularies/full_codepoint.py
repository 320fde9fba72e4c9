"""Unicode code points as ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text


class FullCodepointVocabulary(Vocabulary):
    """One id a Unicode code point, its number: `encode("hé") == [104, 233]`.

    Padding is code point 0; EOS is U+E005 of the private use area; nothing is unknown.
    """

    LARGEST_CODEPOINT = 0x10FFFF
    PAD_CODEPOINT = 0
    EOS_CODEPOINT = 0xE005

    @property
    def eos_id(self) -> int:
        return self.EOS_CODEPOINT

    @property
    def pad_id(self) -> int:
        return self.PAD_CODEPOINT

    @property
    def unk_id(self) -> int | None:
        return None

    @property
    def _base_vocab_size(self) -> int:
        return self.LARGEST_CODEPOINT

    def _encode(self, s: Any) -> list[int]:
        return [ord(character) for character in as_text(s)]

    def _decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in ids if i != self.EOS_CODEPOINT)

    def _encode_tf(self, s: Any) -> Any:
        from beam_pipes.tasks.vocabularies.tensorflow_bridge import tensorflow

        return tensorflow().strings.unicode_decode(s, input_encoding="UTF-8")

    def _decode_tf(self, ids: Any) -> Any:
        from beam_pipes.tasks.vocabularies.tensorflow_bridge import tensorflow

        return tensorflow().strings.unicode_encode(ids, output_encoding="UTF-8")
