"""The evaluator over tf.data, and TensorBoard's event files read back."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from eval_tasks_for_tests import VOCABULARY, accuracy, arithmetic, echo_targets

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation import Evaluator, ModelOutputType, merge_hosts
from beam_pipes.evaluation.loggers import JSONLogger, TensorBoardLogger
from beam_pipes.evaluation.loggers.tensor_board import TensorBoardLoggerV1, histogram_buckets
from beam_pipes.evaluation.metrics import Audio, Generic, Histogram, Image, MetricValue, Scalar, Text
from beam_pipes.tasks import Feature, FunctionDataSource, Mixture, Task
from beam_pipes.transforms.converters import DecoderFeatureConverter, EncDecFeatureConverter

PADDED = EncDecFeatureConverter(pack=False)


def events_in(directory):
    (path,) = directory.glob("events.out.tfevents.*")
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    return [(event.step, value) for event in events for value in event.summary.value]


def text_task(name, rows, metric_fns=(accuracy,)):
    def read(split, shuffle_files):
        dataset = tf.data.Dataset.from_tensor_slices({key: [row[key] for row in rows] for key in rows[0]})
        return dataset.take(0 if split == "empty" else -1)

    @tf.autograph.experimental.do_not_convert
    def tokenize(dataset):
        def ids(text):
            return tf.concat([tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32) + 3, [1]], 0)

        return dataset.map(
            lambda row: {
                "inputs": ids(row["question"]),
                "targets": ids(row["answer"]),
                "targets_pretokenized": row["answer"],
            }
        )

    return Task(
        name,
        FunctionDataSource(read, splits=["validation", "empty"]),
        output_features={"inputs": Feature(VOCABULARY), "targets": Feature(VOCABULARY)},
        preprocessors=[tokenize],
        metric_fns=metric_fns,
    )


ROWS = [
    {"question": "2+2", "answer": "four"},
    {"question": "1+1", "answer": "two"},
    {"question": "1+2", "answer": "three"},
]


def test_tf_data_and_numpy_give_model_functions_the_same_arrays():
    over_tf = Evaluator(text_task("over_tf", ROWS), PADDED)
    over_numpy = Evaluator(arithmetic(), PADDED, framework="numpy")

    pairs = zip(
        over_tf.cached_model_datasets["over_tf"].as_numpy_iterator(),
        over_numpy.cached_model_datasets["arithmetic"],
        strict=True,
    )
    for (one_index, one), (other_index, other) in pairs:
        assert one_index == other_index
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert over_tf.model_feature_shapes == over_numpy.model_feature_shapes
    assert over_tf.cached_model_datasets["over_tf"].cardinality().numpy() == 3


def test_a_mixture_is_evaluated_over_tf_data_by_several_hosts(tmp_path):
    mixture = Mixture("tf_all", [(text_task("long", ROWS), 1), (text_task("short", ROWS[:1]), 9)])

    def predict(dataset):
        return merge_hosts([echo_targets(dataset.shard(num_shards=2, index=host)) for host in range(2)])

    with Evaluator(mixture, PADDED, logger_cls=[JSONLogger], log_dir=str(tmp_path)) as evaluator:
        metrics, outputs = evaluator.evaluate(compute_metrics=True, step=4, predict_fn=predict)

    assert metrics.result() == {"long": {"accuracy": 1.0}, "short": {"accuracy": 1.0}}
    assert len(outputs["short"][ModelOutputType.PREDICTION]) == 1
    lines = [json.loads(line) for line in (tmp_path / "long-000004.jsonl").read_text().splitlines()]
    assert [line["prediction"] for line in lines] == ["four", "two", "three"]
    assert lines[0]["input"]["targets_pretokenized"] == "four"


def test_json_logs_datasets_whose_length_is_unknown(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices({"inputs": [[1], [2]]}).filter(lambda example: True)

    JSONLogger(str(tmp_path))("a", 1, {}, dataset, {"prediction": ["x", "y"]}, ["x", "z"])

    lines = [json.loads(line) for line in (tmp_path / "a-000001.jsonl").read_text().splitlines()]
    assert lines == [
        {"input": {"inputs": [1]}, "target": "x", "prediction": "x"},
        {"input": {"inputs": [2]}, "target": "z", "prediction": "y"},
    ]


def test_converters_that_choose_and_options_work_over_tf_data(caplog):
    caplog.set_level(logging.WARNING)

    evaluator = Evaluator(
        arithmetic(),
        DecoderFeatureConverter(pack=False),
        num_examples=2,
        use_memory_cache=False,
        sequence_length={"inputs": 4, "targets": 5},
        async_compute_metrics=False,
    )

    assert evaluator.model_feature_shapes["decoder_target_tokens"] == (9,)
    assert len(list(evaluator.cached_model_datasets["arithmetic"])) == 2


def test_an_empty_split_of_tf_data_is_a_split():
    def count(targets, predictions):
        return {"count": len(targets)}

    evaluator = Evaluator(text_task("none", ROWS, metric_fns=[count]), PADDED, eval_split="empty")

    metrics, _ = evaluator.evaluate(compute_metrics=True, predict_fn=echo_targets)

    assert metrics.result() == {"none": {"count": 0}}


def test_tensors_and_ragged_tensors_are_encoded_as_json():
    from beam_pipes.evaluation.loggers import TensorAndNumpyEncoder

    values = {
        "tensor": tf.constant([1, 2]),
        "bfloat16": tf.constant([0.5], tf.bfloat16),
        "text": tf.constant("Hi"),
        "ragged": tf.ragged.constant([[1], [2, 3]]),
    }

    assert json.loads(json.dumps(values, cls=TensorAndNumpyEncoder)) == {
        "tensor": [1, 2],
        "bfloat16": [0.5],
        "text": "Hi",
        "ragged": [[1], [2, 3]],
    }


def test_tensorboard_gets_every_kind_of_value(tmp_path):
    image = np.zeros((5, 4, 2, 3))
    image[0, :, :, 0] = 1.0
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="pr_curves")
    )
    logger = TensorBoardLogger(str(tmp_path))

    logger(
        task_name="wmt",
        step=12,
        metrics={
            "bleu": Scalar(27.5),
            "sample": Text("*gut*"),
            "image": Image(image, max_outputs=2),
            "audio": Audio(np.zeros((4, 80, 1)), sample_rate=8000),
            "lengths": Histogram(np.array([0.0, 1.0, 1.0, 2.0]), bins=2),
            "curve": Generic(np.eye(2, dtype=np.float32), metadata),
        },
        dataset=None,
        inferences=None,
        targets=None,
    )

    events = events_in(tmp_path / "wmt")
    values = {value.tag: value for _, value in events}
    assert {step for step, _ in events} == {12}
    assert {tag: value.metadata.plugin_data.plugin_name for tag, value in values.items()} == {
        "eval/bleu": "scalars",
        "eval/sample": "text",
        "eval/image": "images",
        "eval/audio": "audio",
        "eval/lengths": "histograms",
        "eval/curve": "pr_curves",
    }
    tensors = {tag: tf.make_ndarray(value.tensor) for tag, value in values.items()}
    assert (tensors["eval/bleu"].dtype, tensors["eval/bleu"].tolist()) == (np.float32, 27.5)
    assert tensors["eval/sample"].item() == b"*gut*"
    width, height, *pictures = tensors["eval/image"].tolist()
    assert (width, height, len(pictures)) == (b"2", b"4", 2)
    assert tf.io.decode_png(pictures[0]).numpy()[0, 0].tolist() == [255, 0, 0]
    assert tensors["eval/audio"].shape == (3, 2)
    sound, rate = tf.audio.decode_wav(tensors["eval/audio"][0, 0])
    assert (sound.shape.as_list(), rate.numpy()) == ([80, 1], 8000)
    assert tensors["eval/lengths"].tolist() == [[0.0, 1.0, 1.0], [1.0, 2.0, 3.0]]
    assert tensors["eval/curve"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert values["eval/audio"].metadata.plugin_data.content == b"\x10\x0b"


def test_tensorboard_files_belong_to_tasks_and_collect_steps(tmp_path, caplog):
    logger = TensorBoardLogger(str(tmp_path))

    for task_name, step in (("a", 1), ("b", 1), ("a", None)):
        logger(task_name, step, {"bleu": Scalar(np.float64(1.5))}, None, None, None)
    logger.close()

    assert [step for step, _ in events_in(tmp_path / "a")] == [1, -1]
    assert [step for step, _ in events_in(tmp_path / "b")] == [1]
    assert "A dummy value of -1 will be used" in caplog.text


def test_the_first_form_of_summaries_holds_scalars_only(tmp_path):
    logger = TensorBoardLoggerV1(str(tmp_path))

    logger("wmt", 3, {"bleu": Scalar(27.5)}, None, None, None)
    with pytest.raises(EvaluationError, match="Value for metric 'text' should be of type 'Scalar, got 'Text'"):
        logger("wmt", 4, {"bleu": Scalar(1.0), "text": Text("no")}, None, None, None)
    logger.close()

    assert [(step, value.tag, value.simple_value) for step, value in events_in(tmp_path / "wmt")] == [
        (3, "eval/bleu", 27.5)
    ]


class Unknown(MetricValue):
    pass


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (Text(5), EvaluationError, "metric 'm': `textdata` should be of the type `str` or `bytes`, got 5"),
        (Image(np.zeros((2, 2))), EvaluationError, r"metric 'm' should have the shape \(k, height, width, channels\)"),
        (Audio(np.zeros(3)), EvaluationError, r"should have the shape \(k, samples, channels\), got \(3,\)"),
        (Unknown(), TypeError, "Value type not understood, got 'Unknown'. Metric 'm' should be a MetricValue."),
    ],
)
def test_values_that_tensorboard_cannot_show_are_refused_and_nothing_is_written(tmp_path, value, error, message):
    logger = TensorBoardLogger(str(tmp_path))

    with pytest.raises(error, match=message):
        logger("wmt", 1, {"fine": Scalar(1.0), "m": value}, None, None, None)

    assert events_in(tmp_path / "wmt") == []


@pytest.mark.parametrize(
    ("values", "bins", "buckets"),
    [
        ([0, 1, 1, 2], 2, [[0, 1, 1], [1, 2, 3]]),
        ([3, 3], 2, [[3, 3, 0], [3, 3, 2]]),
        ([], 2, [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_histograms_are_buckets_of_equal_width(values, bins, buckets):
    assert histogram_buckets(values, bins).tolist() == buckets
