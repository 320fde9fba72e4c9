"""Values in memory: types, shards, identification by content."""

from __future__ import annotations

import dataclasses
import enum
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.format.messages import Example
from beam_pipes.sources import Memory
from beam_pipes.sources.record_batch import value_bytes


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


def fingerprints(values: list[Any], **options: Any) -> list[str]:
    return [shard.fingerprint() for shard in Memory(values, **options).plan(target_shard_bytes=1).shards]


def test_values_are_dealt_to_shards_by_count():
    source = Memory(["a", "b", "c", "d", "e"], records_per_shard=2)
    shards = source.plan(target_shard_bytes=1).shards

    assert [[batch.values for batch in source.read(shard)] for shard in shards] == [[["a", "b"]], [["c", "d"]], [["e"]]]
    assert [b.record_ids() for b in source.read(shards[1])] == [["memory@2", "memory@3"]]
    assert [b.raw(0) for b in source.read(shards[2])] == [b"e"]


def test_a_changed_value_changes_its_shard_only():
    before = fingerprints(["a", "b", "c", "d"], records_per_shard=2)
    after = fingerprints(["a", "b", "c", "x"], records_per_shard=2)

    assert before[0] == after[0]
    assert before[1] != after[1]


def test_the_type_is_that_of_the_values():
    assert Memory([1, 2]).output_type is int
    assert Memory([], value_type=str).output_type is str
    assert Memory([], value_type=str).plan(target_shard_bytes=1).shards == ()
    assert Memory([Point(1), 3], value_type=object).output_type is object


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "an empty list has no type: pass value_type"),
        ([1, "a"], {}, "all values should be int, got str at index 1: 'a'. Pass value_type"),
        ([1, True], {}, "all values should be int, got bool at index 1"),
        ("abc", {}, r"values should be a list, got str; pass list\(values\)"),
        (iter([1]), {}, "values should be a list, got list_iterator"),
        ([1], {"records_per_shard": 0}, "records_per_shard should be an integer of at least 1, got 0"),
    ],
)
def test_options_are_checked(values, options, message):
    with pytest.raises(SourceError, match=message):
        Memory(values, **options)


def test_values_that_cannot_be_hashed_need_a_digest():
    values = [threading.Lock()]

    with pytest.raises(SourceError, match="a value of type lock cannot be hashed by content; pass digest='…'"):
        Memory(values).plan(target_shard_bytes=1)
    assert fingerprints(values, digest="1") == fingerprints(values, digest="1")
    assert fingerprints(values, digest="1") != fingerprints(values, digest="2")


VALUES = [
    None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, float("nan"), 1j, "1", b"1", bytearray(b"1"), "", b"", Colour.RED,
    Point(1), Point(2), [], (), {}, set(), [1], (1,), {1}, [[1], 2], [1, [2]], [1, 2], ["a", "b"], ["ab"], {"a": 1},
    {"a": 2}, {"b": 1}, {1: "a"}, np.int32(1), np.int64(1), np.array(1), np.array([1]), np.array([[1]]),
    np.array([1], np.int8), np.array([1], ">i8"), np.array(["a"], object), np.array([b"a"], object), np.float32("nan"),
    Example(), "\ud800",
]  # fmt: skip


def test_different_values_have_different_bytes():
    encoded = [value_bytes(value) for value in VALUES]

    assert len(set(encoded)) == len(encoded)


def test_equal_values_have_equal_bytes_whatever_their_order_in_memory():
    assert value_bytes({"a": 1, "b": {3, 1, 2}}) == value_bytes({"b": {2, 3, 1}, "a": 1})
    array = np.arange(6).reshape(2, 3)
    assert value_bytes(array.T) == value_bytes(np.ascontiguousarray(array.T))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(plain, plain)
def test_bytes_are_equal_iff_values_read_the_same(a, b):
    assert (value_bytes(a) == value_bytes(b)) == (repr(a) == repr(b))


def test_fingerprints_are_the_same_with_other_hash_seeds():
    script = (
        "from beam_pipes.sources import Memory; "
        "plan = Memory([{'a': {'x', 'y', 'z'}, 'b': frozenset('uvw')}]).plan(target_shard_bytes=1); "
        "print(plan.shards[0].fingerprint())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert runs[0] == runs[1]


def test_messages_and_other_values_parse_from_what_raw_gives():
    message = Example()
    message.features.feature["a"].int64_list.value.append(3)
    for values in ([message], [{"a": 1}], [b"x"], ["ä"]):
        source = Memory(values)
        (shard,) = source.plan(target_shard_bytes=1).shards
        (batch,) = source.read(shard)
        assert source.parse(batch.raw(0), file="memory", position=0) == values[0]
    with pytest.raises(SourceError, match="memory holds 1 values, none at 3"):
        Memory([1]).parse(b"", file="memory", position=3)


def test_a_shard_of_a_longer_list_is_refused():
    (shard,) = Memory(["a", "b"]).plan(target_shard_bytes=1).shards

    with pytest.raises(SourceError, match="memory holds 1 values, expected 2: plan again"):
        next(Memory(["a"]).read(shard))
