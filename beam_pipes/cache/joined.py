"""`JoinedSplit`: a split and further columns of its records, which lie in caches of their own.

cache/snapshots/3f…/examples-train.tfrecord-00000-of-00002   the records
cache/columns/score/snapshots/9a…/score-train.tfrecord-…     their scores: as many records, in the same order
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from beam_pipes.cache.columns import ColumnReader
from beam_pipes.cache.regions import ArenaValues
from beam_pipes.cache.shard_files import RecordAddresses
from beam_pipes.cache.split import Split
from beam_pipes.errors import CacheError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import ExampleSpec, FeatureSpec, Record

#: The directory of a cache with the caches of its columns.
COLUMNS = "columns"


class JoinedSplit(Split):
    """A split whose records have further features, each read from another split with a value for every record.

    Everything that takes a split takes this: `where`, loaders, packing, windows, mixtures. Order, stand-ins and states
    are those of the records alone.
    """

    beside: Mapping[str, Split]

    @property
    def spec(self) -> ExampleSpec:
        return ExampleSpec({**super().spec, **{name: split.spec[name] for name, split in self.beside.items()}})

    def __getitem__(self, index: int | slice) -> Record:
        record = super().__getitem__(index)
        if isinstance(index, slice):
            return record
        row = int(self._place([index]).indices[0])
        return {**record, **{name: split[row][name] for name, split in self.beside.items()}}

    def __iter__(self) -> Iterator[Record]:
        if self.choice is not None or len(self.removed_rows):
            return (self[index] for index in range(len(self)))
        return self._joined()

    def stream(self, first: int, last: int) -> None:
        """None: the columns lie in other files."""

    def _joined(self) -> Iterator[Record]:
        for record, *others in zip(super().__iter__(), *self.beside.values(), strict=True):
            values = zip(self.beside, others, strict=True)
            yield {**record, **{name: other[name] for name, other in values}}

    def __reduce__(self) -> tuple[object, ...]:
        return joined, (self.records, dict(self.beside))

    @property
    def records(self) -> Split:
        """The records without the further columns."""
        made = object.__new__(Split)
        made.__dict__.update(self._copy().__dict__)
        del made.__dict__["beside"]
        return made

    def in_snapshot(self, snapshot: str, manifest_id: str) -> Split:
        """Raises `CacheError`: the columns are those of one snapshot."""
        raise CacheError(
            f"{self!r} has columns that were computed for its own snapshot, and the state is of another one "
            f"({snapshot}). Open that snapshot and join the columns again: with_columns(path, …, snapshot=…)."
        )

    def views(self, shard: int) -> dict[str, Array]:
        """Those of the records alone: a column has files of its own."""
        return self.records.views(shard)

    @functools.cached_property
    def _columns(self) -> ColumnReader:
        return _JoinedColumns(self.records._columns, self.beside)


def joined(split: Split, beside: Mapping[str, Split]) -> JoinedSplit:
    """`split` with the features `beside`: name → the split that holds it.

    Raises `CacheError` if one has another number of records, or the split has a feature of that name.
    """
    for name, other in beside.items():
        if name in split.spec:
            raise CacheError(f"{split!r} has a feature {name!r} of its own. Give the column another name.")
        if len(other) != len(split.whole):
            raise CacheError(
                f"the column {name!r} has {len(other)} values for the {len(split.whole)} records of {split!r}: its "
                "stage has to give one value for each record."
            )
    made = object.__new__(JoinedSplit)
    made.__dict__.update(split._copy().__dict__, beside=dict(beside))
    return made


class _JoinedColumns(ColumnReader):
    """Reads a feature where it is."""

    def __init__(self, own: ColumnReader, beside: Mapping[str, Split]) -> None:
        self._own = own
        self._beside = beside

    def _of(self, feature: str, places: RecordAddresses) -> tuple[ColumnReader, RecordAddresses]:
        split = self._beside.get(feature)
        return (self._own, places) if split is None else (split._columns, split._files.place(places.indices))

    def spec(self, feature: str) -> FeatureSpec:
        split = self._beside.get(feature)
        return (self._own if split is None else split._columns).spec(feature)

    def all_lengths(self, feature: str) -> Array:
        split = self._beside.get(feature)
        return (self._own if split is None else split._columns).all_lengths(feature)

    def run(self, feature: str, first: int, last: int, rows: Array | None) -> Array:
        split = self._beside.get(feature)
        return (self._own if split is None else split._columns).run(feature, first, last, rows)

    def stacked(self, feature: str, places: RecordAddresses) -> Array | None:
        reader, there = self._of(feature, places)
        return reader.stacked(feature, there)

    def located(self, feature: str, places: RecordAddresses) -> ArenaValues | None:
        reader, there = self._of(feature, places)
        return reader.located(feature, there)

    def lengths(self, feature: str, places: RecordAddresses) -> Array:
        reader, there = self._of(feature, places)
        return reader.lengths(feature, there)

    def shapes(self, feature: str, places: RecordAddresses) -> Array:
        reader, there = self._of(feature, places)
        return reader.shapes(feature, there)

    def runs(self, feature: str, places: RecordAddresses) -> tuple[Array, Array]:
        reader, there = self._of(feature, places)
        return reader.runs(feature, there)

    def entries(self, feature: str, places: RecordAddresses, starts: Array, count: int) -> Array:
        reader, there = self._of(feature, places)
        return reader.entries(feature, there, starts, count)

    def texts(self, feature: str, places: RecordAddresses) -> Array:
        reader, there = self._of(feature, places)
        return reader.texts(feature, there)

    def padded(self, feature: str, places: RecordAddresses, *, box: Sequence[int | None], value: object) -> Array:
        reader, there = self._of(feature, places)
        return reader.padded(feature, there, box=box, value=value)
