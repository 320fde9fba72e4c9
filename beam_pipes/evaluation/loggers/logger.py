"""The interface of metric loggers.

Metrics in the standard Python log.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import logger
from beam_pipes.evaluation.metrics import MetricValue, Scalar, Text

Dataset = Any  # a tf.data.Dataset, or any iterable of NumPy examples that can be read again

NO_STEP = -1

_log = logger(__name__)


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


_metrics_log = logger("beam_pipes.evaluation")


class PyLoggingLogger(Logger):
    """Writes `wmt_ende/bleu at step 1000: 27.513` to the logger `beam_pipes.evaluation` at `level`."""

    def __init__(self, output_dir: str | None = None, level: int = logging.INFO) -> None:
        super().__init__(output_dir or "")
        self._level = level

    def __call__(
        self,
        task_name: str,
        step: int | None,
        metrics: Mapping[str, MetricValue],
        dataset: Dataset | None,
        inferences: Mapping[str, Sequence[Any]] | None,
        targets: Sequence[Any] | None,
    ) -> None:
        step = NO_STEP if step is None else step
        for name, value in metrics.items():
            _metrics_log.log(self._level, "%s/%s at step %d: %s", task_name, name, step, _in_words(value))


def _in_words(value: MetricValue) -> str:
    if isinstance(value, Scalar):
        return f"{float(np.asarray(value.value)):.3f}"
    if isinstance(value, Text):
        return value.textdata.decode("utf-8", "replace") if isinstance(value.textdata, bytes) else value.textdata
    return f"unloggable type {type(value)}"
