"""Expectations: what must hold of a new snapshot before readers may see it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from beam_pipes.cache.reader import Cache
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistics import Counter, Histogram, Maximum, Statistic
from beam_pipes.errors import CacheNotFoundError, DeclarationError, ExpectationError

_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_GRAMMAR = re.compile(
    rf"(?P<subject>\S+)(?:\s+(?P<measure>p\d{{1,2}}|mean|max|records))?\s+"
    rf"(?:within\s+(?P<within>{_NUMBER})\s*%\s+of\s+last\s+snapshot"
    rf"|(?P<comparison><=|>=)\s*(?P<limit>{_NUMBER})(?P<percent>\s*%\s+of\s+read)?"
    rf"|between\s+(?P<low>{_NUMBER})\s+and\s+(?P<high>{_NUMBER}))"
)
_COUNTS = ("read", "written", "dropped", "dead")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectation:
    """One expectation, as `expect` reads it. `low` and `high` bound the value; `within` is a share of the last one."""

    text: str
    subject: str
    measure: str | None
    low: float | None = None
    high: float | None = None
    within: float | None = None
    of_read: bool = False

    def bounds(self, last: float | None, read: int) -> tuple[float, float]:
        """The least and the greatest allowed value, given the last snapshot's value and the number of records read."""
        if self.within is not None:
            if last is None:
                return -np.inf, np.inf  # the first snapshot has nothing to compare with
            return last - abs(last) * self.within, last + abs(last) * self.within
        unit = read / 100 if self.of_read else 1.0
        return (-np.inf if self.low is None else self.low * unit), (np.inf if self.high is None else self.high * unit)


def expect(text: str) -> Expectation:
    """An expectation for `Declaration(expectations=(...))`, checked before a snapshot is published.

        expect("train.tokens p50 within 20% of last snapshot")    lengths of a feature: pNN, mean or max
        expect("dead <= 1% of read")                              read, written, dropped, dead: counts of records
        expect("train records >= 1000")                           records of a split
        expect("Demo_ByteTokens_tokens p95 between 100 and 5e4")  a Counter, Maximum, or Histogram (pNN) of a stage

    A quantile of a Histogram is interpolated within its range. A comparison with the last snapshot holds if there is
    none. A build whose snapshot does not meet an expectation ends in `ExpectationError` and publishes nothing; its
    shards are kept. Expectations are not part of fingerprints: changing them rebuilds nothing.

    Raises `DeclarationError` if the text is not one of these.
    """
    match = _GRAMMAR.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise DeclarationError(
            f"cannot read the expectation {text!r}. Expected SUBJECT [pNN | mean | max | records], then 'within N% of "
            "last snapshot', '<= N', '>= N' (also 'N% of read'), or 'between N and N'. "
            "Example: 'train.tokens p50 within 20% of last snapshot'."
        )
    limit = match["limit"]
    low, high = match["low"], match["high"]
    if low is not None and float(low) > float(high):
        raise DeclarationError(
            f"the expectation {text!r} cannot hold: {low} is above {high}. Expected 'between LOW and HIGH'."
        )
    if match["within"] is not None and float(match["within"]) < 0:
        raise DeclarationError(
            f"the expectation {text!r} cannot hold: 'within N%' is a distance, up or down. Expected N of at least 0."
        )
    if limit is not None:
        low, high = (limit, None) if match["comparison"] == ">=" else (None, limit)
    return Expectation(
        text=text.strip(),
        subject=match["subject"],
        measure=match["measure"],
        low=None if low is None else float(low),
        high=None if high is None else float(high),
        within=None if match["within"] is None else float(match["within"]) / 100,
        of_read=match["percent"] is not None,
    )


def require_expected(expectations: Sequence[Expectation], snapshot: Cache, root: str) -> None:
    """Raises `ExpectationError`, naming every expectation that `snapshot`, not published yet, does not meet."""
    if not expectations:
        return
    try:
        last = Cache.open(root)
    except CacheNotFoundError:
        last = None
    failed = list(_failures(expectations, snapshot, last))
    if failed:
        raise ExpectationError(
            f"{root}: the new snapshot is not as expected: {'; '.join(failed)}. Nothing was published, and the "
            "published snapshot stays. Check the input and the stages; if the data are correct, change the "
            "expectation and build again, which reuses all finished shards.",
            path=root,
            failed=failed,
        )


def _failures(expectations: Sequence[Expectation], snapshot: Cache, last: Cache | None) -> Iterator[str]:
    read = Account.from_json(snapshot.manifest.accounting).read
    for each in expectations:
        value = _value(each, snapshot)
        if value is None:
            yield f"{each.text!r} (there is no {' '.join(filter(None, [each.subject, each.measure]))})"
            continue
        before = None if last is None or each.within is None else _value(each, last)
        low, high = each.bounds(before, read)
        if not low <= value <= high:
            compared = "" if before is None else f", the last snapshot has {before:g}"
            yield f"{each.text!r} (it is {value:g}{compared})"


def _value(expectation: Expectation, cache: Cache) -> float | None:
    subject, measure = expectation.subject, expectation.measure
    account = Account.from_json(cache.manifest.accounting)
    if subject in _COUNTS and measure in (None, "records"):
        return float(getattr(account, subject))
    if subject in cache.manifest.splits and measure in (None, "records"):
        return float(cache.manifest.splits[subject].num_records)
    split, _, feature = subject.partition(".")
    if split in cache.manifest.splits and feature in cache.manifest.splits[split].lengths:
        return _of_lengths(cache, split, feature, measure)
    found = next((each for each in account.statistics() if each.name == subject), None)
    return None if found is None else _of_statistic(found, measure)


def _of_lengths(cache: Cache, split: str, feature: str, measure: str | None) -> float | None:
    manifest = cache.manifest.splits[split]
    total, most = manifest.lengths[feature]
    if not manifest.num_records or measure in (None, "records"):
        return None
    if measure == "max":
        return float(most)
    if measure == "mean":
        return total / manifest.num_records
    return float(np.quantile(cache[split].lengths(feature), int(measure[1:]) / 100, method="nearest"))


def _of_statistic(statistic: Statistic, measure: str | None) -> float | None:
    if isinstance(statistic, Counter) and measure is None:
        return float(statistic.count)
    if isinstance(statistic, Maximum) and measure in (None, "max"):
        return float(statistic.value)
    if isinstance(statistic, Histogram) and measure is not None and measure.startswith("p"):
        return quantile_of_histogram(statistic, int(measure[1:]) / 100)
    return None


def quantile_of_histogram(histogram: Histogram, share: float) -> float | None:
    """The value below which `share` of the counts lie, interpolated within its range; None if nothing is counted.

    An open range gives its only finite bound. Values that are NaN do not count.
    """
    total = sum(histogram.counters.values())
    if not total:
        return None
    below, wanted = 0.0, share * total
    bounds = histogram.buckets[1:] or histogram.buckets
    edges = [bounds[0], *bounds, bounds[-1]]
    for position, count in enumerate(histogram.counters.values()):
        if count and below + count >= wanted:
            low, high = edges[position], edges[position + 1]
            if math.isinf(low) or math.isinf(high):  # there is nothing to interpolate towards
                return float(high if math.isinf(low) else low)
            return float(low + (high - low) * (wanted - below) / count)
        below += count
    return float(bounds[-1])
