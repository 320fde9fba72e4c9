"""Fixtures that several rooms share."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import sample_declarations


def make_lines(seed: int, count: int, *, boom: int = 0) -> str:
    """`count` lines of words, some empty, `boom` of them such that a stage fails on them."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        words = ["".join(rng.choices("abcdefgéß", k=rng.randint(1, 9))) for _ in range(rng.randint(0, 12))]
        lines.append(" ".join(words))
    for position in rng.sample(range(count), boom):
        lines[position] = f"boom {position}"
    return "\n".join(lines) + "\n"


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
