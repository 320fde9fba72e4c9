"""Figures of a build while it runs: small enough to be told several times a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.building.reading import SOURCE
from beam_pipes.engine.account import Account

#: The time that a shard job spends on its source is booked under this name.
READ = "read"


@dataclasses.dataclass(slots=True, kw_only=True)
class StageFigures:
    """What a stage has done: counts as in its account (`dropped` for all reasons), and the seconds that it ran."""

    inputs: int = 0
    outputs: int = 0
    dropped: int = 0
    dead: int = 0
    secs: float = 0.0

    def add(self, other: StageFigures, *, times: int = 1) -> None:
        """Adds `other`; with `times=-1` takes it away."""
        self.inputs += times * other.inputs
        self.outputs += times * other.outputs
        self.dropped += times * other.dropped
        self.dead += times * other.dead
        self.secs += times * other.secs

    def to_json(self) -> dict[str, Any]:
        """`{"in": 1500, "out": 1496, "dropped": 4, "dead": 0, "secs": 0.125}`."""
        return {
            "in": self.inputs,
            "out": self.outputs,
            "dropped": self.dropped,
            "dead": self.dead,
            "secs": round(self.secs, 3),
        }


@dataclasses.dataclass(slots=True, kw_only=True)
class ShardFigures:
    """What shard jobs have done: source records, those of them that were dropped or are dead, and each stage."""

    records: int = 0
    dropped: int = 0
    dead: int = 0
    stages: dict[str, StageFigures] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, account: Account, secs: Mapping[str, float]) -> ShardFigures:
        """The figures of an account, and the seconds of each stage."""
        figures = cls()
        figures.book(account, secs)
        return figures

    def book(self, account: Account, secs: Mapping[str, float]) -> None:
        """Adds an account, and the seconds of each stage; those of reading belong to the source."""
        self.records += account.read
        self.dropped += account.dropped
        self.dead += account.dead
        stages = self.stages
        for name, unit in account.units.items():
            stage = stages.get(name)
            if stage is None:
                stage = stages[name] = StageFigures()
            stage.inputs += unit.inputs
            stage.outputs += unit.outputs
            stage.dead += unit.dead
            if unit.dropped:
                stage.dropped += sum(unit.dropped.values())
        for name, spent in secs.items():
            name = SOURCE if name == READ else name
            stage = stages.get(name)
            if stage is None:
                stage = stages[name] = StageFigures()
            stage.secs += spent

    def add(self, other: ShardFigures, *, times: int = 1) -> None:
        """Adds `other`; with `times=-1` takes it away."""
        self.records += times * other.records
        self.dropped += times * other.dropped
        self.dead += times * other.dead
        for name, figures in other.stages.items():
            known = self.stages.get(name)
            if known is None:
                known = self.stages[name] = StageFigures()
            known.add(figures, times=times)
