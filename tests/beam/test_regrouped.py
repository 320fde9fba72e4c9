"""Lists of stages with PTransforms in them, built on this machine: the cache of the pipeline that one would write."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import portable_declarations as declared
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from built_files import built_files
from running_jobs import beam_pipes, running_command
from tensorflow.train import Example
from typer.testing import CliRunner

from beam_pipes import build, declare
from beam_pipes.beam import ReadFromSource, WriteToCache, lower
from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.commands import app
from beam_pipes.errors import (
    DeclarationError,
    DuplicateNameException,
    InvalidDAGException,
    JobLostError,
    StageError,
    TooManyDeadLettersError,
    TypeMismatchException,
)
from beam_pipes.runners import BeamOptions, DataflowOptions, PrismOptions
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import LengthHistogram
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition, stage

REFERENCE = "portable_declarations:grouped"
FEATURES = declared.CLICK_FEATURES
SHARES = {"train": 0.8, "test": 0.2}


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clicks.txt"
    declared.write_clicks(path)
    monkeypatch.setenv(declared.CLICKS_VARIABLE, str(path))
    return path


@pytest.fixture
def good(tmp_path: Path) -> TextLines:
    path = tmp_path / "good.txt"
    path.write_text("".join(f"user{number % 10} {number}\n" for number in range(100)))
    return TextLines(path)


def of_good(source: TextLines, **options: Any) -> Declaration:
    steps = [declared.click, beam.GroupByKey(), declared.summarize]
    given = {"features": FEATURES, "key": "user", "num_shards": 2, **options}
    return declare("clicks", source, steps, **{name: value for name, value in given.items() if value is not ...})  # type: ignore[typeddict-item]


def rows_of(cache: Path) -> dict[str, list[int]]:
    opened = Cache.open(cache)
    return {row["user"]: row["counts"].tolist() for split in opened.splits for row in opened[split]}


TEN = {f"user{user}": list(range(user, 100, 10)) for user in range(10)}


def test_it_is_the_pipeline_that_one_would_write(good: TextLines, tmp_path: Path) -> None:
    with beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) as pipeline:
        (
            pipeline
            | ReadFromSource(good)
            | lower(declared.click)
            | beam.GroupByKey()
            | lower(declared.summarize)
            | WriteToCache(
                tmp_path / "written", name="clicks", features=FEATURES, key="user", splits=SHARES, num_shards=2
            )
        )

    result = build(of_good(good, splits=SHARES), to=tmp_path / "built", workers=1)

    assert built_files(tmp_path / "built") == built_files(tmp_path / "written")
    assert rows_of(tmp_path / "built") == TEN
    assert (result.account.read, result.num_shards, result.up_to_date, result.regrouped) == (10, 2, False, True)


def test_processes_and_the_direct_runner_give_the_same_bytes(clicks: Path, tmp_path: Path) -> None:
    result = build(REFERENCE, to=tmp_path / "one", workers=1)
    build(REFERENCE, to=tmp_path / "two", workers=2)
    build(declared.grouped(), to=tmp_path / "direct", options=BeamOptions())

    assert built_files(tmp_path / "one") == built_files(tmp_path / "two") == built_files(tmp_path / "direct")
    assert result.account.dead == 3 and len(rows_of(tmp_path / "one")) == 40


def test_failures_of_stages_are_kept_in_the_cache_and_counted(clicks: Path, tmp_path: Path) -> None:
    result = build(REFERENCE, to=tmp_path / "c", workers=1)

    letters = list(Cache.open(tmp_path / "c").dead_letters())
    assert {letter.stage for letter in letters} == {"click"} and {letter.error_type for letter in letters} == {
        "ValueError"
    }
    assert sorted(letter.record for letter in letters) == [b'"user27 none"', b'"user37 none"', b'"user7 none"']
    assert result.account.units["click"].dead == 3 and result.account.read == 43
    assert Cache.open(tmp_path / "c").verify().problems == ()

    with pytest.raises(TooManyDeadLettersError, match="3 records failed, and max_bad allows 2"):
        build(
            declare(
                "clicks",
                TextLines(clicks),
                [declared.click, beam.GroupByKey(), declared.summarize],
                features=FEATURES,
                key="user",
                on_error="dead_letter",
                max_bad=2,
            ),
            to=tmp_path / "d",
            workers=1,
        )


@pytest.mark.parametrize("workers", [1, 2])
def test_by_default_a_failure_ends_the_build_in_its_own_words(
    clicks: Path, tmp_path: Path, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StageError, match="stage 'click' failed on record .*user7 none.*: ValueError: invalid"):
        build(declared.grouped(on_error="fail"), to=tmp_path / "c", workers=workers)

    assert not (tmp_path / "c" / "manifest.json").exists()
    assert workers > 1 or "Traceback" not in capfd.readouterr().err  # a worker process of Beam's prints its own


def test_a_second_build_computes_again_and_changes_nothing(clicks: Path, tmp_path: Path) -> None:
    command = ["build", REFERENCE, "--to", str(tmp_path / "c"), "--workers", "1", "--no-report"]
    said = beam_pipes(*command)
    assert "43 elements collected, 40 written, 0 dropped, 3 dead letters; 3 shards;" in said
    before = built_files(tmp_path / "c")

    said = beam_pipes(*command)
    assert "is up to date" in said and "all records were computed again" in said
    assert "and are the same, so nothing was written." in said
    assert built_files(tmp_path / "c") == before


class _Totals(beam.PTransform):  # type: ignore[misc]
    """A transform of a user's, made of others."""

    def expand(self, pairs: Any) -> Any:
        return pairs | beam.GroupByKey() | beam.MapTuple(lambda user, numbers: (user, sum(numbers)))


@stage
def total(pair: tuple) -> dict[str, object]:
    return {"user": pair[0], "total": pair[1]}


TOTALS = {"user": FeatureSpec("str"), "total": FeatureSpec("int64")}


def totals_of(cache: Path) -> dict[str, int]:
    return {row["user"]: int(row["total"]) for row in Cache.open(cache)["train"]}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([declared.click, _Totals(), total], id="composite"),
        pytest.param(
            [beam.Reshuffle(), declared.click, beam.Reshuffle(), _Totals(), total], id="first_and_two_in_a_row"
        ),
        pytest.param(
            [declared.click, beam.GroupByKey(), beam.MapTuple(lambda user, of: {"user": user, "total": sum(of)})],
            id="last",
        ),
        pytest.param(
            [beam.Map(lambda line: declared.click(line)), _Totals(), beam.Map(lambda pair: total(pair))], id="only"
        ),
    ],
)
def test_transforms_stand_anywhere(good: TextLines, tmp_path: Path, steps: list[Any]) -> None:
    build("clicks", good, steps, features=TOTALS, key="user", num_shards=2, to=tmp_path / "c", workers=1)

    assert totals_of(tmp_path / "c") == {user: sum(numbers) for user, numbers in TEN.items()}


class _User(NamedTuple):
    user: str
    total: int


def test_rows_with_a_schema_and_messages_need_no_features(good: TextLines, tmp_path: Path) -> None:
    rows = beam.Map(lambda pair: _User(*pair)).with_output_types(_User)
    build("clicks", good, [declared.click, _Totals(), rows], key="user", to=tmp_path / "rows", workers=1)
    assert totals_of(tmp_path / "rows") == {user: sum(numbers) for user, numbers in TEN.items()}

    @stage
    def message(pair: tuple) -> Example:
        example = Example()
        example.features.feature["total"].int64_list.value.append(pair[1])
        return example

    build("clicks", good, [declared.click, _Totals(), message], key=None, to=tmp_path / "messages", workers=1)
    found = [each.features.feature["total"].int64_list.value[0] for each in Cache.open(tmp_path / "messages")["train"]]
    assert sorted(found) == sorted(map(sum, TEN.values()))


def test_a_function_may_choose_the_split(good: TextLines, tmp_path: Path) -> None:
    even = of_good(good, splits=["even", "odd"], split_by=lambda row: ("even", "odd")[int(row["user"][4:]) % 2])
    build(even, to=tmp_path / "c", workers=1)
    assert {int(row["user"][4:]) % 2 for row in Cache.open(tmp_path / "c")["odd"]} == {1}


SCRIPT = """
import sys
from pathlib import Path

import apache_beam as beam
from beam_pipes import Cache, build, stage
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines

Path("clicks.txt").write_text("ann 3\\nbob 1\\nann 5\\n")


@stage
def click(line: str) -> tuple:
    user, number = line.split()
    return user, int(number)


def total(user, numbers):
    return user, sum(numbers)


@stage
def row(pair: tuple) -> dict[str, object]:
    return {"user": pair[0], "total": pair[1]}


features = {"user": FeatureSpec("str"), "total": FeatureSpec("int64")}
steps = [click, beam.GroupByKey(), beam.MapTuple(total), row]
build("clicks", TextLines("clicks.txt"), steps, features=features, key="user", to="cache", workers=int(sys.argv[1]))
print(sorted((row["user"], int(row["total"])) for row in Cache.open("cache")["train"]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_without_a_guard_builds_elsewhere(tmp_path: Path, workers: int) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(
        [sys.executable, "job.py", str(workers)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[('ann', 8), ('bob', 1)]\n"


def test_a_build_that_is_killed_leaves_what_was_published(
    clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared.write_clicks(clicks, 200)
    build(REFERENCE, to=tmp_path / "c", workers=1)
    before, first = built_files(tmp_path / "c"), Cache.open(tmp_path / "c").manifest
    declared.write_clicks(clicks)
    started = tmp_path / "started"
    environment = {declared.PACE_VARIABLE: "0.1", declared.STARTED_VARIABLE: str(started)}
    with running_command("build", REFERENCE, "--to", str(tmp_path / "c"), "--workers", "1", **environment) as command:
        command.wait_for(started.exists, what="the job to run")
        assert command.process.poll() is None, command.said()
        os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait()
    assert Cache.open(tmp_path / "c").manifest.id == first.id
    assert {name: data for name, data in built_files(tmp_path / "c").items() if name in before} == before

    build(REFERENCE, to=tmp_path / "c", workers=1)
    build(REFERENCE, to=tmp_path / "new", workers=1)
    again, new = Cache.open(tmp_path / "c").manifest, Cache.open(tmp_path / "new").manifest
    assert again.id == new.id != first.id


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ...}, "so a key has to tell them apart: it gives their split, their shard and their id. Give key="),
        ({"key": "id"}, "key='id' is not a feature. There are: counts, user."),
        ({"num_shards": 0}, "num_shards should be an integer of at least 1, got 0."),
        ({"features": None}, "their features cannot be inferred before the job runs. Give features={name: FeatureSpec"),
        ({"splits": ["a", "b"]}, "Give shares, splits={'a': 0.5, 'b': 0.5}, or split_by=function."),
        ({"splits": "train"}, "splits should be name → share of the keys, or a list of names with split_by=function"),
        ({"on_error": "ignore"}, "on_error should be one of fail, drop, dead_letter, got 'ignore'"),
        (
            {"analyzers": [LengthHistogram("length")]},
            "analyzers needs records at their place in the source, and the PTransform",
        ),
        ({"record_timeout_secs": 1.0}, "Declare the stages that may hang as a cache of their own"),
        ({"record_memory_bytes": 1 << 20}, "Declare the stages that may grow as a cache of their own"),
        ({"fingerprints": {"a": "b"}}, "The snapshot is named by a digest of its records"),
    ],
)
def test_options_are_checked_where_it_is_declared(good: TextLines, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        of_good(good, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"key": "user"}, "key belongs to lists of stages with a PTransform"),
        ({"key": None}, "Leave key out: splits=RandomPartition"),
        ({"num_shards": 3}, "Leave num_shards out: target_shard_bytes says how large the files are."),
        ({"split_by": len}, "Leave split_by out: splits takes a stage with one output for each split."),
    ],
)
def test_options_of_a_key_are_refused_without_a_transform(good: TextLines, option: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare("clicks", good, [lambda line: {"text": line}], **option)
    assert words in str(caught.value)


@dataclasses.dataclass(frozen=True, eq=False)
class _Limited(Pipeline):
    input_type = str
    output_type = tuple
    record_timeout_secs: float = 1.0

    def transform(self, line: str) -> list[tuple[str, int]]:
        return [(line, 1)]


class _Pair(beam.PTransform):  # type: ignore[misc]
    def expand(self, lines: Any) -> Any:
        return lines | beam.Partition(lambda line, of: 0, 2)


@stage
def same(row: dict) -> dict[str, object]:
    return row


def test_steps_are_checked_where_it_is_declared(good: TextLines, tmp_path: Path) -> None:
    click, grouping, summarize = declared.click, beam.GroupByKey(), declared.summarize
    with pytest.raises(TypeMismatchException, match="stage 'summarize' takes tuple, but the source gives str"):
        of_steps(good, [summarize, grouping, summarize])
    with pytest.raises(DuplicateNameException, match=r"two stages are called 'click'(.|\n)*name='click_2'"):
        of_steps(good, [click, grouping, click, grouping, summarize])
    with pytest.raises(DeclarationError, match="stage '_Limited' sets record_timeout_secs, which needs a process of"):
        of_steps(good, [_Limited(), grouping, summarize])
    with pytest.raises(DeclarationError, match="has the outputs 'a', 'b', and after a PTransform the key or split_by"):
        of_steps(good, [click, grouping, summarize, RandomPartition(dict, ["a", "b"], [0.5, 0.5])])
    with pytest.raises(DeclarationError, match="which a cache cannot hold. End in a function that returns an example"):
        of_steps(good, [click, grouping, click])
    with pytest.raises(
        DeclarationError, match=r"A PTransform is an object: write GroupByKey\(\) in the list of stages"
    ):
        of_steps(good, [click, beam.GroupByKey, grouping, summarize])
    with pytest.raises(DeclarationError, match="there is a source for each split, and the PTransform 'GroupByKey' may"):
        declare("clicks", {"a": good, "b": good}, [click, grouping, summarize], features=FEATURES, key="user")
    with pytest.raises(TypeMismatchException, match="the collection is of str, but the pipeline takes dict"):
        build(of_steps(good, [beam.Map(str).with_output_types(str), same]), to=tmp_path / "c", workers=1)
    with pytest.raises(DeclarationError, match="the PTransform '_Pair' gives DoOutputsTuple, and a list of stages"):
        build(of_steps(good, [_Pair(), click, grouping, summarize]), to=tmp_path / "c", workers=1)


def of_steps(source: TextLines, steps: list[Any]) -> Declaration:
    return declare("clicks", source, steps, features=FEATURES, key="user")


def test_a_transform_elsewhere_is_refused_and_a_list_is_named(good: TextLines) -> None:
    grouping = beam.GroupByKey()
    words = r"declare\(name, source, \[stage, the PTransform, stage\], key=…\), see docs/beam.md"
    with pytest.raises(DeclarationError, match=words):
        declare("clicks", good, {"click": declared.click, "group": grouping})
    with pytest.raises(DeclarationError, match=words):
        Declaration(name="clicks", source=good, pipeline=grouping)
    with pytest.raises(InvalidDAGException, match=words):
        DAGPipeline({declared.click: Input(str), grouping: declared.click, Output("train"): grouping})


def _dataflow(**options: Any) -> DataflowOptions:
    bucket, image = "gs://bucket/temp", "gcr.io/my-project/image"
    return DataflowOptions(
        project="my-project", region="europe-west1", temp_location=bucket, sdk_container_image=image, **options
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"overwrite": True}, "so every build computes all records again: leave overwrite out."),
        ({"options": PrismOptions(attempts=2)}, "so no record of the job is kept. Leave detach and attempts out"),
        ({"saved_plan": object()}, "so a saved plan cannot be checked. Leave saved_plan out."),
        ({"options": _dataflow(template_location="gs://bucket/t")}, "its job is not written as a template."),
        ({"options": _dataflow()}, "which workers in the cloud cannot see. Build to gs://…."),
    ],
)
def test_what_only_other_builds_can_do_is_refused(good: TextLines, tmp_path: Path, given: Any, words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        build(of_good(good), to=tmp_path / "c", **given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        ["trace", "clicks.txt@0", REFERENCE],
        ["chaos", REFERENCE],
        ["doctor", REFERENCE],
        ["replay-dead", "c", REFERENCE],
        ["report", "c", "--declaration", REFERENCE],
    ],
    ids=lambda command: command[0],
)
def test_commands_that_need_a_place_in_the_source_refuse(
    clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    build(REFERENCE, to="c", workers=1)
    error = CliRunner().invoke(app, command).exception
    assert isinstance(error, DeclarationError)
    assert "has the PTransform 'GroupByKey' among its stages: its records have no place in the source" in str(error)
    assert "commands that read caches (inspect, who, dead, verify) show what it built" in str(error)


def test_a_plan_says_what_will_run(clicks: Path, tmp_path: Path) -> None:
    said = beam_pipes("plan", REFERENCE, "--to", str(tmp_path / "c"))
    assert "source shards → 3 shards for each split: train, test." in said
    assert "steps: source → click → GroupByKey → summarize → write" in said
    assert "One Beam pipeline computes all records, whatever is there already; a new snapshot is published." in said
    output = json.loads(beam_pipes("plan", REFERENCE, "--to", str(tmp_path / "c"), "--json"))
    assert (output["num_source_shards"], output["num_shards"]) == (4, 3)


@pytest.mark.parametrize("option", [["--save", "plan.json"], ["--explain"]], ids=lambda option: option[0])
def test_a_plan_cannot_be_kept_or_explained(clicks: Path, tmp_path: Path, option: list[str]) -> None:
    error = CliRunner().invoke(app, ["plan", REFERENCE, "--to", str(tmp_path / "c"), *option]).exception
    assert isinstance(error, DeclarationError)
    assert f"which shards change is known when its job has run. Leave {option[0]} out." in str(error)


@dataclasses.dataclass(frozen=True, eq=False)
class _Scaled(Pipeline):
    longest: Any
    input_type = str
    output_type = tuple

    def transform(self, line: str) -> list[tuple[str, int]]:
        return [(line, self.longest.value)]


def test_a_stage_with_the_result_of_an_analyzer_is_refused(good: TextLines) -> None:
    with pytest.raises(DeclarationError, match="stage '_Scaled' holds the result of an analyzer"):
        of_steps(good, [_Scaled(LengthHistogram("length").result), beam.GroupByKey(), declared.summarize])


def test_names_of_what_is_there_and_is_not_a_declaration(clicks: Path) -> None:
    with pytest.raises(DeclarationError, match="should be a Declaration, or a function that returns one, got str"):
        build("portable_declarations:PACE_VARIABLE", to="c")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_that_fails_is_named_and_no_lost_worker_is_blamed(good: TextLines, tmp_path: Path, workers: int) -> None:
    steps = [declared.click, beam.GroupByKey(), declared.summarize, "Halve" >> beam.Map(lambda row: 1 // 0)]
    with pytest.raises(StageError) as caught:
        build(
            declare("clicks", good, steps, features=FEATURES, key="user", num_shards=2),
            to=tmp_path / "c",
            workers=workers,
        )
    assert str(caught.value) == (
        "the step 'Halve' of the pipeline failed: ZeroDivisionError: integer division or modulo by zero. Nothing was "
        "published. Correct the step, or what it is given, and run the build again."
    )


class Disconnected(beam.PTransform):
    """A step whose service does not answer when the job is made."""

    def expand(self, elements: Any) -> Any:
        raise ConnectionResetError("the expansion service is gone")


def test_the_error_of_a_lost_job_does_not_advise_attempts_that_it_refuses(good: TextLines, tmp_path: Path) -> None:
    declaration = declare("lost", good, [declared.click, Disconnected()], features=FEATURES, key="user")

    with pytest.raises(JobLostError, match="service is gone.*Run the build again; it computes all records.$") as caught:
        build(declaration, to=tmp_path / "c", workers=1)

    assert "attempts" not in str(caught.value)
