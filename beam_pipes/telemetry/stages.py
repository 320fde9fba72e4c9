"""The stages of each kind of loader, and what they cost: run one after the other, in the thread that asks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

from beam_pipes.loader import Loader
from beam_pipes.loader.stage_times import timed_batches
from beam_pipes.on_device.lambda_loader import ConvertedLoader
from beam_pipes.on_device.tracked_loader import TrackedLoader

READ, GATHER, TRANSFORM, CONVERSION, TRANSFER = "storage read", "gather", "transform", "conversion", "transfer"
ITERATION = "iteration"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages:
    """Seconds by stage for so many batches. `elements`: the batches themselves."""

    batches: int
    secs: dict[str, float]
    elements: list[Any]

    def ms_per_batch(self) -> dict[str, float]:
        return {name: 1000 * secs / max(1, self.batches) for name, secs in self.secs.items()}


def stages_of(loader: Any) -> Iterator[Stages]:
    """Batches of a loader with the seconds of its stages; a native loader's cursor stays."""
    from beam_pipes.map_style.loader.data_loader import DataLoader as MapStyleLoader

    if isinstance(loader, Loader):
        return _of_native(loader)
    if isinstance(loader, ConvertedLoader):
        return _of_converted(loader)
    if isinstance(loader, MapStyleLoader):
        return _of_map_style(loader)
    native = _under_tf_data(loader) if isinstance(loader, TrackedLoader) else None
    return _of_iterable(loader) if native is None else _of_tf_data(loader, native)


def _of_native(loader: Loader) -> Iterator[Stages]:
    for timed in timed_batches(loader):
        secs = {READ: timed.read_secs, GATHER: timed.gather_secs, TRANSFORM: timed.transform_secs}
        yield Stages(batches=len(timed.batches), secs=secs, elements=timed.batches)


def _of_converted(loader: ConvertedLoader) -> Iterator[Stages]:
    for made in stages_of(loader.source_elements()):
        conversion = transfer = 0.0
        for converted, transferred in loader.timed(made.elements):
            conversion += converted
            transfer += transferred
        secs = {**made.secs, CONVERSION: conversion, TRANSFER: transfer}
        yield Stages(batches=made.batches, secs=secs, elements=[])


def _of_iterable(elements: Iterable[Any]) -> Iterator[Stages]:
    for secs, element in _timed(elements):
        yield Stages(batches=1, secs={ITERATION: secs}, elements=[element])


def _of_tf_data(loader: Any, native: Loader) -> Iterator[Stages]:
    """A pipeline of tf.data over a cache: reading is measured beside it, the rest is what its transformations cost."""
    native_rows, reads = 0, timed_batches(native)
    read = gather = 0.0
    for secs, element in _timed(loader):
        if native_rows < 64 * native.host_batch_size:
            timed = next(reads)
            native_rows += len(timed.batches) * native.host_batch_size
            read += timed.read_secs
            gather += timed.gather_secs + timed.transform_secs
        share = _rows(element) / max(1, native_rows)
        costs = {READ: read * share, GATHER: gather * share}
        yield Stages(batches=1, secs={**costs, TRANSFORM: max(0.0, secs - sum(costs.values()))}, elements=[element])


def _of_map_style(loader: Any) -> Iterator[Stages]:
    """A dataset's examples are read at the innermost dataset first, then through its transforms; then collated."""
    from beam_pipes.map_style.datasets.transform_dataset import TransformDataset

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


def _timed(elements: Iterable[Any]) -> Iterator[tuple[float, Any]]:
    clock, iterator = time.perf_counter, iter(elements)
    while True:
        began = clock()
        try:
            element = next(iterator)
        except StopIteration:
            return
        yield clock() - began, element


def _under_tf_data(loader: Any) -> Loader | None:
    """The native loader that a DataLoader's tf.data pipeline reads."""
    sources = [source.open_loader() for source in getattr(loader, "_sources", ()) if hasattr(source, "open_loader")]
    return sources[0] if len(sources) == 1 else None


def _rows(element: Any) -> int:
    first = next(iter(element.values()), None) if isinstance(element, dict) else element
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) and shape[0] is not None else 1
