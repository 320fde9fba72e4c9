"""Batches that are nothing but a copy of what lies in memory: they are copied one by one, when they are handed out."""

from __future__ import annotations

import gc
import itertools

import loader_caches
import numpy as np
import pytest

from beam_pipes.loader import Loader, Mixture, pack


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """Three caches of 300 records of a fixed layout."""
    base = tmp_path_factory.mktemp("fixed")
    return [
        loader_caches.write_split(base / str(number), loader_caches.rows(300), loader_caches.ROWS, name=f"n{number}")
        for number in range(3)
    ]


def sources(splits):
    return {
        "split": splits[0],
        "filtered": splits[0].where("id >= 40"),
        "mixture": Mixture([(split, rate) for split, rate in zip(splits, (3, 2, 1), strict=True)], exhausted="stop"),
        "mixture with a filter": Mixture([(splits[0], 1), (splits[1].where("id < 250"), 1)], exhausted="drop"),
    }


@pytest.mark.parametrize("kind", ["split", "filtered", "mixture", "mixture with a filter"])
@pytest.mark.parametrize(
    "options", [{}, {"last": "pad"}, {"features": ["x"]}, {"host_index": 1, "host_count": 2}], ids=str
)
def test_they_are_those_that_are_read_alone(splits, kind, options):
    loader = Loader(sources(splits)[kind], batch_size=6, seed=5, epochs=2, **options)
    assert loader._reader.pends

    batches = list(loader)

    assert len(batches) == len(loader)
    for step, batch in enumerate(batches):
        alone = loader.batch_at(step)
        assert batch.keys() == alone.keys()
        for name, array in batch.items():
            assert array.dtype == alone[name].dtype and np.array_equal(array, alone[name])


def test_one_that_was_handed_out_is_never_written_again(splits):
    batches = list(Loader(splits[0], batch_size=4, seed=1))
    copies = [{name: array.copy() for name, array in batch.items()} for batch in batches]

    for batch in batches[::2]:
        for array in batch.values():
            array[...] = 0
    list(Loader(splits[0], batch_size=4, seed=2))

    for batch, copy in zip(batches[1::2], copies[1::2], strict=False):
        assert all(np.array_equal(array, copy[name]) for name, array in batch.items())
    assert not any(np.shares_memory(one["x"], other["x"]) for one, other in itertools.pairwise(batches[:20]))


@pytest.mark.parametrize("kind", ["split", "mixture", "packed"])
def test_files_stay_mapped_for_those_of_a_group_that_are_yet_to_come(splits, tmp_path, kind):
    documents = loader_caches.write_split(tmp_path / "d", loader_caches.documents(300), loader_caches.DOCUMENTS)
    source = {**sources(splits), "packed": pack(documents, sequence_length=40)}[kind]
    loader = Loader(source, batch_size=2, seed=1)
    expected = list(Loader(source, batch_size=2, seed=1))
    iterator = iter(loader)
    first = [next(iterator) for _ in range(7)]
    for split in (*splits, documents):
        split.close()
    gc.collect()

    rest = list(iterator)

    for one, other in zip([*first, *rest], expected, strict=True):
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_one_whose_copy_fails_is_not_handed_out(splits):
    loader = Loader(splits[0], batch_size=4, seed=1)
    iterator = iter(loader)
    first = [next(iterator)["id"].tolist() for _ in range(4)]
    columns = iterator._ready[-1].columns
    addresses = columns["x"].addresses.copy()
    columns["x"].addresses[:] = -(1 << 62)

    with pytest.raises(IndexError):
        next(iterator)
    assert loader.state.position == 16
    columns["x"].addresses[:] = addresses

    rest = [batch["id"].tolist() for batch in iterator]
    assert first + rest == [batch["id"].tolist() for batch in Loader(splits[0], batch_size=4, seed=1)]
