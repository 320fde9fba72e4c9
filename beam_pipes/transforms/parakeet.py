"""The supported names of `parakeet.data`, `parakeet.audio` and `parakeet.frontend`, in one place.

To migrate, change the import: `from parakeet.data import X` becomes `from beam_pipes.transforms.parakeet import X`. New
code imports from `beam_pipes.map_style` and `beam_pipes.transforms.audio`.
"""

from beam_pipes import map_style
from beam_pipes.extras import names_of as _names_of
from beam_pipes.map_style import BatchSampler as BatchSampler
from beam_pipes.map_style import BucketSampler as BucketSampler
from beam_pipes.map_style import CacheDataset as CacheDataset
from beam_pipes.map_style import ChainDataset as ChainDataset
from beam_pipes.map_style import DataLoader as DataLoader
from beam_pipes.map_style import Dataset as Dataset
from beam_pipes.map_style import DataTable as DataTable
from beam_pipes.map_style import DictDataset as DictDataset
from beam_pipes.map_style import DistributedBatchSampler as DistributedBatchSampler
from beam_pipes.map_style import DistributedSampler as DistributedSampler
from beam_pipes.map_style import FilterDataset as FilterDataset
from beam_pipes.map_style import (
    PartialyRandomizedSimilarTimeLengthSampler as PartialyRandomizedSimilarTimeLengthSampler,
)
from beam_pipes.map_style import RandomSampler as RandomSampler
from beam_pipes.map_style import Sampler as Sampler
from beam_pipes.map_style import SequentialSampler as SequentialSampler
from beam_pipes.map_style import SliceDataset as SliceDataset
from beam_pipes.map_style import SpecBatcher as SpecBatcher
from beam_pipes.map_style import SubsetDataset as SubsetDataset
from beam_pipes.map_style import SubsetRandomSampler as SubsetRandomSampler
from beam_pipes.map_style import TextIDBatcher as TextIDBatcher
from beam_pipes.map_style import TransformDataset as TransformDataset
from beam_pipes.map_style import TupleDataset as TupleDataset
from beam_pipes.map_style import WavBatcher as WavBatcher
from beam_pipes.map_style import WeightedRandomSampler as WeightedRandomSampler
from beam_pipes.map_style import batch_sequences as batch_sequences
from beam_pipes.map_style import batch_spec as batch_spec
from beam_pipes.map_style import batch_text_id as batch_text_id
from beam_pipes.map_style import batch_wav as batch_wav
from beam_pipes.map_style import random_split as random_split
from beam_pipes.map_style import split as split
from beam_pipes.transforms.audio import AudioProcessor as AudioProcessor
from beam_pipes.transforms.audio import Chinese as Chinese
from beam_pipes.transforms.audio import English as English
from beam_pipes.transforms.audio import EnglishCharacter as EnglishCharacter
from beam_pipes.transforms.audio import LogMagnitude as LogMagnitude
from beam_pipes.transforms.audio import UnitMagnitude as UnitMagnitude
from beam_pipes.transforms.audio import Vocab as Vocab

#: The reference's module of datasets: `dataset.split(lj, 100)`.
dataset = map_style

#: Parakeet's names that are not here → what to use. Messages are made from it, and pages.
ABSENT: dict[str, str] = {
    "DataCargo": "the loader of Parakeet 0.1: `DataLoader`",
    "Phonetics": "a base class of three abstract methods: write `phoneticize`, `numericalize` and `reverse`",
}
__getattr__ = _names_of(__name__, ABSENT, "Parakeet")
