"""Which source records a step delivers, and the inverse: at which steps a source record comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from origin_caches import build_origins

from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache
from beam_pipes.errors import (
    CacheNotFoundError,
    LoaderError,
    StateMismatchError,
    UnboundedLoaderError,
    UnknownRecordError,
)
from beam_pipes.loader import BlockShuffle, Loader, LoaderState, Mixture, RateSchedule, Windows, pack
from beam_pipes.loader.from_state import loader_from_state, windows_of, windows_of_loader


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return build_origins(tmp_path_factory.mktemp("train"), "text", 60)["train"]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return build_origins(tmp_path_factory.mktemp("other"), "jsonl", 25)["train"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Three small splits; no record of one is in another."""
    return [
        build_origins(tmp_path_factory.mktemp(f"part{number}"), kind, rows)["train"]
        for number, (kind, rows) in enumerate([("text", 7), ("jsonl", 11), ("jsonl", 4)])
    ]


def loader_of(train, other, kind, exhausted, **options):
    packed = pack(train, sequence_length=24, feature="tokens")
    source = {
        "split": train,
        "packed": packed,
        "packed with bos": pack(train, sequence_length=6, feature="tokens", bos_id=10**9),
        "packed anew": pack(train, sequence_length=24, feature="tokens", seed=3, reshuffle_each_iteration=True),
        "windows": Windows(train, offsets={"tokens": range(-1, 3)}, stride=2),
        "windows of steps": Windows(train, offsets={"number": range(-1, 2)}, by="number"),
        "mixture": Mixture([(train, 2), (other, 1)], exhausted=exhausted),
        "windows mixture": Mixture(
            [(Windows(each, future=3, stride=4, ends="fill"), 1) for each in (train, other)], exhausted=exhausted
        ),
        "packed mixture": Mixture(
            [(packed, 3), (pack(other, sequence_length=24, feature="tokens"), 1)], exhausted=exhausted
        ),
    }[kind]
    if kind.endswith("mixture") and exhausted == "repeat":
        options["epochs"] = None
    return Loader(source, **options)


def test_records_of_a_row_are_those_of_the_packing_of_that_epoch(train):
    plan = pack(train, sequence_length=24, feature="tokens", seed=3, reshuffle_each_iteration=True)
    loader = Loader(plan, batch_size=2, seed=1, epochs=2)

    for step in (0, loader.steps_per_epoch):
        batch, output = loader.batch_at(step), loader.who(step)
        read = [
            tokens[ids == segment].tolist()
            for tokens, ids in zip(batch["tokens"], batch["segment_ids"], strict=True)
            for segment in range(1, int(ids.max()) + 1)
        ]
        assert read == [train[each.record]["tokens"][:24].tolist() for each in output]

    mixed = Loader(Mixture([(plan, 1), (plan, 1)]), batch_size=2, epochs=None)
    record_id = mixed.who(3)[0].record_id
    with pytest.raises(
        LoaderError, match=r"source 0 of the mixture has another packing in each pass.*loader\.who\(step\)"
    ):
        mixed.when_record(record_id, last_step=9)


@given(
    kind=st.sampled_from(
        ["split", "packed", "packed with bos", "packed anew", "mixture", "packed mixture"]
        + ["windows", "windows of steps", "windows mixture"]
    ),
    exhausted=st.sampled_from(["repeat", "stop", "drop"]),
    batch_size=st.integers(2, 9),
    seed=st.integers(0, 3),
    hosts=st.integers(1, 2),
    last=st.sampled_from(["drop", "pad", "partial"]),
    blocks=st.booleans(),
    at=st.integers(0, 10**6),
)
@settings(max_examples=80, deadline=None)
def test_when_of_who_contains_the_step(train, other, kind, exhausted, batch_size, seed, hosts, last, blocks, at):
    shuffle = BlockShuffle(window=3) if blocks and "packed" not in kind else True
    loader = loader_of(
        train, other, kind, exhausted, batch_size=batch_size, seed=seed, epochs=2, last=last, shuffle=shuffle,
        host_index=0, host_count=hosts,
    )  # fmt: skip
    endless = loader.steps_per_epoch is None
    if not endless and not len(loader):
        return
    step = at % (50 if endless else len(loader))

    for each in loader.who(step):
        places = loader.when_record(each.record_id, epochs=1 if endless else 2, last_step=step if endless else None)
        assert (each.step, each.epoch, each.host_index, each.index, each.source) in {
            (place.step, place.epoch, place.host_index, place.index, place.source) for place in places
        }


@pytest.mark.parametrize(
    "kind", ["split", "packed", "packed with bos", "mixture", "packed mixture", "windows of steps", "windows mixture"]
)
@pytest.mark.parametrize("exhausted", ["repeat", "stop", "drop"])
def test_when_names_exactly_the_steps_at_which_who_names_the_record(train, other, kind, exhausted):
    loader = loader_of(
        train, other, kind, exhausted, batch_size=3, seed=2, epochs=2, last="pad", host_index=0, host_count=2
    )
    endless = loader.steps_per_epoch is None
    count = 40 if endless else len(loader)
    asked = {"last_step": count - 1} if endless else {"epochs": 2}

    named = {}
    for each in (each for step in range(count) for each in loader.who(step)):
        named.setdefault(each.record_id, set()).add((each.epoch, each.step, each.host_index, each.index, each.source))

    for record_id, places in named.items():
        found = loader.when_record(record_id, **asked)
        assert {(each.epoch, each.step, each.host_index, each.index, each.source) for each in found} == places


def _rates(draw, count, *, least=0):
    return draw(st.lists(st.integers(least, 3), min_size=count, max_size=count).filter(any))


@st.composite
def runs(draw):
    """A function of two splits that makes a loader of any kind, moved and changed in any way."""
    count = draw(st.integers(1, 3))
    how = draw(
        st.sampled_from(["plain", "stop", "drop", "repeat", "repeat", "limited", "limited", "scheduled", "scheduled"])
    )
    options = {
        "batch_size": draw(st.integers(2, 9)),
        "seed": draw(st.integers(0, 3)),
        "last": draw(st.sampled_from(["drop", "pad", "partial"])),
        "shuffle": draw(st.sampled_from([True, False, BlockShuffle(window=2)])),
        "host_index": 0,
        "host_count": draw(st.integers(1, 2)),
    }
    rates = _rates(draw, count, least=how not in ("repeat", "scheduled"))
    limits = draw(st.lists(st.sampled_from([1, 2, 3, None]), min_size=count, max_size=count))
    points = []
    for row in sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=3))):
        points.append((row, _rates(draw, count)))
    schedule = RateSchedule(
        points,
        unit=draw(st.sampled_from(["steps", "rows"])),
        interpolation=draw(st.sampled_from(["constant", "linear"])),
    )
    changes = draw(st.lists(st.tuples(st.integers(0, 4), st.just(0)), max_size=2))
    changes = [(steps, _rates(draw, count, least=how in ("stop", "drop"))) for steps, _ in changes]
    other_rates = draw(st.one_of(st.none(), st.lists(st.integers(1, 3), min_size=2, max_size=2)))

    def made(parts):
        parts = parts[:count]
        if how == "plain":
            return Loader(parts[0], epochs=3, **options)
        mixing = {
            "limited": {"max_epochs": limits},
            "scheduled": {
                "schedule": schedule,
                "max_epochs": None if count == 1 or limits[0] is None else [*limits[:1], *[None] * (count - 1)],
            },
        }.get(how, {"exhausted": how})
        mixture = Mixture(list(zip(parts, rates, strict=True)), **mixing)
        endless = how in ("repeat", "scheduled") or (how == "limited" and None in limits)
        loader = Loader(mixture, epochs=None if endless else 1 if how == "limited" else 3, **options)
        if how in ("repeat", "stop", "drop"):
            for steps, rates_then in changes:
                for _ in zip(range(steps), loader, strict=False):
                    pass
                loader.set_rates(rates_then)
        if how == "repeat" and other_rates and count == 2:
            state, later = (
                loader.state,
                Loader(Mixture(list(zip(parts[::-1], other_rates, strict=True))), epochs=None, **options),
            )
            later.restore(state, previous=mixture)
            return later
        return loader

    return made


@given(run=runs())
@settings(max_examples=80, deadline=None)
def test_who_and_when_are_inverse_over_all_kinds_of_runs(parts, run):
    try:
        loader = run(parts)
    except LoaderError:
        return  # sources without a rate that a schedule brings too late, and the like
    first = loader.first_known_step
    count = min(first + 16, len(loader) if loader.epochs is not None and loader.steps_per_epoch is not None else 10**9)
    epochs = 1 if loader.steps_per_epoch is None else loader.epochs

    named = {each: set() for split in parts for each in split.record_ids(range(len(split)))}
    for each in (each for step in range(first, count) for each in loader.who(step)):
        named[each.record_id].add((each.epoch, each.step, each.host_index, each.index, each.source, each.position))
    begun = min((place[0] for places in named.values() for place in places), default=0)
    known = {each for split in delivered(loader) for each in split.record_ids(range(len(split)))}
    for record_id, places in named.items():
        if record_id not in known:
            continue
        found = loader.when_record(record_id, first_epoch=begun, epochs=epochs - begun, last_step=count - 1)
        assert {
            (each.epoch, each.step, each.host_index, each.index, each.source, each.position) for each in found
        } == places
    assert any(named.values()) or first == count


def delivered(loader):
    source = loader._options.source
    return [split for split, _ in source.sources] if isinstance(source, Mixture) else [source]


def test_a_source_that_leaves_or_comes_later_is_found(parts):
    """What a schedule starts later is no "never", and a source that has left ends the search."""
    record = parts[0].record_ids([0])[0]
    later = Mixture(list(zip(parts[:2], (0, 1), strict=True)), schedule=RateSchedule([(3, (1, 1))]))
    gone = Mixture(list(zip(parts[:2], (3, 1), strict=True)), schedule=RateSchedule([(3, (1, 1)), (6, (0, 1))]))
    limited = Mixture(list(zip(parts[:2], (3, 1), strict=True)), max_epochs=[2, None])
    ended = Mixture(list(zip(parts[:2], (3, 1), strict=True)), max_epochs=2)

    found = [
        [place.step for place in Loader(mixture, batch_size=4, epochs=None).when_record(record, last_step=10**6)]
        for mixture in (gone, limited)
    ]
    steps = [place.step for place in Loader(later, batch_size=4, epochs=None).when_record(record, last_step=40)]

    assert steps[0] >= 3 and len(steps) > 3
    assert Loader(later, batch_size=4, epochs=None).when(0).step == steps[0]
    assert [len(each) for each in found] == [2, 2]
    assert len(Loader(ended, batch_size=4).when_record(record)) == 2
    assert Loader(gone, batch_size=4, epochs=None).when(0).step == found[0][0]


def test_a_mixture_without_end_has_no_second_epoch_and_needs_a_last_step(train, other):
    loader = Loader(Mixture([(train, 2), (other, 1)]), batch_size=4, seed=1, epochs=None)
    record_id = train.record_ids([0])[0]

    for question in (
        lambda: loader.when_record(record_id, epochs=2, last_step=9),
        lambda: loader.when(0, epoch=1),
        lambda: loader.place_at(1, 0),
    ):
        with pytest.raises(UnboundedLoaderError, match=r"expected epoch 0, got epoch 1: a mixture .* --last-step 1000"):
            question()
    with pytest.raises(UnboundedLoaderError, match=r"has no end.* say up to which step to look"):
        loader.when_record(record_id)
    position = loader.when(0, source=1).position
    assert loader.place_at(0, position).source == 1


def test_after_a_change_of_rates_when_says_from_which_step_it_knows(train, other):
    loader = Loader(Mixture([(train, 2), (other, 1)]), batch_size=4, seed=1, epochs=None)
    assert loader.first_known_step == Loader(train, batch_size=4).first_known_step == 0
    for _ in zip(range(5), loader, strict=False):
        pass

    loader.set_rates([1, 3])

    assert loader.first_known_step == loader.step == 5


@given(batch_size=st.integers(2, 9), seed=st.integers(0, 3), hosts=st.integers(1, 2), at=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_who_says_what_the_batches_of_all_hosts_hold(train, other, batch_size, seed, hosts, at):
    options = {"batch_size": batch_size, "seed": seed, "last": "partial", "host_count": hosts}
    loaders = [Loader(train, host_index=host, **options) for host in range(hosts)]
    step = at % len(loaders[0])

    found = {(each.host_index, each.index): each for each in loaders[0].who(step)}
    batches = [loader.batch_at(step)["number"].tolist() for loader in loaders]

    assert len(found) == sum(map(len, batches))
    for (host, index), each in found.items():
        assert batches[host][index] == train[each.record]["number"]
        assert each.record in train.find_rows(each.record_id)


def test_segments_of_packed_rows_are_named(train):
    loader = Loader(pack(train, sequence_length=24, feature="tokens"), batch_size=3, seed=5)

    for each in loader.who(1):
        batch = loader.batch_at(1)
        segment = batch["tokens"][each.index][batch["segment_ids"][each.index] == each.segment]
        assert segment.tolist() == train[each.record]["tokens"].tolist()


def test_a_record_that_is_in_no_row_never_comes(train):
    loader = Loader(train, batch_size=4, seed=1)

    assert loader.when_record("a.txt@0") == []  # dropped
    with pytest.raises(UnknownRecordError, match="Did you mean a.txt@0"):
        loader.when_record("a.txt@1")
    with pytest.raises(LoaderError, match="step 1000 is outside the run of"):
        loader.who(1000)


def test_taken_down_records_are_marked_with_what_stands_in(tmp_path):
    train = build_origins(tmp_path)["train"]
    loader = Loader(train, batch_size=4, seed=1, last="partial")
    packed = Loader(pack(train, sequence_length=24, feature="tokens"), batch_size=4, seed=1, last="partial")
    take_down(tmp_path / "cache", ["a.txt@4"])

    gone = [each for step in range(len(loader)) for each in loader.who(step) if each.taken_down]
    assert {each.record_id for each in gone} == {"a.txt@4"}
    places = [each.record for each in gone]
    assert [each.stands_in for each in gone] == train.record_ids(train.stand_ins(places))
    assert places and "a.txt@4" not in train.record_ids(train.stand_ins(places))
    delivered = {(loader.batch_at(each.step)["number"][each.index], train[each.record]["number"]) for each in gone}
    assert all(read == stored for read, stored in delivered)
    assert [each.stands_in for step in range(len(packed)) for each in packed.who(step) if each.taken_down] == [None] * 2

    before = [(each.step, each.index) for step in range(len(loader)) for each in loader.who(step) if each.taken_down]
    drawn = dict.fromkeys(train.record_ids(train.stand_ins(places)))
    hidden = loader.when_record("a.txt@4")
    standing_in = [each for one in drawn for each in loader.when_record(one)]
    assert [(each.step, each.index) for each in hidden if each.taken_down] == before
    assert len(hidden) == len(before)
    assert sorted((each.step, each.index) for each in standing_in if each.stands_in_for == "a.txt@4") == before
    assert [each.stands_in_for for each in standing_in].count(None) == sum(len(train.find_rows(one)) for one in drawn)
    assert {each.taken_down for each in packed.when_record("a.txt@4")} == {True}


class TestFromAState:
    def test_the_loader_of_a_state_stands_where_it_stood(self, train, other):
        loader = Loader(Mixture([(train, 2), (other, 1)]), batch_size=4, seed=3, epochs=None)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        paths = [train._root, other._root]

        made = loader_from_state(loader.state, paths, batch_size=4)

        assert made.state == loader.state
        assert np.array_equal(next(iter(made))["number"], next(iterator)["number"])
        assert made.who(7) == loader.who(7)

    def test_an_older_snapshot_is_found(self, tmp_path):
        old = build_origins(tmp_path, count=30)["train"]
        state = Loader(old, batch_size=4, seed=3).state
        new = build_origins(tmp_path, count=40)
        assert new.manifest.id != old.manifest_id

        made = loader_from_state(state, [new.path], batch_size=4)

        assert made.who(2) == Loader(old, batch_size=4, seed=3).who(2)

    def test_packed_rows_need_their_plan(self, train, tmp_path):
        plan = pack(train, sequence_length=24, feature="tokens")
        plan.save(tmp_path / "plan")
        state = Loader(plan, batch_size=2, seed=3).state

        with pytest.raises(LoaderError, match="pass the file of the packing plan"):
            loader_from_state(state, [train._root], batch_size=2)
        made = loader_from_state(state, [train._root], batch_size=2, plans=[tmp_path / "plan"])
        assert made.who(1) == Loader(plan, batch_size=2, seed=3).who(1)

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_part_of_a_split_needs_its_condition(self, train, tmp_path, packed):
        part = train.where("number >= 20")
        plan = pack(part, sequence_length=24, feature="tokens")
        plan.save(tmp_path / "plan")
        loader = Loader(plan if packed else part, batch_size=2, seed=3)
        plans = {"plans": [tmp_path / "plan"]} if packed else {}

        made = loader_from_state(loader.state, [train._root], batch_size=2, conditions=["number >= 20"], **plans)

        assert made.who(1) == loader.who(1) and made.state == loader.state
        with pytest.raises(LoaderError, match="pass it \\(--where of commands, conditions="):
            loader_from_state(loader.state, [train._root], batch_size=2, **plans)
        if not packed:
            with pytest.raises(StateMismatchError):
                loader_from_state(loader.state, [train._root], batch_size=2, conditions=["number >= 21"])

    def test_a_part_in_a_mixture_needs_its_condition_too(self, train, other):
        loader = Loader(Mixture([(train.where("number >= 20"), 2), (other, 1)]), batch_size=2, seed=3, epochs=None)

        made = loader_from_state(
            loader.state, [train._root, other._root], batch_size=2, conditions=["number >= 20", ""]
        )

        assert made.who(9) == loader.who(9)

    def test_windows_are_given_by_their_arguments(self, train, other):
        asked = "offsets={'tokens': range(-1, 3), 'number': None}, stride=2, ends='fill'"
        windows = Windows(train, offsets={"tokens": range(-1, 3), "number": None}, stride=2, ends="fill")
        steps = Windows(train.where("number >= 20"), past=1, by=["number"], ends={"tokens": "fill"})
        for source, where, text in ((windows, "", asked), (steps, "number >= 20", "past=1, by='number'")):
            loader = Loader(source, batch_size=3, seed=3)
            next(iter(loader))
            for arguments in ([text], windows_of_loader(loader)):
                made = loader_from_state(
                    loader.state, [train._root], batch_size=3, conditions=[where], windows=arguments
                )
                assert made.state == loader.state and made.who(2) == loader.who(2)
        mixed = Loader(Mixture([(windows, 2), (other, 1)]), batch_size=3, epochs=None, features=["number"])
        paths, told = [train._root, other._root], windows_of_loader(mixed)
        assert told == ["offsets={'tokens': [-1, 0, 1, 2], 'number': None}, stride=2, ends='fill'", ""]
        assert loader_from_state(mixed.state, paths, batch_size=3, windows=told).who(7) == mixed.who(7)
        with pytest.raises(StateMismatchError, match="windows of its sources are not in a state: pass all"):
            loader_from_state(mixed.state, paths, batch_size=3)

    @pytest.mark.parametrize(
        "arguments",
        ["past", "1", "past=1)", "past=abs(1)", "past=1, futur=2", "split=1", "**{}", "rates={'a': 1/0}"]
        + ["past=1, past=2", "offsets={'tokens': range(0, 4, step=2)}"],
    )
    def test_arguments_of_windows_are_read_and_never_run(self, train, arguments):
        with pytest.raises(LoaderError, match=r"as Python has them, past=1, future=16.*got "):
            windows_of(train, arguments)

    @pytest.mark.parametrize(
        ("changes", "paths", "error", "words"),
        [
            ({"source": {"manifest": "00", "split": "train", "rows": 1}}, 1, CacheNotFoundError, "saved with, and it"),
            (
                {"shuffle": "blocks/x"},
                1,
                LoaderError,
                "is named 'global', 'stored', 'blocks/<window>' or 'balanced/<rows>', got 'blocks/x'",
            ),
            ({}, 2, LoaderError, "of one source: pass the directory of its cache, got 2 paths"),
            (
                {"source": {"num_sources": 2, "sources": ["a", "b"], "rates": [1, 1]}},
                1,
                LoaderError,
                "directory of each",
            ),
            ({"source": {"num_sources": 90}}, 1, LoaderError, "too many to be listed"),
            ({"order_version": 7}, 1, StateMismatchError, "order_version: 7"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, train, changes, paths, error, words):
        saved = {**Loader(train, batch_size=2, seed=3).state.to_dict(), **changes}

        with pytest.raises(error, match=words):
            loader_from_state(LoaderState.from_dict(saved), [train._root] * paths, batch_size=2)


def test_a_cache_without_lineage_says_so():
    golden = Cache.open(Path(__file__).parents[1] / "golden" / "cache_v1")

    with pytest.raises(CacheNotFoundError, match="was built without. Rebuild the cache"):
        Loader(golden[golden.splits[0]], batch_size=1).who(0)
