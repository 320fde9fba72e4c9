"""`OperatorNode`: one call of an operator at its place in a graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_pipes.graph.operator import Device, Operator
from beam_pipes.graph.scope import Scope
from beam_pipes.graph.user_frame import UserFrame

if TYPE_CHECKING:
    from beam_pipes.graph.data_node import DataNode

_ORDER = itertools.count()


@dataclasses.dataclass(eq=False, kw_only=True)
class OperatorNode:
    """An operator with what feeds it. Nodes are in the order of their creation (`order`), which is topological.

    `name` is unique within a pipeline and part of what draws are keyed by. `device` is where the operator stands,
    `scope` the branch in which it was called.
    """

    operator: Operator
    inputs: tuple[DataNode, ...]
    argument_inputs: Mapping[str, DataNode]
    device: Device
    where: UserFrame
    scope: Scope | None
    name: str = ""
    seed: int | None = None
    preserve: bool = False
    on_error: str | None = None
    outputs: tuple[DataNode, ...] = ()
    pipeline: Any = None
    order: int = dataclasses.field(default_factory=lambda: next(_ORDER))

    def feeds(self) -> tuple[DataNode, ...]:
        """All data nodes that are read: inputs, argument inputs, and the conditions that it stands under."""
        conditions = () if self.scope is None else tuple(scope.predicate for scope in self.scope.chain())
        return (*self.inputs, *self.argument_inputs.values(), *conditions)

    @property
    def output_device(self) -> str:
        """Where what it gives lies: "cpu" or "gpu"."""
        return "cpu" if self.device == "cpu" else "gpu"

    def __str__(self) -> str:
        return f"{self.name or self.operator.title()} ({self.where})"
