"""Casts and pad values that are exact, or an error: NumPy would turn -1 into 255 and 3.7 into 3 without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from beam_pipes.errors import DatasetError

Array = np.ndarray[Any, Any]


def checked_dtype(owner: str, arrays: list[Array], dtype: DTypeLike | None) -> np.dtype[Any]:
    """Returns the dtype of the batch: the one asked for, or what all examples have in common."""
    if dtype is None:
        # An empty list is float64 to NumPy, and says nothing about its neighbours.
        found = [array.dtype for array in arrays if array.size] or [arrays[0].dtype]
        kinds = {one.kind for one in found}
        if len(kinds) > 1 and kinds != {"i", "u"}:
            names = sorted({str(one) for one in found})
            raise DatasetError(f"{owner} found examples of different kinds: {', '.join(names)}; pass dtype=…")
        target = np.result_type(*found)
        if target.kind == "f" and "f" not in kinds:
            raise DatasetError(
                f"{owner} found examples of int64 and uint64, which no integer dtype holds; pass dtype=…"
            )
    else:
        target = np.dtype(dtype)
    if target.kind not in "biuf":
        raise DatasetError(f"{owner} pads numbers and booleans only, got dtype {target}")
    return target


def checked_pad_value(owner: str, pad_value: Any, dtype: np.dtype[Any]) -> Any:
    """Returns `pad_value` as a scalar of `dtype`, or raises `DatasetError` where it is none of its values."""
    value = np.asarray(pad_value)
    if value.ndim or value.dtype.kind not in "biuf":
        raise DatasetError(f"{owner} needs a number as pad value, got {type(pad_value).__name__}: {pad_value!r}")
    number = value[()]
    if dtype.kind == "f":
        fits = not np.isfinite(number) or abs(float(number)) <= float(np.finfo(dtype).max)
        bounds = f"{np.finfo(dtype).min} to {np.finfo(dtype).max}"
    elif dtype.kind == "b":
        fits, bounds = bool(number in (0, 1)), "False or True"
    else:
        limits = np.iinfo(dtype)
        whole = bool(np.isfinite(number)) and float(number).is_integer()
        fits = whole and int(limits.min) <= int(number) <= int(limits.max)
        bounds = f"whole numbers from {limits.min} to {limits.max}"
    if not fits:
        raise DatasetError(f"{owner}: pad value {pad_value!r} is not a value of dtype {dtype}, which holds {bounds}")
    return dtype.type(number)


def cast_exactly(owner: str, array: Array, dtype: np.dtype[Any], index: int) -> Array:
    """Returns `array` as `dtype`. A float may be rounded to a shorter float; nothing else may change."""
    if array.size == 0 or array.dtype == dtype or array.dtype.kind == "b":
        return array.astype(dtype, copy=False)
    kinds = array.dtype.kind + dtype.kind
    if kinds == "ff":
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        wrong = np.isinf(cast) & np.isfinite(array)
    elif kinds in ("ii", "iu", "ui", "uu"):
        cast = array.astype(dtype)
        wrong = (array < np.iinfo(dtype).min) | (array > np.iinfo(dtype).max)
    elif kinds in ("if", "uf"):
        limits = np.iinfo(array.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(dtype)
            # Of the integers beyond 2^24, float32 holds some. A float beyond the integers has no way back.
            wide = cast.astype(np.result_type(dtype, np.float64))
            wrong = (wide < float(limits.min)) | (wide >= float(limits.max) + 1) | (cast.astype(array.dtype) != array)
    else:
        raise DatasetError(
            f"{owner} makes a batch of dtype {dtype}, but example {index} has dtype {array.dtype}; pass another dtype, "
            "or convert the examples first",
            index=index,
        )
    if wrong.any():
        raise DatasetError(
            f"{owner}: example {index} holds {array[wrong].flat[0]} ({array.dtype}), which dtype {dtype} cannot hold; "
            "pass a wider dtype",
            index=index,
        )
    return cast
