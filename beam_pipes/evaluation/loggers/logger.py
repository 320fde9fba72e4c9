"""The interface of metric loggers, and those without TensorFlow: the standard Python log, JSON lines.

The JSON encoder supports the values of evaluations: arrays, tensors, bytes, metric values.
"""

from __future__ import annotations

import abc
import base64
import dataclasses
import itertools
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from beam_pipes.checks import integer
from beam_pipes.errors import EvaluationError, logger
from beam_pipes.evaluation.metrics import Generic, MetricValue, Scalar, Text
from beam_pipes.evaluation.model_outputs import Inferences
from beam_pipes.extras import TfDataset
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import storage_for
from beam_pipes.tasks.steps.examples import Example

Metrics: TypeAlias = Mapping[str, MetricValue]
Dataset: TypeAlias = "TfDataset | Iterable[Example]"  # can be read repeatedly
Targets: TypeAlias = Sequence[Any]  # as the postprocessor of the task made them, one for each example

NO_STEP = -1

_log = logger(__name__)


class Logger(abc.ABC):
    """Writes the metrics of a task, and optionally the inferences they come from, under `output_dir`."""

    def __init__(self, output_dir: str) -> None:
        self.output_dir = os.path.expanduser(output_dir)

    @abc.abstractmethod
    def __call__(
        self,
        task_name: str,
        step: int | None,
        metrics: Metrics,
        dataset: Dataset | None,
        inferences: Inferences | None,
        targets: Targets | None,
    ) -> None:
        """Logs one evaluation of one task.

        `step` is that of the model, None if unknown. `dataset` holds the task's examples; `inferences` maps
        "output", "prediction", "score" to one entry an example, and "aux_value" to a mapping of such; `targets` are
        postprocessed.
        """


class MetricsLogger(Logger):
    """Base of loggers that write metrics but no examples, by `log_metrics`."""

    def __call__(
        self,
        task_name: str,
        step: int | None,
        metrics: Metrics,
        dataset: Dataset | None,
        inferences: Inferences | None,
        targets: Targets | None,
    ) -> None:
        self.log_metrics(task_name, step, metrics)

    @abc.abstractmethod
    def log_metrics(self, task_name: str, step: int | None, metrics: Metrics) -> None: ...


def step_or_dummy(step: int | None) -> int:
    """`step`, or -1 with a warning; 0 is a step."""
    if step is not None:
        return step
    _log.warning("Step number for the logging session is not provided. A dummy value of -1 will be used.")
    return NO_STEP


def examples_of(dataset: Dataset) -> Iterator[Example]:
    """The NumPy examples of a `tf.data.Dataset` or of any other iterable."""
    if hasattr(dataset, "as_numpy_iterator"):
        return iter(dataset.as_numpy_iterator())
    return iter(dataset)


_metrics_log = logger("beam_pipes.evaluation")


class PyLoggingLogger(MetricsLogger):
    """Writes `wmt_ende/bleu at step 1000: 27.513` to the logger `beam_pipes.evaluation` at `level`."""

    def __init__(self, output_dir: str | None = None, level: int = logging.INFO) -> None:
        super().__init__(output_dir or "")
        self._level = level

    def log_metrics(self, task_name: str, step: int | None, metrics: Metrics) -> None:
        step = NO_STEP if step is None else step
        for name, value in metrics.items():
            _metrics_log.log(self._level, "%s/%s at step %d: %s", task_name, name, step, _in_words(value))


def _in_words(value: MetricValue) -> str:
    if isinstance(value, Scalar):
        return f"{float(np.asarray(value.value)):.3f}"
    if isinstance(value, Text):
        return value.textdata.decode("utf-8", "replace") if isinstance(value.textdata, bytes) else value.textdata
    return f"unloggable type {type(value)}"


class TensorAndNumpyEncoder(json.JSONEncoder):
    """Encodes NumPy arrays and scalars, TensorFlow and ragged tensors, bytes and dataclasses.

    `{"ids": array([1, 2]), "text": b"Hi"}` → `{"ids": [1, 2], "text": "Hi"}`. Arrays with more than `max_ndarray_size`
    values become a summary (`"ndarray(shape=(64,), dtype=int64); summary: 0, 1, 2, 3, 4 ... 59, 60, 61, 62, 63"`),
    bytes that are not UTF-8 become base64, bfloat16 becomes float; fields of a dataclass that are None are left out.
    """

    def __init__(self, *args: object, max_ndarray_size: int = 32, **kwargs: object) -> None:
        start: Callable[..., None] = super().__init__
        start(*args, **kwargs)
        self.max_ndarray_size = max_ndarray_size

    def default(self, o: object) -> object:
        if isinstance(o, bytes):
            return _text_of(o)
        if hasattr(o, "to_list") and hasattr(o, "row_splits"):  # tf.RaggedTensor
            return o.to_list()
        if hasattr(o, "numpy") and not isinstance(o, np.ndarray):  # tf.Tensor
            return self.default(np.asarray(o.numpy()))
        if isinstance(o, np.ndarray):
            return self._array(o)
        if isinstance(o, np.generic):
            return o.item() if o.dtype.kind in "biufSU" else float(o)  # bfloat16
        if dataclasses.is_dataclass(o) and not isinstance(o, type):
            return skip_none_value_dict_factory(
                [(field.name, getattr(o, field.name)) for field in dataclasses.fields(o)]
            )
        return super().default(o)

    def _array(self, array: np.ndarray) -> object:
        plain = array if array.dtype.kind in "biufSUOM" else array.astype(np.float32)
        if plain.dtype.kind == "S":
            plain = plain.astype(object)
        if array.ndim == 0 or array.size <= self.max_ndarray_size:
            return plain.tolist()
        flat = plain.reshape(-1)
        first, last = (json.dumps(part.tolist(), cls=type(self))[1:-1] for part in (flat[:5], flat[-5:]))
        return f"{type(array).__name__}(shape={array.shape}, dtype={array.dtype}); summary: {first} ... {last}"


def skip_none_value_dict_factory(data: Sequence[tuple[str, object]]) -> dict[str, object]:
    """The pairs whose value is not None, as a dict: for `dataclasses.asdict(value, dict_factory=...)`."""
    return {name: value for name, value in data if value is not None}


def _text_of(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


class JSONLogger(MetricsLogger):
    """Appends `{"step": 1000, "bleu": 27.5}` to `{task}-metrics.jsonl`, and writes `{task}-{step:06}.jsonl`.

    The latter has one line per example: `{"input": {…}, "target": …, "output": …, "prediction": …, "score": …,
    "aux_{name}": …}`. Both files appear whole or not at all. Metrics that are pictures, sounds or histograms are left
    out with a warning, as is a field that `json_encoder_cls` cannot encode.

    `write_n_results`: how many examples to write, all if None, 0 for none.
    """

    def __init__(
        self,
        output_dir: str,
        write_n_results: int | None = None,
        json_encoder_cls: type[json.JSONEncoder] = TensorAndNumpyEncoder,
    ) -> None:
        if write_n_results is not None:
            integer(write_n_results, what="write_n_results", least=0, error=EvaluationError)
        super().__init__(output_dir)
        self._write_n_results = write_n_results
        self._json_encoder_cls = json_encoder_cls

    def log_metrics(self, task_name: str, step: int | None, metrics: Metrics) -> None:
        written: dict[str, object] = {"step": step}
        for name, value in metrics.items():
            if isinstance(value, Scalar):
                written[name] = value.value
            elif isinstance(value, Text):
                written[name] = value.textdata
            elif isinstance(value, Generic):
                written[name] = value.tensor.tolist()
            else:
                _log.warning("Skipping JSON logging of non-serializable metric '%s' of type %s.", name, type(value))
        path = self._path(f"{task_name}-metrics.jsonl")
        storage = storage_for(path)
        before = storage.read_bytes(path) if storage.exists(path) else b""
        _log.info("Appending metrics to %s", path)
        storage.makedirs(os.path.dirname(path))
        storage.replace(path, before + self._line(written))

    def __call__(
        self,
        task_name: str,
        step: int | None,
        metrics: Metrics,
        dataset: Dataset | None,
        inferences: Inferences | None,
        targets: Targets | None,
    ) -> None:
        step = step_or_dummy(step)
        if metrics:
            self.log_metrics(task_name, step, metrics)
        if self._write_n_results == 0:
            return
        # The length of a dataset may be unknown, so only a missing one is skipped here.
        empty = {
            "inferences": not inferences,
            "targets": targets is None or len(targets) == 0,
            "dataset": dataset is None,
        }
        unset = [f"{name} is None or empty" for name, is_empty in empty.items() if is_empty]
        if unset:
            _log.info("Skipping inference logging as %s", ", and ".join(unset))
            return
        assert inferences is not None and targets is not None and dataset is not None
        started = time.monotonic()
        lines = self._inference_lines(dataset, inferences, targets)
        count = self._write(f"{task_name}-{step:06}.jsonl", lines)
        seconds = time.monotonic() - started
        _log.info("Writing completed in %.2f seconds (%.0f examples/sec).", seconds, count / max(seconds, 1e-9))

    def _inference_lines(self, dataset: Dataset, inferences: Inferences, targets: Targets) -> Iterator[bytes]:
        columns: dict[str, Sequence[object]] = {"target": targets}
        for kind, values in inferences.items():
            if kind == "aux_value":
                columns |= {f"aux_{name}": auxiliary for name, auxiliary in values.items()}
            else:
                columns[kind] = values
        for index, example in enumerate(itertools.islice(examples_of(dataset), self._write_n_results)):
            line: dict[str, object] = {"input": example}
            for name, values in columns.items():
                if index < len(values) and self._serializable(name, values[index]):
                    line[name] = values[index]
            yield self._line(line)

    def _serializable(self, name: str, value: object) -> bool:
        try:
            strict_json(value, cls=self._json_encoder_cls)
        except TypeError:
            _log.warning("`%s` is not JSON serializable", name, exc_info=True)
            return False
        return True

    def _line(self, value: Mapping[str, object]) -> bytes:
        return strict_json(value, cls=self._json_encoder_cls).encode() + b"\n"

    def _write(self, name: str, lines: Iterator[bytes]) -> int:
        path = self._path(name)
        storage = storage_for(path)
        storage.makedirs(os.path.dirname(path))
        _log.info("Writing inferences to %s", path)
        staged = storage.stage(path)
        count = 0
        try:
            while block := list(itertools.islice(lines, 256)):
                staged.write(b"".join(block))
                count += len(block)
            staged.commit()
        finally:
            staged.close()
        return count

    def _path(self, name: str) -> str:
        return os.path.join(self.output_dir, name)
