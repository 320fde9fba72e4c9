"""The documentation runs: the Python blocks of every page, in order, in an empty directory; links lead somewhere."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("README.md", "*/README.md", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
PAGES = list(dict.fromkeys(PAGES))

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^\s`]*)[^\n]*$")
LINK = re.compile(r"\[[^\]\n]*\]\(<?(?P<target>[^)\s>]+)>?[^)\n]*\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number of the first line, language, text) of each fenced block."""
    opened: re.Match[str] | None = None
    first, lines = 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None:
            opened = FENCE.match(line)
            first, lines = number + 1, []
        elif line.strip().startswith(opened["fence"]) and not line.strip().strip(opened["fence"][0]):
            yield first, opened["language"], "\n".join(lines) + "\n"
            opened = None
        else:
            lines.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"a fenced block is not closed, line {first - 1}"


def run_python_blocks(text: str, name: str, module_name: str) -> int:
    """Executes the ```python blocks in one namespace; line numbers in tracebacks are those of the page."""
    # Its own module, registered: dataclasses and pickle look their classes up there.
    module = types.ModuleType(module_name)
    sys.modules[module_name] = module
    count = 0
    try:
        for line, language, code in blocks(text):
            if language == "python":
                exec(compile("\n" * (line - 1) + code, name, "exec"), module.__dict__)
                count += 1
    finally:
        del sys.modules[module_name]
    return count


def links(text: str) -> list[str]:
    """The relative link targets of a page, without those inside of code."""
    prose = "\n".join(_without_blocks(text))
    prose = re.sub(r"`[^`\n]*`", "", prose)
    targets = [found["target"] for found in LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:|//", target)]


def _without_blocks(text: str) -> Iterator[str]:
    inside = {
        number for first, _, code in blocks(text) for number in range(first - 1, first + len(code.splitlines()) + 1)
    }
    return (line for number, line in enumerate(text.splitlines(), start=1) if number not in inside)


def anchors(text: str) -> set[str]:
    """What `#fragment`s of a page may be: its headings as a repository viewer names them."""
    headings = [match[1] for line in _without_blocks(text) if (match := re.match(r"#{1,6} +(.*?) *#*$", line))]
    slugs = [re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings]
    return {slug if not slugs[:at].count(slug) else f"{slug}-{slugs[:at].count(slug)}" for at, slug in enumerate(slugs)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python_blocks(page.read_text(encoding="utf-8"), str(page), "docs_" + re.sub(r"\W", "_", name_of(page)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_of_the_page_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for target in links(text):
        path, _, fragment = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists():
            broken.append(target)
        elif fragment and found.suffix == ".md" and fragment not in anchors(found.read_text(encoding="utf-8")):
            broken.append(target)
    assert broken == []


def test_there_is_documentation() -> None:
    assert len(PAGES) > 1


class TestTheReaderOfPages:
    PAGE = """# One `two` three!
[a](b.md) `[not](this)` [c](https://example.org) [d](#one-two-three) ![e](f.png "title")
```python
x = 1
```
```text
[not](this either)
raise ValueError
```
1. listed
   ```python
   y = x + 1
   ```
````python
z = "```"
````
"""

    def test_blocks_have_lines_languages_and_lose_their_indent(self) -> None:
        assert list(blocks(self.PAGE)) == [
            (4, "python", "x = 1\n"),
            (7, "text", "[not](this either)\nraise ValueError\n"),
            (12, "python", "y = x + 1\n"),
            (15, "python", 'z = "```"\n'),
        ]

    def test_python_blocks_share_a_namespace_and_nothing_else_runs(self) -> None:
        assert run_python_blocks(self.PAGE, "page", "page_module") == 3
        assert "page_module" not in sys.modules

    def test_an_error_names_the_line_of_the_page(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            run_python_blocks("\n\n```python\nx = 0\n1 / x\n```\n", "page.md", "page_module")
        assert caught.traceback[-1].lineno + 1 == 5

    def test_links_are_those_of_the_prose(self) -> None:
        assert links(self.PAGE) == ["b.md", "#one-two-three", "f.png"]
        assert anchors(self.PAGE) == {"one-two-three"}
