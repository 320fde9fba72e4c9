"""Metrics as TensorBoard summaries.

`tf.summary.scalar` and the like belong to the package tensorboard, which TensorFlow no longer installs. Their format is
documented: a tensor with the name of the plugin that shows it, and TensorFlow's own `tf.summary.write` can write it; so
only TensorFlow is needed here, and TensorBoard (wherever it runs) shows the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.loggers.logger import Metrics, MetricsLogger, step_or_dummy
from beam_pipes.evaluation.metrics import Audio, Generic, Histogram, Image, MetricValue, Scalar, Text
from beam_pipes.extras import require

if TYPE_CHECKING:
    import tensorflow as tf

DEFAULT_BUCKETS = 30  # as TensorBoard's own histogram summary
_WAV = b"\x10\x0b"  # AudioPluginData with field 2, encoding, set to 11, WAV


class TensorBoardLogger(MetricsLogger):
    """Writes `eval/{metric}` summaries of every kind of `MetricValue` to event files under `{output_dir}/{task}`.

    Needs TensorFlow. Event files are flushed after every task and closed by `close`.
    """

    def __init__(self, output_dir: str) -> None:
        super().__init__(output_dir)
        self._tf = require("tensorflow", purpose="TensorBoardLogger")
        self._writers: dict[str, tf.summary.SummaryWriter | tf.compat.v1.summary.FileWriter] = {}

    def log_metrics(self, task_name: str, step: int | None, metrics: Metrics) -> None:
        step = step_or_dummy(step)
        writer = self._writer(task_name)
        # All values become tensors first, so that a wrong type does not leave a half-written evaluation.
        summaries = [(f"eval/{name}", *self._summary(name, value)) for name, value in metrics.items()]
        with writer.as_default():
            for tag, tensor, metadata in summaries:
                self._tf.summary.write(tag=tag, tensor=tensor, step=step, metadata=metadata)
        writer.flush()

    def close(self) -> None:
        """Closes the event files; a later call opens new ones."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, task_name: str) -> tf.summary.SummaryWriter | tf.compat.v1.summary.FileWriter:
        if task_name not in self._writers:
            self._writers[task_name] = self._new_writer(os.path.join(self.output_dir, task_name))
        return self._writers[task_name]

    def _new_writer(self, directory: str) -> tf.summary.SummaryWriter:
        return self._tf.summary.create_file_writer(directory, flush_millis=120)

    def _summary(self, name: str, value: MetricValue) -> tuple[object, object]:
        if isinstance(value, Generic):
            return value.tensor, value.metadata
        if isinstance(value, Scalar):
            number = float(np.asarray(value.value))
            return self._tf.constant(number, self._tf.float32), self._metadata("scalars")
        if isinstance(value, Text):
            if not isinstance(value.textdata, str | bytes):
                raise EvaluationError(
                    f"`textdata` should be of the type `str` or `bytes`, got {value.textdata!r}"
                ).about("metric", name)
            return self._tf.constant(value.textdata), self._metadata("text")
        if isinstance(value, Image):
            return self._images(name, value), self._metadata("images")
        if isinstance(value, Audio):
            return self._sounds(name, value), self._metadata("audio", _WAV)
        if isinstance(value, Histogram):
            return histogram_buckets(value.values, value.bins or DEFAULT_BUCKETS), self._metadata("histograms")
        raise TypeError(
            f"Value type not understood, got '{type(value).__name__}'. Metric {name!r} should be a MetricValue."
        )

    def _images(self, name: str, value: Image) -> object:
        pictures = np.asarray(value.image)
        _check_rank(name, pictures, "(k, height, width, channels)")
        if pictures.dtype != np.uint8:
            pictures = self._tf.image.convert_image_dtype(pictures, self._tf.uint8, saturate=True)
        encoded = [self._tf.io.encode_png(picture).numpy() for picture in pictures[: value.max_outputs]]
        height, width = pictures.shape[1:3]
        return np.array([str(width).encode(), str(height).encode(), *encoded], object)

    def _sounds(self, name: str, value: Audio) -> object:
        sounds = np.asarray(value.audiodata, np.float32)
        _check_rank(name, sounds, "(k, samples, channels)")
        encoded = [
            [self._tf.audio.encode_wav(sound, value.sample_rate).numpy(), b""] for sound in sounds[: value.max_outputs]
        ]
        return np.array(encoded, object).reshape(-1, 2)

    def _metadata(self, plugin: str, content: bytes = b"") -> object:
        metadata = self._tf.compat.v1.SummaryMetadata
        return metadata(plugin_data=metadata.PluginData(plugin_name=plugin, content=content))


class TensorBoardLoggerV1(TensorBoardLogger):
    """Writes scalars in the original form of summaries (`simple_value`), for readers that support no other."""

    def log_metrics(self, task_name: str, step: int | None, metrics: Metrics) -> None:
        step = step_or_dummy(step)
        numbers = {}
        for name, value in metrics.items():
            if not isinstance(value, Scalar):
                raise EvaluationError(
                    f"Value for metric '{name}' should be of type 'Scalar, got '{type(value).__name__}'. "
                    "TensorBoardLogger writes the other types.",
                    metric=name,
                )
            numbers[f"eval/{name}"] = float(np.asarray(value.value))
        summary = self._tf.compat.v1.Summary
        writer = self._writer(task_name)
        for tag, number in numbers.items():
            writer.add_summary(summary(value=[summary.Value(tag=tag, simple_value=number)]), step)
        writer.flush()

    def _new_writer(self, directory: str) -> tf.compat.v1.summary.FileWriter:
        with self._tf.Graph().as_default():  # the original form cannot be written in eager mode
            return self._tf.compat.v1.summary.FileWriter(directory)


def histogram_buckets(values: object, bins: int) -> np.ndarray:
    """Buckets of equal width as rows (left, right, count), float64: `[0, 1, 1, 2]`, 2 → `[[0, 1, 1], [1, 2, 3]]`.

    The last bucket is closed. If all values are equal, they fall in the last of `bins` buckets of width 0; without
    values there are `bins` empty buckets.
    """
    flat = np.asarray(values, np.float64).reshape(-1)
    if flat.size == 0:
        return np.zeros((bins, 3))
    if flat.min() == flat.max():
        buckets = np.tile([flat[0], flat[0], 0.0], (bins, 1))
        buckets[-1, 2] = flat.size
        return buckets
    counts, edges = np.histogram(flat, bins=bins)
    return np.stack([edges[:-1], edges[1:], counts.astype(np.float64)], axis=1)


def _check_rank(name: str, array: np.ndarray, shape: str) -> None:
    if array.ndim != shape.count(",") + 1:
        raise EvaluationError(
            f"metric {name!r} should have the shape {shape}, got {array.shape}", metric=name, shape=array.shape
        )
