from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import LoaderError
from beam_pipes.loader.mixture import (
    MixtureSchedule,
    Stretch,
    chairman_turns,
    exact_rates,
    integer_rates,
)
from beam_pipes.loader.state import Segment


def chairman_table(rates):
    return Stretch(0, [0] * len(rates), rates)._turns.until(sum(rates) - 1).table


RATES = st.lists(st.integers(1, 200), min_size=1, max_size=12).map(tuple)


@given(RATES)
@settings(max_examples=200, deadline=None)
def test_every_prefix_is_within_the_chairman_bound_of_its_target(rates):
    period, num_sources = sum(rates), len(rates)
    given_rows = np.stack([np.cumsum(chairman_table(rates) == source) for source in range(num_sources)])
    slots = np.arange(1, period + 1)
    bound = 1 - Fraction(1, 2 * num_sources - 2) if num_sources > 1 else 0

    # In integers: |count - rate · t / period| ≤ bound.
    deviations = np.abs(given_rows * period - np.outer(rates, slots))

    assert deviations.max() <= bound * period
    assert given_rows[:, -1].tolist() == list(rates)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any))
@settings(deadline=None)
def test_endless_turns_keep_the_proportions_and_repeat_the_table_of_one_period(rates):
    period, counts = sum(rates), [0] * len(rates)
    turns = list(itertools.islice(chairman_turns(rates), 2 * period))

    assert turns == chairman_table(tuple(rates)).tolist() * 2
    for position, turn in enumerate(turns, start=1):
        counts[turn] += 1
        assert all(abs(count - rate * position / period) < 1 for count, rate in zip(counts, rates, strict=True))


def test_the_turns_of_known_rates_stay_what_they_were():
    assert list(itertools.islice(chairman_turns((2, 1)), 6)) == [0, 1, 0, 0, 1, 0]
    assert list(itertools.islice(chairman_turns((3, 0, 2, 1)), 12)) == [0, 2, 0, 3, 0, 2, 0, 2, 0, 3, 0, 2]
    assert list(itertools.islice(chairman_turns((0, 4)), 3)) == [1, 1, 1]


@pytest.mark.parametrize("num_sources", [2, 3, 5, 10, 40])
def test_random_real_rates_stay_within_one_row_of_their_target(num_sources):
    rng = random.Random(num_sources)
    rates = [rng.random() + 0.01 for _ in range(num_sources)]
    shares = np.array(rates) / sum(rates)
    stretch = Stretch(0, [0] * num_sources, integer_rates(rates))
    positions = np.arange(5000)

    sources, ordinals = stretch.locate(positions)

    counts = np.cumsum(sources[:, None] == np.arange(num_sources), axis=0)
    assert np.abs(counts - np.outer(positions + 1, shares)).max() < 1
    assert np.array_equal(ordinals, counts[positions, sources] - 1)


@given(RATES, st.integers(0, 10**12), st.integers(1, 40))
@settings(deadline=None)
def test_counts_and_ordinals_far_out_agree_with_each_other(rates, position, length):
    stretch = Stretch(0, [0] * len(rates), rates)

    sources, ordinals = stretch.locate(np.arange(position, position + length))

    counts = list(stretch.counts_at(position))
    for source, ordinal in zip(sources.tolist(), ordinals.tolist(), strict=True):
        assert ordinal == counts[source]
        counts[source] += 1
    assert tuple(counts) == stretch.counts_at(position + length)
    for place, source, ordinal in zip(range(position, position + length), sources, ordinals, strict=True):
        assert stretch.position_of(int(source), int(ordinal)) == place


def test_turns_are_computed_as_far_as_they_are_asked_for():
    """Rates that were computed have periods of up to 2^18, of which a few steps need little."""
    rates = integer_rates([0.1234567891, 0.3456789123, 0.7891234567])
    near, far = Stretch(7, [0, 0, 0], rates), Stretch(7, [0, 0, 0], rates)
    positions = np.arange(7, 107)

    first, ordinals = near.locate(positions)
    known = len(near._turns.until(0).table)
    counted = near.counts_at(107)
    later = far.locate(np.arange(7, 7 + 2 * sum(rates), 997))

    assert sum(rates) > 1 << 14 and known <= 1024
    assert np.bincount(first, minlength=3).tolist() == list(counted)
    assert [near.position_of(int(source), int(item)) for source, item in zip(first, ordinals, strict=True)] == (
        positions.tolist()
    )
    table = chairman_table(rates)
    assert later[0].tolist() == table[np.arange(0, 2 * sum(rates), 997) % sum(rates)].tolist()


@given(RATES, st.integers(0, 10**12), st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_a_row_of_a_source_comes_within_the_bounds_that_are_known_at_once(rates, start, count, item):
    stretch = Stretch(start, [count] * len(rates), rates)

    for source, rate in enumerate(rates):
        earliest, latest = stretch.bounds_of(source, count + item)

        assert earliest <= stretch.position_of(source, count + item) <= latest
        assert (latest - earliest) * rate <= 3 * sum(rates)  # three turns of the source


SIZES = st.lists(st.integers(1, 300), min_size=12, max_size=12)


@given(RATES, SIZES, st.sampled_from(["drop", "stop", "repeat"]))
@settings(max_examples=50, deadline=None)
def test_the_first_source_to_leave_ends_a_stretch(rates, sizes, exhausted):
    sizes = sizes[: len(rates)]
    counts = (0,) * len(rates)
    limits = [2 * size if exhausted == "repeat" else size for size in sizes]
    stretch = Stretch(0, counts, rates)

    schedule = MixtureSchedule(
        Segment(start=0, counts=counts, rates=rates), sizes, exhausted, max_epochs=[2] * len(rates)
    )

    expected = min(stretch.position_of(source, limit) for source, limit in enumerate(limits))
    assert schedule._known_until == expected


def test_turns_up_to_a_source_that_leaves_late_are_not_computed():
    rates = integer_rates([0.123456789 + 0.0618033 * number for number in range(20)])
    period = sum(rates)
    sizes = [200 * rate * 1_000 // period + 1 for rate in rates]  # about 200,000 rows, all
    sizes[3] = 10

    schedule = MixtureSchedule(Segment(start=0, counts=(0,) * 20, rates=rates), sizes, "drop")

    assert period > 1 << 17 and schedule.counts_at(500)[3] == 10
    assert len(schedule._stretches[0]._turns.until(0).table) < 5_000


@pytest.mark.parametrize("small", [1e-300, Fraction(1, 10**400), 1e-9])
def test_a_rate_that_no_row_would_come_of_is_refused(small):
    with pytest.raises(LoaderError, match=r"rate .* of source 1 is too small beside the others: a source gets at"):
        integer_rates([1e300, small])


def test_rates_keep_the_proportions_that_were_typed():
    assert integer_rates((0.7, 0.2, 0.1)) == (7, 2, 1)
    assert integer_rates((300_000, 12_000)) == (25, 1)
    assert integer_rates((Fraction(1, 3), Fraction(2, 3))) == (1, 2)
    assert integer_rates((1, 0, 1)) == (1, 0, 1)
    assert integer_rates((np.float32(0.5), np.int64(1))) == (1, 2)


def test_exact_rates_have_any_period():
    assert exact_rates([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert exact_rates([1e-9, 1]) == (1, 10**9)
    assert next(chairman_turns(exact_rates([1e-9, 1]))) == 1
    with pytest.raises(LoaderError, match="a mixture needs at least one positive rate"):
        exact_rates([0, 0])


@pytest.mark.parametrize(("num_sources", "precision"), [(2, 1e-10), (3, 1e-7), (6, 2e-6), (50, 2e-6)])
def test_irrational_rates_are_approximated_as_closely_as_documented(num_sources, precision):
    rng = random.Random(1)
    rates = [rng.random() + 0.01 for _ in range(num_sources)]

    weights = integer_rates(rates)

    shares = np.array(rates) / sum(rates)
    assert np.abs(np.array(weights) / sum(weights) - shares).max() <= precision
    assert sum(weights) <= 1 << 18


def test_a_source_with_rate_zero_is_never_taken():
    stretch = Stretch(0, [0, 0, 0], (2, 0, 1))

    sources, _ = stretch.locate(np.arange(30))

    assert np.bincount(sources, minlength=3).tolist() == [20, 0, 10]
    assert stretch.position_of(1, 0) is None


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        pytest.param((), "at least one positive rate", id="none"),
        pytest.param((0, 0), "at least one positive rate", id="all_zero"),
        pytest.param((1, -1), "rate of source 1 should not be negative, got -1", id="negative"),
        pytest.param((1, "many"), "rate of source 1 should be a number, got 'many'", id="text"),
        pytest.param((1, "2"), "rate of source 1 should be a number, got '2'", id="number_as_text"),
        pytest.param((1, float("nan")), "rate of source 1 should be a number, got nan", id="nan"),
        pytest.param((1, 1e-9), "rate 1e-09 of source 1 is too small beside the others", id="tiny"),
    ],
)
def test_rates_that_mean_nothing_are_refused(rates, words):
    with pytest.raises(LoaderError, match=words):
        integer_rates(rates)
