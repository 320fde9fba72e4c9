"""`pcoll | lower(pipeline)`: a typed pipeline inside a user's own Beam pipeline.

    elements ── one DoFn for all units, over batches ──┬── outputs
                                                       └── dead letters

A step of Beam's costs an element more than a cheap stage does (docs/decisions/lowering.md), so units share one; only a
unit with resources of its own is a step by itself, and batches travel to and from it.

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
from google.protobuf.message import Message

from beam_pipes.beam.letters import fields_of, text_of_element
from beam_pipes.checks import integer
from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner, Made, OnError, UnitRunner
from beam_pipes.engine.graph import Graph, Ref, Signature, Stage, brief, describe, graph_of, mismatch
from beam_pipes.engine.records import Batch, Failure, set_context
from beam_pipes.engine.resources import resources_of
from beam_pipes.engine.statistics import Counter, Histogram
from beam_pipes.errors import DeclarationError, TypeMismatchException
from beam_pipes.format.spec import UNCHANGEABLE, owned

# An element of a PCollection, of the class given by the type hint of the collection, if any.
Element = Any
# A type hint of Beam: a class, or a constraint of Beam's own, which has no types.
TypeHint = Any
# A `WindowedValue`, which Beam does not type: an element with its timestamp, windows and pane.
_Stamp = Any

DEAD_LETTERS = "dead letters"

# A step of more units than this is named by its first and last.
_NAMED_UNITS = 4


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
    """A PTransform that runs `pipeline` over each element, in one step with the names of its units.

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
        resource_hints: unit → Beam's resource hints for it alone, `{"Embed": {"accelerator": …}}`, in addition to the
            `resources` that it declares. It becomes a step of its own, as with `{"Embed": {}}`. For all of them call
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
    work = _Work(pipeline, seed, on_error, record_id or text_of_element, batch_records, batch_bytes)
    hints: dict[str, Mapping[str, object]] = {name: each.hints() for name, each in resources_of(graph.units).items()}
    for name, own in (resource_hints or {}).items():
        hints[name] = {**hints.get(name, {}), **own}
    return _Lower(graph, work, resource_hints=hints)


class _Work(NamedTuple):
    """What workers need to know of a `lower`."""

    pipeline: Stage
    seed: int
    on_error: OnError
    name_of: Callable[[Element], str]
    batch_records: int
    batch_bytes: int

    def graph(self) -> Graph:
        return graph_of(self.pipeline, default_output="train")


class _Lower(beam.PTransform):  # type: ignore[misc]
    def __init__(self, graph: Graph, work: _Work, *, resource_hints: Mapping[str, Mapping[str, object]]) -> None:
        super().__init__(label=graph.name)
        self._graph = graph
        self._work = work
        self._pipeline = work.pipeline
        self._hints_of_units = resource_hints
        self._keeps_failed = any(
            UnitRunner(unit, seed=work.seed, on_error=work.on_error).on_error == "dead_letter" for unit in graph.units
        )

    def expand(self, pcoll: beam.PCollection) -> Outputs | Lowered:
        self._check_type(pcoll.element_type)
        *earlier, last = self._steps()
        for units in earlier:
            pcoll = pcoll | self._label(units) >> self._step(units).with_output_types(_ElementBatch)
        types = self._graph.output_type
        # The main output needs no tag on each element.
        main, *others = types
        tags = [*others, *[DEAD_LETTERS] * self._keeps_failed]
        step = self._step(last)
        ends = pcoll | self._label(last) >> (step.with_outputs(*tags, main=main) if tags else step)
        outputs = {name: ends[name] if tags else ends for name in types}
        for name, collection in outputs.items():
            collection.element_type = hint_of(types[name])
        given = outputs[main] if isinstance(self._pipeline.output_type, type) else outputs
        return Lowered(given, ends[DEAD_LETTERS]) if self._keeps_failed else given

    def _steps(self) -> list[range]:
        """The units of each step, by position: a unit with resources of its own is alone."""
        steps: list[range] = []
        alone = [unit.name in self._hints_of_units for unit in self._graph.units]
        for position, is_alone in enumerate(alone):
            if position and not (is_alone or alone[position - 1]):
                steps[-1] = range(steps[-1].start, position + 1)
            else:
                steps.append(range(position, position + 1))
        return steps

    def _label(self, units: range) -> str:
        names = [self._graph.units[position].name for position in units]
        return " + ".join(names if len(names) <= _NAMED_UNITS else [names[0], f"{len(names) - 2} stages", names[-1]])

    def _step(self, units: range) -> beam.ParDo:
        is_last = units.stop == len(self._graph.units)
        kind: type[_RunUnits] = _RunInBatches
        if units.start:
            kind = _RunUnits
        elif self._work.batch_records == 1:
            kind = _RunInLine if is_last and _is_line(self._graph) else _RunElements
        step = beam.ParDo(kind(self._work, units, is_last=is_last))
        hints = self._hints_of_units.get(self._graph.units[units.start].name)
        return step.with_resource_hints(**hints) if hints else step

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


# Batches do not carry accounts from step to step: each step has one for its bundle.
_UNUSED = Account()


class _RunUnits(beam.DoFn):  # type: ignore[misc]
    """Runs units, one after the other: batches → batches, or the elements of the outputs if they are the last units."""

    def __init__(self, work: _Work, units: range, *, is_last: bool) -> None:
        self._work = work
        self._units = units
        self._is_last = is_last

    def setup(self) -> None:
        work, graph = self._work, self._work.graph()
        self._runner = GraphRunner(
            graph, prefix=graph.prefix, path=graph.prefix, seed=work.seed, on_error=work.on_error
        )
        self._mirrors = [Mirror(graph.name, graph.units[position].name) for position in self._units]
        main = next(iter(graph.output_type))
        self._outputs = [(None if name == main else name, ref) for name, ref in graph.outputs.items()]

    def start_bundle(self) -> None:
        self._account = Account()  # the account of a failed bundle is discarded

    def process(self, batch: _ElementBatch) -> Sequence[Element]:
        # The input stays unchanged, for retries.
        return self._run(batch.copy(self._account), batch.records.stamps)

    def finish_bundle(self) -> Sequence[Element]:
        for mirror in self._mirrors:
            mirror.show(self._account)
        return ()

    def _run(self, batch: _ElementBatch, stamps: Sequence[_Stamp] | None) -> Sequence[Element]:
        for position in self._units:
            self._runner.run_unit(position, batch)
        if not self._is_last:
            batch.account = _UNUSED
            return (batch,)
        given: list[Element] = []
        for tag, ref in self._outputs:
            column = batch.column(ref)
            if stamps is None and tag is None:
                given.extend(itertools.chain.from_iterable(column))
            else:
                for index, values in enumerate(column):
                    given += [_given(value, tag, stamps[index] if stamps else None) for value in values]
        return given + _letters(batch, stamps)


def _letters(batch: _ElementBatch, stamps: Sequence[_Stamp] | None) -> list[Element]:
    """The elements that failed, for the output of dead letters."""
    return [
        _given(FailedElement.of(batch.records.values[index], failed), DEAD_LETTERS, stamps[index] if stamps else None)
        for index, failed in batch.failures.items()
        if not failed.dropped
    ]


def _given(value: Element, tag: str | None, stamp: _Stamp | None) -> Element:
    """A value for an output, with the timestamp and windows of the element that it comes from."""
    if stamp is not None:
        value = stamp.with_value(value)
    return value if tag is None else beam.pvalue.TaggedOutput(tag, value)


class _FromElements(_RunUnits):
    """The first units, which take elements of the collection."""

    def setup(self) -> None:
        super().setup()
        self._type: Signature = self._work.pipeline.input_type
        self._is_fixed = isinstance(self._type, type) and self._type in UNCHANGEABLE

    def _check(self, element: Element) -> None:
        if (problem := mismatch(element, self._type)) is not None:
            stage = self._work.pipeline.name
            raise TypeMismatchException(f"{stage}: as an element, {problem}.", stage=stage)

    def _batch_of(self, named: _Named) -> _ElementBatch:
        """Elements as a batch; its stages get copies, because other transforms of the job may read the elements."""
        batch = _ElementBatch(named, self._account)
        if not self._is_fixed:
            batch.columns[Ref("", None)] = [(owned(value),) for value in named.values]
        return batch


class _RunElements(_FromElements):
    """One element after the other: none waits, so outputs have its timestamp and windows by themselves."""

    def process(self, element: Element) -> Sequence[Element]:
        if type(element) is not self._type:
            self._check(element)
        num_bytes = 0 if self._is_last else size_of(element)
        named = _Named([element], self._work.name_of, stamps=None, num_bytes=num_bytes)
        return self._run(self._batch_of(named), None)


def _is_line(graph: Graph) -> bool:
    """Whether each unit is a function of one value that reads the outputs of the one before."""
    units = GraphRunner(graph).units
    refs = [Ref("", None), *(ref for unit in units for ref in unit.refs)]
    inputs = [unit.unit.inputs for unit in units if unit.is_function]
    return [*inputs, *graph.outputs.values()] == refs


class _RunInLine(_FromElements):
    """One element after the other, through functions alone: one batch of one record serves all elements of a bundle,
    and outputs go from unit to unit without columns.
    """

    def start_bundle(self) -> None:
        super().start_bundle()
        self._values: list[Element] = [None]
        named = _Named(self._values, self._work.name_of, stamps=None, num_bytes=0)
        self._batch = _ElementBatch(named, self._account)
        self._batch.columns.clear()
        self._line = [(unit.run_record, *unit.ready_for(self._batch)) for unit in self._runner.units]
        self._no_names: Made = {}  # the outputs of functions have no names

    def process(self, element: Element) -> Sequence[Element]:
        if type(element) is not self._type:
            self._check(element)
        batch, values = self._batch, [owned(element)]  # other transforms of the job may read the element
        self._values[0] = element
        outer = set_context(None)
        try:
            for run_record, context, account in self._line:
                set_context(context)
                values = run_record(batch, 0, values, account, self._no_names)
                if not values:
                    break
        finally:
            set_context(outer)
        if batch.drops:
            batch.drops.clear()
        if batch.failures:
            values = _letters(batch, None)
            batch.failures.clear()
        return values


class _RunInBatches(_FromElements):
    """Batches, which end when they are full or with their bundle (like those of Beam's `BatchElements`)."""

    def start_bundle(self) -> None:
        super().start_bundle()
        self._clear()

    def _clear(self) -> None:
        self._values: list[Element] = []
        self._stamps: list[_Stamp] = []
        self._num_bytes = 0

    def process(self, element: Element, stamp: Any = beam.DoFn.WindowedValueParam) -> Sequence[Element]:
        kind = type(element)
        if kind is not self._type:
            self._check(element)
        self._values.append(element)
        self._stamps.append(stamp)
        self._num_bytes += len(element) if kind is str or kind is bytes else size_of(element)
        if len(self._values) < self._work.batch_records and self._num_bytes < self._work.batch_bytes:
            return ()
        return self._run_open(last=stamp)

    def finish_bundle(self) -> Sequence[Element]:
        given = self._run_open(last=None) if self._values else ()
        super().finish_bundle()
        return given

    def _run_open(self, *, last: _Stamp | None) -> Sequence[Element]:
        """Runs the open batch. `last` is the element at hand, whose stamp Beam gives to what has none.

        To a later step a batch goes with the stamp of its earliest element, so that none of them counts as late.
        """
        values, stamps, num_bytes = self._values, self._stamps, self._num_bytes
        self._clear()
        first = stamps[0]
        micros, windows, pane = first.timestamp_micros, first.windows, first.pane_info
        differ = False
        for one in stamps:
            if one.timestamp_micros != micros or one.windows != windows or one.pane_info is not pane:
                differ = True
                break
        named = _Named(values, self._work.name_of, stamps=stamps if differ else None, num_bytes=num_bytes)
        given = self._run(self._batch_of(named), None if last is not None and not differ else stamps)
        if self._is_last:
            return given
        first = min(stamps, key=_MICROS)
        return [first.with_value(batch) for batch in given]


_MICROS = operator.attrgetter("timestamp_micros")


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
