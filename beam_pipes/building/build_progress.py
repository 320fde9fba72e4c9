"""How far a build is, how fast it goes and when it last gave a sign of life: from the files of its snapshot alone."""

from __future__ import annotations

import dataclasses
import html
import time
from collections.abc import Mapping
from typing import Any

from beam_pipes.building.completion import Completion, merged_account, read_completion, split_directory
from beam_pipes.building.declaration_fingerprint import FILE_NAME as FINGERPRINT
from beam_pipes.cache.in_parallel import in_parallel
from beam_pipes.cache.storage import FileStatus, storage_for
from beam_pipes.engine.account import Account


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """The newest build of a snapshot, running or not.

    `account` is of the source shards that are done. `started_at` and `last_sign_at` are seconds since 1970: when the
    build last began or was taken up, and when it last wrote something. `records_per_sec`: of what it has built since it
    began, without shards it took over; None before its first. `eta_secs`: what is left at that rate, None where no rate
    is known, and for a build that does not run.
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

    def to_json(self) -> dict[str, Any]:
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

    def _repr_html_(self) -> str:
        """What a notebook shows: a bar, the words of `str`, and a table of the stages."""
        rows = "".join(
            f"<tr><th scope='row'>{html.escape(name)}</th><td>{unit.inputs:,}</td><td>{unit.kept:,}</td>"
            f"<td>{unit.outputs:,}</td><td>{sum(unit.dropped.values()):,}</td><td>{unit.dead:,}</td></tr>"
            for name, unit in self.account.units.items()
        )
        columns = "".join(f"<th scope='col'>{name}</th>" for name in ("stage", "in", "kept", "out", "dropped", "dead"))
        words = html.escape(f"{self.shards_done} of {self.shards} source shards\n{self}").replace("\n", "<br>")
        return (
            f"<div><progress max='{self.shards}' value='{self.shards_done}'></progress><p>{words}</p>"
            f"<table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def __str__(self) -> str:
        lines = []
        account = self.account
        counts = f"{account.read:,} records read, {account.dropped:,} dropped, {account.dead:,} dead"
        rate = "" if self.records_per_sec is None else f", {self.records_per_sec:,.0f} records/s"
        eta = "" if self.eta_secs is None else f", about {in_words(self.eta_secs)} left"
        lines.append(f"in the shards that are done: {counts}{rate}{eta}.")
        lines.append(f"last sign of life: {in_words(max(0.0, time.time() - self.last_sign_at))} ago.")
        return "\n".join(lines)


def read_progress(directory: str, *, snapshot: str, num_shards: int, running: bool) -> BuildProgress:
    """The progress of the build in the directory of an unpublished snapshot: one listing, and its completions."""
    storage = storage_for(directory)
    files = storage.tree(directory)
    names = sorted(name for name in files if name.startswith("completions/") and name.endswith(".json"))
    found = in_parallel(storage, read_completion, [f"{directory}/{name}" for name in names])
    done = [(name, completion) for name, completion in zip(names, found, strict=True) if completion is not None]
    times = [status.modified_ns for status in files.values()]
    last_sign = max(times, default=time.time_ns()) / 1e9
    started_ns = files[FINGERPRINT].modified_ns if FINGERPRINT in files else min(times, default=time.time_ns())
    built = [completion for name, completion in done if _is_newer(completion, name, files, started_ns)]
    records = sum(completion.account.read for completion in built)
    secs = (time.time() if running else last_sign) - started_ns / 1e9
    rate = records / secs if built and secs > 0 else None
    left = num_shards - len(done)
    return BuildProgress(
        snapshot=snapshot,
        running=running,
        shards_done=len(done),
        shards=num_shards,
        account=merged_account(completion for _, completion in done),
        started_at=started_ns / 1e9,
        last_sign_at=last_sign,
        records_per_sec=rate,
        eta_secs=left * secs / len(built) if running and rate is not None else None,
    )


def _is_newer(completion: Completion, name: str, files: Mapping[str, FileStatus], started_ns: int) -> bool:
    """Whether a source shard was built after `started_ns`: taken over, its files are links to older ones."""
    if files[name].modified_ns < started_ns:
        return False
    written = [f"{split_directory('.', split)}/{entry.file}"[2:] for split, entry in completion.all_entries()]
    return all(files[file].modified_ns >= started_ns for file in written if file in files)


def finished_words(build_info: Mapping[str, Any], records: int) -> list[str]:
    """What `build.json` says of a build that was published: how long it took, and its stages by their time."""
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
