"""A build by workers that have no server: each claims source shards by files, until none is left; one of them commits.

Everything is in the directory of the job's tasks, `DIR/snapshots/<id>/tasks/<launch>/` (or `analysis/tasks/<launch>/`):

| file | says |
| --- | --- |
| `00000000.json` … | the tasks, by number |
| `order-<sha256>` | the declaration and the header of the build, pickled; its name is its digest |
| `claims/00000012.0` | a worker does task 12; it writes this file anew as long as it lives |
| `claims/00000012.1` | a second one does it, because the first fell silent |
| `claims/00000012.done` | task 12 is done |
| `failed.json` | why the job has ended without a snapshot |

A claim is a file that only one worker can create: by a link on a file system (also on NFS), by a conditional request on
an object store. Nobody compares clocks: a worker that waits takes over a claim whose bytes it has seen unchanged for
`lease_secs`. If the first worker lives after all, both write the same bytes: see `ShardOutput`.

The commit is the task after the last, so a worker that dies while it publishes is followed by another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pickle
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeAlias

from beam_pipes.building.analysis.job import AnalysisPool, analysis_tasks
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.commit import commit
from beam_pipes.building.leftovers import writing
from beam_pipes.building.progress import every
from beam_pipes.building.references import DeclarationHandle, by_value
from beam_pipes.building.shard_task import BuildHeader, Numbered, ShardTask, tasks_of
from beam_pipes.building.workers.pool import WorkerPool
from beam_pipes.building.workers.tasks import HasShard, Watcher, Workers, files_of
from beam_pipes.errors import BeamPipesError, BuildError, CacheNotFoundError, WorkerDiedError, text_of, visible
from beam_pipes.runners.progress import counted
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import is_dead, this_process
from beam_pipes.storage.protocol import in_parallel

ORDER, CLAIMS, FAILED = "order-", "claims", "failed.json"
DONE = ".done"

#: How long a claim may stay unchanged before another worker takes its task over.
LEASE_SECS = 60.0

#: How many workers may fall silent over one task, before it is held to be the cause.
MOST_CLAIMS = 5

# How often a worker looks at what others have done: a listing.
_LOOK_SECS = 10.0
_WAIT_SECS = 1.0

# Large tasks come first, in an order of each worker's own among this many, so that few want the same one.
_SHUFFLED = 64

#: The exit code of a worker whose job has failed by a fault of the declaration or its input: another try would too.
FAULT = 65

_Task: TypeAlias = "ShardTask | AnalysisTask"


class JobEndedError(Exception):
    """The job of this worker has ended: its order is gone, or another worker has met an error."""


# Errors of this worker's machine: others may go on.
_OF_THIS_MACHINE = (OSError, WorkerDiedError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """What workers need: the declaration, and the header of the build; None for a round of an analysis.

    `is_followed`: a launcher, or `attach`, removes all of this at the end; else the worker that publishes does.
    """

    handle: DeclarationHandle
    root: str
    launch: str
    largest_first: Sequence[int]  # the numbers of all tasks
    header: BuildHeader | None
    lease_secs: float = LEASE_SECS
    is_followed: bool = True

    @property
    def num_tasks(self) -> int:
        return len(self.largest_first)

    @property
    def directory(self) -> str:
        """The directory of the job's tasks."""
        return self._tasks.directory

    @property
    def _tasks(self) -> Numbered[Any]:
        return analysis_tasks(self.root, self.launch) if self.header is None else tasks_of(self.header)

    @property
    def num_steps(self) -> int:
        """The tasks and, for a build, the commit."""
        return self.num_tasks + (self.header is not None)

    def task(self, number: int) -> _Task:
        """The task of this number."""
        task: _Task = self._tasks[number]
        return task

    @classmethod
    def write(
        cls,
        handle: DeclarationHandle,
        root: str,
        tasks: Sequence[_Task],
        *,
        header: BuildHeader | None,
        lease_secs: float = LEASE_SECS,
        is_followed: bool = True,
    ) -> str:
        """Writes tasks and their order; returns the path of the order, for the command line of workers."""
        launch, storage = secrets.token_hex(8), storage_for(root)
        order = cls(
            handle=handle,
            root=root,
            launch=launch,
            largest_first=sorted(range(len(tasks)), key=lambda number: -tasks[number].shard.num_bytes),
            header=None if header is None else dataclasses.replace(header, launch=launch),
            lease_secs=lease_secs,
            is_followed=is_followed,
        )
        data = by_value(order)
        path = f"{order.directory}/{ORDER}{hashlib.sha256(data).hexdigest()}"
        with writing(root):
            order._tasks.write(tasks)
            storage.makedirs(f"{order.directory}/{CLAIMS}")
            storage.replace(path, data)
        return path

    @classmethod
    def read(cls, path: str) -> WorkOrder:
        """The order in a file. Raises `BuildError` if it is missing, or is not the one that its name says."""
        try:
            data = storage_for(path).read_bytes(path)
        except CacheNotFoundError as error:
            raise BuildError(
                f"expected the order of a job in {path!r}, found nothing. The job has ended, or was replaced by a "
                "later one: its launcher prints the path of a new order.",
                path=path,
            ) from error
        if hashlib.sha256(data).hexdigest() != path.rpartition(f"/{ORDER}")[2]:
            raise BuildError(
                f"{path!r} is not the order that was written: its name is the SHA-256 of its bytes, and they differ. "
                "It was changed, and nothing of it was run. Submit the build again.",
                path=path,
            )
        order = pickle.loads(data)
        assert isinstance(order, cls)
        return order


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """How far a job is, from its files alone. `failed` is the text of the error that ended it."""

    done: int
    claimed: int
    failed: str | None

    @classmethod
    def of(cls, order_path: str) -> Standing | None:
        """Of the job whose order is there; None if the order is gone."""
        storage, directory = storage_for(order_path), order_path.rpartition("/")[0]
        if not storage.exists(order_path):
            return None
        names = storage.list(f"{directory}/{CLAIMS}")
        done = {name.partition(".")[0] for name in names if name.endswith(DONE)}
        claimed = len({name.partition(".")[0] for name in names} - done)
        return cls(done=len(done), claimed=claimed, failed=failure(order_path))


def failure(order_path: str) -> str | None:
    """The error that ended a job; None if none did."""
    path = f"{order_path.rpartition('/')[0]}/{FAILED}"
    try:
        text: str = json.loads(storage_for(path).read_bytes(path))["error"]
    except CacheNotFoundError:
        return None
    return text


def is_done(order_path: str, num_steps: int) -> bool:
    """Whether all steps of a job are done. A build ends with its commit, so one question is enough while it runs."""
    storage, directory = storage_for(order_path), f"{order_path.rpartition('/')[0]}/{CLAIMS}"
    if not storage.exists(f"{directory}/{num_steps - 1:08d}{DONE}"):
        return False
    return sum(name.endswith(DONE) for name in storage.list(directory)) >= num_steps


def end_job(order_path: str, error: str) -> None:
    """Makes all workers of a job stop at their next look; the first reason that is given stays."""
    storage, directory = storage_for(order_path), order_path.rpartition("/")[0]
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        storage.write_new(f"{directory}/{FAILED}", strict_json({"error": error}).encode())


class Claims:
    """The claims of one worker among those of all. `worker` is its name, which a restarted one has again."""

    def __init__(self, order_path: str, order: WorkOrder, *, worker: str) -> None:
        self._order_path, self._order = order_path, order
        self._directory = f"{order.directory}/{CLAIMS}"
        self._storage = storage_for(self._directory)
        self._worker = worker
        self._lock = threading.Lock()
        self._held: dict[int, str] = {}
        self._last: dict[int, int] = {}  # task → its last claim
        self._done: set[int] = set()
        self._next_look = 0.0
        self._beats = 0
        # Claims of others: what was read, and when it was first read.
        self._seen: dict[str, tuple[bytes, float]] = {}

    @property
    def num_done(self) -> int:
        return len(self._done)

    def is_free(self, number: int) -> bool:
        """Whether nobody has claimed the task, as far as the last look shows."""
        return number not in self._last and number not in self._done

    def look(self) -> None:
        """Lists what all workers have claimed and done. Raises `JobEndedError`."""
        began = time.monotonic()
        names = self._storage.list(self._directory)
        if not self._storage.exists(self._order_path):
            raise JobEndedError("the order of this job is gone: it has ended")
        if (failed := failure(self._order_path)) is not None:
            raise JobEndedError(failed)
        with self._lock:
            self._last = dict.fromkeys(self._held, 0)
            self._done = set()
            for name in names:
                number, _, last = name.partition(".")
                if name.endswith(DONE):
                    self._done.add(int(number))
                else:
                    self._last[int(number)] = max(self._last.get(int(number), 0), int(last))
        # Far away, a listing of 100,000 claims takes ten seconds: a twentieth of the time is enough for it.
        self._next_look = time.monotonic() + max(_LOOK_SECS, 20 * (time.monotonic() - began))

    def unclaimed(self, tasks: Sequence[int]) -> Iterator[int]:
        """Claims those of `tasks` that nobody has, one when the next is asked for."""
        for number in tasks:
            if time.monotonic() >= self._next_look:
                self.look()
            if self.is_free(number) and self.take(number):
                yield number

    def take(self, number: int) -> bool:
        """Claims a task; False if another worker was faster. Raises `BuildError` if too many fell silent over it."""
        attempt = self._last.get(number, -1) + 1
        if attempt >= MOST_CLAIMS:
            what = f"task {number}" if number == self._order.num_tasks else files_of(self._order.task(number))
            raise BuildError(
                f"{MOST_CLAIMS} workers took the source shard of {what} one after the other, and each ended or fell "
                "silent before it was done. Memory that runs out looks like this: give each worker more, or fewer "
                "processes (--processes), and run the build again: finished shards are kept."
            )
        path = f"{self._directory}/{number:08d}.{attempt}"
        try:
            self._storage.write_new(path, self._stated())
        except (FileExistsError, FileNotFoundError):
            self._last[number] = attempt
            return False
        with self._lock:
            self._held[number] = path
            self._last[number] = attempt
        return True

    def silent(self) -> list[int]:
        """Tasks whose workers are gone: dead on this machine, restarted under this name, or silent for a lease."""
        with self._lock:
            waiting = {
                f"{self._directory}/{number:08d}.{last}": number
                for number, last in self._last.items()
                if number not in self._done and number not in self._held
            }
        now = time.monotonic()
        found = []
        for (path, number), data in zip(waiting.items(), in_parallel(self._storage, self._read, waiting), strict=True):
            before, since = self._seen.get(path, (None, now))
            if data is None:  # given back: the next look shows that nobody has it
                continue
            if data != before:
                self._seen[path] = (data, now)
                since = now
            who = json.loads(data)
            if now - since >= self._order.lease_secs or who["worker"] == self._worker or is_dead(who):
                found.append(number)
        return found

    def _read(self, path: str) -> bytes | None:
        with contextlib.suppress(CacheNotFoundError):
            return self._storage.read_bytes(path)
        return None

    def _stated(self) -> bytes:
        self._beats += 1
        return strict_json({**this_process(), "worker": self._worker, "beats": self._beats}).encode()

    def renew(self) -> None:
        """Writes all claims of this worker anew. What fails is tried again at the next time."""
        with self._lock:
            held = list(self._held.values())
        for path in held:
            with contextlib.suppress(BeamPipesError, OSError):
                self._storage.replace(path, self._stated())

    def finish(self, number: int) -> None:
        """The task is done."""
        with contextlib.suppress(FileNotFoundError):  # the job has been settled meanwhile
            self._storage.replace(f"{self._directory}/{number:08d}{DONE}", b"{}")
        with self._lock:
            self._held.pop(number, None)
            self._done.add(number)

    def give_back(self) -> None:
        """Lets others take at once what this worker has not finished."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for path in held:
            with contextlib.suppress(BeamPipesError, OSError):
                self._storage.delete(path)


class _Ended(SystemExit):
    """The scheduler ends this worker (SIGTERM)."""

    code: int


def _end(signum: int, frame: FrameType | None) -> None:
    raise _Ended(128 + signum)


class _Telling(Watcher):
    """Marks tasks of a pool as done."""

    def __init__(self, claims: Claims, numbers: Mapping[int, int]) -> None:
        self._claims, self._numbers = claims, numbers
        self.built = 0

    def finished(self, task: HasShard) -> None:
        self._claims.finish(self._numbers[task.index])
        self.built += 1


def work(order_path: str, *, worker: str, processes: int = 1, say: Callable[[str], None] = lambda line: None) -> int:
    """Takes tasks of a job until none is left, and publishes if nobody else has; returns how many it did.

    Run it on any machine that sees the cache's directory and can import what the declaration imports; as many times as
    wanted, at any time while the job lasts. `worker` names this one: a worker that is restarted under the same name
    takes over at once what it had claimed. SIGTERM gives its claims back.

    Raises what a stage or the source raised, after all other workers know of it, and `JobEndedError` if the job ended
    for another reason.
    """
    order = WorkOrder.read(order_path)
    claims = Claims(order_path, order, worker=worker)
    numbers: dict[int, int] = {}

    def taken(chosen: Iterator[int]) -> Iterator[Any]:
        for number in chosen:
            task = order.task(number)
            numbers[task.index] = number
            yield task

    watcher = _Telling(claims, numbers)
    # Only a main thread may handle signals; afterwards they are handled as the caller had it.
    is_main_thread = threading.current_thread() is threading.main_thread()
    callers = signal.signal(signal.SIGTERM, _end) if is_main_thread else None
    try:
        with (
            writing(order.root),
            every(order.lease_secs / 3, claims.renew, name="claims"),
            _pool(order, processes) as pool,
        ):
            tasks = _own_order(order, worker)
            while True:
                claims.look()
                pool.run(taken(claims.unclaimed(tasks)), watcher)
                claims.look()
                silent = claims.silent()
                all_built = order.header is not None and claims.num_done == order.num_tasks
                if order.num_tasks in silent or (all_built and claims.is_free(order.num_tasks)):
                    _publish(claims, order, say)
                elif silent:
                    say(f"taking over {counted(len(silent), 'source shard')}, left by workers that have ended.")
                    pool.run(taken(number for number in silent if claims.take(number)), watcher)
                    continue
                if claims.num_done >= order.num_steps:
                    return watcher.built
                time.sleep(_WAIT_SECS)
    except JobEndedError:
        if (standing := Standing.of(order_path)) is None or standing.done >= order.num_steps:
            return watcher.built  # settled by its launcher
        raise
    except BeamPipesError as error:
        if not isinstance(error, _OF_THIS_MACHINE):
            end_job(order_path, f"{type(error).__module__}.{type(error).__name__}: {error}")
        raise
    finally:
        if is_main_thread:
            signal.signal(signal.SIGTERM, callers)
        claims.give_back()


def _publish(claims: Claims, order: WorkOrder, say: Callable[[str], None]) -> None:
    assert order.header is not None
    if claims.take(order.num_tasks):
        manifest = commit(order.header)
        claims.finish(order.num_tasks)
        say(f"All source shards are done: snapshot {manifest.snapshot} is published.")
        if not order.is_followed:
            storage_for(order.root).delete_tree(order.directory)


def _pool(order: WorkOrder, processes: int) -> Workers[Any, Any, Any]:
    if order.header is None:
        return AnalysisPool(order.handle, order.root, workers=processes)
    return WorkerPool(order.handle, order.header, workers=processes)


def _own_order(order: WorkOrder, worker: str) -> list[int]:
    """All tasks, the large ones first; those of about one size in an order of this worker's own."""
    draw = random.Random(worker)
    tasks: list[int] = []
    for start in range(0, order.num_tasks, _SHUFFLED):
        some = list(order.largest_first[start : start + _SHUFFLED])
        draw.shuffle(some)
        tasks += some
    return tasks


def main(order_path: str, *, worker: str, processes: int) -> int:
    """`beam-pipes work`: the exit code of a worker."""

    def say(line: str) -> None:
        print(f"beam-pipes: {worker}: {visible(line)}", file=sys.stderr, flush=True)

    started = time.monotonic()
    try:
        built = work(order_path, worker=worker, processes=processes, say=say)
    except _Ended as error:
        say("it was asked to end: others take over what it had claimed.")
        return int(error.code)
    except JobEndedError as error:
        say(f"the job has ended: {error}")
        return FAULT
    except _OF_THIS_MACHINE as error:
        say(f"this worker ends, others go on: {text_of(error)}")
        return 1
    except BeamPipesError as error:
        say(f"this job cannot go on: {text_of(error)}")
        return FAULT
    say(f"no source shard is left. This worker did {built} of them in {time.monotonic() - started:.1f} s.")
    return 0
