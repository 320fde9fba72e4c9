"""TensorFlow reads what `run_pipeline_serial` writes, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_pipes import Cache, build
from beam_pipes.format.messages import SequenceExample
from beam_pipes.sources import TextLines
from beam_pipes.typed import (
    DAGPipeline,
    Input,
    InvalidTransformOutputException,
    Output,
    Pipeline,
    RandomPartition,
    load_pipeline,
    make_sequence_example,
    run_pipeline_serial,
    tf_record_iterator,
)


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


def test_the_proto_equals_tensorflows_on_either_side() -> None:
    ours, other = make_sequence_example([[0.0, 1.0]], [7]), make_sequence_example([[0.0, 1.0]], [8])
    theirs = tf.train.SequenceExample.FromString(ours.SerializeToString())

    assert ours == theirs and theirs == ours and ours in [theirs]
    assert not ours != theirs and not theirs != ours
    assert other != theirs and theirs != other and ours != theirs.feature_lists and ours != 1
    assert ours.feature_lists == theirs.feature_lists and ours == make_sequence_example([[0.0, 1.0]], [7])


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


class EncoderPipeline(Pipeline):
    """Declares TensorFlow's class and returns what `make_sequence_example` makes, as Magenta's own encoders do."""

    input_type, output_type = str, tf.train.SequenceExample

    def transform(self, input_object: str) -> list[Any]:
        return [make_sequence_example([[float(ord(letter))] for letter in input_object], range(len(input_object)))]


def encoded_and_split() -> DAGPipeline:
    encoder = EncoderPipeline()
    partitioner = RandomPartition(tf.train.SequenceExample, ["eval_melodies", "training_melodies"], [0.5])
    return DAGPipeline({encoder: Input(str), partitioner: encoder, Output(): partitioner})


def test_a_stage_that_declares_tensorflows_message_may_make_ours(tmp_path: Path) -> None:
    words = ["to", "be", "or", "not"]

    loaded = load_pipeline(encoded_and_split(), words)
    run_pipeline_serial(encoded_and_split(), words, tmp_path, "melodies")

    assert {type(message) for values in loaded.values() for message in values} == {tf.train.SequenceExample}
    for name, messages in loaded.items():
        assert list(tf_record_iterator(tmp_path / f"melodies_{name}.tfrecord", tf.train.SequenceExample)) == messages
    assert len(loaded["eval_melodies"]) + len(loaded["training_melodies"]) == 4


def test_a_dict_output_may_hold_ours_too() -> None:
    class Both(Pipeline):
        input_type, output_type = str, {"theirs": tf.train.SequenceExample, "ours": SequenceExample}

        def transform(self, input_object: str) -> dict[str, list[Any]]:
            ours = make_sequence_example([], [len(input_object)])
            theirs = tf.train.SequenceExample.FromString(ours.SerializeToString())
            return {"theirs": [ours, theirs], "ours": [theirs, ours]}

    loaded = load_pipeline(Both(), ["a"])

    assert [type(one) for one in loaded["theirs"]] == [tf.train.SequenceExample] * 2
    assert [type(one) for one in loaded["ours"]] == [SequenceExample] * 2


def test_another_message_is_still_refused() -> None:
    class Wrong(Pipeline):
        input_type, output_type = str, tf.train.Example

        def transform(self, input_object: str) -> list[Any]:
            return [make_sequence_example([], [1])]

    with pytest.raises(InvalidTransformOutputException, match="output 0 should be Example, got SequenceExample"):
        load_pipeline(Wrong(), ["a"])


class Text:
    """No protocol buffer, but it serializes itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    def SerializeToString(self) -> bytes:
        return self.text.encode()


class Texts(Pipeline):
    input_type, output_type = str, Text

    def transform(self, input_object: str) -> list[Text]:
        return [Text(input_object)]


def test_builds_store_both(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("to\nbe\n")
    source = TextLines(str(tmp_path / "words.txt"))

    build("encoded", source, [EncoderPipeline()], to=tmp_path / "encoded")
    build("texts", source, [Texts()], to=tmp_path / "texts")

    messages, texts = Cache.open(tmp_path / "encoded")["train"], Cache.open(tmp_path / "texts")["train"]
    assert (messages.kind, texts.kind) == ("proto", "bytes")
    assert list(messages) == load_pipeline(EncoderPipeline(), ["to", "be"])
    assert list(texts) == [b"to", b"be"]
