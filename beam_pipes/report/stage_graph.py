"""The graph of a snapshot: its content, and the positions of its nodes and edges.

`stage_graph` gives stages and splits as nodes, and as edges the number of values between them, from the account of the
snapshot. `lay_out` places them: layers from top to bottom, with as few crossings as a few sweeps achieve.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from beam_pipes.building.declaration_fingerprint import DeclarationFingerprint
from beam_pipes.engine.account import Account, UnitAccount
from beam_pipes.report.shown import shown_value
from beam_pipes.storage.checked_json import JsonValue

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
    """The graph as declared; without a stored fingerprint, the stages in order, as one chain."""
    edges_of = {} if declared is None else _declared_inputs(declared.options, list(account.units))
    nodes = [Node(name=name, kind="stage", account=unit) for name, unit in account.units.items() if name != "write"]
    positions = {node.name: position for position, node in enumerate(nodes)}
    positions.setdefault("", positions.get(SOURCE, 0))  # the graph's input is the source's output
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
            continue  # the manifest does not cover this file, so a report works without it
    return found


def _refs(inputs: object) -> list[tuple[str, str | None]]:
    return [_ref(each) for each in inputs.values()] if isinstance(inputs, dict) else [_ref(inputs)]


def _ref(made: JsonValue) -> tuple[str, str | None]:
    unit, key = made
    return str(unit), None if key is None else str(key)


CHARACTER = 7.2
LINE = 17
PADDING = 10
MAX_CHARACTERS = 34
_GAP_X = 28
_GAP_Y = 56
_WAYPOINT = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """A node: its top-left corner, size, lines of text and kind ("stage" or "split")."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    kind: str
    failed: bool
    title: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Path:
    """An edge: SVG path data, its label and the label's position."""

    data: str
    label: str
    x: float
    y: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing:
    """All boxes and paths, and the size of the picture in user units."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    paths: tuple[Path, ...]


def lay_out(graph: StageGraph) -> Drawing:
    """A layered drawing (K. Sugiyama et al., IEEE Trans. SMC 11, 1981): longest-path layers, waypoints where an edge
    passes a layer, order by barycentres."""
    layer = [0] * len(graph.nodes)
    for edge in sorted(graph.edges, key=lambda edge: edge.end):
        layer[edge.end] = max(layer[edge.end], layer[edge.start] + 1)
    texts = [_lines(graph, position) for position in range(len(graph.nodes))]
    widths = [max(map(len, lines)) * CHARACTER + 2 * PADDING for lines in texts]
    heights = [float(len(lines) * LINE + PADDING) for lines in texts]
    layers: list[list[int]] = [[] for _ in range(max(layer, default=0) + 1)]
    for position, level in enumerate(layer):
        layers[level].append(position)
    chains = []
    for edge in graph.edges:
        chain = [edge.start]
        for level in range(layer[edge.start] + 1, layer[edge.end]):
            chain.append(len(widths))
            layers[level].append(len(widths))
            widths.append(_WAYPOINT)
            heights.append(0.0)
        chains.append([*chain, edge.end])
    _order(layers, chains)
    total = max((sum(widths[n] for n in nodes) + _GAP_X * (len(nodes) - 1) for nodes in layers), default=0) + 2 * _GAP_X
    lefts, tops = [0.0] * len(widths), [0.0] * len(widths)
    y = float(PADDING)
    bands = []
    for nodes in layers:
        tall = max((heights[node] for node in nodes), default=0)
        x = (total - sum(widths[node] for node in nodes) - _GAP_X * (len(nodes) - 1)) / 2
        for node in nodes:
            lefts[node], tops[node] = x, y
            x += widths[node] + _GAP_X
        bands.append((y, tall))
        y += tall + _GAP_Y
    boxes = tuple(
        Box(
            x=round(lefts[position], 1),
            y=round(tops[position], 1),
            width=round(widths[position], 1),
            height=heights[position],
            lines=texts[position],
            kind=node.kind,
            failed=node.account is not None and node.account.dead > 0,
            title=node.name,
        )
        for position, node in enumerate(graph.nodes)
    )
    paths = []
    for edge, chain in zip(graph.edges, chains, strict=True):
        points = []
        for node in chain:
            middle = lefts[node] + widths[node] / 2
            if node >= len(graph.nodes):
                points += [(middle, tops[node]), (middle, tops[node] + bands[layer[edge.start] + chain.index(node)][1])]
            elif node == edge.start:
                points.append((middle, tops[node] + heights[node]))
            else:
                points.append((middle, tops[node]))
        label = f"{edge.count:,}" if edge.key is None else f"{_short(edge.key)}: {edge.count:,}"
        (x0, y0), (x1, y1) = points[-2], points[-1]
        # Nearer to its end, where the edges of one node are apart.
        x, y_label = x0 + 0.8 * (x1 - x0), y0 + 0.64 * (y1 - y0) + 4
        paths.append(Path(data=_curve(points), label=label, x=round(x, 1), y=round(y_label, 1)))
    return Drawing(width=round(total), height=round(y - _GAP_Y + PADDING), boxes=boxes, paths=tuple(paths))


def _order(layers: list[list[int]], chains: Sequence[Sequence[int]]) -> None:
    """Sorts the nodes of each layer by the mean place of their neighbours above, then below, a few times."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for chain in chains:
        for start, end in zip(chain, chain[1:], strict=False):
            above.setdefault(end, []).append(start)
            below.setdefault(start, []).append(end)
    for sweep in range(6):
        neighbours = above if sweep % 2 == 0 else below
        place = {node: place for nodes in layers for place, node in enumerate(nodes)}
        for nodes in layers if sweep % 2 == 0 else reversed(layers):
            means = {
                node: sum(place[other] for other in found) / len(found)
                if (found := neighbours.get(node))
                else place[node]
                for node in nodes
            }
            nodes.sort(key=lambda node: (means[node], node))
            place |= {node: position for position, node in enumerate(nodes)}


def _lines(graph: StageGraph, position: int) -> tuple[str, ...]:
    node = graph.nodes[position]
    if node.account is None:
        return _short(node.name), f"{node.records or 0:,} records"
    account = node.account
    lines = [_short(node.name), f"in {account.inputs:,} · out {account.outputs:,}"]
    reasons = sorted(account.dropped.items(), key=lambda item: (-item[1], item[0]))
    lines += [_short(f"dropped {count:,} {reason}") for reason, count in reasons[:3]]
    if len(reasons) > 3:
        lines.append(f"dropped {sum(count for _, count in reasons[3:]):,} for {len(reasons) - 3} more reasons")
    if account.dead:
        lines.append(f"dead {account.dead:,}")
    return tuple(lines)


def _short(text: str) -> str:
    return shown_value(text, max_characters=MAX_CHARACTERS).replace("\n", " ")


def _curve(points: Sequence[tuple[float, float]]) -> str:
    data = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        middle = (y0 + y1) / 2
        data += f" C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return data
