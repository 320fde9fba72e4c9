"""How far a build is, how fast it runs and when it last showed a sign of life, from the files of its snapshot alone.

`every`: watches what runs in this process, from a thread.

The state of a cache directory from its files alone: published, being built, left unfinished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from beam_pipes.building.completion import Completion, completions_at, split_directory
from beam_pipes.building.declaration_fingerprint import FILE_NAME as FINGERPRINT
from beam_pipes.building.leftovers import LAUNCHES, lock_holder, unfinished_uses, with_launches
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.account import Account
from beam_pipes.errors import CacheNotFoundError
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import existing_directory, storage_for
from beam_pipes.storage.protocol import FileStatus

# A watching thread may be writing to a standard error that nobody reads.
_JOIN_SECS = 5.0


@contextlib.contextmanager
def every(secs: float, look: Callable[[], None], *, name: str) -> Iterator[None]:
    """Calls `look` every `secs` from a thread during the block."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(secs):
            look()

    thread = threading.Thread(target=watch, name=f"beam_pipes-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_SECS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """The newest build of a snapshot, running or not.

    `account` covers the source shards that are done. `started_at` and `last_sign_at` are seconds since 1970: when the
    build last started or resumed, and when it last wrote something. `records_per_sec` covers what it has built since it
    started, without reused shards; None before its first one. `eta_secs` is the time for the rest at that rate; None if
    no rate is known, and for a build that does not run.
    """

    snapshot: str
    running: bool
    shards_done: int
    shards: int
    account: Account
    started_at: float
    last_sign_at: float
    records_per_sec: float | None
    eta_secs: float | None

    def to_json(self) -> dict[str, object]:
        """All of it; stages without their statistics."""
        value = dataclasses.asdict(dataclasses.replace(self, account=Account()))
        units = {
            name: {
                "in": unit.inputs,
                "kept": unit.kept,
                "out": unit.outputs,
                "dropped": unit.dropped,
                "dead": unit.dead,
            }
            for name, unit in self.account.units.items()
        }
        counts = {name: getattr(self.account, name) for name in ("read", "written", "dropped", "dead")}
        return {**value, "account": counts, "stages": units}

    def __str__(self) -> str:
        lines = []
        account = self.account
        counts = f"{account.read:,} records read, {account.dropped:,} dropped, {account.dead:,} dead"
        rate = "" if self.records_per_sec is None else f", {self.records_per_sec:,.0f} records/s"
        eta = "" if self.eta_secs is None else f", about {in_words(self.eta_secs)} left"
        lines.append(f"in finished shards: {counts}{rate}{eta}.")
        lines.append(f"last sign of life: {in_words(max(0.0, time.time() - self.last_sign_at))} ago.")
        return "\n".join(lines)


def read_progress(directory: str, *, snapshot: str, num_shards: int, running: bool) -> BuildProgress:
    """The progress of the build in the directory of an unpublished snapshot: one listing, and its completions."""
    storage = storage_for(directory)
    files = storage.tree(directory)
    names = sorted(name for name in files if name.startswith("completions/") and name.endswith(".json"))
    times = [status.modified_ns for status in files.values()]
    last_sign = max(times, default=time.time_ns()) / 1e9
    started_ns = files[FINGERPRINT].modified_ns if FINGERPRINT in files else min(times, default=time.time_ns())
    account, done, built, records = Account(), 0, 0, 0
    for name, completion in zip(names, completions_at(storage, [f"{directory}/{name}" for name in names]), strict=True):
        if completion is not None:
            done += 1
            account.merge_from(completion.account)
            if _is_newer(completion, name, files, started_ns):
                built += 1
                records += completion.account.read
    secs = (time.time() if running else last_sign) - started_ns / 1e9
    rate = records / secs if built and secs > 0 else None
    left = num_shards - done
    return BuildProgress(
        snapshot=snapshot,
        running=running,
        shards_done=done,
        shards=num_shards,
        account=account,
        started_at=started_ns / 1e9,
        last_sign_at=last_sign,
        records_per_sec=rate,
        eta_secs=left * secs / built if running and rate is not None else None,
    )


def _is_newer(completion: Completion, name: str, files: Mapping[str, FileStatus], started_ns: int) -> bool:
    """Whether a source shard was built after `started_ns`: the files of a reused one are links to older files."""
    if files[name].modified_ns < started_ns:
        return False
    written = [f"{split_directory('.', split)}/{entry.file}"[2:] for split, entry in completion.all_entries()]
    return all(files[file].modified_ns >= started_ns for file in written if file in files)


def finished_words(build_info: JsonObject, records: int) -> list[str]:
    """What `build.json` says about a published build: how long it took, and its stages by time."""
    lines = []
    started, ended = build_info.get("started_at"), build_info.get("ended_at")
    if isinstance(started, int | float) and isinstance(ended, int | float):
        secs, reused = max(0.0, ended - started), build_info.get("reused_shards", 0)
        rate = f" ({records / secs:,.0f} records/s)" if secs and not reused else ""
        lines.append(f"built in {in_words(secs)}{rate}, {reused} source shards reused.")
    stages: dict[str, float] = {}
    for shard in build_info.get("shards", ()):
        for name, secs in shard.get("stage_secs", {}).items():
            stages[name] = stages.get(name, 0.0) + secs
    if stages:
        slowest = sorted(stages.items(), key=lambda item: -item[1])
        lines.append("time by stage: " + ", ".join(f"{name} {in_words(secs)}" for name, secs in slowest) + ".")
    return lines


def in_words(secs: float) -> str:
    """`in_words(3.21)` → "3.2 s", `in_words(200)` → "3 min 20 s", `in_words(7300)` → "2 h 1 min"."""
    if secs < 60:
        return f"{secs:.1f} s"
    minutes, rest = divmod(round(secs), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 48 * 60 else f"{minutes // 1440} days"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """`published`: the current snapshot, or None. `unfinished`: snapshot → (shards done, shards), newest build last.

    `builder` names the process that holds the build lock, or is None if nobody builds. `progress` is of the
    unfinished snapshot that was written to last, None if there is none. `last_build`: how the published snapshot
    was built, in words. `analysis` is (accumulators done, accumulators) of an unfinished analysis. `jobs` counts the
    jobs on record whose end nobody has seen; the files do not say whether they run.
    """

    path: str
    published: str | None
    records: dict[str, int]
    unfinished: dict[str, tuple[int, int]]
    builder: str | None
    progress: BuildProgress | None = None
    last_build: tuple[str, ...] = ()
    analysis: tuple[int, int] | None = None
    jobs: int = 0

    def to_json(self) -> dict[str, object]:
        value = dataclasses.asdict(dataclasses.replace(self, progress=None))
        return {**value, "progress": None if self.progress is None else self.progress.to_json()}

    def __str__(self) -> str:
        if self.published is None:
            lines = [f"{self.path}: nothing is published."]
        else:
            records = ", ".join(f"{split} {count:,}" for split, count in self.records.items())
            lines = [f"{self.path}: snapshot {self.published} is published ({records} records)."]
            lines += self.last_build
        for snapshot, (done, shards) in self.unfinished.items():
            progress = self.progress if self.progress is not None and self.progress.snapshot == snapshot else None
            if progress is not None:
                done, shards = progress.shards_done, progress.shards  # newer, and the numbers of `str(progress)`
            lines.append(f"snapshot {snapshot}: {done} of {shards} source shards are done.")
            if progress is not None:
                lines.append(str(progress))
        if self.analysis is not None:
            done, wanted = self.analysis
            lines.append(f"analysis: {done} of {wanted} accumulators are done.")
        if self.builder is not None:
            lines.append(f"being built by {self.builder}.")
        elif self.jobs:
            lines.append(f"jobs on record: {self.jobs}; `beam-pipes jobs {self.path}` tells whether they run.")
        elif self.unfinished or self.analysis is not None:
            lines.append("no build is running: run the build again to continue from the finished shards.")
        return "\n".join(lines)


def read_status(path: str | os.PathLike[str]) -> Status:
    """The status of a cache directory. Raises `CacheNotFoundError` if there is no directory."""
    root = existing_directory(path)
    storage = storage_for(root)
    last_build: tuple[str, ...] = ()
    try:
        cache = Cache.open(root)
        manifest = cache.manifest
        total = sum(split.num_records for split in manifest.splits.values())
        last_build = tuple(finished_words(cache.build_info, total))
    except CacheNotFoundError:
        manifest = None
    unfinished: dict[str, tuple[int, int]] = {}
    for snapshot in storage.list(f"{root}/snapshots"):
        directory = f"{root}/snapshots/{snapshot}"
        names = storage.list(f"{directory}/completions")
        if names and not storage.exists(f"{directory}/manifest.json"):
            unfinished[snapshot] = (len(names), int(names[0].removesuffix(".json").rpartition("-of-")[2]))
    builder = lock_holder(root)
    uses = unfinished_uses(root)
    newest = max(unfinished, key=lambda snapshot: storage.modified_ns(f"{root}/snapshots/{snapshot}"), default=None)
    progress = None
    if newest is not None:
        progress = read_progress(
            f"{root}/snapshots/{newest}",
            snapshot=newest,
            num_shards=unfinished[newest][1],
            running=builder is not None,
        )
    return Status(
        path=str(path),
        published=None if manifest is None else manifest.snapshot,
        records={} if manifest is None else {name: split.num_records for name, split in manifest.splits.items()},
        unfinished=unfinished,
        builder=builder,
        progress=progress,
        last_build=last_build,
        analysis=None if uses is None else uses.count_accumulators(root),
        jobs=sum(len(storage.list(f"{directory}/{LAUNCHES}")) for directory in with_launches(root)),
    )
