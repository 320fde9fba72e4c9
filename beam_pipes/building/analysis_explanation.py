"""`explain_analysis`: for each analyzer HIT or MISS, which source shards it lacks, and what changed of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.building.analysis.analysis_plan import AnalysisPlan, PlannedAnalyzer
from beam_pipes.building.uses import Uses, uses_of
from beam_pipes.identity.fingerprint import explain

# Of the input files that are to be analysed, so many are named.
_FILES_SHOWN = 5

NEW = "it was not there before"
WAITS = "it waits for the result of"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzerVerdict:
    """`hit` if nothing is to be done; `missing` of `num_shards` are to be analysed, those that read `files`.

    `changed` is what of the analyzer is not what the published snapshot was built with; `waits_for` names an analyzer
    that has to run first, where nothing else can be said.
    """

    name: str
    hit: bool
    missing: int = 0
    num_shards: int = 0
    files: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    waits_for: str | None = None

    def __str__(self) -> str:
        words = f"{'HIT ' if self.hit else 'MISS'} analyzer {self.name}"
        if self.waits_for is not None:
            return f"{words}: {WAITS} {self.waits_for}"
        if self.hit:
            return f"{words}: its result is there"
        told = [f"{self.missing} of {self.num_shards} source shards to be analysed", *self.changed]
        if self.missing < self.num_shards and self.files:
            more = f" and {len(self.files) - _FILES_SHOWN} more files" if len(self.files) > _FILES_SHOWN else ""
            told.append(", ".join(self.files[:_FILES_SHOWN]) + more)
        return f"{words}: {'; '.join(told)}"


def explain_analysis(plan: AnalysisPlan, previous: str | None = None) -> tuple[AnalyzerVerdict, ...]:
    """A verdict for each analyzer. `previous` is the directory of the published snapshot, to say what changed since.

    Reads records of accumulators; writes nothing.
    """
    before = None if previous is None else uses_of(previous)
    verdicts = [_verdict(planned, before) for planned in plan.analyzers]
    for name, error in plan.waiting.items():
        verdicts.append(AnalyzerVerdict(name=name, hit=False, waits_for=error.analyzer))
    return tuple(verdicts)


def to_json(verdicts: tuple[AnalyzerVerdict, ...]) -> list[Mapping[str, Any]]:
    """The verdicts as plain data."""
    return [dataclasses.asdict(verdict) for verdict in verdicts]


def _verdict(planned: PlannedAnalyzer, before: Uses | None) -> AnalyzerVerdict:
    name = planned.analyzer.name
    missing = planned.missing
    changed: tuple[str, ...] = ()
    if before is not None and name not in before.analyzers:
        changed = (NEW,)
    elif before is not None:
        changed = tuple(explain(before.analyzers[name][1], planned.fingerprint.parts))
    return AnalyzerVerdict(
        name=name,
        hit=planned.result is not None,
        missing=len(missing),
        num_shards=len(planned.shards),
        files=tuple(dict.fromkeys(piece.file for shard in missing for piece in shard.slices)),
        changed=changed,
    )
