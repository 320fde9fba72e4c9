"""Circles of imports among modules, read from the source: imports in functions and under TYPE_CHECKING count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path


def module_of(path: str) -> str:
    """`beam_pipes/commands/cli.py` → `beam_pipes.cli`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(source: str) -> Iterator[tuple[str, str]]:
    """(module, module with the imported name) of every absolute import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.module, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, alias.name


def imports_between(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Module → the modules of `sources` (path → text) that it imports. Packages' `__init__` only pass names on."""
    modules = {module_of(path): text for path, text in sources.items() if not path.endswith("__init__.py")}
    edges: dict[str, set[str]] = {}
    for module, text in modules.items():
        targets = {full if full in modules else short for short, full in imported(text)}
        edges[module] = (targets & modules.keys()) - {module}
    return edges


def circles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules that all reach each other."""
    reached = {start: _reached_from(start, edges) for start in edges}
    return {
        frozenset(other for other in reached[start] if start in reached[other])
        for start in edges
        if start in reached[start]
    }


def _reached_from(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - reached
        reached |= new
        waiting.extend(new)
    return reached


def source_files(root: Path) -> dict[str, str]:
    """Path below `root` → text, for all installed modules."""
    files = sorted((root / "beam_pipes").rglob("*.py"))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}
