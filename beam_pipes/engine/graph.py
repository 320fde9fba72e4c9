"""The intermediate form that every declaration is turned into: units in topological order and named outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from beam_pipes.engine.signature import Signature

Join = Literal["product", "zip"]


class Stage(Protocol):
    """What a unit runs. `typed.Pipeline` is the base class to use; the engine asks for no more than this."""

    @property
    def name(self) -> str: ...
    @property
    def input_type(self) -> Signature: ...
    @property
    def output_type(self) -> Signature: ...
    def transform(self, input_object: Any) -> Any: ...


class Ref(NamedTuple):
    """One output of one unit: `Ref('Partition', 'train')`, or `Ref('Tokenize', None)` for a single output.

    The empty unit name stands for the input of the graph.
    """

    unit: str
    key: str | None

    def __str__(self) -> str:
        name = self.unit or "input"
        return name if self.key is None else f"{name}[{self.key!r}]"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """A stage at its place in a graph.

    `inputs` is one `Ref`, or name → `Ref` where the stage takes a dict; then `join` says how several lists become
    inputs: every combination ("product", the reference's meaning), or position by position ("zip").
    """

    name: str
    stage: Stage
    inputs: Ref | Mapping[str, Ref]
    join: Join = "product"

    def refs(self) -> tuple[Ref, ...]:
        """The outputs this unit reads."""
        return (self.inputs,) if isinstance(self.inputs, Ref) else tuple(self.inputs.values())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Units in a fixed topological order; `outputs` names what leaves the graph.

    `prefix` stands before the names of its units' statistics: a DAG's own name, nothing for a single stage.
    """

    name: str
    prefix: str = ""
    input_type: Signature
    units: tuple[Unit, ...]
    outputs: Mapping[str, Ref]
    output_type: Mapping[str, type]

    def last_uses(self) -> dict[Ref, int]:
        """For each output that is read, the position of the last unit that reads it; outputs of the graph live on."""
        last = {ref: position for position, unit in enumerate(self.units) for ref in unit.refs()}
        last.update(dict.fromkeys(self.outputs.values(), len(self.units)))
        return last


def graph_of(stage: Any, *, default_output: str = "train") -> Graph:
    """The graph of a declaration: its own where it has one (`stage.graph`), else a graph of this single stage.

    A stage with a single output type gives one output called `default_output`.
    """
    own = getattr(stage, "graph", None)
    if isinstance(own, Graph):
        return own
    unit = Unit(name=stage.name, stage=stage, inputs=Ref("", None))
    if isinstance(stage.output_type, Mapping):
        outputs = {key: Ref(stage.name, key) for key in stage.output_type}
        output_type: Mapping[str, type] = dict(stage.output_type)
    else:
        outputs = {default_output: Ref(stage.name, None)}
        output_type = {default_output: stage.output_type}
    return Graph(name=stage.name, input_type=stage.input_type, units=(unit,), outputs=outputs, output_type=output_type)
