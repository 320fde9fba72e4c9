"""The wheel, installed into an environment of its own and used in a directory full of names that collide with ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from beam_pipes.commands import SUMMARIES
from beam_pipes.transforms.operators.stubs import stubs

ROOT = Path(__file__).resolve().parents[2]

JOB = """
import numpy as np

from beam_pipes import Declaration, Pipeline
from beam_pipes.sources import TextLines
from transforms import words
from utils import MOST


class Lengths(Pipeline):
    input_type, output_type = str, dict

    def transform(self, line):
        return [{"lengths": np.array([len(word) for word in words(line)[:MOST]], np.int64)}]


declaration = Declaration(name="lines", source=TextLines("in"), pipeline=Lengths(), target_shard_bytes=100)
"""

# What people call their own files.
THEIRS = {
    "transforms.py": "def words(line):\n    return line.split()\n",
    "utils.py": "MOST = 5\n",
    "cache.py": "raise RuntimeError('somebody else has imported cache.py')\n",
    "runners/__init__.py": "raise RuntimeError('somebody else has imported runners')\n",
    "tests/__init__.py": "raise RuntimeError('somebody else has imported tests')\n",
    "examples/__init__.py": "raise RuntimeError('somebody else has imported examples')\n",
    "job.py": JOB,
    "in/a.txt": "to be or not to be\n" * 20,
    "in/b.txt": "that is the question\n" * 20,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree, made = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "beam_pipes"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in [*files, "setup.py", "pyproject.toml", "README.md", "LICENSE"]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", str(made)]
    done = subprocess.run(build, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = made.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has the wheel, and everything else from this one's."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    done = subprocess.run(
        [*install, "--python", str(home / "bin" / "python"), str(wheel)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (site,) = home.glob("lib/python*/site-packages")
    # Behind the environment's own, and without the .pth files there, which may lead to a checkout.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n" + str(_numpy_place()) + "\n")
    return str(home / "bin" / "python")


def _numpy_place() -> Path:
    import numpy

    return Path(numpy.__file__).parents[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("theirs")
    for name, text in THEIRS.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    return place


def command(python: str, place: Path, *arguments: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    program = str(Path(python).parent / "beam-pipes")
    done = subprocess.run([program, *arguments], cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_ours_comes_from_the_wheel(python: str, place: Path) -> None:
    code = (
        "import beam_pipes, beam_pipes.runners.build, beam_pipes.transforms.analyzers, sys, transforms; "
        "print(transforms.__file__, *[m.__file__ for n, m in sys.modules.items() if n.startswith('beam_pipes')])"
    )
    done = subprocess.run([python, "-c", code], cwd=place, capture_output=True, text=True, env={"PATH": os.defpath})

    assert done.returncode == 0, done.stderr
    theirs, *ours = done.stdout.split()
    assert theirs == str(place / "transforms.py")
    assert ours and all(file.startswith(str(Path(python).parents[1])) for file in ours)


def test_an_index_would_take_it(wheel: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {name.split("/")[0] for name in names} == {"beam_pipes", "beam_pipes-0.1.0.dist-info"}
    assert "beam_pipes/py.typed" in names and "beam_pipes-0.1.0.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if "test_" in name or name.endswith(".pyc")]
    assert wheel.stat().st_size <= 2 << 20


def test_uvx_runs_a_command_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """In one line, in an environment that uv makes."""
    (tmp_path / "poem.txt").write_text("the fog comes\non little cat feet\n" * 30)
    constrained = ["--constraints", str(ROOT / "constraints.txt")]
    python = ["--python", sys.executable, *constrained, "--from", f"{wheel}[cli]"]
    line = ["beam-pipes", "tokens", "poem.txt", "--tokenizer", "bytes", "--to", "cache"]

    done = subprocess.run(
        [sys.executable, "-m", "uv", "tool", "run", *python, *line], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "The cache is in" in done.stdout


def test_the_stubs_of_operators_are_in_the_wheel(python: str) -> None:
    (installed,) = Path(python).parents[1].glob("lib/python*/site-packages/beam_pipes/transforms")

    assert {path: (installed / path).read_text(encoding="utf-8") for path in stubs()} == stubs()


def test_every_command_says_what_it_does(python: str, place: Path) -> None:
    # In one process: what is slow is Python's start.
    code = (
        "import json, typer.testing; from beam_pipes.commands import app, SUMMARIES; "
        "run = typer.testing.CliRunner().invoke; "
        "print(json.dumps({name: run(app, [name, '--help']).exit_code for name in SUMMARIES}))"
    )
    done = subprocess.run([python, "-c", code], cwd=place, capture_output=True, text=True, env={"PATH": os.defpath})

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(SUMMARIES, 0)


def test_commands_among_files_of_the_same_names(python: str, place: Path) -> None:
    assert "doctor-loader" in command(python, place, "--help")
    planned = command(python, place, "plan", "job:declaration", "--to", "out")
    made = command(python, place, "build", "job:declaration", "--to", "out", "--no-report")
    again = command(python, place, "build", "job:declaration", "--to", "out")
    status = json.loads(command(python, place, "status", "out", "--json"))

    assert "lines" in planned
    assert "40 records read, 40 written" in made
    assert "is up to date" in again
    assert status["records"] == {"train": 40}
    assert "int64[5] [2 2 2 3 2]" in command(python, place, "inspect", "out", "-n", "1")
    assert "split train: 40 records" in command(python, place, "stats", "out")
    command(python, place, "verify", "out")
    command(python, place, "gc", "out")
    command(python, place, "report", "out")
