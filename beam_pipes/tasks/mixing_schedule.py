"""Whose turn it is in a mixture, so that every prefix has the right proportions.

Tijdeman's algorithm ("The chairman assignment problem", Discrete Mathematics 32, 1980), step by step: of the tasks that
are due, the one with the earliest deadline is next. After n examples, each task has given its share of n, to
less than
one example.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from beam_pipes.errors import TaskError


def exact_rates(rates: Sequence[float]) -> list[int]:
    """Rates as whole numbers in the same proportions; decimals are taken as written: `[0.7, 0.2, 0.1]` → `[7,
    2, 1]`."""
    fractions = [Fraction(repr(float(rate))) for rate in rates]
    if not fractions or min(fractions) < 0 or not any(fractions):
        raise TaskError(f"rates of a mixture are not negative, and one of them is positive; got {list(rates)}")
    scale = math.lcm(*(fraction.denominator for fraction in fractions))
    whole = [int(fraction * scale) for fraction in fractions]
    divisor = math.gcd(*whole)
    return [rate // divisor for rate in whole]


def schedule(rates: Sequence[int]) -> Iterator[int]:
    """Endless turns: `[2, 1]` → 0, 1, 0, 0, 1, 0, ... Indices of `rates`; those with rate 0 never have one."""
    total = sum(rates)
    active = [index for index, rate in enumerate(rates) if rate]
    if len(active) == 1:
        while True:
            yield active[0]
    slack = 2 * len(active) - 2
    given = [0] * len(rates)
    due = [(-(-total // (slack * rates[index])), index) for index in active]
    heapq.heapify(due)
    ready: list[tuple[int, int]] = []
    turn = 0
    while True:
        turn += 1
        while due and due[0][0] <= turn:
            index = heapq.heappop(due)[1]
            deadline = total * (slack * (given[index] + 1) - 1) // (slack * rates[index])
            heapq.heappush(ready, (deadline, index))
        index = heapq.heappop(ready)[1]
        yield index
        given[index] += 1
        heapq.heappush(due, (-(-total * (slack * given[index] + 1) // (slack * rates[index])), index))
