"""Bytes as ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary

_SPECIAL_IDS = 3
_BYTES = 256


class ByteVocabulary(Vocabulary):
    """One id a UTF-8 byte, after three special ones (padding 0, EOS 1, unknown 2): `encode("hi") == [107, 108]`.

    Size is 259, plus `extra_ids`. Decoding skips ids that are no byte, and bytes that are not UTF-8.
    """

    def __init__(self, extra_ids: int = 0) -> None:
        super().__init__(extra_ids=extra_ids)

    @property
    def bos_id(self) -> int | None:
        return None

    @property
    def eos_id(self) -> int:
        return 1

    @property
    def unk_id(self) -> int:
        return 2

    @property
    def _base_vocab_size(self) -> int:
        return _SPECIAL_IDS + _BYTES

    def _encode(self, s: Any) -> list[int]:
        encoded = s if isinstance(s, bytes) else s.encode("utf-8")
        return [byte + _SPECIAL_IDS for byte in encoded]

    def _decode(self, ids: Sequence[int]) -> str:
        raw = bytes(i - _SPECIAL_IDS for i in ids if _SPECIAL_IDS <= i < _SPECIAL_IDS + _BYTES)
        return raw.decode("utf-8", "ignore")

    def _encode_tf(self, s: Any) -> Any:
        from beam_pipes.tasks.vocabularies.tensorflow_bridge import tensorflow

        tf = tensorflow()
        return (
            tf.cast(tf.io.decode_raw(s, tf.uint8), tf.int32) + _SPECIAL_IDS
            if _is_scalar(tf, s)
            else tf.ragged.map_flat_values(
                # The fixed length keeps the axis of a text's bytes where there are none at all.
                lambda byte: tf.cast(tf.io.decode_raw(byte, tf.uint8, fixed_length=1)[:, 0], tf.int32) + _SPECIAL_IDS,
                tf.strings.bytes_split(s),
            )
        )


def _is_scalar(tf: Any, s: Any) -> bool:
    return not isinstance(s, tf.RaggedTensor) and tf.convert_to_tensor(s).shape.rank == 0
