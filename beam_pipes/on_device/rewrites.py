"""Pairs of neighbouring transformations that can change places, with the proof or the reason why not."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_pipes.extras import require
from beam_pipes.on_device.traced_function import TracedFunction, UnreadableFunctionError
from beam_pipes.on_device.transformations import Transformation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swap:
    """The verdict on a pair: `exact` when the other order provably gives the same elements."""

    exact: bool
    detail: str


def filter_before_map(mapping: Transformation, filtering: Transformation, element_spec: Any) -> Swap | None:
    """`map(f).filter(p)` → `filter(p).map(f)`, when `p` reads only what `f` passes through. `None`: no such pair.

    Exact when both are stateless and `p` computes the same from an element before `f` as from one after it. What `f`
    raises on an element that `p` drops is then not raised any more.
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


def batch_before_map(mapping: Transformation, batching: Transformation, element_spec: Any) -> Swap | None:
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


def _function(step: Transformation, keyword: str) -> Any:
    return step.args[0] if step.args else step.kwargs[keyword]


def _in_order(mapping: Transformation) -> bool:
    deterministic = mapping.kwargs.get("deterministic", mapping.args[2] if len(mapping.args) > 2 else None)
    return deterministic is not False
