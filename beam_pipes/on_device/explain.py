"""Suggestions from the list of transformations: what wastes work, and what does not do what it looks like."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from beam_pipes.on_device.lambda_loader import Transformation
from beam_pipes.on_device.optimize import Chain, batch_before_map, filter_before_map
from beam_pipes.on_device.traced_function import TracedFunction, UnreadableFunctionError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One remark on a loader: `positions` index `get_transformation_list()`; `optimized` if `optimize()` does it."""

    positions: tuple[int, ...]
    finding: str
    advice: str
    optimized: bool = False

    def __str__(self) -> str:
        done = " optimize() does it." if self.optimized else ""
        return f"{', '.join(map(str, self.positions))}: {self.finding}. {self.advice}.{done}"


def suggestions(loader: Chain) -> list[Suggestion]:
    """All remarks, in the order of the transformations they start at."""
    history = loader._history
    found = [*_pairs(loader), *_orders(history), *_frozen_randomness(loader)]
    return sorted(found, key=lambda suggestion: suggestion.positions)


def _pairs(loader: Chain) -> Iterator[Suggestion]:
    history = loader._history
    ordered = loader.dataset.options().deterministic is not False
    for index in range(len(history) - 1):
        first, second = history[index], history[index + 1]
        if first.method != "map":
            continue
        element_spec = _input(loader, index).element_spec
        swap = filter_before_map(first, second, element_spec)
        if swap is not None:
            yield Suggestion(
                positions=(index, index + 1),
                finding=f"map runs on elements that filter drops: {swap.detail}",
                advice="Put .filter before .map",
                optimized=swap.exact and ordered,
            )
        swap = batch_before_map(first, second, element_spec)
        if swap is not None:
            yield Suggestion(
                positions=(index, index + 1),
                finding=f"map runs once per element: {swap.detail}",
                advice="Put .batch before .map, so that it runs once per batch",
                optimized=swap.exact and ordered,
            )


def _orders(history: tuple[Transformation, ...]) -> Iterator[Suggestion]:
    """What can be seen from the names alone."""
    methods = [step.method for step in history]
    for index, method in enumerate(methods):
        for later in range(index + 1, len(methods)):
            following = methods[later]
            if method == "shuffle" and following == "cache" and "shuffle" not in methods[later:]:
                yield Suggestion(
                    positions=(index, later),
                    finding="cache keeps the order of the first shuffle, every epoch repeats it",
                    advice="Put .cache before .shuffle",
                )
            if method in ("batch", "padded_batch", "ragged_batch") and following == "shuffle":
                if "unbatch" not in methods[index:later]:
                    yield Suggestion(
                        positions=(index, later),
                        finding="shuffle moves whole batches, their members stay together",
                        advice="Put .shuffle before the batching",
                    )
            if method == "repeat" and following == "cache":
                yield Suggestion(
                    positions=(index, later),
                    finding="cache holds every repetition, and an endless one until memory ends",
                    advice="Put .cache before .repeat",
                )
            if method == "repeat" and following == "shuffle":
                yield Suggestion(
                    positions=(index, later),
                    finding="shuffle mixes elements of different epochs",
                    advice="Put .shuffle before .repeat",
                )


def _frozen_randomness(loader: Chain) -> Iterator[Suggestion]:
    history = loader._history
    caches = [index for index, step in enumerate(history) if step.method == "cache"]
    for index, step in enumerate(history):
        later = [cache for cache in caches if cache > index]
        if step.method != "map" or not later:
            continue
        function = step.args[0] if step.args else step.kwargs["map_func"]
        try:
            stateless = TracedFunction(function, _input(loader, index).element_spec).stateless
        except UnreadableFunctionError:
            continue
        if not stateless:
            yield Suggestion(
                positions=(index, later[0]),
                finding="cache keeps what a stateful map (random numbers, Python code) gave the first time",
                advice="Put .cache before that .map",
            )


def _input(loader: Chain, index: int) -> Any:
    return loader._root if index == 0 else loader._history[index - 1].dataset
