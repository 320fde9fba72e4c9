"""Which tasks of a mixture are evaluated, and by which metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from beam_pipes.errors import EvaluationError, logger
from beam_pipes.evaluation.metrics import model_output_type_of
from beam_pipes.evaluation.model_outputs import ModelOutputType
from beam_pipes.tasks.signatures import function_name
from beam_pipes.tasks.task import Task

_log = logger(__name__)

ModelFn = Callable[[Any], Any]  # an enumerated dataset → what `ordered_outputs` takes
PredictFnCallable = ScoreFnCallable = ModelFnCallable = ModelFn
#: What model functions return, and what an evaluation gives. For annotations.
PredictFnReturnType = (
    Sequence[tuple[int, Sequence[int]]] | tuple[Sequence[tuple[int, Sequence[int]]], Mapping[str, Any]]
)
ScoreFnReturnType = Sequence[tuple[int, float]] | tuple[Sequence[tuple[int, float]], Mapping[str, Any]]
ModelFnReturnType = PredictFnReturnType | ScoreFnReturnType
AllOutputTokensType = Mapping[str, Sequence[Sequence[int]]]
AllOutputScoresType = Any
AllOutputAuxValuesType = Mapping[str, Mapping[str, Sequence[Any]]]
TaskMetricsType = MutableMapping[str, Any]
AllMetricsType = MutableMapping[str, TaskMetricsType]
MetricsAndOutputsType = tuple[Any, Any]

ARGUMENT_OF = {
    ModelOutputType.PREDICTION: "predict_fn",
    ModelOutputType.SCORE: "score_fn",
    ModelOutputType.PREDICTION_WITH_AUX: "predict_with_aux_fn",
    ModelOutputType.SCORE_WITH_INTERMEDIATES: "model_fns[ModelOutputType.SCORE_WITH_INTERMEDIATES]",
}


@dataclasses.dataclass(frozen=True)
class TaskMetric:
    """One metric of a task: a function (`function` is set) or an object."""

    name: str
    output_type: ModelOutputType
    metric: Any
    is_function: bool


def metrics_of(task: Task) -> list[TaskMetric]:
    """The metrics of a task, objects first; raises `EvaluationError` for an object that is none."""
    found = []
    for metric in task.metric_objs:
        name = getattr(metric, "__name__", None) or type(metric).__name__
        output_type = getattr(metric, "model_output_type", None)
        if output_type is None or not hasattr(metric, "from_model_output"):
            raise EvaluationError(
                f"metric object {name!r} of task '{task.name}' should have model_output_type and from_model_output, "
                "as beam_pipes.evaluation.metrics.Metric has; a function belongs into metric_fns",
                task=task.name,
                metric=name,
            )
        found.append(TaskMetric(name, ModelOutputType(output_type), metric, is_function=False))
    for metric_fn in task.metric_fns:
        output_type = model_output_type_of(metric_fn)
        found.append(TaskMetric(function_name(metric_fn), output_type, metric_fn, is_function=True))
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
    """Raises `EvaluationError` unless every metric's output can be made: before anything is predicted."""
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
