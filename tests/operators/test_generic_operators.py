"""Operators over samples of any kind, against NumPy and against numbers that DALI 2.4 gives."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from operator_runs import run

from beam_pipes.errors import InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline, types
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.arrays import saturated

X = np.array([[1.0, 2, 3], [4, 5, 9]], np.float32)
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "float16", "float32", "float64", "bool"]


def one(call: Any, *samples: Any, **options: Any) -> Any:
    return run(call, *[[sample] for sample in samples], **options)[0]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([-1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 300, np.nan], "uint8", [0, 0, 1, 2, 3, 4, 255, 0]),
        ([-2.7, -1.5, 2.5, 2.7, 3e9], "int32", [-3, -2, 3, 3, 2147483647]),
        (np.array([-1, 256, 300], np.int32), "uint8", [0, 255, 255]),
        (np.array([0, 200, 255], np.uint8), "int8", [0, 127, 127]),
        ([-1.0, 0.0, 0.3, 0.5, 2.0], "bool", [True, False, False, True, True]),
        (np.array([True, False]), "float32", [1.0, 0.0]),
        ([1.5, 65504.0], "float16", [1.5, 65504.0]),
    ],
)
def test_cast_rounds_halves_away_from_zero_and_holds_values_in_range(values: Any, dtype: str, expected: Any) -> None:
    values = values if isinstance(values, np.ndarray) else np.array(values, np.float32)
    found = one(lambda x: fn.cast(x, dtype=dtype), values)
    assert found.dtype == dtype and found.tolist() == expected


@given_by_hypothesis(
    values=hnp.arrays(st.sampled_from(["float32", "float64", "int32", "int64", "uint8"]), st.integers(0, 20)),
    dtype=st.sampled_from(["uint8", "int8", "uint16", "int16", "int32", "uint32", "int64"]),
)
@settings(max_examples=150, deadline=None)
def test_saturated_is_exact_rounding_within_the_range(values: Any, dtype: str) -> None:
    found = saturated(np, values, np.dtype(dtype))
    bounds = np.iinfo(dtype)
    for value, got in zip(values.tolist(), found.tolist(), strict=True):
        if value != value:
            wanted = 0
        elif value in (float("inf"), float("-inf")):
            wanted = bounds.max if value > 0 else bounds.min
        else:
            half_up = math.floor(Fraction(abs(value)) + Fraction(1, 2))
            whole = half_up if value > 0 else -half_up
            wanted = min(max(whole, bounds.min), bounds.max)
        assert got == wanted or (abs(value) < 0.5 and got in (-1, 0, 1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"shape": [3, -1]}, [[1, 2], [3, 4], [5, 9]]),
        ({"rel_shape": [0.5, 2]}, [[1, 2, 3, 4, 5, 9]]),
        ({"src_dims": [1, 0, -1]}, [[[1], [2]], [[3], [4]], [[5], [9]]]),
        ({"shape": 6}, [1, 2, 3, 4, 5, 9]),
    ],
)
def test_reshape(options: dict[str, Any], expected: Any) -> None:
    assert one(lambda x: fn.reshape(x, **options), X).tolist() == expected


def test_reshape_by_a_second_input_or_a_node() -> None:
    assert one(lambda x, s: fn.reshape(x, s), X, np.array([6, 1])).shape == (6, 1)
    assert one(lambda x, s: fn.reshape(x, shape=s), X, np.array([3, 2])).shape == (3, 2)


def test_reshape_says_what_does_not_fit() -> None:
    with pytest.raises(OperatorError, match=r"6 elements of shape \(2, 3\) do not make shape \(4, -1\)"):
        one(lambda x: fn.reshape(x, shape=[4, -1]), X)
    with pytest.raises(OperatorArgumentError, match=r"give one of shape and rel_shape"):
        one(lambda x: fn.reshape(x, shape=[6], rel_shape=[1, 1]), X)
    with pytest.raises(InferenceError, match=r"layout='HWC' names 3 axes, and the output has 2"):
        one(lambda x: fn.reshape(x, shape=[3, 2], layout="HWC"), X)
    with pytest.raises(InferenceError, match=r"give shape, rel_shape, src_dims, layout or a second input"):
        one(lambda x: fn.reshape(x), X)


def test_reshape_names_the_axes() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        node = fn.reshape(fn.cast(np.zeros((4, 6), np.uint8), dtype="uint8"), shape=[2, 4, 3], layout="HWC")
    assert str(node.spec) == "uint8[2×4×3] HWC"


def test_reinterpret_sees_the_same_bytes() -> None:
    data = np.array([1, 0, 2, 1], np.uint8)
    assert one(lambda x: fn.reinterpret(x, dtype=types.UINT16), data).tolist() == [1, 258]
    assert one(lambda x: fn.reinterpret(x, dtype=types.UINT16, shape=[2, 1]), data).tolist() == [[1], [258]]
    with pytest.raises(OperatorError, match=r"uint8 of shape \(3,\) does not make whole elements of uint16"):
        one(lambda x: fn.reinterpret(x, dtype=types.UINT16), data[:3])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]),
        ({"align": 4, "fill_value": -1}, [[0, 1, 2, -1, -1, -1, -1, -1], [0, 1, 2, 3, 4, -1, -1, -1]]),
        ({"shape": [4], "fill_value": 7}, [[0, 1, 2, 7], [0, 1, 2, 3, 4]]),
        ({"shape": [-1]}, [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]),
    ],
)
def test_pad_fills_up_to_the_largest_of_the_batch(options: dict[str, Any], expected: Any) -> None:
    found = run(lambda x: fn.pad(x, **options), [np.arange(3), np.arange(5)])
    assert [sample.tolist() for sample in found] == expected


def test_a_shape_by_node_holds_whole_extents() -> None:
    padded = run(lambda x, y: fn.pad(x, shape=y), [np.arange(2), np.arange(3)], [np.array([3]), np.array([4])])
    assert [one.tolist() for one in padded] == [[0, 1, 0], [0, 1, 2, 0]]
    with pytest.raises(OperatorError, match="an extent of -1 is taken in a constant shape only"):
        run(lambda x, y: fn.pad(x, shape=y), [np.arange(2), np.arange(3)], [np.array([3]), np.array([-1])])


def test_pad_of_some_axes() -> None:
    assert one(lambda x: fn.pad(x, axes=[1], shape=[4], fill_value=-1), X).tolist() == [[1, 2, 3, -1], [4, 5, 9, -1]]
    assert one(lambda x: fn.pad(x, axis_names="H", align=4), X, layout="HW").shape == (4, 3)
    with pytest.raises(InferenceError, match=r"axis 2 is out of range for samples of rank 2"):
        one(lambda x: fn.pad(x, axes=[2]), X)
    with pytest.raises(InferenceError, match=r"the layout 'HW' has no axis 'C'"):
        one(lambda x: fn.pad(x, axis_names="C"), X, layout="HW")


SIX = np.arange(6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": [1], "end": [3]}, [1, 2]),
        ({"rel_start": [0.3], "rel_shape": [0.5]}, [2, 3, 4]),
        ({"start": [4], "shape": [4], "out_of_bounds_policy": "pad", "fill_values": 7}, [4, 5, 7, 7]),
        ({"start": [-2], "shape": [4], "out_of_bounds_policy": "pad", "fill_values": 7}, [7, 7, 0, 1]),
        ({"start": [9], "shape": [2], "out_of_bounds_policy": "pad", "fill_values": 7}, [7, 7]),
        ({"start": [4], "shape": [4], "out_of_bounds_policy": "trim_to_shape"}, [4, 5]),
        ({"rel_end": [0.5]}, [0, 1, 2]),
        ({"start": [2], "end": [4], "dtype": "float32"}, [2.0, 3.0]),
    ],
)
def test_slice(options: dict[str, Any], expected: Any) -> None:
    assert one(lambda x: fn.slice(x, axes=[0], **options), SIX).tolist() == expected


def test_slice_by_inputs_and_by_names() -> None:
    image = np.arange(24).reshape(4, 6)
    found = one(lambda x, a, s: fn.slice(x, a, s), image, np.array([0.5, 0.25]), np.array([0.5, 0.5]), layout="HW")
    assert found.tolist() == image[1:3, 3:6].tolist()  # width first
    whole = one(lambda x, a, s: fn.slice(x, a, s, axes=[0]), image, np.array([1]), np.array([2]))
    assert whole.tolist() == image[1:3].tolist()
    named = one(lambda x: fn.slice(x, start=[1, 2], shape=[2, 3], axis_names="HW"), image, layout="HW")
    assert named.tolist() == image[1:3, 2:5].tolist()


def test_slice_says_what_is_wrong() -> None:
    with pytest.raises(OperatorError, match=r"the window 4:8 of axis 0 reaches beyond the 6 elements there"):
        one(lambda x: fn.slice(x, start=[4], shape=[4], axes=[0]), SIX)
    with pytest.raises(OperatorArgumentError, match=r"give one of end, rel_end, shape and rel_shape, got end and"):
        one(lambda x: fn.slice(x, end=[1], shape=[1], axes=[0]), SIX)
    with pytest.raises(OperatorArgumentError, match=r"out_of_bounds_policy should be one of error, pad"):
        one(lambda x: fn.slice(x, end=[1], axes=[0], out_of_bounds_policy="wrap"), SIX)
    with pytest.raises(InferenceError, match=r"give start, end, shape"):
        one(lambda x: fn.slice(x, axes=[0]), SIX)


@given_by_hypothesis(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)), data=st.data(), dtype=st.sampled_from(DTYPES)
)
@settings(max_examples=25, deadline=None)
def test_slice_is_numpys(shape: tuple[int, int], data: Any, dtype: str) -> None:
    starts = [data.draw(st.integers(0, extent)) for extent in shape]
    ends = [data.draw(st.integers(start, extent)) for start, extent in zip(starts, shape, strict=True)]
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    found = one(lambda x: fn.slice(x, start=starts, end=ends, axes=[0, 1]), array)
    assert np.array_equal(found, array[starts[0] : ends[0], starts[1] : ends[1]]) and found.dtype == dtype


def test_one_hot() -> None:
    assert one(lambda x: fn.one_hot(x, num_classes=3), np.int32(1)).tolist() == [0.0, 1.0, 0.0]
    assert one(lambda x: fn.one_hot(x, num_classes=3), np.array([1], np.int32)).tolist() == [0.0, 1.0, 0.0]
    found = one(
        lambda x: fn.one_hot(x, num_classes=3, axis=0, on_value=5, off_value=-1, dtype=types.INT32),
        np.array([1, 2, 7], np.int32),
    )
    assert found.tolist() == [[-1, -1, -1], [5, -1, -1], [-1, 5, -1]]
    with pytest.raises(OperatorArgumentError, match=r"num_classes is missing \(an int of at least 1"):
        one(lambda x: fn.one_hot(x), np.int32(1))
    with pytest.raises(InferenceError, match=r"expected class numbers \(integers\), got float32"):
        one(lambda x: fn.one_hot(x, num_classes=3), np.float32(1))


def test_cat_and_stack() -> None:
    assert one(lambda a, b: fn.cat(a, b, axis=-1), X, X[:, :1]).tolist() == [[1, 2, 3, 1], [4, 5, 9, 4]]
    assert one(lambda a, b: fn.cat(a, b, axis_name="H"), X, X, layout="HW").shape == (4, 3)
    assert one(lambda a, b: fn.stack(a, b, axis=-1), X, X + 1).tolist() == np.stack([X, X + 1], -1).tolist()
    assert [s.tolist() for s in run(lambda a, b: fn.cat(a, b), [SIX[:2], SIX[:3]], [SIX[:1], SIX[:0]])] == [
        [0, 1, 0],
        [0, 1, 2],
    ]
    with pytest.raises(InferenceError, match=r"all inputs should have one dtype"):
        one(lambda a, b: fn.cat(a, b), X, X.astype(np.int32))
    with pytest.raises(InferenceError, match=r"all inputs should have one rank"):
        one(lambda a, b: fn.stack(a, b), X, X[0])
    with pytest.raises(InferenceError, match=r"scalars have no axis to be joined along; use fn.stack"):
        one(lambda a: fn.cat(a, a), np.float32(1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[-1.16190, -0.77460, -0.38730], [0.0, 0.38730, 1.93649]]),
        ({"axes": [0]}, [[-1, -1, -1], [1, 1, 1]]),
        (
            {"axes": [1], "ddof": 1, "epsilon": 1.0, "scale": 2.0, "shift": 3.0},
            [[1.58579, 3.0, 4.41421], [1.58579, 2.29289, 5.12132]],
        ),
        ({"mean": 2.0}, [[-0.30619, 0, 0.30619], [0.61237, 0.91856, 2.1433]]),
        ({"dtype": "int32", "scale": 10.0}, [[-12, -8, -4], [0, 4, 19]]),
        ({"mean": [1.0, 2.0], "stddev": 2.0, "axes": [1]}, [[0, 0.5, 1], [1, 1.5, 3.5]]),
    ],
)
def test_normalize_gives_dalis_numbers(options: dict[str, Any], expected: Any) -> None:
    np.testing.assert_allclose(one(lambda x: fn.normalize(x, **options), X), expected, atol=2e-5)


@pytest.mark.parametrize("ragged", [False, True])
def test_normalize_over_the_batch(ragged: bool) -> None:
    samples = [X, (X * 2)[:, :2] if ragged else X * 2]
    found = run(lambda x: fn.normalize(x, batch=True), samples)
    every = np.concatenate([sample.ravel() for sample in samples])
    for sample, got in zip(samples, found, strict=True):
        np.testing.assert_allclose(got, (sample - every.mean()) / every.std(), atol=1e-5)


def test_normalize_over_the_batch_takes_a_mean_for_each_sample() -> None:
    samples = [np.array([1.0, 3.0]), np.array([10.0, 12.0, 14.0])]
    means = [np.array([2.0]), np.array([12.0])]
    found = run(lambda x, mean: fn.normalize(x, batch=True, mean=mean, stddev=1.0), samples, means)
    assert [one.tolist() for one in found] == [[-1, 1], [-2, 0, 2]]
    found = run(lambda x, mean: fn.normalize(x, batch=True, mean=mean), samples, means)
    np.testing.assert_allclose(np.concatenate(found), np.array([-1, 1, -2, 0, 2]) / np.sqrt(2), rtol=1e-6)


def test_normalize_without_deviation_is_the_shift() -> None:
    assert one(lambda x: fn.normalize(x, shift=4.0), np.ones((2, 2), np.float32)).tolist() == [[4, 4], [4, 4]]


@given_by_hypothesis(array=hnp.arrays(st.sampled_from(DTYPES), st.tuples(st.integers(1, 4), st.integers(1, 4))))
@settings(max_examples=25, deadline=None)
def test_flip_twice_is_nothing(array: Any) -> None:
    assert np.array_equal(one(lambda x: fn.flip(fn.flip(x)), array), array, equal_nan=array.dtype.kind == "f")
    both = one(lambda x: fn.flip(x, horizontal=1, vertical=1), array)
    assert np.array_equal(both, array[::-1, ::-1], equal_nan=array.dtype.kind == "f")


def test_flip_knows_layouts() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    assert np.array_equal(one(fn.flip, image, layout="CHW"), image[:, :, ::-1])
    assert np.array_equal(one(fn.flip, image, layout="HWC"), image[:, ::-1])
    volume = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    for layout, mirrored in (("DHWC", volume[::-1]), ("CDHW", volume[:, ::-1]), ("FHWC", volume)):
        found = one(lambda x: fn.flip(x, depthwise=1, horizontal=0), volume, layout=layout)
        assert np.array_equal(found, mirrored)
    with pytest.raises(InferenceError, match=r"expected images of rank 2 or 3"):
        one(fn.flip, SIX)


def test_shapes_is_the_older_name_of_shape() -> None:
    samples = [np.zeros((2, 3)), np.zeros((1, 4))]
    assert [one.tolist() for one in run(fn.shapes, samples)] == [[2, 3], [1, 4]]
    assert run(fn.shapes, samples)[0].dtype == np.int64
    assert run(lambda x: fn.shapes(x, dtype="int32"), samples)[0].dtype == np.int32
