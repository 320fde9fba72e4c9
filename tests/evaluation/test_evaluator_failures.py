"""What the evaluator refuses, and what a failure leaves behind: nothing that the next evaluation would notice."""

from __future__ import annotations

import pytest
from eval_tasks_for_tests import (
    PADDED,
    RecordingLogger,
    accuracy,
    arithmetic,
    echo_targets,
    evaluator_of,
    mean_score,
    tokenized,
)

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation import Evaluator, ModelOutputType
from beam_pipes.evaluation.loggers import PyLoggingLogger
from beam_pipes.tasks import Mixture
from beam_pipes.transforms.converters import (
    EncDecFeatureConverter,
)


def test_a_missing_model_function_is_named_before_anything_is_predicted():
    def never(dataset):
        raise AssertionError("predicted although score_fn is missing")

    evaluator = evaluator_of(arithmetic(metric_fns=[accuracy, mean_score]))

    message = (
        "metric 'mean_score' of task 'arithmetic' needs the model output 'score': pass score_fn to evaluate "
        r"\(given: predict_fn\)"
    )
    with pytest.raises(EvaluationError, match=message):
        evaluator.evaluate(compute_metrics=True, predict_fn=never)


def test_a_failed_metric_spares_the_others_and_the_next_evaluation(recorded, tmp_path, caplog):
    failing = {"now": True}

    def flaky(targets, predictions):
        if failing["now"]:
            raise ZeroDivisionError("no references")
        return {"flaky": 1.0}

    mixture = Mixture("all", [(arithmetic(metric_fns=[flaky, accuracy]), 1), (arithmetic("second"), 1)])
    evaluator = evaluator_of(mixture, logger_cls=[RecordingLogger], log_dir=str(tmp_path))

    first, _ = evaluator.evaluate(compute_metrics=True, step=1, predict_fn=echo_targets)
    message = (
        "Failed to evaluate task arithmetic: metric 'flaky' of task 'arithmetic': ZeroDivisionError: no references"
    )
    with pytest.raises(EvaluationError, match=message) as caught:
        first.result()
    failing["now"] = False
    second, _ = evaluator.evaluate(compute_metrics=True, step=2, predict_fn=echo_targets)
    evaluator.close()

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.metrics == {"arithmetic": {"accuracy": 1.0}, "second": {"accuracy": 1.0}}
    assert second.result() == {"arithmetic": {"flaky": 1.0, "accuracy": 1.0}, "second": {"accuracy": 1.0}}
    assert [(call["step"], call["task_name"], sorted(call["metrics"])) for call in recorded] == [
        (1, "arithmetic", ["accuracy"]),
        (1, "second", ["accuracy"]),
        (2, "arithmetic", ["accuracy", "flaky"]),
        (2, "second", ["accuracy"]),
    ]
    assert "The metrics of the previous evaluation failed: Failed to evaluate task arithmetic" in caplog.text


def test_a_failed_metric_leaves_the_outputs_without_a_thread_too(caplog):
    def broken(targets, predictions):
        raise ValueError("broken")

    evaluator = evaluator_of(arithmetic(metric_fns=[broken, accuracy]), async_compute_metrics=False)

    metrics, outputs = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)

    assert len(outputs["arithmetic"][ModelOutputType.PREDICTION]) == 3
    with pytest.raises(EvaluationError, match="metric 'broken' of task 'arithmetic': ValueError: broken") as caught:
        metrics.result()
    assert caught.value.metrics == {"arithmetic": {"accuracy": 1.0}}
    evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)
    assert "The metrics of the previous evaluation failed: Failed to evaluate task arithmetic" in caplog.text


def test_a_metric_that_changes_its_arguments_does_not_change_those_of_the_next():
    def destructive(targets, predictions):
        count = len(targets)
        targets.clear()
        predictions.reverse()
        return {"count": count}

    evaluator = evaluator_of(arithmetic(metric_fns=[destructive, accuracy]))

    for _ in range(2):
        metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)
        assert metrics.result() == {"arithmetic": {"count": 3, "accuracy": 1.0}}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (0.5, "metric 'odd' of task 'arithmetic': it should return a mapping of name to value, got 0.5"),
        ({"odd": "high"}, "the value of 'odd' should be a number or a MetricValue .* got 'high'"),
        ({"odd": [1, 2]}, "the value of 'odd' should be a number or a MetricValue"),
        ({"accuracy": 1}, "Duplicate metric key 'accuracy' in Task 'arithmetic'."),
    ],
)
def test_metrics_that_return_something_else_are_refused(returned, message):
    def odd(targets, predictions):
        return returned

    metrics, _ = evaluator_of(arithmetic(metric_fns=[accuracy, odd])).evaluate(
        compute_metrics=True, predict_fn=echo_targets
    )

    with pytest.raises(EvaluationError, match=message):
        metrics.result()


def test_a_failing_logger_spares_the_other_loggers(recorded, tmp_path):
    class FullDisk(RecordingLogger):
        def __call__(self, **call):
            raise OSError("no space left")

    evaluator = evaluator_of(
        arithmetic(), logger_cls=[FullDisk, RecordingLogger], log_dir=str(tmp_path), async_compute_metrics=False
    )

    metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)

    with pytest.raises(EvaluationError, match="logger FullDisk failed on task 'arithmetic': OSError: no space left"):
        metrics.result()
    assert len(recorded) == 1


def test_outputs_that_leave_examples_out_are_refused():
    with pytest.raises(EvaluationError, match="task 'arithmetic', output 'prediction': outputs are missing for 1 of 3"):
        evaluator_of(arithmetic()).evaluate(compute_metrics=True, predict_fn=lambda dataset: echo_targets(dataset)[:2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"converter": EncDecFeatureConverter(pack=True)}, "During evaluation, packing can't be used."),
        ({"logger_cls": [PyLoggingLogger]}, "'log_dir' must be provided to `Evaluator` if `logger_cls` is non-empty."),
        ({"num_examples": 0}, "num_examples should be an integer of at least 1, got 0"),
        (
            {"shuffle": True, "use_memory_cache": False},
            "shuffle=True gives another order every time .* leave use_memory_cache=True with it",
        ),
    ],
)
def test_an_evaluator_is_checked_when_it_is_made(options, message):
    with pytest.raises(EvaluationError, match=message):
        evaluator_of(arithmetic(), **options)


def test_an_unknown_framework_is_refused():
    with pytest.raises(EvaluationError, match="framework should be one of tensorflow, numpy, got 'jax'"):
        Evaluator(arithmetic(), PADDED, framework="jax")


def test_a_preprocessor_that_needs_lengths_says_so_when_there_are_none():
    def chop(dataset, sequence_length):
        return dataset

    with pytest.raises(EvaluationError, match="Preprocessor 'chop' in task 'arithmetic' has a `sequence_length` argum"):
        evaluator_of(arithmetic(preprocessors=[tokenized, chop]))
