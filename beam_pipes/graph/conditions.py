"""Conditions over samples: `cond`, and the functions behind `if`, `and`, `or` and `not` over data nodes.

Coverage: whether a data node has a value for every sample, which an early return does not guarantee.

An early return leaves a `Partial`, the samples of one branch; the values returned on other paths are merged with it. A
path that returns nothing is found here, at definition. Conditions are assumed to be independent, unless one is derived
from the other by `and`, `or`, `not` or an early return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import ConditionError, GraphError
from beam_pipes.graph.basic import ConstantSample, Merge, Partial
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.operator import Constant, Operator
from beam_pipes.graph.spec import TensorSpec, here, user_frame
from beam_pipes.graph.tensors import Array, Namespace, Value
from beam_pipes.graph.trace import add, constant, in_branch


class Condition(Operator):
    """A condition: 0-d numbers as booleans, True unless zero; inverted with `negate`."""

    op_name = "condition"
    inputs = ("value",)
    negate = Constant("bool", default=False)
    boolean = Constant("bool", default=False, doc="whether other dtypes than bool are refused")
    said = Constant("str", default="if", doc="what the user wrote: if, and, or, not")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.ndim not in (None, 0):
            raise ConditionError(
                f"`{self.said}` needs one number for each sample (rank 0), and the data node gives {spec}. Reduce it, "
                "or index it: node[0].",
                operator=self.name,
            )
        if spec.dtype is not None and (spec.dtype.kind not in "biuf" or (self.boolean and spec.dtype.kind != "b")):
            wanted = "booleans" if self.boolean else "booleans or numbers"
            raise ConditionError(
                f"`{self.said}` takes {wanted}, and the data node gives {spec}. Compare it: node != 0.",
                operator=self.name,
            )
        return TensorSpec.of("bool", ())

    def run_arrays(self, xp: Namespace, value: Value) -> Array:
        if value.ndim != 1:
            raise ValueError(f"`{self.said}` needs one number for each sample, got shape {value.shape[1:]}")
        if self.boolean and value.dtype != bool:
            raise TypeError(f"`{self.said}` takes booleans, got {value.dtype}")
        return np.asarray(value == 0 if self.negate else value != 0)


def condition(node: DataNode, *, negate: bool = False, boolean: bool = False, said: str = "if") -> DataNode:
    """A data node as a condition: bool, 0-d."""
    if node.device == "gpu":
        raise ConditionError(
            f"`{said}` needs {node.name!r} on the host, and it lies on the device since {node.source.where}: which "
            f"samples take which branch is decided before the transfer. ({user_frame()})"
        )
    if node.dtype == bool and node.spec.ndim == 0 and not negate:
        return node
    return add(Condition, (node,), {"negate": negate, "boolean": boolean, "said": said}).outputs[0]


def cond(predicate: object, then: Callable[[], object], orelse: Callable[[], object]) -> Any:
    """For each sample, the result of `then()` if `predicate` is true, else that of `orelse()`.

        rotated = cond(do_rotate, lambda: fn.rotate(images, angle=angle), lambda: images)

    Each branch runs only on its own samples, whose order is kept. Both branches return data nodes of one dtype and rank
    on one device, or equally structured tuples, lists or dicts of them; arrays and numbers become constants. A
    predicate that is not a data node chooses a branch immediately.

    Raises `ConditionError` if the branches differ, naming the output.
    """
    if not isinstance(predicate, DataNode):
        return then() if predicate else orelse()
    chosen = condition(predicate)
    given = [in_branch(chosen, branch, function) for branch, function in ((True, then), (False, orelse))]
    return merge(chosen, *given, names="what the branches give")


def merge(predicate: DataNode, then: object, orelse: object, *, names: str) -> object:
    """Merges the results of both branches; `names` names them in messages."""
    if then is orelse:
        return then
    if isinstance(then, (list, tuple)) and type(then) is type(orelse):
        if len(then) != len(orelse):
            raise _different(names, f"{len(then)} values", f"{len(orelse)} values", predicate)
        parts = [
            merge(predicate, a, b, names=f"{names}[{i}]") for i, (a, b) in enumerate(zip(then, orelse, strict=True))
        ]
        return type(then)(parts)
    if isinstance(then, Mapping) and isinstance(orelse, Mapping):
        if then.keys() != orelse.keys():
            raise _different(names, f"the keys {list(then)}", f"the keys {list(orelse)}", predicate)
        return {key: merge(predicate, then[key], orelse[key], names=f"{names}[{key!r}]") for key in then}
    if not isinstance(then, DataNode) and not isinstance(orelse, DataNode) and _equal(then, orelse):
        return then
    first, second = (_node(value, predicate, branch) for value, branch in ((then, True), (orelse, False)))
    if first is None or second is None:
        raise _different(names, _told(then), _told(orelse), predicate)
    _check_alike(names, first, second, predicate)
    return add(Merge, (predicate, first, second), {"device": first.device}).outputs[0]


def _equal(first: object, second: object) -> bool:
    try:
        return type(first) is type(second) and bool(np.all(first == second))
    except (TypeError, ValueError):
        return False


def _node(value: object, predicate: DataNode, branch: bool) -> DataNode | None:
    if isinstance(value, DataNode):
        return value
    if not isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return None
    return in_branch(predicate, branch, lambda: constant(value))


def _check_alike(names: str, first: DataNode, second: DataNode, predicate: DataNode) -> None:
    for what, a, b in (("dtype", first.dtype, second.dtype), ("rank", first.spec.ndim, second.spec.ndim)):
        if a is not None and b is not None and a != b:
            found = [f"{what} {one} ({node.source.where})" for one, node in ((a, first), (b, second))]
            raise _different(names, found[0], found[1], predicate)
    if first.device != second.device:
        raise _different(names, f"data on {first.device}", f"data on {second.device}", predicate)


def _told(value: object) -> str:
    return f"a data node {value.spec}" if isinstance(value, DataNode) else f"{type(value).__name__} {value!r:.40}"


def _different(names: str, first: str, second: str, predicate: DataNode) -> GraphError:
    return here(
        ConditionError(
            f"{names} should be alike in both branches of the condition on {predicate.name!r}, and is {first} in one, "
            f"{second} in the other. Make them alike: fn.cast, or the same structure.",
            variable=names,
        )
    )


def logical(said: str, first: object, second: Callable[[], object]) -> object:
    """`first and second()` or `first or second()`, sample by sample; `second` runs only where it matters."""
    if not isinstance(first, DataNode):
        if said == "and":
            return second() if first else first
        return first if first else second()
    left = condition(first, boolean=True, said=said)

    def right() -> object:
        value = second()
        return condition(value, boolean=True, said=said) if isinstance(value, DataNode) else np.bool_(bool(value))

    if said == "and":
        return cond(left, right, lambda: np.bool_(False))
    return cond(left, lambda: np.bool_(True), right)


def negation(value: object) -> object:
    """`not value`, sample by sample."""
    return condition(value, negate=True, said="not") if isinstance(value, DataNode) else not value


Decided = Mapping[DataNode, bool]


def check_covered(nodes: Sequence[OperatorNode], outputs: Iterable[DataNode]) -> None:
    """Raises `ConditionError` if an output, or an input of one of `nodes`, has no value for some samples."""
    if not any(isinstance(node.operator, Partial) for node in nodes):
        return
    asked: list[tuple[DataNode, Decided]] = [(output, {}) for output in outputs]
    for node in nodes:
        if not isinstance(node.operator, (Merge, Partial)):
            branch = {scope.predicate: scope.branch for scope in node.branches}
            asked += [(feed, branch) for feed in (*node.inputs, *node.argument_inputs.values())]
    for node_asked, decided in asked:
        gap = _gap(node_asked, decided)
        if gap is not None:
            raise ConditionError(
                "a function with conditions returns nothing for some samples: return a value on all ways, and not only "
                f"where the condition on {gap.inputs[0].name!r} is {gap.operator.constants['branch']}. ({gap.where})",
                where=gap.where,
            )


def _gap(node: DataNode, decided: Decided) -> OperatorNode | None:
    """The early return that leaves out samples for which the conditions have the values in `decided`."""
    source = node.source
    if not isinstance(source.operator, (Merge, Partial)):
        return None
    truth = _truth(source.inputs[0], decided)
    if isinstance(truth, DataNode):
        return _gap(node, {**decided, truth: True}) or _gap(node, {**decided, truth: False})
    if isinstance(source.operator, Merge):
        return _gap(source.inputs[1 if truth else 2], decided)
    return _gap(source.inputs[1], decided) if truth == source.operator.branch else source


def _truth(node: DataNode, decided: Decided) -> bool | DataNode:
    """Whether a condition is true, given the others; the first undecided condition if they do not determine it."""
    if node in decided:
        return decided[node]
    source = node.source
    if isinstance(source.operator, ConstantSample):
        return bool(np.all(source.operator.value))
    if isinstance(source.operator, Condition):
        truth = _truth(source.inputs[0], decided)
        return truth if isinstance(truth, DataNode) else truth != source.operator.negate
    if isinstance(source.operator, (Merge, Partial)):
        truth = _truth(source.inputs[0], decided)
        if isinstance(truth, DataNode):
            return truth
        return _truth(source.inputs[2 if isinstance(source.operator, Merge) and not truth else 1], decided)
    return node
