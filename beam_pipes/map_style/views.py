"""Datasets one after the other.

The examples that pass a test.

A contiguous part of a dataset.

Chosen examples of a dataset.

A dataset seen through a function.

Cutting a dataset in parts: `split` by place, `random_split` by a seeded draw.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style.dataset import (
    Dataset,
    Item,
    MapStyle,
    apply_to_example,
    check_dataset,
    checked_indices,
    current_epoch,
    describe,
    fetch,
)


class ChainDataset(Dataset):
    """Concatenates datasets: `ChainDataset("ab", "c")` → "a", "b", "c". Raises `DatasetError` without datasets."""

    def __init__(self, *datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("ChainDataset needs at least one dataset, got none")
        for dataset in datasets:
            check_dataset(dataset, "ChainDataset")
        self._datasets = datasets
        self._ends = list(itertools.accumulate(len(dataset) for dataset in datasets))

    def __len__(self) -> int:
        return self._ends[-1]

    def get_example(self, index: int) -> object:
        part = bisect.bisect_right(self._ends, index)
        start = self._ends[part - 1] if part else 0
        return fetch(self._datasets[part], index - start, "ChainDataset")


class FilterDataset(Dataset):
    """Keeps the examples for which `filter_fn(example)` is true.

        FilterDataset([3, 8, 5], lambda n: n > 4) → 8, 5

    Every example is read once, at construction, to learn which are kept. Where that is dear and a small dataset of
    metadata of the same length decides as well, pass it as `on`: `filter_fn` then sees `on[i]`, and no example is read.

        FilterDataset(clips, lambda meta: meta["seconds"] < 10, on=metadata)

    An exception in `filter_fn` is raised as `ExampleError` with the index of its example.
    """

    def __init__(self, dataset: MapStyle, filter_fn: Callable[[Item], object], *, on: MapStyle | None = None) -> None:
        check_dataset(dataset, "FilterDataset")
        judged = dataset if on is None else on
        check_dataset(judged, "FilterDataset")
        if len(judged) != len(dataset):
            raise DatasetError(
                f"FilterDataset needs `on` to hold one value for each of the {len(dataset)} examples, got {len(judged)}"
            )
        self._dataset = dataset
        self._indices = np.asarray(
            [index for index in range(len(dataset)) if _kept(filter_fn, fetch(judged, index, "FilterDataset"), index)],
            dtype=np.int64,
        )

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The indices of the kept examples in the dataset below, ascending, int64."""
        return self._indices

    def get_example(self, index: int) -> object:
        return fetch(self._dataset, int(self._indices[index]), "FilterDataset")


def _kept(filter_fn: Callable[[Item], object], example: object, index: int) -> bool:
    verdict = apply_to_example(filter_fn, example, index, "filter")
    try:
        return bool(verdict)
    except ValueError as error:  # an array of several values
        raise ExampleError(
            f"filter {describe(filter_fn)} on example {index} should return one true or false value, got "
            f"{type(verdict).__name__} of shape {getattr(verdict, 'shape', None)}. Reduce it, with .all() or .any().",
            index=index,
        ) from error


class SliceDataset(Dataset):
    """Examples `start` to `finish` (exclusive) of a dataset, lazily.

    With `order`, a permutation of all indices of `dataset`, they are those at places `start` to `finish` of it:

        SliceDataset("abcd", 1, 3)                      → "b", "c"
        SliceDataset("abcd", 1, 3, order=[3, 2, 1, 0])  → "c", "b"

    Raises `DatasetError` if the slice overruns the dataset or `order` is not a permutation of its indices.
    """

    def __init__(
        self,
        dataset: MapStyle,
        start: int,
        finish: int,
        order: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        check_dataset(dataset, "SliceDataset")
        size = len(dataset)
        if not 0 <= start <= finish <= size:
            raise DatasetError(
                f"SliceDataset needs 0 <= start <= finish <= {size}, the dataset's length; "
                f"got start={start}, finish={finish}"
            )
        if order is not None and not np.array_equal(np.sort(np.asarray(order, dtype=np.int64)), np.arange(size)):
            raise DatasetError(
                f"SliceDataset needs an order that holds each of 0..{size - 1} once, got {len(order)} values"
            )
        self._dataset = dataset
        self._start = start
        self._size = finish - start
        self._order = order

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> object:
        place = self._start + index
        return fetch(self._dataset, place if self._order is None else int(self._order[place]), "SliceDataset")


class SubsetDataset(Dataset):
    """The examples of `dataset` at `indices`, in that order; an index may occur more than once.

        SubsetDataset("abcd", [2, 0]) → "c", "a"

    Use it to sort or filter by metadata without loading an example: `SubsetDataset(clips, np.argsort(seconds))`.
    Raises `ExampleIndexError` at construction where an index lies outside the dataset.
    """

    def __init__(self, dataset: MapStyle, indices: Sequence[int] | np.ndarray) -> None:
        check_dataset(dataset, "SubsetDataset")
        self._dataset = dataset
        self._indices = np.asarray(
            checked_indices(indices, len(dataset), f"{type(dataset).__name__} under SubsetDataset"), dtype=np.int64
        )

    def __len__(self) -> int:
        return len(self._indices)

    def get_example(self, index: int) -> object:
        return fetch(self._dataset, int(self._indices[index]), "SubsetDataset")


class TransformDataset(Dataset):
    """Applies `transform` to an example on each access.

        TransformDataset([1, 2], lambda n: n * 10)[1] → 20

    Args:
      dataset: where examples come from.
      transform: a function of one example, or an object with a method `forward`. For worker processes it must be
        picklable.
      seed: for a transform that draws, which is then called with `(example, generator)`: a `numpy.random.Generator`
        keyed by (seed, epoch, index). So an example is augmented otherwise in each epoch, and alike whatever the
        workers, ranks and restarts. The epoch is the `DataLoader`'s (`reading_epoch` sets it elsewhere); a
        `CacheDataset` above keeps the first draw.

    An exception in `transform` is raised as `ExampleError` with the index of its example and the original as its cause.
    """

    def __init__(self, dataset: MapStyle, transform: Callable[..., object], *, seed: int | None = None) -> None:
        check_dataset(dataset, "TransformDataset")
        function = transform if callable(transform) else getattr(transform, "forward", None)
        if function is None:
            raise DatasetError(
                f"TransformDataset needs a callable transform, got {type(transform).__name__}; "
                "give its class a __call__ method"
            )
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
            raise DatasetError(f"TransformDataset needs seed to be an int of at least 0, got {seed!r}")
        self._dataset = dataset
        self._transform: Callable[..., object] = function
        self._seed = seed

    @property
    def dataset(self) -> MapStyle:
        """The dataset that is seen through the function."""
        return self._dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def get_example(self, index: int) -> object:
        example = fetch(self._dataset, index, "TransformDataset")
        if self._seed is None:
            return apply_to_example(self._transform, example, index, "transform")
        bits = np.random.PCG64(np.random.SeedSequence([self._seed, current_epoch(), index]))
        drawing = functools.partial(_draw, self._transform, np.random.Generator(bits))
        return apply_to_example(drawing, example, index, "transform", name=self._transform)


def _draw(transform: Callable[..., object], generator: np.random.Generator, example: object) -> object:
    return transform(example, generator)


Size = int | float


def split(dataset: MapStyle, first_size: Size) -> tuple[SliceDataset, SliceDataset]:
    """Returns the first `first_size` examples and the rest, in order.

    An int counts examples; a float in [0, 1] is a fraction, rounded to the nearest count:

        split("abcde", 2)   → "ab", "cde"
        split("abcde", 0.4) → "ab", "cde"

    Raises `DatasetError` for more examples than there are or a fraction outside [0, 1].
    """
    check_dataset(dataset, "split")
    total = len(dataset)
    first = _count(first_size, total, "split")
    return SliceDataset(dataset, 0, first), SliceDataset(dataset, first, total)


def random_split(dataset: MapStyle, sizes: Size | Sequence[Size], *, seed: int = 0) -> tuple[SubsetDataset, ...]:
    """Deals the examples at random into parts that are disjoint and hold everything.

    One size gives two parts, as `split` does. Several sizes give as many parts, and must be counts that sum to
    `len(dataset)` or fractions that sum to 1 (rounded by largest remainder). The same seed gives the same parts.

        train, valid, test = random_split(dataset, [0.8, 0.1, 0.1], seed=7)
    """
    check_dataset(dataset, "random_split")
    total = len(dataset)
    if isinstance(sizes, Sequence):
        counts = _counts(sizes, total)
    else:
        first = _count(sizes, total, "random_split")
        counts = [first, total - first]
    order = np.random.default_rng([seed, total]).permutation(total)
    parts = np.split(order, np.cumsum(counts)[:-1])
    return tuple(SubsetDataset(dataset, part) for part in parts)


def _count(size: Size, total: int, owner: str) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise DatasetError(f"{owner} needs a size that is a count or a fraction, got {type(size).__name__}: {size!r}")
    if isinstance(size, (float, np.floating)):
        if not 0.0 <= size <= 1.0:
            raise DatasetError(f"{owner} needs a fraction between 0 and 1 or an int count, got {size!r}")
        return round(float(size) * total)
    if not 0 <= size <= total:
        raise DatasetError(f"{owner} needs a count between 0 and {total}, the dataset's length; got {size}")
    return int(size)


def _counts(sizes: Sequence[Size], total: int) -> list[int]:
    if not sizes:
        raise DatasetError("random_split needs at least one size, got an empty sequence")
    if all(isinstance(size, (float, np.floating)) for size in sizes):
        for size in sizes:
            _count(size, total, "random_split")
        if not math.isclose(sum(sizes), 1.0, rel_tol=1e-9):
            raise DatasetError(f"random_split needs fractions that sum to 1, got {list(sizes)}: sum {sum(sizes)}")
        exact = [size * total for size in sizes]
        counts = [math.floor(value) for value in exact]
        by_remainder = sorted(range(len(sizes)), key=lambda part: counts[part] - exact[part])
        for part in by_remainder[: total - sum(counts)]:
            counts[part] += 1
        return counts
    if any(isinstance(size, (float, np.floating)) for size in sizes):
        raise DatasetError(f"random_split needs sizes that are all counts or all fractions, got {list(sizes)}")
    counts = [_count(size, total, "random_split") for size in sizes]
    if sum(counts) != total:
        raise DatasetError(
            f"random_split needs counts that sum to {total}, the dataset's length; got {counts}: sum {sum(counts)}"
        )
    return counts
