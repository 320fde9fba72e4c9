"""Takedowns: records that readers must not give any more, in one file beside the manifest, `takedown.json`.

A *takedown* names source records. The file holds all of them, and for each published snapshot the *rows* (indices of
a split) that they are; readers look at the rows only. It is replaced in one step, bears its own checksum, and is looked
at again before each read, so that it holds for whoever has the cache open already. Bytes of shards do not change.

Rows keep their numbers. The place of a removed row is taken by its *stand-in*: the next row of the split, in stored
order and cyclically, that is not removed.

A snapshot that the file does not know is not read while a takedown is in force: nobody has looked which of its rows are
meant.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from beam_pipes.cache.checked_json import canonical_json, parse_object
from beam_pipes.cache.storage import Storage, storage_for
from beam_pipes.errors import (
    CacheNotFoundError,
    CorruptManifestError,
    CorruptTakedownError,
    RecordRemovedError,
    UnsupportedFormatError,
)

FILE_NAME = "takedown.json"
FORMAT_VERSION = 1

Rows = np.ndarray[Any, np.dtype[np.int64]]

_NO_ROWS: Rows = np.empty(0, np.int64)
_NO_ROWS.setflags(write=False)
_MAX_ROW = 1 << 62


@dataclasses.dataclass(frozen=True, kw_only=True)
class Takedown:
    """One takedown: its number (from 1), when (UTC, ISO 8601), by whom, why, and the record ids that it names.

    An id is `file@position`, or a file for all records of it. `undone` is when it was taken back, or None.
    """

    number: int
    at: str
    by: str
    reason: str
    ids: tuple[str, ...]
    undone: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "ids": list(self.ids)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlay:
    """The content of `takedown.json`. `revision` counts its changes; `rows` is snapshot → split → ascending rows."""

    revision: int = 0
    takedowns: tuple[Takedown, ...] = ()
    rows: Mapping[str, Mapping[str, Rows]] = dataclasses.field(default_factory=dict)

    @property
    def in_force(self) -> tuple[Takedown, ...]:
        """The takedowns that are not undone."""
        return tuple(takedown for takedown in self.takedowns if takedown.undone is None)

    @property
    def ids(self) -> frozenset[str]:
        """All ids of the takedowns in force."""
        return frozenset(each for takedown in self.in_force for each in takedown.ids)

    def to_bytes(self) -> bytes:
        """Canonical JSON; rows as runs `[first, number of rows]`."""
        content = {
            "format_version": FORMAT_VERSION,
            "revision": self.revision,
            "rows": {
                snapshot: {split: _runs(rows) for split, rows in splits.items()}
                for snapshot, splits in self.rows.items()
            },
            "takedowns": [takedown.to_json() for takedown in self.takedowns],
        }
        return canonical_json({**content, "crc32c": google_crc32c.value(canonical_json(content))})

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> Overlay:
        """The overlay that was written as `data`.

        Raises:
            CorruptTakedownError: the bytes are not what was written.
            UnsupportedFormatError: a version that this library does not know.
        """
        try:
            made = parse_object(data, path=path)
        except (CorruptManifestError, ValueError) as error:
            raise _corrupt(path, f"it is no JSON object ({len(data)} bytes)") from error
        stored = made.pop("crc32c", None)
        try:
            computed = google_crc32c.value(canonical_json(made))
        except (ValueError, RecursionError) as error:
            raise _corrupt(path, f"it cannot be written again: {error}") from error
        if stored != computed or type(stored) is not int:
            raise _corrupt(path, f"expected checksum {computed}, found {stored!r:.40}")
        version = made.get("format_version")
        if type(version) is not int or version != FORMAT_VERSION:
            raise UnsupportedFormatError(
                f"{path}: expected takedowns of version {FORMAT_VERSION}, found version {version!r:.40}. Read the "
                "cache with the version of beam-pipes that wrote them.",
                path=path,
                found=version,
            )
        try:
            return cls(
                revision=_count(made["revision"]),
                takedowns=tuple(map(_takedown, made["takedowns"])),
                rows={
                    str(snapshot): {str(split): _rows(runs) for split, runs in splits.items()}
                    for snapshot, splits in made["rows"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _corrupt(path, str(error)) from error


def read_overlay(root: str | os.PathLike[str], *, storage: Storage | None = None) -> Overlay:
    """The takedowns of the cache at `root`; an overlay without any where there is no file."""
    path = os.path.join(os.fspath(root), FILE_NAME)
    try:
        data = (storage_for(root) if storage is None else storage).read_bytes(path)
    except CacheNotFoundError:
        return Overlay()
    return Overlay.from_bytes(data, path=path)


class RemovedRows:
    """The rows of one snapshot that are taken down, as of now: the file is looked at before each answer.

    On a file system that costs a few µs. Elsewhere it is read again after `every_secs`. Thread-safe.
    """

    def __init__(self, root: str, snapshot: str, *, storage: Storage | None = None, every_secs: float = 10.0) -> None:
        self._root = root
        self._path = os.path.join(root, FILE_NAME)
        self._snapshot = snapshot
        self._storage = storage_for(root) if storage is None else storage
        self._local = self._storage.local_path(self._path) is not None
        self._every_secs = every_secs
        self._seen: Any = _NEVER
        self._overlay = Overlay()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_seen", "_overlay")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _seen=_NEVER, _overlay=Overlay())

    def overlay(self) -> Overlay:
        """The whole content of the file, as of now."""
        seen = self._signature()
        if seen != self._seen:
            with self._lock:
                self._overlay = read_overlay(self._root, storage=self._storage)
                # Taken before reading: what is replaced meanwhile has another signature, and is read the next time.
                self._seen = seen
        return self._overlay

    def of_split(self, split: str, records: int) -> Rows:
        """(k,) int64: the removed rows of a split of so many records, ascending."""
        overlay = self.overlay()
        if not overlay.takedowns:
            return _NO_ROWS
        splits = overlay.rows.get(self._snapshot)
        if splits is None:
            if not overlay.in_force:
                return _NO_ROWS
            raise RecordRemovedError(
                f"{self._root}: {len(overlay.in_force)} takedowns are in force, and which rows of snapshot "
                f"{self._snapshot} they remove is not known, so it is not read. Run `beam-pipes takedown {self._root} "
                "--resolve`, or build the cache again.",
                path=self._root,
                snapshot=self._snapshot,
            )
        rows = splits.get(split, _NO_ROWS)
        if len(rows) and int(rows[-1]) >= records:
            raise _corrupt(self._path, f"split {split!r} has {records} records, and row {int(rows[-1])} is removed")
        return rows

    def _signature(self) -> Any:
        if not self._local:
            import time

            return int(time.monotonic() / self._every_secs)
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


_NEVER = object()


def is_removed(rows: Any, removed: Rows) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of `rows` are among `removed`, which are ascending."""
    wanted = np.asarray(rows, np.int64)
    if not len(removed):
        return np.zeros(wanted.shape, bool)
    at = np.minimum(np.searchsorted(removed, wanted), len(removed) - 1)
    found: np.ndarray[Any, np.dtype[np.bool_]] = removed[at] == wanted
    return found


def stand_ins(rows: Any, removed: Rows, records: int, *, where: str) -> Rows:
    """`rows` with each removed one replaced by its stand-in: rows [3, 4], removed [4, 5] of 7 → [3, 6].

    Raises `RecordRemovedError` where all `records` are removed.
    """
    wanted: Rows = np.asarray(rows, np.int64)
    hit = is_removed(wanted, removed)
    if not hit.any():
        return wanted
    if len(removed) >= records:
        raise RecordRemovedError(f"{where}: all {records} records are taken down, and there is none to read.")
    made: Rows = wanted.copy()
    made[hit] = _behind_run(wanted[hit], removed)
    beyond = made == records
    if beyond.any():
        made[beyond] = _behind_run(np.zeros(1, np.int64), removed)[0] if removed[0] == 0 else 0
    return made


def _behind_run(rows: Rows, removed: Rows) -> Rows:
    """The row behind the run of consecutive removed rows that each row lies in, by bisection."""
    low = np.searchsorted(removed, rows)
    shift = removed[low] - low  # removed[k] - k is the same all over a run, and larger behind it
    high = np.full(len(rows), len(removed))
    while (open_ := high - low > 1).any():
        middle = (low + high) // 2
        inside = removed[np.minimum(middle, len(removed) - 1)] - middle == shift
        low = np.where(open_ & inside, middle, low)
        high = np.where(open_ & ~inside, middle, high)
    behind: Rows = removed[low] + 1
    return behind


def _runs(rows: Rows) -> list[list[int]]:
    if not len(rows):
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(rows) != 1) + 1))
    counts = np.diff(np.append(starts, len(rows)))
    return [[int(rows[start]), int(count)] for start, count in zip(starts, counts, strict=True)]


def _rows(runs: Any) -> Rows:
    if not isinstance(runs, list):
        raise ValueError(f"expected runs of rows, found {runs!r:.80}")
    end = -1
    total = 0
    for run in runs:
        if not isinstance(run, list) or len(run) != 2:
            raise ValueError(f"expected a run [first row, number of rows], found {run!r:.80}")
        first, count = _count(run[0]), _count(run[1])
        if first <= end or count < 1 or first + count > _MAX_ROW:
            raise ValueError(f"expected ascending runs of rows, found {run!r:.80}")
        end = first + count
        total += count
    # A run is written in a few bytes and takes eight a row: a file may not ask for more than any split could have here.
    if total > 1 << 31:
        raise ValueError(f"expected at most 2^31 removed rows, found {total}")
    made: Rows = np.concatenate([_NO_ROWS, *(np.arange(first, first + count) for first, count in runs)])
    return made


def _takedown(made: Any) -> Takedown:
    fields = {field.name for field in dataclasses.fields(Takedown)}
    if not isinstance(made, Mapping) or made.keys() != fields:
        raise ValueError(f"expected a takedown of {sorted(fields)}, found {made!r:.80}")
    ids: Sequence[Any] = made["ids"]
    texts = [made["at"], made["by"], made["reason"], *ids, *([] if made["undone"] is None else [made["undone"]])]
    if not isinstance(ids, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a takedown should hold texts, found {made!r:.80}")
    return Takedown(**{**made, "number": _count(made["number"]), "ids": tuple(ids)})


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_ROW:
        raise ValueError(f"expected a number, found {value!r:.80}")
    return int(value)


def _corrupt(path: str, problem: str) -> CorruptTakedownError:
    return CorruptTakedownError(
        f"{path}: the takedowns are damaged: {problem}. Nothing is read without them: bring the file back from a copy, "
        "or remove it and take the records down again (takedowns.jsonl lists them).",
        path=path,
    )
