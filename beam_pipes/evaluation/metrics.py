"""The values that metrics return, the interface of metrics, and metric functions as metrics.

A metric returns numbers, texts, pictures, sounds, distributions, or any tensor for TensorBoard. The protocol of metrics
is that of CLU: a metric is made from model outputs, two of them merge into one, and `compute` gives the values;
`reduce`, `from_fun`, `from_output` and `compute_value` exist too. Any object with `model_output_type`,
`from_model_output` and `compute` is a metric; these classes import neither JAX nor CLU, and may be decorated with
`flax.struct.dataclass` or `dataclasses.dataclass(frozen=True)`. Functions, `bleu(targets, predictions)` and
`perplexity(targets, scores)`, become metrics by `PassthroughLegacyMetric.from_metric_fn`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.model_outputs import ModelOutput, decode_outputs, decoded_targets, mapped, postprocess_all
from beam_pipes.evaluation.model_outputs import ModelOutputType as ModelOutputType
from beam_pipes.format.dtypes import Array
from beam_pipes.tasks.steps.examples import Example
from beam_pipes.tasks.steps.features import Feature
from beam_pipes.tasks.steps.signatures import MetricFn, Postprocessor, function_name, metric_kind

if TYPE_CHECKING:
    import tensorflow as tf

MetricFnCallable = MetricFn


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
    """A number: `Scalar(0.5)`. A bare number returned by a metric becomes one."""

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
    """The methods that CLU offers on every metric besides `from_model_output`, `merge` and `compute`."""

    @classmethod
    def empty(cls: type[_Metric]) -> _Metric:
        """A metric of no outputs, the initial value for merging."""
        raise NotImplementedError("Must override empty()")

    def compute(self) -> Any:
        """Name → value."""
        raise NotImplementedError("Must override compute()")

    def compute_value(self) -> Scalar:
        """`compute()` as a value for loggers."""
        return Scalar(self.compute())

    def merge(self: _Metric, other: _Metric) -> _Metric:
        """A metric over the outputs of both."""
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

        return cls.from_fun(lambda **model_output: np.asarray(model_output[name]))


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

        `inputs`: the examples. `model_output`: one output for each example, in order; an array if all have one shape,
        else a list; with auxiliary values a pair. `features`: of the task. `mask`: 1 for examples that count, 0 for
        padding. `indices_2d`: (host, example) of each, if several hosts contribute.
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
        """A metric of no outputs, the initial value for merging."""
        return cls(values={})

    def merge(self: _Collecting, other: _Collecting) -> _Collecting:
        """The outputs of both, those of `self` first; `actual_compute` sorts them."""
        if not self.values or not other.values:
            return self if self.values else other
        return type(self)(values=mapped(_concatenated, self.values, other.values))

    def reduce(self: _Collecting) -> _Collecting:
        """Concatenates the outputs gathered from several hosts; their first axis is the host."""
        return type(self)(values=mapped(lambda gathered: _concatenated(*gathered), self.values))

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
        """Name → value, and the inferences for loggers: `{"targets": …, "prediction": …}`, one entry per example.

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
    def taken(values: ModelOutput) -> ModelOutput:
        return [values[place] for place in places] if isinstance(values, list) else np.asarray(values)[places]

    return mapped(taken, output)


def _concatenated(*parts: ModelOutput) -> ModelOutput:
    """One array if the arrays differ only in their first axis, otherwise a list."""
    if parts and all(isinstance(part, np.ndarray) and part.shape[1:] == parts[0].shape[1:] for part in parts):
        return np.concatenate(parts)
    return list(itertools.chain(*parts))


def function_arguments(
    output_type: ModelOutputType,
    model_output: ModelOutput,
    examples: Sequence[Example],
    features: Mapping[str, Feature],
    target_field_name: str,
    *,
    postprocessor: Postprocessor | None,
    where: str,
    targets: list[object] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a metric function, decoded and postprocessed, and its inferences for loggers.

    Predictions `[[72, 105, 1]]` → `{"targets": […], "predictions": ["Hi"]}`; scores are passed on unchanged. `targets`
    are those of an earlier evaluation, already postprocessed.
    """
    if targets is None:
        decoded = decoded_targets(examples, features, target_field_name, where)
        targets = postprocess_all(decoded, examples, postprocessor, is_target=True, where=where)
    arguments: dict[str, Any] = {"targets": targets}
    recorded: dict[str, Any] = {"targets": targets}
    if output_type == ModelOutputType.SCORE:
        arguments["scores"] = recorded["score"] = model_output
        return arguments, recorded
    if output_type == ModelOutputType.PREDICTION_WITH_AUX:
        model_output, auxiliary = model_output
        arguments["aux_values"] = recorded["aux_value"] = auxiliary
    decoded = recorded["output"] = decode_outputs(model_output, features[target_field_name], where)
    predictions = postprocess_all(decoded, examples, postprocessor, is_target=False, where=where)
    arguments["predictions"] = recorded["prediction"] = predictions
    return arguments, recorded


_OUTPUT_TYPE_OF_KIND = {
    "predict": ModelOutputType.PREDICTION,
    "predict_with_aux": ModelOutputType.PREDICTION_WITH_AUX,
    "score": ModelOutputType.SCORE,
}


@dataclasses.dataclass(frozen=True)
class LegacyMetric(Metric):
    """A metric function as a metric object: `LegacyMetric.empty(f, postprocess).from_model_output(…).compute()`.

    Every step returns a new object, so that no state carries over to the next evaluation.
    """

    metric_fn: MetricFnCallable
    postprocessor: Postprocessor | None = None
    metric_fn_kwargs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    targets_and_inferences: Mapping[str, object] = dataclasses.field(default_factory=dict)

    # SeqIO's names, for subclasses that use them.
    _metric_fn = property(lambda self: self.metric_fn)
    _postprocess_fn = property(lambda self: self.postprocessor)

    @classmethod
    def empty(  # type: ignore[override]  # an empty one needs its function
        cls, metric_fn: MetricFnCallable, postprocess_fn: Postprocessor | None
    ) -> LegacyMetric:
        output_type = _OUTPUT_TYPE_OF_KIND[metric_kind(metric_fn)]
        return cls(model_output_type=output_type, metric_fn=metric_fn, postprocessor=postprocess_fn)

    def from_model_output(  # type: ignore[override]  # an instance carries the function
        self,
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: npt.ArrayLike | None = None,
        indices_2d: npt.ArrayLike | None = None,
    ) -> LegacyMetric:
        collected = CollectingMetric.from_model_output(inputs, model_output, features, mask=mask, indices_2d=indices_2d)
        overridden = type(self).postprocess_fn is not LegacyMetric.postprocess_fn
        arguments, recorded = function_arguments(
            self.model_output_type,
            collected.outputs_in_order(),
            list(inputs),
            features,
            target_field_name,
            postprocessor=self.postprocess_fn if overridden else self.postprocessor,
            where=f"metric '{function_name(self.metric_fn)}'",
        )
        return dataclasses.replace(self, metric_fn_kwargs=arguments, targets_and_inferences=recorded)

    def postprocess_fn(self, targets_or_predictions: object, **postprocess_kwargs: object) -> object:
        """One postprocessed target or prediction; itself without a postprocessor."""
        if self.postprocessor is None:
            return targets_or_predictions
        return self.postprocessor(targets_or_predictions, **postprocess_kwargs)

    def compute(self) -> Mapping[str, object]:
        return self.metric_fn(**self.metric_fn_kwargs)


class PassthroughLegacyMetric(CollectingMetric):
    """Makes metric classes of metric functions: `PassthroughLegacyMetric.from_metric_fn(bleu, postprocess)`."""

    metric_fn: ClassVar[MetricFnCallable]
    postprocessor: ClassVar[Postprocessor | None]
    model_output_type: ClassVar[ModelOutputType]

    @classmethod
    def from_metric_fn(
        cls, metric_fn: MetricFnCallable, postprocess_fn: Postprocessor | None = None
    ) -> type[PassthroughLegacyMetric]:
        """A metric class that calls `metric_fn` with decoded and postprocessed targets and outputs.

        Raises `TaskError` unless the function's arguments are `targets` and `predictions`, `scores`, or `predictions`
        and `aux_values`.
        """
        members = {
            "metric_fn": staticmethod(metric_fn),
            "postprocessor": postprocess_fn and staticmethod(postprocess_fn),
            "model_output_type": _OUTPUT_TYPE_OF_KIND[metric_kind(metric_fn)],
            "__doc__": metric_fn.__doc__,
        }
        return type(function_name(metric_fn), (cls,), members)

    @classmethod
    def postprocess(cls, targets_or_predictions: object, **postprocess_kwargs: object) -> object:
        """One postprocessed target or prediction."""
        if cls.postprocessor is None:
            return targets_or_predictions
        return cls.postprocessor(targets_or_predictions, **postprocess_kwargs)

    def actual_compute(
        self,
        task_dataset_as_numpy: Sequence[Example],
        task_output_features: Mapping[str, Feature],
        target_field_name: str = "targets",
        cached_targets: list[object] | None = None,
    ) -> tuple[Mapping[str, object], Mapping[str, object]]:
        arguments, recorded = function_arguments(
            type(self).model_output_type,
            self.outputs_in_order(),
            list(task_dataset_as_numpy),
            task_output_features,
            target_field_name,
            postprocessor=type(self).postprocessor,
            where=f"metric '{type(self).__name__}'",
            targets=cached_targets,
        )
        return type(self).metric_fn(**arguments), recorded
