"""Values of any kind: a digest that equal ones share, a copy of one's own, what is lazy in them, and words for them."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import pickle
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from beam_pipes.identity.canonical import canonical
from beam_pipes.identity.canonical_digest import digest_of

_DEPTH = 8

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 90
_short.maxlist = _short.maxtuple = _short.maxdict = 8


def value_digest(value: Any) -> str:
    """A digest that is the same for equal values in every process; dicts and sets in whatever order."""
    try:
        return digest_of(canonical(value))
    except Exception:
        pass  # of no canonical form: an image, a tensor, a stage's own class
    try:
        # Pickled twice: what the first pickle found shared by chance, the second one does not.
        data = pickle.dumps(pickle.loads(pickle.dumps(value)))
    except Exception:
        return f"a {type(value).__qualname__}"
    return hashlib.sha256(data).hexdigest()


class Frozen:
    """A value as it was when it was frozen; `thaw` gives a copy that nobody else has."""

    __slots__ = ("_data", "_value", "problem")

    def __init__(self, value: Any) -> None:
        self._data: bytes | None = None
        self._value: Any = None
        self.problem: str | None = None
        try:
            self._data = pickle.dumps(value)
            pickle.loads(self._data)
        except Exception as error:
            self._data, self.problem = None, f"{type(error).__name__}: {error}"
            try:
                self._value = copy.deepcopy(value)
            except Exception:
                self._value = value

    def thaw(self) -> Any:
        if self._data is not None:
            return pickle.loads(self._data)
        try:
            return copy.deepcopy(self._value)
        except Exception:
            return self._value

    def __getstate__(self) -> tuple[Any, ...]:
        if self._data is None:
            raise TypeError(self.problem)
        return (self._data,)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        (self._data,), self._value, self.problem = state, None, None


def lazy_part(value: Any, depth: int = _DEPTH) -> str | None:
    """The type of an iterator inside a value: `{"ids": map(int, …)}` → `map`; None where there is none."""
    if isinstance(value, Iterator):
        return type(value).__name__
    if not depth:
        return None
    return next(filter(None, (lazy_part(part, depth - 1) for part in _parts(value))), None)


def nearly_equal(one: Any, other: Any, depth: int = _DEPTH) -> bool:
    """Whether two values differ in the last digits of floats at most."""
    if isinstance(one, (float, complex, np.ndarray, np.generic)) and type(one) is type(other):
        first, second = np.asarray(one), np.asarray(other)
        if first.dtype != second.dtype or first.shape != second.shape:
            return False
        if first.dtype.kind not in "fc":
            return bool(np.array_equal(first, second))
        return bool(np.allclose(first, second, rtol=1e-2, atol=1e-6, equal_nan=True))
    if depth and isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(nearly_equal(one[key], other[key], depth - 1) for key in one)
    if depth and isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(nearly_equal(a, b, depth - 1) for a, b in zip(one, other, strict=True))
    return value_digest(one) == value_digest(other)


def brief_value(value: Any) -> str:
    """A value in a line."""
    if isinstance(value, np.ndarray):
        shown = np.array2string(value, threshold=8, edgeitems=4, max_line_width=10**6)
        return f"{value.dtype}{list(value.shape)} {shown}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {brief_value(item)}" for key, item in list(value.items())[:8]) + "}"
    if type(value) in (list, tuple):
        return "[" + ", ".join(brief_value(item) for item in value[:4]) + (", …]" if len(value) > 4 else "]")
    return _short.repr(value)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return []
