"""Which accumulators and results a snapshot, or an analysis that is not finished, has use for.

| file | of |
| --- | --- |
| `DIR/analysis/unfinished.json` | the analysis that runs, or was killed |
| `DIR/snapshots/<id>/analysis.json` | the analysis that a snapshot was built with |
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from beam_pipes.building.analysis.analysis_plan import (
    ACCUMULATORS,
    DIRECTORY,
    RESULTS,
    AnalysisPlan,
    accumulator_place,
    result_place,
)
from beam_pipes.building.analysis.stored import RECORD
from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import CacheNotFoundError

# Beside the snapshot's manifest and outside of it, as the parts of its fingerprint are.
FILE_NAME = "analysis.json"
UNFINISHED = "unfinished.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uses:
    """`analyzers` maps each to the digest and the parts of its fingerprint, `shards` has those of source shards."""

    analyzers: Mapping[str, tuple[str, Mapping[str, str]]]
    shards: tuple[str, ...]

    def to_bytes(self) -> bytes:
        analyzers = {name: {"digest": digest, "parts": dict(parts)} for name, (digest, parts) in self.analyzers.items()}
        return json.dumps({"analyzers": analyzers, "shards": self.shards}, indent=1).encode()

    @classmethod
    def of(cls, plan: AnalysisPlan) -> Uses:
        analyzers = {
            planned.analyzer.name: (planned.fingerprint.digest, planned.fingerprint.parts) for planned in plan.analyzers
        }
        return cls(analyzers=analyzers, shards=tuple(shard.fingerprint() for shard in plan.source.shards))

    def places(self, root: str) -> set[str]:
        """Where everything lies that is in use."""
        found = set()
        for digest, _ in self.analyzers.values():
            found.add(result_place(root, digest, self.shards))
            found.update(accumulator_place(root, digest, name) for name in self.shards)
        return found

    def count_accumulators(self, root: str) -> tuple[int, int]:
        """How many accumulators are there, of how many."""
        storage, there = storage_for(root), 0
        for digest, _ in self.analyzers.values():
            files = storage.tree(accumulator_place(root, digest, "").rstrip("/"))
            wanted = {f"{accumulator_place('', '', name).rpartition('/')[2]}/{RECORD}" for name in self.shards}
            there += len(wanted & files.keys())
        return there, len(self.analyzers) * len(self.shards)


def mark_unfinished(plan: AnalysisPlan) -> None:
    """Says what an analysis is about to make, for those who look at the directory."""
    directory = f"{plan.root}/{DIRECTORY}"
    storage_for(directory).makedirs(directory)
    storage_for(directory).replace(f"{directory}/{UNFINISHED}", Uses.of(plan).to_bytes())


def mark_used(plan: AnalysisPlan, snapshot: str) -> None:
    """Says, in a snapshot's directory, what it was built with; from here on the analysis is finished."""
    storage_for(snapshot).replace(f"{snapshot}/{FILE_NAME}", Uses.of(plan).to_bytes())
    mark_finished(plan.root)


def mark_finished(root: str) -> None:
    """Takes back what `mark_unfinished` has said."""
    storage_for(root).delete(f"{root}/{DIRECTORY}/{UNFINISHED}")


def uses_of(snapshot: str) -> Uses | None:
    """What the snapshot in a directory was built with; None where it has no analyzers."""
    return _read(f"{snapshot}/{FILE_NAME}")


def unfinished_uses(root: str) -> Uses | None:
    """What an analysis has begun to make below a cache's directory; None where none is unfinished."""
    return _read(f"{root}/{DIRECTORY}/{UNFINISHED}")


def unused_places(root: str, uses: Iterable[Uses]) -> list[str]:
    """The accumulators and results below a cache's directory that are none of these."""
    used: set[str] = set()
    for each in uses:
        used |= each.places(root)
    storage, directory = storage_for(root), f"{root}/{DIRECTORY}"
    found = [f"{directory}/{RESULTS}/{name}" for name in storage.list(f"{directory}/{RESULTS}")]
    for digest in storage.list(f"{directory}/{ACCUMULATORS}"):
        above = f"{directory}/{ACCUMULATORS}/{digest}"
        found += [f"{above}/{name}" for name in storage.list(above)]
    return [place for place in found if place not in used]


def _read(path: str) -> Uses | None:
    try:
        value: dict[str, Any] = json.loads(storage_for(path).read_bytes(path))
        analyzers = {name: (each["digest"], each["parts"]) for name, each in value["analyzers"].items()}
        return Uses(analyzers=analyzers, shards=tuple(value["shards"]))
    except (CacheNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
