"""Builds as Beam pipelines: the same bytes as the local runner's, whatever the runner does with bundles."""

from __future__ import annotations

import threading
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from built_files import built_files

from beam_pipes.beam.build_graph import build_graph, shard_batches, write_snapshot
from beam_pipes.beam.shards import ShardBatch
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.reading import read_batches
from beam_pipes.building.references import DeclarationHandle, load_declaration
from beam_pipes.cache import Cache
from beam_pipes.engine.account import Account
from beam_pipes.errors import StageError
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions

BUNDLE_BASED_RUNNER = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"


class _Labels(PipelineVisitor):  # type: ignore[misc]
    def __init__(self) -> None:
        self.labels: list[str] = []

    def visit_transform(self, transform: AppliedPTransform) -> None:
        self.labels.append(transform.full_label.split("/")[0])


REFERENCE = "sample_declarations:words"


@pytest.fixture
def expected(text_input: Path, tmp_path: Path) -> dict[str, bytes]:
    build(REFERENCE, tmp_path / "local", options=LocalOptions(workers=1))
    return built_files(tmp_path / "local")


@pytest.mark.parametrize(
    ("runner", "beam_args"),
    [
        pytest.param(IN_PROCESS_RUNNER, (), id="in_process"),
        pytest.param(
            IN_PROCESS_RUNNER,
            ("--direct_running_mode=multi_processing", "--direct_num_workers=2"),
            id="two_worker_processes",
        ),
        pytest.param(BUNDLE_BASED_RUNNER, (), id="bundle_based"),
    ],
)
def test_every_runner_writes_the_same_bytes(
    runner: str, beam_args: tuple[str, ...], expected: dict[str, bytes], tmp_path: Path
) -> None:
    build(REFERENCE, tmp_path / "beam", options=BeamOptions(runner=runner, beam_args=beam_args))

    assert built_files(tmp_path / "beam") == expected


def test_a_shard_whose_batches_are_torn_apart_is_put_together_in_order(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    """A shuffle of the user's own between the halves: batches of all shards arrive in any order and any bundle."""
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "torn")
    tasks = prepare(plan)
    handle = DeclarationHandle(plan.declaration, REFERENCE)

    with beam.Pipeline(runner=BUNDLE_BASED_RUNNER, options=PipelineOptions([])) as pipeline:
        batches = shard_batches(pipeline, handle, tasks, plan.header)
        shuffled = batches | "Key" >> beam.Map(lambda b: (b.sequence % 3, b)) | beam.Reshuffle() | beam.Values()
        write_snapshot(pipeline, shuffled, handle, plan.header)

    assert built_files(tmp_path / "torn") == expected


def test_the_graph_reads_like_the_declaration(text_input: Path, tmp_path: Path) -> None:
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "cache")
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    build_graph(pipeline, DeclarationHandle(plan.declaration, REFERENCE), plan.header, plan.tasks)

    visitor = _Labels()
    pipeline.visit(visitor)

    chain = ["Read source", "SplitWords", "CountLetters", "Initials", "RandomPartition", "Write shards", "Publish"]
    assert [label for label in dict.fromkeys(visitor.labels) if label in chain] == chain


def test_statistics_are_mirrored_to_beam_metrics(text_input: Path, tmp_path: Path) -> None:
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "cache")
    prepare(plan)
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    build_graph(pipeline, DeclarationHandle(plan.declaration, REFERENCE), plan.header, plan.tasks)

    result = pipeline.run()
    result.wait_until_finish()

    account = Account.from_json(Cache.open(plan.path).manifest.accounting)
    query = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("words"))
    counters = {metric.key.metric.name: metric.result for metric in query["counters"]}
    assert counters["SplitWords/inputs"] == account.units["SplitWords"].inputs
    assert counters["SplitWords/dropped/empty"] == account.units["SplitWords"].dropped["empty"]
    assert counters["Words_SplitWords_lines"] == account.units["SplitWords"].kept
    statistics = {statistic.name: statistic for statistic in account.statistics()}
    ranges = dict(statistics["Words_SplitWords_words"].ranges())  # type: ignore[attr-defined]
    assert counters["Words_SplitWords_words/[4,8)"] == ranges["[4,8)"] > 0
    shown = {label: counters.get(f"Words_SplitWords_words/{label}", 0) for label in ranges}
    assert shown == ranges
    assert query["distributions"] == []  # the values are gone: a mean would not be theirs


def test_the_direct_runner_of_the_command_line_builds_and_resumes(expected: dict[str, bytes], tmp_path: Path) -> None:
    first = build(REFERENCE, tmp_path / "cache", options=BeamOptions())
    second = build(REFERENCE, tmp_path / "cache", options=BeamOptions())

    assert (first.up_to_date, second.up_to_date) == (False, True)
    assert built_files(tmp_path / "cache") == expected


def test_an_error_in_a_stage_comes_out_as_ours(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("boom now\n")

    with pytest.raises(StageError, match="stage 'SplitWords' failed on record 'zzz.txt@0': ValueError: cannot split"):
        build(REFERENCE, tmp_path / "cache", options=BeamOptions())

    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_dead_letters_are_the_same_on_beam(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom here\nboom there\nfine\n")
    reference = "sample_declarations:words_with_dead_letters"
    build(reference, tmp_path / "local", options=LocalOptions(workers=2))

    build(reference, tmp_path / "beam", options=BeamOptions(runner=BUNDLE_BASED_RUNNER))

    assert len(list(Cache.open(tmp_path / "beam").dead_letters())) == 2
    assert built_files(tmp_path / "beam") == built_files(tmp_path / "local")
    assert Cache.open(tmp_path / "beam").manifest.id == Cache.open(tmp_path / "local").manifest.id


def test_batches_of_a_build_tell_their_size_without_being_pickled(text_input: Path, tmp_path: Path) -> None:
    declaration = load_declaration(REFERENCE)
    plan = make_plan(declaration, tmp_path / "cache")
    task = prepare(plan)[0]
    batch = next(read_batches(declaration, task.shard))
    coder = beam.coders.registry.get_coder(ShardBatch)
    lines = sum(len(line) for line in batch.records.values)
    size_of_end = coder.estimate_size(ShardBatch(task=task, sequence=0, batch=None))

    assert coder.estimate_size(ShardBatch(task=task, sequence=0, batch=batch)) == size_of_end + lines
    decoded = coder.decode(coder.encode(ShardBatch(task=task, sequence=3, batch=batch)))
    assert (decoded.sequence, decoded.batch.records.values) == (3, batch.records.values)
    batch.records.values.append(threading.Lock())
    with pytest.raises(TypeError, match="cannot pickle"):
        coder.encode(ShardBatch(task=task, sequence=0, batch=batch))
    assert coder.estimate_size(ShardBatch(task=task, sequence=0, batch=batch)) > size_of_end + lines
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    batches = shard_batches(pipeline, DeclarationHandle(declaration), plan.tasks, plan.header)
    assert batches.element_type is ShardBatch
