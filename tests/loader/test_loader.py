from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, documents, write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec
from beam_pipes.errors import ExampleIndexError, LoaderError, UnboundedLoaderError
from beam_pipes.loader import BlockShuffle, Loader, Mixture, pack
from beam_pipes.loader.row_source import PaddedSplit


def test_batches_are_dicts_of_arrays_of_the_declared_dtypes(row_split):
    batch = next(iter(Loader(row_split, batch_size=8)))

    assert {name: (array.dtype.name, array.shape) for name, array in batch.items()} == {
        "flag": ("bool", (8,)),
        "id": ("int64", (8,)),
        "x": ("int32", (8, 4)),
    }
    assert np.array_equal(batch["x"], np.repeat(batch["id"][:, None], 4, axis=1))
    assert np.array_equal(batch["flag"], batch["id"] % 2 == 0)


@given(
    batch_size=st.integers(1, 130),
    hosts=st.integers(1, 5),
    workers=st.integers(0, 2),
    last=st.sampled_from(["drop", "pad", "partial"]),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_is_the_record_set_whatever_hosts_workers_and_batch_size(
    row_split, batch_size, hosts, workers, last, seed
):
    batch_size = max(batch_size, hosts)
    loaders = [
        Loader(
            row_split,
            batch_size=batch_size,
            seed=seed,
            epochs=2,
            last=last,
            host_index=host,
            host_count=hosts,
            workers=workers,
        )
        for host in range(hosts)
    ]

    steps = [
        np.concatenate([batch["id"][batch["valid"]] if last == "pad" else batch["id"] for batch in batches])
        for batches in zip(*loaders, strict=True)
    ]

    assert len(steps) == len(loaders[0])
    per_epoch = loaders[0].steps_per_epoch
    for epoch in range(2):
        seen = np.concatenate([np.empty(0, int), *steps[epoch * per_epoch : (epoch + 1) * per_epoch]])
        assert len(seen) == (100 // batch_size * batch_size if last == "drop" else 100)
        assert len(set(seen.tolist())) == len(seen)


def test_hosts_laid_side_by_side_are_the_global_batch(row_split):
    whole = [batch["id"] for batch in Loader(row_split, batch_size=24, last="partial", seed=3)]

    for hosts in (2, 3, 5, 8):
        slices = [
            Loader(row_split, batch_size=24, last="partial", seed=3, host_index=host, host_count=hosts)
            for host in range(hosts)
        ]
        for expected, batches in zip(whole, zip(*slices, strict=True), strict=True):
            assert np.array_equal(np.concatenate([batch["id"] for batch in batches]), expected)


def test_padded_epochs_have_static_shapes_and_mark_what_is_valid(document_split):
    loader = Loader(document_split, batch_size=10, last="pad", pad_to=30, pad_value=-1, shuffle=False)

    batches = list(loader)

    assert {batch["tokens"].shape for batch in batches} == {(10, 30)}
    assert [int(batch["valid"].sum()) for batch in batches] == [10] * 10 + [3]
    assert batches[-1]["valid"].tolist() == [True] * 3 + [False] * 7
    assert (batches[-1]["tokens"][3:] == -1).all()


def test_padded_rows_of_hosts_are_at_the_end_of_the_global_batch(row_split):
    hosts = [Loader(row_split, batch_size=30, last="pad", host_index=host, host_count=3) for host in range(3)]

    last_batches = [list(loader)[-1] for loader in hosts]

    assert [batch["valid"].tolist() for batch in last_batches] == [[True] * 10, [False] * 10, [False] * 10]


def test_ragged_features_come_as_values_and_lengths_on_request(document_split):
    loader = Loader(document_split, batch_size=7, ragged="values", shuffle=False, last="pad")

    for step, batch in enumerate(loader):
        rows = np.split(batch["tokens"], np.cumsum(batch["tokens/lengths"]))
        for index, record in enumerate(range(step * 7, min(step * 7 + 7, 103))):
            assert np.array_equal(rows[index], document_split[record]["tokens"])
        assert len(batch["tokens/lengths"]) == 7


def test_padding_goes_to_the_longest_of_the_batch_by_default(document_split):
    lengths = document_split.lengths("tokens")

    for step, batch in enumerate(Loader(document_split, batch_size=9, shuffle=False)):
        assert batch["tokens"].shape == (9, lengths[step * 9 : step * 9 + 9].max())


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_hosts_pad_to_the_longest_row_of_all_of_them(document_split, other_split, last):
    """Of a split, of rows padded one by one, and of a mixture: also hosts without rows, and after resuming."""
    splits = document_split, other_split
    sources = [
        document_split,
        PaddedSplit(split=document_split, sequence_lengths={"tokens": None, "id": None}),
        Mixture([(split, 1) for split in splits], exhausted="drop"),
    ]
    for source in sources:
        whole = [batch["tokens"] for batch in Loader(source, batch_size=10, last=last, seed=4)]
        for hosts in (2, 3, 10):
            loaders = [
                Loader(source, batch_size=10, last=last, seed=4, host_index=host, host_count=hosts)
                for host in range(hosts)
            ]
            for step, batches in enumerate(zip(*loaders, strict=True)):
                assert np.array_equal(np.concatenate([batch["tokens"] for batch in batches]), whole[step])
            for step in (0, len(whole) - 1):
                parts = [loader.batch_at(step)["tokens"] for loader in loaders]
                assert np.array_equal(np.concatenate(parts), whole[step])


def test_hosts_pad_images_to_the_largest_of_all_of_them(tmp_path):
    spec = ExampleSpec({"image": FeatureSpec("uint8", shape=(None, None))})
    images = [{"image": np.full((1 + i % 4, 5 - i % 3), i, np.uint8)} for i in range(12)]
    split = write_split(tmp_path / "images", images, spec)

    whole = Loader(split, batch_size=4, shuffle=False).batch_at(1)["image"]
    parts = [
        Loader(split, batch_size=4, shuffle=False, host_index=host, host_count=4).batch_at(1)["image"]
        for host in range(4)
    ]

    assert whole.shape == (4, 4, 5)
    assert np.array_equal(np.concatenate(parts), whole)
    static = Loader(split, batch_size=4, shuffle=False, pad_to={"image": (6, 5)})
    assert {batch["image"].shape for batch in static} == {(4, 6, 5)}


def test_a_fixed_dimension_is_not_padded(tmp_path, row_split):
    split = write_split(
        tmp_path / "pairs",
        [{"x": np.ones((2, n), np.int32)} for n in (1, 3)],
        ExampleSpec({"x": FeatureSpec("int32", shape=(2, None))}),
        shards=1,
    )

    assert Loader(split, batch_size=2, pad_to=7).batch_at(0)["x"].shape == (2, 2, 3)
    assert Loader(row_split, batch_size=2, pad_to={"x": 4}).batch_at(0)["x"].shape == (2, 4)
    for source, shape in ((split, r"\(2, None\)"), (row_split, r"\(4,\)")):
        with pytest.raises(LoaderError, match=rf"feature 'x' has the shape {shape} and cannot be padded to 7"):
            Loader(source, batch_size=2, pad_to={"x": 7})
    with pytest.raises(
        LoaderError, match=r"cannot be padded to \(2, 3, 1\): only dimensions that vary \(None\) can be"
    ):
        Loader(split, batch_size=2, pad_to={"x": (2, 3, 1)})


def test_batches_of_other_widths_are_not_stacked(document_split):
    loader = Loader(document_split, batch_size=4, shuffle=False)
    shapes = [loader.batch_at(step)["tokens"].shape for step in range(2)]

    with pytest.raises(LoaderError, match=r"need the same shapes, and feature 'tokens' has .*: pass pad_to"):
        loader.batches_at(0, 2)
    assert loader.batches_at(1, 1)["tokens"].shape == (1, *shapes[1])


def test_a_pad_value_that_the_dtype_does_not_hold_is_refused(document_split):
    with pytest.raises(LoaderError, match=r"pad value 1099511627776 of feature 'tokens' does not fit its dtype int32"):
        Loader(document_split, batch_size=4, pad_value=2**40)
    with pytest.raises(LoaderError, match=r"pad value 0.5 of feature 'tokens' does not fit its dtype int32"):
        Loader(pack(document_split, sequence_length=64), batch_size=4, pad_value=0.5)


def test_batch_at_reads_any_step_and_leaves_the_cursor_alone(row_split):
    loader = Loader(row_split, batch_size=16, epochs=3, seed=5, last="partial")
    expected = [batch["id"].tolist() for batch in loader]

    assert [loader.batch_at(step)["id"].tolist() for step in reversed(range(len(loader)))] == expected[::-1]
    next(iter(loader))
    loader.batch_at(11)
    assert (loader.epoch, loader.position, loader.step) == (0, 16, 1)
    with pytest.raises(LoaderError, match="step 21 is outside the run of 21 steps"):
        loader.batch_at(21)
    with pytest.raises(LoaderError, match="step should be at least 0, got -1"):
        loader.batch_at(-1)


@pytest.mark.parametrize("last", ["drop", "pad"])
def test_batches_at_stacks_what_batch_at_gives_across_epochs(row_split, last):
    loader = Loader(row_split, batch_size=16, epochs=3, seed=5, last=last)
    expected = [loader.batch_at(step) for step in range(len(loader))]

    for first, taken in ((0, 1), (3, 4), (0, len(loader))):
        stacked = loader.batches_at(first, taken)
        for name, array in stacked.items():
            assert np.array_equal(array, np.stack([batch[name] for batch in expected[first : first + taken]]))
    with pytest.raises(LoaderError, match="step 30 is outside the run of"):
        loader.batches_at(5, 26)
    with pytest.raises(LoaderError, match="count should be at least 1, got 0"):
        loader.batches_at(5, 0)


def test_every_epoch_has_its_own_order_and_seeds_differ(row_split):
    loader = Loader(row_split, batch_size=100, epochs=2)
    first, second = (batch["id"].tolist() for batch in loader)
    other = next(iter(Loader(row_split, batch_size=100, seed=1)))["id"].tolist()

    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second and first != other and first != list(range(100))


def test_the_stored_order_without_shuffling(row_split):
    loader = Loader(row_split, batch_size=50, shuffle=False, epochs=2)

    assert np.concatenate([batch["id"] for batch in loader]).tolist() == list(range(100)) * 2


def test_a_block_shuffle_reads_few_shards_at_a_time(row_split):
    loader = Loader(row_split, batch_size=10, shuffle=BlockShuffle(window=1), last="partial")

    shards = [{row_split.shard_of(int(record)) for record in batch["id"]} for batch in loader]

    assert all(len(shards_of_batch) <= 2 for shards_of_batch in shards)
    assert sorted(np.concatenate([batch["id"] for batch in loader]).tolist()) == list(range(100))


def test_a_finished_loader_starts_over_and_an_interrupted_one_continues(row_split):
    loader = Loader(row_split, batch_size=25, seed=2, workers=1)
    whole = [batch["id"].tolist() for batch in loader]

    assert [batch["id"].tolist() for batch in loader] == whole
    begun = [batch["id"].tolist() for batch in itertools.islice(loader, 1)]
    assert begun + [batch["id"].tolist() for batch in loader] == whole


def test_epoch_batches_stops_at_the_end_of_each_epoch(row_split):
    loader = Loader(row_split, batch_size=30, epochs=3, workers=1)

    counts = [sum(1 for _ in loader.epoch_batches()) for _ in range(4)]

    assert counts == [3, 3, 3, 0]


def test_a_newer_iterator_replaces_an_older_one(row_split):
    loader = Loader(row_split, batch_size=10, workers=1)
    older = iter(loader)
    next(older)

    newer = iter(loader)

    next(newer)
    with pytest.raises(LoaderError, match="closed, or replaced by a newer one"):
        next(older)
    newer.close()


def test_batches_of_a_group_do_not_share_elements(row_split):
    batches = list(Loader(row_split, batch_size=10, shuffle=False))

    batches[0]["x"][:] = -1

    assert [batch["x"][0, 0] for batch in batches[1:]] == list(range(10, 100, 10))
    assert np.array_equal(Loader(row_split, batch_size=10, shuffle=False).batch_at(0)["x"][:, 0], np.arange(10))


def test_when_says_at_which_step_host_and_index_a_record_comes(row_split):
    options = {"batch_size": 14, "epochs": 2, "seed": 9, "last": "partial", "host_count": 3}
    loaders = [Loader(row_split, host_index=host, **options) for host in range(3)]

    for record in range(100):
        for epoch in range(2):
            place = loaders[0].when(record, epoch=epoch)
            batch = loaders[place.host_index].batch_at(place.step)
            assert batch["id"][place.index] == record
    dropped = [record for record in range(100) if Loader(row_split, batch_size=30).when(record) is None]
    assert len(dropped) == 10


def test_len_counts_the_whole_run_and_endless_runs_have_none(row_split):
    assert len(Loader(row_split, batch_size=30, epochs=3)) == 9
    assert len(Loader(row_split, batch_size=30, epochs=3, last="pad")) == 12
    endless = Loader(row_split, batch_size=30, epochs=None)
    with pytest.raises(
        UnboundedLoaderError, match=r"no end.*torch's DataLoader asked: write TorchDataLoader\(loader\)"
    ):
        len(endless)
    assert len(list(itertools.islice(endless, 10))) == 10
    assert endless.epoch == 3


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_steps_left_counts_what_the_next_loop_gives(row_split, last):
    other = Loader(row_split, batch_size=9, epochs=2, last=last)
    loader = Loader(row_split, batch_size=7, epochs=2, last=last)
    states = [other.state, *(other.state for _ in other)]

    for state in states:  # most of them inside a step of this batch size
        loader.restore(state)
        assert loader.steps_left == len([batch["id"] for batch in loader])


def test_a_batch_larger_than_the_split_is_one_partial_batch(row_split):
    assert len(list(Loader(row_split, batch_size=1000, last="partial"))) == 1


@pytest.mark.parametrize("epochs", [1, None])
def test_a_loader_without_any_step_is_refused(tmp_path, row_split, epochs):
    """A training loop over nothing would end without a word."""
    empty = write_split(tmp_path / "empty", [], DOCUMENTS, shards=1)

    with pytest.raises(LoaderError, match="shards>: 100 rows give no batch of 1000. Use a smaller batch_"):
        Loader(row_split, batch_size=1000, epochs=epochs)
    for last in ("drop", "pad", "partial"):
        with pytest.raises(LoaderError, match="0 records in 1 shard>: there are no rows to read: the split is empty"):
            Loader(empty, batch_size=4, last=last, epochs=epochs)


def test_an_error_while_reading_reaches_the_consumer(tmp_path):
    split = write_split(tmp_path / "cut", documents(40), DOCUMENTS, shards=2)
    next(tmp_path.glob("cut/snapshots/*/demo-train.tfrecord-00001-of-00002")).unlink()

    for workers in (0, 2):
        with pytest.raises(FileNotFoundError, match="00001-of-00002"):
            list(Loader(split, batch_size=4, workers=workers))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"batch_size": 0}, r"batch_size \(the global one, over all hosts\) should be at least 1", id="zero"
        ),
        pytest.param(
            {"batch_size": 2, "host_index": 0, "host_count": 3},
            "should be at least 3, got 2",
            id="fewer_rows_than_hosts",
        ),
        pytest.param({"batch_size": 2.0}, "should be an integer, got 2.0", id="float"),
        pytest.param(
            {"batch_size": 4, "host_index": 2, "host_count": 2}, "host_index should be between 0 and 1", id="host"
        ),
        pytest.param({"batch_size": 4, "seed": -1}, "seed should be between 0 and", id="seed"),
        pytest.param({"batch_size": 4, "epochs": 0}, "epochs should be at least 1, got 0", id="epochs"),
        pytest.param({"batch_size": 4, "prefetch": 0}, "prefetch should be at least 1", id="prefetch"),
        pytest.param(
            {"batch_size": 4, "last": "keep"},
            "last should be one of drop, pad, partial, got 'keep'",
            id="last",
        ),
        pytest.param({"batch_size": 4, "features": "x"}, "a list of at least one name, got 'x'", id="features_text"),
        pytest.param(
            {"batch_size": 4, "features": ["y"]},
            r"there is no feature 'y'. There are: flag, id, x",
            id="features_unknown",
        ),
        pytest.param({"batch_size": 4, "ragged": "cut"}, "ragged should be 'pad' or 'values', got 'cut'", id="ragged"),
        pytest.param({"batch_size": 4, "ragged": "values", "pad_to": 4}, "pad_to has no meaning", id="pad_to"),
        pytest.param(
            {"batch_size": 4, "shuffle": "blocks"},
            r"shuffle should be True, False, BlockShuffle\(window=…\) or BalancedShuffle\(rows=…\), got 'blocks'",
            id="shuffle_text",
        ),
        pytest.param({"batch_size": 4, "shuffle": 1000}, "shuffle should be True, False, .*, got 1000", id="shuffle"),
        pytest.param({"batch_size": 4, "pad_to": "a"}, "pad_to should be a width, .*, got 'a'", id="pad_to_text"),
        pytest.param({"batch_size": 4, "pad_to": -1}, "pad_to should be a width, .*, got -1", id="pad_to_negative"),
        pytest.param({"batch_size": 4, "pad_to": {"x": 0.5}}, "pad_to should be a width, .*0.5", id="pad_to_float"),
        pytest.param(
            {"batch_size": 4, "pad_to": {"tok": 4}},
            "pad_to names 'tok', which is not a feature; the features are: flag, id, x",
            id="pad_to_typo",
        ),
        pytest.param(
            {"batch_size": 4, "pad_value": {"tok": 4}, "features": ["x"]},
            "pad_value names 'tok', which is not a feature; the features are: flag, id, x",
            id="pad_value_typo",
        ),
        pytest.param(
            {"batch_size": 4, "transform": lambda batch: [batch["x"]]},
            "transform should return a dict of arrays, got list",
            id="transform_list",
        ),
        pytest.param(
            {"batch_size": 4, "transform": lambda batch: {"sum": batch["x"].sum()}},
            r"as the first axis of every array: 'sum' has the shape \(\) for 0 rows. Give each row a value, and",
            id="transform_scalar",
        ),
        pytest.param(
            {"batch_size": 4, "transform": {"x": "y"}},
            r"^transform should be a function of a batch, got \{'x': 'y'\}$",
            id="transform_dict",
        ),
        pytest.param(
            {"batch_size": 4, "transform": lambda batch: batch["y"]},
            r"^transform .*<lambda> failed: KeyError: 'y'$",
            id="transform_fails",
        ),
        pytest.param({"batch_size": 4, "cu_seqlens": True}, "cu_seqlens needs rows packed", id="cu_seqlens"),
    ],
)
def test_options_out_of_range_are_refused_at_construction(row_split, options, words):
    with pytest.raises(LoaderError, match=words):
        Loader(row_split, **options)


@pytest.mark.parametrize(
    "read",
    [list, lambda loader: loader.batch_at(1), lambda loader: loader.batches_at(1, 2)],
    ids=["iter", "batch_at", "batches_at"],
)
def test_a_transform_that_drops_rows_is_refused_where_it_drops_the_first(row_split, read):
    loader = Loader(row_split, batch_size=4, shuffle=False, transform=lambda batch: {"id": batch["id"][::2]})

    with pytest.raises(
        LoaderError, match=r"'id' has the shape \([24],\) for [48] rows. .* leave out records when the cache"
    ):
        read(loader)


def stacked(batch):
    """As one decodes images: np.stack knows no shape for the images of no rows."""
    return {"image": np.stack([np.full((2, 3), row, np.uint8) for row in batch["id"]]), "id": batch["id"]}


@pytest.mark.parametrize(("last", "workers"), [("drop", 0), ("pad", 2), ("partial", 0)])
def test_a_transform_that_knows_nothing_of_no_rows_is_asked_about_the_first(row_split, last, workers):
    for source in (row_split, Mixture([(row_split, 1), (row_split, 2)], exhausted="drop")):
        loader = Loader(source, batch_size=30, last=last, transform=stacked, workers=workers)

        for batch in loader:
            assert batch["image"].shape == (len(batch["id"]), 2, 3) and batch["image"].dtype == np.uint8
            assert batch["image"][:, 1, 2].tolist() == batch["id"].tolist()
        hosts = [Loader(source, batch_size=30, transform=stacked, host_index=i, host_count=2) for i in range(2)]
        assert [len(host.batch_at(0)["image"]) for host in hosts] == [15, 15]


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_a_transform_gets_the_rows_of_its_host(row_split, last):
    hosts = [
        Loader(row_split, batch_size=30, last=last, host_index=host, host_count=7, transform=lambda batch: dict(batch))
        for host in range(7)
    ]

    steps = list(zip(*hosts, strict=True))

    expected = list(Loader(row_split, batch_size=30, last=last))
    for batches, whole in zip(steps, expected, strict=True):
        assert [row for batch in batches for row in batch["id"].tolist()] == whole["id"].tolist()


def test_what_is_not_a_split_is_refused():
    with pytest.raises(LoaderError, match=r"expected a split of a cache \(Cache.open\(path\)\['train'\]\), got list"):
        Loader([1, 2, 3], batch_size=1)


def test_a_mixture_that_never_ends_wants_no_epochs(document_split):
    with pytest.raises(LoaderError, match="never ends, got epochs=1: pass epochs=None"):
        Loader(Mixture([(document_split, 1)]), batch_size=4)


def test_a_column_of_the_loader_does_not_hide_a_feature(tmp_path):
    from beam_pipes.cache import ExampleSpec, FeatureSpec

    spec = ExampleSpec({"valid": FeatureSpec("int64")})
    split = write_split(tmp_path / "valid", [{"valid": 1}], spec, shards=1)

    with pytest.raises(LoaderError, match="the loader adds a column 'valid', and there is a feature of that name"):
        Loader(split, batch_size=1, last="pad")


def test_positions_outside_the_split_do_not_exist_for_the_reader(row_split):
    with pytest.raises(ExampleIndexError):
        row_split.gather([100])
