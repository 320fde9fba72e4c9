"""`forecast_build`: records, bytes and worker-hours of a build, from a stratified sample of its input, with error bars.

Two stages. Source shards are put into *strata*: shards that go to the same splits and whose files have about the same
size. Of each stratum some shards are taken, one at random out of each of as many stretches of it (so that the end of
the input counts as its beginning does), and read whole. Of a shard that is read, a random sample of batches goes
through the stages and the encoder.

Totals are ratio estimates: what a batch gives for each of its bytes stands for its shard, and what the shards of a
stratum give for each stored byte stands for the stratum. Large records count as much as they weigh, so skewed sizes do
no harm. Variances are the linearised ones of two-stage sampling (Cochran, Sampling Techniques, 3rd ed., 1977, 6.3,
10.3 and 11.7); intervals are Student's, at 95 %.

`SavedPlan`: a plan as a small file, which a later build is held to.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import DeclarationFingerprint, explain_change
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.reading import graph_runner, shard_records, source_batch
from beam_pipes.building.shard_output import ShardOutput
from beam_pipes.building.shard_task import ShardTask
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.codec import codec_for
from beam_pipes.cache.framing import FRAME_BYTES
from beam_pipes.cache.index import column_dtype, column_names
from beam_pipes.cache.storage import is_remote
from beam_pipes.errors import CacheWriteError, PlanError, StalePlanError
from beam_pipes.sources.record_batch import RecordBatch

Vector = np.ndarray[Any, np.dtype[np.float64]]

# Eight shards of the usual size: they are read in a few seconds.
DEFAULT_SAMPLE_BYTES = 256 << 20
DEFAULT_SAMPLE_RECORDS = 16_384
# Below this no variance can be told within a stratum, or a shard.
_AT_LEAST = 2
# Batches of a shard that are held at a time: 64 MiB.
_AT_MOST = 64

_READ, _SECS = "records read", "seconds"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A total: with a probability of 95 % it lies within `value ± error`."""

    value: float
    error: float

    def to_json(self) -> dict[str, float]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        share = f" ± {self.error / self.value:.0%}" if self.value else ""
        return f"{self.value:,.0f}{share}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a whole build will read and write.

    `records` by split, `output_bytes` by split (shards and their indices), `shards` by split (exact). `worker_secs` is
    the time of one core of this machine for the shards that are left to be built; `worker_hours` the same in hours.
    `sampled_records` of `sampled_shards` went through the stages.
    """

    records_read: Estimate
    records: Mapping[str, Estimate]
    output_bytes: Mapping[str, Estimate]
    total_output_bytes: Estimate
    shards: Mapping[str, int]
    worker_secs: Estimate
    sampled_shards: int
    sampled_records: int

    @property
    def worker_hours(self) -> Estimate:
        return Estimate(value=self.worker_secs.value / 3600, error=self.worker_secs.error / 3600)

    def to_json(self) -> dict[str, Any]:
        return {
            "records_read": self.records_read.to_json(),
            "records": {split: estimate.to_json() for split, estimate in self.records.items()},
            "output_bytes": {split: estimate.to_json() for split, estimate in self.output_bytes.items()},
            "total_output_bytes": self.total_output_bytes.to_json(),
            "shards": dict(self.shards),
            "worker_hours": self.worker_hours.to_json(),
            "sampled_shards": self.sampled_shards,
            "sampled_records": self.sampled_records,
        }

    def lines(self) -> list[str]:
        """The forecast for people."""
        told = [
            f"forecast from {self.sampled_records:,} records of {self.sampled_shards} source shards "
            f"(± at 95 %): {self.records_read} records read"
        ]
        for split, records in self.records.items():
            told.append(
                f"  {split}: {records} records, {_bytes(self.output_bytes[split])} in {self.shards[split]:,} shards"
            )
        hours = self.worker_hours
        share = f" ± {hours.error / hours.value:.0%}" if hours.value else ""
        told.append(f"  left to do: {hours.value:.3g}{share} hours of one core as fast as this one")
        return told


def forecast_build(
    plan: BuildPlan,
    *,
    sample_bytes: int = DEFAULT_SAMPLE_BYTES,
    sample_records: int = DEFAULT_SAMPLE_RECORDS,
    seed: int = 0,
) -> Forecast:
    """A forecast of the build that `plan` plans; reads about `sample_bytes` of input, writes nothing that stays.

    At least two shards of each stratum are read, and at least two batches of each of them go through the stages, so
    very small limits are exceeded. The same plan and seed take the same sample.

    Raises what a build would raise for a record of the sample: `StageError` where `on_error` is "fail".
    """
    sample = _Sample(plan, sample_bytes=sample_bytes, sample_records=sample_records, rng=random.Random(seed))
    total, variance, freedom = sample.totals()
    quantile = _student(freedom)

    def estimate(name: str, share: float = 1.0) -> Estimate:
        at = sample.names.index(name)
        return Estimate(value=float(total[at]) * share, error=quantile * math.sqrt(float(variance[at])) * share)

    splits = plan.declaration.splits
    left = {task.index for task in plan.tasks_left()}
    bytes_left = sum(task.shard.num_bytes for task in plan.tasks if task.index in left)
    whole = plan.source.num_bytes
    return Forecast(
        records_read=estimate(_READ),
        records={split: estimate(f"records {split}") for split in splits},
        output_bytes={split: estimate(f"bytes {split}") for split in splits},
        total_output_bytes=estimate("bytes"),
        shards={split: sum(split in splits_of(plan, task) for task in plan.tasks) for split in splits},
        worker_secs=estimate(_SECS, bytes_left / whole if whole else 0.0),
        sampled_shards=sample.num_shards,
        sampled_records=sample.num_records,
    )


def require_room(plan: BuildPlan, forecast: Forecast) -> None:
    """Raises `CacheWriteError` where the disk of a local cache has less room than the forecast says at the least."""
    if is_remote(plan.path):
        return
    above = Path(plan.path).absolute()
    while not above.is_dir():
        above = above.parent
    free = shutil.disk_usage(above).free
    wanted = forecast.total_output_bytes
    if wanted.value - wanted.error > free:
        raise CacheWriteError(
            f"the cache {plan.path!r} will take {_bytes(wanted)}, and there are {free / 1e9:,.1f} GB free. Free or "
            "add space, or build to another directory.",
            path=plan.path,
        )


def splits_of(plan: BuildPlan, task: ShardTask) -> Sequence[str]:
    """The splits that a source shard has files for."""
    found = plan.declaration.source.splits_of(task.shard)
    return plan.declaration.splits if found is None else found


@dataclasses.dataclass(frozen=True)
class _Shard:
    """A shard of the sample: its stored bytes, its estimated totals, the variance of these, sampled batches."""

    stored_bytes: int
    total: Vector
    variance: Vector
    batches: int


class _Sample:
    """The sample of one forecast. Each quantity that is estimated has a place in vectors, named by `names`."""

    def __init__(self, plan: BuildPlan, *, sample_bytes: int, sample_records: int, rng: random.Random) -> None:
        self._plan = plan
        self._declaration: Declaration = plan.declaration
        splits = plan.declaration.splits
        self.names = [_READ, _SECS, "bytes", *(f"{what} {split}" for split in splits for what in ("records", "bytes"))]
        self.num_records = 0
        self._runner = graph_runner(plan.declaration)
        self._index_row_bytes = {split: self._row_bytes(split) for split in splits}
        self._rng = rng
        strata = _strata(plan)
        taken = [_taken(tasks, _share(tasks, plan.source.num_bytes, sample_bytes), rng) for tasks in strata]
        self.num_shards = sum(map(len, taken))
        each = max(1, sample_records // max(1, self.num_shards))
        self._strata = [
            (tasks, [self._shard(task, each) for task in some]) for tasks, some in zip(strata, taken, strict=True)
        ]

    def totals(self) -> tuple[Vector, Vector, int]:
        """Totals over the whole input, their variances, and the degrees of freedom of these."""
        total, variance = np.zeros(len(self.names)), np.zeros(len(self.names))
        freedom = 0
        for tasks, sampled in self._strata:
            found, spread = _stratum(len(tasks), sum(task.shard.num_bytes for task in tasks), sampled)
            total += found
            variance += spread
            freedom += sum(shard.batches - 1 for shard in sampled) + len(sampled) - 1
        return total, variance, max(1, freedom)

    def _shard(self, task: ShardTask, records: int) -> _Shard:
        """Reads a shard whole and runs some of its batches."""
        rng = random.Random(self._rng.getrandbits(64))
        kept: list[tuple[int, RecordBatch]] = []
        seen = num_records = num_bytes = 0
        wanted = _AT_LEAST
        started = time.process_time()
        for batch in shard_records(self._declaration, task.shard):
            size = _raw_bytes(batch)
            seen, num_records, num_bytes = seen + 1, num_records + batch.num_records, num_bytes + size
            if seen == 1:
                wanted = min(_AT_MOST, max(_AT_LEAST, math.ceil(records / max(1, num_records))))
            # A reservoir (Vitter's algorithm R): every batch has the same chance, and few are held.
            if len(kept) < wanted:
                kept.append((size, batch))
            elif (at := rng.randrange(seen)) < len(kept):
                kept[at] = (size, batch)
        read_secs = time.process_time() - started
        rows = np.zeros((len(kept), len(self.names)))
        sizes = np.array([size for size, _ in kept], dtype=np.float64)
        with tempfile.TemporaryDirectory(prefix="beam-pipes-forecast-") as root:
            output = ShardOutput(self._declaration, dataclasses.replace(self._plan.header, root=root), task)
            try:
                for sequence, (_, batch) in enumerate(kept):
                    rows[sequence] = self._run(output, batch, sequence)
            finally:
                output.abort()
        total, variance = _ratio(rows, sizes, num_bytes, seen)
        total[self.names.index(_READ)] = num_records
        variance[self.names.index(_READ)] = 0.0
        total[self.names.index(_SECS)] += read_secs
        return _Shard(task.shard.num_bytes, total, variance, len(kept))

    def _run(self, output: ShardOutput, records: RecordBatch, sequence: int) -> Vector:
        self.num_records += records.num_records
        started = time.process_time()
        batch = source_batch(self._declaration, records)
        for position in range(len(self._runner.units)):
            self._runner.run_unit(position, batch)
        part = output.encode(batch, sequence)
        output.write(part)
        found: dict[str, float] = {_READ: records.num_records, _SECS: time.process_time() - started, "bytes": 0.0}
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
            declaration.kind(split),
            spec=self._plan.header.specs.get(split),
            proto=declaration.graph.output_type[split],
        )
        fixed = getattr(codec, "fixed_layout", None) is not None
        return sum(column_dtype(name).itemsize for name in column_names(codec.index_columns, fixed=fixed))


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
    return [tasks[rng.randrange(start, stop)] for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]


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


def _stratum(num_shards: int, stored_bytes: int, sampled: Sequence[_Shard]) -> tuple[Vector, Vector]:
    rows = np.array([shard.total for shard in sampled])
    sizes = np.array([shard.stored_bytes for shard in sampled], dtype=np.float64)
    total, variance = _ratio(rows, sizes, stored_bytes, num_shards)
    return total, variance + num_shards / len(sampled) * np.sum([shard.variance for shard in sampled], axis=0)


def _student(freedom: int) -> float:
    """The quantile of Student's distribution for 95 %: the first terms of the Cornish-Fisher expansion."""
    z = statistics.NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _bytes(estimate: Estimate) -> str:
    share = f" ± {estimate.error / estimate.value:.0%}" if estimate.value else ""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if estimate.value >= scale:
            return f"{estimate.value / scale:,.2f} {unit}{share}"
    return f"{estimate.value / 1e3:,.1f} kB{share}"


_VERSION = 1
# Of what changed in the declaration so many lines are told.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """What was planned: the snapshot that a build was to make, of which input, and what it was expected to cost.

    A snapshot's id is a digest of the bytes of the input and of the declaration, so times and places do not count: a
    file that was touched and not changed leaves a plan as good as it was.
    """

    name: str
    snapshot: str
    source: str
    num_files: int
    num_bytes: int
    fingerprint: DeclarationFingerprint
    forecast: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, plan: BuildPlan, forecast: Forecast | None = None) -> SavedPlan:
        return cls(
            name=plan.header.name,
            snapshot=plan.header.plain_snapshot,
            source=plan.header.fingerprints["source"],
            num_files=plan.source.num_files,
            num_bytes=plan.source.num_bytes,
            fingerprint=plan.fingerprint,
            forecast=None if forecast is None else forecast.to_json(),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON."""
        fields = {**dataclasses.asdict(self), "fingerprint": self.fingerprint.to_json(), "version": _VERSION}
        try:
            Path(path).write_text(strict_json(fields, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise PlanError(f"the plan cannot be saved as {os.fspath(path)!r}: {error.strerror or error}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedPlan:
        """Reads what `save` wrote; `PlanError` where it is something else."""
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
            if fields.pop("version") != _VERSION:
                raise ValueError("another version")
            return cls(**{**fields, "fingerprint": DeclarationFingerprint.from_json(fields["fingerprint"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(
                f"expected a plan in {os.fspath(path)!r}, got {type(error).__name__}: {error}. Make one: beam-pipes "
                "plan package.module:name --to DIR --save FILE"
            ) from error

    def require_fresh(self, plan: BuildPlan) -> None:
        """Raises `StalePlanError`, naming what changed, where `plan` is not what was planned then."""
        if plan.header.name == self.name and plan.header.plain_snapshot == self.snapshot:
            return
        changed = []
        if plan.header.name != self.name:
            changed.append(f"it is of {self.name!r}, and {plan.header.name!r} is to be built")
        if plan.header.fingerprints["source"] != self.source:
            changed.append(
                f"the input changed: {self.num_files:,} files with {self.num_bytes:,} bytes then, "
                f"{plan.source.num_files:,} files with {plan.source.num_bytes:,} bytes now"
            )
        lines = [line for each in explain_change(self.fingerprint, plan.fingerprint).values() for line in each]
        if lines:
            more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
            changed.append(f"the declaration changed: {'; '.join(lines[:_SHOWN])}{more}")
        if not changed:
            changed.append("everything is to be built anew, or was since")
        raise StalePlanError(
            f"the plan is out of date: {'. '.join(changed)}. Nothing was built. Plan again, look at the forecast, and "
            "build with the new plan.",
            planned=self.snapshot,
            found=plan.header.plain_snapshot,
        )
