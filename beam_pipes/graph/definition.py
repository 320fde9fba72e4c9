"""`GraphDefinition`: the operators of a graph and its outputs; what a pipeline is before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.operator_node import OperatorNode
from beam_pipes.graph.pipeline_options import PipelineOptions
from beam_pipes.graph.plan import Plan, make_plan
from beam_pipes.graph.trace import pop_pipeline, push_pipeline, set_scope
from beam_pipes.graph.user_frame import UserFrame, user_frame

Defined = TypeVar("Defined", bound="GraphDefinition")


class GraphDefinition:
    """A graph that is being defined: within `with`, operators that are called become part of it."""

    #: What runs operators at once, in debug mode; None elsewhere, and while nothing runs.
    debug_run: Any = None

    def __init__(self, options: PipelineOptions) -> None:
        self.options = options
        self.nodes: list[OperatorNode] = []
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}
        self._outputs: tuple[DataNode, ...] | None = None
        self._output_names: tuple[str, ...] = ()
        self._plan: Plan | None = None

    def __enter__(self: Defined) -> Defined:
        if self._plan is not None:
            raise GraphError("this pipeline is built already, and its graph is fixed. Make another one.")
        push_pipeline(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        pop_pipeline()

    def add_sink(self, node: DataNode) -> None:
        """Keeps what makes `node` from being pruned, although it is no output."""
        self._adopt([node], user_frame())
        node.source.preserve = True

    def name_for(self, operator: type[Operator], name: str | None, where: UserFrame) -> str:
        """A name for a new operator: the given one, or its kind and a number. Called as it is defined."""
        if name is None:
            title = operator.title()
            while name is None or name in self._names:
                count = self._counts[title] = self._counts.get(title, -1) + 1
                name = title if not count else f"{title}_{count}"
        elif name in self._names:
            raise OperatorArgumentError(
                f"two operators are called {name!r}, and names are what draws are keyed by. Choose another one. "
                f"({where})",
                where=where,
            )
        self._names.add(name)
        return name

    def add(self, node: OperatorNode) -> None:
        """Takes an operator into the graph. Called as it is defined."""
        self.nodes.append(node)

    def set_outputs(self, *outputs: Any) -> None:
        """What `run` returns: data nodes by position, or one dict of them by name.

        A list among them (of an operator with several outputs) counts as its members; arrays and numbers become
        constants.
        """
        from beam_pipes.graph.coverage import check_covered
        from beam_pipes.graph.cut import ancestors

        where = user_frame()
        names: tuple[str, ...] = ()
        if len(outputs) == 1 and isinstance(outputs[0], Mapping):
            names = tuple(map(str, outputs[0]))
            outputs = tuple(outputs[0].values())
        flat: list[DataNode] = []
        for position, output in enumerate(outputs):
            flat += self._as_outputs(output, names[position] if names else str(position), where)
        if names and len(flat) != len(names):
            raise GraphError(f"a named output should be one data node, and one of these is a list: {names}. ({where})")
        self._output_names = names
        self._outputs = tuple(flat)
        self._adopt(flat, where)
        check_covered(ancestors(flat), flat)

    def _as_outputs(self, output: Any, name: str, where: UserFrame) -> list[DataNode]:
        if isinstance(output, DataNode):
            return [output]
        if isinstance(output, (list, tuple)):
            return [one for part in output for one in self._as_outputs(part, name, where)]
        if isinstance(output, (bool, int, float, np.ndarray, np.generic)):
            from beam_pipes.graph.basic.constant import ConstantSample
            from beam_pipes.graph.trace import call

            with self:
                made: DataNode = call(ConstantSample, (), {"value": np.asarray(output)})
            return [made]
        raise GraphError(
            f"output {name} should be a data node, a list of them, an array or a number, got "
            f"{type(output).__name__}: {output!r:.60}. ({where})",
            where=where,
        )

    def _adopt(self, outputs: Sequence[DataNode], where: UserFrame) -> None:
        """Takes operators into the graph that were called outside of any pipeline."""
        from beam_pipes.graph.cut import ancestors

        for node in ancestors(outputs):
            if node.pipeline is None:
                node.pipeline = self
                node.name = self.name_for(type(node.operator), node.name or None, node.where)
                node.operator.name = node.name
                self.add(node)
            elif node.pipeline is not self:
                raise GraphError(f"{node.name} belongs to another pipeline ({node.where}). ({where})", where=where)
        self.nodes.sort(key=lambda node: node.order)

    def define_graph(self) -> Any:
        """What a subclass overrides: calls operators and returns the outputs, as for `set_outputs`."""
        raise GraphError(
            "the pipeline has no outputs: call pipe.set_outputs(…), or override define_graph and return them."
        )

    def _define(self) -> None:
        """Calls `define_graph` with this as the current pipeline."""
        before = set_scope(None)
        try:
            with self:
                outputs = self.define_graph()
                self.set_outputs(*(outputs if isinstance(outputs, tuple) else (outputs,)))
        finally:
            set_scope(before)

    def plan(self) -> Plan:
        """What is run, and what is pruned; the graph is fixed from here on."""
        if self._plan is None:
            if self._outputs is None:
                self._define()
            assert self._outputs is not None
            self._plan = make_plan(self.nodes, self._outputs)
        return self._plan

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, where they have names."""
        self.plan()
        return self._output_names
