"""Column types of CSV and JSON rows: declared by name, applied to every row; a row that does not fit is bad.

A schema maps column names to `int`, `float`, `str`, `bool`, `bytes`, the same `| None` (empty or missing becomes None),
a dtype's name such as `"int32"` (range-checked), or a feature spec (anything with `dtype` and `shape`).
"""

from __future__ import annotations

import functools
import math
import re
import shlex
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from beam_pipes.errors import SourceError, SpecError
from beam_pipes.format.dtypes import FLOATS, INTEGERS, NAMES, ROUNDS_TO_INFINITY, integer_range, numpy_dtype
from beam_pipes.format.exact import NotExactError, exact_number
from beam_pipes.format.feature_values import array_converter
from beam_pipes.format.spec import ColumnValues, FeatureSpec

Schema: TypeAlias = "Mapping[str, object]"
Convert: TypeAlias = "Callable[[Any], Any]"
ConvertColumn: TypeAlias = "Callable[[Sequence[str]], ColumnValues]"

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
# Digits that a number loses some of; alone, and in a line of its own.
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+", re.ASCII)
_LINE_OF_LEADING_ZERO = re.compile(r"\n[+-]?0[0-9]+\n", re.ASCII)
_TRUE, _FALSE = {"true", "1"}, {"false", "0"}
_PLAIN = {int: "int", float: "float", str: "str", bool: "bool", bytes: "bytes"}


def check_schema(schema: Schema | None, *, scalars_only: bool) -> None:
    """Raises `SourceError` for a type that is not known; `scalars_only` where values are text."""
    for name, declared in (schema or {}).items():
        if not isinstance(name, str):
            raise SourceError(f"schema should map column names to types, found the name {name!r}")
        kind, _ = _kind_of(name, declared)
        if scalars_only and isinstance(kind, FeatureSpec) and kind.shape:
            raise SourceError(f"column {name!r}: a column of text holds scalars, the schema says shape {kind.shape}")


def describe_schema(schema: Schema | None) -> list[list[object]] | None:
    """The schema as JSON-able data, in declared order."""
    if schema is None:
        return None
    rows: list[list[object]] = []
    for name, declared in schema.items():
        kind, optional = _kind_of(name, declared)
        rows.append([name, kind.to_json() if isinstance(kind, FeatureSpec) else kind, optional])
    return rows


def text_converters(schema: Schema, *, decimal: str = ".") -> dict[str, Convert]:
    """Column name → function from a field's text to its value; they raise `ValueError`."""
    converters = {name: _optional(_from_text, *_kind_of(name, declared)) for name, declared in schema.items()}
    return {
        name: _with_decimal(convert, decimal) if decimal != "." and _is_float(name, schema[name]) else convert
        for name, convert in converters.items()
    }


def with_kind_kept(name: str, declared: object, convert: Convert) -> Convert:
    """`convert` of a column whose type was inferred from other rows: `007` raises `ValueError`, in place of 7 or 7.0,
    since it may be a code; and so does `1` in a column of true and false.
    """
    kind = _kind_of(name, declared)[0]

    def converted(text: str) -> object:
        word = text.strip()
        if kind == "bool" and word.isdigit():
            raise ValueError(
                f"expected true or false, as the rows that types were inferred from have them, got {text!r:.60}. "
                f"Declare a type that all have (--type {name}=bool, or str)"
            )
        if kind not in ("bool", "str") and _LEADING_ZERO.fullmatch(word):
            raise ValueError(
                f"expected a number, got {text!r:.60}, whose zeros would be lost. Types were inferred from rows "
                f"without such values: read it as text (--type {name}=str), or as a number "
                f"(--type {name}=float64, int64 where all are whole)"
            )
        try:
            return convert(text)
        except ValueError as error:
            other = "float64" if kind != "bool" and (not word or _is_number(word)) else "str"
            null = f", or say that it stands for a missing value (--null {shlex.quote(text):.60})"
            raise ValueError(
                f"{error}. Types were inferred from other rows: declare one that all have (--type {name}={other})"
                f"{null if word and other == 'str' else ''}"
            ) from None

    return converted


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word)) and "_" not in word
    except ValueError:
        return False


def with_kinds_kept(name: str, declared: object, convert: ConvertColumn) -> ConvertColumn:
    """`with_kind_kept` of a whole column."""
    kind = _kind_of(name, declared)[0]
    if kind == "str":
        return convert

    def converted(texts: Sequence[str]) -> ColumnValues:
        made = convert(texts)
        if kind == "bool":
            if any(word.strip().isdigit() for word in {*texts}):
                raise ValueError  # the rows say which
            return made
        joined = "\n" + "\n".join(texts) + "\n"
        if joined.count(".") == len(texts):  # each has one, or it would be no number
            return made
        is_plain = "".join(texts).replace(".", "").replace("-", "").isalnum()  # no blanks around them
        if (
            _LINE_OF_LEADING_ZERO.search(joined)
            if is_plain
            else any(_LEADING_ZERO.fullmatch(text.strip()) for text in texts)
        ):
            raise ValueError
        return made

    return converted


def _is_float(name: str, declared: object) -> bool:
    kind, _ = _kind_of(name, declared)
    return (kind.dtype if isinstance(kind, FeatureSpec) else kind) in (*FLOATS, "float")


def _with_decimal(convert: Convert, decimal: str) -> Convert:
    def converted(text: str) -> object:
        if "." in text:
            raise ValueError(f"expected a float with decimal={decimal!r}, got {text!r:.60}")
        return convert(text.replace(decimal, "."))

    return converted


def column_converters(schema: Schema, *, decimal: str = ".") -> dict[str, ConvertColumn]:
    """Column name → function from its fields to their values, those of `text_converters`; they raise `ValueError`."""
    converters: dict[str, ConvertColumn] = {}
    by_text = text_converters(schema, decimal=decimal)
    for name, declared in schema.items():
        kind, optional = _kind_of(name, declared)
        convert = by_text[name]
        is_usual = isinstance(kind, str) and (decimal == "." or not _is_float(name, declared))
        of_all = _COLUMNS.get(str(kind)) if is_usual else None
        converters[name] = functools.partial(_converted, convert, of_all, optional)
    return converters


def _converted(
    convert: Convert, of_all: Callable[[list[str]], ColumnValues] | None, optional: bool, texts: Sequence[str]
) -> ColumnValues:
    """All at once if that is sure to give the same values, else one by one."""
    if of_all is not None:
        try:
            if not optional or "" not in texts:
                return of_all(list(texts))
            made = of_all([text for text in texts if text])
            found = iter(made if isinstance(made, list) else made.tolist())
            return [next(found) if text else None for text in texts]
        except ValueError:
            pass
    return list(map(convert, texts))


def plain_kinds(schema: Schema) -> dict[str, str]:
    """Column name → "int" for a column of any integers, "float" for one of float64, "" for others."""
    kinds = {name: _kind_of(name, declared)[0] for name, declared in schema.items()}
    names = {"int": "int", "float": "float", "float64": "float"}
    return {name: names.get(kind, "") if isinstance(kind, str) else "" for name, kind in kinds.items()}


def _plain_numbers(texts: list[str]) -> None:
    """Raises `ValueError` for what Python takes for a number and a schema does not, or does not always."""
    joined = "".join(texts)
    if "_" in joined or not joined.isascii():
        raise ValueError


def _ints_of_texts(texts: list[str]) -> list[int]:
    _plain_numbers(texts)
    if max(map(len, texts), default=0) > 40:
        raise ValueError
    return list(map(int, texts))


def _floats_of_texts(texts: list[str]) -> ColumnValues:
    _plain_numbers(texts)
    numbers = np.fromiter(map(float, texts), np.float64, len(texts))
    sizes = np.abs(numbers)
    if not (largest := sizes.max(initial=0)) < math.inf:  # beyond float64, or meant so; or NaN
        raise ValueError
    large = np.flatnonzero(sizes >= 2**53).tolist() if largest >= 2**53 else ()
    if any(_INTEGER.fullmatch(texts[at].strip()) for at in large):
        raise ValueError  # it may not be exact
    return numbers


_COLUMNS: dict[str, Callable[[list[str]], ColumnValues]] = {
    "int": _ints_of_texts,
    "float": _floats_of_texts,
    "float64": _floats_of_texts,
    "str": lambda texts: texts,
}


def json_converters(schema: Schema) -> dict[str, Convert]:
    """Column name → function from a JSON value to its value; they raise `ValueError`. None means a missing key."""
    return {name: _optional(_from_json, *_kind_of(name, declared), name) for name, declared in schema.items()}


def _kind_of(name: str, declared: object) -> tuple[str | FeatureSpec, bool]:
    if isinstance(declared, types.UnionType) or typing.get_origin(declared) is typing.Union:
        options = [option for option in typing.get_args(declared) if option is not type(None)]
        if len(options) == 1 and len(typing.get_args(declared)) == 2:
            return _kind_of(name, options[0])[0], True
    if isinstance(declared, type) and declared in _PLAIN:
        return _PLAIN[declared], False
    if isinstance(declared, str) and (declared in NAMES or declared in _PLAIN.values()):
        return declared, False
    if isinstance(declared, FeatureSpec):
        return declared, False
    raise SourceError(
        f"column {name!r}: expected a type, one of int, float, str, bool, bytes (or one of them | None), a dtype name "
        f"({', '.join(NAMES)}) or a FeatureSpec, got {declared!r}",
        column=name,
    )


def _optional(make: Callable[..., Convert], kind: str | FeatureSpec, optional: bool, *rest: str) -> Convert:
    convert = make(kind, *rest)
    if not optional:
        return convert
    return lambda value: None if value is None or value == "" else convert(value)


def _from_text(kind: str | FeatureSpec) -> Convert:
    if isinstance(kind, FeatureSpec):
        return _in_range(_from_text(kind.dtype), kind)
    if kind == "str":
        return str
    if kind == "bytes":
        return lambda text: text.encode("utf-8", "surrogateescape")
    if kind == "bool":
        return _bool_of_text
    if kind in FLOATS or kind == "float":
        return _float_of_text("float64" if kind == "float" else kind)
    return _int_of_text if kind == "int" else _in_range(_int_of_text, FeatureSpec(kind))


def _int_of_text(text: str) -> int:
    text = text.strip()
    if not _INTEGER.fullmatch(text) or len(text) > 4000:
        raise ValueError(f"expected an int, got {text!r:.60}")
    return int(text)


def _float_of_text(dtype: str) -> Convert:
    """Decimal digits are rounded to nearest, as they are in source code; a number that rounds to infinity is bad, as is
    an integer that is not exact."""
    limit = ROUNDS_TO_INFINITY[dtype]

    def convert(text: str) -> float:
        if "_" in text or not text.isascii():
            raise ValueError(f"expected a float, got {text!r:.60}")
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"expected a float, got {text!r:.60}") from None
        written = text.strip(" \t\r\n+-")[:1]
        if not -limit < value < limit and (written.isdigit() or written == "."):  # "inf" and "nan" mean themselves
            raise ValueError(f"expected a number in the range of {dtype}, got {text!r:.60}")
        if abs(value) > 256 and _INTEGER.fullmatch(text.strip()):  # below, all are exact
            _exact_float(int(text), dtype)
        return value

    return convert


def _exact_float(number: int, dtype: str) -> float:
    try:
        return float(exact_number(number, numpy_dtype(dtype)))
    except NotExactError as error:
        raise ValueError(f"expected a number that is exact in {dtype}, got {error}") from None


def number_of_json(text: str) -> float:
    """A JSON number with a point or an exponent; `1e400`, which would be infinite, is refused.

    It makes reading numbers a third slower (57 µs against 41 for 256 of them), and nothing else.
    """
    value = float(text)
    if value - value:  # inf - inf is nan; `Infinity` and `NaN` are not numbers to a JSON reader and never get here
        raise ValueError(f"expected a number in the range of float64, got {text:.60}")
    return value


def _bool_of_text(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"expected a bool (true, false, 1 or 0), got {text!r:.60}")


def _in_range(convert: Convert, spec: FeatureSpec) -> Convert:
    if spec.dtype not in INTEGERS:
        return convert
    low, high = integer_range(spec.dtype)
    low, high = max(low, spec.value_range[0]), min(high, spec.value_range[1])

    def checked(value: object) -> object:
        converted = convert(value)
        if not low <= converted <= high:
            raise ValueError(f"expected an {spec.dtype} in [{low}, {high}], got {converted}")
        return converted

    return checked


def _from_json(kind: str | FeatureSpec, name: str) -> Convert:
    if isinstance(kind, FeatureSpec):
        spec = kind
        if not spec.shape:
            return _in_range(_from_json(spec.dtype, name), spec)
        to_array = _texts_of_json(spec, name) if spec.is_text else array_converter(name, spec)

        def array(value: object) -> object:
            if not isinstance(value, list):
                raise ValueError(f"expected a list for shape {spec.shape}, got {_json_name(value)}")
            try:
                return to_array(value)
            except SpecError as error:
                raise ValueError(str(error)) from error

        return array
    if kind in ("str", "bytes"):
        text = _instance(str, "a string")
        return text if kind == "str" else lambda value: text(value).encode("utf-8", "surrogatepass")
    if kind == "bool":
        return _instance(bool, "true or false")
    if kind in FLOATS or kind == "float":
        return _float_of_json("float64" if kind == "float" else kind)
    whole = _instance(int, "an int")
    return whole if kind == "int" else _in_range(whole, FeatureSpec(kind))


def _texts_of_json(spec: FeatureSpec, name: str) -> Convert:
    text, size = _from_json(spec.dtype, name), spec.shape[0]

    def convert(value: list[object]) -> list[object]:
        if size not in (None, len(value)):
            raise ValueError(f"expected {size} values, got {len(value)}")
        return [text(each) for each in value]

    return convert


def _float_of_json(dtype: str) -> Convert:
    """An int must be exact; a number with a point or an exponent is rounded to nearest."""
    number, limit = _instance((int, float), "a number"), ROUNDS_TO_INFINITY[dtype]

    def convert(value: Any) -> float:
        value = number(value)
        if type(value) is int:
            return _exact_float(value, dtype) if abs(value) > 256 else float(value)
        if not -limit < value < limit and math.isfinite(value):
            raise ValueError(f"expected a number in the range of {dtype}, got {value}")
        return float(value)

    return convert


def _instance(kinds: type | tuple[type, ...], expected: str) -> Convert:
    wants_bool = kinds is bool

    def check(value: object) -> object:
        if isinstance(value, kinds) and (wants_bool or not isinstance(value, bool)):
            return value
        raise ValueError(f"expected {expected}, got {_json_name(value)}")

    return check


def _json_name(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"
