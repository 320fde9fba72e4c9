"""The digest of a graph: equal iff the operators that run, their arguments and how they are connected are equal."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import DeclarationError
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.operator_node import OperatorNode
from beam_pipes.graph.reader import Reader
from beam_pipes.identity.canonical import canonical, qualified_name

if TYPE_CHECKING:
    from beam_pipes.graph.pipeline import Pipeline


def graph_digest(pipeline: Pipeline) -> str:
    """16 hexadecimal digits: what a checkpoint knows of the graph. Paths, batch size and shards are not in it."""
    rows = [_row(node) for node in pipeline.plan().nodes]
    outputs = [_ref(node) for node in pipeline.plan().outputs]
    text = json.dumps([rows, outputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _ref(node: DataNode) -> list[Any]:
    return [node.source.name, node.index]


def _canonical(value: Any, path: str) -> Any:
    try:
        return canonical(value, path=path)
    except DeclarationError:
        if not callable(value):
            raise
        return {"$name": qualified_name(value)}  # it refers to what has no canonical form, such as an open file


def _row(node: OperatorNode) -> list[Any]:
    operator = node.operator
    config = dict(operator.fingerprint_config())
    if operator.is_source and not isinstance(operator, Reader):
        config.pop("source", None)  # code of the user that is told where it stands; a checkpoint cannot hold it
    scope = [] if node.scope is None else [[_ref(one.predicate), one.branch] for one in node.scope.chain()]
    return [
        node.name,
        {name: _canonical(value, f"{node.name}.{name}") for name, value in config.items()},
        [_ref(feed) for feed in node.inputs],
        {name: _ref(feed) for name, feed in node.argument_inputs.items()},
        node.seed,
        scope,
    ]
