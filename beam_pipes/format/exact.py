"""Values → arrays of the declared dtype, exactly or not at all: the one cast of the project.

| value                              | into integers, bool      | into floats                                |
| ---------------------------------- | ------------------------ | ------------------------------------------ |
| `int`, `bool`, NumPy's and others' | if the number fits       | if the float is the same number            |
| `float`                            | where it is whole        | rounded to nearest; refused over the range |
| NumPy's floats, arrays, tensors    | where they are whole     | where the float is the same number         |

A Python float has no declared width, so rounding it loses nothing that was promised; the others have one. A list is
read element by element, because NumPy turns `[2**63 + 1, 1]` into two float64 before anybody can look. Everything else
is refused: masked values, None, text, dates, complex numbers, `Decimal` and `Fraction`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from beam_pipes.checks import brief
from beam_pipes.format import dtypes
from beam_pipes.format.dtypes import Array

# Integers up to this magnitude are exact in a float of that many bytes.
_EXACT_INTEGERS = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


class NotExactError(ValueError):
    """A number that the wanted dtype cannot hold: `found`, of the type `kind`, at `position`."""

    def __init__(self, found: object, kind: str, position: tuple[int, ...] = ()) -> None:
        super().__init__(found, kind, position)
        self.found, self.kind, self.position = found, kind, position

    def __str__(self) -> str:
        where = f" at {list(self.position)}" if self.position else ""
        return f"{brief(self.found)} ({self.kind}){where}"


class NotNumbersError(ValueError):
    """A value that is not an array of numbers; `reason` continues after "it", or after the element at `position`."""

    def __init__(self, reason: str, position: tuple[int, ...] = ()) -> None:
        super().__init__(reason, position)
        self.reason, self.position = reason, position

    def __str__(self) -> str:
        return f"{f'the element at {list(self.position)}' if self.position else 'it'} {self.reason}"


@functools.cache
def _name(dtype: np.dtype) -> str:
    name: str = dtype.name  # NumPy builds it each time, in 2 µs
    return name


# Any value

# They are recognised by class only; many of these classes belong to libraries that are not imported.
Numbers = Any  # a number, array or tensor, or nested lists of them


def exact_numbers(value: Numbers, dtype: np.dtype) -> Array:
    """`value` as an array of `dtype` of its own shape: numbers, arrays, tensors, and nested lists of them.

    Raises:
        NotExactError: an element is another number in `dtype`.
        NotNumbersError: an element is not a number, or inner lists differ in length.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return _of_list(value, dtype)
    if kind is int or kind is float or kind is bool:
        return _of_scalar(value, kind, dtype)
    if kind is np.ndarray and value.dtype.kind in "biuf":
        return cast_exactly(value, dtype)
    if isinstance(value, np.ndarray | np.generic):
        return _of_array(value, dtype)
    if isinstance(value, list | tuple):
        return _of_list(value, dtype)
    if isinstance(value, str | bytes):
        raise NotNumbersError(f"is of type {kind.__name__}")
    if hasattr(value, "__array__") or _is_buffer(value):
        return _of_array(value, dtype)
    if isinstance(value, Sequence):
        return _of_list(list(value), dtype)
    if isinstance(value, int | float) or hasattr(value, "__index__"):
        return _of_scalar(value, kind, dtype)
    if value is None:
        raise NotNumbersError("is None, so it has no value: fill it in, or drop the record")
    raise NotNumbersError(f"is of type {kind.__name__}")


def exact_number(value: object, dtype: np.dtype) -> Array | np.generic:
    """A number given by hand, such as a pad value, as a scalar of `dtype`: an int exactly, a float rounded.

    Raises as `exact_numbers` does. NumPy's float64 counts as Python's here: its width is rarely intended.
    """
    made = exact_numbers(value.tolist() if isinstance(value, np.ndarray | np.generic) else value, dtype)
    return made if made.ndim else made[()]


def natural_array(value: object) -> Array:
    """`np.asarray(value)`, except that no integer in a list becomes a float that is another number.

        natural_array([2**63 + 1, 1])    →  array([9223372036854775809, 1], dtype=uint64)
        natural_array([2**53 + 1, 0.5])  →  NotExactError

    Raises `NotExactError` for integers that no dtype holds together; masked values are refused as in `array_of`.
    """
    if not isinstance(value, list | tuple):
        return array_of(value)
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind not in "fO" or (kind == "f" and (np.abs(array) < 1 << 53).all()):
        return array
    leaves = np.array(value, object).reshape(-1).tolist()
    if leaves and all(isinstance(leaf, int | np.integer | np.bool_) for leaf in leaves):
        try:
            return exact_numbers(value, np.dtype(np.int64))
        except NotExactError as error:
            with contextlib.suppress(NotExactError):
                return exact_numbers(value, np.dtype(np.uint64))
            raise error from None
    return exact_numbers(value, array.dtype) if kind == "f" else array


def _holds(name: str, value: int) -> bool:
    low, high = dtypes.integer_range(name)
    return low <= value <= high


def _of_scalar(value: object, kind: type, dtype: np.dtype) -> Array:
    try:
        return _of_one_kind((value,), kind, dtype).reshape(())
    except NotExactError as error:
        error.position = ()
        raise


def cast_exactly(array: Array, dtype: np.dtype, *, rounds: bool = False) -> Array:
    """`array` in `dtype`, every element the same number.

    Args:
        array: of booleans, integers or floats, bfloat16 included.
        rounds: floats may also be rounded to nearest, as long as a finite one stays finite.

    Raises:
        NotExactError: an element is another number in `dtype`.
    """
    if array.dtype == dtype or array.size == 0:
        return array.astype(dtype, copy=False)
    floats = array.dtype.kind not in "biu"
    if array.dtype.kind != "b" and not floats:
        low, high = int(array.min()), int(array.max())
        bound = _EXACT_INTEGERS.get(_name(dtype))
        if bound is None and _name(dtype) in dtypes.INTEGERS:
            least, greatest = dtypes.integer_range(_name(dtype))
            if least <= low and high <= greatest:
                return array.astype(dtype)
            # Compared as Python ints: an older NumPy compares int64 with a uint64's bounds as floats.
            raise _not_exact(array, np.array([not least <= one <= greatest for one in array.reshape(-1).tolist()]))
        if bound is not None and -bound <= low and high <= bound:
            return array.astype(dtype)
    with np.errstate(all="ignore"):
        if floats and rounds and _name(dtype) == dtypes.BFLOAT16:
            cast = _to_bfloat16(array, dtype)
        else:
            cast = array.astype(dtype)
        wrong = _other_numbers(array, cast, rounds=rounds and floats)
    if wrong.any():
        raise _not_exact(array, wrong)
    return cast


def _other_numbers(array: Array, cast: Array, *, rounds: bool) -> Array:
    """Where `cast` is a different number than `array`. Never trusts a cast out of range: its result differs by CPU."""
    source, target = array.dtype, cast.dtype
    if source.kind == "b":
        return np.zeros(array.shape, bool)
    if target.kind == "b":
        return np.asarray((array != 0) & (array != 1))
    if source.kind in "iu":
        # Back to integers only from within their range; high + 1 is a power of two, and exact.
        low, high = dtypes.integer_range(_name(source))
        wide = cast.astype(np.float64)
        inside = (wide >= float(low)) & (wide < float(high) + 1.0)
        return np.asarray(~inside | (np.where(inside, wide, 0.0).astype(source) != array))
    if target.kind in "iu":
        low, high = dtypes.integer_range(_name(target))
        wide = array if source.itemsize > 8 else array.astype(np.float64)
        return np.asarray(~((wide >= float(low)) & (wide < float(high) + 1.0)) | (wide != np.floor(wide)))  # NaN too
    if rounds:
        wrong = np.asarray(np.isinf(cast) != np.isinf(array))
        if target.itemsize == 1:  # where there is no infinity (float8_e4m3fn), what overflows becomes NaN
            wrong |= np.isnan(cast) != np.isnan(array)
        return wrong
    back = cast.astype(source)
    wrong = np.asarray(back != array)
    return wrong & ~(np.isnan(array) & np.isnan(back)) if wrong.any() else wrong


def _to_bfloat16(array: Array, dtype: np.dtype) -> Array:
    """Rounded to nearest once. Through a float32 that is rounded itself, 1 + 2**-8 + 2**-40 would become 1."""
    wide = array.astype(np.float64)
    single = wide.astype(np.float32)
    bits = single.view(np.uint32)
    inexact = np.isfinite(wide) & (single.astype(np.float64) != wide)
    # Rounded to odd: toward zero, and the last bit says that there was more.
    bits -= (inexact & (np.abs(single.astype(np.float64)) > np.abs(wide))).astype(np.uint32)
    bits |= inexact.astype(np.uint32)
    return single.astype(dtype)


def _not_exact(array: Array, wrong: Array) -> NotExactError:
    position = np.unravel_index(int(np.argmax(wrong)), array.shape)
    return NotExactError(array[position].item(), _name(array.dtype), tuple(int(axis) for axis in position))


# Arrays


def array_of(value: object) -> Array:
    """The array of an array, a NumPy scalar, or any object with the array or buffer protocol.

    Raises `NotNumbersError` if an element is masked or null: NumPy would return what lies under the mask, and Arrow and
    pandas would turn integers into floats.
    """
    # Only programs that have imported numpy.ma, which takes 10 ms, have masked arrays.
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        if mask.any():
            position = tuple(int(axis) for axis in np.unravel_index(int(np.argmax(mask)), mask.shape))
            raise NotNumbersError("is masked, so it has no value: fill it, or leave it out", position)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    nulls = getattr(value, "null_count", 0)
    if hasattr(value, "isna") and not isinstance(getattr(value, "dtype", None), np.dtype):
        nulls = int(value.isna().sum())
    if isinstance(nulls, int) and nulls:
        raise NotNumbersError(f"has {nulls} nulls, which have no value: fill them, or leave them out")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise NotNumbersError(f"cannot be read as an array: {error}") from error


def _of_array(value: object, dtype: np.dtype) -> Array:
    array = array_of(value)
    if array.dtype.kind == "O":
        flat = _of_list(array.reshape(-1).tolist(), dtype) if array.size else np.empty(0, dtype)
        made: Array = flat.reshape(array.shape + flat.shape[1:])
        return made
    if not _is_number(array.dtype):
        raise NotNumbersError(f"has the dtype {array.dtype}")
    return cast_exactly(array, dtype)


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "biuf" or _name(dtype) == dtypes.BFLOAT16


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]  # what it is asked about
    except TypeError:
        return False
    return True


# Lists


def _of_list(value: Sequence[object], dtype: np.dtype) -> Array:
    """An array of nested lists, which must be rectangular."""
    leaves: Sequence[Numbers] = value
    shape = [len(value)]
    kinds = _kinds(leaves)
    while kinds and all(issubclass(kind, list | tuple) for kind in kinds):
        sizes = set(map(len, leaves))
        if len(sizes) > 1:
            raise NotNumbersError(f"has inner lists of different lengths, {min(sizes)} and {max(sizes)}")
        shape.append(sizes.pop())
        leaves = list(itertools.chain.from_iterable(leaves))
        kinds = _kinds(leaves)
    try:
        flat = _of_leaves(leaves, kinds, dtype)
    except (NotExactError, NotNumbersError) as error:
        if error.position:
            first = tuple(int(axis) for axis in np.unravel_index(error.position[0], shape))
            error.position = first + error.position[1:]
        raise
    return flat if len(shape) == 1 else flat.reshape(*shape, *flat.shape[1:])


def _kinds(leaves: Sequence[object]) -> set[type]:
    kinds = list(map(type, leaves))
    return {kinds[0]} if kinds and kinds.count(kinds[0]) == len(kinds) else set(kinds)  # half the time of a set


def _of_leaves(leaves: Sequence[object], kinds: set[type], dtype: np.dtype) -> Array:
    if not leaves:
        return np.empty(0, dtype)
    if len(kinds) == 1:
        return _of_one_kind(leaves, next(iter(kinds)), dtype)
    bound = _EXACT_INTEGERS.get(_name(dtype))
    if bound is not None and kinds <= {bool, int, float}:
        # Ints below the bound are exact in the float; above it, a float64 may be what is left of another number.
        try:
            array = np.array(leaves, np.float64)
        except OverflowError:
            pass
        else:
            if (np.abs(array) < bound).all():
                return cast_exactly(array, dtype, rounds=True)
    return _one_by_one(leaves, dtype)


def _of_one_kind(leaves: Sequence[Numbers], kind: type, dtype: np.dtype) -> Array:
    """An array of elements that all have the type `kind`."""
    if issubclass(kind, np.generic):
        if not _is_number(leaves[0].dtype):
            raise NotNumbersError(f"is of type {kind.__name__}", (0,))
        return cast_exactly(np.fromiter(leaves, leaves[0].dtype, len(leaves)), dtype)
    if issubclass(kind, int):
        return _of_ints(leaves, dtype)
    if issubclass(kind, float):
        return cast_exactly(np.array(leaves, np.float64), dtype, rounds=True)
    if kind.__name__ != "ndarray" and hasattr(kind, "__index__") and not hasattr(kind, "__array__"):
        return _of_ints([operator.index(leaf) for leaf in leaves], dtype)
    return _one_by_one(leaves, dtype)


def _one_by_one(leaves: Sequence[Numbers], dtype: np.dtype) -> Array:
    parts = []
    for index, leaf in enumerate(leaves):
        try:
            parts.append(exact_numbers(leaf, dtype))
        except (NotExactError, NotNumbersError) as error:
            error.position = (index, *error.position)
            raise
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise NotNumbersError(f"has elements of different shapes, {' and '.join(map(str, sorted(shapes)[:2]))}")
    return np.stack(parts)


def _of_ints(leaves: Sequence[int], dtype: np.dtype) -> Array:
    if dtype.kind in "iu":
        try:
            return packed(leaves, dtype)
        except struct.error:
            raise _first(leaves, lambda leaf: _holds(_name(dtype), leaf)) from None
    if dtype.kind == "b":
        if not set(leaves) <= {0, 1}:
            raise _first(leaves, lambda leaf: leaf in (0, 1))
        return np.array(leaves, np.bool_)
    try:
        integers = packed(leaves, np.dtype("<i8"))
    except struct.error:
        pass  # beyond int64: one by one
    else:
        return cast_exactly(integers, dtype)
    floats = np.empty(len(leaves), dtype)
    with np.errstate(all="ignore"):
        for index, leaf in enumerate(leaves):
            try:
                floats[index] = float(leaf)
                same = int(float(floats[index])) == leaf
            except OverflowError:
                same = False
            if not same:
                raise NotExactError(int(leaf), _kind_of_int(leaf), (index,))
    return floats


def _first(leaves: Sequence[int], fits: Callable[[int], bool]) -> NotExactError:
    index = next(index for index, leaf in enumerate(leaves) if not fits(leaf))
    return NotExactError(int(leaves[index]), _kind_of_int(leaves[index]), (index,))


def packed(leaves: Sequence[object], dtype: np.dtype) -> Array:
    """Python numbers as a writable array; `struct.error` or `OverflowError` if one is out of range."""
    buffer = bytearray(len(leaves) * dtype.itemsize)
    struct.pack_into(f"<{len(leaves)}{dtypes.STRUCT_CODES[_name(dtype)]}", buffer, 0, *leaves)
    return np.frombuffer(buffer, dtype)


# Words


def _kind_of_int(value: int) -> str:
    return next((name for name in ("int64", "uint64") if _holds(name, value)), "int")
