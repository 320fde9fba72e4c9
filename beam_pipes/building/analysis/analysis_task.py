"""`AnalysisTask`: one source shard, and the analyzers that have no accumulator of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.sources.source import SourceShard


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisTask:
    """`places` maps each analyzer, by its name, to where its accumulator of the shard is to be stored.

    `of` maps them to the digest of the pipeline whose values they analyse: the same digest, the same pipeline.
    """

    shard: SourceShard
    places: Mapping[str, str]
    of: Mapping[str, str]

    @property
    def index(self) -> int:
        return self.shard.index

    def to_json(self) -> dict[str, Any]:
        return {"shard": self.shard.to_json(), "places": dict(self.places), "of": dict(self.of)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AnalysisTask:
        return cls(shard=SourceShard.from_json(value["shard"]), places=value["places"], of=value["of"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisReport:
    """What a worker tells about a task that is done; it holds times, so it is never part of the cache."""

    index: int
    records: int
    secs: float
