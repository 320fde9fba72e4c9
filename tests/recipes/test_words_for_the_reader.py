"""Messages that people see at a command line name options of commands, not only arguments of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

import beam_pipes
from beam_pipes import Cache
from beam_pipes.commands import app

ROOT = Path(beam_pipes.__file__).parent
#: What `images`, `audio`, `table` and `tokens` run before and in a build, without what only declarations reach.
REACHED = (
    "recipes",
    "sources/selection.py",
    "sources/tar.py",
    "sources/lines.py",
    "sources/csv.py",
    "sources/tables.py",
)
REACHED_TOO = ("sources/byte_stream.py", "sources/file_source.py", "sources/delimited.py", "building/commit.py")
#: Messages about arguments that no command passes on.
OF_PYTHON = {
    "header=False leaves the columns unnamed: pass columns=['…', …]",
    "expected all inputs to be under relative_to=, found ",
}
ARGUMENT = re.compile(r"\b[a-z]+(_[a-z]+)*=(?!=)")


def messages() -> Iterator[str]:
    """The texts of errors that are raised there, without their values."""
    for place in (*REACHED, *REACHED_TOO):
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and node.exc is not None:
                    parts = (each.value for each in ast.walk(node.exc) if isinstance(each, ast.Constant))
                    yield "".join(part for part in parts if isinstance(part, str))


def test_an_argument_of_python_never_stands_alone() -> None:
    found = list(messages())

    alone = {text for text in found if ARGUMENT.search(text) and "--" not in text and "in a declaration" not in text}

    assert len(found) > 150
    assert alone - OF_PYTHON == set()


def test_allow_empty_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\nx\n")
    arguments = ["table", str(tmp_path / "a.csv"), "--to", str(tmp_path / "cache"), "--workers", "1", "--no-report"]
    arguments += ["--type", "n=int64", "--on-error", "drop", "--max-bad", "all"]
    refused = CliRunner().invoke(app, arguments)
    assert "allow it: --allow-empty of the command" in str(refused.exception)

    made = CliRunner().invoke(app, [*arguments, "--allow-empty"], catch_exceptions=False)

    assert made.exit_code == 0, made.output
    assert len(Cache.open(tmp_path / "cache")["train"]) == 0
