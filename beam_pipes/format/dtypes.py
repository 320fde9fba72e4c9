"""The dtypes a feature may have, by name: NumPy's booleans, integers and floats, "bfloat16", "bytes" and "str"."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.errors import SpecError
from beam_pipes.extras import require

if TYPE_CHECKING:
    import numpy.typing as npt

BOOL = "bool"
BYTES = "bytes"
STR = "str"
BFLOAT16 = "bfloat16"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64", BFLOAT16)
NAMES = (BOOL, *INTEGERS, *FLOATS, BYTES, STR)

#: The letter of `struct` for a dtype: it reads Python numbers without guessing a dtype, checks their range, and takes a
#: third of NumPy's time. bfloat16 has none.
STRUCT_CODES = dict(zip((BOOL, *INTEGERS, *FLOATS[:3]), "?bhiqBHIQefd", strict=True))

# An array of any shape and dtype.
Array = np.ndarray

_OBJECT: np.dtype = np.dtype(object)

# Tried in this order: of two equally narrow ones, the unsigned one.
_NARROW_FIRST = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


def dtype_name(dtype: npt.DTypeLike) -> str:
    """The name of a dtype given as a name, a NumPy dtype, or a type: `int` → "int64", `np.float32` → "float32"."""
    if isinstance(dtype, str) and dtype in NAMES:
        return dtype
    if dtype is None:
        raise SpecError(f"expected a dtype, one of {', '.join(NAMES)}, got None", found=None)
    try:
        found: np.dtype = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise SpecError(f"expected a dtype, one of {', '.join(NAMES)}, got {dtype!r}", found=dtype) from error
    if found.kind == "U":
        return STR
    if found.kind == "S":
        return BYTES
    if found.name not in NAMES:
        raise SpecError(
            f"dtype {found.name!r} cannot be stored: expected one of {', '.join(NAMES)}. "
            "Convert the values first (complex numbers: real and imaginary parts; dates: int64).",
            found=dtype,
        )
    name: str = found.name
    return name


# Where rounding to nearest leaves the range of a float dtype: half a step above its greatest number.
ROUNDS_TO_INFINITY = {
    "float16": 65520.0,
    "bfloat16": (2 - 2**-8) * 2.0**127,
    "float32": (2 - 2**-24) * 2.0**127,
    "float64": float("inf"),
}


@functools.cache
def numpy_dtype(name: str) -> np.dtype:
    """The little-endian NumPy dtype of a name; objects for "bytes" and "str". "bfloat16" needs ml_dtypes."""
    if name == BFLOAT16:
        ml_dtypes = require("ml_dtypes", purpose="a feature of dtype bfloat16")
        bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if name in (BYTES, STR):
        return _OBJECT
    found: np.dtype = np.dtype(np.dtype(name).str.replace(">", "<"))
    return found


@functools.cache
def integer_range(name: str) -> tuple[int, int]:
    """The least and greatest value of an integer dtype."""
    info = np.iinfo(name)
    return int(info.min), int(info.max)


def narrowest_integer(minimum: int, maximum: int, *, declared: str) -> str:
    """The narrowest integer dtype that holds [minimum, maximum]; `declared` itself if none is narrower.

    `narrowest_integer(0, 255, declared="int32")` → "uint8"
    """
    for name in _NARROW_FIRST:
        if np.dtype(name).itemsize >= np.dtype(declared).itemsize:
            break
        low, high = integer_range(name)
        if low <= minimum and maximum <= high:
            return name
    return declared
