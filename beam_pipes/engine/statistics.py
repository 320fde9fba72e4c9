"""Statistics of stages: counters, maxima and histograms.

A statistic can be copied, merged with another of its kind, printed, and stored as JSON; merging those of all shards, in
any order, gives the statistic of the build.
"""

from __future__ import annotations

import abc
import bisect
import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, ClassVar, TypeVar

from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError, InvalidStatisticsException, MergeStatisticsException, logger
from beam_pipes.storage.checked_json import JsonObject

T = TypeVar("T")
S = TypeVar("S", bound="Statistic")


class Statistic(abc.ABC):
    """A named measure that rides with the data and is merged over records, shards and builds.

    A subclass implements `_merge_from`, `copy` and `_pretty_print`, as in the Magenta reference. To be stored in a
    cache it also needs a JSON form; the default takes the instance's attributes, which therefore must be JSON
    values. `_merge_from` must be associative and commutative: shards are merged in the order in which they finish.
    """

    kinds: ClassVar[dict[str, type[Statistic]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        # Classes read back from a file are looked up here, never imported by a name found in the file.
        Statistic.kinds[cls.kind()] = cls

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def kind(cls) -> str:
        """The name under which this class is stored: bare for the built-in ones, `module:Class` for a user's own."""
        if cls.__module__.startswith("beam_pipes."):
            return cls.__name__
        return f"{cls.__module__}:{cls.__qualname__}"

    def merge_from(self, other: Statistic) -> None:
        """Adds what `other` has counted to this one; `other` is not changed.

        Raises:
            MergeStatisticsException: the two differ in class or name, or cannot be added.
        """
        if type(other) is not type(self):
            raise MergeStatisticsException(
                f"Cannot merge {type(other).__name__} {getattr(other, 'name', other)!r} into {type(self).__name__} "
                f"{self.name!r}: they are different kinds of statistics. Give them different names.",
                name=self.name,
            )
        if other.name != self.name:
            raise MergeStatisticsException(
                f"Cannot merge the statistic {other.name!r} into {self.name!r}: the names differ. "
                "Only statistics of the same name measure the same thing; see merge_statistics for a mixed list.",
                name=self.name,
            )
        self._merge_from(other)

    @abc.abstractmethod
    def _merge_from(self: S, other: S) -> None: ...

    @abc.abstractmethod
    def copy(self: S) -> S:
        """An independent copy: counting on one never changes the other."""

    @abc.abstractmethod
    def _pretty_print(self, name: str) -> str: ...

    def state(self) -> dict[str, object]:
        """The JSON form without the name; `from_state` is its inverse."""
        return {key: value for key, value in vars(self).items() if key != "name"}

    @classmethod
    def from_state(cls: type[S], name: str, state: JsonObject) -> S:
        """Rebuilds a statistic from `state()`."""
        statistic = cls.__new__(cls)
        statistic.__dict__.update(state, name=name)
        return statistic

    def __str__(self) -> str:
        return self._pretty_print(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pretty_print(self.name)}>"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Statistic)
        return self.name == other.name and self.state() == other.state()

    __hash__ = None  # type: ignore[assignment]  # it changes while counting


class StoredStatistic(Statistic):
    """A statistic read from a cache whose class is not imported here: it can be shown, but not merged."""

    def __init__(self, name: str, kind: str, stored: Mapping[str, object]) -> None:
        super().__init__(name)
        self.stored_kind = kind
        self.stored = dict(stored)

    def _merge_from(self, other: Statistic) -> None:
        raise MergeStatisticsException(
            f"Cannot merge {self.name!r}: its class {self.stored_kind!r} is not imported. Import its module first.",
            name=self.name,
        )

    def copy(self) -> StoredStatistic:
        return StoredStatistic(self.name, self.stored_kind, self.stored)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.stored}"


def to_json(statistic: Statistic) -> dict[str, object]:
    """`Counter('n', 3)` → `{'name': 'n', 'kind': 'Counter', 'state': {'count': 3}}`.

    Raises `InvalidStatisticsException` for a state with NaN or infinities.
    """
    if isinstance(statistic, StoredStatistic):
        return {"name": statistic.name, "kind": statistic.stored_kind, "state": statistic.stored}
    state = statistic.state()
    try:
        json.dumps(state, allow_nan=False)
    except ValueError:
        raise InvalidStatisticsException(
            f"the state of the statistic {statistic.name!r} should hold JSON values, got {brief(state)}: NaN and "
            f"infinities are not JSON numbers. Give {type(statistic).__qualname__} a state() that writes them as "
            "texts, and a from_state() that reads them.",
            where=statistic.name,
        ) from None
    except TypeError:
        pass  # said where it is written
    return {"name": statistic.name, "kind": statistic.kind(), "state": state}


def from_json(value: JsonObject) -> Statistic:
    """The inverse of `to_json`; a class that is not imported gives a `StoredStatistic`."""
    cls = Statistic.kinds.get(value["kind"])
    if cls is None:
        return StoredStatistic(value["name"], value["kind"], value["state"])
    return cls.from_state(value["name"], value["state"])


def plain_number(value: T) -> T:
    """A NumPy scalar as the Python number of the same value, which JSON can hold; anything else unchanged."""
    return value.item() if hasattr(value, "item") else value


def checked_statistics(stats: Any, *, where: str) -> list[Statistic]:
    """`stats` as a list, or `InvalidStatisticsException` if it is not an iterable of `Statistic`."""
    try:
        statistics = list(stats)
    except TypeError:
        raise InvalidStatisticsException(
            f"{where} should give a list of Statistic objects, got {brief(stats)}. Put it into a list: [statistic].",
            where=where,
        ) from None
    for statistic in statistics:
        if not isinstance(statistic, Statistic):
            raise InvalidStatisticsException(
                f"{where} should give Statistic objects only, got {brief(statistic)}. Use Counter, Histogram or a "
                "subclass of Statistic.",
                where=where,
            )
    return statistics


def merge_statistics(stats_list: Iterable[Statistic]) -> list[Statistic]:
    """Merges the statistics that have the same name; the arguments are not changed.

    `[n: 1, n: 1, bar: 1, n: 0]` → `[n: 2, bar: 1]`, in the order in which names first appear.
    """
    merged: dict[str, Statistic] = {}
    for statistic in checked_statistics(stats_list, where="the argument of merge_statistics"):
        known = merged.get(statistic.name)
        if known is None:
            merged[statistic.name] = statistic.copy()
        else:
            known.merge_from(statistic)
    return list(merged.values())


def log_statistics_list(stats_list: Iterable[Statistic], logger_fn: Callable[[str], object] | None = None) -> None:
    """Logs each statistic, sorted by name, through `logger_fn` (one line for a counter, several for a histogram)."""
    log = logger_fn or logger("beam_pipes.statistics").info
    for statistic in sorted(stats_list, key=lambda statistic: statistic.name):
        log(str(statistic))


class Counter(Statistic):
    """Counts something: `Counter('how_many_foo', 5)` prints `how_many_foo: 5`."""

    def __init__(self, name: str, start_value: int = 0) -> None:
        super().__init__(name)
        self.count = start_value

    def increment(self, inc: int = 1) -> None:
        """Adds `inc`."""
        self.count += inc

    def _merge_from(self, other: Counter) -> None:
        self.count += other.count

    def copy(self) -> Counter:
        return copy.copy(self)

    def state(self) -> dict[str, object]:
        return {**super().state(), "count": plain_number(self.count)}

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.count}"


class Maximum(Statistic):
    """The greatest of all values: `Maximum('longest', 12)` prints `longest: 12`. Merging keeps the greater one.

    NaN does not count as a value: it is skipped, and a statistic that has seen nothing else prints `nan`.
    """

    def __init__(self, name: str, value: int | float) -> None:
        super().__init__(name)
        self.value = value

    def update(self, value: int | float) -> None:
        """Takes one more value."""
        # NaN is neither greater nor smaller: the result of max() would depend on the order.
        if value > self.value or self.value != self.value:
            self.value = value

    def _merge_from(self, other: Maximum) -> None:
        self.update(other.value)

    def copy(self) -> Maximum:
        return copy.copy(self)

    def state(self) -> dict[str, object]:
        value = plain_number(self.value)
        # Legal here but not in JSON: infinities and NaN travel as strings, as in Histogram.
        return {**super().state(), "value": str(value) if isinstance(value, float) and not isfinite(value) else value}

    @classmethod
    def from_state(cls, name: str, state: JsonObject) -> Maximum:
        value = state["value"]
        return cls(name, float(value) if isinstance(value, str) else value)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.value}"


class Histogram(Statistic):
    """Counts values in the half-open ranges between `buckets`, and what lies below, above and is NaN.

    A range includes its lower bound. `Histogram('h', [0, 1, 2])` counts in `[-inf,0)`, `[0,1)`, `[1,2)` and
    `[2,inf)`. Empty ranges are not printed unless `verbose_pretty_print`. `buckets` holds the lower bounds, ascending,
    -inf first; `counters` is a dict of lower bound → count.

        histogram = Histogram('bar', [0, 1, 2, 3])
        histogram.increment(0.0); histogram.increment(1.2); histogram.increment(1.9)
        str(histogram)      →  "bar:\\n  [0,1): 1\\n  [1,2): 2"
        histogram.counters  →  {-inf: 0, 0: 1, 1: 2, 2: 0, 3: 0}

    Raises `DeclarationError` if there is no bucket, or one is NaN.
    """

    def __init__(self, name: str, buckets: Iterable[float], verbose_pretty_print: bool = False) -> None:
        super().__init__(name)
        given = set(buckets)
        self.buckets: list[float] = sorted({-math.inf, *given})
        is_nan = False
        for position, bucket in enumerate(self.buckets):  # stages make histograms for every record: no detours
            if type(bucket) is not int and type(bucket) is not float:
                self.buckets[position] = plain_number(bucket)
            is_nan |= bucket != bucket
        if is_nan or not given:
            raise DeclarationError(
                f"Histogram {name!r} needs at least one bucket boundary and none that is NaN, got {self._declared()}. "
                "Pass the lower bounds of the ranges, such as [0, 10, 100].",
                name=name,
            )
        self.counters: dict[float, int] = dict.fromkeys(self.buckets, 0)
        self.nan_count = 0
        self.verbose_pretty_print = verbose_pretty_print

    def _declared(self) -> list[float]:
        """The bounds without that of the range that always exists."""
        return [bucket for bucket in self.buckets if bucket != -math.inf]

    def increment(self, value: float, inc: int = 1) -> None:
        """Adds `inc` to the range that holds `value`."""
        if value != value:
            self.nan_count += inc
        else:
            self.counters[self.buckets[bisect.bisect_right(self.buckets, value) - 1]] += inc

    def _merge_from(self, other: Histogram) -> None:
        if self.buckets != other.buckets:
            raise MergeStatisticsException(
                f"Cannot merge the histogram {self.name!r}: one has the buckets {self._declared()}, "
                f"the other {other._declared()}. Use the same buckets, or different names.",
                name=self.name,
            )
        counters = self.counters
        for lower, count in other.counters.items():
            if count:  # in a statistic of one record few are not empty
                counters[lower] += count
        self.nan_count += other.nan_count

    def copy(self) -> Histogram:
        duplicate = copy.copy(self)
        duplicate.buckets = list(self.buckets)
        duplicate.counters = dict(self.counters)
        return duplicate

    def state(self) -> dict[str, object]:
        # Infinite boundaries are legal here and illegal in JSON: they travel as strings.
        declared = self._declared() or self.buckets
        return {
            "buckets": [str(b) if isinstance(b, float) and math.isinf(b) else b for b in declared],
            "counters": [plain_number(self.counters[lower]) for lower in self.buckets],
            "nan_count": plain_number(self.nan_count),
            "verbose_pretty_print": self.verbose_pretty_print,
        }

    @classmethod
    def from_state(cls, name: str, state: JsonObject) -> Histogram:
        buckets = [float(b) if isinstance(b, str) else b for b in state["buckets"]]
        histogram = cls(name, buckets, state["verbose_pretty_print"])
        counts = state["counters"][-len(histogram.buckets) :]  # a range from -inf to -inf was once kept, always empty
        histogram.counters = dict(zip(histogram.buckets, counts, strict=True))
        histogram.nan_count = state["nan_count"]
        return histogram

    @property
    def total(self) -> int:
        """How many values were counted, NaN included."""
        return sum(self.counters.values()) + self.nan_count

    def ranges(self) -> Sequence[tuple[str, int]]:
        """Every range with its count, in order: `[('[-inf,0)', 0), ('[0,1)', 2), ..., ('nan', 0)]`."""
        edges = [*(f"{bucket}" for bucket in self.buckets), "inf"]
        counts = map(self.counters.__getitem__, self.buckets)
        named = [(f"[{low},{high})", count) for low, high, count in zip(edges, edges[1:], counts, strict=False)]
        return [*named, ("nan", self.nan_count)]

    def _pretty_print(self, name: str) -> str:
        lines = [
            f"  {label}: {count}"
            for label, count in self.ranges()
            if count or (self.verbose_pretty_print and label != "nan")
        ]
        return "\n".join([f"{name}:", *lines])
