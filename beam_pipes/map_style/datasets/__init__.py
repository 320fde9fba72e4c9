"""Map-style datasets: small classes that wrap anything with `__len__` and `__getitem__`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beam_pipes.map_style.datasets.base import Dataset as Dataset
from beam_pipes.map_style.datasets.base import MapStyle as MapStyle
from beam_pipes.map_style.datasets.cache_dataset import CacheDataset as CacheDataset
from beam_pipes.map_style.datasets.chain_dataset import ChainDataset as ChainDataset
from beam_pipes.map_style.datasets.data_table import DataTable as DataTable
from beam_pipes.map_style.datasets.dict_dataset import DictDataset as DictDataset
from beam_pipes.map_style.datasets.epoch import current_epoch as current_epoch
from beam_pipes.map_style.datasets.epoch import reading_epoch as reading_epoch
from beam_pipes.map_style.datasets.filter_dataset import FilterDataset as FilterDataset
from beam_pipes.map_style.datasets.slice_dataset import SliceDataset as SliceDataset
from beam_pipes.map_style.datasets.splitting import random_split as random_split
from beam_pipes.map_style.datasets.splitting import split as split
from beam_pipes.map_style.datasets.subset_dataset import SubsetDataset as SubsetDataset
from beam_pipes.map_style.datasets.transform_dataset import TransformDataset as TransformDataset
from beam_pipes.map_style.datasets.tuple_dataset import TupleDataset as TupleDataset

if TYPE_CHECKING:
    from beam_pipes.map_style.loader import DataLoader as DataLoader


def __getattr__(name: str) -> Any:
    # The loader stands on datasets, so its name can only be offered here once it is asked for.
    if name == "DataLoader":
        from beam_pipes.map_style.loader import DataLoader

        return DataLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
