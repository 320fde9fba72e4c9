"""`Plan`: what of a pipeline's graph is run, in which order, and how long columns are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_pipes.graph.cut import OfflinePart, offline_part
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.operator_node import OperatorNode


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The operators that are run, in order; those that nobody needs; and the outputs.

    `used` holds, for each operator, which of its outputs are read: others are neither computed nor parsed where the
    operator can help it.
    """

    nodes: tuple[OperatorNode, ...]
    pruned: tuple[OperatorNode, ...]
    outputs: tuple[DataNode, ...]
    used: dict[OperatorNode, frozenset[int]]
    offline: OfflinePart | None
    spent_after: dict[OperatorNode, tuple[DataNode, ...]]

    @property
    def sources(self) -> tuple[OperatorNode, ...]:
        """Readers and fed operators, among those that are run."""
        return tuple(node for node in self.nodes if node.operator.is_source)

    def behind_the_cut(self) -> tuple[OperatorNode, ...]:
        """The operators that are run where a cache holds what lies before the cut."""
        before = set() if self.offline is None else set(self.offline.nodes)
        return tuple(node for node in self.nodes if node not in before)


def make_plan(nodes: Sequence[OperatorNode], outputs: Sequence[DataNode]) -> Plan:
    """What has to run to give `outputs`: their ancestors, and whatever has side effects or is to be preserved."""
    needed: set[OperatorNode] = set()
    used: dict[OperatorNode, set[int]] = {}
    waiting: list[OperatorNode] = [node for node in nodes if node.operator.side_effects or node.preserve]
    for output in outputs:
        used.setdefault(output.source, set()).add(output.index)
        waiting.append(output.source)
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        for feed in node.feeds():
            used.setdefault(feed.source, set()).add(feed.index)
            waiting.append(feed.source)
    ordered = tuple(sorted(needed, key=lambda node: node.order))
    return Plan(
        nodes=ordered,
        pruned=tuple(node for node in nodes if node not in needed),
        outputs=tuple(outputs),
        used={node: frozenset(used.get(node, ())) for node in ordered},
        offline=offline_part(ordered, outputs),
        spent_after=_spent_after(ordered, outputs),
    )


def _spent_after(
    nodes: Iterable[OperatorNode], outputs: Sequence[DataNode]
) -> dict[OperatorNode, tuple[DataNode, ...]]:
    """For each operator, the columns that nobody reads after it."""
    last: dict[DataNode, OperatorNode] = {}
    for node in nodes:
        for own in node.outputs:
            last[own] = node
        for feed in node.feeds():
            last[feed] = node
    for output in outputs:
        last.pop(output, None)
    spent: dict[OperatorNode, list[DataNode]] = {}
    for data_node, node in last.items():
        spent.setdefault(node, []).append(data_node)
    return {node: tuple(some) for node, some in spent.items()}


def place_of(plan: Plan, node: OperatorNode) -> str:
    """Where an operator runs: "offline", "host" or "device"."""
    if plan.offline is not None and node in plan.offline.nodes:
        return "offline"
    return "device" if node.device == "gpu" else "host"
