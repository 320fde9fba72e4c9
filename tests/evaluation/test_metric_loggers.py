"""Loggers to Python's logging and to JSON, and the encoder."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import math

import ml_dtypes
import numpy as np
import pytest

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.loggers import LOGGERS, JSONLogger, PyLoggingLogger, TensorAndNumpyEncoder
from beam_pipes.evaluation.metrics import Generic, Histogram, Image, Scalar, Text

METRICS = {"bleu": Scalar(27.5), "sample": Text("gut"), "image": Image(np.zeros((1, 2, 2, 3)))}


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def log(logger, metrics=METRICS, step=1000, dataset=None, inferences=None, targets=None):
    logger(task_name="wmt", step=step, metrics=metrics, dataset=dataset, inferences=inferences, targets=targets)


def test_the_python_log_names_task_metric_and_step(caplog):
    caplog.set_level(logging.INFO, "beam_pipes.evaluation")

    log(PyLoggingLogger())
    log(PyLoggingLogger("unused"), {"bytes": Text(b"gut")}, step=0)
    log(PyLoggingLogger("unused", level=logging.WARNING), {"accuracy": Scalar(np.float32(0.5))}, step=None)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "wmt/bleu at step 1000: 27.500"),
        ("INFO", "wmt/sample at step 1000: gut"),
        ("INFO", f"wmt/image at step 1000: unloggable type {Image}"),
        ("INFO", "wmt/bytes at step 0: gut"),
        ("WARNING", "wmt/accuracy at step -1: 0.500"),
    ]


def test_json_metrics_are_appended_step_by_step(tmp_path, caplog):
    logger = JSONLogger(str(tmp_path / "logs"))

    log(logger, {**METRICS, "confusion": Generic(np.eye(2), None)})
    log(logger, {"bleu": Scalar(np.float64(28.0))}, step=None)

    assert lines_of(tmp_path / "logs" / "wmt-metrics.jsonl") == [
        {"step": 1000, "bleu": 27.5, "sample": "gut", "confusion": [[1.0, 0.0], [0.0, 1.0]]},
        {"step": -1, "bleu": 28.0},
    ]
    assert "Skipping JSON logging of non-serializable metric 'image'" in caplog.text
    assert "Step number for the logging session is not provided. A dummy value of -1 will be used." in caplog.text
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["wmt-metrics.jsonl"]


def test_what_json_has_no_number_for_is_written_as_a_text(tmp_path):
    logger = JSONLogger(str(tmp_path))
    metrics = {"loss": Scalar(math.nan), "most": Scalar(math.inf), "rows": Generic(np.array([-math.inf, 1.5]), None)}

    log(logger, metrics, 1, [{"inputs": np.array([math.nan, 1.0])}], {"score": [math.nan]}, [np.float32(math.inf)])

    (line,) = (tmp_path / "wmt-metrics.jsonl").read_text().splitlines()
    assert strictly(line) == {"step": 1, "loss": "nan", "most": "inf", "rows": ["-inf", 1.5]}
    (line,) = (tmp_path / "wmt-000001.jsonl").read_text().splitlines()
    assert strictly(line) == {"input": {"inputs": ["nan", 1.0]}, "target": "inf", "score": "nan"}
    assert math.isnan(float(strictly(line)["score"]))


def strictly(line):
    """What a parser that knows no NaN makes of it."""
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_json_inferences_stand_beside_inputs_and_targets(tmp_path):
    dataset = [{"inputs": np.array([5, 6])}, {"inputs": np.array([7])}, {"inputs": np.array([8])}]
    inferences = {
        "output": ["zwei", "drei", "vier"],
        "prediction": ["2", "3", "4"],
        "score": [np.float32(-0.5), np.float32(-1.5), np.float32(0)],
        "aux_value": {"beam": [1, 2, 3]},
    }

    log(JSONLogger(str(tmp_path), write_n_results=2), {}, 7, dataset, inferences, ["2", "3", "4"])

    assert lines_of(tmp_path / "wmt-000007.jsonl") == [
        {
            "input": {"inputs": [5, 6]},
            "target": "2",
            "output": "zwei",
            "prediction": "2",
            "score": -0.5,
            "aux_beam": 1,
        },
        {"input": {"inputs": [7]}, "target": "3", "output": "drei", "prediction": "3", "score": -1.5, "aux_beam": 2},
    ]
    assert not (tmp_path / "wmt-metrics.jsonl").exists()


def test_json_leaves_out_a_field_that_cannot_be_encoded(tmp_path, caplog):
    log(JSONLogger(str(tmp_path)), {}, 1, [{"inputs": 1}], {"prediction": [object()], "score": [0.5]}, ["2"])

    assert lines_of(tmp_path / "wmt-000001.jsonl") == [{"input": {"inputs": 1}, "target": "2", "score": 0.5}]
    assert "`prediction` is not JSON serializable" in caplog.text


@pytest.mark.parametrize(
    ("write_n_results", "inferences", "said"), [(0, {"score": [1]}, ""), (None, {}, "inferences is None or empty")]
)
def test_json_writes_no_inferences_when_there_are_none_or_none_are_wanted(
    tmp_path, caplog, write_n_results, inferences, said
):
    caplog.set_level(logging.INFO)

    log(JSONLogger(str(tmp_path), write_n_results), METRICS, 1, [{"inputs": 1}], inferences, ["2"])

    assert not (tmp_path / "wmt-000001.jsonl").exists()
    assert said in caplog.text


def test_a_failure_while_writing_leaves_no_file_behind(tmp_path):
    def broken():
        yield {"inputs": 1}
        raise OSError("the reader died")

    with pytest.raises(OSError, match="the reader died"):
        log(JSONLogger(str(tmp_path)), {}, 1, broken(), {"score": [1, 2]}, ["2", "3"])
    assert list(tmp_path.iterdir()) == []


def test_a_negative_number_of_results_is_refused(tmp_path):
    with pytest.raises(EvaluationError, match="write_n_results should be an integer of at least 0, got -1"):
        JSONLogger(str(tmp_path), write_n_results=-1)


@dataclasses.dataclass
class Span:
    start: int
    end: int | None = None


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (np.array([1, 2]), [1, 2]),
        (np.array(3.5), 3.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([b"a", b"b"]), ["a", "b"]),
        (np.array(["a"], object), ["a"]),
        (b"Gr\xc3\xbc\xc3\x9fe", "Grüße"),
        (b"\xff\xfe", base64.b64encode(b"\xff\xfe").decode()),
        (ml_dtypes.bfloat16(0.5), 0.5),
        (np.array([0.5, 1.5], ml_dtypes.bfloat16), [0.5, 1.5]),
        (np.array([], np.float32), []),
        (Span(1), {"start": 1}),
        (
            np.arange(64).reshape(8, 8),
            "ndarray(shape=(8, 8), dtype=int64); summary: 0, 1, 2, 3, 4 ... 59, 60, 61, 62, 63",
        ),
    ],
)
def test_the_encoder_takes_what_evaluation_handles(value, encoded):
    assert json.loads(json.dumps({"value": value}, cls=TensorAndNumpyEncoder)) == {"value": encoded}


def test_the_encoder_can_show_larger_arrays_and_refuses_the_rest():
    assert json.loads(TensorAndNumpyEncoder(max_ndarray_size=64).encode(np.arange(64))) == list(range(64))
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"value": object()}, cls=TensorAndNumpyEncoder)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"value": Histogram}, cls=TensorAndNumpyEncoder)


def test_the_table_of_loggers_names_classes_that_exist():
    from beam_pipes.evaluation import loggers

    assert {name: getattr(loggers, cls).__name__ for name, cls in LOGGERS.items()} == LOGGERS
    assert "JSONLogger" in dir(loggers)
    with pytest.raises(AttributeError, match="no attribute 'CsvLogger'"):
        loggers.CsvLogger  # noqa: B018
