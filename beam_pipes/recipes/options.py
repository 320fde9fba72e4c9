"""`Option`: the command-line form of a recipe's argument, declared with the argument.

    resize: Annotated[tuple[int, int] | None, Option("SIZE of a square, …", read=size_of)] = None

The command builds its options from these: `commands/options.py`. An argument without one is not an option.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import DeclarationError

if TYPE_CHECKING:
    from beam_pipes.building.declaration import MaxBad


@dataclasses.dataclass(frozen=True)
class Option:
    """The option of an argument.

    Args:
        help: a line of help.
        name: the option's name, if it differs from the argument's: `--keep-field`.
        read: makes the value from the text of the command line, or from the texts of an option that is `repeated`.
        least: the least number accepted.
    """

    help: str
    name: str | None = None
    read: Callable[[Any], object] | None = None
    repeated: bool = False
    least: int | None = None


FIELDS_HELP = "NAME or NAME:DTYPE: also store this field [as text] (repeatable)"
CLASSES_HELP = "names of the classes in the order of their labels: NAME,NAME or a file of lines [sorted]"
DELIMITER_HELP = "character between the fields of CSV [,]"


def fields_of(text: Sequence[str]) -> dict[str, str]:
    """`["url", "n:int64"]` → `{"url": "str", "n": "int64"}`."""
    return {name: dtype or "str" for name, _, dtype in (each.partition(":") for each in text)}


def _by_column(text: Sequence[str], *, option: str, what: str, example: str) -> dict[str, str]:
    """`["price=float32"]` → `{"price": "float32"}`. The message has the option, what a column has, and an example."""
    values = {}
    for each in text:
        column, equals, values[column] = each.rpartition("=")
        if not equals:
            raise DeclarationError(f"{option} should be a column and its {what}, such as {example}; got {each!r}.")
    return values


types_of = functools.partial(_by_column, option="--type", what="dtype", example="price=float32")
units_of = functools.partial(_by_column, option="--dates", what="unit", example="when=days")


def names_of(text: str) -> list[str]:
    """`cat,dog` → `["cat", "dog"]`; for a file, its lines."""
    path = Path(text)
    names = path.read_text(encoding="utf-8").splitlines() if path.is_file() else text.split(",")
    if "" in names or len({*names}) < len(names):
        raise DeclarationError(
            f"--classes should be different names, such as cat,dog, or a file of them; got {text!r}."
        )
    return names


def columns_of(text: str) -> list[str]:
    """`id,text` → `["id", "text"]`."""
    names = text.split(",")
    if "" in names or len({*names}) < len(names):
        raise DeclarationError(f"expected different names of columns, such as id,text; got {text!r}.")
    return names


def size_of(text: str) -> tuple[int, int]:
    """`224` → `(224, 224)`, `224x320` → `(224, 320)`."""
    height, _, width = text.lower().partition("x")
    try:
        return int(height), int(width or height)
    except ValueError:
        raise DeclarationError(
            f"--resize should be pixels, such as 224, or 224x320 (height first); got {text!r}."
        ) from None


def hertz_of(text: str) -> int:
    """`16000` → 16000."""
    if not text.isdecimal():
        raise DeclarationError(f"--sample-rate should be a whole number of Hz, such as 16000; got {text!r}.")
    return int(text)


# What stands before the first "=" is an input, unless it is a URL's query or has spaces.
_OF_INPUT = re.compile(r"((?:[a-z0-9]+://)?[^=?:\s]+)=(.+)", re.DOTALL)


def notes_of(texts: Sequence[str]) -> str | dict[str, str]:
    """`["MIT"]` → `"MIT"`; `["web.jsonl=MIT", "books=CC0-1.0"]` → `{"web.jsonl": "MIT", "books": "CC0-1.0"}`."""
    found = [(match[1], match[2]) if (match := _OF_INPUT.fullmatch(text)) else ("", text) for text in texts]
    if len({name for name, _ in found}) < len(found):
        raise DeclarationError(
            f"given twice for the same input: {', '.join(map(repr, texts))}. Write INPUT=VALUE for each of several "
            "inputs, or one value for all."
        )
    return found[0][1] if [name for name, _ in found] == [""] else dict(found)


def limit_of(text: str) -> MaxBad:
    """`100` → 100, `0.5` → 0.5, `all` → None."""
    if text == "all":
        return None
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise DeclarationError(
            f"--max-bad should be a count of records, a fraction such as 0.5, or all; got {text!r}."
        ) from None


def ends_of(text: str) -> tuple[str, dict[str, str | float | None]]:
    """`when:train=2024-06-01,eval` → `("when", {"train": "2024-06-01", "eval": None})`."""
    field, colon, splits = text.partition(":")
    ends: dict[str, str | float | None] = {}
    for each in splits.split(","):
        name, _, end = each.partition("=")
        is_whole, is_number = (re.fullmatch(form, end, re.ASCII) for form in (r"-?\d+", r"-?\d+\.\d+"))
        ends[name.strip()] = int(end) if is_whole else float(end) if is_number else end.strip() or None
    if not (field and colon) or len(ends) < 2 or "" in ends:
        raise DeclarationError(
            "--split-by-time should be a column, and splits with the times at which they end, such as "
            f"when:train=2024-06-01,eval; got {text!r}."
        )
    return field, ends


def shares_of(text: str) -> dict[str, float]:
    """`train=0.99,eval=0.01` → `{"train": 0.99, "eval": 0.01}`."""
    shares: dict[str, float] = {}
    for each in text.split(","):
        name, _, share = each.partition("=")
        try:
            if name.strip() in shares:
                raise ValueError
            shares[name.strip()] = float(share)
        except ValueError:
            raise DeclarationError(
                f"--split should be names and shares, such as train=0.99,eval=0.01; got {text!r}."
            ) from None
    if abs(sum(shares.values()) - 1) > 1e-9:
        raise DeclarationError(
            f"the shares of --split should add up to 1, as in train=0.9,eval=0.1; {text!r} are "
            f"{sum(shares.values()):g}. Name a split for the rest, or raise a share."
        )
    return shares
