"""All pages that are made from the code, and the stubs of operators beside it, which are not committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from beam_pipes.transforms.operators.stubs import stubs
from reference_pages import (
    absences,
    api_pages,
    assistants,
    command_page,
    error_page,
    figures,
    formats_page,
    notebook,
    operators_page,
    pythons,
    rooms,
)

ROOT = Path(__file__).parents[1]


def made_pages() -> dict[str, str]:
    """File → the text it should have."""
    return {
        "docs/cli.md": command_page.page(),
        "docs/errors.md": error_page.page(),
        "docs/file-formats.md": formats_page.page(),
        "docs/install.md": pythons.page(),
        "docs/operators.md": operators_page.page(),
        "CONTRIBUTING.md": rooms.contributing(),
        **absences.pages(),
        **notebook.notebooks(),
        **figures.pages(),
        **api_pages.pages(),
        **assistants.pages(),
        **{f"beam_pipes/transforms/{path}": text for path, text in stubs().items()},
    }


def write_pages(pages: Mapping[str, str], directory: Path = ROOT) -> list[Path]:
    """Writes those of `pages` that differ from what is there, and returns their paths."""
    written = []
    for name, text in pages.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written
