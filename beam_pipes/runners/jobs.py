"""Jobs on record: which jobs were launched for a cache on runners elsewhere, whether they still run, how they end.

A job publishes its own build, so it needs no launcher once its server has it. The launcher leaves a record in the
directory that the job writes to, `snapshots/<id>/launches/` (or `analysis/launches/`), and removes it when the job has
ended. A remaining record means one of these:

| the job | because | what follows |
| --- | --- | --- |
| lives | it was detached, or its launcher was killed | `attach` and the same build wait for it, `cancel` ends it |
| has ended | its launcher did not wait for it | `attach` does what its launcher would have done |
| is out of reach | nothing answers where it was launched | it may still run: silence proves nothing |
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping

from beam_pipes import errors
from beam_pipes.building.analysis.stored import DIRECTORY as ANALYSES
from beam_pipes.building.commit import write_build_record
from beam_pipes.building.completion import read_completion
from beam_pipes.building.leftovers import (
    LAUNCHES,
    build_lock,
    collect_while_locked,
    remove_snapshot,
    remove_temporaries,
    with_launches,
)
from beam_pipes.building.reading import ShardFigures
from beam_pipes.building.shard_task import DIRECTORY as TASKS
from beam_pipes.cache import Cache
from beam_pipes.errors import (
    BeamPipesError,
    BuildError,
    CacheBusyError,
    CacheNotFoundError,
    JobLostError,
)
from beam_pipes.lineage.lineage import LINEAGE
from beam_pipes.publication.publish import SNAPSHOTS, snapshot_directory
from beam_pipes.runners.options import BeamOptions, JobState, RemoteJob
from beam_pipes.runners.progress import Counts, Progress, Silent
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import directory_path, existing_directory, storage_for
from beam_pipes.storage.locks import in_words, is_dead
from beam_pipes.storage.protocol import in_parallel

# How often a job that runs elsewhere is checked: a listing of its completions, and its state.
LOOK_EVERY_SECS = 2.0

# Completions that are read per check: 1.6 s of 16 requests at a time to a store 50 ms away.
_READ_AT_ONCE = 512

# After this long without an answer, stop waiting for a job.
SILENT_SECS = 120.0

# How long a live launcher may take to publish after the end of its job.
_LAUNCHER_SECS = 120.0

_PLACES = ("job_endpoint", "flink_master", "project", "region")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """A job that was launched for the snapshot, or the analyses, in `directory`, and whose end was not recorded.

    `beam_args` are the options that it was submitted with, `launcher` the process that did so. `fingerprints` identify
    its work: the manifest's digests of declaration and input. `needs_launcher`: the launcher does its work, or runs its
    server. `keep` is used at its end: see `build`. `name` is the declaration's.
    """

    directory: str
    runner: str
    launcher: Mapping[str, object]
    needs_launcher: bool
    fingerprints: Mapping[str, str]
    num_shards: int
    started_at: float
    job: str = ""
    beam_args: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    declaration: str | None = None
    keep: int | None = None
    name: str = ""

    @property
    def path(self) -> str:
        """The file of the record."""
        return f"{self.directory}/{LAUNCHES}/{hashlib.sha256(self.job.encode()).hexdigest()[:16]}.json"

    @property
    def root(self) -> str:
        """The directory of the cache."""
        return self.directory.rpartition(f"/{ANALYSES if self.snapshot is None else SNAPSHOTS}")[0]

    @property
    def snapshot(self) -> str | None:
        """The snapshot that the job builds; None for an analysis."""
        above, _, name = self.directory.rpartition("/")
        return name if above.endswith(f"/{SNAPSHOTS}") else None

    @property
    def work(self) -> str:
        return "an analysis of this cache" if self.snapshot is None else f"snapshot {self.snapshot}"

    def write(self) -> None:
        fields = {name: value for name, value in dataclasses.asdict(self).items() if name != "directory"}
        storage = storage_for(self.directory)
        storage.makedirs(self.path.rpartition("/")[0])
        storage.replace(self.path, strict_json(fields, sort_keys=True).encode())

    def remove(self) -> None:
        with contextlib.suppress(BeamPipesError, OSError):
            storage_for(self.directory).delete(self.path)

    def remote(self) -> RemoteJob | None:
        """The job as a client; None for an unknown runner."""
        from beam_pipes.runners.clusters import KubernetesOptions, SlurmOptions
        from beam_pipes.runners.dataflow import DataflowOptions
        from beam_pipes.runners.flink import FlinkOptions
        from beam_pipes.runners.portable import PortableOptions
        from beam_pipes.runners.servers import PrismOptions

        known: list[type[BeamOptions]] = [PortableOptions, PrismOptions, FlinkOptions, DataflowOptions]
        known += [SlurmOptions, KubernetesOptions]
        kind = next((each for each in known if each.NAME == self.runner), BeamOptions)
        return kind.remote_job(self.job, self.beam_args)

    def state(self) -> JobState:
        """The current state of the job."""
        if self.needs_launcher and is_dead(self.launcher):
            return JobState(name="gone", words="its launcher ran its work or its server, and has ended")
        remote = self.remote()
        return JobState(name="unreachable", words="unknown runner") if remote is None else remote.state()

    def __str__(self) -> str:
        given = dict(arg.removeprefix("--").partition("=")[::2] for arg in self.beam_args)
        places = "".join(f", {name}={given[name]}" for name in _PLACES if name in given)
        return f"job {self.job} ({self.runner}{places})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandedOver:
    """A build that goes on without this process: its job, or the template that it was written as."""

    job: LaunchRecord | None = None
    template: str | None = None


def records_in(directory: str) -> list[LaunchRecord]:
    """The records of a snapshot, or of analyses, the oldest first; unreadable ones are skipped."""
    storage, found = storage_for(directory), list[LaunchRecord]()
    for name in storage.list(f"{directory}/{LAUNCHES}"):
        with contextlib.suppress(BeamPipesError, OSError, ValueError, TypeError):
            fields = json.loads(storage.read_bytes(f"{directory}/{LAUNCHES}/{name}"))
            lists = {key: tuple(fields[key]) for key in ("beam_args", "stages")}
            found.append(LaunchRecord(directory=directory, **{**fields, **lists}))
    return sorted(found, key=lambda record: record.started_at)


def all_records(root: str) -> list[LaunchRecord]:
    """All records of a cache's directory, the oldest first."""
    records = [record for directory in with_launches(root) for record in records_in(directory)]
    return sorted(records, key=lambda record: record.started_at)


def forget(directory: str, *names: str) -> None:
    """Removes the remaining records of jobs whose launchers were killed, once everything is done."""
    storage = storage_for(directory)
    for name in (LAUNCHES, *names):
        with contextlib.suppress(BeamPipesError, OSError):
            if storage.is_directory(f"{directory}/{name}"):
                storage.delete_tree(f"{directory}/{name}")


class Follower:
    """Counts the source shards whose completions appear in a snapshot's directory, and shows it."""

    def __init__(self, directory: str, counts: Counts, progress: Progress) -> None:
        self._directory = f"{directory}/completions"
        self._storage = storage_for(self._directory)
        self._counts = counts
        self._progress = progress
        self._read = functools.partial(read_completion, self._storage)
        self._seen: set[str] = set(self._storage.list(self._directory))

    def look(self) -> None:
        """Adds completions that appeared since the last call, as many as can be read in two seconds: the caller has to
        notice that the job has ended."""
        new = sorted(set(self._storage.list(self._directory)) - self._seen)[:_READ_AT_ONCE]
        paths = [f"{self._directory}/{name}" for name in new]
        for name, completion in zip(new, in_parallel(self._storage, self._read, paths), strict=True):
            if completion is not None:
                self._seen.add(name)
                self._counts.done_shards = min(self._counts.done_shards + 1, self._counts.num_shards)
                self._counts.add(ShardFigures.of(completion.account, {}))
        self._progress.update(self._counts)


def follow(record: LaunchRecord, look: Callable[[], None] = lambda: None) -> JobState:
    """Waits for the end of a job, or until nothing has answered for `SILENT_SECS`; calls `look` while it waits."""
    answered = time.monotonic()
    while True:
        state = record.state()
        look()
        if state.lives:
            answered = time.monotonic()
        if state.ended or time.monotonic() - answered > SILENT_SECS:
            return state
        time.sleep(LOOK_EVERY_SECS)


def error_of(record: LaunchRecord, state: JobState) -> BeamPipesError:
    """The error of a job that did not end well: our own error, if its server reports one."""
    remote = record.remote()
    messages = "" if remote is None or state.name != "failed" else remote.messages()
    ours = error_in_words(messages)
    if ours is not None:
        return ours
    if state.name == "cancelled":
        return BuildError(f"{record} was cancelled where it runs: nothing was published. {AGAIN}")
    words = {
        "failed": "failed",
        "gone": f"has ended, and its outcome is unknown ({state.words})",
        "unreachable": f"does not answer ({state.words}): it may still run",
    }.get(state.name, f"ended as {state.words}")
    last = last_words(messages) or state.words if state.name == "failed" else ""
    return lost(f"{record} {words}{f': {last}' if last else ''}")


# What to do after an end that is not the declaration's fault.
AGAIN = "Run the build again to continue from the finished shards."


def lost(what: str) -> JobLostError:
    """The error of a job that ended before its build; it names the option that submits another one."""
    again = f"{AGAIN} With --attempts 3 (attempts=3) it would have done so on its own."
    return JobLostError(f"{what}. Nothing was published. {again}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOnRecord:
    """A record, and the state of its job. `launcher_lives` is None if the launcher ran on another machine."""

    record: LaunchRecord
    state: JobState
    shards_done: int
    launcher_lives: bool | None

    def to_json(self) -> dict[str, object]:
        """All of it but the fingerprints."""
        record = self.record
        return {
            "job": record.job,
            "runner": record.runner,
            "snapshot": record.snapshot,
            "state": self.state.name,
            "words": self.state.words,
            "lives": self.state.lives,
            "shards_done": self.shards_done,
            "shards": record.num_shards,
            "declaration": record.declaration,
            "launcher": dict(record.launcher),
            "launcher_lives": self.launcher_lives,
            "started_at": record.started_at,
            "beam_args": list(record.beam_args),
        }

    def __str__(self) -> str:
        record, state = self.record, self.state
        how = f"{state.name} ({state.words})" if state.words.lower() != state.name else state.name
        done = f", {self.shards_done} of {record.num_shards} source shards are done" if record.snapshot else ""
        launcher = {True: ", which follows it", False: ", which is gone", None: ""}[self.launcher_lives]
        return f"{record}: {how}; {record.work}{done}; launched by {in_words(record.launcher)}{launcher}."


def read_jobs(path: str | os.PathLike[str]) -> list[JobOnRecord]:
    """The jobs on record in a cache's directory, with their current states; the oldest first.

        beam-pipes build jobs.errors:declaration --to gs://bucket/errors --runner flink … --detach
        read_jobs("gs://bucket/errors")
            → [JobOnRecord(state=JobState(name="running", words="RUNNING"), shards_done=12, …)]

    Raises `CacheNotFoundError` if there is no directory.
    """
    root = existing_directory(path)
    storage = storage_for(root)
    here = os.uname().nodename
    return [
        JobOnRecord(
            record=record,
            state=record.state(),
            shards_done=len(storage.list(f"{record.directory}/completions")),
            launcher_lives=not is_dead(record.launcher) if record.launcher.get("host") == here else None,
        )
        for record in all_records(root)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attached:
    """The outcome of `attach`. `snapshot` is published; `removed` are old ones that were not kept."""

    path: str
    jobs: tuple[str, ...]
    snapshot: str | None
    removed: tuple[str, ...] = ()


def attach(
    path: str | os.PathLike[str],
    *,
    progress_of: Callable[[], Progress] = Silent,
) -> Attached:
    """Waits for the jobs on record in a cache's directory, then does what their launchers would have done.

    Any process that can reach the directory and the job's server can wait for it; it does not need the declaration,
    since the job itself publishes. Ctrl-C leaves the jobs as they are.

    Raises the job's own error, `JobLostError` if it ended for another reason or nothing answers, and `BuildError` if
    no job is on record.
    """
    root = directory_path(path)
    records = [each.record for each in read_jobs(path)]
    if not records:
        raise BuildError(
            f"no job is on record in {str(path)!r}: nothing was detached there, or its end was already recorded. "
            f"`beam-pipes status {path}` tells what is published.",
            path=str(path),
        )
    removed: tuple[str, ...] = ()
    for record in records:
        state = _waited_for(record, progress_of())
        if state.name != "done" and not _is_published(record):
            if state.ended:
                record.remove()
            raise error_of(record, state)
        if record.snapshot is None:
            record.remove()  # its accumulators are there; merging them needs the declaration
        else:
            removed += _settled(record)
    with contextlib.suppress(CacheNotFoundError):
        published = Cache.open(root).manifest.snapshot
        return Attached(path=root, jobs=tuple(each.job for each in records), snapshot=published, removed=removed)
    return Attached(path=root, jobs=tuple(each.job for each in records), snapshot=None)


def _waited_for(record: LaunchRecord, progress: Progress) -> JobState:
    done = len(storage_for(record.directory).list(f"{record.directory}/completions"))
    counts = Counts(num_shards=record.num_shards, done_shards=min(done, record.num_shards), stages=record.stages)
    try:
        return follow(record, Follower(record.directory, counts, progress).look)
    finally:
        progress.close(counts)


def _is_published(record: LaunchRecord) -> bool:
    """Whether readers see what the job built: the snapshot, or its variant with records in quarantine."""
    with contextlib.suppress(CacheNotFoundError):
        found = dict(Cache.open(record.root).manifest.fingerprints)
        found.pop(LINEAGE, None)  # known only when everything is built
        return record.snapshot is not None and found == record.fingerprints
    return False


def _settled(record: LaunchRecord) -> tuple[str, ...]:
    """Does what follows the end of a job: writes the build record, removes old snapshots; returns the ids of removed
    ones.

    A live launcher does it itself, while it holds the lock.
    """
    deadline = time.monotonic() + _LAUNCHER_SECS
    while True:
        try:
            with build_lock(record.root):
                return settle(record)
        except CacheBusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_SECS)


def settle_published(root: str) -> None:
    """Settles the jobs that have published the current snapshot and that nobody waited for, under the build lock."""
    for record in records_in(snapshot_directory(root, Cache.open(root).manifest.snapshot)):
        settle(record)


def settle(record: LaunchRecord) -> tuple[str, ...]:
    """`attach` after the end of a job that has published; for the holder of the build lock."""
    storage = storage_for(record.root)
    if not storage.exists(record.path):
        return ()  # done by another process
    if not _is_published(record):
        raise BuildError(
            f"{record} is done, but {record.root} publishes another snapshot: something else was published later."
        )
    snapshot = Cache.open(record.root).manifest.snapshot
    write_build_record(
        storage,
        record.root,
        snapshot,
        {
            "options": {"runner": record.runner, "beam_args": list(record.beam_args)},
            "launcher": dict(record.launcher),
            "job": record.job,
            "started_at": record.started_at,
            "ended_at": _published_at(record.root, snapshot),
        },
    )
    forget(record.directory, TASKS)
    remove_temporaries(storage, record.root)
    if record.snapshot is not None and record.snapshot != snapshot:
        remove_snapshot(storage, record.root, record.snapshot)
    return () if record.keep is None else collect_while_locked(record.root, keep=record.keep).removed


def _published_at(root: str, snapshot: str) -> float:
    status = storage_for(root).tree(snapshot_directory(root, snapshot)).get("manifest.json")
    return time.time() if status is None else status.modified_ns / 1e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The outcome of cancelling a job. `error` says why it may still run; None if it has ended."""

    record: LaunchRecord
    state: JobState
    error: str | None


def cancel(path: str | os.PathLike[str]) -> list[Cancelled]:
    """Cancels the jobs on record in a cache's directory; removes the records of ended ones.

    Finished shards stay, and a later build continues from them. A job that cannot be cancelled raises nothing: its
        `error` says why.
    """
    ended = []
    for each in read_jobs(path):
        record, state, error = each.record, each.state, None
        if state.name == "unreachable":
            error = state.words
        elif state.lives:
            remote = record.remote()
            try:
                assert remote is not None
                remote.cancel()
                state = _wait_for_end(record)
                error = None if state.ended else f"it has not ended yet ({state.words})"
            except Exception as raised:  # whatever clients of its server raise
                error = f"{type(raised).__name__}: {(str(raised).strip().splitlines() or ['no message'])[-1]}"
        if state.ended and not (state.name == "done" and record.snapshot is not None):
            record.remove()  # a published one is left to `attach`
            if not records_in(record.directory):
                forget(record.directory, TASKS)
        ended.append(Cancelled(record=record, state=state, error=error))
    return ended


_CANCEL_SECS = 60.0


def _wait_for_end(record: LaunchRecord) -> JobState:
    deadline = time.monotonic() + _CANCEL_SECS
    while not (state := record.state()).ended and time.monotonic() < deadline:
        time.sleep(0.2)
    return state


def unlike(record: LaunchRecord, fingerprints: Mapping[str, str]) -> list[str]:
    """Why a build with these fingerprints does not wait for the job: the names of those that differ."""
    names = {*record.fingerprints, *fingerprints}
    return sorted(name for name in names if record.fingerprints.get(name) != fingerprints.get(name))


# Lines of Java's tracebacks that say where, not what.
_FRAME = re.compile(r"\s*(at [\w$./]+\(.*|\.\.\. \d+ more|\W*)")


def last_words(text: str) -> str:
    """The last line of a text, or of a Java traceback, that says what went wrong; empty if none does."""
    return next((line.strip() for line in reversed(text.splitlines()) if not _FRAME.fullmatch(line)), "")


def step_of(words: str) -> tuple[str, str] | None:
    """`"no x [while running 'Map']"` → `("Map", "no x")`; None for words that name no step of a pipeline."""
    found = _WHERE.search(words)
    return None if found is None else (found["label"], words[: found.start()])


# The last line of a traceback, as written by Python. Beam adds the PTransform to the message.
_RAISED = re.compile(r"^(?:[\w]+\.)*beam_pipes\.errors\.(?P<name>\w+): (?P<message>.*)$", re.MULTILINE)
_WHERE = re.compile(r"\s*\[while running '(?P<label>[^']*)'\]")
_END = re.compile(r"\n\s*\n|\nTraceback \(most recent call last\)|\n\s*\[while running|\nDuring handling|\nThe above")


def error_in_words(text: str) -> BeamPipesError | None:
    """Our last error in `text`, with its class and its message; None if there is none.

        'bundle failed: Traceback …\\nbeam_pipes.errors.StageError: stage 'Split' failed … [while running 'Split']'
            → StageError("stage 'Split' failed …")

    Attributes (`error.stage`) do not travel in a text: they are None.
    """
    found: BeamPipesError | None = None
    for raised in _RAISED.finditer(text):
        kind = getattr(errors, raised["name"], None)
        if isinstance(kind, type) and issubclass(kind, BeamPipesError):
            rest = text[raised.start("message") :]
            end = _END.search(rest)
            message = _WHERE.sub("", rest if end is None else rest[: end.start()])
            found = kind(message.strip())
    return found
