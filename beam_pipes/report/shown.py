"""The elements of pages: values as short texts, histograms as bars, and the templates beside this file.

Everything that comes from data is escaped.
"""

from __future__ import annotations

import codecs
import dataclasses
import importlib.resources
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from beam_pipes.engine.statistics import Histogram
from beam_pipes.errors import visible
from beam_pipes.extras import require

MAX_CHARACTERS = 600


def shown_value(value: object, *, max_characters: int = MAX_CHARACTERS) -> str:
    """`np.array([1, 2], np.int32)` → `int32[2] [1 2]`; texts unchanged, bytes as a literal; truncated if long.

    Control characters become escapes, so that no terminal or page interprets them.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        text = np.array2string(value, threshold=24, edgeitems=12, max_line_width=10**6)
        text = f"{value.dtype}{list(value.shape)} " + " ".join(text.split())
    elif isinstance(value, str):
        text = value[: max_characters + 1]
    elif isinstance(value, (bytes, bytearray)):
        text = repr(bytes(value[: max_characters + 1]))
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key}: {shown_value(each, max_characters=120)}" for key, each in value.items())
    else:
        text = repr(value) if not isinstance(value, np.generic) else f"{value.item()!r}"
    cut = text if len(text) <= max_characters else text[: max_characters - 1] + "…"
    return visible(cut)


def shown_bytes(data: bytes, *, max_characters: int = MAX_CHARACTERS) -> str:
    """Bytes as text if they are UTF-8, else as a literal: `b"caf\\xc3\\xa9"` → `café`, `b"\\xff"` → `b'\\xff'`.

    Bytes with a NUL do not count as text.
    """
    head = data[: 4 * max_characters + 4]
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(head, final=len(head) == len(data))
    except UnicodeDecodeError:
        text = "\0"
    return shown_value(data if "\0" in text else text, max_characters=max_characters)


def render(name: str, facts: Mapping[str, object]) -> str:
    """`render("report.html.j2", {...})` → the page. A name that the template uses and `facts` lacks is an error.

    Raises `MissingExtraError` without jinja2 (extra `cli`).
    """
    jinja2 = require("jinja2", purpose="report.html")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text_of),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return str(environment.get_template(name).render(facts)).lstrip()


def _text_of(name: str) -> str:
    return importlib.resources.files("beam_pipes.report").joinpath(name).read_text(encoding="utf-8")


MAX_BARS = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """One range: its label, count, and share of the tallest bar (0 to 1). `start` and `end` are its bounds as texts.

    A bar without a range, such as that of NaN, has no bounds.
    """

    label: str
    count: int
    share: float
    start: str = ""
    end: str = ""


def bars_of(histogram: Histogram) -> list[Bar]:
    """The bars of a statistic: from the first range that counts something to the last; neighbours merged beyond 40."""
    counts = histogram.counters.values()
    ranges = [(low, high, count) for (low, high), count in zip(_bounds(histogram), counts, strict=True)]
    filled = [position for position, (_, _, count) in enumerate(ranges) if count]
    ranges = ranges[filled[0] : filled[-1] + 1] if filled else []
    per_bar = -(-len(ranges) // MAX_BARS) or 1
    merged = [ranges[at : at + per_bar] for at in range(0, len(ranges), per_bar)]
    found = [(part[0][0], part[-1][1], sum(count for _, _, count in part)) for part in merged]
    return _scaled([*found, *([("nan", "", histogram.nan_count)] if histogram.nan_count else [])])


def bars_of_values(values: np.ndarray, *, bars: int = 24) -> list[Bar]:
    """The bars of numbers, none of them NaN: `[1, 1, 2]` → `[1,2)`: 2, `[2,3)`: 1.

    Ranges are of equal width; if the greatest value is far above the median, each is wider than the previous one by the
    same factor (a logarithmic axis). Bounds of integers are integers.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return []
    whole = finite.dtype.kind in "iu" or bool((finite == np.round(finite)).all())
    edges = _edges(float(finite.min()), float(finite.max()), float(np.median(finite)), bars, whole=whole)
    counts, _ = np.histogram(finite, edges)
    texts = [str(int(edge)) if whole else f"{edge:.4g}" for edge in edges]
    return _scaled(list(zip(texts[:-1], texts[1:], counts.tolist(), strict=True)))


# If the greatest value is at least this many medians, the axis is logarithmic.
_SKEWED = 32


def _edges(low: float, high: float, median: float, bars: int, *, whole: bool) -> npt.NDArray[np.float64]:
    if low >= 0 and high > _SKEWED * max(median, 1.0 if whole else 0.0) > 0:
        least = max(low, 1.0) if whole else max(low, high / 10**6)
        edges = np.geomspace(least, high + 1 if whole else np.nextafter(high, np.inf), bars + 1)
        edges = np.unique(np.concatenate([[0.0] if low < least else [], np.round(edges) if whole else edges]))
        edges[-1] = max(edges[-1], high + 1 if whole else high)
        return edges
    if whole:
        width = max(1, -(-int(high - low + 1) // bars))
        return np.arange(low, high + width + 1, width, dtype=np.float64)
    return np.linspace(low, high, bars + 1) if high > low else np.array([low, np.nextafter(low, np.inf)])


def _bounds(histogram: Histogram) -> list[tuple[str, str]]:
    edges = [*map(_number, histogram.buckets)]
    return list(zip(edges, [*edges[1:], "inf"], strict=True))


def _number(bucket: float) -> str:
    """With few digits, if these are exact: six digits would turn 0.1234567 and 0.1234568 into one bound."""
    short = f"{bucket:g}"
    return short if isinstance(bucket, float) and float(short) == bucket else str(bucket)


def _scaled(ranges: list[tuple[str, str, int]]) -> list[Bar]:
    """Bars of (start, end, count); without an end, the start is the bar's label."""
    tallest = max((count for _, _, count in ranges), default=0) or 1
    return [
        Bar(
            label=f"[{start},{end})" if end else start,
            count=count,
            share=max(count, 0) / tallest,
            start=start if end else "",
            end=end,
        )
        for start, end, count in ranges
    ]
