"""What the list of transformations wastes, and the one order that is better without changing an element.

    map, filter → filter, map

`filter(p)` after `map(f)` is `filter(p∘f)` before it: the same elements in the same order, if `f` and `p` keep no
state. TensorFlow removes from `p∘f` what `p` does not read, so it pays if `p` reads only what `f` passes through.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from beam_pipes.extras import TfDataset, TfSpec, TfTensor, require
from beam_pipes.on_device.conversions import Element, Nested
from beam_pipes.on_device.lambda_loader import Transformation

if TYPE_CHECKING:
    import tensorflow as tf


class Chain(Protocol):
    """The part of a `DataLoader` that inspects and reorders its transformations."""

    _history: tuple[Transformation, ...]

    @property
    def dataset(self) -> TfDataset: ...

    @property
    def _root(self) -> TfDataset: ...

    def _extended(self: C, history: tuple[Transformation, ...], **changes: object) -> C: ...


C = TypeVar("C", bound=Chain)


class EarlierFilter(NamedTuple):
    """A predicate for the elements before a map; `exact` if neither it nor the map keeps state."""

    predicate: Callable[..., Element]
    exact: bool
    reads: str


def filter_before_map(loader: Chain, steps: Sequence[Transformation], index: int) -> EarlierFilter | None:
    """For the steps `map, filter` at `index`: the filter before the map; None if it reads what the map computes.

    Errors that the map raises on elements that the filter drops then disappear.
    """
    mapping, filtering = steps[index : index + 2]
    if (mapping.method, filtering.method) != ("map", "filter"):
        return None
    element_spec = _input(loader, steps, index).element_spec
    tf = require("tensorflow", purpose="DataLoader.explain")
    map_func, predicate = _function(mapping, "map_func"), _function(filtering, "predicate")
    mapped_spec = mapping.dataset.element_spec
    computed: list[TfTensor] = []

    def composed(*element: Element) -> Element:
        # Tensors in the form in which the map returns them, as the following filter would get them.
        mapped = tf.nest.map_structure(
            lambda spec, value: tf.convert_to_tensor(value, spec.dtype), mapped_spec, map_func(*element)
        )
        computed[:] = tf.nest.flatten(mapped)
        return predicate(*mapped) if type(mapped) is tuple else predicate(mapped)

    graph = _graph_of(composed, element_spec)
    if graph is None:
        return None
    names = {tensor.ref(): name for tensor, name in zip(graph.inputs, _names(element_spec), strict=False)}
    read = _read_by(graph.outputs)
    made = {_origin(tensor).ref() for tensor in computed} - names.keys()
    reads = sorted(name for ref, name in names.items() if ref in read)
    if not reads or made & read:
        return None
    return EarlierFilter(composed, exact=_is_stateless(graph) and _in_order(mapping), reads=", ".join(reads))


def _graph_of(function: Callable[..., object], element_spec: Nested) -> tf.Graph | None:
    """TensorFlow's graph of a function of one element; None if it cannot be traced, or holds more than tensors."""
    tf = require("tensorflow", purpose="DataLoader.explain")
    arguments = element_spec if type(element_spec) is tuple else (element_spec,)
    if not all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(arguments)):
        return None
    try:
        return tf.function(function).get_concrete_function(*arguments).graph
    except Exception:  # the user's code, on elements it was not written for
        return None


def _names(spec: TfSpec, name: str = "") -> Iterator[str]:
    """Names of the leaves in the order in which TensorFlow flattens: dicts by sorted key."""
    if isinstance(spec, dict):
        items: list[tuple[object, TfSpec]] = [(key, spec[key]) for key in sorted(spec)]
    elif isinstance(spec, list | tuple):
        items = list(enumerate(spec))
    else:
        yield name or "the element"
        return
    for key, item in items:
        yield from _names(item, f"{name}/{key}" if name else str(key))


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor that this one is a copy of."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _read_by(outputs: list[tf.Tensor]) -> set[object]:
    """References to all tensors that these are computed from."""
    found: set[object] = set()
    waiting = list(outputs)
    while waiting:
        tensor = waiting.pop()
        if tensor.ref() not in found:
            found.add(tensor.ref())
            waiting.extend(tensor.op.inputs)
            waiting.extend(output for control in tensor.op.control_inputs for output in control.outputs)
    return found


def _is_stateless(graph: tf.Graph) -> bool:
    return not any(op.type != "Placeholder" and op.op_def.is_stateful for op in graph.get_operations())


def _function(step: Transformation, keyword: str) -> Callable[..., Element]:
    function = step.args[0] if step.args else step.kwargs[keyword]
    assert callable(function), "tf.data has called it already"
    return function


def _in_order(mapping: Transformation) -> bool:
    deterministic = mapping.kwargs.get("deterministic", mapping.args[2] if len(mapping.args) > 2 else None)
    return deterministic is not False


def optimized(loader: C) -> C:
    """`map, filter` → `filter, map`, wherever that is exact and saves work.

    Transformations before a `zip` or another static constructor do not change, and nothing changes if the dataset's
    options allow elements out of order. The transformation list shows the new order; a `cache()` is filled again.
    """
    if loader.dataset.options().deterministic is False:
        return loader
    steps = list(loader._history)
    index, first_changed = 0, len(steps)
    while index < len(steps) - 1:
        earlier = filter_before_map(loader, steps, index)
        if earlier is None or not earlier.exact:
            index += 1
            continue
        mapping, filtering = steps[index : index + 2]
        named = {key: value for key, value in filtering.kwargs.items() if key != "predicate"}
        before = _input(loader, steps, index)
        steps[index] = dataclasses.replace(filtering, args=(earlier.predicate,), kwargs=named, dataset=before)
        steps[index + 1] = mapping
        first_changed = min(first_changed, index)
        index = max(0, index - 1)
    if first_changed == len(steps):
        return loader
    dataset = _input(loader, steps, first_changed)
    for index in range(first_changed, len(steps)):
        steps[index] = steps[index].applied_to(dataset)
        dataset = steps[index].dataset
    return loader._extended(tuple(steps), _dataset=dataset, _n_samples=None)


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
    ordered = loader.dataset.options().deterministic is not False
    for index in range(len(loader._history) - 1):
        earlier = filter_before_map(loader, loader._history, index)
        if earlier is not None:
            yield Suggestion(
                positions=(index, index + 1),
                finding=f"map runs on elements that filter drops: the predicate reads only {earlier.reads}, which the "
                "map passes through",
                advice="Put .filter before .map",
                optimized=earlier.exact and ordered,
            )


def _orders(history: tuple[Transformation, ...]) -> Iterator[Suggestion]:
    """What can be seen from the names of the transformations alone."""
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
        graph = _graph_of(_function(step, "map_func"), _input(loader, history, index).element_spec)
        if graph is not None and not _is_stateless(graph):
            yield Suggestion(
                positions=(index, later[0]),
                finding="cache keeps what a stateful map (random numbers, Python code) gave the first time",
                advice="Put .cache before that .map",
            )


def _input(loader: Chain, steps: Sequence[Transformation], index: int) -> TfDataset:
    """What the step at `index` reads; the dataset of a cache is made only when it is needed."""
    before = steps[index - 1].dataset if index else None
    return loader._root if before is None else before
