"""Values of features: user input → an array of the declared dtype, shape and range; stored floats → the same.

The cast itself, of any value to any dtype, is in `exact`. Here its errors get the name of the feature.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from beam_pipes.checks import brief
from beam_pipes.errors import SpecError
from beam_pipes.format import dtypes
from beam_pipes.format.dtypes import Array
from beam_pipes.format.exact import NotExactError, NotNumbersError, Numbers, cast_exactly, exact_numbers, packed
from beam_pipes.format.spec import FeatureSpec


def nested(flat: Mapping[str, object], delimiter: str = "/") -> dict[str, Any]:
    """`{"a/b": 1, "c": 2}` → `{"a": {"b": 1}, "c": 2}`."""
    made: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(delimiter)
        place = made
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = value
    return made


def exact_array(name: str, spec: FeatureSpec, value: object) -> Array:
    """`value` as an array of the declared dtype and shape; every element is the same number as before.

        exact_array("x", FeatureSpec("int32", shape=(None,)), [1.0, 2.0])     →  array([1, 2], dtype=int32)
        exact_array("x", FeatureSpec("int32", shape=(None,)), [1.5])          →  SpecError
        exact_array("x", FeatureSpec("uint64", shape=(2,)), [2**63 + 1, 1])   →  array([9223372036854775809, 1])

    Integers are accepted where they fit, floats where they are whole numbers, booleans as 0 and 1. Python floats have
    no width of their own and are rounded to a declared float32; NumPy's float64 must fit exactly.

    Raises:
        SpecError: another shape, an element that is a different number in the declared dtype or not a number, or
            one outside the declared range.
    """
    return array_converter(name, spec)(value)


def array_converter(name: str, spec: FeatureSpec) -> Callable[[object], Array]:
    """`exact_array` of one feature, with fast paths for arrays of the declared dtype and lists of Python numbers."""
    declared, rank, rest = spec.numpy_dtype, len(spec.shape), spec.shape[1:]
    bounded = spec.minimum is not None or spec.maximum is not None
    leading = spec.shape[0] if spec.shape else None
    plain = None not in rest
    python = int if spec.dtype in dtypes.INTEGERS else float
    lists = rank == 1 and (python is int or spec.dtype in ("float32", "float64"))

    def convert(value: Numbers) -> Array:
        kind = type(value)
        if kind is np.ndarray:
            if value.dtype == declared and value.ndim == rank and plain:
                shape = value.shape
                if shape[1:] == rest and (leading is None or shape[0] == leading):
                    if bounded:
                        check_range(name, spec, value)
                    return value  # type: ignore[no-any-return]
            check_shape(name, spec, value)
        elif (kind is list or kind is tuple) and lists:
            size = len(value)
            fits = size and (leading is None or size == leading) and type(value[0]) is python
            if fits and list(map(type, value)).count(python) == size:
                try:
                    array = packed(value, declared)
                except (struct.error, OverflowError):
                    pass  # one of them is out of range: it is found and named below
                else:
                    if bounded:
                        check_range(name, spec, array)
                    return array
        return _converted(name, spec, value)

    return convert


def _converted(name: str, spec: FeatureSpec, value: object) -> Array:
    if isinstance(value, (list, tuple)) and not value:
        array = np.empty((0,) * max(1, len(spec.shape)), spec.numpy_dtype)
    else:
        try:
            array = exact_numbers(value, spec.numpy_dtype)
        except NotExactError as error:
            raise SpecError(
                f"expected values that are exact in {spec.dtype}, got {error}. Convert the values on purpose, or "
                f"declare {_wider(error.kind)}."
            ).about("feature", name, expected=spec.dtype, found=error.found) from None
        except NotNumbersError as error:
            raise SpecError(
                f"expected {spec.dtype} of shape {spec.shape}, got {brief(value)}, which is not an array of numbers: "
                f"{error}. Convert the values, or change the spec."
            ).about("feature", name, expected=spec, found=value) from error
    check_shape(name, spec, array)
    check_range(name, spec, array)
    return array


def _wider(kind: str) -> str:
    return kind if kind in dtypes.NAMES else "str and keep the digits"


def check_shape(name: str, spec: FeatureSpec, array: Array) -> None:
    """Raises `SpecError` if rank or a declared size differs."""
    shape = array.shape
    if len(shape) != len(spec.shape) or any(
        want is not None and want != have for want, have in zip(spec.shape, shape, strict=True)
    ):
        what = "rank" if len(shape) != len(spec.shape) else "shape"
        raise SpecError(
            f"expected {what} {len(spec.shape) if what == 'rank' else spec.shape} ({spec.dtype}, shape {spec.shape}), "
            f"got an array of shape {shape}. Reshape the values, or change the spec."
        ).about("feature", name, expected=spec.shape, found=shape)


def check_range(name: str, spec: FeatureSpec, array: Array) -> None:
    """Raises `SpecError` if an element lies outside the declared range."""
    if (spec.minimum is None and spec.maximum is None) or array.size == 0:
        return
    low, high = spec.value_range
    least, greatest = int(array.min()), int(array.max())
    if least < low or greatest > high:
        found = least if least < low else greatest
        raise SpecError(
            f"expected values in the declared range [{low}, {high}], got {found}. Clip the values, or declare another "
            "minimum and maximum."
        ).about("feature", name, expected=(low, high), found=found)


# Stored floats


def float_list_of(array: Array) -> Array:
    """float16, bfloat16 or float32 as the float32 values of a `float_list`; NaN keeps its bits."""
    wide = array.astype("<f4", copy=False)
    if wide is array or not (nan := np.isnan(wide)).any():
        return wide
    half = _bits(array)[nan].astype(np.uint32)  # a processor that casts NaN may make a signalling one quiet
    if array.dtype.kind == "f":
        half = (half & 0x8000) << 16 | 0x7F80_0000 | (half & 0x3FF) << 13
    else:
        half <<= 16
    wide.view(np.uint32)[nan] = half
    return wide


def restored(name: str, spec: FeatureSpec, values: Array, *, copy: bool = True) -> Array:
    """Stored values in the declared dtype: wider ones, or the float32 values of a `float_list` as the float16 or
    bfloat16 that they are.

    Raises:
        SpecError: a value is not of the declared dtype: another writer stored it.
    """
    declared = spec.numpy_dtype
    if values.dtype.itemsize <= declared.itemsize or values.dtype.kind != "f":
        return values.astype(declared, copy=copy)
    with np.errstate(all="ignore"):
        quick = values.astype(declared)
    if (quick.astype("<f4").view(np.uint32) == values.view(np.uint32)).all():
        return quick
    try:
        # Scalars were once written as the float32 that is nearest to a Python float.
        made = cast_exactly(values, declared, rounds=spec.shape == ())
    except NotExactError as error:
        raise SpecError(
            f"expected values that are exact in {spec.dtype}, found {error} in a float_list. The record was written "
            "with another spec; declare float32 to read it."
        ).about("feature", name, expected=spec.dtype, found=error.found) from None
    nan = np.isnan(values)
    if nan.any():
        bits = values[nan].view(np.uint32)
        if declared.kind == "f":
            half = (bits >> 16) & 0x8000 | 0x7C00 | (bits >> 13) & 0x3FF
            half |= np.where(half & 0x3FF, 0, 0x200).astype(np.uint32)  # all of its bits were the lower ones
        else:
            half = bits >> 16
            half |= np.where(half & 0x7F, 0, 0x40).astype(np.uint32)
        _bits(made)[nan] = half.astype(np.uint16)
    return made


def _bits(array: Array) -> Array:
    bits: Array = array.view(np.uint16)
    return bits
