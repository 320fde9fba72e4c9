"""Takedowns: records that readers must no longer return, in one file beside the manifest, `takedown.json`.

A *takedown* names source records by their ids, and keeps a digest of the *content* of each record that they matched:
an id says where a record was, and in the next input another record may be there. The file holds all takedowns, and for
each published snapshot the *rows* (indices of a split) of these records; readers use only the rows. It is replaced in
one step, has its own checksum, and is checked before each read, so that it also applies to readers that already have
the cache open. Bytes of shards do not change.

Rows keep their numbers. The place of a removed row is taken by its *stand-in*: a row that is not removed, drawn by the
snapshot, the split and the number of the removed row. All remaining rows are equally likely, and a later takedown moves
only the stand-ins that it removes.

A snapshot that the file does not list cannot be read while a takedown is in force: it is not known which of its rows
are hidden.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_pipes.errors import (
    CacheNotFoundError,
    CorruptManifestError,
    CorruptTakedownError,
    RecordRemovedError,
    UnsupportedFormatError,
)
from beam_pipes.lineage.lineage import DIGEST_BYTES
from beam_pipes.storage.checked_json import JsonObject, canonical_json, parse_object
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import Storage

FILE_NAME = "takedown.json"
FORMAT_VERSION = 2

# Beside the splits of a snapshot: its dead letters, numbered in their order.
DEAD_LETTERS = "dead_letters"

Rows = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]

_NO_ROWS: Rows = np.empty(0, np.int64)
_NO_ROWS.setflags(write=False)
_MAX_ROW = 1 << 62

_SINCE_VERSION_2 = {"gone", "next_build", "contents"}

# How often a removed row draws a stand-in among all rows: with half of them removed, one row in 65,536 draws in vain.
_DRAWS = 16
_GAMMA = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Takedown:
    """One takedown: its number (from 1), when (UTC, ISO 8601), by whom, why, and the record ids that it names.

    An id is `file@position`, or a file for all records of it. `contents` maps each id that has matched records to their
    digests (lineage has them), ascending, 8 bytes each. From then on the takedown hides these contents, wherever they
    are; an id that matches nothing waits for a build that reads it (with `next_build`, even if it matches something
    published). `gone` is the time from which its records may be missing from the input, `undone` the time when it was
    undone, or None.
    """

    number: int
    at: str
    by: str
    reason: str
    ids: tuple[str, ...]
    undone: str | None = None
    gone: str | None = None
    next_build: bool = False
    contents: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def pending(self) -> tuple[str, ...]:
        """The ids that have not matched anything yet."""
        return tuple(each for each in self.ids if each not in self.contents)

    def digests(self, ids: Iterable[str] | None = None) -> Digests:
        """(k,) uint64, ascending: the digests of all records that it names, or that some of its ids name."""
        parts = [self.contents[each] for each in (self.contents if ids is None else ids)]
        return np.unique(np.frombuffer(b"".join(parts), "<u8"))

    def with_contents(self, contents: Mapping[str, Digests]) -> Takedown:
        """The same takedown, with these contents added to these ids."""
        merged = dict(self.contents)
        for each, digests in contents.items():
            known = np.frombuffer(merged.get(each, b""), "<u8")
            merged[each] = np.union1d(known, digests).astype("<u8").tobytes()
        return dataclasses.replace(self, contents=merged)

    def to_json(self) -> dict[str, object]:
        contents = {each: digests.hex() for each, digests in self.contents.items()}
        return {**dataclasses.asdict(self), "ids": list(self.ids), "contents": contents}


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

    @property
    def digests(self) -> Digests:
        """(k,) uint64, ascending: the digests of all records that the takedowns in force mean."""
        parts = [takedown.digests() for takedown in self.in_force]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))

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
            raise _corrupt(path, f"it is not a JSON object ({len(data)} bytes)") from error
        stored = made.pop("crc32c", None)
        try:
            computed = google_crc32c.value(canonical_json(made))
        except (ValueError, RecursionError) as error:
            raise _corrupt(path, f"it cannot be written again: {error}") from error
        if stored != computed or type(stored) is not int:
            raise _corrupt(path, f"expected checksum {computed}, found {stored!r:.40}")
        version = made.get("format_version")
        if type(version) is not int or version not in (1, FORMAT_VERSION):
            raise UnsupportedFormatError(
                f"{path}: expected takedowns of version 1 or {FORMAT_VERSION}, found version {version!r:.40}. Read the "
                "cache with the version of beam-pipes that wrote them.",
                path=path,
                found=version,
            )
        fields: JsonObject = made  # the loops below detect what exists
        try:
            return cls(
                revision=_count(fields["revision"]),
                takedowns=tuple(_takedown(each, version=version) for each in fields["takedowns"]),
                rows={
                    str(snapshot): {str(split): _rows(runs) for split, runs in splits.items()}
                    for snapshot, splits in fields["rows"].items()
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


# How often the file of takedowns is read where a look at it is a request.
_EVERY_SECS = 10.0


class RemovedRows:
    """The rows of one snapshot that are currently taken down: the file is checked before each answer.

    On a file system that costs a few µs. Elsewhere it is read again after ten seconds. Thread-safe.
    """

    def __init__(self, root: str, snapshot: str, *, storage: Storage | None = None) -> None:
        self._root = root
        self._path = os.path.join(root, FILE_NAME)
        self._snapshot = snapshot
        self._storage = storage_for(root) if storage is None else storage
        self._local = self._storage.local_path(self._path) is not None
        self._seen: object = _NEVER
        self._overlay = Overlay()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_seen", "_overlay")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _seen=_NEVER, _overlay=Overlay())

    def overlay(self) -> Overlay:
        """The whole content of the file, as of now."""
        seen = self._signature()
        if seen != self._seen:
            with self._lock:
                self._overlay = read_overlay(self._root, storage=self._storage)
                # Taken before reading: a file that is replaced meanwhile has another signature, and is read the next
                # time.
                self._seen = seen
        return self._overlay

    def of_split(self, split: str, records: int) -> Rows:
        """(k,) int64: the removed rows of a split of that many records, ascending."""
        overlay = self.overlay()
        if not overlay.takedowns:
            return _NO_ROWS
        splits = overlay.rows.get(self._snapshot)
        if splits is None:
            if not overlay.in_force:
                return _NO_ROWS
            raise RecordRemovedError(
                f"{self._root}: {len(overlay.in_force)} takedowns are in force, and which rows of snapshot "
                f"{self._snapshot} they remove is unknown, so the cache is not read. Run `beam-pipes takedown "
                f"{self._root} --resolve`, or build the cache again.",
                path=self._root,
                snapshot=self._snapshot,
            )
        rows = splits.get(split, _NO_ROWS)
        if len(rows) and int(rows[-1]) >= records:
            raise _corrupt(self._path, f"split {split!r} has {records} records, and row {int(rows[-1])} is removed")
        return rows

    def of_dead_letters(self, records: int) -> tuple[Rows, frozenset[str]]:
        """The numbers of the dead letters that are removed, ascending, and the ids (files too) that are as well.

        The ids come from a file of an older version, which stores nothing else about dead letters.
        """
        rows = self.of_split(DEAD_LETTERS, records)
        overlay = self.overlay()
        known = DEAD_LETTERS in overlay.rows.get(self._snapshot, {})
        return rows, frozenset() if known else overlay.ids

    def _signature(self) -> object:
        if not self._local:
            import time

            return int(time.monotonic() / _EVERY_SECS)
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


_NEVER = object()


def is_removed(rows: npt.ArrayLike, removed: Rows) -> npt.NDArray[np.bool_]:
    """Which of `rows` are among `removed`, which are ascending."""
    wanted = np.asarray(rows, np.int64)
    if not len(removed):
        return np.zeros(wanted.shape, bool)
    at = np.minimum(np.searchsorted(removed, wanted), len(removed) - 1)
    found: npt.NDArray[np.bool_] = removed[at] == wanted
    return found


def stand_in_key(snapshot: str, split: str) -> int:
    """The key by which the stand-ins of a split are drawn: the same for all hosts, readers and revisions of the
    takedowns.
    """
    return int.from_bytes(hashlib.sha256(f"{snapshot}/{split}".encode()).digest()[:8], "little")


def stand_ins(rows: npt.ArrayLike, removed: Rows, records: int, *, key: int, where: str) -> Rows:
    """`rows` with each removed one replaced by its stand-in; rows that are not removed stay.

        stand_ins([3, 4], removed=np.array([4, 5]), records=7, key=0, where="train")  →  [3, 2]

    A removed row draws rows of the split until it finds a remaining one: 1 / (1 - share of removed rows) draws on
    average. After `_DRAWS` misses it draws a number among the remaining rows, so it always ends. The draw depends only
    on `key` and the row, so a stand-in stays the same until it is removed itself.

    Raises `RecordRemovedError` if all `records` are removed.
    """
    wanted: Rows = np.asarray(rows, np.int64)
    hit = is_removed(wanted, removed)
    if not hit.any():
        return wanted
    if len(removed) >= records:
        raise RecordRemovedError(f"{where}: all {records} records are taken down, so none can be read.")
    made: Rows = wanted.copy()
    states = _mixed(_mixed(wanted[hit].astype(np.uint64)) ^ np.uint64(key))
    drawn = np.full(len(states), -1, np.int64)
    left = np.arange(len(states))
    for draw in range(_DRAWS):
        found = (_draw(states[left], draw) % np.uint64(records)).astype(np.int64)
        drawn[left] = found
        left = left[is_removed(found, removed)]
        if not len(left):
            break
    if len(left):
        numbers = (_draw(states[left], _DRAWS) % np.uint64(records - len(removed))).astype(np.int64)
        drawn[left] = _rows_left(numbers, removed)
    made[hit] = drawn
    return made


def _rows_left(numbers: Rows, removed: Rows) -> Rows:
    """The rows with these numbers among those that are left, by bisection: 0 and 2 of removed [1, 2] → 0 and 4."""
    low, high = np.zeros(len(numbers), np.int64), np.full(len(numbers), len(removed))
    while (low < high).any():
        middle = (low + high) // 2
        # Before removed row number k lie removed[k] - k rows that are left.
        before = removed[np.minimum(middle, len(removed) - 1)] - middle <= numbers
        low, high = np.where((low < high) & before, middle + 1, low), np.where((low < high) & ~before, middle, high)
    rows: Rows = numbers + low
    return rows


def _draw(states: Digests, number: int) -> Digests:
    return _mixed(states + np.uint64((number * _GAMMA) & _MASK_64))


def _mixed(values: Digests) -> Digests:
    """A round of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), as orders have it; uint64 arrays wrap around."""
    mixed = values + np.uint64(_GAMMA)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    made: Digests = mixed ^ (mixed >> np.uint64(31))
    return made


def _runs(rows: Rows) -> list[list[int]]:
    if not len(rows):
        return []
    starts = np.concatenate(([0], np.flatnonzero(np.diff(rows) != 1) + 1))
    counts = np.diff(np.append(starts, len(rows)))
    return [[int(rows[start]), int(count)] for start, count in zip(starts, counts, strict=True)]


def _rows(runs: object) -> Rows:
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
    # A run takes a few bytes to write and eight per row to hold: a file may not claim more rows than a split can have.
    if total > 1 << 31:
        raise ValueError(f"expected at most 2^31 removed rows, found {total}")
    made: Rows = np.concatenate([_NO_ROWS, *(np.arange(first, first + count) for first, count in runs)])
    return made


def _takedown(made: object, *, version: int) -> Takedown:
    fields = {field.name for field in dataclasses.fields(Takedown)} - (_SINCE_VERSION_2 if version == 1 else set())
    if not isinstance(made, Mapping) or made.keys() != fields:
        raise ValueError(f"expected a takedown of {sorted(fields)}, found {made!r:.80}")
    ids: Sequence[object] = made["ids"]
    times = [made[name] for name in ("undone", "gone") if made.get(name) is not None]
    if not isinstance(ids, list) or not all(
        isinstance(text, str) for text in [made["at"], made["by"], made["reason"], *ids, *times]
    ):
        raise ValueError(f"a takedown should hold texts, found {made!r:.80}")
    if type(made.get("next_build", False)) is not bool:
        raise ValueError(f"next_build should be true or false, found {made['next_build']!r:.80}")
    contents = {each: _digests(digests) for each, digests in made.get("contents", {}).items()}
    if not contents.keys() <= set(ids):
        raise ValueError(f"expected contents of the ids of the takedown, found {sorted(contents)!r:.80}")
    return Takedown(**{**made, "number": _count(made["number"]), "ids": tuple(ids), "contents": contents})


def _digests(text: object) -> bytes:
    if not isinstance(text, str) or not text or len(text) % (2 * DIGEST_BYTES):
        raise ValueError(f"expected digests of {2 * DIGEST_BYTES} hexadecimal digits each, found {text!r:.80}")
    made = bytes.fromhex(text)
    found = np.frombuffer(made, "<u8")
    if 2 * len(made) != len(text) or (found[1:] <= found[:-1]).any():
        raise ValueError(f"expected ascending digests, found {text!r:.80}")
    return made


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MAX_ROW:
        raise ValueError(f"expected a number, found {value!r:.80}")
    return int(value)


def _corrupt(path: str, problem: str) -> CorruptTakedownError:
    return CorruptTakedownError(
        f"{path}: the takedowns are damaged: {problem}. Nothing is read without them: restore the file from a copy, or "
        "remove it and take the records down again (takedowns.jsonl lists them).",
        path=path,
    )
