"""How often a run has read each record: `times_read`, what a disclosure of the training data counts.

The order is a function, so that nothing was logged: a source of 1,000 rows that gave 2,500 of them to a mixture was
read twice, and the first 500 positions of its third pass once more. Only passes that are not complete are computed row
by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.loader.delivery import records_of_row, split_of
from beam_pipes.loader.mixture_stream import MixtureStream
from beam_pipes.loader.order import Indices
from beam_pipes.loader.row_source import SplitLike
from beam_pipes.loader.rows import Rows, SplitRows
from beam_pipes.loader.steps import Cursor, Run
from beam_pipes.loader.stream import RowStream, Stream

_POSITIONS_AT_ONCE = 1 << 20


class SourceReads(NamedTuple):
    """What a run has read of one source: its split, the rows that it gave, and (n,) int64, how often each record."""

    split: SplitLike
    rows: int
    times: np.ndarray


def times_read(run: Run, cursor: Cursor) -> list[SourceReads]:
    """For each source of a run, how often each of its records was in a row before a cursor, over all hosts.

    Rows that an epoch drops at its end are not counted. A record that was taken down since counts where the order has
    it. Takes 8 bytes per record.

    Raises `LoaderError` if a source left the mixture during the run: a state does not say which rows it had given.
    """
    stream = run.stream
    times = [np.zeros(len(split_of(rows)), np.int64) for rows in stream.sources]
    given = [0] * len(stream.sources)
    for epoch in range(cursor.epoch + 1):
        end = cursor.position if epoch == cursor.epoch else _rows_of_epoch(run, epoch)
        counted = 0
        for source, rows, count in _given(stream, epoch, end):
            given[source] += count
            counted += count
            if rows is None:
                _add_passes(times[source], stream.sources[source], count)
            else:
                _add(times[source], stream.sources[source], rows)
        if counted != end:
            raise LoaderError(
                f"the run has read {end:,} rows of epoch {epoch}, and its sources gave {counted:,} of them: others "
                "have left the mixture since, and a state does not say which rows they gave. Use the last state before "
                "that."
            )
    return [
        SourceReads(split_of(rows), count, counts)
        for rows, count, counts in zip(stream.sources, given, times, strict=True)
    ]


def _rows_of_epoch(run: Run, epoch: int) -> int:
    """The rows that all steps of an epoch deliver."""
    last = run.at(run.steps_before(epoch + 1) - 1)
    return last.position + last.rows if last.epoch == epoch else 0


def _given(stream: Stream, epoch: int, end: int) -> Iterator[tuple[int, Indices | None, int]]:
    """(source, rows, their number) of the first `end` positions of an epoch; None for the rows of complete passes."""
    if not isinstance(stream, MixtureStream):
        if type(stream) is RowStream and end == stream.size and _is_same_each_time(stream.sources[0]):
            yield 0, None, end
            return
        for begin, until in _portions(end):
            sources, rows = stream.rows_at(stream.locate(epoch, np.arange(begin, until)))
            for source in np.unique(sources).tolist():
                yield source, rows[sources == source], int((sources == source).sum())
        return
    for source, count in enumerate(stream.counts_at(epoch, end)):
        size, passed = stream.sources[source].size, 0
        if size and _is_same_each_time(stream.sources[source]):
            passed = count - count % size
            yield source, None, passed
        for first in range(passed, count, max(1, size)):
            for begin, until in _portions(min(size, count - first)):
                yield source, stream.rows_given(epoch, source, np.arange(first + begin, first + until)), until - begin


def _portions(total: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + _POSITIONS_AT_ONCE, total)) for begin in range(0, total, _POSITIONS_AT_ONCE))


def _is_same_each_time(rows: Rows) -> bool:
    """Whether every pass over a source has the same rows, in another order."""
    return not rows.draws_anew


def _add_passes(times: np.ndarray, rows: Rows, count: int) -> None:
    """Adds complete passes over a source, `count` rows in all."""
    passes = count // rows.size if rows.size else 0
    if isinstance(rows, SplitRows):
        times += passes
    elif passes:
        once = np.zeros_like(times)
        _add(once, rows, np.arange(rows.size))
        times += once * passes


def _add(times: np.ndarray, rows: Rows, numbers: Indices) -> None:
    """Adds one for each record of these rows."""
    if isinstance(rows, SplitRows):
        times += np.bincount(numbers % max(1, rows.size), minlength=len(times))
        return
    for number in numbers.tolist():  # packed rows and windows hold several records each
        np.add.at(times, records_of_row(rows, number)[2], 1)
