"""`diagnose_loader`: is training bound by its input, and by which stage of it?

Two measurements of the real loader. First its stages one after the other, without threads: what each costs a batch.
Then the loader as it is, with its threads and buffers, before a consumer that takes `step_ms` for each batch: what that
one waits.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader
from beam_pipes.telemetry.stages import Stages, stages_of
from beam_pipes.telemetry.telemetry import Telemetry

# A loop that waits for less than this part of its time is not bound by its input.
WAIT_FRAC = 0.05
# Batches before what is measured: frameworks start and compile, buffers fill, files are opened.
WARM_UP = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoaderDiagnosis:
    """`stage_ms`: milliseconds a batch by stage, measured without threads; `stage`: the one that costs most.

    `batch_ms`: from one batch of the whole loader to the next. `wait_ms`, `wait_frac`: what the consumer waited of it.
    `input_bound`: whether that is more than a twentieth; None without a `step_ms`, since nobody knows what a step
    takes. `batches`: how many were measured.
    """

    input_bound: bool | None
    stage: str
    stage_ms: dict[str, float]
    step_ms: float | None
    batch_ms: float
    wait_ms: float
    wait_frac: float
    batches: int

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """One line."""
        costs = ", ".join(f"{name} {ms:.3g}" for name, ms in self.stage_ms.items())
        slowest = f"{self.stage} is the slowest stage (ms a batch: {costs})."
        if self.step_ms is None:
            per_sec = 1000.0 / self.batch_ms if self.batch_ms else math.inf
            return (
                f"A batch comes every {self.batch_ms:.3g} ms ({per_sec:,.0f} a second): training is input-bound where "
                f"a step takes less; {slowest}"
            )
        wait = f"a step of {self.step_ms:g} ms waits {self.wait_ms:.3g} ms for its batch ({self.wait_frac:.0%})"
        return f"{'Input-bound' if self.input_bound else 'Not input-bound'}: {wait}; {slowest}"


def diagnose_loader(
    loader: Any, *, step_ms: float | None = None, batches: int = 20, max_secs: float = 20.0
) -> LoaderDiagnosis:
    """Says whether training from `loader` is input-bound, and which stage costs most.

        print(diagnose_loader(Loader(split, batch_size=32, transform=slow), step_ms=5))
        Input-bound: a step of 5 ms waits 15.2 ms for its batch (75%); transform is the slowest stage
        (ms a batch: storage read 0.02, gather 0.03, transform 20.1).

    Args:
      loader: a native `Loader`; a `DataLoader` or what it converts to;
        `beam_pipes.map_style.loader.DataLoader`; or any iterable.
      step_ms: what a training step takes without its input; None, the default: only what the loader can give.
      batches: how many to measure in each of the two passes, after two to warm up.
      max_secs: each pass ends after this time, having measured at least one batch.

    Stages of a native loader are "storage read" (what the first reading of rows costs more than the second: remote
    shards, cold pages), "gather" (finding records and copying them) and "transform". Conversions add "conversion" and
    "transfer" (until arrays are on the device). Behind tf.data transformations "transform" is what the pipeline costs
    beyond reading. A map-style dataset has "storage read" (its innermost dataset), "transform" and "conversion"
    (`collate_fn`); anything else has "iteration".

    A native loader stands afterwards where it stood. Iterables that can be read once only are used up. Raises
    `LoaderError` where a loader gives no batch, and for numbers out of range.
    """
    if isinstance(batches, bool) or not isinstance(batches, int) or batches < 1:
        raise LoaderError(f"batches should be an integer of at least 1, got {batches!r}")
    if step_ms is not None and not 0 <= step_ms < math.inf:
        raise LoaderError(f"step_ms should be None or a number of at least 0, got {step_ms!r}")
    if not max_secs > 0:
        raise LoaderError(f"max_secs should be above 0, got {max_secs!r}")
    state = _state_of(loader)
    stage_ms = _measured_stages(stages_of(loader), batches, max_secs)
    telemetry, measured = Telemetry(loader), 0
    before = telemetry.totals()
    started = time.perf_counter()
    for number, _ in enumerate(telemetry):
        if number < WARM_UP:
            before, started = telemetry.totals(), time.perf_counter()
        else:
            measured = number - WARM_UP + 1
        if measured >= batches or (measured and time.perf_counter() - started > max_secs):
            break
        if step_ms:
            time.sleep(step_ms / 1000)
    if state is not None:
        loader.load_state_dict(state)
    window = telemetry.totals().since(before)
    if not window.batches:  # fewer batches than it takes to warm up
        window = telemetry.totals()
    if not window.batches:
        raise LoaderError("the loader gives no batch, so there is nothing to measure. Use a smaller batch_size.")
    secs = window.wait_secs + window.busy_secs
    wait_frac = window.wait_secs / secs if secs else 0.0
    return LoaderDiagnosis(
        input_bound=None if step_ms is None else wait_frac > WAIT_FRAC,
        stage=max(stage_ms, key=lambda name: stage_ms[name]),
        stage_ms=stage_ms,
        step_ms=step_ms,
        batch_ms=1000 * secs / window.batches,
        wait_ms=1000 * window.wait_secs / window.batches,
        wait_frac=wait_frac,
        batches=window.batches,
    )


def _measured_stages(stages: Iterator[Stages], batches: int, max_secs: float) -> dict[str, float]:
    """Milliseconds a batch by stage."""
    sums: dict[str, float] = {}
    seen = measured = 0
    started = time.perf_counter()
    warm_up: dict[str, float] = {}
    for group in stages:
        seen += group.batches
        if seen <= WARM_UP:
            warm_up, started = group.ms_per_batch(), time.perf_counter()
            continue
        measured += group.batches
        for name, secs in group.secs.items():
            sums[name] = sums.get(name, 0.0) + secs
        if measured >= batches or time.perf_counter() - started > max_secs:
            break
    if not measured:
        if not warm_up:
            raise LoaderError("the loader gives no batch, so there is nothing to measure. Use a smaller batch_size.")
        return warm_up
    return {name: 1000 * secs / measured for name, secs in sums.items()}


def _state_of(loader: Any) -> dict[str, Any] | None:
    """The state to go back to; None where there is none."""
    if isinstance(loader, Loader):
        return loader.state_dict()
    if getattr(type(loader), "state_dict", None) is None:
        return None
    try:
        state: dict[str, Any] = loader.state_dict()
    except LoaderError:  # a conversion of something without a state
        return None
    return state
