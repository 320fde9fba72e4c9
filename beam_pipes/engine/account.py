"""Accounts: what happened to every input of every unit, and to every record. They add up, or nothing is published.

Also: what remains of an account after part of it is taken out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from beam_pipes.engine.statistics import Counter as Counter  # the kinds of statistics that every account may hold
from beam_pipes.engine.statistics import Histogram as Histogram
from beam_pipes.engine.statistics import Maximum as Maximum
from beam_pipes.engine.statistics import Statistic, from_json, merge_statistics, to_json
from beam_pipes.errors import ReconciliationError
from beam_pipes.storage.checked_json import JsonObject

# The reason counted when a stage returns nothing without naming one.
NO_OUTPUT = "no_output"


@dataclasses.dataclass(slots=True)
class UnitAccount:
    """The account of one unit: `inputs = kept + dropped + dead`.

    | count | meaning |
    | --- | --- |
    | inputs | calls of `transform` |
    | kept | calls that gave at least one output |
    | outputs | values given, over all outputs |
    | dropped | reason → calls that gave nothing |
    | partly_dropped | reason → parts that a call left out while it kept others |
    | dead | calls that failed |
    """

    inputs: int = 0
    kept: int = 0
    outputs: int = 0
    dead: int = 0
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    partly_dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    statistics: dict[str, Statistic] = dataclasses.field(default_factory=dict)

    def merge_from(self, other: UnitAccount) -> None:
        """Adds `other`, which is not changed."""
        self.inputs += other.inputs
        self.kept += other.kept
        self.outputs += other.outputs
        self.dead += other.dead
        if other.dropped:
            add_counts(self.dropped, other.dropped)
        if other.partly_dropped:
            add_counts(self.partly_dropped, other.partly_dropped)
        if other.statistics:
            self.add_statistics(other.statistics.values())

    def add_statistics(self, statistics: Iterable[Statistic]) -> None:
        """Merges statistics by name."""
        for statistic in statistics:
            known = self.statistics.get(statistic.name)
            if known is None:
                self.statistics[statistic.name] = statistic.copy()
            else:
                known.merge_from(statistic)

    def to_json(self) -> dict[str, object]:
        return {
            "inputs": self.inputs,
            "kept": self.kept,
            "outputs": self.outputs,
            "dead": self.dead,
            "dropped": dict(sorted(self.dropped.items())),
            "partly_dropped": dict(sorted(self.partly_dropped.items())),
            "statistics": [to_json(self.statistics[name]) for name in sorted(self.statistics)],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> UnitAccount:
        statistics = [from_json(statistic) for statistic in value["statistics"]]
        return cls(
            inputs=value["inputs"],
            kept=value["kept"],
            outputs=value["outputs"],
            dead=value["dead"],
            dropped=dict(value["dropped"]),
            partly_dropped=dict(value["partly_dropped"]),
            statistics={statistic.name: statistic for statistic in statistics},
        )


@dataclasses.dataclass(slots=True)
class Account:
    """The account of a batch, a source shard or a build: `read = written + dropped + dead`, over records."""

    read: int = 0
    written: int = 0
    dropped: int = 0
    dead: int = 0
    outputs: dict[str, int] = dataclasses.field(default_factory=dict)
    units: dict[str, UnitAccount] = dataclasses.field(default_factory=dict)

    def unit(self, name: str) -> UnitAccount:
        """The account of one unit, created on first use."""
        account = self.units.get(name)
        if account is None:
            account = self.units[name] = UnitAccount()
        return account

    def merge_from(self, other: Account) -> None:
        """Adds `other`, which is not changed."""
        self.read += other.read
        self.written += other.written
        self.dropped += other.dropped
        self.dead += other.dead
        add_counts(self.outputs, other.outputs)
        for name, account in other.units.items():
            self.unit(name).merge_from(account)

    def statistics(self) -> list[Statistic]:
        """All statistics, merged by name, in the order of the units."""
        return merge_statistics(s for account in self.units.values() for s in account.statistics.values())

    def reconcile(self, *, where: str) -> None:
        """Raises `ReconciliationError` unless every record and every input of every unit is accounted for."""
        if self.read != self.written + self.dropped + self.dead:
            raise ReconciliationError(
                f"{where}: {self.read} records were read, but {self.written} written + {self.dropped} dropped + "
                f"{self.dead} dead letters = {self.written + self.dropped + self.dead}. Nothing was published.",
                account=self.to_json(),
            )
        for name, unit in self.units.items():
            dropped = sum(unit.dropped.values())
            if unit.inputs != unit.kept + dropped + unit.dead:
                raise ReconciliationError(
                    f"{where}, stage {name!r}: {unit.inputs} inputs, but {unit.kept} kept + {dropped} dropped + "
                    f"{unit.dead} dead = {unit.kept + dropped + unit.dead}. Nothing was published.",
                    stage=name,
                    account=self.to_json(),
                )

    def to_json(self) -> dict[str, object]:
        return {
            "read": self.read,
            "written": self.written,
            "dropped": self.dropped,
            "dead": self.dead,
            "outputs": dict(self.outputs),
            # A list, because the order of stages matters and JSON objects have no order.
            "units": [{"name": name, **unit.to_json()} for name, unit in self.units.items()],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Account:
        return cls(
            read=value["read"],
            written=value["written"],
            dropped=value["dropped"],
            dead=value["dead"],
            outputs=dict(value["outputs"]),
            units={unit["name"]: UnitAccount.from_json(unit) for unit in value["units"]},
        )


def add_counts(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Adds the counts of `more` to `counts`, by name."""
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


class InexactDifferenceError(Exception):
    """A statistic cannot be split: it is not a count, or there is no record of whether it was set."""


def exchange(account: Account, *, old: Account, new: Account) -> None:
    """Replaces the share `old` in `account` by `new`, as if `new` had been added from the start.

    Raises `InexactDifferenceError` if statistics do not allow that; `account` is unusable then.
    """
    same = {name for name, unit in old.units.items() if new.units.get(name) == unit}
    account.read += new.read - old.read
    account.written += new.written - old.written
    account.dropped += new.dropped - old.dropped
    account.dead += new.dead - old.dead
    for split in account.outputs.keys() | new.outputs.keys() | old.outputs.keys():
        change = new.outputs.get(split, 0) - old.outputs.get(split, 0)
        account.outputs[split] = account.outputs.get(split, 0) + change
    for name, unit in new.units.items():
        if name not in same:
            account.unit(name).merge_from(unit)
    for name, unit in old.units.items():
        if name not in same:
            _take(account.unit(name), unit, kept=set(new.units[name].statistics) if name in new.units else set())


def _take(account: UnitAccount, old: UnitAccount, *, kept: set[str]) -> None:
    account.inputs -= old.inputs
    account.kept -= old.kept
    account.outputs -= old.outputs
    account.dead -= old.dead
    for counts, taken in ((account.dropped, old.dropped), (account.partly_dropped, old.partly_dropped)):
        for reason, count in taken.items():
            counts[reason] -= count
            if not counts[reason]:
                del counts[reason]
    for name, statistic in old.statistics.items():
        if not _subtract(account.statistics[name], statistic) and name not in kept:
            raise InexactDifferenceError(name)


def _subtract(statistic: Statistic, taken: Statistic) -> bool:
    """Subtracts the counts of one statistic from another; returns whether any are left."""
    if isinstance(statistic, Counter) and isinstance(taken, Counter):
        statistic.count -= taken.count
        return bool(statistic.count)
    if isinstance(statistic, Histogram) and isinstance(taken, Histogram) and statistic.buckets == taken.buckets:
        statistic.counters = {lower: count - taken.counters[lower] for lower, count in statistic.counters.items()}
        statistic.nan_count -= taken.nan_count
        return bool(statistic.total)
    raise InexactDifferenceError(statistic.name)
