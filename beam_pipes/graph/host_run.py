"""The work of operators: records, bytes and time, by operator.

Runs a plan over one batch on the host.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import GraphError
from beam_pipes.graph.apply import Outcome, apply
from beam_pipes.graph.basic import Merge, Partial
from beam_pipes.graph.data_node import DataNode, OperatorNode, Scope
from beam_pipes.graph.samples import Records, Samples
from beam_pipes.graph.tensors import TensorList, no_samples


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """The work of one operator for one batch."""

    records: int
    failed: int
    sizes: tuple[int, ...]
    secs: float


@dataclasses.dataclass
class OperatorStatistics:
    """The work of one operator for the returned batches, since the pipeline was built, in this process.

    `records` counts its samples, `failed` those it failed on, `bytes` its output (`output_bytes` by output), `secs`
    wall time.
    """

    place: str
    batches: int = 0
    records: int = 0
    failed: int = 0
    bytes: int = 0
    secs: float = 0.0
    output_bytes: list[int] = dataclasses.field(default_factory=list)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, done: Done) -> None:
        """Books one batch; several threads may."""
        with self._lock:
            self.batches += 1
            self.records += done.records
            self.failed += done.failed
            self.bytes += sum(done.sizes)
            self.secs += done.secs
            before = self.output_bytes or [0] * len(done.sizes)
            self.output_bytes = [a + b for a, b in zip(before, done.sizes, strict=True)]


#: The message for a sample on whose path a function returns nothing.
NO_VALUE = "a function with conditions returns nothing for some samples: return a value on all ways"

Rows = npt.NDArray[np.intp]


@dataclasses.dataclass(frozen=True)
class FailedSample:
    """A sample on which an operator failed, if that is allowed: the content of a dead letter."""

    record: str
    operator: str
    epoch: int
    error_type: str
    message: str
    where: str
    dropped: bool


@dataclasses.dataclass
class Tally:
    """The statistics of a batch, added once it is returned: failed samples, and the work of each operator."""

    failed: list[FailedSample] = dataclasses.field(default_factory=list)
    done: list[tuple[str, Done]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Held:
    """The column of a data node, and the rows of the batch that it is for."""

    column: TensorList
    rows: Rows

    def take(self, rows: Rows) -> TensorList:
        """The samples of some of these rows."""
        if rows is self.rows or np.array_equal(rows, self.rows):
            return self.column
        at = np.minimum(np.searchsorted(self.rows, rows), max(len(self.rows) - 1, 0))
        if not len(self.rows) and len(rows) or not np.array_equal(self.rows[at], rows):
            raise GraphError(NO_VALUE)
        return self.column.take(at)


# Returns the outputs of a reader or fed operator for these samples.
Feed = Callable[[OperatorNode, Samples], Outcome]


@dataclasses.dataclass(eq=False, kw_only=True)
class HostRun:
    """One batch on its way through the operators, in order."""

    records: Records
    feed: Feed
    draw_key: Callable[[OperatorNode], str]
    on_error: str = "fail"
    pool: ThreadPoolExecutor | None = None
    num_threads: int = 1
    held: dict[DataNode, Held] = dataclasses.field(init=False, default_factory=dict)
    tally: Tally = dataclasses.field(init=False, default_factory=Tally)

    def __post_init__(self) -> None:
        self._alive = np.ones(self.records.size, bool)
        self._all: Rows = np.arange(self.records.size)
        self._rows: dict[Scope | None, Rows] = {None: self._all}

    def rows_of(self, scope: Scope | None) -> Rows:
        """The rows of the batch for which a branch runs, without failed ones."""
        known = self._rows.get(scope)
        if known is None:
            assert scope is not None
            parent = self.rows_of(scope.parent)
            chosen = self.chosen(scope.predicate, parent)
            known = self._rows[scope] = parent[chosen == scope.branch]
        return known

    def samples(self, node: OperatorNode, rows: Rows) -> Samples:
        """The records of some rows, as one operator draws for them."""
        return Samples(self.records, rows, self.draw_key(node))

    def hold(self, node: DataNode, column: TensorList) -> None:
        """Takes a column that was computed elsewhere, for all rows of the batch."""
        self.held[node] = Held(column, self._all)

    def run(self, node: OperatorNode, spent: Sequence[DataNode] = ()) -> None:
        """Runs one operator, and releases the columns in `spent`."""
        start = time.perf_counter()
        rows = self.rows_of(node.scope)
        if isinstance(node.operator, Merge):
            column, rows = self._merged(node, rows)
            outcome = Outcome([column], {})
        elif isinstance(node.operator, Partial):
            chosen = self.chosen(node.inputs[0], rows)
            value = self.held[node.inputs[1]]
            rows = np.intersect1d(rows[chosen == node.operator.branch], value.rows, assume_unique=True)
            outcome = Outcome([value.take(rows)], {})
        elif not len(rows) and not node.operator.is_source and not node.operator.side_effects:
            outcome = Outcome([no_samples(output.spec) for output in node.outputs], {})
        elif node.operator.is_source:
            outcome = self.feed(node, self.samples(node, rows))
        else:
            outcome = apply(
                node,
                self.samples(node, rows),
                [self.held[feed].take(rows) for feed in node.inputs],
                {name: self.held[feed].take(rows) for name, feed in node.argument_inputs.items()},
                keep_failures=(node.on_error or self.on_error) != "fail",
                pool=self.pool,
                num_threads=self.num_threads,
            )
        if outcome.failures:
            rows = self._bury(node, rows, outcome.failures)
        for output, column in zip(node.outputs, outcome.columns, strict=True):
            self.held[output] = Held(_as_declared(column, output), rows)
        sizes = tuple(column.nbytes for column in outcome.columns)
        done = Done(len(rows), len(outcome.failures), sizes, time.perf_counter() - start)
        self.tally.done.append((node.name, done))
        for data_node in spent:
            self.held.pop(data_node, None)

    def output(self, node: DataNode) -> TensorList:
        """The column of an output, over the samples that succeeded."""
        return _as_declared(self.held[node].take(self.rows_of(None)), node)

    def chosen(self, predicate: DataNode, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of some rows take the true branch of a condition."""
        if not len(rows):
            return np.zeros(0, bool)
        return np.asarray(self.held[predicate].take(rows).as_array()).astype(bool)

    def _merged(self, node: OperatorNode, rows: Rows) -> tuple[TensorList, Rows]:
        """The samples of both branches in order, and the rows that have one (all, except with early returns)."""
        chosen = self.chosen(node.inputs[0], rows)
        sides = []
        for branch, feed in zip((True, False), node.inputs[1:], strict=True):
            held = self.held[feed]
            own = rows[chosen == branch]
            if len(own) and not np.array_equal(own, held.rows):
                own = np.intersect1d(own, held.rows, assume_unique=True)
            sides.append((own, held.take(own)))
        (first_rows, first), (second_rows, second) = sides
        both = np.concatenate([first_rows, second_rows])
        order = np.argsort(both, kind="stable")
        layout = node.outputs[0].spec.layout
        if not len(first) or not len(second):
            return (first if len(first) else second).with_layout(layout), both
        if first.is_stacked and second.is_stacked:
            one, other = first.as_array(), second.as_array()
            if one.shape[1:] == other.shape[1:] and one.dtype == other.dtype:
                return TensorList(np.concatenate([one, other])[order], layout=layout), both[order]
        return TensorList([*first, *second]).take(order).with_layout(layout), both[order]

    def _bury(self, node: OperatorNode, rows: Rows, failures: Mapping[int, Exception]) -> Rows:
        """Records the failed samples and excludes them from later operators; returns the remaining rows."""
        for index, error in failures.items():
            row = int(rows[index])
            self._alive[row] = False
            self.tally.failed.append(
                FailedSample(
                    record=self.records.ids[row],
                    operator=node.name,
                    epoch=self.records.epoch,
                    error_type=type(error).__name__,
                    message=str(error),
                    where=str(node.where),
                    dropped=(node.on_error or self.on_error) == "drop",
                )
            )
        self._rows = {scope: known[self._alive[known]] for scope, known in self._rows.items()}
        return rows[self._alive[rows]]


def _as_declared(column: TensorList, node: DataNode) -> TensorList:
    """A column; without samples it has no dtype and shape, so it takes those of the node in the graph."""
    known = node.spec.shape is not None or node.spec.dtype is not None
    return no_samples(node.spec) if known and not len(column) else column
