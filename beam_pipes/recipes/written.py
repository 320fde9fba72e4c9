"""`Recipe`: a declaration as the text of a module, and the writer of such text.

    module = Module()
    module.assign("source", call("JSONLines", "web.jsonl"), "beam_pipes.sources")
    module.declare("tokens", [call("stage", Code("tokenize"))], …)
    Recipe(module.text("Texts to token ids."))

    source = JSONLines("web.jsonl")
    declaration = declare("tokens", source, [stage(tokenize)], …)

Every recipe ends in `Module.declare`: it handles the splits and failing records of all recipes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Annotated, Any, TypeAlias, TypedDict

from beam_pipes.building.declaration import Declaration, MaxBad
from beam_pipes.checks import known
from beam_pipes.engine.execute import BUILD_POLICIES
from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.publication.terms import FIELDS
from beam_pipes.recipes.options import Option, limit_of, notes_of, shares_of
from beam_pipes.tasks.vocabularies import Vocabulary

# Including the name in front and the indentation of the surrounding call, no line exceeds 120 characters.
_LINE = 100


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A declaration as a module of Python.

    Args:
        python: the text of the module.
        loads: the lines of Python that load its cache, with `SPLIT` for the path of a split and `ROWS` for the rows of
            a batch.
        rows: that number, if there are as many.
        left_out: suffix → number of files of a directory that are not read because their suffix is unknown.
        renamed: number of a column → its name in the header, and the one it has instead.
    """

    python: str
    loads: str = ""
    rows: int = 32
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    renamed: Mapping[int, tuple[str, str]] = dataclasses.field(default_factory=dict)

    def declaration(self) -> Declaration:
        """The module's declaration. Raises `DeclarationError`, or errors of its parts."""
        declared = self.names["declaration"]
        assert isinstance(declared, Declaration)
        return declared

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the module."""
        vocabulary = self.names["vocabulary"]
        assert isinstance(vocabulary, Vocabulary)
        return vocabulary

    def loading(self, split: str, *, num_records: int) -> list[str]:
        """The lines of Python that load a split: `loading("cache/train", num_records=900)`."""
        rows = str(max(1, min(self.rows, num_records)))
        return self.loads.replace("ROWS", rows).replace("SPLIT", json.dumps(split, ensure_ascii=False)).splitlines()

    @functools.cached_property
    def names(self) -> dict[str, Any]:
        """The names that the module defines. Raises `DeclarationError`, or errors of its parts."""
        names: dict[str, object] = {"__name__": "recipe"}
        try:
            exec(compile(self.python, "<recipe>", "exec"), names)
        except BeamPipesError:
            raise
        except Exception as error:  # from a library, about a file that is not a tokenizer
            raise DeclarationError(
                f"the declaration cannot be created: {type(error).__name__}: {error}. --print-python shows it."
            ) from error
        return names


#: What is said about all inputs, or about each: input, as it was given → text.
Notes: TypeAlias = str | Mapping[str, str]


def _note(help: str) -> Option:
    return Option(f"{help}; INPUT=VALUE for one of several inputs (repeatable)", read=notes_of, repeated=True)


class CommonOptions(TypedDict, total=False):
    """The keyword arguments that every recipe takes: those of `Common`."""

    name: Annotated[str, Option("name of the declaration and of the cache's files [the recipe's]")]
    splits: Annotated[
        Mapping[str, float] | None,
        Option("split fractions, such as train=0.99,eval=0.01 [all in train]", name="--split", read=shares_of),
    ]
    by: Annotated[str | None, Option("keep examples with equal values of this field in one split; also store it")]
    seed: Annotated[int, Option("seed for assigning splits")]
    on_error: Annotated[str, Option(f"how to handle a failing record: {', '.join(BUILD_POLICIES)}")]
    max_bad: Annotated[
        MaxBad,
        Option("how many records may fail: a count, a fraction such as 0.5, or all [a tenth]", read=limit_of),
    ]
    allow_empty: Annotated[bool, Option("publish even if no record is left, or none of a split that has some now")]
    license: Annotated[Notes, _note("SPDX license of the data, such as CC-BY-4.0")]
    origin: Annotated[Notes, _note("URL or name of where the data come from")]
    collected: Annotated[Notes, _note("when the data were collected, such as 2024-05 or 2023-11/2024-05")]
    terms: Annotated[Notes, _note("URL or sentence of what else the licensor requires")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """The options of every recipe.

    Args:
        name: of the declaration, and of the cache's files. Default: that of the recipe.
        splits: name → share of the examples. Default: one, `train`.
        by: records with the same value in this field stay in one split.
        seed: of the splits.
        on_error: "fail", "drop" or "dead_letter": see `Declaration`.
        max_bad: how many records may fail, see `Declaration`.
        allow_empty: publish even if nothing is left, see `Declaration`.
        license, origin, collected, terms: what the source says of its records, see `Terms`; for several inputs with
            different ones, input → text, and `""` for all others: `{"books": "CC0-1.0", "web/*.jsonl": "CC-BY-4.0"}`.
    """

    name: str
    splits: Mapping[str, float] | None = None
    by: str | None = None
    seed: int = 0
    on_error: str = "fail"
    max_bad: MaxBad = "tenth"
    allow_empty: bool = False
    license: Notes = ""
    origin: Notes = ""
    collected: Notes = ""
    terms: Notes = ""

    @classmethod
    def of(cls, recipe: str, options: CommonOptions) -> Common:
        """The given options of a recipe; the cache is named after it unless another name is given."""
        named: CommonOptions = {"name": recipe, **options}
        return cls(**named)

    def __post_init__(self) -> None:
        if self.by is not None and not self.splits:
            raise DeclarationError(
                f"by={self.by!r} says what stays in one split, but there are no splits. Give splits, or omit by "
                "(--split train=0.9,eval=0.1; --by)."
            )

    def sources(self, paths: Sequence[str]) -> dict[str, tuple[list[str], dict[str, str]]]:
        """The inputs, divided by what is said about them: name → inputs, and the options of their source.

        One entry, of any name, where the same is said about all. Raises `DeclarationError` for a note about an input
        that is not there.
        """
        found: dict[str, tuple[list[str], dict[str, str]]] = {}
        used = set[str]()
        for path in paths:
            said, name = {}, ""
            for field in FIELDS:
                notes = getattr(self, field)
                notes = {"": notes} if isinstance(notes, str) else notes
                keys = [key for key in notes if key and (key.rstrip("/") == path.rstrip("/") or fnmatch(path, key))]
                used.update(keys)
                if text := notes[keys[0]] if keys else notes.get("", ""):
                    said[field] = text
                name = name or "".join(keys[:1])
            name = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.") or "others"
            while name in found and found[name][1] != said:
                name += "-2"
            found.setdefault(name, ([], said))[0].append(path)
        for field in FIELDS:
            notes = getattr(self, field)
            for key in () if isinstance(notes, str) else notes:
                if key and key not in used:
                    known(key, among=paths, what="input", where=f"{field} ({key}=…)", error=DeclarationError)
        if len({tuple(said.items()) for _, said in found.values()}) == 1:
            return {"others": (list(paths), next(iter(found.values()))[1])}
        return found

    def notes_of(self, path: str | os.PathLike[str]) -> dict[str, str]:
        """The options of a source of one input."""
        ((_, said),) = self.sources([os.fspath(path)]).values()
        return said


#: A field, and the ends of the splits by it, as `SplitByTime` takes them.
EndsInTime = tuple[str, Mapping[str, str | float | None]]


def keep_time(keep: Mapping[str, str], time: EndsInTime | None) -> dict[str, str]:
    """Field → dtype of stored fields, with the field that splits by time."""
    if time is None:
        return dict(keep)
    are_dates = any(isinstance(end, str) for end in time[1].values())
    return {**keep, time[0]: keep.get(time[0], "str" if are_dates else "float64")}


@dataclasses.dataclass(frozen=True)
class Code:
    """An expression, written verbatim."""

    text: str


class Module:
    """The text of a module: its imports and assignments; `left_out` counts files that its source does not read."""

    def __init__(self) -> None:
        self.left_out: dict[str, int] = {}
        self._imports: dict[str, set[str]] = {}
        self._lines: list[str] = []

    def use(self, module: str, *names: str) -> None:
        self._imports.setdefault(module, set()).update(names)

    def assign(self, name: str, value: object, module: str | None = None) -> None:
        """`name = value`; the function it calls is imported from `module`."""
        written = spelled(value)
        if module is not None:
            self.use(module, written.partition("(")[0])
        self._lines.append(f"{name} = {written}")

    def splits_by_time(self, common: Common, time: EndsInTime) -> Code:
        """`SplitByTime(…)` of a field and the ends of its splits. Raises `DeclarationError` if there are shares too."""
        if common.splits is not None:
            raise DeclarationError(
                "splits have shares or ends in time, and both are given: omit --split or --split-by-time."
            )
        self.use("beam_pipes.transforms.by_key", "SplitByTime")
        return call("SplitByTime", dict(time[1]), field=time[0])

    def stratified(self, common: Common, field: str, making: Code) -> tuple[Code, Code, Code]:
        """Assigns `example`, the stage that makes examples, and `strata`; returns their names and the split of records.

        Raises `DeclarationError` if there are no shares, or `by` decides on the split.
        """
        if not common.splits or common.by is not None:
            raise DeclarationError(
                f"stratify={field!r} gives each class its shares of splits: give shares (--split train=0.9,eval=0.1), "
                "and omit by (--by) and split_by_time (--split-by-time), which decide on the split too."
            )
        self.use("beam_pipes", "stage")
        self.use("beam_pipes.transforms.strata", "SplitByStratum")
        self.assign("example", making)
        strata = call("Strata", "strata", shares=dict(common.splits), field=field, of=Code("example"))
        self.assign("strata", strata, "beam_pipes.transforms.strata")
        return Code("example"), Code("strata"), call("SplitByStratum", Code("strata.result"))

    def declare(
        self,
        common: Common,
        stages: list[Code],
        *,
        features: Mapping[str, Code],
        analyzers: list[Code] | None = None,
        target_shard_bytes: Code | None = None,
        splits: object = None,
    ) -> None:
        """`declaration = declare(…)`, for the source already assigned; `splits` instead of those of `common`."""
        self.use("beam_pipes", "FeatureSpec", "declare", "stage")
        splits = splits or (None if common.splits is None else dict(common.splits))
        if common.by is not None:
            self.use("beam_pipes.transforms.by_key", "SplitByKey")
            splits = call("SplitByKey", splits, key=common.by)
        declaration = call(
            "declare",
            common.name,
            Code("source"),
            stages,
            analyzers=analyzers,
            splits=splits,
            features=features,
            seed=common.seed or None,
            on_error=None if common.on_error == "fail" else common.on_error,
            max_bad=Code("None") if common.max_bad is None else None if common.max_bad == "tenth" else common.max_bad,
            allow_empty=common.allow_empty or None,
            target_shard_bytes=target_shard_bytes,
        )
        self.assign("declaration", declaration)

    def text(self, about: str) -> str:
        lines = {
            module: f"from {module} import {', '.join(sorted(names))}"
            for module, names in sorted(self._imports.items())
        }
        ours = [line for module, line in lines.items() if module.startswith("beam_pipes")]
        others = [line for line in lines.values() if line not in ours]
        blocks = [[f'"""{about}"""'], others, ours, [*self._lines, ""]]
        return "\n\n".join("\n".join(block) for block in blocks if block)


def spelled(value: object) -> str:
    """A value as `ruff format` spells it: `{"train": 0.99}`."""
    if isinstance(value, Code):
        return value.text
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text
    if isinstance(value, Mapping):
        return _bracketed("{", [f"{spelled(key)}: {spelled(item)}" for key, item in value.items()], "}")
    if isinstance(value, list):
        return _bracketed("[", list(map(spelled, value)), "]")
    return repr(value)


def call(function: str, *arguments: object, **named: object) -> Code:
    """A call; keyword arguments that are None are omitted: `call("FeatureSpec", "int32", shape=(None,))`."""
    given = [*map(spelled, arguments), *(f"{name}={spelled(v)}" for name, v in named.items() if v is not None)]
    return Code(_bracketed(f"{function}(", given, ")"))


def _bracketed(opening: str, items: Sequence[str], closing: str) -> str:
    """Items in brackets, one per line if they are long."""
    line = f"{opening}{', '.join(items)}{closing}"
    if len(line) <= _LINE and "\n" not in line:
        return line
    rows = "".join(f"    {row}\n" for each in items for row in f"{each},".split("\n"))
    return f"{opening}\n{rows}{closing}"
