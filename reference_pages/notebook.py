"""`docs/quickstart.ipynb`: the quickstart as a notebook, made from the page, so that there is one text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUICKSTART = Path(__file__).parents[1] / "docs" / "quickstart.md"

_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")

# What a page says to readers who may want the notebook, and the notebook's own first words.
_INSTEAD = re.compile(r" The same as a notebook: \[[^\]]*\]\([^)]*\)\.")


def notebook(page: str | None = None) -> str:
    """The text of the notebook that says what a page says: prose, cells of Python, `%%writefile` and `%%bash`."""
    text = QUICKSTART.read_text(encoding="utf-8") if page is None else page
    cells = [
        {"id": f"cell-{number:02d}", "metadata": {}, "source": source.rstrip("\n").splitlines(keepends=True), **kind}
        for number, (kind, source) in enumerate(_cells(_INSTEAD.sub("", text)))
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
