"""`DeviceProgram`: the operators of a plan on the device, as functions over arrays of any library.

A *segment* is a run of operators in one branch: one function, compiled as a whole. An operator with draws made on the
host begins a segment, because they may depend on its input's shape. Between segments, samples are selected by index.
Samples that differ in shape, or in an argument that determines shapes, are run in groups.

`DeviceGraphIterator`, the base of iterators of JAX and torch: the host part runs ahead, then the device part.

    works ──OrderedPrefetcher──► host part (threads) ──Stage──► device part ──► batches of arrays on the device
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import integer
from beam_pipes.errors import GraphError, OperatorArgumentError, OperatorError
from beam_pipes.graph.apply import batched_arguments, host_draws
from beam_pipes.graph.basic import Merge, Partial, ToHost
from beam_pipes.graph.cut import Plan
from beam_pipes.graph.data_node import DataNode, OperatorNode, Scope
from beam_pipes.graph.feeding import Work
from beam_pipes.graph.host_run import NO_VALUE, HostRun, Rows
from beam_pipes.graph.iterator import Ahead, Batch, GraphIterator
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.tensors import Array, Operand, TensorList, no_samples
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.on_device.ahead import read_ahead

D = TypeVar("D", bound="DeviceArray")


class DeviceArray(Protocol):
    """The methods used here of a device array of any library."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> object: ...

    def __getitem__(self: D, place: Operand, /) -> D: ...

    def reshape(self: D, shape: Sequence[int], /) -> D: ...


A = TypeVar("A", bound=DeviceArray)
MadeArray = TypeVar("MadeArray", bound=DeviceArray, covariant=True)
R = TypeVar("R")


class Backend(Protocol[MadeArray]):
    """A library of arrays on a device."""

    @property
    def xp(self) -> Any:
        """Its array-API namespace."""

    def put(self, array: npt.ArrayLike, *, exact: bool) -> MadeArray:
        """A NumPy array on the device; with `exact`, values that would change are an error."""

    def compile(self, function: Callable[..., R]) -> Callable[..., R]:
        """The function, compiled if the library supports that."""

    def bucket(self, count: int) -> int:
        """The padded number of samples of a branch, so that few sizes are compiled."""


@dataclasses.dataclass(eq=False)
class _Segment(Generic[A]):
    scope: Scope | None
    nodes: list[OperatorNode]
    inputs: list[DataNode] = dataclasses.field(default_factory=list)
    outputs: list[DataNode] = dataclasses.field(default_factory=list)
    static: list[tuple[OperatorNode, str, DataNode]] = dataclasses.field(default_factory=list)
    compiled: dict[object, Callable[..., tuple[A, ...]]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _OnDevice(Generic[A]):
    """An array on the device and the batch rows of its leading axis."""

    array: A | None  # None if no row needs it
    rows: Rows


class DeviceProgram(Generic[A]):
    """The part of a plan that runs on the device."""

    def __init__(self, plan: Plan, backend: Backend[A]) -> None:
        self.backend = backend
        self.nodes = tuple(node for node in plan.nodes if node.device == "gpu")
        inside = set(self.nodes)
        feeds = {feed for node in self.nodes for feed in (*node.inputs, *node.argument_inputs.values())}
        self.outputs = tuple(dict.fromkeys(node for node in plan.outputs if node.device == "gpu"))
        self.inputs = tuple(
            sorted(
                (feed for feed in {*feeds, *self.outputs} if feed.source not in inside),
                key=lambda feed: (feed.source.order, feed.index),
            )
        )
        self._conditions = {node.inputs[0] for node in self.nodes if isinstance(node.operator, (Merge, Partial))}
        self.steps = self._make_segments(inside)

    @property
    def host_inputs(self) -> tuple[DataNode, ...]:
        """The data nodes that the host must keep for it: its inputs, and the conditions of its branches."""
        conditions = (branch.predicate for node in self.nodes for branch in node.branches)
        return tuple(dict.fromkeys([*self.inputs, *conditions]))

    def _make_segments(self, inside: set[OperatorNode]) -> list[_Segment[A] | OperatorNode]:
        made: list[_Segment[A] | OperatorNode] = []
        for node in self.nodes:
            if isinstance(node.operator, (Merge, Partial)):
                made.append(node)
                continue
            last = made[-1] if made else None
            if not isinstance(last, _Segment) or last.scope is not node.scope or node.operator.host_draws is not None:
                last = _Segment(node.scope, [])
                made.append(last)
            last.nodes.append(node)
        for segment in made:
            if isinstance(segment, _Segment):
                self._complete(segment)
        return made

    def _complete(self, segment: _Segment[A]) -> None:
        own = {output for node in segment.nodes for output in node.outputs}
        inputs: dict[DataNode, None] = {}
        for node in segment.nodes:
            for name, feed in _fed_arguments(node).items():
                if node.operator.arguments[name].static:
                    segment.static.append((node, name, feed))
                else:
                    inputs[feed] = None
            inputs.update(dict.fromkeys(node.inputs))
        segment.inputs = [feed for feed in inputs if feed not in own]
        others = [node for node in self.nodes if node not in segment.nodes]
        elsewhere = {*self.outputs, *(feed for node in others for feed in node.inputs)}
        segment.outputs = [output for output in own if output in elsewhere]
        segment.outputs.sort(key=lambda output: (output.source.order, output.index))

    # Running

    def run(self, host: HostRun) -> dict[DataNode, list[tuple[Rows, A]]]:
        """The outputs on the device: for each a list of (rows, array), one if all samples have one shape."""
        rows = host.rows_of(None)
        made: dict[DataNode, list[tuple[Rows, A]]] = {node: [] for node in self.outputs}
        groups = self._groups(host, rows)
        mixing = next((node for node in self.nodes if node.operator.mixes_samples), None)
        if len(groups) > 1 and mixing is not None:
            raise OperatorError(
                f"operator {mixing.name!r} works on a batch as a whole, and on the device this batch of {len(rows)} "
                f"samples falls into {len(groups)} parts, which differ in shape or in an argument that decides shapes. "
                f"It was called at {mixing.where}. Call it on the host, before the transfer, or bring all samples to "
                "one shape first.",
                operator=mixing.name,
                where=mixing.where,
            )
        for group in groups:
            arrays = _GroupRun(self, host, group).arrays()
            for node in self.outputs:
                one = arrays[node]
                if one.array is not None and len(one.rows):
                    made[node].append((one.rows, one.array))
        return made

    def _groups(self, host: HostRun, rows: Rows) -> list[Rows]:
        """Groups of rows whose samples fit into one array."""
        held = host.held
        ragged = [node for node in self.inputs if node in held and held[node].column.dense is None]
        by_shape = set(ragged)
        static = [feed for segment in self.steps if isinstance(segment, _Segment) for _, _, feed in segment.static]
        if not ragged and not static:
            return [rows]
        keys: dict[tuple[object, ...], list[int]] = {}
        for row in rows.tolist():
            key: list[object] = []
            for node in (*ragged, *static):
                one = held[node]
                at = int(np.searchsorted(one.rows, row))
                if at == len(one.rows) or one.rows[at] != row:
                    key.append(None)
                else:
                    sample = one.column[at]
                    key.append(sample.shape if node in by_shape else tuple(sample.ravel().tolist()))
            keys.setdefault(tuple(key), []).append(row)
        return [np.array(some) for some in keys.values()]

    def compiled(
        self, segment: _Segment[A], statics: dict[tuple[str, str], object], drawn: tuple[str, ...]
    ) -> Callable[..., tuple[A, ...]]:
        """A segment as one function of arrays, compiled once for each combination of static values."""
        key = (tuple(sorted(statics.items())), drawn)
        if key not in segment.compiled:
            segment.compiled[key] = self.backend.compile(self._function(segment, statics, drawn))
        return segment.compiled[key]

    def _function(
        self, segment: _Segment[A], statics: dict[tuple[str, str], object], drawn: tuple[str, ...]
    ) -> Callable[..., tuple[A, ...]]:
        """The operators of a segment as one function of arrays: of its inputs, and the draws for its first operator."""
        backend = self.backend
        count = len(segment.inputs)

        def run(*given: A) -> tuple[A, ...]:
            values = dict(zip(segment.inputs, given[:count], strict=True))
            for node in segment.nodes:
                operator = node.operator
                inputs = [values[feed] for feed in node.inputs]
                size = inputs[0].shape[0] if inputs else given[0].shape[0]
                own: dict[str, object] = {}
                for name, feed in _fed_arguments(node).items():
                    is_static = operator.arguments[name].static
                    own[name] = statics[node.name, name] if is_static else values[feed]
                if operator.host_draws is None:
                    keywords = batched_arguments(operator, own, size)
                else:
                    keywords = dict(zip(drawn, given[count:], strict=True))
                for name, value in keywords.items():
                    if isinstance(value, np.ndarray):
                        keywords[name] = backend.put(value, exact=False)
                try:
                    made = operator.run_arrays(backend.xp, *inputs, **keywords)
                except GraphError:
                    raise
                except Exception as error:
                    shapes = ", ".join(f"{feed.name}: {tuple(values[feed].shape)}" for feed in node.inputs)
                    raise OperatorError(
                        f"operator {node.name!r} failed on the device ({shapes}): {type(error).__name__}: {error}. It "
                        f"was called at {node.where}.",
                        operator=node.name,
                        where=node.where,
                    ) from error
                several = made if isinstance(made, (tuple, list)) else (made,)
                values.update(zip(node.outputs, several, strict=True))
            return tuple(values[output] for output in segment.outputs)

        return run

    def pick(self, array: A, indices: Rows) -> A:
        """Some samples of an array, in the order of `indices`."""
        picked: A = self.backend.xp.take(array, self.backend.put(indices, exact=False), axis=0)
        return picked


@dataclasses.dataclass
class _GroupRun(Generic[A]):
    """Samples of a batch that fit into one array each, on their way through the segments."""

    program: DeviceProgram[A]
    host: HostRun
    group: Rows
    made: dict[DataNode, _OnDevice[A]] = dataclasses.field(default_factory=dict)

    def arrays(self) -> dict[DataNode, _OnDevice[A]]:
        """Every data node on the device, after all segments."""
        for node in self.program.outputs:
            if node.source not in self.program.nodes:
                self._fetch(node, self.group)
        for step in self.program.steps:
            if isinstance(step, OperatorNode):
                self._join(step)
            else:
                self._run(step)
        return self.made

    def _rows_of(self, scope: Scope | None) -> Rows:
        return np.intersect1d(self.host.rows_of(scope), self.group, assume_unique=True)

    def _fetch(self, node: DataNode, rows: Rows, *, exact: bool = True) -> A:
        """The samples of `rows` on the device."""
        if node not in self.made:
            own = np.intersect1d(self.host.held[node].rows, self.group, assume_unique=True)
            column = self.host.held[node].take(own)
            if column.dense is None:
                raise GraphError(f"{node.name} holds samples of different shapes in one group")
            self.made[node] = _OnDevice(self.program.backend.put(column.as_array(), exact=exact), own)
        one = self.made[node]
        assert one.array is not None, "rows are fetched where there are some"
        if np.array_equal(one.rows, rows):
            return one.array
        if not np.isin(rows, one.rows).all():
            raise GraphError(NO_VALUE)
        return self.program.pick(one.array, np.searchsorted(one.rows, rows))

    def _run(self, segment: _Segment[A]) -> None:
        """The operators of a segment."""
        rows = self._rows_of(segment.scope)
        count = len(rows)
        if not count:
            self.made.update((output, _OnDevice(None, rows)) for output in segment.outputs)
            return
        statics = {
            (node.name, name): _static_value(node, name, self.host.held[feed].take(rows)[0])
            for node, name, feed in segment.static
        }
        arguments = {feed for node in segment.nodes for feed in node.argument_inputs.values()}
        given = [self._fetch(feed, rows, exact=feed not in arguments) for feed in segment.inputs]
        drawn = self._drawn(segment.nodes[0], rows, dict(zip(segment.inputs, given, strict=True)))
        given += [self.program.backend.put(array, exact=True) for array in drawn.values()]
        # Samples that only fill up a branch must not count for an operator that works on all of them.
        is_filled = segment.scope is not None and not any(node.operator.mixes_samples for node in segment.nodes)
        wide = self.program.backend.bucket(count) if is_filled else count
        if wide != count:
            filled = np.concatenate([np.arange(count), np.zeros(wide - count, np.intp)])
            given = [self.program.pick(array, filled) for array in given]
        function = self.program.compiled(segment, statics, tuple(drawn))
        for output, array in zip(segment.outputs, function(*given), strict=True):
            self.made[output] = _OnDevice(array if wide == count else array[:count], rows)

    def _drawn(self, node: OperatorNode, rows: Rows, given: dict[DataNode, A]) -> dict[str, np.ndarray]:
        """What the host computes for the first operator of a segment: nothing for most."""
        if node.operator.host_draws is None:
            return {}
        shapes = [tuple(given[feed].shape[1:]) for feed in node.inputs]
        columns = {name: self.host.held[feed].take(rows) for name, feed in node.argument_inputs.items()}
        return host_draws(node, self.host.samples(node, rows), shapes, columns)

    def _join(self, node: OperatorNode) -> None:
        """The end of a condition: the samples of both branches, or of the only one that has a value."""
        rows = self._rows_of(node.scope)
        chosen = self.host.chosen(node.inputs[0], rows)
        branches = [node.operator.branch] if isinstance(node.operator, Partial) else [True, False]
        sides = [(rows[chosen == branch], feed) for branch, feed in zip(branches, node.inputs[1:], strict=True)]
        parts = [self._fetch(feed, own) for own, feed in sides if len(own)]
        shapes = {tuple(array.shape[1:]) for array in parts}
        if len(shapes) > 1:
            raise OperatorError(
                f"the branches of the condition on {node.inputs[0].name!r} give samples of shapes {sorted(shapes)} on "
                f"the device, where one array holds both. Resize or crop them alike. ({node.where})",
                operator=node.name,
                where=node.where,
            )
        both = np.concatenate([own for own, _ in sides])
        order = np.argsort(both, kind="stable")
        whole = parts[0] if parts else None
        if len(parts) > 1:
            whole = self.program.pick(self.program.backend.xp.concat(parts, axis=0), order)
        self.made[node.outputs[0]] = _OnDevice(whole, both[order])


def _fed_arguments(node: OperatorNode) -> Mapping[str, DataNode]:
    """The arguments that `run_arrays` receives as arrays; those of draws stay on the host."""
    return {} if node.operator.host_draws is not None else node.argument_inputs


def _static_value(node: OperatorNode, name: str, sample: Array) -> object:
    kind = node.operator.arguments[name].kind
    value = np.asarray(sample).astype(kind.dtype)
    return value.item() if kind.rank == 0 else tuple(np.atleast_1d(value).tolist())


class DeviceGraphIterator(GraphIterator, abc.ABC, Generic[A]):
    """Batches of a pipeline on a device: the host part runs in threads; transfer and device part share another one."""

    def __init__(
        self,
        pipe: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str] | None = None,
        *,
        ragged: str = "list",
        pad_value: float = 0,
        device_buffer: int = 2,
        **of_dali: object,
    ) -> None:
        start: Callable[..., None] = super().__init__
        start(pipe, output_map, ragged=ragged, pad_value=pad_value, **of_dali)
        self._device_buffer = integer(device_buffer, least=1, what="device_buffer", error=OperatorArgumentError)
        self.program = DeviceProgram(self.pipe.plan(), self.backend())
        self._kept = set(self.program.host_inputs)

    @abc.abstractmethod
    def backend(self) -> Backend[A]:
        """The library of arrays."""

    @abc.abstractmethod
    def placed(self, name: str, array: np.ndarray) -> A:
        """A NumPy array as the library's, on the device."""

    @abc.abstractmethod
    def fetched(self, array: A) -> np.ndarray:
        """An array of the library as NumPy's."""

    def _host_part(self, work: Work) -> HostRun:
        return self.pipe.host_part(work, for_device=self._kept)

    def _made_ahead(self, works: Iterator[Work]) -> Ahead:
        if self.pipe.feeding.is_pushed:
            return super()._made_ahead(works)
        depth = max(1, self.pipe.options.prefetch_queue_depth)
        host = OrderedPrefetcher(lambda work: (work, self._host_part(work)), works, workers=self._workers, depth=depth)
        return read_ahead(lambda made: (made[0], (made[1].tally, self.batch_of(made[1]))), host, self._device_buffer)

    def batch_of(self, run: HostRun) -> Batch:
        on_device = self.program.run(run)
        batch: Batch = {}
        for name, node in zip(self.names, self.pipe.plan().outputs, strict=True):
            if node.device == "gpu":
                batch.update(self._device_output(name, node, on_device[node], run))
            else:
                shaped = self.shaped(name, self.pipe.checked(run.output(node), node), node.spec)
                batch.update({key: self._all_placed(key, value) for key, value in shaped.items()})
        for key, value in self._valid(run).items():
            batch[key] = self.placed(key, value)
        return batch

    def _all_placed(self, key: str, value: np.ndarray | list[np.ndarray]) -> A | list[A]:
        return [self.placed(key, one) for one in value] if isinstance(value, list) else self.placed(key, value)

    def _device_output(
        self, name: str, node: DataNode, parts: list[tuple[Rows, A]], run: HostRun
    ) -> Mapping[str, object]:
        back = isinstance(node.source.operator, ToHost)
        if parts and len({(tuple(array.shape[1:]), str(array.dtype)) for _, array in parts}) == 1:
            whole = parts[0][1]
            if len(parts) > 1:
                xp = self.program.backend.xp
                order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
                whole = xp.concat([array for _, array in parts], axis=0)
                whole = xp.take(whole, self.program.backend.put(order, exact=False), axis=0)
            return self._whole_output(name, node, self.fetched(whole) if back else whole, back)
        samples: dict[int, A] = {}
        for rows, array in parts:
            for at, row in enumerate(rows.tolist()):
                samples[row] = array[at]
        ordered = [samples[row] for row in run.rows_of(None).tolist()]
        if not ordered:
            none = self.shaped(name, no_samples(node.spec), node.spec)
            return none if back else {key: self._all_placed(key, value) for key, value in none.items()}
        if self._ragged != "list" or (back and ordered):
            columns = TensorList([np.asarray(self.fetched(one)) for one in ordered])
            shaped = self.shaped(name, columns, node.spec)
            return shaped if back else {key: self._all_placed(key, value) for key, value in shaped.items()}
        return {name: ordered}

    def _whole_output(self, name: str, node: DataNode, whole: A | np.ndarray, back: bool) -> dict[str, object]:
        """An output whose samples share one shape in this batch, in the form that it has in every batch."""
        shapes = TensorList(np.zeros((1, *whole.shape[1:]), np.bool_))
        own = self.shaped(name, shapes, node.spec)
        if f"{name}/lengths" not in own:
            return {name: whole}
        lengths = np.repeat(own[f"{name}/lengths"], whole.shape[0], axis=0)
        if self._ragged == "values":
            whole = whole.reshape((-1, *whole.shape[2:]))
        return {name: whole, f"{name}/lengths": lengths if back else self.placed(f"{name}/lengths", lengths)}
