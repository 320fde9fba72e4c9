"""The forecast of a build, against the build itself: corpora whose records differ in size by orders of magnitude."""

from __future__ import annotations

import dataclasses
import gzip
import math
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_declarations import CountLetters, SplitWords

from beam_pipes.building import Declaration
from beam_pipes.building.forecast import _TIME, Estimate, Forecast, _in_units, forecast_build, require_room
from beam_pipes.building.plan import BuildPlan, make_plan
from beam_pipes.cache import FeatureSpec
from beam_pipes.errors import CacheWriteError, StageError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import Memory, TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition

SHARD_BYTES = 16 << 10


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Truncate(Pipeline):
    """Bytes of a line, at most 2,000, and nothing for short ones: output that is not proportional to input."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"bytes": np.frombuffer(line.encode()[:2000], np.uint8)}] if len(line) > 20 else self.drop("short")


def _lines(rng: random.Random, sizes: list[int]) -> str:
    return "".join("".join(rng.choices("abcdefgh ", k=max(1, size))) + "\n" for size in sizes)


def _lognormal(rng: random.Random, count: int, sigma: float = 1.5) -> list[int]:
    return [min(20_000, int(rng.lognormvariate(4, sigma))) for _ in range(count)]


def lognormal(rng: random.Random, root: Path) -> None:
    (root / "a.txt").write_text(_lines(rng, _lognormal(rng, 6000)))


def pareto_over_many_files(rng: random.Random, root: Path) -> None:
    for number in range(60):
        sizes = [min(8_000, int(10 * rng.paretovariate(1.1))) for _ in range(250)]
        (root / f"{number:03d}.txt").write_text(_lines(rng, sizes))


def growing_towards_the_end(rng: random.Random, root: Path) -> None:
    (root / "a.txt").write_text(_lines(rng, sorted(_lognormal(rng, 6000))))


def two_kinds_of_files(rng: random.Random, root: Path) -> None:
    for number in range(20):
        (root / f"chat-{number:02d}.txt").write_text(_lines(rng, [rng.randint(1, 30) for _ in range(1200)]))
        (root / f"novel-{number:02d}.txt").write_text(_lines(rng, [rng.randint(2000, 9000) for _ in range(8)]))


def compressed_files_of_all_sizes(rng: random.Random, root: Path) -> None:
    for number in range(40):
        text = _lines(rng, _lognormal(rng, int(8 * 1.15**number)))
        (root / f"{number:02d}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


CORPORA: list[Callable[[random.Random, Path], None]] = [
    lognormal,
    pareto_over_many_files,
    growing_towards_the_end,
    two_kinds_of_files,
    compressed_files_of_all_sizes,
]


def _declaration(root: Path) -> Declaration:
    truncate, partition = Truncate(), RandomPartition(dict, ["train", "eval"], [0.8])
    return Declaration(
        name="skewed",
        source=TextLines(str(root), pattern="*.txt*"),
        pipeline=DAGPipeline({truncate: Input(str), partition: truncate, Output(): partition}),
        features={split: {"bytes": FeatureSpec("uint8", shape=(None,))} for split in ("train", "eval")},
        target_shard_bytes=SHARD_BYTES,
    )


def _bytes_built(plan: BuildPlan, split: str) -> int:
    files = Path(plan.header.directory).glob(f"skewed-{split}.tfrecord-*")
    return sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.__name__)
def test_the_forecast_of_bytes_is_within_15_percent(
    corpus: Callable[[random.Random, Path], None], tmp_path: Path
) -> None:
    (root := tmp_path / "input").mkdir()
    corpus(random.Random(corpus.__name__), root)
    declaration = _declaration(root)
    plan = make_plan(declaration, tmp_path / "cache")
    assert len(plan.tasks) >= 20

    forecast = forecast_build(plan, sample_bytes=plan.source.num_bytes // 3, sample_records=4000)

    account = build(declaration, tmp_path / "cache", options=LocalOptions(workers=1)).account
    assert forecast.sampled_shards < len(plan.tasks)
    assert forecast.sampled_records < account.read
    built = {split: _bytes_built(plan, split) for split in declaration.splits}
    total = forecast.total_output_bytes
    assert total.value == pytest.approx(sum(built.values()), rel=0.15)
    assert forecast.output_bytes["train"].value == pytest.approx(built["train"], rel=0.15)
    assert forecast.records_read.value == pytest.approx(account.read, rel=0.25)
    assert 0 < total.error < 0.6 * total.value, "the error bar is there, and tells something"
    assert forecast.shards == dict.fromkeys(built, len(plan.tasks))
    assert sum(each.value for each in forecast.output_bytes.values()) == pytest.approx(total.value)


def test_intervals_hold_the_truth_about_as_often_as_they_say(tmp_path: Path) -> None:
    (root := tmp_path / "input").mkdir()
    pareto_over_many_files(random.Random(1), root)
    declaration = _declaration(root)
    plan = make_plan(declaration, tmp_path / "cache")
    sixth = plan.source.num_bytes // 6
    runs = [forecast_build(plan, sample_bytes=sixth, sample_records=1000, seed=seed) for seed in range(24)]
    account = build(declaration, tmp_path / "cache", options=LocalOptions(workers=1)).account

    def held(truth: float, estimates: list[Estimate]) -> int:
        return sum(abs(each.value - truth) <= each.error for each in estimates)

    true_bytes = sum(_bytes_built(plan, split) for split in declaration.splits)
    assert held(true_bytes, [run.total_output_bytes for run in runs]) >= 19
    assert held(account.read, [run.records_read for run in runs]) >= 19
    assert len({run.total_output_bytes.value for run in runs}) > 12, "other seeds, other samples"


def test_a_sample_of_everything_is_exact(tmp_path: Path) -> None:
    (root := tmp_path / "input").mkdir()
    (root / "a.txt").write_text(_lines(random.Random(0), [100] * 300))
    declaration = _declaration(root)
    plan = make_plan(declaration, tmp_path / "cache")

    forecast = forecast_build(plan)

    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    headers = sum(
        path.stat().st_size - _index_rows(path) for path in Path(plan.header.directory).glob("*.tfrecord-*.index")
    )
    assert (forecast.records_read.value, forecast.records_read.error) == (300, 0)
    assert sum(each.value for each in forecast.records.values()) == 300
    built = sum(_bytes_built(plan, split) for split in declaration.splits)
    assert (forecast.total_output_bytes.value, forecast.total_output_bytes.error) == (built - headers, 0)
    assert forecast_build(make_plan(declaration, tmp_path / "cache")).worker_secs.value == 0, "nothing is left to do"


def _index_rows(path: Path) -> int:
    from beam_pipes.format.index import column_dtype, decode_index

    columns = decode_index(path.read_bytes(), path=str(path))
    return sum(len(values) * column_dtype(name).itemsize for name, values in columns.items())


def test_the_same_plan_and_seed_take_the_same_sample(tmp_path: Path) -> None:
    (root := tmp_path / "input").mkdir()
    lognormal(random.Random(0), root)
    plan = make_plan(_declaration(root), tmp_path / "cache")

    first, second = (forecast_build(plan, sample_bytes=50_000, sample_records=500).to_json() for _ in range(2))

    for clocked in ("worker_hours", "cpu_hours"):
        del first[clocked], second[clocked]
    assert first == second
    assert not (tmp_path / "cache").exists()


def test_a_record_of_the_sample_that_fails_is_named(tmp_path: Path) -> None:
    split, count = SplitWords(), CountLetters()
    declaration = Declaration(
        name="words",
        source=Memory(["to be", "boom now"]),
        pipeline=DAGPipeline({split: Input(str), count: split, Output("train"): count}),
    )
    plan = make_plan(dataclasses.replace(declaration, on_error="drop"), tmp_path / "cache")
    assert forecast_build(plan).records["train"].value == 1

    with pytest.raises(StageError, match="cannot split 'boom now'"):
        forecast_build(dataclasses.replace(plan, declaration=declaration))


def test_a_disk_without_room_for_the_forecast_is_a_fault(tmp_path: Path) -> None:
    (root := tmp_path / "input").mkdir()
    (root / "a.txt").write_text(_lines(random.Random(0), [100] * 300))
    plan = make_plan(_declaration(root), tmp_path / "cache")
    forecast = forecast_build(plan)
    require_room(plan, forecast)
    vast = dataclasses.replace(forecast, total_output_bytes=Estimate(value=1e18, error=1e17))

    with pytest.raises(CacheWriteError, match=r"will take 1,000,000 TB ± 10%, but there are [\d,.]+ GB free"):
        require_room(plan, vast)


def test_what_it_says_to_people(tmp_path: Path) -> None:
    forecast = Forecast(
        records_read=Estimate(value=1234567, error=12345),
        records={"train": Estimate(value=1000, error=0)},
        output_bytes={"train": Estimate(value=2.5e9, error=0.25e9)},
        total_output_bytes=Estimate(value=2.5e9, error=0.25e9),
        shards={"train": 64},
        worker_secs=Estimate(value=7200, error=720),
        cpu_secs=Estimate(value=3600, error=360),
        sampled_shards=8,
        sampled_records=16384,
    )

    assert forecast.lines() == [
        "forecast from 16,384 records of 8 source shards (± at 95 %): 1,234,567 ± 1% records read",
        "  train: 1,000 ± 0% records, 2.50 GB ± 10% in 64 shards",
        "  remaining: 2.00 hours ± 10% of CPU on one core like this one",
    ]
    assert math.isclose(forecast.to_json()["worker_hours"]["value"], 2)
    assert math.isclose(forecast.to_json()["cpu_hours"]["value"], 1)


@pytest.mark.parametrize(
    ("secs", "words"),
    [
        (0.0358, "35.8 ms"),
        (0.0004, "0.4 ms"),
        (2.5, "2.50 s"),
        (90, "1.50 minutes"),
        (5399, "90.0 minutes"),
        (36_000, "10.0 hours"),
        (1e6, "11.6 days"),
        (0, "0.0 ms"),
    ],
)
def test_times_are_shown_in_the_unit_that_people_would_choose(secs: float, words: str) -> None:
    assert _in_units(Estimate(value=secs, error=0), _TIME).removesuffix(" ± 0%") == words


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Waits(Pipeline):
    """A line, after as many seconds as a service would take."""

    input_type = str
    output_type = dict
    secs: float

    def transform(self, line: str) -> list[dict[str, Any]]:
        time.sleep(self.secs)
        return [{"text": line}]


def test_a_slow_stage_is_tried_on_few_records_and_what_it_waits_is_reported(tmp_path: Path) -> None:
    (root := tmp_path / "input").mkdir()
    for number in range(6):
        (root / f"{number}.txt").write_text(_lines(random.Random(number), [60] * 500))
    declaration = Declaration(
        name="slow",
        source=TextLines(str(root), pattern="*.txt"),
        pipeline=Waits(secs=0.02),
        features={"text": FeatureSpec("str")},
        target_shard_bytes=SHARD_BYTES,
    )
    plan = make_plan(declaration, tmp_path / "cache")
    heard: list[tuple[int, int, int]] = []

    forecast = forecast_build(plan, sample_secs=3, report=lambda *far: heard.append(far))

    assert forecast.records_read.value == pytest.approx(3000, rel=0.05)
    # A machine with other work waits longer than it is told to, and never shorter.
    assert forecast.worker_secs.value > 3000 * 0.02 * 0.9 and forecast.worker_secs.error > 0
    assert 12 <= forecast.sampled_records < 600  # a build takes 60 s on one worker: it is no second build
    assert heard[-1] == (forecast.sampled_shards, len(plan.tasks), forecast.sampled_records)


class Uncopied:
    """A value of somebody's own that holds what cannot be copied."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lock = threading.Lock()


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TextOf(Pipeline):
    """The text of such a value."""

    input_type = Uncopied
    output_type = dict

    def transform(self, value: Uncopied) -> list[dict[str, Any]]:
        return [{"text": value.text}]


def test_values_that_cannot_be_copied_are_forecast_too(tmp_path: Path) -> None:
    declaration = Declaration(
        name="own",
        source=Memory([Uncopied(str(number)) for number in range(30)], digest="1"),
        pipeline=TextOf(),
        features={"text": FeatureSpec("str")},
    )
    assert forecast_build(make_plan(declaration, tmp_path / "cache")).records["train"].value == 30
