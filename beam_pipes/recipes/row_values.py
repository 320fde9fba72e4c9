"""The stage of `table`: a row of a source to the values that its types say.

    {"length": 5.1, "wings": 2, "species": "bee"}   →   {"length": 5.1, "wings": 2, "label": 0}

`row_example` makes them of rows, `_of_columns` the same of whole columns; where it may not, it leaves them to the rows,
which say what is wrong.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.analysis import Result
from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import Table
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.format.dtypes import FLOATS, INTEGERS, NAMES, integer_range, numpy_dtype
from beam_pipes.format.spec import ColumnValues
from beam_pipes.recipes.column_types import EXACT, type_holds, with_nested
from beam_pipes.recipes.written import Code, call
from beam_pipes.sources.arrow_values import numbers_in
from beam_pipes.sources.tar import values_at
from beam_pipes.transforms.by_key import time_of
from beam_pipes.typed import stage

LABEL = "label"
#: In which the time since 1970 may be stored.
UNITS = {unit: datetime.timedelta(**{unit: 1}) for unit in ("days", "hours", "minutes", "seconds")}


@stage(batched=True, version=4)
def row_example(
    rows: list[object],
    *,
    types: Mapping[str, str],
    label: str | None = None,
    classes: Sequence[str] | Result | None = None,
    left_out: Sequence[str] | None = None,
    inferred: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    dates: Mapping[str, str] | None = None,
    nested: Sequence[str] | None = None,
) -> list[dict[str, object]]:
    """Rows to examples: `{"wings": 2, "species": "bee"}` with `label="species"` → `{"wings": 2, "label": 0}`.

    Args:
        types: column → dtype, of the columns that are stored. Missing values are NaN in floats and `""` in text.
        label: the column that is stored as `label`.
        classes: the values of this column, if they are text; a label is a position in them. Values learned by an
            analyzer are sorted by name.
        left_out: columns that are not stored; a row with columns besides these and `types` fails. None allows any.
        inferred: columns whose dtype was inferred from other rows of JSON; they hold no value of another kind.
        kinds: column → what all values of an `inferred` column of text are, if not text: "an object", "a list",
            "a number" or "true or false".
        dates: column of text, dates or times → the unit, one of `UNITS`, in which the time since 1970 is stored.
        nested: keys within columns that are columns too: "meta.y" of `{"meta": {"y": 1}}` is 1.

    Raises `TaskError` if an integer or a bool is missing.
    """
    names = classes.class_names() or () if isinstance(classes, Result) else classes
    numbers = None if names is None else numbers_of(tuple(names))
    known = None if left_out is None else {*types, *left_out}
    of_values = {name: _kinds_of(types[name], name, kinds) for name in inferred if "[" not in types[name]}
    of_elements = {name: _kinds_of(types[name]) for name in inferred if types[name].endswith("[]")}
    examples = []
    for row in rows:
        assert isinstance(row, Mapping)  # sources of tables give only mappings
        if nested:
            row = with_nested(row, nested)
        if known is not None and not known.issuperset(row):
            name = next(name for name in row if name not in known)
            raise TaskError(
                f"the row has the column {name!r}, which has no type, because none of the rows that types were "
                f"inferred from has it. Leave it out (--type {name}=skip), or give it a type in the declaration "
                "(--print-python)."
            )
        for name, kind in of_values.items():
            if type(value := row.get(name)) not in kind:
                raise _of_another_kind(value, name, types[name])
        for name, kind in of_elements.items():
            if type(value := row.get(name)) is list and not kind.issuperset(map(type, value)):
                if types[name][:-2] in INTEGERS:
                    _check_integers(value, name, types[name])
                if types[name][:-2] not in INTEGERS or not {*map(type, value)} <= {*kind, float}:
                    raise _of_another_kind(value, name, types[name])
        example = {name: _value(row.get(name), name, dtype) for name, dtype in types.items()}
        for name, unit in (dates or {}).items():
            example[name] = since_1970(example[name], name, unit)
        if label is not None:
            value = example.pop(label)
            if row.get(label) is None or (numbers is not None and not value):
                raise TaskError(
                    f"the column {label!r} is the label, but has no value here. Drop such rows (--on-error drop)."
                )
            example[LABEL] = value if numbers is None else number_of(str(value), numbers, what=f"a {label!r}")
        examples.append(example)
    return examples


@stage
def label_of(row: object, *, label: str) -> str | None:
    """The label of a row as text, as `row_example` has it before it is a number; None if there is none.

    `label_of({"m": {"y": True}}, label="m.y")` → `"True"`. Raises `TaskError` for bytes that are not UTF-8.
    """
    return str(_value(next(iter(values_at(row, label)), None), label, "str")) or None


# Values of JSON that a column of a dtype may hold besides null, numbers for all others; text is refused by `_value`.
_NUMBERS = frozenset([int, float, str, type(None)])
_KINDS = {"str": frozenset([str, type(None)]), "bool": frozenset([bool, str, type(None)])}
# The same for columns of text that hold none.
_KINDS_AS_TEXT: Mapping[str, frozenset[object]] = {
    "an object": frozenset([dict, type(None)]),
    "a list": frozenset([list, type(None)]),
    "a number": frozenset([int, float, type(None)]),
    "true or false": frozenset([bool, type(None)]),
}


def _kinds_of(dtype: str, name: str = "", kinds: Mapping[str, str] | None = None) -> frozenset[object]:
    if kinds and name in kinds:
        return _KINDS_AS_TEXT[kinds[name]]
    if not dtype.endswith("[]") or dtype == "str[]":
        return _KINDS.get(dtype.removesuffix("[]"), _NUMBERS)
    return (_KINDS.get(dtype[:-2], _NUMBERS) - {str}) - ({float} if dtype[:-2] in INTEGERS else set())


def _of_another_kind(value: object, name: str, dtype: str) -> TaskError:
    return TaskError(
        f"the column {name!r} is {dtype}, as inferred from other rows, found {json.dumps(value):.60}. Declare a type "
        f"that all have (--type {name}=str), or drop such rows (--on-error drop)."
    )


def _of_columns(
    table: Table,
    *,
    types: Mapping[str, str],
    label: str | None = None,
    classes: Sequence[str] | Result | None = None,
    left_out: Sequence[str] | None = None,
    inferred: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    dates: Mapping[str, str] | None = None,
    nested: Sequence[str] | None = None,
) -> Table | None:
    """`row_example` of rows that are kept as columns; None, or any error, if there are rows that it may refuse."""
    if left_out is not None and not table.columns.keys() <= {*types, *left_out}:
        return None
    for name in nested or ():
        outer, _, inner = name.partition(".")
        if name not in table.columns and outer in table.columns:
            inside = [next(iter(values_at(value, inner)), None) for value in table.values(outer)]
            table = Table({**table.columns, name: inside}, len(table))
    for name in table.columns.keys() & {*inferred}:
        values: Iterable[object] = table.values(name)
        if (dtype := types[name]).endswith("[]"):
            values = [element for value in table.values(name) if type(value) is list for element in value]
        if "[" not in dtype.removesuffix("[]") and not {*map(type, values)} <= _kinds_of(dtype, name, kinds):
            return None
    made = {name: _stored(table, name, dtype) for name, dtype in types.items()}
    for name, unit in (dates or {}).items():
        texts = column if isinstance(column := made[name], list) else column.tolist()
        made[name] = np.array([since_1970(text, name, unit) for text in texts], np.float64)
    if label is not None:
        column = made.pop(label)
        if isinstance(column, np.ndarray) and column.dtype.kind == "f" and np.isnan(column).any():
            return None  # NaN, or no value
        names = classes.class_names() or () if isinstance(classes, Result) else classes
        if names is None:
            made[LABEL] = column
        else:
            numbers = numbers_of(tuple(names))
            values = column if isinstance(column, list) else column.tolist()
            if not all(values):
                return None
            made[LABEL] = np.array([numbers[str(value)] for value in values])
    return Table(made, len(table))


row_example.function.of_columns = _of_columns  # type: ignore[attr-defined]


def _stored(table: Table, name: str, dtype: str) -> ColumnValues:
    """The values of a column as `_value` gives them; raises for one that it may refuse."""
    if name not in table.columns:
        return [_value(None, name, dtype)] * len(table)
    column = numbers_in(table.columns[name])
    if isinstance(column, np.ndarray):
        if dtype in FLOATS and column.dtype.kind == "f":
            if dtype != "float64" and column.dtype == np.float64 and not np.abs(column).max() <= EXACT[dtype]:
                large = column[np.abs(column) > EXACT[dtype]]
                with np.errstate(over="ignore"):
                    is_rounded = large.astype(numpy_dtype(dtype)) != large
                if (is_rounded & (large == np.floor(large))).any():
                    raise ValueError  # a whole number, which float32 rounds
            return column
        if dtype in INTEGERS and column.dtype.kind in "iu":
            if np.can_cast(column.dtype, numpy_dtype(dtype)) or type_holds(dtype, (column.min(), column.max())):
                return column
            raise ValueError  # the rows say which it does not hold
        if dtype == "bool" == column.dtype.name:
            return column
        column = column.tolist()
    kinds = {*map(type, column)}
    if dtype in FLOATS and kinds <= {float, int, type(None)}:
        numbers = np.array(column, np.float64)
        if int not in kinds or not (np.abs(numbers) >= EXACT["float64"]).any():
            return _stored(Table({name: numbers}, len(table)), name, dtype)
    if dtype in INTEGERS and kinds == {int}:
        return _stored(Table({name: np.array(column, np.int64)}, len(table)), name, dtype)
    if dtype == "str" and kinds <= {str} or dtype == "bool" and kinds == {bool}:
        return column
    return [_value(value, name, dtype) for value in column]


def since_1970(text: object, name: str, unit: str) -> float:
    """`"1970-01-02T12:00"` in days → 1.5; a missing time is NaN. Raises `TaskError` for other text."""
    if text == "":
        return math.nan
    if (time := time_of(text)) is None:
        raise TaskError(
            f"the column {name!r} should hold dates or times in ISO 8601, such as 2024-06-01 or 2024-06-01T12:00Z, "
            f"found {brief(text)}. Write them so, store the column as text (omit --dates {name}={unit}), or drop such "
            "rows (--on-error drop)."
        )
    since = time.replace(tzinfo=time.tzinfo or datetime.timezone.utc) - datetime.datetime(
        1970, 1, 1, tzinfo=datetime.timezone.utc
    )
    return since / UNITS[unit]


@functools.lru_cache(maxsize=8)  # called for each record
def numbers_of(classes: tuple[str, ...]) -> Mapping[str, int]:
    """Class → its number."""
    return {name: number for number, name in enumerate(classes)}


def number_of(name: str, numbers: Mapping[str, int], *, what: str, field: str | None = None) -> int:
    """The number of a class. Raises `TaskError` if it is unknown; `what` describes the value of this class."""
    if name not in numbers:
        raise TaskError(
            f"{what} is of the class {name!r}, which is not one of the {len(numbers)} classes "
            f"({', '.join(list(numbers)[:10])}{', …' if len(numbers) > 10 else ''}). Add it at the end of --classes "
            "(classes=[…]), or drop such records with --on-error drop.",
            field=field,
        )
    return numbers[name]


def _value(value: Any, name: str, dtype: str) -> object:
    if dtype == "str":
        return value if isinstance(value, str) else _as_text(value, name)
    if type(value) is int and dtype == "int64" and abs(value) < EXACT["float64"]:
        return value  # as most are
    if value is None:
        if dtype in FLOATS:
            return math.nan
        if dtype == "bytes":
            return b""
        if dtype.endswith("[]"):
            return [] if dtype in ("str[]", "bytes[]") else np.empty(0, dtype[:-2])
        raise TaskError(f"the column {name!r} is {dtype} and has no value here. {_instead(name, dtype)}")
    scalar = dtype.removesuffix("[]")
    if scalar in EXACT and dtype != "float64":
        _check_whole(value, name, dtype)
    if type(value) is int and dtype in FLOATS and abs(value) < EXACT["float64"]:
        return float(value)
    if scalar in INTEGERS and not (type(value) is list and dtype == "int64[]"):
        _check_integers(value, name, dtype)
    if type(value) is str and (dtype in INTEGERS or dtype in FLOATS or dtype == "bool"):
        raise TaskError(f"the column {name!r} is {dtype}, found the text {value!r:.60}. {_instead(name, 'bool')}")
    if dtype.endswith("[]") and isinstance(value, list):
        return _elements(value, name, dtype)
    return value


def _elements(values: list[Any], name: str, dtype: str) -> list[Any]:
    """The elements of a list; a missing one is NaN, or empty text."""
    if None not in values:
        return values
    missing = {"str[]": "", "bytes[]": b""}.get(dtype, math.nan)
    if missing is math.nan and dtype[:-2] not in FLOATS:
        raise TaskError(
            f"the column {name!r} is {dtype} and has no value at place {values.index(None)} of the list. Declare a "
            f"different type (--type {name}=float64[])."
        )
    return [missing if value is None else value for value in values]


def _instead(name: str, dtype: str) -> str:
    other = "float64" if dtype in INTEGERS else "str"
    return f"Declare a different type (--type {name}={other}), or drop such rows (--on-error drop)."


def _check_whole(value: Any, name: str, dtype: str) -> None:
    """Raises `TaskError` for a whole number that a float rounds. (Others are rounded as in any float.)"""
    scalar = dtype.removesuffix("[]")
    if isinstance(value, np.ndarray | np.generic) and value.dtype != np.float64 and value.dtype.kind == "f":
        return
    for number in value if isinstance(value, list | np.ndarray) else [value]:
        if isinstance(number, float | int) and abs(number) > EXACT[scalar]:
            with np.errstate(over="ignore"):
                stored = float(np.asarray(number, np.float64).astype(numpy_dtype(scalar)))
            if stored != number and number == number // 1:
                raise TaskError(
                    f"the column {name!r} is {dtype}, which does not hold {number:.0f}: it would become "
                    f"{stored:.0f}. Declare a different type (--type {name}={dtype.replace(scalar, 'float64')})."
                )


def _check_integers(value: Any, name: str, dtype: str) -> None:
    """Raises `TaskError` for a number that an integer dtype does not hold."""
    scalar = dtype.removesuffix("[]")
    low, high = integer_range(scalar)
    for number in value if isinstance(value, list) else [value]:
        is_whole = not isinstance(number, float) or number.is_integer()
        if isinstance(number, int | float) and not (is_whole and low <= number <= high):
            other = "float64" if not is_whole else "int64" if type_holds("int64", (int(number), int(number))) else "str"
            raise TaskError(
                f"the column {name!r} is {dtype}, found {number}. Declare a type that holds all of its values (--type "
                f"{name}={dtype.replace(scalar, other) if other != 'str' else 'str'}), or drop such rows (--on-error "
                "drop)."
            )


def _as_text(value: Any, name: str) -> str:
    """A value other than text as text: None is `""`, lists and dicts are JSON, all others as Python writes them."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TaskError(
                f"the column {name!r} holds bytes that are not UTF-8: {error}. Store them as they are (--type "
                f"{name}=bytes)."
            ) from None
    if isinstance(value, np.datetime64):
        return str(value).replace("T", " ")
    if isinstance(value, np.timedelta64):
        micros, rest = divmod(int(value.astype("int64")), 1000)
        text = str(datetime.timedelta(microseconds=micros))
        return f"{text}{'' if '.' in text else '.000000'}{rest:03}"
    if isinstance(value, dict | list | tuple | np.ndarray):
        return json.dumps(value, default=functools.partial(_in_json, name=name))
    return str(value)


def _in_json(value: Any, *, name: str) -> object:
    """Values that JSON lacks: arrays become lists, bytes base64, dates and decimals text."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _as_text(value, name)


def feature_of(dtype: str) -> Code:
    """The feature of a dtype; `float32[]` is a list of any length, `float32[][4]` one of lists of four: boxes."""
    scalar, *sizes = re.findall(r"\w+|\[\d*\]", dtype)
    shape = tuple(int(size[1:-1]) if size != "[]" else None for size in sizes)
    if scalar not in NAMES or "".join((scalar, *sizes)) != dtype or shape[:1] not in ((), (None,)) or len(shape) > 2:
        raise DeclarationError(
            f"{dtype!r} is no dtype. Choose one of: {', '.join(NAMES)}; a list of numbers is float32[], boxes are "
            "float32[][4]."
        )
    return call("FeatureSpec", scalar, shape=shape or None)
