"""What a worker is told: the header that all shard jobs of a build share, and the task of one source shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.cache.spec import ExampleSpec
from beam_pipes.cache.split_manifest import shard_file_name
from beam_pipes.sources.source import SourceShard


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildHeader:
    """Where a build writes and how its records are stored; picklable.

    `root` is the cache's directory, `snapshot` the id of the snapshot being built, `specs` the features of each split
    of examples, `fingerprints` the digests of declaration and source.
    """

    name: str
    root: str
    snapshot: str
    num_shards: int
    specs: Mapping[str, ExampleSpec]
    fingerprints: Mapping[str, str]

    @property
    def directory(self) -> str:
        """The snapshot's own directory."""
        return f"{self.root}/snapshots/{self.snapshot}"

    def file_name(self, split: str, index: int) -> str:
        """`python_source-train.tfrecord-00003-of-00064`."""
        return shard_file_name(self.name, split, index, self.num_shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One source shard to be built; `fingerprint` covers its input and the declaration."""

    shard: SourceShard
    fingerprint: str

    @property
    def index(self) -> int:
        return self.shard.index


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What a worker tells about a shard job that is done; never part of the cache (it holds times)."""

    index: int
    records: int
    written: int
    dropped: int
    dead: int
    secs: float
    stage_secs: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
