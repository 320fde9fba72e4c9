"""Taking records down: which rows of which snapshots it hides, `takedown.json`, and the audit record.

A takedown hides records from every reader; it does not wipe their bytes (docs/takedown.md). It needs no build and may
run beside one: a build that publishes afterwards looks its own rows up first, by content, and does not publish if
it finds a taken-down record nowhere.
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

from beam_pipes.building.leftovers import writing
from beam_pipes.building.taken_down_records import SnapshotRecords, TakedownState, require_found, require_known
from beam_pipes.errors import CacheBusyError, DeclarationError, logger
from beam_pipes.lineage.takedown import FILE_NAME, Overlay, Rows, Takedown, read_overlay
from beam_pipes.publication.manifest import FILE_NAME as MANIFEST
from beam_pipes.publication.manifest import Manifest
from beam_pipes.publication.publish import REPORT, SNAPSHOTS, snapshot_directory
from beam_pipes.storage.local import existing_directory, storage_for, sync_directory
from beam_pipes.storage.protocol import write_all

AUDIT = "takedowns.jsonl"
LOCK_NAME = ".takedown.lock"

_log = logger("beam_pipes.building.takedown")

_LOCK_SECS = 600.0
_POLL_SECS = 0.05
_REMOTE_POLL_SECS = 1.0
_ATTEMPTS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakedownReport:
    """The effect of a change to the takedowns; one line of `takedowns.jsonl`.

    `action` is "takedown", "undo", "gone" or "resolve". `matched_records` counts source records of the published
    snapshot that `ids` name, `equal_records` the others there with the same content as one of those, which are hidden
    too, `removed_rows` (snapshot → split, or "dead_letters" → rows) what readers no longer return, over all takedowns
    in force. `unmatched` are the ids of this takedown that match nothing there. Snapshots in `unresolved` were built
    without lineage and cannot be read while a takedown is in force; those in `by_position` were built by a version that
    kept no digests of records, so ids are looked up in them as they are; those in `learned` (snapshot → assets) have
    results of analyses over data that include removed records.
    """

    action: str
    number: int
    revision: int
    at: str
    by: str
    reason: str
    ids: tuple[str, ...]
    matched_records: int
    equal_records: int
    unmatched: tuple[str, ...]
    removed_rows: Mapping[str, Mapping[str, int]]
    unresolved: tuple[str, ...]
    by_position: tuple[str, ...]
    learned: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def take_down(
    path: str | os.PathLike[str],
    ids: Sequence[str],
    *,
    reason: str = "",
    by: str | None = None,
    next_build: bool = False,
) -> TakedownReport:
    """Hides the source records `ids` (`file@position`, or a file for all of its records) from all readers, at once.

    It hides the content that the ids match in the published snapshot (or in an older one if they match nothing there),
    wherever and however many times it occurs, now and in later builds. ids that match nothing are kept: they are looked
    up in the next build that reads them. With `next_build`, all of them are: they name records of the current input.
    `by` is the user's name if left out.

    Raises `CacheNotFoundError` if there is no directory, `DeclarationError` without any id.
    """
    wanted = tuple(dict.fromkeys(each for each in ids if each))
    if not wanted:
        raise DeclarationError("a takedown should name at least one record, such as 'books/emma.txt@1024', got none.")
    path = existing_directory(path)
    with _changing(path) as overlay:
        number = len(overlay.takedowns) + 1
        made = Takedown(number=number, at=_now(), by=_who(by), reason=reason, ids=wanted, next_build=next_build)
        return _change(path, overlay, (*overlay.takedowns, made), action="takedown", number=number)


def undo_takedown(path: str | os.PathLike[str], number: int, *, by: str | None = None) -> TakedownReport:
    """Undoes a takedown: readers see its records again, unless another takedown names them too.

    Raises `DeclarationError` if there is no takedown of this number in force.
    """
    return _stamp(path, number, "undone", action="undo", by=by)


def mark_gone(path: str | os.PathLike[str], number: int, *, by: str | None = None) -> TakedownReport:
    """Declares that the records of a takedown may be missing from the input, so that builds publish without them.

    Call it before or after they are removed from the input. If a build does find one of them, it stays hidden.

    Raises `DeclarationError` if there is no takedown of this number in force.
    """
    return _stamp(path, number, "gone", action="gone", by=by)


def _stamp(path: str | os.PathLike[str], number: int, field: str, *, action: str, by: str | None) -> TakedownReport:
    path = existing_directory(path)
    with _changing(path) as overlay:
        known = [takedown.number for takedown in overlay.in_force]
        if number not in known:
            raise DeclarationError(
                f"{os.fspath(path)}: expected the number of a takedown in force, one of {known}, got {number}."
            )
        stamp: Any = {field: _now()}
        takedowns = tuple(
            dataclasses.replace(takedown, **stamp) if takedown.number == number else takedown
            for takedown in overlay.takedowns
        )
        return _change(path, overlay, takedowns, action=action, number=number, by=by)


def resolve_takedowns(path: str | os.PathLike[str]) -> TakedownReport:
    """Looks up the rows of all published snapshots again, for example after copying snapshots into the directory.

    Takedowns of an older version, which know ids alone, are given the contents that these match.
    """
    path = existing_directory(path)
    with _changing(path) as overlay:
        return _change(path, overlay, overlay.takedowns, action="resolve", number=0)


def states_of_takedowns(path: str | os.PathLike[str]) -> list[TakedownState]:
    """The effect of each takedown on the published snapshot, looked up again from its lineage.

    Raises `CacheNotFoundError` if there is no directory.
    """
    path = existing_directory(path)
    overlay = read_overlay(path)
    manifest = _published_manifest(path)
    records = None if manifest is None or not overlay.takedowns else SnapshotRecords.open(path, manifest)
    if records is None:
        return [TakedownState(takedown=each, pending=each.pending) for each in overlay.takedowns]
    return list(records.states(overlay.takedowns))


@contextlib.contextmanager
def honouring_takedowns(path: str | os.PathLike[str], manifest: Manifest) -> Iterator[None]:
    """Held while a snapshot is published: its rows are looked up first, and no takedown can come in between.

    Not even the first one: it would have looked for snapshots before this one is published. Raises
    `TakenDownNotFoundError` if records that were taken down are nowhere in it.
    """
    with _changing(path) as overlay:
        found = SnapshotRecords.open(path, manifest) if overlay.in_force else None
        if found is not None:
            takedowns = _bound_to(path, found, overlay.takedowns)
            rows, hidden = found.rows(takedowns)
            _write(
                path, dataclasses.replace(overlay, takedowns=takedowns, rows={**overlay.rows, manifest.snapshot: rows})
            )
            if hidden and found.assets():
                _log.warning("%s", learned_line(manifest.snapshot, found.assets()))
        yield


def _bound_to(
    path: str | os.PathLike[str], found: SnapshotRecords, takedowns: tuple[Takedown, ...]
) -> tuple[Takedown, ...]:
    """The takedowns, their ids looked up in a snapshot that is about to be published."""
    published = _published_manifest(path)
    before = None if published is None else SnapshotRecords.open(path, published)
    if before is not None:
        takedowns = before.bind(takedowns)
    require_known(path, found, before, takedowns)
    # Whole files are extended before other ids are bound: what is bound now is complete already.
    takedowns, grown = found.grow(takedowns)
    takedowns = found.bind(takedowns, next_build=True)
    require_found(path, found, before, takedowns)
    for file, count in grown.items():
        _log.warning("the file %s is taken down as a whole and has %d new records: they are hidden too.", file, count)
    for takedown in takedowns:
        if takedown.undone is None and takedown.gone is None and takedown.pending:
            _log.warning(
                "takedown %d: %d ids have matched nothing yet, such as %s.",
                takedown.number,
                len(takedown.pending),
                takedown.pending[0],
            )
    return takedowns


def learned_line(snapshot: str, assets: Sequence[str]) -> str:
    """Which assets of a snapshot were learned over records that are taken down, and what to do."""
    return (
        f"snapshot {snapshot}: {', '.join(assets)} {'was' if len(assets) == 1 else 'were'} learned from data that "
        "include removed records. Remove the records from the input and build again to learn without them."
    )


def look_up_published(path: str | os.PathLike[str]) -> None:
    """Looks up the rows of the published snapshot for takedowns in force that lack them."""
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
    published = _published(path)
    # The published snapshot first: an id means what is there now, whatever was there before.
    manifests = sorted(published_manifests(path), key=lambda manifest: manifest.snapshot != published)
    snapshots = {manifest.snapshot: SnapshotRecords.open(path, manifest) for manifest in manifests}
    for found in snapshots.values():
        takedowns = takedowns if found is None else found.bind(takedowns)
    rows: dict[str, Mapping[str, Rows]] = {}
    learned: dict[str, tuple[str, ...]] = {}
    for snapshot, found in snapshots.items():
        if found is not None:
            rows[snapshot], hidden = found.rows(takedowns)
            if hidden and found.assets():
                learned[snapshot] = found.assets()
    changed = next((takedown for takedown in takedowns if takedown.number == number), None)
    ids = changed.ids if changed is not None else ()
    matched = equal = 0
    unmatched = ids
    current = snapshots.get(published) if published is not None else None
    if current is not None and changed is not None:
        if not changed.next_build:
            selected, missing = current.lineage.select(ids)
            matched, unmatched = sum(map(len, selected.values())), tuple(missing)
            equal = current.count(changed) - matched if action == "takedown" else 0
    made = Overlay(revision=overlay.revision + 1, takedowns=takedowns, rows=rows)
    in_force = bool(made.in_force)
    report = TakedownReport(
        action=action,
        number=number,
        revision=made.revision,
        at=_now(),
        by=changed.by if changed is not None and by is None and action == "takedown" else _who(by),
        reason=changed.reason if changed is not None else "",
        ids=ids,
        matched_records=matched,
        equal_records=max(0, equal),
        unmatched=unmatched,
        removed_rows={
            snapshot: {split: len(found) for split, found in splits.items() if len(found)}
            for snapshot, splits in rows.items()
        },
        unresolved=tuple(each for each, found in snapshots.items() if found is None and in_force),
        by_position=tuple(
            each
            for each, found in snapshots.items()
            if in_force and found is not None and not found.lineage.has_digests
        ),
        learned=learned,
    )
    _append_audit(path, report.to_json())  # before it applies: every takedown in force is in the audit
    _write(path, made)
    if made.in_force:
        for snapshot in storage_for(path).list(os.path.join(path, SNAPSHOTS)):  # pages show examples
            with writing(path):
                storage_for(path).delete(os.path.join(snapshot_directory(path, snapshot), REPORT))
    return report


def _published(path: str | os.PathLike[str]) -> str | None:
    manifest = _published_manifest(path)
    return None if manifest is None else manifest.snapshot


def _published_manifest(path: str | os.PathLike[str]) -> Manifest | None:
    storage, file = storage_for(path), os.path.join(path, MANIFEST)
    return Manifest.from_bytes(storage.read_bytes(file), path=file) if storage.exists(file) else None


def published_manifests(path: str | os.PathLike[str]) -> Iterator[Manifest]:
    """The manifests of all published snapshots, current or not."""
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
            except FileNotFoundError:  # a build that starts removes temporary files, ours among them
                if attempt == _ATTEMPTS - 1:
                    raise


def _append_audit(path: str | os.PathLike[str], line: Mapping[str, object]) -> None:
    data = json.dumps(line, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    storage, file = storage_for(path), os.path.join(path, AUDIT)
    if storage.local_path(file) is None:  # objects cannot be appended to
        storage.replace(file, (storage.read_bytes(file) if storage.exists(file) else b"") + data)
        return
    with writing(path), open(file, "ab+", buffering=0) as audit:
        audit.seek(0)
        audit.truncate(audit.read().rfind(b"\n") + 1)  # removes a line that was not written to its end
        write_all(audit.fileno(), data)
        os.fsync(audit.fileno())
        sync_directory(os.fspath(path))


@contextlib.contextmanager
def _changing(path: str | os.PathLike[str]) -> Iterator[Overlay]:
    """The current takedowns of an `existing_directory`, locked against changes by others."""
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


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _who(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return f"uid {os.getuid()}"
