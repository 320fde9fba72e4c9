"""Values as plain data that is the same in every process, to compare and fingerprint configurations.

`Canonicalizer` turns options, arrays, dataclasses and assets into JSON-able data; equal data gives equal text and an
equal digest. An `Asset` is a file or directory that a stage reads, identified by its content.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import json
import math
import os
import re
import sys
import time
import types
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from beam_pipes.errors import DeclarationError
from beam_pipes.storage.local import absolute_path, times_have_settled


@dataclasses.dataclass(frozen=True)
class Asset:
    """A file or directory that belongs to a stage's configuration: `model: Asset = Asset("vocab.model")`.

    Use it like a path: `open(stage.model)`, `str(stage.model)`. A fingerprint covers its content, but
    neither its path nor its times; for a directory, the relative names and contents of all files.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        # A stage may change the working directory before it reads its files.
        object.__setattr__(self, "path", absolute_path(self.path))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return os.fspath(self.path)  # many libraries take `str(path)`

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(os.path.normpath(self.path))

    def digest(self) -> str:
        """Sha256 (hex) of the content; a file whose size, inode and times did not change is read once per process."""
        path = os.path.abspath(self.path)
        try:
            if not os.path.isdir(path):
                return _file_digest(path)
            total = hashlib.sha256()
            for directory, subdirectories, names in os.walk(path):
                subdirectories.sort()
                for name in sorted(names):
                    file = os.path.join(directory, name)
                    relative = os.path.relpath(file, path).replace(os.sep, "/")
                    total.update(f"{len(relative)}:{relative}:{_file_digest(file)}".encode())
            return total.hexdigest()
        except OSError as error:
            raise DeclarationError(
                f"asset {os.fspath(self.path)!r} cannot be read: {error.strerror or error}", asset=self.path
            ) from error


def _file_digest(path: str) -> str:
    now = time.time_ns()
    status = os.stat(path)
    # The time of change (ctime) cannot be set: `touch -r` and `tar` set mtime, and inodes are soon reused.
    identity = status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
    if times_have_settled(status.st_ctime_ns, read_at_ns=now):
        return _remembered_digest(path, identity)
    return _remembered_digest.__wrapped__(path, identity)


@lru_cache(maxsize=4096)
def _remembered_digest(path: str, identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    np.ufunc,
)


def qualified_name(thing: object) -> str:
    """`module.qualname` of a class or function; builtins by their name alone."""
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or repr(type(thing))
    module = getattr(thing, "__module__", None)
    if isinstance(thing, np.ufunc):
        module = "numpy"
    return name if module in (None, "builtins") else f"{module}.{name}"


def function_behind(value: Any) -> object:
    """The function that a decorated function counts as: its attribute `fingerprint_as`, a `functools.partial` if
    options are bound to it. None without such an attribute."""
    if inspect.getattr_static(type(value), "fingerprint_as", None) is None:
        return None
    return value.fingerprint_as


def config_of(value: object) -> dict[str, object] | None:
    """The configuration of an object by field: what `fingerprint_config()` returns, the fields of a dataclass, or
    `vars`; None for an object without any."""
    declared = getattr(value, "fingerprint_config", None)
    if callable(declared):
        return dict(declared())
    fields: dict[str, object] = {}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif not hasattr(value, "__dict__"):
        slots = [name for cls in type(value).__mro__ for name in _slots_of(cls)]
        if not slots:
            return None
        fields = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    for name, item in getattr(value, "__dict__", {}).items():
        if not _is_run_time_state(type(value), name):
            fields.setdefault(name, item)
    return fields


def _slots_of(cls: type) -> list[str]:
    slots = cls.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _is_run_time_state(cls: type, name: str) -> bool:
    """Whether this is a private attribute of the framework's base classes, such as the last record's statistics, or the
    value of a cached property, which follows from the rest."""
    if isinstance(getattr(cls, name, None), functools.cached_property):
        return True
    return name.startswith("_") and any(
        name in vars(base) and base.__module__.startswith("beam_pipes.") for base in cls.__mro__
    )


K = TypeVar("K")  # keys of any type: a mapping is invariant in it


@dataclasses.dataclass
class Canonicalizer:
    """`canonical`, with hooks for functions, assets and the names of classes."""

    on_function: Callable[[types.FunctionType], object]
    on_class: Callable[[type], None]
    on_asset: Callable[[Asset], object]
    label: Callable[[object], str]

    def __post_init__(self) -> None:
        self._above: set[int] = set()

    def convert(self, value: Any, path: str) -> object:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        simple = self._scalar(value)
        if simple is not None:
            return simple
        if id(value) in self._above:
            raise DeclarationError(f"{path} contains itself, so it has no canonical form", path=path)
        self._above.add(id(value))
        try:
            return self._composite(value, path)
        finally:
            self._above.discard(id(value))

    def _scalar(self, value: object) -> object:
        if isinstance(value, enum.Enum):
            return {"$enum": f"{self.label(type(value))}.{value.name}"}
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"$bytes": _digest_or_hex(bytes(value))}
        if isinstance(value, complex) and not isinstance(value, np.generic):
            return {"$complex": repr(value)}
        if isinstance(value, np.dtype):
            return {"$dtype": value.str if value.names is None else repr(value.descr)}
        if isinstance(value, np.generic) and not isinstance(value, np.void) and value.dtype.kind != "O":
            return {"$scalar": [value.dtype.str, value.tobytes().hex()]}
        if isinstance(value, re.Pattern):
            return {"$pattern": [repr(value.pattern), value.flags]}
        if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo)):
            return {f"${type(value).__name__}": repr(value)}
        if isinstance(value, (decimal.Decimal, fractions.Fraction, uuid.UUID)):
            return {f"${type(value).__name__}": str(value)}
        if isinstance(value, (range, slice, type(Ellipsis), type(NotImplemented))):
            return {"$builtin": repr(value)}
        if isinstance(value, types.ModuleType):
            return {"$module": value.__name__}
        return None

    def _composite(self, value: object, path: str) -> object:
        if isinstance(value, Asset):
            return self.on_asset(value)
        if isinstance(value, os.PathLike):
            raise DeclarationError(
                f"{path} is a path, {os.fspath(value)!r}. What a path names can change without it: wrap it as "
                f"Asset({os.fspath(value)!r}), so that the file's content counts, or give its text as a str if only "
                "the text matters",
                path=path,
            )
        if isinstance(value, type):
            return self._type(value)
        if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            return self._callable(value, path)
        if (function := function_behind(value)) is not None:
            return self.convert(function, path)
        if isinstance(value, _BUILTIN_CALLABLES):
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, (types.ModuleType, type)):
                return {"$method": [self.convert(owner, path), value.__name__]}
            return {"$builtin": qualified_name(value)}
        if hasattr(value, "__wrapped__") and callable(value):  # functools.lru_cache and its kind
            return self._callable(value.__wrapped__, path)
        if isinstance(value, (types.GenericAlias, types.UnionType)) or type(value).__module__ == "typing":
            return {"$type": repr(value)}
        return self._data(value, path)

    def _type(self, value: type) -> object:
        self.on_class(value)
        return {"$type": self.label(value)}

    def _callable(self, value: object, path: str) -> object:
        if isinstance(value, functools.partial):
            return {
                "$partial": [
                    self.convert(value.func, f"{path}.func"),
                    [self.convert(each, f"{path}.args[{i}]") for i, each in enumerate(value.args)],
                    self._pairs(value.keywords, path),
                ]
            }
        if isinstance(value, types.MethodType):
            return {"$method": [self.convert(value.__self__, f"{path}.__self__"), value.__func__.__name__]}
        if isinstance(value, types.FunctionType):
            return self.on_function(value)
        return self.convert(value, path)

    def _data(self, value: object, path: str) -> object:
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                items = [self.convert(each, path) for each in value.ravel().tolist()]
                return {"$array": ["O", list(value.shape), items]}
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return {"$array": [self._scalar(value.dtype), list(value.shape), content]}
        # Imported with the first generator: it takes 13 ms.
        if "numpy.random" in sys.modules and isinstance(value, np.random.Generator):
            return {"$generator": self.convert(value.bit_generator.state, path)}
        if isinstance(value, Mapping) and (type(value).__module__ in _PLAIN or not hasattr(value, "__dict__")):
            if isinstance(value, collections.defaultdict):
                return {
                    "$dict": self._items(value, path),
                    "default": self.convert(value.default_factory, f"{path}.default_factory"),
                }
            return {"$dict": self._items(value, path)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {
                "$object": [self.label(type(value)), self._pairs(dict(zip(value._fields, value, strict=True)), path)]
            }
        if isinstance(value, (list, tuple, collections.deque)):
            items = [self.convert(each, f"{path}[{index}]") for index, each in enumerate(value)]
            return items if isinstance(value, list) else {f"${type(value).__name__}": items}
        if isinstance(value, (set, frozenset)):
            return {"$set": sorted((self.convert(each, f"{path}{{…}}") for each in value), key=sort_key)}
        if hasattr(value, "DESCRIPTOR") and hasattr(value, "SerializeToString"):
            message = value.SerializeToString(deterministic=True)
            return {"$message": [value.DESCRIPTOR.full_name, _digest_or_hex(message)]}
        if isinstance(value, (int, str, float)):  # of a subclass
            base = next(base for base in (int, str, float) if isinstance(value, base))
            return {"$object": [self.label(type(value)), base(value)]}
        return self._object(value, path)

    def _object(self, value: object, path: str) -> object:
        cls = type(value)
        asset = getattr(value, "fingerprint_asset", None)
        if isinstance(asset, Asset):
            return self.on_asset(asset)
        digest = getattr(value, "fingerprint", None)
        if callable(digest) and not callable(getattr(value, "fingerprint_config", None)):
            return {"$fingerprint": [self.label(cls), str(digest())]}
        config = config_of(value)
        if config is None:
            raise DeclarationError(
                f"{path} is a {qualified_name(cls)}, which has no canonical form. Use numbers, strings, bytes, lists, "
                "dicts, arrays, dataclasses or functions, wrap files as Asset(path), or give the object a method "
                "fingerprint_config() that returns what determines its results",
                path=path,
                type=cls,
            )
        self.on_class(cls)
        return {"$object": [self.label(cls), self._pairs(config, path, dotted=True)]}

    def _items(self, mapping: Mapping[K, object], path: str) -> list[list[object]]:
        """The items of a dict; in a configuration their order does not count."""
        return self._pairs(mapping, path)

    def _pairs(self, mapping: Mapping[K, object], path: str, *, dotted: bool = False) -> list[list[object]]:
        return sorted(self._in_order(mapping, path, dotted=dotted), key=lambda pair: sort_key(pair[0]))

    def _in_order(self, mapping: Mapping[K, object], path: str, *, dotted: bool = False) -> list[list[object]]:
        pairs = []
        for key, item in mapping.items():
            where = f"{path}.{key}" if dotted else f"{path}[{key!r:.60}]"
            pairs.append([self.convert(key, f"{path}, key {key!r:.60}"), self.convert(item, where)])
        return pairs


_PLAIN = {"builtins", "collections", "types"}


def sort_key(value: object) -> tuple[str, str]:
    """An order over canonical values of any mixture of types."""
    return type(value).__name__, repr(value)


def _digest_or_hex(content: bytes) -> str:
    return content.hex() if len(content) <= 32 else f"sha256:{hashlib.sha256(content).hexdigest()}"


def canonical_text(value: object) -> str:
    """`{"b": 1, "a": [2]}  →  '{"a":[2],"b":1}'`"""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of(value: object) -> str:
    """Sha256 (hex) of the canonical text."""
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()
