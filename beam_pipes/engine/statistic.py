"""What a statistic is: it can be copied, merged with another of its kind, printed, and stored as JSON."""

from __future__ import annotations

import abc
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from beam_pipes.engine.signature import brief
from beam_pipes.errors import InvalidStatisticsException, MergeStatisticsException

S = TypeVar("S", bound="Statistic")


class Statistic(abc.ABC):
    """A named measure that rides with the data and is merged over records, shards and builds.

    A subclass implements `_merge_from`, `copy` and `_pretty_print`, as in the Magenta reference. To be stored in a
    cache it also needs a JSON form; the default takes the instance's attributes, which therefore have to be JSON
    values. `_merge_from` has to be associative and commutative: shards are merged in whatever order they finish.
    """

    kinds: ClassVar[dict[str, type[Statistic]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # What is read back from a file is looked up here, never imported by a name found in the file.
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
                f"Cannot merge {type(other).__name__} {getattr(other, 'name', other)!r} into "
                f"{type(self).__name__} {self.name!r}: they are different kinds of statistics. "
                "Give them different names.",
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
    def _merge_from(self, other: Any) -> None: ...

    @abc.abstractmethod
    def copy(self: S) -> S:
        """An independent copy: counting on one never changes the other."""

    @abc.abstractmethod
    def _pretty_print(self, name: str) -> str: ...

    def state(self) -> dict[str, Any]:
        """The JSON form without the name; `from_state` is its inverse."""
        return {key: value for key, value in vars(self).items() if key != "name"}

    @classmethod
    def from_state(cls: type[S], name: str, state: Mapping[str, Any]) -> S:
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

    def __init__(self, name: str, kind: str, stored: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.stored_kind = kind
        self.stored = dict(stored)

    def _merge_from(self, other: Any) -> None:
        raise MergeStatisticsException(
            f"Cannot merge {self.name!r}: its class {self.stored_kind!r} is not imported. Import its module first.",
            name=self.name,
        )

    def copy(self) -> StoredStatistic:
        return StoredStatistic(self.name, self.stored_kind, self.stored)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.stored}"


def to_json(statistic: Statistic) -> dict[str, Any]:
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
            f"the state of the statistic {statistic.name!r} should hold what JSON has, got {brief(state)}: NaN and "
            f"infinities are no numbers of JSON. Give {type(statistic).__qualname__} a state() that writes them as "
            "texts, and a from_state() that reads them.",
            where=statistic.name,
        ) from None
    except TypeError:
        pass  # said where it is written
    return {"name": statistic.name, "kind": statistic.kind(), "state": state}


def from_json(value: Mapping[str, Any]) -> Statistic:
    """The inverse of `to_json`; a class that is not imported gives a `StoredStatistic`."""
    cls = Statistic.kinds.get(value["kind"])
    if cls is None:
        return StoredStatistic(value["name"], value["kind"], value["state"])
    return cls.from_state(value["name"], value["state"])


def plain_number(value: Any) -> Any:
    """A NumPy scalar as the Python number of the same value, which JSON can hold; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def checked_statistics(stats: Any, *, where: str) -> list[Statistic]:
    """`stats` as a list, or `InvalidStatisticsException` where it is not an iterable of `Statistic`."""
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


def log_statistics_list(stats_list: Iterable[Statistic], logger_fn: Callable[[str], Any] | None = None) -> None:
    """Logs each statistic, sorted by name, through `logger_fn` (one line for a counter, several for a histogram)."""
    log = logger_fn or logging.getLogger("beam_pipes.statistics").info
    for statistic in sorted(stats_list, key=lambda statistic: statistic.name):
        log(str(statistic))
