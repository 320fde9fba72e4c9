"""Expressions over data nodes: NumPy's ufuncs, sample by sample, with NumPy's promotion of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.errors import InferenceError
from beam_pipes.graph.argument import Constant
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.graph.user_frame import user_frame

_SYMBOLS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "true_divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "negative": "-",
    "positive": "+",
    "absolute": "abs",
    "invert": "~",
}

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

# Names in the array API, which JAX has and `array_api_compat` gives torch.
_ARRAY_API = {"true_divide": "divide", "absolute": "abs", "power": "pow"} | {
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "invert": "bitwise_invert",
}


class Arithmetic(Operator):
    """One ufunc over one or two inputs; a Python number among them takes part weakly, as in NumPy 2."""

    op_name = "arithmetic"
    inputs = ("left", "right")
    optional_inputs = 1
    devices = ("cpu", "gpu")

    ufunc = Constant("str", doc="the name of a ufunc of NumPy")
    left = Constant("any", default=None, doc="a Python number on the left")
    right = Constant("any", default=None, doc="a Python number on the right")

    def _operands(self, *inputs: Any) -> list[Any]:
        if self.left is not None:
            return [self.left, *inputs]
        return [*inputs, self.right] if self.right is not None else list(inputs)

    def _dtypes(self, dtypes: list[Any]) -> tuple[Any, Any]:
        """The dtype that operands are computed in, and that of the result."""
        ufunc = getattr(np, self.ufunc)
        operands = [one if isinstance(one, (bool, int, float)) else np.zeros((), one) for one in dtypes]
        # A Python boolean is a boolean of NumPy; integers and floats are weak.
        weak = [type(one) if type(one) in (int, float) else np.asarray(one).dtype for one in operands]
        try:
            resolved = ufunc.resolve_dtypes((*weak, None))
            for one in operands:
                if type(one) is int and resolved[0].kind in "iu" and self.ufunc not in _COMPARISONS:
                    resolved[0].type(one)  # refuses integers that do not fit
        except (TypeError, OverflowError) as error:
            shown = " and ".join(str(one) for one in dtypes)
            raise self.refuse(f"`{_SYMBOLS[self.ufunc]}` does not take {shown}: {error}") from error
        return resolved[0], resolved[-1]

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        operands = self._operands(*inputs)
        shapes = [one.shape if isinstance(one, TensorSpec) else () for one in operands]
        shape = _broadcast(shapes, self)
        layout = next((one.layout for one in inputs if one.layout and one.ndim == len(shape or ())), "")
        dtypes = [one.dtype if isinstance(one, TensorSpec) else one for one in operands]
        if any(one is None for one in dtypes):
            return TensorSpec(None, shape, layout)
        return TensorSpec(self._dtypes(dtypes)[1], shape, layout)

    def run(self, sample: Any, *inputs: Any) -> Any:
        return np.asarray(getattr(np, self.ufunc)(*self._operands(*inputs)))

    def run_arrays(self, xp: Any, *inputs: Any) -> Any:
        # Samples broadcast from the right, as arrays do: new axes go behind the one that counts samples.
        rank = max(array.ndim for array in inputs)
        wide = [xp.reshape(a, (a.shape[0],) + (1,) * (rank - a.ndim) + tuple(a.shape[1:])) for a in inputs]
        operands = self._operands(*wide)
        if xp is np:
            return getattr(np, self.ufunc)(*operands)
        compute, result = self._dtypes([_numpy_dtype(one) for one in operands])
        if any(type(one) is int and compute.kind in "iu" and not _holds(compute, one) for one in operands):
            # A comparison with a number that no sample can be: all samples compare alike.
            zeros = [one if isinstance(one, int) else np.zeros((), compute) for one in operands]
            alike = xp.astype(xp.zeros_like(wide[0]), getattr(xp, result.name))
            return ~alike if getattr(np, self.ufunc)(*zeros) else alike
        if self.ufunc != "true_divide" or compute.kind == "f":
            dtype = getattr(xp, compute.name)
            operands = [
                xp.asarray(one, dtype=dtype) if isinstance(one, (bool, int, float)) else one for one in operands
            ]
            operands = [xp.astype(one, dtype) for one in operands]
        name = _ARRAY_API.get(self.ufunc, self.ufunc)
        made = getattr(xp, name)(*operands)
        return xp.astype(made, getattr(xp, result.name))


def _holds(dtype: Any, value: int) -> bool:
    limits = np.iinfo(dtype)
    return int(limits.min) <= value <= int(limits.max)


def _numpy_dtype(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    return np.dtype(str(value.dtype).removeprefix("torch."))


def _broadcast(shapes: list[Any], operator: Operator) -> tuple[int | None, ...] | None:
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


def arithmetic(ufunc: str, *operands: Any) -> DataNode:
    """The data node of an expression."""
    from beam_pipes.graph.trace import call, located

    keywords: dict[str, Any] = {"ufunc": ufunc}
    nodes = []
    for side, value in zip(("left", "right"), operands, strict=False):
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            keywords[side] = value
        else:
            nodes.append(value)
    for value in nodes:
        if not isinstance(value, (DataNode, np.ndarray, np.generic)) and not hasattr(value, "__dlpack__"):
            raise located(
                InferenceError(
                    f"`{_SYMBOLS[ufunc]}` combines data nodes, arrays and numbers, got {type(value).__name__}: "
                    f"{value!r:.60}."
                ),
                user_frame(),
            )
    return call(Arithmetic, nodes, keywords)  # type: ignore[no-any-return]
