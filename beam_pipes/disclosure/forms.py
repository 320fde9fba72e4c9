"""Forms: questions of a regulator, with the answers that the facts give; the others are left blank, and listed.

    ## 2. List of data sources
    ### 2.3. Data crawled and scraped from online sources
    Period of data collection

    filled(that, answers={question: lines}, notes={question or heading: lines}, …)  →  Markdown

A line of a form that begins with "#" is a heading, every other one a question; one that is indented continues the line
above. The wording is that of the forms; `docs/how-to/fill-in-the-disclosure.md` says which documents it was compared
with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from beam_pipes.disclosure.facts import Facts, SourceFacts
from beam_pipes.errors import visible

BLANK = "_To be completed._"

#: Question or heading → lines of Markdown.
Lines = Mapping[str, Sequence[str]]


def filled(form: str, *, title: str, about: str, answers: Lines, notes: Lines) -> str:
    """A form with what is known filled in, as Markdown. Its last section lists what was left blank.

    `notes` are facts that help to answer: below a question, or below a heading, for the sections that follow.
    """
    lines, blanks, heading = [f"# {title}", "", about, ""], list[str](), ""
    for line in form.replace("\n  ", " ").strip().splitlines():
        of_line = [*notes[line], ""] if notes.get(line) else []
        if line.startswith("#"):
            heading = line.lstrip("# ")
            lines += [line, "", *of_line]
            continue
        answer = answers.get(line) or ()
        lines += [f"**{line}**", "", *(answer or [BLANK]), "", *of_line]
        if not answer:
            blanks.append(f"- {heading}: {line}")
    return "\n".join([*lines, f"## Left to be completed: {len(blanks)}", "", *blanks, ""])


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table of Markdown; numbers with commas."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell_text(str(cell)) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [list(headings), ["---"] * len(headings), *cells]]


def cell_text(text: str) -> str:
    """Text that stays in its cell, and shows no control characters."""
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") or "–"


def lengths_text(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {total:,}" for name, total in lengths.items()) or "–"


def sources_table(facts: Facts) -> list[str]:
    """What each source has: as declared, as stored, and as read by the run."""
    headings = ["cache", "split", "license", "origin", "collected", "terms", "records", "bytes", "lengths"]
    read = ["times read", "lengths read", "share of reads"] if facts.run else ["share of records"]

    def row(source: SourceFacts) -> list[object]:
        terms = source.terms
        declared = [terms.license, terms.origin, terms.collected, terms.terms]
        stored = [source.records, source.num_bytes, lengths_text(source.lengths)]
        share = f"{facts.share(source):.4%}"
        of_run = [] if source.reads is None else [source.reads, lengths_text(source.read_lengths)]
        return [source.cache, source.split, *declared, *stored, *of_run, share]

    return table([*headings, *read], map(row, facts.sources))


def periods(facts: Facts) -> tuple[str, int]:
    """The last day, month or year in which any source was collected ("" if none says so), and how many do not say.

    A year may end after any of its months: 2024 comes after 2024-05.
    """
    ends = [source.terms.collected.rpartition("/")[2] for source in facts.sources]
    latest = max(filter(None, ends), key=lambda end: end + "-99" * (2 - end.count("-")), default="")
    return latest, ends.count("")


def dropped_table(facts: Facts) -> list[str]:
    """What stages left out, by cache, stage and reason."""
    rows = [
        (cache.label, stage, reason, count)
        for cache in facts.caches
        for stage, unit in cache.account.units.items()
        for reason, count in [*sorted(unit.dropped.items()), *([("failed", unit.dead)] if unit.dead else [])]
    ]
    return table(["cache", "stage", "reason", "records"], rows) if rows else []
