from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.loader.packing import ALGORITHMS, lower_bound
from beam_pipes.loader.packing.fits import best_fit, first_fit, next_fit, stable_order, vector_fit


@st.composite
def problems(draw):
    capacity = draw(st.integers(1, 60))
    lengths = draw(st.lists(st.integers(1, capacity), max_size=80))
    return np.array(lengths, np.int64), capacity


@pytest.mark.parametrize("name", ALGORITHMS)
@given(problem=problems())
@settings(deadline=None)
def test_no_bin_overflows_and_bins_are_numbered_without_gaps(name, problem):
    lengths, capacity = problem

    bins = ALGORITHMS[name](lengths, capacity)

    assert len(bins) == len(lengths)
    assert sorted(set(bins.tolist())) == list(range(len(set(bins.tolist()))))
    assert np.bincount(bins, weights=lengths, minlength=1).max() <= capacity
    assert lower_bound(lengths, capacity) <= len(set(bins.tolist()))


@given(st.data(), st.sampled_from([1, 2, 3, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 32, (1 << 40) + 7]))
def test_the_stable_order_is_that_of_numpy(data, below):
    some = data.draw(st.lists(st.integers(0, below - 1), min_size=1, max_size=5))
    keys = np.array(data.draw(st.lists(st.sampled_from([*some, 0, below - 1]), max_size=60)), np.int64)

    assert stable_order(keys, below).tolist() == np.argsort(keys, kind="stable").tolist()


@given(problems())
@settings(deadline=None, max_examples=300)
def test_best_fit_over_the_histogram_equals_best_fit_decreasing_item_by_item(problem):
    lengths, capacity = problem
    spaces: list[int] = []
    for length in sorted(lengths.tolist(), reverse=True):
        fitting = [space for space in spaces if space >= length]
        if fitting:
            spaces.remove(min(fitting))
            spaces.append(min(fitting) - length)
        else:
            spaces.append(capacity - length)

    bins = best_fit(lengths, capacity)

    filled = np.bincount(bins, weights=lengths).astype(int) if len(bins) else np.empty(0, int)
    assert sorted((capacity - filled).tolist()) == sorted(spaces)


@given(problems())
@settings(deadline=None)
def test_first_fit_over_the_tournament_equals_first_fit_item_by_item(problem):
    lengths, capacity = problem
    spaces: list[int] = []
    expected = []
    for length in lengths.tolist():
        chosen = next((index for index, space in enumerate(spaces) if space >= length), len(spaces))
        if chosen == len(spaces):
            spaces.append(capacity)
        spaces[chosen] -= length
        expected.append(chosen)

    assert first_fit(lengths, capacity).tolist() == expected


@given(problems())
def test_next_fit_gives_runs_that_could_not_take_the_next_item(problem):
    lengths, capacity = problem

    bins = next_fit(lengths, capacity)

    assert np.all(np.isin(np.diff(bins), [0, 1]))
    filled = np.bincount(bins, weights=lengths)
    for start in np.flatnonzero(np.diff(bins)) + 1:
        assert filled[bins[start] - 1] + lengths[start] > capacity


@given(problems(), st.integers(1, 4))
def test_runs_with_a_limit_end_where_the_next_item_or_one_more_does_not_fit(problem, most):
    lengths, capacity = problem
    for function in (next_fit, first_fit):
        bins = function(lengths, capacity, most)
        assert np.bincount(bins, weights=lengths).max(initial=0) <= capacity
        assert np.bincount(bins).max(initial=0) <= most
    starts = np.flatnonzero(np.diff(next_fit(lengths, capacity, most))) + 1
    for start, end in zip([0, *starts], starts, strict=False):
        assert end - start == most or lengths[start : end + 1].sum() > capacity
    assert first_fit(np.array([3, 3, 3, 3]), 10, 2).tolist() == [0, 0, 1, 1]
    assert next_fit(np.array([3, 3, 3, 3]), 10, 2).tolist() == [0, 0, 1, 1]


def test_the_examples_of_the_docstrings():
    lengths = np.array([6, 4, 3, 3, 2, 2])

    for algorithm in ALGORITHMS.values():
        assert algorithm(lengths, 10).tolist() == [0, 0, 1, 1, 1, 1]
    assert next_fit(np.array([6, 5, 4]), 10).tolist() == [0, 1, 1]
    assert vector_fit(np.array([[6, 1], [4, 1], [1, 9]]), (10, 10)).tolist() == [0, 1, 0]
    assert lower_bound(np.array([6, 6, 6]), 10) == 3


@given(st.lists(st.integers(1, 12), max_size=7), st.integers(12, 20))
@settings(deadline=None)
def test_the_lower_bound_is_at_most_the_optimum_found_by_trying_all_packings(lengths, capacity):
    def optimum(rest: tuple[int, ...], spaces: tuple[int, ...]) -> int:
        if not rest:
            return len(spaces)
        first, others = rest[0], rest[1:]
        best = optimum(others, (*spaces, capacity - first))
        for index, space in enumerate(spaces):
            if space >= first:
                placed = (*spaces[:index], space - first, *spaces[index + 1 :])
                best = min(best, optimum(others, placed))
        return best

    assert lower_bound(np.array(lengths, np.int64), capacity) <= optimum(tuple(lengths), ())


@st.composite
def vector_problems(draw):
    capacities = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    row = st.tuples(*(st.integers(0, capacity) for capacity in capacities)).filter(any)
    rows = draw(st.lists(row, max_size=60))
    return np.array(rows, np.int64).reshape(len(rows), len(capacities)), capacities


@given(vector_problems())
@settings(deadline=None)
def test_vector_fit_respects_every_limit(problem):
    lengths, capacities = problem

    bins = vector_fit(lengths, capacities)

    num_bins = int(bins.max()) + 1 if len(bins) else 0
    assert sorted(set(bins.tolist())) == list(range(num_bins))
    for column, capacity in enumerate(capacities):
        assert np.bincount(bins, weights=lengths[:, column], minlength=1).max() <= capacity


def test_vector_fit_of_one_feature_is_as_good_as_best_fit_on_lognormal_lengths():
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(5, 1, 20_000)).astype(np.int64), 1, 2048)

    vectors = vector_fit(lengths[:, None], (2048,)).max() + 1

    assert vectors <= 1.01 * (best_fit(lengths, 2048).max() + 1)


def test_best_fit_wastes_a_tenth_of_a_percent_on_300_000_lognormal_documents():
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(5.5, 1.0, 300_000)).astype(np.int64), 1, 2048)

    num_bins = int(best_fit(lengths, 2048).max()) + 1

    assert 1 - lengths.sum() / (num_bins * 2048) < 0.002
    assert num_bins <= 1.001 * lower_bound(lengths, 2048)
