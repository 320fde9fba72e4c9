"""Samplers: which examples come in which order, and in which batches. `SAMPLERS` is the one list of their names."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import UnknownNameError
from beam_pipes.map_style.samplers.base import IndexSampler as IndexSampler
from beam_pipes.map_style.samplers.base import Sampler as Sampler
from beam_pipes.map_style.samplers.batch_sampler import BatchSampler as BatchSampler
from beam_pipes.map_style.samplers.bucket_sampler import BucketSampler as BucketSampler
from beam_pipes.map_style.samplers.distributed_sampler import DistributedSampler as DistributedSampler
from beam_pipes.map_style.samplers.padding_waste import padding_waste as padding_waste
from beam_pipes.map_style.samplers.random_sampler import RandomSampler as RandomSampler
from beam_pipes.map_style.samplers.sequential_sampler import SequentialSampler as SequentialSampler
from beam_pipes.map_style.samplers.similar_length_sampler import (
    PartialyRandomizedSimilarTimeLengthSampler as PartialyRandomizedSimilarTimeLengthSampler,
)
from beam_pipes.map_style.samplers.subset_random_sampler import SubsetRandomSampler as SubsetRandomSampler
from beam_pipes.map_style.samplers.weighted_random_sampler import WeightedRandomSampler as WeightedRandomSampler

SAMPLERS: dict[str, type[Sampler]] = {
    "batch": BatchSampler,
    "bucketed": BucketSampler,
    "distributed": DistributedSampler,
    "random": RandomSampler,
    "sequential": SequentialSampler,
    "similar_length": PartialyRandomizedSimilarTimeLengthSampler,
    "subset_random": SubsetRandomSampler,
    "weighted": WeightedRandomSampler,
}


def sampler(name: str, *arguments: Any, **options: Any) -> Sampler:
    """Builds a sampler by its name in `SAMPLERS`: `sampler("bucketed", lengths, batch_size=32, seed=7)`."""
    if name not in SAMPLERS:
        raise UnknownNameError(f"unknown sampler {name!r}; choose one of: {', '.join(sorted(SAMPLERS))}", name=name)
    return SAMPLERS[name](*arguments, **options)
