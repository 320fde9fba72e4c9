"""One evaluation in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from beam_pipes.evaluation.eval_tasks import ModelFn
from beam_pipes.evaluation.evaluator import AllMetrics, Evaluator
from beam_pipes.tasks.lookup import get_subtasks, maybe_get_mixture_or_task


def evaluate_mixture(
    mixture_or_task_name: Any,
    feature_converter: Any,
    *,
    eval_split: str = "validation",
    predict_fn: ModelFn | None = None,
    score_fn: ModelFn | None = None,
    predict_with_aux_fn: ModelFn | None = None,
    sequence_length: Mapping[str, Any] | None = None,
    num_examples: int | None = None,
    use_cached: bool = False,
    framework: Literal["tensorflow", "numpy"] | None = None,
) -> AllMetrics:
    """Evaluates a model once and returns task → metric → value; see `Evaluator` for the arguments.

    `evaluate_mixture("qa", EncDecFeatureConverter(pack=False), predict_fn=predict)` →
    `{"squad": {"em": 81.2, "f1": 88.4}, "trivia": {"em": 40.1}}`.

    Without `framework`, TensorFlow is used where a task cannot be read without it, NumPy otherwise: then model
    functions get an `EnumeratedExamples`. Raises `EvaluationError` for what fails.
    """
    provider = maybe_get_mixture_or_task(mixture_or_task_name)
    if framework is None:
        needs_tensorflow = not use_cached and any(task.needs_tensorflow for task in get_subtasks(provider))
        framework = "tensorflow" if needs_tensorflow else "numpy"
    with Evaluator(
        provider,
        feature_converter,
        eval_split,
        use_cached=use_cached,
        sequence_length=sequence_length,
        num_examples=num_examples,
        async_compute_metrics=False,
        framework=framework,
    ) as evaluator:
        metrics, _ = evaluator.evaluate(
            compute_metrics=True,
            predict_fn=predict_fn,
            score_fn=score_fn,
            predict_with_aux_fn=predict_with_aux_fn,
        )
        found: AllMetrics = metrics.result()
        return found
