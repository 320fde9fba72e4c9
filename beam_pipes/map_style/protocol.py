"""The dataset protocol, the base class of every dataset here, and the epoch that examples are read for.

A *dataset* is anything with `__len__` and `__getitem__`: a list, a NumPy array, a memory-mapped split of a cache, or
a subclass of `Dataset`. An *example* is what one integer index gives. An index outside `[-n, n)` raises
`ExampleIndexError`; an `IndexError` or `StopIteration` that comes out of user code is raised as `ExampleError`, since
Python's iteration protocol would interpret either as the end of the data.

A transform that draws needs the epoch besides the index. The epoch belongs to the thread of execution, not to the
dataset: two iterators, in two epochs, may read one dataset at once.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from beam_pipes.errors import DatasetError, ExampleError, ExampleIndexError

_EPOCH: ContextVar[int] = ContextVar("transforms_datasets_epoch", default=0)


def current_epoch() -> int:
    """Returns the epoch that examples are being read for; 0 outside of a `DataLoader` and of `reading_epoch`."""
    return _EPOCH.get()


@contextlib.contextmanager
def reading_epoch(epoch: int) -> Iterator[None]:
    """Examples read in this block belong to `epoch`; a `DataLoader` sets it automatically."""
    token = _EPOCH.set(epoch)
    try:
        yield
    finally:
        _EPOCH.reset(token)


class MapStyle(Protocol):
    """Anything that is indexed by integers and knows its length."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


# An element of a dataset: a user's object of any class.
Item = Any


class Dataset:
    """Base class of datasets: implement `__len__` and either `__getitem__` or `get_example`.

    - Override `__getitem__(self, i)` for full control, as with `paddle.io.Dataset`.
    - Override `get_example(self, i)` to be called with a checked index in `[0, n)` only; `dataset[-1]`,
      `dataset[2:5]` and `dataset[[4, 0]]` then work too, the last two giving a list of examples.

    Iterating gives every example in order, and errors in them always surface.
    """

    def __len__(self) -> int:
        raise DatasetError(f"{type(self).__name__} should define __len__, the number of its examples")

    def get_example(self, index: int) -> Item:
        """Returns the example at `index`, which is an int in `[0, len(self))`."""
        raise DatasetError(
            f"{type(self).__name__} should define __getitem__(self, i) or get_example(self, i); it defines neither"
        )

    def __getitem__(self, index: object) -> Item:
        if isinstance(index, slice):
            return [self._checked_example(i) for i in range(*index.indices(len(self)))]
        if isinstance(index, (list, tuple, np.ndarray)) and np.ndim(index) == 1:
            return [self._checked_example(i) for i in checked_indices(index, len(self), type(self).__name__)]
        return self._checked_example(checked_index(index, len(self), type(self).__name__))

    def __iter__(self) -> Iterator[Item]:
        for index in range(len(self)):
            yield fetch(self, index, type(self).__name__)

    def _checked_example(self, index: int) -> object:
        try:
            return self.get_example(index)
        except (IndexError, StopIteration) as error:
            raise example_error(f"reading example {index} of {type(self).__name__}", index, error) from error


def fetch(dataset: MapStyle, index: int, owner: str) -> Item:
    """Returns `dataset[index]` for an index known to be valid, so that an `IndexError` comes from user code."""
    try:
        return dataset[index]
    except (IndexError, StopIteration) as error:
        raise example_error(f"{owner}: reading example {index} of {type(dataset).__name__}", index, error) from error


def apply_to_example(
    function: Callable[..., object], example: object, index: int, role: str, *arguments: object
) -> object:
    """Calls user code on one example; any exception becomes an `ExampleError` that names `index` and function."""
    try:
        return function(example, *arguments)
    except ExampleError:
        raise
    except Exception as error:
        raise example_error(f"{role} {describe(function)} on example {index}", index, error) from error


def example_error(what: str, index: int, error: BaseException) -> ExampleError:
    """Builds the error for user code that raised `error` while doing `what`."""
    return ExampleError(f"{what} failed: {type(error).__name__}: {error}", index=index)


def describe(function: Callable[..., object]) -> str:
    """Names a callable: `tokenize (text.py:12)` for functions and lambdas, the class for callable objects."""
    code = getattr(function, "__code__", None)
    if code is not None:
        return f"{function.__qualname__} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def check_dataset(dataset: object, owner: str) -> None:
    """Raises `DatasetError` unless `dataset` has `__len__` and `__getitem__`."""
    missing = [name for name in ("__len__", "__getitem__") if not hasattr(dataset, name)]
    if missing:
        raise DatasetError(
            f"{owner} needs a dataset with __len__ and __getitem__, got {type(dataset).__name__} without "
            f"{' and '.join(missing)}. Pass a list or a Dataset; a stream can be read with list(...) first."
        )


def checked_index(index: Any, size: int, owner: str) -> int:
    """Returns `index` as an int in `[0, size)`, counting from the end where it is negative."""
    try:
        number = operator.index(index)
    except TypeError as error:
        raise DatasetError(
            f"{owner} is indexed by an int, a slice or a sequence of ints, got {type(index).__name__}: {index!r}"
        ) from error
    if not -size <= number < size:
        raise ExampleIndexError(
            f"index {number} is out of range for {owner} of {size} examples", index=number, size=size
        )
    return number + size if number < 0 else number


def checked_indices(indices: Sequence[object] | np.ndarray, size: int, owner: str) -> list[int]:
    """Returns every index as an int in `[0, size)`; a boolean array selects the places that are True."""
    array = np.asarray(indices)
    if array.dtype == np.bool_:
        if len(array) != size:
            raise DatasetError(f"a boolean index of {owner} needs {size} values, one per example; got {len(array)}")
        return [int(i) for i in np.flatnonzero(array)]
    if array.dtype.kind in "iu":
        outside = np.flatnonzero((array < -size) | (array >= size))
        if len(outside):
            checked_index(array[outside[0]], size, owner)
        return [int(i) for i in np.where(array < 0, array + size, array)]
    return [checked_index(index, size, owner) for index in indices]
