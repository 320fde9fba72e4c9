"""Nothing that data chooses drives the terminal: neither records nor what stages, reasons and statistics are called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hostile_names
import pytest
from typer.testing import CliRunner

from beam_pipes.errors import visible
from beam_pipes.runners import LocalOptions, build
from beam_pipes.runners.commands import app

REFERENCE = "hostile_names:declaration"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("hostile") / "cache")
    account = build(REFERENCE, path, options=LocalOptions(workers=1)).account
    assert (account.written, account.dropped, account.dead) == (4, 4, 4)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "CACHE"],
        ["dead", "CACHE"],
        ["inspect", "CACHE"],
        ["status", "CACHE"],
        ["verify", "CACHE"],
        ["plan", REFERENCE, "--to", "CACHE"],
        ["trace", "memory@2", REFERENCE],
        ["why", "memory@1", "CACHE"],
        ["diff", "CACHE", "CACHE"],
        ["build", REFERENCE, "--to", "CACHE", "--overwrite", "--workers", "1", "--progress", "line"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_show_control_characters_as_escapes(cache: str, arguments: list[str]) -> None:
    done = CliRunner().invoke(app, [cache if word == "CACHE" else word for word in arguments], catch_exceptions=False)

    shown = done.output.replace("\r\x1b[K", "")  # how the line of progress begins
    assert done.exit_code == 0, shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\r"}
    if arguments[0] in ("stats", "dead", "inspect", "trace", "why"):
        assert "\\x1b" in shown


def test_errors_show_control_characters_as_escapes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "beam_pipes.runners", "stats", str(tmp_path / hostile_names.CODES)]
    done = subprocess.run(command, capture_output=True)

    assert done.returncode == 1
    assert b"\\x1b[2J" in done.stderr and b"\x1b" not in done.stderr


def test_other_texts_are_shown_as_they_are() -> None:
    assert visible("café\n\u65e5\u672c") == "café\n\u65e5\u672c"
    assert visible("a\x1b[2J\u202eb\ud800") == r"a\x1b[2J\u202eb\ud800"
