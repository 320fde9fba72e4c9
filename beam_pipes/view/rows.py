"""The rows that a page asks for: those that meet a condition, hold a text, in the order of a column.

    asked = Question(where="n > 3", search="to be", sort="n", descending=True)
    answer = Answer(split, asked)
    answer.look_further(secs=0.5)       # searching is bounded by time, and is continued by another call
    answer.rows(0, 40)  →  array([712, 3, …])   numbers of records in the whole split

Only what is needed is read: nothing without a question, the columns of a condition or an order, the texts of a search.
"""

from __future__ import annotations

import dataclasses
import keyword
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from beam_pipes.cache import Cache, Split
from beam_pipes.cache.filtered import RECORDS_AT_ONCE
from beam_pipes.errors import SpecError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.report.distributions import spread_rows
from beam_pipes.report.shown import bars_of_values, shown_value

# Texts are sorted by this many bytes: 320 MB for 10^7 of them.
SORTED_BYTES = 32
# A histogram of so many records is exact to a pixel.
HISTOGRAM_RECORDS = 200_000
_SEARCHED_BYTES, _MOST_SEARCHED = 8_000_000, 1 << 16
_FREQUENT = 20
_SHARDS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What a page asks of a split; an empty text asks for nothing."""

    where: str = ""
    search: str = ""
    sort: str = ""
    descending: bool = False


class Answer:
    """The rows that answer a question; `looked` of `of` records were searched so far, and `count` of them are left.

    Raises `SpecError` for an invalid condition, and for a feature that cannot be sorted by.
    """

    def __init__(self, split: Split, asked: Question) -> None:
        part = split.where(asked.where) if asked.where else split
        self._split, self._asked = split, asked
        self._among: Array | None = None if part.choice is None else part.choice.rows
        self.of = len(part)
        self.looked = 0 if asked.search else self.of
        self._found = np.empty(0, np.int64)
        self._ordered: Array | None = None
        self._lock = threading.Lock()
        if asked.sort:
            sortable(split, asked.sort)

    @property
    def count(self) -> int:
        return len(self._found) if self._asked.search else self.of

    def look_further(self, *, secs: float) -> None:
        """Searches for so long, and at least one portion."""
        with self._lock:
            until, found = time.monotonic() + secs, [self._found]
            while self.looked < self.of:
                rows = self._candidates(self.looked, _portion(self._split))
                found.append(rows[_holding(self._split, rows, self._asked.search)])
                self.looked += len(rows)
                if time.monotonic() >= until:
                    break
            if len(found) > 1:
                self._found, self._ordered = np.concatenate(found), None

    def rows(self, start: int, count: int) -> Array:
        """(k,) int64: the numbers of `count` records in the whole split, from place `start` of the answer on."""
        if not self._asked.sort:
            return self._unordered(start, count)
        with self._lock:
            if self._ordered is None:
                every = self._unordered(0, self.count)
                order = _order(column(self._split, self._asked.sort, every), descending=self._asked.descending)
                self._ordered = every[order].astype(np.uint32 if len(self._split) < 1 << 32 else np.int64)
            return self._ordered[start : start + count].astype(np.int64)

    def sample(self, most: int) -> Array:
        """Up to `most` rows of the answer, spread evenly over it, ascending."""
        if self.count <= most:
            return self._unordered(0, self.count)
        if self._among is None and not self._asked.search:
            return np.unique(spread_rows(self._split.shard_sizes.astype(np.int64), most))
        rows = self._found if self._asked.search else self._among
        assert rows is not None
        return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)].astype(np.int64)

    def _unordered(self, start: int, count: int) -> Array:
        return self._found[start : start + count] if self._asked.search else self._candidates(start, count)

    def _candidates(self, start: int, count: int) -> Array:
        if self._among is None:
            return np.arange(start, max(start, min(start + count, self.of)), dtype=np.int64)
        return self._among[start : start + count].astype(np.int64)


def sortable(split: Split, feature: str) -> FeatureSpec:
    """The spec of a feature with one number, text or length per record; `SpecError` names them all for another."""
    known = features_of_split(split)
    if feature not in known:
        named = ", ".join(known) or "none: its records have no features"
        raise SpecError(f"{feature!r} is no feature of split {split.name!r}, which has {named}.")
    return known[feature]


def features_of_split(split: Split) -> dict[str, FeatureSpec]:
    """The features of records that are examples; empty for messages and bytes."""
    return dict(split.spec) if split.kind == "example" else {}


def is_scalar(spec: FeatureSpec) -> bool:
    """Whether a feature is one number or text, which is compared itself; of others it is the length."""
    return not spec.shape and (spec.dtype == "str" or not spec.is_text)


def column(split: Split, feature: str, rows: Array) -> Array:
    """(k,): a number of each record, the first bytes of a text, or a length."""
    spec = sortable(split, feature)
    parts = [
        _part(split, feature, spec, rows[begin : begin + RECORDS_AT_ONCE])
        for begin in range(0, len(rows), RECORDS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _part(split: Split, feature: str, spec: FeatureSpec, rows: Array) -> Array:
    if not is_scalar(spec):
        return split.lengths(feature, rows)
    if spec.dtype != "str":
        return split.gather(rows, features=[feature])[feature]
    data, lengths = split.gather_values(feature, rows)
    first = np.cumsum(lengths) - lengths
    kept = np.minimum(lengths, SORTED_BYTES)
    made = np.zeros((len(rows), SORTED_BYTES), np.uint8)
    inside = np.arange(SORTED_BYTES) < kept[:, None]
    made[inside] = data[(first[:, None] + np.arange(SORTED_BYTES))[inside]]
    return made.view(f"S{SORTED_BYTES}")[:, 0]


def _order(keys: Array, *, descending: bool) -> Array:
    """Equal ones stay in the order of the cache, and NaN is last, whichever the direction."""
    if not descending:
        return np.argsort(keys, kind="stable")
    if keys.dtype.kind == "f":
        return np.argsort(-keys, kind="stable")
    return len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]


# Search.


def _portion(split: Split) -> int:
    return max(1, min(_MOST_SEARCHED, _SEARCHED_BYTES * max(1, len(split)) // max(1, split.num_bytes)))


def searched_features(split: Split) -> list[str]:
    """The features that are searched: single texts. Of messages and bytes, it is the whole record."""
    return [name for name, spec in features_of_split(split).items() if spec.dtype == "str" and not spec.shape]


def _holding(split: Split, rows: Array, text: str) -> list[int]:
    """The places of those `rows` that hold a text; capitals of ASCII count only where the text has one."""
    needle, is_folded = text.encode("utf-8", "surrogatepass"), text == text.lower()
    if split.kind != "example":
        records = (split.record_bytes(int(row)) for row in rows)
        return [at for at, record in enumerate(records) if needle in (record.lower() if is_folded else record)]
    found: set[int] = set()
    for feature in searched_features(split):
        values, lengths = split.gather_values(feature, rows)
        data = values.tobytes()
        found.update(_records_with(data.lower() if is_folded else data, np.cumsum(lengths), needle))
    return sorted(found)


def _records_with(data: bytes, ends: Array, needle: bytes) -> Iterator[int]:
    """The numbers of the texts, one after the other up to `ends`, that hold `needle`."""
    at = data.find(needle)
    while at >= 0:
        number = int(np.searchsorted(ends, at, side="right"))
        if at + len(needle) <= int(ends[number]):
            yield number
            at = int(ends[number]) - 1
        at = data.find(needle, at + 1)


# How a column is spread.


def spread(split: Split, answer: Answer, feature: str) -> dict[str, object]:
    """The bars of a feature, each with the conditions that choose it: what a brushed histogram adds to `where`."""
    spec, rows = sortable(split, feature), answer.sample(HISTOGRAM_RECORDS)
    said = _quoted(feature)
    made: list[dict[str, object]] = []
    if is_scalar(spec) and (spec.dtype == "str" or spec.class_names):
        texts = split.gather(rows[:: max(1, len(rows) // 20_000)], features=[feature])[feature].tolist()
        frequent, tallest = Counter(texts).most_common(_FREQUENT), 1
        names = spec.class_names or ()
        for value, count in frequent:
            tallest = max(tallest, count)
            name = names[value] if isinstance(value, int) and 0 <= value < len(names) else value
            text = shown_value(name, max_characters=60)
            made.append({"label": text, "count": count, "share": count / tallest, "only": f"{said} == {value!r}"})
        return {"feature": feature, "records": len(texts), "of": answer.count, "kind": "values", "bars": made}
    measured = said if is_scalar(spec) else f"len({said})"
    values = column(split, feature, rows)
    values = values.astype(np.int64) if values.dtype == bool else values
    bars = bars_of_values(values[np.isfinite(values)])
    for number, bar in enumerate(bars):
        lower = f"{measured} >= {bar.start}" if number else ""
        upper = f"{measured} < {bar.end}" if number < len(bars) - 1 else ""
        made.append({"label": bar.label, "count": bar.count, "share": bar.share, "lower": lower, "upper": upper})
    return {"feature": measured, "records": len(rows), "of": answer.count, "kind": "ranges", "bars": made}


def _quoted(feature: str) -> str:
    """A feature as the language of `where` names it."""
    return feature if feature.isidentifier() and not keyword.iskeyword(feature) else f"`{feature}`"


def splits_in_words(cache: Cache) -> Sequence[dict[str, object]]:
    """Each split: its name, records, shards, bytes and features."""
    made = []
    for name in cache.splits:
        split = cache[name]
        features = [
            {"name": each, "type": spec.dtype + "".join(f"[{size or ''}]" for size in spec.shape)}
            for each, spec in features_of_split(split).items()
        ]
        shards = [
            {"records": records, "bytes": size}
            for records, size in zip(
                split.shard_sizes[:_SHARDS].tolist(), cache.manifest.splits[name].bytes[:_SHARDS], strict=True
            )
        ]
        made.append(
            {
                "name": name,
                "kind": split.kind,
                "records": len(split),
                "bytes": split.num_bytes,
                "num_shards": split.num_shards,
                "shards": shards,
                "features": features,
                "searched": searched_features(split) if split.kind == "example" else ["the bytes of records"],
                "taken_down": len(split.removed_rows),
            }
        )
    return made
