"""Metric functions sorted by what they take: predictions, scores, or predictions with auxiliary values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.signatures import required_positional

MetricFn = Callable[..., Any]

#: kind → the names of the arguments that a metric function of this kind takes by position.
SIGNATURES = {
    "predict": ("targets", "predictions"),
    "score": ("targets", "scores"),
    "predict_with_aux": ("targets", "predictions", "aux_values"),
}


def metric_kind(metric_fn: MetricFn) -> str:
    """`predict`, `score` or `predict_with_aux`, by the names of the function's arguments.

    Raises:
        TaskError: they are others.
    """
    arguments = tuple(required_positional(metric_fn))
    for kind, signature in SIGNATURES.items():
        if arguments == signature:
            return kind
    raise TaskError(
        "Metric functions must have positional arguments matching either ('targets', 'scores'), "
        f"('targets', 'predictions') or ('targets', 'predictions', 'aux_values'). Got: {arguments}",
        arguments=arguments,
    )


def metrics_of_kind(metric_fns: Sequence[MetricFn], kind: str) -> list[MetricFn]:
    return [metric_fn for metric_fn in metric_fns if metric_kind(metric_fn) == kind]
