"""The examples of an evaluation: task features and model features of each task, loaded once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.enumerated_examples import EnumeratedExamples
from beam_pipes.evaluation.sequence_lengths import (
    Lengths,
    check_detectable,
    converted_features,
    longest,
    settle,
)
from beam_pipes.extras import require
from beam_pipes.tasks.in_python.examples import examples_from_dataset
from beam_pipes.tasks.task import Task

Example = Mapping[str, Any]
FRAMEWORKS = ("tensorflow", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadEvalOptions:
    """How an evaluator loads its examples; see `Evaluator`."""

    split: str = "validation"
    use_cached: bool = False
    seed: int | None = 42
    sequence_length: Mapping[str, Any] | None = None
    num_examples: int | None = None
    shuffle: bool = False
    use_memory_cache: bool = True
    framework: Literal["tensorflow", "numpy"] = "tensorflow"

    def __post_init__(self) -> None:
        if self.framework not in FRAMEWORKS:
            raise EvaluationError(
                f"framework should be one of {', '.join(FRAMEWORKS)}, got {self.framework!r}", framework=self.framework
            )
        if self.num_examples is not None and self.num_examples < 1:
            raise EvaluationError(f"num_examples should be None or at least 1, got {self.num_examples}")
        if self.shuffle and not self.use_memory_cache:
            raise EvaluationError(
                "shuffle=True gives another order every time the examples are read, and outputs would no longer belong "
                "to their targets; leave use_memory_cache=True with it"
            )


@dataclasses.dataclass(frozen=True)
class EvalData:
    """One task's share of an evaluation."""

    task_dataset: Any
    model_dataset: Any
    num_examples: int
    model_feature_shapes: Mapping[str, tuple[int | None, ...]]
    examples: Callable[[], Sequence[Example]]


def load_eval_data(tasks: Sequence[Task], feature_converter: Any, options: LoadEvalOptions) -> dict[str, EvalData]:
    """Task name → its data. All tasks are converted to the same lengths, so that one compiled model serves them."""
    preprocessors_need_lengths = check_detectable(tasks, options.sequence_length)
    load = _load_tensorflow if options.framework == "tensorflow" else _load_numpy
    loaded = {task.name: load(task, options) for task in tasks}
    found: Lengths = {}
    counts = {}
    for task in tasks:
        names = converted_features(feature_converter, task)
        lengths, counts[task.name] = longest(loaded[task.name].read(), names, feature_converter)
        for name in names:
            if name in lengths:
                found[name] = max(found.get(name, 0), lengths[name])
    if not any(counts.values()):  # an empty split is a split: its features have some length, though none occurs
        found = {name: 1 for task in tasks for name in converted_features(feature_converter, task)}
    settled = settle(options.sequence_length, found, preprocessors_need_it=preprocessors_need_lengths)
    data = {}
    for task in tasks:
        names = converted_features(feature_converter, task)
        own = {name: settled[name] for name in names if name in settled}
        data[task.name] = loaded[task.name].convert(feature_converter, own, counts[task.name])
    return data


class _TensorflowExamples:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def read(self) -> Iterator[Example]:
        return examples_from_dataset(self._dataset)

    def convert(self, feature_converter: Any, lengths: Lengths, count: int) -> EvalData:
        tf = require("tensorflow", purpose="an Evaluator with framework='tensorflow'")
        counted = self._dataset.apply(tf.data.experimental.assert_cardinality(count))
        converted = feature_converter(counted, lengths)
        shapes = {name: tuple(spec.shape.as_list()) for name, spec in converted.element_spec.items() if spec.shape.rank}
        return EvalData(counted, converted.enumerate(), count, shapes, lambda: list(examples_from_dataset(counted)))


class _NumpyExamples:
    def __init__(self, read: Callable[[], Iterator[Example]], *, keep: bool) -> None:
        self._kept: list[Example] | None = list(read()) if keep else None
        self._read = read

    def read(self) -> Iterator[Example]:
        return iter(self._kept) if self._kept is not None else self._read()

    def convert(self, feature_converter: Any, lengths: Lengths, count: int) -> EvalData:
        model_dataset = EnumeratedExamples(list(feature_converter.convert_examples(self.read(), lengths)))
        task_dataset = _Rereadable(self.read, count)
        return EvalData(task_dataset, model_dataset, count, model_dataset.feature_shapes, lambda: list(self.read()))


class _Rereadable:
    """Examples that can be iterated many times."""

    def __init__(self, read: Callable[[], Iterator[Example]], count: int) -> None:
        self._read = read
        self._count = count

    def __iter__(self) -> Iterator[Example]:
        return self._read()

    def __len__(self) -> int:
        return self._count


def _load_tensorflow(task: Task, options: LoadEvalOptions) -> _TensorflowExamples:
    dataset = task.get_dataset(
        sequence_length=options.sequence_length,
        split=options.split,
        shuffle=options.shuffle,
        num_epochs=1,
        seed=options.seed,
        use_cached=options.use_cached,
    )
    if options.num_examples is not None:
        dataset = dataset.take(options.num_examples)
    return _TensorflowExamples(dataset.cache() if options.use_memory_cache else dataset)


def _load_numpy(task: Task, options: LoadEvalOptions) -> _NumpyExamples:
    def read() -> Iterator[Example]:
        examples = task.examples(
            sequence_length=options.sequence_length,
            split=options.split,
            shuffle=options.shuffle,
            seed=options.seed,
            use_cached=options.use_cached,
        )
        return itertools.islice(examples, options.num_examples)

    return _NumpyExamples(read, keep=options.use_memory_cache)
