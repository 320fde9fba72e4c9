"""Metric functions, `bleu(targets, predictions)` and `perplexity(targets, scores)`, as metrics.

The names of metrics in one place: values, bases of metric objects, metric functions as metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy.typing as npt

from beam_pipes.evaluation.metric_objects import Audio as Audio
from beam_pipes.evaluation.metric_objects import CollectingMetric as CollectingMetric
from beam_pipes.evaluation.metric_objects import Generic as Generic
from beam_pipes.evaluation.metric_objects import Histogram as Histogram
from beam_pipes.evaluation.metric_objects import Image as Image
from beam_pipes.evaluation.metric_objects import Metric as Metric
from beam_pipes.evaluation.metric_objects import MetricValue as MetricValue
from beam_pipes.evaluation.metric_objects import Scalar as Scalar
from beam_pipes.evaluation.metric_objects import Text as Text
from beam_pipes.evaluation.metric_objects import globally_sort_model_output as globally_sort_model_output
from beam_pipes.evaluation.metric_objects import remove_padding_examples as remove_padding_examples
from beam_pipes.evaluation.model_outputs import (
    Inferences,
    ModelOutput,
    ModelOutputType,
    decode_outputs,
    decoded_targets,
    postprocess_all,
)
from beam_pipes.tasks.in_python.examples import Example as Example
from beam_pipes.tasks.provider import Feature
from beam_pipes.tasks.signatures import MetricFn, Postprocessor, function_name, metric_kind

MetricFnCallable = MetricFn

_OUTPUT_TYPE_OF_KIND = {
    "predict": ModelOutputType.PREDICTION,
    "predict_with_aux": ModelOutputType.PREDICTION_WITH_AUX,
    "score": ModelOutputType.SCORE,
}


def model_output_type_of(metric_fn: MetricFnCallable) -> ModelOutputType:
    """The outputs a metric function asks for by its arguments' names: `f(targets, scores)` → `SCORE`.

    Raises `TaskError` for other names.
    """
    return _OUTPUT_TYPE_OF_KIND[metric_kind(metric_fn)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricArguments:
    """The arguments for metric functions of one output type, and what loggers write of them."""

    arguments: Mapping[str, object]
    inferences: Inferences


def metric_arguments(
    output_type: ModelOutputType,
    model_output: ModelOutput,
    examples: Sequence[Example],
    features: Mapping[str, Feature],
    targets: list[object],
    *,
    target_field_name: str = "targets",
    postprocessor: Postprocessor | None = None,
    where: str = "evaluation",
) -> MetricArguments:
    """Decodes and postprocesses model outputs for metric functions.

    Predictions `[[72, 105, 1]]` → `{"targets": […], "predictions": ["Hi"]}`; scores are passed on unchanged.
    """
    if output_type == ModelOutputType.SCORE:
        return MetricArguments(
            arguments={"targets": targets, "scores": model_output}, inferences={"score": model_output}
        )
    arguments: dict[str, object] = {"targets": targets}
    inferences: dict[str, object] = {}
    if output_type == ModelOutputType.PREDICTION_WITH_AUX:
        model_output, arguments["aux_values"] = model_output
        inferences["aux_value"] = arguments["aux_values"]
    decoded = inferences["output"] = decode_outputs(model_output, features[target_field_name], where)
    predictions = postprocess_all(decoded, examples, postprocessor, is_target=False, where=where)
    arguments["predictions"] = inferences["prediction"] = predictions
    return MetricArguments(arguments=arguments, inferences=inferences)


def postprocessed_targets(
    examples: Sequence[Example],
    features: Mapping[str, Feature],
    *,
    target_field_name: str = "targets",
    postprocessor: Postprocessor | None = None,
    where: str = "evaluation",
) -> list[object]:
    """The targets as metrics compare them."""
    decoded = decoded_targets(examples, features, target_field_name, where)
    return postprocess_all(decoded, examples, postprocessor, is_target=True, where=where)


@dataclasses.dataclass(frozen=True)
class LegacyMetric(Metric):
    """A metric function as a metric object: `LegacyMetric.empty(f, postprocess).from_model_output(…).compute()`.

    Every step returns a new object, so that no state carries over to the next evaluation.
    """

    metric_fn: MetricFnCallable
    postprocessor: Postprocessor | None = None
    metric_fn_kwargs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    targets_and_inferences: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @classmethod
    def empty(  # type: ignore[override]  # an empty one needs its function
        cls, metric_fn: MetricFnCallable, postprocess_fn: Postprocessor | None
    ) -> LegacyMetric:
        return cls(model_output_type=model_output_type_of(metric_fn), metric_fn=metric_fn, postprocessor=postprocess_fn)

    def from_model_output(  # type: ignore[override]  # an instance carries the function
        self,
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: npt.ArrayLike | None = None,
        indices_2d: npt.ArrayLike | None = None,
    ) -> LegacyMetric:
        overridden = type(self).postprocess_fn is not LegacyMetric.postprocess_fn
        postprocessor = self.postprocess_fn if overridden else self.postprocessor
        made = PassthroughLegacyMetric.from_metric_fn(self.metric_fn, postprocessor)
        collected = made.from_model_output(inputs, model_output, features, target_field_name, mask, indices_2d)
        arguments, targets = collected.arguments_for(list(inputs), features, target_field_name)
        return dataclasses.replace(
            self,
            metric_fn_kwargs=arguments.arguments,
            targets_and_inferences={"targets": targets, **arguments.inferences},
        )

    # Names of SeqIO, for subclasses that use them.

    @property
    def _metric_fn(self) -> MetricFnCallable:
        return self.metric_fn

    @property
    def _postprocess_fn(self) -> Postprocessor | None:
        return self.postprocessor

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
            "model_output_type": model_output_type_of(metric_fn),
            "__doc__": metric_fn.__doc__,
        }
        return type(function_name(metric_fn), (cls,), members)

    @classmethod
    def postprocess(cls, targets_or_predictions: object, **postprocess_kwargs: object) -> object:
        """One postprocessed target or prediction."""
        if cls.postprocessor is None:
            return targets_or_predictions
        return cls.postprocessor(targets_or_predictions, **postprocess_kwargs)

    def arguments_for(
        self,
        examples: Sequence[Example],
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        targets: list[object] | None = None,
    ) -> tuple[MetricArguments, list[object]]:
        """What the function is to be called with, and the postprocessed targets."""
        where = f"metric '{type(self).__name__}'"
        postprocessor = type(self).postprocessor
        if targets is None:
            targets = postprocessed_targets(
                examples, features, target_field_name=target_field_name, postprocessor=postprocessor, where=where
            )
        arguments = metric_arguments(
            type(self).model_output_type,
            self.outputs_in_order(),
            examples,
            features,
            targets,
            target_field_name=target_field_name,
            postprocessor=postprocessor,
            where=where,
        )
        return arguments, targets

    def actual_compute(
        self,
        task_dataset_as_numpy: Sequence[Example],
        task_output_features: Mapping[str, Feature],
        target_field_name: str = "targets",
        cached_targets: list[object] | None = None,
    ) -> tuple[Mapping[str, object], Mapping[str, object]]:
        examples = list(task_dataset_as_numpy)
        arguments, targets = self.arguments_for(examples, task_output_features, target_field_name, cached_targets)
        values = type(self).metric_fn(**arguments.arguments)
        return values, {"targets": targets, **arguments.inferences}
