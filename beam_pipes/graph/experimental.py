"""Debug mode: operators run as soon as they are called, on the current batch.

Draws are keyed by record, so the numbers are those of the compiled graph. The function is called for every batch, and
must call the same operators in the same order each time.

`experimental.pipeline_def`: `pipeline_def` with a debug mode.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from beam_pipes.errors import GraphError
from beam_pipes.graph.basic import BatchConstant
from beam_pipes.graph.cut import Plan, make_plan
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.feeding import Feeding, OpenReader, Work
from beam_pipes.graph.host_run import HostRun
from beam_pipes.graph.pipeline_def import Definition, FunctionPipeline, decorator
from beam_pipes.graph.reader import Fed, Reader, Stream
from beam_pipes.graph.spec import located
from beam_pipes.graph.tensors import Outputs, TensorList
from beam_pipes.graph.trace import add

Known = TypeVar("Known")


class DebugPipeline(FunctionPipeline):
    """A pipeline whose function runs for every batch, on data."""

    runs_once: ClassVar[bool] = False

    def __init__(
        self, function: Definition, given: tuple[object, ...], arguments: Mapping[str, object], **options: Any
    ) -> None:
        super().__init__(function, given, arguments, **options)
        self._batch: DebugBatch | None = None
        self._order: list[tuple[str, str]] = []
        self._readers: dict[str, OpenReader] = {}
        self._streams: dict[str, Stream] = {}

    def build(self) -> None:
        """Does nothing, because the graph runs directly."""

    def plan(self) -> Plan:
        """The part of the last batch's graph that a compiled pipeline would run."""
        return make_plan(self.nodes, _known(self._outputs))

    @property
    def feeding(self) -> Feeding:
        """The sources that were called so far."""
        return _known(self._feeding)

    def feed_batch(self, **fed: object) -> None:
        """Nothing: sources are fed when they are called."""
        if fed:
            raise GraphError("in debug mode sources are called: give external_source its source.")

    def next_batch(self) -> Outputs | None:
        """The next batch, running the function over it; None at the end of the epoch."""
        self.nodes, self._names, self._counts, self._outputs = [], set(), {}, None
        self._batch = batch = DebugBatch(self)
        try:
            self._define()
            host = batch.begin()
            made = self.outputs_of(host)
        except _EpochEnd:
            return None
        finally:
            self._batch = None
        self._check_order()
        self.book(host.tally)
        self.cursor = batch.work.after
        return made

    def _check_order(self) -> None:
        order = [(node.name, node.operator.op_name) for node in self.nodes]
        self._order = self._order or order
        for at, (now, before) in enumerate(itertools.zip_longest(order, self._order)):
            if now != before:
                was = before[0] if before else "the end"
                raise GraphError(
                    "in debug mode the function should call the same operators in the same order for each batch: "
                    f"operator {at} was {was!r}, and is {self.nodes[at] if now else 'the end'} now."
                )

    def add(self, node: OperatorNode) -> None:
        super().add(node)
        if self._batch is not None:
            self._batch.add(node)

    def value(self, node: DataNode) -> TensorList | None:
        return None if self._batch is None else self._batch.begin().held[node].column

    def batch_of(self, samples: Sequence[object]) -> DataNode | None:
        return None if self._batch is None else add(BatchConstant, (), {"samples": list(samples)}).outputs[0]

    def open(self, nodes: Sequence[OperatorNode]) -> Feeding:
        """These sources; the first defines an epoch. Sources that an earlier batch opened are reused."""
        readers: list[OpenReader] = []
        streams: dict[OperatorNode, Stream] = {}
        for node in nodes:
            if isinstance(node.operator, Reader):
                known = self._readers.get(node.name) or OpenReader.of(node, self.seed)
                self._readers[node.name] = reader = dataclasses.replace(known, node=node)
                readers.append(reader)
            elif isinstance(node.operator, Fed):
                if node.name not in self._streams:
                    self._streams[node.name] = node.operator.stream()
                streams[node] = self._streams[node.name]
        first = nodes[0] if nodes else None
        self._feeding = Feeding(readers, streams, first=first, batch_size=self.batch_size, last=self.options.last)
        return self._feeding


def _known(value: Known | None) -> Known:
    if value is None:
        raise GraphError("in debug mode nothing is known of the graph before the first run.")
    return value


class _EpochEnd(BaseException):
    """Ends the user's function when a source is exhausted."""


class DebugBatch:
    """One batch in debug mode. It begins with the first source; operators called earlier wait for it."""

    work: Work

    def __init__(self, pipeline: DebugPipeline) -> None:
        self._pipeline = pipeline
        self._sources: list[OperatorNode] = []
        self._waiting: list[OperatorNode] = []
        self._host: HostRun | None = None

    def begin(self) -> HostRun:
        """The batch, once its records are known: those of the sources called so far."""
        if self._host is None:
            work = self._pipeline.open(self._sources).take(self._pipeline.cursor)
            if work is None:
                raise _EpochEnd
            self.work, self._host = work, self._pipeline.host_run(work)
            for node in self._waiting:
                _run(node, self._host)
        return self._host

    def add(self, node: OperatorNode) -> None:
        """Runs an operator, once the records of the batch are known."""
        if node.operator.is_source:
            self._add_source(node)
        if self._host is None:
            self._waiting.append(node)
        else:
            _run(node, self._host)

    def _add_source(self, node: OperatorNode) -> None:
        if self._host is not None and not self._sources:
            raise GraphError(
                f"in debug mode sources come first: {node} is called after data was looked at, which the draws of this "
                "batch are keyed by."
            )
        self._sources.append(node)
        if self._host is None:
            self.begin()
            return
        stream = self._pipeline.open(self._sources).streams.get(node)
        if stream is None:
            return
        place = self.work.place
        columns = stream.next(place)
        if columns is None:
            raise _EpochEnd
        if len(columns[0]) != place.size:
            raise GraphError(f"{node.name} gave {len(columns[0])} samples for a batch of {place.size}.")
        self.work = dataclasses.replace(self.work, fed={**self.work.fed, node: columns})
        self._host.feed = self._pipeline.feed_of(self.work)


def _run(node: OperatorNode, host: HostRun) -> None:
    try:
        host.run(node)
    except GraphError as error:
        raise located(error, node.where) from error.__cause__


def pipeline_def(
    fn: Definition | None = None,
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
