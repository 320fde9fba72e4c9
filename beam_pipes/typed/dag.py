"""`DAGPipeline`: pipelines connected into a directed acyclic graph, itself a pipeline.

A DAG is a dict of `destination: dependency`. A destination is a `Pipeline` or an `Output`; a dependency is a
`Pipeline`, a `Key`, an `Input`, or a dict of name → one of these. Both ends of each pair have a type signature, and
the two must be equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.checks import choice
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import (
    Graph,
    Join,
    Ref,
    Signature,
    Unit,
    beam_transform_advice,
    check_signature,
    describe,
    mismatch,
)
from beam_pipes.engine.records import Batch, OneRecord, current_context
from beam_pipes.errors import (
    BadInputOrOutputException,
    BadTopologyException,
    DuplicateNameException,
    InvalidDAGException,
    InvalidDictionaryOutput,
    NotConnectedException,
    TypeMismatchException,
)
from beam_pipes.sources.record_batch import content_of_value
from beam_pipes.typed.pipeline import Key, Pipeline, signature_of


class Input:
    """Where a DAG's input enters: `Input(str)`. Several with the same type denote the same input."""

    def __init__(self, type_: Signature) -> None:
        check_signature(type_, where="Input")
        self.output_type = type_

    def __repr__(self) -> str:
        return f"Input({describe(self.output_type)})"


class Output:
    """A named output of a DAG: `Output('train')`; `Output()` takes the names from a dict dependency."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidDAGException(f"an Output has a name (str), or none as Output(); got {name!r}. Use a str.")
        self.name = name

    def __repr__(self) -> str:
        return "Output()" if self.name is None else f"Output({self.name!r})"


Node = Pipeline | Key | Input
Dependency = Node | Mapping[str, Node]


class DAGPipeline(Pipeline):
    """Runs a DAG of pipelines as one pipeline; its output is a dict with one list for each `Output`.

        dag = {split: Input(str), upper: split, Output('words'): upper}
        DAGPipeline(dag).transform('to be')  →  {'words': ['TO', 'BE']}

    A pipeline is run once for each of its inputs, and its outputs are the concatenation. A pipeline that takes a dict
    is run for every combination of the upstream lists (`join="zip"`: position by position, for lists of the same
    length); an input with more than 100,000 combinations is an error. If a list is empty the pipeline is
    not run, and pipelines after it get nothing. Independent pipelines run in a fixed order.

    Statistics are collected from all pipelines, their names prefixed: `DAGPipeline_SplitWords_words`.

    Raises, in this order of checks: `InvalidDictionaryOutput`, `InvalidDAGException`, `TypeMismatchException`,
    `DuplicateNameException`, `BadInputOrOutputException`, `NotConnectedException`, `BadTopologyException`.

    Source: Magenta, "Data processing in Magenta", sections DAGPipeline and DAG Specification.
    """

    def __init__(
        self, dag: Mapping[Any, object], pipeline_name: str = "DAGPipeline", *, join: Join = "product"
    ) -> None:
        choice(join, of=("product", "zip"), what=f"{pipeline_name}: join", error=InvalidDAGException)
        edges = _expand(dag)
        _check_edges(edges)
        pipelines = [edge.destination for edge in edges if isinstance(edge.destination, Pipeline)]
        outputs = [edge for edge in edges if isinstance(edge.destination, Output)]
        _check_names(edges)
        input_type = _check_input_and_output(edges, outputs)
        _check_connected(edges, pipelines)
        units = _sort(edges, join)
        self.graph = Graph(
            name=pipeline_name,
            prefix=pipeline_name,
            input_type=input_type,
            units=units,
            outputs={edge.output_name: _ref(edge.single) for edge in outputs},
            output_type={edge.output_name: _type_of(edge.single) for edge in outputs},  # type: ignore[misc]
        )
        super().__init__(input_type, dict(self.graph.output_type), pipeline_name)

    def transform(self, input_object: object) -> dict[str, list[object]]:
        """Runs the DAG over one input; returns one list for each output."""
        problem = mismatch(input_object, self.input_type)
        if problem is not None:
            raise TypeMismatchException(f"{self.name}: as the input of the DAG, {problem}.", stage=self.name)
        here = current_context()
        assert here is not None  # set by whoever calls `transform`, see `Pipeline`
        # Kept with the place, because threads and other DAGs may run this one too.
        place, runner = here.left.get("_runner", (None, None))
        if place != (here.unit, here.seed, here.epoch):
            runner = GraphRunner(self.graph, prefix="", path=here.unit, seed=here.seed, epoch=here.epoch)
            here.left["_runner"] = (here.unit, here.seed, here.epoch), runner
        assert runner is not None
        index, item, record_id_of = here.index, here.item, here.record_id_of
        assert index is not None
        record = OneRecord(
            input_object,
            (lambda: record_id_of(index)) if here.direct else (lambda: f"{record_id_of(index)}/{item}"),
            (lambda: content_of_value(input_object)) if here.direct else (lambda: here.content),
        )
        batch = Batch(record)
        runner.run(batch)
        self._set_stats(batch.account.statistics())
        for name, account in batch.account.units.items():
            for reason, count in account.dropped.items():
                for _ in range(count):
                    self.drop(f"{name}/{reason}")
        return {name: list(column[0]) for name, column in runner.outputs(batch).items()}


@dataclasses.dataclass(frozen=True, slots=True)
class _Edge:
    """A pair `destination: dependency` after the shorthands are expanded."""

    destination: Any
    dependency: Any

    @property
    def nodes(self) -> list[Node]:
        return list(self.dependency.values()) if isinstance(self.dependency, Mapping) else [self.dependency]

    @property
    def single(self) -> Node:
        return self.dependency  # type: ignore[no-any-return]

    @property
    def output_name(self) -> str:
        return self.destination.name  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"{_label(self.destination)}: {_label(self.dependency)}"


def _label(node: object) -> str:
    if isinstance(node, Pipeline):
        return str(node.name)
    if isinstance(node, Mapping):
        return "{" + ", ".join(f"{name!r}: {_label(value)}" for name, value in node.items()) + "}"
    return repr(node)


def _expand(dag: object) -> list[_Edge]:
    """The pairs of the DAG, with `Output()` and `{a: b}` over equal dict signatures written out."""
    if not isinstance(dag, Mapping):
        raise InvalidDAGException(
            f"a DAG is a dict of destination: dependency, got {type(dag).__name__}: {dag!r}. "
            "Write {stage: Input(str), Output('name'): stage}."
        )
    edges: list[_Edge] = []
    for destination, dependency in dag.items():
        keys = _keys(dependency)
        if isinstance(destination, Output) and destination.name is None:
            if keys is not None:
                dependency = keys
            elif not isinstance(dependency, Mapping):
                raise InvalidDictionaryOutput(
                    f"Output() without a name needs a dict, or a pipeline whose output is a dict, got "
                    f"{_label(dependency)}. Name it: Output('name')."
                )
            edges.extend(_Edge(_single(Output(name), node), node) for name, node in dependency.items())
        elif isinstance(destination, Output):
            edges.append(_Edge(_single(destination, dependency), dependency))
        elif isinstance(destination, Pipeline) and keys is not None:
            takes_dict = dependency.output_type == signature_of(destination, "input_type")
            edges.append(_Edge(destination, keys if takes_dict else dependency))
        else:
            edges.append(_Edge(destination, dependency))
    return edges


def _keys(dependency: object) -> dict[str, Key] | None:
    """The outputs of a pipeline with a dict output, one by one; None for anything else."""
    if not isinstance(dependency, Pipeline):
        return None
    output_type = signature_of(dependency, "output_type")
    return {key: Key(dependency, key) for key in output_type} if isinstance(output_type, Mapping) else None


def _single(output: Output, dependency: object) -> Output:
    """A named output, checked to get a single value."""
    is_dict = isinstance(dependency, Input) and isinstance(dependency.output_type, Mapping)
    if is_dict or isinstance(dependency, Mapping) or _keys(dependency) is not None:
        raise InvalidDictionaryOutput(
            f"{output!r} has a name and needs a single value, got the dict {_label(dependency)}. Use Output() without "
            "a name, or choose one key."
        )
    return output


def _check_edges(edges: list[_Edge]) -> None:
    for edge in edges:
        destination = edge.destination
        if isinstance(destination, Input):
            raise InvalidDAGException(
                f"{edge}: an Input cannot be a destination. Put it on the right: pipeline: Input(T)."
            )
        if not isinstance(destination, Pipeline | Output):
            raise InvalidDAGException(
                f"{edge}: a destination is a Pipeline or an Output, got {type(destination).__name__}. "
                f"{beam_transform_advice(destination) or 'Turn the pair round if it is the dependency.'}"
            )
        for node in edge.nodes:
            if isinstance(node, Output):
                raise InvalidDAGException(f"{edge}: an Output cannot be a dependency. Depend on what feeds it.")
            if not isinstance(node, Pipeline | Key | Input):
                raise InvalidDAGException(
                    f"{edge}: a dependency is a Pipeline, a Key (pipeline['name']), an Input, or a dict of name to "
                    f"one of these, got {type(node).__name__}: {node!r}."
                )
        if isinstance(edge.dependency, Mapping):
            for name in edge.dependency:
                if not isinstance(name, str):
                    raise InvalidDAGException(
                        f"{edge}: the names of a dict dependency are strings, got {name!r}. Use the keys of input_type."
                    )
        if isinstance(destination, Pipeline):
            expected = signature_of(destination, "input_type")
            found = _dependency_type(edge)
            if expected != found:
                takes, gives = _describe(expected), _describe(found)
                if takes == gives:  # classes with the same name
                    takes, gives = repr(expected), repr(found)
                raise TypeMismatchException(
                    f"{edge}: {destination.name!r} takes {takes}, but {_label(edge.dependency)} gives {gives}. "
                    "Connect equal type signatures, or put a pipeline between that converts.",
                    stage=destination.name,
                    expected=expected,
                    found=found,
                )


def _dependency_type(edge: _Edge) -> object:
    if isinstance(edge.dependency, Mapping):
        return {name: _type_of(node) for name, node in edge.dependency.items()}
    return _type_of(edge.dependency)


def _type_of(node: Node) -> Signature:
    return signature_of(node, "output_type") if isinstance(node, Pipeline) else node.output_type


def _describe(signature: Any) -> str:
    if isinstance(signature, Mapping):
        return "{" + ", ".join(f"{name!r}: {_describe(type_)}" for name, type_ in signature.items()) + "}"
    return describe(signature)


def _check_names(edges: list[_Edge]) -> None:
    pipelines: dict[str, Pipeline] = {}
    outputs: set[str] = set()
    for edge in edges:
        if isinstance(edge.destination, Output):
            if edge.output_name in outputs:
                raise DuplicateNameException(f"two outputs are called {edge.output_name!r}. Rename one of them.")
            outputs.add(edge.output_name)
        for node in (edge.destination, *edge.nodes):
            pipeline = node.unit if isinstance(node, Key) else node
            if isinstance(pipeline, Pipeline) and (not isinstance(pipeline.name, str) or not pipeline.name):
                raise InvalidDAGException(
                    f"{edge}: a pipeline's name should be a str that is not empty, and {type(pipeline).__name__} has "
                    f"{pipeline.name!r}. Pass name=... to super().__init__, or set it as a class attribute."
                )
            if isinstance(pipeline, Pipeline) and pipelines.setdefault(pipeline.name, pipeline) is not pipeline:
                raise DuplicateNameException(
                    f"two pipelines are called {pipeline.name!r} ({type(pipelines[pipeline.name]).__name__} and "
                    f"{type(pipeline).__name__}): names are the name spaces of statistics. Give one another name.",
                    stage=pipeline.name,
                )


def _check_input_and_output(edges: list[_Edge], outputs: list[_Edge]) -> Signature:
    inputs = [node for edge in edges for node in edge.nodes if isinstance(node, Input)]
    if not inputs:
        raise BadInputOrOutputException("the DAG has no Input. Connect at least one pipeline to Input(type).")
    for other in inputs[1:]:
        if other.output_type != inputs[0].output_type:
            raise BadInputOrOutputException(
                f"the DAG has inputs of different types: {inputs[0]!r} and {other!r}. A DAG takes a single input: use "
                "Input({'name': type, ...}) for several values."
            )
    if not outputs:
        raise BadInputOrOutputException("the DAG has no Output. Add one: Output('name'): pipeline.")
    return inputs[0].output_type


def _check_connected(edges: list[_Edge], pipelines: list[Pipeline]) -> None:
    fed = {id(pipeline) for pipeline in pipelines}
    used: set[int] = set()
    for edge in edges:
        for node in edge.nodes:
            pipeline = node.unit if isinstance(node, Key) else node
            if not isinstance(pipeline, Pipeline):
                continue
            used.add(id(pipeline))
            if id(pipeline) not in fed:
                raise NotConnectedException(
                    f"{edge}: {pipeline.name!r} is used, but nothing feeds it. Add {pipeline.name}: dependency.",
                    stage=pipeline.name,
                )
    for pipeline in pipelines:
        if id(pipeline) not in used:
            raise NotConnectedException(
                f"{pipeline.name!r} is fed, but nothing uses its output. Connect it to a pipeline or an Output, or "
                "remove it.",
                stage=pipeline.name,
            )


def _ref(node: Node) -> Ref:
    if isinstance(node, Key):
        return Ref(node.unit.name, node.key)
    return Ref("", None) if isinstance(node, Input) else Ref(node.name, None)


def _sort(edges: list[_Edge], join: Join) -> tuple[Unit, ...]:
    """Units in topological order; among those that are ready, the order of the DAG dict."""
    waiting = [edge for edge in edges if isinstance(edge.destination, Pipeline)]
    done = {""}
    units: list[Unit] = []
    while waiting:
        for edge in waiting:
            dependency = edge.dependency
            # In the order in which the stage declares them: the way the DAG is written does not change the results.
            inputs: Ref | dict[str, Ref] = (
                {name: _ref(dependency[name]) for name in edge.destination.input_type}
                if isinstance(dependency, Mapping)
                else _ref(dependency)
            )
            refs = [inputs] if isinstance(inputs, Ref) else list(inputs.values())
            if all(ref.unit in done for ref in refs):
                units.append(Unit(name=edge.destination.name, stage=edge.destination, inputs=inputs, join=join))
                done.add(edge.destination.name)
                waiting.remove(edge)
                break
        else:
            cycle = " → ".join(_cycle({edge.destination.name: edge.nodes for edge in waiting}))
            raise BadTopologyException(
                f"the DAG holds a cycle: {cycle} (each takes what the next one gives). Remove one of these pairs."
            )
    return tuple(units)


def _cycle(waiting: Mapping[str, list[Node]]) -> list[str]:
    """The names along a cycle of pipelines that all wait for another one."""
    path = [next(iter(waiting))]
    while True:
        refs = [_ref(node).unit for node in waiting[path[-1]]]
        path.append(next(name for name in refs if name in waiting))
        if path[-1] in path[:-1]:
            return path[path.index(path[-1]) :]
