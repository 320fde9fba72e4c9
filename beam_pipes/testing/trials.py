"""The work of a check's processes: all trials of all stages in one, comparisons with them in others.

Whether other processes can have a declaration: importable by name, or picklable without one.
"""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.references import DeclarationHandle, by_value
from beam_pipes.engine.graph import Ref, Unit
from beam_pipes.testing.causes import Cause, calls_of
from beam_pipes.testing.one_unit import OneUnit
from beam_pipes.testing.sample import BuildOrder, Sample, build_sample
from beam_pipes.testing.stage_trials import Tried, try_stage
from beam_pipes.testing.surroundings import surroundings
from beam_pipes.testing.trial_process import tell_progress
from beam_pipes.testing.values import Finding, Frozen, brief_value

# The outcome of a stage for each record: enough to compare and to show.
Digests = Mapping[int, str]
GivenInputs = list[Mapping[Ref, Frozen]]

# Delay of a slow worker before each stage, in other surroundings.
DELAY_SECS = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """What the first process receives."""

    handle: DeclarationHandle
    sample: Sample
    batch_sizes: Sequence[int]


@dataclasses.dataclass(kw_only=True)
class TrialReport:
    """Its answer: by stage, the findings, digests of outcomes, outcomes in words, and inputs (None if not
    picklable)."""

    findings: dict[str, list[Finding]]
    digests: dict[str, Digests]
    shown: dict[str, dict[int, str]]
    inputs: dict[str, GivenInputs | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElsewhereOrder:
    """What a process in other surroundings receives: it first finishes a build, if any, then tries `stages` again.

    `explain`: stage → record; the stage's calls for it are reported whether or not its outcome differs.
    """

    handle: DeclarationHandle
    sample: Sample
    report: TrialReport
    stages: Sequence[str]
    factors: tuple[str, ...]
    build: BuildOrder | None = None
    explain: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """Its answer: stage → (record, outcome in words) for stages with a different outcome; the first stage that differed
    only because of its inputs; the message of a failed build; stage → kind → call."""

    different: dict[str, tuple[int, str]]
    calls: dict[str, dict[str, Cause]]
    passed_on: tuple[str, int, str] | None
    build_error: str | None


def run_trials(order: TrialOrder) -> TrialReport:
    """The trials of every stage, in one process; a stage's inputs are the outputs of those before it."""
    report = TrialReport(findings={}, digests={}, shown={}, inputs={})
    declaration = order.handle.get()
    sample = order.sample
    columns: dict[Ref, dict[int, Frozen]] = {Ref("", None): dict(enumerate(map(_listed, sample.values)))}
    for unit in declaration.graph.units:
        inputs = _inputs(unit, columns, len(sample.ids))
        one = OneUnit(declaration, unit, sample.ids, inputs)
        tried = try_stage(
            one,
            batch_sizes=order.batch_sizes,
            tell=lambda what, name=unit.name: tell_progress(f"stage {name!r}, {what}"),  # type: ignore[misc]
        )
        _pass_on(unit, tried, columns)
        report.findings[unit.name] = tried.findings
        report.digests[unit.name] = {at: outcome.digest for at, outcome in tried.reference.items()}
        report.shown[unit.name] = {
            at: outcome.failure or _shown(tried.frozen[at]) for at, outcome in tried.reference.items()
        }
        travels = all(frozen.problem is None for each in inputs for frozen in each.values())
        report.inputs[unit.name] = inputs if travels else None
    return report


def run_elsewhere(order: ElsewhereOrder) -> Elsewhere:
    """The same stages on the same inputs, in other surroundings."""
    declaration = order.handle.get()
    build_error = None
    if order.build is not None:
        try:
            build_sample(order.build)
        except Exception as error:
            build_error = f"{type(error).__name__}: {error}"
    different: dict[str, tuple[int, str]] = {}
    calls: dict[str, dict[str, Cause]] = {}
    passed_on = None
    with surroundings(declaration, order.factors):
        columns: dict[Ref, dict[int, Frozen]] = {Ref("", None): dict(enumerate(map(_listed, order.sample.values)))}
        for unit in declaration.graph.units:
            tell_progress(f"stage {unit.name!r}, in other surroundings ({', '.join(order.factors)})")
            expected = order.report.digests[unit.name]
            recorded = order.report.inputs[unit.name]
            if recorded is not None and unit.name in order.stages:
                time.sleep(DELAY_SECS)
                one = OneUnit(declaration, unit, order.sample.ids, recorded)
                found = one.run(one.used()).outcomes
                at = next((at for at, outcome in found.items() if outcome.digest != expected.get(at)), None)
                if at is not None:
                    different[unit.name] = at, str(found[at])
                if unit.name in order.explain:
                    calls[unit.name] = _calls(one, order.explain[unit.name])
            if passed_on is None and not different and set(order.stages) == set(order.report.digests):
                one = OneUnit(declaration, unit, order.sample.ids, _inputs(unit, columns, len(order.sample.ids)))
                chained = one.run(one.used()).outcomes
                at = next((at for at, outcome in chained.items() if outcome.digest != expected.get(at)), None)
                if at is not None:
                    passed_on = unit.name, at, str(chained[at])
                frozen = {
                    at: {key: Frozen(list(values)) for key, values in each.values.items()}
                    for at, each in chained.items()
                }
                _pass_on(unit, Tried(chained, frozen, []), columns)
    return Elsewhere(different=different, calls=calls, passed_on=passed_on, build_error=build_error)


def _calls(one: OneUnit, at: int) -> dict[str, Cause]:
    try:
        return calls_of(lambda: one.run([at]))
    except Exception:
        return {}


def _listed(value: Frozen) -> Frozen:
    return Frozen([value.thaw()])


def _inputs(unit: Unit, columns: Mapping[Ref, Mapping[int, Frozen]], count: int) -> GivenInputs:
    """The unit's inputs for each record; nothing if an earlier stage gave nothing for one of them."""
    refs = unit.refs()
    inputs: GivenInputs = []
    for at in range(count):
        given = {ref: columns[ref][at] for ref in refs if at in columns[ref]}
        inputs.append(given if len(given) == len(refs) else {})
    return inputs


def _pass_on(unit: Unit, tried: Tried, columns: dict[Ref, dict[int, Frozen]]) -> None:
    keys = next(iter(tried.frozen.values()), {}).keys() or [None]
    output_type = unit.stage.output_type
    for key in output_type if isinstance(output_type, Mapping) else keys:
        columns[Ref(unit.name, key)] = {
            at: values[key]
            for at, values in tried.frozen.items()
            if tried.reference[at].failure is None and len(tried.reference[at].values[key])
        }


def _shown(frozen: Mapping[str | None, Frozen]) -> str:
    values = {key: value.thaw() for key, value in frozen.items()}
    return brief_value(next(iter(values.values())) if len(values) == 1 else values)


_ADVICE = "Define it at the top of a module, and give the declaration a name there: 'package.module:name'."


def portability(declaration: Declaration, handle: DeclarationHandle) -> Iterator[Finding]:
    """The reason why a declaration cannot leave this process. One with a reference is imported elsewhere by name."""
    if handle.reference is not None:
        return
    named = [(unit.name, unit.stage) for unit in declaration.graph.units]
    for name, part in [("source", declaration.source), *named]:
        finding = _of_part(name, part)
        if finding is not None:
            yield finding


def _of_part(name: str, part: object) -> Finding | None:
    try:
        pickle.loads(by_value(part))
        return None
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
    for field, value in getattr(part, "__dict__", {}).items():
        try:
            pickle.loads(by_value(value))
        except Exception as error:
            return Finding(
                kind="not_picklable",
                stage=name,
                message=f"its field {field!r} is a {type(value).__name__}, which cannot be pickled. Make it when it is "
                "first needed, and leave it out of __getstate__; or give the declaration a name in a module.",
                found=f"{type(error).__name__}: {error}",
            )
    return Finding(
        kind="not_picklable",
        stage=name,
        message=f"it cannot be pickled, so it cannot travel to another worker. {_ADVICE}",
        found=words,
    )
