"""What a worker is told: the header that all shard jobs of a build share, and the task of one source shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from beam_pipes.building.analysis.stored import Stored
from beam_pipes.building.quarantine import Quarantined, quarantined_fingerprint
from beam_pipes.cache.publish import ANYTHING
from beam_pipes.cache.spec import ExampleSpec
from beam_pipes.cache.split_manifest import shard_file_name
from beam_pipes.engine.account import Account
from beam_pipes.sources.source import SourceShard


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildHeader:
    """Where a build writes and how its records are stored; picklable.

    `replaces` is the id of the manifest that readers saw when the build was planned (None: none), which it replaces.
    `root` is the cache's directory, `snapshot` the id of the snapshot being built, `specs` the features of each split
    of examples, `fingerprints` the digests of declaration and source, `assets` the results of analyzers by their names.
    `plain_snapshot` is what the id would be without any record in quarantine.
    """

    name: str
    root: str
    snapshot: str
    num_shards: int
    specs: Mapping[str, ExampleSpec]
    fingerprints: Mapping[str, str]
    assets: Mapping[str, Stored] = dataclasses.field(default_factory=dict)
    plain_snapshot: str = ""
    replaces: str | None = ANYTHING

    def __post_init__(self) -> None:
        if not self.plain_snapshot:
            object.__setattr__(self, "plain_snapshot", self.snapshot)

    @property
    def directory(self) -> str:
        """The snapshot's own directory."""
        return f"{self.root}/snapshots/{self.snapshot}"

    def file_name(self, split: str, index: int) -> str:
        """`python_source-train.tfrecord-00003-of-00064`."""
        return shard_file_name(self.name, split, index, self.num_shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prior:
    """A source shard as it was built before: the snapshot's directory, and the shard's index among `num_shards` there.

    `changed` are the units that were not then what they are now.
    """

    directory: str
    index: int
    num_shards: int
    changed: frozenset[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One source shard to be built.

    `plain_fingerprint` covers its input and the declaration, `fingerprint` also the records that are in quarantine.
    `prior` is what of it is to be kept, where only its dead letters are to be run again.
    """

    shard: SourceShard
    fingerprint: str
    plain_fingerprint: str = ""
    quarantined: tuple[Quarantined, ...] = ()
    prior: Prior | None = None

    def __post_init__(self) -> None:
        if not self.plain_fingerprint:
            object.__setattr__(self, "plain_fingerprint", self.fingerprint)

    def quarantining(self, records: Iterable[Quarantined]) -> ShardTask:
        """The same task with these records in quarantine, besides those that are already."""
        quarantined = tuple(sorted({*self.quarantined, *records}))
        return dataclasses.replace(
            self, quarantined=quarantined, fingerprint=quarantined_fingerprint(self.plain_fingerprint, quarantined)
        )

    @property
    def index(self) -> int:
        return self.shard.index


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What a worker tells about a shard job that is done; never part of the cache (it holds times).

    `replayed` is how many dead letters were run again, where nothing else was.
    """

    index: int
    records: int
    written: int
    dropped: int
    dead: int
    secs: float
    stage_secs: Mapping[str, float] = dataclasses.field(default_factory=dict)
    quarantined: tuple[Mapping[str, Any], ...] = ()
    replayed: int | None = None

    @classmethod
    def of(
        cls,
        task: ShardTask,
        account: Account,
        *,
        secs: float,
        replayed: int,
        stage_secs: Mapping[str, float] | None = None,
    ) -> ShardReport:
        """Of a task that is done; `replayed` is how many of its source records were run."""
        return cls(
            index=task.index,
            records=account.read,
            written=account.written,
            dropped=account.dropped,
            dead=account.dead,
            secs=secs,
            stage_secs=stage_secs or {},
            replayed=None if task.prior is None else replayed,
        )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
