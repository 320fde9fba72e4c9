"""Raw input: what to read, planned deterministically into units of work, read in batches of records.

`source.py` is the protocol; every other kind of source is one file and one line in the table below.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from beam_pipes.checks import choice
from beam_pipes.errors import SourceError
from beam_pipes.sources.byte_stream import slice_bytes as slice_bytes
from beam_pipes.sources.cached import CachedRecords as CachedRecords
from beam_pipes.sources.csv import CSV as CSV
from beam_pipes.sources.csv import TSV as TSV
from beam_pipes.sources.digests import DigestCache as DigestCache
from beam_pipes.sources.file_source import FileContent as FileContent
from beam_pipes.sources.file_source import Files as Files
from beam_pipes.sources.file_source import FileSource as FileSource
from beam_pipes.sources.lines import JSONLines as JSONLines
from beam_pipes.sources.lines import TextLines as TextLines
from beam_pipes.sources.memory import Memory as Memory
from beam_pipes.sources.record_batch import BadRecord as BadRecord
from beam_pipes.sources.record_batch import Batcher as Batcher
from beam_pipes.sources.record_batch import RecordBatch as RecordBatch
from beam_pipes.sources.record_batch import StoredPiece as StoredPiece
from beam_pipes.sources.repaired import RepairedSource as RepairedSource
from beam_pipes.sources.source import JoinedSources as JoinedSources
from beam_pipes.sources.source import Slice as Slice
from beam_pipes.sources.source import Source as Source
from beam_pipes.sources.source import SourcePlan as SourcePlan
from beam_pipes.sources.source import SourceShard as SourceShard
from beam_pipes.sources.source import SplitSources as SplitSources
from beam_pipes.sources.tables import ArrowRows as ArrowRows
from beam_pipes.sources.tables import Parquet as Parquet
from beam_pipes.sources.tables import dataset_splits as dataset_splits
from beam_pipes.sources.tar import Tar as Tar
from beam_pipes.sources.tfds import TfdsFeatures as TfdsFeatures
from beam_pipes.sources.tfds import TfdsRecords as TfdsRecords
from beam_pipes.sources.tfds import tfds_splits as tfds_splits
from beam_pipes.sources.tfds_in_place import open_tfds as open_tfds
from beam_pipes.sources.tfrecords import Decodes as Decodes
from beam_pipes.sources.tfrecords import TFRecords as TFRecords
from beam_pipes.sources.training_formats import MDS as MDS
from beam_pipes.sources.training_formats import ArrayRecords as ArrayRecords
from beam_pipes.sources.training_formats import MegatronTokens as MegatronTokens

SOURCES: Mapping[str, type[Source]] = MappingProxyType(
    {
        "arrayrecord": ArrayRecords,
        "arrow": ArrowRows,
        "csv": CSV,
        "files": Files,
        "json": JSONLines,
        "mds": MDS,
        "megatron": MegatronTokens,
        "memory": Memory,
        "parquet": Parquet,
        "tar": Tar,
        "text": TextLines,
        "tfrecord": TFRecords,
        "tsv": TSV,
    }
)


def source_class(name: str) -> type[Source]:
    """The class of a source by its short name: `source_class("text")` → `TextLines`."""
    return SOURCES[choice(name, of=sorted(SOURCES), what="a source's name", error=SourceError, source=name)]
