"""The default batch function."""

from __future__ import annotations

import re
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from beam_pipes.errors import DatasetError
from beam_pipes.map_style import default_collate

Point = namedtuple("Point", ["x", "y"])


def test_an_array_of_structures_becomes_a_structure_of_arrays():
    weight, height, width, depth, density = default_collate([(1.2, 1.1, 1.3, 1.4, 0.8), (1.6, 1.4, 1.2, 0.6, 1.4)])

    assert [1.2, 1.6] == weight.tolist()
    assert [1.1, 1.4] == height.tolist()
    assert [1.3, 1.2] == width.tolist()
    assert [1.4, 0.6] == depth.tolist()
    assert [0.8, 1.4] == density.tolist()


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        pytest.param([1, 2], np.array([1, 2], np.int64), id="ints"),
        pytest.param([1.5, 2.5], np.array([1.5, 2.5], np.float64), id="floats"),
        pytest.param([True, False], np.array([True, False]), id="bools"),
        pytest.param([np.float32(1), np.float32(2)], np.array([1, 2], np.float32), id="numpy_scalars"),
        pytest.param([np.int32(1), 2**40], np.array([1, 2**40], np.int64), id="mixed_widths"),
        pytest.param([np.ones((2, 3), np.int8)] * 4, np.ones((4, 2, 3), np.int8), id="arrays"),
    ],
)
def test_numbers_and_arrays_are_stacked(examples, expected):
    batch = default_collate(examples)

    assert expected.dtype == batch.dtype
    np.testing.assert_array_equal(expected, batch)


def test_the_structure_is_kept():
    assert ["a", "b"] == default_collate(["a", "b"])
    assert [b"a", b"b"] == default_collate([b"a", b"b"])
    assert [Path("a"), Path("b")] == default_collate([Path("a"), Path("b")])
    assert [["a", "b"], ["x", "y"]] == default_collate([["a", "x"], ["b", "y"]])

    points = default_collate([Point(1, "a"), Point(2, "b")])
    assert Point is type(points)
    assert [1, 2] == points.x.tolist()

    nested = default_collate([{"a": (1, {"b": "x"})}, {"a": (2, {"b": "y"})}])
    assert [1, 2] == nested["a"][0].tolist()
    assert {"b": ["x", "y"]} == nested["a"][1]


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        pytest.param([], "default_collate needs at least one example, got an empty list", id="empty"),
        pytest.param(
            [{"a": (1, np.ones(2))}, {"a": (2, np.ones(3))}],
            "default_collate found arrays of different shape at example['a'][1]: (2,) in example 0, (3,) in "
            "example 1 of "
            "the batch. Pass a collate_fn that pads, such as batch_sequences.",
            id="shape",
        ),
        pytest.param(
            [np.ones(2), np.ones(2, np.float32)],
            "default_collate found arrays of different dtype at example: float64 in example 0, float32 in example 1 of "
            "the batch. Convert them, or pass a collate_fn.",
            id="dtype",
        ),
        pytest.param(
            [[1, 2], [3]],
            "default_collate found sequences of different length at example: [2, 1]. Pass a collate_fn that pads, such "
            "as batch_sequences or batch_text_id.",
            id="length",
        ),
        pytest.param(
            [{"a": 1}, {"b": 1}],
            "default_collate found dicts of different keys at example: ['a'] in example 0, ['b'] in example "
            "1 of the batch",
            id="keys",
        ),
        pytest.param([1, 2.0], "default_collate found values of different types at example: float, int", id="numbers"),
        pytest.param(["a", 1], "default_collate found values of different types at example: int, str", id="types"),
        pytest.param([1, True], "default_collate found values of different types at example: bool, int", id="bool"),
        pytest.param([1, None], "default_collate found values of different types at example: NoneType, int", id="none"),
        pytest.param(
            [2**63, -1],
            "default_collate found integers at example that no 64-bit integer dtype holds together",
            id="wide",
        ),
        pytest.param(
            [2**64, 1],
            "default_collate found integers at example that no 64-bit integer dtype holds together",
            id="huge",
        ),
        pytest.param(
            [None],
            "default_collate cannot batch example of type NoneType; it takes arrays, numbers, strings, bytes, paths, "
            "tuples, lists and dicts of them. Pass a collate_fn for anything else.",
            id="unknown",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_its_place(examples, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        default_collate(examples)
