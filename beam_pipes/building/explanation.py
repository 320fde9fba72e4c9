"""`explain_plan`: for each source shard HIT or MISS and why, for each stage what changed since the last snapshot.

`explain_analysis`: for each analyzer HIT or MISS, which source shards it lacks, and what changed in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from beam_pipes.building.analysis.plan import AnalysisPlan, PlannedAnalyzer
from beam_pipes.building.commit import find_reusable
from beam_pipes.building.completion import completions_at, find_completions
from beam_pipes.building.declaration_fingerprint import DECLARATION, code_changes, explain_change
from beam_pipes.building.leftovers import Uses, uses_of
from beam_pipes.building.plan import BuildPlan
from beam_pipes.identity.fingerprint import explain
from beam_pipes.publication.publish import snapshot_directory
from beam_pipes.sources.source import Slice, SourceShard

FIRST_BUILD = "nothing is published yet"
DECLARATION_CHANGED = "the declaration changed"
REGROUPED = "its input is cut or grouped differently"
OVERWRITTEN = "everything is to be rebuilt"

# A plan of 100,000 shards should stay readable: this many misses of each group are listed one by one.
MISSES_SHOWN = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardVerdict:
    """A source shard: `hit` if it need not be built, `reasons` why, `files` what it reads."""

    index: int
    hit: bool
    reasons: tuple[str, ...]
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """`stages` maps `declaration` and each stage to what changed (empty: HIT); None if nothing is published.

    `stops` maps the stages whose code changed without their version: a build stops there unless it accepts that.
    """

    shards: tuple[ShardVerdict, ...]
    stages: Mapping[str, Sequence[str]] | None
    stops: Mapping[str, Sequence[str]]

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """The explanation for people, one line per stage and per group of neighbouring shards."""
        lines = []
        for name, changed in (self.stages or {}).items():
            lines.append(f"{'MISS' if changed else 'HIT '} {name}" + (f": {'; '.join(changed)}" if changed else ""))
        for name in self.stops:
            lines.append(f"STOP {name}: its code changed and its version did not; a build needs --accept-code-change.")
        shown = 0
        for group in _neighbours(self.shards):
            first, last = group[0], group[-1]
            shown += not first.hit
            if shown > MISSES_SHOWN:
                left = sum(not shard.hit for shard in self.shards if shard.index >= first.index)
                lines.append(f"MISS {left} more source shards")
                break
            where = f"shard {first.index}" if first is last else f"shards {first.index}-{last.index}"
            lines.append(f"{'HIT ' if first.hit else 'MISS'} {where}: {'; '.join(first.reasons)}")
        hits = sum(shard.hit for shard in self.shards)
        lines.append(f"{hits} of {len(self.shards)} source shards: HIT, {len(self.shards) - hits}: MISS.")
        return lines


def explain_plan(plan: BuildPlan) -> Explanation:
    """Why each shard of a plan is, or is not, going to be built. Reads completions; writes nothing."""
    previous = plan.previous_fingerprint()
    stages = None if previous is None else explain_change(previous, plan.fingerprint)
    same = previous is not None and previous.digest == plan.fingerprint.digest
    before = _slices_before(plan) if same else {}
    done = find_completions(plan.header, plan.tasks)
    rest = (task for task in plan.tasks if task.index not in done)
    reusable = {found.task.index: found.directory for found in find_reusable(plan.header, rest)}
    verdicts = []
    for task in plan.tasks:
        reasons: tuple[str, ...]
        if hit := task.index in done:
            reasons = ("it is built",)
        elif hit := task.index in reusable:
            reasons = (f"snapshot {reusable[task.index].rpartition('/')[2]} has it",)
        elif previous is None:
            reasons = (FIRST_BUILD,)
        elif plan.overwrite:
            reasons = (OVERWRITTEN,)
        elif not same:
            changed = [name for name, lines in (stages or {}).items() if lines and name != DECLARATION]
            reasons = (DECLARATION_CHANGED + (f" ({', '.join(changed)})" if changed else ""),)
        else:
            reasons = _changes_of_input(task.shard, before)
        files = tuple(dict.fromkeys(piece.file for piece in task.shard.slices))
        verdicts.append(ShardVerdict(index=task.index, hit=hit, reasons=reasons, files=files))
    return Explanation(
        shards=tuple(verdicts),
        stages=stages,
        stops={} if previous is None else code_changes(previous, plan.fingerprint),
    )


def _slices_before(plan: BuildPlan) -> dict[str, list[Slice]]:
    """What the published snapshot read: file → slices."""
    found: dict[str, list[Slice]] = {}
    assert plan.published is not None
    storage, directory = plan.header.storage, f"{snapshot_directory(plan.path, plan.published.snapshot)}/completions"
    for completion in completions_at(storage, [f"{directory}/{name}" for name in storage.list(directory)]):
        for piece in completion.source if completion is not None else ():
            found.setdefault(piece.file, []).append(piece)
    return found


def _changes_of_input(shard: SourceShard, before: Mapping[str, Sequence[Slice]]) -> tuple[str, ...]:
    reasons = []
    for piece in shard.slices:
        old = before.get(piece.file)
        if old is None:
            reasons.append(f"{piece.file}: added")
        elif piece not in old:
            same_range = [each for each in old if (each.start, each.end) == (piece.start, piece.end)]
            what = f"digest {same_range[0].digest:.8} → {piece.digest:.8}" if same_range else "changed"
            reasons.append(f"{piece.file} bytes {piece.start}-{piece.end}: {what}")
    return tuple(reasons) or (REGROUPED,)


def _neighbours(shards: Sequence[ShardVerdict]) -> list[list[ShardVerdict]]:
    groups: list[list[ShardVerdict]] = []
    for shard in shards:
        if groups and (groups[-1][0].hit, groups[-1][0].reasons) == (shard.hit, shard.reasons):
            groups[-1].append(shard)
        else:
            groups.append([shard])
    return groups


# This many of the input files to be analysed are named.
_FILES_SHOWN = 5

NEW = "it was not there before"
WAITS = "it waits for the result of"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzerVerdict:
    """`hit` if there is nothing to do; otherwise `missing` of `num_shards` are to be analysed, those that read `files`.

    `changed` says what in the analyzer differs from the published snapshot; `waits_for` names an analyzer that has to
    run first, in which case nothing else can be said.
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
        lines = [f"{self.missing} of {self.num_shards} source shards to be analysed", *self.changed]
        if self.missing < self.num_shards and self.files:
            more = f" and {len(self.files) - _FILES_SHOWN} more files" if len(self.files) > _FILES_SHOWN else ""
            lines.append(", ".join(self.files[:_FILES_SHOWN]) + more)
        return f"{words}: {'; '.join(lines)}"


def explain_analysis(plan: AnalysisPlan, previous: str | None = None) -> tuple[AnalyzerVerdict, ...]:
    """A verdict for each analyzer. `previous` is the directory of the published snapshot, to say what changed since.

    Reads records of accumulators; writes nothing.
    """
    before = None if previous is None else uses_of(previous)
    verdicts = [_verdict(planned, before) for planned in plan.analyzers]
    for name, error in plan.waiting.items():
        verdicts.append(AnalyzerVerdict(name=name, hit=False, waits_for=error.analyzer))
    return tuple(verdicts)


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
