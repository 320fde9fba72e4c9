"""`seqio_cache_tasks` with its flags, the files it leaves for SeqIO's hosts, and what else is ours alone to test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import beam_pipes.seqio as seqio
from beam_pipes.errors import (
    DeclarationError,
    InputNotFoundError,
    MisplacedStepError,
    NotANameError,
    TaskError,
    TaskNotCachedError,
    UnsupportedFormatError,
)
from beam_pipes.runners import LocalOptions, cache_tasks
from beam_pipes.seqio.scripts import cache_tasks_main


def lines(split: str, shuffle_files: bool) -> list[dict[str, str]]:
    return [{"targets": f"{split} {number}"} for number in range(10 if split == "train" else 2)]


@pytest.fixture
def tasks() -> Iterator[None]:
    dirs = seqio.get_global_cache_dirs()
    for name in ("main_one", "main_two"):
        seqio.TaskRegistry.add(
            name,
            source=seqio.FunctionDataSource(lines, splits=["train", "validation"]),
            preprocessors=[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder()],
            output_features={"targets": seqio.Feature(seqio.ByteVocabulary())},
        )
    yield
    for name in ("main_one", "main_two"):
        seqio.TaskRegistry.remove(name)
    seqio.set_global_cache_dirs(dirs)


def counts(directory: Path, split: str) -> list[int]:
    from beam_pipes.format.framing import read_records

    return [len(list(read_records(str(path)))) for path in sorted(directory.glob(f"{split}.tfrecord-*"))]


def test_the_flags_are_those_of_seqio(tasks: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache_tasks_main.FLAGS(
        ["main", "--tasks=main_one,main_t.*", "--excluded_tasks=main_two", f"--output_cache_dir={tmp_path}"]
        + ["--min_shards=4", "--max_shards=0", "--pipeline_options=--runner=DirectRunner,--direct_num_workers=0"]
    )

    cache_tasks_main.main([])

    assert f"main_one: built in {tmp_path}/main_one" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == ["main_one"]
    # Four files of nearly one size, so that two or four of SeqIO's hosts have equal shares.
    assert counts(tmp_path / "main_one", "train") == [2, 3, 2, 3]
    assert counts(tmp_path / "main_one", "validation") == [0, 1, 0, 1]
    assert json.loads((tmp_path / "main_one" / "info.train.json").read_text())["num_shards"] == 4
    task = seqio.TaskRegistry.get("main_one")
    read = [bytes(each["targets_pretokenized"]).decode() for each in task.examples(split="train", use_cached=True)]
    assert sorted(read) == sorted(each["targets"] for each in lines("train", False))


def test_options_that_cannot_be_are_refused(tmp_path: Path) -> None:
    flags = cache_tasks_main.FLAGS
    flags(["main", "--tasks=main_one"])
    flags.output_cache_dir = None
    with pytest.raises(DeclarationError, match="name the directory of the caches: --output_cache_dir=DIR"):
        cache_tasks_main.main([])
    flags(["main", f"--output_cache_dir={tmp_path}", "--output_format=arrayrecord"])
    with pytest.raises(UnsupportedFormatError, match="tasks are cached as tfrecord, got output_format='arrayrecord'"):
        cache_tasks_main.main([])
    flags(["main", "--output_format=tfrecord", "--pipeline_options=--runner=SparkRunner"])
    with pytest.raises(DeclarationError, match="--runner should be one of DirectRunner, Dataflow"):
        cache_tasks_main.main([])


def test_files_of_seqio_are_as_many_as_asked_for(tasks: None, tmp_path: Path) -> None:
    def build(**options: int) -> list[int]:
        cache_tasks("main_one", tmp_path, options=LocalOptions(workers=1), **options)
        return counts(tmp_path / "main_one", "train")

    assert build() == [10]
    assert build(min_shards=3) == [3, 3, 4]
    assert build(min_shards=3, max_shards=2) == [5, 5]
    assert build(min_shards=1) == [10]
    with pytest.raises(TaskError, match="min_shards and max_shards should be numbers of files, 1 or more, got min_sh"):
        build(min_shards=0)


def test_errors_are_those_that_programs_catch(tasks: None) -> None:
    task = seqio.TaskRegistry.get("main_one")
    with pytest.raises(AssertionError, match="'main_one' does not exist in any of the task cache directories") as told:
        task.assert_cached()
    assert isinstance(told.value, TaskNotCachedError)
    with pytest.raises(RuntimeError, match="`CacheDatasetPlaceholder` should never be called") as called:
        seqio.CacheDatasetPlaceholder()([])
    assert isinstance(called.value, MisplacedStepError)
    with pytest.raises(AssertionError, match="Got: 7, where the name of a task or mixture should be") as named:
        seqio.get_mixture_or_task(7)
    assert isinstance(named.value, NotANameError)
    assert issubclass(InputNotFoundError, FileNotFoundError)


def test_importing_the_names_loads_neither_beam_nor_tensorflow() -> None:
    code = (
        "import sys, beam_pipes.seqio as s; s.utils; s.scripts; print({'tensorflow', 'apache_beam'} & {*sys.modules})"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_shards_of_tfds_are_read_one_by_one(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from seqio_programs.sources import RefLetters

    RefLetters(data_dir=tmp_path).download_and_prepare()
    loader = seqio.utils.LazyTfdsLoader("ref_letters:1.0.0", data_dir=str(tmp_path))

    (shard,) = loader.files("train")
    assert sorted(int(example["number"]) for example in loader.load_shard(shard)) == list(range(6))
    read_only = seqio.TfdsDataSource("ref_letters:1.0.0", tfds_data_dir=str(tmp_path / "none"), read_only=True)
    assert read_only.splits == ()
    assert seqio.utils.LazyTfdsLoader("no_such_data_set:1.0.0").builder_cls() is None
    with pytest.raises(TaskError, match="`builder_kwargs` should be empty when `dataset` value is not present"):
        seqio.utils.LazyTfdsLoader(data_dir=str(tmp_path), builder_kwargs={"a": 1}).builder  # noqa: B018


def test_metrics_are_updated_batch_by_batch() -> None:
    import numpy as np

    def exact(targets, predictions):
        return {"exact": sum(map(str.__eq__, targets, predictions)) / len(targets)}

    byte = seqio.ByteVocabulary()
    task = seqio.Task(
        "metrics",
        source=seqio.FunctionDataSource(lines, splits=["train"]),
        output_features={"targets": seqio.Feature(byte)},
        metric_fns=[exact],
    )
    kind = seqio.metrics.ModelOutputType.PREDICTION
    manager = seqio.evaluation.MetricManager([task])
    inputs = [{"targets": np.array(byte.encode(text))} for text in "abcd"]
    manager.initialize_metrics("metrics", kind)
    for start in (0, 2):
        outputs = np.array([byte.encode(text) for text in "abxd"[start : start + 2]])
        places = np.array([[0, start], [0, start + 1]])
        batch = manager.from_model_output(
            "metrics", kind, inputs[start : start + 2], outputs, task.output_features, indices_2d=places
        )
        manager.merge(batch, "metrics", kind)
    manager.host_gather_and_reduce("metrics", kind)

    (metric,) = manager.output_metrics_collections["metrics"][kind].values()
    assert metric.actual_compute(inputs, task.output_features)[0] == {"exact": 0.75}
    assert manager.metric_registry["metrics"][kind].keys() == {"exact_0"}
    twice = seqio.metrics.CollectingMetric(values={"a": np.array([[1, 2], [3, 4]])}).reduce()
    assert twice.values["a"].tolist() == [1, 2, 3, 4]
