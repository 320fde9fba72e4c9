"""One unit of a declaration, run alone over recorded inputs in any order and in batches of any size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypedDict

from beam_pipes.building.declaration import Declaration
from beam_pipes.engine.account import UnitAccount
from beam_pipes.engine.execute import UnitRunner
from beam_pipes.engine.graph import Ref, Stage, Unit
from beam_pipes.engine.records import Batch
from beam_pipes.format.spec import Record
from beam_pipes.testing.values import Frozen, brief_value, value_digest

# For each record, the values of every output that a unit reads.
Inputs = Sequence[Mapping[Ref, Frozen]]


@dataclasses.dataclass(slots=True)
class Outcome:
    """The outcome of a unit for one record: `values` by output, or `failure` in words; `digest` distinguishes outcomes.

    `compared` is the part of the failure that counts: the words are not kept for a record that is dropped or stops the
    build.
    """

    digest: str
    values: dict[str | None, Record]
    failure: str | None
    compared: str | None

    def __str__(self) -> str:
        if self.failure is not None:
            return self.failure
        values = list(self.values.values())
        return brief_value(values[0] if len(values) == 1 else self.values)

    def digest_now(self) -> str:
        """The digest of the current values."""
        return _digest(self.values, self.compared)


@dataclasses.dataclass(slots=True)
class Run:
    """`outcomes[i]` is that of record i; `accounts` are those of the batches, in order; `changed` lists the records
    whose input was modified, with the modified input."""

    outcomes: dict[int, Outcome]
    accounts: list[UnitAccount]
    changed: dict[int, Sequence[object]]


class Records:
    """Ids of records, for a batch with given columns."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.values: list[object] = [None] * len(ids)
        self._ids = ids

    def record_id(self, index: int) -> str:
        return self._ids[index]

    def content(self, index: int) -> bytes:
        return self._ids[index].encode("utf-8", "surrogatepass")


class _Options(TypedDict):
    prefix: str
    path: str
    seed: int


class OneUnit:
    """A unit ready for trials. Failing records are outcomes too, whatever the declaration's policy for them."""

    def __init__(self, declaration: Declaration, unit: Unit, ids: Sequence[str], inputs: Inputs) -> None:
        self.declaration = declaration
        self.unit = unit
        self.ids = ids
        self.inputs = inputs
        graph = declaration.graph
        self._options: _Options = {"prefix": graph.prefix, "path": graph.prefix, "seed": declaration.seed}
        self.policy = UnitRunner(unit, on_error=declaration.on_error, **self._options).on_error

    @property
    def in_batches(self) -> bool:
        """Whether the stage has a batch method."""
        return getattr(self.unit.stage, "transform_batch", None) is not None

    def used(self) -> list[int]:
        """The records that reach this unit."""
        return [at for at, given in enumerate(self.inputs) if given]

    def run(
        self,
        order: Sequence[int],
        *,
        batch_size: int = 1,
        batched: bool = False,
        stage: Stage | None = None,
        check: bool = False,
    ) -> Run:
        """Runs the records in `order`; `batched` lets the stage use its batch method, `stage` replaces the unit's own,
        `check` detects modified inputs."""
        unit = self.unit if stage is None else dataclasses.replace(self.unit, stage=stage)
        with _element_method_only(unit.stage, not batched):
            runner = UnitRunner(unit, on_error="dead_letter", **self._options)
        runner.on_error = "dead_letter"  # the stage's own policy would take precedence
        run = Run({}, [], {})
        for start in range(0, len(order), batch_size):
            self._run_batch(runner, order[start : start + batch_size], run, check)
        return run

    def _run_batch(self, runner: UnitRunner, some: Sequence[int], run: Run, check: bool) -> None:
        batch = Batch(Records([self.ids[at] for at in some]))
        refs = self.unit.refs()
        given = [{ref: self.inputs[at][ref].thaw() for ref in refs} for at in some]
        batch.columns = {ref: [values[ref] for values in given] for ref in refs}
        before = [_input_digest(values) for values in given] if check else []
        runner.run(batch)
        run.accounts.append(batch.account.unit(self.unit.name))
        for index, at in enumerate(some):
            failure = batch.failures.get(index)
            words = compared = None
            if failure is not None:
                words = f"{failure.error_type}: {failure.message}"
                compared = words if self.policy == "dead_letter" else failure.error_type
            values = {ref.key: batch.columns[ref][index] for ref in runner.refs}
            run.outcomes[at] = Outcome(_digest(values, compared), values, words, compared)
            if check and _input_digest(given[index]) != before[index]:
                run.changed[at] = [value for values in given[index].values() for value in values]


class _element_method_only:
    """Hides a stage's batch method while a runner is created."""

    def __init__(self, stage: object, hide: bool) -> None:
        self._stage = stage
        self._hide = hide and getattr(stage, "transform_batch", None) is not None and hasattr(stage, "__dict__")

    def __enter__(self) -> None:
        if self._hide:
            vars(self._stage)["transform_batch"] = None

    def __exit__(self, *_: object) -> None:
        if self._hide:
            del vars(self._stage)["transform_batch"]


def _digest(values: Mapping[str | None, Iterable[object]], failure: str | None) -> str:
    return f"failed: {failure}" if failure is not None else value_digest([list(each) for each in values.values()])


def _input_digest(values: Mapping[Ref, Iterable[object]]) -> str:
    return value_digest([list(each) for each in values.values()])


def differing(expected: Mapping[int, Outcome], found: Mapping[int, Outcome]) -> Iterator[int]:
    """The records whose outcomes differ."""
    return (at for at, outcome in found.items() if outcome.digest != expected[at].digest)
