"""TensorFlow reads what we write, and we read what TensorFlow writes. The only cache tests that import TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_pipes.cache import (
    BytesCodec,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    ProtoCodec,
    RecordWriter,
    ShardWriter,
    read_records,
)
from beam_pipes.format.messages import Example, SequenceExample

SPEC = ExampleSpec(
    {
        "flag": FeatureSpec("bool", shape=(3,)),
        "image": FeatureSpec("uint8", shape=(None, None, 3)),
        "label": FeatureSpec("int64"),
        "name": FeatureSpec("str"),
        "scores": FeatureSpec("float32", shape=(2,), encoding="list"),
        "tags": FeatureSpec("bytes", shape=(None,)),
        "tokens": FeatureSpec("int32", shape=(None,), minimum=0, maximum=60_000),
        "wörter": FeatureSpec("int64", shape=(None,), encoding="list"),
        "xs": FeatureSpec("float32", shape=(None,), encoding="list"),
    }
)


def example(i: int) -> dict[str, Any]:
    return {
        "flag": [True, False, i % 2 == 0],
        "image": np.arange(i % 3 * 4 * 3, dtype=np.uint8).reshape(i % 3, 4, 3),
        "label": -i,
        "name": "é" * i,
        "scores": np.array([i, 0.5], np.float32),
        "tags": [b"a", b""][: i % 3],
        "tokens": np.arange(i * 7) % 60_000,
        "wörter": [i, -i, 1 << 40][: i % 4],
        "xs": np.linspace(0, 1, i % 5).astype(np.float32),
    }


TF_FEATURES = {
    "flag": tf.io.FixedLenFeature([], tf.string),
    "image": tf.io.FixedLenFeature([], tf.string),
    "image/shape": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.string),
    "name": tf.io.FixedLenFeature([], tf.string),
    "scores": tf.io.FixedLenFeature([2], tf.float32),
    "tags": tf.io.RaggedFeature(tf.string),
    "tokens": tf.io.FixedLenFeature([], tf.string),
    "wörter": tf.io.RaggedFeature(tf.int64),
    "xs": tf.io.VarLenFeature(tf.float32),
}


def check_parsed(parsed: dict[str, Any], i: int) -> None:
    expected = example(i)
    assert tf.io.decode_raw(parsed["flag"], tf.bool).numpy().tolist() == expected["flag"]
    shape = tf.io.decode_raw(parsed["image/shape"], tf.int64).numpy()
    image = tf.io.decode_raw(parsed["image"], tf.uint8).numpy().reshape(shape)
    np.testing.assert_array_equal(expected["image"], image)
    assert tf.io.decode_raw(parsed["label"], tf.int64).numpy().tolist() == [-i]
    assert parsed["name"].numpy().decode() == expected["name"]
    np.testing.assert_array_equal(expected["scores"], parsed["scores"])
    assert parsed["tags"].numpy().tolist() == expected["tags"]
    np.testing.assert_array_equal(expected["tokens"], tf.io.decode_raw(parsed["tokens"], tf.uint16))
    assert parsed["wörter"].numpy().tolist() == expected["wörter"]
    np.testing.assert_array_equal(expected["xs"], tf.sparse.to_dense(parsed["xs"]))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shard")
    with ShardWriter(directory, "demo", codec=ExampleCodec(SPEC)) as writer:
        for i in range(20):
            writer.write(example(i), ordinal=i)
        writer.commit()
    return directory / "demo"


def test_tensorflow_parses_single_examples_of_our_shards(shard: Path) -> None:
    records = list(tf.data.TFRecordDataset(str(shard)))

    assert len(records) == 20
    for i, record in enumerate(records):
        check_parsed(tf.io.parse_single_example(record, TF_FEATURES), i)


def test_tensorflow_parses_batches_of_our_shards(shard: Path) -> None:
    batched = next(iter(tf.data.TFRecordDataset(str(shard)).batch(20)))
    parsed = tf.io.parse_example(batched, TF_FEATURES)

    xs = tf.RaggedTensor.from_sparse(parsed["xs"])
    for i in range(20):
        row = {name: parsed[name][i] for name in TF_FEATURES if name != "xs"}
        check_parsed({**row, "xs": sparse_vector(xs[i])}, i)


def sparse_vector(values: Any) -> Any:
    count = len(values)
    return tf.SparseTensor(np.arange(count).reshape(count, 1), values, [count])


def test_tensorflow_parses_records_of_a_fixed_layout(tmp_path: Path) -> None:
    spec = ExampleSpec({"a": FeatureSpec("int64"), "b": FeatureSpec("float32", shape=(5,)), "c": FeatureSpec("uint8")})
    with ShardWriter(tmp_path, "fixed", codec=ExampleCodec(spec)) as writer:
        for i in range(4):
            writer.write({"a": i, "b": np.full(5, i, np.float32), "c": 255 - i}, ordinal=i)
        writer.commit()

    batch = next(iter(tf.data.TFRecordDataset(str(tmp_path / "fixed")).batch(4)))
    parsed = tf.io.parse_example(batch, {name: tf.io.FixedLenFeature([], tf.string) for name in spec})

    assert tf.io.decode_raw(parsed["a"], tf.int64).numpy().tolist() == [[0], [1], [2], [3]]
    assert tf.io.decode_raw(parsed["b"], tf.float32).numpy().tolist() == [[i] * 5 for i in range(4)]
    assert tf.io.decode_raw(parsed["c"], tf.uint8).numpy().tolist() == [[255], [254], [253], [252]]


def test_the_same_features_survive_a_round_trip_through_tf_train_example() -> None:
    codec = ExampleCodec(SPEC)
    for i in range(20):
        ours = codec.encode(example(i))

        theirs = tf.train.Example.FromString(ours)

        assert Example.FromString(ours).features == Example.FromString(theirs.SerializeToString()).features
        again = codec.decode(theirs.SerializeToString())
        assert codec.encode(again) == ours


def test_we_read_examples_that_tensorflow_wrote(tmp_path: Path) -> None:
    spec = ExampleSpec(
        {
            "ids": FeatureSpec("int32", shape=(None,), encoding="list"),
            "matrix": FeatureSpec("int64", shape=(None, 2), encoding="list"),
            "none": FeatureSpec("float32", shape=(None,), encoding="list"),
            "text": FeatureSpec("str"),
            "weight": FeatureSpec("float32", encoding="list"),
        }
    )
    feature = tf.train.Feature
    path = str(tmp_path / "theirs.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        made = tf.train.Example(
            features=tf.train.Features(
                feature={
                    "weight": feature(float_list=tf.train.FloatList(value=[0.25])),
                    "text": feature(bytes_list=tf.train.BytesList(value=["ü".encode()])),
                    "ids": feature(int64_list=tf.train.Int64List(value=[3, -1])),
                    "none": feature(float_list=tf.train.FloatList()),
                    "matrix": feature(int64_list=tf.train.Int64List(value=[1, 2, 3, 4])),
                }
            )
        )
        writer.write(made.SerializeToString())

    (payload,) = read_records(path)
    found = ExampleCodec(spec).decode(payload)

    assert found["ids"].tolist() == [3, -1] and found["ids"].dtype == np.int32
    assert found["matrix"].tolist() == [[1, 2], [3, 4]]
    assert found["none"].tolist() == []
    assert found["text"] == "ü"
    assert found["weight"] == np.float32(0.25)


def test_files_are_the_same_bytes_as_those_of_tensorflows_writer(tmp_path: Path) -> None:
    records = [b"", b"a", b"b" * 100, bytes(range(256)) * 5000]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in records:
            writer.write(record)

    with RecordWriter(tmp_path / "ours") as ours:
        for record in records:
            ours.write(record)

    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert list(read_records(tmp_path / "theirs")) == records
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "ours"))] == records


def test_sequence_examples_and_bytes_are_records_that_tensorflow_reads(tmp_path: Path) -> None:
    sequence = SequenceExample()
    sequence.feature_lists.feature_list["x"].feature.add().float_list.value.extend([1.0, 2.0])
    for name, codec, value in (("proto", ProtoCodec(SequenceExample), sequence), ("bytes", BytesCodec(), b"raw")):
        with ShardWriter(tmp_path, name, codec=codec) as writer:
            writer.write(value, ordinal=0)
            writer.commit()

    (proto,) = tf.data.TFRecordDataset(str(tmp_path / "proto"))
    (raw,) = tf.data.TFRecordDataset(str(tmp_path / "bytes"))

    theirs = tf.train.SequenceExample.FromString(proto.numpy())
    assert theirs.feature_lists.feature_list["x"].feature[0].float_list.value == [1.0, 2.0]
    assert raw.numpy() == b"raw"


def test_the_schema_is_a_tensorflow_metadata_schema_that_parses_the_records() -> None:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from beam_pipes.publication.publish import schema_text

    schema = text_format.Parse(schema_text(SPEC), schema_pb2.Schema())

    types = {feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in schema.feature}
    assert types == {
        "flag": "BYTES",
        "image": "BYTES",
        "image/shape": "BYTES",
        "label": "BYTES",
        "name": "BYTES",
        "scores": "FLOAT",
        "tags": "BYTES",
        "tokens": "BYTES",
        "wörter": "INT",
        "xs": "FLOAT",
    }
    by_name = {feature.name: feature for feature in schema.feature}
    assert [dim.size for dim in by_name["scores"].shape.dim] == [2]
    assert by_name["label"].HasField("shape") and not by_name["label"].shape.dim
    assert by_name["wörter"].value_count.min == 0
    assert by_name["tokens"].annotation.comment == ["raw little-endian uint16 of shape [?], read as int32"]


def test_the_schema_is_understood_by_tensorflow_transform() -> None:
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tensorflow_transform.tf_metadata import schema_utils

    from beam_pipes.publication.publish import schema_text

    schema = text_format.Parse(schema_text(SPEC), schema_pb2.Schema())
    feature_spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    parsed = tf.io.parse_single_example(ExampleCodec(SPEC).encode(example(3)), feature_spec)

    assert parsed["scores"].numpy().tolist() == [3.0, 0.5]
    assert tf.sparse.to_dense(parsed["wörter"]).numpy().tolist() == [3, -3, 1 << 40]
    assert tf.io.decode_raw(parsed["tokens"], tf.uint16).shape == (21,)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "uint64", "int8"])
def test_tensorflow_decodes_the_raw_bytes_of_each_dtype(dtype: str) -> None:
    values = np.array([0, 1, 2, 100]).astype(tf.as_dtype(dtype).as_numpy_dtype)
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec(dtype, shape=(None,))}))

    parsed = tf.io.parse_single_example(codec.encode({"x": values}), {"x": tf.io.FixedLenFeature([], tf.string)})

    raw = tf.io.decode_raw(parsed["x"], tf.as_dtype(dtype)) if dtype not in ("uint64",) else parsed["x"]
    found = raw.numpy() if dtype != "uint64" else np.frombuffer(raw.numpy(), np.uint64)
    np.testing.assert_array_equal(values, found)
    np.testing.assert_array_equal(values, codec.decode(codec.encode({"x": values}))["x"])
