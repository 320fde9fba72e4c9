"""The fate of one source record, from the cache alone.

One source record, run through a declaration stage by stage, with everything that happens to it.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.plan import published_results
from beam_pipes.building.reading import SOURCE
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import Ref
from beam_pipes.engine.records import Batch, Failure, OneRecord
from beam_pipes.engine.statistics import Statistic
from beam_pipes.errors import UnknownRecordError
from beam_pipes.format.codec import codec_for
from beam_pipes.lineage.lineage import Fate
from beam_pipes.lineage.reader import DeadLetter, split_id
from beam_pipes.lineage.takedown import is_removed
from beam_pipes.publication.terms import Terms
from beam_pipes.sources.digests import DIGESTS_NAME, DigestCache
from beam_pipes.sources.source import SourcePlan, SourceShard


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRow:
    """A record of the cache: its index in the split, the shard that holds it, whether it is taken down."""

    split: str
    row: int
    shard: str
    position: int
    taken_down: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordReport:
    """The fate of a source record in one snapshot.

    `fate.status` is "written" (then `rows` are what it gave, in order of splits), "dropped" (`fate.drops` are the
    stages and reasons) or "dead" (`dead_letter` holds bytes, error and traceback, unless it is taken down).
    `terms` are what its source declares.
    """

    record_id: str
    snapshot: str
    source_shard: int
    ordinal: int
    fate: Fate
    rows: tuple[StoredRow, ...]
    dead_letter: DeadLetter | None
    terms: Terms = Terms()

    @property
    def status(self) -> str:
        return self.fate.status

    def to_json(self) -> dict[str, object]:
        """The report without the bytes of a dead letter."""
        fields = dataclasses.asdict(self)
        letter = self.dead_letter
        fields["fate"] = {"status": self.fate.status, "drops": [list(drop) for drop in self.fate.drops]}
        fields["dead_letter"] = letter and {
            name: getattr(letter, name) for name in ("stage", "error_type", "message", "traceback")
        }
        return fields


def explain_record(path: str | os.PathLike[str], record_id: str, *, snapshot: str | None = None) -> RecordReport:
    """The fate of the source record `file@position` in the published snapshot, or in another one.

        explain_record("demo", "plays/hamlet.txt@0").status  →  "dropped"

    Reads only the cache: the input may be gone.

    Raises:
        UnknownRecordError: no record of this id was read; the message names the nearest ones.
        CacheNotFoundError: nothing is published, or the snapshot was built without lineage.
    """
    cache = Cache.open(path, snapshot=snapshot)
    origin = cache.lineage.find(record_id)
    rows = []
    for name in cache.splits:
        split = cache[name]
        found = split.rows_of(origin.source_shard, np.array([origin.ordinal]))
        removed = is_removed(found, split.removed_rows)
        for row, taken_down in zip(found.tolist(), removed.tolist(), strict=True):
            shard, position = split.place_of(row)
            rows.append(StoredRow(split=name, row=row, shard=shard, position=position, taken_down=taken_down))
    letter = None
    if origin.fate.status == "dead":
        letter = next((each for each in cache.dead_letters() if f"{each.source}@{each.position}" == record_id), None)
    return RecordReport(
        record_id=record_id,
        snapshot=cache.manifest.snapshot,
        source_shard=origin.source_shard,
        ordinal=origin.ordinal,
        fate=origin.fate,
        rows=tuple(rows),
        dead_letter=letter,
        terms=cache.manifest.terms_of(origin.source_shard),
    )


WRITE = "write"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageTrace:
    """What one stage did with a record.

    `inputs` are its input lists by name (None: the only one), `outputs` what it gave, `drops` the reasons for which it
    gave nothing, `failure` what it raised. A stage that the record did not reach has no inputs.
    """

    name: str
    inputs: Mapping[str | None, tuple[object, ...]]
    outputs: Mapping[str | None, tuple[object, ...]]
    drops: tuple[str, ...] = ()
    statistics: tuple[Statistic, ...] = ()
    failure: Failure | None = None

    @property
    def reached(self) -> bool:
        """Whether any input reached it."""
        return self.failure is not None or any(map(len, self.inputs.values()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordTrace:
    """A record on its way: its bytes in the source, its value, each stage, and what would be written, by split."""

    record_id: str
    raw: bytes
    value: object
    stages: tuple[StageTrace, ...]
    written: Mapping[str, tuple[bytes, ...]]

    @property
    def failure(self) -> Failure | None:
        """What stopped the record, or None."""
        return next((stage.failure for stage in self.stages if stage.failure is not None), None)


def trace_record(
    declaration: Declaration, record_id: str, *, cache: str | os.PathLike[str] | None = None
) -> RecordTrace:
    """Runs the source record `file@position` through the declaration, with the random draws that a build would make.

    Failures are part of the trace, whatever `on_error` says. `cache`: a cache built from the same input, whose digests
    of input files save reading them all. Stages that hold analyzer results use those of that cache, which must then be
    built from this declaration.

    Raises `UnknownRecordError`, naming the nearest records, `SourceError` for input that cannot be read, and
    `AnalysisError` if a stage holds a result that is not there.
    """
    with published_results(declaration, cache):
        return _trace(declaration, record_id, cache)


def _trace(declaration: Declaration, record_id: str, cache: str | os.PathLike[str] | None) -> RecordTrace:
    value, raw, content, error = _find(declaration, record_id, cache)
    if error is not None:
        failure = Failure.of(error, stage=SOURCE, dropped=False)
        stage = StageTrace(name=SOURCE, inputs={None: (raw,)}, outputs={None: ()}, failure=failure)
        return RecordTrace(record_id=record_id, raw=raw, value=None, stages=(stage,), written={})
    graph = declaration.graph
    runner = GraphRunner(graph, seed=declaration.seed, on_error="dead_letter")
    batch = Batch(OneRecord(value, lambda: record_id, lambda: content))
    stages = []
    for runner_of_unit in runner.units:
        unit = runner_of_unit.unit
        refs = [(None, unit.inputs)] if isinstance(unit.inputs, Ref) else list(unit.inputs.items())
        inputs = {name: tuple(batch.column(ref)[0]) for name, ref in refs}
        failed_before = bool(batch.failures)
        runner_of_unit.run(batch)
        account = batch.account.unit(unit.name)
        stages.append(
            StageTrace(
                name=unit.name,
                inputs=inputs,
                outputs={ref.key: tuple(batch.column(ref)[0]) for ref in runner_of_unit.refs},
                drops=tuple(reason for name, reason in batch.drops.get(0, ()) if name == unit.name),
                statistics=tuple(account.statistics.values()),
                failure=None if failed_before else batch.failures.get(0),
            )
        )
    written: dict[str, tuple[bytes, ...]] = {}
    if not batch.failures:
        columns = {split: tuple(batch.column(ref)[0]) for split, ref in graph.outputs.items()}
        stages.append(_written(declaration, columns, written))
    return RecordTrace(record_id=record_id, raw=raw, value=value, stages=tuple(stages), written=written)


def _written(
    declaration: Declaration, columns: Mapping[str, tuple[object, ...]], written: dict[str, tuple[bytes, ...]]
) -> StageTrace:
    failure = None
    try:
        for split, values in columns.items():
            spec = declaration.declared_specs.get(split)
            if declaration.kinds[split] == "example" and spec is None:
                continue  # features are inferred from many records: a single one does not determine them
            codec = codec_for(declaration.kinds[split], spec=spec, proto=declaration.graph.output_type[split])
            written[split] = tuple(codec.encode(value) for value in values)
    except Exception as error:
        failure = Failure.of(error, stage=WRITE, dropped=False)
        written.clear()
    inputs: dict[str | None, tuple[object, ...]] = {split: values for split, values in columns.items()}
    return StageTrace(name=WRITE, inputs=inputs, outputs={} if failure else inputs, failure=failure)


def _find(
    declaration: Declaration, record_id: str, cache: str | os.PathLike[str] | None
) -> tuple[object, bytes, bytes, Exception | None]:
    """Value, bytes, what identifies the record, and the error of a record that cannot be parsed."""
    file, position = split_id(record_id)
    digests = None if cache is None else DigestCache.load(os.path.join(cache, DIGESTS_NAME))
    plan = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    nearest: list[int] = []
    for shard in _candidates(plan, file, position):
        for batch in declaration.source.read(shard):
            for index in range(len(batch)):
                if batch.file(index) == file:
                    found = batch.position(index)
                    if found == position:
                        return batch.values[index], batch.raw(index), batch.content(index), None
                    nearest = sorted([*nearest, found], key=lambda each: abs(each - position))[:2]
            for bad in batch.bad:
                if bad.record_id == record_id:
                    return None, bad.raw, b"", bad.error
    raise _unknown(record_id, file, plan, nearest)


def _candidates(plan: SourcePlan, file: str, position: int) -> list[SourceShard]:
    """The source shards that may hold the record, the likeliest first."""
    shards = [shard for shard in plan.shards if any(piece.file == file for piece in shard.slices)]
    return sorted(
        shards,
        key=lambda shard: (
            not any(
                piece.file == file and piece.start <= position < max(piece.end, piece.start + 1)
                for piece in shard.slices
            )
        ),
    )


def _unknown(record_id: str, file: str, plan: SourcePlan, nearest: list[int]) -> UnknownRecordError:
    files = {piece.file for shard in plan.shards for piece in shard.slices}
    near = [f"{file}@{each}" for each in sorted(nearest)]
    near = near or [f"{name}@0" for name in difflib.get_close_matches(file, files, n=3, cutoff=0.5)]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return UnknownRecordError(
        f"no source record has the id {record_id!r}; the input has {len(files)} files.{hint}",
        record=record_id,
        nearest=near,
    )
