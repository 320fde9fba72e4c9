"""Debug mode: operators run as soon as they are called, on the current batch.

Draws are keyed by record, so the numbers are those of the compiled graph. The function is called for every batch, and
must call the same operators in the same order each time.

`experimental.pipeline_def`: `pipeline_def` with a debug mode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipes.errors import GraphError
from beam_pipes.graph.basic import BatchConstant
from beam_pipes.graph.cut import Plan, make_plan
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.feeding import Feeding, OpenReader, Work
from beam_pipes.graph.host_run import HostRun
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.pipeline_def import FunctionPipeline, decorator
from beam_pipes.graph.reader import FeedPlace, Reader, Stream
from beam_pipes.graph.tensors import Outputs, TensorList
from beam_pipes.graph.trace import call


class DebugPipeline(Pipeline):
    """A pipeline whose function runs for every batch, on data."""

    def __init__(
        self,
        function: Callable[..., object],
        given: tuple[object, ...],
        arguments: Mapping[str, object],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._function = function
        self._given = given
        self._arguments = arguments
        self._order: list[tuple[str, str]] | None = None
        self._readers: dict[str, OpenReader] = {}
        self._streams: dict[str, Stream] = {}

    def define_graph(self) -> object:
        return self._function(*self._given, **self._arguments)

    def build(self) -> None:
        """Does nothing, because the graph runs directly."""

    def plan(self) -> Plan:
        """The part of the last batch's graph that a compiled pipeline would run."""
        if self._outputs is None:
            raise GraphError("in debug mode nothing is known of the graph before the first run.")
        return make_plan(self.nodes, self._outputs)

    @property
    def feeding(self) -> Feeding:
        """The sources that were called so far."""
        if self._feeding is None:
            raise GraphError("in debug mode nothing is known of the graph before the first run.")
        return self._feeding

    def run(self, cuda_stream: object = None, /, **fed: object) -> Outputs:
        """The next batch, running the function over it."""
        if self._ended:
            raise StopIteration
        if fed:
            raise GraphError("in debug mode sources are called: give external_source its source.")
        for _ in range(2):
            made = self._run_once()
            if made is not None:
                return made
            self.end_epoch()
            if self._ended or not self.feeding.ends_quietly:
                raise StopIteration
        raise GraphError(f"an epoch has no batch of {self.batch_size} with last={self.options.last!r}.")

    def _run_once(self) -> Outputs | None:
        """A batch, or None at the end of the epoch."""
        self._start_over()
        self.debug_run = run = DebugRun(self)
        try:
            self._define()
            host, work = run.finish()
            made = self.outputs_of(host)
        except _EpochEnd:
            return None
        finally:
            self.debug_run = None
        self._check_order()
        self.book(host.tally)
        self._cursor = work.after
        return made

    def _start_over(self) -> None:
        self.nodes, self._names, self._counts, self._outputs = [], set(), {}, None

    def _check_order(self) -> None:
        order = [(node.name, node.operator.op_name) for node in self.nodes]
        if self._order is None:
            self._order = order
        elif order != self._order:
            at = next(
                (i for i, (a, b) in enumerate(zip(order, self._order, strict=False)) if a != b),
                min(len(order), len(self._order)),
            )
            was = self._order[at][0] if at < len(self._order) else "the end"
            now = f"{self.nodes[at]}" if at < len(order) else "the end"
            raise GraphError(
                f"in debug mode the function should call the same operators in the same order for each batch: operator "
                f"{at} was {was!r}, and is {now} now."
            )

    def add(self, node: OperatorNode) -> None:
        super().add(node)
        if self.debug_run is not None:
            self.debug_run.add(node)

    def open(self, node: OperatorNode) -> None:
        """Opens a source, or returns it if the previous batch opened it."""
        if isinstance(node.operator, Reader):
            known = self._readers.get(node.name)
            made = OpenReader.of(node, self.seed) if known is None else OpenReader(node, known.store, known.order)
            self._readers[node.name] = made
        elif node.name not in self._streams:
            self._streams[node.name] = node.operator.stream()  # type: ignore[attr-defined]

    def refeed(self, nodes: Sequence[OperatorNode]) -> Feeding:
        """The sources among `nodes`, the first of which defines an epoch."""
        self._feeding = Feeding(
            [self._readers[node.name] for node in nodes if node.name in self._readers],
            {node: self._streams[node.name] for node in nodes if node.name in self._streams},
            first=nodes[0] if nodes else None,
            batch_size=self.batch_size,
            last=self.options.last,
        )
        return self._feeding


class _EpochEnd(BaseException):
    """Ends the user's function when a source is exhausted."""


class DebugRun:
    """One batch in debug mode. Operators called before the first source wait for it."""

    def __init__(self, pipeline: DebugPipeline) -> None:
        self._pipeline = pipeline
        self._sources: list[OperatorNode] = []
        self._waiting: list[OperatorNode] = []
        self._host: HostRun | None = None
        self._work: Work | None = None
        self._given: dict[OperatorNode, TensorList] = {}

    def add(self, node: OperatorNode) -> None:
        """Runs an operator, once the records of the batch are known."""
        if node.operator.is_source:
            self._add_source(node)
        if self._host is None:
            self._waiting.append(node)
        else:
            self._execute(node)

    def _add_source(self, node: OperatorNode) -> None:
        pipeline = self._pipeline
        if self._host is not None and not self._sources:
            raise GraphError(
                f"in debug mode sources come first: {node} is called after data was looked at, which the draws of this "
                "batch are keyed by."
            )
        pipeline.open(node)
        self._sources.append(node)
        if self._host is not None and self._work is not None:
            feeding = pipeline.refeed(self._sources)
            stream = feeding.streams.get(node)
            if stream is not None:
                self._feed_late(node, feeding)
            return
        self._start(pipeline.refeed(self._sources))

    def _feed_late(self, node: OperatorNode, feeding: Feeding) -> None:
        """Another fed operator joins a batch that has begun."""
        assert self._work is not None
        place = self._work.place
        columns = feeding.streams[node].next(FeedPlace(place.epoch, place.iteration, place.first, place.size))
        if columns is None:
            raise _EpochEnd
        if len(columns[0]) != place.size:
            raise GraphError(f"{node.name} gave {len(columns[0])} samples for a batch of {place.size}.")
        self._work = dataclasses.replace(self._work, fed={**self._work.fed, node: columns})
        assert self._host is not None
        self._host.feed = self._pipeline.feed_of(self._work)

    def _start(self, feeding: Feeding) -> None:
        work = feeding.take(self._pipeline.cursor)
        if work is None:
            raise _EpochEnd
        self._work = work
        self._host = self._pipeline.host_run(work)
        waiting, self._waiting = self._waiting, []
        for node in waiting:
            self._execute(node)

    def _execute(self, node: OperatorNode) -> None:
        assert self._host is not None
        if isinstance(node.operator, BatchConstant):
            column = node.operator.column()
            if len(column) != self._host.records.size:
                raise GraphError(
                    f"a list of {len(column)} arrays was given for a batch of {self._host.records.size} samples. "
                    f"({node.where})"
                )
            self._host.hold(node.outputs[0], column)
            return
        self._host.run(node)

    def value(self, node: DataNode) -> TensorList:
        """The data of a node."""
        if self._host is None:
            self._start(self._pipeline.refeed(self._sources))
        assert self._host is not None
        held = self._host.held[node]
        return held.column

    def constant_batch(self, samples: Sequence[object]) -> DataNode:
        """A list of arrays, one per sample, as a data node."""
        made: DataNode = call(BatchConstant, (), {"samples": list(samples)})
        return made

    def finish(self) -> tuple[HostRun, Work]:
        """The batch, when the function has returned."""
        if self._host is None:
            self._start(self._pipeline.refeed(self._sources))
        assert self._host is not None and self._work is not None
        return self._host, self._work


def pipeline_def(
    fn: Callable[..., object] | None = None,
    /,
    *,
    debug: bool = False,
    enable_conditionals: bool = False,
    **options: Any,
) -> Any:
    """`graph.pipeline_def`, with operators that run as soon as they are called if `debug=True`.

        @experimental.pipeline_def(batch_size=8, debug=True)
        def my_pipe():
            files, labels = fn.readers.file(file_root=root)
            images = fn.decoders.image(files)
            print(images.get()[0].shape)
            return images, labels

    `node.get()` returns the data of the batch. A list of arrays (NumPy, torch, JAX), one per sample, may be passed
    where a data node is expected. The function runs once for each batch, and calls the same operators in the same
    order; its numbers are those of the compiled graph. Call sources before accessing data. It is slow: nothing is
    pruned or prepared ahead.
    """
    make = DebugPipeline if debug else FunctionPipeline
    return decorator(fn, enable_conditionals=enable_conditionals, options=options, make=make)
