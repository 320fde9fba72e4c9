"""Vocabularies inside tf.data: the Python functions as TensorFlow operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.tasks.in_tensorflow import dataset_map as tensorflow_import

if TYPE_CHECKING:
    from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary


def tensorflow(purpose: str = "encode_tf and decode_tf") -> Any:
    return tensorflow_import.tensorflow(purpose)


def clean_ids(ids: Any, vocabulary: Vocabulary) -> Any:
    """Unknown ids become `unk_id`, and everything after the first EOS of the last axis becomes `pad_id`."""
    tf = tensorflow()
    if vocabulary.unk_id is not None:
        size = tf.cast(vocabulary._base_vocab_size, ids.dtype)
        unknown = tf.cast(vocabulary.unk_id, ids.dtype)
        ids = tf.where(tf.less(ids, size), ids, unknown)
    if vocabulary.eos_id is not None:
        is_eos = tf.cast(tf.equal(ids, tf.cast(vocabulary.eos_id, ids.dtype)), tf.int32)
        if isinstance(ids, tf.RaggedTensor):
            ended = tf.ragged.map_flat_values(tf.identity, is_eos)
            before = ended.with_flat_values(_ragged_cumsum(tf, ended))
        else:
            before = tf.cumsum(is_eos, exclusive=True, axis=-1)
        ids = tf.where(tf.equal(before, 0), ids, tf.cast(vocabulary.pad_id, ids.dtype))
    return ids


def _ragged_cumsum(tf: Any, ragged: Any) -> Any:
    values = tf.cumsum(ragged.flat_values, exclusive=True)
    starts = tf.gather(tf.concat([values, [0]], 0), ragged.nested_row_splits[-1][:-1])
    return values - tf.gather(starts, _row_ids(ragged))


def _row_ids(ragged: Any) -> Any:
    while ragged.ragged_rank > 1:
        ragged = ragged.values
    return ragged.value_rowids()


def encode_through_python(vocabulary: Vocabulary, s: Any) -> Any:
    """`encode` as an operation: a scalar gives rank 1; a vector gives a ragged row a string. int32."""
    tf = tensorflow()
    if isinstance(s, tf.RaggedTensor):
        return tf.ragged.map_flat_values(lambda flat: encode_through_python(vocabulary, flat), s)
    s = tf.convert_to_tensor(s)
    if s.shape.rank is not None and s.shape.rank > 1:
        raise ValueError(f"encode_tf takes a string or a vector of strings, got rank {s.shape.rank}")

    def encode_all(strings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [np.asarray(vocabulary.encode(string), np.int32) for string in np.atleast_1d(strings)]
        lengths = np.asarray([len(row) for row in rows], np.int64)
        return (np.concatenate(rows) if rows else np.zeros(0, np.int32)), lengths

    ids, lengths = tf.numpy_function(encode_all, [s], [tf.int32, tf.int64])
    ids.set_shape([None])
    lengths.set_shape([None])
    return ids if s.shape.rank == 0 else tf.RaggedTensor.from_row_lengths(ids, lengths)


def decode_through_python(vocabulary: Vocabulary, ids: Any) -> Any:
    """`_decode` as an operation over the last axis: `[..., length]` ids → `[...]` strings."""
    tf = tensorflow()
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(default_value=tf.cast(vocabulary.pad_id, ids.dtype))
    ids = tf.convert_to_tensor(ids)

    def decode_all(array: np.ndarray) -> np.ndarray:
        rows = array.reshape(-1, array.shape[-1]) if array.shape[-1] else np.zeros((int(np.prod(array.shape[:-1])), 0))
        texts = [as_bytes(vocabulary.decode(row.tolist())) for row in rows]
        decoded = np.empty(len(texts), object)
        decoded[:] = texts
        return decoded.reshape(array.shape[:-1])

    decoded = tf.numpy_function(decode_all, [ids], tf.string)
    decoded.set_shape(ids.shape[:-1])
    return decoded


def as_bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
