"""datatrove's filters and formatters as stages: `from_datatrove(GopherQualityFilter())`.

    {"text": "Too short.", "url": "a.org"}
    ── Document(text="Too short.", id="pages.jsonl@0", metadata={"url": "a.org"}) ──►  GopherQualityFilter.filter
    ── (False, "gopher_short_doc") ──►  dropped, and counted as `gopher_short_doc`

Their code is not rewritten: a stage passes each record to the step as a `Document` and takes the result back. It calls
`filter` and `format` itself rather than the step's `run`, which keeps statistics and writes excluded documents once for
each task of datatrove's own executors; here the build's account and its dead letters serve this purpose.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import random
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.extras import require
from beam_pipes.typed import count, drop, observe, stage
from beam_pipes.typed.function_stage import FunctionStage

__all__ = ["from_datatrove"]

# The counted reason if a filter gives none.
NO_REASON = "filtered"

# Attributes of a step besides its options. Statistics and excluded documents belong to the build.
_NO_OPTIONS = frozenset({"stats", "exclusion_writer", "batch_size", "name", "type"})
# datatrove makes this tuple from a set, so its order depends on the process; `str.endswith` ignores the order.
_UNORDERED = frozenset({"stop_chars"})
# Objects of these libraries are derived from other options, and hold caches and paths of this machine.
_MADE_OF_OPTIONS = frozenset({"ahocorasick", "tldextract"})


class _Document(Protocol):
    text: str
    metadata: dict[str, object]


class DatatroveStep:
    """A filter or formatter as an option of a stage: it is fingerprinted by class, options and versions.

    The step itself does not change: each process runs its own copy.
    """

    def __init__(self, step: object) -> None:
        bases = _bases()
        if not isinstance(step, bases):
            found = step.__name__ if isinstance(step, type) else type(step).__name__
            advice = "Readers and writers are sources and exports here, and deduplication is a separate pass"
            if isinstance(step, type):
                advice = f"Write {found}(), with its options"
            raise DeclarationError(
                f"from_datatrove takes a filter or a formatter of datatrove's, got {found}. {advice}."
            )
        name = type(step).__name__
        if getattr(step, "exclusion_writer", None) is not None:
            raise DeclarationError(
                f"{name} has an exclusion_writer, and tasks of a build would all write to it. Leave it out: the build "
                "counts what is dropped by reason, and `beam-pipes why` says what became of a record."
            )
        draws = [key for key, value in vars(step).items() if _draws(value)]
        if draws and getattr(step, "keep_fraction", 1.0) > 0:
            raise DeclarationError(
                f"{name} draws random numbers in the order of documents ({draws[0]}), so its results would depend on "
                "how the input is divided. Write a stage with a parameter rng, whose draws belong to the record: "
                'drop("sampled") if rng.random() >= rate.'
            )
        self.is_filter = isinstance(step, bases[0])
        self._step = step

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_running"}

    def __repr__(self) -> str:
        return f"{type(self._step).__name__}(…)"

    def fingerprint_config(self) -> Mapping[str, object]:
        """The class, its options, and the versions of the libraries that results depend on."""
        cls = type(self._step)
        libraries = ["datatrove"]
        libraries += [each if isinstance(each, str) else each[1] for each in getattr(cls, "_requires_dependencies", ())]
        options = {key: each for key, each in vars(self._step).items() if key not in _NO_OPTIONS and not _draws(each)}
        if "language" in options:
            libraries.append("spacy")  # splits words for most languages
        return {
            "class": cls,
            "options": {key: _option(key, value) for key, value in options.items()},
            "versions": {library: _version(library) for library in libraries},
        }

    @functools.cached_property
    def _running(self) -> Any:
        step: Any = copy.deepcopy(self._step)
        step.stat_update = _counted
        return step

    def apply(self, document: _Document) -> str | None:
        """Runs the step on a document, in place; returns the reason if it is dropped, None if it is kept."""
        step = self._running
        for value in vars(step).values():
            if hasattr(value, "_replace_i"):
                value._replace_i = 0  # replacements rotate: each document starts with the first
        if not self.is_filter:
            document.text = step.format(document.text)
            return None
        (verdict,) = step.filter_batch([document])
        kept, reason = verdict if isinstance(verdict, tuple) else (verdict, None)
        return None if kept else (reason or NO_REASON)


def _draws(value: object) -> bool:
    """Whether it is a generator of random numbers, or a method of one."""
    generators = (np.random.Generator, np.random.RandomState, random.Random)
    return isinstance(getattr(value, "__self__", value), generators)


def from_datatrove(step: object, *, field: str | None = "text") -> FunctionStage[..., Any]:
    """A datatrove filter or formatter as a stage.

        build("pages", JSONLines("pages.jsonl"), [from_datatrove(GopherQualityFilter()), tokenize], to="cache")

    `{"text": "…", "url": "a.org"}` is passed to the step as a document with this text, and `url` as metadata; the
    result is the same dict with the step's text and metadata: `{"text": "…", "url": "a.org", "language": "en"}`. A
    record that a filter rejects is dropped for the filter's reason, such as `gopher_short_doc`, or as `filtered` if it
    gives none. The step's counts (`line-filter-javascript`) become counts of the stage.

    Args:
        step: a `BaseFilter` or `BaseFormatter` with its options. Its class, its options and the versions of datatrove
            and of what splits words are fingerprinted, and the code of a class or a lambda of your own; files that it
            downloads are not.
        field: where the text of a record is. The id of a document is the record's `id` if that is text, else its record
            id. With None, records and results are texts (`TextLines`).

    A stage gives a step one document at a time, and every process has its own copy, so results do not depend on
    `batch_size`, workers or order: replacements of `PIIFormatter` restart with each document. Needs datatrove (extra
    `datatrove`, with spaCy, which splits English words).

    Raises:
        DeclarationError: for anything but a filter or a formatter, one with an `exclusion_writer`, or one that draws
            random numbers (`SamplerFilter`).
        TaskError: for a record without the field, or with a field that is not text; while running.
    """
    kept = DatatroveStep(step)
    name = type(step).__name__
    if field is None:
        return stage(_text_through_datatrove, name=name, step=kept)
    if not isinstance(field, str) or not field:
        raise DeclarationError(f"field should be the name of the text in a record, or None, got {field!r}.")
    return stage(_record_through_datatrove, name=name, step=kept, field=field)


@stage
def _text_through_datatrove(text: str, *, step: DatatroveStep, record_id: str) -> str:
    document = _document(text, record_id, {})
    reason = step.apply(document)
    return document.text if reason is None else drop(reason)


@stage
def _record_through_datatrove(
    record: dict[str, object], *, step: DatatroveStep, field: str, record_id: str
) -> dict[str, object]:
    text = record.get(field)
    if not isinstance(text, str):
        raise TaskError(
            f"a record should have a text in {field!r}, found {type(text).__name__} among "
            f"{', '.join(map(str, record))}. Name the field: from_datatrove(…, field=…)."
        )
    own_id = record.get("id")
    metadata = {key: value for key, value in record.items() if key != field}
    document = _document(text, own_id if isinstance(own_id, str) else record_id, metadata)
    reason = step.apply(document)
    return {**record, **document.metadata, field: document.text} if reason is None else drop(reason)


def _document(text: str, document_id: str, metadata: dict[str, object]) -> _Document:
    document = require("datatrove.data", purpose="from_datatrove").Document
    made: _Document = document(text, document_id, metadata=metadata)
    return made


def _bases() -> tuple[type, type]:
    filters = require("datatrove.pipeline.filters.base_filter", purpose="from_datatrove")
    formatters = require("datatrove.pipeline.formatters.base", purpose="from_datatrove")
    return filters.BaseFilter, formatters.BaseFormatter


def _counted(*labels: str, value: float = 1, unit: str | None = None) -> None:
    """A step's `stat_update` calls, as statistics of the stage."""
    for label in labels:
        if isinstance(value, int):
            count(label, value)
        else:
            observe(label, value)


def _option(name: str, value: Any) -> object:
    if name in _UNORDERED:
        return frozenset(value)
    if hasattr(value, "_replace_i"):
        return {key: each for key, each in vars(value).items() if key != "_replace_i"}
    return type(value) if type(value).__module__.partition(".")[0] in _MADE_OF_OPTIONS else value


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None
