"""A better order of transformations, where the elements are provably the same and in the same order.

    map, filter → filter, map      map, batch → batch, map

First come the pairs of adjacent transformations that can swap, each with its proof or the reason against it; then
`optimized`, which applies the proved swaps; then `suggestions`, which report wasted work and surprising orders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from beam_pipes.extras import TfDataset, require
from beam_pipes.on_device.conversions import Nested
from beam_pipes.on_device.lambda_loader import Transformation
from beam_pipes.on_device.traced_function import TracedFunction, UnreadableFunctionError


class Chain(Protocol):
    """The part of a `DataLoader` that inspects and reorders its transformations."""

    _history: tuple[Transformation, ...]

    @property
    def dataset(self) -> TfDataset: ...

    @property
    def _root(self) -> TfDataset: ...

    def _batched_runs(self, *args: object, **kwargs: object) -> TfDataset | None: ...

    def _extended(self: C, history: tuple[Transformation, ...], **changes: object) -> C: ...


C = TypeVar("C", bound=Chain)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swap:
    """The verdict on a pair: `exact` when the other order provably gives the same elements."""

    exact: bool
    detail: str


def filter_before_map(mapping: Transformation, filtering: Transformation, element_spec: Nested) -> Swap | None:
    """`map(f).filter(p)` → `filter(p).map(f)`, when `p` reads only what `f` passes through. `None`: no such pair.

    Exact when both are stateless and `p` computes the same from an element before `f` as from one after it. Errors
    that `f` raises on elements that `p` drops then disappear.
    """
    if (mapping.method, filtering.method) != ("map", "filter"):
        return None
    try:
        mapped = TracedFunction(_function(mapping, "map_func"), element_spec)
        after = TracedFunction(_function(filtering, "predicate"), mapping.dataset.element_spec)
        read = after.reads()
        if not read or not all(mapped.passed_through(path) for path in read):
            return None
    except UnreadableFunctionError:
        return None
    columns = ", ".join(sorted("/".join(map(str, path)) or "the element" for path in read))
    detail = f"the predicate reads only {columns}, which the map passes through"
    try:
        before = TracedFunction(_function(filtering, "predicate"), element_spec)
        same = before.expressions() == after.expressions()
    except UnreadableFunctionError:
        same = False
    stateless = mapped.stateless and after.stateless
    return Swap(exact=same and stateless and _in_order(mapping), detail=detail)


def batch_before_map(mapping: Transformation, batching: Transformation, element_spec: Nested) -> Swap | None:
    """`map(f).batch(n)` → `batch(n).map(f)`, when `f` works element by element. `None`: no such pair.

    No pair either where `f` leaves out a feature of varying shape, with which elements may not batch.
    Exact when all its operations are rounded exactly and it traces to the same expressions on a batch.
    """
    if (mapping.method, batching.method) != ("map", "batch"):
        return None
    tf = require("tensorflow", purpose="DataLoader.explain")
    try:
        function = _function(mapping, "map_func")
        single = TracedFunction(function, element_spec)
        grade = single.elementwise()
        if grade is None or single.ignores_varying():
            return None
        batched_spec = tf.nest.map_structure(
            lambda spec: tf.TensorSpec(tf.TensorShape([None]).concatenate(spec.shape), spec.dtype), element_spec
        )
        batched = TracedFunction(function, batched_spec)
        same = batched.expressions() == single.expressions()
    except UnreadableFunctionError:
        return None
    detail = "the map works element by element" + (
        ""
        if grade == "exact"
        else "; in a batch its last bits, or casts beyond a range, may differ, so that optimize() leaves it"
    )
    return Swap(exact=grade == "exact" and same and _in_order(mapping), detail=detail)


def _function(step: Transformation, keyword: str) -> Callable[..., object]:
    function = step.args[0] if step.args else step.kwargs[keyword]
    assert callable(function), "tf.data has called it already"
    return function


def _in_order(mapping: Transformation) -> bool:
    deterministic = mapping.kwargs.get("deterministic", mapping.args[2] if len(mapping.args) > 2 else None)
    return deterministic is not False


def optimized(loader: C) -> C:
    """`map, filter` → `filter, map` and `map, batch` → `batch, map`, each where proved.

    Transformations before a `zip` or another static constructor do not change, and nothing changes if the dataset's
    options allow elements out of order. The transformation list shows the new order; a `cache()` is filled again.
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


def _provable(first: Transformation, second: Transformation, element_spec: Nested) -> bool:
    swaps = (filter_before_map(first, second, element_spec), batch_before_map(first, second, element_spec))
    return any(swap is not None and swap.exact for swap in swaps)


def _applied(dataset: TfDataset, steps: list[Transformation], loader: Chain) -> list[Transformation]:
    applied = []
    for step in steps:
        first_batch = dataset is loader._root and step.method == "batch"
        batches = loader._batched_runs(*step.args, **step.kwargs) if first_batch else None
        applied.append(step.applied_to(dataset) if batches is None else dataclasses.replace(step, dataset=batches))
        dataset = applied[-1].dataset
    return applied


def _first_replayable(history: tuple[Transformation, ...]) -> int:
    """The index after the last step that is not a plain Dataset method."""
    barriers = [index for index, step in enumerate(history) if not step.replayable]
    return barriers[-1] + 1 if barriers else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One remark on a loader: `positions` index `get_transformation_list()`; `optimized` if `optimize()` applies it."""

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
    """What the names of the transformations alone reveal."""
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
        try:
            stateless = TracedFunction(_function(step, "map_func"), _input(loader, index).element_spec).stateless
        except UnreadableFunctionError:
            continue
        if not stateless:
            yield Suggestion(
                positions=(index, later[0]),
                finding="cache keeps what a stateful map (random numbers, Python code) gave the first time",
                advice="Put .cache before that .map",
            )


def _input(loader: Chain, index: int) -> TfDataset:
    return loader._root if index == 0 else loader._history[index - 1].dataset
