"""The reference's module of datasets: `from beam_pipes.map_style.datasets import dataset; dataset.split(lj, 100)`."""

from beam_pipes.map_style.datasets.base import Dataset as Dataset
from beam_pipes.map_style.datasets.cache_dataset import CacheDataset as CacheDataset
from beam_pipes.map_style.datasets.chain_dataset import ChainDataset as ChainDataset
from beam_pipes.map_style.datasets.data_table import DataTable as DataTable
from beam_pipes.map_style.datasets.dict_dataset import DictDataset as DictDataset
from beam_pipes.map_style.datasets.filter_dataset import FilterDataset as FilterDataset
from beam_pipes.map_style.datasets.slice_dataset import SliceDataset as SliceDataset
from beam_pipes.map_style.datasets.splitting import random_split as random_split
from beam_pipes.map_style.datasets.splitting import split as split
from beam_pipes.map_style.datasets.subset_dataset import SubsetDataset as SubsetDataset
from beam_pipes.map_style.datasets.transform_dataset import TransformDataset as TransformDataset
from beam_pipes.map_style.datasets.tuple_dataset import TupleDataset as TupleDataset
