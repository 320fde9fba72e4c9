"""The metrics of one task, each computed separately, so that a failure does not affect others."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.eval_data import TaskMetric, metrics_of
from beam_pipes.evaluation.metrics import MetricValue, Scalar, function_arguments
from beam_pipes.evaluation.model_outputs import ModelOutput, ModelOutputType, as_array
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.steps.examples import Example
from beam_pipes.tasks.steps.features import Feature
from beam_pipes.tasks.steps.signatures import MetricValues


@dataclasses.dataclass
class TaskMetrics:
    """The result of one evaluation of one task: values by name, inferences for loggers, and failures."""

    values: MetricValues = dataclasses.field(default_factory=dict)
    inferences: dict[str, object] = dataclasses.field(default_factory=dict)
    targets: list[object] | None = None
    failures: list[EvaluationError] = dataclasses.field(default_factory=list)

    @property
    def metric_values(self) -> dict[str, MetricValue]:
        """The values as loggers take them: bare numbers become `Scalar`."""
        return {name: value if isinstance(value, MetricValue) else Scalar(value) for name, value in self.values.items()}

    def record(self, recorded: Mapping[str, Any]) -> None:
        """Adds inferences for loggers, `{"targets": …, "prediction": …}`; with several metrics, the last one wins."""
        for name, values in recorded.items():
            values = list(values) if isinstance(values, np.ndarray) else values
            if name != "targets":
                self.inferences[name] = values
            elif values is not None:
                self.targets = list(values)


class TaskEvaluation:
    """Computes the metrics of one task repeatedly; the postprocessed targets are made once."""

    def __init__(self, task: Task, target_field_name: str) -> None:
        self.task = task
        self._target_field_name = target_field_name
        self._targets: list[object] | None = None

    def compute(self, outputs: Mapping[ModelOutputType, ModelOutput], examples: Sequence[Example]) -> TaskMetrics:
        """All metrics of the task; `outputs` holds what `check_model_functions` asked for, in order of the examples."""
        made = TaskMetrics()
        arguments: dict[ModelOutputType, dict[str, Any]] = {}
        for metric in metrics_of(self.task):
            try:
                output = outputs[metric.output_type]
                if metric.is_function:
                    values = self._call_function(metric, output, examples, arguments, made)
                else:
                    values = self._run_object(metric, output, examples, made)
                self._add(metric, values, made)
            except Exception as error:
                failure = EvaluationError(
                    f"metric '{metric.name}' of task '{self.task.name}': {_in_words(error)}",
                    task=self.task.name,
                    metric=metric.name,
                )
                failure.__cause__ = error
                made.failures.append(failure)
        return made

    def _call_function(
        self,
        metric: TaskMetric,
        output: ModelOutput,
        examples: Sequence[Example],
        arguments: dict[ModelOutputType, dict[str, Any]],
        made: TaskMetrics,
    ) -> object:
        """Outputs are decoded and postprocessed once for all functions that take them."""
        if metric.output_type not in arguments:
            if metric.output_type == ModelOutputType.SCORE:
                output = as_array(output)
            elif isinstance(output, tuple):
                output = (output[0], as_array(output[1]))
            arguments[metric.output_type], recorded = function_arguments(
                metric.output_type,
                output,
                examples,
                self.task.output_features,
                self._target_field_name,
                postprocessor=self.task.postprocessor,
                where=f"task '{self.task.name}'",
                targets=self._targets,
            )
            self._targets = arguments[metric.output_type]["targets"]
            made.record(recorded)
        # Copies, so that a metric that sorts or drops entries in place does not affect the next one.
        own = {name: copy.copy(value) for name, value in arguments[metric.output_type].items()}
        return metric.metric.metric_fn(**own)

    def _run_object(
        self, metric: TaskMetric, output: ModelOutput, examples: Sequence[Example], made: TaskMetrics
    ) -> object:
        features = self.task.output_features
        instance = metric.metric.from_model_output(examples, as_array(output), features, self._target_field_name)
        if hasattr(instance, "actual_compute"):
            values, recorded = instance.actual_compute(
                examples, features, self._target_field_name, copy.copy(self._targets)
            )
        else:
            values, recorded = instance.compute(), getattr(instance, "targets_and_inferences", None)
        made.record(recorded or {})
        return values

    def _add(self, metric: TaskMetric, values: object, made: TaskMetrics) -> None:
        if not isinstance(values, Mapping):
            raise EvaluationError(f"it should return a mapping of name to value, got {values!r}")
        for name, value in values.items():
            if name in made.values:
                raise EvaluationError(f"Duplicate metric key '{name}' in Task '{self.task.name}'.")
            if not isinstance(value, MetricValue) and not _is_number(value):
                raise EvaluationError(
                    f"the value of '{name}' should be a number or a MetricValue (Scalar, Text, Image, …), got {value!r}"
                )
        made.values.update(values)


def _is_number(value: object) -> bool:
    try:
        array = np.asarray(value)
    except Exception:
        return False
    return array.ndim == 0 and (array.dtype.kind in "biuf" or array.dtype.name == "bfloat16")


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"


#: Name of a metric → the metric, or its class: whatever has `from_model_output` and `merge`.
NamedMetrics: TypeAlias = dict[str, Any]


class MetricManager:
    """The metric objects of tasks, updated batch by batch: for programs that drive an evaluation themselves.

        manager = MetricManager([task])
        manager.initialize_metrics(task.name, ModelOutputType.PREDICTION)
        for inputs, outputs in batches:
            batch = manager.from_model_output(task.name, ModelOutputType.PREDICTION, inputs, outputs, features)
            manager.merge(batch, task.name, ModelOutputType.PREDICTION)
        manager.output_metrics_collections[task.name][ModelOutputType.PREDICTION]

    Metric functions take part as `PassthroughLegacyMetric`. What is merged is a dict: name of the metric → metric,
    `{"bleu_0": …}`; collecting metrics compute with `actual_compute`.

    Attributes:
        metric_registry: task → output type → name of the metric → its class.
        output_metrics_collections: task → output type → name → the metric so far.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.metric_registry: dict[str, dict[ModelOutputType, NamedMetrics]] = {}
        self.output_metrics_collections: dict[str, dict[ModelOutputType, NamedMetrics]] = {}
        for task in tasks:
            by_type = self.metric_registry.setdefault(task.name, {})
            self.output_metrics_collections.setdefault(task.name, {})
            for metric in metrics_of(task):
                made = metric.metric if isinstance(metric.metric, type) else type(metric.metric)
                named = by_type.setdefault(metric.output_type, {})
                named[f"{made.__name__}_{len(named)}"] = made

    def initialize_metrics(self, task_name: str, model_output_type: ModelOutputType) -> None:
        """Resets the metrics of one output type of a task."""
        self.output_metrics_collections[task_name][model_output_type] = {}

    def from_model_output(
        self,
        task_name: str,
        model_output_type: ModelOutputType,
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: npt.ArrayLike | None = None,
        indices_2d: npt.ArrayLike | None = None,
    ) -> NamedMetrics:
        """Name → metric of one batch; arguments as for `Metric.from_model_output`."""
        return {
            name: metric.from_model_output(
                inputs=inputs,
                model_output=model_output,
                features=features,
                target_field_name=target_field_name,
                mask=mask,
                indices_2d=indices_2d,
            )
            for name, metric in self.metric_registry[task_name][model_output_type].items()
        }

    def merge(self, metrics_collection: NamedMetrics, task_name: str, model_output_type: ModelOutputType) -> None:
        """Adds the metrics of a batch to those so far."""
        so_far = self.output_metrics_collections[task_name].setdefault(model_output_type, {})
        for name, metric in metrics_collection.items():
            so_far[name] = so_far[name].merge(metric) if name in so_far else metric

    def host_gather_and_reduce(
        self,
        task_name: str,
        model_output_type: ModelOutputType,
        *,
        gather: Callable[[NamedMetrics], Sequence[NamedMetrics]] | None = None,
    ) -> None:
        """Merges the metrics of all hosts, in the order of the hosts.

        `gather(metrics)` gives the dicts of all hosts, such as MPI's `lambda value: comm.allgather(value)`; None means
        a single host.
        """
        mine = self.output_metrics_collections[task_name][model_output_type]
        self.initialize_metrics(task_name, model_output_type)
        for metrics in gather(mine) if gather is not None else [mine]:
            self.merge(metrics, task_name, model_output_type)
