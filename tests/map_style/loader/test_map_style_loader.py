"""The loader: batches, epochs, errors and resuming, without workers and on threads."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import re
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_datasets import Numbers, Raising
from shared_iterators import assert_each_comes_once_and_in_order

from beam_pipes.errors import DatasetError, ExampleError, LoaderError, StateMismatchError
from beam_pipes.map_style import (
    BatchSampler,
    CacheDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SimilarLengthBatchSampler,
    TransformDataset,
    WeightedRandomSampler,
)

WORKERS = [0, 1, 3]


def indices(loader):
    """The example indices of each batch of one epoch."""
    return [batch[0].tolist() for batch in loader]


def test_a_batch_is_a_structure_of_arrays():
    loader = DataLoader(Numbers(5), batch_size=2)

    batches = list(loader)

    assert 3 == len(loader) == len(batches)
    assert [[0, 1], [2, 3], [4]] == [batch[0].tolist() for batch in batches]
    np.testing.assert_array_equal([[2] * 4, [3] * 4], batches[1][1])


def test_the_last_batch_can_be_dropped():
    loader = DataLoader(Numbers(5), batch_size=2, drop_last=True)

    assert [[0, 1], [2, 3]] == indices(loader)
    assert 2 == len(loader)
    assert [] == list(DataLoader([], batch_size=2))


@pytest.mark.parametrize("num_workers", WORKERS)
def test_each_iteration_is_the_next_epoch(num_workers):
    loader = DataLoader(Numbers(40), batch_size=8, shuffle=True, seed=3, num_workers=num_workers)

    epochs = [indices(loader) for _ in range(3)]

    assert [sorted(sum(epoch, [])) for epoch in epochs] == [list(range(40))] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    for epoch in (2, 0, 1):
        loader.set_epoch(epoch)
        assert epochs[epoch] == indices(loader)
    assert sum(epochs[1], []) == list(RandomSampler(40, seed=3, epoch=1))


@pytest.mark.parametrize("grouped", [False, True], ids=["sampler", "batch_sampler"])
def test_an_epoch_that_is_set_on_the_sampler_is_the_next_one(grouped):
    whole = {e: indices(DataLoader(Numbers(40), 8, sampler=RandomSampler(40, epoch=e))) for e in (0, 1, 2, 5, 6, 8)}
    sampler = RandomSampler(40)
    loader = (
        DataLoader(Numbers(40), batch_sampler=BatchSampler(sampler, 8))
        if grouped
        else DataLoader(Numbers(40), 8, sampler=sampler)
    )

    sampler.set_epoch(5)
    assert whole[5] == indices(loader)
    assert whole[6] == indices(loader)
    for epoch in (0, 1, 2):  # left early, as in a loop that stops after some steps
        sampler.set_epoch(epoch)
        assert whole[epoch][0] == next(iter(loader))[0].tolist()
    sampler.set_epoch(5)
    loader.set_epoch(8)
    assert whole[8] == indices(loader)


def test_a_state_is_continued_where_the_loop_sets_its_epoch_on_the_sampler():
    sampler = RandomSampler(40)
    loader = DataLoader(Numbers(40), 8, sampler=sampler)
    sampler.set_epoch(3)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    expected = [batch[0].tolist() for batch in iterator]

    other = RandomSampler(40)
    resumed = DataLoader(Numbers(40), 8, sampler=other)
    resumed.load_state_dict(state)
    other.set_epoch(3)

    assert expected == indices(resumed)


def test_leaving_an_epoch_early_starts_the_next_one():
    loader = DataLoader(Numbers(40), batch_size=8, shuffle=True)
    whole = [indices(DataLoader(Numbers(40), batch_size=8, sampler=RandomSampler(40, epoch=e))) for e in range(3)]

    for batch in loader:
        assert whole[0][0] == batch[0].tolist()
        break

    assert whole[1] == indices(loader)
    assert 2 == loader.epoch


def test_two_iterators_do_not_disturb_each_other():
    loader = DataLoader(Numbers(12), batch_size=4, shuffle=True, num_workers=2)
    expected = [indices(loader), indices(loader)]
    loader.set_epoch(0)

    pairs = list(zip(loader, loader, strict=True))

    assert expected[0] == [first[0].tolist() for first, _ in pairs]
    assert expected[1] == [second[0].tolist() for _, second in pairs]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_samplers_and_batch_samplers_decide_the_order(num_workers):
    numbers = Numbers(10)

    by_list = DataLoader(numbers, batch_size=2, sampler=[9, 0, 4], num_workers=num_workers)
    by_batches = DataLoader(numbers, batch_sampler=[[1], [2, 3, 4], [0]], num_workers=num_workers)
    ranks = [
        DataLoader(numbers, batch_size=2, sampler=DistributedSampler(10, 2, rank), num_workers=num_workers)
        for rank in (0, 1)
    ]

    assert [[9, 0], [4]] == indices(by_list)
    assert [[1], [2, 3, 4], [0]] == indices(by_batches)
    assert list(range(10)) == sorted(sum(indices(ranks[0]) + indices(ranks[1]), []))


def test_a_batch_sampler_follows_the_epoch():
    lengths = list(range(30))
    loader = DataLoader(Numbers(30), batch_sampler=SimilarLengthBatchSampler(lengths, 4))

    assert list(SimilarLengthBatchSampler(lengths, 4)) == indices(loader)
    assert list(SimilarLengthBatchSampler(lengths, 4, epoch=1)) == indices(loader)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        pytest.param((1, 2), [1, 2], id="tuple"),
        pytest.param({"a": 1, "b": 2}, {"a": 1, "b": 2}, id="dict"),
        pytest.param(7, [7], id="single"),
    ],
)
def test_fields_can_be_handed_out_as_a_list(batch, expected):
    assert expected == next(iter(DataLoader([0], return_list=True, collate_fn=lambda _: batch)))
    assert batch == next(iter(DataLoader([0], return_list=False, collate_fn=lambda _: batch)))


def test_examples_are_fetched_together_where_the_dataset_can():
    class Together(Numbers):
        def __getitems__(self, wanted):
            return [(index, np.zeros(1)) for index in wanted]

        def get_example(self, index):
            raise AssertionError

    assert [[0, 1], [2]] == indices(DataLoader(Together(3), batch_size=2))


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("error", [IndexError("x"), StopIteration("x"), KeyError("x")])
def test_an_error_in_user_code_surfaces_with_its_index(num_workers, error):
    loader = DataLoader(Raising(12, error), batch_size=2, num_workers=num_workers)
    seen = []

    with pytest.raises(ExampleError, match=rf"^loading example 5 failed: {type(error).__name__}: '?x'?$") as caught:
        for batch in loader:
            seen.append(batch[0].tolist())

    assert [[0, 1], [2, 3]] == seen
    assert 5 == caught.value.index
    assert error is caught.value.__cause__


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_request_to_stop_is_not_taken_for_a_failed_example(num_workers):
    loader = DataLoader(Raising(12, SystemExit(7)), batch_size=2, num_workers=num_workers)

    with pytest.raises(SystemExit, match="7"):
        list(loader)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_index_error_in_a_transform_does_not_end_the_epoch(num_workers):
    table = ["a", "b", "c"]
    loader = DataLoader(TransformDataset([0, 1, 7, 2], table.__getitem__), num_workers=num_workers)

    with pytest.raises(
        ExampleError, match="^loading example 2 failed: ExampleError: transform list.__getitem__ on example 2 failed: "
    ):
        list(loader)


def test_an_error_in_collate_names_its_batch():
    def collate(examples):
        return [][len(examples)]

    loader = DataLoader(Numbers(20), batch_size=10, collate_fn=collate)

    words = (
        r"^collate_fn .*collate \(test_map_style_loader.py:\d+\) failed on batch 0 of epoch 0, examples "
        r"\[0, 1, 2, 3, 4, 5, 6, 7, … 2 more\]: IndexError: list index out of range$"
    )
    with pytest.raises(ExampleError, match=words) as caught:
        list(loader)
    assert (0, 0, list(range(10))) == (caught.value.batch, caught.value.epoch, caught.value.indices)


def test_an_error_while_fetching_together_names_the_indices():
    class Together(Numbers):
        def __getitems__(self, wanted):
            if 2 in wanted:
                raise IndexError("gone")
            return []

    with pytest.raises(ExampleError, match=r"^loading examples \[2, 3\] failed: IndexError: gone$"):
        list(DataLoader(Together(4), batch_sampler=[[2, 3]]))
    words = r"^Together.__getitems__ should give one example for each of 2 indices, got 0 for \[0, 1\]$"
    with pytest.raises(ExampleError, match=words):
        list(DataLoader(Together(4), batch_size=2))


def test_an_index_outside_the_dataset_is_named():
    words = "^loading example 9 failed: ExampleIndexError: index 9 is out of range for Numbers of 3 examples$"
    with pytest.raises(ExampleError, match=words):
        list(DataLoader(Numbers(3), sampler=[0, 9]))


def test_threads_read_several_batches_at_a_time_and_are_joined():
    together = threading.Barrier(3, timeout=60)

    class Meeting(Numbers):
        def get_example(self, index):
            together.wait()
            return super().get_example(index)

    assert [[n] for n in range(9)] == indices(DataLoader(Meeting(9), num_workers=3, prefetch=1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("map-style-loader")]


def test_threads_end_when_an_iterator_is_left():
    read = []

    class Slow(Numbers):
        def get_example(self, index):
            read.append(index)
            time.sleep(0.01)
            return super().get_example(index)

    iterator = iter(DataLoader(Slow(10_000), batch_size=100, num_workers=2))
    next(iterator)
    iterator.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("map-style-loader")]
    assert len(read) < 10_000


@pytest.mark.parametrize(("num_workers", "worker_type"), [(0, "thread"), (2, "thread"), (1, "process")])
def test_a_sampler_that_fails_does_so_after_the_batches_before_it(num_workers, worker_type):
    class Failing:
        def __iter__(self):
            yield from ([0], [1])
            raise OSError("the list of indices cannot be read")

        def __len__(self):
            return 3

    with DataLoader(Numbers(3), batch_sampler=Failing(), num_workers=num_workers, worker_type=worker_type) as loader:
        batches = iter(loader)
        assert [[0], [1]] == indices(itertools.islice(batches, 2))
        with pytest.raises(OSError, match="the list of indices cannot be read"):
            next(batches)


def test_threads_share_a_cache():
    reads = []
    cached = CacheDataset(TransformDataset(range(20), lambda n: reads.append(n) or n))
    loader = DataLoader(cached, batch_size=3, num_workers=3)

    assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in loader]
    assert list(range(20)) == sorted(reads)


def build(num_workers=0):
    """A loader whose batches vary in size."""
    lengths = [10 + (37 * n) % 50 for n in range(50)]
    sampler = SimilarLengthBatchSampler(lengths, 8, max_elements=200)
    return DataLoader(Numbers(50), batch_sampler=sampler, num_workers=num_workers)


def two_epochs(loader):
    """The example indices of each batch of the next two epochs."""
    for _ in range(2):
        for batch in loader:
            yield batch[0].tolist()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resuming_at_every_step_continues_with_the_next_batch(num_workers):
    stream = list(two_epochs(build()))

    for stop in range(len(stream) + 1):
        before, after = build(num_workers), build(2 - num_workers)
        seen = list(itertools.islice(two_epochs(before), stop))
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        rest = itertools.islice(two_epochs(after), len(stream) - stop)

        assert stream == seen + list(rest)


@given(st.integers(0, 30), st.integers(1, 7), st.integers(0, 200), st.booleans(), st.booleans())
def test_resuming_gives_the_rest_of_any_loader(size, batch_size, steps, shuffle, drop_last):
    def loader():
        return DataLoader(Numbers(size, 1), batch_size, shuffle, drop_last=drop_last, seed=size)

    whole = indices(loader())
    steps = min(steps, len(whole))
    stopped = loader()
    iterator = iter(stopped)
    seen = [next(iterator)[0].tolist() for _ in range(steps)]
    resumed = loader()
    resumed.load_state_dict(stopped.state_dict())
    resumed.set_epoch(0)  # the training script's own loop says so too; it does not rewind

    assert whole == seen + indices(resumed)
    assert 1 == resumed.epoch


@pytest.mark.parametrize("num_workers", [0, 2])
def test_threads_that_share_an_iterator_get_each_batch_once_and_in_order(num_workers):
    batches = iter(DataLoader(Numbers(400), 2, True, num_workers=num_workers))
    whole = indices(DataLoader(Numbers(400), 2, True))

    assert_each_comes_once_and_in_order(batches, whole, number_of=lambda batch: batch[0].tolist())


@pytest.mark.parametrize("way", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@pytest.mark.parametrize(("num_workers", "worker_type"), [(0, "thread"), (2, "thread"), (1, "process")])
def test_a_copy_of_a_loader_continues_by_itself_where_its_newest_iterator_stands(num_workers, worker_type, way):
    with DataLoader(Numbers(20), 2, True, num_workers=num_workers, worker_type=worker_type) as loader:
        epochs = [indices(loader) for _ in range(3)]
        loader.set_epoch(0)
        fresh, iterator = way(loader), iter(loader)
        begun = indices(itertools.islice(iterator, 4))
        with way(loader) as copied, fresh:
            assert loader.state_dict() == copied.state_dict()
            assert [epochs[0][4:], epochs[1]] == [indices(copied), indices(copied)]
            assert epochs[0] == begun + indices(iterator) == indices(fresh)
            assert epochs[1] == indices(way(loader))
        for refused in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(LoaderError, match="an iterator belongs to its process and cannot be pickled or copied"):
                refused(iterator)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_state_in_front_of_an_example_that_failed_reads_it_again(num_workers):
    whole = indices(DataLoader(Numbers(20), 2))
    loader = DataLoader(Raising(20, ValueError("broken")), 2, num_workers=num_workers)
    seen = []

    with pytest.raises(ExampleError, match="loading example 5 failed: ValueError: broken"):
        for batch in loader:
            seen.append(batch[0].tolist())

    repaired = DataLoader(Numbers(20), 2)
    repaired.load_state_dict(loader.state_dict())
    assert (whole[:2], whole[2:]) == (seen, indices(repaired))


def test_a_state_of_the_last_batch_of_an_epoch_leaves_nothing_of_it():
    loader = DataLoader(Numbers(8), 2, True)
    states = [loader.state_dict() for _ in loader]

    resumed = DataLoader(Numbers(8), 2, True)
    resumed.load_state_dict(states[-1])

    assert [[], indices(loader)] == [indices(resumed), indices(resumed)]


def test_a_state_is_small_and_the_same_on_every_rank():
    states = [DataLoader(Numbers(9), 2, sampler=DistributedSampler(9, 2, rank, seed=5)).state_dict() for rank in (0, 1)]

    assert states[0] == states[1]
    assert len(json.dumps(states[0])) < 500
    assert {"version", "epoch", "position", "order"} == set(states[0])


def test_after_the_loop_the_state_is_the_start_of_the_next_epoch():
    loader = DataLoader(Numbers(4), 2, True)
    list(loader)

    state = loader.state_dict()
    resumed = DataLoader(Numbers(4), 2, True)
    resumed.load_state_dict(state)

    assert (1, 0) == (state["epoch"], state["position"])
    assert indices(loader) == indices(resumed)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        pytest.param(DataLoader(Numbers(9), 2, True, seed=1), "of.seed was 0, is 1", id="seed"),
        pytest.param(DataLoader(Numbers(9), 3, True), "batch_size was 2, is 3", id="batch_size"),
        pytest.param(
            DataLoader(Numbers(8), 2, True),
            "num_examples was 9, is 8; of.size was 9, is 8; of.num_samples was 9, is 8",
            id="size",
        ),
        pytest.param(
            DataLoader(Numbers(9), 2, sampler=[0, 1]),
            "of.sampler was 'RandomSampler', is 'list'; of.seed was 0, is None; of.size was 9, is None; "
            "of.replacement was "
            "False, is None; of.num_samples was 9, is None; of.content was None, is '9:e7b0bb7a2aae7e1b'",
            id="list",
        ),
        pytest.param(
            DataLoader(Numbers(9), 2, sampler=WeightedRandomSampler([1] * 9, 9)),
            "of.sampler was 'RandomSampler', is 'WeightedRandomSampler'; of.size was 9, is None; of.replacement was "
            "False, is True; of.weights was None, is '9:e7b0bb7a2aae7e1b'",
            id="sampler",
        ),
    ],
)
def test_a_state_of_another_order_is_refused_with_the_difference(other, difference):
    words = (
        f"the state belongs to another order of batches: {difference}. Build the loader as it was, or start again with "
        "set_epoch"
    )
    with pytest.raises(StateMismatchError) as caught:
        other.load_state_dict(DataLoader(Numbers(9), 2, True).state_dict())

    assert words == re.sub(r"\d:[0-9a-f]{16}", "9:e7b0bb7a2aae7e1b", str(caught.value))


def test_something_that_is_not_a_state_is_refused():
    loader = DataLoader(Numbers(4), 2)

    with pytest.raises(
        StateMismatchError, match=r"^a DataLoader state needs version, order; got \['epoch', 'position'\]$"
    ):
        loader.load_state_dict({"epoch": 1, "position": 2})
    words = "^the state has version 9, this library reads version 1; start the epoch again$"
    with pytest.raises(StateMismatchError, match=words):
        loader.load_state_dict({**loader.state_dict(), "version": 9})


ORDER = "DataLoader takes no shuffle or seed with a sampler: the order is the sampler's"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"batch_size": 0}, "DataLoader needs batch_size to be an int of at least 1, got 0", id="batch_size"
        ),
        pytest.param(
            {"num_workers": -1}, "DataLoader needs num_workers to be an int of at least 0, got -1", id="workers"
        ),
        pytest.param({"prefetch": 0}, "DataLoader needs prefetch to be an int of at least 1, got 0", id="prefetch"),
        pytest.param({"sampler": [0], "shuffle": True}, ORDER, id="shuffle"),
        pytest.param({"sampler": [0], "seed": 1}, ORDER, id="seed"),
        pytest.param(
            {"batch_sampler": [[0]], "batch_size": 2, "shuffle": True, "drop_last": True, "sampler": [0], "seed": 0},
            "DataLoader takes no batch_size, shuffle, drop_last, sampler, seed with a batch_sampler, which "
            "decides them "
            "itself",
            id="batch_sampler",
        ),
        pytest.param(
            {"batch_sampler": iter([[0]])},
            "DataLoader needs a batch_sampler that can be iterated again and has a length, got list_iterator",
            id="iterator",
        ),
        pytest.param(
            {"worker_type": "fork"}, "DataLoader needs worker_type to be one of: process, thread; got 'fork'", id="type"
        ),
        pytest.param(
            {"timeout": -1}, "DataLoader needs timeout to be a number of seconds of at least 0, got -1", id="negative"
        ),
        pytest.param(
            {"timeout": 5, "num_workers": 2},
            "DataLoader can keep a timeout with worker processes only: a thread cannot be stopped",
            id="timeout",
        ),
    ],
)
def test_options_that_contradict_are_refused(options, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        DataLoader([1], **options)


def test_a_stream_is_refused():
    with pytest.raises(DatasetError, match="^DataLoader needs a dataset with __len__ and __getitem__, got generator "):
        DataLoader(n for n in range(3))


def test_a_sampler_in_the_place_of_a_batch_sampler_is_recognised():
    words = (
        "DataLoader needs a batch_sampler that gives lists of indices, got 0; one that gives single indices is a "
        "sampler="
    )
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        list(DataLoader([1], batch_sampler=[0]))


def test_an_epoch_is_a_count():
    with pytest.raises(DatasetError, match="^DataLoader needs epoch to be an int of at least 0, got -1$"):
        DataLoader([1]).set_epoch(-1)
