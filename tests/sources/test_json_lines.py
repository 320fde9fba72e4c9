"""JSON lines: objects, schemas, bad rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.sources import BadRecord, JSONLines


def read(path: Path, content: bytes, *, target: int = 1 << 30, **options: Any):
    """Values and bad rows."""
    path.write_bytes(content)
    source = JSONLines(path, **options)
    values: list[dict[str, Any]] = []
    bad: list[BadRecord] = []
    for shard in source.plan(target_shard_bytes=target).shards:
        for batch in source.read(shard):
            values += batch.values
            bad += batch.bad
    return values, bad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def test_every_line_is_an_object_and_blank_ones_are_skipped(path):
    content = b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"b": [1, null], "c": "\xc3\xa4\\u00fc"}'

    values, bad = read(path, content)

    assert values == [{"a": 1}, {"b": [1, None], "c": "äü"}]
    assert bad == []


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", b"\xef\xbb\xbf \n\n"])
def test_a_byte_order_mark_alone_is_not_a_record(path, content):
    assert read(path, content) == ([], [])
    assert read(path, content + b"\n{}") == ([{}], [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"[1]", r"expected a JSON object, found '\[1\]'", id="a list"),
        pytest.param(
            b'{"n": 1', r"expected a JSON object, found '\{\"n\": 1': Expecting ',' delimiter", id="cut short"
        ),
        pytest.param(b'{"n": "\xff"}', "expected UTF-8, found byte 0xff at byte 7 of the record", id="not utf-8"),
        pytest.param(b'{"t": "x"}', "key 'n': expected an int, got nothing", id="missing"),
        pytest.param(b'{"n": "1"}', "key 'n': expected an int, got '1'", id="a string"),
        pytest.param(b'{"n": true}', "key 'n': expected an int, got True", id="a bool"),
        pytest.param(b'{"n": 1.0}', "key 'n': expected an int, got 1.0", id="a float"),
        pytest.param(b'{"n": 128}', r"key 'n': expected an int8 in \[-128, 127\], got 128", id="out of range"),
        pytest.param(b"[" * 100_000, "expected a JSON object, found", id="deeply nested"),
        pytest.param(b'{"n": ' + b"9" * 10_000 + b"}", "expected a JSON object, found", id="a huge int"),
    ],
)
def test_a_bad_line_is_kept_with_its_bytes_and_the_others_continue(path, line, message):
    values, bad = read(path, b'{"n": 1}\n' + line + b'\n{"n": 2}\n', schema={"n": "int8"})

    assert values == [{"n": 1}, {"n": 2}]
    assert [(b.ordinal, b.position, b.raw) for b in bad] == [(1, 9, line)]
    with pytest.raises(SourceError, match=message):
        raise bad[0].error


def test_a_schema_types_and_selects_keys(path):
    schema = {
        "f": float,
        "s": str,
        "y": bytes,
        "b": bool,
        "o": str | None,
        "tokens": FeatureSpec("uint16", shape=(None,)),
        "grid": FeatureSpec("float32", shape=(2, 2)),
        "one": FeatureSpec("int8", minimum=0, maximum=5),
    }
    row = {"f": 1, "s": "x", "y": "ä", "b": False, "tokens": [1, 2], "grid": [[1, 2], [3, 4.5]], "one": 5, "unused": 1}

    (value,), bad = read(path, json.dumps(row).encode(), schema=schema)

    assert bad == []
    assert list(value) == list(schema)
    assert (value["f"], value["y"], value["o"], value["one"]) == (1.0, "ä".encode(), None, 5)
    assert isinstance(value["f"], float)
    assert value["tokens"].dtype == np.uint16
    assert value["tokens"].tolist() == [1, 2]
    assert value["grid"].dtype == np.float32
    assert value["grid"].tolist() == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 70000], "key 'x': .*70000"),
        ([1.5], "key 'x': .*1.5"),
        ([[1]], "key 'x': .*rank"),
        (3, r"key 'x': expected a list for shape \(None,\), got 3"),
        (["a"], "key 'x': "),
        ([None], "key 'x': "),
        ([10**30], "key 'x': "),
    ],
)
def test_arrays_that_do_not_fit_their_spec_are_bad(path, value, message):
    _, bad = read(path, json.dumps({"x": value}).encode(), schema={"x": FeatureSpec("uint16", shape=(None,))})

    with pytest.raises(SourceError, match=message):
        raise bad[0].error


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (float, 2**53 + 1, "exact in float64, got 9007199254740993"),
        (float, 10**400, "exact in float64, got 1000"),
        ("float32", 2**24 + 1, r"exact in float32, got 16777217 \(int64\)"),
        ("float16", 70000.0, "in the range of float16, got 70000.0"),
        ("float16", -70000, "exact in float16, got -70000"),
        (FeatureSpec("float32", shape=(None,)), [2**24 + 1, 0.5], r"exact in float32, got 16777217 \(int64\) at \[0\]"),
        (
            FeatureSpec("uint64", shape=(None,)),
            [1, 2**64],
            r"exact in uint64, got 18446744073709551616 \(int\) at \[1\]",
        ),
        (FeatureSpec("str", shape=(None,)), ["a", 1], "expected a string, got 1"),
        (FeatureSpec("str", shape=(2,)), ["a"], "expected 2 values, got 1"),
    ],
)
def test_a_number_that_would_become_another_one_is_bad(path, declared, value, message):
    _, bad = read(path, json.dumps({"x": value}).encode(), schema={"x": declared})

    with pytest.raises(SourceError, match=f"key 'x': .*{message}"):
        raise bad[0].error


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (float, 2**60),
        ("float32", 2**100),
        ("float32", 0.1),
        (FeatureSpec("uint64", shape=(None,)), [2**63 + 1, 1]),
        (FeatureSpec("float64", shape=(None,)), [2**64, 0.5]),
        (FeatureSpec("str", shape=(None,)), ["a", "ü"]),
    ],
)
def test_a_number_that_stays_the_same_is_good(path, declared, value):
    (row,), bad = read(path, json.dumps({"x": value}).encode(), schema={"x": declared})

    assert bad == []
    assert (row["x"].tolist() if isinstance(row["x"], np.ndarray) else row["x"]) == value


@pytest.mark.parametrize("schema", [None, {"x": float}, {"x": FeatureSpec("float32", shape=(None,))}])
@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 400 + ".5"])
def test_a_number_that_no_float_holds_is_bad_and_not_infinite(path, schema, number):
    value = f"[0.5, {number}]" if schema and schema["x"] is not float else number
    values, bad = read(path, f'{{"x": {value}}}\n'.encode(), schema=schema)

    assert values == []
    with pytest.raises(
        SourceError, match=rf"expected a JSON object, .*a number in the range of float64, got {number:.60}"
    ):
        raise bad[0].error


def test_infinity_and_small_numbers_mean_themselves(path):
    assert read(path, b'{"x": [Infinity, -Infinity, 1e-400, 1.7e308]}\n') == (
        [{"x": [float("inf"), float("-inf"), 0.0, 1.7e308]}],
        [],
    )


def test_the_schema_is_part_of_the_configuration():
    def config(**schema: Any) -> str:
        return json.dumps(JSONLines("x", schema=schema).fingerprint_config())

    assert len({config(a=int), config(a=float), config(a="int32"), config(a=int | None), config(b=int)}) == 5
    assert config(a=FeatureSpec("int8")) != config(a=FeatureSpec("int8", maximum=3))


rows = st.dictionaries(
    st.text(max_size=4),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, max_size=20), st.integers(1, 200))
def test_what_the_json_module_writes_is_read_back_however_it_is_split(tmp_path_factory, rows, target):
    path = tmp_path_factory.mktemp("json") / "a.jsonl"

    values, bad = read(path, "".join(json.dumps(row) + "\n" for row in rows).encode(), target=target)

    assert values == rows
    assert bad == []


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_give_values_or_bad_records(tmp_path_factory, content, target):
    try:
        values, bad = read(tmp_path_factory.mktemp("json") / "a.jsonl", content, target=target)
    except SourceError as error:
        assert "is not text in UTF-8. It begins as" in str(error)  # such as "0" in UTF-16, which no line is read of
        return

    assert len(values) + len(bad) <= content.count(b"\n") + 1


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        pytest.param(b'[{"role": "user"}]\n[]', "a list of messages, .* jq -c '{messages: .}' FILE", id="messages"),
        pytest.param(b'[{"a": 1}, {"a": 2}]', "is a JSON array, not JSON Lines, .* jq -c '.\\[\\]' FILE", id="array"),
        pytest.param(b'[\n  {"a": 1}\n]', "is a JSON array", id="an array over lines"),
        pytest.param(
            b'{\n  "a": 1\n}', "an object over several lines, and JSON Lines one .* jq -c . FILE", id="pretty"
        ),
        pytest.param(b'{"a": 1}{"a": 2}', "one object on each line, and nothing after it: jq -c . FILE", id="two"),
        pytest.param(b'{"a": 1},\n{"a": 2}\n', "without a comma after it: sed", id="commas"),
    ],
)
def test_json_that_is_not_json_lines_is_named_with_what_converts_it(path, content, advice):
    _, bad = read(path, content)

    assert re.search(advice, str(bad[0].error))
