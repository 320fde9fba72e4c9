"""`take_sample`: runs part of the input through the stages, and estimates totals over all of it.

    shards of the plan ──▶ some shards, read whole ──▶ some batches of each, run and encoded
                                                       (or pieces of batches, where stages are slow)

The input is divided into as many equal stretches as shards are wanted, and one shard of each is taken at random. If the
files of a source belong to certain splits, the shards of each split are sampled separately. Two of them always go
through the stages, the others while there is time.

Totals are ratio estimates: what batches give per byte is extrapolated to their shard, and what shards give per stored
byte to the whole input. Large records count by their size, so skewed sizes do no harm. The interval comes from how much
the sampled shards differ in what they give per byte; where all shards are sampled, from how much their batches differ.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.reading import SourceBatch, graph_runner, shard_records, source_batch
from beam_pipes.building.shard_output import ShardOutput
from beam_pipes.building.shard_task import ShardTask
from beam_pipes.format.codec import codec_for
from beam_pipes.format.framing import FRAME_BYTES
from beam_pipes.format.index import column_dtype, column_names
from beam_pipes.sources.record_batch import RecordBatch

Vector = npt.NDArray[np.float64]

# With fewer, nothing is known about how much shards, or batches, differ.
_AT_LEAST = 2
# Batches of a shard that are held at once: 64 MiB.
_AT_MOST = 64
# Records that show how long one takes, after the first, which may load a model.
_PROBED = 4

# Wall-clock time and processor time; a stage that waits for a service takes little of the latter.
READ, SECS, CPU = "records read", "seconds", "CPU seconds"

# (shards done, shards of the sample, records that went through the stages)
Report = Callable[[int, int, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a sample: `bytes` of input to read, `records` to run through the stages, `secs` of wall time."""

    bytes: int
    records: int
    secs: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """What a sample says: quantity → (its total over the whole input, half of the interval around it)."""

    totals: Mapping[str, tuple[float, float]]
    num_shards: int
    num_records: int


@dataclasses.dataclass(frozen=True)
class _SampledShard:
    """Estimated totals of a shard and their variances; its size, and how much of that went through the stages, in how
    many pieces and records."""

    total: Vector
    variance: Vector
    size: int
    run_size: float
    pieces: int
    records: int


def take_sample(plan: BuildPlan, limits: Limits, *, seed: int, report: Report) -> Sample:
    """The sample of a plan within `limits`; raises what a build would raise."""
    rng = random.Random(seed)
    groups: dict[tuple[str, ...], list[ShardTask]] = {}
    for task in plan.tasks:
        groups.setdefault(tuple(splits_of(plan, task)), []).append(task)
    part = limits.bytes / max(1, plan.source.num_bytes)
    taken = {key: _taken(tasks, max(_AT_LEAST, round(len(tasks) * part)), rng) for key, tasks in groups.items()}
    # The first shards of all groups come before the second ones, so that none is left out when time runs out.
    order = sorted(((rank, key) for key in taken for rank in range(len(taken[key]))), key=lambda place: place[0])

    sampler = _ShardSampler(plan, rng)
    found: dict[tuple[str, ...], list[_SampledShard]] = {key: [] for key in groups}
    began, records = time.monotonic(), 0
    for done, (rank, key) in enumerate(order):
        left = began + limits.secs - time.monotonic()
        if rank >= _AT_LEAST and left <= 0:
            break
        shards_left = len(order) - done
        shard = sampler.sample(
            taken[key][rank], records=max(1, limits.records // len(order)), secs=max(0.0, left) / shards_left
        )
        found[key].append(shard)
        records += shard.records
        report(done + 1, len(order), records)

    total, variance, freedom = np.zeros(len(sampler.names)), np.zeros(len(sampler.names)), 0
    for key, tasks in groups.items():
        group_total, group_variance, group_freedom = _of_group(tasks, found[key])
        total, variance, freedom = total + group_total, variance + group_variance, freedom + group_freedom
    # About Student's quantile for 95 %: fewer than ten degrees of freedom need more than two standard errors.
    halves = (2 + 3 / max(1, freedom)) * np.sqrt(variance)
    return Sample(
        totals={name: (float(total[at]), float(halves[at])) for at, name in enumerate(sampler.names)},
        num_shards=sum(map(len, found.values())),
        num_records=records,
    )


def _taken(tasks: Sequence[ShardTask], count: int, rng: random.Random) -> list[ShardTask]:
    """One at random from each of `count` stretches of about equal length, in any order."""
    count = min(len(tasks), count)
    bounds = [round(number * len(tasks) / count) for number in range(count + 1)]
    taken = [tasks[rng.randrange(start, stop)] for start, stop in itertools.pairwise(bounds)]
    rng.shuffle(taken)
    return taken


def _of_group(tasks: Sequence[ShardTask], sampled: Sequence[_SampledShard]) -> tuple[Vector, Vector, int]:
    """The totals over `tasks`, their variances, and the degrees of freedom of those."""
    rows = np.array([shard.total for shard in sampled])
    if len(sampled) == len(tasks):
        variance = np.sum([shard.variance for shard in sampled], axis=0)
        return rows.sum(axis=0), variance, sum(shard.pieces - 1 for shard in sampled)
    sizes = np.array([shard.size for shard in sampled], dtype=np.float64)
    whole = sum(_shard_size(task) for task in tasks)
    return *_ratio(rows, sizes, whole, run=sum(shard.run_size for shard in sampled)), len(sampled) - 1


def _shard_size(task: ShardTask) -> int:
    """The weight of a shard: its stored bytes, plus one for sources that do not know them."""
    return task.shard.num_bytes + 1


def _ratio(rows: Vector, sizes: Vector, whole: float, *, run: float) -> tuple[Vector, Vector]:
    """The totals over things of size `whole`, from rows of some of them with these `sizes`; and their variances.

    `run` of that size went through the stages: if that is all of it, nothing is uncertain.
    """
    count = len(rows)
    if not sizes.sum():
        return np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    rate = rows.sum(axis=0) / sizes.sum()
    residuals = rows - np.outer(sizes, rate)
    unseen = max(0.0, 1 - run / whole)
    spread = unseen * count / max(1, count - 1) * (residuals**2).sum(axis=0)
    return rate * whole, spread * (whole / sizes.sum()) ** 2


class _ShardSampler:
    """Samples source shards of one plan, one after the other."""

    def __init__(self, plan: BuildPlan, rng: random.Random) -> None:
        self._declaration = plan.declaration
        self._header = plan.header
        self._rng = rng
        self.names = [READ, SECS, CPU, "bytes"]
        self.names += [f"{what} {split}" for split in plan.declaration.splits for what in ("records", "bytes")]
        self._runner = graph_runner(plan.declaration, plan.header.root)
        self._index_row_bytes = {split: self._row_bytes(split) for split in plan.declaration.splits}

    def sample(self, task: ShardTask, *, records: int, secs: float) -> _SampledShard:
        """Reads a shard whole, and runs batches of about `records` records, or as many as fit into `secs`."""
        kept: list[RecordBatch] = []
        batches = num_records = 0
        size = 0.0
        wanted = _AT_LEAST
        began, worked = time.perf_counter(), time.process_time()
        for batch in shard_records(self._declaration, task.shard):
            batches, num_records, size = batches + 1, num_records + batch.num_records, size + _size(batch)
            if batches == 1:
                wanted = min(_AT_MOST, max(_AT_LEAST, math.ceil(records / max(1, num_records))))
            # A reservoir (Vitter's algorithm R): every batch has the same chance, and few are held.
            if len(kept) < wanted:
                kept.append(batch)
            elif (at := self._rng.randrange(batches)) < len(kept):
                kept[at] = batch
        read_secs, read_cpu_secs = time.perf_counter() - began, time.process_time() - worked
        most = self._affordable(kept, began + secs)
        pieces = kept if most >= sum(batch.num_records for batch in kept) else _pieces(kept, most, self._rng)
        rows = self._run_all(task, pieces, until=began + secs)
        pieces = pieces[: len(rows)]
        sizes = np.array([_size(piece) for piece in pieces], dtype=np.float64)
        total, variance = _ratio(np.reshape(rows, (len(rows), len(self.names))), sizes, size, run=sizes.sum())
        total[self.names.index(READ)] = num_records
        variance[self.names.index(READ)] = 0.0
        total[self.names.index(SECS)] += read_secs
        total[self.names.index(CPU)] += read_cpu_secs
        run_size = _shard_size(task) * (float(sizes.sum()) / size if size else 1.0)
        run_records = sum(piece.num_records for piece in pieces)
        return _SampledShard(total, variance, _shard_size(task), run_size, len(pieces), run_records)

    def _affordable(self, kept: Sequence[RecordBatch], until: float) -> float:
        """How many records there is time for, judging by the first few; inf if that is more than there are."""
        if not kept:
            return math.inf
        secs, batch = 0.0, kept[0]
        first = batch.first_ordinal
        for count in (1, _PROBED):
            began = time.perf_counter()
            stop = min(first + count, first + batch.num_records)
            self._run(_copied(batch.cut(first, stop)))
            secs = (time.perf_counter() - began) / max(1, stop - first)
            if time.perf_counter() + _PROBED * secs > until:  # it is slow, regardless of loading time
                break
        left = max(0.0, until - time.perf_counter())
        return left / secs if secs else math.inf

    def _run_all(self, task: ShardTask, pieces: Sequence[RecordBatch], *, until: float) -> list[Vector]:
        """What each piece gives; ends when time runs out."""
        rows: list[Vector] = []
        with tempfile.TemporaryDirectory(prefix="beam-pipes-forecast-") as root:
            output = ShardOutput(self._declaration, dataclasses.replace(self._header, root=root), task)
            try:
                for sequence, piece in enumerate(pieces):
                    if sequence >= _AT_LEAST and time.perf_counter() > until:
                        break
                    rows.append(self._measure(output, piece, sequence))
            finally:
                output.abort()
        return rows

    def _run(self, records: RecordBatch) -> SourceBatch:
        batch = source_batch(self._declaration, records)
        for position in range(len(self._runner.units)):
            self._runner.run_unit(position, batch)
        return batch

    def _measure(self, output: ShardOutput, records: RecordBatch, sequence: int) -> Vector:
        began, worked = time.perf_counter(), time.process_time()
        part = output.encode(self._run(records), sequence)
        output.write(part)
        found: dict[str, float] = {READ: records.num_records, SECS: time.perf_counter() - began, "bytes": 0.0}
        found[CPU] = time.process_time() - worked
        for split, written in part.records.items():
            per_record = FRAME_BYTES + self._index_row_bytes[split]
            found[f"records {split}"] = len(written)
            found[f"bytes {split}"] = sum(len(payload) + per_record for payload, _, _ in written)
            found["bytes"] += found[f"bytes {split}"]
        return np.array([found.get(name, 0.0) for name in self.names])

    def _row_bytes(self, split: str) -> int:
        """Bytes of the index for each record of a split."""
        declaration = self._declaration
        codec = codec_for(
            declaration.kinds[split],
            spec=self._header.specs.get(split),
            proto=declaration.graph.output_type[split],
        )
        fixed = getattr(codec, "fixed_layout", None) is not None
        return sum(column_dtype(name).itemsize for name in column_names(codec.index_columns, fixed=fixed))


def _copied(records: RecordBatch) -> RecordBatch:
    """A copy if possible: stages may change values in place, and these records run again."""
    try:
        return copy.deepcopy(records)
    except Exception:  # whatever a user's own values raise
        return records


def splits_of(plan: BuildPlan, task: ShardTask) -> Sequence[str]:
    """The splits that a source shard has files for."""
    found = plan.declaration.source.splits_of(task.shard)
    return plan.declaration.splits if found is None else found


def _pieces(batches: Sequence[RecordBatch], most: float, rng: random.Random) -> list[RecordBatch]:
    """Runs of equal length from several batches: about `most` records in all, and at least two pieces."""
    each = max(1, int(most / max(_AT_LEAST, len(batches))))
    order = rng.sample(range(len(batches)), len(batches))
    places = [(at, start) for at in order for start in range(0, batches[at].num_records, each)]
    # First one random piece of each batch: these are far from each other.
    chosen = [rng.choice([place for place in places if place[0] == at]) for at in order]
    others = [place for place in places if place not in chosen]
    chosen += rng.sample(others, min(len(others), max(0, _AT_LEAST - len(chosen))))
    found = []
    for at, start in chosen:
        first = batches[at].first_ordinal + start
        found.append(batches[at].cut(first, min(first + each, batches[at].first_ordinal + batches[at].num_records)))
    return found


def _size(batch: RecordBatch) -> int:
    """The weight of a batch: its bytes, plus one for each record, because sources of objects have no bytes."""
    found = sum(len(batch.raw(at)) for at in range(len(batch.values))) + sum(len(row.raw) for row in batch.bad)
    return found + batch.num_records
