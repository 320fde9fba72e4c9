"""The rooms of the library: what each holds, and which others it may import.

`tests/test_import_walls.py` keeps the walls, and the table in CONTRIBUTING.md is made from the same rows. A name stands
for `beam_pipes/<name>/` or `beam_pipes/<name>.py`; the folders of `transforms` and `runners` stand beside `beam_pipes`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
_FOLDERS = {"transforms": "transforms/", "runners": "runners/", "beam_pipes": "beam_pipes/__init__.py"}


class Room(NamedTuple):
    """One room; it may import itself too."""

    holds: str
    may_import: set[str]


BASE = {"errors", "extras"}
CACHE = {"cache"} | BASE
ENGINE = {"engine", "identity"} | CACHE
SOURCES = {"sources"} | CACHE
DECLARATIONS = {"typed", "graph", "tasks"}

#: From the lowest to the highest.
ROOMS: dict[str, Room] = {
    "errors": Room("every exception, and what makes text from data safe to print", set()),
    "extras": Room("optional dependencies: what to install when one is missing", {"errors"}),
    "cache": Room("the cache at rest: format, publication, storage, verification", BASE),
    "engine": Room("graphs of units, their execution, statistics", CACHE),
    "identity": Room("code and values → fingerprints", {"engine"} | CACHE),
    "sources": Room("raw input → source shards → batches of records", ENGINE),
    "analysis": Room("what an analysis is: analyzer, accumulator, result", ENGINE),
    "loader": Room("cache → batches of NumPy arrays", CACHE),
    "typed": Room("declaring by functions, typed pipelines, DAGs", ENGINE | SOURCES),
    "building": Room(
        "declaration → analysis → plan → shards → commit; `workers/` supervises processes, `care/` looks after caches",
        ENGINE | SOURCES | {"analysis"},
    ),
    "tft": Room("tensorflow-transform: learning, applying", ENGINE | {"analysis", "typed"}),
    "graph": Room("declaring by a graph of operators; running it", ENGINE | SOURCES | {"typed", "loader", "building"}),
    "tasks": Room(
        "declaring by tasks and mixtures", ENGINE | SOURCES | {"analysis", "typed", "graph", "loader", "tft"}
    ),
    "evaluation": Room("evaluator, metrics, loggers", {"tasks"} | CACHE),
    "beam": Room(
        "a build as PTransforms; the only room that imports Beam at the top of its files, but for `tft/beam_passes.py` "
        "and `seqio/beam_utils.py`",
        ENGINE | SOURCES | DECLARATIONS | {"analysis", "building"},
    ),
    "map_style": Room("datasets, samplers, batch functions and a loader over any indexable data", CACHE | {"loader"}),
    "on_device": Room("tf.data, JAX, torch; the only room that imports JAX and torch", {"loader", "graph"} | CACHE),
    "transforms": Room(
        "what is done to examples", ENGINE | SOURCES | DECLARATIONS | {"analysis", "loader", "map_style"}
    ),
    "recipes": Room(
        "whole declarations for usual jobs, written as modules of Python",
        ENGINE | SOURCES | {"analysis", "building", "typed", "tasks", "transforms", "graph"},
    ),
    "testing": Room(
        "chaos for declarations: trials of stages and builds, verdicts",
        ENGINE | SOURCES | {"analysis", "building", "beam"},
    ),
    "export": Room("published snapshots in the formats of others", CACHE),
    "report": Room(
        "pages about published snapshots, comparisons of two", ENGINE | SOURCES | {"analysis", "building", "loader"}
    ),
    "telemetry": Room(
        "watching loaders of every kind, measuring their stages", CACHE | {"loader", "on_device", "map_style"}
    ),
    "runners": Room(
        "who runs a build; the command line",
        ENGINE
        | SOURCES
        | DECLARATIONS
        | {"analysis", "building", "loader", "beam", "on_device", "tft", "transforms"}
        | {"export", "recipes", "report", "telemetry", "testing"},
    ),
    "seqio": Room(
        "the names of SeqIO, converters, evaluation and `seqio_cache_tasks` included",
        DECLARATIONS | CACHE | {"loader", "evaluation", "transforms", "runners"},
    ),
    "face": Room(
        "`declare` and `build`: from a source and functions to a cache",
        ENGINE | SOURCES | {"analysis", "typed", "building", "beam", "runners"},
    ),
    "beam_pipes": Room(
        "names of the package, loaded when they are first used",
        {"cache", "face", "loader", "building", "on_device", "typed"},
    ),
}


def table() -> str:
    """The rows as Markdown; `errors` and `extras`, which all rooms may import, are left out of the lists."""
    lines = ["| room | holds | may import |", "| --- | --- | --- |"]
    order = list(ROOMS)
    for name, room in ROOMS.items():
        folder = _FOLDERS.get(name) or (f"beam_pipes/{name}" + (".py" if name in (*BASE, "face") else "/"))
        others = sorted(room.may_import - BASE - {name}, key=order.index)
        lines.append(f"| `{folder}` | {room.holds} | {', '.join(others) or 'nothing of ours'} |")
    return "\n".join(lines)


def contributing() -> str:
    """CONTRIBUTING.md with the table of today between its marks."""
    before, _, rest = CONTRIBUTING.read_text(encoding="utf-8").partition("<!-- rooms -->\n")
    _, _, after = rest.partition("<!-- end of rooms -->")
    return f"{before}<!-- rooms -->\n{table()}\n<!-- end of rooms -->{after}"
