"""The cut: `cache(node)` marks everything before it to be computed once, by a job, and stored.

`Plan`: which part of a pipeline's graph is run, in which order, and how long columns are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from beam_pipes.errors import PlacementError
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.reader import Reader
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec, user_frame
from beam_pipes.graph.tensors import Array, Namespace, Value
from beam_pipes.graph.trace import add


class Cut(Operator):
    """The end of the offline part, which passes its inputs on."""

    op_name = "cache"
    inputs = ("data",)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0]

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        return data

    def run(self, sample: Sample, data: Array) -> Array:
        return data


def cache(*nodes: DataNode) -> Any:
    """Marks `nodes` as the end of the offline part; returns them.

    Everything they depend on is offline: it is computed once and stored, and read back in every epoch. Other nodes of
    that part that are used after the cut are stored too. Results are the same with a cache, before one exists, and
    without the cut.

        images, labels = fn.readers.file(file_root=root)
        images = cache(fn.resize(fn.decoders.image(images), size=256))

    Raises `PlacementError` for a node on the device, in a branch of a condition, or of an operator that draws again in
    each epoch, has side effects, works on a batch as a whole, or is fed from Python.
    """
    where = user_frame()
    for node in nodes:
        if node.device == "gpu":
            raise PlacementError(
                f"cache takes {node.name!r}, which lies on the device since {node.source.where}; what is cached comes "
                f"from the host. Put the cut before the transfer. ({where})",
                where=where,
                before=node.source.where,
            )
        if node.source.scope is not None:
            raise PlacementError(
                f"cache stands in a branch of a condition, or takes {node.name!r} out of one; put the cut before or "
                f"after the whole condition. ({where})",
                where=where,
            )
        for source in ancestors([node.source]):
            _check_offline(source, str(where))
    made = [add(Cut, (node,), {}).outputs[0] for node in nodes]
    return made[0] if len(made) == 1 else made


def _check_offline(node: OperatorNode, where: str) -> None:
    operator = node.operator
    reason = None
    if operator.random:
        reason = "it draws random numbers for each epoch, and what lies before the cut is computed once"
    elif operator.side_effects:
        reason = "it has side effects in every epoch, and what lies before the cut is computed once"
        if "pure" in operator.arguments:
            reason += " (a function whose result depends on its inputs alone may stand there, with pure=True)"
    elif operator.mixes_samples:
        reason = (
            "what it gives for a sample depends on the rest of its batch, and a job runs it on one record at a time"
        )
    elif operator.is_source and not isinstance(operator, Reader):
        reason = "it is fed from this process, and what lies before the cut is read by a job"
    if reason is not None:
        raise PlacementError(
            f"{node.name} ({node.where}) comes before the cut ({where}): {reason}. Move the cut before {node.name}.",
            operator=node.name,
            where=where,
            before=node.where,
        )


def ancestors(nodes: Iterable[OperatorNode]) -> list[OperatorNode]:
    """The operators, and all that they depend on, in order."""
    found: set[OperatorNode] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [feed.source for feed in node.feeds()]
    return sorted(found, key=lambda node: node.order)


def _check_side_by_side(first: OperatorNode, other: OperatorNode) -> None:
    """Raises `PlacementError` if records of two readers are not paired the same way in every epoch."""
    differing = [name for name, value in _order_of(first).items() if value != _order_of(other)[name]]
    if differing:
        found = "; ".join(f"{name}: {_order_of(first)[name]!r} and {_order_of(other)[name]!r}" for name in differing)
        raise PlacementError(
            f"{first} and {other} both stand before the cut, and read in different orders ({found}): which of their "
            "records meet would change from epoch to epoch, and what lies before the cut is computed once. Give both "
            "the same, or put the cut on one side only.",
            operator=other.name,
            where=other.where,
            before=first.where,
        )


def _order_of(node: OperatorNode) -> dict[str, object]:
    """The arguments that determine a reader's order."""
    reader = node.operator
    assert isinstance(reader, Reader)
    order = {name: reader.constants[name] for name in ("random_shuffle", "num_shards", "shard_id")}
    if reader.random_shuffle:
        order["stick_to_shard"] = reader.stick_to_shard
        assert node.pipeline is not None
        order["seed"] = node.pipeline.seed if reader.seed is None else reader.seed
    return order


@dataclasses.dataclass(frozen=True, eq=False)
class OfflinePart:
    """The part before the cut: operators in order, and the data nodes stored for use after it."""

    nodes: tuple[OperatorNode, ...]
    stored: tuple[DataNode, ...]

    @property
    def readers(self) -> tuple[OperatorNode, ...]:
        """The readers at its beginning, in order. They are read side by side, record i of each together."""
        return tuple(node for node in self.nodes if isinstance(node.operator, Reader))

    @property
    def reader(self) -> OperatorNode:
        """The first of its readers, which determines the records of the cache."""
        return self.readers[0]


def offline_part(nodes: Sequence[OperatorNode], outputs: Sequence[DataNode]) -> OfflinePart | None:
    """The offline part of the operators that are run; None without a cut."""
    cuts = [node for node in nodes if isinstance(node.operator, Cut)]
    if not cuts:
        return None
    before = ancestors(cuts)
    inside = set(before)
    used = {feed for node in nodes if node not in inside for feed in node.feeds()} | set(outputs)
    stored = sorted((node for node in used if node.source in inside), key=lambda node: (node.source.order, node.index))
    part = OfflinePart(tuple(before), tuple(stored))
    if not part.readers:
        raise PlacementError(
            "what lies before the cut should begin in a reader, whose records a job reads; found none before "
            f"{cuts[0]}."
        )
    for other in part.readers[1:]:
        _check_side_by_side(part.reader, other)
    return part


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The operators that are run, in order; the unused ones; and the outputs.

    `used` holds the outputs of each operator that are read; the operator skips computing or parsing the others if it
    can.
    """

    nodes: tuple[OperatorNode, ...]
    pruned: tuple[OperatorNode, ...]
    outputs: tuple[DataNode, ...]
    used: dict[OperatorNode, frozenset[int]]
    offline: OfflinePart | None
    spent_after: dict[OperatorNode, tuple[DataNode, ...]]

    def behind_the_cut(self) -> tuple[OperatorNode, ...]:
        """The operators that are run if a cache holds the part before the cut."""
        before = set() if self.offline is None else set(self.offline.nodes)
        return tuple(node for node in self.nodes if node not in before)


def make_plan(nodes: Sequence[OperatorNode], outputs: Sequence[DataNode]) -> Plan:
    """The operators needed for `outputs`: their ancestors, and those that have side effects or must be preserved."""
    wanted = [node for node in nodes if node.operator.side_effects or node.preserve]
    ordered = tuple(ancestors([*wanted, *(output.source for output in outputs)]))
    needed = set(ordered)
    read = {feed for node in ordered for feed in node.feeds()}.union(outputs)
    return Plan(
        nodes=ordered,
        pruned=tuple(node for node in nodes if node not in needed),
        outputs=tuple(outputs),
        used={node: frozenset(output.index for output in node.outputs if output in read) for node in ordered},
        offline=offline_part(ordered, outputs),
        spent_after=_spent_after(ordered, outputs),
    )


def _spent_after(
    nodes: Iterable[OperatorNode], outputs: Sequence[DataNode]
) -> dict[OperatorNode, tuple[DataNode, ...]]:
    """For each operator, the columns that nothing after it reads."""
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
