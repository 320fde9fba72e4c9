"""The few array operations converters are written in, over NumPy arrays and over TensorFlow tensors.

A converter is written once, in these and in Python's own operators; which library computes is decided by the
arrays that come in. So the cached path (NumPy) and the `tf.data` path give the same numbers by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfTensor, require

if TYPE_CHECKING:
    import tensorflow as tf

Array: TypeAlias = "np.ndarray | tf.Tensor"


class ArrayOps(Protocol):
    """What a converter may do to arrays beyond `+ - * < >= &`; axes count from the end: -1 is the sequence."""

    def asarray(self, array: Array) -> Array: ...

    def cast(self, array: Array, dtype: str) -> Array: ...

    def dtype_of(self, array: Array) -> str: ...

    def equal(self, left: Array, right: Array) -> Array: ...

    def concat(self, arrays: Sequence[Array]) -> Array: ...

    def size(self, array: Array) -> np.int32 | TfTensor: ...

    def not_equal(self, left: Array, right: Array) -> Array: ...

    def fill_like(self, array: Array, value: int | np.int32 | TfTensor) -> Array: ...

    def indices_like(self, array: Array) -> Array: ...

    def max_along_sequence(self, array: Array) -> Array: ...

    def shift_right(self, array: Array, fill: int, *, axis: int) -> Array: ...

    def fill_where(self, array: Array, condition: Array, value: int) -> Array:
        """A new array's entries replaced; NumPy does it in place."""

    def expand_to_rank_of(self, array: Array, other: Array) -> Array: ...


class NumpyOps:
    """`ArrayOps` over `np.ndarray`."""

    def asarray(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def cast(self, array: np.ndarray, dtype: str) -> np.ndarray:
        return np.asarray(array).astype(dtype, copy=False)

    def dtype_of(self, array: np.ndarray) -> str:
        return str(np.asarray(array).dtype)

    def equal(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        same: np.ndarray = np.equal(left, right)
        return same

    def not_equal(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        differ: np.ndarray = np.not_equal(left, right)
        return differ

    def concat(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays, axis=-1)

    def size(self, array: np.ndarray) -> np.int32:
        size: np.int32 = np.int32(np.shape(array)[-1])
        return size

    def fill_like(self, array: np.ndarray, value: int | np.int32) -> np.ndarray:
        return np.full_like(array, value)

    def indices_like(self, array: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.arange(array.shape[-1], dtype=np.int32), array.shape)

    def max_along_sequence(self, array: np.ndarray) -> np.ndarray:
        largest: np.ndarray = np.max(array, axis=-1, keepdims=True, initial=0)
        return largest

    def shift_right(self, array: np.ndarray, fill: int, *, axis: int) -> np.ndarray:
        shifted = np.empty_like(array)
        first, rest, source = _shift_slices(array.ndim, axis)
        shifted[first], shifted[rest] = fill, array[source]
        return shifted

    def fill_where(self, array: np.ndarray, condition: np.ndarray, value: int) -> np.ndarray:
        np.copyto(array, np.asarray(value, array.dtype), where=condition)
        return array

    def expand_to_rank_of(self, array: np.ndarray, other: np.ndarray) -> np.ndarray:
        return array.reshape(array.shape + (1,) * (other.ndim - array.ndim))


class TensorflowOps:
    """`ArrayOps` over `tf.Tensor`, in graph mode and eagerly."""

    def __init__(self) -> None:
        self._tf = require("tensorflow", purpose="converting tf.data examples")

    def asarray(self, array: TfTensor) -> TfTensor:
        return self._tf.convert_to_tensor(array)

    def cast(self, array: TfTensor, dtype: str) -> TfTensor:
        return self._tf.cast(array, dtype)

    def dtype_of(self, array: TfTensor) -> str:
        return str(array.dtype.name)

    def equal(self, left: TfTensor, right: TfTensor) -> TfTensor:
        return self._tf.equal(left, right)

    def not_equal(self, left: TfTensor, right: TfTensor) -> TfTensor:
        return self._tf.not_equal(left, right)

    def concat(self, arrays: Sequence[TfTensor]) -> TfTensor:
        return self._tf.concat(list(arrays), axis=-1)

    def size(self, array: TfTensor) -> TfTensor:
        return self._tf.shape(array)[-1]

    def fill_like(self, array: TfTensor, value: TfTensor) -> TfTensor:
        return self._tf.zeros_like(array) + self._tf.cast(value, array.dtype)

    def indices_like(self, array: TfTensor) -> TfTensor:
        return self._tf.zeros_like(array, dtype="int32") + self._tf.range(self._tf.shape(array)[-1])

    def max_along_sequence(self, array: TfTensor) -> TfTensor:
        return self._tf.maximum(self._tf.reduce_max(array, axis=-1, keepdims=True), 0)

    def shift_right(self, array: TfTensor, fill: int, *, axis: int) -> TfTensor:
        first, _, source = _shift_slices(array.shape.rank, axis)
        return self._tf.concat([self.fill_like(array[first], fill), array[source]], axis=axis)

    def fill_where(self, array: TfTensor, condition: TfTensor, value: int) -> TfTensor:
        return self._tf.where(condition, self._tf.cast(value, array.dtype), array)

    def expand_to_rank_of(self, array: TfTensor, other: TfTensor) -> TfTensor:
        for _ in range(other.shape.rank - array.shape.rank):
            array = self._tf.expand_dims(array, -1)
        return array


def _shift_slices(rank: int, axis: int) -> list[tuple[slice, ...]]:
    """The first entry, all but the first, and all but the last, along `axis`."""
    if not -rank <= axis < rank:
        raise TaskError(f"expected an axis of an array of rank {rank}, got {axis}", axis=axis, rank=rank)
    slices = []
    for along in (slice(None, 1), slice(1, None), slice(None, -1)):
        index = [slice(None)] * rank
        index[axis] = along
        slices.append(tuple(index))
    return slices


NUMPY = NumpyOps()


def ops_of(*arrays: object) -> ArrayOps:
    """`TensorflowOps` as soon as one of `arrays` is a TensorFlow tensor, else `NUMPY`."""
    for array in arrays:
        if type(array).__module__.partition(".")[0] == "tensorflow":
            return TensorflowOps()
    return NUMPY
