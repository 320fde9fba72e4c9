"""The directory of a cache as its builder keeps it: the lock, what is left over, errors of writing.

One builder at a time writes to it; a second one gets an error that names the first. Only the holder of the lock removes
half-written files of builds that died, and snapshots that are no longer needed, so nothing is taken from a build that
is alive. A job on a remote runner holds no lock: directories that it may write to have a record of it (`LAUNCHES`), and
are left alone. Snapshots that are read are kept too: readers hold a lock on a file system, and leases everywhere.

Accumulators and results of analyzers are used by snapshots (`snapshots/<id>/analysis.json`), and by an analysis that
runs or was killed (`analysis/unfinished.json`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_pipes.building.analysis.stored import (
    ACCUMULATORS,
    DIRECTORY,
    RECORD,
    RESULTS,
    accumulator_place,
    discard,
    result_place,
)
from beam_pipes.building.declaration_fingerprint import ANSWERS, read_fingerprint
from beam_pipes.cache.reader import Cache
from beam_pipes.checks import integer
from beam_pipes.errors import BeamPipesError, CacheNotFoundError, CacheWriteError
from beam_pipes.publication.manifest import FILE_NAME
from beam_pipes.publication.publish import SNAPSHOTS, remember_removal, remember_shards, snapshot_directory
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.leases import LEASES, leased
from beam_pipes.storage.local import FULL, existing_directory, storage_for
from beam_pipes.storage.locks import BUILD_LOCK, is_held, this_process
from beam_pipes.storage.protocol import HeldLock, Storage

if TYPE_CHECKING:
    from beam_pipes.building.analysis.plan import AnalysisPlan

_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_NOT_A_DIRECTORY = {errno.ENOTDIR, errno.EEXIST}


@contextlib.contextmanager
def writing(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Wraps steps that write to a cache directory: an `OSError` becomes a `CacheWriteError`, our own errors pass."""
    try:
        yield
    except BeamPipesError:
        raise
    except OSError as error:
        raise cache_write_error(directory, error) from error


def cache_write_error(directory: str | os.PathLike[str], error: OSError) -> CacheWriteError:
    """The error that names the path, the reason and what to do about it."""
    # Not `error.filename`, which is often the temporary name of a file that means nothing to users.
    path = os.fspath(directory)
    reason = error.strerror or str(error)
    if error.errno in FULL:
        what = "there is no room left" if error.errno != errno.EFBIG else "a file may not become larger"
        advice = "Free or allow more space, or build to another directory"
    elif error.errno in _FORBIDDEN:
        what, advice = "writing there is not allowed", "Make it writable, or build to another directory"
    elif error.errno in _NOT_A_DIRECTORY:
        what, advice = "a part of that path is a file", "Remove the file, or build to another directory"
    else:
        what, advice = "writing there failed", "Repair the file system, or build to another directory"
    return CacheWriteError(
        f"the cache {path!r} cannot be written: {what} ({reason}). {advice}, and run the build again: finished shards "
        "are kept, and the published snapshot is untouched.",
        path=path,
        errno=error.errno,
    )


#: Old snapshots that a build keeps besides the published one: a training run that started two builds ago continues.
DEFAULT_KEEP = 2


@contextlib.contextmanager
def build_lock(directory: str | os.PathLike[str]) -> Iterator[HeldLock]:
    """Holds the build lock of a cache directory.

    On a file system the kernel releases it when the process dies, however it dies; on an object store it is a lease
    that is renewed, and ends a minute after its holder (at once, for a builder on the same machine).

    Raises `CacheBusyError`, naming the process that holds it.
    """
    path = os.fspath(directory)
    with contextlib.ExitStack() as stack:
        with writing(path):
            held = stack.enter_context(storage_for(path).lock(f"{path.rstrip('/')}/{BUILD_LOCK}", path))
        yield held


def lock_holder(directory: str | os.PathLike[str]) -> str | None:
    """Who holds the build lock of a directory, in words; None if nobody does."""
    path = os.fspath(directory)
    return storage_for(path).lock_holder(f"{path.rstrip('/')}/{BUILD_LOCK}")


# Beside the snapshot's manifest and outside of it, as the parts of its fingerprint are.
USES_FILE = "analysis.json"
UNFINISHED = "unfinished.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uses:
    """`analyzers` maps each to the digest and the parts of its fingerprint, `shards` has those of source shards."""

    analyzers: Mapping[str, tuple[str, Mapping[str, str]]]
    shards: tuple[str, ...]

    def to_bytes(self) -> bytes:
        analyzers = {name: {"digest": digest, "parts": dict(parts)} for name, (digest, parts) in self.analyzers.items()}
        return json.dumps({"analyzers": analyzers, "shards": self.shards}, indent=1).encode()

    @classmethod
    def of(cls, plan: AnalysisPlan) -> Uses:
        analyzers = {
            planned.analyzer.name: (planned.fingerprint.digest, planned.fingerprint.parts) for planned in plan.analyzers
        }
        return cls(analyzers=analyzers, shards=tuple(shard.fingerprint() for shard in plan.source.shards))

    def places(self, root: str) -> set[str]:
        """The places of everything in use."""
        found = set()
        for digest, _ in self.analyzers.values():
            found.add(result_place(root, digest, self.shards))
            found.update(accumulator_place(root, digest, name) for name in self.shards)
        return found

    def count_accumulators(self, root: str) -> tuple[int, int]:
        """How many accumulators exist, out of how many."""
        storage, there = storage_for(root), 0
        for digest, _ in self.analyzers.values():
            files = storage.tree(accumulator_place(root, digest, "").rstrip("/"))
            wanted = {f"{accumulator_place('', '', name).rpartition('/')[2]}/{RECORD}" for name in self.shards}
            there += len(wanted & files.keys())
        return there, len(self.analyzers) * len(self.shards)


def mark_unfinished(plan: AnalysisPlan) -> None:
    """Notes what an analysis is about to make, for those who look at the directory."""
    directory = f"{plan.root}/{DIRECTORY}"
    storage_for(directory).makedirs(directory)
    storage_for(directory).replace(f"{directory}/{UNFINISHED}", Uses.of(plan).to_bytes())


def mark_used(storage: Storage, plan: AnalysisPlan, snapshot: str) -> None:
    """Notes in a snapshot's directory what it was built with; from then on the analysis is finished."""
    storage.replace(f"{snapshot}/{USES_FILE}", Uses.of(plan).to_bytes())
    mark_finished(storage, plan.root)


def mark_finished(storage: Storage, root: str) -> None:
    """Undoes `mark_unfinished`."""
    storage.delete(f"{root}/{DIRECTORY}/{UNFINISHED}")


def uses_of(snapshot: str) -> Uses | None:
    """What the snapshot in a directory was built with; None if it has no analyzers."""
    return _read(f"{snapshot}/{USES_FILE}")


def unfinished_uses(root: str) -> Uses | None:
    """What an unfinished analysis below a cache's directory was going to make; None if there is none."""
    return _read(f"{root}/{DIRECTORY}/{UNFINISHED}")


def unused_places(root: str, uses: Iterable[Uses]) -> list[str]:
    """The accumulators and results below a cache's directory that are not among these."""
    used: set[str] = set()
    for each in uses:
        used |= each.places(root)
    storage, directory = storage_for(root), f"{root}/{DIRECTORY}"
    found = [f"{directory}/{RESULTS}/{name}" for name in storage.list(f"{directory}/{RESULTS}")]
    for digest in storage.list(f"{directory}/{ACCUMULATORS}"):
        above = f"{directory}/{ACCUMULATORS}/{digest}"
        found += [f"{above}/{name}" for name in storage.list(above)]
    return [place for place in found if place not in used]


def _read(path: str) -> Uses | None:
    try:
        value: JsonObject = json.loads(storage_for(path).read_bytes(path))
        analyzers = {name: (each["digest"], each["parts"]) for name, each in value["analyzers"].items()}
        return Uses(analyzers=analyzers, shards=tuple(value["shards"]))
    except (CacheNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


# accumulators/<analyzer>/<source shard>/content, and the directories that an analyzer may have made in it.
_DEEPEST_CONTENT = 8


# Below the directory of a snapshot, or of analyses: a record for each job that was launched for it and whose end nobody
# has seen.
LAUNCHES = "launches"


def has_launches(storage: Storage, directory: str) -> bool:
    """Whether a job may still write below a directory: one is on record, alive or not."""
    return bool(storage.list(f"{directory}/{LAUNCHES}"))


def with_launches(root: str) -> list[str]:
    """The directories below a cache's that a job on record may write to: those of snapshots, and of analyses."""
    storage = storage_for(root)
    snapshots = [snapshot_directory(root, name) for name in storage.list(f"{root}/{SNAPSHOTS}")]
    return [each for each in (f"{root}/{DIRECTORY}", *snapshots) if has_launches(storage, each)]


#: File in a snapshot's directory: until when a `WriteToCache` on several machines writes there, unless renewed.
WRITER = "writer.json"
WRITER_SECS = 24 * 3600


def say_writing(directory: str) -> None:
    """Protects a snapshot's directory, with its half-written files, for a day from now."""
    until = {"until": int(time.time()) + WRITER_SECS, **this_process()}
    storage_for(directory).replace(f"{directory}/{WRITER}", json.dumps(until).encode())


def say_written(directory: str) -> None:
    """Undoes `say_writing`."""
    storage_for(directory).delete(f"{directory}/{WRITER}")


def _is_written_to(storage: Storage, directory: str) -> bool:
    """Whether a process may still write to a snapshot's directory."""
    if has_launches(storage, directory):
        return True
    try:
        return float(json.loads(storage.read_bytes(f"{directory}/{WRITER}"))["until"]) > time.time()
    except (CacheNotFoundError, ValueError, KeyError, TypeError):
        return False


def _held_by(storage: Storage, directory: str, leases: Sequence[str]) -> tuple[str, ...]:
    """Who writes to a snapshot's directory, or reads it, in words."""
    if _is_written_to(storage, directory):
        return ("what may still write there (beam-pipes jobs)",)
    if leases:
        return tuple(leases)
    return ("a reader on this machine",) if is_held(f"{directory}/{FILE_NAME}") else ()


def _unused_answers(storage: Storage, root: str, snapshots: Iterable[str]) -> list[str]:
    """The directories of answers to stages that none of these snapshots, finished or not, was built with."""
    found = storage.list(f"{root}/{ANSWERS}")
    parts = [read_fingerprint(snapshot_directory(root, name)) for name in snapshots] if found else []
    used = {stage.digest for each in parts if each is not None for stage in each.stages.values()}
    return [f"{root}/{ANSWERS}/{name}" for name in found if name not in used]


def remove_temporaries(storage: Storage, root: str) -> None:
    """Removes every temporary file, and half-removed snapshot, of a cache directory; for the holder of its lock.

    Directories that a job on record may be writing to keep theirs.
    """
    storage.sweep(root, depth=1)
    storage.sweep(f"{root}/{SNAPSHOTS}", depth=1)
    storage.sweep(f"{root}/{LEASES}", depth=1)
    storage.sweep(f"{root}/{ANSWERS}", depth=3)
    for directory in (snapshot_directory(root, name) for name in storage.list(f"{root}/{SNAPSHOTS}")):
        if not _is_written_to(storage, directory):
            storage.sweep(directory, depth=2)  # its files, and those in its directories
    if not has_launches(storage, f"{root}/{DIRECTORY}"):
        storage.sweep(f"{root}/{DIRECTORY}", depth=_DEEPEST_CONTENT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected:
    """What `collect` removed (or would remove) and kept: ids of snapshots, and the bytes that this frees.

    A shard that a kept snapshot shares (a hard link) frees nothing and is not counted. `unused` counts the accumulators
    and results of analyzers that no kept snapshot was built with. `held` says of each snapshot that would have been
    removed otherwise who reads it, or writes to it: `{"1f0c…": ("process 4711 on trainer-3, since …, until …",)}`.
    """

    published: str | None
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    bytes: int
    unused: int = 0
    held: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def held_in_words(self) -> list[str]:
        """A line for each snapshot that is kept only because it is in use."""
        return [
            f"snapshot {snapshot}: kept for {', and '.join(whose[:3])}"
            + (f", and {len(whose) - 3} more" if len(whose) > 3 else "")
            for snapshot, whose in self.held.items()
        ]


def collect(
    path: str | os.PathLike[str], *, keep: int = 1, dry_run: bool = False, ignore_leases: bool = False
) -> Collected:
    """Removes the snapshots of a cache directory except the published one and the `keep` most recent others.

    Unfinished snapshots count among the others: the work of an interrupted build is kept while it is recent enough.
    What a job on record or a `WriteToCache` may still write to is kept as well, whatever `keep` says (`beam-pipes
    jobs`), and so is what a reader has open: on this machine as long as it lives, elsewhere for the time of its lease,
    an hour after it last renewed it (`BEAM_PIPES_READER_LEASE_SECS`). With `ignore_leases` readers lose it: what they
    have mapped stays readable, and for other files they raise an error that names this process. Files of analyzers are
    kept for the snapshots that are kept, and for an unfinished analysis, unless `keep` is 0.

    Raises `CacheNotFoundError` if there is no directory, `CacheBusyError` while a build is writing there.
    """
    root = existing_directory(path)
    with build_lock(root):
        if not dry_run:
            remove_temporaries(storage_for(root), root)
        return collect_while_locked(root, keep=keep, dry_run=dry_run, ignore_leases=ignore_leases)


def collect_while_locked(root: str, *, keep: int, dry_run: bool = False, ignore_leases: bool = False) -> Collected:
    """`collect`, for the holder of the build lock."""
    integer(keep, what="keep", least=0)
    storage = storage_for(root)
    published = None
    with contextlib.suppress(CacheNotFoundError):
        published = Cache.open(root).manifest.snapshot
    names = [name for name in storage.list(f"{root}/{SNAPSHOTS}") if name != published]
    written = {name: storage.modified_ns(snapshot_directory(root, name)) for name in names}
    names.sort(key=lambda name: (written[name], name), reverse=True)
    held: dict[str, tuple[str, ...]] = {}
    if names[keep:]:
        leases = leased(storage, root, besides=[published or "", *names[:keep]], clean=not dry_run)
        for name in names[keep:]:
            directory = snapshot_directory(root, name)
            if whose := _held_by(storage, directory, leases.get(name, ())):
                if not ignore_leases or _is_written_to(storage, directory):
                    held[name] = whose
    names = [*names[:keep], *held, *(name for name in names[keep:] if name not in held)]
    keep += len(held)
    removed = names[keep:]
    freed = sum(_freed_bytes(storage, snapshot_directory(root, name)) for name in removed)
    kept = [name for name in (published, *names[:keep]) if name is not None]
    uses = [uses_of(snapshot_directory(root, name)) for name in kept] + [unfinished_uses(root) if keep else None]
    unused = unused_places(root, [each for each in uses if isinstance(each, Uses)])
    answers = _unused_answers(storage, root, kept)
    freed += sum(_freed_bytes(storage, place) for place in [*unused, *answers])
    if not dry_run:
        for name in removed:
            remember_shards(root, name)
            remember_removal(root, name, published)
            remove_snapshot(storage, root, name)
        for place in unused:
            discard(storage, place)
        for place in answers:
            storage.delete_tree(place)
    return Collected(
        published=published,
        kept=tuple(names[:keep]),
        removed=tuple(removed),
        bytes=freed,
        unused=len(unused),
        held=held,
    )


def remove_snapshot(storage: Storage, root: str, snapshot: str) -> None:
    """Removes a snapshot that nobody knows of; for the holder of the build lock."""
    with contextlib.suppress(FileNotFoundError):
        # Where this takes several steps, its manifest goes first: without one, a snapshot is not published.
        storage.delete_tree(snapshot_directory(root, snapshot), first=[FILE_NAME])


def _freed_bytes(storage: Storage, directory: str) -> int:
    return sum(file.size for file in storage.tree(directory).values() if not file.shared)
