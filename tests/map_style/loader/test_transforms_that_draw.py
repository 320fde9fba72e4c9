"""Transforms that draw: keyed by seed, epoch and index, whatever reads them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from loader_datasets import Numbers, jitter

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style import (
    CacheDataset,
    DataLoader,
    DistributedSampler,
    SubsetDataset,
    TransformDataset,
    current_epoch,
    reading_epoch,
)


def draws(loader):
    """What one epoch drew for each example."""
    return {int(index): int(draw) for batch in loader for index, draw in zip(*batch, strict=True)}


@pytest.fixture
def jittered():
    return TransformDataset(Numbers(12), jitter, seed=5)


def test_draws_depend_on_seed_epoch_and_index_only(jittered):
    loader = DataLoader(jittered, 5, True)
    first, second = draws(loader), draws(loader)

    assert 24 == len({*first.values(), *second.values()})
    assert first == dict(jittered) == draws(DataLoader(jittered, 3))
    with reading_epoch(1):
        assert second == dict(jittered)
    assert 0 == current_epoch()
    assert first != dict(TransformDataset(Numbers(12), jitter, seed=6))


@pytest.mark.parametrize("worker_type", ["thread", "process"])
def test_workers_draw_the_same(jittered, worker_type):
    alone = DataLoader(jittered, 5, True)
    with DataLoader(jittered, 5, True, num_workers=2, worker_type=worker_type) as loader:
        for _ in range(2):
            assert draws(alone) == draws(loader)


def test_two_epochs_under_way_do_not_disturb_each_other(jittered):
    loader = DataLoader(jittered, 3, num_workers=2)
    expected = [draws(loader), draws(loader)]
    loader.set_epoch(0)

    pairs = list(zip(loader, loader, strict=True))

    assert expected[0] == draws(first for first, _ in pairs)
    assert expected[1] == draws(second for _, second in pairs)


def test_ranks_and_resumed_loaders_draw_as_one(jittered):
    def ranks():
        return [DataLoader(jittered, 2, sampler=DistributedSampler(12, 2, rank)) for rank in (0, 1)]

    whole = draws(DataLoader(jittered, 12))
    assert whole == {**draws(ranks()[0]), **draws(ranks()[1])}

    stopped, resumed = ranks()[0], ranks()[0]
    iterator = iter(stopped)
    next(iterator)
    resumed.load_state_dict(stopped.state_dict())
    assert draws(iterator) == draws(resumed)


def test_a_cache_keeps_the_first_draw(jittered):
    loader = DataLoader(CacheDataset(jittered), 4)

    assert draws(loader) == draws(loader)


def test_the_index_is_that_of_the_dataset_below(jittered):
    assert dict(jittered)[7] == dict(SubsetDataset(jittered, [3, 7]))[7]


def test_what_fails_is_named_and_a_seed_is_a_count():
    def fail(_, random):
        raise KeyError(random.integers(1))

    with pytest.raises(
        ExampleError, match=r"^transform .*fail \(test_transforms_that_draw.py:\d+\) on example 0 failed: KeyError"
    ):
        TransformDataset([1], fail, seed=np.int64(0))[0]
    with pytest.raises(
        DatasetError, match=f"^{re.escape('TransformDataset needs seed to be an int of at least 0, got -1')}$"
    ):
        TransformDataset([1], fail, seed=-1)
