"""Nothing that data chooses drives the terminal: neither records nor what stages, reasons and statistics are called."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import hostile_names
import pytest
from typer.testing import CliRunner

from beam_pipes.commands import app
from beam_pipes.errors import logger, visible
from beam_pipes.evaluation.loggers import PyLoggingLogger
from beam_pipes.evaluation.metrics import MetricValue, Text
from beam_pipes.runners import LocalOptions, build

REFERENCE = "hostile_names:declaration"
ROOT = Path(__file__).parents[2]
SOURCES = list((ROOT / "beam_pipes").rglob("*.py"))


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
    command = [sys.executable, "-m", "beam_pipes", "stats", str(tmp_path / hostile_names.CODES)]
    done = subprocess.run(command, capture_output=True)

    assert done.returncode == 1
    assert b"\\x1b[2J" in done.stderr and b"\x1b" not in done.stderr


def test_other_texts_are_shown_as_they_are() -> None:
    assert visible("café\n\u65e5\u672c") == "café\n\u65e5\u672c"
    assert visible("a\x1b[2J\u202eb\ud800") == r"a\x1b[2J\u202eb\ud800"


def test_log_lines_show_control_characters_as_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    """Of the library's loggers: what they name may come from a cache, and handlers are the user's."""
    handler = logging.StreamHandler()
    log = logger("beam_pipes.test_of_logs")
    log.addHandler(handler)
    try:
        log.warning("the metric %s is not what was expected: %d%%", "loss\x1b[2J", 5)
        metrics: dict[str, MetricValue] = {"loss\x1b[2J": Text("\x9b31mred")}
        arguments: dict[str, Any] = {"step": 1, "dataset": None, "inferences": None, "targets": None}
        logging.getLogger("beam_pipes.evaluation").addHandler(handler)
        PyLoggingLogger(level=logging.WARNING)(task_name="a\rtask", metrics=metrics, **arguments)
    finally:
        log.removeHandler(handler)
        logging.getLogger("beam_pipes.evaluation").removeHandler(handler)

    output = capfd.readouterr().err
    assert "the metric loss\\x1b[2J is not what was expected: 5%\n" in output
    assert "a\\rtask/loss\\x1b[2J at step 1: \\x9b31mred\n" in output
    assert not set(output) & {"\x1b", "\x9b", "\r"}


def test_every_logger_of_the_library_is_made_where_lines_are_escaped() -> None:
    made = {path.relative_to(ROOT).as_posix() for path in set(SOURCES) if "logging.getLogger(" in path.read_text()}
    assert made == {"beam_pipes/errors.py"}
