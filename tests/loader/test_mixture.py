from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, ROWS, documents, rows, write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec, regions, write_cache
from beam_pipes.errors import LoaderError, StateMismatchError, UnboundedLoaderError
from beam_pipes.loader import KeyedPermutation, Loader, Mixture, pack
from beam_pipes.loader.mixture_stream import MixtureStream
from beam_pipes.loader.rows import GatherOptions


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Three splits of 40, 25 and 10 records of a fixed layout; `id` tells them apart."""
    found = []
    for index, count in enumerate((40, 25, 10)):
        records = [{**row, "id": 1000 * index + row["id"]} for row in rows(count)]
        path = tmp_path_factory.mktemp("source") / f"cache{index}"
        found.append(write_split(path, records, ROWS, shards=2, name=f"source{index}"))
    return found


def ids(loader):
    return [int(row) for batch in loader for row in batch["id"]]


@given(st.lists(st.integers(1, 50), min_size=3, max_size=3), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_every_prefix_has_every_source_within_one_row_of_its_rate(sources, rates, batch_size):
    mixture = Mixture(zip(sources, rates, strict=True))
    loader = Loader(mixture, batch_size=batch_size, epochs=None)

    read = ids(itertools.islice(loader, 200 // batch_size))

    counts = np.cumsum(np.array(read)[:, None] // 1000 == np.arange(3), axis=0)
    targets = np.outer(np.arange(1, len(read) + 1), np.array(rates) / sum(rates))
    assert np.abs(counts - targets).max() < 1


def test_repeated_sources_give_every_record_once_an_epoch_in_a_new_order(sources):
    loader = Loader(Mixture([(sources[2], 0.5), (sources[1], 0.5)]), batch_size=10, epochs=None)

    read = [row for row in ids(itertools.islice(loader, 8)) if row >= 2000]

    passes = [read[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(one) == list(range(2000, 2010)) for one in passes)
    assert passes[0] != passes[1]


def test_stop_ends_before_a_source_would_give_a_row_again(sources):
    loader = Loader(Mixture([(sources[0], 1), (sources[2], 1)], exhausted="stop"), batch_size=1, epochs=2)

    read = ids(loader)

    assert len(loader) == len(read) and loader.rows_per_epoch in (20, 21)
    for epoch in (read[: len(read) // 2], read[len(read) // 2 :]):
        assert len(set(epoch)) == len(epoch)
        assert sum(row >= 2000 for row in epoch) == 10


@pytest.mark.parametrize("rates", [(1, 1, 1), (5, 1, 1), (0.1, 0.2, 0.7)])
def test_drop_reads_all_rows_of_all_sources_each_epoch(sources, rates):
    loader = Loader(
        Mixture(zip(sources, rates, strict=True), exhausted="drop"), batch_size=8, epochs=2, last="partial", seed=4
    )

    read = ids(loader)

    everything = [*range(40), *range(1000, 1025), *range(2000, 2010)]
    assert loader.rows_per_epoch == 75
    assert sorted(read[:75]) == sorted(read[75:]) == everything
    assert read[:75] != read[75:]


def test_rates_changed_on_the_way_lose_and_repeat_nothing_within_a_source_epoch(sources):
    loader = Loader(Mixture(zip(sources, (6, 3, 1), strict=True)), batch_size=5, epochs=None, seed=1, workers=2)
    read = ids(itertools.islice(loader, 4))

    loader.set_rates((1, 1, 2))
    read += ids(itertools.islice(loader, 10))

    counts = np.bincount(np.array(read[20:]) // 1000, minlength=3)
    assert np.abs(counts - 50 * np.array([0.25, 0.25, 0.5])).max() < 1
    for source, size in enumerate((40, 25, 10)):
        mine = [row for row in read if row // 1000 == source]
        for start in range(0, len(mine), size):
            one_pass = mine[start : start + size]
            assert len(set(one_pass)) == len(one_pass)


@pytest.mark.parametrize("exhausted", ["repeat", "drop"])
def test_a_run_with_changed_rates_is_resumed_exactly(sources, exhausted):
    def loader(rates=(6, 3, 1)):
        epochs = None if exhausted == "repeat" else 2
        mixture = Mixture(zip(sources, rates, strict=True), exhausted=exhausted)
        return Loader(mixture, batch_size=5, epochs=epochs, seed=1, last="drop" if epochs is None else "partial")

    first = loader()
    ids(itertools.islice(first, 4))
    first.set_rates((1, 1, 2))
    ids(itertools.islice(first, 3))
    state = first.get_state()
    expected = ids(itertools.islice(first, 20))

    as_declared_first, as_declared_now = loader(), loader((1, 1, 2))
    for resumed in (as_declared_first, as_declared_now):
        resumed.set_state(state)
        assert ids(itertools.islice(resumed, 20)) == expected
    with pytest.raises(StateMismatchError, match=r"source.rates\[0\]: 6 → 5"):
        loader((5, 3, 1)).set_state(state)


def test_a_mixture_of_mixtures_is_to_be_flattened(sources):
    with pytest.raises(LoaderError, match="source 1 of the mixture is a mixture itself. Flatten it: list its sources"):
        Mixture([(sources[0], 1), (Mixture([(sources[1], 1)]), 2)])


def test_rates_that_leave_no_batch_end_the_run(sources, recwarn):
    """The next loop is empty; it was the whole run again, at the declared rates, with a warning about a second loop."""
    loader = Loader(Mixture(zip(sources, (6, 3, 1), strict=True), exhausted="stop"), batch_size=5, seed=1)
    read = ids(itertools.islice(loader, 12))
    loader.set_rates((0, 0, 1))

    assert len(read) == 60 and ids(loader) == ids(loader) == []
    assert not recwarn.list
    with pytest.raises(LoaderError, match=r"this run has ended.*Call reset\(\) for another run, at the declared rates"):
        loader.set_rates((1, 1, 1))
    loader.reset()
    assert ids(itertools.islice(loader, 12)) == read


def test_earlier_rows_cannot_be_computed_once_the_rates_have_changed(sources):
    loader = Loader(Mixture(zip(sources, (6, 3, 1), strict=True)), batch_size=5, epochs=None)
    ids(itertools.islice(loader, 4))
    loader.set_rates((1, 1, 1))

    assert loader.batch_at(4)["id"].tolist() == ids(itertools.islice(loader, 1))
    with pytest.raises(LoaderError, match="row 0 is before row 20, where the rates last changed"):
        loader.batch_at(0)


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_step_numbers_hold_where_changed_rates_make_epochs_of_other_sizes(sources, last):
    def mixed():
        mixture = Mixture(zip(sources, (6, 3, 1), strict=True), exhausted="drop")
        return Loader(mixture, batch_size=4, epochs=5, seed=1, last=last)

    loader, steps, seen = mixed(), [], []
    changes = {3: (1, 0, 1), 15: (0, 1, 0), 17: (2, 3, 1), 40: (1, 1, 0)}
    first_known, places = 0, []
    iterator = iter(loader)
    for number in itertools.count():
        if number in changes:
            loader.set_rates(changes[number])
            first_known = number
        steps.append(loader.step)
        places.append((loader.epoch, loader.position))
        batch = next(iterator, None)
        if batch is None:
            break
        seen.append(batch["id"].tolist())

    assert steps == list(range(len(seen) + 1))
    assert len(loader) == len(seen)
    assert [loader.batch_at(step)["id"].tolist() for step in range(first_known, len(seen))] == seen[first_known:]
    for step in range(first_known, len(seen)):
        assert loader.place_at(*places[step]).step == step
    with pytest.raises(LoaderError, match=f"step {len(seen)} is outside the run of {len(seen)} steps"):
        loader.batch_at(len(seen))
    with pytest.raises(LoaderError, match="epoch 0 lies before epoch [1-4], where the rates last changed"):
        loader.batch_at(0)


def test_step_numbers_are_refused_where_a_restored_state_does_not_tell_them(sources):
    def mixed():
        return Loader(Mixture(zip(sources, (6, 3, 1), strict=True), exhausted="drop"), batch_size=4, epochs=3, seed=1)

    unchanged, changed, late = mixed(), mixed(), mixed()
    ids(itertools.islice(unchanged, 20))
    changed.set_rates((1, 0, 1))
    ids(itertools.islice(changed, 20))
    late.restore(changed.state)

    restored = mixed()
    restored.restore(unchanged.state)
    assert (restored.step, len(restored)) == (20, len(mixed()))
    assert restored.batch_at(3)["id"].tolist() == mixed().batch_at(3)["id"].tolist()
    for question in (lambda: len(late), lambda: late.step, lambda: late.batch_at(20), lambda: late.place_at(2, 0)):
        with pytest.raises(UnboundedLoaderError, match=r"restored in epoch 1 of a mixture whose rates had changed"):
            question()
    assert list(late)[-1]["id"].tolist() == list(changed)[-1]["id"].tolist()


def test_the_state_holds_the_position_of_every_source_and_stays_below_a_kilobyte(sources):
    many = Mixture([(sources[index % 3], 1 / (index + 2)) for index in range(20)])
    loader = Loader(many, batch_size=1, epochs=None)
    loader.set_state(Loader(many, batch_size=1, epochs=None).get_state())
    loader.restore(dataclasses.replace(loader.state, position=10**12))
    loader.set_rates([1 / (index + 3) for index in range(20)])

    state = loader.get_state()

    assert len(state) < 1000
    assert sum(json.loads(state)["segment"]["counts"]) == 10**12


def test_ragged_sources_are_padded_to_the_longest_row_of_all_of_them(document_split, other_split):
    mixture = Mixture([(document_split, 1), (other_split, 1)])
    loader = Loader(mixture, batch_size=6, epochs=None, pad_value=-7, shuffle=False)

    batch = loader.batch_at(0)

    lengths = [*document_split.lengths("tokens")[:3], *other_split.lengths("tokens")[:3]]
    assert batch["tokens"].shape == (6, max(lengths))
    assert sorted((batch["tokens"] != -7).sum(1).tolist()) == sorted(lengths)


def test_values_of_several_sources_are_interleaved_row_by_row(document_split, other_split):
    mixture = Mixture([(document_split, 2), (other_split, 1)])
    values = Loader(mixture, batch_size=12, epochs=None, ragged="values", seed=3).batch_at(5)
    padded = Loader(mixture, batch_size=12, epochs=None, seed=3).batch_at(5)

    for row, tokens in enumerate(np.split(values["tokens"], np.cumsum(values["tokens/lengths"]))[:-1]):
        assert np.array_equal(tokens, padded["tokens"][row][padded["tokens"][row] != 0])


def test_when_finds_rows_of_every_source(sources):
    loader = Loader(Mixture(zip(sources, (3, 2, 1), strict=True), exhausted="drop"), batch_size=7, last="pad", seed=8)

    for source, record in ((0, 39), (1, 0), (2, 5)):
        place = loader.when(record, source=source)
        assert loader.batch_at(place.step)["id"][place.index] == 1000 * source + record
    with pytest.raises(LoaderError, match="sources are numbered from 0 to 2, got 3"):
        loader.when(0, source=3)


def one_feature(path, spec, value, count=6):
    return write_split(path, [{"x": value} for _ in range(count)], ExampleSpec({"x": spec}), shards=1)


@pytest.mark.parametrize(
    ("specs", "values", "words"),
    [
        pytest.param(
            [FeatureSpec("int32", shape=(3,)), FeatureSpec("int32", shape=(4,))],
            [[1] * 3, [1] * 4],
            r"in feature 'x': source 0 \('train' of .*0\) has int32 \(3,\), and source 1 \('train' of .*1\) has "
            r"int32 \(4,\)\. Rows of one batch need one dtype and shape: pack all of them to one length",
            id="fixed",
        ),
        pytest.param(
            [FeatureSpec("int32"), FeatureSpec("int64")],
            [1, 1],
            r"has int32 \(\), and source 1 .* has int64 \(\)\. .*: cast it in a stage and build the cache again",
            id="dtypes",
        ),
        pytest.param(
            [FeatureSpec("str"), FeatureSpec("bytes")], ["a", b"a"], r"has str \(\), and .* bytes \(\)", id="texts"
        ),
        pytest.param(
            [FeatureSpec("int32", shape=(None,)), FeatureSpec("int32", shape=(None, 2))],
            [[1], [[1, 2]]],
            r"has int32 \(None,\), and .* has int32 \(None, 2\)",
            id="ranks",
        ),
        pytest.param(
            [FeatureSpec("int32", shape=(None,)), FeatureSpec("int32", shape=(4,)), FeatureSpec("int32", shape=(3,))],
            [[1, 2], [1] * 4, [1] * 3],
            r"source 1 .* has int32 \(4,\), and source 2 .* has int32 \(3,\)",
            id="two_fixed_ones_beside_a_ragged_one",
        ),
    ],
)
def test_sources_that_differ_are_refused_when_the_loader_is_made(tmp_path, specs, values, words):
    splits = [one_feature(tmp_path / str(i), *pair) for i, pair in enumerate(zip(specs, values, strict=True))]

    with pytest.raises(LoaderError, match=words):
        Loader(Mixture([(split, 1) for split in splits]), batch_size=2, epochs=None)


@pytest.mark.parametrize("pad_to", [None, {"x": 4}], ids=["longest", "pad_to"])
def test_a_fixed_length_beside_a_ragged_one_varies(tmp_path, pad_to):
    ragged = write_split(
        tmp_path / "ragged",
        [{"x": [1] * length} for length in range(1, 5)],
        ExampleSpec({"x": FeatureSpec("int32", shape=(None,))}),
        shards=1,
    )
    fixed = one_feature(tmp_path / "fixed", FeatureSpec("int32", shape=(4,)), [3] * 4, count=2)
    mixture = Mixture([(fixed, 1), (ragged, 1)], exhausted="drop")
    options = {"batch_size": 2, "last": "pad", "pad_to": pad_to, "pad_value": -1}

    whole = [batch["x"] for batch in Loader(mixture, **options)]
    hosts = [Loader(mixture, **options, host_index=host, host_count=2) for host in range(2)]

    assert {array.shape[1] for array in whole[:2]} == {4}
    assert set(np.unique(np.concatenate([array.ravel() for array in whole])).tolist()) == {-1, 1, 3}
    for expected, *batches in zip(whole, *hosts, strict=True):
        assert np.array_equal(np.concatenate([batch["x"] for batch in batches]), expected)


def test_other_ranges_and_encodings_are_no_difference(tmp_path):
    specs = [FeatureSpec("int64", minimum=0, maximum=9), FeatureSpec("int64", encoding="list"), FeatureSpec("int64")]
    splits = [one_feature(tmp_path / str(value), spec, value) for value, spec in enumerate(specs)]

    batch = Loader(Mixture([(split, 1) for split in splits]), batch_size=3, epochs=None).batch_at(0)

    assert batch["x"].dtype == np.int64 and sorted(batch["x"].tolist()) == [0, 1, 2]


def test_packed_sources_of_other_lengths_are_refused(document_split):
    plans = [pack(document_split, sequence_length=length) for length in (40, 60)]

    with pytest.raises(LoaderError, match=r"'tokens': .* has int32 \(40,\), .* has int32 \(60,\)\. .*pack all of them"):
        Loader(Mixture([(plan, 1) for plan in plans], exhausted="drop"), batch_size=8)


def test_rates_are_exact_fractions(sources):
    assert Mixture([(sources[0], 0.7), (sources[1], 0.3)]).rates == (Fraction(7, 10), Fraction(3, 10))


def test_packing_plans_are_mixed_like_splits(document_split, other_split):
    plans = [pack(split, sequence_length=48) for split in (document_split, other_split)]

    batch = Loader(Mixture(zip(plans, (1, 1), strict=True)), batch_size=4, epochs=None, cu_seqlens=True).batch_at(3)

    assert {name: array.shape for name, array in batch.items() if name != "cu_seqlens"} == {
        "tokens": (4, 48),
        "segment_ids": (4, 48),
        "positions": (4, 48),
    }


def test_mixtures_that_mean_nothing_are_refused(sources, row_split, document_split, tmp_path):
    with pytest.raises(LoaderError, match="exhausted should be one of repeat, stop, drop, got 'loop'"):
        Mixture([(row_split, 1)], exhausted="loop")
    with pytest.raises(LoaderError, match=r"a mixture is a list of \(source, rate\) pairs"):
        Mixture([row_split])
    with pytest.raises(LoaderError, match="give different features"):
        Loader(Mixture([(row_split, 1), (document_split, 1)]), batch_size=4, epochs=None).batch_at(0)
    empty = write_split(tmp_path / "empty", documents(0), DOCUMENTS, shards=1)
    with pytest.raises(LoaderError, match="source 1 of the mixture has a positive rate but no rows"):
        Loader(Mixture([(document_split, 1), (empty, 1)]), batch_size=4, epochs=None)
    loader = Loader(Mixture(zip(sources, (1, 1, 1), strict=True)), batch_size=4, epochs=None)
    with pytest.raises(LoaderError, match="the mixture has 3 sources, got 2 rates"):
        loader.set_rates((1, 2))
    with pytest.raises(LoaderError, match="only a loader of a Mixture has rates"):
        Loader(row_split, batch_size=4).set_rates((1,))


@pytest.mark.parametrize("exhausted", ["stop", "repeat"])
@pytest.mark.parametrize("host_count", [1, 2])
def test_a_batch_that_is_copied_at_once_is_the_one_made_of_each_source(sources, exhausted, host_count):
    mixture = Mixture(zip(sources, (5, 3, 1), strict=True), exhausted=exhausted)
    loaders = [
        Loader(mixture, batch_size=4, epochs=None, host_index=host, host_count=host_count) for host in range(host_count)
    ]

    for loader in loaders:
        assert loader._reader.pends
        for step, batch in enumerate(itertools.islice(loader, 30)):
            at_once, by_source = batch, loader.batch_at(step)
            assert {name: array.tolist() for name, array in at_once.items()} == {
                name: array.tolist() for name, array in by_source.items()
            }
            assert all(array.flags.writeable for array in at_once.values())


def test_sources_in_arenas_of_their_own_are_read_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(regions, "ARENA_BYTES", 1 << 60)
    monkeypatch.setattr(regions, "_arenas", [])
    splits = [write_split(tmp_path / f"{n}", rows(20), ROWS, name=f"s{n}") for n in range(2)]
    loader = Loader(Mixture([(split, 1) for split in splits], exhausted="stop"), batch_size=5)

    found = ids(loader)

    assert not loader._reader.pends and sorted(found) == sorted([*range(20), *range(20)])


def test_a_mixture_of_many_caches_raises_the_limit_of_open_files_that_it_needs(tmp_path):
    """Every snapshot that is read keeps a file open, and many systems begin with 1,024 files for a process."""
    program = """
import resource, sys
from beam_pipes.errors import CacheReadError
from beam_pipes.cache import Cache, write_cache
from beam_pipes.loader import Loader, Mixture

root, count = sys.argv[1], 300
for number in range(count):
    write_cache(f"{root}/{number}", {"train": [{"x": number}]})
used = 64
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
try:
    kept = [Cache.open(f"{root}/{number}")["train"] for number in range(count)]
    batches = [split[0] for split in kept]
except CacheReadError as error:
    print("one by one:", error)
kept = batches = None
mixture = Mixture([(f"{root}/{number}/train", 1) for number in range(count)])
batch = next(iter(Loader(mixture, batch_size=count, epochs=None)))
print("in a mixture:", len(set(batch["x"].tolist())))
"""

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)

    assert "in a mixture: 300" in done.stdout, done.stderr
    assert "Too many open files. Raise the limit (ulimit -n 8192): each cache that is open" in done.stdout


def test_rows_of_sources_repeated_within_a_window_are_where_each_order_says(tmp_path):
    sizes = [1, 3, 10, 700]
    for number, size in enumerate(sizes):
        rows = ({"x": np.int32(value)} for value in range(size))
        write_cache(tmp_path / str(number), {"train": rows}, features={"x": FeatureSpec("int32", shape=())})
    mixture = Mixture([(f"{tmp_path}/{number}/train", 1 + number) for number in range(len(sizes))])
    stream = MixtureStream(mixture, GatherOptions(), seed=5, shuffle=True)

    places = stream.locate(0, np.arange(500))

    given = dict.fromkeys(range(len(sizes)), 0)
    for source, row in places.tolist():
        again, place = divmod(given[source], sizes[source])
        assert row == KeyedPermutation(sizes[source], seed=5, epoch=again, stream=source).records([place])[0]
        given[source] += 1
    assert given == {0: 50, 1: 100, 2: 150, 3: 200}
    shuffled = np.random.default_rng(1).permutation(500)
    assert np.array_equal(stream.locate(0, shuffled), places[shuffled])
