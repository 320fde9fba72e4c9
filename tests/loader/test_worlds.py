"""Loaders in worlds of several processes: every rank's rows, compared with those of one process alone.

One start of real processes for each world serves all of its tests.
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world_processes import run_world

from beam_pipes.errors import DatasetError, LoaderError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.loader.world import HostSlice, known_world
from beam_pipes.map_style import DistributedSampler

ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def batches_of(loader):
    return [{name: array.tolist() for name, array in batch.items()} for batch in loader]


def ids_of(loader):
    return [batch["id"].tolist() for batch in loader]


def rows(split, **options):
    """The loader of the programs that run in the processes, alone."""
    return Loader(split, **{"batch_size": 8, "seed": 3, "features": ["x", "id"], "host_count": 1, **options})


def in_slices(batches, rank, count=2):
    return [batch[rank * len(batch) // count : (rank + 1) * len(batch) // count] for batch in batches]


@pytest.fixture(scope="module")
def of_jax(row_split, document_split):
    """What two processes of JAX with two devices each found."""
    environment = {**ON_CPU, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return run_world("jax_world.py", 2, row_split.path, document_split.path, environment=environment)


@pytest.fixture(scope="module")
def of_four(row_split, document_split):
    """What four processes of JAX with a device each found."""
    environment = {**ON_CPU, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    return run_world("jax_world.py", 4, row_split.path, document_split.path, environment=environment)


@pytest.mark.parametrize(
    "sharding",
    [
        "all devices",
        "mesh",
        "made before the world",
        "prefetched",
        "from a cache",
        "transformed by tf.data",
        "data by process",
        "data within a process",
        "interleaved",
        "replicated",
        "sequence within a process",
        "sequence over processes",
        "only the sequence",
        "whole batches on each host",
        "the share that is needed",
    ],
)
def test_a_global_array_of_jax_is_the_global_batch(of_jax, row_split, sharding):
    expected = batches_of(rows(row_split))

    assert [found["batches"][sharding] for found in of_jax] == [expected, expected]


def test_each_process_of_jax_reads_what_its_devices_need(of_jax):
    assert [found["shares"] for found in of_jax] == [
        {
            "data by process": [rank, 2],
            "data within a process": [0, 1],
            "interleaved": [rank, 2],
            "replicated": [0, 1],
        }
        for rank in range(2)
    ]


def test_one_loader_follows_the_sharding_it_is_read_through(of_jax, row_split):
    expected = [ids_of(rows(row_split))] * 3

    assert [found["one loader, other shardings"] for found in of_jax] == [expected, expected]


def test_processes_that_share_their_rows_read_the_same(of_four, row_split):
    expected = batches_of(rows(row_split))

    assert [found["share"] for found in of_four] == [[0, 2], [0, 2], [1, 2], [1, 2]]
    for found in of_four:
        assert found["batches"] == {"a batch for two processes": expected, "transformed": expected}
        assert found["own parts"] == [{"id": [0, 1, 10, 11]}]


def test_batches_that_were_transformed_have_to_be_of_the_share_that_is_needed(of_four):
    for found in of_four:
        assert len(found["transformed"]) == 3 and len(set(found["transformed"])) == 1
    assert of_four[0]["transformed"][0] == (
        "LoaderError: the devices of this process need rows 0 to 1 of every 4 rows of a global batch, and its loader "
        "reads rows 0 to 0 (host_index=0, host_count=4). Pass host_index=0, host_count=2 to the loader of the cache, "
        "whose batches were transformed since."
    )
    assert "Pass host_index=1, host_count=2 to the loader" in of_four[3]["transformed"][0]


def test_a_batch_of_one_row_is_for_all_processes_if_the_sharding_says_so(of_jax, row_split):
    alone = ids_of(rows(row_split, batch_size=1))[:3]
    words = (
        "LoaderError: batch_size (the global one, over all hosts, the 2 processes of jax.distributed) should be at "
        "least 2, got 1. Where processes read the same rows, as those of tensor parallelism do, say which: "
        "mesh=sharding, or .shard(sharding) of a JaxDataLoader; host_count=1 gives all rows to all."
    )

    for found in of_jax:
        assert found["one row for all"] == [alone, alone[1]]
        assert found["refused"]["one row"] == found["refused"]["one row by its number"] == words


def test_loaders_of_jax_take_their_share_without_starting_a_backend(of_jax, row_split):
    alone = ids_of(rows(row_split))

    for rank, found in enumerate(of_jax):
        assert found["share"] == [rank, 2, 4] and not found["backend_was_started"]
        assert found["own batches"] == in_slices(alone, rank)


def test_a_loader_that_was_made_before_the_world_takes_its_share_when_it_is_read(of_jax, row_split):
    alone = ids_of(rows(row_split))

    for rank, found in enumerate(of_jax):
        assert found["alone"] == [0, 1, 50]
        assert found["made_before"] == in_slices(alone, rank)
        assert found["begun_before"] == (
            "LoaderError: this iterator began before the processes that train together were initialised, and so it "
            "gives each of them the same batches. Call iter(loader) again: it continues after the last batch, with the "
            "share of this process."
        )


def test_rows_that_pad_the_last_batch_are_marked_in_the_global_array(of_jax, row_split):
    expected = [
        {"id": batch["id"].tolist(), "valid": batch["valid"].tolist()}
        for batch in rows(row_split, batch_size=40, last="pad")
    ]

    assert [sum(batch["valid"]) for batch in expected] == [40, 40, 20]
    assert [found["padded"] for found in of_jax] == [expected, expected]


def test_packed_rows_and_mixtures_are_global_arrays_too(of_jax, row_split, document_split):
    packed = batches_of(Loader(pack(document_split, sequence_length=64), batch_size=4, seed=1))
    mixed = batches_of(Loader(Mixture([(row_split, 3), (row_split, 1)], exhausted="drop"), batch_size=8, seed=1))

    assert len(packed) > 2 and len(mixed) > 2
    assert [found["packed"] for found in of_jax] == [packed, packed]
    assert [found["mixture"] for found in of_jax] == [mixed, mixed]


def test_rows_are_as_wide_as_the_longest_of_the_global_batch(of_jax, document_split):
    expected = batches_of(Loader(document_split, batch_size=8, seed=2))

    assert len({len(batch["tokens"][0]) for batch in expected}) > 1
    assert [found["ragged"] for found in of_jax] == [expected, expected]


def test_a_state_goes_from_two_processes_to_one_and_back(of_jax, row_split):
    whole = ids_of(rows(row_split))

    for found in of_jax:
        loader = rows(row_split)
        loader.load_state_dict(found["state"])
        assert found["before the stop"] + ids_of(loader) == whole
        assert list(itertools.chain(*found["continued"]))[:88] == list(itertools.chain(*whole[1:]))


def test_batches_of_ones_own_are_parts_whose_sequences_are_whole(of_jax):
    for rank, found in enumerate(of_jax):
        assert found["own parts by process"] == [[4, 4], [[rank, rank]] * 2]
        assert found["own parts within a process"] == [[2, 4], [[rank, rank]]]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "another share",
            "LoaderError: the devices of this process need rows 0 to 3 of every 8 rows of a global batch, and its "
            "loader reads rows 4 to 7 (host_index=1, host_count=2). Leave both out, and shard chooses them; or pass "
            "host_index=0, host_count=2.",
        ),
        (
            "values",
            "LoaderError: tokens: with ragged='values' each process has as many values as its own rows hold, so that "
            "the processes would make arrays of different shapes. Leave ragged out, which pads rows to the longest of "
            "the global batch, or pack the rows; or name them in skip_keys.",
        ),
        (
            "partial",
            "LoaderError: last='partial' ends an epoch with a batch of another size, whose rows need not divide over "
            "the processes. Pass last='pad', which marks the rows that it adds in the column valid, or last='drop'.",
        ),
        (
            "odd batch",
            " over the mesh {'batch': 4}. Pass a batch_size (of all processes together) that is a multiple of 4.",
        ),
        (
            "no device",
            "LoaderError: no device of process 0 is in the mesh {'data': 2}, so there is nothing for it to hand over. "
            "Make the mesh of devices of all processes (jax.make_mesh), or shard only where jax.process_index() is "
            "among those of mesh.devices.",
        ),
        (
            "interleaved own",
            "LoaderError: the processes need parts [0, 2] and [1, 3] of 4 of every global batch, which are not "
            "equal consecutive slices, and these batches come from an iterable that cannot choose its rows. "
            "Pass a Loader of a cache, or order the devices of the mesh by process (jax.make_mesh).",
        ),
        (
            "two shares",
            "LoaderError: the loaders behind these batches read different shares of them, [(0, 1), (0, 2)] as "
            "(host_index, host_count). Pass the same ones to all.",
        ),
        (
            "boundaries",
            "should have the 2 rows that this process reads of a global batch of 4, since it is split by rows over "
            "processes. Name it in skip_keys=['cu_seqlens'] to keep it on the host.",
        ),
    ],
)
def test_what_cannot_be_a_global_array_is_refused(of_jax, case, words):
    assert words in of_jax[0]["refused"][case]
    assert of_jax[1]["refused"][case]


def test_what_is_kept_on_the_host_may_be_of_any_width(of_jax):
    assert [found["skipped"] for found in of_jax] == [4, 4]


@pytest.fixture(scope="module")
def of_torch(row_split, document_split):
    """What two processes of torch found."""
    return run_world("torch_world.py", 2, row_split.path, document_split.path, environment=ON_CPU, ports=4)


@pytest.mark.parametrize(
    "made",
    [
        "made before the world",
        "native",
        "native with workers",
        "torch",
        "prefetched",
        "from a cache",
        "over a loader",
        "one by one",
        "stacked",
        "of a plan",
        "by number in workers",
    ],
)
def test_ranks_of_torch_get_the_two_halves_of_every_global_batch(of_torch, row_split, made):
    alone = ids_of(rows(row_split))

    assert [found["batches"][made] for found in of_torch] == [in_slices(alone, rank) for rank in range(2)]


@pytest.mark.parametrize("made", ["before", "loader", "cache"])
def test_one_host_is_taken_at_its_word(of_torch, row_split, made):
    assert [found["whole"][made] for found in of_torch] == [ids_of(rows(row_split))] * 2


def test_ranks_of_torch_share_partial_batches_packed_rows_and_mixtures(of_torch, row_split, document_split):
    partial = ids_of(rows(row_split, batch_size=40, last="partial"))
    packed = [
        batch["tokens"].tolist() for batch in Loader(pack(document_split, sequence_length=64), batch_size=4, seed=1)
    ]
    mixed = ids_of(Loader(Mixture([(row_split, 3), (row_split, 1)], exhausted="drop"), batch_size=8, seed=1))

    assert [len(batch) for batch in partial] == [40, 40, 20]
    for rank, found in enumerate(of_torch):
        assert found["partial"] == in_slices(partial, rank)
        assert found["packed"] == in_slices(packed, rank)
        assert found["mixture"] == in_slices(mixed, rank)


def test_a_state_of_two_ranks_continues_in_one_process(of_torch, row_split):
    whole = ids_of(rows(row_split))
    loader = rows(row_split)
    loader.load_state_dict(of_torch[0]["state"])

    assert of_torch[0]["state"] == of_torch[1]["state"]
    halves = zip(*(found["before the stop"] for found in of_torch), strict=True)
    assert [left + right for left, right in halves] + ids_of(loader) == whole


def test_an_iterator_that_began_before_the_ranks_were_known_is_refused(of_torch):
    for found in of_torch:
        assert found["alone"] == [0, 1, 50]
        assert "Call iter(loader) again: it continues after the last batch" in found["begun before"]


def test_a_global_batch_has_a_row_for_each_rank(of_torch):
    for found in of_torch:
        assert found["too small"] == (
            "LoaderError: batch_size (the global one, over all hosts, the 2 processes of torch.distributed) should be "
            "at least 2, got 1. Where processes read the same rows, as those of tensor parallelism do, say which: "
            "mesh=… with spec=…; host_count=1 gives all rows to all."
        )


def test_examples_that_a_sampler_deals_out_are_not_divided_again(of_torch):
    for sampler in ("torch's sampler", "our sampler", "buckets"):
        first, second = (found["map style"][sampler] for found in of_torch)
        assert len(first) == len(second) == 50
        assert sorted(first + second) == list(range(100)), sampler
    assert [sorted(found["map style"]["everything"]) for found in of_torch] == [list(range(100))] * 2


@pytest.mark.parametrize("order", ["plain", "shuffled", "buckets", "made before"])
def test_a_map_style_loader_does_not_give_all_ranks_the_same_examples(of_torch, order):
    for rank, found in enumerate(of_torch):
        assert found["map style refused"][order] == (
            f"DatasetError: this is process {rank} of the 2 of torch.distributed, and the samplers of this DataLoader "
            "give each of them the same batches. Pass sampler=DistributedSampler(dataset, shuffle=…, last='drop'), or "
            "batch_sampler=DistributedSampler(batch_sampler, last='drop'), for the share of this process; with "
            "num_trainers=1, rank=0 it gives all of it to every process."
        )


def test_a_sampler_takes_both_numbers_or_none(of_torch):
    assert of_torch[1]["map style refused"]["half"] == (
        "DatasetError: DistributedSampler needs num_trainers and rank, or neither of them where torch.distributed or "
        "jax.distributed is initialised; got num_trainers=None, rank=0, and this is process 1 of the 2 of "
        "torch.distributed. Pass num_trainers=1, rank=0 for all items."
    )
    with pytest.raises(DatasetError, match="got num_trainers=None, rank=None. Pass num_trainers=1"):
        DistributedSampler(10)


def test_workers_of_torch_do_not_repeat_the_batches(of_torch, row_split):
    words = (
        "of torch's DataLoader, each of which would give the same batches. Iterate over the loader itself, with "
        "threads of its own: TorchDataLoader(Loader(…, workers=2)); or give torch's DataLoader random_access(split), "
        "whose examples its sampler deals out. host_count=1 gives every worker all batches."
    )
    for found in of_torch:
        assert f"this loader is read in worker process 0 of 2 {words}" in found["workers"]
        assert f"this loader is read in worker process 0 of 1 {words}" in found["fork of a share"]
        assert found["whole in workers"] == ids_of(rows(row_split, batch_size=50))


def test_two_worlds_that_disagree_are_refused(of_torch, row_split):
    alone = ids_of(rows(row_split))
    for rank, found in enumerate(of_torch):
        assert found["two worlds"] == (
            f"LoaderError: this is process {rank} of the 2 of torch.distributed, and also process {1 - rank} of the 2 "
            "of jax.distributed: it is unclear which of them share the rows. Pass host_index=… and host_count=…."
        )
        assert found["given in two worlds"] == [batch[0] for batch in in_slices(alone, rank)]


def test_a_share_outlives_its_world_and_no_other_one_takes_it(of_torch, row_split):
    alone = ids_of(rows(row_split))
    for rank, found in enumerate(of_torch):
        assert found["first half"] + found["after the world"] == in_slices(alone, rank)
        assert found["after the world, anew"] == [0, 1]
        assert found["another world"] == (
            f"LoaderError: this loader took its share as process {rank} of the 2 of torch.distributed, and this is "
            "process 0 of the 1 of torch.distributed now. Create the loader again, and restore its state: "
            "load_state_dict(state) continues exactly, on any number of processes."
        )


def test_workers_of_tensorflow_say_who_divides_the_rows(row_split):
    found = run_world("tensorflow_world.py", 4, row_split.path, environment=ON_CPU, ports=4)
    alone = ids_of(rows(row_split))

    for rank, worker in enumerate(found):
        assert worker["of variables alone"] == [0, 1]
        for refused in (worker["refused"]["loader"], worker["refused"]["cache"]):
            assert refused == (
                f"LoaderError: this is process {rank} of the 4 of TensorFlow's cluster, and who divides the rows "
                "decides what a loader has to give. Within strategy.distribute_datasets_from_function(lambda context: "
                "…) pass mesh=context; for strategy.experimental_distribute_dataset and Model.fit, which divide the "
                "elements themselves, pass host_count=1."
            )
        assert "DistributedSampler needs num_trainers and rank" in worker["refused"]["sampler"]
        for how in ("from a function", "from a mesh", "divided by the strategy"):
            assert worker[how] == in_slices(alone, rank, 4)


def test_variables_of_the_environment_are_no_world(row_split, monkeypatch):
    cluster = '{"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"type": "worker", "index": 1}}'
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "SLURM_NTASKS": "2", "TF_CONFIG": cluster}.items():
        monkeypatch.setenv(name, value)

    assert known_world() is None
    assert (Loader(row_split, batch_size=8).host_index, Loader(row_split, batch_size=8).host_count) == (0, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"host_count": 2},
            r"host_count=2 was given without host_index, .* Pass host_index=…, 0 to 1, or leave both out: under "
            "torch.distributed and jax.distributed a loader takes them from there.",
        ),
        ({"host_index": 0}, r"host_index=0 was given without host_count, .*\. Pass host_count=…, or leave both out"),
    ],
)
def test_a_share_is_given_whole_or_not_at_all(row_split, options, words):
    with pytest.raises(LoaderError, match=words):
        Loader(row_split, batch_size=8, **options)


@given(data=st.data())
def test_shares_of_parts_hold_every_row_and_know_who_holds_it(data):
    devices = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))  # the process of each part's devices
    more = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, len(devices) - 1)), max_size=6))
    held = {process: set() for process, _ in [*zip(devices, range(12), strict=False), *more]}
    for process, part in [*zip(devices, range(12), strict=False), *more]:
        held[process].add(part)
    rows = len(devices) * data.draw(st.integers(1, 3))

    for parts in held.values():
        share = HostSlice.of_parts(parts, held.values(), chosen_by="mesh")
        places = share.places_of(rows).tolist()

        assert share.parts == len(devices) or not share.slices
        assert places == [row for row in range(rows) if row * len(devices) // rows in parts]
        for index, place in enumerate(places):
            holder, found = share.holder_of(place, rows)
            assert share.slices or (holder, found) == (share.index, index)
            assert dataclasses.replace(share, index=holder).places_of(rows)[found] == place


def test_a_loader_in_use_takes_another_share_from_its_cursor_on(row_split):
    alone = ids_of(rows(row_split))
    loader = rows(row_split, workers=1)
    iterator = iter(loader)
    next(iterator)
    loader.take_share(HostSlice(index=1, count=2))

    assert [batch["id"].tolist() for batch in iterator] == in_slices(alone, 1)[1:]
