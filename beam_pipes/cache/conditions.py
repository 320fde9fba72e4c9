"""Conditions on features: `score > 0.8 and lang == 'en'`, parsed as Python but never executed.

    text  ──parsed, checked──►  Condition: which columns it compares, and with what  ──of──►  one boolean per record

Numbers compare as in Python: an integer that is compared with a float is not rounded to a float. What the sources of a
cache declare of themselves (`license`, `origin`, `collected`, `terms`) is a column too, one text for each shard, unless
a feature has its name.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.checks import known
from beam_pipes.errors import SpecError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.publication.terms import FIELDS

if TYPE_CHECKING:
    from beam_pipes.cache.columns import ColumnReader
    from beam_pipes.cache.shard_files import RecordAddresses

# Compares columns, or a column and a value: one boolean per record.
_Compare = Callable[[Any, Any], Array]
_COMPARISONS: Mapping[type[ast.cmpop], _Compare] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

_MIRRORED: Mapping[_Compare, _Compare] = {
    operator.eq: operator.eq,
    operator.ne: operator.ne,
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
}

# A text in quotes, or the name of a feature in backticks.
_QUOTED = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|`([^`]*)`""")
_PLACEHOLDER = "_in_backticks_"
_ASSIGNED = re.compile(r"(?<![=!<>:])=(?!=)")

_ALLOWED = (
    "A condition compares scalar features and len(feature) with numbers and texts (==, !=, <, <=, >, >=, in, not in), "
    "joined by and, or, not; put names that are not Python identifiers in backticks. Compute anything else in a stage"
)


@dataclasses.dataclass(frozen=True)
class _Column:
    """One feature of all records, or its length (of a str, in characters): a number, a text or a boolean ("truth").

    With `of_source`, what the sources of the records declare: a text.
    """

    feature: str
    kind: str  # "number", "text" or "truth"
    length: bool = False
    characters: bool = False
    of_source: bool = False


# What a feature is compared with.
_Value = bool | int | float | str | bytes
_Operand = _Column | _Value


class _Texts:
    """The texts of many records as their concatenated bytes: most never become Python objects."""

    def __init__(self, values: Array, lengths: Array, objects: Callable[[], Array]) -> None:
        self._values = values
        self._lengths = lengths
        self._starts: Array = np.cumsum(lengths) - lengths
        self.objects = objects

    def equal(self, text: bytes) -> Array:
        """(n,) bool: which texts equal this one. Compares byte by byte, over ever fewer records."""
        left = np.flatnonzero(self._lengths == len(text))
        for at, byte in enumerate(text):
            left = left[self._values[self._starts[left] + at] == byte]
        found = np.zeros(len(self._lengths), bool)
        found[left] = True
        return found


class _SourceTexts(_Texts):
    """What the sources of many records declare: one of a few texts each."""

    def __init__(self, by_shard: Sequence[str], shards: Array) -> None:
        self._by_shard = np.array(by_shard, object)
        self._shards = shards
        self.objects = lambda: self._by_shard[shards]

    def equal(self, text: bytes) -> Array:
        found: Array = (self._by_shard == text.decode("utf-8", "surrogatepass"))[self._shards]
        return found


# Column → its values; gives one boolean per record.
_Made = Mapping[_Column, Any]
_Test = Callable[[_Made], Array]


class Condition:
    """A condition on the features of a spec, parsed and checked.

        Condition("len(tokens) > 2 and lang in ('en', 'de')", spec).columns  →  len(tokens), lang

    Raises `SpecError` if the text is not a condition, for features that the spec does not have or that are not scalars,
    and where a number is compared with a text.
    """

    def __init__(self, text: str, spec: ExampleSpec, by_shard: Mapping[str, Sequence[str]] | None = None) -> None:
        """`by_shard`: name of what sources declare → its text for each shard of the split."""
        self._by_shard = by_shard or {}
        if not isinstance(text, str):
            raise SpecError(f'where: expected a condition such as "score > 0.8", got {type(text).__name__}.')
        self.text = text
        self._spec = spec
        self._names: list[str] = []
        self.columns: set[_Column] = set()

        def placeholder(found: re.Match[str]) -> str:
            if found[2] is None:
                return found[0]
            self._names.append(found[2])
            return f"{_PLACEHOLDER}{len(self._names) - 1}"

        try:
            tree = ast.parse(_QUOTED.sub(placeholder, text).strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            assigned = _ASSIGNED.search(_QUOTED.sub(lambda found: "_" * len(found[0]), text))
            if assigned is not None:
                why = f"the single = at character {assigned.start() + 1} does not compare, write =="
            else:
                why = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SpecError(f"where({text!r}): this is not a condition: {why}. {_ALLOWED}.") from error
        self._test = self._truth(tree.body)

    def of(self, columns: Callable[[], ColumnReader], places: RecordAddresses) -> Array:
        """(n,) bool: which of these records satisfy it."""
        made: dict[_Column, Array | _Texts] = {
            column: _SourceTexts(self._by_shard[column.feature], places.shards)
            if column.of_source
            else _values(column, columns(), places)
            for column in self.columns
        }
        truth: Array = np.broadcast_to(np.asarray(self._test(made), bool), (len(places),))
        return truth

    def _refuse(self, node: ast.AST, why: str) -> SpecError:
        return SpecError(f"where({self.text!r}): {ast.unparse(node)}: {why}. {_ALLOWED}.")

    def _truth(self, node: ast.expr) -> _Test:
        if isinstance(node, ast.BoolOp):
            tests = [self._truth(value) for value in node.values]
            joined = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return lambda made: functools.reduce(joined, (test(made) for test in tests))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            negated = self._truth(node.operand)
            return lambda made: np.logical_not(negated(made))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        operand = self._operand(node)
        if isinstance(operand, _Column) and operand.kind == "truth":
            return lambda made: made[operand]
        raise self._refuse(node, "is neither a comparison nor a feature of dtype bool")

    def _comparison(self, node: ast.Compare) -> _Test:
        tests: list[_Test] = []
        left: _Operand | ast.expr = self._operand(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                tests.append(self._membership(node, left, right_node, negated=isinstance(op, ast.NotIn)))
                left = right_node
                continue
            if isinstance(left, ast.expr):
                raise self._refuse(node, "compares further after in (…)")
            right = self._operand(right_node)
            if type(op) not in _COMPARISONS:
                raise self._refuse(node, "compares by identity")
            tests.append(self._compared(node, _COMPARISONS[type(op)], left, right))
            left = right
        return lambda made: functools.reduce(np.logical_and, (test(made) for test in tests))

    def _compared(self, node: ast.Compare, compare: _Compare, left: _Operand, right: _Operand) -> _Test:
        left, right = self._alike(node, left, right), self._alike(node, right, left)
        if not isinstance(left, _Column) and not isinstance(right, _Column):
            raise self._refuse(node, "compares no feature")
        if compare in (operator.eq, operator.ne) and not (isinstance(left, _Column) and isinstance(right, _Column)):
            column, value = (left, right) if isinstance(left, _Column) else (right, left)
            assert isinstance(column, _Column)
            equals = compare is operator.eq
            return lambda made: _equal(made[column], value) == equals
        return lambda made: compared(compare, _comparable(made, left), _comparable(made, right))

    def _membership(self, node: ast.Compare, left: _Operand | ast.expr, right: ast.expr, *, negated: bool) -> _Test:
        if not isinstance(left, _Column) or not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            raise self._refuse(node, "in asks whether a feature is one of a list of values, such as ('en', 'de')")
        values = []
        for item in right.elts:
            value = self._operand(item)
            if isinstance(value, _Column):
                raise self._refuse(item, "is a feature, but a list holds values")
            values.append(self._alike(node, value, left))

        def test(made: _Made) -> Array:
            tests = [_equal(made[left], value) for value in values]
            found: Array = functools.reduce(np.logical_or, tests, np.zeros(1, bool))
            return ~found if negated else found

        return test

    def _alike(self, node: ast.AST, operand: _Operand, other: _Operand) -> _Operand:
        """`operand` in the form that the other side needs: a text beside a feature of bytes becomes bytes."""
        kinds = [_kind(one) for one in (operand, other)]
        if "text" in kinds and kinds[0] != kinds[1]:
            raise self._refuse(node, "compares a text with a number")
        if isinstance(other, _Column) and other.kind == "text" and not isinstance(operand, _Column):
            wants_bytes = not other.of_source and self._spec[other.feature].dtype == "bytes"
            if wants_bytes and isinstance(operand, str):
                return operand.encode()
            if not wants_bytes and isinstance(operand, bytes):
                raise self._refuse(node, f"compares the feature {other.feature!r}, a str, with bytes")
        return operand

    def _operand(self, node: ast.expr) -> _Operand:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, bytes)):
            if isinstance(node.value, float) and math.isinf(node.value):
                raise self._refuse(node, "is more than a float holds")
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            value = self._operand(node.operand)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Name):
            return self._column(node, length=False)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.Name):
                return self._column(node.args[0], length=True)
        raise self._refuse(node, "is not a feature, length, number or text")

    def _column(self, node: ast.Name, *, length: bool) -> _Column:
        name = node.id
        if name.startswith(_PLACEHOLDER):
            name = self._names[int(name.removeprefix(_PLACEHOLDER))]
        where = f"where({self.text!r})"
        if name in self._by_shard and name not in self._spec and not length:
            column = _Column(name, "text", of_source=True)
            self.columns.add(column)
            return column
        if name in FIELDS and name not in self._spec and not self._by_shard:
            raise SpecError(
                f"{where}: no source of this cache declares its {name}, and there is no feature of this name. Declare "
                f"it where the cache is built: {name}=… of a source, --{name} of a command.",
                feature=name,
            )
        known(name, among=[*self._spec, *self._by_shard], what="feature", where=where, error=SpecError, feature=name)
        spec = self._spec[name]
        if length:
            if not spec.shape and not spec.is_text:
                raise SpecError(
                    f"where({self.text!r}): the feature {name!r} is a scalar and has no len(). Compare the value "
                    "itself.",
                    feature=name,
                )
            column = _Column(name, "number", length=True, characters=not spec.shape and spec.dtype == "str")
        else:
            if spec.shape:
                raise SpecError(
                    f"where({self.text!r}): the feature {name!r} has the shape {spec.shape}, and a condition compares "
                    f"one value a record. Use len({name}), or store what you need of it as a scalar feature.",
                    feature=name,
                )
            column = _Column(name, _kind_of(spec))
        self.columns.add(column)
        return column


def _kind_of(spec: FeatureSpec) -> str:
    return "text" if spec.is_text else "truth" if spec.dtype == "bool" else "number"


def _kind(operand: _Operand) -> str:
    """The kind that counts in comparisons, where a boolean is a number."""
    if isinstance(operand, _Column):
        return "text" if operand.kind == "text" else "number"
    return "text" if isinstance(operand, (str, bytes)) else "number"


def _equal(values: Array | _Texts, value: Any) -> Array:
    if isinstance(values, _Texts):
        return values.equal(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    return compared(operator.eq, values, value)


def compared(compare: _Compare, left: Any, right: Any) -> Array:
    """`compare(left, right)` of columns, and of a column and a value, without rounding integers to floats.

    A value that is compared with a column of float32 is rounded to float32, as it was when it was stored.
    """
    if not isinstance(left, np.ndarray):
        return compared(_MIRRORED[compare], right, left)
    mirrored = left.dtype.kind == "f" and (right.dtype.kind if isinstance(right, np.ndarray) else "") in "iu"
    if isinstance(right, np.ndarray):
        if mirrored:
            compare, left, right = _MIRRORED[compare], right, left
        if left.dtype.kind in "iu" and left.dtype.itemsize == 8 and right.dtype.kind == "f":
            return _of_integers_and_floats(compare, left, right.astype(np.float64))
    elif left.dtype.kind in "iu" and isinstance(right, float):
        whole = math.floor(right)
        if whole != right:  # between two integers: none equals 2.5, and `x > 2.5` is `x > 2`
            if compare in (operator.eq, operator.ne):
                return np.full(left.shape, compare is operator.ne)
            compare = operator.gt if compare in (operator.gt, operator.ge) else operator.le
        right = whole
    elif left.dtype.kind == "f" and isinstance(right, int) and abs(right) >> np.finfo(left.dtype).nmant:
        return _of_floats_and_integer(compare, left.astype(np.float64), right)
    return np.asarray(compare(left, right), bool)


def _of_floats_and_integer(compare: _Compare, floats: Array, integer: int) -> Array:
    try:
        nearest = float(integer)
    except OverflowError:
        nearest = math.inf if integer > 0 else -math.inf
    if nearest != integer:  # no float equals it, and this is the nearest one
        if compare in (operator.eq, operator.ne):
            return np.full(floats.shape, compare is operator.ne)
        upwards = compare in (operator.gt, operator.ge)
        if nearest > integer:
            compare = operator.ge if upwards else operator.lt
        else:
            compare = operator.gt if upwards else operator.le
    return np.asarray(compare(floats, nearest), bool)


def _of_integers_and_floats(compare: _Compare, integers: Array, floats: Array) -> Array:
    bounds = np.iinfo(integers.dtype)
    below = np.floor(floats)
    inside = (below >= float(bounds.min)) & (below < float(bounds.max))  # float(max) rounds up to max + 1
    whole = np.where(inside, below, 0).astype(integers.dtype)
    # -1, 0 or 1: the integer is less than, equal to or greater than the float.
    sign = (integers > whole).astype(np.int8) - (integers < whole)
    sign = np.where(inside, np.where((sign == 0) & (floats > below), -1, sign), np.where(below < 0, 1, -1))
    return np.where(np.isnan(floats), compare is operator.ne, compare(sign, 0))


def _comparable(made: _Made, operand: _Operand) -> Array | _Value:
    if not isinstance(operand, _Column):
        return operand
    values = made[operand]
    return values.objects() if isinstance(values, _Texts) else values


def _values(column: _Column, columns: ColumnReader, places: RecordAddresses) -> Array | _Texts:
    if column.length and column.characters:
        # Bytes 0x80 to 0xBF continue a character of UTF-8.
        data, lengths = columns.runs(column.feature, places)
        begun = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])
        ends = np.cumsum(lengths)
        return np.asarray(begun[ends] - begun[ends - lengths], np.int64)
    if column.length:
        return columns.lengths(column.feature, places)
    if column.kind == "text":
        data, lengths = columns.runs(column.feature, places)
        return _Texts(data, lengths, lambda: columns.texts(column.feature, places))
    values = columns.stacked(column.feature, places)
    assert values is not None  # a scalar that is not text
    return values
