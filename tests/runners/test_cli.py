"""The command line, as a user runs it."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from waiting import eventually

from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.cli import split_beam_args
from beam_pipes.commands import app
from beam_pipes.commands.caches import console
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.typed import Histogram, Maximum, Pipeline


def beam_pipes(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipes", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def test_build_plan_stats_inspect_verify_and_status_of_one_cache(text_input: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")

    planned = beam_pipes("plan", "sample_declarations:words", "--to", cache).stdout
    assert "words: 9 files" in planned
    assert "stages: source → SplitWords → CountLetters → Initials → RandomPartition → write" in planned
    assert "split words: initial str, length int32" in planned
    assert not (tmp_path / "cache").exists()

    built = beam_pipes("build", "sample_declarations:words", "--to", cache, "--workers", "2")
    assert "496 records read" in built.stdout
    assert f"The cache is in {cache}" in built.stdout
    done, shards = re.findall(r"^beam-pipes: (\d+)/(\d+) shards, 496 records", built.stderr, re.MULTILINE)[-1]
    assert done == shards > "1"

    assert "is up to date" in beam_pipes("build", "sample_declarations:words", "--to", cache).stdout
    as_json = json.loads(beam_pipes("plan", "sample_declarations:words", "--to", cache, "--json").stdout)
    assert (as_json["published"], as_json["num_shards_done"]) == (True, as_json["num_shards"])

    stats = beam_pipes("stats", cache).stdout
    assert "Words_SplitWords_lines: " in stats
    assert "[4,8): " in stats
    assert json.loads(beam_pipes("stats", cache, "--json").stdout)["read"] == 496

    inspected = beam_pipes("inspect", cache, "--split", "eval", "-n", "1").stdout
    assert inspected.startswith("eval: ")
    assert "lengths: int32[" in inspected
    chosen = beam_pipes("inspect", cache, "--split", "words", "-n", "50", "--where", "2 < length <= 4").stdout
    assert re.match(r"words: [1-9][0-9,]* records where 2 < length <= 4\n", chosen)
    assert set(re.findall(r"length: (\d+)", chosen)) <= {"3", "4"}
    refused = beam_pipes("inspect", "--task", "a_task", "--where", "n > 3", check=False)
    assert refused.returncode != 0
    assert "--where chooses examples of a cache: name its directory" in refused.stderr

    assert "no problem" in beam_pipes("verify", cache).stdout
    assert "is published (" in beam_pipes("status", cache).stdout


@pytest.mark.parametrize("command", [["stats"], ["inspect"], ["status", "--json"]], ids=lambda command: command[0])
def test_an_output_that_is_full_ends_in_one_message(text_input: Path, tmp_path: Path, command: list[str]) -> None:
    cache = str(tmp_path / "cache")
    beam_pipes("build", "sample_declarations:words", "--to", cache)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "beam_pipes", command[0], cache, *command[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 1
    assert done.stderr == (
        "beam-pipes: what this command prints cannot be written to its output: No space left on device. Free some "
        "space, or redirect it to another place; apart from that the command did what it does.\n"
    )


def test_files_that_are_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"a.txt": "to be\n", ".b.txt": "or\n", ".git/c": "not\n", "d.txt": "", "e.txt": ""}.items():
        path = tmp_path / "lines" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own_lines.py").write_text(
        "from beam_pipes import FeatureSpec, declare, stage\n"
        "from beam_pipes.sources import TextLines\n"
        "def words(line: str) -> dict[str, str]: return {'text': line}\n"
        "source = {'train': TextLines('lines'), 'eval': TextLines('lines/a.txt')}\n"
        "declaration = declare('lines', source, [words], features={'text': FeatureSpec('str')})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    told = CliRunner().invoke(app, ["build", "own_lines:declaration", "--to", "cache", "--workers", "1"])
    again = CliRunner().invoke(app, ["build", "own_lines:declaration", "--to", "cache", "--workers", "1"])

    assert "Files left out: 2 empty, 2 hidden." in told.output.splitlines(), told.output
    assert "left out" not in again.output


def test_verify_names_the_damage_and_fails(text_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    beam_pipes("build", "sample_declarations:words", "--to", str(cache))
    snapshot = Path(Cache.open(cache).directory)
    shard = next(path for path in sorted(snapshot.glob("words-words.tfrecord-*-of-*")) if path.stat().st_size > 200)
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(data)

    done = beam_pipes("verify", str(cache), check=False)

    assert done.returncode == 1
    assert shard.name in done.stdout
    assert "problems" in done.stdout
    assert (
        "To repair it, copy the damaged files again from where they are whole, or run the build with --overwrite, "
        "which rebuilds every shard: a build without it takes finished shards as they are."
    ) in done.stdout
    assert beam_pipes("build", "sample_declarations:words", "--to", str(cache), "--overwrite")
    assert "no problem" in beam_pipes("verify", str(cache)).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["build", "sample_declarations:word", "--to", "x"],
            "'sample_declarations' has no 'word': it holds no declaration. Did you mean 'words'?",
            id="misspelt_name",
        ),
        pytest.param(
            ["build", "no_such_module:x", "--to", "x"],
            "there is no module 'no_such_module' on the path",
            id="no_module",
        ),
        pytest.param(["build", "words", "--to", "x"], "a declaration is named 'package.module:name'", id="no_colon"),
        pytest.param(
            ["build", "sample_declarations:words", "--to", "x", "--runner", "spark"],
            "--runner should be one of local, direct, dataflow, portable, prism, flink, slurm, kubernetes, got "
            "'spark'.",
            id="unknown_runner",
        ),
        pytest.param(
            ["build", "sample_declarations:words", "--to", "x", "--", "--region=here"],
            "options after -- go to Beam, which the local runner does not use: --region=here.",
            id="beam_options_for_local",
        ),
        pytest.param(
            ["build", "sample_declarations:words", "--to", "x", "--runner", "direct", "--workers", "2"],
            "--workers belongs to --runner local",
            id="workers_for_direct",
        ),
        pytest.param(["stats", "nowhere"], "expected a cache, a directory with manifest.json", id="no_cache"),
        pytest.param(["status", "nowhere"], "'nowhere' does not exist", id="no_directory"),
    ],
)
def test_mistakes_end_in_one_message(
    arguments: list[str], message: str, text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = beam_pipes(*arguments, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("beam-pipes: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failing_stage_ends_in_one_message_and_no_manifest(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("boom\n")

    done = beam_pipes("build", "sample_declarations:words", "--to", str(tmp_path / "cache"), check=False)

    assert done.returncode == 1
    assert "stage 'SplitWords' failed on record 'zzz.txt@0'" in done.stderr
    assert "Traceback" not in done.stderr
    status = beam_pipes("status", str(tmp_path / "cache")).stdout
    assert "nothing is published" in status
    assert "no build is running: run the build again" in status


LEAVING = """
import dataclasses, os, sys
from beam_pipes.sources import TextLines
from sample_declarations import words

class Leaving(TextLines):
    def read(self, shard, **options):
        {code}

declaration = dataclasses.replace(words(), source=Leaving(os.environ["BEAM_PIPES_TEST_INPUT"]))

def function():
    sys.exit(0)
"""


@pytest.mark.parametrize(
    ("code", "name", "workers", "message"),
    [
        pytest.param("sys.exit(0)", "declaration", "1", "raised SystemExit(0), which would have", id="in_this_process"),
        pytest.param("sys.exit(0)", "declaration", "2", "raised SystemExit(0), which would have", id="in_a_worker"),
        pytest.param(
            "raise KeyboardInterrupt",
            "declaration",
            "2",
            "raised KeyboardInterrupt(), which would",
            id="no_exit_either",
        ),
        pytest.param("pass\n\nsys.exit()", "declaration", "1", "cannot import 'leaving' of 'leaving:decl", id="module"),
        pytest.param("pass", "function", "1", "raised SystemExit(0), which would have ended", id="function"),
    ],
)
def test_code_of_the_user_that_ends_the_process_does_not_look_like_success(
    code: str, name: str, workers: str, message: str, text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leaving.py").write_text(LEAVING.format(code=code))

    done = beam_pipes("build", f"leaving:{name}", "--to", "cache", "--workers", workers, check=False)

    assert done.returncode == 1
    assert message in done.stderr
    assert re.search(r"leaving\.py:\d+ ", done.stderr)
    assert "Traceback" not in done.stderr
    assert not Path("cache", "manifest.json").exists()


def test_a_reader_that_has_seen_enough_is_not_an_error(text_input: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    beam_pipes("build", "sample_declarations:words", "--to", cache)

    inspect, helping = ["inspect", cache, "--split", "train", "-n", "50"], ["takedown", "--help"]
    for arguments in (inspect, ["stats", cache], ["stats", cache, "--json"], helping, ["--help"]):
        with without_reader(*arguments, closed="stdout") as command:
            assert command.stderr is not None
            assert (command.stderr.read(), command.wait(60)) == (b"", 1)


def test_a_build_continues_when_nobody_reads_its_progress(text_input: Path, tmp_path: Path) -> None:
    arguments = ["build", "sample_declarations:words", "--to", str(tmp_path / "cache"), "--workers", "2"]
    for kind in ("json", "line", "stages"):
        with without_reader(*arguments, "--progress", kind, "--overwrite", closed="stderr") as command:
            assert command.stdout is not None
            assert b"496 records read" in command.stdout.read()
            assert command.wait(60) == 0


def without_reader(*arguments: str, closed: str) -> subprocess.Popen[bytes]:
    """A command whose `closed` stream nobody reads."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
    command = subprocess.Popen(
        [sys.executable, "-m", "beam_pipes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    getattr(command, closed).close()
    return command


def is_gone(group: int) -> bool:
    """Whether no process of a group is left; one that has ended is there until its parent has noticed."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("number", "to_group", "code", "words"),
    [
        pytest.param(signal.SIGINT, True, 130, "interrupted", id="ctrl-c"),
        pytest.param(signal.SIGTERM, True, 143, "terminated", id="slurm"),
        pytest.param(signal.SIGTERM, False, 143, "terminated", id="kubernetes"),
    ],
)
def test_a_signal_leaves_nothing_that_blocks_the_next_build(
    text_input: Path, tmp_path: Path, number: signal.Signals, to_group: bool, code: int, words: str
) -> None:
    (text_input / "slow.txt").write_text("slow\n" * 2_000)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "beam_pipes",
            "build",
            "sample_declarations:slow",
            "--to",
            str(cache),
            "--workers",
            "2",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(cache.rglob(".tmp-*")) and time.monotonic() < deadline:
        time.sleep(0.05)

    (os.killpg if to_group else os.kill)(process.pid, number)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == code
    assert f"{words}. Run the same command again to resume" in errors
    assert "Traceback" not in errors
    assert not list(cache.rglob(".tmp-*"))
    assert not (cache / ".build.lock").exists()
    eventually(functools.partial(is_gone, process.pid))  # no worker of the session is left


@pytest.mark.parametrize(
    ("name", "again"),
    [("status", ""), ("build", " Run the same command again to resume from the finished shards.")],
)
def test_ctrl_c_while_modules_are_imported_is_one_line(tmp_path: Path, name: str, again: str) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "beam_pipes", name, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (130, f"beam-pipes: interrupted.{again}\n")


def test_a_missing_option_shows_how_the_command_is_used(tmp_path: Path) -> None:
    done = beam_pipes("build", "sample_declarations:words", check=False)

    assert done.returncode == 2
    assert "Missing option '--to'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_is_whole_on_any_terminal(columns: str) -> None:
    shown = CliRunner().invoke(app, ["tokens", "--help"], env={"COLUMNS": columns}).output
    words = " ".join(shown.split())

    assert "…" not in shown
    assert (
        "--parse-special / --no-parse-special" in words
        and "csv, files, json, parquet, tar, text, tsv [by suffix]" in words
    )


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == (
        f"beam-pipes {importlib.metadata.version('beam-pipes')}, Python {platform.python_version()}\n"
    )


def test_help_starts_with_what_a_command_does_and_shows_an_example() -> None:
    assert "Example: beam-pipes build examples.python_source:declaration" in beam_pipes("--help").stdout
    assert "Build a cache, or resume an interrupted build." in beam_pipes("build", "--help").stdout


def test_what_follows_two_dashes_goes_to_beam() -> None:
    assert split_beam_args(["build", "m:d", "--", "--region=x", "--", "y"]) == (
        ["build", "m:d"],
        ["--region=x", "--", "y"],
    )
    assert split_beam_args(["build"]) == (["build"], [])


class Awkward(Pipeline):
    """A number as an example with texts of several bytes, infinities, NaN and empty lists; the fourths are for eval."""

    def __init__(self) -> None:
        super().__init__(str, {"train": dict, "eval": dict, "empty": dict}, "Awkward")

    def transform(self, line: str) -> dict[str, list[dict[str, Any]]]:
        if not line:
            return self.drop("empty [line]")
        number = int(line)
        value = [math.nan, math.inf, -0.0, 1.5][number % 4]
        tokens = Histogram("tokens", [0, 5, math.inf])
        tokens.increment(value if number == 4 else number)
        self._set_stats([Maximum("greatest", value), tokens])
        example = {
            "text": "ä日" * (number % 3),
            "value": value,
            "big": 2**64 - 1 - number,
            "list": [value] * (number % 2),
        }
        return {
            "train": [] if number % 4 == 0 else [example],
            "eval": [example] if number % 4 == 0 else [],
            "empty": [],
        }


def test_what_commands_tell_of_awkward_values_is_what_a_script_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 200)  # the console is as wide as the terminal was when it was made
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "ä [b].txt"
    features = {
        "text": FeatureSpec("str"),
        "value": FeatureSpec("float64"),
        "big": FeatureSpec("uint64"),
        "list": FeatureSpec("float64", shape=(None,)),
    }
    for path, lines in (("one", range(40)), ("two", range(3, 30))):
        source.write_text("".join(f"{line}\n" for line in [*lines, "", "", "[bad]"]))
        declaration = Declaration(
            name="awkward", source=TextLines(tmp_path / "in"), pipeline=Awkward(), features=features,
            on_error="dead_letter", max_bad=0.5,
        )  # fmt: skip
        build(declaration, tmp_path / path, options=LocalOptions(workers=1))
    one, two = str(tmp_path / "one"), str(tmp_path / "two")

    def told(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def strictly(*arguments: str) -> Any:
        return json.loads(told(*arguments), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    shown = told("stats", one)
    assert re.search(r"Awkward +│ 43 │ +40 │ +40 │ +1 │ empty \[line\] 2 ", shown)
    assert "ä [b].txt@112: invalid literal for int() with base 10: '[bad]'" in shown
    assert "Awkward_greatest: inf\nAwkward_tokens:\n  [0,5): 4\n  [5,inf): 35\n  nan: 1\n" in shown
    assert "split empty: 0 records in 1 shard\nsplit eval: 10 records in 1 shard\nsplit train: 30 records" in shown
    states = {each["name"]: each["state"] for each in strictly("stats", one, "--json")["units"][1]["statistics"]}
    assert states["Awkward_greatest"] == {"value": "inf"}
    assert states["Awkward_tokens"]["buckets"] == [0, 5, "inf"]
    assert "dropped by Awkward: empty [line]" in told("why", "ä [b].txt@110", one)
    assert "big: uint64 18446744073709551615" in told("inspect", one, "--split", "eval", "-n", "1")
    assert "40 records in 3 shards" in told("verify", one)
    medians = {
        (each["split"], each["name"]): each["medians"] for each in strictly("diff", one, two, "--json")["drift"]
        if each["quantity"] == "value"
    }  # fmt: skip
    for split in ("train", "eval"):
        for index, cache in enumerate((one, two)):
            found = [example["value"] for example in Cache.open(cache)[split] if example["value"] == example["value"]]
            if found:
                assert float(medians[split, "value"][index]) == np.median(found)
