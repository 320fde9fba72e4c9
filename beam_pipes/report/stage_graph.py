"""The graph of a snapshot with the counts of its account: stages and splits as nodes, what went between as edges."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from beam_pipes.building.declaration_fingerprint import DeclarationFingerprint
from beam_pipes.engine.account import Account, UnitAccount

SOURCE = "source"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A stage or (kind "split") an output. `account` is None for splits."""

    name: str
    kind: str
    account: UnitAccount | None = None
    records: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edge:
    """`count` values went from node `start` to node `end` (positions in the list); `key` names the output taken."""

    start: int
    end: int
    key: str | None
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageGraph:
    """Nodes in topological order, and edges."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def stage_graph(account: Account, declared: DeclarationFingerprint | None) -> StageGraph:
    """The graph as it was declared; without a stored fingerprint the stages in their order, in one chain."""
    edges_of = {} if declared is None else _declared_inputs(declared.options, list(account.units))
    nodes = [Node(name=name, kind="stage", account=unit) for name, unit in account.units.items() if name != "write"]
    positions = {node.name: position for position, node in enumerate(nodes)}
    positions.setdefault("", positions.get(SOURCE, 0))  # the graph's input is what the source gives
    edges: list[Edge] = []
    last = 0
    for position, node in enumerate(nodes):
        assert node.account is not None
        if node.name == SOURCE or node.name.startswith(f"{SOURCE}."):
            last = position
            continue
        refs = edges_of.get(node.name, [(nodes[last].name, None)] if position else [])
        for unit, key in refs:
            if unit in positions:
                edges.append(Edge(start=positions[unit], end=position, key=key, count=node.account.inputs))
        last = position
    for split, written in account.outputs.items():
        unit, key = (
            edges_of[f"split {split}"][0] if f"split {split}" in edges_of else (nodes[last].name if nodes else "", None)
        )
        nodes.append(Node(name=split, kind="split", records=written))
        if unit in positions:
            edges.append(Edge(start=positions[unit], end=len(nodes) - 1, key=key, count=written))
    return StageGraph(nodes=tuple(nodes), edges=tuple(edges))


def _declared_inputs(options: Mapping[str, str], units: list[str]) -> dict[str, list[tuple[str, str | None]]]:
    """Unit, or `split NAME` → the (unit, key) pairs that it reads, from the options of a stored fingerprint."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for name, text in options.items():
        unit = name.removesuffix(".inputs")
        try:
            if unit != name and unit in units:
                _, inputs = json.loads(text)
                found[unit] = _refs(inputs)
            elif name.startswith("split ") and text.startswith("[["):
                found[name] = [_ref(json.loads(text)[0])]
        except (ValueError, TypeError, IndexError):
            continue  # the file is no part of what a manifest answers for: a report does without it
    return found


def _refs(inputs: Any) -> list[tuple[str, str | None]]:
    return [_ref(each) for each in inputs.values()] if isinstance(inputs, dict) else [_ref(inputs)]


def _ref(made: Any) -> tuple[str, str | None]:
    unit, key = made
    return str(unit), None if key is None else str(key)
