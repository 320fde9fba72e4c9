"""A prepared build: the header that all its shard jobs and its commit share, and the task of one source shard.

The declaration is used up to the plan. From there on, the header holds everything that decides how the snapshot is
published, so a commit opens no declaration; workers open it again, by its handle, for the code that they run.

Tasks and long lists of rows are files beside the shards, and a job names them by number. With the tasks in the job
graph, 10,000 shards of 224 small files each made a request of 156 MB, of which services accept 10 MB; with their
numbers it takes 0.05 MB.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from beam_pipes.building.analysis.stored import Stored
from beam_pipes.building.declaration import Declaration, MaxBad, RecordKind
from beam_pipes.building.expectation import Expectation
from beam_pipes.building.limits import Quarantined, quarantined_fingerprint
from beam_pipes.engine.account import Account
from beam_pipes.errors import BeamPipesError, BuildError, CacheError
from beam_pipes.format.spec import ExampleSpec
from beam_pipes.publication.manifest import shard_file_name
from beam_pipes.publication.publish import ANYTHING
from beam_pipes.publication.terms import SourceTerms
from beam_pipes.sources.source import SourceShard
from beam_pipes.storage.checked_json import JsonValue
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import Storage

ROWS_PER_FILE = 64

Row = dict[str, JsonValue]


T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbered(Generic[T]):
    """Tasks below `directory`, written once per job and read by its workers by number. Caches the last files it read.

    `what` names them in messages (`tasks of the build`), and `error` is raised if one cannot be read. Jobs of one work
    have directories of their own: a job that outlives its launcher keeps reading its own tasks while the next one runs.
    """

    directory: str
    what: str
    error: type[BeamPipesError]
    to_json: Callable[[T], Row]
    from_json: Callable[[Row], T]

    @functools.cached_property
    def _rows(self) -> Callable[[int], list[Row]]:
        return functools.lru_cache(maxsize=4)(self._read)

    def write(self, tasks: Sequence[T]) -> None:
        """Writes all tasks; their numbers are `range(len(tasks))`."""
        rows = [self.to_json(task) for task in tasks]
        storage = storage_for(self.directory)
        storage.makedirs(self.directory)
        for start in range(0, len(rows), ROWS_PER_FILE):
            data = json.dumps(rows[start : start + ROWS_PER_FILE], separators=(",", ":"))
            storage.replace(self._path(start), data.encode())

    def remove(self) -> None:
        """Removes what was written, if anything."""
        storage = storage_for(self.directory)
        if storage.is_directory(self.directory):
            storage.delete_tree(self.directory)

    def __getitem__(self, number: int) -> T:
        start = number - number % ROWS_PER_FILE
        return self.from_json(self._rows(start)[number - start])

    def _read(self, start: int) -> list[Row]:
        path = self._path(start)
        try:
            rows: list[Row] = json.loads(storage_for(path).read_bytes(path))
        except (CacheError, OSError, ValueError) as error:
            raise self.error(
                f"expected the {self.what} in {path!r}, got {type(error).__name__}: {error}. The job was launched by "
                "another build, or its files have since been removed: run the build again."
            ) from error
        return rows

    def _path(self, start: int) -> str:
        return f"{self.directory}/{start:08d}.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildHeader:
    """Where a build writes and how its records are stored; picklable.

    `replaces` is the id of the manifest that readers saw when the build was planned (None: none), which it replaces.
    `root` is the cache's directory, `snapshot` the id of the snapshot being built, `specs` the features of each split
    of examples, `fingerprints` the digests of declaration and source, `assets` the results of analyzers by their names.
    `kinds` says how the records of each split are stored, `protos` as which message; `max_bad`, `allow_empty` and
    `expectations` are the declaration's.
    `plain_snapshot` is the id without any records in quarantine. `launch` distinguishes the jobs that were launched for
    one snapshot: a job that outlives its launcher keeps reading its own tasks while the next one runs. `sources` are
    the terms of source shards, if any source declares some.
    """

    name: str
    root: str
    snapshot: str
    num_shards: int
    specs: Mapping[str, ExampleSpec]
    fingerprints: Mapping[str, str]
    kinds: Mapping[str, RecordKind]
    protos: Mapping[str, str]
    max_bad: MaxBad
    allow_empty: bool
    expectations: Sequence[Expectation]
    assets: Mapping[str, Stored] = dataclasses.field(default_factory=dict)
    plain_snapshot: str = ""
    replaces: str | None = ANYTHING
    launch: str = "0"
    sources: Sequence[SourceTerms] = ()

    def __post_init__(self) -> None:
        if not self.plain_snapshot:
            object.__setattr__(self, "plain_snapshot", self.snapshot)

    @classmethod
    def of(
        cls, declaration: Declaration, root: str, snapshot: str, *, num_shards: int, specs: Mapping[str, ExampleSpec]
    ) -> BuildHeader:
        """The header of a build of `declaration`, with its fingerprints and terms."""
        kinds = declaration.kinds
        types: Mapping[str, Any] = declaration.graph.output_type
        return cls(
            name=declaration.name,
            root=root,
            snapshot=snapshot,
            num_shards=num_shards,
            specs=specs,
            fingerprints=declaration.fingerprints,
            kinds=kinds,
            protos={split: types[split].DESCRIPTOR.full_name for split, kind in kinds.items() if kind == "proto"},
            max_bad=declaration.max_bad,
            allow_empty=declaration.allow_empty,
            expectations=declaration.expectations,
        )

    @property
    def directory(self) -> str:
        """The snapshot's own directory."""
        return f"{self.root}/snapshots/{self.snapshot}"

    @property
    def storage(self) -> Storage:
        """The storage that serves the cache's directory."""
        return storage_for(self.root)

    def file_name(self, split: str, index: int) -> str:
        """`python_source-train.tfrecord-00003-of-00064`."""
        return shard_file_name(self.name, split, index, self.num_shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prior:
    """A source shard as it was built before: the snapshot's directory, and the shard's index among `num_shards` there.

    `changed` are the units that have changed since.
    """

    directory: str
    index: int
    num_shards: int
    changed: frozenset[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardTask:
    """One source shard to be built.

    `plain_fingerprint` covers its input and the declaration, `fingerprint` also the records that are in quarantine.
    `prior` is the version to keep if only its dead letters are rerun.
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
        """The same task with these records in quarantine as well."""
        quarantined = tuple(sorted({*self.quarantined, *records}))
        return dataclasses.replace(
            self, quarantined=quarantined, fingerprint=quarantined_fingerprint(self.plain_fingerprint, quarantined)
        )

    @property
    def index(self) -> int:
        return self.shard.index


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardReport:
    """A worker's report on a finished shard job; never part of the cache, because it holds times.

    `replayed` is the number of dead letters that were rerun, if nothing else was.
    """

    index: int
    records: int
    written: int
    dropped: int
    dead: int
    secs: float
    stage_secs: Mapping[str, float] = dataclasses.field(default_factory=dict)
    quarantined: tuple[Mapping[str, object], ...] = ()
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
        """For a finished task; `replayed` is the number of source records that were rerun."""
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

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)


DIRECTORY = "tasks"


def tasks_of(header: BuildHeader) -> Numbered[ShardTask]:
    """The tasks of a job by number."""
    return Numbered(
        directory=f"{header.directory}/{DIRECTORY}/{header.launch}",
        what="tasks of the build",
        error=BuildError,
        to_json=_to_json,
        from_json=_from_json,
    )


def _to_json(task: ShardTask) -> dict[str, object]:
    fields: dict[str, object] = {
        "shard": task.shard.to_json(),
        "fingerprint": task.fingerprint,
        "plain_fingerprint": task.plain_fingerprint,
    }
    if task.quarantined:
        fields["quarantined"] = [dataclasses.asdict(record) for record in task.quarantined]
    if task.prior is not None:
        fields["prior"] = {**dataclasses.asdict(task.prior), "changed": sorted(task.prior.changed)}
    return fields


def _from_json(fields: Row) -> ShardTask:
    prior = fields.get("prior")
    return ShardTask(
        shard=SourceShard.from_json(fields["shard"]),
        fingerprint=fields["fingerprint"],
        plain_fingerprint=fields["plain_fingerprint"],
        quarantined=tuple(Quarantined(**record) for record in fields.get("quarantined", ())),
        prior=None if prior is None else Prior(**{**prior, "changed": frozenset(prior["changed"])}),
    )
