"""A list of records seen as a table, with a converter per field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, apply_to_example, check_dataset, fetch


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
