from __future__ import annotations

import pickle

import numpy as np
import pytest

from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader, Mixture, PackingPlan, pack, random_access
from beam_pipes.loader.packed_rows import PaddedSplit
from beam_pipes.transforms.converters import JoinedSplit


def add_one(example):
    return {**example, "id": example["id"] + 1}


def test_examples_by_index_one_by_one_and_many_at_once(row_split, document_split):
    for split in (row_split, document_split):
        source = random_access(split)
        for one, other in zip(source.__getitems__([3, 0, 99]), (source[3], source[0], source[99]), strict=True):
            assert one.keys() == other.keys() == set(split.spec)
            assert all(np.array_equal(one[name], other[name]) for name in one)
        assert len(source) == len(split)
        assert source[-1]["id"] == len(split) - 1


def test_features_and_transform_apply_to_every_way_of_reading(row_split):
    source = random_access(row_split, features=["id"], transform=add_one)

    assert source[7] == {"id": 8}
    assert source.__getitems__([7, 8]) == [{"id": 8}, {"id": 9}]
    assert [example["id"] for example in source] == list(range(1, 101))
    with pytest.raises(LoaderError, match="there is no feature 'y'. There are: flag, id, x"):
        random_access(row_split, features=["y"])


def test_who_reads_the_records_of_a_split_takes_its_path(row_split, document_split, pair_split):
    def path(split):
        return f"{split.path}/{split.name}"

    assert random_access(path(row_split))[7]["id"] == random_access(row_split)[7]["id"]
    assert pack(path(document_split), sequence_length=32).digest == pack(document_split, sequence_length=32).digest
    lengths = {"tokens": 40}
    padded, of_path = (
        Loader(PaddedSplit(split=source, sequence_lengths=lengths), batch_size=4).batch_at(0)
        for source in (document_split, path(document_split))
    )
    assert padded["tokens"].tolist() == of_path["tokens"].tolist()
    assert JoinedSplit(path(pair_split)).lengths("targets").tolist() == (
        JoinedSplit(pair_split).lengths("targets").tolist()
    )


READERS = {
    "random_access": random_access,
    "pack": lambda source: pack(source, sequence_length=8),
    "PaddedSplit": lambda source: PaddedSplit(split=source, sequence_lengths={"tokens": 8}),
    "JoinedSplit": JoinedSplit,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_has_no_records_is_refused_by_who_reads_them(document_split, reader):
    plan = pack(document_split, sequence_length=32)
    for source in (plan, Mixture([(plan, 1)]), Loader(plan, batch_size=2), None, PackingPlan):
        kind = type(source).__name__
        with pytest.raises(LoaderError, match=rf"^{reader} takes one split of a cache, .* or its path; got {kind}\. "):
            READERS[reader](source)


def test_indices_outside_raise_index_errors_so_that_iteration_protocols_work(row_split):
    for index in (100, -101):
        with pytest.raises(IndexError, match=f"100 records, but there is no record {index}"):
            random_access(row_split)[index]


def test_a_pickled_source_reads_the_same(row_split):
    source = pickle.loads(pickle.dumps(random_access(row_split, transform=add_one)))

    assert source[41]["id"] == 42
    assert repr(source) == repr(random_access(row_split, transform=add_one))
    assert "transform=add_one" in repr(source) and "0x" not in repr(source)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchs_data_loader_reads_every_record_once(row_split, num_workers):
    import torch

    loader = torch.utils.data.DataLoader(
        random_access(row_split),
        batch_size=16,
        shuffle=True,
        num_workers=num_workers,
        multiprocessing_context="spawn" if num_workers else None,
    )

    batches = list(loader)

    ids = torch.cat([batch["id"] for batch in batches])
    assert sorted(ids.tolist()) == list(range(100))
    assert batches[0]["x"].dtype == torch.int32 and batches[0]["x"].shape == (16, 4)
    assert all(torch.equal(batch["x"][:, 0].long(), batch["id"]) for batch in batches)


def test_grain_reads_shuffles_batches_and_resumes_it(row_split):
    import grain.python as grain

    source = random_access(row_split, features=["id", "x"])
    assert isinstance(source, grain.RandomAccessDataSource)

    dataset = grain.MapDataset.source(source).shuffle(seed=3).batch(10).to_iter_dataset()
    iterator = iter(dataset)
    begun = [next(iterator)["id"].tolist() for _ in range(4)]
    state = iterator.get_state()
    rest = [batch["id"].tolist() for batch in iterator]
    resumed = iter(dataset)
    resumed.set_state(state)

    assert [batch["id"].tolist() for batch in resumed] == rest
    assert sorted(sum(begun + rest, [])) == list(range(100))


def test_grains_data_loader_reads_every_record_once(row_split):
    import grain.python as grain

    sampler = grain.IndexSampler(num_records=100, shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=1)

    loader = grain.DataLoader(
        data_source=random_access(row_split), sampler=sampler, worker_count=0, operations=[grain.Batch(20)]
    )

    assert sorted(np.concatenate([batch["id"] for batch in loader]).tolist()) == list(range(100))
