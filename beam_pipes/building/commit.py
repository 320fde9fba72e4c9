"""Commit: the completions of all source shards become a manifest, published atomically."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.building.analysis.stored import CONTENT
from beam_pipes.building.care.takedown import honouring_takedowns
from beam_pipes.building.completion import DEAD_LETTERS, Completion, merged_account, read_completions
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import FILE_NAME as FINGERPRINT
from beam_pipes.building.expectation import require_expected
from beam_pipes.building.quarantine import quarantined_snapshot
from beam_pipes.building.reuse import link_snapshot
from beam_pipes.building.shard_task import BuildHeader
from beam_pipes.building.uses import FILE_NAME as ANALYSIS
from beam_pipes.building.write_errors import writing
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.kill_points import reached
from beam_pipes.cache.lineage import LINEAGE, lineage_digest
from beam_pipes.cache.manifest import FileEntry, Manifest
from beam_pipes.cache.publish import BUILD, publish
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split_manifest import SplitManifest
from beam_pipes.cache.storage import storage_for
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistic import to_json
from beam_pipes.errors import TooManyDeadLettersError

# Below the directory of a snapshot.
ASSETS = "assets"


def commit(declaration: Declaration, header: BuildHeader) -> str:
    """Publishes the snapshot of a build whose source shards are all complete; returns the manifest's id.

    Where records went into quarantine while it was built, the snapshot has another id than the header says. Doing it
    again publishes the same bytes. Raises `ReconciliationError` where a shard is missing or counts do not add up,
    `TooManyDeadLettersError` where more records failed than `max_bad` allows; nothing is published then.
    """
    completions = read_completions(header)
    quarantined = {completion.index: completion.quarantined for completion in completions}
    snapshot = quarantined_snapshot(header.plain_snapshot, quarantined)
    if snapshot != header.snapshot:
        with writing(header.root):
            header = _linked(header, snapshot, completions)
        completions = read_completions(header)
    account = merged_account(completions)
    account.reconcile(where=f"build of {header.name!r}")
    limit = declaration.max_bad
    if limit is not None and num_bad(account) > (limit * account.read if isinstance(limit, float) else limit):
        raise too_many_bad(declaration, account, where=f"build of {header.name!r}")
    splits = {}
    for split in declaration.splits:
        type_ = declaration.graph.output_type[split]
        splits[split] = SplitManifest.from_entries(
            [completion.entries[split] for completion in completions if split in completion.entries],
            kind=declaration.kind(split),
            spec=header.specs.get(split),
            proto=type_.DESCRIPTOR.full_name if declaration.kind(split) == "proto" else None,  # type: ignore[attr-defined]
            shard_count=header.num_shards,
        )
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
    )
    require_expected(declaration.expectations, Cache(header.root, header.directory, manifest), header.root)
    with writing(header.root), honouring_takedowns(header.root, manifest):
        publish(header.root, manifest, replaces=header.replaces)
    return manifest.id


def link_assets(header: BuildHeader) -> list[FileEntry]:
    """The results of analyzers, linked into the snapshot below `assets/`; sorted by their names there."""
    storage, entries = storage_for(header.root), []
    for name, stored in header.assets.items():
        for entry in stored.files:
            file = f"{ASSETS}/{name}{entry.file.removeprefix(CONTENT)}"
            target = f"{header.directory}/{file}"
            storage.makedirs(target.rpartition("/")[0])
            storage.link_or_copy(f"{stored.place}/{entry.file}", target)
            entries.append(FileEntry(file=file, bytes=entry.bytes, crc32c=entry.crc32c))
    return sorted(entries, key=lambda entry: entry.file)


def assets_are_there(header: BuildHeader) -> bool:
    """Whether the snapshot has all results of analyzers, in their full sizes."""
    files = storage_for(header.root).tree(f"{header.directory}/{ASSETS}") if header.assets else {}
    return all(
        (status := files.get(f"{name}{entry.file.removeprefix(CONTENT)}")) is not None and status.size == entry.bytes
        for name, stored in header.assets.items()
        for entry in stored.files
    )


def _linked(header: BuildHeader, snapshot: str, completions: list[Completion]) -> BuildHeader:
    """All that was built, linked into the directory of another snapshot."""
    target = dataclasses.replace(header, snapshot=snapshot)
    storage = storage_for(header.root)
    storage.makedirs(target.directory)
    for file in (FINGERPRINT, *([ANALYSIS] if header.assets else [])):
        storage.link_or_copy(f"{header.directory}/{file}", f"{target.directory}/{file}")
    link_snapshot(header, target, completions)
    return target


def write_build_record(header: BuildHeader, record: Mapping[str, Any]) -> None:
    """Writes `build.json` beside the snapshot's manifest: runner, times, whatever must not change the manifest."""
    rendered = strict_json(record, indent=1, sort_keys=True) + "\n"
    with writing(header.root):
        storage_for(header.directory).replace(f"{header.directory}/{BUILD}", rendered.encode())
    reached("build/recorded")


def num_bad(account: Account) -> int:
    """How many records failed: dead letters, and those that were dropped because of an error."""
    dropped = sum(
        count
        for unit in account.units.values()
        for reason, count in unit.dropped.items()
        if reason.startswith("error/")
    )
    return account.dead + dropped


def too_many_bad(declaration: Declaration, account: Account, *, where: str) -> TooManyDeadLettersError:
    """The error that says how many records failed, of how many, and where."""
    limit = declaration.max_bad
    allowed = f"a fraction of {limit}" if isinstance(limit, float) else f"{limit}"
    stages: Mapping[str, int] = {
        name: failed
        for name, unit in account.units.items()
        if (failed := unit.dead + sum(n for reason, n in unit.dropped.items() if reason.startswith("error/")))
    }
    return TooManyDeadLettersError(
        f"{where}: {num_bad(account)} records failed, and max_bad allows {allowed} (of {account.read} read); by stage: "
        f"{', '.join(f'{name} {count}' for name, count in stages.items())}. Nothing was published. Repair the input or "
        "the stage, or raise max_bad.",
        stages=stages,
    )
