"""Accounts mirrored to Beam metrics: the live view on a runner's dashboard, never the truth.

After one transient failure a Beam counter has been seen at 1,901 for 1,000 elements; what is exact travels with the
data, into the completions. Names are looked up by namespace and name: runners disagree about step names.
"""

from __future__ import annotations

from apache_beam.metrics import Metrics

from beam_pipes.engine.account import Account
from beam_pipes.engine.counter import Counter
from beam_pipes.engine.histogram import Histogram


class Mirror:
    """Counters of one unit, created once: creating them for each element costs three times more."""

    def __init__(self, namespace: str, unit: str) -> None:
        self._namespace = namespace
        self._unit = unit
        self._counters: dict[str, Metrics.DelegatingCounter] = {}

    def show(self, account: Account) -> None:
        """Adds what one batch has booked for this unit.

        `Counter` → one counter; `Histogram` → one counter for each range. Not a distribution of Beam: that would tell
        a mean, and the values that it is of are gone by then.
        """
        unit = account.units.get(self._unit)
        if unit is None:
            return
        self._count(f"{self._unit}/inputs", unit.inputs)
        self._count(f"{self._unit}/outputs", unit.outputs)
        self._count(f"{self._unit}/dead", unit.dead)
        for reason, count in unit.dropped.items():
            self._count(f"{self._unit}/dropped/{reason}", count)
        for name, statistic in unit.statistics.items():
            if isinstance(statistic, Counter):
                self._count(name, statistic.count)
            elif isinstance(statistic, Histogram):
                for label, count in statistic.ranges():
                    self._count(f"{name}/{label}", count)

    def _count(self, name: str, count: int) -> None:
        if not count:
            return
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Metrics.counter(self._namespace, name)
        counter.inc(count)
