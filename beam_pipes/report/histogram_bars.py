"""A histogram as bars: heights and labels, few enough to be seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.engine.histogram import Histogram

MAX_BARS = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """One range: its label, count, and share of the tallest bar (0 to 1)."""

    label: str
    count: int
    share: float


def bars_of(histogram: Histogram) -> list[Bar]:
    """The bars of a statistic: from the first range that counts something to the last; neighbours merged beyond 40."""
    ranges = [(low, high, count) for (low, high), count in zip(_bounds(histogram), histogram.counters, strict=True)]
    filled = [position for position, (_, _, count) in enumerate(ranges) if count]
    ranges = ranges[filled[0] : filled[-1] + 1] if filled else []
    per_bar = -(-len(ranges) // MAX_BARS) or 1
    merged = [ranges[at : at + per_bar] for at in range(0, len(ranges), per_bar)]
    labelled = [(f"[{part[0][0]},{part[-1][1]})", sum(count for _, _, count in part)) for part in merged]
    if histogram.nan_count:
        labelled.append(("nan", histogram.nan_count))
    return _scaled(labelled)


def bars_of_values(values: npt.NDArray[Any], *, bars: int = 24) -> list[Bar]:
    """The bars of integers, in ranges of equal width: `[1, 1, 2]` → `[1,2)`: 2, `[2,3)`: 1."""
    if not len(values):
        return []
    low, high = int(values.min()), int(values.max())
    width = max(1, -(-(high - low + 1) // bars))
    edges = np.arange(low, high + width + 1, width)
    counts, _ = np.histogram(values, edges)
    pairs = zip(edges.tolist(), edges[1:].tolist(), counts.tolist(), strict=False)
    return _scaled([(f"[{start},{end})", count) for start, end, count in pairs])


def _bounds(histogram: Histogram) -> list[tuple[str, str]]:
    edges = ["-inf", *map(_number, histogram.buckets)]
    return list(zip(edges, [*edges[1:], "inf"], strict=True))


def _number(bucket: float) -> str:
    """In few digits, where these are the number: of 0.1234567 and 0.1234568 six digits would make one bound."""
    short = f"{bucket:g}"
    return short if isinstance(bucket, float) and float(short) == bucket else str(bucket)


def _scaled(labelled: list[tuple[str, int]]) -> list[Bar]:
    tallest = max((count for _, count in labelled), default=0) or 1
    return [Bar(label=label, count=count, share=max(count, 0) / tallest) for label, count in labelled]
