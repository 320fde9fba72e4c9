"""Runs units over batches of records: the only place where stages are called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from beam_pipes.engine.account import NO_OUTPUT, UnitAccount
from beam_pipes.engine.batch import Batch, Column, Failure
from beam_pipes.engine.graph import Graph, Ref, Unit
from beam_pipes.engine.record_context import RecordContext, set_context
from beam_pipes.engine.signature import Signature, brief, describe
from beam_pipes.engine.statistic import Statistic
from beam_pipes.errors import (
    InvalidStatisticsException,
    InvalidTransformOutputException,
    StageError,
    TooManyCombinationsException,
    UnequalZipException,
)

# "raise" lets a stage's exception through as it is; the others are what a build offers.
OnError = Literal["raise", "fail", "drop", "dead_letter"]
BUILD_POLICIES = tuple(policy for policy in get_args(OnError) if policy != "raise")

# One input that makes more combinations than this is a mistake in the graph, not data.
MAX_COMBINATIONS = 100_000

_NOTHING: Sequence[Any] = ()


class UnitRunner:
    """One unit of a graph, ready to run over batches.

    `graph_name` and `path` place it: statistics are prefixed with the names, randomness is keyed by the path.
    """

    def __init__(
        self, unit: Unit, *, prefix: str = "", path: str = "", seed: int = 0, on_error: OnError = "raise"
    ) -> None:
        self.unit = unit
        self.name = unit.name
        self.prefix = prefix
        self.on_error: OnError = getattr(unit.stage, "on_error", None) or on_error
        self._context = RecordContext(seed=seed, unit=f"{path}/{unit.name}" if path else unit.name)
        stage: Any = unit.stage
        self._stage = stage
        self._output_type: Signature = stage.output_type
        self._transform_batch = getattr(stage, "transform_batch", None)
        # The base class's get_stats only prefixes what `_set_stats` was given: that is read directly, without copies.
        self._reads_stats = getattr(stage, "stats_are_set", False)
        self._full_names: dict[str, str] = {}

    def run(self, batch: Batch) -> None:
        """Computes this unit's columns for every record of `batch` that has not failed before."""
        account = batch.account.unit(self.name)
        single = not isinstance(self._output_type, Mapping)
        keys: tuple[str | None, ...] = (None,) if single else tuple(self._output_type)  # type: ignore[arg-type]
        columns: dict[str | None, Column] = {key: [_NOTHING] * batch.size for key in keys}
        context = self._context
        context.record_id_of = batch.records.record_id
        previous = set_context(context)
        try:
            if self._transform_batch is None or not self._run_batch(batch, columns, account):
                self._run_each(batch, columns, account)
        finally:
            set_context(previous)
        for key, column in columns.items():
            batch.columns[Ref(self.name, key)] = column

    def _run_each(self, batch: Batch, columns: dict[str | None, Column], account: UnitAccount) -> None:
        single = columns.get(None)
        context, failures = self._context, batch.failures
        inputs = outputs = kept = 0
        for index, items in enumerate(self._inputs(batch)):
            if not items or index in failures:
                continue
            context.index = index
            gathered: list[Any] = []
            named: dict[str | None, list[Any]] = {}
            for item, value in enumerate(items):
                context.item = item
                inputs += 1
                try:
                    produced = self._call(value, account)
                except Exception as error:
                    self._fail(batch, index, error, account)
                    gathered, named = [], {}
                    break
                if single is not None:
                    count = len(produced)
                    # The list itself is kept where it is the only one: no copy in the common case.
                    gathered = produced if not gathered else gathered + produced
                else:
                    count = 0
                    for key, values in produced.items():
                        count += len(values)
                        if values:
                            named[key] = named[key] + values if key in named else values
                if count:
                    kept += 1
                    outputs += count
            if single is not None:
                if gathered:
                    single[index] = gathered
            else:
                for key, values in named.items():
                    columns[key][index] = values
        account.inputs += inputs
        account.kept += kept
        account.outputs += outputs

    def _call(self, value: Any, account: UnitAccount) -> Any:
        """One call of `transform`, its output checked, its statistics and drops booked."""
        stage = self._stage
        set_attribute = object.__setattr__  # stages may be frozen
        set_attribute(stage, "_stats", _NOTHING)
        set_attribute(stage, "_drops", None)
        produced = stage.transform(value)
        output_type = self._output_type
        if isinstance(output_type, Mapping):
            self._check_named(produced, output_type)
            empty = not any(produced.values())
        else:
            if type(produced) is not list:
                produced = self._as_list(produced, None)
            for position, one in enumerate(produced):
                if not isinstance(one, output_type):
                    self._wrong_type(one, position, output_type, None)
            empty = not produced
        self._book(empty, account)
        return produced

    def _book(self, empty: bool, account: UnitAccount, calls: int = 1) -> None:
        stage = self._stage
        if not self._reads_stats:
            account.add_statistics(self._prefixed(self._checked(stage.get_stats())))
        elif stage._stats:
            self._merge_set_stats(account)
        drops = stage._drops
        if empty:
            reason = drops[-1] if drops else NO_OUTPUT
            account.dropped[reason] = account.dropped.get(reason, 0) + 1
        elif drops:
            for reason in drops:
                account.partly_dropped[reason] = account.partly_dropped.get(reason, 0) + 1

    def _merge_set_stats(self, account: UnitAccount) -> None:
        for statistic in self._checked(self._stage._stats):
            full_name = self._full_names.get(statistic.name)
            if full_name is None:
                full_name = "_".join(filter(None, (self.prefix, self._stage.name, statistic.name)))
                self._full_names[statistic.name] = full_name
            known = account.statistics.get(full_name)
            if known is not None and type(known) is type(statistic):
                known._merge_from(statistic)
            else:
                renamed = statistic.copy()
                renamed.name = full_name
                account.add_statistics([renamed])

    def _prefixed(self, statistics: list[Statistic]) -> list[Statistic]:
        if not self.prefix:
            return statistics
        copies = [statistic.copy() for statistic in statistics]
        for statistic in copies:
            statistic.name = f"{self.prefix}_{statistic.name}"
        return copies

    def _checked(self, statistics: Any) -> list[Statistic]:
        try:
            statistics = list(statistics)
        except TypeError:
            raise InvalidStatisticsException(
                f"stage {self.name!r}: get_stats should give a list of Statistic objects, got "
                f"{brief(statistics)}. Return [statistic], or pass a list to _set_stats.",
                stage=self.name,
            ) from None
        for statistic in statistics:
            if not isinstance(statistic, Statistic):
                raise InvalidStatisticsException(
                    f"stage {self.name!r}: get_stats should give Statistic objects only, got {brief(statistic)}. "
                    "Use Counter, Histogram or a subclass of Statistic.",
                    stage=self.name,
                )
        return list(statistics)

    def _run_batch(self, batch: Batch, columns: dict[str | None, Column], account: UnitAccount) -> bool:
        """One call of `transform_batch` for the whole batch; False where it has to be done one by one."""
        if None not in columns or not self._reads_stats or batch.failures:
            return False
        items = list(self._inputs(batch))
        flat = [value for values in items for value in values]
        if not flat:
            return True
        stage, output_type = self._stage, self._output_type
        object.__setattr__(stage, "_stats", _NOTHING)
        object.__setattr__(stage, "_drops", None)
        assert self._transform_batch is not None and isinstance(output_type, type)
        try:
            produced = self._transform_batch(flat)
            if type(produced) is not list or len(produced) != len(flat):
                raise InvalidTransformOutputException(
                    f"stage {self.name!r}: transform_batch should return a list with one list for each of the "
                    f"{len(flat)} inputs, got {brief(produced)}.",
                    stage=self.name,
                )
            for values in produced:
                for position, one in enumerate(self._as_list(values, None)):
                    if not isinstance(one, output_type):
                        self._wrong_type(one, position, output_type, None)
            self._checked(stage._stats)
        except Exception:
            # One bad value must not cost the others: find it one by one, where it is booked as what it is.
            return False
        empties = sum(not values for values in produced)
        drops = stage._drops or []
        for reason in [*drops[:empties], *[NO_OUTPUT] * (empties - len(drops))]:
            account.dropped[reason] = account.dropped.get(reason, 0) + 1
        for reason in drops[empties:]:
            account.partly_dropped[reason] = account.partly_dropped.get(reason, 0) + 1
        account.inputs += len(flat)
        account.kept += len(flat) - empties
        account.outputs += sum(map(len, produced))
        self._merge_set_stats(account)
        column, position = columns[None], 0
        for index, values in enumerate(items):
            if len(values) == 1:
                column[index] = produced[position]
            elif values:
                column[index] = [v for part in produced[position : position + len(values)] for v in part]
            position += len(values)
        return True

    def _inputs(self, batch: Batch) -> Iterable[Sequence[Any]]:
        """For each record, the inputs of this unit."""
        inputs = self.unit.inputs
        if isinstance(inputs, Ref):
            return batch.columns[inputs]
        names = tuple(inputs)
        joined = zip(*(batch.columns[ref] for ref in inputs.values()), strict=True)
        return (self._combine(names, lists, batch, index) for index, lists in enumerate(joined))

    def _combine(
        self, names: tuple[str, ...], lists: tuple[Sequence[Any], ...], batch: Batch, index: int
    ) -> Sequence[dict[str, Any]]:
        lengths = [len(values) for values in lists]
        if not all(lengths):
            return _NOTHING
        if self.unit.join == "zip":
            if len(set(lengths)) > 1:
                found = ", ".join(f"{name!r}: {length}" for name, length in zip(names, lengths, strict=True))
                return self._reject(
                    batch,
                    index,
                    UnequalZipException(
                        f"stage {self.name!r}: join='zip' needs lists of the same length, got {found}. "
                        "Make the upstream stages give as many values, or use join='product'.",
                        stage=self.name,
                    ),
                )
            return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
        if (count := math.prod(lengths)) > MAX_COMBINATIONS:
            found = " × ".join(f"{length} {name}" for name, length in zip(names, lengths, strict=True))
            return self._reject(
                batch,
                index,
                TooManyCombinationsException(
                    f"stage {self.name!r}: one input makes {count:,} combinations ({found}), more than the "
                    f"{MAX_COMBINATIONS:,} allowed. Use DAGPipeline(..., join='zip') to pair values by position.",
                    stage=self.name,
                    count=count,
                ),
            )
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*lists)]

    def _reject(self, batch: Batch, index: int, error: Exception) -> Sequence[dict[str, Any]]:
        """Fails a record before `transform` could be called: it counts as one input."""
        account = batch.account.unit(self.name)
        if index not in batch.failures:
            account.inputs += 1
            self._context.index = index
            self._fail(batch, index, error, account)
        return _NOTHING

    def _fail(self, batch: Batch, index: int, error: Exception, account: UnitAccount) -> None:
        if self.on_error == "raise":
            add_note = getattr(error, "add_note", None)  # Python 3.11
            if add_note is not None and not hasattr(error, "stage"):
                add_note(f"raised by stage {self.name!r}")
            raise error
        if self.on_error == "fail":
            record_id = batch.records.record_id(index)
            raise StageError(
                f"stage {self.name!r} failed on record {record_id!r}: {type(error).__name__}: {error}. "
                "Fix the record or the stage, or allow failures with on_error='dead_letter' (kept for a replay) "
                "or on_error='drop'.",
                stage=self.name,
                record=record_id,
            ) from error
        dropped = self.on_error == "drop"
        if dropped:
            reason = f"error/{type(error).__name__}"
            account.dropped[reason] = account.dropped.get(reason, 0) + 1
        else:
            account.dead += 1
        batch.failures[index] = Failure(stage=self.name, error=error, dropped=dropped)
        # A record that failed leaves through one door only: nothing of it is written, in any branch.
        for column in batch.columns.values():
            column[index] = _NOTHING

    def _check_named(self, produced: Any, output_type: Mapping[str, type]) -> None:
        if not isinstance(produced, Mapping) or produced.keys() != output_type.keys():
            found = f"the keys {sorted(map(str, produced))}" if isinstance(produced, Mapping) else brief(produced)
            raise InvalidTransformOutputException(
                f"stage {self.name!r}: transform should return a dict with the keys {sorted(output_type)}, each a "
                f"list, got {found}. Return exactly the keys of output_type; a list may be empty.",
                stage=self.name,
                expected=describe(output_type),
            )
        for key, values in produced.items():
            for position, one in enumerate(self._as_list(values, key)):
                if not isinstance(one, output_type[key]):
                    self._wrong_type(one, position, output_type[key], key)

    def _as_list(self, produced: Any, key: str | None) -> list[Any]:
        if not isinstance(produced, list):
            what = "transform" if key is None else f"transform's output {key!r}"
            raise InvalidTransformOutputException(
                f"stage {self.name!r}: {what} should be a list, got {brief(produced)}. "
                "Return [value] for one output and [] for none.",
                stage=self.name,
                expected=describe(self._output_type),
            )
        return produced

    def _wrong_type(self, value: Any, position: int, expected: type, key: str | None) -> None:
        what = f"output {position}" if key is None else f"output {key!r}[{position}]"
        raise InvalidTransformOutputException(
            f"stage {self.name!r}: {what} should be {expected.__name__}, got {brief(value)}. "
            f"Return a list of {expected.__name__} from {type(self._stage).__name__}.transform, "
            "or change its output_type.",
            stage=self.name,
            expected=expected,
            found=type(value),
        )


class GraphRunner:
    """All units of a graph, run over a batch one after the other; columns nobody reads any more are let go."""

    def __init__(
        self, graph: Graph, *, prefix: str = "", path: str = "", seed: int = 0, on_error: OnError = "raise"
    ) -> None:
        self.graph = graph
        self.units = [UnitRunner(unit, prefix=prefix, path=path, seed=seed, on_error=on_error) for unit in graph.units]
        self._last_uses = graph.last_uses()

    def run_unit(self, position: int, batch: Batch) -> None:
        """Runs the unit at `position`, then lets go of what no later unit reads."""
        self.units[position].run(batch)
        last = self._last_uses
        for ref in [ref for ref in batch.columns if last.get(ref, -1) <= position]:
            del batch.columns[ref]

    def run(self, batch: Batch) -> None:
        """Runs every unit over `batch`."""
        for position in range(len(self.units)):
            self.run_unit(position, batch)

    def outputs(self, batch: Batch) -> dict[str, Column]:
        """The columns that leave the graph, by output name."""
        return {name: batch.columns[ref] for name, ref in self.graph.outputs.items()}
