"""The page of guarantees names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("named", sorted(set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?", PAGE))))
def test_each_test_that_the_page_names_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    assert not name or name in functions


@pytest.mark.parametrize(
    "section", [text for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]], ids=lambda t: t[:20]
)
def test_each_section_names_tests(section: str) -> None:
    assert re.search(r"Tests?: `tests/", section.replace("\n", " "))
