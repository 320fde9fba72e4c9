"""Metrics in the standard Python log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.evaluation.loggers.logger import NO_STEP, Dataset, Logger
from beam_pipes.evaluation.metric_values import MetricValue, Scalar, Text

_log = logging.getLogger("beam_pipes.evaluation")


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
            _log.log(self._level, "%s/%s at step %d: %s", task_name, name, step, _in_words(value))


def _in_words(value: MetricValue) -> str:
    if isinstance(value, Scalar):
        return f"{float(np.asarray(value.value)):.3f}"
    if isinstance(value, Text):
        return value.textdata.decode("utf-8", "replace") if isinstance(value.textdata, bytes) else value.textdata
    return f"unloggable type {type(value)}"
