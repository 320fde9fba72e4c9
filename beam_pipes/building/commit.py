"""Reuse: shards of other snapshots that have the same fingerprint are linked, not built again.

Commit: the completions of all source shards become a manifest, published atomically.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_pipes.building.analysis.stored import CONTENT
from beam_pipes.building.completion import (
    DEAD_LETTERS,
    Completion,
    SizeOf,
    completions_at,
    find_completions,
    is_whole,
    read_completions,
    sizes_in,
    split_directory,
    write_completion,
)
from beam_pipes.building.declaration import MaxBad
from beam_pipes.building.declaration_fingerprint import FILE_NAME as FINGERPRINT
from beam_pipes.building.expectation import require_expected
from beam_pipes.building.leftovers import USES_FILE as ANALYSIS
from beam_pipes.building.leftovers import writing
from beam_pipes.building.limits import quarantined_snapshot
from beam_pipes.building.reading import ERRORS_TOLD
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.building.takedown import honouring_takedowns
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.account import Account
from beam_pipes.engine.records import error_in_short
from beam_pipes.engine.statistics import to_json
from beam_pipes.errors import CacheError, CacheNotFoundError, EmptySplitError, TooManyDeadLettersError
from beam_pipes.format.framing import read_records
from beam_pipes.format.index import index_path
from beam_pipes.format.layout import ShardEntry
from beam_pipes.lineage.lineage import LINEAGE, lineage_digest, lineage_file
from beam_pipes.lineage.reader import DEAD_LETTER_CODEC, DeadLetter
from beam_pipes.publication.manifest import FileEntry, Manifest, SplitManifest
from beam_pipes.publication.publish import BUILD, publish, snapshot_directory
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.locks import reached
from beam_pipes.storage.protocol import FileStatus, Storage, in_parallel

# Completions read at once: few enough to stop early if the first ones contain everything.
_PORTION = 256


class Reusable(NamedTuple):
    """A task, and the completion in another snapshot's directory that has its fingerprint."""

    task: ShardTask
    directory: str
    completion: Completion
    lineage: str
    size_of: SizeOf


def link_snapshot(source: BuildHeader, target: BuildHeader, completions: Iterable[Completion]) -> None:
    """Links all shards of one snapshot into another one with the same number of shards."""

    def link(completion: Completion) -> None:
        lineage = f"{source.directory}/{lineage_file(completion.index, source.num_shards)}"
        link_shard(target, completion.index, source.directory, completion, lineage)

    in_parallel(target.storage, link, completions)


def find_reusable(header: BuildHeader, tasks: Iterable[ShardTask]) -> Iterator[Reusable]:
    """Those of the tasks that are complete in another snapshot."""
    wanted = {task.fingerprint: task for task in tasks}
    storage = header.storage
    for snapshot in storage.list(f"{header.root}/snapshots"):
        other = f"{header.root}/snapshots/{snapshot}"
        if snapshot == header.snapshot:
            continue
        if not wanted:
            return
        names = storage.list(f"{other}/completions")
        files: Mapping[str, FileStatus] | None = None
        for start in range(0, len(names), _PORTION):
            if not wanted:
                return
            portion = names[start : start + _PORTION]
            found = completions_at(storage, [f"{other}/completions/{name}" for name in portion])
            for name, completion in zip(portion, found, strict=True):
                if completion is None or completion.fingerprint not in wanted:
                    continue
                if files is None:
                    files = storage.tree(other)
                num_shards = int(name.removesuffix(".json").rpartition("-of-")[2])
                if is_whole(completion, num_shards, sizes_in(files)):
                    lineage = f"{other}/{lineage_file(completion.index, num_shards)}"
                    yield Reusable(wanted.pop(completion.fingerprint), other, completion, lineage, sizes_in(files))


def reuse(header: BuildHeader, tasks: Sequence[ShardTask]) -> list[ShardTask]:
    """Links shards with the same fingerprint from other snapshots into this one, under new names.

    Returns the tasks that are left. On an object store a shard costs five requests: its completion is read there and
    written here, and three files are copied.
    """
    done = set(find_completions(header, tasks))

    def link(found: Reusable) -> int:
        link_shard(header, found.task.index, found.directory, found.completion, found.lineage, found.size_of)
        return found.task.index

    rest = (task for task in tasks if task.index not in done)
    done.update(in_parallel(header.storage, link, find_reusable(header, rest)))
    return [task for task in tasks if task.index not in done]


def link_shard(
    header: BuildHeader,
    index: int,
    other: str,
    completion: Completion,
    lineage: str,
    size_of: SizeOf = lambda file: None,
) -> None:
    """Links the files of a completion in the snapshot's directory `other` into this one, as its source shard `index`.

    `lineage` is the path of the shard's lineage there, `size_of` knows the sizes of files there, by their names in it.
    """

    def link_file(source: str, target: str) -> None:
        storage.link_or_copy(source, target, size=size_of(source.removeprefix(f"{other}/")))

    storage = header.storage
    renamed: dict[str, ShardEntry] = {}
    for split, entry in completion.all_entries():
        target = header.file_name(split, index)
        directory = split_directory(header.directory, split)
        storage.makedirs(directory)
        source = f"{split_directory(other, split)}/{entry.file}"
        link_file(index_path(source), index_path(f"{directory}/{target}"))
        reached("reuse/index-linked")
        link_file(source, f"{directory}/{target}")
        renamed[split] = dataclasses.replace(entry, file=target)
    linked_lineage = f"{header.directory}/{lineage_file(index, header.num_shards)}"
    storage.makedirs(linked_lineage.rpartition("/")[0])
    link_file(lineage, linked_lineage)
    reached("reuse/linked")
    dead_letters = renamed.pop(DEAD_LETTERS, None)
    write_completion(header, dataclasses.replace(completion, index=index, entries=renamed, dead_letters=dead_letters))


# Below the directory of a snapshot.
ASSETS = "assets"


def commit(header: BuildHeader) -> Manifest:
    """Publishes the snapshot of a build whose source shards are all complete; returns its manifest.

    If records went into quarantine during the build, the snapshot has another id than the header says. Repeating it
    publishes the same bytes. Raises `ReconciliationError` if a shard is missing or counts do not add up,
    `TooManyDeadLettersError` if more records failed than `max_bad` allows, `EmptySplitError` if nothing is left;
    nothing is published then.
    """
    account, completions = _merged(header)
    quarantined = {completion.index: completion.quarantined for completion in completions}
    snapshot = quarantined_snapshot(header.plain_snapshot, quarantined)
    if snapshot != header.snapshot:
        with writing(header.root):
            header = _linked(header, snapshot)
        account, completions = _merged(header)
    where = f"build of {header.name!r}"
    account.reconcile(where=where)
    if (limit := _most_bad(header.max_bad, account.read)) is not None and num_bad(account) > limit:
        raise too_many_bad(header.max_bad, account, where=where, errors=_first_errors(header, completions))
    splits = {
        split: SplitManifest.from_entries(
            [completion.entries[split] for completion in completions if split in completion.entries],
            kind=kind,
            spec=header.specs.get(split),
            proto=header.protos.get(split),
            shard_count=header.num_shards,
        )
        for split, kind in header.kinds.items()
    }
    if not header.allow_empty:
        _require_records(header, splits, account, completions)
    dead_letters = [
        FileEntry(file=f"{DEAD_LETTERS}/{entry.file}", bytes=entry.bytes, crc32c=entry.crc32c, records=entry.records)
        for completion in completions
        if (entry := completion.dead_letters) is not None
    ]
    with writing(header.root):
        assets = link_assets(header)
    manifest = Manifest(
        name=header.name,
        snapshot=header.snapshot,
        splits=splits,
        statistics=[to_json(statistic) for statistic in account.statistics()],
        accounting=account.to_json(),
        fingerprints={
            **header.fingerprints,
            LINEAGE: lineage_digest([completion.lineage.crc32c for completion in completions]),
        },
        assets=assets,
        dead_letters=dead_letters,
        sources=header.sources,
    )
    require_expected(header.expectations, Cache(header.root, header.directory, manifest), header.root)
    with writing(header.root), honouring_takedowns(header.root, manifest):
        publish(header.root, manifest, replaces=header.replaces)
    return manifest


def link_assets(header: BuildHeader) -> list[FileEntry]:
    """The results of analyzers, linked into the snapshot below `assets/`; sorted by their names there."""
    storage, entries = header.storage, []
    for name, stored in header.assets.items():
        for entry in stored.files:
            file = f"{ASSETS}/{name}{entry.file.removeprefix(CONTENT)}"
            target = f"{header.directory}/{file}"
            storage.makedirs(target.rpartition("/")[0])
            storage.link_or_copy(f"{stored.place}/{entry.file}", target)
            entries.append(FileEntry(file=file, bytes=entry.bytes, crc32c=entry.crc32c))
    return sorted(entries, key=lambda entry: entry.file)


def assets_are_there(header: BuildHeader) -> bool:
    """Whether the snapshot has all analyzer results, in full size."""
    files = header.storage.tree(f"{header.directory}/{ASSETS}") if header.assets else {}
    return all(
        (status := files.get(f"{name}{entry.file.removeprefix(CONTENT)}")) is not None and status.size == entry.bytes
        for name, stored in header.assets.items()
        for entry in stored.files
    )


def _merged(header: BuildHeader) -> tuple[Account, list[Completion]]:
    """The account of a build, and the parts of its completions that a manifest is made from."""
    account, completions = Account(), []
    for completion in read_completions(header):
        account.merge_from(completion.account)
        completions.append(completion.without_input())
    return account, completions


def _linked(header: BuildHeader, snapshot: str) -> BuildHeader:
    """Everything that was built, linked into the directory of another snapshot."""
    target = dataclasses.replace(header, snapshot=snapshot)
    storage = header.storage
    storage.makedirs(target.directory)
    for file in (FINGERPRINT, *([ANALYSIS] if header.assets else [])):
        storage.link_or_copy(f"{header.directory}/{file}", f"{target.directory}/{file}")
    link_snapshot(header, target, read_completions(header))
    return target


def write_build_record(storage: Storage, root: str, snapshot: str, record: Mapping[str, object]) -> None:
    """Writes `build.json` beside the snapshot's manifest: runner, times, and whatever else must not affect the
    manifest.
    """
    rendered = strict_json(record, indent=1, sort_keys=True) + "\n"
    with writing(root):
        storage.replace(f"{snapshot_directory(root, snapshot)}/{BUILD}", rendered.encode())
    reached("build/recorded")


def num_bad(account: Account) -> int:
    """The number of failed records: dead letters, and those dropped because of an error."""
    dropped = sum(
        count
        for unit in account.units.values()
        for reason, count in unit.dropped.items()
        if reason.startswith("error/")
    )
    return account.dead + dropped


# With "tenth": how many records a small input may lose.
_FEW = 10


def _most_bad(limit: MaxBad, read: int) -> float | None:
    """How many of `read` records may fail; None for any number."""
    if limit == "tenth":
        return max(_FEW, read / 10)
    return limit * read if isinstance(limit, float) else limit


def too_many_bad(limit: MaxBad, account: Account, *, where: str, errors: Iterable[str]) -> TooManyDeadLettersError:
    """The error that says how many of the records failed, in which stages, and shows the first errors."""
    allowed = "a tenth" if limit == "tenth" else f"a fraction of {limit}" if isinstance(limit, float) else f"{limit}"
    stages: Mapping[str, int] = {
        name: failed
        for name, unit in account.units.items()
        if (failed := unit.dead + sum(n for reason, n in unit.dropped.items() if reason.startswith("error/")))
    }
    return TooManyDeadLettersError(
        f"{where}: {num_bad(account)} records failed, and max_bad allows {allowed} (of {account.read} read); by stage: "
        f"{', '.join(f'{name} {count}' for name, count in stages.items())}.{the_first(errors)} Nothing was published; "
        "the published snapshot stays. Repair the input or the stage, or raise max_bad (--max-bad; None, or all, "
        "allows any number).",
        stages=stages,
    )


def the_first(errors: Iterable[str]) -> str:
    """The first errors as a sentence: ` The first: tokenize, a.txt@0: KeyError: 'text'; ….`; empty without any."""
    shown = list(itertools.islice(errors, ERRORS_TOLD))
    return f" The first: {'; '.join(shown)}." if shown else ""


def letters_in_short(letters: Iterable[DeadLetter]) -> Iterator[str]:
    """How a message describes each dead letter."""
    for letter in letters:
        yield error_in_short(letter.stage, letter.record_id, letter.error_type, letter.message)


def _first_errors(header: BuildHeader, completions: Iterable[Completion]) -> Iterator[str]:
    for completion in completions:
        yield from completion.dropped_errors
        if completion.dead_letters is not None:
            path = f"{split_directory(header.directory, DEAD_LETTERS)}/{completion.dead_letters.file}"
            payloads = read_records(path)
            yield from letters_in_short(DeadLetter.from_example(DEAD_LETTER_CODEC.decode(each)) for each in payloads)


def _require_records(
    header: BuildHeader, splits: Mapping[str, SplitManifest], account: Account, completions: Iterable[Completion]
) -> None:
    """Raises `EmptySplitError` if no record is left of the input, or of a split that has records now."""
    empty = [name for name, split in splits.items() if not split.num_records]
    nothing = len(empty) == len(splits)
    if not empty:
        return
    published: Mapping[str, SplitManifest] = {}
    with contextlib.suppress(CacheNotFoundError, CacheError):
        published = Cache.open(header.root).manifest.splits
    lost = [name for name in empty if name in published and published[name].num_records]
    if not nothing and not lost:
        return
    gone = {
        name: counts
        for name, unit in account.units.items()
        if (counts := {**({"failed": unit.dead} if unit.dead else {}), **unit.dropped})
    }
    by_stage = "; ".join(
        f"{stage}: {', '.join(f'{reason} {count}' for reason, count in counts.items())}"
        for stage, counts in gone.items()
    )
    what = (
        f"none of the {account.read} records that were read is left"
        if nothing and account.read
        else "no record was found in its input"
        if nothing
        else f"the split {lost[0]!r} would have no records, and has {published[lost[0]].num_records} now"
    )
    raise EmptySplitError(
        f"build of {header.name!r}: {what}.{f' By stage, {by_stage}.' if by_stage else ''}"
        f"{the_first(_first_errors(header, completions))} Nothing was published; the published snapshot "
        "stays. Repair the stage or the input; if this is what you want, allow it: "
        "--allow-empty of the command, such as table, or allow_empty=True of a declaration.",
        splits=empty,
    )
