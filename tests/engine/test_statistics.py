"""Counters and histograms: printing, merging as algebra, JSON, copies, and their errors."""

from __future__ import annotations

import json
import logging
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.engine.statistics import StoredStatistic, from_json, to_json
from beam_pipes.errors import DeclarationError
from beam_pipes.typed import (
    Counter,
    Histogram,
    InvalidStatisticsException,
    Maximum,
    MergeStatisticsException,
    Statistic,
    log_statistics_list,
    merge_statistics,
)

BUCKETS = [-1.5, 0, 10]
VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True) | st.integers(-20, 20), max_size=8)


class Longest(Statistic):
    """A user's own statistic."""

    def __init__(self, name: str, word: str = "") -> None:
        super().__init__(name)
        self.word = word

    def _merge_from(self, other: Longest) -> None:
        self.word = max(self.word, other.word, key=lambda word: (len(word), word))

    def copy(self) -> Longest:
        return Longest(self.name, self.word)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.word!r}"


def histogram_of(values: list[float], name: str = "h") -> Histogram:
    histogram = Histogram(name, BUCKETS)
    for value in values:
        histogram.increment(value)
    return histogram


KINDS = {
    "counter": st.builds(Counter, st.just("n"), st.integers(-5, 100)),
    "histogram": st.builds(histogram_of, VALUES, st.just("n")),
    "own": st.builds(Longest, st.just("n"), st.text(max_size=4)),
}
MIXED = st.lists(
    st.one_of(
        st.builds(Counter, st.sampled_from(["a", "b"]), st.integers(0, 9)),
        st.builds(histogram_of, VALUES, st.sampled_from(["h", "i"])),
    ),
    max_size=8,
)


def merged(*statistics: Statistic) -> Statistic:
    total, *rest = (statistic.copy() for statistic in statistics)
    for one in rest:
        total.merge_from(one)
    return total


@pytest.mark.parametrize("kind", KINDS)
class TestAlgebra:
    @given(data=st.data())
    def test_merging_is_associative(self, kind: str, data: st.DataObject) -> None:
        a, b, c = (data.draw(KINDS[kind]) for _ in range(3))
        assert merged(merged(a, b), c) == merged(a, merged(b, c))

    @given(data=st.data())
    def test_merging_is_commutative(self, kind: str, data: st.DataObject) -> None:
        a, b = (data.draw(KINDS[kind]) for _ in range(2))
        assert merged(a, b) == merged(b, a)

    @given(data=st.data())
    def test_merging_does_not_change_its_argument(self, kind: str, data: st.DataObject) -> None:
        a, b = (data.draw(KINDS[kind]) for _ in range(2))
        before = b.copy()
        a.merge_from(b)
        a.merge_from(b)
        assert b == before

    @given(data=st.data())
    def test_json_keeps_everything(self, kind: str, data: st.DataObject) -> None:
        statistic = data.draw(KINDS[kind])
        again = from_json(json.loads(json.dumps(to_json(statistic), allow_nan=False)))
        assert (again, str(again)) == (statistic, str(statistic))

    @given(data=st.data())
    def test_copies_and_pickles_are_equal_and_independent(self, kind: str, data: st.DataObject) -> None:
        statistic, more = data.draw(KINDS[kind]), data.draw(KINDS[kind])
        before = str(statistic)
        for copy in (statistic.copy(), pickle.loads(pickle.dumps(statistic))):
            assert copy == statistic and type(copy) is type(statistic)
            copy.merge_from(more)
            assert str(statistic) == before


@given(MIXED, st.randoms())
def test_merge_statistics_changes_no_argument_and_knows_no_order(statistics: list[Statistic], random: Any) -> None:
    before = [str(statistic) for statistic in statistics]
    total = merge_statistics(statistics)
    total_again = merge_statistics([*merge_statistics(statistics[:3]), *merge_statistics(statistics[3:])])
    shuffled = list(statistics)
    random.shuffle(shuffled)

    assert [str(statistic) for statistic in statistics] == before
    assert total_again == total
    assert sorted(map(str, merge_statistics(shuffled))) == sorted(map(str, total))
    assert [statistic.name for statistic in total] == list(dict.fromkeys(s.name for s in statistics))


def test_merge_statistics_takes_any_iterable() -> None:
    assert [str(stat) for stat in merge_statistics(Counter("n", count) for count in (1, 2))] == ["n: 3"]


@pytest.mark.parametrize(
    ("stats", "words"),
    [
        (Counter("n"), "should give a list of Statistic objects, got Counter: <Counter n: 0>."),
        (["n: 1"], "should give Statistic objects only, got str: 'n: 1'."),
    ],
)
def test_merge_statistics_refuses_anything_else(stats: Any, words: str) -> None:
    with pytest.raises(InvalidStatisticsException, match=re.escape(f"the argument of merge_statistics {words}")):
        merge_statistics(stats)


class TestCounter:
    def test_it_starts_at_the_given_number_and_may_count_down(self) -> None:
        counter = Counter("n", 5)
        counter.increment(-2)
        assert (str(counter), repr(counter), counter.count) == ("n: 3", "<Counter n: 3>", 3)

    def test_numpy_numbers_become_plain_ones_in_json(self) -> None:
        counter = Counter("n")
        counter.increment(np.int64(3))  # type: ignore[arg-type]
        assert json.dumps(to_json(counter)) == '{"name": "n", "kind": "Counter", "state": {"count": 3}}'

    def test_a_subclass_stays_one(self) -> None:
        class Bytes(Counter):
            def _pretty_print(self, name: str) -> str:
                return f"{name}: {self.count} B"

        total = merge_statistics([Bytes("n", 1), Bytes("n", 2)])
        assert [str(stat) for stat in total] == ["n: 3 B"]

    def test_it_has_no_hash_because_it_changes(self) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            {Counter("n")}
        assert Counter("n") != 0 and Counter("n") != Histogram("n", [0])


class TestHistogram:
    def test_a_range_includes_its_lower_bound(self) -> None:
        histogram = Histogram("h", [0, 1])
        for value in (-0.1, 0, 0.999, 1, 7):
            histogram.increment(value)
        assert str(histogram) == "h:\n  [-inf,0): 1\n  [0,1): 2\n  [1,inf): 2"

    def test_verbose_shows_empty_ranges_too(self) -> None:
        histogram = Histogram("h", [0, 1], verbose_pretty_print=True)
        histogram.increment(0.5, 3)
        assert str(histogram) == "h:\n  [-inf,0): 0\n  [0,1): 3\n  [1,inf): 0"
        assert str(Histogram("h", [0, 1])) == "h:"

    def test_nan_is_counted_apart(self) -> None:
        histogram = Histogram("h", [0])
        histogram.increment(math.nan)
        histogram.increment(np.float32("nan"), 2)
        histogram.increment(math.inf)
        assert str(histogram) == "h:\n  [0,inf): 1\n  nan: 3"
        assert (histogram.total, histogram.nan_count) == (4, 3)
        assert histogram.ranges() == [("[-inf,0)", 0), ("[0,inf)", 1), ("nan", 3)]

    def test_boundaries_are_sorted_and_distinct(self) -> None:
        assert Histogram("h", [3, 1, 1, 2]).buckets == [-math.inf, 1, 2, 3]

    def test_counters_are_a_dict_keyed_by_lower_bounds(self) -> None:
        histogram = Histogram("h", [0, 1, 3])
        for value in (-2, 0.5, 1, 1):
            histogram.increment(value)

        assert histogram.counters == {-math.inf: 1, 0: 1, 1: 2, 3: 0}
        assert list(histogram.counters) == histogram.buckets

    @pytest.mark.parametrize("buckets", [[-math.inf, 0, 1], [-math.inf], [math.inf], [0]])
    def test_infinite_boundaries_survive_storing(self, buckets: list[float]) -> None:
        histogram = Histogram("h", buckets)
        for value in (-5, 0.5, math.inf):
            histogram.increment(value)

        again = from_json(json.loads(json.dumps(to_json(histogram))))

        assert again == histogram and str(again) == str(histogram)

    def test_a_stored_range_that_begins_and_ends_at_minus_infinity_is_left_out(self) -> None:
        state = {"buckets": ["-inf", 0], "counters": [0, 2, 5], "nan_count": 0, "verbose_pretty_print": False}

        assert Histogram.from_state("h", state).counters == {-math.inf: 2, 0: 5}

    def test_numpy_boundaries_and_counts_print_and_store_as_plain_numbers(self) -> None:
        histogram = Histogram("h", np.arange(0, 1, 0.25))
        histogram.increment(0.3, np.int64(2))  # type: ignore[arg-type]
        assert str(histogram) == "h:\n  [0.25,0.5): 2"
        assert json.loads(json.dumps(to_json(histogram)))["state"]["buckets"] == [0.0, 0.25, 0.5, 0.75]

    def test_infinite_boundaries_survive_json(self) -> None:
        histogram = Histogram("h", [-math.inf, 0.5, math.inf])
        histogram.increment(1)
        assert from_json(json.loads(json.dumps(to_json(histogram), allow_nan=False))) == histogram

    @given(VALUES)
    def test_every_value_is_counted_once(self, values: list[float]) -> None:
        assert histogram_of(values).total == len(values)

    @given(VALUES, VALUES)
    def test_merging_equals_counting_everything_in_one(self, first: list[float], second: list[float]) -> None:
        assert merged(histogram_of(first), histogram_of(second)) == histogram_of(first + second)

    @pytest.mark.parametrize("buckets", [[], [0, math.nan]])
    def test_boundaries_that_bound_nothing_are_refused(self, buckets: list[float]) -> None:
        message = r"^Histogram 'h' needs at least one bucket boundary and none that is NaN, got \[.*\]\. Pass the lower"
        with pytest.raises(DeclarationError, match=message):
            Histogram("h", buckets)


class TestMergeErrors:
    def test_different_buckets_name_both_lists(self) -> None:
        message = (
            "Cannot merge the histogram 'h': one has the buckets [0, 1], the other [0, 2]. Use the same buckets, or "
            "different names."
        )
        with pytest.raises(MergeStatisticsException, match=f"^{re.escape(message)}$"):
            Histogram("h", [0, 1]).merge_from(Histogram("h", [0, 2]))

    def test_different_kinds(self) -> None:
        message = (
            "Cannot merge Histogram 'n' into Counter 'n': they are different kinds of statistics. Give them different "
            "names."
        )
        with pytest.raises(MergeStatisticsException, match=f"^{re.escape(message)}$"):
            merge_statistics([Counter("n"), Histogram("n", [0])])

    def test_different_names(self) -> None:
        message = (
            "Cannot merge the statistic 'b' into 'a': the names differ. Only statistics of the same name measure the "
            "same thing; see merge_statistics for a mixed list."
        )
        with pytest.raises(MergeStatisticsException, match=f"^{re.escape(message)}$"):
            Counter("a").merge_from(Counter("b"))

    def test_something_that_is_not_a_statistic(self) -> None:
        with pytest.raises(MergeStatisticsException, match=r"^Cannot merge int 3 into Counter 'a'"):
            Counter("a").merge_from(3)  # type: ignore[arg-type]


class TestStored:
    STORED = {"name": "n", "kind": "elsewhere:Special", "state": {"x": 1}}

    def test_a_statistic_of_a_class_that_is_not_imported_is_shown_and_kept(self) -> None:
        statistic = from_json(self.STORED)
        assert isinstance(statistic, StoredStatistic)
        assert str(statistic) == "n: {'x': 1}"
        assert to_json(statistic.copy()) == self.STORED

    def test_it_cannot_be_merged(self) -> None:
        message = "Cannot merge 'n': its class 'elsewhere:Special' is not imported. Import its module first."
        with pytest.raises(MergeStatisticsException, match=f"^{re.escape(message)}$"):
            merge_statistics([from_json(self.STORED), from_json(self.STORED)])


def test_a_statistic_has_to_say_how_it_merges_copies_and_prints() -> None:
    class Half(Statistic):
        def copy(self) -> Half:
            return self

    with pytest.raises(TypeError, match="abstract"):
        Half("n")  # type: ignore[abstract]


def test_a_list_is_logged_sorted_by_name(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    statistics = [Counter("b", 2), histogram_of([1], "c"), Counter("a", 1)]

    log_statistics_list(statistics, lines.append)
    with caplog.at_level(logging.INFO):
        log_statistics_list(statistics)

    assert lines == ["a: 1", "b: 2", "c:\n  [0,10): 1"]
    assert [record.getMessage() for record in caplog.records] == lines


@given(st.lists(st.integers(-5, 5), min_size=1))
def test_a_maximum_keeps_the_greatest_however_it_is_merged(values: list[int]) -> None:
    merged = merge_statistics([Maximum("longest", value) for value in values])
    updated = Maximum("longest", values[0])
    for value in values:
        updated.update(value)

    assert merged == [updated] == [from_json(to_json(Maximum("longest", np.int64(max(values)))))]
    assert str(updated) == f"longest: {max(values)}"


@given(values=st.lists(st.floats() | st.integers(-20, 20), min_size=1, max_size=6), at=st.integers(0, 6))
def test_the_greatest_value_does_not_depend_on_the_order_and_passes_over_nan(values: list[float], at: int) -> None:
    numbers = [value for value in values if value == value]
    expected = Maximum("most", max(numbers, default=math.nan))

    for order in (values, values[::-1], values[at:] + values[:at]):
        (merged,) = merge_statistics([Maximum("most", value) for value in order])
        text = json.dumps(to_json(merged), allow_nan=False)
        assert from_json(json.loads(text)) == merged == expected


class Mean(Statistic):
    """A user's own statistic, whose state is a float."""

    def __init__(self, name: str, value: float) -> None:
        super().__init__(name)
        self.value = value

    def _merge_from(self, other: Mean) -> None:
        self.value += other.value

    def copy(self) -> Mean:
        return Mean(self.name, self.value)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.value}"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_state_that_json_cannot_hold_is_refused_in_words(value: float) -> None:
    assert to_json(Mean("mean", 0.5))["state"] == {"value": 0.5}
    with pytest.raises(InvalidStatisticsException, match=r"statistic 'mean' should hold JSON values.*Give Mean a st"):
        to_json(Mean("mean", value))
