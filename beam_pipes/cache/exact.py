"""Values → arrays of the declared dtype, exactly or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.cache import dtypes
from beam_pipes.cache.spec import FeatureSpec
from beam_pipes.errors import SpecError

# Integers up to this magnitude are exact in a float of that many bytes.
_EXACT_INTEGERS = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


def exact_array(name: str, spec: FeatureSpec, value: Any) -> np.ndarray[Any, Any]:
    """`value` as an array of the declared dtype and shape; every element is the same number as before.

        exact_array("x", FeatureSpec("int32", shape=(None,)), [1.0, 2.0])  →  array([1, 2], dtype=int32)
        exact_array("x", FeatureSpec("int32", shape=(None,)), [1.5])       →  SpecError

    Integers are accepted where they fit, floats where they are whole numbers, booleans where they are 0 and 1. Python
    floats have no width of their own and are rounded to a declared float32; NumPy's float64 must fit exactly.
    """
    array = _as_array(name, spec, value)
    check_shape(name, spec, array)
    declared = spec.numpy_dtype
    if array.dtype != declared:
        weak = array.dtype == np.float64 and not isinstance(value, (np.ndarray, np.generic))
        array = _cast(name, spec, array, declared, weak=weak)
    check_range(name, spec, array)
    return array


def check_shape(name: str, spec: FeatureSpec, array: np.ndarray[Any, Any]) -> None:
    """Raises `SpecError` where rank or a declared size differs."""
    shape = array.shape
    if len(shape) != len(spec.shape) or any(
        want is not None and want != have for want, have in zip(spec.shape, shape, strict=True)
    ):
        what = "rank" if len(shape) != len(spec.shape) else "shape"
        raise SpecError(
            f"feature {name!r}: expected {what} {len(spec.shape) if what == 'rank' else spec.shape} "
            f"({spec.dtype}, shape {spec.shape}), got an array of shape {shape}. Reshape the values, or change the "
            "spec.",
            feature=name,
            expected=spec.shape,
            found=shape,
        )


def check_range(name: str, spec: FeatureSpec, array: np.ndarray[Any, Any]) -> None:
    """Raises `SpecError` where an element lies outside the declared range."""
    if (spec.minimum is None and spec.maximum is None) or array.size == 0:
        return
    low, high = spec.value_range
    least, greatest = int(array.min()), int(array.max())
    if least < low or greatest > high:
        found = least if least < low else greatest
        raise SpecError(
            f"feature {name!r}: expected values in the declared range [{low}, {high}], got {found}. Clip the values, "
            "or "
            "declare another minimum and maximum.",
            feature=name,
            expected=(low, high),
            found=found,
        )


def _as_array(name: str, spec: FeatureSpec, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, (list, tuple)) and not value:
        return np.empty((0,) * max(1, len(spec.shape)), spec.numpy_dtype)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(
            f"feature {name!r}: expected {spec.dtype} of shape {spec.shape}, got {_short(value)}, which is no array: "
            f"{error}",
            feature=name,
            expected=spec,
            found=value,
        ) from error
    if array.dtype.kind not in "biuf" and array.dtype != spec.numpy_dtype and array.dtype.name != dtypes.BFLOAT16:
        raise SpecError(
            f"feature {name!r}: expected {spec.dtype} of shape {spec.shape}, got {_short(value)} of dtype "
            f"{array.dtype}. Convert the values, or change the spec.",
            feature=name,
            expected=spec.dtype,
            found=array.dtype,
        )
    return array


def _cast(
    name: str, spec: FeatureSpec, array: np.ndarray[Any, Any], declared: np.dtype[Any], *, weak: bool
) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        cast = array.astype(declared)
        inexact = _inexact(array, cast, spec.dtype, weak=weak)
    if inexact.any():
        position = np.unravel_index(int(np.argmax(inexact)), array.shape)
        where = f" at {[int(axis) for axis in position]}" if array.ndim else ""
        found = array[position].item()
        raise SpecError(
            f"feature {name!r}: expected values that are exact in {spec.dtype}, got {found!r} ({array.dtype}){where}. "
            f"Convert the values on purpose, or declare {array.dtype}.",
            feature=name,
            expected=spec.dtype,
            found=found,
        )
    return cast


def _inexact(
    array: np.ndarray[Any, Any], cast: np.ndarray[Any, Any], declared: str, *, weak: bool
) -> np.ndarray[Any, Any]:
    """Where `cast` is another number than `array`. Never trusts a cast out of range: its result differs by CPU."""
    floats = array.dtype.kind not in "biu"
    if declared == dtypes.BOOL:
        return np.asarray((array != 0) & (array != 1))
    if declared in dtypes.INTEGERS:
        low, high = dtypes.integer_range(declared)
        if floats:
            wide = array.astype(np.float64)
            outside = ~((wide >= float(low)) & (wide < float(high) + 1.0))  # NaN too; high + 1 is a power of two
            return np.asarray(outside | (wide != np.floor(wide)))
        if array.dtype.kind == "b":
            return np.zeros(array.shape, bool)
        return np.asarray((array < low) | (array > high))
    if floats:
        if weak:
            return np.asarray(np.isinf(cast.astype(np.float64)) & np.isfinite(array))
        back = cast.astype(array.dtype)
        return np.asarray((back != array) & ~(np.isnan(array) & np.isnan(back)))
    if array.dtype.kind == "b":
        return np.zeros(array.shape, bool)
    bound = _EXACT_INTEGERS[declared]
    suspect = np.array((array > bound) | ((array < -bound) if array.dtype.kind == "i" else False))
    for position in np.argwhere(suspect):
        at = tuple(position)
        converted = float(cast[at])
        suspect[at] = not np.isfinite(converted) or int(converted) != int(array[at])
    return suspect


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
