"""`Argument` and `Constant`: what an operator can be told by keyword, declared once.

A *kind* says what values are: it converts constants at definition, and data nodes' samples when they arrive.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.graph import types


class _Required:
    """Stands for the default of an argument that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        if not (isinstance(value, (float, np.floating)) and float(value).is_integer()):
            raise TypeError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
        raise TypeError
    return bool(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _array_of(dtype: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        array = np.atleast_1d(np.asarray(value))
        if array.ndim != 1 or array.dtype.kind not in "iufb":
            raise TypeError
        made = array.astype(dtype)
        if not np.array_equal(made, array):
            raise TypeError
        return made

    return convert


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [_string(one) for one in value]


def _callable(value: Any) -> Any:
    if not callable(value):
        raise TypeError
    return value


@dataclasses.dataclass(frozen=True)
class Kind:
    """How values of a kind are checked and called: `dtype` is that of data nodes' samples, `rank` 0 or 1."""

    name: str
    words: str
    annotation: str
    convert: Callable[[Any], Any]
    dtype: str | None = None
    rank: int = 0


#: The one table of kinds.
KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("bool", "a bool", "bool", _boolean, "bool"),
        Kind("int", "an int", "int", _integer, "int64"),
        Kind("float", "a number", "float", _number, "float64"),
        Kind("str", "a str", "str", _string),
        Kind("ints", "an int or a list of ints", "int | Sequence[int]", _array_of("int64"), "int64", 1),
        Kind("floats", "a number or a list of numbers", "float | Sequence[float]", _array_of("float64"), "float64", 1),
        Kind("strs", "a str or a list of str", "str | Sequence[str]", _strings),
        Kind("dtype", "a dtype such as types.FLOAT", "DALIDataType | DTypeLike", types.to_numpy_type),
        Kind("callable", "a callable", "Callable[..., Any]", _callable),
        Kind("any", "any value", "Any", lambda value: value),
    )
}


def _enum_kind(cls: type[enum.Enum]) -> Kind:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            by_name = {member.name: member for member in cls} | {member.value: member for member in cls}
            if value in by_name:
                return by_name[value]
        if not isinstance(value, cls):
            raise TypeError
        return value

    choices = ", ".join(f"types.{member.name}" for member in cls)
    return Kind(cls.__name__, f"one of {choices}", f"{cls.__name__} | str", convert)


class Argument:
    """An argument that may be a constant or a data node, one value a sample.

        class Rotate(Operator):
            angle = Argument("float", doc="degrees, counter-clockwise")

    In `run` it arrives as the keyword `angle`: a Python scalar ("bool", "int", "float") or a 1-D array ("ints",
    "floats"); in `run_arrays` and `run_batch` as an array (n,) or (n, k). None where the default None was left.

    Args:
        kind: a name in `KINDS`, or a class of `enum.Enum` (constants only).
        default: what is taken where nothing is given; without one the argument has to be given.
        doc: one line for the operator's documentation: by consequence, with its unit.
        static: on a device it decides the shape of the output. There samples are grouped by it, and `run_arrays`
            gets one Python value (a tuple for lists) instead of an array.
    """

    constant_only = False

    def __init__(
        self, kind: str | type[enum.Enum], *, default: Any = REQUIRED, doc: str = "", static: bool = False
    ) -> None:
        self.kind = KINDS[kind] if isinstance(kind, str) else _enum_kind(kind)
        if not self.constant_only and self.kind.dtype is None:
            raise ValueError(f"an argument of kind {self.kind.name!r} cannot be a data node: declare it as Constant")
        self.default = default
        self.doc = doc
        self.static = static
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    def convert(self, value: Any, *, operator: str) -> Any:
        """A constant as this argument's kind; raises `OperatorArgumentError`, naming operator and argument."""
        if value is None and self.default is None:
            return None
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        try:
            return self.kind.convert(value)
        except OperatorArgumentError as error:
            raise OperatorArgumentError(f"{operator}: {self.name}: {error}", operator=operator) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise OperatorArgumentError(
                f"{operator}: {self.name} should be {self.kind.words}, got {value!r:.80}.",
                operator=operator,
                argument=self.name,
            ) from error

    def default_value(self, *, operator: str) -> Any:
        """The default, converted."""
        return None if self.default is None else self.convert(self.default, operator=operator)

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        try:
            return instance.constants[self.name]
        except KeyError:
            raise AttributeError(
                f"{instance.name}: {self.name} is a data node here: its values come as the keyword {self.name!r}"
            ) from None


class Constant(Argument):
    """An argument that is known at definition and the same for all samples: `self.shape` within the operator."""

    constant_only = True


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'horizontal'?`, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""
