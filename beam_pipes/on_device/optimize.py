"""A better order of transformations, where the elements are provably the same and in the same order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from beam_pipes.on_device.rewrites import batch_before_map, filter_before_map
from beam_pipes.on_device.transformations import Transformation

if TYPE_CHECKING:
    from beam_pipes.on_device.data_loader import DataLoader


def optimized(loader: DataLoader) -> DataLoader:
    """`map, filter` → `filter, map` and `map, batch` → `batch, map`, each where `rewrites` proves it.

    Transformations before a `zip` or another static constructor stay as they are, and so does everything when the
    dataset's options allow elements out of order. The transformation list shows the new order; a `cache()` is filled
    anew.
    """
    if loader.dataset.options().deterministic is False:
        return loader
    start = _first_replayable(loader._history)
    steps = list(loader._history[start:])
    root = loader._history[start - 1].dataset if start else loader._root
    changed = True
    moved = False
    while changed:
        changed = False
        for index in range(len(steps) - 1):
            before = root if index == 0 else steps[index - 1].dataset
            if _provable(steps[index], steps[index + 1], before.element_spec):
                reordered = _applied(before, [steps[index + 1], steps[index]], loader)
                if reordered[-1].dataset.element_spec == steps[index + 1].dataset.element_spec:
                    steps = [*steps[:index], *reordered, *_applied(reordered[-1].dataset, steps[index + 2 :], loader)]
                    changed = moved = True
                    break
    if not moved:
        return loader
    return loader._extended((*loader._history[:start], *steps), _dataset=steps[-1].dataset, _n_samples=None)


def _provable(first: Transformation, second: Transformation, element_spec: Any) -> bool:
    swaps = (filter_before_map(first, second, element_spec), batch_before_map(first, second, element_spec))
    return any(swap is not None and swap.exact for swap in swaps)


def _applied(dataset: Any, steps: list[Transformation], loader: DataLoader) -> list[Transformation]:
    applied = []
    for step in steps:
        first_batch = dataset is loader._root and step.method == "batch"
        batches = loader._batched_runs(*step.args, **step.kwargs) if first_batch else None
        applied.append(step.applied_to(dataset) if batches is None else dataclasses.replace(step, dataset=batches))
        dataset = applied[-1].dataset
    return applied


def _first_replayable(history: tuple[Transformation, ...]) -> int:
    """The index behind the last step that is no plain Dataset method."""
    barriers = [index for index, step in enumerate(history) if not step.replayable]
    return barriers[-1] + 1 if barriers else 0
