"""TensorFlow reads what `run_pipeline_serial` writes, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from beam_pipes.cache.messages import SequenceExample
from beam_pipes.typed import Pipeline, make_sequence_example, run_pipeline_serial, tf_record_iterator


class Melody(Pipeline):
    input_type = list
    output_type = SequenceExample

    def transform(self, input_object: list[int]) -> list[Any]:
        return [make_sequence_example([[note / 2, 1.0] for note in input_object], input_object)]


def test_tensorflow_parses_every_sequence(tmp_path: Path) -> None:
    melodies = [[1, 2, 3], [4], [5, 6]]
    run_pipeline_serial(Melody(), melodies, tmp_path, "melodies")

    parsed = [
        tf.io.parse_single_sequence_example(
            record,
            sequence_features={
                "inputs": tf.io.FixedLenSequenceFeature([2], tf.float32),
                "labels": tf.io.FixedLenSequenceFeature([], tf.int64),
            },
        )[1]
        for record in tf.data.TFRecordDataset(str(tmp_path / "melodies_Melody.tfrecord"))
    ]

    assert [example["labels"].numpy().tolist() for example in parsed] == melodies
    assert parsed[0]["inputs"].numpy().tolist() == [[0.5, 1.0], [1.0, 1.0], [1.5, 1.0]]


def test_the_proto_is_tensorflows(tmp_path: Path) -> None:
    ours = make_sequence_example([[0.0, 1.0]], [7])
    theirs = tf.train.SequenceExample.FromString(ours.SerializeToString())
    assert theirs.SerializeToString(deterministic=True) == ours.SerializeToString(deterministic=True)

    class Theirs(Pipeline):
        input_type, output_type = int, tf.train.Example

        def transform(self, input_object: int) -> list[Any]:
            value = tf.train.Feature(int64_list=tf.train.Int64List(value=[input_object]))
            return [tf.train.Example(features=tf.train.Features(feature={"x": value}))]

    run_pipeline_serial(Theirs(), [3, 4], tmp_path)
    messages = tf_record_iterator(tmp_path / "Theirs.tfrecord", tf.train.Example)
    assert [message.features.feature["x"].int64_list.value[0] for message in messages] == [3, 4]


def test_files_written_by_tensorflow_are_read(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "tf.tfrecord")) as writer:
        for label in (1, 2):
            writer.write(make_sequence_example([], [label]).SerializeToString())
    assert list(tf_record_iterator(tmp_path / "tf.tfrecord", SequenceExample)) == [
        make_sequence_example([], [label]) for label in (1, 2)
    ]
