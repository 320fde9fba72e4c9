"""Figures that pages quote from what benchmarks have written; they are put in when pages are made.

A benchmark writes its results, with date, machine and commit, into the folder of figures, and a page quotes one of them
with a format of Python's, in marks that readers do not see:

    python -m benchmarks.build --json docs/figures/build.json
    <!-- figure build.ratio_one_core_to_bare .2f -->1.15<!-- /figure -->

`tests/docs/test_figures.py` fails where a figure has become old: what it measures was changed more than
200 commits after it. Figures of a machine that few have (`DATED`) may be older, on a page that gives their date and
commit, but not on the front pages.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = "docs/figures"
PAGES = ("README.md", "docs/README.md", "docs/comparison.md", "docs/benchmarks.md", "docs/scoreboard.md")

_AT_REST = ("storage", "format", "publication", "lineage", "cache")
#: Benchmark → the folders whose change may change its figures.
MEASURED = {
    "build": tuple(f"beam_pipes/{room}" for room in ("sources", "engine", "building", *_AT_REST, "runners")),
    "load": tuple(f"beam_pipes/{room}" for room in ("loader", *_AT_REST)),
    "scoreboard": tuple(f"beam_pipes/{room}" for room in ("loader", *_AT_REST)),
    "loader_start": tuple(f"beam_pipes/{room}" for room in ("loader", *_AT_REST)),
}

#: Benchmarks of machines that few have, here a GPU: they cannot be run again at will.
DATED = {"device": ("docs/benchmarks.md",)}

_QUOTED = re.compile(r"(<!-- figure (\w+)\.([\w.]+) (\S+) -->).*?(<!-- /figure -->)")


@functools.cache
def results(benchmark: str) -> dict[str, Any]:
    """What a benchmark has written."""
    found: dict[str, Any] = json.loads((ROOT / FOLDER / f"{benchmark}.json").read_text(encoding="utf-8"))
    return found


def quoted(page: str) -> list[tuple[str, str]]:
    """(benchmark, key) of every figure on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(found[2], found[3]) for found in _QUOTED.finditer(text)]


def pages() -> dict[str, str]:
    """Page → its text with the figures of today."""
    return {page: _QUOTED.sub(_with_figure, (ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


def _with_figure(found: re.Match[str]) -> str:
    value: Any = results(found[2])
    for key in found[3].split("."):
        value = value[key]
    return f"{found[1]}{value:{found[4]}}{found[5]}"


def commits_behind(benchmark: str) -> int:
    """How many commits lie between a benchmark's figures and the last change of what it measures.

    All that there are in a clone that does not have the commit of the figures.
    """
    last = _git("log", "-1", "--format=%H", "--", *MEASURED[benchmark])
    commit = results(benchmark)["commit"]
    is_there = subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, capture_output=True, check=False)
    return int(_git("rev-list", "--count", last if is_there.returncode else f"{commit}..{last}"))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
