"""The cache at rest: feature specs, example codec, record files, index, manifest, and the reader."""

from beam_pipes.cache.codec import BytesCodec as BytesCodec
from beam_pipes.cache.codec import ExampleCodec as ExampleCodec
from beam_pipes.cache.codec import ProtoCodec as ProtoCodec
from beam_pipes.cache.codec import RecordCodec as RecordCodec
from beam_pipes.cache.codec import RecordKind as RecordKind
from beam_pipes.cache.codec import codec_for as codec_for
from beam_pipes.cache.framing import RecordWriter as RecordWriter
from beam_pipes.cache.framing import read_records as read_records
from beam_pipes.cache.layout import FixedLayout as FixedLayout
from beam_pipes.cache.layout import ShardEntry as ShardEntry
from beam_pipes.cache.manifest import FileEntry as FileEntry
from beam_pipes.cache.manifest import Manifest as Manifest
from beam_pipes.cache.manifest import SplitManifest as SplitManifest
from beam_pipes.cache.manifest import shard_file_name as shard_file_name
from beam_pipes.cache.publish import publish as publish
from beam_pipes.cache.publish import snapshot_directory as snapshot_directory
from beam_pipes.cache.reader import Cache as Cache
from beam_pipes.cache.shard_writer import ShardWriter as ShardWriter
from beam_pipes.cache.spec import Example as Example
from beam_pipes.cache.spec import ExampleSpec as ExampleSpec
from beam_pipes.cache.spec import FeatureSpec as FeatureSpec
from beam_pipes.cache.split import Split as Split
from beam_pipes.cache.storage import LocalStorage as LocalStorage
from beam_pipes.cache.storage import Storage as Storage
from beam_pipes.cache.storage import storage_for as storage_for
from beam_pipes.cache.verify import VerifyReport as VerifyReport
