"""Batches by a token budget: the same promises as batches of rows, with rows of like length together."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, PAIRS, ROWS, documents, write_split

from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader import BlockShuffle, Loader, Mixture, TokenBatches, pack
from beam_pipes.loader.from_state import loader_from_state
from beam_pipes.loader.token_batches import BucketOrder, Buckets

BY_TOKENS = TokenBatches(max_tokens=64, boundaries=(4, 8, 16, 32))


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return write_split(tmp_path_factory.mktemp("by_tokens") / "cache", documents(200, seed=4), DOCUMENTS)


def rows_of(batch):
    valid = batch.get("valid", np.ones(len(batch["id"]), bool))
    return batch["id"][valid].tolist()


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=200),
    multiple_of=st.sampled_from([1, 2, 3]),
    max_rows=st.sampled_from([None, 6]),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_the_order_is_a_bijection_cut_into_batches_of_one_bucket(lengths, multiple_of, max_rows, epoch, shuffle):
    option = TokenBatches(max_tokens=130, boundaries=(5, 10, 40), multiple_of=multiple_of, max_rows=max_rows)
    buckets = Buckets(np.array(lengths), option, source="it")
    order = BucketOrder(buckets, shuffle=shuffle, seed=3, epoch=epoch)

    records = order.records(np.arange(len(lengths)))

    assert sorted(records.tolist()) == list(range(len(lengths)))
    assert order.positions(records).tolist() == list(range(len(lengths)))
    assert order.starts[-1] == len(lengths) and (np.diff(order.starts) > 0).all()
    for step, bucket in enumerate(order.bucket):
        rows = records[order.starts[step] : order.starts[step + 1]]
        boundary, full = buckets.boundaries[bucket], buckets.rows_per_batch[bucket]
        below = buckets.boundaries[bucket - 1] if bucket else -1
        assert all(below < lengths[row] <= boundary for row in rows)
        assert len(rows) == full if step < buckets.num_full else len(rows) < full
        assert full * boundary <= 130 and full % multiple_of == 0 and full <= (max_rows or full)


def test_what_an_epoch_is_made_of_never_changes():
    order = BucketOrder(Buckets(np.arange(12), TokenBatches(max_tokens=16, boundaries=(4, 8, 16)), source="it"),
                        shuffle=True, seed=1, epoch=2)  # fmt: skip

    assert order.records(np.arange(12)).tolist() == GOLDEN_RECORDS
    assert order.starts.tolist() == GOLDEN_STARTS


# Frozen by ORDER_VERSION: saved states rely on them.
GOLDEN_RECORDS = [7, 5, 10, 11, 8, 6, 4, 3, 0, 1, 9, 2]
GOLDEN_STARTS = [0, 2, 3, 4, 6, 10, 11, 12]


def test_every_batch_fits_the_budget_and_is_as_wide_as_its_boundary(split):
    loader = Loader(split, batch_size=BY_TOKENS, seed=2, last="partial")

    batches = list(loader)

    assert sorted(row for batch in batches for row in rows_of(batch)) == list(range(200))
    lengths = np.asarray(split.lengths("tokens"))
    for batch in batches:
        rows, width = batch["tokens"].shape
        assert width in (4, 8, 16, 32) and rows * width <= 64
        assert all(lengths[row] <= width for row in rows_of(batch))
        for row, tokens in zip(rows_of(batch), batch["tokens"], strict=True):
            assert tokens.tolist() == [*split[row]["tokens"].tolist(), *[0] * (width - lengths[row])]
    assert len(batches) == len(loader) == loader.steps_per_epoch
    assert (loader.batch_size, loader.is_even, loader.rows_multiple) == (16, False, 1)


def test_drop_leaves_out_what_fills_no_batch_and_pad_marks_what_it_adds(split):
    dropped = list(Loader(split, batch_size=BY_TOKENS, epochs=2))
    padded = list(Loader(split, batch_size=BY_TOKENS, last="pad"))

    assert {batch["tokens"].shape for batch in dropped} == {(16, 4), (8, 8), (4, 16), (2, 32)}
    assert {batch["tokens"].shape for batch in padded} == {(16, 4), (8, 8), (4, 16), (2, 32)}
    assert sorted(row for batch in padded for row in rows_of(batch)) == list(range(200))
    assert len({tuple(rows_of(batch)) for batch in dropped}) == len(dropped)  # another order in the second epoch


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_continues_exactly_from_any_step(split, last, workers):
    def loader():
        return Loader(split, batch_size=BY_TOKENS, seed=7, epochs=2, last=last, workers=workers)

    whole = [rows_of(batch) for batch in loader()]

    running = loader()
    for done, _ in enumerate(running, 1):
        if done % 13 and done != len(whole):
            continue
        state = running.state
        assert (running.step, running.steps_left) == (done, len(whole) - done or len(whole))
        resumed = loader()
        resumed.restore(state)
        assert [rows_of(batch) for batch in resumed] == whole[done:]
    assert len(running.state.to_json()) < 400
    copied = pickle.loads(pickle.dumps(copy.copy(loader())))
    assert [rows_of(batch) for batch in copied] == whole
    assert rows_of(loader().batch_at(len(whole) - 1)) == whole[-1]
    from_state = loader_from_state(state, [split.path], batch_size=BY_TOKENS, last=last)
    assert from_state.state == running.state


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_hosts_read_slices_of_the_same_global_batches(split, last):
    two = TokenBatches(max_tokens=64, boundaries=(4, 8, 16, 32), multiple_of=2)
    alone = list(Loader(split, batch_size=two, last=last))

    hosts = [list(Loader(split, batch_size=two, last=last, host_index=host, host_count=2)) for host in range(2)]

    assert [len(batches) for batches in hosts] == [len(alone)] * 2
    for whole, first, second in zip(alone, *hosts, strict=True):
        assert first["tokens"].shape[1] == second["tokens"].shape[1] == whole["tokens"].shape[1]
        assert np.concatenate([first["tokens"], second["tokens"]]).tolist() == whole["tokens"].tolist()


def test_who_and_when_know_every_row(split):
    loader = Loader(split, batch_size=BY_TOKENS, seed=3, epochs=2, host_index=0, host_count=2)
    hosts = [list(Loader(split, batch_size=BY_TOKENS, seed=3, epochs=2, host_index=h, host_count=2)) for h in (0, 1)]

    places = [loader.when(row, epoch=1) for row in range(200)]

    assert places.count(None) == 200 - sum(len(rows_of(b)) for host in hosts for b in host[len(hosts[0]) // 2 :])
    for row, place in enumerate(places):
        assert place is None or hosts[place.host_index][place.step]["id"][place.index] == row


def test_boundaries_are_chosen_from_the_lengths(split):
    loader = Loader(split, batch_size=TokenBatches(max_tokens=96, boundaries=3))

    assert {batch["tokens"].shape[1] for batch in loader} == {24, 32}
    text = loader.describe()
    assert "batches of 3 to 4 rows" in text
    assert "max_tokens=96, boundaries=3" in text and "lengths to 24:" in text
    with pytest.raises(StateMismatchError, match=r"boundaries=3'.* → 'global, max_tokens=64, boundaries=\[4, 8, 16"):
        Loader(split, batch_size=BY_TOKENS).restore(loader.state)


def test_the_longest_of_several_features_counts(tmp_path):
    pairs = [
        {"inputs": np.ones(i % 9 + 1, np.int32), "targets": np.ones((i * 5) % 13 + 1, np.int32)} for i in range(60)
    ]
    train = write_split(tmp_path / "pairs", pairs, PAIRS)

    batches = list(
        Loader(train, batch_size=TokenBatches(max_tokens=48, boundaries=(8, 16), feature=["inputs", "targets"]))
    )

    assert (
        {batch["inputs"].shape for batch in batches}
        == {batch["targets"].shape for batch in batches}
        == {(6, 8), (3, 16)}
    )
    with pytest.raises(LoaderError, match=r"length of one feature, there are 2; features of varying length in split "
                       r"'train': inputs, targets. Pass feature= with one of them, or with several"):  # fmt: skip
        Loader(train, batch_size=BY_TOKENS)


def test_a_part_of_a_split_and_stored_order(split):
    part = split.where("len(tokens) <= 8")

    batches = list(
        Loader(part, batch_size=TokenBatches(max_tokens=16, boundaries=(4, 8)), shuffle=False, last="partial")
    )

    widths = [batch["tokens"].shape[1] for batch in batches]
    assert widths[: widths.index(8)] == [4] * widths.index(8)
    assert sorted(row for batch in batches for row in rows_of(batch)) == [
        row for row, length in enumerate(split.lengths("tokens")) if length <= 8
    ]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"max_tokens": 0}, "max_tokens should be at least 1, got 0"),
        ({"max_tokens": 8, "boundaries": 0}, "boundaries, as a number of buckets, should be at least 1, got 0"),
        ({"max_tokens": 8, "boundaries": (8, 4)}, r"ascending order, got \(8, 4\). Pass for instance \(4, 8\)"),
        ({"max_tokens": 8, "boundaries": "8"}, "should be an integer, got '8'"),
        ({"max_tokens": 8, "multiple_of": 4, "max_rows": 2}, "max_rows should be at least 4, got 2"),
    ],
)
def test_values_out_of_range_are_refused(option, words):
    with pytest.raises(LoaderError, match=words):
        TokenBatches(**option)


def test_what_token_batches_do_not_suit_is_refused(tmp_path, split):
    fixed = write_split(
        tmp_path / "fixed", [{"x": np.arange(4, dtype=np.int32), "id": i, "flag": True} for i in range(8)], ROWS
    )
    refused = [
        (split, {"batch_size": TokenBatches(max_tokens=64, boundaries=(4, 8))},
         r"rows of split 'train' are longer than 8; the longest has 30 tokens. Add a boundary of 30 or more, or "
         r"leave them out: split.where\('len\(tokens\) <= 8'\)."),
        (split, {"batch_size": TokenBatches(max_tokens=31, boundaries=(8, 32))},
         "holds less than 1 rows of 32 tokens, the last boundary for split 'train'. Pass max_tokens=32 or more"),
        (split, {"batch_size": BY_TOKENS, "shuffle": BlockShuffle(window=2)}, "and so does shuffle=BlockShuffle"),
        (split, {"batch_size": BY_TOKENS, "pad_to": 32}, "decide the width of 'tokens'. Leave out its pad_to."),
        (split, {"batch_size": BY_TOKENS, "host_index": 0, "host_count": 4}, "should be at least 4, got 2"),
        (fixed, {"batch_size": BY_TOKENS}, "there are 0; features of varying length in split 'train': none"),
        (Mixture([(split, 1)]), {"batch_size": BY_TOKENS}, "TokenBatches take one split, got a mixture"),
        (pack(split, sequence_length=32), {"batch_size": BY_TOKENS}, "group rows of different lengths, and all"),
    ]  # fmt: skip
    for source, options, words in refused:
        with pytest.raises(LoaderError, match=words):
            Loader(source, **options)
    with pytest.raises(
        LoaderError, match=r"batches by tokens \(max_tokens=64, boundaries=\[4, 8, 16, 32\]\), got batch_size=4"
    ):
        loader_from_state(Loader(split, batch_size=BY_TOKENS).state, [split.path], batch_size=4)


def test_tf_data_jax_and_torch_take_them(split):
    import jax

    from beam_pipes.on_device import DataLoader

    options = TokenBatches(max_tokens=64, boundaries=(8, 16, 32), multiple_of=2)
    expected = [batch["tokens"].tolist() for batch in Loader(split, batch_size=options)]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    def loader():
        return DataLoader.from_cache(split, batch_size=options)

    assert [batch["tokens"].numpy().tolist() for batch in loader().dataset] == expected
    assert [np.asarray(batch["tokens"]).tolist() for batch in loader().to_jax()] == expected
    assert [np.asarray(batch["tokens"]).tolist() for batch in loader().to_jax().shard(sharding)] == expected
    assert [batch["tokens"].tolist() for batch in loader().to_torch()] == expected
