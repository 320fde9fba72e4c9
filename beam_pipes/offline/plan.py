"""`make_plan`: a declaration and its input → source shards, fingerprints, and the snapshot they make."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beam_pipes.cache.manifest import FORMAT_VERSION
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.spec import ExampleSpec
from beam_pipes.engine.account import Account
from beam_pipes.engine.fingerprint import fingerprint
from beam_pipes.engine.graph import Ref
from beam_pipes.errors import CacheNotFoundError, DeclarationError
from beam_pipes.offline.completion import find_completion, merged_account, read_completions, remove_partials, reuse
from beam_pipes.offline.declaration import Declaration
from beam_pipes.offline.reading import graph_runner, read_batches
from beam_pipes.offline.shard_task import BuildHeader, ShardTask
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
    snapshot on every machine. `published_manifest_id` is set where exactly this snapshot is published already.
    """

    path: str
    snapshot: str
    declaration: Declaration
    parts: Mapping[str, str]
    source: SourcePlan
    header: BuildHeader
    tasks: tuple[ShardTask, ...]
    published_manifest_id: str | None

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


def _published_manifest_id(root: Path, snapshot: str) -> str | None:
    try:
        manifest = Cache.open(root).manifest
    except CacheNotFoundError:
        return None
    return manifest.id if manifest.snapshot == snapshot else None


def make_plan(declaration: Declaration, to: str | os.PathLike[str]) -> BuildPlan:
    """Plans a build of `declaration` in the directory `to`; reads input only to digest it and, where features are not
    declared, to infer them. Writes nothing but the digests of input files, so that the next plan need not read them.

    Raises `SourceError`, `DeclarationError` or `SpecError`: everything that can be known before the build starts.
    """
    root = Path(to)
    digests = DigestCache.load(root / DIGESTS_NAME)
    source = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    if root.is_dir():
        digests.save(root / DIGESTS_NAME)
    specs = _specs(declaration, source)
    digest, parts = _fingerprint(declaration, specs)
    tasks = tuple(ShardTask(shard=shard, fingerprint=_digest([digest, shard.fingerprint()])) for shard in source.shards)
    snapshot = _digest([FORMAT_VERSION, declaration.name, digest, [task.fingerprint for task in tasks]])[:16]
    header = BuildHeader(
        name=declaration.name,
        root=str(root),
        snapshot=snapshot,
        num_shards=len(tasks),
        specs=specs,
        fingerprints={"declaration": digest, "source": _digest([shard.fingerprint() for shard in source.shards])},
    )
    return BuildPlan(
        path=str(root),
        snapshot=snapshot,
        declaration=declaration,
        parts=parts,
        source=source,
        header=header,
        tasks=tasks,
        published_manifest_id=_published_manifest_id(root, snapshot),
    )


def prepare(plan: BuildPlan) -> list[ShardTask]:
    """Makes the snapshot's directory ready and returns the tasks that are left.

    Shards that an interrupted build of this snapshot has committed are kept; shards with the same fingerprint in
    the published snapshot are linked, not built again; what dead builds left half written is removed. Only for the
    holder of the build lock.
    """
    remove_partials(plan.header)
    reuse(plan.header, plan.tasks)
    return [task for task in plan.tasks if find_completion(plan.header, task) is None]


def _fingerprint(declaration: Declaration, specs: Mapping[str, ExampleSpec]) -> tuple[str, dict[str, str]]:
    """Everything that decides the bytes of a shard besides its input: a digest, and the named parts it is made of."""
    graph = declaration.graph
    parts: dict[str, str] = {
        "seed": str(declaration.seed),
        "on_error": declaration.on_error,
        "source": _json([type(declaration.source).__name__, declaration.source.fingerprint_config()]),
    }
    stages: dict[str, str] = {}
    for unit in graph.units:
        inputs = list(unit.inputs) if isinstance(unit.inputs, Ref) else {k: list(v) for k, v in unit.inputs.items()}
        parts[f"{unit.name}.inputs"] = _json([unit.join, inputs])
        # The parts name modules, so that a change can be explained; the digests do not, so that a move changes nothing.
        stages[unit.name] = fingerprint(unit.stage).digest
    for split, ref in graph.outputs.items():
        parts[f"split {split}"] = _json([list(ref), declaration.kind(split)])
        if split in specs:
            parts[f"split {split}.features"] = _json(specs[split].to_json())
    digest = _digest([graph.prefix, parts, stages])
    for unit in graph.units:
        parts.update({f"{unit.name}: {name}": part for name, part in fingerprint(unit.stage).parts.items()})
    return digest, parts


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


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()
