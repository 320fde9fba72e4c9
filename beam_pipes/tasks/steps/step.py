"""The preprocessors of a task as steps, each in the forms it has: over a `tf.data.Dataset`, or over Python examples.

A dataset function has the first form. A `python_map` function and a typed pipeline have the second. The library's own
preprocessors have both. `CacheDatasetPlaceholder` marks the cut between the steps whose results are cached and those
that run when the data is read.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from beam_pipes.engine.graph import Stage
from beam_pipes.engine.ownership import taken
from beam_pipes.engine.records import RecordContext, set_context
from beam_pipes.errors import MisplacedStepError, TaskError
from beam_pipes.extras import TfDataset
from beam_pipes.format.spec import owned
from beam_pipes.tasks.steps.examples import RawExample, dataset_from_examples, examples_from_dataset, normalised
from beam_pipes.tasks.steps.features import Feature, SequenceLength
from beam_pipes.tasks.steps.seeds import StepSeed, content_key, current_seed_manager
from beam_pipes.tasks.steps.sequences import TokenColumn
from beam_pipes.tasks.steps.signatures import (
    INJECTED,
    PythonMap,
    add_kwargs_to_transform,
    function_name,
    injectable,
    parameters,
)

BoundStep = Callable[[object, int], Iterable[object]]

_NOTHING = object()


@dataclasses.dataclass(frozen=True)
class StepContext:
    """What is injected into steps."""

    task: str
    output_features: Mapping[str, Feature]
    sequence_length: SequenceLength | None = None

    @property
    def injected(self) -> dict[str, object]:
        return {"output_features": self.output_features, "sequence_length": self.sequence_length}


class Step:
    """One preprocessor."""

    def __init__(self, preprocessor: object) -> None:
        self.preprocessor = preprocessor
        function = preprocessor
        bound: dict[str, object] = {}
        while isinstance(function, functools.partial):
            bound = {**function.keywords, **bound}
            if function.args:
                bound, function = {}, functools.partial(function.func, *function.args)
                break
            function = function.func
        self._pipeline = function if _is_pipeline(function) else None
        self.is_pipeline = self._pipeline is not None
        self.is_python_map = isinstance(function, PythonMap)
        self.name = str(getattr(function, "name", "")) if self.is_pipeline else function_name(preprocessor)
        form = function.fn if isinstance(function, PythonMap) else getattr(function, "python_form", None)
        # A dataclass is filled directly: a partial around it would hide its fields.
        self._python_form: Callable[..., object] | None = functools.partial(form, **bound) if form and bound else form
        columns = getattr(function, "column_form", None)
        self._column_form: Callable[..., Mapping[str, TokenColumn]] | None = columns and functools.partial(
            columns, **bound
        )
        self._function = function
        if isinstance(function, type) and (self.is_pipeline or issubclass(function, CacheDatasetPlaceholder)):
            raise TaskError(
                f"a preprocessor is an object, got the class {function.__name__}: write {function.__name__}(), with "
                "parentheses",
                preprocessor=preprocessor,
            )
        self.digest: str | None = None  # of what it depends on; see `caches.task_cache.step_digest`
        if not callable(preprocessor) and not self.is_pipeline:
            raise TaskError(
                f"a preprocessor is a function, a typed pipeline or a CacheDatasetPlaceholder, got {preprocessor!r}",
                preprocessor=preprocessor,
            )
        self._check_arguments()

    @property
    def has_python_form(self) -> bool:
        """It runs on Python examples, without TensorFlow."""
        return self.is_pipeline or self._python_form is not None

    @property
    def has_column_form(self) -> bool:
        """It runs on columns of many examples, and knows the lengths of its results."""
        return self._column_form is not None

    @property
    def has_dataset_form(self) -> bool:
        """It is a function of a dataset."""
        return not self.is_pipeline and not self.is_python_map

    @property
    def takes_sequence_length(self) -> bool:
        if self.is_pipeline:
            return False
        function = self._python_form if self.is_python_map else self.preprocessor
        return "sequence_length" in injectable(function)

    @property
    def takes_seeds(self) -> bool:
        function = self._function
        return bool(getattr(function, "takes_seeds", False) or getattr(function, "takes_generator", False))

    def _check_arguments(self) -> None:
        if self._pipeline is not None:
            if isinstance(self._pipeline.output_type, Mapping):
                raise TaskError(
                    f"pipeline {self.name!r} has several outputs {sorted(self._pipeline.output_type)}; a step of a "
                    "task has one",
                    step=self.name,
                )
            return
        allowed = {*INJECTED, "rng"} if self.is_python_map else {*INJECTED, "seed", "seeds"}
        unbound = [
            name
            for number, (name, p) in enumerate(parameters(self.preprocessor).items())
            if number > 0 and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            if name not in allowed
        ]
        if unbound:
            raise TaskError(
                f"preprocessor '{self.name}' needs {unbound}, which the task does not give: bind them with "
                f"functools.partial, or give them defaults (given are: the dataset, {', '.join(INJECTED)})",
                step=self.name,
                arguments=unbound,
            )

    def over_dataset(self, dataset: TfDataset, context: StepContext) -> TfDataset:
        """The step applied to a `tf.data.Dataset`."""
        if self.has_dataset_form:
            current_seed_manager().begin_step()
            assert callable(self.preprocessor)
            made = add_kwargs_to_transform(self.preprocessor, **context.injected)(dataset)
            if not hasattr(made, "element_spec"):
                raise TaskError(
                    f"preprocessor '{self.name}' of task '{context.task}' should return a tf.data.Dataset, got "
                    f"{type(made).__name__}. Return the dataset that it makes; a function of one example becomes a "
                    "preprocessor by @map_over_dataset or @python_map",
                    step=self.name,
                    task=context.task,
                )
            return made
        step = self.bind(context)
        return dataset_from_examples(
            lambda: _over(step, examples_from_dataset(dataset)),
            features=context.output_features,
            name=f"step '{self.name}' of task '{context.task}'",
        )

    def over_examples(self, examples: Iterable[object], context: StepContext) -> Iterator[RawExample]:
        """The step applied to Python examples, lazily."""
        return _over(self.bind(context), examples)

    def bind_columns(self, context: StepContext) -> Callable[[Mapping[str, TokenColumn]], Mapping[str, TokenColumn]]:
        """The step on columns of many examples."""
        assert self._column_form is not None
        return add_kwargs_to_transform(self._column_form, **context.injected)

    def bind(self, context: StepContext) -> BoundStep:
        """The step on single examples: called with an example and its position, it gives the results.

        Takes its seed from the active manager now, so that steps bound in order also draw in that order.
        """
        current_seed_manager().begin_step()
        # A pipeline may draw at any time, so it always has a seed.
        takes_seed = self.is_pipeline or self.takes_seeds
        seed = current_seed_manager().next_step(name=self.name) if takes_seed else None
        if self._pipeline is not None:
            assert seed is not None
            record = RecordContext(seed=seed.seed, unit=self.name)
            return functools.partial(self._run_pipeline, self._pipeline, context, seed, record)
        assert self._python_form is not None
        function = add_kwargs_to_transform(self._python_form, **context.injected)
        return functools.partial(self._run_function, context, function, seed)

    def _run_function(
        self,
        context: StepContext,
        function: Callable[..., object],
        seed: StepSeed | None,
        example: object,
        position: int,
    ) -> Iterable[object]:
        try:
            made = function(example) if seed is None else function(example, rng=seed.generator(example, position))
        except Exception as error:
            raise self._failure(context, position, example, error) from error
        features = context.output_features
        if type(made) is dict or isinstance(made, Mapping) or not isinstance(made, (list, tuple, type(None))):
            made = normalised(made, features)
            return (taken(made),)
        return [owned(normalised(one, features)) for one in made or ()]

    def _run_pipeline(
        self,
        pipeline: Stage,
        context: StepContext,
        seed: StepSeed,
        record: RecordContext,
        example: object,
        position: int,
    ) -> Iterable[object]:
        record.record_id_of = functools.partial(_record_id, seed, example)
        record.index = position
        previous = set_context(record)
        try:
            made = pipeline.transform(example)
        except Exception as error:
            raise self._failure(context, position, example, error) from error
        finally:
            set_context(previous)
        return [owned(normalised(one, context.output_features)) for one in made]

    def _failure(self, context: StepContext, position: int, example: object, error: Exception) -> TaskError:
        shown = repr(example)
        return TaskError(
            f"step '{self.name}' of task '{context.task}' failed on example {position}: "
            f"{type(error).__name__}: {error}. The example: {shown[:200]}{'...' if len(shown) > 200 else ''}",
            step=self.name,
            task=context.task,
            position=position,
        )

    def __repr__(self) -> str:
        return f"Step({self.name})"


def _is_pipeline(function: object) -> TypeGuard[Stage]:
    return hasattr(function, "transform") and hasattr(function, "input_type")


def _over(step: BoundStep, examples: Iterable[object]) -> Iterator[object]:
    for position, example in enumerate(examples):
        yield from step(example, position)


def _record_id(seed: StepSeed, example: object, position: int) -> str:
    return str(content_key(example) if seed.keyed_by == "content" else seed.position_key(position))


def run_over_dataset(steps: Sequence[Step], dataset: TfDataset, context: StepContext) -> TfDataset:
    """All steps, one after the other, over a dataset."""
    for step in steps:
        dataset = step.over_dataset(dataset, context)
    return dataset


def run_over_examples(steps: Sequence[Step], examples: Iterable[object], context: StepContext) -> Iterator[RawExample]:
    """All steps over Python examples: natively if possible, otherwise through tf.data. Lazy, in order.

    `examples` is read once. Consecutive dataset functions share one tf.data pipeline.
    """
    remaining = list(steps)
    stream: Iterable[object] = examples
    while remaining:
        if remaining[0].has_python_form:
            stream = remaining.pop(0).over_examples(stream, context)
            continue
        leading = dataset_steps(remaining)
        del remaining[: len(leading)]
        iterator = iter(stream)
        first = next(iterator, _NOTHING)
        if first is _NOTHING:  # without examples the dataset's tensor types are unknown
            return iter(())
        dataset = _once(itertools.chain([first], iterator), context)
        stream = examples_from_dataset(run_over_dataset(leading, dataset, context))
    return iter(stream)


def num_streamed_steps(steps: Sequence[Step]) -> int:
    """The number of first steps that must run over a stream of examples: up to the last one without a Python form."""
    return max((number + 1 for number, step in enumerate(steps) if not step.has_python_form), default=0)


def dataset_steps(steps: Sequence[Step]) -> list[Step]:
    """The first steps that are best run in tf.data: up to the last one that exists only there.

    Earlier steps with both forms stay in tf.data too: leaving and re-entering it costs more than either form.
    """
    end = 0
    for number, step in enumerate(steps):
        if not step.has_dataset_form:
            break
        if not step.has_python_form:
            end = number + 1
    return list(steps[:end])


def _once(stream: Iterable[object], context: StepContext) -> object:
    """A dataset over a single-pass iterator; the elements already read are put back first."""
    iterator = iter(stream)
    peeked: list[object] = []

    def examples() -> Iterator[object]:
        if not peeked:
            peeked.extend(itertools.islice(iterator, 1))
            yield from peeked
            return
        yield from peeked
        yield from iterator

    return dataset_from_examples(examples, features=context.output_features, name=f"task '{context.task}'")


class CacheDatasetPlaceholder:
    """A step that marks the cut: steps before it run once, offline; steps after it run every time the data is read.

    Args:
        required: `get_dataset` refuses `use_cached=False`.
        file_shuffle_buffer_size: size of the buffer that shuffles the files of the cache; None shuffles all of them.
    """

    def __init__(self, required: bool = False, file_shuffle_buffer_size: int | None = None) -> None:
        self._required = required
        self._file_shuffle_buffer_size = file_shuffle_buffer_size

    @property
    def required(self) -> bool:
        return self._required

    @property
    def file_shuffle_buffer_size(self) -> int | None:
        return self._file_shuffle_buffer_size

    def __call__(self, dataset: TfDataset) -> TfDataset:
        raise MisplacedStepError(
            "`CacheDatasetPlaceholder` should never be called. It marks the cut among a task's preprocessors."
        )

    def __repr__(self) -> str:
        return f"CacheDatasetPlaceholder(required={self._required})"
