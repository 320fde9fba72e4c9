"""`disclose`: the documents about caches, or about a run, into a directory.

| format | file | what it is |
| --- | --- | --- |
| `croissant` | `croissant-CACHE.json`, one per cache | Croissant 1.1, with provenance as PROV-O |
| `eu` | `eu-training-content-summary.md` | the Commission's template for Article 53(1)(d) of the AI Act |
| `california` | `california-ab-2013.md` | the twelve points of AB 2013 |
| `ml-bom` | `ml-bom.cdx.json` | CycloneDX 1.6 |
| `card` | `data-card.md` | a data card |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from beam_pipes.checks import choice
from beam_pipes.disclosure.data_card import data_card
from beam_pipes.disclosure.facts import Facts
from beam_pipes.disclosure.ml_bom import ml_bom_text
from beam_pipes.disclosure.regulators import california_ab_2013, eu_summary
from beam_pipes.errors import ExportError
from beam_pipes.export.croissant import croissant_of_cache, croissant_text
from beam_pipes.storage.local import output_file, writing_to


def _croissant(facts: Facts) -> Iterator[tuple[str, str]]:
    for cache in facts.caches:
        yield f"croissant-{cache.label}.json", croissant_text(croissant_of_cache(cache.cache))


def _one(name: str, text_of: Callable[[Facts], str]) -> Callable[[Facts], Iterator[tuple[str, str]]]:
    return lambda facts: iter([(name, text_of(facts))])


#: Format → the names and texts of its files.
FORMATS: Mapping[str, Callable[[Facts], Iterator[tuple[str, str]]]] = {
    "california": _one("california-ab-2013.md", california_ab_2013),
    "card": _one("data-card.md", data_card),
    "croissant": _croissant,
    "eu": _one("eu-training-content-summary.md", eu_summary),
    "ml-bom": _one("ml-bom.cdx.json", ml_bom_text),
}


def disclose(facts: Facts, out: str | os.PathLike[str], *, formats: Sequence[str] = tuple(FORMATS)) -> list[str]:
    """Writes the documents into the local directory `out`; returns their paths.

        disclose(facts_of([Cache.open("books")]), "disclosure")  →  disclosure/data-card.md, …

    The same facts give the same bytes. What only people know says that it is to be completed, and is listed at the end
    of each form.

    Raises `ExportError` for an unknown format, and for a file that is there with another content: whoever completed it
    would lose that. `OutputError` if one cannot be written.
    """
    for format in formats:
        choice(format, of=sorted(FORMATS), what="format", error=ExportError)
    out = os.path.expanduser(os.fspath(out))
    texts = {os.path.join(out, name): text for format in formats for name, text in FORMATS[format](facts)}
    for path, text in texts.items():
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    raise ExportError(
                        f"{path!r} is there with another content, and whoever completed it would lose that. "
                        f"Name another "
                        "directory, and carry over what was completed."
                    )
    with writing_to(out):
        os.makedirs(out, exist_ok=True)
    for path, text in texts.items():
        with output_file(path) as file:
            file.write(text)
    return list(texts)
