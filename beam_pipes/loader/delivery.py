"""Which source records a step delivers, and at which steps a source record is delivered.

    step 17  ──deliveries──►  [Delivery(record_id='plays/hamlet.txt@0', host_index=0, index=3, …), …]
    'plays/hamlet.txt@0'  ──places_of──►  [RowPlace(epoch=0, step=17, …), RowPlace(epoch=1, step=30, …)]

Both are computed from the order, which is an invertible function, and from the lineage of the cache: no data is read,
and nothing is stored about earlier steps. `named_failure` does the same for errors: it adds the record to the error of
a batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from beam_pipes.errors import (
    BeamPipesError,
    CacheError,
    CorruptCacheError,
    LoaderError,
    StorageError,
    UnboundedLoaderError,
    UnknownRecordError,
)
from beam_pipes.lineage.takedown import is_removed
from beam_pipes.loader.columns import StoredSplit, columns_of, stored_split
from beam_pipes.loader.order import Indices
from beam_pipes.loader.packed_rows import PackedRows
from beam_pipes.loader.rows import Rows, SplitRows
from beam_pipes.loader.steps import RowPlace, Run, Steps
from beam_pipes.loader.stream import Places, Stream
from beam_pipes.loader.windows import WindowRows
from beam_pipes.storage.local import read_error

# Entries of a packing plan that are searched at once.
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
    """A source record in a global batch.

    `host_index` and `index` are the host, and the row of its batch. `source` counts the sources of a mixture (0 without
    one), `row` the rows of that source: a record, or a bin of a packing plan, in which the record is segment `segment`
    (None without packing). `record` is its index in the split and `record_id` its source record, `file@position`. If
    `taken_down`, it is not delivered: its place holds another record (`stands_in`), or nothing in a packed row.
    """

    epoch: int
    step: int
    position: int
    host_index: int
    index: int
    source: int
    split: str
    row: int
    segment: int | None
    record: int
    record_id: str
    taken_down: bool
    stands_in: str | None


def deliveries(run: Run, step: int) -> list[Delivery]:
    """The source records of global batch number `step`, all hosts, in order of rows and of segments.

    Raises `LoaderError` for a step outside the run, `CacheNotFoundError` for a cache that was built without lineage.
    """
    steps, stream = run.at(step), run.stream
    found: list[Delivery] = []
    for place, source, row, segments, records in rows_of_step(run, step):
        rows_of_source = stream.sources[source]
        split = split_of(rows_of_source)
        host, index = run.steps.host_of(place, steps.rows, steps.full_rows)
        ids = split.record_ids(records)
        removed = is_removed(records, split.removed_rows)
        if isinstance(rows_of_source, WindowRows):  # replaced as a whole
            removed = np.broadcast_to(rows_of_source.is_gone(np.array([row])), records.shape)
        for segment, record, record_id, gone in zip(segments, records.tolist(), ids, removed.tolist(), strict=True):
            stand_in = None
            if gone and segment is None:
                if isinstance(rows_of_source, WindowRows):
                    read = rows_of_source.records_of(int(rows_of_source.stand_ins(np.array([row]))[0]))
                else:
                    read = stream.stand_ins_in(steps.epoch, source, np.array([record]))
                stand_in = split.record_ids(read[:1])[0]
            found.append(
                Delivery(
                    epoch=steps.epoch,
                    step=step,
                    position=steps.position + place,
                    host_index=host,
                    index=index,
                    source=source,
                    split=str(split.name),
                    row=row,
                    segment=segment,
                    record=record,
                    record_id=record_id,
                    taken_down=gone,
                    stands_in=stand_in,
                )
            )
    return found


def rows_of_step(run: Run, step: int) -> Iterator[tuple[int, int, int, list[int | None], Indices]]:
    """The rows of a global batch as (place in it, source, row, segments, records), without looking up any ids."""
    steps, stream = run.at(step), run.stream
    places = stream.locate(steps.epoch, steps.position + np.arange(steps.rows))
    sources, rows = stream.rows_at(places)
    for place, (source, row) in enumerate(zip(sources.tolist(), rows.tolist(), strict=True)):
        segments, row, records = records_of_row(stream.sources[source], row)
        yield place, source, row, segments, records


def places_of(
    run: Run, record_id: str, *, first_epoch: int = 0, epochs: int = 1, last_step: int | None = None
) -> list[RowPlace]:
    """The steps at which rows with any part of a source record come, in order.

    Searches `epochs` epochs from `first_epoch` on, up to `last_step` if given. An endless mixture is one epoch, and
    needs `last_step`. A record that is in no row (dropped, or left out by the packing plan) has no places. If records
    are taken down, places of this record that others now have are marked `taken_down`, and places of others that it now
    has `stands_in_for`. If the rates of a mixture changed, only the rows from the change on count (`first_known_step`).

    Raises `UnknownRecordError` if no source of the loader has read such a record, and `UnboundedLoaderError` where
    a mixture without end is asked for epochs, or for all steps.
    """
    stream = run.stream
    if stream.size is None:
        run.check_epoch(first_epoch + epochs - 1)
        if last_step is None:
            raise UnboundedLoaderError(
                "a mixture with exhausted='repeat' has no end, and every record of it comes again and again: say up to "
                "which step to look, when_record(…, last_step=1000), or --last-step 1000."
            )
    found: list[RowPlace] = []
    unknown: list[UnknownRecordError] = []
    for source, rows_of_source in enumerate(stream.sources):
        try:
            records = split_of(rows_of_source).find_rows(record_id)
        except UnknownRecordError as error:
            unknown.append(error)
            continue
        removed = split_of(rows_of_source).removed_rows
        hidden = set(records[is_removed(records, removed)].tolist())
        anew = isinstance(rows_of_source, PackedRows) and rows_of_source.draws_anew
        if anew and len(stream.sources) > 1:
            raise LoaderError(
                f"source {source} of the mixture has another packing in each pass, and a loader does not keep which "
                "pass comes when. Ask which records a step has, loader.who(step), or make a loader of this plan alone."
            )
        rows_found: list[tuple[int, bool]] = []
        for epoch in range(first_epoch, first_epoch + epochs):
            if anew or epoch == first_epoch:
                rows_found = list(_rows_with(rows_of_source, records, hidden, epoch))
            for row, gone in rows_found:
                for place in _occurrences(run, epoch, source, row, last_step):
                    found.append(dataclasses.replace(place, taken_down=True) if gone else place)
        for epoch in range(first_epoch, first_epoch + epochs):
            for row, other in _stood_in_for(stream, source, epoch, records, removed):
                for place in _occurrences(run, epoch, source, row, last_step):
                    found.append(dataclasses.replace(place, stands_in_for=other))
    if len(unknown) == len(stream.sources):
        raise unknown[0]
    return sorted(found, key=lambda place: (place.step, place.position))


def named_failure(
    error: Exception, steps: Steps, stream: Stream, places: Callable[[], Places], read: Callable[[Places], None]
) -> Exception:
    """The error of reading one batch, with the record, its location, and what to do.

    `places` gives our rows of the batch, `read` reads some of them. The failing row is found by bisection, and the
    error is the one that it raises alone. Errors that are not ours are returned unchanged, except those of the file
    system.
    """
    if isinstance(error, BeamPipesError) and "epoch" in error.attributes:
        return error  # it has a name already
    batch = f"in the batch that begins at position {steps.position} of epoch {steps.epoch}"
    facts: dict[str, object] = {"epoch": steps.epoch, "position": steps.position}
    words = f"This is {batch}."
    with contextlib.suppress(Exception):  # without a name the error is the same
        # An object store has failed after many attempts: do not repeat them for each row.
        alone = None if isinstance(error, StorageError) else _failing_row(places(), read)
        if alone is not None:
            place, error = alone
            found, found_facts, damage = _record_in_words(stream, steps.epoch, place)
            words, facts = f"This is {found}, {batch}.", {**found_facts, **facts}
            if damage is not None and not isinstance(error, CorruptCacheError):
                damage.__cause__ = error
                error = damage
    if isinstance(error, OSError) and not isinstance(error, BeamPipesError):
        failed = read_error(str(error.filename or facts.get("file", "a file of the cache")), error)
        failed.__cause__ = error
        error = failed
    if not isinstance(error, BeamPipesError):
        return error
    if isinstance(error, CacheError) and "cache" in facts:
        words += f" `beam-pipes verify {facts['cache']}` lists all that is damaged."
    error.add(words, **{name: value for name, value in facts.items() if name not in error.attributes})
    return error


def _failing_row(places: Places, read: Callable[[Places], None]) -> tuple[Places, Exception] | None:
    """A row that cannot be read, and its error; None if every row can be read alone."""
    low, high = 0, len(places)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            read(places[low:middle])
            low = middle
        except Exception:
            high = middle
    try:
        read(places[low:high])
    except Exception as error:
        return places[low:high], error
    return None


def _record_in_words(
    stream: Stream, epoch: int, place: Places
) -> tuple[str, dict[str, object], CorruptCacheError | None]:
    """`record 31 of split 'train' (number 5 of demo-train-00001-of-00003.tfrecord, at byte 480, made of 'a.txt@5')`.

    Also returns the same as attributes, and the error of its checksum, which batches do not check: changed bytes can
    cause any later failure.
    """
    source, row = (int(numbers[0]) for numbers in stream.rows_at(place))
    rows = stream.sources[source]
    split = split_of(rows)
    if isinstance(rows, WindowRows):
        row = int(rows.stand_ins(np.array([row]))[0])
    _, row, records = records_of_row(rows, row)
    record = int(_failing_record(rows, records))
    facts: dict[str, object] = {"split": str(split.name), "record": record}
    parts = []
    damage: CorruptCacheError | None = None
    if hasattr(split, "place_of"):
        in_epoch = isinstance(rows, SplitRows)
        read = stream.stand_ins_in(epoch, source, np.array([record])) if in_epoch else split.stand_ins([record])
        stored = int(read[0])  # what is read in its place
        name, number = split.place_of(stored)
        facts.update(cache=split.path, file=name)
        parts.append(f"number {number} of {name}")
        with contextlib.suppress(BeamPipesError, OSError):  # without an index it is unknown
            facts["offset"] = split.offset_of(stored)
            parts.append(f"at byte {facts['offset']}")
        with contextlib.suppress(BeamPipesError, OSError):  # built without lineage
            facts["record_id"] = split.record_ids([stored])[0]
            parts.append(f"made of {facts['record_id']!r}")
        try:
            split.record_bytes(stored)
        except CorruptCacheError as error:
            damage = error
        except (BeamPipesError, OSError):
            pass  # its file cannot be read at all, which is the error itself
    words = f"record {record} of split {facts['split']!r}" + (f" ({', '.join(parts)})" if parts else "")
    if isinstance(rows, PackedRows):
        facts["row"] = row
        words += f", packed into row {row} of the plan"
    if place.ndim == 2:
        facts["source"] = source
        words += f", from source {source} of the mixture"
    return words, facts, damage


def _failing_record(rows: Rows, records: Indices) -> int:
    """The first record of a row that cannot be read, or the first of all."""
    for record in records.tolist() if len(records) > 1 else []:
        try:
            columns_of(rows.split, rows.features, np.array([record], np.int64))
        except Exception:
            return int(record)
    return int(records[0])


def splits_of(stream: Stream) -> list[StoredSplit]:
    """The splits that a stream reads."""
    return list(map(split_of, stream.sources))


def split_of(rows: Rows) -> StoredSplit:
    """The split of a cache behind the rows of one source."""
    return stored_split(rows.split)


def records_of_row(rows: Rows, row: int) -> tuple[list[int | None], int, Indices]:
    """The segments of a row, its number within its epoch, and the records that it consists of.

    Rows that are redrawn in each epoch are counted on from epoch to epoch.
    """
    if isinstance(rows, WindowRows):
        records = rows.records_of(row)
        return [None] * len(records), row, records
    if not isinstance(rows, PackedRows):
        row %= max(1, rows.size)
        return [None], row, np.array([row], np.int64)
    plan, row = rows.plan_of(row)
    first, last = int(plan.bin_offsets[row]), int(plan.bin_offsets[row + 1])
    return list(range(1, last - first + 1)), row, plan.records[first:last].astype(np.int64)


def _rows_with(rows: Rows, records: Indices, hidden: set[int], epoch: int) -> Iterator[tuple[int, bool]]:
    """The rows that hold any of these records (ascending), each once; and whether all their content is hidden."""
    if isinstance(rows, WindowRows):
        found_rows = rows.rows_with(records)
        yield from zip(found_rows.tolist(), rows.is_gone(found_rows).tolist(), strict=True)
        return
    if not isinstance(rows, PackedRows):
        yield from ((record, record in hidden) for record in records.tolist())
        return
    plan = rows.of_epoch(epoch if rows.draws_anew else 0)
    found: dict[int, bool] = {}
    for start in range(0, len(plan.records), _CHUNK):
        entries = start + np.flatnonzero(is_removed(plan.records[start : start + _CHUNK], records))
        bins = np.searchsorted(plan.bin_offsets, entries, side="right") - 1
        for row, record in zip(bins.tolist(), plan.records[entries].tolist(), strict=True):
            found[row] = found.get(row, True) and record in hidden
    yield from found.items()


def _stood_in_for(
    stream: Stream, source: int, epoch: int, records: Indices, removed: Indices
) -> Iterator[tuple[int, str]]:
    """The rows of taken-down records that one of these replaces in an epoch, and the source record of each."""
    rows = stream.sources[source]
    split = split_of(rows)
    if isinstance(rows, PackedRows) or not len(removed) or len(removed) >= len(split):
        return  # a packed row closes up after a record that is gone
    if isinstance(rows, WindowRows):
        hidden = rows.removed
        stood_in = hidden[np.isin(rows.stand_ins(hidden), rows.rows_with(records))]
        for row in stood_in.tolist():
            yield row, split.record_ids(rows.records_of(row)[:1])[0]
        return
    read = stream.stand_ins_in(epoch, source, removed)
    stood_in_for = removed[np.isin(read, records) & (read != removed)]
    yield from zip(stood_in_for.tolist(), split.record_ids(stood_in_for), strict=True)


def _occurrences(run: Run, epoch: int, source: int, row: int, last_step: int | None) -> Iterator[RowPlace]:
    """The places of a row in an epoch, ascending, up to `last_step`, which an endless epoch needs."""
    stream = run.stream
    endless = stream.size_of(epoch) is None and last_step is not None
    before = run.steps.start_of(epoch, (last_step or 0) + 1) if endless else None
    for position in stream.positions_of(epoch, source, row, before):
        place = run.place_of(epoch, position, source)
        if place is not None and (last_step is None or place.step <= last_step):
            yield place
