"""Loading while records are taken down: rows keep their places, so orders, steps and states stay what they were."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from beam_pipes.cache.takedown import is_removed
from beam_pipes.errors import LoaderError, SpecError
from beam_pipes.loader.order import Indices

T = TypeVar("T")

_log = logging.getLogger("beam_pipes.loader")


def takedown_revision(splits: Iterable[Any]) -> int:
    """A number that grows with each change of the takedowns of these splits; 0 where there never were any."""
    return sum(int(getattr(stored_split(split), "takedown_revision", 0)) for split in splits)


def stored_split(split: Any) -> Any:
    """The split of a cache behind what derives features from one (`JoinedSplit`), record by record."""
    while not hasattr(split, "removed_rows") and hasattr(split, "_split"):
        split = split._split
    return split


def read_consistently(splits: Iterable[Any], read: Callable[[], T]) -> T:
    """What `read` gives, read again where the takedowns of `splits` changed meanwhile.

    A row is read feature by feature: all of them have to be of the same record.
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


def entries_left(split: Any, records: Indices) -> Any:
    """Which entries of packed rows are left, as a mask; None where all are."""
    removed = getattr(stored_split(split), "removed_rows", None)
    if removed is None or not len(removed):
        return None
    gone = is_removed(records, removed)
    return np.logical_not(gone) if gone.any() else None


def note_other_takedowns(saved: int, now: int) -> None:
    """Says that a state was saved under other takedowns than those in force; it is good all the same."""
    if saved != now:
        _log.warning(
            "this state was saved at takedown revision %d, and now it is %d: rows come in the same order and at the "
            "same steps, and the places of records that were taken down meanwhile hold others (docs/takedown.md).",
            saved,
            now,
        )
