"""The rooms of the library: what each holds, which others it may import, and how many lines it may have.

`tests/test_import_walls.py` keeps the walls, `tests/test_house.py` the lines, and the table in CONTRIBUTING.md is made
from the same rows. A name stands for `beam_pipes/<name>/` or `beam_pipes/<name>.py`.

Ring 1 is the core: what a record passes from a raw file to a device, and who runs it. Ring 2 has the faces of systems
whose users we serve, ring 3 what looks at caches or serves a job around them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


class Room(NamedTuple):
    """One room; it may import itself too."""

    ring: int
    #: Lines of Python at most. To raise it is a decision, with its reason in the commit.
    lines: int
    holds: str
    may_import: set[str]
    #: Rooms whose names its `__init__` gives on, each loaded when it is first used.
    offers: frozenset[str] = frozenset()


BASE = {"errors", "extras", "checks"}
REST = {"storage", "format", "publication", "lineage"} | BASE
CACHE = {"cache"} | REST
ENGINE = {"engine", "identity"} | CACHE
SOURCES = {"sources"} | CACHE
DECLARATIONS = {"typed", "graph", "tasks"}

#: From the lowest to the highest.
ROOMS: dict[str, Room] = {
    "errors": Room(1, 472, "every exception, and what makes text from data safe to print", set()),
    "extras": Room(1, 217, "optional dependencies: what to install when one is missing", {"errors"}),
    "checks": Room(
        1, 240, "checks of arguments: choices, bounds, known names, options that exclude each other", {"errors"}
    ),
    "storage": Room(1, 3902, "where bytes lie: local files, object stores, the web; locks and leases", BASE),
    "format": Room(1, 3636, "what records are in bytes: features, codecs, frames, indexes", {"storage"} | BASE),
    "publication": Room(
        1, 1139, "shards, the manifest, the pointer to a snapshot: whole or not at all", {"storage", "format"} | BASE
    ),
    "lineage": Room(1, 1000, "where a record came from; takedown", {"storage", "format", "publication"} | BASE),
    "cache": Room(1, 4543, "reading a cache: snapshots, splits, columns, mapped shards", REST),
    "engine": Room(1, 2204, "graphs of units, their execution, statistics, resources of stages", CACHE),
    "identity": Room(1, 1750, "code and values → fingerprints", {"engine"} | CACHE),
    "sources": Room(1, 7745, "raw input → source shards → batches of records", ENGINE),
    "analysis": Room(1, 352, "what an analysis is: analyzer, accumulator, result", ENGINE),
    "loader": Room(1, 10360, "cache → batches of NumPy arrays", CACHE),
    "on_device": Room(
        1,
        4325,
        "tf.data, JAX, torch; the only room that imports them, but for `graph/jax_iterator.py` and `torch_iterator.py`",
        {"loader"} | CACHE,
        offers=frozenset({"graph"}),
    ),
    "typed": Room(1, 3056, "declaring by functions, typed pipelines, DAGs, models and services", ENGINE | SOURCES),
    "building": Room(
        1,
        8834,
        "declaration → analysis → plan → shards → commit; `workers/` supervises processes",
        ENGINE | SOURCES | {"analysis"},
    ),
    "beam": Room(
        1,
        2600,
        "a build as PTransforms; the only room that imports Beam at the top of its files, but for `tft/beam_passes.py` "
        "and `seqio/beam_utils.py`",
        ENGINE | SOURCES | {"typed", "analysis", "building"},
    ),
    "runners": Room(
        1,
        5115,
        "who runs a build: local, Flink, Dataflow, job servers",
        ENGINE | SOURCES | {"typed", "analysis", "building", "beam"},
        offers=frozenset({"tasks"}),
    ),
    "face": Room(
        1,
        250,
        "`declare` and `build`: from a source and functions to a cache",
        ENGINE | SOURCES | {"analysis", "typed", "building", "beam", "runners"},
    ),
    "columns": Room(
        1,
        187,
        "`add_column`: a feature more for every record, in a cache of its own beside the shards",
        ENGINE | SOURCES | {"building", "face", "runners"},
    ),
    "beam_pipes": Room(
        1,
        75,
        "names of the package, loaded when they are first used",
        {"cache", "columns", "face", "loader", "building", "on_device", "typed"},
    ),
    "tft": Room(2, 1265, "tensorflow-transform: learning, applying", ENGINE | {"analysis", "typed"}),
    "graph": Room(
        2,
        8100,
        "declaring by a graph of operators; running it",
        ENGINE | SOURCES | {"typed", "loader", "building", "on_device"},
    ),
    "tasks": Room(
        2,
        12122,
        "declaring by tasks and mixtures; their caches",
        ENGINE | SOURCES | {"analysis", "typed", "graph", "loader", "tft", "building", "beam", "runners"},
    ),
    "evaluation": Room(2, 2175, "evaluator, metrics, loggers", {"tasks"} | CACHE),
    "map_style": Room(
        2, 2800, "datasets, samplers, batch functions and a loader over any indexable data", CACHE | {"loader"}
    ),
    "transforms": Room(
        2, 17939, "what is done to examples", ENGINE | SOURCES | DECLARATIONS | {"analysis", "loader", "map_style"}
    ),
    "dali": Room(2, 148, "the names of DALI", {"graph", "on_device", "transforms"} | BASE),
    "seqio": Room(
        2,
        848,
        "the names of SeqIO, converters, evaluation and `seqio_cache_tasks` included",
        DECLARATIONS | CACHE | {"loader", "evaluation", "transforms", "runners", "commands"},
    ),
    "recipes": Room(
        3,
        5033,
        "whole declarations for usual jobs, written as modules of Python",
        ENGINE | SOURCES | {"analysis", "building", "typed", "tasks", "transforms", "graph"},
    ),
    "testing": Room(
        3,
        2200,
        "chaos for declarations: trials of stages and builds, verdicts",
        ENGINE | SOURCES | {"analysis", "building", "beam"},
    ),
    "export": Room(3, 975, "published snapshots in the formats of others", CACHE),
    "disclosure": Room(
        3,
        745,
        "what caches hold and a run has read, for regulators and catalogues",
        CACHE | {"engine", "export", "loader"},
    ),
    "report": Room(
        3,
        2770,
        "pages about published snapshots, comparisons of two",
        ENGINE | SOURCES | {"analysis", "building", "loader", "transforms"},
    ),
    "view": Room(
        3,
        960,
        "a page in the browser that shows a cache, and its server: reads, and writes nothing",
        ENGINE | SOURCES | {"analysis", "building", "loader", "report", "transforms"},
    ),
    "telemetry": Room(
        3, 1301, "watching loaders of every kind, measuring their stages", CACHE | {"loader", "on_device", "map_style"}
    ),
    "commands": Room(
        3,
        3874,
        "the command line",
        ENGINE
        | SOURCES
        | DECLARATIONS
        | {"analysis", "building", "loader", "beam", "on_device", "tft", "transforms", "runners"}
        | {"disclosure", "export", "recipes", "report", "telemetry", "testing", "view"},
    ),
    "cli": Room(3, 81, "the entry point: arguments, signals, exit codes", {"commands"} | BASE),
    "__main__": Room(3, 6, "`python -m beam_pipes`", {"cli"}),
}


def table() -> str:
    """The rows as Markdown; rooms that all may import, those of `BASE`, are left out of the lists."""
    lines = ["| room | ring | lines at most | holds | may import |", "| --- | --- | --- | --- | --- |"]
    order = list(ROOMS)
    for name, room in ROOMS.items():
        folder = f"beam_pipes/{name}" + (".py" if name in (*BASE, "face", "columns", "cli", "__main__") else "/")
        folder = "beam_pipes/__init__.py" if name == "beam_pipes" else folder
        others = sorted(room.may_import - BASE - {name}, key=order.index)
        reported = ", ".join(others) or "nothing of ours"
        lines.append(f"| `{folder}` | {room.ring} | {room.lines:,} | {room.holds} | {reported} |")
    return "\n".join(lines)


def contributing() -> str:
    """CONTRIBUTING.md with the table of today between its marks."""
    before, _, rest = CONTRIBUTING.read_text(encoding="utf-8").partition("<!-- rooms -->\n")
    _, _, after = rest.partition("<!-- end of rooms -->")
    return f"{before}<!-- rooms -->\n{table()}\n<!-- end of rooms -->{after}"
