"""Pages for coding assistants: `docs/llms.txt`, a list of the pages, and `docs/api/all.md`, the whole API on one page.

`llms.txt` has the form that llmstxt.org proposes: a title, a summary, then sections of links, each with a sentence
about the page. Sections and order are those of the navigation in `mkdocs.yml`; the sentence is the page's first.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from reference_pages.api_pages import MADE, PACKAGES, public_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
API = "api/all.md"
#: Longer signatures are cut here: the names of some thirty options say nothing more about how a call looks.
SIGNATURE_LETTERS = 600


def pages() -> dict[str, str]:
    """File → its text."""
    return {"docs/llms.txt": _list_of_pages(), f"docs/{API}": _whole_api()}


def _list_of_pages() -> str:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    lines = ["# beam-pipes", "", f"> {' '.join(text.split(chr(10) * 2)[1].split())}"]
    for section, name in _navigation():
        if section:
            lines += ["", f"## {section}", ""]
        else:
            title, about = _about(name)
            lines.append(f"- [{title}]({name}): {about}")
    lines += [
        "",
        "## For programs",
        "",
        f"- [The whole API on one page]({API}): Every public name, with its signature.",
    ]
    return "\n".join(lines) + "\n"


def _navigation() -> Iterator[tuple[str, str]]:
    """(section, "") for every heading at the top, ("", page) for every page; one section for all of the Python API."""
    entries = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    yield "Start", ""
    for indent, page, heading in re.findall(r"^( *)- (?:(\S+\.md)|(.+):)$", entries, re.MULTILINE):
        if heading and len(indent) == 2:
            yield heading, ""
        if page and page != API and not page.startswith("api/beam_pipes"):
            yield "", page


def _about(name: str) -> tuple[str, str]:
    """Title and first sentence of a page."""
    text = (DOCS / name).read_text(encoding="utf-8")
    title, _, rest = text.removeprefix("# ").partition("\n")
    rest = re.sub(r"^```.*?^```$", "", rest, flags=re.DOTALL | re.MULTILINE)
    paragraphs = (" ".join(paragraph.split()) for paragraph in rest.split("\n\n") if paragraph.strip())
    prose = next((paragraph for paragraph in paragraphs if paragraph[0] not in "<|`-#!"), title)
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose).replace("**", "")
    return title, re.split(r"(?<=[.:?]) (?=[A-Z`])", plain)[0]


def _whole_api() -> str:
    parts = [
        f"# The whole API on one page\n\n{MADE} Every public name with its signature and the first paragraph of its "
        "docstring,\nfor those who read with a program."
    ]
    for package, about in PACKAGES.items():
        names = sorted(public_names(package).items(), key=lambda item: (item[0].lower(), item[0]))
        parts += [f"## {package}\n\n{about[0].upper()}{about[1:]}.", "\n".join(_entry(*named) for named in names)]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, path: str) -> str:
    module, _, attribute = path.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    doc = inspect.getdoc(value) if inspect.isclass(value) or callable(value) else None
    first = " ".join((doc or "").split("\n\n")[0].split())
    return f"- `{name}{_signature(value)}`" + (f": {first}" if first else "")


def _signature(value: object) -> str:
    if not callable(value):
        return ""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(…)"
    # What has no spelling in Python, such as the object that stands for "not given", and what a backtick would end.
    plain = re.sub(r"<[^<>]*>", "…", signature).replace("`", "'")
    plain = re.sub(r"(: |-> )'([^']+)'", r"\1\2", plain)
    return plain if len(plain) <= SIGNATURE_LETTERS else plain[:SIGNATURE_LETTERS].rpartition(",")[0] + ", …)"
