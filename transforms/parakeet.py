"""The names of `parakeet.data`, `parakeet.audio` and `parakeet.frontend` that are offered here, in one place.

Moving over is changing an import: `from parakeet.data import X` becomes `from transforms.parakeet import X`.
New code imports from the rooms: `transforms.datasets`, `.samplers`, `.batching`, `.loader` and `.audio`.
"""

from transforms.audio import AudioProcessor as AudioProcessor
from transforms.audio import English as English
from transforms.audio import LogMagnitude as LogMagnitude
from transforms.audio import UnitMagnitude as UnitMagnitude
from transforms.batching import SpecBatcher as SpecBatcher
from transforms.batching import TextIDBatcher as TextIDBatcher
from transforms.batching import WavBatcher as WavBatcher
from transforms.batching import batch_sequences as batch_sequences
from transforms.batching import batch_spec as batch_spec
from transforms.batching import batch_text_id as batch_text_id
from transforms.batching import batch_wav as batch_wav
from transforms.datasets import CacheDataset as CacheDataset
from transforms.datasets import ChainDataset as ChainDataset
from transforms.datasets import Dataset as Dataset
from transforms.datasets import DataTable as DataTable
from transforms.datasets import DictDataset as DictDataset
from transforms.datasets import FilterDataset as FilterDataset
from transforms.datasets import SliceDataset as SliceDataset
from transforms.datasets import SubsetDataset as SubsetDataset
from transforms.datasets import TransformDataset as TransformDataset
from transforms.datasets import TupleDataset as TupleDataset
from transforms.datasets import dataset as dataset
from transforms.datasets import random_split as random_split
from transforms.datasets import split as split
from transforms.loader import DataLoader as DataLoader
from transforms.samplers import BatchSampler as BatchSampler
from transforms.samplers import BucketSampler as BucketSampler
from transforms.samplers import DistributedSampler as DistributedSampler
from transforms.samplers import (
    PartialyRandomizedSimilarTimeLengthSampler as PartialyRandomizedSimilarTimeLengthSampler,
)
from transforms.samplers import RandomSampler as RandomSampler
from transforms.samplers import Sampler as Sampler
from transforms.samplers import SequentialSampler as SequentialSampler
from transforms.samplers import SubsetRandomSampler as SubsetRandomSampler
from transforms.samplers import WeightedRandomSampler as WeightedRandomSampler
