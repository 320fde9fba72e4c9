"""Declarations where people write them: in scripts, at a prompt, in notebooks and tests, as programs of their own.

Each builds on several processes with the default options, in a directory that is not one of the repository's, and gives
the snapshot that the same code gives in a module that others import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from beam_pipes.cache import Cache

ROOT = Path(__file__).resolve().parents[2]

# Everything that a walk over code comes across: a class that only holds data, a function, a constant that can only be
# known by its statement, a constant, a lambda, a closure, a class inside of a function.
STAGES = """
import dataclasses
import logging
import os
import re

import numpy as np

from beam_pipes import DAGPipeline, Declaration, FeatureSpec, Input, Output, Pipeline
from beam_pipes.runners import build
from beam_pipes.sources import TextLines

MOST_WORDS = 3
LOG = logging.getLogger("job")
SPACES = re.compile(" +")


@dataclasses.dataclass(frozen=True)
class Row:
    words: list


def split(line):
    LOG.debug("split %s", line)
    return SPACES.split(line)[:MOST_WORDS]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Split(Pipeline):
    input_type = str
    output_type = Row
    least: int = 1

    def transform(self, line):
        words = split(line)
        return [Row(words)] if len(words) >= self.least else self.drop("short")


def measured(measure):
    longest = 40

    class Measured(Pipeline):
        input_type = Row
        output_type = dict

        def transform(self, row):
            here = os.path.realpath("processes")
            os.makedirs(here, exist_ok=True)
            open(os.path.join(here, str(os.getpid())), "w").close()
            return [{"lengths": np.array([min(longest, measure(word)) for word in row.words], np.int32)}]

    return Measured()


def declare():
    first, second = Split(least=2), measured(lambda word: len(word))
    return Declaration(
        name="lines",
        source=TextLines("in"),
        pipeline=DAGPipeline({first: Input(str), second: first, Output("train"): second}),
        features={"train": {"lengths": FeatureSpec("int32", shape=(None,))}},
        target_shard_bytes=2000,
    )
"""
TOP = STAGES + "\n\ndeclaration = declare()\n"
BUILD = "print(build(declaration, 'cache').snapshot)\n"
UNGUARDED = TOP + BUILD
GUARDED = TOP + "\nif __name__ == '__main__':\n    " + BUILD
IN_MAIN = STAGES + "\n\ndef main():\n    declaration = declare()\n    " + BUILD + "\n\nmain()\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name in "abcd":
        text = "".join(f"line {number} of {name}\n" for number in range(150))
        (tmp_path / "in" / f"{name}.txt").write_text(text)
    return tmp_path


def run(place: Path, *arguments: str, stdin: str | Path = "", **variables: str) -> str:
    """The output of a Python program that runs in `place`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, *arguments]
    if isinstance(stdin, Path):
        with stdin.open() as file:
            done = subprocess.run(command, cwd=place, env=env, stdin=file, capture_output=True, text=True)
    else:
        done = subprocess.run(command, cwd=place, env=env, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def expected(place: Path) -> str:
    """The snapshot that the same code gives in a module."""
    (place / "job_module.py").write_text(TOP)
    made = run(
        place,
        "-c",
        "import job_module; from beam_pipes.building.plan import make_plan; "
        "print(make_plan(job_module.declaration, 'planned').snapshot)",
    )
    return made.strip()


def require_built(place: Path, said: str, expected: str) -> None:
    assert said.strip().splitlines()[-1] == expected
    assert len(Cache.open(place / "cache")["train"]) == 600
    assert len(list((place / "processes").iterdir())) >= min(2, os.cpu_count() or 1), "one process did everything"


@pytest.mark.parametrize("program", [UNGUARDED, GUARDED, IN_MAIN], ids=["unguarded", "guarded", "local_to_main"])
def test_a_script(place: Path, expected: str, program: str) -> None:
    (place / "job.py").write_text(program)

    require_built(place, run(place, "job.py"), expected)


def test_a_module_run_as_a_program(place: Path, expected: str) -> None:
    (place / "job.py").write_text(UNGUARDED)

    require_built(place, run(place, "-m", "job"), expected)


def test_a_program_on_the_command_line(place: Path, expected: str) -> None:
    require_built(place, run(place, "-W", "default", "-c", UNGUARDED), expected)


def test_a_program_in_a_file_on_standard_input(place: Path, expected: str) -> None:
    (place / "job.txt").write_text(UNGUARDED)

    require_built(place, run(place, "-", stdin=place / "job.txt"), expected)


def test_a_program_through_a_pipe_builds_the_same_each_time(place: Path) -> None:
    again = UNGUARDED + "print(build(declare(), 'cache').up_to_date)\n"
    first = run(place, "-", stdin=again).split()
    second = run(place, "-", stdin=again).split()

    assert first[1:] == second[1:] == ["True"]
    require_built(place, first[0], second[0])


def test_a_prompt(place: Path) -> None:
    lines = ["exec(open('job.txt').read())", "print(build(declaration, 'cache').snapshot)"]
    (place / "job.txt").write_text(TOP)
    said = run(place, "-i", "-q", stdin="\n".join(lines) + "\n")

    require_built(place, said, Cache.open(place / "cache").manifest.snapshot)


def test_cells_of_a_notebook(place: Path, expected: str) -> None:
    cells = TOP.split("\n\n\n")
    (place / "cells.py").write_text(
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nsys.modules['__main__'] = shell.user_module\n"
        f"for cell in {[*cells, BUILD]!r}:\n    shell.run_cell(cell, store_history=True).raise_error()\n"
    )

    require_built(place, run(place, "cells.py"), expected)


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_test_function(place: Path, expected: str, mode: str) -> None:
    body = "\n\ndef test_build(capsys):\n    with capsys.disabled():\n        declaration = declare()\n        " + BUILD
    (place / "tests").mkdir()
    (place / "tests" / "test_job.py").write_text(STAGES + body)
    options = ["-q", "-s", "-p", "no:cacheprovider", f"--import-mode={mode}"]
    said = run(place, "-m", "pytest", *options, "tests/test_job.py")

    assert expected in said
    require_built(place, expected, expected)


def test_a_module_that_builds_when_it_is_imported(place: Path, expected: str) -> None:
    (place / "job.py").write_text("print('began')\n" + UNGUARDED + "print('went on')\n")
    said = run(place, "-c", "import job")

    assert said.split() == ["began", expected, "went", "on"]
    require_built(place, expected, expected)


@pytest.mark.parametrize("runner", ["local", "direct"])
def test_commands_import_a_script_as_far_as_its_build(place: Path, expected: str, runner: str) -> None:
    (place / "job.py").write_text("print('began')\n" + UNGUARDED + "print('went on')\n")
    command = ["-m", "beam_pipes"]
    planned = run(place, *command, "plan", "job:declaration", "--to", "other")
    made = run(place, *command, "build", "job:declaration", "--to", "other", "--runner", runner)

    assert planned.startswith("began") and "went on" not in planned + made
    assert not (place / "cache").exists()
    assert Cache.open(place / "other").manifest.snapshot == expected


def test_a_module_that_imports_one_that_builds_is_reported(place: Path) -> None:
    (place / "job.py").write_text(UNGUARDED)
    (place / "outer.py").write_text("from job import declaration\n")
    command = [sys.executable, "-m", "beam_pipes", "plan", "outer:declaration", "--to", "other"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True)

    assert done.returncode == 1
    assert "job builds a cache when it is imported. Put what runs there under `if __name__" in done.stderr


def test_an_analyzer_in_a_script(place: Path) -> None:
    analyzed = (
        STAGES.replace("analyzers=()", "")
        + """
from beam_pipes.transforms.analyzers import Vocabulary


class Words(Pipeline):
    input_type = output_type = str

    def transform(self, line):
        return split(line)


words = Vocabulary("words", of=Words())


class Numbers(Pipeline):
    input_type, output_type = str, dict
    words = words.result

    def transform(self, line):
        return [{"words": np.asarray(self.words.value().ids(split(line)), np.int64)}]


declaration = Declaration(
    name="words", source=TextLines("in"), pipeline=Numbers(), analyzers=(words,), target_shard_bytes=2000
)
print(build(declaration, 'cache').snapshot)
"""
    )
    (place / "job.py").write_text(analyzed)
    said = run(place, "job.py")

    assert said.strip() == Cache.open(place / "cache").manifest.snapshot
    assert [len(example["words"]) for example in Cache.open(place / "cache")["train"]] == [3] * 600


@pytest.mark.parametrize("options", ["BeamOptions()", "PrismOptions()"])
def test_a_script_on_beam(place: Path, expected: str, options: str) -> None:
    build = BUILD.replace("'cache'", f"'cache', options={options}")
    (place / "job.py").write_text(f"{TOP}\nfrom beam_pipes.runners import BeamOptions, PrismOptions\n{build}")

    assert run(place, "job.py").strip().splitlines()[-1] == expected
    assert len(Cache.open(place / "cache")["train"]) == 600
