"""The shape of the house: no circles of imports, and files that are chapters."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

import pytest
from import_circles import circles, imports_between, module_of, source_files

from reference_pages.rooms import ROOMS

ROOT = Path(__file__).parents[1]
SOURCES = source_files(ROOT)
LINES = {path: len(text.splitlines()) for path, text in SOURCES.items()}

# Files that are no chapters yet.
SHORT = {  # names that people type
    "beam_pipes/building/care.py",
    "beam_pipes/cache/messages.py",
    "beam_pipes/cache/storage.py",
}
LONG: set[str] = set()


def test_there_are_no_circles_of_imports() -> None:
    assert [sorted(one) for one in circles(imports_between(SOURCES))] == []


def test_imports_in_functions_and_for_type_checking_close_a_circle() -> None:
    sources = {
        "beam_pipes/a.py": "def f():\n  from beam_pipes.runners import b\n",
        "beam_pipes/runners/b.py": "if TYPE_CHECKING:\n  from beam_pipes.c import name\n",
        "beam_pipes/c.py": "import beam_pipes.a\nimport beam_pipes.d\n",
        "beam_pipes/d.py": "import os\n",
        "beam_pipes/__init__.py": "import beam_pipes.d\n",
    }
    assert circles(imports_between(sources)) == {frozenset({"beam_pipes.a", "beam_pipes.runners.b", "beam_pipes.c"})}


def test_the_ways_of_a_record_and_of_a_declaration_are_those_that_are_drawn() -> None:
    drawn = re.findall(
        r"^((?:\w+/)+\w+\.py): (\w+) ", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert len(drawn) == 16 + 12
    for path, name in drawn:
        defined = {getattr(node, "name", None) for node in ast.parse(SOURCES[path]).body}
        assert name in defined, f"{path} defines no {name}"


@pytest.mark.parametrize(
    "path",
    ["building/commit.py", "building/completion.py", "building/leftovers.py", "building/progress.py"]
    + ["building/analysis/stored.py", "building/forecast.py", "building/limits.py"]
    + ["beam/build_graph.py", "runners/local.py", "runners/options.py", "runners/progress.py"],
)
def test_a_declaration_goes_no_further_than_the_plan(path: str) -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse(SOURCES[f"beam_pipes/{path}"]))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert "Declaration" not in imported


def test_files_are_chapters() -> None:
    assert len(LINES) <= 474
    assert statistics.median(LINES.values()) >= 130
    short = {path for path, lines in LINES.items() if lines < 40 and Path(path).stem not in ("__init__", "__main__")}
    assert short == SHORT
    assert {path for path, lines in LINES.items() if lines > 600} == LONG


def test_rooms_keep_within_their_lines() -> None:
    found = dict.fromkeys(ROOMS, 0)
    for path, lines in LINES.items():
        found[module_of(path).removeprefix("beam_pipes.").partition(".")[0]] += lines

    over = {name: lines - ROOMS[name].lines for name, lines in found.items() if lines > ROOMS[name].lines}
    assert over == {}, (
        "lines over the budget of reference_pages/rooms.py: take a mechanism out, or say why there is more"
    )
    # What was taken out is not to come back unseen.
    slack = {name: ROOMS[name].lines - lines for name, lines in found.items() if ROOMS[name].lines - lines > 300}
    assert slack == {}, "lines below the budget: lower it in reference_pages/rooms.py"


def test_the_core_imports_nothing_further_out() -> None:
    outward = {
        name: further
        for name, room in ROOMS.items()
        if (further := {other for other in room.may_import if ROOMS[other].ring > room.ring == 1})
    }
    assert outward == {}
