"""`docs/api/`: a page for each package that people import from, with the public names that its `__init__` offers.

The pages hold directives; what a name is comes from its docstring when the site is built (mkdocstrings).
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]

#: Package → what stands beside it in the list.
PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "beam_pipes": "the names that people type",
        "beam_pipes.typed": "typed pipelines, DAGs of them, statistics",
        "beam_pipes.graph": "graphs of operators",
        "beam_pipes.tasks": "tasks, mixtures, vocabularies",
        "beam_pipes.sources": "where records come from",
        "beam_pipes.analysis": "passes over all records before the map pass",
        "beam_pipes.tft": "tensorflow-transform: learned in builds, applied in loaders and at serving",
        "beam_pipes.building": "declarations",
        "beam_pipes.beam": "declarations as PTransforms",
        "beam_pipes.cache": "the cache at rest",
        "beam_pipes.loader": "batches, order, state, packing, mixtures",
        "beam_pipes.on_device": "tf.data, JAX, torch",
        "beam_pipes.map_style": "datasets, samplers, batch functions and a loader over them",
        "beam_pipes.evaluation": "evaluator, metrics, loggers",
        "beam_pipes.telemetry": "what training waits for",
        "beam_pipes.testing": "is a declaration robust?",
        "beam_pipes.report": "pages about snapshots, differences of two",
        "beam_pipes.recipes": "whole declarations for usual jobs",
        "beam_pipes.disclosure": "what a model was trained on",
        "beam_pipes.export": "snapshots in other formats",
        "beam_pipes.runners": "who runs a build",
        "beam_pipes.transforms.audio": "sound",
        "beam_pipes.transforms.by_key": "samples and splits by key",
        "beam_pipes.transforms.strata": "splits that keep the shares of classes",
        "beam_pipes.transforms.chat": "messages to tokens and loss weights",
        "beam_pipes.transforms.converters": "feature converters",
        "beam_pipes.transforms.datatrove": "filters and formatters of datatrove as stages",
        "beam_pipes.transforms.dedup": "duplicates",
        "beam_pipes.transforms.denoising": "objectives drawn when rows are read",
    }
)

MADE = "Made by `python -m reference_pages` from the code; not to be edited."


def pages() -> dict[str, str]:
    """File below `docs` → its text."""
    rows = [f"| [`{package}`]({package}.md) | {about} |" for package, about in PACKAGES.items()]
    table = "\n".join(["| package | about |", "| --- | --- |", *rows])
    contents = (
        f"# Python API\n\n{MADE} The pages are filled in when the site is built (`make docs`); in an editor, the "
        f"docstrings\nsay the same. Errors have [a page of their own](../errors.md), operators "
        f"[theirs](../operators.md).\n\n{table}\n"
    )
    return {"docs/api/README.md": contents, **{f"docs/api/{package}.md": _page(package) for package in PACKAGES}}


def _page(package: str) -> str:
    names = dict(sorted(public_names(package).items(), key=lambda item: (item[0].lower(), item[0])))
    directives = "\n\n".join(f"::: {path}" for path in dict.fromkeys(names.values()))
    return f"# {package}\n\n{MADE}\n\n{PACKAGES[package][0].upper()}{PACKAGES[package][1:]}.\n\n{directives}\n"


def public_names(package: str) -> dict[str, str]:
    """Name that a package offers → where it is defined: `{"Loader": "beam_pipes.loader.loader.Loader"}`."""
    path = ROOT / package.replace(".", "/")
    if not path.is_dir():  # a package of one chapter offers what it defines and lists
        return {name: f"{package}.{name}" for name in importlib.import_module(package).__all__}
    tree = ast.parse((path / "__init__.py").read_text(encoding="utf-8"))
    return {name: path for name, path in _exported(tree) if not path.startswith("beam_pipes.errors.")}


def _exported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """`from module import name as name`, anywhere in the file: the spelling that says that a name is offered."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                if alias.asname == alias.name and not alias.name.startswith("_"):
                    yield alias.name, f"{node.module}.{alias.name}"
