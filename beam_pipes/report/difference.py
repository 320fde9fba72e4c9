"""What differs between two snapshots: declaration, schema, splits, counts of stages, and the data itself (drift).

The previously published snapshot, as named in the build record, and the differences from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from beam_pipes.building.declaration_fingerprint import explain_change, read_fingerprint
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.account import Account
from beam_pipes.errors import CacheNotFoundError
from beam_pipes.publication.manifest import SplitManifest
from beam_pipes.publication.terms import FIELDS
from beam_pipes.report.distributions import Drift, drifts


class Change(NamedTuple):
    """A field of something with its values before and after; None if it is missing."""

    where: str
    field: str
    before: object
    after: object


@dataclasses.dataclass(frozen=True, kw_only=True)
class SnapshotDifference:
    """What differs between the snapshots `before` and `after` (their ids).

    Args:
        same_data: their manifests are equal: a reader sees no difference.
        declaration: stage, or "declaration" → what changed in it; None if a fingerprint is missing.
        schema: changes of features; `where` is `split.feature`.
        splits: splits that were added or removed, and their records and bytes; and for "sources", what these declare.
        counts: counts of stages that are not the same; `field` is "inputs", "outputs", "dead" or "dropped REASON".
        drift: every quantity that both have, even if unchanged.
    """

    before: str
    after: str
    same_data: bool
    declaration: Mapping[str, list[str]] | None
    schema: tuple[Change, ...]
    splits: tuple[Change, ...]
    counts: tuple[Change, ...]
    drift: tuple[Drift, ...]

    @property
    def drifted(self) -> tuple[Drift, ...]:
        """The quantities whose drift is some or large, the largest first."""
        found = [drift for drift in self.drift if drift.verdict != "none"]
        return tuple(sorted(found, key=lambda drift: -drift.distance))

    def in_brief(self) -> list[str]:
        """A few words: `["schema: train.tokens", "large drift: train.tokens", "train: 500 → 700 records"]`."""
        brief = []
        features = dict.fromkeys(change.where for change in self.schema)
        if features:
            brief.append(f"schema: {', '.join(features)}")
        if self.declaration:
            brief.append(f"declaration: {', '.join(self.declaration)}")
        for verdict in ("large", "some"):
            names = [f"{drift.split}.{drift.name}" if drift.split else drift.name for drift in self.drifted]
            names = [name for name, drift in zip(names, self.drifted, strict=True) if drift.verdict == verdict]
            if names:
                brief.append(f"{verdict} drift: {', '.join(dict.fromkeys(names))}")
        records = [change for change in self.splits if change.field == "num_records"]
        brief += [f"{change.where}: {change.before or 0:,} → {change.after or 0:,} records" for change in records]
        return brief

    def to_json(self) -> dict[str, object]:
        return {
            "before": self.before,
            "after": self.after,
            "same_data": self.same_data,
            "declaration": None if self.declaration is None else dict(self.declaration),
            **{name: [each._asdict() for each in getattr(self, name)] for name in ("schema", "splits", "counts")},
            "drift": [drift.to_json() for drift in self.drift],
        }


def diff_caches(before: str | os.PathLike[str] | Cache, after: str | os.PathLike[str] | Cache) -> SnapshotDifference:
    """Compares two snapshots, given as open caches, cache directories or directories of snapshots.

        diff_caches("monday", "tuesday").schema
            →  (Change(where="train.tokens", field="dtype", before="uint16", after="uint32"),)

    Reads manifests and indices, and up to 1,000 records of each split. Raises what `Cache.open` raises.
    """
    old = before if isinstance(before, Cache) else Cache.open(before)
    new = after if isinstance(after, Cache) else Cache.open(after)
    first, second = read_fingerprint(old.directory), read_fingerprint(new.directory)
    changed = None
    if first is not None and second is not None:
        changed = {stage: lines for stage, lines in explain_change(first, second).items() if lines}
    return SnapshotDifference(
        before=old.manifest.snapshot,
        after=new.manifest.snapshot,
        same_data=old.manifest.id == new.manifest.id,
        declaration=changed,
        schema=tuple(_schema(old, new)),
        splits=tuple(_splits(old, new)),
        counts=tuple(_counts(old, new)),
        drift=tuple(drifts(old, new)),
    )


def _schema(old: Cache, new: Cache) -> Iterator[Change]:
    for split in sorted(old.manifest.splits.keys() & new.manifest.splits.keys()):
        first, second = _features(old.manifest.splits[split]), _features(new.manifest.splits[split])
        for name in sorted(first.keys() | second.keys()):
            where = f"{split}.{name}"
            if name not in first or name not in second:
                there = [None if name not in side else side[name].get("dtype") for side in (first, second)]
                yield Change(where, "feature", *there)
                continue
            for field in sorted(first[name].keys() | second[name].keys()):
                values = first[name].get(field), second[name].get(field)
                if values[0] != values[1]:
                    yield Change(where, field, *values)


def _features(split: SplitManifest) -> dict[str, dict[str, object]]:
    return {} if split.spec is None else {name: feature.to_json() for name, feature in split.spec.items()}


def _splits(old: Cache, new: Cache) -> Iterator[Change]:
    for name in sorted(old.manifest.splits.keys() | new.manifest.splits.keys()):
        first, second = old.manifest.splits.get(name), new.manifest.splits.get(name)
        for field in ("kind", "proto", "num_records", "num_bytes"):
            values = [None if side is None else getattr(side, field) for side in (first, second)]
            if values[0] != values[1]:
                yield Change(name, field, *values)
    for field in FIELDS:
        said = [[getattr(source.terms, field) for source in cache.manifest.sources] for cache in (old, new)]
        before, after = (", ".join(dict.fromkeys(filter(None, each))) or None for each in said)
        if before != after:
            yield Change("sources", field, before, after)


def _counts(old: Cache, new: Cache) -> Iterator[Change]:
    first, second = (
        Account.from_json(cache.manifest.accounting) if cache.manifest.accounting else Account() for cache in (old, new)
    )
    for name in dict.fromkeys([*first.units, *second.units]):
        sides = [_flat(side, name) for side in (first, second)]
        for field in dict.fromkeys([*sides[0], *sides[1]]):
            values = sides[0].get(field), sides[1].get(field)
            if values[0] != values[1]:
                yield Change(name, field, *values)


def _flat(account: Account, name: str) -> dict[str, int]:
    unit = account.units.get(name)
    if unit is None:
        return {}
    dropped = {f"dropped {reason}": count for reason, count in sorted(unit.dropped.items())}
    return {"inputs": unit.inputs, "outputs": unit.outputs, "dead": unit.dead, **dropped}


def difference_to_previous(cache: Cache, *, against: str | None = None) -> SnapshotDifference | None:
    """The differences from the snapshot that readers saw before; None for a first one, or if it has been collected
    since.

    `against` is the id of another snapshot of the same cache, which must exist.
    """
    if against is not None:
        return diff_caches(Cache.open(cache.path, snapshot=against), cache)
    previous = cache.build_info.get("previous")
    if not isinstance(previous, str) or previous == cache.manifest.snapshot:
        return None
    with contextlib.suppress(CacheNotFoundError):
        return diff_caches(Cache.open(cache.path, snapshot=previous), cache)
    return None
