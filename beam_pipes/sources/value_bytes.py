"""A value as bytes, the same in every process: what values in memory are hashed by."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import Enum
from typing import Any

import numpy as np

from beam_pipes.errors import SourceError


def value_bytes(value: Any) -> bytes:
    """Unambiguous bytes of a value made of None, bool, numbers, str, bytes, NumPy arrays, mappings, sequences, sets,
    enums, dataclasses and proto messages; `SourceError` for anything else.

    Two values of different types never have the same bytes: `1`, `1.0`, `True` and `"1"` are four values.
    """
    if isinstance(value, bytes):
        return _frame(b"b", value)
    if isinstance(value, str):
        return _frame(b"s", value.encode("utf-8", "surrogatepass"))
    if value is None or value is True or value is False:
        return _frame(b"c", str(value).encode())
    if isinstance(value, Enum):
        return _frame(b"e", _name_of(type(value)), value.name.encode())
    if isinstance(value, int):
        return _frame(b"i", str(value).encode())
    if isinstance(value, float) and not isinstance(value, np.generic):
        return _frame(b"d", struct.pack(">d", value))
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return _frame(b"z", struct.pack(">dd", value.real, value.imag))
    if isinstance(value, (np.ndarray, np.generic)):
        return _array_bytes(np.asarray(value), b"g" if isinstance(value, np.generic) else b"a")
    if isinstance(value, Mapping):
        items = sorted((value_bytes(key), value_bytes(item)) for key, item in value.items())
        return _frame(b"m", *(part for pair in items for part in pair))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [value_bytes(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return _frame(b"o", _name_of(type(value)), *fields)
    if isinstance(value, (bytearray, memoryview)):
        return _frame(b"y", bytes(value))
    if isinstance(value, Sequence):
        return _frame(b"t" if isinstance(value, tuple) else b"l", *map(value_bytes, value))
    if isinstance(value, Set):
        return _frame(b"u", *sorted(map(value_bytes, value)))
    if is_message(value):
        return _frame(b"p", value.DESCRIPTOR.full_name.encode(), value.SerializeToString(deterministic=True))
    raise SourceError(
        f"a value of type {type(value).__qualname__} cannot be hashed by content; pass digest='…', a name for the "
        "content of all values that changes when they do",
        type=type(value),
    )


def is_message(value: Any) -> bool:
    """Whether this is a proto message (or, for a class, a message class), whatever package made it."""
    return hasattr(value, "DESCRIPTOR") and hasattr(value, "SerializeToString")


def _array_bytes(array: np.ndarray[Any, Any], tag: bytes) -> bytes:
    kind = f"{array.dtype.str}{list(array.shape)}".encode()
    if array.dtype.hasobject:
        return _frame(tag, kind, *map(value_bytes, array.ravel().tolist()))
    return _frame(tag, kind, array.tobytes())


def _name_of(cls: type) -> bytes:
    return f"{cls.__module__}.{cls.__qualname__}".encode()


def _frame(tag: bytes, *parts: bytes) -> bytes:
    return tag + b"".join(_lengths(parts)) + b"".join(parts)


def _lengths(parts: Iterable[bytes]) -> Iterable[bytes]:
    for part in parts:
        yield b"%d," % len(part)
    yield b";"
