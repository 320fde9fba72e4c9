"""Pipelines of Beam's own with `lower`, `WriteToCache` and `ReadFromCache`, on a Flink session cluster.

Their workers are those of a pool. What they write is compared with what Beam's in-process runner writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import portable_declarations as declared
import pytest
from beam_workers import beam_workers
from built_files import built_files
from flink_cluster import FlinkCluster

from beam_pipes.beam import ReadFromCache, WriteToCache, lower
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.runners import BeamOptions, FlinkOptions, LocalOptions, build
from beam_pipes.runners.beam_job import beam_pipeline

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

CLICKS = [(f"user{number % 30}", number) for number in range(400)]
HOMES = [(f"user{number}", "se" if number % 3 else "no") for number in range(30)]
FEATURES = {"user": FeatureSpec("str"), "clicks": FeatureSpec("int64", shape=(None,)), "country": FeatureSpec("str")}
WORDS = {"text": FeatureSpec("str"), "length": FeatureSpec("int64")}
FAILED = {"line": FeatureSpec("str"), "stage": FeatureSpec("str"), "error": FeatureSpec("str")}


@pytest.fixture(scope="module")
def on_flink(cluster: FlinkCluster, job_server: str) -> Iterator[FlinkOptions]:
    """Two slots of the cluster."""
    with beam_workers() as workers:
        yield FlinkOptions(
            job_endpoint=job_server,
            flink_master=cluster.rest,
            parallelism=2,
            environment_type="EXTERNAL",
            environment_config=workers.endpoint,
            job_name="collections",
        )


def run(options: BeamOptions, define: Callable[[Any], Any]) -> Any:
    with beam_pipeline(options) as (pipeline, _):
        define(pipeline)
        result = pipeline.run()
        result.wait_until_finish()
        return result


def joined(to: Path) -> Callable[[Any], Any]:
    """The five lines that docs/beam.md begins with."""

    def define(pipeline: Any) -> Any:
        pairs = pipeline | beam.Create(CLICKS)
        homes = pipeline | "Homes" >> beam.Create(HOMES)
        found = {"clicks": pairs, "homes": homes} | beam.CoGroupByKey()
        rows = found | beam.MapTuple(declared.clicks_of_user)
        return rows | WriteToCache(to, features=FEATURES, key="user", splits={"train": 0.8, "test": 0.2}, num_shards=3)

    return define


def test_a_join_ends_in_the_same_cache(on_flink: FlinkOptions, cluster: FlinkCluster, tmp_path: Path) -> None:
    run(BeamOptions(), joined(tmp_path / "direct"))

    run(on_flink, joined(tmp_path / "flink"))

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "direct")
    opened = Cache.open(tmp_path / "flink")
    assert {row["user"]: row["clicks"].tolist() for split in opened.splits for row in opened[split]} == {
        f"user{user}": list(range(user, 400, 30)) for user in range(30)
    }
    assert cluster.states("collections")[-1] == "FINISHED"


@pytest.mark.parametrize(
    "batch_records",
    [
        pytest.param(16, id="full_batches"),
        # A batch that never gets full leaves when its bundle ends, or never.
        pytest.param(100_000, id="batches_that_end_with_their_bundle"),
    ],
)
def test_batches_and_dead_letters_are_the_same(on_flink: FlinkOptions, tmp_path: Path, batch_records: int) -> None:
    lines = [f"some words of line {number}" if number % 10 else f"boom {number}" for number in range(500)]

    def lowered(to: Path) -> Callable[[Any], Any]:
        def define(pipeline: Any) -> None:
            stages = lower(declared.WordsOfLine(), on_error="dead_letter", batch_records=batch_records)
            words, failed = pipeline | beam.Create(lines) | beam.Reshuffle() | stages
            words | "Words" >> WriteToCache(to / "words", features=WORDS, num_shards=3)
            letters = failed | beam.Map(declared.letter_as_row)
            letters | "Letters" >> WriteToCache(to / "letters", features=FAILED, key="line", num_shards=2)

        return define

    run(BeamOptions(), lowered(tmp_path / "direct"))

    result = run(on_flink, lowered(tmp_path / "flink"))

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "direct")
    assert len(Cache.open(tmp_path / "flink" / "words")["train"]) == 450 * 5
    letters = Cache.open(tmp_path / "flink" / "letters")["train"]
    assert sorted(row["line"] for row in letters) == sorted(line for line in lines if line.startswith("boom"))
    assert {row["stage"] for row in letters} == {"WordsOfLine"}
    counters = result.metrics().query()["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    assert (found["WordsOfLine/inputs"], found["WordsOfLine/dead"], found["WordsOfLine/outputs"]) == (500, 50, 450 * 5)


def test_a_cache_is_read_and_ends_in_another_one(on_flink: FlinkOptions, tmp_path: Path) -> None:
    run(BeamOptions(), joined(tmp_path / "clicks"))

    def copied(to: Path) -> Callable[[Any], Any]:
        def define(pipeline: Any) -> None:
            rows = pipeline | ReadFromCache(tmp_path / "clicks", "train")
            rows | beam.Map(declared.without_arrays) | WriteToCache(to, features=FEATURES, key="user", num_shards=2)

        return define

    run(BeamOptions(), copied(tmp_path / "direct"))

    run(on_flink, copied(tmp_path / "flink"))

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "direct")
    assert len(Cache.open(tmp_path / "flink")["train"]) == len(Cache.open(tmp_path / "clicks")["train"])


def test_a_list_with_a_transform_is_built_the_same(
    on_flink: FlinkOptions, cluster: FlinkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by workers of a pool that know nothing of this process: the steps travel to them."""
    declared.write_clicks(tmp_path / "clicks.txt")
    monkeypatch.setenv(declared.CLICKS_VARIABLE, str(tmp_path / "clicks.txt"))
    build(declared.grouped(), tmp_path / "local", options=LocalOptions(workers=1))

    build(declared.grouped(), tmp_path / "flink", options=dataclasses.replace(on_flink, job_name=None))

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "local")
    assert Cache.open(tmp_path / "flink").manifest.accounting["dead"] == 3
    assert cluster.states("clicks-pipeline")[-1] == "FINISHED"
