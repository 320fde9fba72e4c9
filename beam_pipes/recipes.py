"""Recipes: whole declarations for usual jobs, each written as a module of Python.

    tokens(data, tokenizer=…) ──▶ Recipe.python, the text of a module ──▶ Recipe.declaration(), what it declares

A recipe decides what its user would look up: which source reads these files, which vocabulary a tokenizer is, which of
its tokens ends a text. It writes down what it has decided, and what is built is that text, executed. So the module that
`--print-python` shows and the build of the command cannot differ, and it is where one goes on from: add a stage, change
a feature. `tokenize` and `text_of` are the stages that such modules use.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.errors import BeamPipesError, DeclarationError, TaskError
from beam_pipes.sources.byte_stream import CODEC_OF_SUFFIX
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.selection import select
from beam_pipes.tasks.vocabularies import SentencePieceVocabulary, Vocabulary
from beam_pipes.typed import count, drop, stage

__all__ = ["DEDUP", "FORMATS", "Recipe", "open_tokenizer", "text_of", "tokenize", "tokens"]

#: Suffix of a file, compression apart → its format.
FORMAT_OF_SUFFIX = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".text": "text",
    ".tsv": "tsv",
    ".txt": "text",
}
#: Format → the source that reads it. "text": a line is a text; "files": a file is one.
FORMATS = {
    "csv": "CSV",
    "files": "Files",
    "json": "JSONLines",
    "parquet": "Parquet",
    "text": "TextLines",
    "tsv": "TSV",
}
_OF_ROWS = ("csv", "json", "parquet", "tsv")

#: How duplicates are found → the analyzer that finds them.
DEDUP = {"exact": "ExactDuplicates", "near": "NearDuplicates"}

# What ends and begins a text in tokenizers that do not say so themselves.
_WELL_KNOWN = {
    "eos": ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"),
    "bos": ("<|begin_of_text|>", "<s>", "<bos>", "[BOS]"),
}

#: The feature of the ids.
FEATURE = "tokens"


# The stages.


@stage
def text_of(record: object, *, field: str | None = None) -> str | None:
    """The text of a record: a line as it is, the field of a row, the content of a file. None where there is none.

    `text_of({"text": "to be", "n": 3}, field="text")` → `"to be"`. Raises `TaskError` where there is no such field, or
    it holds no text.
    """
    return _text(record, field) or None


@stage(batched=True)
def tokenize(
    records: list[object],
    *,
    vocabulary: Vocabulary,
    field: str | None = None,
    keep: Mapping[str, str] | None = None,
    bos: bool = False,
    eos: bool = True,
    min_tokens: int | None = None,
    max_tokens: int | None = None,
) -> list[dict[str, object] | None]:
    """Records to examples with the ids of their texts: whole batches are handed to the vocabulary's library.

    With `ByteVocabulary()` and `field="text"`, `{"text": "to"}` → `{"tokens": array([119, 114, 1], int32)}`; 1 is EOS.

    Args:
        vocabulary: text to ids.
        field: which field of a row is the text; None where records are lines or files.
        keep: further fields to store, each with its dtype. "str" takes texts as they are, nothing as `""`, and all else
            as JSON. Of files there is `path`.
        bos, eos: add the vocabulary's id that begins or ends a text.
        min_tokens, max_tokens: bounds of the length, `bos` and `eos` included. What is shorter or longer is dropped as
            `too_short` or `too_long`, what has no text as `no_text`.

    Raises `TaskError` for a record without the field, or where that is no text.
    """
    texts = [_text(record, field) for record in records]
    lead = np.array([vocabulary.bos_id] if bos else [], np.int32)
    tail = np.array([vocabulary.eos_id] if eos else [], np.int32)
    examples: list[dict[str, object] | None] = []
    num_tokens = 0
    for record, text, ids in zip(records, texts, vocabulary.encode_arrays(texts), strict=True):
        length = len(ids) + len(lead) + len(tail)
        if not text:
            examples.append(drop("no_text"))
        elif min_tokens is not None and length < min_tokens:
            examples.append(drop("too_short"))
        elif max_tokens is not None and length > max_tokens:
            examples.append(drop("too_long"))
        else:
            row = np.concatenate([lead, ids, tail])
            examples.append(
                {FEATURE: row, **{name: _kept(record, name, dtype) for name, dtype in (keep or {}).items()}}
            )
            num_tokens += length
    count("tokens", num_tokens)
    if getattr(vocabulary, "disagreement", None) is not None:
        count("encoded_by_tokenizers_after_disagreement", len(records))
    return examples


def _text(record: object, field: str | None) -> str:
    value: object
    if isinstance(record, FileContent):
        value = record.content.decode("utf-8")
    elif field is None or not isinstance(record, Mapping):
        value = record
    elif field in record:
        value = record[field]
    else:
        raise TaskError(
            f"a record should have the field {field!r}, which is its text, and has {', '.join(map(str, record))}. Name "
            "another one as field=… (--text-field).",
            field=field,
        )
    if value is None:
        return ""
    if not isinstance(value, str):
        where = "" if field is None else f"the field {field!r} "
        raise TaskError(
            f"expected {where}to hold text (str), found {type(value).__name__}: {value!r:.40}. Name another field as "
            "field=… (--text-field).",
            field=field,
        )
    return value


def _kept(record: object, name: str, dtype: str) -> object:
    value = record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)
    if dtype != "str" or isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


# The recipe.


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A declaration as a module of Python."""

    python: str

    def declaration(self) -> Declaration:
        """What the module declares. Raises `DeclarationError`, or what its parts raise."""
        declared = self._names["declaration"]
        assert isinstance(declared, Declaration)
        return declared

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the module."""
        vocabulary = self._names["vocabulary"]
        assert isinstance(vocabulary, Vocabulary)
        return vocabulary

    @functools.cached_property
    def _names(self) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "recipe"}
        try:
            exec(compile(self.python, "<recipe>", "exec"), names)
        except BeamPipesError:
            raise
        except Exception as error:  # a library's, about a file that is no tokenizer
            raise DeclarationError(
                f"the declaration cannot be made: {type(error).__name__}: {error}. It is what --print-python shows."
            ) from error
        return names


def tokens(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    tokenizer: str | os.PathLike[str],
    name: str = "tokens",
    format: str | None = None,
    text_field: str = "text",
    keep_fields: Mapping[str, str] | Sequence[str] = (),
    eos: bool = True,
    bos: bool = False,
    eos_token: str | None = None,
    bos_token: str | None = None,
    min_tokens: int | None = None,
    max_tokens: int | None = None,
    dedup: str | None = None,
    splits: Mapping[str, float] | None = None,
    by: str | None = None,
    seed: int = 0,
    on_error: str = "fail",
) -> Recipe:
    """From texts to a cache of token ids: `{"text": "to be"}` in `web.jsonl` → `{"tokens": int32 (3,)}` in `train`.

        tokens("corpus/*.jsonl.zst", tokenizer="tokenizer.json", splits={"train": 0.99, "eval": 0.01}).declaration()

    Args:
        data: files, directories or globs; `gs://` too. `.gz`, `.bz2` and `.zst` are read as they are.
        tokenizer: a `tokenizer.json` of `tokenizers`, or the directory that holds it; a SentencePiece `.model` or
            `.spm`; `tiktoken:NAME`, or a file of ranks, `tiktoken:PATH`; or `bytes`.
        name: of the declaration, and of the cache's files.
        format: a key of `FORMATS`. Default: by the suffixes of the files, see `FORMAT_OF_SUFFIX`.
        text_field: which field of rows is the text.
        keep_fields: fields to store beside the tokens, as text; or field → dtype.
        eos, bos: whether ids that end and begin a text are added.
        eos_token, bos_token: which tokens of a `tokenizer.json` or a tiktoken encoding those are. Default: what
            `tokenizer_config.json` beside the file says, else the first of the well-known ones that it has.
        min_tokens, max_tokens: texts with fewer or more are dropped, and counted.
        dedup: "exact" or "near" leaves out all but the first of texts that are alike.
        splits: name → share of the texts. Default: one, `train`.
        by: a field; what is the same in it stays in one split. It is stored too.
        seed: of the splits.
        on_error: "fail", "drop" or "dead_letter": see `Declaration`.

    Raises `DeclarationError` where formats are mixed or not known, the tokenizer is none, or it has no such token.
    """
    kind = _format_of(data, format)
    vocabulary = _vocabulary(os.fspath(tokenizer), {"eos": eos, "bos": bos}, {"eos": eos_token, "bos": bos_token})
    keep = dict(keep_fields) if isinstance(keep_fields, Mapping) else dict.fromkeys(keep_fields, "str")
    if by is not None:
        keep.setdefault(by, "str")
    _check(keep, kind, splits=splits, by=by, dedup=dedup, min_tokens=min_tokens, max_tokens=max_tokens)
    paths = [os.fspath(path) for path in ([data] if isinstance(data, str | os.PathLike) else data)]
    field = text_field if kind in _OF_ROWS else None
    columns = list(dict.fromkeys([text_field, *keep])) if kind == "parquet" else None
    source = _call(FORMATS[kind], paths[0] if len(paths) == 1 else paths, columns=columns)
    tokenizing = _call(
        "stage",
        _Code("tokenize"),
        vocabulary=_Code("vocabulary"),
        field=field,
        keep=keep or None,
        bos=bos or None,
        eos=None if eos else False,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
    )
    ids = _call("FeatureSpec", "int32", shape=(None,), minimum=0, maximum=_Code("vocabulary.vocab_size - 1"))
    module = _Module()
    module.assign("source", source, "beam_pipes.sources")
    module.assign("vocabulary", vocabulary, "beam_pipes.tasks.vocabularies")
    module.use("beam_pipes", "FeatureSpec", "declare", "stage")
    module.use("beam_pipes.recipes", "tokenize")
    stages = [tokenizing]
    if dedup is not None:
        module.use("beam_pipes.transforms.dedup", "DropDuplicates")
        of = None
        if kind != "text":  # a line is compared as it is
            of = _call("stage", _Code("text_of"), field=field)
            module.use("beam_pipes.recipes", "text_of")
        module.assign("duplicates", _call(DEDUP[dedup], dedup, of=of), "beam_pipes.transforms.dedup")
        stages.insert(0, _call("DropDuplicates", _Code("source.output_type"), _Code("duplicates.result")))
    shares: object = None if splits is None else dict(splits)
    if by is not None:
        module.use("beam_pipes.transforms.by_key", "SplitByKey")
        shares = _call("SplitByKey", shares, key=by)
    declaration = _call(
        "declare",
        name,
        _Code("source"),
        stages,
        analyzers=None if dedup is None else [_Code("duplicates")],
        splits=shares,
        features={FEATURE: ids, **{name: _call("FeatureSpec", dtype) for name, dtype in keep.items()}},
        seed=seed or None,
        on_error=None if on_error == "fail" else on_error,
    )
    module.assign("declaration", declaration)
    return Recipe(module.text("Texts to token ids, as `beam-pipes tokens` declares them."))


def _check(
    keep: Mapping[str, str],
    kind: str,
    *,
    splits: Mapping[str, float] | None,
    by: str | None,
    dedup: str | None,
    min_tokens: int | None,
    max_tokens: int | None,
) -> None:
    if FEATURE in keep:
        raise DeclarationError(f"the field {FEATURE!r} cannot be kept: the ids are called so. Rename it in the data.")
    there = () if kind == "text" else ("path",) if kind == "files" else None
    if there is not None and (absent := [name for name in keep if name not in there]):
        has = "a line of text has no fields" if kind == "text" else "a file has only the field 'path'"
        raise DeclarationError(f"the field {absent[0]!r} cannot be kept: {has}. Leave it out, or give rows.")
    if dedup is not None and dedup not in DEDUP:
        raise DeclarationError(f"dedup should be one of {', '.join(DEDUP)}, got {dedup!r}.")
    if by is not None and not splits:
        raise DeclarationError(f"by={by!r} says what stays in one split, and there are no splits. Give them, or no by.")
    for option, value in (("min_tokens", min_tokens), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise DeclarationError(f"{option} is a number of tokens, 1 or more, got {value}.")
    if min_tokens is not None and max_tokens is not None and min_tokens > max_tokens:
        raise DeclarationError(
            f"min_tokens={min_tokens} is more than max_tokens={max_tokens}: nothing would be left. Exchange them."
        )


def _format_of(data: Any, format: str | None) -> str:
    if format is not None:
        if format not in FORMATS:
            raise DeclarationError(f"unknown format {format!r}; choose one of: {', '.join(FORMATS)}.")
        return format
    by_format: dict[str | None, str] = {}
    for file in select(data).find():
        suffixes = [suffix.lower() for suffix in Path(file.name).suffixes]
        if suffixes and suffixes[-1] in CODEC_OF_SUFFIX:
            suffixes.pop()
        by_format.setdefault(FORMAT_OF_SUFFIX.get(suffixes[-1]) if suffixes else None, file.name)
    if None in by_format:
        raise DeclarationError(
            f"{by_format[None]!r} has a suffix that says no format; known are {', '.join(FORMAT_OF_SUFFIX)}, with .gz, "
            ".bz2 or .zst behind. Name the files by a glob, such as 'corpus/**/*.jsonl', or say which format it is "
            f"(--format): {', '.join(FORMATS)}."
        )
    if len(by_format) > 1:
        told = ", ".join(f"{kind} ({example!r})" for kind, example in by_format.items())
        raise DeclarationError(
            f"expected files of one format, found {told}. Name those of one of them by a glob, such as "
            "'corpus/**/*.jsonl'."
        )
    ((found, _),) = by_format.items()
    assert found is not None
    return found


# Tokenizers.


def _vocabulary(tokenizer: str, wanted: Mapping[str, bool], given: Mapping[str, str | None]) -> _Code:
    """The vocabulary of a tokenizer, as Python; for "eos" and "bos", whether they are wanted and by what name."""
    kind, _, rest = tokenizer.partition(":")
    path = os.path.join(tokenizer, "tokenizer.json") if os.path.isdir(tokenizer) else tokenizer
    if kind == "tiktoken" and rest:
        there = {"eos": True, "bos": given["bos"] is not None}
        named = {f"{role}_token": token for role, token in given.items() if token is not None and wanted[role]}
        made = _call("TiktokenVocabulary", rest, **named if wanted["eos"] else {**named, "eos_token": _Code("None")})
    elif tokenizer == "bytes":
        there = {"eos": True, "bos": False}
        made = _call("ByteVocabulary")
    elif path.endswith(".json"):
        tokens = {role: _token_of(path, role, token) for role, token in given.items()}
        there = {role: token is not None for role, token in tokens.items()}
        made = _call("TokenizersVocabulary", path, **{f"{role}_token": t for role, t in tokens.items() if wanted[role]})
    elif path.endswith((".model", ".spm")):
        there = _pieces_of(path)
        made = _call("SentencePieceVocabulary", path)
    else:
        raise DeclarationError(
            f"{tokenizer!r} is not a known tokenizer. Give a tokenizer.json, a SentencePiece .model or .spm, "
            "tiktoken:NAME, tiktoken:PATH, or bytes."
        )
    for role, is_wanted in wanted.items():
        if is_wanted and not there[role]:
            raise DeclarationError(
                f"the tokenizer {tokenizer!r} does not say which token {'ends' if role == 'eos' else 'begins'} a text. "
                f"Name it as {role}_token=… (--{role}-token), or leave it out with {role}=False (--no-{role})."
            )
    return made


def open_tokenizer(tokenizer: str | os.PathLike[str]) -> Vocabulary:
    """The vocabulary of a tokenizer, named as for `tokens`: `open_tokenizer("tokenizer.json")`.

    Raises `DeclarationError` for what is not a tokenizer.
    """
    vocabulary = _vocabulary(os.fspath(tokenizer), {"eos": False, "bos": False}, {"eos": None, "bos": None})
    module = _Module()
    module.assign("vocabulary", vocabulary, "beam_pipes.tasks.vocabularies")
    return Recipe(module.text("A tokenizer.")).vocabulary


def _pieces_of(path: str) -> dict[str, bool]:
    """Which of the tokens that end and begin a text a SentencePiece model has."""
    try:
        pieces = SentencePieceVocabulary(path)
        ids = {"eos": pieces.eos_id, "bos": pieces.bos_id}
    except (OSError, RuntimeError) as error:
        raise DeclarationError(f"{path} cannot be read as a SentencePiece model: {error}.") from error
    return {role: piece is not None and piece >= 0 for role, piece in ids.items()}


def _token_of(path: str, role: str, given: str | None) -> str | None:
    """The token of a `tokenizer.json` that ends or begins a text; None where nothing says so."""
    if given is not None:
        return given
    try:
        config = json.loads(Path(path).with_name("tokenizer_config.json").read_text(encoding="utf-8"))
        token = config.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    except (OSError, ValueError, AttributeError):
        pass
    try:
        described = json.loads(Path(path).read_text(encoding="utf-8"))
        known = {token["content"] for token in described.get("added_tokens") or ()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DeclarationError(f"{path} cannot be read as a tokenizer.json: {error}.") from error
    return next((token for token in _WELL_KNOWN[role] if token in known), None)


# Writing Python.

# With the name in front and the indentation of a call around it, no line is longer than 120 characters.
_LINE = 100


@dataclasses.dataclass(frozen=True)
class _Code:
    """An expression, written as it stands."""

    text: str


class _Module:
    """The text of a module: what it imports, and what it gives names to."""

    def __init__(self) -> None:
        self._imports: dict[str, set[str]] = {}
        self._lines: list[str] = []

    def use(self, module: str, *names: str) -> None:
        self._imports.setdefault(module, set()).update(names)

    def assign(self, name: str, value: _Code, module: str | None = None) -> None:
        """`name = value`; what the value calls is imported from `module`."""
        if module is not None:
            self.use(module, value.text.partition("(")[0])
        self._lines.append(f"{name} = {value.text}")

    def text(self, about: str) -> str:
        imports = [
            f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self._imports.items())
        ]
        return "\n".join([f'"""{about}"""', "", *imports, "", *self._lines, ""])


def _spelled(value: object) -> str:
    """A value as `ruff format` spells it: `{"train": 0.99}`."""
    if isinstance(value, _Code):
        return value.text
    if isinstance(value, str):
        spelled = repr(value)
        return f'"{spelled[1:-1]}"' if spelled[0] == "'" and '"' not in spelled else spelled
    if isinstance(value, Mapping):
        return _bracketed("{", [f"{_spelled(key)}: {_spelled(item)}" for key, item in value.items()], "}")
    if isinstance(value, list):
        return _bracketed("[", list(map(_spelled, value)), "]")
    return repr(value)


def _bracketed(opening: str, items: Sequence[str], closing: str) -> str:
    """Items within brackets, one a line where they are long."""
    line = f"{opening}{', '.join(items)}{closing}"
    if len(line) <= _LINE and "\n" not in line:
        return line
    rows = "".join(f"    {row}\n" for each in items for row in f"{each},".split("\n"))
    return f"{opening}\n{rows}{closing}"


def _call(function: str, *arguments: object, **named: object) -> _Code:
    """A call; what is named with None is left out."""
    given = [*map(_spelled, arguments), *(f"{name}={_spelled(v)}" for name, v in named.items() if v is not None)]
    return _Code(_bracketed(f"{function}(", given, ")"))
