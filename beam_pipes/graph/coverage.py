"""Coverage: whether a data node has a value for every sample, which an early return alone does not see to.

An early return leaves a `Partial`, the samples of one branch; what is returned on the other ways is merged with it. A
way on which nothing is returned shows here, at definition. Conditions are taken to be independent of each other, unless
one is made from the other by `and`, `or`, `not` or an early return.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from beam_pipes.errors import ConditionError
from beam_pipes.graph.basic.constant import ConstantSample
from beam_pipes.graph.basic.merge import Merge
from beam_pipes.graph.basic.partial import Partial
from beam_pipes.graph.conditions import Condition
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.operator_node import OperatorNode

Decided = Mapping[DataNode, bool]


def check_covered(nodes: Sequence[OperatorNode], outputs: Iterable[DataNode]) -> None:
    """Raises `ConditionError` where an output, or an input of one of `nodes`, has no value for some samples."""
    if not any(isinstance(node.operator, Partial) for node in nodes):
        return
    asked: list[tuple[DataNode, Decided]] = [(output, {}) for output in outputs]
    for node in nodes:
        if not isinstance(node.operator, (Merge, Partial)):
            branch = {} if node.scope is None else {scope.predicate: scope.branch for scope in node.scope.chain()}
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
    """The early return that does not cover samples for which the conditions in `decided` are so."""
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
    """Whether a condition is true, given others; where they do not say, the first one that has to be decided."""
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
