"""`forecast_build`: records, bytes and worker-hours of a build, from a sample of its input, with error bars.

`sample` says how the sample is taken, and where the intervals come from.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.sample import CPU, READ, SECS, Limits, Report, splits_of, take_sample
from beam_pipes.errors import CacheWriteError
from beam_pipes.storage.local import is_remote

# Eight shards of the usual size, which are read in a few seconds.
DEFAULT_SAMPLE_BYTES = 256 << 20
DEFAULT_SAMPLE_RECORDS = 16_384
# How long people wait to learn what a build of hours will cost.
DEFAULT_SAMPLE_SECS = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A total, which lies within `value ± error` for about 95 % of all samples."""

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
    the wall-clock time that one worker on this machine takes for the remaining shards; `worker_hours` the same in
    hours. `cpu_secs` is the processor time within it, for those who pay for that.
    `sampled_records` of `sampled_shards` went through the stages.
    """

    records_read: Estimate
    records: Mapping[str, Estimate]
    output_bytes: Mapping[str, Estimate]
    total_output_bytes: Estimate
    shards: Mapping[str, int]
    worker_secs: Estimate
    cpu_secs: Estimate
    sampled_shards: int
    sampled_records: int

    @property
    def worker_hours(self) -> Estimate:
        return Estimate(value=self.worker_secs.value / 3600, error=self.worker_secs.error / 3600)

    @property
    def cpu_hours(self) -> Estimate:
        return Estimate(value=self.cpu_secs.value / 3600, error=self.cpu_secs.error / 3600)

    def to_json(self) -> dict[str, object]:
        return {
            "records_read": self.records_read.to_json(),
            "records": {split: estimate.to_json() for split, estimate in self.records.items()},
            "output_bytes": {split: estimate.to_json() for split, estimate in self.output_bytes.items()},
            "total_output_bytes": self.total_output_bytes.to_json(),
            "shards": dict(self.shards),
            "worker_hours": self.worker_hours.to_json(),
            "cpu_hours": self.cpu_hours.to_json(),
            "sampled_shards": self.sampled_shards,
            "sampled_records": self.sampled_records,
        }

    def lines(self) -> list[str]:
        """The forecast for people."""
        lines = [
            f"forecast from {self.sampled_records:,} records of {self.sampled_shards} source shards "
            f"(± at 95 %): {self.records_read} records read"
        ]
        for split, records in self.records.items():
            lines.append(
                f"  {split}: {records} records, {_bytes(self.output_bytes[split])} in {self.shards[split]:,} shards"
            )
        lines.append(f"  remaining: {_in_units(self.worker_secs, _TIME)} of CPU on one core like this one")
        return lines


def forecast_build(
    plan: BuildPlan,
    *,
    sample_bytes: int = DEFAULT_SAMPLE_BYTES,
    sample_records: int = DEFAULT_SAMPLE_RECORDS,
    sample_secs: float = DEFAULT_SAMPLE_SECS,
    seed: int = 0,
    report: Report = lambda shards, of, records: None,
) -> Forecast:
    """A forecast of the build that `plan` plans; reads about `sample_bytes` of input, writes nothing that stays.

    It takes about `sample_secs`, in this process: where stages are slow, fewer records are tried and the intervals are
    wider. At least two shards are read, and at least two records of each go through the stages, so very small limits
    are exceeded. The same plan and seed take the same sample if there is enough time. `report(shards, of, records)` is
    called with the progress of the sample.

    `worker_secs` is wall-clock time: a stage that waits for a service is charged for its waiting.

    Raises what a build would raise for a record of the sample: `StageError` if `on_error` is "fail".
    """
    limits = Limits(bytes=sample_bytes, records=sample_records, secs=sample_secs)
    sample = take_sample(plan, limits, seed=seed, report=report)

    def estimate(name: str, share: float = 1.0) -> Estimate:
        value, error = sample.totals[name]
        return Estimate(value=value * share, error=error * share)

    splits = plan.declaration.splits
    left = {task.index for task in plan.tasks_left()}
    bytes_left = sum(task.shard.num_bytes for task in plan.tasks if task.index in left)
    whole = plan.source.num_bytes
    return Forecast(
        records_read=estimate(READ),
        records={split: estimate(f"records {split}") for split in splits},
        output_bytes={split: estimate(f"bytes {split}") for split in splits},
        total_output_bytes=estimate("bytes"),
        shards={split: sum(split in splits_of(plan, task) for task in plan.tasks) for split in splits},
        worker_secs=estimate(SECS, bytes_left / whole if whole else 0.0),
        cpu_secs=estimate(CPU, bytes_left / whole if whole else 0.0),
        sampled_shards=sample.num_shards,
        sampled_records=sample.num_records,
    )


def require_room(plan: BuildPlan, forecast: Forecast) -> None:
    """Raises `CacheWriteError` if the disk of a local cache has less room than the forecast's lower bound."""
    if is_remote(plan.path):
        return
    above = Path(plan.path).absolute()
    while not above.is_dir():
        above = above.parent
    free = shutil.disk_usage(above).free
    wanted = forecast.total_output_bytes
    if wanted.value - wanted.error > free:
        raise CacheWriteError(
            f"the cache {plan.path!r} will take {_bytes(wanted)}, but there are {free / 1e9:,.1f} GB free. Free or "
            "add space, or build to another directory.",
            path=plan.path,
        )


# The smallest value for which each unit is chosen, and how many of the estimated quantity one unit is.
_BYTES = {"TB": (1e12, 1e12), "GB": (1e9, 1e9), "MB": (1e6, 1e6), "kB": (0.0, 1e3)}
_TIME = {"days": (172_800, 86_400), "hours": (5_400, 3_600), "minutes": (90, 60), "s": (1, 1), "ms": (0.0, 1e-3)}


def _bytes(estimate: Estimate) -> str:
    return _in_units(estimate, _BYTES)


def _in_units(estimate: Estimate, units: Mapping[str, tuple[float, float]]) -> str:
    """In the most readable unit: 0.0358 seconds ± 0.0014 → `36 ms ± 4%`."""
    share = f" ± {estimate.error / estimate.value:.0%}" if estimate.value else ""
    unit, (_, scale) = next(item for item in units.items() if estimate.value >= item[1][0])
    number = estimate.value / scale
    decimals = max(0, 2 - int(math.log10(number))) if number >= 1 else 1
    return f"{number:,.{decimals}f} {unit}{share}"
