"""Datasets and samplers of ours in torch's loader, and torch's in ours."""

from __future__ import annotations

import numpy as np
from loader_datasets import Numbers
from torch.utils import data

from beam_pipes.map_style import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SimilarLengthBatchSampler,
    TransformDataset,
    batch_sequences,
)


def test_torch_iterates_our_dataset_in_the_order_of_our_samplers():
    lengths = [(7 * n) % 30 for n in range(40)]
    ragged = TransformDataset(lengths, lambda length: np.full(length, length))
    buckets = SimilarLengthBatchSampler(lengths, 8, seed=3)

    theirs = data.DataLoader(ragged, batch_sampler=buckets, collate_fn=batch_sequences)
    ours = DataLoader(ragged, batch_sampler=SimilarLengthBatchSampler(lengths, 8, seed=3), collate_fn=batch_sequences)

    for expected, batch in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(expected, batch)


def test_torch_takes_our_index_samplers():
    loader = data.DataLoader(Numbers(9), batch_size=4, sampler=DistributedSampler(9, 2, 1, seed=5))

    seen = [int(index) for indices, _ in loader for index in indices]

    assert list(RandomSampler(9, seed=5))[1::2] == seen


def test_our_loader_takes_datasets_and_samplers_of_torch():
    subset = data.Subset(Numbers(20), [3, 4, 5, 6])
    in_order = data.BatchSampler(data.SequentialSampler(subset), batch_size=3, drop_last=False)

    loader = DataLoader(subset, batch_sampler=in_order, num_workers=2)

    assert [[3, 4, 5], [6]] == [indices.tolist() for indices, _ in loader]
