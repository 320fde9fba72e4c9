"""Tasks cached by the build engine: all splits, kills, failures, changes, statistics; cached is uncached."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes import Pipeline, tasks
from beam_pipes.building.explanation import explain_plan
from beam_pipes.building.plan import make_plan
from beam_pipes.cache import Cache
from beam_pipes.errors import BuildError, DeclarationError, SourceError, StaleCacheError, UnknownNameError
from beam_pipes.runners import BeamOptions, LocalOptions, cache_tasks, task_declaration
from beam_pipes.tasks.caches.offline import example_of, raw_bytes
from beam_pipes.tasks.caches.task_steps import count_chars, count_tokens
from beam_pipes.typed import Counter

ROOT = Path(__file__).parents[2]
BYTES = tasks.ByteVocabulary()
TEXT = {"targets": tasks.Feature(tasks.PassThroughVocabulary(1), add_eos=False, dtype="string", rank=0)}
ONE = LocalOptions(workers=1)


@pytest.fixture(autouse=True)
def clean(tmp_path: Path) -> Iterator[None]:
    """No tasks of other files, which patterns of names would find."""
    before, others = tasks.get_global_cache_dirs(), dict(tasks.TaskRegistry._REGISTRY)
    tasks.set_global_cache_dirs([])
    tasks.TaskRegistry.reset()
    yield
    tasks.set_global_cache_dirs(before)
    tasks.TaskRegistry.reset()
    tasks.TaskRegistry._REGISTRY.update(others)


def register(name: str, source, steps, *, after=(), features=None, **kwargs) -> tasks.Task:
    tasks.TaskRegistry.remove(name)
    return tasks.TaskRegistry.add(
        name,
        source,
        features or {"targets": tasks.Feature(BYTES)},
        [*steps, tasks.CacheDatasetPlaceholder(), *after],
        **kwargs,
    )


def lines_source(directory: Path, files: dict[str, list[str]], **splits: str) -> tasks.TextLineDataSource:
    for name, lines in files.items():
        (directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    patterns = {split: str(directory / pattern) for split, pattern in (splits or {"train": "*.txt"}).items()}
    return tasks.TextLineDataSource(patterns)


def told(examples) -> list[str]:
    """Examples as text in their order, dtypes included."""
    return [
        repr(
            [
                (
                    name,
                    value if isinstance(value, bytes) else (np.asarray(value).dtype.name, np.asarray(value).tolist()),
                )
                for name, value in sorted(example.items())
            ]
        )
        for example in examples
    ]


@tasks.python_map
def to_targets(line):
    return {"targets": line}


@tasks.python_map
def words(example):
    return [{**example, "targets": word} for word in example["targets"].split()]


@tasks.python_map
def noisy(example, rng):
    return {**example, "noise": rng.integers(1000, size=2).astype(np.uint16)}


@tasks.map_over_dataset
def doubled(example):
    return {**example, "targets": tf.strings.join([example["targets"], example["targets"]])}


@tasks.map_over_dataset(num_seeds=1)
def noisy_in_tensorflow(example, seed):
    return {**example, "tf_noise": tf.random.stateless_uniform([2], seed, 0, 1000, tf.int64)}


def only_long(dataset):
    return dataset.filter(lambda example: tf.strings.length(example["targets"]) > 1)


class Shardless(tasks.FunctionDataSource):
    def list_shards(self, split):
        return []


class Repeat(Pipeline):
    """A typed pipeline that draws, counts and drops."""

    input_type = dict
    output_type = dict

    def transform(self, example):
        if example["targets"] == b"x":
            return self.drop("only_x")
        self._set_stats([Counter("seen", 1)])
        return [dict(example) for _ in range(int(self.rng().integers(1, 3)))]


STEPS = {
    "words": words,
    "noisy": noisy,
    "doubled": doubled,
    "noisy_in_tensorflow": noisy_in_tensorflow,
    "only_long": only_long,
    "repeat": Repeat(),
}


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_what_is_cached_is_what_is_read_uncached(tmp_path_factory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("generated")
    tasks.set_global_cache_dirs([])
    files = data.draw(st.lists(st.lists(st.text("ab é", max_size=6), max_size=5), min_size=1, max_size=3))
    source = lines_source(root, {f"{i}.txt": [f"x{line}" for line in lines] for i, lines in enumerate(files)})
    chosen = data.draw(st.permutations(sorted(STEPS)))[: data.draw(st.integers(0, 4))]
    task = register(
        "generated",
        source,
        [to_targets, *(STEPS[name] for name in chosen), tasks.preprocessors.tokenize],
        after=[tasks.preprocessors.append_eos_after_trim],
    )
    seed = data.draw(st.integers(0, 3))

    [result] = cache_tasks(
        "generated",
        root / "caches",
        base_seed=seed,
        options=ONE,
        allow_empty=True,
        seqio_files=data.draw(st.booleans()),
        target_shard_bytes=data.draw(st.sampled_from([8, 1 << 20])),
    )
    tasks.set_global_cache_dirs([str(root / "caches")])

    arguments = {"sequence_length": {"targets": 4}, "seed": seed}
    cached = told(task.examples(**arguments, use_cached=True))
    assert cached == told(task.examples(**arguments))
    assert result.result is not None and result.result.account.outputs.get("train", 0) == len(cached)
    if data.draw(st.booleans()):
        dataset = task.get_dataset(**arguments, shuffle=False)
        assert sorted(told(dataset.as_numpy_iterator())) == sorted(cached)


def anything(split, shuffle_files, seed=None):
    made = []
    for i in range({"train": 7, "test": 2, "empty": 0}[split]):
        size = i % 3
        example = {
            dtype: np.arange(size).astype(dtype)
            for dtype in ("uint8", "int16", "int64", "float16", "float32", "float64")
        }
        example |= {"flags": np.array([True, False][:size], bool), "text": f"text {i}", "number": np.int32(i)}
        made.append({**example, "matrix": np.arange(2 * size, dtype=np.int32).reshape(2, size)})
    return made


def test_all_splits_empty_ones_too_and_shards_have_files_for_their_split_alone(tmp_path: Path) -> None:
    features = {"number": tasks.Feature(tasks.PassThroughVocabulary(9), rank=0, add_eos=False)}
    source = tasks.FunctionDataSource(anything, ["train", "test", "empty"])
    task = register("some:where.any", source, [tasks.python_map(lambda example: example)], features=features)

    [result] = cache_tasks("some:.*", tmp_path, options=ONE)

    assert result.path == str(tmp_path / "some/where.any") and result.outcome == "built"
    tasks.set_global_cache_dirs([str(tmp_path)])
    for split, count in (("train", 7), ("test", 2), ("empty", 0)):
        cached = told(task.examples(split=split, use_cached=True))
        assert len(cached) == count
        assert cached == told(task.examples(split=split))
    cache = Cache.open(result.path)
    assert {name: cache[name].num_shards for name in cache.splits} == {"train": 1, "test": 1, "empty": 1}
    assert cache.verify().ok
    assert task.get_cached_stats("empty")["examples"] == 0


def test_every_runner_and_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    env = {"TASKS_DATA": str(tmp_path), "PYTHONPATH": str(ROOT)}
    lines_source(tmp_path, {f"train{i}.tsv": [f"a{j}\tb{i}" for j in range(40)] for i in range(5)})
    lines_source(tmp_path, {"valid.tsv": ["x\ty"]})
    run = [sys.executable, "-m", "beam_pipes", "build", "--tasks", "plain:(pairs|everything|uncached)"]
    run += ["--module-import", "tests.support.build_tasks", "--to"]
    ids = {}
    for directory, more in (("two", ["--workers", "2"]), ("beam", ["--runner", "direct"]), ("one", ["--workers", "1"])):
        ran = subprocess.run([*run, str(tmp_path / directory), *more], env={**os.environ, **env}, capture_output=True)
        assert ran.returncode == 0, ran.stderr.decode()
        assert "plain:uncached: skipped: it does not support caching" in ran.stdout.decode()
        ids[directory] = [
            Cache.open(tmp_path / directory / "plain" / name).manifest.id for name in ("pairs", "everything")
        ]
    assert ids["one"] == ids["two"] == ids["beam"]
    plan = [*run, str(tmp_path / "one"), "--explain"]
    plan[plan.index("build")] = "plan"
    told = subprocess.run(plan, env={**os.environ, **env}, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("is published: up to date.") == 2
    assert "stages: source → step 0: split_columns → step 1: tokenize → example → write" in told.stdout
    assert "plain:uncached: skipped: no CacheDatasetPlaceholder" in told.stdout


def test_large_text_is_read_in_parts_and_small_files_together(tmp_path: Path) -> None:
    files = {f"small{i:03}.txt": [f"{i}"] * 3 for i in range(400)} | {"y.txt": [f"line {i} é" for i in range(500)]}
    task = register("parts", lines_source(tmp_path, files), [to_targets], features=TEXT)

    [result] = cache_tasks("parts", tmp_path / "caches", options=ONE, target_shard_bytes=1000)

    assert result.result is not None and 10 < result.result.num_shards < 150
    tasks.set_global_cache_dirs([str(tmp_path / "caches")])
    assert told(task.examples(use_cached=True)) == told(task.examples())


def test_a_killed_build_continues_from_its_finished_shards(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lines_source(data, {f"train{i}.tsv": [f"a{j}\tb{i}" for j in range(3000)] for i in range(12)})
    lines_source(data, {"valid.tsv": ["x\ty"]})
    env = {**os.environ, "TASKS_DATA": str(data), "PYTHONPATH": str(ROOT), "BEAM_PIPES_KILL_AT": "shard/completed#5"}
    run = [sys.executable, "-m", "beam_pipes", "build", "--tasks", "plain:pairs", "--module-import"]
    run += ["tests.support.build_tasks", "--to", str(tmp_path / "caches"), "--workers", "1"]

    killed = subprocess.run(run, env=env, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "caches/plain/pairs/COMPLETED").exists()
    env.pop("BEAM_PIPES_KILL_AT")
    again = subprocess.run(run, env=env, capture_output=True, text=True)

    assert again.returncode == 0, again.stderr
    assert "13 source shards, 5 of them reused" in again.stdout
    assert "up to date" in subprocess.run(run, env=env, capture_output=True, text=True).stdout


def test_sidecars_that_a_killed_build_has_not_written_are_written_by_the_next_one(tmp_path: Path) -> None:
    register("sides", lines_source(tmp_path, {"a.txt": ["one"]}), [to_targets, tasks.preprocessors.tokenize])
    [result] = cache_tasks("sides", tmp_path / "caches", options=ONE)
    directory = Path(result.path)
    names = ["COMPLETED", "info.train.json", "stats.train.json", "train.tfrecord-00000-of-00001"]
    assert sorted(path.name for path in directory.iterdir() if path.is_file() and path.name[0] not in ".m") == names
    shard = directory / names[3]
    linked = shard.stat().st_ino
    for name in names[:3]:
        (directory / name).unlink()

    assert [result.outcome for result in cache_tasks("sides", tmp_path / "caches", options=ONE)] == ["up to date"]

    assert all((directory / name).exists() for name in names)
    assert shard.stat().st_ino == linked
    assert json.loads((directory / "stats.train.json").read_text())["targets_tokens"] == 3


def test_a_changed_input_changes_its_shards_and_old_files_of_the_other_layout_go(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["one"], "b.txt": ["two"]})
    task = register("inputs", source, [to_targets], features=TEXT)
    cache_tasks("inputs", tmp_path / "caches", options=ONE)
    (tmp_path / "c.txt").write_text("three\n")

    [result] = cache_tasks("inputs", tmp_path / "caches", options=ONE)

    assert result.result is not None and result.result.reused_shards == 2
    tasks.set_global_cache_dirs([str(tmp_path / "caches")])
    assert [example["targets"] for example in task.examples(use_cached=True)] == [b"one", b"two", b"three"]
    found = sorted(path.name for path in Path(result.path).glob("*.tfrecord-*"))
    assert found == [f"train.tfrecord-{i:05}-of-00003" for i in range(3)]


def test_a_changed_task_is_refused_with_the_reason_until_it_is_overwritten(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["one"]})
    register("changing", source, [to_targets], features=TEXT)
    register("steady", source, [to_targets])
    cache_tasks(".*ing|steady", tmp_path / "caches", options=ONE)
    task = register("changing", source, [to_targets, words], features=TEXT)
    path = str(tmp_path / "caches/changing")
    first = Cache.open(path).manifest

    with pytest.raises(
        BuildError,
        match=r"1 of 2 tasks were not cached:\nchanging: failed: the cache .*caches/changing was built for another "
        r"version of task 'changing'; what changed: .*step 1: words: added.*--overwrite .* stays until "
        r"the new one is complete",
    ) as caught:
        cache_tasks(".*ing|steady", tmp_path / "caches", options=ONE)
    assert {each.task: each.outcome for each in caught.value.results} == {"changing": "failed", "steady": "up to date"}
    assert isinstance(caught.value.__cause__, StaleCacheError)
    assert Cache.open(path).manifest == first
    explained = explain_plan(make_plan(task_declaration("changing"), path)).lines()
    assert "MISS step 1: words: added" in explained

    [result] = cache_tasks("changing", tmp_path / "caches", options=ONE, overwrite=True)
    assert result.outcome == "built" and Cache.open(path).manifest.snapshot != first.snapshot
    tasks.set_global_cache_dirs([str(tmp_path / "caches")])
    assert told(task.examples(use_cached=True)) == told(task.examples())
    assert (Path(path) / "snapshots" / first.snapshot / "manifest.json").exists()


def what_changes_unseen(split, shuffle_files):
    return [{"targets": f"call {os.environ['UNSEEN']}"}]


def test_overwriting_builds_again_what_has_changed_unseen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("UNSEEN", "1")
    task = register("unseen", tasks.FunctionDataSource(what_changes_unseen, ["train"]), [words], features=TEXT)
    cache_tasks("unseen", tmp_path, options=ONE)
    monkeypatch.setenv("UNSEEN", "2")
    tasks.set_global_cache_dirs([str(tmp_path)])

    def cached() -> list[bytes]:
        return [example["targets"] for example in task.examples(use_cached=True)]

    assert [each.outcome for each in cache_tasks("unseen", tmp_path, options=ONE)] == ["up to date"]
    assert cached() == [b"call", b"1"]
    assert [each.outcome for each in cache_tasks("unseen", tmp_path, options=ONE, overwrite=True)] == ["built"]
    assert cached() == [b"call", b"2"]
    assert [each.outcome for each in cache_tasks("unseen", tmp_path, options=ONE)] == ["up to date"]
    assert Cache.open(tmp_path / "unseen").manifest.fingerprints["generation"] == "1"


@tasks.python_map
def fails_on_x(example):
    if example["targets"] == b"x":
        raise ValueError("an x")
    return example


def fails_on_x_in_tensorflow(dataset):
    return dataset.map(
        lambda example: {"targets": tf.debugging.check_numerics(1.0 / float(example["targets"] != b"x"), "an x")}
    )


def test_failing_examples_follow_on_error_in_python_steps(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["x", "one", "x", "two"]})
    register("failing", source, [to_targets, fails_on_x])
    with pytest.raises(
        BuildError, match=r"stage 'step 1: fails_on_x' failed on record 'train/a.txt@0': ValueError: an x"
    ):
        cache_tasks("failing", tmp_path / "caches", options=ONE)

    [result] = cache_tasks("failing", tmp_path / "caches", options=ONE, on_error="dead_letter", max_bad=2)

    assert result.result is not None and (result.result.account.written, result.result.account.dead) == (2, 2)
    letters = list(Cache.open(result.path).dead_letters())
    assert [(each.record, each.source, each.position, each.stage, each.message) for each in letters] == [
        (b"x", "train/a.txt", 0, "step 1: fails_on_x", "an x"),
        (b"x", "train/a.txt", 2, "step 1: fails_on_x", "an x"),
    ]
    with pytest.raises(BuildError, match="2 records failed, and max_bad allows 1"):
        cache_tasks("failing", tmp_path / "others", options=ONE, on_error="drop", max_bad=1)


def test_a_failing_dataset_function_ends_the_build_whatever_is_allowed(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["one", "x", "two"]})
    register("streaming", source, [to_targets, fails_on_x_in_tensorflow])

    with pytest.raises(
        BuildError,
        match=r"(?s)reading 'train/a.txt' failed after 1 examples: .*an x.*on_error does not help here",
    ):
        cache_tasks("streaming", tmp_path / "caches", options=ONE, on_error="drop")


def test_typed_pipelines_tell_what_they_count_and_drop(tmp_path: Path) -> None:
    register("typed", lines_source(tmp_path, {"a.txt": ["x", "one", "two"]}), [to_targets, Repeat()])

    [result] = cache_tasks("typed", tmp_path / "caches", options=ONE)

    assert result.result is not None
    unit = result.result.account.units["step 1: Repeat"]
    assert unit.dropped == {"only_x": 1}
    assert [str(each) for each in unit.statistics.values()] == ["Repeat_seen: 2"]


def test_tokens_leave_eos_and_padding_out_and_characters_are_code_points(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["é", "ab"], "b.txt": ["c" * 50]})
    steps = [to_targets, tasks.preprocessors.tokenize, tasks.preprocessors.append_eos]
    task = register("counted", source, steps)
    without = register("counted_decoded", source, [to_targets, tasks.preprocessors.tokenize, drop_text])

    cache_tasks("counted.*", tmp_path / "caches", options=ONE, enable_char_counts=True)
    tasks.set_global_cache_dirs([str(tmp_path / "caches")])

    expected = {"examples": 3, "targets_chars": 53, "targets_max_tokens": 50, "targets_tokens": 54}
    assert task.get_cached_stats() == expected
    assert without.get_cached_stats() == expected
    assert tasks.mixing_rate_num_characters(task, char_count_name="targets_chars") == 53


@tasks.python_map
def drop_text(example):
    return {"targets": example["targets"]}


@given(st.lists(st.lists(st.integers(0, 5)), min_size=1), st.sets(st.integers(0, 5)))
def test_counting_tokens(arrays: list[list[int]], special: set[int]) -> None:
    counted = count_tokens([np.array(each, np.int32) for each in arrays], special)
    assert counted.tolist() == [sum(i not in special for i in each) for each in arrays]


@given(st.lists(st.text()))
def test_counting_characters(texts: list[str]) -> None:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert count_chars(encoded) == sum(map(len, texts))


def test_raw_examples_as_bytes() -> None:
    assert raw_bytes(b"a line") == b"a line"
    example = {"id": 3, "text": "é", "scores": np.array([0.5, 1.0]), "texts": np.array([b"a", b"b"], object)}
    back = example_of(raw_bytes(example))
    assert back["id"].tolist() == [3] and back["text"] == "é".encode() and back["texts"] == [b"a", b"b"]
    assert back["scores"].tolist() == [0.5, 1.0] and back["scores"].dtype == np.float32
    assert example_of(raw_bytes(np.array([1, 2]))).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([2**63 + 1, 1], np.uint64), [b"9223372036854775809", b"1"]),
        ([2**63 + 1, 1], [b"9223372036854775809", b"1"]),
        (2**64, b"18446744073709551616"),
        (1e300, b"1e+300"),
        (10**5000, hex(10**5000).encode()),
    ],
    ids=["uint64", "list", "beyond uint64", "beyond float32", "huge"],
)
def test_numbers_that_a_dead_letter_cannot_keep_as_such_are_text(value: Any, text: Any) -> None:
    assert example_of(raw_bytes({"x": value}))["x"] == text


def test_a_cache_of_seqio_or_one_that_lies_elsewhere_is_not_built_again(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["one"]})
    register("elsewhere", source, [to_targets])
    (tmp_path / "caches/elsewhere").mkdir(parents=True)
    (tmp_path / "caches/elsewhere/COMPLETED").write_text("")

    [result] = cache_tasks("elsewhere", tmp_path / "caches", options=ONE)
    assert result.outcome == "skipped" and "holds a cache that SeqIO built; --overwrite" in str(result)
    [result] = cache_tasks("elsewhere", tmp_path / "caches", options=ONE, overwrite=True)
    assert result.outcome == "built"
    tasks.set_global_cache_dirs([str(tmp_path / "caches")])
    [result] = cache_tasks("elsewhere", tmp_path / "more", options=ONE)
    assert result.outcome == "skipped" and "--ignore-other-caches" in str(result)
    [result] = cache_tasks("elsewhere", tmp_path / "more", options=ONE, ignore_other_caches=True)
    assert result.outcome == "built"


def test_errors_say_what_cannot_be_built(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["one"]})
    register("known", source, [to_targets])
    with pytest.raises(DeclarationError, match=r"no task matches 'know'. Did you mean 'known'"):
        cache_tasks("know", tmp_path, options=ONE)
    with pytest.raises(DeclarationError, match=r"names of tasks are regular expressions, got \['\('\]"):
        cache_tasks("(", tmp_path, options=ONE)
    with pytest.raises(DeclarationError, match="worker processes must import the modules that register the tasks"):
        cache_tasks("known", tmp_path, options=LocalOptions(workers=2))
    with pytest.raises(DeclarationError, match="cannot import 'no.such.module': there is no module 'no'"):
        cache_tasks("known", tmp_path, modules_to_import=["no.such.module"])
    with pytest.raises(UnknownNameError, match="Provider name not registered: unknown"):
        task_declaration("unknown")
    register("nothing", tasks.TextLineDataSource({"train": str(tmp_path / "nothing*")}), [to_targets])
    with pytest.raises(SourceError, match=r"No file is found for the file pattern: .*nothing\*.* split 'train'"):
        make_plan(task_declaration("nothing"), tmp_path / "plan")
    register("shardless", Shardless(lambda split, shuffle_files: [], ["train"]), [to_targets])
    with pytest.raises(SourceError, match="No shards found for task 'shardless', split 'train'"):
        make_plan(task_declaration("shardless"), tmp_path / "plan")


def test_an_input_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    source = lines_source(tmp_path, {"a.txt": ["one"]})
    register("moving", source, [to_targets, tasks.python_map(lambda example: example)])
    declaration = task_declaration("moving")
    plan = make_plan(declaration, tmp_path / "cache")
    (tmp_path / "a.txt").write_text("two\n")

    with pytest.raises(SourceError, match="input train/a.txt changed after it was planned; plan again"):
        list(declaration.source.read(plan.tasks[0].shard))


def test_steps_run_once_for_each_example(tmp_path: Path) -> None:
    """Steps run through the engine as often as there are examples: once each, but for the first look at a split."""
    calls: list[bytes] = []

    def count(example):
        calls.append(example["targets"])
        return example

    register(
        "once", lines_source(tmp_path, {"a.txt": [f"{i}" for i in range(600)]}), [to_targets, tasks.python_map(count)]
    )
    cache_tasks("once", tmp_path / "caches", options=ONE)

    assert len(calls) == 600 + 256


def test_direct_runner_from_python(tmp_path: Path) -> None:
    task = register("beamed", lines_source(tmp_path, {"a.txt": ["one", "two"]}), [to_targets, doubled], features=TEXT)
    cache_tasks("beamed", tmp_path / "caches", options=BeamOptions())
    tasks.set_global_cache_dirs([str(tmp_path / "caches")])
    assert [each["targets"] for each in task.examples(use_cached=True)] == [b"oneone", b"twotwo"]
