"""The loading campaign: SIGKILL, Ctrl-C and exceptions at random moments of loading; nothing may be left, and the next
pass must start.

One process has everything imported and forks for each moment, so that a loader to be killed costs milliseconds to
start. Each child has its own session, so that whatever it leaves behind can be identified.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import gc
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from beam_pipes.cache import Cache
from beam_pipes.loader import BlockShuffle, Loader, open_remote, random_access
from benchmarks.campaigns.session_members import processes_left

_START = "from benchmarks.campaigns.loading import serve; serve()"
_LIMIT_SECS = 60.0
_GONE_SECS = 10.0
SHARED_MEMORY = "/dev/shm"
_OWN_VARIABLE = "CAMPAIGN_OWN_SHARED_MEMORY"
# Between batches, so that moments are spread over the pass and not only its start.
_STEP_SECS = 0.002

WAYS = ("threads", "remote blocks", "prefetched to a device", "map-style threads", "map-style processes")
ENDINGS = ("killed", "interrupted", "exception")
# Maximum number of moments drawn for each requested one.
_MOST_DRAWS = 20


class Planned(Exception):
    """The exception that the campaign raises."""


@dataclasses.dataclass(kw_only=True)
class LoadingCounts:
    """`moments` tried, by ending and by way of loading; only the `in_time` ones, before the end of the pass, count."""

    moments: int = 0
    in_time: int = 0
    by_ending: Counter[str] = dataclasses.field(default_factory=Counter)
    by_way: Counter[str] = dataclasses.field(default_factory=Counter)
    next_starts: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


def loading_campaign(
    cache: Path, directory: Path, *, moments: int, seed: int = 0, ways: tuple[str, ...] = WAYS
) -> LoadingCounts:
    """Passes over the split `train` of a cache, each ended at a random moment and followed by an undisturbed one.

    A moment after the end of the pass is redrawn, until there were `moments`. Remote shards are kept in `directory`.
    """
    rng = random.Random(seed)
    counts = LoadingCounts()
    with _Forker() as forker:
        whole, secs = {}, {}
        for way in ways:
            before = time.monotonic()
            reported = forker.run(way, cache, directory / "whole")
            if reported["error"] is not None:
                counts.problems.append(f"{way}: an undisturbed pass failed: {reported['error']}")
                return counts
            whole[way], secs[way] = reported["digest"], time.monotonic() - before
        while counts.in_time < moments:
            if counts.moments >= _MOST_DRAWS * moments:
                counts.problems.append(f"{counts.moments} moments were drawn, and {counts.in_time} were in time")
                break
            number = counts.in_time
            way, ending = ways[number % len(ways)], ENDINGS[(number + 2 * (number // len(ways))) % len(ENDINGS)]
            store = directory / f"store-{WAYS.index(way)}"
            after_secs = rng.uniform(0.0, secs[way])
            reported = forker.run(way, cache, store, ending=ending, after_secs=after_secs)
            if ending == "interrupted" and reported["descriptors"] == 1:
                # Python may be interrupted after a call has opened a file and before the next statement holds it. That
                # does not happen twice in a row; a file that nobody closes does.
                reported = forker.run(way, cache, store, ending=ending, after_secs=after_secs)
            label = f"{way}, {ending} (moment {number})"
            counts.moments += 1
            counts.in_time += reported["digest"] is None
            counts.by_ending[ending] += 1
            counts.by_way[way] += 1
            counts.problems += [f"{label}: {problem}" for problem in problems_of(reported, ending)]
            before = time.monotonic()
            after = forker.run(way, cache, store)
            secs[way] = time.monotonic() - before
            counts.next_starts += after["digest"] == whole[way]
            if after["digest"] != whole[way]:
                counts.problems.append(f"{label}: the next pass gave other batches, or {after['error']}")
            counts.problems += [f"{label}, next pass: {problem}" for problem in problems_of(after, None)]
            left = [path.name for path in store.rglob("*.part")] if store.exists() else []
            if left:
                counts.problems.append(f"{label}: {left} are left in the local directory")
    return counts


def problems_of(reported: Mapping[str, Any], ending: str | None) -> Iterator[str]:
    """The problems after a pass with this ending."""
    if reported["hung"]:
        yield f"did not end within {_LIMIT_SECS:.0f} s"
    if reported["orphans"]:
        yield f"{reported['orphans']} processes are left"
    if reported["descriptors"]:
        yield f"{reported['descriptors']} descriptors are left open"
    if reported["threads"]:
        yield f"threads are left: {reported['threads']}"
    if reported["shared_memory"]:
        yield f"shared memory is left: {reported['shared_memory'][:5]}"
    allowed = {None: {None}, "killed": {None}, "interrupted": {None, "KeyboardInterrupt"}}
    if reported["error"] not in allowed.get(ending, {None, "Planned"}):
        yield f"ended in {reported['error']}: {reported['words']}"


def load(way: str, cache: Path, store: Path) -> Iterator[Any]:
    """One pass over the split `train`."""
    split = Cache.open(cache)["train"]
    if way == "threads":
        yield from Loader(split, batch_size=8, seed=3, workers=2, epochs=1)
    elif way == "remote blocks":
        # Space for only some of the shards, so that some are removed while others arrive.
        largest = max(path.stat().st_size for path in cache.rglob("*-train.tfrecord-*") if path.suffix != ".index")
        remote = open_remote(str(cache), "train", local_directory=store, max_bytes=6 * largest + 8_192)
        yield from Loader(remote, batch_size=8, seed=3, workers=1, epochs=1, shuffle=BlockShuffle(window=1))
    elif way == "prefetched to a device":
        from beam_pipes.on_device.ahead import read_ahead

        loader = Loader(split, batch_size=8, seed=3, workers=1, epochs=1)
        hosted = read_ahead(lambda batch: batch, loader, 2, name="host")
        with contextlib.closing(read_ahead(lambda batch: batch, hosted, 2, name="device")) as placed:
            yield from placed
    else:
        from beam_pipes.map_style import DataLoader

        kind = "process" if way == "map-style processes" else "thread"
        examples = random_access(split)
        with DataLoader(
            examples, 8, True, num_workers=1, worker_type=kind, seed=3, collate_fn=_example_list
        ) as batches:
            yield from batches


def _example_list(examples: list[Any]) -> list[Any]:
    return examples


class _Forker:
    """The parent's end of the process that forks; usable in a `with` block."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [*_own_shared_memory(), sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def run(
        self, way: str, cache: Path, store: Path, *, ending: str | None = None, after_secs: float = 0.0
    ) -> dict[str, Any]:
        """One pass, ended in some way after a while, and the state it leaves."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"way": way, "cache": str(cache), "store": str(store), "ending": ending, "after_secs": after_secs}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if not wait([self._process.stdout.fileno()], 2 * _LIMIT_SECS):
            raise TimeoutError(f"the process that forks is late with {order}")
        outcome: dict[str, Any] = json.loads(self._process.stdout.readline())
        return outcome

    def __enter__(self) -> _Forker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_LIMIT_SECS)
        self._process.stdout.close()


def serve() -> None:
    """In the process that forks: one order per line in, one result per line out."""
    import beam_pipes.map_style.loader  # noqa: F401
    import beam_pipes.on_device.lambda_loader  # noqa: F401  what every pass would import

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        replies.write(json.dumps(fork_pass(order)) + "\n")
        replies.flush()


def fork_pass(order: Mapping[str, Any]) -> dict[str, Any]:
    """One pass in a child of this process: its report, and what it left behind."""
    shared = _shared_memory()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(order, write)
    os.close(write)
    hung = _end(pid, order)
    with os.fdopen(read) as words:
        reported = json.loads(words.read() or "null") or _NOTHING
    orphans = processes_left(pid, wait_secs=_GONE_SECS)
    return {**reported, "hung": hung, "orphans": orphans, "shared_memory": sorted(_shared_memory() - shared)}


_NOTHING = {"digest": None, "error": None, "words": "", "descriptors": 0, "threads": []}


def _child(order: Mapping[str, Any], words: int) -> None:
    """Loads, and reports what is left behind; then ends like a script, running its `atexit` functions."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignored before the pass begins
    reported = dict(_NOTHING)
    end = time.monotonic() + order["after_secs"] if order["ending"] == "exception" else float("inf")
    # Python's own, one per process, which lives as long as the process.
    resource_tracker.ensure_running()
    before = _descriptors()
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            digest = hashlib.sha256()
            batches = load(order["way"], Path(order["cache"]), Path(order["store"]))
            for batch in batches:
                digest.update(repr(batch).encode())
                if time.monotonic() > end:
                    raise Planned
                time.sleep(_STEP_SECS)
            reported["digest"] = digest.hexdigest()
        except BaseException as error:
            reported["error"], reported["words"] = type(error).__name__, str(error)
        # From here on an interrupt comes after the pass.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        batches = batch = None
        gc.collect()
        reported["threads"] = _threads()
        reported["descriptors"] = max(0, len(_descriptors() - before))
        os.write(words, json.dumps(reported).encode())
    except BaseException as error:
        os.write(words, json.dumps({**reported, "error": type(error).__name__, "words": str(error)}).encode())
    os.close(words)
    atexit._run_exitfuncs()
    os._exit(0)


def _descriptors() -> set[str]:
    """Open descriptors, by number and target."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if "/proc/" not in target and "/dev/urandom" not in target:
                found.add(f"{number} {target}")
    return found


def _threads() -> list[str]:
    """Remaining threads of loaders, after a grace period."""
    deadline = time.monotonic() + _GONE_SECS
    while True:
        names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        names = [name for name in names if name.startswith(("beam_pipes", "beam-pipes", "transforms"))]
        if not names or time.monotonic() > deadline:
            return names
        time.sleep(0.01)


def _end(pid: int, order: Mapping[str, Any]) -> bool:
    """Waits for the child and ends it at its moment; returns whether it took far too long."""
    started = time.monotonic()
    signals = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT}
    sent = order["ending"] not in signals
    while not os.waitpid(pid, os.WNOHANG)[0]:
        elapsed = time.monotonic() - started
        if not sent and elapsed >= order["after_secs"]:
            sent = True
            with contextlib.suppress(ProcessLookupError):
                # Ctrl-C reaches all processes of a terminal, a kill only one.
                kill = os.kill if order["ending"] == "killed" else os.killpg
                kill(pid, signals[order["ending"]])
        if elapsed > _LIMIT_SECS:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return True
        time.sleep(0.001)
    return False


def _shared_memory() -> set[str]:
    """The contents of shared memory if it is private to this process; nothing if others write to it too."""
    return set(os.listdir(SHARED_MEMORY)) if os.environ.get(_OWN_VARIABLE) else set()


@functools.cache
def _own_shared_memory() -> list[str]:
    """The command prefix that gives a process private shared memory; empty if that is not allowed."""
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs tmpfs {SHARED_MEMORY}"
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run([*words, mount], capture_output=True, timeout=_LIMIT_SECS).returncode == 0:
            return [*words, f'{mount} && {_OWN_VARIABLE}=1 exec "$@"', "sh"]
    return []
