"""Map-style datasets: small classes that wrap anything with `__len__` and `__getitem__`.

One remembers its examples, one sees a list of records as a table with a converter per field, and others put several
datasets of one length side by side, in dicts or in tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style.dataset import Dataset, MapStyle, apply_to_example, check_dataset, fetch


class CacheDataset(Dataset):
    """Keeps every example in memory once it was asked for: the second policy of `docs/caching-policies.md`.

    The first pass costs what the dataset below costs, later ones a dict lookup. Examples are handed out as the very
    same objects each time: do not change them in place. Safe under threads (two threads that miss at once may both
    compute, one result is kept); each worker process of a `DataLoader` fills a cache of its own, starting empty;
    an example that failed is tried again.
    """

    def __init__(self, dataset: MapStyle) -> None:
        check_dataset(dataset, "CacheDataset")
        self._dataset = dataset
        self._examples: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def get_example(self, index: int) -> Any:
        try:
            return self._examples[index]
        except KeyError:
            return self._examples.setdefault(index, fetch(self._dataset, index, "CacheDataset"))

    def __getstate__(self) -> dict[str, Any]:
        # What is cached may be gigabytes, and is never needed on the other side of a pickle.
        return {**self.__dict__, "_examples": {}}

    @property
    def num_cached(self) -> int:
        """How many examples are held in memory."""
        return len(self._examples)

    def clear(self) -> None:
        """Forgets every example."""
        self._examples.clear()


class DataTable(Dataset):
    """Records (dicts) with some of their fields converted when an example is asked for.

        DataTable([{"path": "a.npy", "text": "hi"}], fields=["path"], converters={"path": np.load})[0]
            → {"path": array(…)}

    Args:
      data: records of at least the same fields; usually metadata read from a file.
      fields: those to keep, in this order; all fields of the first record by default.
      converters: field → function of one value. Fields without one are handed through.
      use_cache: keep converted examples in memory (as `CacheDataset` does); off by default, as audio seldom fits.

    Raises `DatasetError` for an empty table, an unknown field, or a converter of a field that is not kept; a record
    that lacks a field, or a converter that fails, is an `ExampleError` with the record's index.
    """

    def __init__(
        self,
        data: MapStyle,
        fields: Sequence[str] | None = None,
        converters: Mapping[str, Callable[[Any], Any]] | None = None,
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
        self._examples: dict[int, dict[str, Any]] | None = {} if use_cache else None

    def __len__(self) -> int:
        return len(self.data)

    def __getstate__(self) -> dict[str, Any]:
        # As for CacheDataset: examples in memory stay behind.
        return {**self.__dict__, "_examples": None if self._examples is None else {}}

    def get_example(self, index: int) -> dict[str, Any]:
        if self._examples is None:
            return self._convert(index)
        if index not in self._examples:
            self._examples[index] = self._convert(index)
        return self._examples[index]

    def _convert(self, index: int) -> dict[str, Any]:
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


class DictDataset(Dataset):
    """Zips datasets by index under names.

        DictDataset(text=["a", "b"], label=[1, 2])[1]  → {"text": "b", "label": 2}
        DictDataset(text=["a", "b"], label=[1, 2])[:1] → [{"text": "a", "label": 1}]

    Raises `DatasetError` without datasets, or where their lengths differ.
    """

    def __init__(self, **datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("DictDataset needs at least one dataset as a keyword argument, got none")
        for name, dataset in datasets.items():
            check_dataset(dataset, f"DictDataset field {name!r}")
        lengths = {name: len(dataset) for name, dataset in datasets.items()}
        if len(set(lengths.values())) > 1:
            raise DatasetError(f"DictDataset needs datasets of one length, got lengths {lengths}")
        self._datasets = datasets
        self._size = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> dict[str, Any]:
        return {name: fetch(dataset, index, "DictDataset") for name, dataset in self._datasets.items()}


class TupleDataset(Dataset):
    """Zips datasets by index.

        TupleDataset(["a", "b"], [1, 2])[1]   → ("b", 2)
        TupleDataset(["a", "b"], [1, 2])[0:2] → [("a", 1), ("b", 2)]

    Raises `DatasetError` without datasets, or where their lengths differ.
    """

    def __init__(self, *datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("TupleDataset needs at least one dataset, got none")
        for dataset in datasets:
            check_dataset(dataset, "TupleDataset")
        lengths = [len(dataset) for dataset in datasets]
        if len(set(lengths)) > 1:
            raise DatasetError(f"TupleDataset needs datasets of one length, got lengths {lengths}")
        self._datasets = datasets
        self._size = lengths[0]

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> tuple[Any, ...]:
        return tuple(fetch(dataset, index, "TupleDataset") for dataset in self._datasets)
