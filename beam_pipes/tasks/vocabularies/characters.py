"""Bytes as ids.

Unicode code points as ids.

A chosen set of Unicode code points as ids.

A closed list of words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfTensor, tensorflow
from beam_pipes.tasks.vocabularies.vocabulary import TF_PURPOSE, Vocabulary, as_text, utf8_of

if TYPE_CHECKING:
    import tensorflow as tf

_SPECIAL_IDS = 3
_BYTES = 256


class ByteVocabulary(Vocabulary):
    """One id per UTF-8 byte, after three special ones (padding 0, EOS 1, unknown 2): `encode("hi") == [107, 108]`.

    Size is 259, plus `extra_ids`. Decoding skips ids that are not bytes, and bytes that are not UTF-8.
    """

    bos_id = None
    eos_id = 1
    unk_id = 2
    _base_vocab_size = _SPECIAL_IDS + _BYTES

    def _encode(self, s: str | bytes) -> list[int]:
        encoded = s if isinstance(s, bytes) else utf8_of(s)
        return [byte + _SPECIAL_IDS for byte in encoded]

    def encode_arrays(self, texts: Sequence[str | bytes], *, threads: int = 1) -> list[np.ndarray]:
        """`encode_batch` as arrays, (length,) int32 each, without a Python number for each byte."""
        encoded = (text if isinstance(text, bytes) else utf8_of(text) for text in texts)
        return [np.frombuffer(each, np.uint8).astype(np.int32) + _SPECIAL_IDS for each in encoded]

    def _decode(self, ids: Sequence[int]) -> str:
        raw = bytes(i - _SPECIAL_IDS for i in ids if _SPECIAL_IDS <= i < _SPECIAL_IDS + _BYTES)
        return raw.decode("utf-8", "ignore")

    def _encode_tf(self, s: TfTensor) -> TfTensor:
        tf = tensorflow(TF_PURPOSE)
        return (
            tf.cast(tf.io.decode_raw(s, tf.uint8), tf.int32) + _SPECIAL_IDS
            if _is_scalar(tf, s)
            else tf.ragged.map_flat_values(
                # The fixed length keeps the axis of bytes even for empty texts.
                lambda byte: tf.cast(tf.io.decode_raw(byte, tf.uint8, fixed_length=1)[:, 0], tf.int32) + _SPECIAL_IDS,
                tf.strings.bytes_split(s),
            )
        )


def _is_scalar(tf: ModuleType, s: TfTensor) -> bool:
    return not isinstance(s, tf.RaggedTensor) and tf.convert_to_tensor(s).shape.rank == 0


class FullCodepointVocabulary(Vocabulary):
    """One id per Unicode code point, its number: `encode("hé") == [104, 233]`.

    Padding is code point 0; EOS is U+E005 of the private use area; nothing is unknown.
    """

    LARGEST_CODEPOINT = 0x10FFFF
    PAD_CODEPOINT = 0
    EOS_CODEPOINT = 0xE005

    unk_id = None

    @property
    def eos_id(self) -> int:
        return self.EOS_CODEPOINT

    @property
    def pad_id(self) -> int:
        return self.PAD_CODEPOINT

    @property
    def _base_vocab_size(self) -> int:
        return self.LARGEST_CODEPOINT

    def _encode(self, s: object) -> list[int]:
        return [ord(character) for character in as_text(s)]

    def _decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in ids if i != self.EOS_CODEPOINT)

    def _encode_tf(self, s: TfTensor) -> TfTensor:
        return tensorflow(TF_PURPOSE).strings.unicode_decode(s, input_encoding="UTF-8")

    def _decode_tf(self, ids: TfTensor) -> TfTensor:
        return tensorflow(TF_PURPOSE).strings.unicode_encode(ids, output_encoding="UTF-8")


class PartialCodepointVocabulary(Vocabulary):
    """One id per code point of a closed set: with `[97, 98]`, `encode("abz") == [3, 4, 2]`.

    Ids 0, 1 and 2 are padding, EOS and unknown, the given code points follow in the given order.

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
        """Reads a file with one decimal code point per line: `97` is the letter a.

        Raises:
            TaskError: a line is not a number.
        """
        from beam_pipes.tasks.vocabularies.files import read_bytes

        codepoints = []
        for number, line in enumerate(read_bytes(vocab_file).decode("utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                codepoints.append(int(line))
            except ValueError as error:
                raise TaskError(
                    f"{vocab_file} line {number}: expected a code point in decimal, got {line!r}; "
                    f"write ord(character), one per line",
                    path=vocab_file,
                    line=number,
                ) from error
        return cls(codepoints, extra_ids)

    @staticmethod
    def convert_dict_to_tf(d: Mapping[object, object], default_value: object = None) -> tf.lookup.StaticHashTable:
        """A dict as a table of TensorFlow: `table[tensor]` looks up every entry."""
        tf = tensorflow(TF_PURPOSE)
        initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(list(d)), tf.constant(list(d.values())))
        return tf.lookup.StaticHashTable(initializer, default_value=default_value)

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

    def _encode(self, s: object) -> list[int]:
        return [self._id_of.get(ord(character), self.UNK_ID) for character in as_text(s)]

    def _decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(self._codepoint_of.get(i, self.UNK_CODEPOINT)) for i in ids if i != self.EOS_ID)

    def config(self) -> dict[str, object]:
        return {"codepoints": list(self._id_of)[3:], "extra_ids": self.extra_ids}


class UnigramVocabulary(Vocabulary):
    """One id per word of a closed list, for labels.

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

    bos_id = None
    eos_id = None

    @property
    def unk_id(self) -> int:
        return len(self._words) - 1

    @property
    def _base_vocab_size(self) -> int:
        return len(self._words)

    def _encode(self, s: object) -> list[int]:
        text = as_text(s)
        words = text.split(" ") if self._split_on_space else [text]
        return [self._id_of.get(word, self.unk_id) for word in words]

    def _decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[i] for i in ids)

    def _decode_tf(self, ids: TfTensor) -> TfTensor:
        return super()._decode_tf(ids if self._split_on_space else ids[..., :1])

    def config(self) -> dict[str, object]:
        return {"unigrams": self._words[1:-1], "split_on_space": self._split_on_space}
