"""Columns beside shards: a feature more for every record of a cache, without writing a shard again.

    add_column("score", "cache", score)                        cache/columns/score: a value for every record
    Loader(with_columns("cache/train", "score").where("score > 0.5"), batch_size=32)

A column is a cache of its own, built by any runner from the records of a snapshot: killed builds continue, unchanged
shards are not read again, and its manifest says of which records it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, overload

import numpy as np

from beam_pipes.building.expectation import expect
from beam_pipes.building.plan import SOURCE_FINGERPRINT, source_fingerprint
from beam_pipes.cache.joined import COLUMNS, joined
from beam_pipes.cache.reader import Cache, open_split
from beam_pipes.cache.split import Split
from beam_pipes.errors import CacheError, CacheNotFoundError, DeclarationError
from beam_pipes.face import build, declare
from beam_pipes.publication.publish import SNAPSHOTS
from beam_pipes.sources.cached import CachedRecords
from beam_pipes.sources.source import SplitSources
from beam_pipes.storage.local import directory_path, storage_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_pipes.building import Declaration
    from beam_pipes.cache import FeatureSpec
    from beam_pipes.face import DeclareOptions, Stages
    from beam_pipes.runners.build import BuildResult
    from beam_pipes.runners.options import BeamOptions, LocalOptions


def column_path(name: str, cache: str | os.PathLike[str]) -> str:
    """The cache of a column: `column_path("score", "cache")` → `/home/me/cache/columns/score`."""
    return f"{directory_path(cache)}/{COLUMNS}/{name}"


def column(
    name: str,
    cache: str | os.PathLike[str],
    stages: Stages,
    *,
    feature: FeatureSpec | None = None,
    **declaring: Unpack[DeclareOptions],
) -> Declaration:
    """The declaration of a column of the snapshot that `cache` has now, for the command line and for other runners.

        declaration = column("score", "cache", score)

    `beam-pipes build scores:declaration --to cache/columns/score` builds it. Arguments as for `add_column`.
    """
    if isinstance(cache, Cache):
        raise DeclarationError(
            f"column {name!r}: a column is stored in the directory of a cache, and {cache!r} is an open one. Pass its "
            f"path, {cache.path!r}."
        )
    opened = Cache.open(cache)
    sources = {split: CachedRecords(opened.path, split, opened.manifest.snapshot) for split in opened.splits}
    for split in opened.splits:
        if name in opened[split].spec:
            raise DeclarationError(
                f"column {name!r}: the split {split!r} of {opened.path!r} has a feature of this name. Choose another."
            )
    counts = [f"{split} records between {len(opened[split])} and {len(opened[split])}" for split in opened.splits]
    declaring["expectations"] = (*declaring.get("expectations", ()), *map(expect, counts))
    if feature is not None:
        declaring["features"] = {name: feature}
    return declare(name, sources, stages, **declaring)


def add_column(
    name: str,
    cache: str | os.PathLike[str],
    stages: Stages,
    *,
    feature: FeatureSpec | None = None,
    options: LocalOptions | BeamOptions | None = None,
    workers: int | None = None,
    **declaring: Unpack[DeclareOptions],
) -> BuildResult:
    """Computes a feature for every record of a cache, and stores it beside the shards, which stay as they are.

        @stage
        def score(record: dict) -> dict:
            return {"score": np.float32(len(record["tokens"]))}

        add_column("score", "cache", score)
        with_columns("cache/train", "score")[0]  →  {"tokens": array([…]), "score": 812.0}

    When the cache has a new snapshot, call it again: shards that were there before are not read again. Until then the
    new snapshot has no such column, and the older one keeps it.

    Args:
        name: of the feature, and of its directory below `cache/columns`.
        cache: the directory of the cache, local or on an object store.
        stages: as in `build`; they get a record as a dict, and give a dict with `name` alone for each.
        feature: its type and shape; inferred if left out.
        options, workers: the runner, as in `build`.
        declaring: further options of `declare`, such as `on_error`.

    Raises:
        DeclarationError: the cache has a feature of this name.
        ExpectationError: a stage gave more or fewer values than there are records; nothing is published then.
    """
    declared = column(name, cache, stages, feature=feature, **declaring)
    return build(declared, to=column_path(name, cache), options=options, workers=workers)


@overload
def with_columns(records: Cache, /, *names: str) -> Cache: ...


@overload
def with_columns(records: Split | str | os.PathLike[str], /, *names: str) -> Split: ...


def with_columns(records: Cache | Split | str | os.PathLike[str], /, *names: str) -> Cache | Split:
    """A split with columns that `add_column` has stored: `with_columns("cache/train", "score")`.

    It can be used wherever a split can: `where("score > 0.5")`, `Loader`, `pack`, `Windows`, `Mixture`. Its order,
    its states and its packing plans are those of the split without columns. Of a `Cache` it gives one whose splits have
    them: `export(with_columns(Cache.open("cache"), "score"), …)`.

    Raises:
        CacheNotFoundError: there is no such column.
        CacheError: the column was computed for other records: of another snapshot, or by a stage that did not give
            one value for each record.
    """
    if isinstance(records, Cache):
        return records.replacing({name: with_columns(records[name], *names) for name in records.splits})
    split = records if isinstance(records, Split) else open_split(records)
    return joined(split, {name: _column(name, split) for name in names})


def _column(name: str, records: Split) -> Split:
    path = column_path(name, records.path)
    wanted, found = _source_fingerprint(records), False
    for cache in _snapshots(path):
        found = True
        if cache.manifest.fingerprints.get(SOURCE_FINGERPRINT) == wanted:
            break
    else:
        call = f"add_column({name!r}, {records.path!r}, stage)"
        if not found:
            raise CacheNotFoundError(
                f"{records!r} has no column {name!r}: expected its cache in {path}. Compute it: {call}.", path=path
            )
        raise CacheError(
            f"the column {name!r} in {path} was computed for another snapshot than {records.snapshot}. Compute it for "
            f"this one: {call} reads only shards that are new.",
            path=path,
        )
    column = cache[records.name]
    ends = np.cumsum(column.shard_sizes)
    expected = np.arange(len(column), dtype=np.uint64)
    expected -= np.repeat(ends - column.shard_sizes, column.shard_sizes).astype(np.uint64)
    if not np.array_equal(column.source_ordinals, expected):
        raise CacheError(
            f"the column {name!r} in {path} has several values for some records and none for others. A stage has to "
            "give one value for each record: mend it, and compute the column again.",
            path=path,
        )
    return column


def _snapshots(path: str) -> Iterator[Cache]:
    """The snapshots of a column, the published one first."""
    with contextlib.suppress(CacheNotFoundError):
        yield Cache.open(path)
        for snapshot in storage_for(path).list(f"{path}/{SNAPSHOTS}"):
            with contextlib.suppress(CacheNotFoundError):  # it was not published
                yield Cache.open(path, snapshot=snapshot)


def _source_fingerprint(records: Split) -> str:
    """What the manifest of a column says of the snapshot that `records` are of."""
    cache = Cache.open(records.path, snapshot=records.snapshot)
    source = SplitSources({split: CachedRecords(cache.path, split, records.snapshot) for split in cache.splits})
    return source_fingerprint(source.plan(target_shard_bytes=1))
