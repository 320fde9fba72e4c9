"""The evaluator without TensorFlow: what is called when, and with what."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from eval_tasks_for_tests import (
    PADDED,
    VOCABULARY,
    RecordingLogger,
    accuracy,
    arithmetic,
    best_beam,
    echo_targets,
    evaluator_of,
    mean_score,
    scores_of,
    tokenized,
    without_text,
)

from beam_pipes.errors import EvaluationError, UnknownNameError
from beam_pipes.evaluation import EnumeratedExamples, Evaluator, ModelOutputType, evaluate_mixture, merge_hosts
from beam_pipes.evaluation.loggers import JSONLogger
from beam_pipes.evaluation.metrics import CollectingMetric, LegacyMetric, Metric, Scalar
from beam_pipes.tasks import Mixture, TaskRegistry, python_map
from beam_pipes.transforms.converters import (
    DecoderFeatureConverter,
    EncDecFeatureConverter,
    FeatureSpec,
    LMFeatureConverter,
    PassThroughFeatureConverter,
)


def test_a_perfect_model_is_accurate_whatever_the_order_of_its_outputs():
    metrics, outputs = evaluator_of(arithmetic()).evaluate(compute_metrics=True, step=1, predict_fn=echo_targets)

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}
    decoded = [VOCABULARY.decode(ids) for ids in outputs["arithmetic"][ModelOutputType.PREDICTION]]
    assert decoded == ["four", "two", "three"]


def test_model_functions_get_enumerated_examples_of_the_longest_lengths():
    evaluator = evaluator_of(arithmetic())

    dataset = evaluator.cached_model_datasets["arithmetic"]

    assert isinstance(dataset, EnumeratedExamples)
    assert [index for index, _ in dataset] == [0, 1, 2]
    assert evaluator.model_feature_shapes == {
        "encoder_input_tokens": (4,),
        "decoder_target_tokens": (6,),
        "decoder_input_tokens": (6,),
        "decoder_loss_weights": (6,),
    }
    indices, batch = list(dataset.batch(2))[1]
    assert indices.tolist() == [2]
    assert batch["encoder_input_tokens"].shape == (1, 4)
    assert len(evaluator.cached_task_datasets["arithmetic"]) == 3
    assert list(dataset.as_numpy_iterator())[1][0] == 1


def test_lengths_that_are_given_cut_the_examples(caplog):
    evaluator = evaluator_of(arithmetic(), sequence_length={"targets": 3})

    assert evaluator.model_feature_shapes["decoder_target_tokens"] == (3,)
    assert evaluator.model_feature_shapes["encoder_input_tokens"] == (4,)
    assert "*may be* insufficient" in caplog.text


def test_lengths_that_are_too_long_are_reported(caplog):
    evaluator_of(arithmetic(), sequence_length={"inputs": 9, "targets": None})

    assert "longer than necessary" in caplog.text


def test_each_task_of_a_mixture_is_evaluated_whatever_its_rate(caplog, recorded, tmp_path):
    caplog.set_level(logging.INFO)
    other = arithmetic("other", metric_fns=[mean_score])
    unmeasured = arithmetic("unmeasured", metric_fns=[])
    mixture = Mixture("all", [(arithmetic(), 1), (other, 1000), (unmeasured, 3)])

    with evaluator_of(mixture, logger_cls=[RecordingLogger], log_dir=str(tmp_path)) as evaluator:
        metrics, _ = evaluator.evaluate(compute_metrics=True, step=5, predict_fn=echo_targets, score_fn=scores_of)

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0}, "other": {"mean_score": Scalar(1.0)}}
    assert [(call["task_name"], call["step"], call["metrics"]) for call in recorded] == [
        ("arithmetic", 5, {"accuracy": Scalar(1.0)}),
        ("other", 5, {"mean_score": Scalar(1.0)}),
    ]
    assert "Task unmeasured has no metrics defined; skipping eval." in caplog.text


def test_tasks_without_the_split_are_skipped_and_none_is_not_an_error(caplog):
    caplog.set_level(logging.INFO)

    evaluator = evaluator_of(arithmetic(), eval_split="test")
    metrics, outputs = evaluator.evaluate(compute_metrics=True)

    assert (metrics.result(), outputs, evaluator.eval_tasks) == ({}, {}, [])
    assert "Task arithmetic has no 'test' split; skipping eval." in caplog.text
    assert "No eval task with valid split and metric fn found" in caplog.text


def test_an_empty_split_is_a_split():
    def count(targets, predictions):
        return {"count": len(targets)}

    evaluator = evaluator_of(arithmetic(metric_fns=[count]), eval_split="empty")

    metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)

    assert metrics.result() == {"arithmetic": {"count": 0}}
    assert evaluator.model_feature_shapes == {}


def test_hosts_predict_their_shares_and_only_the_first_logs(recorded, tmp_path):
    def predict_on_three_hosts(dataset):
        return merge_hosts([echo_targets(dataset.shard(num_shards=3, index=host)) for host in (2, 0, 1)])

    for host_index in (0, 1):
        evaluator = evaluator_of(
            arithmetic(), logger_cls=[RecordingLogger], log_dir=str(tmp_path), host_index=host_index
        )
        metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=predict_on_three_hosts)
        assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}
        evaluator.close()

    assert len(recorded) == 1


def test_predictions_scores_and_auxiliary_values_go_to_the_metrics_that_ask(recorded, tmp_path):
    task = arithmetic(metric_fns=[accuracy, mean_score, best_beam])

    def with_beams(dataset):
        pairs = echo_targets(dataset)
        return pairs, {"beam": [index * 10 for index, _ in pairs]}

    with evaluator_of(task, logger_cls=[RecordingLogger], log_dir=str(tmp_path)) as evaluator:
        metrics, outputs = evaluator.evaluate(
            compute_metrics=True, predict_fn=echo_targets, score_fn=scores_of, predict_with_aux_fn=with_beams
        )

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0, "mean_score": Scalar(1.0), "best_beam": 20}}
    assert set(outputs["arithmetic"]) == {
        ModelOutputType.PREDICTION,
        ModelOutputType.SCORE,
        ModelOutputType.PREDICTION_WITH_AUX,
    }
    (call,) = recorded
    assert call["targets"] == ["four", "two", "three"]
    assert call["inferences"]["prediction"] == ["four", "two", "three"]
    assert call["inferences"]["score"] == [0.0, 1.0, 2.0]
    assert call["inferences"]["aux_value"]["beam"].tolist() == [0, 10, 20]


def test_several_predictions_an_example_are_decoded_each():
    def any_right(targets, predictions):
        return {"any": float(np.mean([t in p for t, p in zip(targets, predictions, strict=True)]))}

    def two_beams(dataset):
        return [(index, [tokens, VOCABULARY.encode("zero")]) for index, tokens in echo_targets(dataset)]

    metrics, _ = evaluator_of(arithmetic(metric_fns=[any_right])).evaluate(compute_metrics=True, predict_fn=two_beams)

    assert metrics.result() == {"arithmetic": {"any": 1.0}}


def test_ragged_scores_stay_lists_and_even_ones_become_an_array():
    kinds = []

    def kind(targets, scores):
        kinds.append(type(scores))
        return {"n": len(scores)}

    evaluator = evaluator_of(arithmetic(metric_fns=[kind]))

    for score_fn in (lambda ds: [(i, [0.5] * (i + 1)) for i, _ in ds], lambda ds: [(i, [0.5]) for i, _ in ds]):
        evaluator.evaluate(compute_metrics=True, score_fn=score_fn)[0].result()
    assert kinds == [list, np.ndarray]


def test_targets_without_kept_text_are_decoded():
    task = arithmetic(preprocessors=[tokenized, without_text])

    metrics, _ = evaluator_of(task).evaluate(compute_metrics=True, predict_fn=echo_targets)

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}


def test_targets_are_postprocessed_once_and_predictions_every_time():
    calls = []

    def postprocess(text, example, is_target):
        calls.append(is_target)
        return (example["targets_pretokenized"].decode(), is_target) if is_target else (text, True)

    evaluator = evaluator_of(arithmetic(postprocess_fn=postprocess))

    for _ in range(2):
        metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)
        assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}
    assert (calls.count(True), calls.count(False)) == (3, 6)


def test_model_functions_may_be_given_by_output_type():
    metrics, _ = evaluator_of(arithmetic()).evaluate(
        compute_metrics=True, model_fns={ModelOutputType.PREDICTION: echo_targets}
    )

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}


def test_without_metrics_only_outputs_are_returned():
    metrics, outputs = evaluator_of(arithmetic()).evaluate(compute_metrics=False, predict_fn=echo_targets)

    assert metrics.result() is None
    assert len(outputs["arithmetic"][ModelOutputType.PREDICTION]) == 3


@dataclasses.dataclass(frozen=True)
class TokenCount(Metric):
    model_output_type: ModelOutputType = ModelOutputType.PREDICTION
    total: int = 0

    @classmethod
    def from_model_output(cls, inputs, model_output, features, target_field_name="targets", mask=None, indices_2d=None):
        assert len(inputs) == len(model_output)
        return cls(total=sum(len(tokens) for tokens in model_output))

    def compute(self):
        return {"tokens": self.total}


class WorstScore(CollectingMetric):
    model_output_type = ModelOutputType.SCORE_WITH_INTERMEDIATES

    def actual_compute(
        self, task_dataset_as_numpy, task_output_features, target_field_name="targets", cached_targets=None
    ):
        scores, intermediates = self.outputs_in_order()
        worst = int(np.argmin(scores))
        return {"worst_entropy": float(intermediates["entropy"][worst])}, {
            "targets": ["a", "b", "c"],
            "score": scores,
        }


def test_metric_objects_stand_beside_functions(recorded, tmp_path):
    task = arithmetic(metric_objs=[TokenCount, WorstScore, LegacyMetric.empty(mean_score, None)])

    def score_with_entropy(dataset):
        indices = [index for index, _ in dataset]
        return [(index, -float(index)) for index in indices], {"entropy": [index + 0.5 for index in indices]}

    with evaluator_of(task, logger_cls=[RecordingLogger], log_dir=str(tmp_path)) as evaluator:
        metrics, _ = evaluator.evaluate(
            compute_metrics=True,
            predict_fn=echo_targets,
            score_fn=scores_of,
            model_fns={ModelOutputType.SCORE_WITH_INTERMEDIATES: score_with_entropy},
        )

    assert metrics.result() == {
        "arithmetic": {
            "tokens": len("fourtwothree") + 3,
            "worst_entropy": 2.5,
            "mean_score": Scalar(1.0),
            "accuracy": 1.0,
        }
    }
    assert recorded[0]["targets"] == ["four", "two", "three"]
    assert recorded[0]["inferences"]["score"] == [0.0, 1.0, 2.0]


def test_what_is_not_a_metric_object_is_refused():
    with pytest.raises(EvaluationError, match="metric object 'accuracy' of task 'arithmetic' should have model_output"):
        evaluator_of(arithmetic(metric_objs=[accuracy]))


def test_other_converters_get_the_features_they_convert():
    assert set(evaluator_of(arithmetic(), DecoderFeatureConverter(pack=False)).model_feature_shapes.values()) == {(10,)}
    language_model = evaluator_of(arithmetic(), LMFeatureConverter(pack=False))
    assert set(language_model.model_feature_shapes.values()) == {(6,)}
    passed = evaluator_of(arithmetic(), PassThroughFeatureConverter())
    assert [len(example["targets"]) for _, example in passed.cached_model_datasets["arithmetic"]] == [5, 4, 6]


def test_passthrough_features_are_measured_too():
    @python_map
    def weighted(example):
        return {**example, "weights": np.ones(len(example["targets"]), np.float32), "id": np.int64(7)}

    converter = EncDecFeatureConverter(
        pack=False, passthrough_features={"weights": FeatureSpec("float32"), "id": FeatureSpec("int64", rank=0)}
    )

    evaluator = evaluator_of(arithmetic(preprocessors=[tokenized, weighted]), converter)

    assert evaluator.model_feature_shapes["weights"] == (6,)


def test_a_preprocessor_that_needs_lengths_gets_them(caplog):
    @python_map
    def chop(example, sequence_length):
        return {**example, "targets": example["targets"][: sequence_length["targets"]]}

    evaluator = evaluator_of(arithmetic(preprocessors=[tokenized, chop]), sequence_length={"inputs": 4, "targets": 3})

    assert evaluator.model_feature_shapes["decoder_target_tokens"] == (3,)
    assert "insufficient" not in caplog.text


def test_a_few_examples_are_enough_when_asked_and_need_not_be_kept():
    evaluator = evaluator_of(arithmetic(), num_examples=2, use_memory_cache=False)

    metrics, outputs = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}
    assert len(outputs["arithmetic"][ModelOutputType.PREDICTION]) == 2


def test_examples_may_be_shuffled_and_stay_with_their_outputs():
    metrics, outputs = evaluator_of(arithmetic(), shuffle=True, seed=1).evaluate(
        compute_metrics=True, predict_fn=echo_targets
    )

    assert metrics.result() == {"arithmetic": {"accuracy": 1.0}}
    decoded = {VOCABULARY.decode(ids) for ids in outputs["arithmetic"][ModelOutputType.PREDICTION]}
    assert decoded == {"four", "two", "three"}


def test_names_are_looked_up_in_the_registries():
    with pytest.raises(UnknownNameError, match="No Task or Mixture found with name 'nobody_knows'"):
        Evaluator("nobody_knows", PADDED)


def test_one_call_evaluates_a_registered_task_without_tensorflow(tmp_path):
    script = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from eval_tasks_for_tests import arithmetic, echo_targets
        from beam_pipes.evaluation import evaluate_mixture
        from beam_pipes.transforms.converters import EncDecFeatureConverter

        found = evaluate_mixture(arithmetic(), EncDecFeatureConverter(pack=False), predict_fn=echo_targets)
        heavy = [name for name in ("tensorflow", "jax", "torch", "apache_beam") if name in sys.modules]
        print(found, heavy)
    """

    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )

    assert run.stdout.strip() == "{'arithmetic': {'accuracy': 1.0}} []"


def test_one_call_finds_a_task_by_name_and_raises_what_fails(monkeypatch):
    TaskRegistry.add_provider("evaluated_by_name", arithmetic("evaluated_by_name", metric_fns=[accuracy, mean_score]))
    try:
        found = evaluate_mixture("evaluated_by_name", PADDED, predict_fn=echo_targets, score_fn=scores_of)
        first = evaluate_mixture(
            "evaluated_by_name", PADDED, predict_fn=echo_targets, score_fn=scores_of, num_examples=1, seed=None
        )
        with pytest.raises(EvaluationError, match="needs the model output 'score': pass score_fn"):
            evaluate_mixture("evaluated_by_name", PADDED, predict_fn=echo_targets)
    finally:
        TaskRegistry.remove("evaluated_by_name")

    assert found == {"evaluated_by_name": {"accuracy": 1.0, "mean_score": Scalar(1.0)}}
    assert first == {"evaluated_by_name": {"accuracy": 1.0, "mean_score": Scalar(0.0)}}


def test_json_logs_of_an_evaluation_hold_inputs_predictions_and_metrics(tmp_path):
    with evaluator_of(arithmetic(), logger_cls=[JSONLogger], log_dir=str(tmp_path)) as evaluator:
        evaluator.evaluate(compute_metrics=True, step=3, predict_fn=echo_targets)

    assert json.loads((tmp_path / "arithmetic-metrics.jsonl").read_text()) == {"step": 3, "accuracy": 1.0}
    first = json.loads((tmp_path / "arithmetic-000003.jsonl").read_text().splitlines()[0])
    assert first["input"]["targets_pretokenized"] == first["target"] == first["prediction"] == "four"


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda examples: examples.shard(2, 2), r"the index of a shard should be an integer from 0 to 1, got 2"),
        (lambda examples: list(examples.batch(0)), "batch_size should be an integer of at least 1, got 0"),
    ],
)
def test_enumerated_examples_refuse_impossible_shares(use, message):
    with pytest.raises(EvaluationError, match=message):
        use(EnumeratedExamples([{}]))
