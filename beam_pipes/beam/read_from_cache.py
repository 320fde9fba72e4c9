"""`ReadFromCache`: a cache as the beginning of anybody's Beam pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io import iobase
from apache_beam.io.range_trackers import OffsetRangeTracker

from beam_pipes.cache.reader import open_split
from beam_pipes.cache.split import Split
from beam_pipes.errors import DeclarationError


class ReadFromCache(beam.PTransform):  # type: ignore[misc]
    """Reads a split of a cache in parallel, each worker a range of its records.

        pipeline | ReadFromCache("cache/train", columns=["user"])  →  {"user": "ann"}, {"user": "bob"}, …

    Elements are what `split[i]` gives: dicts of arrays and scalars, messages, or bytes; checksums are checked, and
    records that are taken down are left out. The snapshot is the one that is published when the pipeline is made; a job
    whose workers find another one fails with `StaleCacheError`.

    Args:
        cache: a `Split`, or its path, such as `gs://bucket/agg/train`.
        split: the split, where the path is that of a cache with several.
        columns: the features to keep; all by default.
        as_rows: give `beam.Row`s with Python values (lists for arrays), for schemas, SQL and YAML.

    Raises `CacheNotFoundError` where there is no such cache or split, `DeclarationError` for a column that it lacks.
    """

    def __init__(
        self,
        cache: Split | str | os.PathLike[str],
        split: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        as_rows: bool = False,
    ) -> None:
        super().__init__()
        found = cache if isinstance(cache, Split) else open_split(cache, split)
        if columns is not None or as_rows:
            known = list(found.spec)
            missing = [name for name in columns or () if name not in known]
            if missing:
                raise DeclarationError(
                    f"ReadFromCache: {found!r} has no feature {missing[0]!r}. It has: {', '.join(known)}."
                )
            columns = list(columns or known)
        self._source = _SplitSource(found, columns, as_rows=as_rows)

    def expand(self, root: Any) -> Any:
        return root | "Read" >> beam.io.Read(self._source)


class _SplitSource(iobase.BoundedSource):  # type: ignore[misc]
    """The records of a split as a range that a runner may cut anywhere, also while it is read."""

    def __init__(self, split: Split, columns: Sequence[str] | None, *, as_rows: bool) -> None:
        self._split = split
        self._columns = columns
        self._as_rows = as_rows

    def estimate_size(self) -> int:
        return self._split.num_bytes

    def split(
        self, desired_bundle_size: int, start_position: int | None = None, stop_position: int | None = None
    ) -> Iterator[iobase.SourceBundle]:
        start, stop = start_position or 0, len(self._split) if stop_position is None else stop_position
        bytes_a_record = max(1, self._split.num_bytes // max(1, len(self._split)))
        step = max(1, desired_bundle_size // bytes_a_record)
        for first in range(start, stop, step):
            last = min(stop, first + step)
            yield iobase.SourceBundle((last - first) * bytes_a_record, self, first, last)

    def get_range_tracker(self, start_position: int | None, stop_position: int | None) -> OffsetRangeTracker:
        return OffsetRangeTracker(start_position or 0, len(self._split) if stop_position is None else stop_position)

    def read(self, range_tracker: OffsetRangeTracker) -> Iterator[Any]:
        removed = set(self._split.removed_rows.tolist())
        for index in range(range_tracker.start_position(), range_tracker.stop_position()):
            if not range_tracker.try_claim(index):
                return
            if index not in removed:
                yield self._element(self._split[index])

    def _element(self, record: Any) -> Any:
        if self._columns is None:
            return record
        chosen = {name: record[name] for name in self._columns}
        if not self._as_rows:
            return chosen
        return beam.Row(
            **{name: value.tolist() if hasattr(value, "tolist") else value for name, value in chosen.items()}
        )
