"""docs/file-formats.md: its tables are made from the modules that read the formats."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from beam_pipes.sources import tar
from beam_pipes.transforms import image_files

PAGE = Path(__file__).parents[1] / "docs" / "file-formats.md"


def tables() -> dict[str, str]:
    """Name of a table → its Markdown."""
    unread = [(kind.name, "all", f"refused. {kind.remedy}", "–") for kind in image_files.KINDS if kind.plugin is None]
    return {
        "images": _table(("file", "feature", "what happens", "reference"), [*image_files.FEATURES, *unread]),
        "tar": _table(("feature", "what happens", "reference"), tar.FEATURES),
    }


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The page with the tables of today between their marks."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        text = f"{before}{begin}{table}\n{end}{after}"
    return text
