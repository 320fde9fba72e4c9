"""Fixtures that several rooms share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import sample_declarations
from sample_lines import make_lines


def pytest_configure() -> None:
    """Where the tests run in the background, they ignore SIGINT, and processes that they start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def text_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of text files, one large enough to be split, eight to be grouped; sample declarations read it."""
    directory = tmp_path / "input"
    (directory / "sub").mkdir(parents=True)
    (directory / "large.txt").write_text(make_lines(0, 400), encoding="utf-8")
    for index in range(8):
        (directory / "sub" / f"small-{index}.txt").write_text(make_lines(1 + index, 12), encoding="utf-8")
    monkeypatch.setenv(sample_declarations.INPUT_VARIABLE, str(directory))
    return directory
