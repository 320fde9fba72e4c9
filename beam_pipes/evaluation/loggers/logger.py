"""The interface of metric loggers."""

from __future__ import annotations

import abc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_pipes.evaluation.metric_values import MetricValue

Dataset = Any  # a tf.data.Dataset, or any iterable of NumPy examples that can be read again

NO_STEP = -1

_log = logging.getLogger(__name__)


class Logger(abc.ABC):
    """Writes the metrics of a task, and if it likes the inferences they were computed from, under `output_dir`."""

    def __init__(self, output_dir: str) -> None:
        self.output_dir = output_dir

    @abc.abstractmethod
    def __call__(
        self,
        task_name: str,
        step: int | None,
        metrics: Mapping[str, MetricValue],
        dataset: Dataset | None,
        inferences: Mapping[str, Sequence[Any]] | None,
        targets: Sequence[Any] | None,
    ) -> None:
        """Logs one evaluation of one task.

        `step` is that of the model, None if unknown. `dataset` holds the task's examples; `inferences` maps
        "output", "prediction", "score" to one entry an example, and "aux_value" to a mapping of such; `targets` are
        postprocessed.
        """


def step_or_dummy(step: int | None) -> int:
    """`step`, or -1 with a warning; 0 is a step."""
    if step is not None:
        return step
    _log.warning("Step number for the logging session is not provided. A dummy value of -1 will be used.")
    return NO_STEP


def examples_of(dataset: Dataset) -> Iterator[Mapping[str, Any]]:
    """The NumPy examples of a `tf.data.Dataset` or of any other iterable."""
    if hasattr(dataset, "as_numpy_iterator"):
        return iter(dataset.as_numpy_iterator())
    plain: Iterable[Mapping[str, Any]] = dataset
    return iter(plain)
