"""The digest of a graph: equal iff the operators that run, their arguments and how they are connected are equal.

The graph, drawn: places, the data over each edge in a batch, pruned operators; as text, DOT or SVG.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from beam_pipes.checks import choice
from beam_pipes.errors import DeclarationError, OperatorArgumentError
from beam_pipes.graph.cut import Plan, place_of
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.host_run import OperatorStatistics
from beam_pipes.graph.reader import Reader
from beam_pipes.identity.canonical import qualified_name
from beam_pipes.identity.fingerprint import canonical


def graph_digest(plan: Plan) -> str:
    """16 hexadecimal digits that a checkpoint stores about the graph, without paths, batch size and shards."""
    rows = [_row(node) for node in plan.nodes]
    outputs = [_ref(node) for node in plan.outputs]
    text = json.dumps([rows, outputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _ref(node: DataNode) -> list[object]:
    return [node.source.name, node.index]


def _canonical(value: object, path: str) -> object:
    try:
        return canonical(value, path=path)
    except DeclarationError:
        if not callable(value):
            raise
        return {"$name": qualified_name(value)}  # it uses a value without canonical form, such as an open file


def _row(node: OperatorNode) -> list[object]:
    operator = node.operator
    config = dict(operator.fingerprint_config())
    if operator.is_source and not isinstance(operator, Reader):
        config.pop("source", None)  # user code, which keeps its own position; a checkpoint cannot hold it
    scope = [[_ref(one.predicate), one.branch] for one in node.branches]
    return [
        node.name,
        {name: _canonical(value, f"{node.name}.{name}") for name, value in config.items()},
        [_ref(feed) for feed in node.inputs],
        {name: _ref(feed) for name, feed in node.argument_inputs.items()},
        node.seed,
        scope,
    ]


FORMS = ("text", "dot", "svg")
PLACES = ("offline", "host", "device", "pruned")


@dataclasses.dataclass(frozen=True)
class Edge:
    """The data from one operator to another: `bytes` per batch, None before anything has run."""

    feed: DataNode
    target: OperatorNode | None  # None: an output of the graph
    label: str
    bytes: float | None

    @property
    def words(self) -> str:
        """`uint8[·×·×3], 1.2 MB`."""
        return f"{self.feed.spec}" if self.bytes is None else f"{self.feed.spec}, {_size(self.bytes)}"


def explain(plan: Plan, statistics: Mapping[str, OperatorStatistics], names: Sequence[str], form: str) -> str:
    """The drawing, with outputs called `names`; raises `OperatorArgumentError` for an unknown form."""
    choice(form, of=FORMS, what="form", error=OperatorArgumentError)
    drawing: str = getattr(Drawing(plan, statistics, names), form)()
    return drawing


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


class Drawing:
    """A plan with the statistics of its operators so far."""

    def __init__(self, plan: Plan, statistics: Mapping[str, OperatorStatistics], names: Sequence[str]) -> None:
        self.plan = plan
        self.statistics = statistics
        self.names = names
        self.places: dict[str, list[OperatorNode]] = {place: [] for place in PLACES}
        for node in plan.nodes:
            self.places[place_of(plan, node)].append(node)
        self.places["pruned"] = list(plan.pruned)
        self.edges = self._edges()

    def _edges(self) -> list[Edge]:
        edges = []
        for node in (*self.plan.nodes, *self.plan.pruned):
            labelled = [("", feed) for feed in node.inputs]
            labelled += [(f"{name}=", feed) for name, feed in node.argument_inputs.items()]
            if node.scope is not None:
                labelled.append(("if " if node.scope.branch else "if not ", node.scope.predicate))
            edges += [Edge(feed, node, label, self._bytes(feed)) for label, feed in labelled]
        names = self.names or [f"output {position}" for position in range(len(self.plan.outputs))]
        edges += [
            Edge(feed, None, name, self._bytes(feed)) for name, feed in zip(names, self.plan.outputs, strict=True)
        ]
        return edges

    def _bytes(self, node: DataNode) -> float | None:
        known = self.statistics.get(node.source.name)
        if known is None or not known.batches or node.index >= len(known.output_bytes):
            return None
        return known.output_bytes[node.index] / known.batches

    def text(self) -> str:
        """A paragraph for each place, a line for each operator."""
        lines = []
        for place, nodes in self.places.items():
            if not nodes:
                continue
            lines.append({"offline": "offline (before the cut)"}.get(place, place))
            width = max(len(node.name) for node in nodes)
            for node in nodes:
                feeds = [f"{edge.label}{edge.feed.name}" for edge in self.edges if edge.target is node]
                gives = ", ".join(
                    f"{output.spec}" + ("" if (size := self._bytes(output)) is None else f" {_size(size)}")
                    for output in node.outputs
                )
                took = f" ← {', '.join(feeds)}" if feeds else ""
                under = f"  [{node.scope}]" if node.scope is not None else ""
                under += f"  [without effect: {', '.join(node.without_effect)}]" if node.without_effect else ""
                lines.append(f"  {node.name:<{width}}{took} → {gives or 'nothing'}{under}  ({node.where})")
        lines.append("outputs")
        lines += [f"  {edge.label} = {edge.feed.name} ({edge.words})" for edge in self.edges if edge.target is None]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """For Graphviz: a cluster for each place."""
        lines = ["digraph graph_of_operators {", "  rankdir=LR; node [shape=box, fontname=sans];"]
        for place, nodes in self.places.items():
            if not nodes:
                continue
            style = ' style="dashed"; color="grey";' if place == "pruned" else ""
            lines.append(f'  subgraph "cluster_{place}" {{ label="{place}";{style}')
            lines += [f"    {_quoted(node.name)} [tooltip={_quoted(str(node.where))}];" for node in nodes]
            lines.append("  }")
        for edge in self.edges:
            if edge.target is None:
                lines.append(f"  {_quoted('→ ' + edge.label)} [shape=plaintext];")
            target = edge.target.name if edge.target is not None else f"→ {edge.label}"
            label = edge.words if edge.target is None else f"{edge.label}{edge.words}"
            lines.append(f"  {_quoted(edge.feed.source.name)} -> {_quoted(target)} [label={_quoted(label)}];")
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self) -> str:
        """A picture: places from left to right, operators from top to bottom."""
        width, height, gap_x, gap_y, top = 190, 40, 130, 28, 50
        at: dict[OperatorNode, tuple[int, int]] = {}
        parts: list[str] = []
        x = 20
        depth = 0
        for place, nodes in self.places.items():
            if not nodes:
                continue
            levels = _levels(nodes, self.edges)
            columns = max(levels.values()) + 1
            filled = [0] * columns
            for node in nodes:
                column = levels[node]
                at[node] = (x + column * (width + gap_x), top + filled[column] * (height + gap_y))
                filled[column] += 1
            wide = columns * (width + gap_x) - gap_x
            tall = max(filled) * (height + gap_y) + 20
            parts.append(
                f'<rect x="{x - 10}" y="24" width="{wide + 20}" height="{tall + 26}" fill="none" stroke="#999" '
                f'stroke-dasharray="4"/><text x="{x}" y="18" font-weight="bold">{place}</text>'
            )
            depth = max(depth, tall)
            x += wide + gap_x
        for edge in self.edges:
            x1, y1 = at[edge.feed.source][0] + width, at[edge.feed.source][1] + height // 2
            x2, y2 = (x, y1) if edge.target is None else (at[edge.target][0], at[edge.target][1] + height // 2)
            label = f"{edge.label} {edge.words}" if edge.target is None else f"{edge.label}{edge.words}"
            parts.append(
                f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#555" marker-end="url(#tip)"/>'
                f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 4}" font-size="9" text-anchor="middle">'
                f"{escape(label)}</text>"
            )
        for node, (left, up) in at.items():
            parts.append(
                f'<g><title>{escape(str(node.where))}</title><rect x="{left}" y="{up}" width="{width}" '
                f'height="{height}" rx="5" fill="#eef" stroke="#335"/><text x="{left + width // 2}" '
                f'y="{up + height // 2 + 4}" text-anchor="middle">{escape(node.name)}</text></g>'
            )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{x + 160}" height="{depth + top + 40}" '
            'font-family="sans-serif" font-size="12"><defs><marker id="tip" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>'
            + "".join(parts)
            + "</svg>\n"
        )


def _levels(nodes: Sequence[OperatorNode], edges: Sequence[Edge]) -> dict[OperatorNode, int]:
    """The depth of each operator in its place."""
    inside = set(nodes)
    levels = dict.fromkeys(nodes, 0)
    for node in nodes:  # in topological order
        before = [levels[edge.feed.source] + 1 for edge in edges if edge.target is node and edge.feed.source in inside]
        levels[node] = max(before, default=0)
    return levels


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
