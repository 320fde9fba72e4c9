"""Runs units over batches of records: the only place where stages are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any, Literal, get_args

from beam_pipes.checks import choice
from beam_pipes.engine.account import NO_OUTPUT, UnitAccount
from beam_pipes.engine.graph import Graph, Produced, Ref, Signature, Unit, brief
from beam_pipes.engine.ownership import taken
from beam_pipes.engine.records import Batch, Column, Failure, Left, RecordContext, ShownContext, Table, set_context
from beam_pipes.engine.resources import Resources
from beam_pipes.engine.stage_values import NOTHING as _NOTHING
from beam_pipes.engine.stage_values import Direct, Outputs, combined
from beam_pipes.engine.statistics import Statistic, checked_statistics
from beam_pipes.engine.turns import turn_of
from beam_pipes.errors import (
    DeclarationError,
    InvalidTransformOutputException,
    ServiceError,
    StageError,
    TooManyCombinationsException,
    UnequalZipException,
    without_stop,
)
from beam_pipes.format.spec import UNCHANGEABLE, Record, owned

# "raise" lets a stage's exception through unchanged; the others are the policies of a build.
OnError = Literal["raise", "fail", "drop", "dead_letter"]
BUILD_POLICIES = tuple(policy for policy in get_args(OnError) if policy != "raise")

# What a stage may raise on a record. `sys.exit()` within a stage is a failure too, and does not end the build as if it
# were complete. Ctrl-C is not a failure.
FAILURES = (Exception, SystemExit, GeneratorExit)

# What does not belong to a record: a mistake in the declaration, or a service that is out of order.
ENDINGS = (DeclarationError, ServiceError)

# Values by the name of their output, None for a single one.
Made = dict[str | None, list[object]]


class UnitRunner:
    """One unit of a graph, ready to run over batches.

    `prefix` precedes the names of its statistics; randomness is keyed by `path`, the unit's name and the record.
    """

    def __init__(
        self,
        unit: Unit,
        *,
        prefix: str = "",
        path: str = "",
        seed: int = 0,
        epoch: int = 0,
        on_error: OnError = "raise",
    ) -> None:
        stage: Any = unit.stage  # its optional attributes are looked up by name
        self.unit = unit
        self.name = unit.name
        self.prefix = prefix
        self.on_error: OnError = getattr(stage, "on_error", None) or on_error
        if self.on_error != "raise":
            choice(self.on_error, of=BUILD_POLICIES, what=f"stage {unit.name!r}: on_error", stage=unit.name)
        place = f"{path}/{unit.name}" if path else unit.name
        self._context = RecordContext(seed=seed, unit=place, epoch=epoch, stage=stage)
        self._stage = stage
        self._output_type: Signature = stage.output_type
        self._outputs = Outputs(unit.name, stage)
        self._is_single = not isinstance(self._output_type, Mapping)
        self.refs = [Ref(unit.name, key) for key in ((None,) if self._is_single else stage.output_type)]
        # A typed pipeline's `transform` prepares for direct calls; the engine does that itself, so skip it.
        bare = getattr(stage.transform, "bare", None)
        direct: Direct | None = stage.direct() if hasattr(stage, "direct") else None
        self._call = direct or Direct(stage.transform if bare is None else bare.__get__(stage))
        self._transform_batch: Callable[[list[Record]], Produced] | None = getattr(stage, "transform_batch", None)
        self._transform_table: Callable[[Table], Table | None] | None = getattr(stage, "transform_table", None)
        # What `_set_stats` and `drop` leave behind during a call: kept in the runner, because other threads may run the
        # stage.
        self._left: Left = self._context.left
        # The object that is run in the end, if the stage stands for another one.
        self._runs: object = None if getattr(stage, "is_shared", False) else getattr(stage, "stands_for", stage)
        self._asks_stats = hasattr(stage, "get_stats") and not getattr(stage, "stats_are_set", False)
        # Whether the outputs of a call are one list, which the engine may book without a look at what else it left.
        self._is_plain = self._is_single and not self._asks_stats
        if not self._is_plain:
            self._call = Direct(*self._call[:2])
        # Values of this very class can be kept without a look at each.
        self._kept_as_is = self._is_plain and self._output_type in UNCHANGEABLE
        self._without_output = unit.name, NO_OUTPUT
        self._full_names: dict[str, str] = {}
        self._most_inputs: int | None = None
        asked = getattr(stage, "resources", None)
        #: What a call needs of the machine; it waits until that is free.
        self.resources = None if asked is None else Resources.of(asked, stage=unit.name)
        #: Whether nothing needs a record's inputs after this unit, so that they may be released once used.
        self.is_last_reader = False

    @property
    def is_function(self) -> bool:
        """Whether each value is run by itself, with one list of outputs, and nothing is done once for a batch."""
        of_batches = (self.resources, self._runs, self._transform_batch, self._transform_table)
        return self._is_single and of_batches == (None,) * 4

    def ready_for(self, batch: Batch) -> tuple[RecordContext, UnitAccount]:
        """What `run_record` needs for the records of `batch`: the context to set, and the account to pass."""
        context = self._context
        context.record_id_of, context.content_of = batch.records.record_id, batch.records.content
        return context, batch.account.unit(self.name)

    def show_index_in(self, cell: memoryview) -> None:
        """From now on `cell[0]` holds the index of the record being processed, -1 for a whole batch."""
        self._context = ShownContext(self._context, cell)

    def keep_answers_in(self, directory: str) -> None:
        """From now on a stage that calls a service keeps its answers there, and takes those that it finds."""
        self._context.answers = directory

    def run(self, batch: Batch) -> None:
        """Computes this unit's columns for every record of `batch` that has not failed before."""
        if self.resources is None:
            self._run_in_turn(batch)
            return
        with self.resources.held():
            self._run_in_turn(batch)

    def _run_in_turn(self, batch: Batch) -> None:
        if self._runs is None:
            self._run(batch)
            return
        turn = turn_of(self._runs)
        with turn.lock:
            outer, turn.left = turn.left, self._left
            try:
                self._run(batch)
            finally:
                turn.left = outer

    def _run(self, batch: Batch) -> None:
        # One context for all records, changed in place. `count`, `drop` and `rng` find it by the thread, so that users'
        # functions do not have to pass it on.
        context, account = self.ready_for(batch)
        if self._transform_table is not None and self._run_table(batch, account):
            return
        columns: dict[str | None, Column] = {ref.key: [_NOTHING] * batch.size for ref in self.refs}
        previous = set_context(context)
        try:
            if self._transform_batch is None or not self._run_batch(batch, columns, account):
                self._run_each(batch, columns, account)
        finally:
            set_context(previous)
        for ref in self.refs:
            batch.columns[ref] = columns[ref.key]

    def _run_each(self, batch: Batch, columns: dict[str | None, Column], account: UnitAccount) -> None:
        """Calls `transform` for every input of every record; a record that failed before has no inputs left."""
        context, left, output_type = self._context, self._left, self._output_type
        transform, outputs_of, whole, yields = self._call
        is_plain, kept_as_is = self._is_plain, self._kept_as_is
        single = columns[None] if self._is_single else None
        inputs: Any = self._inputs(batch)
        releases = self.is_last_reader and isinstance(inputs, list) and self._most_inputs is None
        context.item = 0
        context.counted = None
        others = plain = more = nothing = 0
        # Inlined for one input and one output, as in nearly all calls: this is the inner loop of every build. No
        # `enumerate`, which keeps a reference to the value it returned, so that the value would be copied.
        index = -1
        for items in inputs:
            index += 1
            if len(items) != 1:
                if items:
                    made: Made = {}
                    outputs = self.run_record(batch, index, [*items], account, made)
                    if outputs:
                        columns[None][index] = outputs
                    for key, values in made.items():
                        columns[key][index] = values
                    context.item, context.counted = 0, None
                continue
            context.index = index
            (value,) = items
            if releases:  # an output that is the input, or part of it, then counts as held by nobody else
                inputs[index] = items = _NOTHING
            # What a failed earlier call has left must not count for this one.
            if left:
                _forget(left)
            try:
                produced = transform(value)
                value = None
                if whole is not None and type(produced) is whole and not (left or context.counted):
                    single[index] = (produced if kept_as_is else taken(produced),)  # type: ignore[index]
                    plain += 1
                    continue
                if yields is not None:
                    produced = [*produced]  # type: ignore[misc]
                    for one in produced:
                        if type(one) is not yields:
                            break
                    else:
                        if not (left or context.counted):
                            if produced:
                                single[index] = produced  # type: ignore[index]
                                plain += 1
                                more += len(produced) - 1
                            else:
                                nothing += 1
                                batch.drops.setdefault(index, []).append(self._without_output)
                            continue
                if outputs_of is not None:
                    produced = outputs_of(produced)
                if is_plain and type(produced) is list and len(produced) == 1 and not (left or context.counted):
                    (one,) = produced
                    kind = type(one)
                    if kind is output_type or isinstance(one, output_type):  # type: ignore[arg-type]
                        produced = None
                        if not (kept_as_is or kind in UNCHANGEABLE):
                            one = taken(one)
                        single[index] = (one,)  # type: ignore[index]
                        plain += 1
                        continue
                    one = None
                made = {}
                self._take(produced, batch, index, account, made)
            except ENDINGS:  # as in `_run_batch`
                raise
            except FAILURES as error:
                self._fail(batch, index, error, account)
                made = {}
            others += 1
            context.counted = None
            for key, values in made.items():
                columns[key][index] = values
        account.inputs += plain + others + nothing
        account.kept += plain
        account.outputs += plain + more
        if nothing:
            account.dropped[NO_OUTPUT] = account.dropped.get(NO_OUTPUT, 0) + nothing

    def run_record(
        self, batch: Batch, index: int, items: list[Record], account: UnitAccount, made: Made
    ) -> list[Record]:
        """The outputs of all inputs of one record, none if one of them failed; outputs with names are put into `made`.

        `items` is emptied: a value that only this list held counts as held by nobody once it is passed to the stage.
        """
        context, left, output_type = self._context, self._left, self._output_type
        transform, outputs_of, whole, yields = self._call
        is_plain, kept_as_is = self._is_plain, self._kept_as_is
        context.index = index
        context.counted = None
        if left:
            _forget(left)
        calls = plain = more = nothing = 0
        # Kept apart until the record is through: if its last input fails, none of it may stay in a column.
        gathered: list[object] = []
        items.reverse()
        try:
            for context.item in range(len(items)):
                calls += 1
                produced = transform(items.pop())
                if whole is not None and type(produced) is whole and not (left or context.counted):
                    gathered.append(produced if kept_as_is else taken(produced))
                    plain += 1
                    continue
                if yields is not None:
                    produced = [*produced]  # type: ignore[misc]
                    for one in produced:
                        if type(one) is not yields:
                            break
                    else:
                        if not (left or context.counted):
                            if produced:
                                gathered += produced
                                plain += 1
                                more += len(produced) - 1
                            else:
                                nothing += 1
                                batch.drops.setdefault(index, []).append(self._without_output)
                            continue
                if outputs_of is not None:
                    produced = outputs_of(produced)
                if is_plain and type(produced) is list and len(produced) == 1 and not (left or context.counted):
                    (one,) = produced
                    if isinstance(one, output_type):  # type: ignore[arg-type]
                        produced = None
                        gathered.append(one if type(one) in UNCHANGEABLE else taken(one))
                        plain += 1
                        continue
                    one = None
                self._take(produced, batch, index, account, {None: gathered} if self._is_single else made)
                context.counted = None
                if left:
                    _forget(left)
        except ENDINGS:
            raise
        except FAILURES as error:
            self._fail(batch, index, error, account, item=context.item)
            made.clear()
            return []
        finally:
            account.inputs += calls
            account.kept += plain
            account.outputs += plain + more
            if nothing:
                account.dropped[NO_OUTPUT] = account.dropped.get(NO_OUTPUT, 0) + nothing
        return gathered

    def _take(self, produced: Any, batch: Batch, index: int, account: UnitAccount, made: Made) -> None:
        """Books what one call returned, and adds its values to `made`, by output."""
        left, context = self._left, self._context
        if type(produced) is list and not (produced or left or context.counted or self._asks_stats) and self._is_single:
            account.dropped[NO_OUTPUT] = account.dropped.get(NO_OUTPUT, 0) + 1
            batch.drops.setdefault(index, []).append(self._without_output)
            return
        # A list that the stage keeps has more references than the caller's variable, this one and the count itself.
        is_kept = getrefcount(produced) > 3
        count = 0
        if not self._is_single:
            output_types: Any = self._output_type
            produced = self._outputs.by_name(produced)
            for key in output_types:
                values = produced[key]
                if values:
                    count += len(values)
                    kept = is_kept or getrefcount(values) > 3
                    made.setdefault(key, []).extend(map(owned, values) if kept else [taken(one, 2) for one in values])
        else:
            if type(produced) is not list:
                self._outputs.check_list(produced, None)
            output_type: Any = self._output_type
            for one in produced:
                if not isinstance(one, output_type):
                    produced = self._outputs.declared(produced, output_type, None)
                    break
            one = None
            count = len(produced)
            if count:
                made.setdefault(None, []).extend(
                    map(owned, produced)
                    if is_kept
                    else [one if type(one) in UNCHANGEABLE else taken(one, 2) for one in produced]
                )
        if self._asks_stats:
            self._ask_stats(account)
        elif "_stats" in left:
            self._merge_set_stats(left["_stats"], account)
        if context.counted is not None:
            self._merge_set_stats(context.counted.values(), account)
        # The last reason counts if a stage called `drop` more than once and returned nothing.
        if not count:
            (reason,) = left.get("_drops", (NO_OUTPUT,))[-1:]
            account.dropped[reason] = account.dropped.get(reason, 0) + 1
            batch.drops.setdefault(index, []).append((self.name, reason))
            return
        if "_drops" in left:
            _count(left["_drops"], account.partly_dropped)
        account.kept += 1
        account.outputs += count

    def _merge_set_stats(self, statistics: Iterable[Statistic], account: UnitAccount) -> None:
        """Merges the statistics passed to `_set_stats` in this call; they are already checked."""
        merged, full_names = account.statistics, self._full_names
        for statistic in statistics:
            full_name = full_names.get(statistic.name)
            if full_name is None:
                full_name = "_".join(filter(None, (self.prefix, self._stage.name, statistic.name)))
                full_names[statistic.name] = full_name
            known = merged.get(full_name)
            if known is not None and type(known) is type(statistic):
                # In place: otherwise a statistic that a stage reports for every record would be copied for every
                # record.
                known._merge_from(statistic)
            else:
                renamed = statistic.copy()
                renamed.name = full_name
                account.add_statistics([renamed])

    def _ask_stats(self, account: UnitAccount) -> None:
        """Adds what an overridden `get_stats` returns."""
        statistics = checked_statistics(self._stage.get_stats(), where=f"stage {self.name!r}: get_stats")
        if self.prefix:
            statistics = [statistic.copy() for statistic in statistics]
            for statistic in statistics:
                statistic.name = f"{self.prefix}_{statistic.name}"
        account.add_statistics(statistics)

    def _run_batch(self, batch: Batch, columns: dict[str | None, Column], account: UnitAccount) -> bool:
        """One call of `transform_batch` for the whole batch; False if the records must be run one by one."""
        output_type = self._output_type
        # `get_stats` is asked after each input, which one call for all of them does not allow.
        if isinstance(output_type, Mapping) or self._asks_stats:
            return False
        items = list(self._inputs(batch))
        flat = [value for values in items for value in values]
        if not flat:
            return True
        left = self._left
        _forget(left)
        self._context.index = None
        self._context.counted = None
        assert self._transform_batch is not None
        try:
            # Copies: if one record fails, the others are run again, and must be unchanged.
            produced = self._transform_batch([owned(value) for value in flat])
        # A mistake in the declaration does not belong to a record: running one by one would repeat it for each.
        except ENDINGS:
            raise
        except FAILURES:
            # One bad value must not affect the others: run one by one, so that only the bad one counts as failed.
            return False
        if type(produced) is not list or len(produced) != len(flat):
            found = f"{len(produced)} lists" if type(produced) is list else brief(produced)
            raise InvalidTransformOutputException(
                f"transform_batch should return a list with one list for each of the {len(flat)} inputs, got {found}. "
                "Return [] for an input without output."
            ).about("stage", self.name)
        empties = 0
        for values in produced:
            if not isinstance(values, list):
                return False  # `transform` says which
            empties += not values
            for one in values:
                if not isinstance(one, output_type):
                    return False
        # `drop` in a batch does not say for which input: its reasons go, in order, to the inputs without output.
        drops = left.get("_drops", [])
        reasons = [*drops[:empties], *[NO_OUTPUT] * (empties - len(drops))]
        _count(reasons, account.dropped)
        _count(drops[empties:], account.partly_dropped)
        self._merge_set_stats(left.get("_stats", _NOTHING), account)
        if self._context.counted is not None:
            self._merge_set_stats(self._context.counted.values(), account)
        account.inputs += len(flat)
        account.kept += len(flat) - empties
        account.outputs += sum(map(len, produced))
        column, position = columns[None], 0
        for index, values in enumerate(items):
            if len(values) == 1:
                column[index] = produced[position]
            elif values:
                column[index] = [v for part in produced[position : position + len(values)] for v in part]
            if empties:
                for part in produced[position : position + len(values)]:
                    if not part:
                        batch.drops.setdefault(index, []).append((self.name, reasons[-empties]))
                        empties -= 1
            position += len(values)
        return True

    def _run_table(self, batch: Batch, account: UnitAccount) -> bool:
        """One call of `transform_table` for records that are columns, or rows with the same columns; False if they must
        be run one by one.
        """
        inputs = self.unit.inputs
        if not isinstance(inputs, Ref) or self._most_inputs is not None or not self._is_single or self._asks_stats:
            return False
        table = batch.tables.get(inputs)
        if table is None and {*map(len, rows := batch.columns.get(inputs, []))} == {1}:
            table = Table.of_rows([row for (row,) in rows])
        if table is None:
            return False
        assert self._transform_table is not None
        try:
            made = self._transform_table(table)
        except FAILURES:
            made = None  # as rows, only the bad one fails, and says why
        if made is None:
            return False
        assert len(made) == batch.size, (len(made), batch.size)
        account.inputs += batch.size
        account.kept += batch.size
        account.outputs += batch.size
        batch.tables[self.refs[0]] = made
        return True

    def _inputs(self, batch: Batch) -> Iterable[Sequence[object]]:
        """For each record, the inputs of this unit."""
        inputs, most = self.unit.inputs, self._most_inputs
        found: Iterable[Sequence[object]]
        if isinstance(inputs, Ref):
            found = batch.column(inputs)
        else:
            joined = zip(*(batch.column(ref) for ref in inputs.values()), strict=True)
            found = (self._combine(tuple(inputs), lists, batch, index) for index, lists in enumerate(joined))
        return found if most is None else [values[:most] for values in found]

    def _combine(
        self, names: tuple[str, ...], lists: tuple[Sequence[object], ...], batch: Batch, index: int
    ) -> Sequence[object]:
        try:
            return combined(names, lists, self.unit)
        except (UnequalZipException, TooManyCombinationsException) as error:
            return self.reject(batch, index, error)

    def run_first(self, batch: Batch, count: int) -> None:
        """Like `run`, for only the first `count` inputs of each record."""
        self._most_inputs = count
        try:
            self.run(batch)
        finally:
            self._most_inputs = None

    def reject(self, batch: Batch, index: int, error: Exception) -> Sequence[object]:
        """Fails a record without calling `transform`: it counts as one input. Does nothing if it failed before."""
        account = batch.account.unit(self.name)
        if index not in batch.failures:
            account.inputs += 1
            self._context.index = index
            self._fail(batch, index, error, account)
        return _NOTHING

    def _fail(self, batch: Batch, index: int, error: BaseException, account: UnitAccount, *, item: int = 0) -> None:
        if self.on_error == "raise":
            add_note = getattr(error, "add_note", None)  # Python 3.11
            if add_note is not None and getattr(error, "stage", None) is None:
                add_note(f"raised by stage {self.name!r}")
            raise error
        if self.on_error == "fail":
            record_id = batch.records.record_id(index)
            raise StageError(
                f"stage {self.name!r} failed on record {record_id!r}: {type(error).__name__}: {without_stop(error)}. "
                "Fix the record or the stage, or allow failures with on_error='dead_letter' "
                "(--on-error dead_letter: kept for a replay) or on_error='drop' (--on-error drop).",
                stage=self.name,
                record=record_id,
            ) from error
        dropped = self.on_error == "drop"
        if dropped:
            _count([f"error/{type(error).__name__}"], account.dropped)
        else:
            account.dead += 1
        batch.failures[index] = Failure.of(error, stage=self.name, dropped=dropped, item=item)
        # A record that failed is a dead letter or dropped: no part of it is written, in any branch.
        for column in batch.all_columns().values():
            column[index] = _NOTHING


def _forget(left: Left) -> None:
    """Forgets what an earlier call, perhaps a failed one, has left."""
    left.pop("_stats", None)
    left.pop("_drops", None)


def _count(reasons: Iterable[str], counts: dict[str, int]) -> None:
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1


class GraphRunner:
    """Runs all units of a graph over a batch, one after the other, and drops columns that no later unit reads.

    By default statistics are prefixed, and randomness keyed, with the graph's own prefix, as in every build.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        prefix: str | None = None,
        path: str | None = None,
        seed: int = 0,
        epoch: int = 0,
        on_error: OnError = "raise",
    ) -> None:
        self.graph = graph
        prefix, path = (graph.prefix if each is None else each for each in (prefix, path))
        self.units = [
            UnitRunner(unit, prefix=prefix, path=path, seed=seed, epoch=epoch, on_error=on_error)
            for unit in graph.units
        ]
        last = graph.last_uses
        self._spent: list[list[Ref]] = [[] for _ in self.units]
        # A batch holds every column made so far: without this, long pipelines hold all of them at once.
        for position, refs in enumerate([[Ref("", None)], *(unit.refs for unit in self.units)]):
            for ref in refs:
                spent = max(last.get(ref, 0), position - 1)
                if spent < len(self.units):
                    self._spent[spent].append(ref)
                    if self.units[spent].unit.inputs == ref:
                        self.units[spent].is_last_reader = True

    def run_unit(self, position: int, batch: Batch) -> None:
        """Runs the unit at `position`, then drops the columns that no later unit reads."""
        self.units[position].run(batch)
        for ref in self._spent[position]:
            if batch.tables.pop(ref, None) is None:
                del batch.columns[ref]

    def run(self, batch: Batch) -> None:
        """Runs every unit over `batch`."""
        for position in range(len(self.units)):
            self.run_unit(position, batch)

    def outputs(self, batch: Batch) -> dict[str, Column]:
        """The columns that leave the graph, by output name."""
        return {name: batch.column(ref) for name, ref in self.graph.outputs.items()}
