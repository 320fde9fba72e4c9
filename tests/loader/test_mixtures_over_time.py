"""Mixtures whose rates follow a schedule, whose sources are limited, and whose sources change at a restore."""

from __future__ import annotations

import bisect
import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_caches import ROWS, rows, write_split

from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader import Loader, LoaderState, Mixture, RateSchedule, pack
from beam_pipes.loader.from_state import loader_from_state
from beam_pipes.loader.mixture import MixtureSchedule, Timeline, chairman_turns
from beam_pipes.loader.state import Segment


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """Three caches of 30, 20 and 10 rows, whose ids begin at 0, 1,000 and 2,000."""
    directory = tmp_path_factory.mktemp("sources")
    found = []
    for number, size in enumerate((30, 20, 10)):
        examples = [{**example, "id": example["id"] + 1_000 * number} for example in rows(size)]
        found.append(write_split(directory / str(number), examples, ROWS, shards=2))
    return found


def ids_of(loader, steps=None):
    return list(itertools.chain(*(batch["id"].tolist() for batch in itertools.islice(loader, steps))))


def sources_of(ids):
    return [number // 1_000 for number in ids]


def by_the_definition(timeline, limits, count):
    """The sources of the first rows, one by one: turns of the chairman assignment, which begin again where the rates
    change, and where it would be the turn of a source that has given all it may."""
    found, given = [], [0] * len(limits)
    rates, turns = (), iter(())
    starts = [start for start, _ in timeline]

    def may(source):
        return limits[source] is None or given[source] < limits[source]

    for row in range(count):
        source = None if row in starts else next(turns)
        if source is None or not may(source):
            rates = timeline[bisect.bisect_right(starts, row) - 1][1]
            rates = [int(rate) if may(index) else 0 for index, rate in enumerate(rates)]
            if not any(rates):
                return found
            turns = chairman_turns([rate // int(np.gcd.reduce(rates)) for rate in rates])
            source = next(turns)
        given[source] += 1
        found.append(source)
    return found


@given(data=st.data())
def test_schedules_and_limits_are_what_they_are_by_definition(data):
    number = data.draw(st.integers(1, 4))
    rates = st.lists(st.integers(0, 5), min_size=number, max_size=number).filter(any)
    changes = data.draw(st.lists(st.integers(1, 60), max_size=4, unique=True).map(sorted))
    timeline = [(0, tuple(data.draw(rates))), *((row, tuple(data.draw(rates))) for row in changes)]
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=number, max_size=number))
    passes = data.draw(st.lists(st.none() | st.integers(1, 3), min_size=number, max_size=number))
    limits = [None if most is None else most * size for most, size in zip(passes, sizes, strict=True)]
    expected = by_the_definition(timeline, limits, 100)
    segment = Segment(start=0, counts=(0,) * number, rates=timeline[0][1])

    try:
        schedule = MixtureSchedule(
            segment,
            sizes,
            "repeat",
            max_epochs=passes,
            timeline=Timeline(*map(list, zip(*timeline, strict=True)), []) if changes else None,
        )
    except LoaderError as error:
        assert "is read" in str(error) or "have been read as often as max_epochs allows" in str(error)
        return

    assert schedule.size is None or schedule.size == len(by_the_definition(timeline, limits, schedule.size + 1))
    positions = np.arange(len(expected) if schedule.size is None else min(100, schedule.size))
    sources, ordinals = schedule.locate(positions)
    assert sources.tolist() == expected[: len(positions)]
    for position, (source, ordinal) in enumerate(zip(sources.tolist(), ordinals.tolist(), strict=True)):
        assert ordinal == expected[:position].count(source) == schedule.counts_at(position)[source]
        assert schedule.position_of(source, ordinal) == position


def test_rates_change_at_the_steps_of_a_schedule(splits):
    schedule = RateSchedule([(4, (1, 1, 0)), (8, (0, 1, 3))])
    mixture = Mixture([(splits[0], 3), (splits[1], 1), (splits[2], 0)], schedule=schedule)
    loader = Loader(mixture, batch_size=8, epochs=None, seed=1)

    found = [sources_of(batch["id"].tolist()) for batch in itertools.islice(loader, 12)]

    assert [[step.count(source) for source in range(3)] for step in found] == [
        *[[6, 2, 0]] * 4,
        *[[4, 4, 0]] * 4,
        *[[0, 2, 6]] * 4,
    ]


def test_a_ramp_gives_the_rows_of_its_mean(splits):
    schedule = RateSchedule([(200, (1, 0)), (840, (0, 1))], unit="rows", interpolation="linear")
    loader = Loader(Mixture([(splits[0], 1), (splits[1], 0)], schedule=schedule), batch_size=8, epochs=None)
    found = sources_of(ids_of(loader, 130))

    assert found[:200] == [0] * 200 and found[840:] == [1] * 200
    assert abs(found[200:840].count(0) - 320) <= 64  # a row for each of 64 steps of the ramp, at the most
    counts = [found[start : start + 80].count(1) for start in range(200, 840, 80)]
    assert counts == sorted(counts)


def test_rates_of_a_ramp_are_those_of_the_middles_of_its_steps():
    timeline = RateSchedule([(128, (1, 3))], unit="rows", interpolation="linear").in_rows((1, 1), Fraction(1))

    for row in (0, 1, 63, 64, 127):
        middle = Fraction(2 * (row // 2) + 1, 128)
        first = Fraction(1, 2) * (1 - middle) + Fraction(1, 4) * middle
        rates = timeline.rates_at(row)
        assert abs(Fraction(rates[0], sum(rates)) - first) <= Fraction(1, 4096)
    assert timeline.rates_at(128) == timeline.rates_at(10**9) == (1, 3)
    assert [timeline.change_after(row) for row in (0, 1, 126, 127, 128)] == [2, 2, 128, 128, None]


def test_a_schedule_may_count_tokens(document_split, other_split):
    plans = [pack(split, sequence_length=64) for split in (document_split, other_split)]
    schedule = RateSchedule([(1_000, (0, 1))], unit="tokens")  # 15.6 rows of 64
    loader = Loader(Mixture([(plans[0], 1), (plans[1], 0)], schedule=schedule), batch_size=1, epochs=None)

    rates = []
    for _ in zip(range(18), loader, strict=False):
        rates.append([each.rate for each in loader.effective_rates()])

    assert rates == [[1.0, 0.0]] * 15 + [[0.0, 1.0]] * 3
    with pytest.raises(LoaderError, match="a schedule in tokens needs sources whose rows have one number of tokens"):
        Loader(Mixture([(document_split, 1), (other_split, 0)], schedule=schedule), batch_size=1, epochs=None)


def test_sources_are_gone_through_as_often_as_they_may(splits):
    mixture = Mixture([(splits[0], 1), (splits[1], 1), (splits[2], 1)], max_epochs=[1, 2, 3])
    loader = Loader(mixture, batch_size=10, seed=2)

    found = ids_of(loader)

    assert loader.rows_per_epoch == len(found) == 30 + 40 + 30
    assert [found.count(number) for number in (0, 29, 1_000, 1_019, 2_000, 2_009)] == [1, 1, 2, 2, 3, 3]
    assert sources_of(found)[:90].count(0) == 30
    assert [each.epochs for each in loader.effective_rates()] == [1, 2, 3]


def test_a_source_without_a_limit_continues(splits):
    loader = Loader(Mixture([(splits[0], 1), (splits[2], 1)], max_epochs=[None, 1]), batch_size=10, epochs=None)

    found = sources_of(ids_of(loader, 10))

    assert loader.rows_per_epoch is None
    assert found.count(2) == 10 and set(found[20:]) == {0}


def test_one_limit_for_all_is_drop(splits):
    pairs = [(splits[0], 2), (splits[1], 1)]
    limited = Loader(Mixture(pairs, max_epochs=1), batch_size=10, seed=3)
    dropped = Loader(Mixture(pairs, exhausted="drop"), batch_size=10, seed=3)

    assert ids_of(limited) == ids_of(dropped)


@pytest.mark.parametrize("step", range(9))
def test_states_continue_at_every_step_of_a_schedule(splits, step):
    def loader():
        schedule = RateSchedule([(2, (1, 1, 1)), (6, (0, 1, 2))], interpolation="linear")
        mixture = Mixture(list(zip(splits, (1, 0, 0), strict=True)), schedule=schedule, max_epochs=[1, None, None])
        return Loader(mixture, batch_size=5, epochs=None, seed=4)

    whole = ids_of(loader(), 12)
    stopped = loader()
    begun = ids_of(stopped, step)
    state = LoaderState.from_json(stopped.state.to_json())
    again = loader()
    again.restore(state)

    assert begun + ids_of(again, 12 - step) == whole
    assert len(stopped.state.to_json()) < 1_000
    assert again.batch_at(0)["id"].tolist() == whole[:5]


def test_a_state_names_the_schedule(splits):
    def loader(when, batch_size=5, unit="steps"):
        mixture = Mixture([(splits[0], 1), (splits[1], 1)], schedule=RateSchedule([(when, (1, 2))], unit=unit))
        return Loader(mixture, batch_size=batch_size, epochs=None)

    state = loader(4).state
    with pytest.raises(StateMismatchError, match=r"source.schedule\[0\]\[0\]: 20 → 25 \(saved → now\)"):
        loader(5).restore(state)
    with pytest.raises(StateMismatchError, match=r"source.schedule\[0\]\[0\]: 20 → 40"):
        loader(4, batch_size=10).restore(state)
    loader(20, batch_size=10, unit="rows").restore(state)
    with pytest.raises(LoaderError, match="whose rates follow a schedule, which a state only names. Make the loader"):
        loader_from_state(state, [splits[0].path, splits[1].path], batch_size=5)


def test_who_answers_for_a_state_of_limited_sources(splits):
    mixture = Mixture([(splits[0], 1), (splits[2], 1)], max_epochs=[1, 2])
    loader = Loader(mixture, batch_size=5, seed=1)
    next(iter(loader))

    again = loader_from_state(loader.state, [splits[0].path, splits[2].path], batch_size=5)

    assert ids_of(again) == ids_of(loader)


@pytest.mark.parametrize("step", [0, 1, 7, 20])
def test_sources_come_and_go_and_the_others_continue(splits, step):
    """Of three sources the first is taken away and another one added: the two that stay go on where they are."""
    books, web, code = splits
    before = Mixture([(books, 2), (web, 1)])
    loader = Loader(before, batch_size=6, epochs=None, seed=5)
    read = ids_of(loader, step)
    web_alone = [number for number in ids_of(Loader(before, batch_size=6, epochs=None, seed=5), 200) if number >= 1_000]

    after = Loader(Mixture([(code, 1), (web, 1)]), batch_size=6, epochs=None, seed=5)
    after.restore(loader.state, previous=before)

    found = ids_of(after, 10)
    web_found = [number for number in read + found if 1_000 <= number < 2_000]
    assert web_found == web_alone[: len(web_found)]
    assert sources_of(found).count(2) == sources_of(found).count(1) == 30
    code_found = [number for number in found if number >= 2_000]
    assert [sorted(code_found[pick : pick + 10]) for pick in (0, 10, 20)] == [list(range(2_000, 2_010))] * 3
    assert after.position == 6 * (step + 10)

    # Its own states need the other mixture no more.
    resumed = Loader(Mixture([(code, 1), (web, 1)]), batch_size=6, epochs=None, seed=5)
    resumed.load_state_dict(json.loads(json.dumps(after.state_dict())))
    assert ids_of(resumed, 5) == ids_of(after, 5)


def test_a_run_over_one_split_becomes_a_mixture(splits):
    books, web, _ = splits
    alone = Loader(books, batch_size=6, epochs=3, seed=5)
    read = ids_of(alone, 7)  # one epoch of five batches, and two more
    rest = ids_of(Loader(books, batch_size=6, epochs=3, seed=5))[42:]

    mixed = Loader(Mixture([(web, 1), (books, 1)]), batch_size=6, epochs=None, seed=5)
    mixed.restore(alone.state, previous=books)

    found = ids_of(mixed, 10)
    assert [number for number in found if number < 1_000] == rest[:30]
    assert len(read) == 42 and mixed.position == 102


def test_a_new_mixture_may_have_a_schedule_of_the_same_run(splits):
    before = Mixture([(splits[0], 1), (splits[1], 1)])
    loader = Loader(before, batch_size=10, epochs=None)
    ids_of(loader, 3)
    after = Mixture([(splits[0], 1), (splits[1], 1)], schedule=RateSchedule([(2, (4, 1)), (5, (0, 1))]))
    again = Loader(after, batch_size=10, epochs=None)

    again.restore(loader.state, previous=before)

    assert [sources_of(ids_of(again, 1)).count(0) for _ in range(4)] == [8, 8, 0, 0]


def test_what_cannot_continue_is_refused(splits):
    before = Mixture([(splits[0], 1), (splits[1], 1)])
    loader = Loader(before, batch_size=5, epochs=None, seed=1)
    state = loader.state

    with pytest.raises(LoaderError, match="this one has exhausted='drop'. Pass exhausted='repeat', with max_epochs=1"):
        Loader(Mixture([(splits[0], 1)], exhausted="drop"), batch_size=5, seed=1).restore(state, previous=before)
    with pytest.raises(LoaderError, match="previous=… is for a loader of a Mixture"):
        Loader(splits[0], batch_size=5, seed=1).restore(state, previous=before)
    other = Loader(Mixture([(splits[1], 1)]), batch_size=5, epochs=None, seed=1)
    with pytest.raises(StateMismatchError, match="belongs to another sequence of rows"):
        other.restore(state, previous=Mixture([(splits[0], 1), (splits[2], 1)]))
    with pytest.raises(StateMismatchError, match="seed: 1 → 2"):
        Loader(Mixture([(splits[1], 1)]), batch_size=5, epochs=None, seed=2).restore(state, previous=before)
    scheduled = Mixture([(splits[0], 1), (splits[1], 1)], schedule=RateSchedule([(1, (1, 2))]))
    with pytest.raises(LoaderError, match="has a schedule of its rates, which set_rates would contradict"):
        Loader(scheduled, batch_size=5, epochs=None).set_rates([1, 1])
    with pytest.raises(LoaderError, match="only a loader of a Mixture has rates"):
        Loader(splits[0], batch_size=5).effective_rates()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"max_epochs": 1, "exhausted": "drop"},
            "max_epochs is for a mixture that repeats its sources, but this",
        ),
        ({"schedule": RateSchedule([(1, (1, 1))]), "exhausted": "stop"}, "schedule is for a mixture that repeats"),
        ({"max_epochs": [1]}, "the mixture has 2 sources, got 1 max_epochs: (1,)"),
        ({"max_epochs": 0}, "max_epochs of a source should be at least 1, got 0"),
        ({"schedule": RateSchedule([(1, (1, 1, 1))])}, "the mixture has 2 sources, got 3 rates: (1, 1, 1)"),
    ],
)
def test_mixtures_that_contradict_themselves_are_refused(splits, options, words):
    with pytest.raises(LoaderError) as refused:
        Mixture([(splits[0], 1), (splits[1], 1)], **options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("points", "options", "words"),
    [
        ([(0, (1, 1))], {}, "a point of a RateSchedule should be at least 1, got 0"),
        ([(5, (1, 1)), (5, (1, 2))], {}, "a point of a RateSchedule should be at least 6, got 5"),
        ([(5, (0, 0))], {}, "a mixture needs at least one positive rate"),
        (
            [(5, (1, 1))],
            {"unit": "epochs"},
            "RateSchedule: unit should be one of steps, rows, tokens, got 'epochs'",
        ),
        ([(5, (1, 1))], {"interpolation": "cosine"}, "RateSchedule: interpolation should be one of"),
    ],
)
def test_schedules_that_are_none_are_refused(points, options, words):
    with pytest.raises(LoaderError) as refused:
        RateSchedule(points, **options)
    assert words in str(refused.value)


def test_limits_end_the_run_and_not_an_epoch(splits):
    with pytest.raises(LoaderError, match="max_epochs of a mixture limits its sources over the whole run, which"):
        Loader(Mixture([(splits[0], 1)], max_epochs=2), batch_size=5, epochs=None)
    with pytest.raises(LoaderError, match="at row 30 of the run all sources with a rate have been read as often"):
        schedule = RateSchedule([(100, (0, 1))], unit="rows")
        Loader(Mixture([(splits[0], 1), (splits[1], 0)], max_epochs=1, schedule=schedule), batch_size=5)
