"""Lines of words, as the sample declarations read them."""

from __future__ import annotations

import random


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
