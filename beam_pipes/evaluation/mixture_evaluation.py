"""One evaluation in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from beam_pipes.evaluation.eval_tasks import ModelFn
from beam_pipes.evaluation.evaluator import AllMetrics, Evaluator


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
    framework: Literal["tensorflow", "numpy"] = "numpy",
) -> AllMetrics:
    """Evaluates a model once and returns task → metric → value; see `Evaluator` for the arguments.

    `evaluate_mixture("qa", EncDecFeatureConverter(pack=False), predict_fn=predict)` →
    `{"squad": {"em": 81.2, "f1": 88.4}, "trivia": {"em": 40.1}}`.

    Model functions get an `EnumeratedExamples`, and TensorFlow is imported only if a task cannot be read without it;
    with `framework="tensorflow"` they get a `tf.data.Dataset`. Raises `EvaluationError` for what fails.
    """
    with Evaluator(
        mixture_or_task_name,
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
