"""What remains of an account when something that it holds is taken out of it."""

from __future__ import annotations

from beam_pipes.engine.account import Account, UnitAccount
from beam_pipes.engine.counter import Counter
from beam_pipes.engine.histogram import Histogram
from beam_pipes.engine.statistic import Statistic


class InexactDifferenceError(Exception):
    """A statistic cannot be taken apart: it is no count, or nothing is left that shows whether it was set at all."""


def exchange(account: Account, *, old: Account, new: Account) -> None:
    """Replaces, in `account`, the share `old` by `new`: it becomes what it would be if `new` had been added at once.

    Raises `InexactDifferenceError` where statistics do not allow that; `account` is of no use then.
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
    """Takes the counts of one statistic out of another; whether any are left."""
    if isinstance(statistic, Counter) and isinstance(taken, Counter):
        statistic.count -= taken.count
        return bool(statistic.count)
    if isinstance(statistic, Histogram) and isinstance(taken, Histogram) and statistic.buckets == taken.buckets:
        statistic.counters = [count - less for count, less in zip(statistic.counters, taken.counters, strict=True)]
        statistic.nan_count -= taken.nan_count
        return bool(statistic.total)
    raise InexactDifferenceError(statistic.name)
