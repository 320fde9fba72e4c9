"""`table`: rows of CSV, TSV, JSON Lines and Parquet to typed features.

    length,wings,species          {"length": 5.1, "wings": 2, "label": 0}
    5.1,2,bee                ──▶  {"length": nan, "wings": 2, "label": 1}
    ,2,wasp

Types of Parquet come from the files; those of text and JSON are inferred from the first 4 MiB of some files
(`column_types.py`). No integer of these rows changes. In later rows, an integer that a column of floats cannot hold
exactly is an error. Numbers with leading zeros are text too: `02139` is not a quantity.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from beam_pipes.analysis import Result
from beam_pipes.checks import choice, known
from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import Table
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.format.dtypes import FLOATS, INTEGERS, NAMES, numpy_dtype
from beam_pipes.format.spec import ColumnValues
from beam_pipes.recipes.column_types import EXACT, types_of_parquet, types_of_partitions, types_of_rows
from beam_pipes.recipes.options import (
    CLASSES_HELP,
    DELIMITER_HELP,
    Option,
    columns_of,
    ends_of,
    names_of,
    types_of,
    units_of,
)
from beam_pipes.recipes.row_files import assign_source, files_of, format_of, reading_of, type_of_text
from beam_pipes.recipes.written import Code, Common, CommonOptions, EndsInTime, Module, Recipe, call
from beam_pipes.sources.arrow_values import numbers_in
from beam_pipes.sources.selection import Paths
from beam_pipes.transforms.by_key import time_of
from beam_pipes.typed import stage

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
                raise _of_another_kind(value, name, types[name])
        example = {name: _value(row.get(name), name, dtype) for name, dtype in types.items()}
        for name, unit in (dates or {}).items():
            example[name] = _since_1970(example[name], name, unit)
        if label is not None:
            value = example.pop(label)
            if numbers is not None and not value:
                raise TaskError(
                    f"the column {label!r} is the label, but has no value here. Drop such rows (--on-error drop)."
                )
            example[LABEL] = value if numbers is None else number_of(str(value), numbers, what=f"a {label!r}")
        examples.append(example)
    return examples


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
    return _KINDS.get(dtype.removesuffix("[]"), _NUMBERS)


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
) -> Table | None:
    """`row_example` of rows that are kept as columns; None, or any error, if there are rows that it may refuse."""
    if left_out is not None and not table.columns.keys() <= {*types, *left_out}:
        return None
    for name in table.columns.keys() & {*inferred}:
        values: Iterable[object] = table.values(name)
        if (dtype := types[name]).endswith("[]"):
            values = [element for value in table.values(name) if type(value) is list for element in value]
        if "[" not in dtype.removesuffix("[]") and not {*map(type, values)} <= _kinds_of(dtype, name, kinds):
            return None
    made = {name: _stored(table, name, dtype) for name, dtype in types.items()}
    for name, unit in (dates or {}).items():
        texts = column if isinstance(column := made[name], list) else column.tolist()
        made[name] = np.array([_since_1970(text, name, unit) for text in texts], np.float64)
    if label is not None:
        column = made.pop(label)
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
        if dtype in INTEGERS and column.dtype.kind in "iu" or dtype == "bool" == column.dtype.name:
            return column
        column = column.tolist()
    kinds = {*map(type, column)}
    if dtype in FLOATS and kinds <= {float, int, type(None)}:
        numbers = np.array(column, np.float64)
        if int not in kinds or not (np.abs(numbers) >= EXACT["float64"]).any():
            return _stored(Table({name: numbers}, len(table)), name, dtype)
    if dtype in INTEGERS and kinds == {int}:
        return np.array(column, np.int64)
    if dtype == "str" and kinds <= {str} or dtype == "bool" and kinds == {bool}:
        return column
    return [_value(value, name, dtype) for value in column]


def _since_1970(text: object, name: str, unit: str) -> float:
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
    if value is None:
        if dtype in FLOATS:
            return math.nan
        if dtype == "bytes":
            return b""
        if dtype.endswith("[]"):
            return [] if dtype in ("str[]", "bytes[]") else np.empty(0, dtype[:-2])
        raise TaskError(f"the column {name!r} is {dtype} and has no value here. {_instead(name, dtype)}")
    if dtype.removesuffix("[]") in EXACT and dtype != "float64":
        _check_whole(value, name, dtype)
    if type(value) is int and dtype in FLOATS and abs(value) < EXACT["float64"]:
        return float(value)
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


def table(
    data: Annotated[Paths, Option("files, directories or globs of CSV, TSV, JSON Lines or Parquet")],
    *,
    label: Annotated[str | None, Option("column to store as label; text becomes numbers")] = None,
    classes: Annotated[Sequence[str] | None, Option(CLASSES_HELP, read=names_of)] = None,
    types: Annotated[
        Mapping[str, str] | None,
        Option(
            "COLUMN=DTYPE, or COLUMN=skip to leave it out [inferred] (repeatable)",
            name="--type",
            read=types_of,
            repeated=True,
        ),
    ] = None,
    format: Annotated[str | None, Option("data format: csv, json, parquet, tsv [by suffix]")] = None,
    delimiter: Annotated[str | None, Option(DELIMITER_HELP)] = None,
    null: Annotated[
        Sequence[str],
        Option("text that stands for a missing value in CSV and TSV, such as NA (repeatable)", repeated=True),
    ] = (),
    columns: Annotated[
        Sequence[str] | None, Option("columns to store, besides the label: NAME,NAME [all]", read=columns_of)
    ] = None,
    names: Annotated[
        Sequence[str] | None,
        Option("names of the columns of CSV and TSV without a header: NAME,NAME", read=columns_of),
    ] = None,
    decimal: Annotated[
        str | None, Option("character between the digits of floats in CSV and TSV, such as , [.]")
    ] = None,
    dates: Annotated[
        Mapping[str, str] | None,
        Option(
            f"COLUMN=UNIT: store dates as numbers since 1970, in {', '.join(UNITS)} (repeatable)",
            read=units_of,
            repeated=True,
        ),
    ] = None,
    split_by_time: Annotated[
        EndsInTime | None,
        Option(
            "COLUMN:SPLIT=END,SPLIT: splits by time, each up to its END, such as when:train=2024-06-01,eval",
            read=ends_of,
        ),
    ] = None,
    stratify: Annotated[str | None, Option("COLUMN: each of its classes has the shares of --split")] = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From rows to a cache of their columns: `5.1,2,bee` → `{"length": 5.1, "wings": 2, "label": 0}`.

        table("insects.csv", label="species", splits={"train": 0.9, "eval": 0.1}).declaration()

    Args:
        data: files, directories or globs of CSV, TSV, JSON Lines or Parquet.
        label: the column that is stored as `label`; text becomes numbers, in the order of the classes' names.
        classes: the names of the classes in the order of their numbers; a row of another one fails. Default: those that
            there are, by name. A class that comes later would then change the numbers of others, which a build into
            the same directory refuses. They also name labels that are integers.
        types: column → dtype, to override the inferred one; "skip" omits a column. Lists of JSON and Parquet are
            "float32[]" and so on.
        format: "csv", "json", "parquet" or "tsv". Default: by suffix.
        delimiter: between the fields of CSV, such as ";". Default: a comma.
        null: the mark of a missing value in CSV and TSV, such as "NA", besides an empty field.
        columns: those that are stored, besides the label and `by`. Default: all.
        names: of the columns of CSV and TSV without a header, from the first to the last.
        decimal: between the digits of floats in CSV and TSV: "," for `1,5`, with delimiter=";". Default: ".".
        dates: column → one of `UNITS`: dates and times are stored as the time since 1970-01-01 UTC, in float64: "days"
            has 1.5 for `1970-01-02T12:00`. Times without a zone are UTC, missing ones NaN, and what is beyond a
            microsecond is cut off.
        split_by_time: a column and the ends of `SplitByTime`, instead of `splits`: `("when", {"train": "2024-06-01",
            "eval": None})` has rows before June in "train", all others in "eval".
        stratify: a column of text, integers or bools: each of its classes has the shares of `splits`, by `Strata`.
        options: see `Common`. `by` is a column.

    Raises `DeclarationError` if a column does not exist, types are unknown, or there are no rows.
    """
    common = Common.of("table", options)
    by, (time, ends) = common.by, split_by_time or (None, {})
    files = files_of(data)
    kind = format_of(files, format)
    if kind not in ("csv", "json", "parquet", "tsv"):
        raise DeclarationError(f"a table is CSV, TSV, JSON Lines or Parquet, and {kind!r} has no columns.")
    renamed = dict[int, tuple[str, str]]()
    reading = reading_of(
        files, kind, delimiter=delimiter, null=null, names=names or (), decimal=decimal, renamed=renamed
    )
    among = None if columns is None else [*columns, *(name for name in (label, by, time, stratify) if name is not None)]
    _check_dates(dates := dict(dates or {}), types or {})
    declared = {**(types or {}), **dict.fromkeys(dates, "str")}
    kinds = dict[str, str]()
    if kind == "parquet":
        inferred, partitions = types_of_parquet(files, declared=declared, among=among)
    else:
        inferred = types_of_rows(files, kind, declared=declared, among=among, kinds=kinds, **reading)
        partitions = {name: dtype for name, dtype in types_of_partitions(files).items() if name not in inferred}
    inferred |= partitions
    is_text = kind in ("csv", "tsv")
    if columns is not None:
        for column in columns:
            known(column, among=inferred, what="column", where="columns")
        skipped = dict.fromkeys({*inferred} - {*(among or ())}, "skip")
        types = {**skipped, **(types or {})}
    for column in dates:
        known(column, among=inferred, what="column", where="dates")
    kept = {"label": label, "by": by, "split_by_time": time, "stratify": stratify}
    chosen = _chosen(inferred, types or {}, kept=kept, may_skip_others=kind == "json", is_text=is_text)
    for column in dates:
        if chosen.get(column) != "str":
            raise DeclarationError(
                f"dates: the column {column!r} is {chosen.get(column, 'left out')}, and dates are text, such as "
                "2024-06-01, or dates and times of Parquet. Omit it from --dates: numbers are stored as they are."
            )
    stored = {**chosen, **dict.fromkeys(dates, "float64")}
    if by is not None and by == label:
        common = dataclasses.replace(common, by=LABEL)
    module = Module()
    there = {name: dtype for name, dtype in partitions.items() if name in chosen}
    own = {column: dtype for column, dtype in chosen.items() if column not in there}
    schema = {column: type_of_text(dtype) for column, dtype in own.items()} if is_text else None
    guessed = [column for column in own if column not in (types or {})]
    if is_text:
        reading |= {"inferred": [column for column in guessed if chosen[column] != "str"] or None}
    if kind == "parquet":
        reading = {"columns": [*own]}
    assign_source(module, common, files, kind, schema=schema, partitions=there or None, **reading)
    module.assign("types", chosen)
    features = {column: feature_of(dtype) for column, dtype in stored.items() if column != label}
    is_named = label is not None and stored[label] == "str"
    is_learned = is_named and classes is None
    if classes is not None:
        if label is None or not is_named and stored[label] not in INTEGERS:
            what = "there is no label" if label is None else f"the label {label!r} is {stored[label]}"
            raise DeclarationError(f"classes are of a label that is text or integers, and {what}. Omit them.")
        module.assign("classes", [*classes])
    if is_learned:
        module.use("beam_pipes", "stage")
        module.use("beam_pipes.recipes", "text_of")
        of = call("stage", Code("text_of"), field=label)
        module.assign(
            "classes", call("Vocabulary", "classes", of=of, split=Code("None")), "beam_pipes.transforms.analyzers"
        )
    of_label = Code("classes.result") if is_learned else Code("classes") if classes is not None else None
    if of_label is not None:
        highest = None if is_learned else Code("len(classes) - 1")
        features[LABEL] = call("FeatureSpec", "int64", minimum=0, maximum=highest, classes=of_label)
    elif label is not None:
        features[LABEL] = feature_of(stored[label])
    module.use("beam_pipes.recipes", "row_example")
    making = call(
        "stage",
        Code("row_example"),
        types=Code("types"),
        label=label,
        classes=of_label if is_named else None,
        # Each row of JSON lines has its own columns; all others have those of the source.
        left_out=sorted({*inferred, *(types or {})} - {*chosen}) if kind == "json" and columns is None else None,
        inferred=guessed or None if kind == "json" else None,
        kinds={name: found for name, found in kinds.items() if name in guessed} or None,
        dates=dates or None,
    )
    splits = None
    if time is not None:
        _check_times(time, chosen[time], ends, label=label)
        if time in dates:
            if unread := [end for end in ends.values() if isinstance(end, str) and time_of(end) is None]:
                raise DeclarationError(
                    f"split_by_time: the ends of splits by {time!r} should be dates or times in ISO 8601, found "
                    f"{unread[0]!r}. Write it so (--split-by-time {time}:train=2024-06-01,eval)."
                )
            unit = dates[time]
            ends = {name: _since_1970(end, time, unit) if isinstance(end, str) else end for name, end in ends.items()}
        splits = module.splits_by_time(common, (time, ends))
    analyzers = [Code("classes")] if is_learned else []
    if stratify is not None:
        if stored[stratify] in FLOATS or stored[stratify].endswith("[]"):
            typed = f"declare its type: types={{{stratify!r}: 'str'}} (--type {stratify}=str)"
            advice = typed if stratify not in dates else f"store it as text: omit --dates {stratify}={dates[stratify]}"
            raise DeclarationError(
                f"stratify: the column {stratify!r} is {stored[stratify]}, and classes are text, integers or bools. "
                f"Name another column, or {advice}."
            )
        field = LABEL if stratify == label else stratify
        making, strata, splits = module.stratified(common, field, making)
        analyzers.append(strata)
    module.declare(common, [making], features=features, analyzers=analyzers or None, splits=splits)
    shown = ", ".join([*features][:6]) + (", …" if len(features) > 6 else "")
    loads = f"from beam_pipes.loader import Loader\nfor batch in Loader(SPLIT, batch_size=ROWS): ...  # {shown}"
    text = module.text("Rows and their types, as `beam-pipes table` declares them.")
    return Recipe(text, loads, rows=256, left_out=module.left_out, renamed=renamed)


def _check_dates(dates: Mapping[str, str], types: Mapping[str, str]) -> None:
    for column, unit in dates.items():
        choice(unit, of=UNITS, what=f"dates: the unit of {column!r}")
        if types.get(column, "str") != "str":
            raise DeclarationError(
                f"dates: the column {column!r} has the type {types[column]!r} too. Omit it from --type or --dates."
            )


def _check_times(column: str, dtype: str, ends: Mapping[str, str | float | None], *, label: str | None) -> None:
    """Raises `DeclarationError` for a column whose values cannot be compared with the ends of splits."""
    if column == label:
        raise DeclarationError(f"split_by_time: the column {column!r} is the label. Name the column of the time.")
    are_dates = any(isinstance(end, str) for end in ends.values())
    if are_dates != (dtype == "str") or not (are_dates or dtype in INTEGERS or dtype in FLOATS):
        like = "2024-06-01" if dtype == "str" else "1717200000, or a year, as the column has them"
        raise DeclarationError(
            f"split_by_time: the column {column!r} is {dtype}, and the ends are {'dates' if are_dates else 'numbers'}: "
            f"{', '.join(str(end) for end in ends.values() if end is not None)}. "
            + (
                f"Give ends that can be compared with it, such as {like}."
                if dtype == "str" or dtype in INTEGERS or dtype in FLOATS
                else "Name a column of dates or numbers."
            )
        )


def _chosen(
    inferred: Mapping[str, str],
    given: Mapping[str, str],
    *,
    kept: Mapping[str, str | None],
    may_skip_others: bool,
    is_text: bool,
) -> dict[str, str]:
    """Column → dtype of what is stored. `kept`: argument → column. `may_skip_others`: further rows may have more."""
    checked = [column for column, dtype in given.items() if dtype != "skip" or not may_skip_others]
    for option, column in (*kept.items(), *(("types", column) for column in checked)):
        if column is not None:
            known(column, among=inferred, what="column", where=option)
    for column, dtype in given.items():
        if is_text and dtype.endswith("[]"):
            raise DeclarationError(
                f"types: the column {column!r} cannot be {dtype}: fields of CSV and TSV hold no lists. Give JSON Lines "
                "or Parquet."
            )
        if dtype != "skip" and dtype.removesuffix("[]") not in NAMES:
            raise DeclarationError(
                f"types: {dtype!r} of the column {column!r} is no dtype. Choose one of: {', '.join(NAMES)}, skip."
            )
    chosen = {column: given.get(column, dtype) for column, dtype in inferred.items()}
    chosen = {column: dtype for column, dtype in chosen.items() if dtype != "skip"}
    for option, column in kept.items():
        if column is not None and column not in chosen:
            raise DeclarationError(f"{option}: the column {column!r} is skipped by its type. Keep it.")
    if (label := kept["label"]) is not None and label != LABEL and LABEL in chosen:
        raise DeclarationError(
            f"the column {label!r} is to be stored as {LABEL!r}, and there is a column of this name. Leave it out: "
            f"types={{{LABEL!r}: 'skip'}} (--type {LABEL}=skip)."
        )
    return chosen


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
