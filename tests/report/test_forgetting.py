"""`forgetting` says what a run has read: held against runs that were read and noted step by step."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from beam_pipes import Cache, Declaration, FeatureSpec, Loader, Pipeline, add_column, build, declare, stage
from beam_pipes.building.leftovers import collect
from beam_pipes.building.takedown import mark_gone, take_down
from beam_pipes.commands import app
from beam_pipes.errors import CacheError, LoaderError
from beam_pipes.export.export import export
from beam_pipes.loader import Mixture
from beam_pipes.report import forgetting
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import Vocabulary


class Number(Pipeline):
    input_type, output_type = str, dict

    def transform(self, line: str) -> list[dict[str, object]]:
        return [{"number": int(line)}]


def built(directory: Path, name: str, numbers: range) -> str:
    lines = directory / f"{name}.txt"
    lines.write_text("".join(f"{number:04}\n" for number in numbers))
    features = {"number": FeatureSpec("int64")}
    declared = Declaration(name=name, source=TextLines(lines), pipeline=Number(), features=features)
    build(declared, to=directory / name, workers=1)
    return str(directory / name)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    directory = tmp_path_factory.mktemp("caches")
    return built(directory, "a", range(40)), built(directory, "b", range(1000, 1025))


def read_by_hand(loader: Loader, numbers: set[int], last_step: int) -> list[int]:
    """The steps that deliver one of the numbers, each as often as it does, by reading all of them."""
    steps = []
    for step, batch in zip(range(last_step + 1), loader, strict=False):
        steps += [step] * int(np.isin(batch["number"], list(numbers)).sum())
    return steps


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.sets(st.sampled_from([*range(40), *range(1000, 1025)]), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    batch_size=st.integers(2, 9),
    last_step=st.integers(0, 30),
    checkpoints=st.sets(st.integers(0, 31), max_size=4),
    is_mixture=st.booleans(),
    where=st.booleans(),
)
def test_steps_and_checkpoint_are_those_of_the_run(
    caches: tuple[str, str],
    numbers: set[int],
    seed: int,
    batch_size: int,
    last_step: int,
    checkpoints: set[int],
    is_mixture: bool,
    where: bool,
) -> None:
    def loader() -> Loader:
        first, second = (Cache.open(path)["train"] for path in caches)
        chosen = first.where("number >= 10") if where else first
        source = Mixture([(chosen, 0.7), (second, 0.3)], exhausted="repeat") if is_mixture else chosen
        return Loader(source, batch_size=batch_size, seed=seed, epochs=None)

    names = {step: f"step {step}" for step in checkpoints}
    ids = [f"{'b' if number >= 1000 else 'a'}.txt@{number % 1000 * 5}" for number in sorted(numbers)]
    found = forgetting(loader(), caches, ids, last_step=last_step, checkpoints=names)

    steps = read_by_hand(loader(), numbers, last_step)
    assert [read.step for read in found.reads] == steps
    assert found.first_step == (steps[0] if steps else None)
    clean = [step for step in checkpoints if steps and step <= steps[0]]
    assert found.checkpoint == ((f"step {max(clean)}", max(clean)) if clean else None)
    assert found.replay_steps == (last_step + 1 - max(clean, default=0) if steps else 0)
    assert (found.unknown, sorted(found.records)) == ((), sorted(ids))


def test_equal_content_whole_files_traces_and_takedowns_count(tmp_path: Path) -> None:
    cache = built(tmp_path, "a", range(20))
    lines = tmp_path / "a.txt"
    lines.write_text(lines.read_text() + "0003\n")
    features = {"number": FeatureSpec("int64")}
    declared = Declaration(name="a", source=TextLines(lines), pipeline=Number(), features=features)
    build(declared, to=cache, workers=1)

    def run() -> Loader:
        return Loader(f"{cache}/train", batch_size=7, seed=1)

    found = forgetting(run(), cache, ["a.txt@15", "gone.txt@3"], last_step=2)
    assert found.records == ("a.txt@15", "a.txt@100")
    assert found.unknown == ("gone.txt@3",)
    steps = read_by_hand(run(), {3}, 2)
    assert [read.step for read in found.reads] == steps and len(steps) == 2
    shown = list(found.lines())
    assert shown[0] == "2 ids mean 2 source records, 1 of them by equal content."
    assert shown[1] == "no snapshot has gone.txt@3"
    assert shown[2].startswith(f"The run has read them 2 times in {len(set(steps))} steps, first in step {steps[0]} ")
    assert shown[3] == "No checkpoint is clean: replay all 3 steps from the start."
    assert sum("source records have this content" in line for line in shown) == 2, "both snapshots"
    assert (
        f"| `a.txt@15` | {found.reads[0].step if found.reads[0].record_id == 'a.txt@15' else found.reads[1].step} |"
        in (found.statement())
    )

    take_down(cache, ["a.txt@15"])
    assert [read.step for read in forgetting(run(), cache, ["a.txt@15"], last_step=2).reads] == steps
    assert len(forgetting(run(), cache, ["a.txt"], last_step=2).reads) == 21
    assert list(forgetting(run(), cache, ["b.txt"], last_step=2).lines())[2] == (
        "Steps 0 to 2 have read none of them: nothing is to be replayed."
    )


def test_the_command_reads_states_and_files_a_statement(tmp_path: Path) -> None:
    cache = built(tmp_path, "a", range(40))
    loader = Loader(f"{cache}/train", batch_size=4, seed=3)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "config.json").write_text("{}")
    batches = []
    for step, batch in enumerate(loader, start=1):
        batches.append(batch["number"])
        if step in (2, 5, 8):
            (tmp_path / "checkpoints" / f"{step}.json").write_text(json.dumps(loader.state_dict()))
        if step == 8:
            break
    number = int(batches[6][0])
    (tmp_path / "ids.txt").write_text(f"a.txt@{5 * number}\n")

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "beam_pipes", "forget", "a", "--ids", "ids.txt", "--batch-size", "4", *arguments]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)

    shown = command("--state", "checkpoints/8.json", "--checkpoints", "checkpoints", "--statement", "said.md")
    assert shown.returncode == 0, shown.stderr
    assert "The run has read them 1 times in 1 steps, first in step 6 (epoch 0), of steps 0 to 7." in shown.stdout
    assert "The last clean checkpoint is 5.json (after 5 steps): replay 3 steps." in shown.stdout
    assert (tmp_path / "said.md").read_text().startswith("# Records to be forgotten, ")
    options = json.loads(command("--seed", "3", "--last-step", "7", "--checkpoints", "2,5", "--json").stdout)
    assert (options["first_step"], options["checkpoint"]) == (6, ["that of step 5", 5])
    assert "say up to which step the run was trained: --last-step" in command("--seed", "3").stderr
    wrong = command("--seed", "3", "--last-step", "7", "--checkpoints", "early")
    assert "--checkpoints should be steps, such as 1000,2000, or a directory with states" in wrong.stderr
    (tmp_path / "empty").mkdir()
    none = command("--seed", "3", "--last-step", "7", "--checkpoints", "empty")
    assert "there is no state of a loader in 'empty'" in none.stderr


SECRET = "zyxsecretwvu"


class Words(Pipeline):
    input_type, output_type = str, list

    def transform(self, line: str) -> list[list[str]]:
        return [line.split()]


@stage(on_error="dead_letter")
def note(line: str) -> dict[str, object]:
    if line.startswith("FAIL"):
        raise ValueError(f"cannot read {line}")
    return {"text": line}


@stage
def repeated(record: dict) -> dict[str, object]:
    return {"again": f"{record['text']} {record['text']}"}


def named_by(lines: list[str], file: Path, root: Path) -> bool:
    """Whether a line of the report names a file, or a directory around it that is not one of a whole cache."""
    path = file.relative_to(root)
    if path.parts[:2] == ("cache", "snapshots"):
        inside = "/".join(path.parts[3:])
        whole = f"snapshots/{path.parts[2]} is of a build that has not finished"
        return any(whole in line or f"snapshot {path.parts[2]}:" in line and inside in line for line in lines)
    if path.parts[0] == "cache":
        return any("/".join(path.parts[1:3]) in line for line in lines)
    return any(str(file) in line for line in lines)


def test_every_file_in_which_a_planted_secret_is_left_is_named(
    tmp_path: Path,
) -> None:
    """Shards, dead letters, vocabularies, reports, columns, old and unfinished snapshots, exports and copies."""
    lines = [f"word{n % 7} line {n}" for n in range(30)]
    lines[5], lines[9] = f"{SECRET} was here", f"FAIL {SECRET}"
    words = Vocabulary("words", of=Words())
    text, root = tmp_path / "in.txt", tmp_path
    path = str(root / "cache")

    def publish(*more: str) -> None:
        text.write_text("".join(f"{line}\n" for line in [*lines, *more]))
        declared = declare(
            "notes", TextLines(text), [note], analyzers=[words], features={"text": FeatureSpec("str")}, max_bad=None
        )
        build(declared, to=path, workers=1)
        CliRunner().invoke(app, ["report", path], catch_exceptions=False)

    publish()
    add_column("again", path, repeated, workers=1)
    publish("more")
    for format in ("parquet", "webdataset"):
        export(path, str(root / f"export-{format}"), format=format)
    list(Loader(Cache.open(path, local_directory=root / "copies")["train"], batch_size=4))
    newest = Cache.open(path).directory
    shutil.copytree(newest, root / "cache" / "snapshots" / "0123456789abcdef")
    (root / "cache" / "snapshots" / "0123456789abcdef" / "manifest.json").unlink()

    ids = [f"in.txt@{sum(len(line) + 1 for line in lines[:row])}" for row in (5, 9)]
    others = [str(root / name) for name in ("copies", "export-parquet", "export-webdataset")]
    found = forgetting(Loader(f"{path}/train", batch_size=4), path, ids, last_step=3, search=others)

    left = [file for file in root.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
    left = [file for file in left if file != text]
    kinds = {part for file in left for part in file.relative_to(root).parts}
    assert {"dead_letters", "assets", "report.html", "columns", "analysis", "copies", "export-webdataset"} <= kinds
    assert [str(file) for file in left if not named_by(list(found.traces), file, root)] == []
    assert any("export-parquet" in trace for trace in found.traces), "compressed: no grep finds it"
    assert not any(SECRET in line for line in found.lines())
    assert list(found.lines())[-1] == "Not looked for: logs, and models made of later checkpoints."
    with pytest.raises(CacheError, match="there are no files to be searched in .*nowhere"):
        forgetting(Loader(f"{path}/train", batch_size=4), path, ids, last_step=3, search=[str(root / "nowhere")])


def test_after_erasing_no_file_is_left(tmp_path: Path) -> None:
    """The steps of the page: takedown, out of the input, `gone`, build, gc. The grep finds nothing then."""
    text, path = tmp_path / "in.txt", str(tmp_path / "cache")
    lines = [f"word line {n}" for n in range(9)]
    words = Vocabulary("words", of=Words())

    def publish(lines: list[str]) -> None:
        text.write_text("".join(f"{line}\n" for line in lines))
        build("notes", TextLines(text), [note], analyzers=[words], to=path, workers=1)

    publish([f"{SECRET} was here", *lines])
    report = take_down(path, ["in.txt@0"])
    mark_gone(path, report.number)
    publish(lines)
    collect(path, keep=0, ignore_leases=True)

    assert [file for file in tmp_path.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()] == []


def test_a_last_step_is_a_step(tmp_path: Path) -> None:
    cache = built(tmp_path, "a", range(9))
    with pytest.raises(LoaderError, match="last_step should be an integer of at least 0, got -1"):
        forgetting(Loader(f"{cache}/train", batch_size=2), cache, ["a.txt"], last_step=-1)
