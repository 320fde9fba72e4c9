"""Datasets, samplers, batch functions and a loader over anything with `__len__` and `__getitem__`.

    dataset ──sampler──▶ indices ──workers──▶ examples ──batch function──▶ batch

| chapter | holds |
| --- | --- |
| `protocol` | what a dataset is, its base class, and the epoch of a read |
| `dataset` | datasets made of others: cached, zipped, chained, selected, transformed |
| `sampler`, `batch_samplers` | the order of examples, and their batches; `SAMPLERS` is the one list of names |
| `batching`, `batchers` | from a list of examples to a batch |
| `workers`, `loader` | threads and processes that fetch examples, and the loader over them |

`beam_pipes.DataLoader` is a different loader, over streams, caches and devices.
"""

from __future__ import annotations

from beam_pipes.map_style.batch_samplers import SAMPLERS as SAMPLERS
from beam_pipes.map_style.batch_samplers import BatchSampler as BatchSampler
from beam_pipes.map_style.batch_samplers import BucketSampler as BucketSampler
from beam_pipes.map_style.batch_samplers import DistributedBatchSampler as DistributedBatchSampler
from beam_pipes.map_style.batch_samplers import DistributedSampler as DistributedSampler
from beam_pipes.map_style.batch_samplers import (
    PartialyRandomizedSimilarTimeLengthSampler as PartialyRandomizedSimilarTimeLengthSampler,
)
from beam_pipes.map_style.batch_samplers import SimilarLengthBatchSampler as SimilarLengthBatchSampler
from beam_pipes.map_style.batch_samplers import padding_waste as padding_waste
from beam_pipes.map_style.batch_samplers import sampler as sampler
from beam_pipes.map_style.batchers import SpecBatcher as SpecBatcher
from beam_pipes.map_style.batchers import TextIDBatcher as TextIDBatcher
from beam_pipes.map_style.batchers import WavBatcher as WavBatcher
from beam_pipes.map_style.batchers import batch_spec as batch_spec
from beam_pipes.map_style.batchers import batch_text_id as batch_text_id
from beam_pipes.map_style.batchers import batch_wav as batch_wav
from beam_pipes.map_style.batching import batch_sequences as batch_sequences
from beam_pipes.map_style.batching import default_collate as default_collate
from beam_pipes.map_style.dataset import CacheDataset as CacheDataset
from beam_pipes.map_style.dataset import ChainDataset as ChainDataset
from beam_pipes.map_style.dataset import DataTable as DataTable
from beam_pipes.map_style.dataset import DictDataset as DictDataset
from beam_pipes.map_style.dataset import FilterDataset as FilterDataset
from beam_pipes.map_style.dataset import SliceDataset as SliceDataset
from beam_pipes.map_style.dataset import SubsetDataset as SubsetDataset
from beam_pipes.map_style.dataset import TransformDataset as TransformDataset
from beam_pipes.map_style.dataset import TupleDataset as TupleDataset
from beam_pipes.map_style.dataset import random_split as random_split
from beam_pipes.map_style.dataset import split as split
from beam_pipes.map_style.loader import DataLoader as DataLoader
from beam_pipes.map_style.protocol import Dataset as Dataset
from beam_pipes.map_style.protocol import MapStyle as MapStyle
from beam_pipes.map_style.protocol import current_epoch as current_epoch
from beam_pipes.map_style.protocol import reading_epoch as reading_epoch
from beam_pipes.map_style.sampler import IndexSampler as IndexSampler
from beam_pipes.map_style.sampler import RandomSampler as RandomSampler
from beam_pipes.map_style.sampler import Sampler as Sampler
from beam_pipes.map_style.sampler import SequentialSampler as SequentialSampler
from beam_pipes.map_style.sampler import SubsetRandomSampler as SubsetRandomSampler
from beam_pipes.map_style.sampler import WeightedRandomSampler as WeightedRandomSampler
