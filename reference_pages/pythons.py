"""docs/install.md: which extra can be installed on which Python.

    python -m reference_pages.pythons      asks the package index anew (minutes), writes docs/figures/pythons.json

The table is made from that file: a cell says "yes" where a set of wheels exists for Linux on x86-64, resolved by uv
from pyproject.toml alone, without constraints.txt.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"
RESOLVED = ROOT / "docs" / "figures" / "pythons.json"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: Published as source alone: pure Python, and two small modules in C that come with Beam and note-seq.
SOURCE_ONLY = ("crcmod", "docopt", "google-apitools", "hdfs", "intervaltree", "pretty-midi", "promise", "pyfarmhash")
#: The row of an installation without extras.
BASE = "(none)"


class Resolved(TypedDict):
    """What the package index had on a day."""

    date: str
    #: Extra → the Pythons on which it can be installed.
    extras: dict[str, list[str]]


def extras() -> dict[str, list[str]]:
    """The extras of pyproject.toml, in their order, each with its requirements; the base first."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = _table(text, "project")
    return {BASE: _strings(project, "dependencies"), **_lists(_table(text, "project.optional-dependencies"))}


def _table(text: str, name: str) -> str:
    # Python 3.10 has no tomllib.
    return text.partition(f"\n[{name}]\n")[2].partition("\n[")[0]


def _lists(table: str) -> dict[str, list[str]]:
    return {name: _strings(table, name) for name in re.findall(r"^([\w-]+) = \[", table, re.MULTILINE)}


def _strings(table: str, name: str) -> list[str]:
    [body] = re.findall(rf"^{re.escape(name)} = \[(.*?)\](?=\n|$)", table, re.MULTILINE | re.DOTALL)
    lines = (line.partition(" #")[0] for line in body.splitlines() if not line.strip().startswith("#"))
    return [double or single for double, single in re.findall(r'"([^"]*)"|\'([^\']*)\'', "\n".join(lines))]


def resolve() -> Resolved:
    """Asks the package index for every extra on every Python."""
    found = {extra: [version for version in VERSIONS if _installs(extra, version)] for extra in extras()}
    return {"date": datetime.date.today().isoformat(), "extras": found}


def _installs(extra: str, version: str) -> bool:
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-python-downloads", "pyproject.toml"]
    command += ["--python-version", version, "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"]
    command += [f"--no-binary={name}" for name in SOURCE_ONLY]
    if extra != BASE:
        command += ["--extra", extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"{extra} on Python {version}:\n{done.stderr}", file=sys.stderr)
    return done.returncode == 0


def page() -> str:
    """The page with the table of the file between its marks."""
    resolved: Resolved = json.loads(RESOLVED.read_text(encoding="utf-8"))
    rows = ["| extra | " + " | ".join(VERSIONS) + " | brings |", "| --- " * (len(VERSIONS) + 2) + "|"]
    for extra, requirements in extras().items():
        cells = ["yes" if version in resolved["extras"][extra] else "–" for version in VERSIONS]
        brought = ", ".join(re.split("[>=<;]", requirement)[0].strip() for requirement in requirements)
        rows.append(f"| {f'`{extra}`' if extra != BASE else extra} | {' | '.join(cells)} | {brought} |")
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition("<!-- pythons -->\n")
    _, end, after = rest.partition("<!-- end of pythons -->")
    table = "\n".join(rows)
    return f"{before}{begin}{table}\n\nResolved on {resolved['date']}.\n{end}{after}"


if __name__ == "__main__":
    RESOLVED.write_text(json.dumps(resolve(), indent=2) + "\n", encoding="utf-8")
