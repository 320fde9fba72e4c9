"""Datasets made of other datasets.

CacheDataset                 remembers its examples
DataTable                    converts the fields of records
DictDataset, TupleDataset    zip datasets of one length
ChainDataset                 datasets one after the other
FilterDataset, SliceDataset, SubsetDataset    some examples of a dataset
TransformDataset             a dataset seen through a function
split, random_split          cut a dataset in parts, by place or by a seeded draw
"""

from __future__ import annotations

import abc
import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style.protocol import Dataset as Dataset
from beam_pipes.map_style.protocol import (
    Item,
    MapStyle,
    apply_to_example,
    check_dataset,
    checked_indices,
    current_epoch,
    describe,
    fetch,
)
from beam_pipes.map_style.sampler import check_count


class _Memory(Dataset):
    """Keeps what `_read` gives, unless `_examples` is None."""

    _examples: dict[int, object] | None

    @abc.abstractmethod
    def _read(self, index: int) -> object: ...

    def get_example(self, index: int) -> Item:
        if self._examples is None:
            return self._read(index)
        try:
            return self._examples[index]
        except KeyError:
            return self._examples.setdefault(index, self._read(index))

    def __getstate__(self) -> dict[str, object]:
        # The examples may take gigabytes, which whoever unpickles this does not need.
        return {**self.__dict__, "_examples": None if self._examples is None else {}}


class CacheDataset(_Memory):
    """Keeps every example in memory after its first use: the second policy of `docs/caching-policies.md`.

    The first pass costs as much as the dataset below, later ones a dict lookup. Every access returns the same
    object: do not change examples in place. Safe under threads (two threads that miss at once may both
    compute, one result is kept); each worker process of a `DataLoader` fills its own cache, which starts empty;
    a failed example is tried again.
    """

    def __init__(self, dataset: MapStyle) -> None:
        check_dataset(dataset, "CacheDataset")
        self._dataset = dataset
        self._examples: dict[int, object] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def _read(self, index: int) -> object:
        return fetch(self._dataset, index, "CacheDataset")

    @property
    def num_cached(self) -> int:
        """How many examples are held in memory."""
        return len(self._examples)

    def clear(self) -> None:
        """Forgets every example."""
        self._examples.clear()


class DataTable(_Memory):
    """Records (dicts) with some of their fields converted on access.

        DataTable([{"path": "a.npy", "text": "hi"}], fields=["path"], converters={"path": np.load})[0]
            → {"path": array(…)}

    Args:
      data: records with the same fields, usually metadata read from a file.
      fields: those to keep, in this order; all fields of the first record by default.
      converters: field → function of one value. Other fields are unchanged.
      use_cache: keep converted examples in memory (as `CacheDataset` does); off by default, as audio seldom fits.

    Raises `DatasetError` for an empty table, an unknown field, or a converter of a field that is not kept; a record
    that lacks a field, or a converter that fails, is an `ExampleError` with the record's index.
    """

    def __init__(
        self,
        data: MapStyle,
        fields: Sequence[str] | None = None,
        converters: Mapping[str, Callable[[Item], object]] | None = None,
        use_cache: bool = False,
    ) -> None:
        check_dataset(data, "DataTable")
        if len(data) == 0:
            raise DatasetError("DataTable needs at least one record, to know its fields; got none")
        known = list(fetch(data, 0, "DataTable"))
        self.fields = known if fields is None else list(fields)
        unknown = [field for field in self.fields if field not in known]
        if unknown:
            raise DatasetError(f"DataTable has no fields {unknown}; its records hold {known}")
        self.converters = dict(converters or {})
        idle = [field for field in self.converters if field not in self.fields]
        if idle:
            raise DatasetError(f"DataTable has converters for {idle}, but keeps only the fields {self.fields}")
        self.data = data
        self._examples = {} if use_cache else None

    def __len__(self) -> int:
        return len(self.data)

    def _read(self, index: int) -> dict[str, object]:
        record = fetch(self.data, index, "DataTable")
        example = {}
        for field in self.fields:
            try:
                value = record[field]
            except LookupError as error:
                raise ExampleError(
                    f"record {index} of DataTable has no field {field!r}; it holds {list(record)}", index=index
                ) from error
            convert = self.converters.get(field)
            if convert is not None:
                value = apply_to_example(convert, value, index, f"converter of {field!r}")
            example[field] = value
        return example


def _lengths(owner: str, datasets: Sequence[MapStyle]) -> list[int]:
    if not datasets:
        raise DatasetError(f"{owner} needs at least one dataset, got none")
    for dataset in datasets:
        check_dataset(dataset, owner)
    return [len(dataset) for dataset in datasets]


def _one_length(owner: str, lengths: Iterable[int], shown: object) -> int:
    first, *others = set(lengths)
    if others:
        raise DatasetError(f"{owner} needs datasets of one length, got lengths {shown}")
    return first


class DictDataset(Dataset):
    """Zips datasets by index under names.

        DictDataset(text=["a", "b"], label=[1, 2])[1]  → {"text": "b", "label": 2}
        DictDataset(text=["a", "b"], label=[1, 2])[:1] → [{"text": "a", "label": 1}]

    Raises `DatasetError` without datasets, or if their lengths differ.
    """

    def __init__(self, **datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("DictDataset needs at least one dataset as a keyword argument, got none")
        for name, dataset in datasets.items():
            check_dataset(dataset, f"DictDataset field {name!r}")
        lengths = {name: len(dataset) for name, dataset in datasets.items()}
        self._size = _one_length("DictDataset", lengths.values(), lengths)
        self._datasets = datasets

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> dict[str, object]:
        return {name: fetch(dataset, index, "DictDataset") for name, dataset in self._datasets.items()}


class TupleDataset(Dataset):
    """Zips datasets by index.

        TupleDataset(["a", "b"], [1, 2])[1]   → ("b", 2)
        TupleDataset(["a", "b"], [1, 2])[0:2] → [("a", 1), ("b", 2)]

    Raises `DatasetError` without datasets, or if their lengths differ.
    """

    def __init__(self, *datasets: MapStyle) -> None:
        lengths = _lengths("TupleDataset", datasets)
        self._size = _one_length("TupleDataset", lengths, lengths)
        self._datasets = datasets

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> tuple[object, ...]:
        return tuple(fetch(dataset, index, "TupleDataset") for dataset in self._datasets)


class ChainDataset(Dataset):
    """Concatenates datasets: `ChainDataset("ab", "c")` → "a", "b", "c". Raises `DatasetError` without datasets."""

    def __init__(self, *datasets: MapStyle) -> None:
        self._ends = list(itertools.accumulate(_lengths("ChainDataset", datasets)))
        self._datasets = datasets

    def __len__(self) -> int:
        return self._ends[-1]

    def get_example(self, index: int) -> object:
        part = bisect.bisect_right(self._ends, index)
        start = self._ends[part - 1] if part else 0
        return fetch(self._datasets[part], index - start, "ChainDataset")


class _Selection(Dataset):
    """The examples of a dataset at given indices."""

    _dataset: MapStyle
    _places: range | npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self._places)

    def get_example(self, index: int) -> object:
        return fetch(self._dataset, int(self._places[index]), type(self).__name__)


class FilterDataset(_Selection):
    """Keeps the examples for which `filter_fn(example)` is true.

        FilterDataset([3, 8, 5], lambda n: n > 4) → 8, 5

    Every example is read once, at construction, to learn which are kept. If that is expensive and a small dataset of
    metadata of the same length suffices to decide, pass it as `on`: `filter_fn` then sees `on[i]`, and no example is
    read.

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
        self._places = np.asarray(
            [index for index in range(len(dataset)) if _kept(filter_fn, fetch(judged, index, "FilterDataset"), index)],
            dtype=np.int64,
        )

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The indices of the kept examples in the dataset below, ascending, int64."""
        return np.asarray(self._places)


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


class SliceDataset(_Selection):
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
        self._dataset = dataset
        self._places: range | npt.NDArray[np.int64] = range(start, finish)
        if order is not None:
            places = np.asarray(order, dtype=np.int64)
            if not np.array_equal(np.sort(places), np.arange(size)):
                raise DatasetError(
                    f"SliceDataset needs an order that holds each of 0..{size - 1} once, got {len(order)} values"
                )
            self._places = places[start:finish]


class SubsetDataset(_Selection):
    """The examples of `dataset` at `indices`, in that order; an index may occur more than once.

        SubsetDataset("abcd", [2, 0]) → "c", "a"

    Use it to sort or filter by metadata without loading an example: `SubsetDataset(clips, np.argsort(seconds))`.
    Raises `ExampleIndexError` at construction where an index lies outside the dataset.
    """

    def __init__(self, dataset: MapStyle, indices: Sequence[int] | np.ndarray) -> None:
        check_dataset(dataset, "SubsetDataset")
        self._dataset = dataset
        self._places = np.asarray(
            checked_indices(indices, len(dataset), f"{type(dataset).__name__} under SubsetDataset"), dtype=np.int64
        )


class TransformDataset(Dataset):
    """Applies `transform` to an example on each access.

        TransformDataset([1, 2], lambda n: n * 10)[1] → 20

    Args:
      dataset: where examples come from.
      transform: a function of one example, or an object with a method `forward`. For worker processes it must be
        picklable.
      seed: for a transform that draws, which is then called with `(example, generator)`: a `numpy.random.Generator`
        keyed by (seed, epoch, index). So an example is augmented differently in each epoch, but identically whatever
        the workers, ranks and restarts. The epoch is the `DataLoader`'s (`reading_epoch` sets it elsewhere); a
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
        self._dataset = dataset
        self._transform: Callable[..., object] = function
        self._seed = None if seed is None else check_count(seed, "seed", "TransformDataset", at_least=0)

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
        return apply_to_example(self._transform, example, index, "transform", np.random.Generator(bits))


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
