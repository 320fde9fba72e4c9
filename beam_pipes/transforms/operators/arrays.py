"""Operators over any array: `cast`, `reshape`, `reinterpret` and `math.*`; axes by number or by name in a layout.

`cast` converts as DALI does: rounded, and clamped to the range of the dtype.

`math.*` are the functions of DALI's `math`, element by element, for samples that broadcast. Operands are promoted as in
expressions (`math.max(uint8, 3)` is int32, as the number 3 is); functions of real numbers, `floor` and `ceil` among
them, give float32 for integers.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final, overload

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import MissingExtraError
from beam_pipes.extras import require
from beam_pipes.graph.operator import Argument, Constant, Device, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, Row, Value

#: A constant of two numbers above 0.
positive_range = functools.partial(Constant, "floats", above=0, sizes=(2,), ascending=True)


def known_axes(
    operator: Operator, spec: TensorSpec, axes: Sequence[int] | None, axis_names: str | None
) -> tuple[int, ...] | None:
    """The selected axes, counted from 0; None for all, or if they depend on the sample.

    Raises `InferenceError` if the layout lacks a name, or the rank an axis.
    """
    if axis_names is not None:
        if not spec.layout:
            raise operator.refuse(f"axis_names={axis_names!r} needs samples with a layout, got {spec}")
        return axes_in(operator, spec.layout, axis_names)
    if axes is None:
        return None
    if spec.ndim is None:
        return tuple(int(axis) for axis in axes)
    return positive_axes(operator, axes, spec.ndim)


def axes_in(operator: Operator, layout: str, names: str) -> tuple[int, ...]:
    """`axes_in(…, "HWC", "WH")` → (1, 0)."""
    for name in names:
        if name not in layout:
            raise operator.refuse(f"the layout {layout!r} has no axis {name!r}")
    return tuple(layout.index(name) for name in names)


def positive_axes(operator: Operator, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Axes counted from 0; raises `InferenceError` for one that does not exist or is named twice."""
    found = []
    for axis in axes:
        if not -ndim <= axis < ndim:
            raise operator.refuse(f"axis {axis} is out of range for samples of rank {ndim}")
        found.append(int(axis) % ndim)
    if len(set(found)) != len(found):
        raise operator.refuse(f"the axes {list(map(int, axes))} name one of them twice")
    return tuple(found)


def dtype_of(array: Value) -> np.dtype:
    """The NumPy dtype of an array of NumPy, JAX or torch."""
    return np.dtype(str(array.dtype).rpartition(".")[2])


@overload
def cast_to(xp: ModuleType, array: Value, dtype: np.dtype) -> Array: ...
@overload
def cast_to(xp: Namespace, array: Value, dtype: np.dtype) -> Value: ...


def cast_to(xp: Any, array: Any, dtype: np.dtype) -> Any:
    """`astype` in any namespace: fractions are cut off, integers wrap around."""
    return array.astype(dtype, copy=False) if xp is np else xp.astype(array, getattr(xp, dtype.name))


def placed_like(xp: Namespace, array: np.ndarray, like: Value) -> Value:
    """A NumPy array as one of the namespace, on the device of `like`."""
    return xp.asarray(array, device=like.device) if hasattr(like, "detach") else xp.asarray(array)


@functools.cache
def opencv() -> Any:
    """OpenCV, or None: for operations that NumPy can also do, several times more slowly."""
    try:
        return require("cv2", purpose="fn")
    except MissingExtraError:
        return None


#: Bytes up to which a thread keeps memory for its next sample: fresh pages cost as much as simple arithmetic.
MOST_SCRATCH_BYTES: Final = 1 << 22


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def fingerprint_config(self) -> dict[str, object]:
        """Empty: the kept tables do not affect results, so caches do not become stale."""
        return {}


_kept = _Kept()


def scratch(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """An uninitialised array of this thread, shared with later callers that use the same `name`."""
    size = math.prod(shape)
    if size * np.dtype(dtype).itemsize > MOST_SCRATCH_BYTES:
        return np.empty(shape, dtype)
    found = _kept.arrays.get(name)
    if found is None or len(found) < size:
        found = _kept.arrays[name] = np.empty(size, dtype)
    return np.reshape(found[:size], shape)


@overload
def saturated(xp: ModuleType, values: npt.ArrayLike, dtype: np.dtype) -> Array: ...
@overload
def saturated(xp: Namespace, values: Value, dtype: np.dtype) -> Value: ...


def saturated(xp: Any, values: Any, dtype: np.dtype) -> Any:
    """Values as `dtype`: `[-3, 0.5, 2.5, 300, nan]` → uint8 `[0, 1, 3, 255, 0]`.

    Fractions are rounded, halves away from zero; values outside the dtype are clamped; NaN is zero as an integer. As
    bool, anything that does not round to zero is true.
    """
    found = dtype_of(values)
    if found == dtype:
        return values
    if dtype == np.bool_:
        return values != 0 if found.kind != "f" else xp.abs(values) >= 0.5
    if dtype.kind == "f" or found == np.bool_:
        return cast_to(xp, values, dtype)
    bounds = np.iinfo(dtype)
    if found.kind in "iu":
        own = np.iinfo(found)
        low, high = max(bounds.min, own.min), min(bounds.max, own.max)
        return cast_to(xp, xp.clip(values, low, high), dtype)
    if xp is np and dtype.itemsize <= 2 and found.itemsize >= 4:
        # Few passes over memory; the float just below a half is the only value that the sum rounds up wrongly.
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


def value_range(dtype: np.dtype) -> float:
    """The largest value of an integer dtype, 1 for floats and bool: the equivalent of `1.0`."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


class Mapped(Operator):
    """An operator whose output has the shape of its first input, and the dtype `dtype` if given."""

    inputs: ClassVar[tuple[str, ...]] = ("data",)
    dtype: Any = None

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0] if self.dtype is None else inputs[0].replace(dtype=self.dtype)


class Cast(Mapped):
    """Converts samples to another dtype: fractions are rounded, and values that do not fit are clamped.

    `cast([-3, 0.5, 2.4, 300], dtype=types.UINT8)` → `[0, 1, 2, 255]`
    """

    devices = ("cpu", "gpu")
    version = "3"
    dtype = Constant("dtype", doc="the dtype to convert to")

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        return saturated(xp, data, self.dtype)


class Reshape(Operator):
    """Gives samples another shape; the order of their elements stays.

    `reshape([[1, 2, 3], [4, 5, 6]], shape=[3, -1])` → `[[1, 2], [3, 4], [5, 6]]`

    `rel_shape` multiplies extents instead: `[0.5, 2]` makes 2×3 to 1×6. `src_dims=[1, 0]` says which extent of the
    input becomes which of the output; -1 there is a new axis of 1. An extent of -1 is inferred. The shape
    may also come as a second input, on the host.
    """

    inputs = ("data", "shape_input")
    optional_inputs = 1
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "gpu")
    shape = Argument("ints", default=None, doc="extents of the output; one may be -1", static=True, least=-1)
    rel_shape = Argument("floats", default=None, doc="extents of the output relative to the input", static=True)
    src_dims = Constant("ints", default=None, doc="source axes of the input; -1 for a new axis of 1")
    layout = Constant("str", default=None, doc="names of the axes; those of the input if the rank is unchanged")

    exclusive = (("shape", "rel_shape"),)

    def check(self) -> None:
        shape = self.constants.get("shape")
        if shape is not None and sum(shape == -1) > 1:
            raise self.argument_error(f"shape should hold at most one -1, got {shape.tolist()}.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if len(inputs) > 1:
            dims = inputs[1].shape
            found = TensorSpec.of_rank(spec.dtype, dims[0] if dims else None)
        elif "shape" in self.constants and "rel_shape" in self.constants:
            if not any(map(self.is_given, ("shape", "rel_shape", "src_dims", "layout"))):
                raise self.refuse("give shape, rel_shape, src_dims, layout or a second input")
            found = TensorSpec(spec.dtype, self._known_shape(spec))
        else:
            found = TensorSpec(spec.dtype)
        return found.replace(layout=self._layout(spec, found.ndim))

    def _known_shape(self, spec: TensorSpec) -> tuple[int | None, ...] | None:
        if spec.shape is not None and None not in spec.shape:
            extents = [int(extent) for extent in spec.shape if extent is not None]
            try:
                return self._shape_of(extents, self.constants["shape"], self.constants["rel_shape"])
            except ValueError as error:
                raise self.refuse(str(error)) from error
        if self.constants["shape"] is not None:
            return tuple(None if extent == -1 else int(extent) for extent in self.constants["shape"])
        wanted = self.constants["rel_shape"] if self.constants["rel_shape"] is not None else self.src_dims
        return spec.shape if wanted is None else (None,) * len(wanted)

    def _layout(self, spec: TensorSpec, ndim: int | None) -> str:
        if self.layout is not None:
            if ndim is not None and len(self.layout) != ndim:
                raise self.refuse(f"layout={self.layout!r} names {len(self.layout)} axes, and the output has {ndim}")
            return str(self.layout)
        return spec.layout if ndim is not None and ndim == spec.ndim else ""

    def _shape_of(self, extents: Sequence[int], shape: Row | None, rel_shape: Row | None) -> tuple[int, ...]:
        """The shape of one output."""
        size = math.prod(extents)
        if shape is not None:
            wanted = [int(extent) for extent in shape]
        else:
            source = list(range(len(extents))) if self.src_dims is None else [int(dim) for dim in self.src_dims]
            if rel_shape is not None and self.src_dims is None:
                source = source[: len(rel_shape)] + [-1] * (len(rel_shape) - len(extents))
            if any(not -1 <= dim < len(extents) for dim in source):
                raise ValueError(f"src_dims={source} should name axes of samples of rank {len(extents)}, or -1")
            wanted = [1 if dim < 0 else extents[dim] for dim in source]
            if rel_shape is not None:
                if len(rel_shape) != len(wanted):
                    raise ValueError(f"rel_shape has {len(rel_shape)} numbers, and src_dims {len(wanted)}")
                wanted = [
                    -1 if factor < 0 else round(extent * factor)
                    for extent, factor in zip(wanted, map(float, rel_shape), strict=True)
                ]
        if -1 in wanted:
            rest = math.prod(extent for extent in wanted if extent != -1)
            if rest and size % rest == 0:
                wanted = [size // rest if extent == -1 else extent for extent in wanted]
        if math.prod(wanted) != size or -1 in wanted:
            raise ValueError(f"{size} elements of shape {tuple(extents)} do not make shape {tuple(wanted)}")
        return tuple(wanted)

    def run(
        self, sample: Sample, data: Array, shape_input: Array | None = None, *, shape: Row | None, rel_shape: Row | None
    ) -> Array:
        return data.reshape(self._shape_of(data.shape, shape if shape_input is None else shape_input, rel_shape))

    def run_arrays(
        self, xp: Namespace, data: Value, shape_input: Value | None = None, *, shape: Row | None, rel_shape: Row | None
    ) -> Value:
        if shape_input is not None:
            raise ValueError("on the device the shape should be given as shape=, computed on the host")
        return xp.reshape(data, (data.shape[0], *self._shape_of(data.shape[1:], shape, rel_shape)))


class Reinterpret(Reshape):
    """Interprets the bytes of samples as elements of another dtype (little-endian), optionally with another shape.

    `reinterpret([1, 0, 2, 1], dtype=types.UINT16)` → `[1, 258]`

    Without a shape, the last extent changes: 4 bytes make 2 elements of 2 bytes.
    """

    devices = ("cpu",)
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        dtype = spec.dtype if self.dtype is None else self.dtype
        if spec.shape is not None and spec.dtype is not None and dtype is not None and spec.dtype != dtype:
            if not spec.shape:
                raise self.refuse("a scalar has no extent that could change with the dtype")
            last = spec.shape[-1]
            if last is not None:
                last, rest = divmod(last * spec.dtype.itemsize, dtype.itemsize)
                if rest:
                    raise self.refuse(f"{spec} does not make whole elements of {dtype}")
            spec = spec.replace(shape=(*spec.shape[:-1], last))
        spec = spec.replace(dtype=dtype)
        given = len(inputs) > 1 or any(map(self.is_given, ("shape", "rel_shape", "src_dims", "layout")))
        return super().infer(spec, *inputs[1:]) if given else spec

    def run(
        self, sample: Sample, data: Array, shape_input: Array | None = None, *, shape: Row | None, rel_shape: Row | None
    ) -> Array:
        seen: Array = self._seen(data)
        if shape_input is None and shape is None and rel_shape is None and self.src_dims is None:
            return seen
        return super().run(sample, seen, shape_input, shape=shape, rel_shape=rel_shape)

    def run_arrays(
        self, xp: Namespace, data: Value, *shapes: Value | None, shape: Row | None, rel_shape: Row | None
    ) -> Value:
        seen: Array = self._seen(data)
        if not shapes and shape is None and rel_shape is None and self.src_dims is None:
            return seen
        return super().run_arrays(np, seen, *shapes, shape=shape, rel_shape=rel_shape)

    def _seen(self, data: Any) -> Any:
        if self.dtype is None or data.dtype == self.dtype:
            return data
        if data.ndim == 0 or data.shape[-1] * data.itemsize % self.dtype.itemsize:
            raise ValueError(f"{data.dtype} of shape {data.shape} does not make whole elements of {self.dtype}")
        return np.ascontiguousarray(data).view(self.dtype)


class Elementwise(Operator):
    """A function of numbers, element by element."""

    devices = ("cpu", "gpu")
    #: The computation, from the namespace and operands of one dtype.
    function: ClassVar[Callable[..., Value]]
    keeps_integers: ClassVar[bool] = False

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        shapes = [spec.shape for spec in inputs]
        layout = max((spec.layout for spec in inputs), key=len)
        dtypes = [spec.dtype for spec in inputs if spec.dtype is not None]
        dtype = self._dtype(dtypes) if len(dtypes) == len(inputs) else None
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            return TensorSpec(dtype, None, layout)
        if any(None in shape for shape in known):
            return TensorSpec.of_rank(dtype, max(map(len, known)), layout)
        try:
            shape = np.broadcast_shapes(*[tuple(extent or 0 for extent in shape) for shape in known])
        except ValueError:
            raise self.refuse(f"samples of shapes {' and '.join(map(str, known))} do not go together") from None
        return TensorSpec(dtype, shape, layout)

    def _dtype(self, dtypes: Sequence[np.dtype]) -> np.dtype:
        floats = [dtype for dtype in dtypes if dtype.kind == "f"]
        if floats:
            return np.result_type(*floats)
        if not self.keeps_integers:
            return np.dtype(np.float32)
        made = np.result_type(*dtypes)
        return np.dtype(np.int64) if made.kind == "f" else made

    def run_arrays(self, xp: Namespace, *operands: Value) -> Value:
        rank = max(array.ndim for array in operands)
        wide = [xp.reshape(a, (a.shape[0],) + (1,) * (rank - a.ndim) + tuple(a.shape[1:])) for a in operands]
        dtype = self._dtype([dtype_of(array) for array in operands])
        with np.errstate(all="ignore"):
            return type(self).function(xp, *[cast_to(xp, array, dtype) for array in wide])


def _power(xp: Namespace, base: Value, exponent: Value) -> Value:
    if dtype_of(base).kind != "i":
        return xp.pow(base, exponent)
    # As in DALI: an integer to a negative power is 0.
    made = xp.pow(base, xp.where(exponent < 0, xp.zeros_like(exponent), exponent))
    return xp.where(exponent < 0, xp.zeros_like(made), made)


def _cubic_root(xp: Namespace, x: Value) -> Value:
    return xp.cbrt(x) if hasattr(xp, "cbrt") else xp.sign(x) * xp.abs(x) ** (1 / 3)


def _function(name: str, inputs: str, words: str, function: Callable[..., Value], *, keeps: bool = False) -> None:
    """Declares the class of `math.<name>`."""
    example = f"`{name}({inputs.replace(' ', ', ')})`: {words}, element by element."
    members = {"__doc__": example, "__module__": __name__, "inputs": tuple(inputs.split())}
    title = name.title()
    globals()[title] = type(
        title, (Elementwise,), {**members, "function": staticmethod(function), "keeps_integers": keeps}
    )


for _name, _words in {
    **{"sqrt": "the square root", "exp": "e to the power of x", "floor": "the next lower whole number"},
    **{"ceil": "the next higher whole number", "log": "the natural logarithm", "log2": "the logarithm to base 2"},
    **{"log10": "the logarithm to base 10", "sin": "the sine", "cos": "the cosine", "tan": "the tangent"},
    **{"asin": "the arcsine", "acos": "the arccosine", "atan": "the arctangent", "sinh": "the hyperbolic sine"},
    **{"cosh": "the hyperbolic cosine", "tanh": "the hyperbolic tangent", "asinh": "the inverse hyperbolic sine"},
    **{"acosh": "the inverse hyperbolic cosine", "atanh": "the inverse hyperbolic tangent"},
}.items():
    _function(_name, "x", _words, lambda xp, x, name=_name: getattr(xp, name)(x))
_function("abs", "x", "the absolute value, in the dtype of x", lambda xp, x: xp.abs(x), keeps=True)
_function("fabs", "x", "the absolute value as a float", lambda xp, x: xp.abs(x))
_function("rsqrt", "x", "1 divided by the square root", lambda xp, x: 1 / xp.sqrt(x))
_function("cbrt", "x", "the cubic root", _cubic_root)
_function("min", "left right", "the lesser number", lambda xp, a, b: xp.where(b < a, b, a), keeps=True)
_function("max", "left right", "the greater number", lambda xp, a, b: xp.where(b > a, b, a), keeps=True)
_function("pow", "base exponent", "the power; integers stay integers", _power, keeps=True)
_function("fpow", "base exponent", "the power as a float", lambda xp, a, b: xp.pow(a, b))
_function("atan2", "y x", "the angle of the point (x, y) in radians", lambda xp, a, b: xp.atan2(a, b))
_function(
    "clamp",
    "value low high",
    "the value, held between low and high",
    lambda xp, a, low, high: xp.where(xp.where(a < low, low, a) > high, high, xp.where(a < low, low, a)),
    keeps=True,
)
