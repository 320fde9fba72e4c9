"""Raw input: what to read, planned deterministically into units of work, read in batches of records.

`source.py` is the protocol; every other kind of source is one file and a line in the table below, loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
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

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "byte_stream": "slice_bytes",
        "cached": "CachedRecords",
        "csv": "CSV TSV",
        "digests": "DigestCache",
        "file_source": "FileContent FileSource Files",
        "lines": "JSONLines TextLines",
        "memory": "Memory",
        "record_batch": "BadRecord Batcher RecordBatch StoredPiece",
        "repaired": "RepairedSource",
        "source": "JoinedSources Slice Source SourcePlan SourceShard SplitSources",
        "tables": "ArrowRows Parquet dataset_splits",
        "tar": "Tar",
        "tfds": "TfdsFeatures TfdsRecords tfds_splits",
        "tfds_in_place": "open_tfds",
        "tfrecords": "Decodes TFRecords",
        "training_formats": "ArrayRecords MDS MegatronTokens",
    },
)
__all__ = __dir__()
