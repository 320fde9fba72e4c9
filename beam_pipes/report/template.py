"""Pages from the templates that lie beside this file; everything that comes from data is escaped."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from typing import Any

from beam_pipes.extras import require


def render(name: str, facts: Mapping[str, Any]) -> str:
    """`render("report.html.j2", {...})` → the page. A name that the template uses and `facts` lacks is an error.

    Raises `MissingExtraError` without jinja2 (extra `cli`).
    """
    jinja2 = require("jinja2", purpose="report.html")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text_of),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return str(environment.get_template(name).render(facts)).lstrip()


def _text_of(name: str) -> str:
    return importlib.resources.files("beam_pipes.report").joinpath(name).read_text(encoding="utf-8")
