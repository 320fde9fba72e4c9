"""Drift: how far two distributions of the same quantity lie apart, as one number whose name and source are known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

PSI = "PSI"
KS = "KS"

# From here on a change is worth a look, and from there on it is large. PSI: N. Siddiqi, "Credit Risk Scorecards",
# Wiley 2006. KS has no such convention; a distance of 0.1 is a tenth of the records on the other side of some value.
SOME = {PSI: 0.1, KS: 0.1}
LARGE = {PSI: 0.25, KS: 0.25}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift:
    """The drift of one quantity between two snapshots.

    Args:
        split: the split, or None for a statistic of the build, which belongs to no split.
        name: the feature or statistic.
        quantity: "length" (leading dimension; bytes of a text), "value" (numbers, from a sample) or "histogram".
        measure: "PSI" or "KS".
        distance: its value, 0 for equal distributions.
        noise: the distance that two samples of one distribution exceed in 5 % of cases.
        counts: how many values each side has.
        medians: of each side; None for a histogram.
    """

    split: str | None
    name: str
    quantity: str
    measure: str
    distance: float
    noise: float
    counts: tuple[int, int]
    medians: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """ "none", "some" or "large"; what chance may explain is none."""
        if self.distance < max(SOME[self.measure], self.noise):
            return "none"
        return "some" if self.distance < LARGE[self.measure] else "large"

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "verdict": self.verdict}


def population_stability_index(before: Sequence[int], after: Sequence[int]) -> tuple[float, float]:
    """The PSI of two histograms over the same ranges, and its noise.

        population_stability_index([50, 50], [50, 50])  →  (0.0, 0.077)
        population_stability_index([90, 10], [50, 50])  →  (0.854, 0.077)

    PSI = Σ (p − q) · ln(p / q) over the ranges (Siddiqi 2006; the symmetrised Kullback-Leibler divergence). Half a
    count is added to each range, so that empty ones do not make it infinite. Under equal distributions PSI divided by
    1/n + 1/m is about χ² with one degree of freedom less than there are ranges (B. Yurdakul, "Statistical Properties
    of Population Stability Index", 2018), whose 95 % quantile gives the noise.

    Raises `ValueError` where the histograms have different numbers of ranges, or one counts nothing.
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if first.shape != second.shape or not first.sum() or not second.sum():
        raise ValueError(f"two histograms over the same ranges that count something, got {before!r} and {after!r}")
    used = (first + second) > 0
    p, q = first[used] + 0.5, second[used] + 0.5
    p, q = p / p.sum(), q / q.sum()
    noise = chi_squared_95(max(int(used.sum()) - 1, 0)) * (1 / first.sum() + 1 / second.sum())
    return float(((p - q) * np.log(p / q)).sum()), float(noise)


def chi_squared_95(degrees: int) -> float:
    """The 95 % quantile of χ², within 1 % (E. B. Wilson, M. M. Hilferty, PNAS 17, 1931): 1 → 3.75, 10 → 18.29."""
    if degrees == 0:
        return 0.0
    return degrees * (1 - 2 / (9 * degrees) + 1.6448536 * math.sqrt(2 / (9 * degrees))) ** 3


def kolmogorov_smirnov(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> tuple[float, float]:
    """The two-sample Kolmogorov-Smirnov distance, and its noise.

        kolmogorov_smirnov(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6]))  →  (0.5, 0.96)

    The greatest distance between the two empirical distribution functions; equal values count at once. The noise is
    the critical value at 5 %: 1.358 · √((n + m) / (n · m)) (N. Smirnov, Annals of Mathematical Statistics 19, 1948).

    Raises `ValueError` where one side is empty.
    """
    if not len(before) or not len(after):
        raise ValueError(f"two samples that are not empty, got {len(before)} and {len(after)} values")
    first, second = np.sort(before), np.sort(after)
    both = np.concatenate([first, second])
    below_first = np.searchsorted(first, both, side="right") / len(first)
    below_second = np.searchsorted(second, both, side="right") / len(second)
    noise = 1.358 * math.sqrt((len(first) + len(second)) / (len(first) * len(second)))
    return float(np.abs(below_first - below_second).max()), noise
