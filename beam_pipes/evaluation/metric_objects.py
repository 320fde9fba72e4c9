"""What a metric may return: a number, a text, pictures, sounds, a distribution, or any tensor for TensorBoard.

Metric objects: what an evaluator asks of them, and two bases to write them on. The protocol is that of CLU: a metric is
made from model outputs, two of them merge into one, and `compute` gives the values; `reduce`, `from_fun`, `from_output`
and `compute_value` are there too. Any object with `model_output_type`, `from_model_output` and `compute` is a metric;
these classes import neither JAX nor CLU, and may be decorated with `flax.struct.dataclass` or
`dataclasses.dataclass(frozen=True)`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.dtypes import Array
from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.model_outputs import ModelOutput, ModelOutputType
from beam_pipes.tasks.in_python.examples import Example
from beam_pipes.tasks.provider import Feature

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(eq=False)
class MetricValue:
    """Base of the values; two are equal when class and contents are, arrays element by element."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        fields = [field.name for field in dataclasses.fields(self)]
        return all(_same(getattr(self, name), getattr(other, name)) for name in fields)

    __hash__ = None  # type: ignore[assignment]  # values hold arrays and may be changed


@dataclasses.dataclass(eq=False)
class Scalar(MetricValue):
    """A number: `Scalar(0.5)`. A bare number that a metric returns is one."""

    value: int | float


@dataclasses.dataclass(eq=False)
class Text(MetricValue):
    """A text, shown as Markdown by TensorBoard."""

    textdata: str | bytes


@dataclasses.dataclass(eq=False)
class Image(MetricValue):
    """Pictures (k, height, width, channels), uint8 or floats in [0, 1]; at most `max_outputs` are logged."""

    image: Array
    max_outputs: int = 3


@dataclasses.dataclass(eq=False)
class Audio(MetricValue):
    """Sounds (k, samples, channels), floats in [-1, 1]; at most `max_outputs` are logged."""

    audiodata: Array
    sample_rate: int = 44100
    max_outputs: int = 3


@dataclasses.dataclass(eq=False)
class Histogram(MetricValue):
    """A distribution, given by its values; `bins` buckets, 30 if None."""

    values: Array
    bins: int | None = None


@dataclasses.dataclass(eq=False)
class Generic(MetricValue):
    """Any tensor, with the `tf.compat.v1.SummaryMetadata` that tells TensorBoard what to do with it."""

    tensor: Array
    metadata: tf.compat.v1.SummaryMetadata


def _same(left: npt.ArrayLike, right: npt.ArrayLike) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right)


_Metric = TypeVar("_Metric", bound="_MetricProtocol")
_Collecting = TypeVar("_Collecting", bound="CollectingMetric")


class _MetricProtocol:
    """What CLU offers on every metric besides `from_model_output`, `merge` and `compute`."""

    @classmethod
    def empty(cls: type[_Metric]) -> _Metric:
        """A metric that has seen nothing, to start merging from."""
        raise NotImplementedError("Must override empty()")

    def compute(self) -> Any:
        """Name → value."""
        raise NotImplementedError("Must override compute()")

    def compute_value(self) -> Scalar:
        """`compute()` as a value for loggers."""
        return Scalar(self.compute())

    def merge(self: _Metric, other: _Metric) -> _Metric:
        """A metric of everything that both have seen."""
        raise NotImplementedError("Must override merge()")

    def _reduce_merge(self: _Metric, other: _Metric) -> _Metric:
        return self.merge(other)

    def reduce(self: _Metric) -> _Metric:
        """Merges along the first axis of the fields: `Average(total=[3, 4], count=[1, 2])` → `Average(7, 3)`.

        Use it after an all-gather over several hosts. Fields that are not arrays are the same in all parts.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        sizes = {np.shape(value)[0] for value in fields.values() if _has_axis(value)}
        if len(sizes) != 1:
            raise EvaluationError(
                f"{type(self).__name__}.reduce merges along the first axis of the fields, which should be one size, "
                f"got {sorted(sizes) or 'no arrays'}"
            )
        parts = [
            dataclasses.replace(  # type: ignore[type-var]
                self, **{name: value[index] if _has_axis(value) else value for name, value in fields.items()}
            )
            for index in range(sizes.pop())
        ]
        return functools.reduce(lambda reduced, part: reduced._reduce_merge(part), parts)

    def replace(self: _Metric, **updates: object) -> _Metric:
        """The metric with other values of some fields."""
        return dataclasses.replace(self, **updates)  # type: ignore[type-var]

    @classmethod
    def from_fun(cls: type[_Metric], fun: Callable[..., ModelOutput]) -> type[_Metric]:
        """A metric class like this one, made from the result of `fun` for the model outputs.

        `fun(**model_output)` gives a mapping, which becomes keyword arguments of `from_model_output`, or one value,
        which becomes the first argument. The `mask` of the model outputs is passed on if it has as many entries;
        a mask from `fun` takes precedence.
        """

        class FromFun(cls):  # type: ignore[valid-type,misc]
            @classmethod
            def from_model_output(cls, **model_output: ModelOutput) -> object:
                output, mask = fun(**model_output), model_output.get("mask")
                if not isinstance(output, Mapping):
                    return super().from_model_output(output, mask=_fitting(mask, output))
                given = dict(output)
                mask = given.pop("mask", mask)
                return super().from_model_output(**given, mask=_fitting(mask, next(iter(given.values()))))

        return FromFun

    @classmethod
    def from_output(cls: type[_Metric], name: str) -> type[_Metric]:
        """A metric class like this one, for the model output of this name alone: `Average.from_output("loss")`."""

        class FromOutput(cls):  # type: ignore[valid-type,misc]
            @classmethod
            def from_model_output(cls, **model_output: ModelOutput) -> object:
                output = np.asarray(model_output[name])
                return super().from_model_output(output, mask=_fitting(model_output.get("mask"), output))

        return FromOutput


def _has_axis(value: object) -> bool:
    return hasattr(value, "shape") and len(value.shape) > 0


def _fitting(mask: npt.ArrayLike | None, output: npt.ArrayLike) -> object:
    """The mask, if it has one entry per output."""
    return mask if mask is not None and np.shape(output)[:1] == np.shape(mask)[:1] else None


@dataclasses.dataclass(frozen=True)
class Metric(_MetricProtocol):
    """Base of a metric that keeps only what it needs, such as sums and counts.

    ```
    @dataclasses.dataclass(frozen=True)
    class MeanLength(Metric):
        model_output_type: ModelOutputType = ModelOutputType.PREDICTION
        total: int = 0
        count: int = 0

        @classmethod
        def from_model_output(cls, inputs, model_output, features, target_field_name="targets", mask=None,
                              indices_2d=None):
            return cls(total=sum(len(tokens) for tokens in model_output), count=len(model_output))

        def compute(self):
            return {"mean_length": self.total / self.count}
    ```
    """

    model_output_type: ModelOutputType

    @classmethod
    def from_model_output(
        cls,
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: npt.ArrayLike | None = None,
        indices_2d: npt.ArrayLike | None = None,
    ) -> Metric:
        """A metric of these outputs.

        `inputs`: the examples. `model_output`: one output for each example, in order; an array where all have one
        shape, else a list; with auxiliary values a pair. `features`: of the task. `mask`: 1 for examples that
        count, 0 for padding. `indices_2d`: (host, example) of each, where several hosts contribute.
        """
        raise NotImplementedError("Must override from_model_output()")


@dataclasses.dataclass(frozen=True)
class CollectingMetric(_MetricProtocol):
    """Base of a metric that keeps all outputs, and computes from the whole in `actual_compute`."""

    values: dict[str, ModelOutput]

    @classmethod
    def from_model_output(
        cls: type[_Collecting],
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: npt.ArrayLike | None = None,
        indices_2d: npt.ArrayLike | None = None,
    ) -> _Collecting:
        count = len(model_output[0]) if isinstance(model_output, tuple) else len(model_output)
        if mask is None:
            mask = np.ones(count, np.int32)
        if indices_2d is None:
            indices_2d = np.stack([np.zeros(count, np.int32), np.arange(count, dtype=np.int32)], axis=1)
        return cls(values={"model_output": model_output, "indices_2d": indices_2d, "mask": mask})

    @classmethod
    def empty(cls: type[_Collecting]) -> _Collecting:
        """A metric that has seen nothing: what merging begins with."""
        return cls(values={})

    def merge(self: _Collecting, other: _Collecting) -> _Collecting:
        """The outputs of both, those of `self` first; `actual_compute` sorts them."""
        mine, others = self.values, other.values
        if not mine or not others:
            return self if mine else other
        return type(self)(values={name: _concatenated(value, others[name]) for name, value in mine.items()})

    def reduce(self: _Collecting) -> _Collecting:
        """Concatenates the outputs gathered from several hosts; their first axis is the host."""
        return type(self)(values={name: _joined(value) for name, value in self.values.items()})

    def compute(self) -> Mapping[str, object]:
        """The collected outputs by name; a subclass computes from them."""
        return dict(self.values)

    @classmethod
    def from_outputs(cls: type[_Collecting], names: Sequence[str]) -> type[_Collecting]:
        """A metric class that collects the model outputs of these names: `from_outputs(["labels", "logits"])`."""

        class FromOutputs(cls):  # type: ignore[valid-type,misc]
            @classmethod
            def from_model_output(cls, **model_output: object) -> CollectingMetric:
                return cls(values={name: np.atleast_1d(np.asarray(model_output[name])) for name in names})

        return FromOutputs

    def actual_compute(
        self,
        task_dataset_as_numpy: Sequence[Example],
        task_output_features: Mapping[str, Feature],
        target_field_name: str = "targets",
        cached_targets: list[object] | None = None,
    ) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Name → value, and what loggers write: `{"targets": …, "prediction": …}`, one entry per example.

        `cached_targets` are the postprocessed targets of an earlier evaluation.
        """
        raise NotImplementedError("Must override actual_compute()")

    def outputs_in_order(self) -> ModelOutput:
        """The collected outputs without padding, ordered by host, then example."""
        indices, output = remove_padding_examples(
            self.values["model_output"], self.values["indices_2d"], self.values["mask"]
        )
        return globally_sort_model_output(output, indices)


def remove_padding_examples(
    model_output: ModelOutput, indices_2d: object, mask: object
) -> tuple[np.ndarray, ModelOutput]:
    """Drops the examples whose `mask` is 0 from the indices and the outputs: `[a, b, c]`, `[1, 0, 1]` → `[a, c]`."""
    kept = np.flatnonzero(np.asarray(mask) == 1)
    return np.asarray(indices_2d)[kept], _taken(model_output, kept)


def globally_sort_model_output(model_output: ModelOutput, indices_2d: object) -> ModelOutput:
    """Sorts outputs by (host, example): `[c, a]` with `[[1, 0], [0, 0]]` → `[a, c]`."""
    indices = np.asarray(indices_2d)
    return _taken(model_output, np.lexsort((indices[:, 1], indices[:, 0])))


def _taken(output: ModelOutput, places: np.ndarray) -> ModelOutput:
    if isinstance(output, tuple):
        return tuple(_taken(part, places) for part in output)
    if isinstance(output, Mapping):
        return {name: _taken(value, places) for name, value in output.items()}
    if isinstance(output, list):
        return [output[place] for place in places]
    return np.asarray(output)[places]


def _joined(gathered: ModelOutput) -> ModelOutput:
    if isinstance(gathered, tuple):
        return tuple(map(_joined, gathered))
    if isinstance(gathered, Mapping):
        return {name: _joined(value) for name, value in gathered.items()}
    return np.concatenate(list(gathered)) if isinstance(gathered, np.ndarray) else list(itertools.chain(*gathered))


def _concatenated(first: ModelOutput, second: ModelOutput) -> ModelOutput:
    if isinstance(first, tuple):
        return tuple(_concatenated(one, other) for one, other in zip(first, second, strict=True))
    if isinstance(first, Mapping):
        if first.keys() != second.keys():
            raise EvaluationError(
                f"metrics with different auxiliary values cannot be merged: {sorted(first)} and {sorted(second)}"
            )
        return {name: _concatenated(first[name], second[name]) for name in first}
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.shape[1:] == second.shape[1:]:
        return np.concatenate([first, second])
    return [*first, *second]
