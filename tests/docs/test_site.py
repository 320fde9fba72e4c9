"""The site: it builds with every warning an error, holds every page, loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import anchors

from reference_pages import pythons

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`make docs`, into another directory."""
    arguments = ["build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    return subprocess.run([sys.executable, "-m", "properdocs", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: no link or anchor is broken, no page is outside of the navigation."""
    made = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", made)
    assert built.returncode == 0, built.stderr
    return made


def test_every_page_is_built(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    pages = {re.sub(r"README\.html$", "index.html", page) for page in pages}
    assert pages <= {path.relative_to(site).as_posix() for path in site.rglob("*.html")}


def test_every_heading_of_a_page_is_one_in_the_site(site: Path) -> None:
    missing = []
    for path in DOCS.rglob("*.md"):
        built = re.sub(r"README\.html$", "index.html", path.relative_to(DOCS).with_suffix(".html").as_posix())
        ids = set(re.findall(r'<h[1-6] id="([^"]*)"', (site / built).read_text(encoding="utf-8")))
        missing += [f"{built}#{anchor}" for anchor in anchors(path.read_text(encoding="utf-8")) - ids]
    assert missing == []


def test_the_api_pages_hold_what_docstrings_say(site: Path) -> None:
    page = (site / "api" / "beam_pipes.loader.html").read_text(encoding="utf-8")
    assert 'id="beam_pipes.loader.loader.Loader"' in page
    assert "rows of a <em>global</em> batch" in page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
    found = [load for page in site.rglob("*.html") for load in loads.findall(page.read_text(encoding="utf-8"))]
    assert [load for load in found if 'rel="canonical"' not in load] == []


def test_what_is_wrong_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\n[b](b.md) [c](#c) [d](d.md#c)\n")
    (tmp_path / "docs" / "d.md").write_text("# D\n\nnobody finds it\n")
    config = tmp_path / "site.yml"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [a.md]\nplugins: []\nextra_css: []\n")

    built = build(config, tmp_path / "site")

    assert built.returncode == 1
    assert "contains a link 'b.md', but the target is not found" in built.stderr
    assert "contains a link '#c', but there is no such anchor on this page" in built.stderr
    assert "contains a link 'd.md#c', but the doc 'd.md' does not contain an anchor '#c'" in built.stderr
    assert 'not included in the "nav" configuration:\n  - d.md' in built.stderr


def test_documents_name_the_pythons_of_the_metadata() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    words = f"Python {supported[0]} to {supported[-1]}"

    assert f'requires-python = ">={supported[0]}"' in project
    assert set(supported) < set(pythons.VERSIONS)
    assert f"PYTHONS := {' '.join(supported)}\n" in (ROOT / "Makefile").read_text()
    assert words in (ROOT / "README.md").read_text() and words in (DOCS / "quickstart.md").read_text()
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License") and 'license = "Apache-2.0"' in project
