"""Metric values, metric objects and metric functions as metrics."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from beam_pipes.errors import EvaluationError, TaskError
from beam_pipes.evaluation.metrics import (
    Audio,
    CollectingMetric,
    Histogram,
    Image,
    LegacyMetric,
    Metric,
    ModelOutputType,
    PassthroughLegacyMetric,
    Scalar,
    Text,
    globally_sort_model_output,
    remove_padding_examples,
)
from beam_pipes.tasks import ByteVocabulary, Feature

FEATURES = {"targets": Feature(ByteVocabulary())}
WORDS = ["Hi", "Ho!", "Hey"]
IDS = [FEATURES["targets"].vocabulary.encode(word) for word in WORDS]
EXAMPLES = [{"targets": np.array(ids, np.int32)} for ids in IDS]


def exact(targets, predictions):
    return {"exact": float(np.mean([t == p for t, p in zip(targets, predictions, strict=True)]))}


def mean_score(targets, scores):
    return {"mean_score": float(np.mean(scores))}


def spread(targets, predictions, aux_values):
    return {"spread": max(aux_values["scores"]) - min(aux_values["scores"])}


def test_values_with_arrays_compare_by_content():
    assert Scalar(0.5) == Scalar(0.5) != Scalar(0.25)
    assert Text("a") != Scalar("a")
    assert Image(np.zeros((1, 2, 2, 3))) == Image(np.zeros((1, 2, 2, 3)))
    assert Histogram(np.array([1, 2])) != Histogram(np.array([1, 3]))
    assert Audio(np.zeros((1, 4, 1)), max_outputs=2) != Audio(np.zeros((1, 4, 1)))
    assert (Audio(np.zeros(1)).sample_rate, Image(np.zeros(1)).max_outputs, Histogram(np.zeros(1)).bins) == (
        44100,
        3,
        None,
    )


@pytest.mark.parametrize(
    ("metric_fn", "outputs", "expected", "logged"),
    [
        (exact, IDS, {"exact": 1.0}, {"output", "prediction"}),
        (mean_score, [1.0, 2.0, 3.0], {"mean_score": 2.0}, {"score"}),
        (spread, (IDS, {"scores": [0.5, 3.0, 1.0]}), {"spread": 2.5}, {"output", "prediction", "aux_value"}),
    ],
)
def test_metric_functions_are_metrics_by_their_signature(metric_fn, outputs, expected, logged):
    collected = PassthroughLegacyMetric.from_metric_fn(metric_fn).from_model_output(EXAMPLES, outputs, FEATURES)
    legacy = LegacyMetric.empty(metric_fn, None).from_model_output(EXAMPLES, outputs, FEATURES)

    values, recorded = collected.actual_compute(EXAMPLES, FEATURES)

    assert values == expected == legacy.compute()
    assert set(recorded) == {"targets"} | logged == set(legacy.targets_and_inferences)
    assert recorded["targets"] == WORDS


def test_collected_outputs_are_masked_and_sorted_over_hosts():
    metric = PassthroughLegacyMetric.from_metric_fn(exact)
    first = metric.from_model_output(
        EXAMPLES, [IDS[2], IDS[0]], FEATURES, mask=np.array([1, 1]), indices_2d=np.array([[1, 0], [0, 0]])
    )
    second = metric.from_model_output(
        EXAMPLES, [IDS[1], [9]], FEATURES, mask=np.array([1, 0]), indices_2d=np.array([[0, 1], [0, 2]])
    )

    values, recorded = (
        metric.empty().merge(first).merge(metric.empty()).merge(second).actual_compute(EXAMPLES, FEATURES)
    )

    assert recorded["prediction"] == WORDS
    assert values == {"exact": 1.0}


def test_merging_keeps_arrays_and_auxiliary_values():
    def collected(outputs, scores):
        return CollectingMetric.from_model_output([], (np.array(outputs), {"scores": np.array(scores)}), {})

    output, aux = collected([[1, 2]], [0.5]).merge(collected([[3, 4]], [0.25])).outputs_in_order()

    assert output.tolist() == [[1, 2], [3, 4]]
    assert aux["scores"].tolist() == [0.5, 0.25]
    with pytest.raises(
        EvaluationError, match="different auxiliary values cannot be merged: \\['scores'\\] and \\['b'\\]"
    ):
        collected([[1]], [1]).merge(CollectingMetric.from_model_output([], ([[1]], {"b": [1]}), {}))


def test_padding_is_removed_and_the_rest_sorted_by_host_and_example():
    indices, kept = remove_padding_examples(["c", "x", "a"], [[1, 0], [0, 5], [0, 0]], [1, 0, 1])

    assert kept == ["c", "a"]
    assert globally_sort_model_output(kept, indices) == ["a", "c"]


def test_a_legacy_metric_postprocesses_and_leaves_nothing_behind():
    metric = LegacyMetric.empty(exact, lambda text, example, is_target: text.lower() if is_target else text)

    evaluated = metric.from_model_output(EXAMPLES, IDS, FEATURES)

    assert evaluated.compute() == {"exact": 0.0}
    assert metric.metric_fn_kwargs == {}


def test_the_class_of_a_metric_function_postprocesses_and_bears_its_name():
    metric = PassthroughLegacyMetric.from_metric_fn(exact, lambda text, **others: text.upper())

    assert metric.__name__ == "exact"
    assert metric.model_output_type is ModelOutputType.PREDICTION
    assert metric.postprocess("hi", is_target=True) == "HI"
    assert PassthroughLegacyMetric.from_metric_fn(exact).postprocess("hi") == "hi"


def test_other_arguments_are_refused():
    with pytest.raises(TaskError, match=r"must have positional arguments matching either .* Got: \('labels',\)"):
        PassthroughLegacyMetric.from_metric_fn(lambda labels: {})


def test_a_metric_without_its_methods_says_which():
    metric = Metric(ModelOutputType.SCORE)

    for call, name in (
        (lambda: Metric.from_model_output([], [], {}), "from_model_output"),
        (lambda: metric.merge(metric), "merge"),
        (metric.compute, "compute"),
        (lambda: CollectingMetric({}).actual_compute([], {}), "actual_compute"),
    ):
        with pytest.raises(NotImplementedError, match=rf"Must override {name}\(\)"):
            call()


def test_metrics_may_be_frozen_dataclasses_as_their_docstring_shows():
    @dataclasses.dataclass(frozen=True)
    class MeanLength(Metric):
        model_output_type: ModelOutputType = ModelOutputType.PREDICTION
        total: int = 0
        count: int = 0

        @classmethod
        def from_model_output(
            cls, inputs, model_output, features, target_field_name="targets", mask=None, indices_2d=None
        ):
            return cls(total=sum(len(tokens) for tokens in model_output), count=len(model_output))

        def compute(self):
            return {"mean_length": self.total / self.count}

    assert MeanLength.model_output_type is ModelOutputType.PREDICTION
    assert MeanLength.from_model_output(EXAMPLES, [[1], [1, 2, 3]], FEATURES).compute() == {"mean_length": 2.0}
