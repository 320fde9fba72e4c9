"""A row of docs/file-formats.md: a feature of files, what becomes of it, and a small file of which that is tried.

    Row("FLAC", "24 bits", sound("FLAC", "PCM_24"), decode, Read(SOUNDFILE))
         └ file  └ feature  └ writes a file              └ ours  └ what happens: our values are those of the reference

The page shows `cells`, and tests call `check`: what happens is not text beside a check but what the check expects, so
there is no row that is not tried.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from beam_pipes import Cache, build
from beam_pipes.errors import BeamPipesError
from beam_pipes.recipes import Recipe
from beam_pipes.sources import Source


class Found(NamedTuple):
    """What was read: values, messages of bad records, and reason → how many were left out."""

    values: Sequence[Any]
    bad: Sequence[str] = ()
    left_out: Mapping[str, int] = {}


class Reference(NamedTuple):
    """A reader whose values are taken for the right ones, with the name that the page gives it."""

    name: str
    read: Callable[[Path], Sequence[Any]]


class Outcome(Protocol):
    """What happens to a file."""

    @property
    def cells(self) -> tuple[str, str]:
        """What happens, and the reference."""
        ...

    def check(self, ours: Callable[[], Found], directory: Path) -> None: ...


@dataclass(frozen=True)
class Read:
    """It is read, and its values are those of the reference, but for differences of `tolerance`."""

    reference: Reference
    how: str = "read"
    tolerance: float = 0.0

    @property
    def cells(self) -> tuple[str, str]:
        return self.how, self.reference.name

    def check(self, ours: Callable[[], Found], directory: Path) -> None:
        found = ours()
        assert (list(found.bad), dict(found.left_out)) == ([], {}), found
        require_same(found.values, self.reference.read(directory), self.tolerance)


@dataclass(frozen=True)
class Refused:
    """It is refused, in these words."""

    words: str

    @property
    def cells(self) -> tuple[str, str]:
        return f'refused: "{self.words}"', "–"

    def check(self, ours: Callable[[], Found], directory: Path) -> None:
        try:
            found = ours()
        except (BeamPipesError, ValueError) as error:
            assert self.words in str(error), str(error)
        else:
            raise AssertionError(f"it is read as {found}")


@dataclass(frozen=True)
class BadRecord:
    """One record is bad, in these words, and the others are those of the reference."""

    words: str
    others: Reference

    @property
    def cells(self) -> tuple[str, str]:
        return f'a bad record: "{self.words}"', self.others.name

    def check(self, ours: Callable[[], Found], directory: Path) -> None:
        found = ours()
        assert len(found.bad) == 1 and self.words in found.bad[0], found
        require_same(found.values, self.others.read(directory))


@dataclass(frozen=True)
class LeftOut:
    """Something is left out and counted by its reason, and the rest is that of the reference."""

    reason: str
    rest: Reference
    count: int = 1
    what: str = "left out"

    @property
    def cells(self) -> tuple[str, str]:
        return f"{self.what}, counted as `{self.reason}`", self.rest.name

    def check(self, ours: Callable[[], Found], directory: Path) -> None:
        found = ours()
        assert (list(found.bad), dict(found.left_out)) == ([], {self.reason: self.count}), found
        require_same(found.values, self.rest.read(directory))


@dataclass(frozen=True)
class Row:
    """A feature of files. `write` makes an example of it in an empty directory, of which `ours` reads what it holds."""

    file: str
    feature: str
    write: Callable[[Path], object]
    ours: Callable[[Path], Found]
    outcome: Outcome

    @property
    def cells(self) -> tuple[str, str, str, str]:
        return self.file, self.feature, *self.outcome.cells

    def check(self, directory: Path) -> None:
        """Raises `AssertionError` if what happens to an example is not what the row says. It is left in `directory`."""
        self.write(directory)
        self.outcome.check(lambda: self.ours(directory), directory)


def require_same(ours: object, theirs: object, tolerance: float = 0.0) -> None:
    """Raises `AssertionError` unless values are equal: NaN to NaN, arrays to lists, `1.0` not to `"1.0"`."""
    one, other = _plain(ours), _plain(theirs)
    assert _is_same(one, other, tolerance), f"{one!r:.2000}\nshould be\n{other!r:.2000}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "dtype") and value.dtype.kind not in "mM":
        return _plain(value.tolist())
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value


def _is_same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_is_same(*pair, tolerance) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= tolerance or one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


# Ours.


def of_source(make: Callable[[Path], Source]) -> Callable[[Path], Found]:
    """What a source reads of a directory."""

    def read(directory: Path) -> Found:
        source = make(directory)
        shards = source.plan(target_shard_bytes=1 << 30).shards
        batches = [batch for shard in shards for batch in source.read(shard)]
        bad = [str(each.error) for batch in batches for each in batch.bad]
        return Found([value for batch in batches for value in batch.values], bad)

    return read


def of_recipe(make: Callable[[Path], Recipe], *features: str) -> Callable[[Path], Found]:
    """What a recipe makes of a directory: its examples, or these features of them, and all that it counts."""

    def read(directory: Path) -> Found:
        recipe = make(directory)
        result = build(recipe.declaration(), to=directory.with_name(f"{directory.name}-cache"), workers=1)
        left_out = Counter(recipe.left_out)
        for unit in result.account.units.values():
            left_out.update(unit.dropped)
            left_out.update(unit.partly_dropped)
        examples = [dict(each) for each in Cache.open(result.path)["train"]]
        return Found([_of(each, features) for each in examples], left_out=left_out)

    return read


def _of(example: dict[str, object], features: Sequence[str]) -> object:
    if len(features) == 1:
        return example[features[0]]
    return tuple(example[feature] for feature in features) if features else example


# Files and references.


def text(name: str, content: str | bytes) -> Callable[[Path], object]:
    """Writes a file with this content, as UTF-8 with the ends of lines as they are."""

    def write(directory: Path) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def several(*writers: Callable[[Path], object]) -> Callable[[Path], object]:
    """Writes several files."""

    def write(directory: Path) -> None:
        for each in writers:
            each(directory)

    return write


def stated(name: str, *values: object) -> Reference:
    """Values that the row itself states, by what `name` says of them."""
    return Reference(name, lambda directory: values)


def only(directory: Path) -> Path:
    """The one file in a directory."""
    (path,) = (each for each in directory.rglob("*") if each.is_file())
    return path


def library(name: str) -> Any:
    """A library of the tests, which making the page does not need."""
    return importlib.import_module(name)
