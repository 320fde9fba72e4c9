"""The few array operations that converters are written in, over NumPy arrays and TensorFlow tensors.

A converter is written once, with these and Python's own operators; its input arrays decide which library computes. So
the cached path (NumPy) and the `tf.data` path give the same numbers by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfTensor, tensorflow

if TYPE_CHECKING:
    import tensorflow as tf

Array: TypeAlias = "np.ndarray | tf.Tensor"


class ArrayOps:
    """Operations on arrays for converters beyond `+ - * < >= &`; axes count from the end: -1 is the sequence.

    `tf` is the module, for tensors in graph mode and eagerly; None computes with NumPy.
    """

    def __init__(self, tf: ModuleType | None) -> None:
        self._tf = tf

    def asarray(self, array: Array) -> Array:
        return self._tf.convert_to_tensor(array) if self._tf else np.asarray(array)

    def cast(self, array: Array, dtype: str) -> Array:
        return self._tf.cast(array, dtype) if self._tf else np.asarray(array).astype(dtype, copy=False)

    def dtype_of(self, array: Array) -> str:
        return str(array.dtype.name if self._tf else np.asarray(array).dtype)

    def equal(self, left: Array, right: Array) -> Array:
        return (self._tf or np).equal(left, right)

    def not_equal(self, left: Array, right: Array) -> Array:
        return (self._tf or np).not_equal(left, right)

    def concat(self, arrays: Sequence[Array]) -> Array:
        return self._tf.concat(list(arrays), axis=-1) if self._tf else np.concatenate(arrays, axis=-1)

    def size(self, array: Array) -> np.int32 | TfTensor:
        return self._tf.shape(array)[-1] if self._tf else np.int32(np.shape(array)[-1])

    def fill_like(self, array: Array, value: int | np.int32 | TfTensor) -> Array:
        tf = self._tf
        return tf.zeros_like(array) + tf.cast(value, array.dtype) if tf else np.full_like(array, value)

    def indices_like(self, array: Array) -> Array:
        if self._tf:
            return self._tf.zeros_like(array, dtype="int32") + self._tf.range(self._tf.shape(array)[-1])
        return np.broadcast_to(np.arange(array.shape[-1], dtype=np.int32), array.shape)

    def max_along_sequence(self, array: Array) -> Array:
        if self._tf:
            return self._tf.maximum(self._tf.reduce_max(array, axis=-1, keepdims=True), 0)
        return np.max(array, axis=-1, keepdims=True, initial=0)

    def shift_right(self, array: Array, fill: int, *, axis: int) -> Array:
        rank = len(array.shape)
        if not -rank <= axis < rank:
            raise TaskError(f"expected an axis of an array of rank {rank}, got {axis}", axis=axis, rank=rank)
        before: tuple[slice, ...] = (slice(None),) * (axis % rank)
        first, rest, source = ((*before, along) for along in (slice(None, 1), slice(1, None), slice(None, -1)))
        if self._tf:
            return self._tf.concat([self.fill_like(array[first], fill), array[source]], axis=axis)
        shifted = np.empty_like(array)
        shifted[first], shifted[rest] = fill, array[source]
        return shifted

    def fill_where(self, array: Array, condition: Array, value: int) -> Array:
        """Replaces entries of a new array; in place with NumPy."""
        if self._tf:
            return self._tf.where(condition, self._tf.cast(value, array.dtype), array)
        np.copyto(array, np.asarray(value, array.dtype), where=condition)
        return array

    def expand_to_rank_of(self, array: Array, other: Array) -> Array:
        inner = [None] * (len(other.shape) - len(array.shape))
        return array[tuple([..., *inner])]


NUMPY = ArrayOps(None)


def ops_of(*arrays: object) -> ArrayOps:
    """TensorFlow's operations if one of `arrays` is its tensor, else NumPy's."""
    if any(type(array).__module__.partition(".")[0] == "tensorflow" for array in arrays):
        return ArrayOps(tensorflow("converting tf.data examples"))
    return NUMPY
