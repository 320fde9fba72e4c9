"""`table`: rows of CSV, TSV, JSON Lines and Parquet to typed features.

    length,wings,species          {"length": 5.1, "wings": 2, "label": 0}
    5.1,2,bee                ──▶  {"length": nan, "wings": 2, "label": 1}
    ,2,wasp

Types of Parquet come from the files; those of text and JSON are inferred from the first 4 MiB of some files
(`column_types.py`). No integer of these rows changes. In later rows, an integer that a column of floats cannot hold
exactly is an error. Numbers with leading zeros are text too: `02139` is not a quantity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from beam_pipes.checks import choice, known
from beam_pipes.errors import DeclarationError
from beam_pipes.format.dtypes import FLOATS, INTEGERS, NAMES
from beam_pipes.recipes.column_types import types_of_parquet, types_of_partitions, types_of_rows
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
from beam_pipes.recipes.row_files import assign_source, files_of, format_of, reading_of
from beam_pipes.recipes.row_values import LABEL, UNITS, feature_of, since_1970
from beam_pipes.recipes.split_names import check_splits
from beam_pipes.recipes.written import Code, Common, CommonOptions, EndsInTime, Module, Recipe, call
from beam_pipes.sources.selection import Paths
from beam_pipes.transforms.by_key import time_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        label: the column that is stored as `label`; text becomes numbers, in the order of the classes' names. As every
            column that is named, it may be a key of an object of JSON, or of a struct: "meta.label".
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
        remedy = "If the files are one of these under another name, say which (--format csv)."
        if kind == "tar":
            remedy = "Unpack the archive first, tar -xf FILE, and name the directory."
        raise DeclarationError(f"a table is CSV, TSV, JSON Lines or Parquet, and {kind!r} has no columns. {remedy}")
    renamed = dict[int, tuple[str, str]]()
    reading = reading_of(
        files, kind, delimiter=delimiter, null=null, names=names or (), decimal=decimal, renamed=renamed
    )
    among = None if columns is None else [*columns, *(name for name in (label, by, time, stratify) if name is not None)]
    _check_dates(dates := dict(dates or {}), types or {})
    declared = {**(types or {}), **dict.fromkeys(dates, "str")}
    kinds = dict[str, str]()
    asked = {*declared, *(columns or ()), *filter(None, (label, by, time, stratify))}
    nested = {name for name in asked if "." in name and kind in ("json", "parquet")}
    if kind == "parquet":
        inferred, partitions = types_of_parquet(files, declared=declared, among=among, nested=nested)
    else:
        inferred = types_of_rows(files, kind, declared=declared, among=among, kinds=kinds, nested=nested, **reading)
        partitions = {name: dtype for name, dtype in types_of_partitions(files).items() if name not in inferred}
    inferred |= partitions
    if not {*inferred} - {*partitions}:
        raise DeclarationError(
            f"there are no rows in {', '.join(repr(file.name) for file in files.files[:3])}. Give files with rows."
        )
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
    if "" in chosen:
        raise DeclarationError(
            f"the column {[*inferred].index('') + 1} of {len(inferred)} has no name. Leave it out (--type =skip), or "
            "name it in the file."
        )
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
    there = {name: _read_as(chosen[name], dtype) for name, dtype in partitions.items() if name in chosen}
    own = {column: dtype for column, dtype in chosen.items() if column not in there}
    schema = {column: _type_of_text(dtype) for column, dtype in own.items()} if is_text else None
    guessed = [column for column in own if column not in (types or {})]
    if is_text:
        reading |= {"inferred": [column for column in guessed if chosen[column] != "str"] or None}
    if kind == "parquet":
        reading = {"columns": [*dict.fromkeys(name.partition(".")[0] if name in nested else name for name in own)]}
    check_splits(files, common.splits or time)
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
        module.use("beam_pipes.recipes", "label_of")
        of = call("stage", Code("label_of"), label=label)
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
        nested=sorted(nested & {*chosen}) or None,
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
            ends = {name: since_1970(end, time, unit) if isinstance(end, str) else end for name, end in ends.items()}
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


def _read_as(stored: str, inferred: str) -> str:
    """The dtype in which a source reads a partition: all that are inferred as numbers are whole."""
    return stored if stored == "str" else "float64" if inferred == "str" and stored in FLOATS else "int64"


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


def _type_of_text(dtype: str) -> Code:
    """The type of a column for a source of text; values that may be missing are then None."""
    if dtype in FLOATS:
        return Code("float | None")
    if dtype in INTEGERS:
        return Code("int")
    return Code("bool") if dtype == "bool" else Code("bytes | None" if dtype == "bytes" else "str | None")
