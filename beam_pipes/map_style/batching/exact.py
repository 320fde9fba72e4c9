"""Casts and pad values that are exact, or an error: NumPy would turn -1 into 255 and 3.7 into 3 without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from beam_pipes.cache import exact
from beam_pipes.cache.exact import NotExactError, exact_number
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
    try:
        return exact_number(pad_value, dtype)
    except NotExactError:
        if dtype.kind == "f":
            bounds = f"{np.finfo(dtype).min} to {np.finfo(dtype).max}"
            if abs(int(pad_value)) <= int(np.finfo(dtype).max):
                bounds += ", but not every integer"
        else:
            bounds = "False or True"
            if dtype.kind != "b":
                bounds = f"whole numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
    raise DatasetError(f"{owner}: pad value {pad_value!r} is not a value of dtype {dtype}, which holds {bounds}")


def cast_exactly(owner: str, array: Array, dtype: np.dtype[Any], index: int) -> Array:
    """Returns `array` as `dtype`. A float may be rounded to a shorter float; nothing else may change."""
    if array.size == 0 or array.dtype == dtype or array.dtype.kind == "b":
        return array.astype(dtype, copy=False)
    kinds = array.dtype.kind + dtype.kind
    if kinds not in ("ff", "ii", "iu", "ui", "uu", "if", "uf"):
        raise DatasetError(
            f"{owner} makes a batch of dtype {dtype}, but example {index} has dtype {array.dtype}; pass another dtype, "
            "or convert the examples first",
            index=index,
        )
    try:
        return exact.cast_exactly(array, dtype, rounds=True)
    except exact.NotExactError as error:
        raise DatasetError(
            f"{owner}: example {index} holds {error.found} ({error.kind}), which dtype {dtype} cannot hold; pass a "
            "wider dtype",
            index=index,
        ) from None
