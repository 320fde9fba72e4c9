"""Element types by their names, for all frameworks, without importing TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.format.dtypes import BOOL, BYTES, FLOATS, INTEGERS, numpy_dtype

_ALIASES = {"float": "float32", "int": "int32", "str": "string", "bytes": "string", "object": "string"}
_NAMES = frozenset({*INTEGERS, *FLOATS, BOOL, "string", "complex64", "complex128"})


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

    def __new__(cls, dtype: object) -> DType:
        return super().__new__(cls, _name_of(dtype))

    @property
    def name(self) -> str:
        return str.__str__(self)

    @property
    def is_integer(self) -> bool:
        return self in INTEGERS

    @property
    def is_floating(self) -> bool:
        return self in FLOATS

    @property
    def is_bool(self) -> bool:
        return self == BOOL

    @property
    def is_string(self) -> bool:
        return self == "string"

    @property
    def as_numpy_dtype(self) -> np.dtype:
        """The NumPy dtype; strings are object arrays of `bytes`; bfloat16 needs ml_dtypes (of TensorFlow or JAX)."""
        return numpy_dtype(BYTES if self.is_string else self.name)

    def __reduce__(self) -> tuple[object, ...]:
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
    if name not in _NAMES:
        raise TaskError(f"unknown feature dtype {name!r}; choose one of: {', '.join(sorted(_NAMES))}", dtype=name)
    return name
