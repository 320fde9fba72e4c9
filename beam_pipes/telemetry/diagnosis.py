"""`diagnose_loader`: is training input-bound, and which stage is the slowest?

It measures the real loader twice. First its stages one by one in the calling thread, which gives the cost of each per
batch (`stages_of` knows the stages of each kind of loader). Then the loader itself, with its threads and buffers,
feeding a consumer that takes `step_ms` per batch, which gives the time that the consumer waits. A native loader
continues behind the rows of the first pass, since those are on this machine now.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from beam_pipes.checks import integer, number
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader
from beam_pipes.loader.steps import Cursor
from beam_pipes.on_device.lambda_loader import ConvertedLoader, TrackedLoader
from beam_pipes.telemetry.telemetry import Telemetry, native_of

if TYPE_CHECKING:
    from beam_pipes.map_style import DataLoader as MapStyleLoader

# A loop that waits for less than this fraction of its time is not input-bound.
WAIT_FRAC = 0.05
# Warm-up batches: frameworks start and compile, buffers fill, files are opened.
WARM_UP = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoaderDiagnosis:
    """`stage_ms`: milliseconds per batch by stage, measured without threads; `stage`: the slowest.

    `batch_ms`: from one batch of the whole loader to the next. `wait_ms`, `wait_frac`: the consumer's share of waiting.
    `input_bound`: whether that is more than a twentieth; None without `step_ms`, since the duration of a step is
    unknown. `batches`: how many were measured.
    """

    input_bound: bool | None
    stage: str
    stage_ms: dict[str, float]
    step_ms: float | None
    batch_ms: float
    wait_ms: float
    wait_frac: float
    batches: int

    def to_json(self) -> dict[str, object]:
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
    loader: Iterable[object], *, step_ms: float | None = None, batches: int = 20, max_secs: float = 20.0
) -> LoaderDiagnosis:
    """Says whether training from `loader` is input-bound, and which stage costs most.

        print(diagnose_loader(Loader(split, batch_size=32, transform=slow), step_ms=5))
        Input-bound: a step of 5 ms waits 15.2 ms for its batch (75%); transform is the slowest stage
        (ms a batch: storage read 0.02, gather 0.03, transform 20.1).

    Args:
      loader: a native `Loader`; a `DataLoader` or what it converts to;
        `beam_pipes.map_style.DataLoader`; or any iterable.
      step_ms: the duration of a training step without its input; None, the default, measures the loader alone.
      batches: how many to measure in each of the two passes, after two to warm up.
      max_secs: each pass ends after this time, having measured at least one batch.

    Stages of a native loader are "storage read" (the extra cost of reading rows for the first time: remote shards, cold
    pages), "gather" (finding records and copying them) and "transform". Conversions add "conversion" and "transfer"
    (until arrays are on the device). After tf.data transformations "transform" is the pipeline's cost beyond reading. A
    map-style dataset has "storage read" (its innermost dataset), "transform" and "conversion" (`collate_fn`); anything
    else has "iteration".

    The second pass of a native loader reads rows that the first has not read, so that slow storage is seen; those of
    the first again if the run has no others. Afterwards a native loader is back at its position; single-pass iterables
    are exhausted. Raises `LoaderError` if a loader gives no batch, and for numbers out of range.
    """
    batches = integer(batches, least=1, what="batches", error=LoaderError)
    if step_ms is not None:
        number(step_ms, least=0, below=math.inf, what="step_ms", error=LoaderError)
    number(max_secs, above=0, what="max_secs", error=LoaderError)
    state = _state_of(loader)
    stage_ms, following = _measured_stages(stages_of(loader), batches, max_secs)
    native = native_of(loader)
    if native is not None and following is not None:
        unread = native._steps.next_steps(following, native._reader.stream.size_of, most=WARM_UP + 1)
        if unread is not None and unread.length > WARM_UP:
            native._move(following, native._reader.stream)
    telemetry, measured = Telemetry(loader), 0
    before = telemetry.totals()
    started = time.perf_counter()
    for place, _ in enumerate(telemetry):
        if place < WARM_UP:
            before, started = telemetry.totals(), time.perf_counter()
        else:
            measured = place - WARM_UP + 1
        if measured >= batches or (measured and time.perf_counter() - started > max_secs):
            break
        if step_ms:
            time.sleep(step_ms / 1000)
    if state is not None and hasattr(loader, "load_state_dict"):
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


def _measured_stages(stages: Iterator[Stages], batches: int, max_secs: float) -> tuple[dict[str, float], Cursor | None]:
    """Milliseconds per batch, by stage; the cursor after the last of these batches, if there is one."""
    sums: dict[str, float] = {}
    seen = measured = 0
    started = time.perf_counter()
    warm_up: dict[str, float] = {}
    following = None
    for group in stages:
        seen, following = seen + group.batches, group.following
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
        return warm_up, following
    return {name: 1000 * secs / measured for name, secs in sums.items()}, following


def _state_of(loader: Iterable[object]) -> dict[str, object] | None:
    """The state to restore, or None."""
    if isinstance(loader, Loader):
        return loader.state_dict()
    state_dict = getattr(loader, "state_dict", None) if hasattr(type(loader), "state_dict") else None
    if state_dict is None:
        return None
    try:
        state: dict[str, object] = state_dict()
    except LoaderError:  # converted from something without a state
        return None
    return state


READ, GATHER, TRANSFORM, CONVERSION, TRANSFER = "storage read", "gather", "transform", "conversion", "transfer"
ITERATION = "iteration"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages:
    """Seconds by stage for a number of batches. `elements`: the batches themselves. `following`: the cursor of a native
    loader after them.
    """

    batches: int
    secs: dict[str, float]
    elements: Sequence[object]
    following: Cursor | None = None

    def ms_per_batch(self) -> dict[str, float]:
        return {name: 1000 * secs / max(1, self.batches) for name, secs in self.secs.items()}


def stages_of(loader: Iterable[object]) -> Iterator[Stages]:
    """Batches of a loader with the seconds of its stages; a native loader's cursor does not move."""
    from beam_pipes.map_style import DataLoader

    if isinstance(loader, Loader):
        return _of_native(loader)
    if isinstance(loader, ConvertedLoader):
        return _of_converted(loader)
    if isinstance(loader, DataLoader):
        return _of_map_style(loader)
    native = _under_tf_data(loader) if isinstance(loader, TrackedLoader) else None
    return _of_iterable(loader) if native is None else _of_tf_data(loader, native)


def _of_native(loader: Loader) -> Iterator[Stages]:
    """The batches from the loader's cursor, epoch after epoch without end; the cursor does not move.

    Reading is the extra cost of rows on first access, gathering their cost once in memory.
    """
    clock, reader = time.perf_counter, loader._reader
    steps_without_end = dataclasses.replace(loader._steps, epochs=None)
    for steps in steps_without_end.groups(loader._cursor, reader.stream.size_of, reader.group_length):
        began = clock()
        rows = reader.gathered(steps)
        first = clock()
        rows = reader.gathered(steps)
        again = clock()
        batches = reader.finished(rows, steps)
        done = clock()
        gather = min(again - first, first - began)
        secs = {READ: first - began - gather, GATHER: gather, TRANSFORM: done - again}
        yield Stages(batches=len(batches), secs=secs, elements=batches, following=steps.following)


def _of_converted(loader: ConvertedLoader) -> Iterator[Stages]:
    for made in stages_of(loader.source_elements()):
        conversion = transfer = 0.0
        for converted, transferred in loader.timed(made.elements):
            conversion += converted
            transfer += transferred
        secs = {**made.secs, CONVERSION: conversion, TRANSFER: transfer}
        yield dataclasses.replace(made, secs=secs, elements=[])


def _of_iterable(elements: Iterable[object]) -> Iterator[Stages]:
    for secs, element in _timed(elements):
        yield Stages(batches=1, secs={ITERATION: secs}, elements=[element])


def _of_tf_data(loader: Iterable[object], native: Loader) -> Iterator[Stages]:
    """A tf.data pipeline over a cache: reading is measured separately; the rest is its transformations."""
    native_rows, reads = 0, _of_native(native)
    read = gather = 0.0
    for secs, element in _timed(loader):
        if native_rows < 64 * native.host_batch_size:
            made = next(reads)
            native_rows += sum(map(_rows, made.elements))
            read += made.secs[READ]
            gather += made.secs[GATHER] + made.secs[TRANSFORM]
        share = _rows(element) / max(1, native_rows)
        costs = {READ: read * share, GATHER: gather * share}
        yield Stages(batches=1, secs={**costs, TRANSFORM: max(0.0, secs - sum(costs.values()))}, elements=[element])


def _of_map_style(loader: MapStyleLoader) -> Iterator[Stages]:
    """A dataset's examples are read at the innermost dataset first, then through its transforms; then collated."""
    from beam_pipes.map_style.dataset import TransformDataset

    inner = loader.dataset
    while isinstance(inner, TransformDataset):
        inner = inner.dataset
    clock = time.perf_counter
    for indices in loader.batch_sampler:
        began = clock()
        if inner is not loader.dataset:
            for index in indices:
                inner[index]
        read = clock()
        examples = [loader.dataset[index] for index in indices]
        made = clock()
        batch = loader.collate_fn(examples)
        collated = clock()
        secs = {READ: made - read, TRANSFORM: 0.0, CONVERSION: collated - made}
        if inner is not loader.dataset:
            secs |= {READ: read - began, TRANSFORM: max(0.0, (made - read) - (read - began))}
        yield Stages(batches=1, secs=secs, elements=[batch])


def _timed(elements: Iterable[object]) -> Iterator[tuple[float, object]]:
    clock, iterator = time.perf_counter, iter(elements)
    while True:
        began = clock()
        try:
            element = next(iterator)
        except StopIteration:
            return
        yield clock() - began, element


def _under_tf_data(loader: object) -> Loader | None:
    """The native loader that a DataLoader's tf.data pipeline reads."""
    sources = [source.open_loader() for source in getattr(loader, "_sources", ()) if hasattr(source, "open_loader")]
    return sources[0] if len(sources) == 1 else None


def _rows(element: object) -> int:
    first = next(iter(element.values()), None) if isinstance(element, dict) else element
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) and shape[0] is not None else 1
