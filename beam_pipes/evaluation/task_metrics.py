"""The metrics of one task, from its model outputs: each on its own, so that one failure spares the others."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.eval_tasks import TaskMetric, metrics_of
from beam_pipes.evaluation.metrics import MetricArguments, MetricValue, Scalar, metric_arguments, postprocessed_targets
from beam_pipes.evaluation.model_outputs import ModelOutput, ModelOutputType, as_array
from beam_pipes.tasks.task import Task


@dataclasses.dataclass
class TaskMetrics:
    """What one evaluation of one task gave: values by name, what loggers write, and what failed."""

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    inferences: dict[str, Any] = dataclasses.field(default_factory=dict)
    targets: list[Any] | None = None
    failures: list[EvaluationError] = dataclasses.field(default_factory=list)

    @property
    def metric_values(self) -> dict[str, MetricValue]:
        """The values as loggers take them: bare numbers become `Scalar`."""
        return {name: value if isinstance(value, MetricValue) else Scalar(value) for name, value in self.values.items()}


class TaskEvaluation:
    """Computes the metrics of one task again and again; the postprocessed targets are made once."""

    def __init__(self, task: Task, target_field_name: str) -> None:
        self.task = task
        self._target_field_name = target_field_name
        self._targets: list[Any] | None = None

    def compute(
        self, outputs: Mapping[ModelOutputType, ModelOutput], examples: Sequence[Mapping[str, Any]]
    ) -> TaskMetrics:
        """All metrics of the task; `outputs` holds what `check_model_functions` asked for, in order of the examples."""
        made = TaskMetrics()
        prepared: dict[ModelOutputType, MetricArguments] = {}
        for metric in metrics_of(self.task):
            try:
                if metric.is_function:
                    values = self._call_function(metric, outputs, examples, prepared, made)
                else:
                    values = self._run_object(metric, outputs, examples, made)
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
        outputs: Mapping[ModelOutputType, ModelOutput],
        examples: Sequence[Mapping[str, Any]],
        prepared: dict[ModelOutputType, MetricArguments],
        made: TaskMetrics,
    ) -> Any:
        made.targets = self._cached_targets(examples)
        if metric.output_type not in prepared:
            output = outputs[metric.output_type]
            if metric.output_type == ModelOutputType.SCORE:
                output = as_array(output)
            elif isinstance(output, tuple):
                output = (output[0], as_array(output[1]))
            prepared[metric.output_type] = metric_arguments(
                metric.output_type,
                output,
                examples,
                self.task.output_features,
                made.targets,
                target_field_name=self._target_field_name,
                postprocessor=self.task.postprocessor,
                where=f"task '{self.task.name}'",
            )
            made.inferences.update(_listed(prepared[metric.output_type].inferences))
        # Copies, so that a metric that sorts or drops entries in place does not change what the next one sees.
        arguments = prepared[metric.output_type].arguments
        return metric.metric(**{name: copy.copy(value) for name, value in arguments.items()})

    def _run_object(
        self,
        metric: TaskMetric,
        outputs: Mapping[ModelOutputType, ModelOutput],
        examples: Sequence[Mapping[str, Any]],
        made: TaskMetrics,
    ) -> Any:
        features = self.task.output_features
        output = as_array(outputs[metric.output_type])
        instance = metric.metric.from_model_output(examples, output, features, self._target_field_name)
        if hasattr(instance, "actual_compute"):
            values, recorded = instance.actual_compute(
                examples, features, self._target_field_name, copy.copy(self._targets)
            )
        else:
            values, recorded = instance.compute(), getattr(instance, "targets_and_inferences", None)
        recorded = dict(recorded or {})
        targets = recorded.pop("targets", None)
        made.targets = made.targets if targets is None else list(targets)
        made.inferences.update(_listed(recorded))
        return values

    def _cached_targets(self, examples: Sequence[Mapping[str, Any]]) -> list[Any]:
        if self._targets is None:
            self._targets = postprocessed_targets(
                examples,
                self.task.output_features,
                target_field_name=self._target_field_name,
                postprocessor=self.task.postprocessor,
                where=f"task '{self.task.name}'",
            )
        return self._targets

    def _add(self, metric: TaskMetric, values: Any, made: TaskMetrics) -> None:
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


def _is_number(value: Any) -> bool:
    try:
        array = np.asarray(value)
    except Exception:
        return False
    return array.ndim == 0 and (array.dtype.kind in "biuf" or array.dtype.name == "bfloat16")


def _listed(inferences: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, np.ndarray) else value for name, value in inferences.items()}


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"
