"""Operators that draw: ranges, distributions, and that a record's draw depends on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_runs import run

from beam_pipes.errors import InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline, types
from beam_pipes.transforms import fn


def draw(call: Any, *, count: int = 2000, batch_size: int = 500, seed: int = 3) -> Any:
    """The first `count` draws of an operator, in batches."""
    pipe = Pipeline(batch_size=batch_size, seed=seed)
    with pipe:
        index = fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, dtype=types.INT64, ndim=0)
        pipe.set_outputs(index, call())
    return np.concatenate([pipe.run()[1].as_array() for _ in range(count // batch_size)])


@pytest.mark.parametrize(
    "call",
    [
        lambda: fn.random.uniform(range=(10, 30), name="draw"),
        lambda: fn.random.normal(mean=5, stddev=2, shape=[3], name="draw"),
        lambda: fn.random.beta(alpha=0.4, beta=2.0, shape=[2], name="draw"),
        lambda: fn.random.coin_flip(name="draw"),
        lambda: fn.random.choice(np.arange(7), shape=[2], p=np.arange(7) / 21, name="draw"),
    ],
)
def test_a_draw_depends_on_seed_and_record_alone(call: Any) -> None:
    first = draw(call, count=60, batch_size=60)
    assert np.array_equal(first, draw(call, count=60, batch_size=4))
    assert not np.array_equal(first, draw(call, count=60, batch_size=60, seed=4))


def test_a_value_depends_on_its_place_and_not_on_the_shape() -> None:
    few = draw(lambda: fn.random.normal(shape=[2], name="draw"), count=40, batch_size=40)
    many = draw(lambda: fn.random.normal(shape=[5], name="draw"), count=40, batch_size=40)
    assert np.array_equal(few, many[:, :2])


def test_uniform() -> None:
    values = draw(lambda: fn.random.uniform(range=(10, 30)))
    assert values.dtype == np.float32 and values.min() >= 10 and values.max() < 30
    assert abs(values.mean() - 20) < 0.5 and abs(values.std() - 20 / np.sqrt(12)) < 0.3
    whole = draw(lambda: fn.random.uniform(range=(0, 3), dtype=types.INT32))
    assert set(whole.tolist()) == {0, 1, 2, 3}
    chosen = draw(lambda: fn.random.uniform(values=[1, 5, 9]))
    assert {value: round((chosen == value).mean(), 1) for value in (1, 5, 9)} == {1: 0.3, 5: 0.3, 9: 0.3}


def test_uniform_never_reaches_the_end_of_its_range() -> None:
    low, high = 1.0, float(np.nextafter(np.float32(1), np.float32(2)))
    assert set(draw(lambda: fn.random.uniform(range=(low, high))).tolist()) == {1.0}


def test_normal() -> None:
    values = draw(lambda: fn.random.normal(mean=5, stddev=2, shape=[4]))
    assert abs(values.mean() - 5) < 0.1 and abs(values.std() - 2) < 0.1
    assert 0.66 < (np.abs(values - 5) < 2).mean() < 0.71
    assert abs(np.corrcoef(values.T)[0, 1]) < 0.1


def test_beta() -> None:
    values = draw(lambda: fn.random.beta(alpha=2.0, beta=6.0, dtype=types.FLOAT64))
    assert values.dtype == np.float64 and values.min() >= 0 and values.max() <= 1
    assert abs(values.mean() - 0.25) < 0.01 and abs(values.var() - 2 * 6 / (8**2 * 9)) < 0.002
    uniform = draw(lambda: fn.random.beta())
    assert uniform.dtype == np.float32 and abs(uniform.mean() - 0.5) < 0.02 and abs(uniform.var() - 1 / 12) < 0.01
    few = draw(lambda: fn.random.beta(alpha=0.3, shape=[2], name="draw"), count=40, batch_size=40)
    many = draw(lambda: fn.random.beta(alpha=0.3, shape=[5], name="draw"), count=40, batch_size=40)
    assert np.array_equal(few, many[:, :2])
    by_sample = run(lambda a: fn.random.beta(alpha=a, shape=[500]), [np.float32(0.1), np.float32(9.0)])
    assert by_sample[0].mean() < 0.15 and by_sample[1].mean() > 0.85
    with pytest.raises(OperatorArgumentError, match=r"alpha should be a number above 0, got 0.0"):
        fn.random.beta(alpha=0.0)
    with pytest.raises(OperatorArgumentError, match=r"dtype should be one of float32, float64, got"):
        fn.random.beta(dtype=types.INT32)


def test_coin_flip() -> None:
    values = draw(lambda: fn.random.coin_flip(probability=0.25, dtype=types.BOOL))
    assert values.dtype == bool and 0.21 < values.mean() < 0.29
    assert draw(lambda: fn.random.coin_flip(probability=1.0, shape=[2])).tolist() == [[1, 1]] * 2000
    assert not draw(lambda: fn.random.coin_flip(probability=0.0)).any()


def test_choice() -> None:
    values = draw(lambda: fn.random.choice(np.array([3, 4, 5], np.int16), p=[0.5, 0.5, 0.0]))
    assert values.dtype == np.int16 and set(values.tolist()) == {3, 4} and 0.45 < (values == 3).mean() < 0.55
    assert set(draw(lambda: fn.random.choice(np.int64(4))).tolist()) == {0, 1, 2, 3}
    rows = draw(lambda: fn.random.choice(np.arange(6).reshape(3, 2), shape=[5]))
    assert rows.shape == (2000, 5, 2) and {tuple(row) for row in rows[0].tolist()} <= {(0, 1), (2, 3), (4, 5)}


def test_shapes_of_samples_and_of_inputs() -> None:
    like = [np.zeros((2, 3)), np.zeros((1, 4))]
    assert [one.shape for one in run(lambda x: fn.random.uniform(x), like)] == [(2, 3), (1, 4)]
    counts = [np.int64(2), np.int64(3)]
    found = run(lambda n: fn.random.uniform(shape=n), [np.array([one]) for one in counts])
    assert [one.shape for one in found] == [(2,), (3,)]
    with pytest.raises(InferenceError, match=r"give one of shape and an input"):
        run(lambda x: fn.random.uniform(x, shape=[2]), like)


def test_ranges_and_probabilities_by_sample() -> None:
    ends = [np.array([0.0, 1.0]), np.array([5.0, 6.0])]
    found = run(lambda r: fn.random.uniform(range=r), ends)
    assert 0 <= found[0] < 1 and 5 <= found[1] < 6
    with pytest.raises(OperatorError, match=r"probability should be a number from 0 to 1, got 2.0"):
        run(lambda p: fn.random.coin_flip(probability=p), [np.float32(0.5), np.float32(2.0)])
    with pytest.raises(OperatorArgumentError, match=r"range should be 2 numbers, the lower one first"):
        fn.random.uniform(range=(3, 1))
    with pytest.raises(OperatorError, match=r"p should hold 3 probabilities whose sum is 1"):
        draw(lambda: fn.random.choice(np.arange(3), p=[0.5, 0.1, 0.1]))
    with pytest.raises(OperatorArgumentError, match=r"stddev should be a number of at least 0, got -1.0"):
        draw(lambda: fn.random.normal(stddev=-1.0))
