"""The examples of an evaluation, loaded once: task features and model features of each task, with their indices.

They are plain NumPy, so that model functions need no TensorFlow. Sequence lengths are those that the user asks for, or
the longest that occur. The end selects the tasks of a mixture that are evaluated, and their metrics.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import choice, integer
from beam_pipes.errors import EvaluationError, logger
from beam_pipes.evaluation.metrics import PassthroughLegacyMetric
from beam_pipes.evaluation.model_outputs import AuxValues, ModelOutput, ModelOutputType
from beam_pipes.extras import TfDataset, require
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.steps.examples import Example, examples_from_dataset
from beam_pipes.tasks.steps.features import SequenceLength
from beam_pipes.tasks.steps.signatures import MetricValues, function_name, parameters

FRAMEWORKS = ("tensorflow", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadEvalOptions:
    """How an evaluator loads its examples; see `Evaluator`."""

    split: str = "validation"
    use_cached: bool = False
    seed: int | None = 42
    sequence_length: SequenceLength | None = None
    num_examples: int | None = None
    shuffle: bool = False
    use_memory_cache: bool = True
    framework: Literal["tensorflow", "numpy"] = "tensorflow"

    @property
    def reading(self) -> dict[str, Any]:
        """Arguments of `Task.get_dataset` and `Task.examples`."""
        names = ("sequence_length", "split", "shuffle", "seed", "use_cached")
        return {name: getattr(self, name) for name in names}

    def __post_init__(self) -> None:
        choice(self.framework, of=FRAMEWORKS, what="framework", error=EvaluationError, framework=self.framework)
        if self.num_examples is not None:
            integer(self.num_examples, what="num_examples", least=1, error=EvaluationError)
        if self.shuffle and not self.use_memory_cache:
            raise EvaluationError(
                "shuffle=True gives another order every time the examples are read, and outputs would no longer belong "
                "to their targets; leave use_memory_cache=True with it"
            )


@dataclasses.dataclass(frozen=True)
class EvalData:
    """One task's share of an evaluation."""

    task_dataset: TfDataset | Iterable[Example]
    model_dataset: TfDataset | EnumeratedExamples
    num_examples: int
    model_feature_shapes: Mapping[str, tuple[int | None, ...]]
    examples: Callable[[], Sequence[Example]]


class Converter(Protocol):
    """A feature converter as an evaluator uses it: of a `tf.data.Dataset`, or of NumPy examples."""

    def __call__(self, ds: TfDataset, task_feature_lengths: Lengths, /) -> TfDataset: ...

    def convert_examples(self, examples: Iterable[Example], task_feature_lengths: Lengths, /) -> Iterator[Example]: ...


def load_eval_data(
    tasks: Sequence[Task], feature_converter: Converter, options: LoadEvalOptions
) -> dict[str, EvalData]:
    """Task name → its data. All tasks are converted to the same lengths, so that one compiled model serves them."""
    preprocessors_need_lengths = check_detectable(tasks, options.sequence_length)
    kind: type[_TensorflowExamples | _NumpyExamples]
    kind = _TensorflowExamples if options.framework == "tensorflow" else _NumpyExamples
    loaded = {task.name: kind(task, options) for task in tasks}
    found: Lengths = {}
    counts = {}
    for task in tasks:
        names = converted_features(feature_converter, task)
        lengths, counts[task.name] = longest(loaded[task.name], names, feature_converter)
        for name in names:
            if name in lengths:
                found[name] = max(found.get(name, 0), lengths[name])
    if not any(counts.values()):  # an empty split is valid: its features need some length
        found = {name: 1 for task in tasks for name in converted_features(feature_converter, task)}
    settled = settle(options.sequence_length, found, preprocessors_need_it=preprocessors_need_lengths)
    data = {}
    for task in tasks:
        names = converted_features(feature_converter, task)
        own = {name: settled[name] for name in names if name in settled}
        data[task.name] = loaded[task.name].convert(feature_converter, own, counts[task.name])
    return data


class _TensorflowExamples:
    """The examples of a task as a `tf.data.Dataset`."""

    def __init__(self, task: Task, options: LoadEvalOptions) -> None:
        dataset = task.get_dataset(**options.reading, num_epochs=1)
        if options.num_examples is not None:
            dataset = dataset.take(options.num_examples)
        self._dataset = dataset.cache() if options.use_memory_cache else dataset

    def __iter__(self) -> Iterator[Example]:
        return examples_from_dataset(self._dataset)

    def convert(self, feature_converter: Converter, lengths: Lengths, count: int) -> EvalData:
        tf = require("tensorflow", purpose="an Evaluator with framework='tensorflow'")
        counted = self._dataset.apply(tf.data.experimental.assert_cardinality(count))
        converted = feature_converter(counted, lengths)
        shapes = {name: tuple(spec.shape.as_list()) for name, spec in converted.element_spec.items() if spec.shape.rank}
        return EvalData(counted, converted.enumerate(), count, shapes, lambda: list(examples_from_dataset(counted)))


class _NumpyExamples:
    """The examples of a task, which can be iterated many times."""

    def __init__(self, task: Task, options: LoadEvalOptions) -> None:
        self._task = task
        self._options = options
        self._kept: list[Example] | None = list(self._read()) if options.use_memory_cache else None
        self._count = 0

    def _read(self) -> Iterator[Example]:
        return itertools.islice(self._task.examples(**self._options.reading), self._options.num_examples)

    def __iter__(self) -> Iterator[Example]:
        return self._read() if self._kept is None else iter(self._kept)

    def __len__(self) -> int:
        return self._count

    def convert(self, feature_converter: Converter, lengths: Lengths, count: int) -> EvalData:
        self._count = count
        model_dataset = EnumeratedExamples(list(feature_converter.convert_examples(self, lengths)))
        return EvalData(self, model_dataset, count, model_dataset.feature_shapes, lambda: list(self))


class EnumeratedExamples:
    """Pairs `(index, example)` that can be reread, batched and sharded like an enumerated `tf.data.Dataset`.

    `list(EnumeratedExamples([{"x": a}, {"x": b}]))` → `[(0, {"x": a}), (1, {"x": b})]`; `.batch(2)` yields
    `([0, 1], {"x": np.stack([a, b])})`; `.shard(num_shards=2, index=1)` holds `(1, {"x": b})`.
    """

    def __init__(self, examples: Sequence[Example], indices: Sequence[int] | None = None) -> None:
        self._examples = examples
        self._indices = range(len(examples)) if indices is None else indices

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[tuple[int, Example]]:
        return ((index, self._examples[index]) for index in self._indices)

    def as_numpy_iterator(self) -> Iterator[tuple[int, Example]]:
        """The same pairs; the name that `tf.data.Dataset` has for it."""
        return iter(self)

    def shard(self, num_shards: int, index: int) -> EnumeratedExamples:
        """Every `num_shards`-th pair, beginning with number `index`: the share of one host."""
        integer(index, what="the index of a shard", least=0, most=num_shards - 1, error=EvaluationError)
        return EnumeratedExamples(self._examples, self._indices[index::num_shards])

    def batch(self, batch_size: int) -> Iterator[tuple[npt.NDArray[np.int64], dict[str, np.ndarray]]]:
        """Arrays of up to `batch_size` indices and examples, features stacked; the last batch may be smaller."""
        integer(batch_size, what="batch_size", least=1, error=EvaluationError)
        for start in range(0, len(self), batch_size):
            indices = np.asarray(self._indices[start : start + batch_size], np.int64)
            examples = [self._examples[index] for index in indices]
            yield indices, {name: np.stack([example[name] for example in examples]) for name in examples[0]}

    @property
    def feature_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of the features that have axes."""
        if not self._examples:
            return {}
        return {name: np.shape(value) for name, value in self._examples[0].items() if np.ndim(value) > 0}


_log = logger(__name__)

Lengths = dict[str, Any]  # feature → int, or a list with an int or None for each axis


def check_detectable(tasks: Sequence[Task], sequence_length: Mapping[str, object] | None) -> bool:
    """Whether a preprocessor cannot work without lengths; raises `EvaluationError` if so and none are given."""
    for task in tasks:
        for preprocessor in task.preprocessors:
            wanted = parameters(preprocessor).get("sequence_length") if callable(preprocessor) else None
            if wanted is None or wanted.default is not wanted.empty:
                continue
            if sequence_length is None:
                raise EvaluationError(
                    f"Preprocessor '{function_name(preprocessor)}' in task '{task.name}' has a `sequence_length` "
                    "argument, making it incompatible with automatic sequence length detection. Pass a valid "
                    "`sequence_length` to `Evaluator` and try again.",
                    task=task.name,
                )
            return True
    return False


def converter_of(feature_converter: object, names: Iterable[str]) -> object:
    """The converter for tasks with these features, if the given one chooses among several."""
    return (
        feature_converter.converter_for(set(names))
        if hasattr(feature_converter, "converter_for")
        else feature_converter
    )


def converted_features(feature_converter: object, task: Task) -> list[str]:
    """The features of a task that the converter wants lengths for; all of them if it names none."""
    converter = converter_of(feature_converter, task.output_features)
    passed = getattr(converter, "passthrough_features", None) or {}
    wanted = {**(getattr(converter, "TASK_FEATURES", None) or {}), **passed}
    names = [*task.output_features, *(name for name in passed if name not in task.output_features)]
    return [name for name in names if not wanted or name in wanted]


def longest(examples: Iterable[Example], names: Sequence[str], feature_converter: object) -> tuple[Lengths, int]:
    """The longest sequence of each feature, and the number of examples. Features without a sequence are left out."""
    specs = getattr(converter_of(feature_converter, names), "TASK_FEATURES", None) or {}
    lengths: Lengths = {}
    count = 0
    for example in examples:
        count += 1
        for name in names:
            if name not in example:
                continue
            value = example[name]
            axis = getattr(specs.get(name), "sequence_dim", 0)
            if axis is None or np.ndim(value) == 0:
                continue
            size = len(value) if isinstance(value, list) else np.shape(value)[axis]
            lengths[name] = max(lengths.get(name, 0), size)
    return lengths, count


def settle(
    sequence_length: Mapping[str, object] | None, longest_found: Lengths, *, preprocessors_need_it: bool
) -> Lengths:
    """The lengths to convert to: those given, and the longest found for the rest. Logs waste and cuts."""
    if sequence_length is None:
        _log.info("Setting sequence lengths to %s", longest_found)
        return dict(longest_found)
    settled = {name: sequence_length.get(name, found) for name, found in longest_found.items()}
    settled = {name: longest_found[name] if length is None else length for name, length in settled.items()}
    numbers = {name: length for name, length in settled.items() if not isinstance(length, list | tuple)}
    if any(length > longest_found[name] for name, length in numbers.items()):
        problem = "are longer than necessary for some evaluation inputs or targets, resulting in wasted computation."
    elif not preprocessors_need_it and any(length == longest_found[name] for name, length in numbers.items()):
        problem = (
            "*may be* insufficient for some evaluation inputs or targets. Such sequences will be truncated to fit, "
            "likely leading to sub-optimal results."
        )
    else:
        return settled
    _log.warning(
        "Given sequence lengths %s Consider passing `None` for `sequence_length` to have them be automatically "
        "computed.\n Got: %s,\n Max Lengths: %s",
        problem,
        settled,
        longest_found,
    )
    return settled


ModelFn = Callable[[Any], ModelOutput]  # an enumerated dataset → what `ordered_outputs` takes
PredictFnCallable = ScoreFnCallable = ModelFnCallable = ModelFn
#: Results of model functions and of evaluations. For annotations.
PredictFnReturnType = Sequence[tuple[int, Sequence[int]]] | tuple[Sequence[tuple[int, Sequence[int]]], AuxValues]
ScoreFnReturnType = Sequence[tuple[int, float]] | tuple[Sequence[tuple[int, float]], AuxValues]
ModelFnReturnType = PredictFnReturnType | ScoreFnReturnType
AllOutputTokensType = Mapping[str, Sequence[Sequence[int]]]
AllOutputScoresType = Mapping[str, Sequence[float]]
AllOutputAuxValuesType = Mapping[str, AuxValues]
TaskMetricsType = MetricValues
AllMetricsType = MutableMapping[str, TaskMetricsType]

AllMetrics = dict[str, MetricValues]  # task → metric → value
AllOutputs = dict[str, dict[ModelOutputType, ModelOutput]]
AllMetricsFuture = concurrent.futures.Future[Any]  # of AllMetrics, or of None if none are computed
MetricsAndOutputsType = tuple[AllMetricsFuture, AllOutputs]

ARGUMENT_OF = {
    ModelOutputType.PREDICTION: "predict_fn",
    ModelOutputType.SCORE: "score_fn",
    ModelOutputType.PREDICTION_WITH_AUX: "predict_with_aux_fn",
    ModelOutputType.SCORE_WITH_INTERMEDIATES: "model_fns[ModelOutputType.SCORE_WITH_INTERMEDIATES]",
}


@dataclasses.dataclass(frozen=True)
class TaskMetric:
    """One metric of a task: `metric` is an object or a class; metric functions are `PassthroughLegacyMetric`."""

    name: str
    output_type: ModelOutputType
    metric: Any
    is_function: bool


def metrics_of(task: Task) -> list[TaskMetric]:
    """The metrics of a task, objects first; raises `EvaluationError` for an object that is not a metric."""
    made = [PassthroughLegacyMetric.from_metric_fn(metric_fn, task.postprocessor) for metric_fn in task.metric_fns]
    found = []
    for place, metric in enumerate([*task.metric_objs, *made]):
        name = getattr(metric, "__name__", None) or type(metric).__name__
        output_type = getattr(metric, "model_output_type", None)
        if output_type is None or not hasattr(metric, "from_model_output"):
            raise EvaluationError(
                f"metric object {name!r} of task '{task.name}' should have model_output_type and from_model_output, "
                "as beam_pipes.evaluation.metrics.Metric has; a function belongs into metric_fns",
                task=task.name,
                metric=name,
            )
        found.append(TaskMetric(name, ModelOutputType(output_type), metric, place >= len(task.metric_objs)))
    return found


def get_valid_eval_tasks(tasks: Sequence[Task], split: str) -> list[Task]:
    """The tasks that have the split and a metric; the others are skipped with a line in the log."""
    valid = []
    for task in tasks:
        if split not in task.splits:
            _log.info("Task %s has no '%s' split; skipping eval.", task.name, split)
            continue
        metrics = metrics_of(task)
        if not metrics:
            _log.info("Task %s has no metrics defined; skipping eval.", task.name)
            continue
        kinds = sorted({ModelOutputType.to_str(metric.output_type) for metric in metrics})
        _log.info("Adding task '%s' with %s metric(s).", task.name, " and ".join(kinds))
        valid.append(task)
    return valid


def check_model_functions(tasks: Sequence[Task], model_fns: Mapping[ModelOutputType, ModelFn]) -> None:
    """Raises `EvaluationError`, before anything is predicted, unless every metric's output can be produced."""
    for task in tasks:
        for metric in metrics_of(task):
            if metric.output_type not in model_fns:
                needed = ModelOutputType.to_str(metric.output_type)
                given = ", ".join(ARGUMENT_OF[output_type] for output_type in model_fns) or "none"
                raise EvaluationError(
                    f"metric '{metric.name}' of task '{task.name}' needs the model output '{needed}': pass "
                    f"{ARGUMENT_OF[metric.output_type]} to evaluate (given: {given})",
                    task=task.name,
                    metric=metric.name,
                )
