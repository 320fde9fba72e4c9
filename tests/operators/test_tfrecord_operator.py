"""`fn.readers.tfrecord`: what it reads is what a parser finds in each record, whatever form records have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_pipes.graph.functions as tfrec
from beam_pipes.errors import CorruptIndexError, OperatorArgumentError, OperatorError
from beam_pipes.export.export import dali_index_text
from beam_pipes.format.framing import RecordWriter, scan_records
from beam_pipes.format.messages import Example
from beam_pipes.format.wire import decode_varints
from beam_pipes.graph import Pipeline
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.readers.example_columns import ExampleColumns


def example(**features: Any) -> bytes:
    """A serialized Example: bytes → a string, floats → a float_list, ints → an int64_list."""
    message = Example()
    for name, value in features.items():
        feature = message.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif value and isinstance(value[0], bytes):
            feature.bytes_list.value.extend(value)
        elif value and isinstance(value[0], float):
            feature.float_list.value.extend(value)
        else:
            feature.int64_list.value.extend(value)
    return bytes(message.SerializeToString(deterministic=True))


def write(path: Path, payloads: list[bytes]) -> str:
    with RecordWriter(path) as writer:
        for payload in payloads:
            writer.write(payload)
    return str(path)


def read(path: Any, features: dict[str, Any], *, batch_size: int = 4, **options: Any) -> dict[str, list[Any]]:
    """One batch: feature → samples."""
    pipe = Pipeline(batch_size=batch_size, on_error=options.pop("on_error", "fail"))
    with pipe:
        pipe.set_outputs(fn.readers.tfrecord(path=path, features=features, **options))
    outputs = pipe.run()
    return {name: list(outputs[name]) for name in features}


RECORDS = [
    example(a=[i], b=[float(i), 0.5], s=b"xy" * i + b"z", v=list(range(i)), n=[1, 2, 3, 4], t=[b"p", b"q"])
    for i in range(4)
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write(tmp_path / "a.tfrecord", RECORDS)


def test_features_have_the_declared_shapes(path: str) -> None:
    found = read(
        path,
        {
            "a": tfrec.FixedLenFeature([], tfrec.int64, -1),
            "b": tfrec.FixedLenFeature([2], tfrec.float32, 0.0),
            "s": tfrec.FixedLenFeature([], tfrec.string, ""),
            "v": tfrec.VarLenFeature(tfrec.int64, -1),
            "n": tfrec.VarLenFeature([2], tfrec.int64, -1),
        },
    )
    assert [int(one) for one in found["a"]] == [0, 1, 2, 3] and found["a"][0].shape == ()
    assert found["b"][3].tolist() == [3.0, 0.5] and found["b"][3].dtype == np.float32
    assert [bytes(one) for one in found["s"]] == [b"z", b"xyz", b"xyxyz", b"xyxyxyz"]
    assert [one.tolist() for one in found["v"][1:]] == [[0], [0, 1], [0, 1, 2]]
    assert found["n"][0].tolist() == [[1, 2], [3, 4]]


def test_a_missing_feature_gives_its_declared_default(path: str) -> None:
    found = read(
        path,
        {
            "no": tfrec.FixedLenFeature([2], tfrec.int64, -7),
            "none": tfrec.FixedLenFeature([2], tfrec.float32, [1.5, 2.5]),
            "nil": tfrec.VarLenFeature(tfrec.int64, -7),
            "empty": tfrec.VarLenFeature(tfrec.float32),
            "text": tfrec.FixedLenFeature([], tfrec.string, "gone"),
            "a": tfrec.FixedLenFeature([1], tfrec.int64, 0),
        },
    )
    for index in range(4):
        assert found["no"][index].tolist() == [-7, -7] and found["none"][index].tolist() == [1.5, 2.5]
        assert found["nil"][index].tolist() == [-7] and found["empty"][index].shape == (0,)
        assert bytes(found["text"][index]) == b"gone" and found["a"][index].tolist() == [index]


@pytest.mark.parametrize("lacking", [[0], [3, 4, 5], list(range(8))], ids=["one", "some", "all"])
def test_the_default_of_a_scalar_is_a_scalar(lacking: list[int], tmp_path: Path) -> None:
    records = [example(x=[5]) if index in lacking else example(label=[index], x=[5]) for index in range(8)]
    feature = tfrec.FixedLenFeature([], tfrec.int64, -1)

    found = read(write(tmp_path / "b.tfrecord", records), {"label": feature}, batch_size=8)["label"]

    assert [one.tolist() for one in found] == [-1 if index in lacking else index for index in range(8)]


FEATURES = {
    "ids": tfrec.VarLenFeature(tfrec.int64),
    "label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
    "data": tfrec.FixedLenFeature([], tfrec.string, ""),
    "reals": tfrec.VarLenFeature(tfrec.float32),
}
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
RECORD = st.fixed_dictionaries(
    {"ids": st.lists(INT64, max_size=5)},
    optional={
        "label": st.lists(st.integers(0, 300), min_size=1, max_size=1),
        "data": st.binary(max_size=200),
        "reals": st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4),
        "unused": st.lists(INT64, max_size=3),
    },
)


@given(records=st.lists(RECORD, min_size=1, max_size=12), repeat=st.integers(1, 8))
@hypothesis.example(records=[{"ids": [0]}, {"ids": []}, {"ids": []}, {"ids": [], "label": [0]}], repeat=1)
@settings(max_examples=120, deadline=None)
def test_columns_are_what_a_parser_finds_in_each_record(records: list[dict[str, Any]], repeat: int) -> None:
    payloads = [example(**record) for record in records for _ in range(repeat)]
    data = np.frombuffer(b"".join(payloads), np.uint8)
    sizes = np.array([len(one) for one in payloads], np.int64)
    starts = np.cumsum(sizes) - sizes
    columns = ExampleColumns(FEATURES)

    found = columns.read(data, starts, sizes, range(4))

    for index, payload in enumerate(payloads):
        for column, expected in zip(found, ExampleColumns(FEATURES).parse(payload, range(4)), strict=True):
            assert column is not None
            assert column[index].shape == expected.shape and column[index].tobytes() == expected.tobytes()


def varints(values: list[int]) -> bytes:
    """As protobuf writes them."""
    message = Example()
    message.features.feature["x"].int64_list.value.extend(values)
    packed = message.features.feature["x"].int64_list.SerializeToString()
    return packed[1:][next(i for i, byte in enumerate(packed[1:], 1) if byte < 0x80) :] if values else b""


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=30))
@settings(max_examples=60, deadline=None)
def test_varints_decode_to_what_was_encoded(values: list[int]) -> None:
    ends = np.cumsum([0, *(len(varints([value])) for value in values)])
    found, before = decode_varints(np.frombuffer(varints(values), np.uint8), ends)
    assert found.tolist() == values
    assert before.tolist() == list(range(len(values) + 1))


def test_varints_of_every_length_are_decoded() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 62, 50_000) >> rng.integers(0, 62, 50_000)
    values[::1000] *= -1
    found, before = decode_varints(np.frombuffer(varints(values.tolist()), np.uint8), np.array([1, 2, 3])[:0])
    assert (found == values).all() and not len(before)


def test_errors_name_what_is_not_a_varint() -> None:
    none = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="^the bytes end within an integer$"):
        decode_varints(np.array([1, 0x80], np.uint8), none)
    with pytest.raises(ValueError, match="^an integer takes more than ten bytes$"):
        decode_varints(np.array([0xFF] * 10 + [1], np.uint8), none)


def test_several_files_shuffled_are_read_as_they_are_one_by_one(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{name}.tfrecord", [example(label=[10 * file + i], data=b"x" * i) for i in range(5)])
        for file, name in enumerate("abc")
    ]
    pipe = Pipeline(batch_size=15, seed=1)
    with pipe:
        got = fn.readers.tfrecord(path=paths, features={k: FEATURES[k] for k in ("label", "data")}, random_shuffle=True)
        pipe.set_outputs(got)
    outputs = pipe.run()

    labels = [int(one[0]) for one in outputs["label"]]
    assert sorted(labels) == [10 * file + i for file in range(3) for i in range(5)] != labels
    assert [len(one) for one in outputs["data"]] == [label % 10 for label in labels]
    places = {
        f"{name}.tfrecord@{offset}" for name, path in zip("abc", paths, strict=True) for offset, _ in scan_records(path)
    }
    assert {outputs["label"].source_info(i) for i in range(15)} == places


def test_an_index_of_dali_is_taken_and_checked(path: str, tmp_path: Path) -> None:
    places = np.array(list(scan_records(path)))
    index = tmp_path / "a.idx"
    index.write_text(dali_index_text(places[:, 0], places[:, 1]))
    assert index.read_text().splitlines()[0].split() == ["0", str(len(RECORDS[0]) + 16)]
    features = {"a": FEATURES["label"]}
    assert read(path, features, index_path=str(index)) == read(path, features)

    index.write_text("0 30\n30 30\n")
    with pytest.raises(OperatorError, match=r"a.tfrecord"):
        read(path, features, index_path=str(index), batch_size=2)
    for text, words in (("0 x\n", "expected numbers"), ("0\n", "two numbers a line"), ("0 99999\n", "lies outside of")):
        index.write_text(text)
        with pytest.raises(CorruptIndexError, match=words):
            read(path, features, index_path=str(index))
    with pytest.raises(OperatorArgumentError, match=r"index_path should name an index for each of 2 files"):
        read([path, path], features, index_path=str(index))


def test_a_wrong_checksum_names_file_and_offset_and_follows_on_error(path: str) -> None:
    offsets = [offset for offset, _ in scan_records(path)]
    with open(path, "r+b") as file:
        file.seek(offsets[2] + 40)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    features = {"s": FEATURES["data"]}

    with pytest.raises(
        OperatorError, match=rf"on record 'a.tfrecord@{offsets[2]}'.*the payload of the record .* is damaged"
    ):
        read(path, features)
    kept = read(path, features, on_error="drop")
    assert [bytes(one) for one in kept["s"]] == [b"z", b"xyz", b"xyxyxyz"]


def test_what_does_not_fit_the_declaration_is_an_error_that_names_the_feature(path: str) -> None:
    with pytest.raises(OperatorError, match=r"feature 't': expected one string, found 2"):
        read(path, {"t": FEATURES["data"]})
    with pytest.raises(OperatorError, match=r"feature 'a': expected shape \[2\], found 1 values"):
        read(path, {"a": tfrec.FixedLenFeature([2], tfrec.int64, 0)})
    with pytest.raises(OperatorError, match=r"feature 'a': expected float32 \(float_list\), found a int64_list"):
        read(path, {"a": tfrec.FixedLenFeature([1], tfrec.float32, 0)})
    with pytest.raises(OperatorError, match=r"the record is not a serialized Example"):
        read(write(Path(path).with_name("b.tfrecord"), [b"\xff\xff"]), {"a": FEATURES["label"]})
    with pytest.raises(OperatorArgumentError, match=r"'a' should be a tfrec.FixedLenFeature or VarLenFeature"):
        read(path, {"a": "int64"})
    with pytest.raises(OperatorArgumentError, match=r"there is no file 'nowhere'"):
        read("nowhere", {"a": FEATURES["label"]})
    with pytest.raises(OperatorArgumentError, match=r"one string, shape \[\], got \[2\]"):
        tfrec.FixedLenFeature([2], tfrec.string, "")
    with pytest.raises(OperatorArgumentError, match=r"a feature is one of int64, float32, string, got 'int'"):
        tfrec.VarLenFeature("int")


def test_features_that_nobody_uses_are_not_parsed(path: str) -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        found = fn.readers.tfrecord(
            path=path,
            features={"a": FEATURES["label"], "t": FEATURES["data"]},  # t holds two strings: an error if read
        )
        pipe.set_outputs(found["a"])
    assert len(pipe.run()[0]) == 4


def test_the_source_for_caching_gives_the_same_records(path: str) -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        node = fn.readers.tfrecord(path=path, features={"a": FEATURES["label"]})["a"]
    reader = node.source.operator
    source, store = reader.source(), reader.open()
    values = [
        v
        for shard in source.plan(target_shard_bytes=1 << 20).shards
        for batch in source.read(shard)
        for v in batch.values
    ]
    assert [reader.from_source(value)[0].tolist() for value in values] == [[0], [1], [2], [3]]
    assert store.record_ids(np.arange(4)) == [f"a.tfrecord@{offset}" for offset, _ in scan_records(path)]


@pytest.mark.parametrize("odd_one", [0, 5, 11])
def test_records_of_one_length_that_are_laid_out_differently_are_distinguished_in_every_epoch(
    tmp_path: Path, odd_one: int
) -> None:
    # As many bytes each, but one has its features under other names: what is `x` in all others is missing there.
    payloads = [example(x=bytes([i]) * 8, y=b"y" * 8) for i in range(12)]
    payloads[odd_one] = example(w=bytes([odd_one]) * 8, y=b"y" * 8)
    features = {"x": tfrec.FixedLenFeature([], tfrec.string, b"none"), "y": tfrec.FixedLenFeature([], tfrec.string, "")}
    pipe = Pipeline(batch_size=4)
    with pipe:
        found = fn.readers.tfrecord(path=write(tmp_path / "a.tfrecord", payloads), features=features)
        pipe.set_outputs(found["x"])

    epochs = [[one.tobytes() for _ in range(3) for one in pipe.run()[0]] for _ in range(3)]

    expected = [bytes([i]) * 8 if i != odd_one else b"none" for i in range(12)]
    assert epochs == [expected] * 3


def test_a_serialized_reader_has_its_features(path: str) -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        found = fn.readers.tfrecord(path=path, features=FEATURES)
        pipe.set_outputs(*found.values())
    text = pipe.serialize()
    again = Pipeline.deserialize(text)
    assert again.serialize() == text
    for ours, theirs in zip(again.run(), pipe.run(), strict=True):
        assert [one.tolist() for one in ours] == [one.tolist() for one in theirs]
