"""The example codec: exact round trips, deterministic and aligned bytes, and the words of its refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from beam_pipes.cache import BytesCodec, ExampleCodec, ExampleSpec, FeatureSpec, ProtoCodec, codec_for
from beam_pipes.errors import CorruptRecordError, SpecError
from beam_pipes.format.framing import HEADER_BYTES
from beam_pipes.format.messages import Example, SequenceExample
from beam_pipes.format.wire import packed_varints

NUMERIC = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"]
RAW_ONLY = ["float64", "bfloat16"]


@st.composite
def numeric_features(draw: st.DrawFn) -> tuple[FeatureSpec, Any]:
    """A spec and a value that fits it."""
    dtype = draw(st.sampled_from(NUMERIC + RAW_ONLY))
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    shape = tuple(draw(st.sampled_from([None, size])) for size in sizes)
    encodings = ["raw"] if dtype in (*RAW_ONLY, "uint64") else ["raw", "list"]
    spec = FeatureSpec(dtype, shape=shape, encoding=draw(st.sampled_from(encodings)))  # type: ignore[arg-type]
    if dtype == "bfloat16":
        bits = draw(st_numpy.arrays(np.uint16, sizes, elements=st.integers(0, 0x7F80)))
        return spec, bits.view(spec.numpy_dtype)
    return spec, draw(st_numpy.arrays(np.dtype(dtype), sizes))


@st.composite
def text_features(draw: st.DrawFn) -> tuple[FeatureSpec, Any]:
    dtype = draw(st.sampled_from(["str", "bytes"]))
    value: st.SearchStrategy[Any] = st.binary(max_size=20)
    if dtype == "str":
        value = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if draw(st.booleans()):
        return FeatureSpec(dtype), draw(value)
    values = np.empty(draw(st.integers(0, 3)), object)
    values[:] = [draw(value) for _ in values]
    return FeatureSpec(dtype, shape=draw(st.sampled_from([(None,), (len(values),)]))), values


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: not name.endswith("/shape")
)


@settings(max_examples=300)
@given(st.dictionaries(names, numeric_features() | text_features(), max_size=5))
def test_decoding_gives_back_exactly_what_was_encoded(features: dict[str, tuple[FeatureSpec, Any]]) -> None:
    codec = ExampleCodec(ExampleSpec({name: spec for name, (spec, _) in features.items()}))
    example = {name: value for name, (_, value) in features.items()}

    payload, row = codec.encode_indexed(example)

    assert payload == codec.encode(dict(reversed(example.items())))
    assert codec.encode_all([example] * 2) == ([payload] * 2, [row] * 2) and codec.encode_all([]) == ([], [])
    assert len(payload) % 8 == 0 and len(row) == len(codec.index_columns)
    # The runtime writes the same features in another order and without filler.
    for form in (payload, Example.FromString(payload).SerializeToString()):
        found = codec.decode(form)
        assert list(found) == list(codec.spec)
        for name, (spec, value) in features.items():
            if isinstance(value, (str, bytes)):
                assert found[name] == value
                continue
            assert found[name].dtype == value.dtype and found[name].shape == value.shape
            if spec.is_text:
                assert found[name].tolist() == value.tolist()
            elif spec.encoding == "raw":
                assert found[name].tobytes() == value.tobytes()
            else:
                np.testing.assert_array_equal(found[name], value)


@settings(max_examples=200)
@given(st.dictionaries(names, numeric_features() | text_features(), min_size=1, max_size=5))
def test_the_index_row_tells_where_each_aligned_tensor_lies(features: dict[str, tuple[FeatureSpec, Any]]) -> None:
    codec = ExampleCodec(ExampleSpec({name: spec for name, (spec, _) in features.items()}))
    payload, row = codec.encode_indexed({name: value for name, (_, value) in features.items()})
    columns = dict(zip(codec.index_columns, row, strict=True))

    for field in codec.fields:
        start = columns.get(f"start/{field.name}", codec.constant_starts.get(field.name))
        value = features[field.feature][1]
        if not field.direct:
            assert start is None
            continue
        assert start is not None
        assert (HEADER_BYTES + start) % field.alignment == 0
        if field.kind == "raw" and features[field.feature][0].storage_dtype == field.dtype:
            stored = np.asarray(value).tobytes()
            assert payload[start : start + len(stored)] == stored
            if np.ndim(value):
                assert (HEADER_BYTES + start) % 8 == 0


@settings(max_examples=300)
@given(st.data())
def test_a_changed_record_is_decoded_as_protocol_buffers_would_or_refused(data: st.DataObject) -> None:
    codec = ExampleCodec(ExampleSpec({name: spec for name, (spec, _) in CHANGED.items()}))
    payload = bytearray(codec.encode({name: value for name, (_, value) in CHANGED.items()}))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)) | st.just(len(payload)))])

    outcomes: list[dict[str, Any]] = []
    for form in (lambda: cut, lambda: Example.FromString(cut).SerializeToString()):
        try:
            found = codec.decode(form())
            outcomes.append({name: (str(np.asarray(value).tolist()), np.shape(value)) for name, value in found.items()})
        except (SpecError, CorruptRecordError, DecodeError):
            outcomes.append({})

    assert outcomes[0] == outcomes[1]


CHANGED: dict[str, tuple[FeatureSpec, Any]] = {
    "flags": (FeatureSpec("bool", shape=(None,)), [True, False]),
    "ids": (FeatureSpec("int16", shape=(None,), encoding="list"), [1, 300, -1]),
    "image": (FeatureSpec("uint8", shape=(None, None)), np.zeros((2, 1), np.uint8)),
    "text": (FeatureSpec("str"), "é"),
    "tokens": (FeatureSpec("int32", shape=(None,)), [5, 6, 7]),
    "words": (FeatureSpec("bytes", shape=(None,)), [b"a", b""]),
    "xs": (FeatureSpec("float32", shape=(None,), encoding="list"), [0.5]),
}


def test_golden_bytes_of_a_record() -> None:
    codec = ExampleCodec(
        ExampleSpec(
            {
                "id": FeatureSpec("int64"),
                "text": FeatureSpec("str"),
                "tokens": FeatureSpec("int32", shape=(None,), minimum=0, maximum=60_000),
            }
        )
    )

    payload, row = codec.encode_indexed({"id": 7, "text": "hé", "tokens": [1, 2, 50_000]})

    assert payload.hex(" ") == GOLDEN_RECORD
    assert dict(zip(codec.index_columns, row, strict=True)) == GOLDEN_ROW


GOLDEN_RECORD = (
    "7a 04 00 00 00 00 0a 14 0a 12 0a 02 69 64 12 0c 0a 0a 0a 08 07 00 00 00 00 00 00 00 0a 11 0a 0f "
    "0a 04 74 65 78 74 12 07 0a 05 0a 03 68 c3 a9 7a 01 00 0a 16 0a 14 0a 06 74 6f 6b 65 6e 73 12 0a "
    "0a 08 0a 06 01 00 02 00 50 c3 7a 04 00 00 00 00"
)
GOLDEN_ROW = {"length/text": 3, "start/text": 44, "length/tokens": 3, "start/tokens": 68}


@given(st_numpy.arrays(np.int64, st.integers(0, 20)))
def test_packed_varints_are_those_of_protocol_buffers(values: Any) -> None:
    expected = Example()
    expected.features.feature["x"].int64_list.value.extend(values.tolist())
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec("int64", shape=(None,), encoding="list")}))

    assert packed_varints(values) in expected.SerializeToString()
    assert codec.decode(expected.SerializeToString())["x"].tolist() == values.tolist()


@pytest.mark.parametrize(
    ("spec", "value", "stored"),
    [
        (FeatureSpec("int32"), np.int64(5), 5),
        (FeatureSpec("int32"), 5.0, 5),
        (FeatureSpec("int32"), True, 1),
        (FeatureSpec("bool"), 1, True),
        (FeatureSpec("float32"), 3, 3.0),
        (FeatureSpec("float32"), 0.1, np.float32(0.1)),
        (FeatureSpec("float32"), np.float64(0.5), 0.5),
        (FeatureSpec("float32"), math.inf, math.inf),
        (FeatureSpec("float64"), 1 << 60, float(1 << 60)),
        (FeatureSpec("uint64"), (1 << 64) - 1, (1 << 64) - 1),
        (FeatureSpec("int64", shape=(None,)), [], []),
        (FeatureSpec("int8", shape=(2,)), (1, 2), [1, 2]),
        (FeatureSpec("uint8", shape=(2,)), np.array([1, 2], ">i4"), [1, 2]),
        (FeatureSpec("float32", shape=(2,)), [1, 0.25], [1.0, 0.25]),
    ],
    ids=str,
)
def test_values_of_another_type_are_accepted_where_they_are_the_same_numbers(
    spec: FeatureSpec, value: Any, stored: Any
) -> None:
    codec = ExampleCodec(ExampleSpec({"x": spec}))

    found = codec.decode(codec.encode({"x": value}))["x"]

    assert found.tolist() == (stored.tolist() if hasattr(stored, "tolist") else stored)
    assert found.dtype == spec.numpy_dtype


@pytest.mark.parametrize(
    ("spec", "value", "words"),
    [
        (FeatureSpec("int32"), 1.5, r"'x': expected values that are exact in int32, got 1.5 \(float64\)"),
        (FeatureSpec("int32"), 1 << 31, r"'x': expected values that are exact in int32, got 2147483648 \(int64\)"),
        (FeatureSpec("uint8"), -1, "'x': expected values that are exact in uint8, got -1"),
        (FeatureSpec("int64"), float("nan"), "'x': expected values that are exact in int64, got nan"),
        (FeatureSpec("int64"), 2.0**63, "'x': expected values that are exact in int64, got 9.2"),
        (FeatureSpec("uint64"), 2.0**64, "'x': expected values that are exact in uint64, got 1.8"),
        (FeatureSpec("uint64"), -1, "'x': expected values that are exact in uint64, got -1"),
        (FeatureSpec("bool"), 2, "'x': expected values that are exact in bool, got 2"),
        (FeatureSpec("float32"), np.float64(0.1), r"'x': expected values that are exact in float32, got 0.1"),
        (FeatureSpec("float32"), 1e39, "'x': expected values that are exact in float32, got 1e[+]39"),
        (FeatureSpec("float32"), (1 << 24) + 1, "'x': expected values that are exact in float32, got 16777217"),
        (
            FeatureSpec("float64"),
            (1 << 63) - 1,
            "'x': expected values that are exact in float64, got 9223372036854775807",
        ),
        (FeatureSpec("int8", shape=(2,)), [1, 200], r"got 200 \(int64\) at \[1\]. Convert the values on purpose"),
        (FeatureSpec("int32", maximum=9), 10, r"'x': expected values in the declared range \[-2147483648, 9\], got 10"),
        (FeatureSpec("int32", shape=(1,), minimum=0), [-1], r"declared range \[0, 2147483647\], got -1"),
        (FeatureSpec("int32"), [1], r"'x': expected rank 0 \(int32, shape \(\)\), got an array of shape \(1,\)"),
        (
            FeatureSpec("int32", shape=(2,)),
            np.zeros(3, np.int32),
            r"'x': expected shape \(2,\).*got an array of shape \(3,\)",
        ),
        (FeatureSpec("int32", shape=(None, 2)), np.zeros((1, 3), np.int32), r"'x': expected shape \(None, 2\)"),
        (
            FeatureSpec("int32", shape=(None,)),
            "abc",
            "'x': expected int32 of shape .*, got 'abc', which is not an array of numbers: it is of type str",
        ),
        (
            FeatureSpec("int32", shape=(None,)),
            [[1], [2, 3]],
            "'x': expected int32 .*it has inner lists of different lengths, 1 and 2",
        ),
        (
            FeatureSpec("int32"),
            None,
            "'x': expected int32 of shape .*got None, which .*: it is None, so it has no value: fill it in, or drop",
        ),
        (
            FeatureSpec("float32"),
            1j,
            "'x': expected float32 .*got 1j, which is not an array of numbers: it is of type complex",
        ),
        (FeatureSpec("str"), b"abc", "'x': expected str, got bytes b'abc'. Decode it, or change the spec"),
        (FeatureSpec("bytes"), "abc", "'x': expected bytes, got str 'abc'. Encode it, or change the spec"),
        (FeatureSpec("str"), 5, "'x': expected str, got int 5. Convert it, or change the spec"),
        (FeatureSpec("str"), None, "got NoneType None. It has no value: fill it in, or drop the record, or change"),
        (FeatureSpec("str", shape=(None,)), ["a", None], "It has no value: fill it in, or drop the record"),
        (FeatureSpec("str"), "\ud800", "'x': expected valid Unicode.*Declare bytes to keep such data"),
        (FeatureSpec("str", shape=(None,)), "abc", r"'x': expected a list of str \(shape \(None,\)\), got str 'abc'"),
        (FeatureSpec("str", shape=(2,)), ["a"], "'x': expected 2 values of str, got 1"),
        (FeatureSpec("int64", shape=(None,), encoding="list"), [1.5], "exact in int64, got 1.5"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_feature_expected_and_found(
    spec: FeatureSpec, value: Any, words: str
) -> None:
    codec = ExampleCodec(ExampleSpec({"x": spec, "z": FeatureSpec("str")}))

    with pytest.raises(SpecError, match=words) as caught:
        codec.encode({"x": value, "z": ""})
    assert caught.value.feature == "x"


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "varying"])
@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"a": 1}, r"feature 'b': expected an example with the features \['a', 'b'\], got \['a'\]: missing \['b'\]"),
        ({"a": 1, "b": 1, "c": 1}, r"feature 'c': .*unexpected \['c'\]. Give every example all declared features"),
        ({"a": 1, "c": 1}, r"missing \['b'\], unexpected \['c'\]"),
    ],
    ids=["missing", "extra", "renamed"],
)
def test_an_example_has_exactly_the_declared_features(fixed: bool, example: dict[str, Any], words: str) -> None:
    other = FeatureSpec("int8") if fixed else FeatureSpec("int8", encoding="list")
    codec = ExampleCodec(ExampleSpec({"a": FeatureSpec("int8"), "b": other}))

    for encode in (codec.encode, codec.encode_indexed):
        with pytest.raises(SpecError, match=words):
            encode(example)
    with pytest.raises((SpecError, KeyError)):
        codec.encode_all([{"a": 1, "b": 1}, example])


def test_many_examples_are_encoded_like_each_of_them() -> None:
    features = {"id": "int64", "score": "float32"} | dict.fromkeys(["name", "text"], "str")
    spec = {name: FeatureSpec(dtype) for name, dtype in features.items()}
    codec = ExampleCodec(ExampleSpec({**spec, "tokens": FeatureSpec("int32", shape=(None,))}))
    examples = [
        {"id": n, "score": n / 2, "name": "n" * (n % 5), "text": "é" * n, "tokens": [*range(n)]} for n in range(40)
    ]

    payloads, rows = codec.encode_all(examples)

    assert [*zip(payloads, rows, strict=True)] == [codec.encode_indexed(example) for example in examples]


def message(**features: Any) -> bytes:
    made = Example()
    for name, values in features.items():
        feature = made.features.feature[name]
        for value in values:
            kind = {int: feature.int64_list, float: feature.float_list, bytes: feature.bytes_list}[type(value)]
            kind.value.append(value)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    ("spec", "payload", "words"),
    [
        (
            FeatureSpec("int32"),
            message(y=[1]),
            r"feature 'x': expected a record with the features \['x'\], found \['y'\]",
        ),
        (FeatureSpec("int32"), message(x=[1]), 'expected a bytes_list .int32., found a int64_list.*encoding="list"'),
        (FeatureSpec("int8", encoding="list"), message(x=[b"a"]), 'expected a int64_list.*found a bytes_list.*"raw"'),
        (
            FeatureSpec("int8", encoding="list"),
            message(x=[300]),
            "'x': expected values that are exact in int8, got 300",
        ),
        (FeatureSpec("int32"), message(x=[b"abc"]), "'x': expected raw int32 values of 4 bytes each, found 3 bytes"),
        (FeatureSpec("int32"), message(x=[b"a" * 8]), r"'x': expected int32 of shape \(\), found 2 elements"),
        (FeatureSpec("int8", shape=(None, 3)), message(x=[b"abcd"]), r"shape \(None, 3\), found 4 elements"),
        (FeatureSpec("int32"), message(x=[b"abcd", b"abcd"]), "'x': expected one value, found 2"),
        (FeatureSpec("str"), message(x=[b"\xff"]), "'x': expected UTF-8, found .*Declare bytes to read it"),
        (FeatureSpec("bool"), message(x=[b"\x02"]), r"'x': expected booleans \(bytes 0 and 1\), found 2"),
        (FeatureSpec("str", shape=(2,)), message(x=[b"a"]), r"'x': expected str of shape \(2,\), found 1 elements"),
    ],
    ids=str,
)
def test_a_record_of_another_spec_is_refused(spec: FeatureSpec, payload: bytes, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ExampleCodec(ExampleSpec({"x": spec})).decode(payload)


def test_bytes_that_are_no_example_are_a_corrupt_record() -> None:
    with pytest.raises(CorruptRecordError, match="expected a serialized Example, got 3 bytes that do not parse"):
        ExampleCodec(ExampleSpec({"x": FeatureSpec("int8")})).decode(b"\xff\xff\xff")


def test_an_untouched_boolean_that_is_neither_true_nor_false_is_refused_in_our_own_layout_too() -> None:
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec("bool", shape=(2,))}))
    payload = codec.encode({"x": [True, True]})
    start = codec.constant_starts["x"]

    with pytest.raises(SpecError, match="expected booleans"):
        codec.decode(payload[:start] + b"\x07" + payload[start + 1 :])


def test_protos_and_bytes_are_records_too() -> None:
    proto = SequenceExample()
    proto.context.feature["b"].int64_list.value.append(1)
    proto.context.feature["a"].int64_list.value.append(2)

    codec = codec_for("proto", proto=SequenceExample)
    assert isinstance(codec, ProtoCodec) and codec.decode(codec.encode(proto)) == proto
    assert codec.encode(proto) == codec.encode(SequenceExample.FromString(proto.SerializeToString()))
    assert isinstance(codec_for("bytes"), BytesCodec) and codec_for("bytes").encode(bytearray(b"a")) == b"a"
    with pytest.raises(SpecError, match="expected a record of SequenceExample, got Example"):
        codec.encode(Example())
    with pytest.raises(SpecError, match="expected a record of bytes, got str"):
        BytesCodec().encode("a")
    with pytest.raises(CorruptRecordError, match="expected a serialized SequenceExample, got 1 bytes"):
        codec.decode(b"\xff")
    with pytest.raises(
        SpecError, match='expected kind "example" with a spec, "proto" with a message class, or "bytes"'
    ):
        codec_for("example")


@pytest.mark.parametrize("count", [0, 1, 31, 32, 300])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_columns_are_encoded_as_their_rows_are(count, data):
    dtypes = data.draw(st.lists(st.sampled_from(["bool", "int8", "int64", "float32", "float64", "str"]), min_size=1))
    lengths = np.random.default_rng(data.draw(st.integers(0, 9)))
    columns = {}
    for number, dtype in enumerate(dtypes):
        numbers = lengths.integers(0, 100, count)
        texts = ["é" * int(size) for size in numbers]
        columns[f"f{number}"] = texts if dtype == "str" else (numbers % 2 if dtype == "bool" else numbers).astype(dtype)
    codec = ExampleCodec(ExampleSpec({name: FeatureSpec(dtype) for name, dtype in zip(columns, dtypes, strict=True)}))
    values = [column if isinstance(column, list) else column.tolist() for column in columns.values()]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    payloads, index = codec.encode_columns(columns)

    assert [*zip(payloads, index, strict=True)] == [codec.encode_indexed(row) for row in rows]
    assert (payloads, index) == codec.encode_all(rows)


@pytest.mark.parametrize("beside", [(1 << 62) - 1, 1 << 59])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_stored_shape_that_no_array_has_is_refused(dtype: str, beside: int) -> None:
    codec = ExampleCodec(ExampleSpec({"box": FeatureSpec(dtype, shape=(None, None))}))
    example = Example.FromString(codec.encode({"box": np.zeros((0, 3), dtype)}))
    stored = example.features.feature["box/shape"].bytes_list.value
    stored[0] = np.array([0, beside], np.int64).tobytes()

    with pytest.raises(
        SpecError, match=f"found 0 elements and the shape \\(0, {beside}\\). The record was written with"
    ):
        codec.decode(example.SerializeToString())
