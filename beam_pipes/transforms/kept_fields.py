"""Fields of records as they are stored beside what a recipe makes of them: `--keep-field` and `--by`.

    {"n": "7", "url": None, "boxes": [[1, 2, 3, 4]]}
    ── {"n": "int64", "url": "str", "boxes": "float32[][4]"} ──►  {"n": 7, "url": "", "boxes": float32 (1, 4)}

A record may be a row, a sample of a tar or a file; a missing value is stored as one where its dtype has one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import TaskError
from beam_pipes.format.dtypes import FLOATS, INTEGERS
from beam_pipes.sources.tar import values_at

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def field_of(record: object, field: str, *, what: str = "its messages", option: str | None = None) -> object:
    """The value of a field: `field_of({"json": {"text": "to be"}}, "json.text")` → `"to be"`.

    Raises `TaskError` if it is missing; the message says `what` the field is, and which `option` names another one.
    """
    if isinstance(record, Mapping) and field in record:  # nearly always
        return record[field]
    if found := values_at(record, field):
        return found[0]
    there = ", ".join(map(str, record)) if isinstance(record, Mapping) else type(record).__name__
    advice = (
        "Name a different one as field=…."
        if option is None
        else (f"Name a different one ({option}), add it, or leave out such records (--on-error drop).")
    )
    raise TaskError(
        f"a record should have the field {field!r}, which is {what}, and has {there}. {advice}",
        field=field,
    )


def kept_fields(record: object, keep: Mapping[str, str] | None, *, sparse: bool = False) -> dict[str, Any]:
    """Fields of a record as stored, by their dtypes: `{"n": 7, "url": None}` with `{"n": "int64", "url": "str"}` →
    `{"n": 7, "url": ""}`.

    "str" keeps text as it is, stores a missing value as `""`, and everything else as JSON. A missing float is NaN, a
    missing list (`float32[]`; `float32[][4]` of boxes) empty; a missing integer is a `TaskError`, and so is a field
    that the record does not have, unless records are `sparse`: an absent field is then a missing value. Text is parsed
    where the dtype is another one. Files have `path`.
    """
    kept: dict[str, object] = {}
    for name, dtype in (keep or {}).items():
        try:
            value = field_of(record, name) if isinstance(record, Mapping) else getattr(record, name)
        except (AttributeError, TaskError):
            if not sparse:
                there = f" It has {', '.join(map(str, record))}." if isinstance(record, Mapping) else ""
                raise TaskError(
                    f"the field {name!r} is to be kept, and a record does not have it.{there} Correct its name in "
                    "keep, or let records lack it (sparse=True): it is then stored as a missing value.",
                    field=name,
                ) from None
            value = None
        if dtype not in ("str", "bytes"):
            if isinstance(value, str):  # of CSV, or of a file of text
                value = _parsed(name, value.strip(), dtype)
            if "[" in dtype:
                value = _array(name, [] if value is None else value, dtype)
        if value is None and dtype != "str":
            value = _missing(name, dtype)
        if dtype == "str" and isinstance(value, bytes):
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise TaskError(
                    f"the field {name!r} holds bytes that are not UTF-8: {error}. Keep them as they are: --keep-field "
                    f"{name}:bytes."
                ) from None
        if dtype == "str" and not isinstance(value, str):
            value = "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        kept[name] = value
    return kept


def _parsed(name: str, text: str, dtype: str) -> object:
    """The number, bool or list that a text is; None for a blank one."""
    if not text:
        return None
    try:
        if "[" in dtype:
            return json.loads(text)
        if "_" in text or not text.isascii():  # which Python takes for a number
            raise ValueError
        return _BOOLS[text.lower()] if dtype == "bool" else float(text) if dtype in FLOATS else int(text)
    except (KeyError, ValueError):
        raise TaskError(
            f"the field {name!r} should be {dtype}, found the text {text!r:.60}. Keep it as text (--keep-field "
            f"{name}), or drop such records (--on-error drop).",
            field=name,
        ) from None


def _array(name: str, value: object, dtype: str) -> npt.NDArray[Any]:
    """A list of numbers, `float32[]`, or one of lists of as many, such as boxes, `float32[][4]`."""
    scalar, _, inner = dtype.partition("[]")
    width = inner.strip("[]")
    try:
        found = np.asarray(value)
        if found.size and (found.ndim != 1 + bool(width) or (scalar in INTEGERS and found.dtype.kind not in "iu")):
            raise ValueError
        return np.asarray(value, scalar).reshape((-1, int(width)) if width else -1)
    except (OverflowError, TypeError, ValueError):
        raise TaskError(
            f"the field {name!r} should be a list of {f'lists of {width} ' if width else ''}numbers ({scalar}), found "
            f"{value!r:.80}. Keep it as text, which is JSON (--keep-field {name}), or repair the record.",
            field=name,
        ) from None


def _missing(name: str, dtype: str) -> object:
    """The stored form of a missing value: NaN, or no bytes."""
    if dtype in FLOATS or dtype == "bytes":
        return b"" if dtype == "bytes" else math.nan
    raise TaskError(
        f"the field {name!r} is {dtype} and has no value in this record. Keep it as a float, which is then NaN "
        f"(--keep-field {name}:float64), or as text (--keep-field {name}), or drop such records (--on-error drop)."
    )
