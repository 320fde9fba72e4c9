"""The name of an element type, told without importing TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.errors import TaskError

_ALIASES = {"float": "float32", "int": "int32", "str": "string", "bytes": "string", "object": "string"}
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
NAMES = _INTEGERS | _FLOATS | {"bool", "string", "complex64", "complex128"}


class DType(str):
    """An element type by its name: `DType("int32") == tf.int32 == np.dtype("int32").name`.

    A string, so that NumPy, JAX and TensorFlow all take it where they take a dtype (`tf.cast(x, feature.dtype)`,
    `np.zeros(3, feature.dtype)`), and so that declaring a feature imports none of them. Accepts TensorFlow dtypes,
    NumPy dtypes and scalar types, Python's `int, float, bool, str, bytes`, and names. `tf.string`, `str`, `bytes`
    and object arrays are all `string`.

    Raises:
        TaskError: the type is unknown.
    """

    __slots__ = ()

    def __new__(cls, dtype: Any) -> DType:
        return super().__new__(cls, _name_of(dtype))

    @property
    def name(self) -> str:
        return str.__str__(self)

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def is_floating(self) -> bool:
        return self in _FLOATS

    @property
    def is_bool(self) -> bool:
        return self == "bool"

    @property
    def is_string(self) -> bool:
        return self == "string"

    @property
    def as_numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; strings are object arrays of `bytes`; bfloat16 needs ml_dtypes (of TensorFlow or JAX)."""
        if self.is_string:
            return np.dtype(object)
        if self == "bfloat16":
            from ml_dtypes import bfloat16

            dtype: np.dtype[Any] = np.dtype(bfloat16)
            return dtype
        return np.dtype(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (DType, (self.name,))


def _name_of(dtype: Any) -> str:
    if isinstance(dtype, type) and dtype in (bool, int, float, str, bytes):
        name = {bool: "bool", int: "int32", float: "float32"}.get(dtype, "string")
    elif isinstance(dtype, str):
        name = dtype.__str__()
    elif isinstance(getattr(dtype, "name", None), str):  # np.dtype, tf.DType, torch-like and jnp dtypes
        name = dtype.name
    else:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
    name = _ALIASES.get(name, name)
    if name.startswith(("str", "bytes")):
        name = "string"
    if name not in NAMES:
        raise TaskError(f"unknown feature dtype {name!r}; choose one of: {', '.join(sorted(NAMES))}", dtype=name)
    return name
