"""docs/file-formats.md: its tables are made from the modules that read the formats."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from beam_pipes.sources import tar
from beam_pipes.transforms import image_files
from reference_pages.formats import manifests, picture_rows, sound, tables, texts

PAGE = Path(__file__).parents[1] / "docs" / "file-formats.md"
#: Name of a table → its rows, each with the file by which tests try it.
ROWS = {
    "rows of images": picture_rows.ROWS,
    "sound": sound.ROWS,
    "manifests": manifests.ROWS,
    "tables": tables.ROWS,
    "texts": texts.ROWS,
}


def all_tables() -> dict[str, str]:
    """Name of a table → its Markdown."""
    unread = [(kind.name, "all", f"refused. {kind.remedy}", "–") for kind in image_files.KINDS if kind.plugin is None]
    heads = ("file", "feature", "what happens", "reference")
    return {
        "images": _table(heads, [*image_files.FEATURES, *unread]),
        "tar": _table(("feature", "what happens", "reference"), tar.FEATURES),
        **{name: _table(heads, _joined(row.cells for row in rows)) for name, rows in ROWS.items()},
    }


def _joined(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Features of a file to which the same happens share a row."""
    for (file, *same), group in itertools.groupby(rows, lambda row: (row[0], *row[2:])):
        yield (file, "; ".join(row[1] for row in group), *same)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The page with the tables of today between their marks."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in all_tables().items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        text = f"{before}{begin}{table}\n{end}{after}"
    return text
