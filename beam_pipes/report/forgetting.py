"""Somebody asks to be forgotten: what a training run has read of their records, and where their traces are.

    forgetting(loader, "cache", ["books/emma.txt@1024"], last_step=9_999, checkpoints={2_000: "early", 4_000: "late"})
    →  first read in step 2,314; replay 8,000 steps from "early"; traces in 2 snapshots and 1 report

The order of a loader is a function, so that nothing had to be logged: the steps that read a record are computed.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.building.analysis.stored import ACCUMULATORS, DIRECTORY, RESULTS
from beam_pipes.building.takedown import published_manifests
from beam_pipes.building.taken_down_records import SnapshotRecords
from beam_pipes.cache.joined import COLUMNS
from beam_pipes.checks import integer
from beam_pipes.errors import CacheError, LoaderError, UnknownRecordError
from beam_pipes.extras import require
from beam_pipes.loader import Loader
from beam_pipes.publication.publish import REPORT, SNAPSHOTS
from beam_pipes.storage import storage_for

Array = np.ndarray

_SHOWN_FILES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read:
    """One read of a record: `record_id` in `step` of the run, in `epoch`."""

    record_id: str
    step: int
    epoch: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgetting:
    """What has to be done so that records are forgotten.

    `ids`: as asked; `unknown`: those that no snapshot has; `records`: the ids of all records with the same content.
    `reads`: every read in the run, by step. `checkpoint`: the name and step of the last checkpoint that has read none
    of them, None if there is none; `replay_steps`: steps from there (or from the start) to the end of what was run.
    `traces`: what else holds them, each in a sentence; `searched`: the directories of others that were looked through.
    """

    ids: tuple[str, ...]
    unknown: tuple[str, ...]
    records: tuple[str, ...]
    last_step: int
    reads: tuple[Read, ...]
    checkpoint: tuple[str, int] | None
    replay_steps: int
    traces: tuple[str, ...]
    searched: tuple[str, ...] = ()

    @property
    def first_step(self) -> int | None:
        """The first step that read one of the records; None if the run has read none."""
        return self.reads[0].step if self.reads else None

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self) | {"first_step": self.first_step}

    def lines(self) -> Iterator[str]:
        """The report in words."""
        more = len(self.records) - (len(self.ids) - len(self.unknown))
        equal = f", {more:,} of them by equal content" if more > 0 else ""
        yield f"{len(self.ids):,} ids mean {len(self.records):,} source records{equal}."
        yield from (f"no snapshot has {each}" for each in self.unknown)
        if self.first_step is None:
            yield f"Steps 0 to {self.last_step:,} have read none of them: nothing is to be replayed."
        else:
            steps = len({each.step for each in self.reads})
            yield (
                f"The run has read them {len(self.reads):,} times in {steps:,} steps, first in step "
                f"{self.first_step:,} (epoch {self.reads[0].epoch}), of steps 0 to {self.last_step:,}."
            )
            if self.checkpoint is None:
                yield f"No checkpoint is clean: replay all {self.replay_steps:,} steps from the start."
            else:
                name, step = self.checkpoint
                yield f"The last clean checkpoint is {name} (after {step:,} steps): replay {self.replay_steps:,} steps."
        yield from self.traces
        places = "" if self.searched else "exports, local copies of remote caches (--search), "
        yield f"Not looked for: {places}logs, and models made of later checkpoints."

    def statement(self) -> str:
        """The report as Markdown, to be filed: with the day, and every id and step."""
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        steps: dict[str, list[int]] = {record: [] for record in self.records}
        for each in self.reads:
            steps.setdefault(each.record_id, []).append(each.step)
        rows = [f"| `{record}` | {', '.join(map(str, read)) or 'none'} |" for record, read in steps.items()]
        listed = "\n".join(f"- {line}" for line in self.lines())
        return "\n".join(
            [
                f"# Records to be forgotten, {today}",
                "",
                listed,
                "",
                "| record | read in steps |",
                "| --- | --- |",
                *rows,
                "",
            ]
        )


def forgetting(
    loader: Loader,
    caches: str | Sequence[str],
    ids: Sequence[str],
    *,
    last_step: int,
    checkpoints: Mapping[int, str] | None = None,
    search: Sequence[str] = (),
) -> Forgetting:
    """What `loader`'s run has read of the records `ids` up to `last_step`, and what holds traces of them.

    Content counts, as for a takedown: a record with the bytes of one that is named is the same text in another place.
    Nothing is changed. A step that read a record which has been taken down since is a read.

    Args:
        loader: of the run, as it was made then: same source, seed, order and batch size.
        caches: the directories of the caches that it reads.
        ids: `file@position`, or a file for all of its records.
        last_step: the last step that was trained, from 0.
        checkpoints: steps done → name of the checkpoint. After k steps, steps 0 to k - 1 have been read.
        search: local directories with exports or copies. Each of their files is read, and named where it has a value
            of these records that is 8 bytes or longer, byte for byte; Parquet and gzip are decompressed.

    Raises `CacheError` for a snapshot that keeps no digests of contents, and what `when_record` raises.
    """
    last_step = integer(last_step, what="last_step", least=0, error=LoaderError)
    wanted = tuple(dict.fromkeys(ids))
    snapshots = {path: list(_snapshots(path)) for path in ([caches] if isinstance(caches, str) else caches)}
    contents: dict[str, Array] = {}
    for found in (snapshot for each in snapshots.values() for snapshot in each):
        contents = found.lineage.contents_of(wanted) | contents
    digests = np.unique(np.concatenate([np.empty(0, np.uint64), *contents.values()]))
    records: dict[str, None] = {}
    traces: list[str] = []
    values = set[bytes]()
    for path, each in snapshots.items():
        for found in each:
            places = list(found.lineage.find_contents(digests))
            records |= dict.fromkeys(
                shard.record_id(int(ordinal)) for _, shard, ordinals in places for ordinal in ordinals
            )
            if places:
                by_shard = {index: ordinals for index, _, ordinals in places}
                traces += _traces(path, found, by_shard)
                values |= found.values_of(by_shard) if search else set()
        if records:
            traces += _traces_beside(path, {found.manifest.snapshot for found in each})
    for directory in search:
        traces += _traces_in(directory, sorted(values))
    reads = sorted(_reads(loader, records, last_step), key=lambda read: (read.step, read.record_id))
    done = [step for step in checkpoints or {} if not reads or step <= reads[0].step]
    checkpoint = ((checkpoints or {})[max(done)], max(done)) if done and reads else None
    return Forgetting(
        ids=wanted,
        unknown=tuple(each for each in wanted if each not in contents),
        records=tuple(records),
        last_step=last_step,
        reads=tuple(reads),
        checkpoint=checkpoint,
        replay_steps=last_step + 1 - (checkpoint[1] if checkpoint else 0) if reads else 0,
        traces=tuple(traces),
        searched=tuple(search),
    )


def _snapshots(path: str) -> Iterator[SnapshotRecords]:
    for manifest in published_manifests(path):
        found = SnapshotRecords.open(path, manifest)
        if found is None or not found.lineage.has_digests:
            raise CacheError(
                f"{path}: snapshot {manifest.snapshot} was built without digests of its records, so that nobody can "
                "say where a content is. Build again, remove it (beam-pipes gc), and ask again.",
                path=path,
            )
        yield found


def _reads(loader: Loader, records: Mapping[str, None], last_step: int) -> Iterator[Read]:
    for record in records:
        try:
            places = loader.when_record(record, epochs=epochs_until(loader, last_step), last_step=last_step)
        except UnknownRecordError:
            continue  # of another snapshot
        for place in places:
            if place.stands_in_for is None:
                yield Read(record_id=record, step=place.step, epoch=place.epoch)


def epochs_until(loader: Loader, last_step: int) -> int:
    """The number of epochs that a run has begun by a step; 1 for a mixture without end."""
    steps = loader.steps_per_epoch
    return 1 if not steps else last_step // steps + 1


def _traces(path: str, found: SnapshotRecords, places: Mapping[int, Array]) -> Iterator[str]:
    """What a snapshot holds of the records `places`: source shard → ordinals."""
    where = f"{path}, snapshot {found.manifest.snapshot}"
    count = sum(map(len, places.values()))
    yield f"{where}: {count:,} source records have this content; hide them with beam-pipes takedown."
    if files := list(found.files_of(places)):
        more = f" and {len(files) - _SHOWN_FILES:,} more" if len(files) > _SHOWN_FILES else ""
        yield f"{where}: their bytes are in {', '.join(files[:_SHOWN_FILES])}{more}; gc removes old snapshots."
    if found.assets():
        yield f"{where}: learned from data that include them: {', '.join(found.assets())}."
    if storage_for(path).exists(os.path.join(found.directory, REPORT)):
        yield f"{where}: {REPORT} may show them; a takedown removes it."


def _traces_in(directory: str, values: Sequence[bytes]) -> Iterator[str]:
    """The files below `directory` that hold one of the values."""
    files = [os.path.join(root, name) for root, _, names in os.walk(directory) for name in names]
    if not files:
        raise CacheError(f"there are no files to be searched in {directory!r}. Name the directory of an export.")
    for file in sorted(files):
        if any(part.find(value) >= 0 for part in _contents(file) for value in values):
            yield f"{file}: holds what is stored of them; write it again after a takedown, or remove it."
    if not values:
        yield f"{directory}: not searched: what is stored of them is hidden or shorter than 8 bytes."


def _contents(file: str) -> Iterator[bytes | mmap.mmap]:
    """The bytes of a file, decompressed."""
    if file.endswith(".parquet"):
        for batch in require("pyarrow.parquet", purpose="searching Parquet").ParquetFile(file).iter_batches():
            yield from (bytes(buffer) for column in batch.columns for buffer in column.buffers() if buffer is not None)
    elif file.endswith(".gz"):
        with gzip.open(file) as opened:
            yield opened.read()
    elif os.path.getsize(file):
        with open(file, "rb") as plain:
            yield mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)


def _traces_beside(path: str, published: set[str]) -> Iterator[str]:
    """What a directory with such records may hold of them beside its published snapshots."""
    storage = storage_for(path)
    for name in storage.list(os.path.join(path, COLUMNS)):
        yield (
            f"{path}: the column {name!r} ({COLUMNS}/{name}) may hold what was computed from them; remove it, and "
            "compute it again."
        )
    for kind in (RESULTS, ACCUMULATORS):
        if storage.list(os.path.join(path, DIRECTORY, kind)):
            yield (
                f"{path}: {DIRECTORY}/{kind} keeps what analyzers have seen, for later builds; beam-pipes gc --keep 0 "
                "removes it when the records have left the input and a build has published without them."
            )
    for snapshot in sorted({*storage.list(os.path.join(path, SNAPSHOTS))} - published):
        yield (
            f"{path}: {SNAPSHOTS}/{snapshot} is of a build that has not finished, and may hold them; finish it, or "
            "remove it (beam-pipes gc)."
        )
