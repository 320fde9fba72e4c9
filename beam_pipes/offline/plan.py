"""`make_plan`: a declaration and its input → source shards, fingerprints, and the snapshot they make."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

from beam_pipes.cache.kill_points import reached
from beam_pipes.cache.manifest import FORMAT_VERSION
from beam_pipes.cache.publish import snapshot_directory
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.spec import ExampleSpec
from beam_pipes.engine.account import Account
from beam_pipes.errors import CacheNotFoundError, CorruptManifestError, DeclarationError
from beam_pipes.offline.canonical_digest import digest_of
from beam_pipes.offline.completion import find_completion, merged_account, read_completions
from beam_pipes.offline.declaration import Declaration
from beam_pipes.offline.declaration_fingerprint import (
    DeclarationFingerprint,
    fingerprint_declaration,
    read_fingerprint,
    write_fingerprint,
)
from beam_pipes.offline.leftovers import remove_temporaries
from beam_pipes.offline.reading import graph_runner, read_batches
from beam_pipes.offline.reuse import reuse
from beam_pipes.offline.shard_task import BuildHeader, ShardTask
from beam_pipes.offline.write_errors import writing
from beam_pipes.sources.digest_cache import DigestCache
from beam_pipes.sources.source import SourcePlan

# Features that are not declared are inferred from this many examples of each split, or from this many records.
INFER_EXAMPLES = 64
INFER_RECORDS = 2048

DIGESTS_NAME = ".digests.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """What a build will do.

    `snapshot` is a digest of the input, the declaration and the format: the same input and declaration give the same
    snapshot on every machine. `published_manifest_id` is set where exactly this snapshot is published already;
    `previous` is the directory of the snapshot that is published, whichever it is.
    """

    path: str
    snapshot: str
    declaration: Declaration
    fingerprint: DeclarationFingerprint
    source: SourcePlan
    header: BuildHeader
    tasks: tuple[ShardTask, ...]
    published_manifest_id: str | None
    previous: str | None

    def previous_fingerprint(self) -> DeclarationFingerprint | None:
        """The fingerprint that the published snapshot was built with; None where there is none."""
        return None if self.previous is None else read_fingerprint(self.previous)

    def tasks_left(self) -> list[ShardTask]:
        """The tasks whose shards are not complete, or whose files are not there in full."""
        return [task for task in self.tasks if find_completion(self.header, task) is None]

    def read_account(self) -> Account:
        """The account of the whole build, from the completions."""
        return merged_account(read_completions(self.header))

    def to_json(self) -> dict[str, Any]:
        """The plan without the list of shards."""
        return {
            "name": self.header.name,
            "path": self.path,
            "snapshot": self.snapshot,
            "published": self.published_manifest_id is not None,
            "num_files": self.source.num_files,
            "num_bytes": self.source.num_bytes,
            "num_shards": self.header.num_shards,
            "splits": {
                split: self.header.specs[split].to_json()
                if split in self.header.specs
                else self.declaration.kind(split)
                for split in self.declaration.splits
            },
            "stages": [unit.name for unit in self.declaration.graph.units],
        }


def make_plan(declaration: Declaration, to: str | os.PathLike[str]) -> BuildPlan:
    """Plans a build of `declaration` in the directory `to`; reads input only to digest it and, where features are not
    declared, to infer them. Writes nothing but the digests of input files, so that the next plan need not read them.

    Raises `SourceError`, `DeclarationError` or `SpecError`: everything that can be known before the build starts.
    """
    root = Path(to)
    digests = DigestCache.load(root / DIGESTS_NAME)
    source = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    if root.is_dir():
        with contextlib.suppress(OSError):  # safe to lose; a directory that is full or read-only can be planned for
            digests.save(root / DIGESTS_NAME)
    specs = _specs(declaration, source)
    found = fingerprint_declaration(declaration, specs)
    digest = found.digest
    tasks = tuple(
        ShardTask(shard=shard, fingerprint=digest_of([digest, shard.fingerprint()])) for shard in source.shards
    )
    snapshot = digest_of([FORMAT_VERSION, declaration.name, digest, [task.fingerprint for task in tasks]])[:16]
    header = BuildHeader(
        name=declaration.name,
        root=str(root),
        snapshot=snapshot,
        num_shards=len(tasks),
        specs=specs,
        fingerprints={"declaration": digest, "source": digest_of([shard.fingerprint() for shard in source.shards])},
    )
    manifest = None
    with contextlib.suppress(CacheNotFoundError, CorruptManifestError):  # a damaged one is published anew
        manifest = Cache.open(root).manifest
    return BuildPlan(
        path=str(root),
        snapshot=snapshot,
        declaration=declaration,
        fingerprint=found,
        source=source,
        header=header,
        tasks=tasks,
        published_manifest_id=manifest.id if manifest is not None and manifest.snapshot == snapshot else None,
        previous=snapshot_directory(root, manifest.snapshot) if manifest is not None else None,
    )


def prepare(plan: BuildPlan) -> list[ShardTask]:
    """Makes the snapshot's directory ready and returns the tasks that are left.

    Shards that an interrupted build of this snapshot has committed are kept; shards with the same fingerprint in
    the published snapshot are linked, not built again; what dead builds left half written is removed. Only for the
    holder of the build lock.
    """
    directory = plan.header.directory
    with writing(plan.path):
        remove_temporaries(plan.path)
        reached("prepare/swept")
        os.makedirs(directory, exist_ok=True)
        write_fingerprint(directory, plan.fingerprint)
        reached("prepare/recorded")
        reuse(plan.header, plan.tasks)
    return plan.tasks_left()


def _specs(declaration: Declaration, source: SourcePlan) -> dict[str, ExampleSpec]:
    """The features of each split of examples: as declared, or inferred from the first records."""
    specs: dict[str, ExampleSpec] = {}
    missing: list[str] = []
    for split in declaration.splits:
        if declaration.kind(split) != "example":
            continue
        declared = declaration.declared_spec(split)
        if declared is None:
            missing.append(split)
        else:
            specs[split] = declared
    if missing:
        examples = _sample(declaration, source, missing)
        for split in missing:
            # A split that gets few records may have none among the first: its examples come from the same stages.
            found = examples[split] or [example for other in missing for example in examples[other]]
            if not found:
                raise DeclarationError(
                    f"declaration {declaration.name!r}: the features of {split!r} are not declared, and none of the "
                    f"first {INFER_RECORDS} records gives an example to infer them from. Declare features=...",
                    split=split,
                )
            specs[split] = ExampleSpec.infer(found)
    return {split: specs[split] for split in declaration.splits if split in specs}


def _sample(declaration: Declaration, source: SourcePlan, splits: list[str]) -> dict[str, list[Any]]:
    runner = graph_runner(declaration)
    examples: dict[str, list[Any]] = {split: [] for split in splits}
    records = 0
    for shard in source.shards:
        for batch in read_batches(declaration, shard):
            runner.run(batch)
            records += batch.size
            for split, column in runner.outputs(batch).items():
                if split in examples:
                    examples[split].extend(value for values in column for value in values)
            if records >= INFER_RECORDS or all(len(found) >= INFER_EXAMPLES for found in examples.values()):
                return examples
    return examples
