"""Expressions over data nodes: arithmetic with DALI's promotion, indexing, what is inferred and refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import ConditionError, GraphError, InferenceError
from beam_pipes.graph import GraphIterator, Pipeline, TensorList
from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator
from beam_pipes.transforms import fn

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
BITWISE = [operator.and_, operator.or_, operator.xor]
# What DALI 2.4 gives for `left + right`, row by row in this order of dtypes, then for `left + 3` and `left + 2.5`.
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
PROMOTED = """
u1 i2 u2 i2 u4 i4 u8 i8 f4 f8  i4 f4
i2 i1 i4 i2 i8 i4 i8 i8 f4 f8  i4 f4
u2 i4 u2 i4 u4 i4 u8 i8 f4 f8  i4 f4
i2 i2 i4 i2 i8 i4 i8 i8 f4 f8  i4 f4
u4 i8 u4 i8 u4 i8 u8 i8 f4 f8  i8 f4
i4 i4 i4 i4 i8 i4 i8 i8 f4 f8  i4 f4
u8 i8 u8 i8 u8 i8 u8 i8 f4 f8  i8 f4
i8 i8 i8 i8 i8 i8 i8 i8 f4 f8  i8 f4
f4 f4 f4 f4 f4 f4 f4 f4 f4 f8  f4 f4
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8  f8 f8
"""
DALI = {
    left: dict(zip([*DTYPES, 3, 2.5], row.split(), strict=True))
    for left, row in zip(DTYPES, PROMOTED.split("\n")[1:-1], strict=True)
}


def run(samples: Any, function: Callable[..., Any], *more: Any) -> tuple[TensorList, Any]:
    """The batch of an expression over samples, and the node that it was."""
    pipe = Pipeline(batch_size=len(samples))
    with pipe:
        nodes = [
            fn.external_source(lambda s=s: s, dtype=s[0].dtype, ndim=s[0].ndim)
            for s in (samples, *more)  # type: ignore[misc]
        ]
        node = function(*nodes)
        pipe.set_outputs(node)
    return pipe.run()[0], node


def dtype_there(op: Any, left: str, right: str | float) -> np.dtype[Any]:
    """What DALI computes an expression in."""
    promoted = np.dtype(DALI[left][right])
    return np.dtype(np.float32) if op is operator.truediv and promoted.kind != "f" else promoted


def test_all_pairs_of_dtypes_are_promoted_as_in_dali() -> None:
    with Pipeline(batch_size=1):
        nodes = {name: fn.external_source(lambda: 0, dtype=name, ndim=0) for name in DTYPES}
        sums = {(a, b): (nodes[a] + nodes.get(str(b), b)).dtype for a in DTYPES for b in DALI[a]}
        quotients = {(a, b): (nodes[a] / nodes.get(str(b), b)).dtype for a in DTYPES for b in DALI[a]}

    assert sums == {(a, b): np.dtype(DALI[a][b]) for a in DTYPES for b in DALI[a]}
    assert quotients == {(a, b): dtype_there(operator.truediv, a, b) for a in DTYPES for b in DALI[a]}


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(BINARY), st.sampled_from(DTYPES), st.sampled_from([*DTYPES, 3, 2.5]), st.booleans(), st.data())
def test_arithmetic_is_numpys_in_the_dtypes_of_dali(
    op: Any, left: str, right: str | float, dense: bool, data: st.DataObject
) -> None:
    numbers = st.integers(1, 100)
    shapes = [(2, 3)] * 3 if dense else [(1, 3), (2, 3), (4, 3)]
    first = [np.full(shape, data.draw(numbers), left) for shape in shapes]
    compute = dtype_there(op, left, right)
    if op is operator.floordiv and compute.kind == "f":
        return
    if isinstance(right, str):
        second = [np.full((3,), data.draw(numbers), right) for _ in shapes]
        batch, node = run(first, op, second)
    else:
        second = [np.full((3,), right, compute) for _ in shapes]
        batch, node = run(first, lambda one: op(one, right))

    for one, a, b in zip(batch, first, second, strict=True):
        with np.errstate(all="ignore"):
            expected = op(a.astype(compute), b.astype(compute))
        assert one.dtype == expected.dtype == node.dtype
        assert one.tolist() == expected.tolist()
    assert node.spec.ndim == 2


@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_operators_take_integers_and_booleans(op: Any) -> None:
    a, b = [np.array([6, 3], np.uint8)] * 2, [np.array([3, 5], np.uint8)] * 2
    assert run(a, op, b)[0].as_array().tolist() == op(np.stack(a), np.stack(b)).tolist()
    with pytest.raises(InferenceError, match="does not take float32 and uint8"):
        run([np.zeros(1, np.float32)], op, [np.zeros(1, np.uint8)])


def test_python_numbers_are_int32_and_float32_on_both_sides() -> None:
    images = [np.array([200, 100], np.uint8)] * 2
    whole = run(images, lambda n: n + 100)
    assert whole[0].as_array().tolist() == [[300, 200]] * 2 and whole[1].dtype == whole[0].dtype == np.int32
    assert run(images, lambda n: n / 255.0)[0].dtype == run(images, lambda n: n / 2)[0].dtype == np.float32
    assert run(images, lambda n: 2 * n)[0].as_array().tolist() == [[400, 200]] * 2
    assert run(images, lambda n: 100 - n)[0].as_array().tolist() == [[-100, 0]] * 2
    assert run(images, lambda n: n + 2**40)[0].dtype == np.int64
    assert run(images, lambda n: n < 300)[0].as_array().tolist() == [[True, True]] * 2
    assert run([np.float32(3)], lambda n: n * 0.5)[1].dtype == np.float32
    assert run([np.array([-7, 7], np.int32)], lambda n: n // 2)[0].as_array().tolist() == [[-3, 3]]
    assert run([np.array([-7, 7], np.int32)], lambda n: n % -3)[0].as_array().tolist() == [[-1, 1]]
    assert run([np.array([-7.5, 7.5], np.float32)], lambda n: n % 2)[0].as_array().tolist() == [[-1.5, 1.5]]
    assert run([np.int32(2)], lambda n: n**3)[0].as_array().tolist() == [8]
    assert run([np.int32(2)], lambda n: -n + abs(n) + +n)[0].as_array().tolist() == [2]
    assert run([np.int32(5)], lambda n: ~n)[0].as_array().tolist() == [-6]
    assert run([np.int32(5)], lambda n: (n << 2) >> 1)[0].as_array().tolist() == [10]
    assert run(images, lambda n: np.array([1, 2], np.uint8) + n)[0].as_array().tolist() == [[201, 102]] * 2


def test_numbers_that_do_not_fit_are_refused_at_definition_with_the_line() -> None:
    words = (
        r"`\+` does not take uint8 and 9223372036854775808: .* not fit into int64.*test_data_nodes.py:\d+ in <lambda>"
    )
    with pytest.raises(InferenceError, match=words):
        run([np.zeros(2, np.uint8)], lambda n: n + 2**63)
    with pytest.raises(InferenceError, match=r"`//` does not take float32 and 2: .*; write a / b"):
        run([np.zeros(2, np.float32)], lambda n: n // 2)
    with pytest.raises(InferenceError, match=r"`\+` does not take bool and True: cast one of the booleans to a number"):
        run([np.zeros(2, bool)], lambda n: n + True)
    with pytest.raises(InferenceError, match=r"samples of shapes .* do not go together"):
        pipe = Pipeline(batch_size=2)
        with pipe:
            fn.external_source(lambda: 0, dtype="int8", ndim=1) + np.zeros(3)
            np.zeros(2) + (np.zeros(3) + fn.external_source(lambda: 0, dtype="int8", ndim=0))
    words = r"`\+` combines data nodes, arrays and numbers, got str: 'x'. \(test_data_nodes.py:\d+ in .*\+ \"x\"\)"
    with pytest.raises(InferenceError, match=words):
        fn.random.coin_flip() + "x"


def test_python_booleans_are_numpys() -> None:
    mask = [np.array([True, False])] * 2
    assert run(mask, lambda n: n & True)[0].as_array().tolist() == [[True, False]] * 2
    assert run(mask, lambda n: False | n)[0].as_array().tolist() == [[True, False]] * 2
    assert run(mask, lambda n: n == True)[1].dtype == bool  # noqa: E712 - over samples
    assert run([np.array([1, 2], np.uint8)], lambda n: n * True + False)[1].dtype == np.uint8
    with pytest.raises(InferenceError, match="`-` does not take bool and True"):
        run(mask, lambda n: n - True)


@pytest.mark.parametrize("iterator", [GraphIterator, JaxGraphIterator, TorchGraphIterator])
@pytest.mark.parametrize("number", [300, -1, 1 << 40])
def test_comparisons_take_numbers_that_the_samples_cannot_be(iterator: Any, number: int) -> None:
    samples = np.array([[0, 7], [255, 3]], np.uint8)
    pipe = Pipeline(batch_size=2)
    with pipe:
        n = fn.external_source([samples], dtype="uint8", ndim=1)
        n = n if iterator is GraphIterator else n.gpu()
        pipe.set_outputs(n < number, n >= number, n == number, n != number, number > n)
    found = next(iter(iterator(pipe)))
    expected = [samples < number, samples >= number, samples == number, samples != number, number > samples]
    assert [np.asarray(one).tolist() for one in found.values()] == [one.tolist() for one in expected]


def test_not_a_number_is_weak_as_other_floats_are() -> None:
    batch, node = run([np.array([1.5], np.float32)], lambda n: n + float("nan"))
    assert batch[0].dtype == node.dtype == np.float32 and np.isnan(batch[0]).all()


def test_scalars_broadcast_over_samples_of_a_dense_batch() -> None:
    images, factors = [np.ones((2, 3))] * 4, [np.float64(index) for index in range(4)]
    batch, _ = run(images, lambda image, factor: image * factor, factors)
    assert batch.as_array()[:, 0, 0].tolist() == [0, 1, 2, 3]


KEYS = [
    np.s_[0],
    np.s_[-1],
    np.s_[:, 1],
    np.s_[1:, ::2],
    np.s_[..., 0],
    np.s_[None],
    np.s_[:, None, -1:],
    np.s_[::-1],
    np.s_[0, ..., -1],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "ragged"])
def test_indexing_is_numpys_sample_by_sample(key: Any, dense: bool) -> None:
    samples = [np.arange(24).reshape(2, 3, 4) + index for index in range(3)]
    if not dense:
        samples[1] = np.arange(40).reshape(2, 5, 4)
    batch, node = run(samples, lambda n: n[key])
    assert [one.tolist() for one in batch] == [sample[key].tolist() for sample in samples]
    assert node.spec.ndim == samples[0][key].ndim


def test_indices_may_be_data_nodes() -> None:
    samples = [np.arange(6) * 10 + index for index in range(3)]
    at = [np.int64(index - 1) for index in range(3)]
    assert run(samples, lambda n, i: n[i], at)[0].as_array().tolist() == [50, 1, 12]
    assert [one.tolist() for one in run(samples, lambda n, i: n[: i + 2], at)[0]] == [[0], [1, 11], [2, 12, 22]]


def test_indices_that_cannot_be_are_refused_at_definition() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        node = fn.external_source(lambda: np.zeros((2, 2)), ndim=1, dtype="float64")
        with pytest.raises(InferenceError, match=r"2 indices are too many for samples of rank 1"):
            node[0, 0]
        with pytest.raises(
            InferenceError, match=r"an index should be an integer scalar for each sample, got float64\[·\]"
        ):
            node[node]
        with pytest.raises(
            InferenceError, match=r"a data node is indexed by integers, slices, .* got 'a'. \(test_data_nodes.py:\d+"
        ):
            node["a"]
        with pytest.raises(InferenceError, match=r"the index 3 lies outside axis 0"):
            node.shape()[3]


def test_layouts_follow_the_axes() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        node = fn.external_source(lambda: np.zeros((2, 2, 2, 3), np.uint8), layout="HWC", dtype="uint8")
        assert [node[0].layout, node[:, :, 0].layout, node[..., ::-1].layout, node[None].layout] == [
            "WC",
            "HW",
            "HWC",
            "",
        ]
        assert (node / 255).layout == "HWC"
        pipe.set_outputs(node[:, 0])
    assert pipe.run()[0].layout() == "HC"


def test_the_shape_of_a_sample_is_data() -> None:
    batch, node = run([np.zeros((2, index)) for index in (1, 3)], lambda n: n.shape())
    assert batch.as_array().tolist() == [[2, 1], [2, 3]] and node.spec.shape == (2,)


def test_a_node_is_neither_a_boolean_nor_a_sequence() -> None:
    node = fn.random.coin_flip()
    with pytest.raises(ConditionError, match=r"enable_conditionals=True.*cond\(predicate, then, orelse\)"):
        bool(node)
    with pytest.raises(GraphError, match="cannot be iterated or unpacked: random.coin_flip gives 1 output"):
        _, _ = node
    with pytest.raises(GraphError, match=r"has no length: a sample's is node.shape\(\)\[0\]"):
        len(node)
    with pytest.raises(GraphError, match=r"has no data: .*pipeline_def\(debug=True\)"):
        node.get()


def test_arrays_that_differ_in_shape_make_no_single_array() -> None:
    batch, _ = run([np.zeros(1), np.zeros(2)], lambda n: n + 1)
    with pytest.raises(GraphError, match=r"the samples have 2 different shapes \(\(1,\), \(2,\)\)"):
        batch.as_array()
