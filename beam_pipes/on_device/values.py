"""One value of a Python sample as a NumPy array, and its exact conversion to a declared dtype.

Python's own numbers are *weak*: an `int` is int32 where it fits and int64 where it does not, a `float` is float32,
and both take the dtype that the other samples have. NumPy, TensorFlow, JAX and torch values keep their dtype. The
conversion is that of `beam_pipes.format.exact`, except that a declared dtype also rounds floats of NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from beam_pipes.checks import brief
from beam_pipes.format.exact import NotExactError, NotNumbersError, array_of, cast_exactly, exact_numbers

INT32 = np.iinfo(np.int32)
STRING = np.dtype(object)  # arrays of `bytes`


class UnfitValueError(ValueError):
    """Why a value cannot become the wanted array; the caller adds the sample and the key."""


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """An array and how firm its dtype is: `weak` is "int", "float", "empty" or "" (the dtype is firm).

    Weak numbers that int64 or float64 does not hold stay Python numbers until a dtype is known.
    """

    array: np.ndarray
    weak: str = ""

    def inferred_dtype(self) -> np.dtype:
        """The dtype that `tf.convert_to_tensor` would give, except that no integer is ever wrapped."""
        if self.weak == "int":
            if self.array.dtype == object:
                raise _beyond_int64(max(self.array.flat, key=abs))
            fits = self.array.size == 0 or (self.array.min() >= INT32.min and self.array.max() <= INT32.max)
            return np.dtype(np.int32 if fits else np.int64)
        if self.weak in ("float", "empty"):
            return np.dtype(np.float32)
        dtype: np.dtype = self.array.dtype
        return dtype


def read_value(value: object) -> Value:
    """`[1, 2]` → a weak int array of shape (2,); `"né"` → the array of its UTF-8 bytes, shape ()."""
    if isinstance(value, bool):
        return Value(np.asarray(value))
    if isinstance(value, int):
        return Value(_int_array([value], ()), "int")
    if isinstance(value, float) and not isinstance(value, np.generic):
        return Value(np.asarray(value), "float")
    if isinstance(value, str | bytes):
        return Value(_strings(value, ()))
    if isinstance(value, list | tuple):
        return _read_list(value)
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return Value(np.asarray(value))
    if value is None:
        raise UnfitValueError("it is None, which is not a tensor; leave such samples out or give them a value")
    to_numpy = getattr(value, "numpy", None)
    if callable(to_numpy):
        value = to_numpy()
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        try:
            return Value(_plain_array(array_of(value)))
        except NotNumbersError as error:
            raise UnfitValueError(str(error)) from None
    if isinstance(value, bytes):
        return Value(_strings(value, ()))
    raise UnfitValueError(
        f"a {type(value).__name__} is not a tensor; give a number, text, bytes, array or list of them"
    )


def convert(value: Value, dtype: np.dtype, *, declared: bool) -> np.ndarray:
    """The array of `value` in exactly `dtype`, or `UnfitValueError`.

    An inferred dtype must be met (a change is an error); a `declared` one may also be reached by an exact change:
    an integer that fits, a float that a narrower float rounds without overflowing.
    """
    array, wide = value.array, dtype.kind == "c"
    if value.weak == "empty":
        return np.empty(array.shape, dtype)
    if array.dtype == dtype and value.weak != "int":
        return array
    if value.weak == "int" or is_integer(array.dtype):
        is_alike, is_wider = is_integer(dtype), wide or is_float(dtype)
    elif value.weak == "float" or is_float(array.dtype):
        is_alike, is_wider = is_float(dtype), wide
    else:
        is_alike, is_wider = False, wide and array.dtype.kind == "c"
    if not (is_alike and value.weak) and not (declared and (is_alike or is_wider)):
        raise UnfitValueError(f"the dtype is {dtype_name(value.inferred_dtype())}, expected {dtype_name(dtype)}")
    if wide and array.dtype.kind != "c":
        part: np.dtype = np.empty(0, dtype).real.dtype
        return exactly(array, part).astype(dtype)
    return exactly(array, dtype)


def check_numbers(value: object, dtype: np.dtype) -> None:
    """Raises `UnfitValueError` if uneven nested lists hold a Python number that has no place in `dtype`."""
    leaves = _leaves(value) if isinstance(value, list | tuple) else []
    if set(map(type, leaves)) <= {int, float}:
        convert(read_value(leaves), dtype, declared=True)


def is_integer(dtype: np.dtype) -> bool:
    return dtype.kind in "iu"


def is_float(dtype: np.dtype) -> bool:
    """float16 to float64, and the bfloat16 and float8 types that are not NumPy's own."""
    return dtype.kind == "f" or "float" in dtype.name


def exactly(value: Sequence[object] | np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers, as an array or a list of Python's own, in a dtype to which floats are rounded, or `UnfitValueError`."""
    try:
        if isinstance(value, np.ndarray) and value.dtype != object:
            return cast_exactly(value, dtype, rounds=True)
        return exact_numbers(value, dtype)
    except NotExactError as error:
        found, name = brief(error.found), dtype_name(dtype)
        if is_integer(dtype):
            info = np.iinfo(dtype)
            raise UnfitValueError(f"{found} does not fit {name} ({info.min} to {info.max})") from None
        has_no = isinstance(error.found, int)
        raise UnfitValueError(f"{found} has no exact {name}" if has_no else f"{found} overflows {name}") from None


def dtype_name(dtype: np.dtype) -> str:
    """TensorFlow's name of a NumPy dtype: object arrays hold bytes and are called string."""
    return "string" if dtype == STRING else dtype.name


def _int_array(values: list[int], shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.array(values, np.int64).reshape(shape)
    except OverflowError:
        return _objects(values, shape)


def _objects(values: Sequence[object], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def _beyond_int64(value: int) -> UnfitValueError:
    return UnfitValueError(
        f"{brief(value)} does not fit int64, the widest integer that Python ints become; pass output_signature to "
        "declare another dtype"
    )


def _strings(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, STRING)
    leaves = [value] if shape == () else _leaves(value)
    array.reshape(-1)[:] = [leaf.encode() if isinstance(leaf, str) else bytes(leaf) for leaf in leaves]
    return array


def _plain_array(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "US":
        return _strings(array.tolist(), array.shape)
    if array.dtype.kind == "O":
        kinds = {type(leaf) for leaf in array.flat}
        if not kinds <= {str, bytes}:
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise UnfitValueError(f"an object array holds {found}; only str and bytes have a tensor")
        return _strings(array.tolist(), array.shape)
    if array.dtype.kind in "mM":
        raise UnfitValueError(f"{array.dtype} has no tensor dtype; give the number of a chosen unit as int64")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_list(value: list[object] | tuple[object, ...]) -> Value:
    leaves = _leaves(value)
    kinds = {type(leaf) for leaf in leaves}
    shape = _shape(value)
    if not kinds:
        return Value(np.empty(shape, np.float32), "empty")
    if kinds == {bool}:
        return Value(np.array(leaves, np.bool_).reshape(shape))
    if kinds == {int}:
        return Value(_int_array(leaves, shape), "int")
    if kinds == {float}:
        return Value(np.array(leaves, np.float64).reshape(shape), "float")
    if kinds == {int, float}:
        if all(-256 <= leaf <= 256 for leaf in leaves):  # where every float dtype holds the ints
            return Value(np.array(leaves, np.float64).reshape(shape), "float")
        return Value(_objects(leaves, shape), "float")  # the elements decide what is exact and what may be rounded
    if kinds <= {str, bytes}:
        return Value(_strings(value, shape))
    if kinds <= {complex}:
        return Value(np.array(leaves).reshape(shape))
    if kinds & {bool, int, float, str, bytes, complex}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise UnfitValueError(f"one list mixes {found}; give values of one type")
    return _read_arrays([read_value(leaf) for leaf in leaves], shape)


def _read_arrays(values: list[Value], shape: tuple[int, ...]) -> Value:
    arrays = [value.array for value in values]
    dtypes = {array.dtype for array in arrays}
    shapes = {array.shape for array in arrays}
    if len(dtypes) > 1 or len(shapes) > 1:
        named = sorted(dtype_name(dtype) for dtype in dtypes)
        raise UnfitValueError(f"the arrays of one list differ: dtypes {named}, shapes {sorted(shapes)}")
    return Value(np.stack(arrays).reshape(*shape, *arrays[0].shape))


def _leaves(value: Iterable[object]) -> list[Any]:
    """The innermost items of nested lists, in order."""
    if not any(isinstance(item, list | tuple) for item in value):
        return list(value)
    return [leaf for item in value for leaf in (_leaves(item) if isinstance(item, list | tuple) else [item])]


def _shape(value: object) -> tuple[int, ...]:
    """The shape of nested lists, which must be rectangular."""
    if not isinstance(value, list | tuple):
        return ()
    shapes = {_shape(item) for item in value}
    if len(shapes) > 1:
        raise UnfitValueError(
            "its inner lists have different lengths; pad them, or flatten them and add a list of lengths"
        )
    return (len(value), *(shapes.pop() if shapes else ()))
