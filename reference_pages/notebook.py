"""`docs/quickstart.ipynb` and the tutorials as notebooks, made from their pages, so that there is one text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"

_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")

# What a page says to readers who may want the notebook.
_INSTEAD = re.compile(r"[;.]\s+[Tt]he (?:same|page is also available)\s+as\s+a\s+notebook:\s+\[[^\]]*\]\([^)]*\)\.")


def notebooks() -> dict[str, str]:
    """File → its text, of all pages that are notebooks too."""
    pages = [DOCS / "quickstart.md", *sorted(path for path in DOCS.glob("tutorials/*.md") if path.stem != "README")]
    return {
        path.relative_to(DOCS.parent).with_suffix(".ipynb").as_posix(): notebook(path.read_text(encoding="utf-8"))
        for path in pages
    }


def notebook(text: str) -> str:
    """The text of the notebook that says what a page says: prose, cells of Python, `%%writefile` and `%%bash`."""
    cells = [
        {"id": f"cell-{number:02d}", "metadata": {}, "source": source.rstrip("\n").splitlines(keepends=True), **kind}
        for number, (kind, source) in enumerate(_cells(_INSTEAD.sub(".", text)))
    ]
    made = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _cells(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    prose: dict[str, Any] = {"cell_type": "markdown"}
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
    end = 0
    for block in _BLOCK.finditer(text):
        if text[end : block.start()].strip():
            yield prose, _prose(text[end : block.start()])
        yield code, _magic(block["info"]) + block["code"]
        end = block.end()
    if text[end:].strip():
        yield prose, _prose(text[end:])


def _magic(info: str) -> str:
    title = _TITLE.search(info)
    if title is not None:
        return f"%%writefile {title[1]}\n"
    return "%%bash\n" if info.startswith("sh") else ""


def _prose(text: str) -> str:
    """Links to other pages lead nowhere from a notebook that was copied: their words remain."""
    return _LINK.sub(r"\1", text).strip()
