"""Taking records down: which rows of which snapshots are meant, `takedown.json`, and the audit record.

A takedown hides records from every reader; it does not wipe their bytes (docs/takedown.md). It needs no build and may
run beside one: a build that publishes afterwards looks its own rows up first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import getpass
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipes.cache.lineage_reader import Lineage
from beam_pipes.cache.manifest import FILE_NAME as MANIFEST
from beam_pipes.cache.manifest import Manifest
from beam_pipes.cache.publish import REPORT, SNAPSHOTS, snapshot_directory
from beam_pipes.cache.split import Split
from beam_pipes.cache.storage import storage_for, sync_directory
from beam_pipes.cache.takedown import FILE_NAME, Overlay, Rows, Takedown, read_overlay
from beam_pipes.errors import CacheBusyError, CacheNotFoundError, DeclarationError
from beam_pipes.offline.write_errors import writing

AUDIT = "takedowns.jsonl"
LOCK_NAME = ".takedown.lock"

_LOCK_SECS = 600.0
_POLL_SECS = 0.05
_REMOTE_POLL_SECS = 1.0
_ATTEMPTS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakedownReport:
    """What a change of takedowns did; one line of `takedowns.jsonl`.

    `action` is "takedown", "undo" or "resolve". `matched_records` counts source records of the published snapshot that
    `ids` name, `removed_rows` (snapshot → split → rows) what readers do not give any more, over all takedowns in force;
    `unmatched` are the ids of this takedown that match nothing there, `unresolved` the snapshots that were built
    without lineage: they are not read any more while a takedown is in force.
    """

    action: str
    number: int
    revision: int
    at: str
    by: str
    reason: str
    ids: tuple[str, ...]
    matched_records: int
    unmatched: tuple[str, ...]
    removed_rows: Mapping[str, Mapping[str, int]]
    unresolved: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def take_down(
    path: str | os.PathLike[str], ids: Sequence[str], *, reason: str = "", by: str | None = None
) -> TakedownReport:
    """Hides the source records `ids` (`file@position`, or a file for all of its records) from all readers, at once.

    ids that match nothing now are kept: a later build may read them. `by` is the user's name if left out.

    Raises `CacheNotFoundError` where there is no directory, `DeclarationError` without any id.
    """
    wanted = tuple(dict.fromkeys(each for each in ids if each))
    if not wanted:
        raise DeclarationError("a takedown should name at least one record, such as 'books/emma.txt@1024', got none.")
    with _changing(path) as overlay:
        number = len(overlay.takedowns) + 1
        made = Takedown(number=number, at=_now(), by=_who(by), reason=reason, ids=wanted)
        return _change(path, overlay, (*overlay.takedowns, made), action="takedown", number=number)


def undo_takedown(path: str | os.PathLike[str], number: int, *, by: str | None = None) -> TakedownReport:
    """Takes a takedown back: its records are read again, unless another takedown names them too.

    Raises `DeclarationError` where there is no takedown of this number in force.
    """
    with _changing(path) as overlay:
        known = [takedown.number for takedown in overlay.in_force]
        if number not in known:
            raise DeclarationError(
                f"{os.fspath(path)}: expected the number of a takedown in force, one of {known}, got {number}."
            )
        at = _now()
        takedowns = tuple(
            dataclasses.replace(takedown, undone=at) if takedown.number == number else takedown
            for takedown in overlay.takedowns
        )
        return _change(path, overlay, takedowns, action="undo", number=number, by=by)


def resolve_takedowns(path: str | os.PathLike[str]) -> TakedownReport:
    """Looks the rows of all published snapshots up again: after snapshots were copied into the directory."""
    with _changing(path) as overlay:
        return _change(path, overlay, overlay.takedowns, action="resolve", number=0)


def takedowns_at(path: str | os.PathLike[str]) -> Overlay:
    """All takedowns of a cache directory. Raises `CacheNotFoundError` where there is no directory."""
    _require_directory(path)
    return read_overlay(path)


@contextlib.contextmanager
def honouring_takedowns(path: str | os.PathLike[str], manifest: Manifest) -> Iterator[None]:
    """While a snapshot is published: its rows are looked up before, and no takedown comes in between.

    Not even the first one: it would have looked which snapshots there are before this one is published.
    """
    with _changing(path) as overlay:
        if overlay.in_force:
            rows, _ = _resolve(path, manifest, overlay.takedowns)
            if rows is not None:
                _write(path, dataclasses.replace(overlay, rows={**overlay.rows, manifest.snapshot: rows}))
        yield


def look_up_published(path: str | os.PathLike[str]) -> None:
    """Looks up the rows of the published snapshot, where takedowns are in force that nobody has done so for."""
    overlay = read_overlay(path)
    if not overlay.in_force:
        return
    file = os.path.join(path, MANIFEST)
    manifest = Manifest.from_bytes(storage_for(path).read_bytes(file), path=file)
    if manifest.snapshot not in overlay.rows:
        with honouring_takedowns(path, manifest):
            pass


def _change(
    path: str | os.PathLike[str],
    overlay: Overlay,
    takedowns: tuple[Takedown, ...],
    *,
    action: str,
    number: int,
    by: str | None = None,
) -> TakedownReport:
    rows: dict[str, Mapping[str, Rows]] = {}
    unresolved: list[str] = []
    changed = next((takedown for takedown in takedowns if takedown.number == number), None)
    ids = changed.ids if changed is not None else ()
    published = _published(path)
    matched, unmatched = 0, ids
    for manifest in _manifests(path):
        found, lineage = _resolve(path, manifest, takedowns)
        if found is None or lineage is None:
            unresolved.append(manifest.snapshot)
            continue
        rows[manifest.snapshot] = found
        if manifest.snapshot == published and ids:
            selected, missing = lineage.select(ids)
            matched, unmatched = sum(map(len, selected.values())), tuple(missing)
    made = Overlay(revision=overlay.revision + 1, takedowns=takedowns, rows=rows)
    report = TakedownReport(
        action=action,
        number=number,
        revision=made.revision,
        at=_now(),
        by=changed.by if changed is not None and by is None and action == "takedown" else _who(by),
        reason=changed.reason if changed is not None else "",
        ids=ids,
        matched_records=matched,
        unmatched=unmatched,
        removed_rows={
            snapshot: {split: len(found) for split, found in splits.items()} for snapshot, splits in rows.items()
        },
        unresolved=tuple(unresolved) if made.in_force else (),
    )
    _append_audit(path, report.to_json())  # before it holds: nothing is in force that the audit does not have
    _write(path, made)
    if made.in_force:
        for snapshot in storage_for(path).list(os.path.join(path, SNAPSHOTS)):  # pages show examples
            with writing(path):
                storage_for(path).delete(os.path.join(snapshot_directory(path, snapshot), REPORT))
    return report


def _resolve(
    path: str | os.PathLike[str], manifest: Manifest, takedowns: Sequence[Takedown]
) -> tuple[dict[str, Rows] | None, Lineage | None]:
    """Split → removed rows of one snapshot; None where it has no lineage."""
    directory = snapshot_directory(path, manifest.snapshot)
    try:
        lineage = Lineage(os.fspath(path), directory, manifest)
    except CacheNotFoundError:
        return None, None
    selected, _ = lineage.select(each for takedown in takedowns if takedown.undone is None for each in takedown.ids)
    rows: dict[str, Rows] = {}
    for name in manifest.splits:
        split = Split(os.fspath(path), directory, manifest, name)
        parts = [split.rows_of(number, ordinals) for number, ordinals in selected.items()]
        found = sorted(row for part in parts for row in part.tolist())
        if found:
            rows[name] = _as_rows(found)
    return rows, lineage


def _as_rows(rows: list[int]) -> Rows:
    import numpy as np

    return np.array(rows, np.int64)


def _published(path: str | os.PathLike[str]) -> str | None:
    storage, file = storage_for(path), os.path.join(path, MANIFEST)
    if not storage.exists(file):
        return None
    return Manifest.from_bytes(storage.read_bytes(file), path=file).snapshot


def _manifests(path: str | os.PathLike[str]) -> Iterator[Manifest]:
    """The manifests of all published snapshots, the current one or not."""
    storage = storage_for(path)
    for snapshot in storage.list(os.path.join(path, SNAPSHOTS)):
        file = os.path.join(snapshot_directory(path, snapshot), MANIFEST)
        if storage.exists(file):
            yield Manifest.from_bytes(storage.read_bytes(file), path=file)


def _write(path: str | os.PathLike[str], overlay: Overlay) -> None:
    file = os.path.join(path, FILE_NAME)
    with writing(path):
        for attempt in range(_ATTEMPTS):
            try:
                storage_for(path).replace(file, overlay.to_bytes())
                return
            except FileNotFoundError:  # a build that begins removes temporary files, ours among them
                if attempt == _ATTEMPTS - 1:
                    raise


def _append_audit(path: str | os.PathLike[str], line: Mapping[str, Any]) -> None:
    data = json.dumps(line, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    storage, file = storage_for(path), os.path.join(path, AUDIT)
    if storage.local_path(file) is None:  # objects cannot be appended to
        storage.replace(file, (storage.read_bytes(file) if storage.exists(file) else b"") + data)
        return
    with writing(path), open(file, "ab+", buffering=0) as audit:
        audit.seek(0)
        audit.truncate(audit.read().rfind(b"\n") + 1)  # what is left of a line that could not be written to its end
        view = memoryview(data)
        while len(view):
            view = view[audit.write(view) :]
        os.fsync(audit.fileno())
        sync_directory(os.fspath(path))


@contextlib.contextmanager
def _changing(path: str | os.PathLike[str]) -> Iterator[Overlay]:
    """The takedowns as they are, while nobody else changes them."""
    _require_directory(path)
    storage, where = storage_for(path), os.fspath(path)
    file = os.path.join(where, LOCK_NAME)
    deadline = time.monotonic() + _LOCK_SECS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                with writing(path):
                    lock = stack.enter_context(storage.lock(file, where))
                break
            except CacheBusyError:
                if time.monotonic() > deadline:
                    raise CacheBusyError(
                        f"{where}: the takedowns have been locked for {_LOCK_SECS:.0f} seconds by another takedown, or "
                        f"a build that publishes ({storage.lock_holder(file)}). Is it alive?",
                        path=where,
                    ) from None
                time.sleep(_POLL_SECS if storage.local_path(file) is not None else _REMOTE_POLL_SECS)
        yield read_overlay(path)
        lock.check()


def _require_directory(path: str | os.PathLike[str]) -> None:
    if not storage_for(path).is_directory(os.fspath(path)):
        raise CacheNotFoundError(
            f"there is no directory {os.fspath(path)!r}: nothing was built there.", path=os.fspath(path)
        )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _who(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return f"uid {os.getuid()}"
