"""`take_sample`: runs part of the input through the stages, and estimates totals over all of it, with variances.

    shards of the plan ──strata──▶ some shards of each, read whole ──▶ some batches of each, run and encoded
                                                                       (or pieces of batches, where stages are slow)

Source shards are put into *strata*: shards that go to the same splits and whose files have about the same size. Of
each stratum some shards are taken, one at random out of each of as many stretches of it (so that the end of the input
counts as its beginning does). Two of each stratum come first and the others while there is time; on several processes
as soon as it shows that the sample will take longer than they need to start.

Totals are ratio estimates: what a batch gives for each of its bytes stands for its shard, and what the shards of a
stratum give for each stored byte stands for the stratum. Large records count as much as they weigh, so skewed sizes do
no harm. Variances are the linearised ones of two-stage sampling (Cochran, Sampling Techniques, 3rd ed., 1977, 6.3,
10.3 and 11.7).
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.reading import SourceBatch, graph_runner, shard_records, source_batch
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_output import ShardOutput
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.building.workers.fork_server import run_tasks
from beam_pipes.building.workers.process import ended_by
from beam_pipes.cache.codec import codec_for
from beam_pipes.cache.framing import FRAME_BYTES
from beam_pipes.cache.index import column_dtype, column_names
from beam_pipes.errors import DeclarationError, WorkerDiedError
from beam_pipes.sources.record_batch import RecordBatch

Vector = npt.NDArray[np.float64]

# Below this no variance can be told within a stratum, or a shard.
_AT_LEAST = 2
# Batches of a shard that are held at a time: 64 MiB.
_AT_MOST = 64
# Records that tell how long one takes, after the first, which may load a model.
_PROBED = 4
# Processes take about this long to start: a sample that is taken sooner needs none.
_SOON_SECS = 1.0

# Time on the clock and of the processor; a stage that waits for a service takes little of the latter.
READ, SECS, CPU = "records read", "seconds", "CPU seconds"

# (shards done, shards of the sample, records that went through the stages)
Told = Callable[[int, int, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a sample: `bytes` of input to read, `records` to run through the stages, `secs` of wall
    time."""

    bytes: int
    records: int
    secs: float


@dataclasses.dataclass(frozen=True)
class SampledShard:
    """A shard of the sample: its stored bytes, its estimated totals, the variance of these, sampled pieces, records."""

    stored_bytes: int
    total: Vector
    variance: Vector
    pieces: int
    records: int


@dataclasses.dataclass(frozen=True)
class Sample:
    """Shards of each stratum that were sampled. Each quantity that is estimated has a place in vectors, by `names`."""

    names: Sequence[str]
    strata: Sequence[tuple[Sequence[ShardTask], Sequence[SampledShard]]]

    @property
    def num_shards(self) -> int:
        return sum(len(sampled) for _, sampled in self.strata)

    @property
    def num_records(self) -> int:
        return sum(shard.records for _, sampled in self.strata for shard in sampled)

    def totals(self) -> tuple[Vector, Vector, int]:
        """Totals over the whole input, their variances, and the degrees of freedom of these."""
        total, variance = np.zeros(len(self.names)), np.zeros(len(self.names))
        freedom = 0
        for tasks, sampled in self.strata:
            found, spread = _stratum(len(tasks), sum(task.shard.num_bytes for task in tasks), sampled)
            total += found
            variance += spread
            freedom += sum(shard.pieces - 1 for shard in sampled) + len(sampled) - 1
        return total, variance, max(1, freedom)


@dataclasses.dataclass(frozen=True)
class _Order:
    """A shard to be sampled: `rank` counts those of its stratum, `seed` draws its batches."""

    task: ShardTask
    stratum: int
    rank: int
    seed: int


def take_sample(plan: BuildPlan, limits: Limits, *, workers: int, seed: int, told: Told) -> Sample:
    """The sample of a plan within `limits`, on as many as `workers` processes; raises what a build would raise."""
    rng = random.Random(seed)
    strata = _strata(plan)
    taken = [_taken(tasks, _share(tasks, plan.source.num_bytes, limits.bytes), rng) for tasks in strata]
    orders = [
        _Order(task, stratum, rank, rng.getrandbits(64))
        for stratum, tasks in enumerate(taken)
        for rank, task in enumerate(tasks)
    ]
    orders.sort(key=lambda order: order.rank)
    records = max(1, limits.records // max(1, len(orders)))
    found: dict[tuple[int, int], SampledShard] = {}
    schedule = _Schedule(orders, limits.secs)

    def keep(order: _Order, shard: SampledShard) -> None:
        found[order.stratum, order.rank] = shard
        told(len(found), len(orders), sum(each.records for each in found.values()))

    sampler = ShardSampler(plan.declaration, plan.header)
    for order in schedule:
        keep(order, sampler.sample(order.task, records=records, secs=schedule.share(workers), seed=order.seed))
        if workers > 1 and schedule.elapsed() > _SOON_SECS and _in_processes(plan, schedule, records, workers, keep):
            break
    return Sample(
        quantities(plan.declaration.splits),
        [(tasks, [found[key] for key in sorted(found) if key[0] == stratum]) for stratum, tasks in enumerate(strata)],
    )


class _Schedule:
    """Which shard comes next, and how long it may take; optional shards are skipped when the time is over."""

    def __init__(self, orders: Sequence[_Order], secs: float) -> None:
        self._left = list(reversed(orders))
        self._began = time.monotonic()
        self._secs = secs

    def __iter__(self) -> Iterator[_Order]:
        return self

    def __next__(self) -> _Order:
        while self._left:
            order = self._left.pop()
            if order.rank < _AT_LEAST or self.elapsed() < self._secs:
                return order
        raise StopIteration

    def __len__(self) -> int:
        return len(self._left)

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def share(self, workers: int) -> float:
        """Seconds for the shard that was taken last, of `workers` that continue with the others."""
        return max(0.0, self._secs - self.elapsed()) * min(workers, len(self._left) + 1) / (len(self._left) + 1)


def _in_processes(
    plan: BuildPlan, schedule: _Schedule, records: int, workers: int, keep: Callable[[_Order, SampledShard], None]
) -> bool:
    """Samples the rest in worker processes; False if they cannot get the declaration, or nothing is left."""
    if len(schedule) < _AT_LEAST:
        return False
    handle = DeclarationHandle(plan.declaration)
    try:
        handle.require_portable()
    except DeclarationError:
        return False

    def heard(order: _Order, pid: int, kind: str, value: Any) -> None:
        if kind == "result":
            keep(order, value)

    run_tasks(
        schedule,
        workers=workers,
        imports=__name__,
        call=lambda order: (_sample, (handle, plan.header, order, records, schedule.share(workers))),
        heard=heard,
        died=_died,
    )
    return True


# What a worker process keeps between its tasks: resolving a declaration imports the user's modules.
_sampler: ShardSampler | None = None


def _sample(
    send: Callable[[object], None],
    handle: DeclarationHandle,
    header: BuildHeader,
    order: _Order,
    records: int,
    secs: float,
) -> SampledShard:
    """In the worker."""
    global _sampler
    if _sampler is None:
        _sampler = ShardSampler(handle.get(), header)
    return _sampler.sample(order.task, records=records, secs=secs, seed=order.seed)


def _died(order: _Order, code: int) -> WorkerDiedError:
    return WorkerDiedError(
        f"a worker died ({ended_by(code)}) while it tried records of source shard {order.task.index} for the forecast. "
        "A build would lose a worker too: give records limits (record_memory_bytes, record_timeout_secs), or plan with "
        "--no-forecast.",
        shard=order.task.index,
        exit_code=code,
    )


class ShardSampler:
    """Samples source shards of one declaration, one after the other, in this process."""

    def __init__(self, declaration: Declaration, header: BuildHeader) -> None:
        self._declaration = declaration
        self._header = header
        self._names = quantities(declaration.splits)
        self._runner = graph_runner(declaration)
        self._index_row_bytes = {split: self._row_bytes(split) for split in declaration.splits}

    def sample(self, task: ShardTask, *, records: int, secs: float, seed: int) -> SampledShard:
        """Reads a shard whole, and runs batches of about `records` records, or as many as `secs` allow."""
        rng = random.Random(seed)
        kept: list[tuple[int, RecordBatch]] = []
        batches = num_records = num_bytes = 0
        wanted = _AT_LEAST
        began, worked = time.perf_counter(), time.process_time()
        for batch in shard_records(self._declaration, task.shard):
            size = _raw_bytes(batch)
            batches, num_records, num_bytes = batches + 1, num_records + batch.num_records, num_bytes + size
            if batches == 1:
                wanted = min(_AT_MOST, max(_AT_LEAST, math.ceil(records / max(1, num_records))))
            # A reservoir (Vitter's algorithm R): every batch has the same chance, and few are held.
            if len(kept) < wanted:
                kept.append((size, batch))
            elif (at := rng.randrange(batches)) < len(kept):
                kept[at] = (size, batch)
        read_secs, read_cpu_secs = time.perf_counter() - began, time.process_time() - worked
        pieces = kept
        whole = batches
        most = self._affordable(kept, began + secs)
        if most < sum(batch.num_records for _, batch in kept):
            pieces = _pieces([batch for _, batch in kept], most, rng)
            whole = max(len(pieces), round(num_records / max(1, pieces[0][1].num_records)))
        rows, sizes, run = self._run_all(task, pieces, until=began + secs)
        total, variance = _ratio(rows, sizes, num_bytes, whole)
        total[self._names.index(READ)] = num_records
        variance[self._names.index(READ)] = 0.0
        total[self._names.index(SECS)] += read_secs
        total[self._names.index(CPU)] += read_cpu_secs
        return SampledShard(task.shard.num_bytes, total, variance, len(rows), run)

    def _affordable(self, kept: Sequence[tuple[int, RecordBatch]], until: float) -> float:
        """How many records the time allows, by the first few; inf if that is more than there are."""
        if not kept:
            return math.inf
        secs, batch = 0.0, kept[0][1]
        first = batch.first_ordinal
        for count in (1, _PROBED):
            began = time.perf_counter()
            stop = min(first + count, first + batch.num_records)
            self._run(_copied(batch.cut(first, stop)))
            secs = (time.perf_counter() - began) / max(1, stop - first)
            if time.perf_counter() + _PROBED * secs > until:  # it is slow, however long it took to load
                break
        left = max(0.0, until - time.perf_counter())
        return left / secs if secs else math.inf

    def _run_all(
        self, task: ShardTask, pieces: Sequence[tuple[int, RecordBatch]], *, until: float
    ) -> tuple[Vector, Vector, int]:
        """What each piece gives, its size, and the number of records in all; ends when the time is over."""
        rows: list[Vector] = []
        records = 0
        with tempfile.TemporaryDirectory(prefix="beam-pipes-forecast-") as root:
            output = ShardOutput(self._declaration, dataclasses.replace(self._header, root=root), task)
            try:
                for sequence, (_, piece) in enumerate(pieces):
                    if sequence >= _AT_LEAST and time.perf_counter() > until:
                        break
                    rows.append(self._measure(output, piece, sequence))
                    records += piece.num_records
            finally:
                output.abort()
        sizes = np.array([size for size, _ in pieces[: len(rows)]], dtype=np.float64)
        return np.array(rows).reshape(len(rows), len(self._names)), sizes, records

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
        return np.array([found.get(name, 0.0) for name in self._names])

    def _row_bytes(self, split: str) -> int:
        """Bytes of the index for each record of a split."""
        declaration = self._declaration
        codec = codec_for(
            declaration.kind(split),
            spec=self._header.specs.get(split),
            proto=declaration.graph.output_type[split],
        )
        fixed = getattr(codec, "fixed_layout", None) is not None
        return sum(column_dtype(name).itemsize for name in column_names(codec.index_columns, fixed=fixed))


def _copied(records: RecordBatch) -> RecordBatch:
    """Stages may change values in place, and these records run again; what cannot be copied is passed as it is."""
    try:
        return copy.deepcopy(records)
    except Exception:  # whatever values of somebody's own raise
        return records


def quantities(splits: Sequence[str]) -> list[str]:
    """What is estimated."""
    return [READ, SECS, CPU, "bytes", *(f"{what} {split}" for split in splits for what in ("records", "bytes"))]


def splits_of(plan: BuildPlan, task: ShardTask) -> Sequence[str]:
    """The splits that a source shard has files for."""
    found = plan.declaration.source.splits_of(task.shard)
    return plan.declaration.splits if found is None else found


def _strata(plan: BuildPlan) -> list[list[ShardTask]]:
    """Shards by their splits and the size of their files (in powers of four), in the order of the input."""
    groups: dict[tuple[tuple[str, ...], int], list[ShardTask]] = {}
    for task in plan.tasks:
        mean = task.shard.num_bytes / max(1, len(task.shard.slices))
        key = (tuple(splits_of(plan, task)), int(math.log(max(1.0, mean), 4)))
        groups.setdefault(key, []).append(task)
    return [groups[key] for key in sorted(groups)]


def _share(tasks: Sequence[ShardTask], whole: int, sample_bytes: int) -> int:
    """How many shards of a stratum to take: the same part of each stratum, and a few at least."""
    return min(len(tasks), max(_AT_LEAST, round(len(tasks) * sample_bytes / max(1, whole))))


def _taken(tasks: Sequence[ShardTask], count: int, rng: random.Random) -> list[ShardTask]:
    """One at random out of each of `count` stretches of about equal length."""
    bounds = [round(number * len(tasks) / count) for number in range(count + 1)] if count else []
    return [tasks[rng.randrange(start, stop)] for start, stop in itertools.pairwise(bounds)]


def _pieces(batches: Sequence[RecordBatch], most: float, rng: random.Random) -> list[tuple[int, RecordBatch]]:
    """Runs of equal length of records, out of several batches: about `most` records in all, and two pieces at least."""
    each = max(1, int(most / max(_AT_LEAST, len(batches))))
    order = rng.sample(range(len(batches)), len(batches))
    places = [(at, start) for at in order for start in range(0, batches[at].num_records, each)]
    # First one piece of each batch, at random: they lie far from each other.
    chosen = [rng.choice([place for place in places if place[0] == at]) for at in order]
    others = [place for place in places if place not in chosen]
    chosen += rng.sample(others, min(len(others), max(0, _AT_LEAST - len(chosen))))
    found = []
    for at, start in chosen:
        first = batches[at].first_ordinal + start
        piece = batches[at].cut(first, min(first + each, batches[at].first_ordinal + batches[at].num_records))
        found.append((_raw_bytes(piece), piece))
    return found


def _raw_bytes(batch: RecordBatch) -> int:
    return sum(len(batch.raw(at)) for at in range(len(batch.values))) + sum(len(row.raw) for row in batch.bad)


def _ratio(rows: Vector, sizes: Vector, whole_size: int, whole_count: int) -> tuple[Vector, Vector]:
    """The total over `whole_count` things of `whole_size` together, from a sample of them; and its variance."""
    count = len(rows)
    if not count:
        return np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    if not sizes.sum():  # nothing to weigh by: every one counts the same
        sizes, whole_size = np.ones(count), whole_count
    rate = rows.sum(axis=0) / sizes.sum()
    spread = np.zeros(rows.shape[1])
    if 1 < count < whole_count:
        residuals = rows - np.outer(sizes, rate)
        spread = whole_count**2 * (1 - count / whole_count) / count * (residuals**2).sum(axis=0) / (count - 1)
    return rate * whole_size, spread


def _stratum(num_shards: int, stored_bytes: int, sampled: Sequence[SampledShard]) -> tuple[Vector, Vector]:
    rows = np.array([shard.total for shard in sampled])
    sizes = np.array([shard.stored_bytes for shard in sampled], dtype=np.float64)
    total, variance = _ratio(rows, sizes, stored_bytes, num_shards)
    return total, variance + num_shards / len(sampled) * np.sum([shard.variance for shard in sampled], axis=0)
