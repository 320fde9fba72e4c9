"""`pcoll | lower(pipeline)`: a typed pipeline inside a user's own Beam pipeline.

    elements ── Begin ── one PTransform per unit, over batches ── End ──┬── outputs
                                                                        └── dead letters

Accounts mirrored to Beam metrics: in a build, a live view on a runner's dashboard, never the source of truth.

After one transient failure, a Beam counter showed 1,901 for 1,000 elements; exact counts travel with the data, into the
completions. `lower` has no completions, so it counts when a bundle ends: one that fails counts nothing.
Names are looked up by namespace and name: runners disagree about step names.
"""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from google.protobuf.message import Message

from beam_pipes.beam.letters import fields_of, text_of_element
from beam_pipes.checks import integer
from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner, OnError, UnitRunner
from beam_pipes.engine.graph import Graph, Signature, Stage, brief, describe, graph_of, mismatch
from beam_pipes.engine.records import Batch, Failure
from beam_pipes.engine.statistics import Counter, Histogram
from beam_pipes.errors import DeclarationError, TypeMismatchException

# An element of a PCollection, of the class given by the type hint of the collection, if any.
Element = Any
# A type hint of Beam: a class, or a constraint of Beam's own, which has no types.
TypeHint = Any
# The timestamp of an element in microseconds, and its window.
_Stamp = tuple[int, Any]

DEAD_LETTERS = "dead letters"


class FailedElement(NamedTuple):
    """An element that failed in a stage: the input, and the exception's text."""

    element: Element
    stage: str
    error_type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, element: Element, failed: Failure) -> FailedElement:
        """An element, and its failure in words."""
        return cls(element, failed.stage, failed.error_type, failed.message, failed.traceback)


# The result of a pipeline: the collection of its one output, or those of several by name.
Outputs = Any  # a PCollection, or a dict of PCollections


class Lowered(NamedTuple):
    """The result of `lower` if failures are kept: the usual `outputs`, and `dead_letters` of `FailedElement`."""

    outputs: Outputs
    dead_letters: beam.PCollection


def lower(
    pipeline: Stage,
    *,
    seed: int = 0,
    on_error: OnError = "fail",
    record_id: Callable[[Element], str] | None = None,
    batch_records: int = 256,
    batch_bytes: int = 1 << 20,
    resource_hints: Mapping[str, Mapping[str, object]] | None = None,
) -> beam.PTransform:
    """A PTransform that runs `pipeline` over each element: every unit becomes one labelled PTransform.

        ["to be", "or not"] | lower(SplitWords())                             →  ["to", "be", "or", "not"]
        words, failed = lines | lower(SplitWords(), on_error="dead_letter")   →  as above; `FailedElement`s

    A pipeline with a dict output (every `DAGPipeline`) gives a dict of PCollections. Elements keep their timestamps and
    windows. Declared types are checked against those of the collection, and become the type hints of the outputs, so
    that Beam uses its coders for `str`, `bytes`, numbers and messages.

    Statistics and counts of every unit appear as Beam counters (namespace: the pipeline's name), added when a bundle
    ends. Each output depends only on the element, not on batches, bundles or runners.

    Args:
        seed: the key of stages' random draws, together with stage and element.
        on_error: "fail" ends the job; "dead_letter" gives a `Lowered`, as does a stage's own `on_error`; "drop" counts.
        record_id: names an element for stages that draw, and in errors; by default its content, so that equal elements
            draw the same.
        batch_records, batch_bytes: how many elements, and about how many bytes of them, travel as one batch. A batch
            ends with its bundle. 1 record gives the least latency; a stage with `transform_batch` benefits from more.
        resource_hints: unit → Beam's resource hints for it alone, `{"Embed": {"accelerator": …}}`. For all of them call
            `lower(…).with_resource_hints(…)`.

    Raises `DeclarationError` for options that do not combine, `TypeMismatchException` if the collection or an
    element is of another type than the pipeline takes; in the job `StageError` for an element that fails.
    """
    if not hasattr(pipeline, "output_type"):
        raise DeclarationError(
            f"lower: expected a pipeline, a stage or a DAGPipeline, got {brief(pipeline)}. A PTransform needs no "
            "lower(); combine several stages in a DAGPipeline, or lower each: … | lower(split) | lower(count)."
        )
    graph = graph_of(pipeline, default_output="train")
    for option, value in (("batch_records", batch_records), ("batch_bytes", batch_bytes)):
        integer(value, least=1, what=f"lower: {option}")
    names = [unit.name for unit in graph.units]
    for name in resource_hints or {}:
        if name not in names:
            raise DeclarationError(
                f"lower: resource_hints names {name!r}; the units of {graph.name!r} are {', '.join(names)}."
            )
    batches = _Begin(pipeline, record_id or text_of_element, batch_records=batch_records, batch_bytes=batch_bytes)
    return _Lower(graph, pipeline, batches, seed=seed, on_error=on_error, resource_hints=resource_hints or {})


class _Lower(beam.PTransform):  # type: ignore[misc]
    def __init__(
        self,
        graph: Graph,
        pipeline: Stage,
        begin: _Begin,
        *,
        seed: int,
        on_error: OnError,
        resource_hints: Mapping[str, Mapping[str, object]],
    ) -> None:
        super().__init__(label=graph.name)
        self._graph = graph
        self._pipeline = pipeline
        self._begin = begin
        self._seed = seed
        self._on_error: OnError = on_error
        self._hints_of_units = resource_hints
        self._keeps_failed = any(
            UnitRunner(unit, seed=seed, on_error=on_error).on_error == "dead_letter" for unit in graph.units
        )

    def expand(self, pcoll: beam.PCollection) -> Outputs | Lowered:
        self._check_type(pcoll.element_type)
        batches = pcoll | "Begin" >> beam.ParDo(self._begin).with_output_types(_ElementBatch)
        for position, unit in enumerate(self._graph.units):
            unit_runner = _RunUnit(self._pipeline, position, seed=self._seed, on_error=self._on_error)
            run = beam.ParDo(unit_runner).with_output_types(_ElementBatch)
            hints = self._hints_of_units.get(unit.name)
            batches = batches | unit.name >> (run.with_resource_hints(**hints) if hints else run)
        types = self._graph.output_type
        # The main output needs no tag on each element: a third of the cost of this step.
        main, *others = types
        ends = batches | "End" >> beam.ParDo(_End(self._pipeline, main=main)).with_outputs(
            *others, *[DEAD_LETTERS] * self._keeps_failed, main=main
        )
        outputs = {name: ends[name] for name in types}
        for name, collection in outputs.items():
            collection.element_type = hint_of(types[name])
        given = outputs[main] if isinstance(self._pipeline.output_type, type) else outputs
        return Lowered(given, ends[DEAD_LETTERS]) if self._keeps_failed else given

    def _check_type(self, found: TypeHint) -> None:
        expected = self._pipeline.input_type
        hint = hint_of(expected) if isinstance(expected, type) else typehints.Any
        if not typehints.is_consistent_with(found, hint):
            raise TypeMismatchException(
                f"{self._pipeline.name}: the collection is of {_words(found)}, but the pipeline takes "
                f"{describe(expected)}. Convert its elements before lower(), or correct the type hints of the "
                "transform that makes them.",
                stage=self._pipeline.name,
                expected=expected,
                found=found,
            )


def _words(hint: TypeHint) -> str:
    return getattr(hint, "__name__", None) or str(hint)


def hint_of(type_: type) -> TypeHint:
    """The type hint of a declared type; `Any` where Beam would read more into it than was declared.

    `tuple` does not say what it contains, and Beam takes it for a sequence of one type, which is not a pair of key and
    value.
    """
    if type_ is object or type_ is tuple:
        return typehints.Any
    return convert_to_beam_type(type_)


class BatchCoder(beam.coders.Coder):  # type: ignore[misc]
    """Batches as pickles. Beam samples the sizes of elements, and would pickle a batch again to find its size."""

    def encode(self, value: object) -> bytes:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> object:
        return pickle.loads(encoded)

    def estimate_size(self, value: Any) -> int:
        return int(value.records.num_bytes)

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self) -> type:
        return _ElementBatch


class _ElementBatch(Batch):
    """A batch of elements of a collection."""

    __slots__ = ()
    records: _Named


beam.coders.registry.register_coder(_ElementBatch, BatchCoder)


class _Named:
    """Elements as the records of a batch; an id is computed only on request."""

    __slots__ = ("_name", "num_bytes", "stamps", "values")

    def __init__(
        self, values: list[Element], name: Callable[[Element], str], *, stamps: Sequence[_Stamp] | None, num_bytes: int
    ) -> None:
        self.values = values
        self._name = name
        self.stamps = stamps
        self.num_bytes = num_bytes

    def record_id(self, index: int) -> str:
        return self._name(self.values[index])

    def content(self, index: int) -> bytes:
        return self.record_id(index).encode("utf-8", "surrogatepass")


def size_of(value: object) -> int:
    """About how many bytes of memory a value holds."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if (nbytes := getattr(value, "nbytes", None)) is not None:
        return int(nbytes)
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(map(size_of, value))
    if isinstance(value, Message):
        return int(value.ByteSize())
    return 64 + sum(map(size_of, (fields_of(value) or {}).values()))


class _Begin(beam.DoFn):  # type: ignore[misc]
    """Element → batches, which end when they are full or with their bundle (like those of Beam's `BatchElements`)."""

    def __init__(
        self, pipeline: Stage, name: Callable[[Element], str], *, batch_records: int, batch_bytes: int
    ) -> None:
        self._stage = pipeline.name
        self._type: Signature = pipeline.input_type
        self._name = name
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self.start_bundle()

    def start_bundle(self) -> None:
        self._values: list[Element] = []
        self._stamps: list[_Stamp] = []
        self._num_bytes = 0

    def process(
        self, element: Element, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Sequence[WindowedValue]:
        kind = type(element)
        if kind is not self._type and (problem := mismatch(element, self._type)) is not None:
            raise TypeMismatchException(f"{self._stage}: as an element, {problem}.", stage=self._stage)
        self._values.append(element)
        self._stamps.append((timestamp.micros, window))
        self._num_bytes += len(element) if kind is str or kind is bytes else size_of(element)
        full = len(self._values) >= self._batch_records or self._num_bytes >= self._batch_bytes
        return self.finish_bundle() if full else ()

    def finish_bundle(self) -> Sequence[WindowedValue]:
        """The open batch, with the timestamp of its earliest element, so that no later step considers one late."""
        if not self._values:
            return ()
        values, stamps, num_bytes = self._values, self._stamps, self._num_bytes
        self.start_bundle()
        micros, window = first = min(stamps, key=operator.itemgetter(0))
        differ = stamps.count(first) != len(stamps)
        named = _Named(values, self._name, stamps=stamps if differ else None, num_bytes=num_bytes)
        batch = _ElementBatch(named, _UNUSED)
        return [WindowedValue(batch, Timestamp(micros=micros), (window,))]


# Batches do not carry accounts from step to step: each step has one for its bundle.
_UNUSED = Account()


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

    def start_bundle(self) -> None:
        self._account = Account()  # the account of a failed bundle is discarded

    def process(self, batch: _ElementBatch) -> Sequence[_ElementBatch]:
        batch = batch.copy(self._account)  # the input stays unchanged, for retries
        self._runner.run_unit(self._position, batch)
        batch.account = _UNUSED
        return (batch,)

    def finish_bundle(self) -> None:
        self._mirror.show(self._account)


class _End(beam.DoFn):  # type: ignore[misc]
    def __init__(self, pipeline: Stage, *, main: str) -> None:
        self._graph = graph_of(pipeline, default_output="train")
        self._main = main

    def process(self, batch: _ElementBatch) -> Sequence[Element]:
        stamps = batch.records.stamps
        given: list[Element] = []
        for name, ref in self._graph.outputs.items():
            tag, column = None if name == self._main else name, batch.column(ref)
            if stamps is None and tag is None:
                given.extend(itertools.chain.from_iterable(column))
            else:
                for index, values in enumerate(column):
                    given += [_given(value, tag, stamps[index] if stamps else None) for value in values]
        for index, failed in batch.failures.items():
            if not failed.dropped:
                letter = FailedElement.of(batch.records.values[index], failed)
                given.append(_given(letter, DEAD_LETTERS, stamps[index] if stamps else None))
        return given


def _given(value: Element, tag: str | None, stamp: _Stamp | None) -> Element:
    """A value for an output, with the timestamp and window of the element that it comes from."""
    if stamp is not None:
        value = WindowedValue(value, Timestamp(micros=stamp[0]), (stamp[1],))
    return value if tag is None else beam.pvalue.TaggedOutput(tag, value)


class Mirror:
    """Counters of one unit, created once: creating them for each element costs three times more."""

    def __init__(self, namespace: str, unit: str) -> None:
        self._namespace = namespace
        self._unit = unit
        self._counters: dict[str, Metrics.DelegatingCounter] = {}

    def show(self, account: Account) -> None:
        """Adds what one batch has booked for this unit.

        `Counter` → one counter; `Histogram` → one counter for each range. Not a Beam distribution: that would report a
        mean, but the values are gone by then.
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
