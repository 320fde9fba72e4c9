"""What `WriteToCache` keeps of an element that cannot be stored: all of it, and the same in every run."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import attrs
import numpy as np
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import Timestamp
from built_files import built_files

from beam_pipes.beam import WriteToCache, element_of
from beam_pipes.beam.letters import raw_of, text_of_element
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER

FEATURES = {"user": FeatureSpec("str"), "n": FeatureSpec("int8")}


@dataclasses.dataclass
class User:
    user: str
    n: int


@attrs.define
class Account:
    user: str
    n: int


class Named(NamedTuple):
    user: str
    n: int


class Colour(enum.Enum):
    RED = 1


class Text(str):
    pass


def write(to: Path, elements: Sequence[Any], *steps: Any, **options: Any) -> Any:
    with beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) as pipeline:
        found = pipeline | beam.Create(elements)
        for step in steps:
            found = found | step
        found | WriteToCache(to, num_shards=2, **{"features": FEATURES, "on_error": "dead_letter", **options})
    return Cache.open(to)


VALUES = [
    pytest.param({"a": (1, 2.5, "é\0\ud800"), "b": [None, True]}, id="plain values, half a surrogate pair"),
    pytest.param({"$array": b"\0\xff", 1: 2, (3,): {4}}, id="keys that are no text, and like ours"),
    pytest.param({"x": math.inf, "y": -0.0, "z": 1e-320}, id="floats"),
    pytest.param(10**40, id="a long number"),
    pytest.param({"x": np.float32([0.125, 7.5, 42])}, id="an array"),
    pytest.param(np.float16([[0.1], [65504]]), id="half floats"),
    pytest.param(np.array([math.nan, 1]), id="an array with nan"),
    pytest.param(np.arange(100_000, dtype=np.uint8).reshape(2, -1), id="a long array"),
    pytest.param(np.array(["a", "bß"]), id="an array of text"),
    pytest.param(np.array([{"a": np.int8(1)}, None], object), id="an array of objects"),
    pytest.param(np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")]), id="a structured array"),
    pytest.param(np.datetime64("2024-01-01"), id="a date of NumPy"),
    pytest.param({"x": np.float32(0.1), "y": np.uint64(2**64 - 1)}, id="scalars"),
    pytest.param(datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc), id="a time"),
    pytest.param([decimal.Decimal("3.10"), uuid.UUID(int=5), Colour.RED, Text("a"), 1j], id="objects"),
    pytest.param({"named": Named("bob", 2), "user": User("ann", 1)}, id="objects with fields"),
    pytest.param(collections.defaultdict(list, {"k": [collections.deque([1, 2])]}), id="containers"),
    pytest.param(Timestamp(5), id="a time of Beam"),
    pytest.param({"x": "x" * 200_000}, id="a long text"),
]


@pytest.mark.parametrize("value", VALUES)
def test_an_element_is_made_from_its_dead_letter(value: Any) -> None:
    made = element_of(raw_of(value))

    assert type(made) is type(value)
    assert repr(made) == repr(value)
    assert raw_of(made) == raw_of(value)
    if isinstance(value, np.ndarray):
        np.testing.assert_array_equal(made, value)
        assert made.dtype == value.dtype


def test_messages_within_an_element_are_kept_and_bytes_and_messages_stay_as_they_are() -> None:
    message = tf.train.Example.FromString(b"")
    message.features.feature["a"].int64_list.value.append(3)

    assert element_of(raw_of({"m": message})) == {"m": message}
    assert raw_of(message) == message.SerializeToString()
    assert raw_of(b"\x00{") == b"\x00{"


def test_a_row_is_the_dict_of_its_fields_whatever_its_class() -> None:
    rows = [beam.Row(user="ann", n=(1, 2)), User("ann", [1, 2]), Account("ann", np.array([1, 2])), Named("ann", (1, 2))]

    assert {raw_of(row) for row in rows} == {b'{"n": [1, 2], "user": "ann"}'}


def test_what_has_no_parts_is_its_text_without_a_place_in_memory() -> None:
    inside_itself: list[Any] = []
    inside_itself.append(inside_itself)

    assert text_of_element(lambda: 1).startswith('{"$repr": "<function test_what_has_no_parts')
    assert " at 0x" not in text_of_element(lambda: 1)
    assert text_of_element(inside_itself) == '{"$repr": "[[...]]"}'
    with pytest.raises(DeclarationError, match=r"no values that could be kept, only its text: \[\[\.\.\.\]\]"):
        element_of(raw_of(inside_itself))
    with pytest.raises(
        DeclarationError, match=r"should hold an element as JSON, got bytes: b'a line'.*bytes or messages"
    ):
        element_of(b"a line")


def test_dead_letters_do_not_show_whether_rows_crossed_a_shuffle(tmp_path: Path) -> None:
    """There Beam gives them a class whose name is drawn for every run."""
    rows = [beam.Row(user="ann", n=1), beam.Row(user="bob", n=1000)] + [beam.Row(user=f"u{k}", n=k) for k in range(20)]
    typed = beam.Map(lambda row: row).with_output_types(Named)

    fused = write(tmp_path / "fused", rows, key="user")
    shuffled = write(
        tmp_path / "shuffled", [Named(row.user, row.n) for row in rows], typed, beam.Reshuffle(), key="user"
    )

    [letter] = fused.dead_letters()
    assert element_of(letter.record) == {"user": "bob", "n": 1000}
    assert fused.manifest.id == shuffled.manifest.id
    assert built_files(tmp_path / "fused") == built_files(tmp_path / "shuffled")


def test_the_name_that_beam_draws_for_a_class_is_in_no_message(tmp_path: Path) -> None:
    rows = [(f"user{n}", n) for n in range(30)]
    steps = [beam.Select(user=lambda pair: str(pair[0]), n=lambda pair: int(pair[1])), beam.Reshuffle()]
    bad = beam.Map(lambda row: row if row.n == 7 else row.user.encode()).with_output_types(Any)

    opened = write(tmp_path, rows, *steps, bad, features=None)

    [letter] = opened.dead_letters()
    assert element_of(letter.record) == {"user": "user7", "n": 7}
    assert "BeamSchema" not in letter.message and "Row" in letter.message


BAD_KEYS = [
    pytest.param(
        {"key": lambda row: None if row["n"] == 7 else row["user"]}, "a key should be a str", id="None as key"
    ),
    pytest.param(
        {"key": lambda row: {7: row}[row["n"]] and None if row["n"] == 7 else "k"}, "a key should", id="a key"
    ),
    pytest.param(
        {"splits": ["a"], "split_by": lambda row: "b" if row["n"] == 7 else "a"}, "split_by gave 'b'", id="a split"
    ),
    pytest.param({"key": lambda row: str(1 // (row["n"] - 7))}, "integer division", id="a key that raises"),
]


@pytest.mark.parametrize(("options", "words"), BAD_KEYS)
def test_one_key_or_split_that_cannot_be_is_a_dead_letter(tmp_path: Path, options: Any, words: str) -> None:
    rows = [{"user": f"user{n}", "n": n} for n in range(20)]

    opened = write(tmp_path / "kept", rows, **options)
    dropped = write(tmp_path / "dropped", rows, on_error="drop", **options)

    [letter] = opened.dead_letters()
    assert words in letter.message and element_of(letter.record) == rows[7]
    assert dropped.manifest.accounting["dropped"] == 1
    with pytest.raises(Exception, match=words):
        write(tmp_path / "ended", rows, on_error="fail", **options)


@pytest.mark.parametrize("kind", [User, Account, Named])
@pytest.mark.parametrize("features", [None, FEATURES], ids=["of the schema", "given"])
def test_rows_of_every_kind_are_stored(tmp_path: Path, kind: Any, features: Any) -> None:
    rows = [kind("ann", 1), kind("bob", 2)]

    opened = write(
        tmp_path,
        rows,
        beam.Map(lambda row: row).with_output_types(kind),
        features=features,
        key="user",
        on_error="fail",
    )

    assert {row["user"]: int(row["n"]) for row in opened["train"]} == {"ann": 1, "bob": 2}
