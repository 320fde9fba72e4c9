"""Dead letters of elements: what could not be stored, in a form from which it can be restored.

    {"user": "bob", "x": np.float32([0.5, 7])}  →  {"user": "bob", "x": {"$array": ["<f4", [2], [0.5, 7.0]]}}

`bytes` and messages are kept as their bytes, all else as JSON, which `element_of` turns back. Equal elements have equal
text, in every process and on every runner; nothing is shortened.

| value | JSON |
| --- | --- |
| None, bool, int, str, float, list, a dict with keys of text | the same; keys sorted |
| a row: `beam.Row`, a named tuple, a dataclass, an attrs class | the dict of its fields |
| NaN, infinity | `{"$float": "nan"}` |
| tuple, set, frozenset, any other dict | `{"$tuple": […]}`, `{"$set": […]}`, …, `{"$dict": [[key, value], …]}` |
| bytes, bytearray | `{"$bytes": "base64"}` |
| a NumPy array or scalar | `{"$array": [dtype, shape, numbers or the base64 of its bytes]}`, `{"$scalar": …}` |
| a message | `{"$message": ["module:class", "base64"]}` |
| a class or function | `{"$name": "module:name"}` |
| any other object | `{"$object": …}`: what `pickle` would make it from |
| what has no such parts | `{"$repr": "…"}` |

After a shuffle Beam gives rows a class with a new name in every run, lists for tuples and Python's numbers for NumPy's;
so a row is kept without its class, with its fields as they are there.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib
import json
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from google.protobuf.message import Message

from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError

# Longer arrays are kept as base64, which takes a third of the length of their numbers.
_LISTED_NUMBERS = 4096
_TUPLES: dict[type, str] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}
_BUFFERS: dict[type, str] = {bytes: "$bytes", bytearray: "$bytearray"}


def raw_of(element: object) -> bytes:
    """An element as bytes that depend only on its values, and contain all of them."""
    if isinstance(element, bytes):
        return element
    if isinstance(element, Message):
        return element.SerializeToString(deterministic=True)
    return text_of_element(element).encode("utf-8", "backslashreplace")  # half a surrogate pair as JSON escapes it


def text_of_element(element: object) -> str:
    """An element as JSON."""
    try:
        found = _plain(element, row=fields_of(element) is not None)
        return json.dumps(found, ensure_ascii=False, separators=(", ", ": "), allow_nan=False)
    except Exception:  # raised by a user's class, or for a value that contains itself
        return json.dumps(_unknown(element), ensure_ascii=False)


def content_key(content: bytes) -> bytes:
    """The key of a record that has none: the digest of its content."""
    return hashlib.sha256(content).hexdigest()[:16].encode()


def fields_of(value: object) -> dict[str, Any] | None:
    """The fields of a row, in order: of a `beam.Row`, a named tuple, a dataclass or an object of an attrs class."""
    if isinstance(value, beam.Row):
        return dict(value.as_dict())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    names = field_names(type(value))
    return None if names is None else {name: getattr(value, name) for name in names}


def field_names(cls: type) -> list[str] | None:
    """The fields of a class whose objects are rows; None for any other class."""
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return list(cls._fields)
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else [each.name for each in attributes]


def _plain(value: Any, *, row: bool) -> object:
    """A value as JSON data; `row`: part of a row, whose class and sequence types are not those of the element."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.str_):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(value, row=row)
    if kind in _BUFFERS:
        return {_BUFFERS[kind]: _base64(value)}
    if kind is list or row and kind is tuple:
        return [_plain(each, row=row) for each in value]
    if kind in _TUPLES:
        items = [_plain(each, row=row) for each in value]
        return {_TUPLES[kind]: items if kind is tuple else sorted(items, key=_sort_key)}
    if kind is dict:
        return _dict(value, row=row)
    if isinstance(value, beam.Row) or row or kind.__name__.startswith("BeamSchema_"):
        fields = fields_of(value)
        if fields is not None:
            return _dict(fields, row=True)
    return _object(value)


def _dict(value: Mapping[Any, object], *, row: bool) -> object:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: _plain(value[key], row=row) for key in sorted(value)}
    pairs = [[_plain(key, row=False), _plain(item, row=row)] for key, item in value.items()]
    return {"$dict": sorted(pairs, key=_sort_key)}


def _sort_key(plain: object) -> str:
    return json.dumps(plain)


def _base64(content: bytes | bytearray) -> str:
    return base64.b64encode(content).decode()


def _array(value: Any, *, row: bool) -> object:
    if row and value.dtype.kind in "biufUO":
        return _plain(value.tolist(), row=True)
    if value.dtype.hasobject:
        values: object = [_plain(each, row=row) for each in value.ravel().tolist()]
    elif (
        value.dtype.kind in "biuf"
        and value.itemsize <= 8
        and value.size <= _LISTED_NUMBERS
        and np.isfinite(value).all()
    ):
        values = np.ravel(value).tolist()
    else:
        values = _base64(value.tobytes())
    dtype = value.dtype.str if value.dtype.kind != "V" else _object(value.dtype)
    return {"$scalar" if isinstance(value, np.generic) else "$array": [dtype, list(value.shape), values]}


def _object(value: Any) -> object:
    if isinstance(value, Message):
        return {"$message": [_name(type(value)), _base64(value.SerializeToString(deterministic=True))]}
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return {"$name": _name(value)}
    parts = value.__reduce_ex__(2)
    if isinstance(parts, str):
        return {"$name": f"{type(value).__module__}:{parts}"}
    make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
    contents = [list(items or ()), list(pairs or ())] if items or pairs else []
    return {"$object": [_name(make), *(_plain(each, row=False) for each in ([*arguments], state, *contents))]}


def _name(thing: Any) -> str:
    name = f"{thing.__module__}:{thing.__qualname__}"
    if "<" in name:
        raise ValueError(f"{name} cannot be imported")
    return name


def _unknown(value: object) -> object:
    """The repr of a value without such parts, without its memory address."""
    return {"$repr": same_in_every_run(brief(value, limit=1 << 62).partition(": ")[2])}


def same_in_every_run(text: str) -> str:
    """A text about an element without memory addresses, and without the names that Beam invents for row classes."""
    return _DRAWN.sub("Row", _ADDRESS.sub("", text))


_DRAWN = re.compile(r"BeamSchema_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def element_of(record: bytes) -> Any:
    """The element of a dead letter that `WriteToCache` has kept; a row as the dict of its fields.

        [letter] = Cache.open("clicks").dead_letters()
        element_of(letter.record)                        →  {"user": "bob", "x": array([0.5, 7.], dtype=float32)}

    Elements that were bytes or messages are not made by it: `letter.record` is their bytes. Like `pickle`, it imports
    the classes that an element is made of: use it on caches that you trust.

    Raises `DeclarationError` if the record is not an element that was kept as JSON.
    """
    try:
        return json.loads(record, object_hook=_made)
    except DeclarationError:
        raise
    except Exception as error:
        raise DeclarationError(
            f"a dead letter should hold an element as JSON, got {brief(record)}: {error}. If the elements were bytes "
            "or messages, its record is their bytes."
        ) from error


def _made(found: dict[str, Any]) -> object:
    if len(found) == 1:
        [(form, parts)] = found.items()
        if form in _FORMS:
            return _FORMS[form](parts)
    return found


def _numbers(parts: list[Any]) -> Any:
    dtype, shape, values = parts
    kept = np.dtype(dtype)
    if isinstance(values, str):
        return np.frombuffer(base64.b64decode(values), kept).reshape(shape).copy()
    array = np.empty(len(values), kept)
    array[:] = values
    return array.reshape(shape)


def _imported(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _object_of(parts: list[Any]) -> object:
    name, arguments, state, *contents = parts
    made = _imported(name)(*arguments)
    if state is not None:
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
        else:
            slots = state if isinstance(state, dict) else {**(state[0] or {}), **state[1]}
            for field, value in slots.items():
                object.__setattr__(made, field, value)
    items, pairs = contents or ([], [])
    for each in items:
        made.append(each)
    for key, value in pairs:
        made[key] = value
    return made


def _unmade(text: str) -> object:
    raise DeclarationError(
        f"the element of this dead letter has no values that could be kept, only its text: {text}. Give elements that "
        "`pickle` takes."
    )


_FORMS: dict[str, Callable[[Any], object]] = {
    "$float": float,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
    "$bytes": base64.b64decode,
    "$bytearray": lambda text: bytearray(base64.b64decode(text)),
    "$array": _numbers,
    "$scalar": lambda parts: _numbers(parts)[()],
    "$message": lambda parts: _imported(parts[0]).FromString(base64.b64decode(parts[1])),
    "$name": _imported,
    "$object": _object_of,
    "$repr": _unmade,
}
