"""One feature of several records, the material of rows; and reads that takedowns do not disturb.

A *column* holds one feature of some records: for a ragged feature all values, concatenated, and the number for each
record; for any other feature one value per record. Records that are taken down while a loader runs leave the
places of all others as they are, so orders, steps and states keep their meaning: `read_consistently` makes sure that
all features of a row come from the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import EllipsisType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError, SpecError, TaskError, logger
from beam_pipes.format.dtypes import Array
from beam_pipes.lineage.takedown import is_removed
from beam_pipes.loader.order import Indices
from beam_pipes.loader.row_source import MeasuredSplit, ReadSplit

T = TypeVar("T")

_log = logger("beam_pipes.loader")


def takedown_revision(splits: Iterable[object]) -> int:
    """A number that grows with each change of the takedowns of these splits; 0 if there never were any."""
    return sum(int(getattr(stored_split(split), "takedown_revision", 0)) for split in splits)


# A `Split`, or an object with part of its interface: readers first check that it has what they need.
StoredSplit = Any


def stored_split(split: object) -> StoredSplit:
    """The cached split inside a wrapper that derives features from it record by record (`JoinedSplit`)."""
    while not hasattr(split, "removed_rows") and hasattr(split, "_split"):
        split = split._split
    return split


def read_consistently(splits: Iterable[object], read: Callable[[], T]) -> T:
    """The result of `read`, read again if the takedowns of `splits` changed in the meantime.

    A row is read feature by feature, and all features must come from the same record.
    """
    splits = list(splits)
    while True:
        before = takedown_revision(splits)
        try:
            made = read()
        except (LoaderError, SpecError):
            if takedown_revision(splits) == before:
                raise
            continue  # a stand-in may be longer than the record whose length was looked up before
        if takedown_revision(splits) == before:
            return made


def entries_left(split: object, records: Indices) -> npt.NDArray[np.bool_] | None:
    """The remaining entries of packed rows, as a mask; None if all remain."""
    removed = getattr(stored_split(split), "removed_rows", None)
    if removed is None or not len(removed):
        return None
    gone = is_removed(records, removed)
    return np.logical_not(gone) if gone.any() else None


def note_other_takedowns(saved: int, now: int) -> None:
    """Logs that a state was saved under takedowns other than those in force; the state is still valid."""
    if saved != now:
        _log.warning(
            "this state was saved at takedown revision %d, and now it is %d: rows come in the same order and at the "
            "same steps, and the places of records that were taken down meanwhile hold others (docs/takedown.md).",
            saved,
            now,
        )


class Column(NamedTuple):
    """`values` is (sum of lengths, *rest) with `lengths` (n,), or (n, *shape) without."""

    values: Array
    lengths: npt.NDArray[np.int64] | None = None


def columns_of(split: MeasuredSplit, features: Sequence[str], records: Indices) -> dict[str, Column]:
    """Features of some records of a split, or of anything with a split's interface.

    A source that derives several features of a record together has its own `columns_of(features, records)`, which is
    called instead, so that they are derived only once.
    """
    read = getattr(split, "columns_of", None)
    if read is not None:
        columns: dict[str, Column] = read(features, records)
        return columns
    columns = {}
    whole: ReadSplit = split  # type: ignore[assignment]  # it has no `columns_of`, so it has these
    for name in features:
        if split.spec[name].has_shape_feature:
            columns[name] = _uniform(whole, name, records)
        elif split.spec[name].ragged:
            columns[name] = Column(*whole.gather_values(name, records))
        else:
            columns[name] = Column(whole.gather(records, features=[name])[name])
    return columns


def _uniform(split: ReadSplit, feature: str, records: Indices) -> Column:
    """A feature whose inner dimensions its spec does not fix, but which are equal in these records."""
    read = split.gather(records, features=[feature], ragged="values")
    values, lengths = read[feature], read[f"{feature}/lengths"]
    return Column(values.reshape(int(lengths.sum()), *_inner_of(feature, read[f"{feature}/shape"])), lengths)


def widest_row(split: MeasuredSplit, feature: str, records: Indices) -> tuple[int, ...]:
    """The smallest shape that holds a ragged feature of each of these records, found without reading their values.

    Raises `LoaderError` if that is unknown, or if the inner dimensions differ.
    """
    spec = split.spec[feature]
    try:
        longest = int(split.lengths(feature, records).max(initial=0))
    except TaskError as error:
        raise LoaderError(
            f"feature {feature!r} is padded to the longest row of the global batch, which has to be the same on every "
            f"host, and how long rows are is known only when they are read: {error}. Give {feature!r} a length.",
            feature=feature,
        ) from error
    if not spec.has_shape_feature:
        return (longest, *(size or 0 for size in spec.shape[1:]))  # none of them varies
    return (longest, *_inner_of(feature, stored_split(split).shapes(feature, records)))


def _inner_of(feature: str, shapes: npt.NDArray[np.int64]) -> list[int]:
    inner = np.unique(shapes[:, 1:], axis=0)
    if len(inner) > 1:
        raise LoaderError(
            f"feature {feature!r} has the inner dimensions {inner[0].tolist()} and {inner[1].tolist()} in records of "
            "one batch, so that its values cannot be laid out in rows; make them alike when the cache is built, or "
            "leave the feature out",
            feature=feature,
        )
    sizes: list[int] = inner[0].tolist() if len(inner) else [0] * (shapes.shape[1] - 1)
    return sizes


# From this many bytes per row on, copying row by row beats a mask over all of them.
_LONG_ROW_BYTES = 512


def rows_of(values: Array, totals: npt.NDArray[np.int64], width: int, *, inner: Sequence[int], fill: object) -> Array:
    """Concatenated values as rows of `width`, padded: [5, 6, 7], totals [2, 1] → [[5, 6], [7, fill]]."""
    alike = values.shape[1:] == tuple(inner)
    if alike and (totals == width).all():
        return values.reshape(len(totals), width, *inner)
    made = np.full((len(totals), width, *inner), fill, values.dtype)
    if alike and values.dtype != object and values.nbytes >= _LONG_ROW_BYTES * len(totals):
        end = 0
        for row, total in enumerate(totals.tolist()):
            start, end = end, end + total
            made[row, :total] = values[start:end]
    else:
        put_into(made, np.arange(width) < totals[:, None], values)
    return made


def put_into(batch: Array, inside: npt.NDArray[np.bool_], values: Array) -> None:
    """Writes concatenated values to the places that `inside` marks; their inner dimensions may be smaller."""
    corner: tuple[EllipsisType | slice, ...] = (..., *(slice(size) for size in values.shape[1:]))
    batch = batch if batch.shape[2:] == values.shape[1:] else batch[corner]
    batch[inside] = values
