"""The operators of expressions over data nodes: NumPy's ufuncs, sample by sample, in the dtypes that DALI promotes to.

| operands | are computed in |
| --- | --- |
| integers of one signedness | the wider one |
| an unsigned and a signed integer | the signed one where it is wider, else the next wider one, int64 at most |
| an integer or boolean and a float | the float |
| a boolean and anything else | the other |
| `/` of integers | float32 |

A Python `int` is int32 (int64 if it does not fit), a `float` is float32, a `bool` is a boolean. So `uint8 + 100` is
int32 and does not wrap, and `uint8 / 255.0` is float32. Comparisons compare values, whatever their dtypes.

`node[...]`: indexing every sample.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from beam_pipes.graph.operator import Constant, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, Value

SYMBOLS = {
    **{"add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "floor_divide": "//", "remainder": "%"},
    **{"power": "**", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<"},
    **{"right_shift": ">>", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">"},
    **{"greater_equal": ">=", "negative": "-", "absolute": "abs", "invert": "~"},
}

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

# Booleans are no numbers to these, and DALI refuses them.
_OF_NUMBERS = ("add", "subtract", "true_divide", "floor_divide", "remainder", "power")

# Names in the array API, which JAX has and `array_api_compat` gives torch.
_ARRAY_API = {"true_divide": "divide", "absolute": "abs", "power": "pow"} | {
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "invert": "bitwise_invert",
}


class Arithmetic(Operator):
    """One ufunc over one or two inputs; a Python number counts as int32 or float32.

    `//` and `%` of integers round towards zero, as in DALI and C: `-7 // 2` is -3, `-7 % 2` is -1.
    """

    op_name = "arithmetic"
    inputs = ("left", "right")
    optional_inputs = 1
    devices = ("cpu", "gpu")
    version = "2"

    ufunc = Constant("str", doc="the name of a ufunc of NumPy")
    left = Constant("any", default=None, doc="a Python number on the left")
    right = Constant("any", default=None, doc="a Python number on the right")

    def check(self) -> None:
        # dtypes of the inputs → the dtype of the computation: finding it for every sample costs more than computing
        # with a scalar.
        self._computed_in: dict[tuple[np.dtype, ...], np.dtype] = {}

    def _operands(self, *inputs: object) -> list[Any]:
        if self.left is not None:
            return [self.left, *inputs]
        return [*inputs, self.right] if self.right is not None else list(inputs)

    def _dtypes(self, dtypes: list[Any]) -> tuple[np.dtype, np.dtype]:
        """The dtype in which operands are computed, and that of the result; Python numbers are passed as they are."""
        try:
            if self.ufunc in _COMPARISONS:
                weak = [type(one) if type(one) in (int, float) else _dtype_of(one) for one in dtypes]
                compared: tuple[np.dtype, np.dtype] = getattr(np, self.ufunc).resolve_dtypes((*weak, None))[::2]
                return compared
            return _resolved(self.ufunc, tuple(_dtype_of(one) for one in dtypes))
        except (TypeError, OverflowError) as error:
            shown = " and ".join(str(one) for one in dtypes)
            raise self.refuse(f"`{SYMBOLS[self.ufunc]}` does not take {shown}: {error}") from error

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        operands = self._operands(*inputs)
        shapes = [one.shape if isinstance(one, TensorSpec) else () for one in operands]
        shape = _broadcast(shapes, self)
        layout = next((one.layout for one in inputs if one.layout and one.ndim == len(shape or ())), "")
        dtypes = [one.dtype if isinstance(one, TensorSpec) else one for one in operands]
        if any(one is None for one in dtypes):
            return TensorSpec(None, shape, layout)
        return TensorSpec(self._dtypes(dtypes)[1], shape, layout)

    def run(self, sample: Sample, *inputs: Array) -> Array:
        return np.asarray(self._on_the_host(inputs))

    def _on_the_host(self, inputs: Sequence[Any]) -> Any:
        operands = self._operands(*inputs)
        name = self.ufunc
        if name in _COMPARISONS:
            return getattr(np, name)(*operands)
        dtypes = tuple([one.dtype for one in inputs])
        compute = self._computed_in.get(dtypes)
        if compute is None:
            compute = self._computed_in[dtypes] = self._dtypes(self._operands(*dtypes))[0]
        if name == "floor_divide" and compute.kind == "i":
            return _towards_zero(np, *(np.asarray(one, compute) for one in operands))
        ufunc = getattr(np, "fmod" if name == "remainder" else name)
        return ufunc(*operands, dtype=compute, casting="unsafe")

    def run_arrays(self, xp: Namespace, *inputs: Value) -> object:
        # Samples broadcast from the right, as arrays do: new axes follow the axis of samples.
        rank = max(array.ndim for array in inputs)
        wide = [xp.reshape(a, (a.shape[0],) + (1,) * (rank - a.ndim) + tuple(a.shape[1:])) for a in inputs]
        if xp is np:
            return self._on_the_host(wide)
        operands = self._operands(*wide)
        compute, result = self._dtypes([_numpy_dtype(one) for one in operands])
        if any(type(one) is int and compute.kind in "iu" and not _holds(compute, one) for one in operands):
            # A comparison with a number outside the dtype's range has the same result for all samples.
            zeros = [one if isinstance(one, int) else np.zeros((), compute) for one in operands]
            alike = xp.astype(xp.zeros_like(wide[0]), getattr(xp, result.name))
            return ~alike if getattr(np, self.ufunc)(*zeros) else alike
        dtype = getattr(xp, compute.name)
        operands = [xp.asarray(one, dtype=dtype) if isinstance(one, (bool, int, float)) else one for one in operands]
        operands = [xp.astype(one, dtype) for one in operands]
        if self.ufunc == "floor_divide":
            made = _towards_zero(xp, *operands)
        elif self.ufunc == "remainder":
            made = xp.fmod(*operands)
        else:
            made = getattr(xp, _ARRAY_API.get(self.ufunc, self.ufunc))(*operands)
        return xp.astype(made, getattr(xp, result.name))


@functools.lru_cache(maxsize=1024)
def _resolved(ufunc: str, dtypes: tuple[np.dtype, ...]) -> tuple[np.dtype, np.dtype]:
    """The dtypes of the computation and of the result; raises `TypeError` if no dtype fits."""
    compute = dtypes[0] if len(dtypes) == 1 else _promoted(*dtypes)
    if len(dtypes) == 2 and compute.kind == "b" and ufunc in _OF_NUMBERS:
        raise TypeError("cast one of the booleans to a number, or combine them with & | ^")
    if ufunc == "true_divide" and compute.kind != "f":
        compute = np.dtype(np.float32)
    if ufunc == "floor_divide" and compute.kind == "f":
        raise TypeError(
            "DALI divides floats here, and Python rounds down besides; write a / b, and fn.cast to an integer if whole "
            "numbers are meant"
        )
    resolved = getattr(np, ufunc).resolve_dtypes((*[compute] * len(dtypes), None))
    return compute, resolved[-1]


def _promoted(left: np.dtype, right: np.dtype) -> np.dtype:
    if left.kind == right.kind or "b" in left.kind + right.kind or "f" not in left.kind + right.kind:
        made: np.dtype = np.promote_types(left, right)
        # NumPy goes to float64 where no integer holds both: uint64 and a signed one.
        return np.dtype(np.int64) if made.kind == "f" and left.kind in "iu" and right.kind in "iu" else made
    return left if left.kind == "f" else right


def _dtype_of(value: Any) -> np.dtype:
    """The dtype that an operand counts as: `300` → int32, `0.5` → float32."""
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, float):
        return np.dtype(np.float32)
    if not isinstance(value, int):
        dtype: np.dtype = np.dtype(value)
        return dtype
    for integer in (np.dtype(np.int32), np.dtype(np.int64)):
        if _holds(integer, value):
            return integer
    raise OverflowError(f"{value} does not fit into int64")


def _towards_zero(xp: Namespace, left: Value, right: Value) -> Value:
    """Whole quotients, rounded towards zero: `-7` by `2` → `-3`."""
    return xp.floor_divide(left - xp.fmod(left, right), right)


def _holds(dtype: np.dtype, value: int) -> bool:
    limits = np.iinfo(dtype)
    return int(limits.min) <= value <= int(limits.max)


def _numpy_dtype(value: Value | float) -> np.dtype | float:
    if isinstance(value, (bool, int, float)):
        return value
    return np.dtype(str(value.dtype).removeprefix("torch."))


def _broadcast(shapes: Sequence[Any], operator: Operator) -> tuple[int | None, ...] | None:
    if any(shape is None for shape in shapes):
        return None
    rank = max(len(shape) for shape in shapes)
    made: list[int | None] = []
    for axis in range(rank):
        sizes = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {1}
        known = {size for size in sizes if size is not None}
        if len(known) > 1:
            raise operator.refuse(f"samples of shapes {' and '.join(map(str, shapes))} do not go together")
        made.append(known.pop() if known else (None if sizes else 1))
    return tuple(made)


# An item of a key: ("int", 3), ("slice", start, stop, step), ("newaxis",), ("ellipsis",). A data node as a number is
# written ("node", k): the operator's k-th input after the data.
Item = tuple[Any, ...]


class Subscript(Operator):
    """NumPy's basic indexing, sample by sample; bounds may be data nodes."""

    op_name = "subscript"
    inputs = ("data", "bounds")
    optional_inputs = 1
    variadic = True
    devices = ("cpu", "gpu")

    items = Constant("any", doc="the key")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        data, bounds = inputs[0], inputs[1:]
        for spec in bounds:
            if spec.ndim not in (None, 0) or (spec.dtype is not None and spec.dtype.kind not in "iu"):
                raise self.refuse(f"an index should be an integer scalar for each sample, got {spec}")
        if data.shape is None:
            return TensorSpec(data.dtype)
        shape: list[int | None] = []
        layout: list[str] = []
        named = len(data.layout) == len(data.shape)
        used = sum(item[0] not in ("newaxis", "ellipsis") for item in self.items)
        if used > len(data.shape):
            raise self.refuse(f"{used} indices are too many for samples of rank {len(data.shape)}, {data}")
        items = self.items if any(item[0] == "ellipsis" for item in self.items) else [*self.items, ("ellipsis",)]
        axis = 0
        for item in items:
            if item[0] == "newaxis":
                shape.append(1)
                named = named and len(item) > 1
                layout += item[1:]
            elif item[0] == "ellipsis":
                for _ in range(len(data.shape) - used):
                    shape.append(data.shape[axis])
                    layout += data.layout[axis : axis + 1]
                    axis += 1
            else:
                size = data.shape[axis]
                if item[0] == "slice":
                    known = size is not None and not any(isinstance(bound, tuple) for bound in item[1:])
                    shape.append(len(range(size)[slice(*item[1:])]) if known and size is not None else None)
                    layout += data.layout[axis : axis + 1]
                elif item[0] == "int" and size is not None and not -size <= item[1] < size:
                    raise self.refuse(f"the index {item[1]} lies outside axis {axis} of {data}")
                axis += 1
        return TensorSpec(data.dtype, tuple(shape), "".join(layout) if named else "")

    def run(self, sample: Sample, data: Array, *bounds: Array) -> Array:
        return np.asarray(data[self._key([int(bound) for bound in bounds])])

    def run_arrays(self, xp: Namespace, data: Any, *bounds: Any) -> object:
        if not bounds:
            if xp is np:
                return data[(slice(None),) + self._key([])]
            data, items = self._forwards(xp, data)
            return data[(slice(None),) + self._key_of(items, [])]
        picks = [item for item in self.items if item[0] == "node"]
        if len(picks) != len(bounds) or len(bounds) > 1 or xp is np:
            if xp is np:
                keys = zip(*(bound.tolist() for bound in bounds), strict=True)
                return [one[self._key(list(key))] for one, key in zip(data, keys, strict=True)]
            raise ValueError(
                "slices whose bounds are data nodes differ in size, which no device array does. Index before .gpu()."
            )
        # One index per sample: the axis is moved to the front, and each sample is indexed separately.
        at = self.items.index(picks[0])
        before = [item for item in self.items[:at] if item[0] != "newaxis"]
        if any(item[0] != "slice" or item[1:] != (None, None, None) for item in before):
            raise ValueError(
                "on a device, an index that is a data node stands first or after `:`. Index before .gpu()."
            )
        rest = self._key_of([("slice", None, None, None) for _ in before] + list(self.items[at + 1 :]), [])
        axis = 1 + len(before)
        index = bounds[0] + xp.where(bounds[0] < 0, data.shape[axis], 0)
        shape = (-1,) + (1,) * (data.ndim - 1)
        taken = xp.take_along_axis(data, xp.reshape(index, shape), axis=axis)
        return xp.squeeze(taken, axis=axis)[(slice(None),) + rest]

    def _forwards(self, xp: Namespace, data: Value) -> tuple[Value, list[Item]]:
        """Replaces slices with negative steps by indexing, because torch lacks them. Returns the data and the rest of
        the key."""
        items: list[Item] = []
        used = sum(item[0] not in ("newaxis", "ellipsis") for item in self.items)
        axis = 1
        for item in self.items:
            if item[0] == "slice" and (item[3] or 1) < 0:
                order = np.array(range(data.shape[axis])[slice(*item[1:])], np.int32)
                data = xp.take(data, xp.asarray(order), axis=axis)
                item = ("slice", None, None, None)
            axis += data.ndim - 1 - used if item[0] == "ellipsis" else item[0] != "newaxis"
            items.append(item)
        return data, items

    def _key(self, bounds: list[int]) -> tuple[Any, ...]:
        return self._key_of(self.items, bounds)

    def _key_of(self, items: Iterable[Item], bounds: list[int]) -> tuple[Any, ...]:
        def number(value: object) -> object:
            return bounds[value[1]] if isinstance(value, tuple) else value

        key: list[EllipsisType | slice | int | None] = []
        for item in items:
            if item[0] == "int":
                key.append(item[1])
            elif item[0] == "node":
                key.append(bounds[item[1]])
            elif item[0] == "slice":
                key.append(slice(*map(number, item[1:])))
            else:
                key.append(None if item[0] == "newaxis" else Ellipsis)
        return tuple(key)
