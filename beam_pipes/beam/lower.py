"""`pcoll | lower(pipeline)`: a typed pipeline inside a user's own Beam pipeline.

Accounts mirrored to Beam metrics: the live view on a runner's dashboard, never the truth.

After one transient failure a Beam counter has been seen at 1,901 for 1,000 elements; what is exact travels with the
data, into the completions. Names are looked up by namespace and name: runners disagree about step names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner, OnError
from beam_pipes.engine.graph import Graph, Stage, graph_of, mismatch
from beam_pipes.engine.records import Batch, OneRecord
from beam_pipes.engine.statistics import Counter, Histogram
from beam_pipes.errors import TypeMismatchException
from beam_pipes.identity.fingerprint import canonical


def lower(
    pipeline: Stage,
    *,
    seed: int = 0,
    on_error: OnError = "fail",
    record_id: Callable[[Any], str] | None = None,
) -> beam.PTransform:
    """A PTransform that runs `pipeline` over each element: every unit becomes one labelled PTransform.

    `['to be', 'or not'] | lower(SplitWords())  →  ['to', 'be', 'or', 'not']`; a pipeline with a dict output (every
    `DAGPipeline`) gives a dict of PCollections. Statistics appear as Beam metrics (namespace: the pipeline's name).

    `record_id` names an element for stages that draw; the default takes the element's content, so that equal elements
    draw alike. `on_error="drop"` and `"dead_letter"` both count a failed element and go on; keeping dead letters takes
    a build. Elements travel one by one: Beam guarantees no order and no `finish_bundle` on which batches could rely.
    """
    return _Lower(graph_of(pipeline, default_output="train"), pipeline, seed, on_error, record_id)


class _Lower(beam.PTransform):  # type: ignore[misc]
    def __init__(self, graph: Graph, pipeline: Stage, seed: int, on_error: OnError, record_id: Any) -> None:
        super().__init__(label=graph.name)
        self._graph = graph
        self._pipeline = pipeline
        self._seed = seed
        self._on_error = on_error
        self._record_id = record_id

    def expand(self, pcoll: Any) -> Any:
        batches = pcoll | "Begin" >> beam.ParDo(_Begin(self._pipeline, self._record_id))
        for position, unit in enumerate(self._graph.units):
            batches = batches | unit.name >> beam.ParDo(
                _RunUnit(self._pipeline, position, seed=self._seed, on_error=self._on_error)
            )
        names = tuple(self._graph.outputs)
        if isinstance(self._pipeline.output_type, type):
            return batches | "End" >> beam.ParDo(_End(self._pipeline, main=names[0]))
        outputs = batches | "End" >> beam.ParDo(_End(self._pipeline, main=None)).with_outputs(*names)
        return {name: outputs[name] for name in names}


class _Begin(beam.DoFn):  # type: ignore[misc]
    def __init__(self, pipeline: Stage, record_id: Callable[[Any], str] | None) -> None:
        self._pipeline = pipeline
        self._record_id = record_id

    def process(self, element: Any) -> Iterator[Batch]:
        problem = mismatch(element, self._pipeline.input_type)
        if problem is not None:
            raise TypeMismatchException(f"{self._pipeline.name}: as an element, {problem}.", stage=self._pipeline.name)
        name = self._record_id or _content_id
        yield Batch(OneRecord(element, _Named(name, element)))


class _Named:
    """The id of one element, worked out when a stage draws; picklable where a lambda is not."""

    def __init__(self, name: Callable[[Any], str], element: Any) -> None:
        self._name = name
        self._element = element

    def __call__(self) -> str:
        return self._name(self._element)


def _content_id(element: Any) -> str:
    return repr(canonical(element))


class _RunUnit(beam.DoFn):  # type: ignore[misc]
    def __init__(self, pipeline: Stage, position: int, *, seed: int, on_error: OnError) -> None:
        self._pipeline = pipeline
        self._position = position
        self._seed = seed
        self._on_error: OnError = on_error

    def setup(self) -> None:
        graph = graph_of(self._pipeline, default_output="train")
        self._runner = GraphRunner(
            graph, prefix=graph.prefix, path=graph.prefix, seed=self._seed, on_error=self._on_error
        )
        self._mirror = Mirror(graph.name, graph.units[self._position].name)

    def process(self, batch: Batch) -> Iterator[Batch]:
        batch = batch.copy()  # the input stays as it is, for retries
        self._runner.run_unit(self._position, batch)
        self._mirror.show(batch.account)
        yield batch


class _End(beam.DoFn):  # type: ignore[misc]
    def __init__(self, pipeline: Stage, *, main: str | None) -> None:
        self._graph = graph_of(pipeline, default_output="train")
        self._main = main

    def process(self, batch: Batch) -> Iterator[Any]:
        for name, ref in self._graph.outputs.items():
            for value in batch.columns[ref][0]:
                yield value if name == self._main else beam.pvalue.TaggedOutput(name, value)


class Mirror:
    """Counters of one unit, created once: creating them for each element costs three times more."""

    def __init__(self, namespace: str, unit: str) -> None:
        self._namespace = namespace
        self._unit = unit
        self._counters: dict[str, Metrics.DelegatingCounter] = {}

    def show(self, account: Account) -> None:
        """Adds what one batch has booked for this unit.

        `Counter` → one counter; `Histogram` → one counter for each range. Not a distribution of Beam: that would tell
        a mean, and the values that it is of are gone by then.
        """
        unit = account.units.get(self._unit)
        if unit is None:
            return
        self._count(f"{self._unit}/inputs", unit.inputs)
        self._count(f"{self._unit}/outputs", unit.outputs)
        self._count(f"{self._unit}/dead", unit.dead)
        for reason, count in unit.dropped.items():
            self._count(f"{self._unit}/dropped/{reason}", count)
        for name, statistic in unit.statistics.items():
            if isinstance(statistic, Counter):
                self._count(name, statistic.count)
            elif isinstance(statistic, Histogram):
                for label, count in statistic.ranges():
                    self._count(f"{name}/{label}", count)

    def _count(self, name: str, count: int) -> None:
        if not count:
            return
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Metrics.counter(self._namespace, name)
        counter.inc(count)
