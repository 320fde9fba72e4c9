"""Threads of one worker share what it imports by name: what a call leaves behind is that call's alone."""

from __future__ import annotations

import collections
import concurrent.futures
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from beam_pipes import Pipeline
from beam_pipes.building.reading import graph_runner, read_batches
from beam_pipes.building.references import load_declaration
from beam_pipes.engine.account import Account
from beam_pipes.engine.turns import turn_of
from beam_pipes.runners import BeamOptions, LocalOptions, build
from beam_pipes.typed import Counter, stage

# Every stage lets other threads go on between what it leaves behind and its end, as one that asks a service does.
MODULE = '''
import dataclasses, threading, time
import numpy as np
from beam_pipes import Declaration, FeatureSpec, Pipeline, tasks
from beam_pipes.graph import cache, pipeline_def
from beam_pipes.runners import task_declaration
from beam_pipes.sources import TextLines
from beam_pipes.transforms import fn
from beam_pipes.typed import Counter, DAGPipeline, Input, Output

FILES = {files!r}

def pause():
    time.sleep(2e-4)

@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Parse(Pipeline):
    input_type = str
    output_type = dict
    def transform(self, line):
        n = int(line)
        if n % 4 == 0:
            result = self.drop(f"mod{{n % 12}}")
            pause()
            return result
        self._set_stats([Counter(f"c{{n % 3}}", 1)])
        pause()
        return [{{"n": n}}]

class Told(Pipeline):
    """Its own `get_stats` tells what it remembers."""
    input_type = output_type = dict
    def transform(self, record):
        self.seen = record["n"] % 5
        pause()
        return [record]
    def get_stats(self):
        return [Counter(f"Told_{{self.seen}}", 1)]

class Filled(Pipeline):
    """Fills one buffer again and again."""
    input_type = output_type = dict
    def __init__(self):
        super().__init__(name="Filled")
        self.buffer = np.zeros(3, np.int64)
    def transform(self, record):
        self.buffer[:] = record["n"]
        pause()
        return [{{**record, "filled": self.buffer}}]

class Kept(Parse):
    """A helper that stages call, one object of the module."""
    input_type = dict
    def transform(self, record):
        self._set_stats([Counter(f"kept{{record['n'] % 3}}", 1)])
        pause()
        return self.drop("seven") if record["n"] % 7 == 0 else [record]

KEPT = Kept()

class Helped(Pipeline):
    input_type = output_type = dict
    def transform(self, record):
        made = KEPT.transform(record)
        pause()
        self._set_stats(KEPT.get_stats())
        return made or self.drop("helped")

class Elsewhere(Pipeline):
    """Drops in a thread of its own."""
    input_type = output_type = dict
    def transform(self, record):
        if record["n"] % 5:
            return [record]
        thread = threading.Thread(target=self.drop, args=(f"five{{record['n'] % 2}}",))
        thread.start()
        thread.join()
        return []

def dag(name, stages, type_):
    return DAGPipeline({{stages[0]: Input(type_), **dict(zip(stages[1:], stages)), Output("train"): stages[-1]}}, name)

FEATURES = {{"n": FeatureSpec("int64"), "filled": FeatureSpec("int64", shape=(None,))}}

def declared(pipeline):
    source = TextLines(FILES)
    return Declaration(
        name="job", source=source, pipeline=pipeline, features=FEATURES, target_shard_bytes=120, allow_empty=True
    )

dags = declared(dag("Outer", [Parse(), Told(), Helped(), Elsewhere(), Filled()], str))

class Inside(Pipeline):
    """A DAG within a stage of a DAG."""
    input_type = str
    output_type = dict
    inner = dag("Inner", [Parse(), Kept(), Filled()], str)
    def transform(self, line):
        made = self.inner.transform(line)["train"]
        pause()
        self._set_stats(self.inner.get_stats())
        return made

nested = declared(dag("Nested", [Inside(), Told()], str))

def turned(n):
    pause()
    return n[::-1].copy()

@pipeline_def(batch_size=4, seed=1)
def graph_of():
    data, label = fn.readers.file(file_root=FILES.rpartition("/")[0], file_filters="*.txt")
    turns = fn.python_function(data[:4], function=turned, pure=True)
    return cache(turns), label

graph = graph_of().offline_declaration("graph", target_shard_bytes=60)

class Counted(Pipeline):
    input_type = object
    output_type = dict
    def transform(self, line):
        n = int(line)
        self._set_stats([Counter(f"t{{n % 3}}", 1)])
        pause()
        return self.drop("even") if n % 4 == 0 else [{{"targets": line}}]

TEXT = {{"targets": tasks.Feature(tasks.PassThroughVocabulary(1), add_eos=False, dtype="string", rank=0)}}
tasks.TaskRegistry.remove("threaded")
tasks.TaskRegistry.add(
    "threaded",
    tasks.TextLineDataSource({{"train": FILES + "/*.txt"}}),
    TEXT,
    [Counted(), tasks.CacheDatasetPlaceholder()],
)
task = task_declaration("threaded", modules_to_import=(__name__,))
'''

KINDS = ("dags", "nested", "graph", "task")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("threads")
    (directory / "texts" / "in").mkdir(parents=True)
    for i in range(12):
        (directory / "texts" / "in" / f"{i:02d}.txt").write_text("".join(f"{n}\n" for n in range(i * 20, i * 20 + 20)))
    (directory / "job_of_threads.py").write_text(MODULE.format(files=str(directory / "texts" / "in")))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        yield "job_of_threads"


def run_in_threads(reference: str, num_threads: int) -> tuple[dict[str, object], dict[int, str]]:
    """Every source shard as a bundle of its own, each thread with its own runner, as in a worker of a cluster."""
    declaration = load_declaration(reference)
    waiting = collections.deque(declaration.source.plan(target_shard_bytes=120).shards)
    account, outputs, merging = Account(), {}, threading.Lock()

    def work() -> None:
        runner = graph_runner(load_declaration(reference), None)
        while waiting:
            try:
                shard = waiting.popleft()
            except IndexError:
                return
            for batch in read_batches(declaration, shard):
                runner.run(batch)
                with merging:
                    account.merge_from(batch.account)
                    made = {name: [list(values) for values in column] for name, column in runner.outputs(batch).items()}
                    outputs[shard.index, batch.records.first_ordinal] = repr(made)

    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        for future in [pool.submit(work) for _ in range(num_threads)]:
            future.result()
    units = {name: (unit.dropped, sorted(map(str, unit.statistics.values()))) for name, unit in account.units.items()}
    return units, outputs


@pytest.mark.parametrize("kind", KINDS)
def test_one_two_and_eight_threads_of_a_worker_give_the_same(job: str, kind: str) -> None:
    expected = run_in_threads(f"{job}:{kind}", 1)
    for num_threads in (2, 8):
        assert run_in_threads(f"{job}:{kind}", num_threads) == expected


def test_a_build_on_threads_of_one_worker_publishes_the_manifest_of_a_local_one(job: str, tmp_path: Path) -> None:
    beam_args = ("--direct_num_workers=8", "--direct_running_mode=multi_threading")
    ways = {"local": LocalOptions(workers=1), "threads": BeamOptions(beam_args=beam_args)}
    made = [build(f"{job}:nested", tmp_path / name, options=options).manifest_id for name, options in ways.items()]
    assert made[0] == made[1]


def test_what_direct_calls_leave_belongs_to_their_thread() -> None:
    class Split(Pipeline):
        input_type = output_type = str

        def transform(self, text: str) -> list[str]:
            self._set_stats([Counter(text, 1)])
            both.wait(timeout=60)
            return self.drop(text)

    both, split = threading.Barrier(2), Split()

    def call(text: str) -> list[str]:
        split.transform(text)
        return [*map(str, split.get_stats()), *split._drops]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(call, ["a", "b"])) == [["Split_a: 1", "a"], ["Split_b: 1", "b"]]
    assert split.get_stats() == []


def test_a_class_says_that_threads_may_run_it_at_once() -> None:
    class Alone(Pipeline):
        input_type = output_type = str

        def transform(self, text: str) -> list[str]:
            meet(text)
            return [text]

    class AtOnce(Alone):
        is_shared = True

    class Tables:
        def look(self, text: str) -> str:
            meet(text)
            return text

    from beam_pipes.typed import load_pipeline

    def meet(text: str) -> None:
        at_once.append(len(running.add(text) or running))
        if at_once[-1] == 2:
            both.set()
        both.wait(60 if most == 2 else 0.05)
        running.discard(text)

    for each, most in ((Alone(), 1), (AtOnce(), 2), (stage(Tables().look), 1)):
        running: Any = set()
        at_once: list[int] = []
        both = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda text, each=each: load_pipeline(each, [text]), ["a", "b"]))
        assert max(at_once) == most, each


def test_turns_end_with_their_stages_and_are_free_in_a_forked_process() -> None:
    class Slotted:
        __slots__ = ()

    slotted = Slotted()
    assert turn_of(slotted) is turn_of(slotted)

    taken = turn_of(job_of := type("Stage", (), {})())
    entered, done = threading.Event(), threading.Event()

    def hold() -> None:
        with taken.lock:
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(60)
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if turn_of(job_of).lock.acquire(timeout=60) else 1)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
