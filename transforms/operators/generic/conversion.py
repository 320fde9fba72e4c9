"""Converting values to another dtype the way DALI does: rounded, and held within the range."""

from __future__ import annotations

from typing import Any

import numpy as np


def dtype_of(array: Any) -> np.dtype[Any]:
    """The NumPy dtype of an array of NumPy, JAX or torch."""
    return np.dtype(str(array.dtype).rpartition(".")[2])


def cast_to(xp: Any, array: Any, dtype: np.dtype[Any]) -> Any:
    """`astype` in any namespace: fractions are cut off, integers wrap around."""
    return array.astype(dtype, copy=False) if xp is np else xp.astype(array, getattr(xp, dtype.name))


def placed_like(xp: Any, array: np.ndarray[Any, Any], like: Any) -> Any:
    """A NumPy array as one of the namespace, on the device of `like`."""
    return xp.asarray(array, device=like.device) if hasattr(like, "detach") else xp.asarray(array)


def saturated(xp: Any, values: Any, dtype: np.dtype[Any]) -> Any:
    """Values as `dtype`: `[-3, 0.5, 2.5, 300, nan]` → uint8 `[0, 1, 3, 255, 0]`.

    Fractions are rounded, halves away from zero; what lies outside of the dtype is held at its bounds; NaN is zero as
    an integer. As bool, whatever is not zero is true.
    """
    found = dtype_of(values)
    if found == dtype:
        return values
    if dtype == np.bool_:
        return values != 0
    if dtype.kind == "f" or found == np.bool_:
        return cast_to(xp, values, dtype)
    bounds = np.iinfo(dtype)
    if found.kind in "iu":
        own = np.iinfo(found)
        low, high = max(bounds.min, own.min), min(bounds.max, own.max)
        return cast_to(xp, xp.clip(values, low, high), dtype)
    if xp is np and dtype.itemsize <= 2 and found.itemsize >= 4:
        # Few passes over memory; the float just below a half is the one value that the sum rounds up.
        held = np.clip(np.nan_to_num(values, nan=0.0), bounds.min, bounds.max)
        half = np.copysign(held.dtype.type(0.5), held) if bounds.min < 0 else held.dtype.type(0.5)
        return (held + half).astype(dtype)
    if found.itemsize == 2:
        values = cast_to(xp, values, np.dtype("float32"))
    values = xp.clip(xp.where(xp.isnan(values), xp.zeros_like(values), values), float(bounds.min), float(bounds.max))
    whole = xp.trunc(values)
    whole = whole + xp.where(xp.abs(values - whole) >= 0.5, xp.sign(values), xp.zeros_like(values))
    over, under = whole >= float(bounds.max), whole <= float(bounds.min)
    inside = cast_to(xp, xp.where(over | under, xp.zeros_like(whole), whole), dtype)
    full = getattr(xp, dtype.name)
    made = xp.where(over, xp.full_like(inside, bounds.max, dtype=full), inside)
    return xp.where(under, xp.full_like(inside, bounds.min, dtype=full), made)


def value_range(dtype: np.dtype[Any]) -> float:
    """The largest value of an integer dtype, 1 for floats and bool: what `1.0` means in it."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0
