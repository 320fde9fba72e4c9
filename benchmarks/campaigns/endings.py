"""The endings campaign: `beam-pipes build` is ended from outside, and its own records end its workers.

A signal goes to the launcher, to all processes at once, to a worker or to the process that starts workers, at random
moments of the work. Each time the command must report what happened, no process may be left, readers must see the old
snapshot, and the same command must resume and produce the bytes of an undisturbed build.
"""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from beam_pipes.cache import Cache
from beam_pipes.identity.source_code import python_path
from benchmarks.campaigns.declarations import DEADLY, INPUT_VARIABLE, LINES, LOG_VARIABLE, REFERENCE, write_input
from benchmarks.campaigns.kills import Scene
from benchmarks.campaigns.session_members import members, processes_left

_LIMIT_SECS = 120.0
_GONE_SECS = 10.0
_WORKERS = 2
# What the command prints, whole or in part; a test compares these words with the files that print them.
_FINISHED = "The cache is in"  # beam_pipes/commands/build.py
_STOPPED = "Run the same command again to resume"  # beam_pipes/cli.py
_WORKERS_LOST = "are kept: run the build again"  # beam_pipes/building/workers/: tasks.py, fork_server.py
# Duration of each line, so that a build is long enough for random moments to hit its work.
_LINE_SECS = 0.002


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    """The signal, its recipients, and the expected message of the command; `code` None: it may also finish its
    build."""

    signal: signal.Signals
    to: str
    code: int | None
    words: str = ""

    def __str__(self) -> str:
        return f"{self.signal.name} to {self.to}"


ENDINGS = (
    Ending(signal=signal.SIGTERM, to="the launcher", code=143, words=_STOPPED),
    Ending(signal=signal.SIGINT, to="the launcher", code=130, words=_STOPPED),
    Ending(signal=signal.SIGTERM, to="all processes", code=143, words=_STOPPED),
    Ending(signal=signal.SIGKILL, to="the launcher", code=-signal.SIGKILL),
    Ending(signal=signal.SIGKILL, to="a worker", code=None, words=_WORKERS_LOST),
    Ending(signal=signal.SIGKILL, to="the starter of workers", code=None, words=_WORKERS_LOST),
)


@dataclasses.dataclass(kw_only=True)
class EndingCounts:
    """`ended` builds by kind of ending; `finished` of them were done before, or continued regardless."""

    ended: int = 0
    finished: int = 0
    by_ending: Counter[str] = dataclasses.field(default_factory=Counter)
    deadly_records: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


def endings_campaign(directory: Path, *, endings: int, seed: int = 0, files: int = 12) -> EndingCounts:
    """`endings` builds that are ended, each kind in turn, and one build of records that end their workers."""
    rng = random.Random(seed)
    counts = EndingCounts()
    for number in range(endings):
        ending = ENDINGS[number % len(ENDINGS)]
        place = directory / f"ending-{number}"
        scene = Scene(place, files=files, changed=files // 2, old=number % 2 == 0, line_secs=_LINE_SECS)
        try:
            work_secs = scene.shards * LINES * _LINE_SECS / _WORKERS
            _end(scene, ending, place / "told", rng.uniform(0.0, work_secs * 0.9), counts)
        finally:
            scene.close()
    _deadly(directory / "deadly", counts)
    return counts


def _end(scene: Scene, ending: Ending, reported: Path, after_secs: float, counts: EndingCounts) -> None:
    """Builds until the workers exist and a moment longer, sends the signal, and checks everything."""
    with reported.open("wb") as output:
        process = _command(scene, output)
        deadline = time.monotonic() + _LIMIT_SECS
        while process.poll() is None and len(_workers(process.pid)) < _WORKERS and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(after_secs)
        for pid in _receivers(process.pid, ending.to):
            try:
                os.kill(pid, ending.signal)
            except ProcessLookupError:
                continue
        try:
            code = process.wait(_LIMIT_SECS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            counts.problems.append(f"{ending}: the command did not end within {_LIMIT_SECS:.0f} s")
    words = reported.read_text(encoding="utf-8", errors="replace")
    found = [*scene.problems()]
    if code == 0 or _FINISHED in words:  # the signal came after the work
        counts.finished += 1
    elif ending.code not in (None, code):
        found.append(f"exit code {code}, not {ending.code}")
    elif ending.words.lower() not in " ".join(words.lower().split()):
        found.append(f"it does not say {ending.words!r}")
    if "Traceback" in words:
        found.append("it shows a traceback")
    if left := processes_left(process.pid, wait_secs=_GONE_SECS):
        found.append(f"{left} processes are left")
    with reported.open("ab") as output:
        again = _command(scene, output).wait(_LIMIT_SECS)
    if again:
        found.append(f"the same command again ended with {again}")
    found += scene.final_problems()
    if (missing := scene.lost_and_duplicated()) != (0, 0):
        found.append(f"records lost and duplicated: {missing}")
    counts.ended += 1
    counts.by_ending[str(ending)] += 1
    counts.problems += [f"{ending} after {after_secs:.2f} s: {problem}: {words[-500:]}" for problem in found]


def _command(scene: Scene, output: object, reference: str = REFERENCE) -> subprocess.Popen[bytes]:
    """`beam-pipes build` as the leader of its own session."""
    words = [sys.executable, "-m", "beam_pipes", "build", reference, "--to", str(scene.cache)]
    return subprocess.Popen(
        [*words, "--workers", str(_WORKERS)],
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        env={
            **os.environ,
            "PYTHONPATH": python_path(),
            **scene.env,
            LOG_VARIABLE: str(scene.log),
        },
        start_new_session=True,
    )


def _workers(session: int) -> list[int]:
    """Processes started by the starter of workers: those below a child of the launcher."""
    parents = members(session)
    return [pid for pid, parent in parents.items() if parent != session and parents.get(parent) == session]


def _receivers(session: int, to: str) -> list[int]:
    parents = members(session)
    workers = _workers(session)
    return {
        "the launcher": [session],
        "all processes": list(parents),
        "a worker": workers[:1],
        "the starter of workers": list({parents[pid] for pid in workers}),
    }[to]


def _deadly(directory: Path, counts: EndingCounts) -> None:
    """Lines that kill their worker become dead letters, and everything else is written."""
    ids = write_input(directory / "input", files=4)
    for number in (0, 2):
        path = directory / "input" / f"file-{number:04d}.txt"
        lines = path.read_text(encoding="utf-8").splitlines()
        deadly = lines[5].rpartition(" ")[2]
        ids.remove(int(deadly))
        # Of the same length, so that the file stays one source shard.
        word = lines[5].rpartition(" ")[0]
        lines[5] = f"{'deadly'.ljust(len(word), 'x')} {deadly}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts.deadly_records += 1
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "beam_pipes",
            "build",
            DEADLY,
            "--to",
            str(directory / "cache"),
            "--workers",
            "2",
        ],
        env={
            **os.environ,
            "PYTHONPATH": python_path(),
            INPUT_VARIABLE: str(directory / "input"),
        },
        capture_output=True,
        text=True,
    )
    if done.returncode:
        counts.problems.append(f"records that end their workers ended the build: {done.stderr[-500:]}")
        return
    cache = Cache.open(directory / "cache")
    written = {int(example["id"]) for example in cache["train"]}
    if written != ids:
        counts.problems.append(f"beside records that end their workers: {len(ids ^ written)} others are wrong")
    dead = [letter for letter in cache.dead_letters() if letter.error_type == "RecordCrashError"]
    if len(dead) != counts.deadly_records:
        counts.problems.append(f"{counts.deadly_records} records ended their workers, {len(dead)} are dead letters")
