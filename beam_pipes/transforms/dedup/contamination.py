"""`DropContaminated`: drops training texts that share a run of words with an evaluation set.

A text that a model was trained on says nothing when the model is evaluated on it. GPT-3, and most reports since, count
a training text as contaminated if it shares 13 words in a row with an evaluation example, case and punctuation aside.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from beam_pipes.checks import integer, nearest
from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.identity.canonical import Asset
from beam_pipes.sources import CSV, TSV, JSONLines, Parquet, TextLines
from beam_pipes.sources.byte_stream import CODEC_OF_SUFFIX
from beam_pipes.transforms.dedup.exact import plain_text
from beam_pipes.transforms.dedup.likeness import Shingles, shingle_words
from beam_pipes.typed import Pipeline

#: Suffix of an evaluation set, without compression → the source that reads it.
SOURCES = {".csv": CSV, ".jsonl": JSONLines, ".parquet": Parquet, ".tsv": TSV, ".txt": TextLines}

Array = np.ndarray


def letters_and_digits(text: str) -> str:
    """`plain_text` without punctuation and symbols: `"Don't, he said."` → `"dont he said"`."""
    return plain_text(re.sub(r"[^\w\s]", "", text))


class _Runs(NamedTuple):
    """The runs of `width` words of one set: their hashes, ascending, and where each begins: text × 2^32 + word."""

    width: int
    evaluation: str
    hashes: Array
    places: Array


class Overlap(NamedTuple):
    """A run of words that a text shares with an evaluation set.

    `evaluation`: the name of the set; `record_id`: the record of it; `shared`: the words, normalized.
    """

    evaluation: str
    record_id: str
    shared: str


class DropContaminated(Pipeline):
    """Drops texts that share `words` words in a row with an evaluation set, and passes on all others.

        clean = DropContaminated({"gsm8k": Asset("gsm8k.jsonl")}, field="question")
        Declaration(..., pipeline=DAGPipeline({clean: Input(str), tokenize: clean, ...}))

        clean.overlap("Natalia sold clips to 48 of her friends in April, and then …")
        →  Overlap("gsm8k", "gsm8k.jsonl@0", "natalia sold clips to 48 of her friends in april and then she")

    Drops are counted by set, as `overlaps gsm8k`, the first one in the order of `evaluations` that shares a run. An
    evaluation text of fewer than `words` words is looked for as a whole, and not at all if it has fewer than
    `least_words`: those are found everywhere. Runs are found by 64-bit hashes and then compared, so that what is
    dropped does share the words; and every shared run is found.

    An evaluation set is an `Asset`: its content is part of the fingerprint, and workers receive the file. Each process
    holds its texts, and 16 bytes for every word of them.

    Source: T. Brown et al., "Language Models are Few-Shot Learners" (2020), appendix C; runs that are frequent in the
    training data are no exception here, as they are there.

    Args:
        evaluations: name of a set → its file: JSON Lines, CSV, TSV, Parquet, or a text per line, compressed or not.
        field: the field, or fields, of a row that hold its texts; each is looked for by itself. Not for lines.
        words: words in a row that make an overlap.
        least_words: of shorter evaluation texts.
        normalize: applied to both sides; it decides which differences do not count.
        of: gives the text of a record, or None for one without, which stays. Default: the record is the text.
        type_: the class of the records.
        name: the stage's name.

    Raises `DeclarationError` for options that cannot be, and, where the sets are read, for a file of an unknown kind, a
    field that a row lacks, and a set in which no text is long enough.
    """

    def __init__(
        self,
        evaluations: Mapping[str, Asset],
        *,
        field: str | Sequence[str] | None = None,
        words: int = 13,
        least_words: int = 8,
        normalize: Callable[[str], str] = letters_and_digits,
        of: Callable[[Any], str | None] | None = None,
        type_: type = str,
        name: str = "DropContaminated",
    ) -> None:
        if not evaluations or not all(isinstance(asset, Asset) for asset in evaluations.values()):
            raise DeclarationError(
                f'{name}: evaluations should be name → Asset, such as {{"gsm8k": Asset("gsm8k.jsonl")}}, '
                f"got {brief(evaluations)}.",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=type_, name=name)
        self.evaluations = dict(evaluations)
        self.fields = (field,) if isinstance(field, str) else None if field is None else tuple(field)
        self.words = integer(words, least=1, what=f"{name}: words")
        self.least_words = min(integer(least_words, least=1, what=f"{name}: least_words"), self.words)
        self.normalize = normalize
        self.of = of

    def transform(self, input_object: Any) -> list[object]:
        text = input_object if self.of is None else self.of(input_object)
        found = self.overlap(text or "")
        if found is None:
            return [input_object]
        dropped: list[object] = self.drop(f"overlaps {found.evaluation}")
        return dropped

    def overlap(self, text: str) -> Overlap | None:
        """The first run of words that a text shares with a set, in the order of the sets; None if there is none."""
        plain = self.normalize(text)
        texts, runs = self._index
        hashes = {width: _hashes([plain], width)[1] for width in {each.width for each in runs}}
        for width, evaluation, known, places in runs:
            at = np.searchsorted(known, hashes[width])
            at[at == len(known)] = 0
            for place in places[at[known[at] == hashes[width]]].tolist():
                record, plain_record = texts[place >> 32]
                first = place & 0xFFFFFFFF
                shared = " ".join(plain_record.split()[first : first + width])
                if f" {shared} " in f" {' '.join(plain.split())} ":
                    return Overlap(evaluation, record, shared)
        return None

    @functools.cached_property
    def _index(self) -> tuple[list[tuple[str, str]], list[_Runs]]:
        """(id of the record, normalized text) of every text of every set; their runs, which name them by number."""
        texts: list[tuple[str, str]] = []
        runs = []
        for evaluation, asset in self.evaluations.items():
            by_width: dict[int, list[int]] = {}
            for record, text in self._read(evaluation, os.fspath(asset)):
                plain = self.normalize(text)
                width = min(self.words, len(plain.split()))
                if width >= self.least_words:
                    by_width.setdefault(width, []).append(len(texts))
                    texts.append((record, plain))
            if not by_width:
                raise DeclarationError(
                    f"{self.name}: no text of {evaluation!r} ({os.fspath(asset)!r}) has {self.least_words} words. "
                    "Lower least_words (--decontaminate-words), or normalize less.",
                    stage=self.name,
                )
            for width, numbers in sorted(by_width.items(), reverse=True):
                owners, hashes = _hashes([texts[number][1] for number in numbers], width)
                firsts = np.arange(len(owners)) - np.searchsorted(owners, owners)
                order = np.argsort(hashes, kind="stable")
                places = (np.array(numbers, np.uint64)[owners] << np.uint64(32)) + firsts.astype(np.uint64)
                runs.append(_Runs(width, evaluation, hashes[order], places[order]))
        return texts, runs

    def _read(self, evaluation: str, path: str) -> Iterator[tuple[str, str]]:
        suffixes = [suffix for suffix in PurePath(path).suffixes if suffix not in CODEC_OF_SUFFIX]
        source = SOURCES.get(suffixes[-1] if suffixes else "")
        if source is None:
            raise DeclarationError(
                f"{self.name}: {evaluation!r} is {path!r}, of an unknown kind; known are {', '.join(SOURCES)}, "
                "optionally followed by .gz, .bz2 or .zst.",
                stage=self.name,
            )
        opened = source(path)
        for shard in opened.plan(target_shard_bytes=1 << 30).shards:
            for batch in opened.read(shard):
                if batch.bad:
                    raise SourceError(f"{self.name}: {evaluation!r}: {batch.bad[0].error}", path=path)
                for number, row in enumerate(batch.values):
                    yield from ((batch.record_id(number), text) for text in self._texts_of(row, evaluation))

    def _texts_of(self, row: object, evaluation: str) -> Iterator[str]:
        if isinstance(row, str):
            yield row
            return
        assert isinstance(row, Mapping)
        if self.fields is None:
            raise DeclarationError(
                f"{self.name}: say which field of {evaluation!r} holds its texts, field= (--decontaminate-field): "
                f"{', '.join(map(str, row))}.",
                stage=self.name,
            )
        for field in self.fields:
            if field not in row:
                raise DeclarationError(
                    f"{self.name}: a row of {evaluation!r} has no field {field!r}; it has "
                    f"{', '.join(map(str, row))}.{nearest(field, row)} Name it: field= (--decontaminate-field).",
                    stage=self.name,
                )
            if isinstance(text := row[field], str):
                yield text


def _hashes(texts: Sequence[str], width: int) -> tuple[Array, Array]:
    """(numbers of the texts, hashes) of every run of `width` words; a shorter text is one run."""
    parts = list(shingle_words(texts, Shingles("words", width)))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]
