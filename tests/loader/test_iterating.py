"""Iterating: restored ends, threads that share an iterator, errors where they are due, copies of loaders."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import itertools
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings

import loader_caches
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import Cache
from beam_pipes.errors import (
    BeamPipesError,
    CacheNotFoundError,
    CacheReadError,
    CorruptRecordError,
    LoaderError,
    SpecError,
    TransformError,
)
from beam_pipes.loader import BlockShuffle, Loader, Mixture, pack
from beam_pipes.loader.world import HostSlice


def ids(batches, count=None):
    return [batch["id"].tolist() for batch in itertools.islice(batches, count)]


def values(batches, count=None):
    """Batches as plain values, whatever their features."""
    found = itertools.islice(batches, count)
    return [{name: array.tolist() for name, array in batch.items()} for batch in found]


@pytest.fixture(scope="module")
def sources(row_split, document_split, other_split):
    plans = [pack(split, sequence_length=40, overlong="split") for split in (document_split, other_split)]
    return {
        "split": row_split,
        "plan": plans[0],
        "stop": Mixture([(row_split, 2), (row_split, 1)], exhausted="stop"),
        "drop": Mixture(zip(plans, (7, 3), strict=True), exhausted="drop"),
    }


# Restored ends


@given(
    name=st.sampled_from(["split", "plan", "stop", "drop"]),
    epochs=st.integers(1, 3),
    batch_sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    hosts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    last=st.tuples(*[st.sampled_from(["drop", "pad", "partial"])] * 2),
    workers=st.integers(0, 1),
    at=st.floats(0, 1),
)
@settings(max_examples=150, deadline=None)
def test_a_restored_loader_gives_what_was_left_of_its_run_and_nothing_where_nothing_was(
    sources, name, epochs, batch_sizes, hosts, last, workers, at
):
    before, after = (
        [
            Loader(sources[name], batch_size=max(size, count), epochs=epochs, seed=3, last=policy,
                   host_index=host, host_count=count, workers=workers)
            for host in range(count)
        ]
        for size, count, policy in zip(batch_sizes, hosts, last, strict=True)
    )  # fmt: skip
    if not before[0].steps_per_epoch or not after[0].steps_per_epoch:
        return
    for loader in before:
        list(itertools.islice(loader, round(at * len(loader))))
    epoch, position = before[0].epoch, before[0].position
    sizes = {batch: rows for batch, rows in enumerate(_steps_from(after[0], epoch, position))}

    for loader in after:
        loader.load_state_dict(before[-1].state_dict())

        assert loader.steps_left == len(sizes) and loader.step + loader.steps_left == len(loader)
        assert len(list(loader)) == len(sizes)
    # Behind a run that this process has read to its end begins the next one; an end that was restored stays one.
    assert [len(list(loader)) for loader in after] == [len(loader) if sizes else 0 for loader in after]


def _steps_from(loader, epoch, position):
    """The rows of each batch that is left, by the words of the documentation."""
    rows = loader.rows_per_epoch
    left = [rows - position, *[rows] * (loader.epochs - epoch - 1)] if epoch < loader.epochs else []
    for count in left:
        yield from [loader.batch_size] * (count // loader.batch_size)
        if count % loader.batch_size and loader.last != "drop":
            yield count % loader.batch_size


_NEW_PROCESS = """
import json, sys
from beam_pipes.cache import Cache
from beam_pipes.loader import Loader

path, state, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
loader = Loader(Cache.open(path)["train"], seed=4, **options)
loader.load_state_dict(state)
print(json.dumps([len(loader), loader.step, loader.steps_left, [len(list(loader)) for _ in range(3)]]))
"""


def test_a_finished_run_is_finished_in_a_new_process_too(row_split):
    def elsewhere(state, **options):
        arguments = [sys.executable, "-c", _NEW_PROCESS, row_split.path, json.dumps(state), json.dumps(options)]
        return json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)

    loader = Loader(row_split, batch_size=32, epochs=2, seed=4, last="partial")
    states = [loader.state_dict() for _ in loader]

    assert elsewhere(loader.state_dict(), batch_size=32, epochs=2, last="partial") == [8, 8, 0, [0, 0, 0]]
    assert elsewhere(states[6], batch_size=8, epochs=2, last="drop") == [24, 24, 0, [0, 0, 0]]  # 4 rows are left
    assert elsewhere(states[2], batch_size=5, epochs=1, last="drop") == [20, 20, 0, [0, 0, 0]]
    assert elsewhere(loader.state_dict(), batch_size=32, epochs=3, last="partial") == [12, 8, 4, [4, 12, 12]]


def test_a_run_without_end_continues_after_any_state(row_split):
    loader = Loader(row_split, batch_size=32, epochs=1, seed=4)
    list(loader)
    again = Loader(row_split, batch_size=32, epochs=None, seed=4)
    again.set_state(loader.get_state())

    assert (again.epoch, ids(again, 4)) == (1, ids(Loader(row_split, batch_size=32, epochs=3, seed=4), 7)[3:])


def test_reset_starts_a_run_again_that_was_restored_at_its_end(row_split):
    loader = Loader(row_split, batch_size=32, seed=4)
    whole = ids(loader)
    again = Loader(row_split, batch_size=32, seed=4)
    again.set_state(loader.get_state())
    assert ids(again) == ids(again.epoch_batches()) == []

    again.reset()

    assert again.steps_left == 3
    assert ids(again) == whole
    with pytest.warns(UserWarning, match="starts over"):  # a loop behind the end of a run of this process
        assert ids(again) == whole


def test_whoever_loops_again_is_warned_that_the_order_is_the_same(row_split):
    loader = Loader(row_split, batch_size=32, seed=4)
    first = ids(loader)
    with pytest.warns(UserWarning, match=r"same order again: the loader's 1 epoch\(s\).*epoch_batches\(\)") as caught:
        assert ids(loader) == first
    assert caught[0].filename == __file__

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = Loader(row_split, batch_size=32, seed=4, epochs=2)
        each = [ids(loader.epoch_batches()) for _ in range(2)]
        assert each[0] == first != each[1]
        unshuffled = Loader(row_split, batch_size=32, shuffle=False)
        assert ids(unshuffled) == ids(unshuffled)


def test_a_loader_is_not_read_by_index(row_split):
    loader = Loader(row_split, batch_size=32)
    with pytest.raises(LoaderError, match=r"in order.*TorchDataLoader\(loader\).*loader\.batch_at\(step\)"):
        loader[0]
    with pytest.raises(LoaderError, match="read in order"):
        next(iter(torch.utils.data.DataLoader(loader, batch_size=None)))


def test_an_iterator_whose_end_is_restored_ends(row_split):
    finished = Loader(row_split, batch_size=32, seed=4)
    list(finished)
    iterator = iter(Loader(row_split, batch_size=32, seed=4, workers=1))
    next(iterator)

    iterator.set_state(finished.get_state())

    assert list(iterator) == []


# One iterator, several threads


def taken_by(threads, iterator):
    """What each of some threads gets that take turns as they come."""
    barrier = threading.Barrier(threads)

    def take():
        barrier.wait()
        return list(iterator)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return [future.result() for future in [pool.submit(take) for _ in range(threads)]]


@pytest.fixture
def impatient_threads():
    """Threads change after a microsecond, wherever they are."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["split", "plan", "stop"])
def test_threads_that_share_an_iterator_get_each_batch_once_and_in_order(sources, name, workers, impatient_threads):
    expected = values(Loader(sources[name], batch_size=4, epochs=8, seed=2))
    loader = Loader(sources[name], batch_size=4, epochs=8, seed=2, workers=workers, prefetch=8)

    parts = [values(part) for part in taken_by(4, iter(loader))]

    places = {json.dumps(batch): place for place, batch in enumerate(expected)}
    order = [[places[json.dumps(batch)] for batch in part] for part in parts]
    assert len(places) == len(expected)
    assert sorted(itertools.chain(*order)) == list(range(len(expected)))
    assert all(numbers == sorted(numbers) for numbers in order)
    assert loader.step == len(expected)


def test_the_state_beside_a_thread_that_iterates_is_always_one_between_two_batches(row_split, impatient_threads):
    loader = Loader(row_split, batch_size=4, epochs=40, seed=2)
    iterator = iter(loader)
    seen = []
    reader = threading.Thread(target=lambda: [None for _ in iterator])
    reader.start()
    while reader.is_alive():
        state = loader.state
        seen.append((state.epoch, state.position))
    reader.join()

    assert all(position % 4 == 0 for _, position in seen)
    assert seen == sorted(seen)  # a cursor that jumps ahead and back again would be a state that loses batches


def test_of_two_iterators_of_a_loader_the_newer_one_continues_and_the_older_one_says_so(row_split):
    whole = ids(Loader(row_split, batch_size=4, seed=2))
    loader = Loader(row_split, batch_size=4, seed=2)
    first = iter(loader)
    seen = ids(first, 3)
    second = iter(loader)
    seen += ids(second, 2)

    with pytest.raises(LoaderError, match=r"was closed, or replaced by a newer one of the same loader; call iter\("):
        next(first)

    assert loader.step == 5
    assert seen + ids(second) == whole


# Errors where they are due


class BadRows:
    """A transform that fails on some rows, whatever group they come in."""

    def __init__(self, *bad, error=None):
        self.bad = bad
        self.error = error or ValueError("no such colour")

    def __call__(self, batch):
        if np.isin(batch["id"], self.bad).any():
            raise self.error
        return batch


def read_until_error(loader):
    seen = []
    with pytest.raises(BeamPipesError) as caught:
        seen.extend(iter(loader))
    return seen, caught.value


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("bad", [3, 41, 97])
def test_an_error_comes_with_its_own_batch_and_the_state_is_in_front_of_it(row_split, workers, shuffle, bad):
    options = {"batch_size": 2, "epochs": 2, "seed": 5, "shuffle": shuffle, "last": "pad"}
    whole = ids(Loader(row_split, **options))
    due = next(step for step, batch in enumerate(whole) if bad in batch)
    loader = Loader(row_split, transform=BadRows(bad), workers=workers, **options)

    seen, error = read_until_error(loader)

    assert isinstance(error, TransformError) and isinstance(error.__cause__, ValueError)
    assert ids(seen) == whole[:due] and loader.step == due
    assert (error.split, error.record, error.epoch, error.position) == ("train", bad, 0, 2 * due)
    shard = min(2, bad // 33) if bad < 99 else 2
    assert str(error) == (
        f"transform BadRows failed: ValueError: no such colour. This is record {bad} of split 'train' (number "
        f"{bad - row_split.shard_sizes[:shard].sum()} of {row_split.place_of(bad)[0]}, at byte "
        f"{row_split.offset_of(bad)}), in the batch that begins at position {2 * due} of epoch 0."
    )
    repaired = Loader(row_split, **options)
    repaired.load_state_dict(loader.state_dict())
    assert ids(repaired) == whole[due:]
    seen, again = read_until_error(loader)  # the next loop reads the batch again
    assert (seen, str(again)) == ([], str(error))


def test_a_stop_iteration_of_a_transform_is_an_error_and_no_end(row_split):
    loader = Loader(row_split, batch_size=4, transform=BadRows(7, error=StopIteration()))

    with pytest.raises(TransformError, match=r"transform BadRows failed: StopIteration. This is record 7"):
        list(loader)


def test_a_group_that_fails_only_as_a_whole_is_delivered_batch_by_batch(row_split):
    def takes_few(batch):
        if len(batch["id"]) > 4:
            raise MemoryError
        return batch

    assert ids(Loader(row_split, batch_size=4, transform=takes_few)) == ids(Loader(row_split, batch_size=4))


def test_batch_at_and_batches_at_name_the_record_too(row_split):
    loader = Loader(row_split, batch_size=4, shuffle=False, transform=BadRows(41))

    for read in (lambda: loader.batch_at(10), lambda: loader.batches_at(8, 4)):
        with pytest.raises(TransformError, match="This is record 41 of split 'train'") as caught:
            read()
        assert caught.value.position == 40
    assert loader.batches_at(6, 4)["id"].shape == (4, 4)


TEXTS = loader_caches.ExampleSpec({"text": loader_caches.FeatureSpec("str"), "id": loader_caches.FeatureSpec("int64")})


@pytest.fixture
def texts(tmp_path):
    examples = [{"text": f"line {index}", "id": index} for index in range(60)]
    return loader_caches.write_split(tmp_path / "texts", examples, TEXTS)


def _flipped(split, record):
    file = os.path.join(split._directory, split.place_of(record)[0])
    with open(file, "r+b") as opened:
        text = opened.read()
        opened.seek(text.index(f"line {record}".encode()))
        opened.write(b"\xff")


def _cut(split, record):
    file = os.path.join(split._directory, split.place_of(record)[0])
    os.truncate(file, os.path.getsize(file) - 10)


def _removed(split, record):
    os.unlink(os.path.join(split._directory, split.place_of(record)[0]))


def _a_directory(split, record):
    _removed(split, record)
    os.symlink(split.place_of(record)[0], os.path.join(split._directory, split.place_of(record)[0]))  # a circle


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("damage", "kind", "first"),
    [
        pytest.param(_flipped, CorruptRecordError, 31, id="bytes"),
        pytest.param(_cut, CorruptRecordError, 20, id="truncated"),
        pytest.param(_removed, CacheNotFoundError, 20, id="missing"),
        pytest.param(_a_directory, CacheReadError, 20, id="unreadable"),
    ],
)
def test_damage_is_an_error_of_its_batch_that_names_record_file_and_remedy(texts, damage, kind, first, workers):
    damage(texts, 31)
    split = Cache.open(texts.path)["train"]
    loader = Loader(split, batch_size=2, shuffle=False, workers=workers)

    seen, error = read_until_error(loader)

    assert type(error) is kind
    assert ids(seen) == [[2 * step, 2 * step + 1] for step in range(first // 2)]
    file, number = split.place_of(first)
    assert f"This is record {first} of split 'train' (number {number} of {file}, at byte " in str(error)
    assert str(error).endswith(f"`beam-pipes verify {texts.path}` lists all that is damaged.")
    assert (loader.step, error.record, error.file) == (first // 2, first, file)


def test_a_record_of_packed_rows_and_its_source_in_a_mixture_are_named(tmp_path):
    examples = loader_caches.documents(60, longest=12)
    good, bad = (
        loader_caches.write_split(tmp_path / name, examples, loader_caches.DOCUMENTS) for name in ("good", "bad")
    )
    plan = pack(bad, sequence_length=24)
    record = int(plan.records[plan.bin_offsets[7] + 1])
    plan.lengths[plan.bin_offsets[7] + 1, 0] += 1  # as if the plan were of another record
    loader = Loader(Mixture([(pack(good, sequence_length=24), 1), (plan, 1)], exhausted="stop"), batch_size=1, seed=1)

    _, error = read_until_error(loader)

    assert (error.source, error.row) == (1, 7)
    assert "of split 'train' (number " in str(error) and ", packed into row 7 of the plan, from source 1 of" in str(
        error
    )
    assert error.record in plan.records[plan.bin_offsets[7] : plan.bin_offsets[8]] and record in plan.records


def test_an_error_says_which_record_is_too_long(document_split):
    longest = int(np.argmax(document_split.lengths("tokens")))
    width = int(np.sort(document_split.lengths("tokens"))[-1]) - 1
    loader = Loader(document_split, batch_size=2, shuffle=False, pad_to=width)

    seen, error = read_until_error(loader)

    assert isinstance(error, SpecError) and error.record == longest
    assert len(seen) == longest // 2


def test_the_byte_that_an_error_names_is_where_the_record_begins(row_split, document_split):
    for split in (row_split, document_split):
        for record in (0, 40, len(split) - 1):
            path = os.path.join(split._directory, split.place_of(record)[0])
            with open(path, "rb") as file:
                file.seek(split.offset_of(record) + 12)  # behind the length and its checksum
                payload = split.record_bytes(record)
                assert file.read(len(payload)) == payload


def test_errors_keep_their_name_in_other_processes(row_split):
    _, error = read_until_error(Loader(row_split, batch_size=4, transform=BadRows(41)))

    travelled = pickle.loads(pickle.dumps(error))

    assert (str(travelled), travelled.record, repr(travelled)) == (str(error), 41, repr(error))


# Copies


WAYS = {
    "pickle": lambda loader: pickle.loads(pickle.dumps(loader)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["split", "plan", "stop", "drop"])
def test_a_copy_of_a_loader_continues_by_itself_where_the_loader_stands(sources, name, way):
    options = {"batch_size": 6, "epochs": 2, "seed": 9, "last": "pad", "workers": 1, "prefetch": 8}
    whole = values(Loader(sources[name], **options))
    loader = Loader(sources[name], **options)
    fresh = WAYS[way](loader)
    iterator = iter(loader)
    begun = values(iterator, 5)

    copied = WAYS[way](loader)

    assert (copied.state, copied.step, copied.steps_left) == (loader.state, 5, len(whole) - 5)
    assert values(copied) == values(iterator) == whole[5:]
    assert values(fresh) == whole and begun == whole[:5]
    finished = Loader(sources[name], **options)
    finished.load_state_dict(loader.state_dict())
    assert values(WAYS[way](finished)) == [] and values(WAYS[way](loader)) == whole


def test_a_copy_of_a_mixture_keeps_the_rates_that_were_set(row_split):
    loader = Loader(Mixture([(row_split, 1), (row_split, 1)], exhausted="drop"), batch_size=8, epochs=3, seed=1)
    for rates in ([3, 1], [1, 0]):
        values(iter(loader), 12)
        loader.set_rates(rates)

    copied = pickle.loads(pickle.dumps(loader))

    assert (len(copied), copied.step) == (len(loader), loader.step)
    assert values(copied) == values(loader)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_keeps_the_share_that_its_devices_need(row_split, way):
    whole, loader = ids(Loader(row_split, batch_size=8, seed=4)), Loader(row_split, batch_size=8, seed=4)
    loader.take_share(HostSlice(index=1, count=2, chosen_by="sharding"))

    copied = WAYS[way](loader)

    assert copied.share == loader.share
    assert ids(copied) == [batch[4:] for batch in whole]


def test_a_spawned_process_gets_the_same_batches(row_split):
    loader = Loader(row_split, batch_size=8, seed=4, shuffle=BlockShuffle(window=2), transform=BadRows())
    next(iter(loader))

    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(list, loader).result()

    assert ids(there) == ids(loader)


def test_an_iterator_refuses_to_be_copied_and_says_what_can_be(row_split):
    iterator = iter(Loader(row_split, batch_size=8))
    generator = Loader(row_split, batch_size=8).epoch_batches()

    for copied in WAYS.values():
        with pytest.raises(LoaderError, match=r"cannot be pickled or copied\. Pickle or copy the loader itself, which"):
            copied(iterator)
        with pytest.raises(LoaderError, match=r"an iterator belongs to its process and cannot be pickled or copied\."):
            copied(generator)
    assert dataclasses.asdict(iterator._loader.state)["position"] == 0
