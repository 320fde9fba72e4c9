"""Graphs as JSON and back: operators and callables by name, values as plain data; nothing is pickled."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TypeVar

import numpy as np

from beam_pipes.errors import GraphError
from beam_pipes.graph import types
from beam_pipes.graph.data_node import DataNode, OperatorNode, Scope
from beam_pipes.graph.definition import GraphDefinition
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.spec import UserFrame
from beam_pipes.graph.trace import add, in_scope

Graph = TypeVar("Graph", bound=GraphDefinition)

FORMAT_VERSION = 1


def serialize(pipeline: GraphDefinition) -> str:
    """The graph, its outputs and options as JSON."""
    pipeline.plan()
    positions = {node: position for position, node in enumerate(pipeline.nodes)}

    def ref(node: DataNode) -> list[int]:
        return [positions[node.source], node.index]

    operators = []
    for node in pipeline.nodes:
        cls = type(node.operator)
        operators.append(
            {
                "class": f"{cls.__module__}:{cls.__qualname__}",
                "op_name": cls.op_name,
                "name": node.name,
                "constants": {
                    name: _encode(value, f"{node.name}.{name}", node)
                    for name, value in node.operator.constants.items()
                    if not _is_default(node.operator, name, value)
                },
                "inputs": [ref(feed) for feed in node.inputs],
                "argument_inputs": {name: ref(feed) for name, feed in node.argument_inputs.items()},
                "device": node.device,
                "scope": [[ref(scope.predicate), scope.branch] for scope in node.branches],
                "seed": node.seed,
                "preserve": node.preserve,
                "on_error": node.on_error,
                "where": [node.where.file.rpartition("/")[2], node.where.line, node.where.function],
            }
        )
    made = {
        "format_version": FORMAT_VERSION,
        "options": dataclasses.asdict(pipeline.options),
        "operators": operators,
        "outputs": [ref(node) for node in pipeline.plan().outputs],
        "output_names": list(pipeline.output_names),
    }
    return json.dumps(made, indent=1)


def _is_default(operator: Operator, name: str, value: object) -> bool:
    argument = operator.arguments[name]
    if argument.is_required:
        return False
    default = argument.convert(argument.default, operator=operator.name)
    return type(default) is type(value) and bool(np.all(default == value))


def _encode(value: object, path: str, node: OperatorNode) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return {"$array": [value.dtype.str, list(value.shape), value.ravel().tolist()]}
    if isinstance(value, np.dtype):
        return {"$dtype": value.str}
    if isinstance(value, enum.Enum) and getattr(types, type(value).__name__, None) is type(value):
        return {"$enum": [type(value).__name__, value.name]}
    if isinstance(value, (list, tuple)):
        items = [_encode(one, path, node) for one in value]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"$dict": {key: _encode(one, path, node) for key, one in value.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _encode(getattr(value, field.name), path, node) for field in dataclasses.fields(value)}
        return {"$dataclass": [_name_of(type(value), path, node), fields]}
    if callable(value):
        return {"$callable": _name_of(value, path, node)}
    raise GraphError(
        f"{path} cannot be serialized: {type(value).__name__} {value!r:.60} is neither plain data nor a function with "
        f"a name. ({node.where})",
        where=node.where,
    )


def _name_of(value: object, path: str, node: OperatorNode) -> str:
    """`module:qualname`, if importing it gives the same object."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module in (None, "__main__") or not name or "<" in name:
        raise GraphError(
            f"{path} cannot be serialized: {value!r:.60} has no name that another process could import it by. Define "
            f"it at the top of a module. ({node.where})",
            where=node.where,
        )
    return f"{module}:{name}"


def _import(reference: str) -> object:
    module, _, name = reference.partition(":")
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise GraphError(f"the serialized graph refers to {reference!r}, which cannot be imported: {error}") from error


def _decode(value: object) -> object:
    if isinstance(value, list):
        return [_decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    (kind, held), *_ = value.items()
    if kind == "$array":
        dtype, shape, items = held
        return np.array(items, dtype=dtype).reshape(shape)
    if kind == "$dtype":
        return np.dtype(held)
    if kind == "$enum":
        return getattr(types, held[0])[held[1]]
    if kind == "$tuple":
        return tuple(_decode(one) for one in held)
    if kind == "$dict":
        return {key: _decode(one) for key, one in held.items()}
    if kind == "$dataclass":
        cls = _import(held[0])
        if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
            raise GraphError(f"the serialized graph refers to {held[0]!r} as a dataclass, which it is not")
        fields = {key: _decode(one) for key, one in held[1].items()}
        make: Callable[..., object] = cls
        if inspect.signature(make).parameters.keys() >= fields.keys():
            return make(**fields)
        made = object.__new__(cls)  # __init__ may take other arguments, as in tfrec.FixedLenFeature
        for key, one in fields.items():
            object.__setattr__(made, key, one)
        return made
    if kind == "$callable":
        return _import(held)
    raise GraphError(f"the serialized graph holds {kind!r}, which this version does not know")


def deserialize(text: str | bytes, cls: Callable[..., Graph], options: Mapping[str, object]) -> Graph:
    """The pipeline that `serialize` wrote; raises `GraphError` for anything else."""
    try:
        made = json.loads(text)
    except ValueError as error:
        raise GraphError(f"a serialized graph is one JSON object: {error}") from error
    if not isinstance(made, dict) or made.get("format_version") != FORMAT_VERSION:
        version = made.get("format_version") if isinstance(made, dict) else None
        raise GraphError(f"expected a serialized graph of version {FORMAT_VERSION}, got version {version!r}")
    pipeline = cls(**{**made["options"], **options})
    scopes: dict[object, Scope] = {}  # operators in one branch share one: scopes are compared by identity

    def node(ref: list[int]) -> DataNode:
        return pipeline.nodes[ref[0]].outputs[ref[1]]

    def scope(rows: list[tuple[list[int], bool]]) -> Scope | None:
        found: Scope | None = None
        for ref, branch in reversed(rows):
            found = scopes.setdefault((found, *ref, branch), Scope(found, node(ref), branch))
        return found

    try:
        for row in made["operators"]:
            fed = {name: node(ref) for name, ref in row["argument_inputs"].items()}
            own = {name: _decode(value) for name, value in row["constants"].items()}
            common = {name: row[name] for name in ("device", "name", "seed", "preserve", "on_error")}
            keywords = {**{name: value for name, value in common.items() if value is not None}, **own, **fed}
            inputs = [node(ref) for ref in row["inputs"]]
            with pipeline, in_scope(scope(row["scope"])):
                add(_operator_class(row), inputs, keywords, where=UserFrame(*row["where"]))
        outputs = [node(ref) for ref in made["outputs"]]
    except GraphError:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise GraphError(f"the serialized graph is damaged: {type(error).__name__}: {error}") from error
    names = made["output_names"]
    pipeline.set_outputs(dict(zip(names, outputs, strict=True)) if names else tuple(outputs))
    return pipeline


def _operator_class(row: Mapping[str, str]) -> type[Operator]:
    found = _import(row["class"])
    if not (isinstance(found, type) and issubclass(found, Operator)):
        raise GraphError(f"the serialized graph refers to {row['class']!r} as an operator, which it is not")
    found.op_name = row["op_name"]
    return found
