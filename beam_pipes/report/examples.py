"""A few decoded records of a split, with their source records if these are available.

Source records by id, read again from the input without running any stage.
"""

from __future__ import annotations

import dataclasses
import html
import os
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from beam_pipes.building.care.trace import trace_record
from beam_pipes.building.declaration import Declaration
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.errors import BeamPipesError
from beam_pipes.lineage.reader import split_id
from beam_pipes.publication.publish import REPORT
from beam_pipes.report.shown import shown_bytes, shown_value
from beam_pipes.sources.digests import DIGESTS_NAME, DigestCache
from beam_pipes.sources.source import SourceShard
from beam_pipes.storage.local import storage_for

MAX_FEATURES = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageOutput:
    """The output of a stage for the source record."""

    stage: str
    value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodedExample:
    """A record of the cache as features with their values.

    `before` is its source record and `stages` the output of each stage for it, if requested.
    """

    row: int
    record_id: str | None
    features: tuple[tuple[str, str], ...]
    before: str | None = None
    stages: tuple[StageOutput, ...] = ()


def decoded_examples(
    cache: Cache, split: str, *, count: int = 3, declaration: Declaration | None = None, run_stages: bool = True
) -> list[DecodedExample]:
    """`count` records, spread evenly over a split and not taken down.

    With the declaration, their source records are read again; with `run_stages`, each is run stage by stage. Without it
    they come from the report beside the snapshot, if there is one.
    """
    opened = cache[split]
    rows = np.setdiff1d(np.arange(len(opened)), opened.removed_rows) if len(opened.removed_rows) else None
    available = len(opened) if rows is None else len(rows)
    if not available:
        return []
    chosen = np.unique(np.linspace(0, available - 1, min(count, available), dtype=np.int64))
    chosen_rows = (chosen if rows is None else rows[chosen]).tolist()
    ids = {row: _record_id(opened, row) for row in chosen_rows}
    found: dict[str, str] = {}
    if declaration is None:
        found = sources_shown(cache)
    elif not run_stages:
        found = _sources(cache, declaration, [each for each in ids.values() if each is not None])
    made = []
    for row, record_id in ids.items():
        before: str | None = found.get(record_id or "")
        stages: tuple[StageOutput, ...] = ()
        if declaration is not None and run_stages:
            before, stages = _way(cache, declaration, record_id)
        made.append(
            DecodedExample(
                row=row,
                record_id=record_id,
                features=tuple(_features(opened, row)),
                before=before,
                stages=stages,
            )
        )
    return made


def _sources(cache: Cache, declaration: Declaration, record_ids: list[str]) -> dict[str, str]:
    try:
        found = source_records(declaration, record_ids, cache=cache.path)
    except BeamPipesError as error:  # the input has changed or is gone since
        return dict.fromkeys(record_ids, f"(not at hand: {error})"[:300])
    return {
        record_id: shown_bytes(found[record_id]) if record_id in found else "(not at hand: it is not in the input now)"
        for record_id in record_ids
    }


# A source record on the page, see report.html.j2.
_SHOWN = re.compile('<td class="value" data-record="([^"]*)">([^<]*)</td>')


def sources_shown(cache: Cache) -> dict[str, str]:
    """Record id → source record, from the report beside the snapshot: a new report shows them too."""
    path = os.path.join(cache.directory, REPORT)
    storage = storage_for(path)
    if not storage.exists(path):
        return {}
    page = storage.read_bytes(path).decode("utf-8", errors="replace")
    return {html.unescape(record_id): html.unescape(before) for record_id, before in _SHOWN.findall(page)}


def _features(opened: Split, row: int) -> list[tuple[str, str]]:
    if opened.kind == "example":
        items = list(opened[row].items())
        shown = [(name, shown_value(value)) for name, value in items[:MAX_FEATURES]]
        return shown if len(items) <= MAX_FEATURES else [*shown, ("…", f"{len(items) - MAX_FEATURES} more features")]
    try:
        value = opened[row]
    except BeamPipesError:  # the class of a message is not imported here
        value = opened.record_bytes(row)
    return [("record", shown_value(value if isinstance(value, bytes) else str(value)))]


def _record_id(opened: Split, row: int) -> str | None:
    try:
        return str(opened.record_ids([row])[0])
    except BeamPipesError:  # built without lineage
        return None


def _way(cache: Cache, declaration: Declaration, record_id: str | None) -> tuple[str | None, tuple[StageOutput, ...]]:
    if record_id is None:
        return None, ()
    try:
        trace = trace_record(declaration, record_id, cache=cache.path)
    except BeamPipesError as error:  # the input has changed or is gone since
        return f"(not at hand: {error})"[:300], ()
    stages = []
    for stage in trace.stages:
        if stage.reached and stage.name != "write":
            values = [shown_value(value, max_characters=200) for column in stage.outputs.values() for value in column]
            more = f" (and {len(values) - 2} more)" if len(values) > 2 else ""
            given = "\n".join(values[:2]) + more if values else "nothing"
            if stage.failure is not None:
                given = f"failed: {stage.failure.error_type}: {stage.failure.message}"[:300]
            stages.append(StageOutput(stage=stage.name, value=given))
    return shown_bytes(trace.raw), tuple(stages)


def source_records(
    declaration: Declaration, record_ids: Iterable[str], *, cache: str | os.PathLike[str] | None = None
) -> dict[str, bytes]:
    """Record id → the bytes of the record in the source; an id that is not found is left out.

        source_records(declaration, ["a.txt@14"])  →  {"a.txt@14": b"to be"}

    Each source shard that may hold one is read once, and only as far as needed. `cache`: a cache built from the same
    input, whose digests of input files save reading them all. Raises `SourceError` for input that cannot be
    read.
    """
    wanted = {split_id(record_id) for record_id in record_ids}
    digests = None if cache is None else DigestCache.load(os.path.join(cache, DIGESTS_NAME))
    plan = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    slices = Counter(piece.file for shard in plan.shards for piece in shard.slices)
    found: dict[str, bytes] = {}
    for shard in plan.shards:
        here = {(file, position) for file, position in wanted if _may_hold(shard, file, position, slices[file])}
        if here:
            found |= _read(declaration, shard, here)
    return found


def _may_hold(shard: SourceShard, file: str, position: int, num_slices: int) -> bool:
    # A file that is read whole may be compressed: positions refer to its content.
    return any(
        piece.file == file and (num_slices == 1 or piece.start <= position < piece.end) for piece in shard.slices
    )


def _read(declaration: Declaration, shard: SourceShard, wanted: set[tuple[str, int]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for batch in declaration.source.read(shard):
        ordinal = batch.first_ordinal
        for file, positions in batch.places():
            for position in {position for name, position in wanted if name == file}.intersection(positions):
                at = ordinal + positions.index(position)
                if at in batch.ordinals:
                    found[f"{file}@{position}"] = batch.raw(batch.ordinals.index(at))
            ordinal += len(positions)
        if len(found) == len(wanted):
            break
    return found
