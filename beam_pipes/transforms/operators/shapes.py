"""Operators that move or create elements without computing any.

`transpose`, `squeeze`, `expand_dims` and `element_extract` rearrange axes; `zeros`, `ones`, `full` and their `_like`
fill shapes; `copy`, `cast_like`, `shapes`, `get_property` and `lookup_table` are for samples of any kind;
`permute_batch` and `batch_permutation` exchange the samples of a batch. `io.file.read` and `decoders.numpy` read files
and arrays.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.checks import exclusive
from beam_pipes.graph.basic import ShapeOf
from beam_pipes.graph.operator import Argument, Constant, Device, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, TensorList, Value
from beam_pipes.transforms.operators.arrays import Mapped, dtype_of, known_axes, positive_axes, saturated

_BOTH: tuple[Device, ...] = ("cpu", "gpu")


class Transpose(Operator):
    """Puts axes in another order: `perm[i]` is the axis of the input that becomes axis i; by default they are reversed.

    `transpose([[1, 2, 3], [4, 5, 6]], perm=[1, 0])` → `[[1, 4], [2, 5], [3, 6]]`
    """

    inputs = ("data",)
    devices = _BOTH
    perm = Constant("ints", default=None, doc="the order of the axes; reversed by default")
    transpose_layout = Constant("bool", default=True, doc="whether names of axes move with them")
    output_layout = Constant("str", default=None, doc="names of the axes of the output; it moves nothing")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._order: tuple[int, ...] | None = None
        if self.perm is not None:
            self._order = tuple(map(int, self.perm))
            if sorted(self._order) != list(range(spec.ndim if spec.ndim is not None else len(self._order))):
                raise self.refuse(f"perm should hold every axis of {spec} once, got {self.perm.tolist()}")
        if spec.shape is None:
            return TensorSpec(spec.dtype, None, self.output_layout or "")
        order = self._axes(len(spec.shape))
        moved = "".join(spec.layout[axis] for axis in order) if spec.layout and self.transpose_layout else ""
        unmoved = "" if self.transpose_layout else spec.layout
        return TensorSpec(spec.dtype, tuple(spec.shape[axis] for axis in order), self.output_layout or moved or unmoved)

    def _axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(reversed(range(ndim))) if self._order is None else self._order

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        return xp.permute_dims(data, (0, *(1 + axis for axis in self._axes(data.ndim - 1))))


class Squeeze(Operator):
    """Removes axes of extent 1: `squeeze([[[1, 2]]], axes=[0, 1])` → `[1, 2]`."""

    inputs = ("data",)
    devices = _BOTH
    axes = Constant("ints", default=None, doc="the axes to remove")
    axis_names = Constant("str", default=None, doc="the same by name")

    def check(self) -> None:
        given = {"axes": self.axes, "axis_names": self.axis_names}
        exclusive(given, needed=True, error=self.argument_error)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._gone = known_axes(self, spec, self.axes, self.axis_names) or ()
        if spec.shape is None:
            return TensorSpec(spec.dtype)
        for axis in self._gone:
            if spec.shape[axis] not in (1, None):
                raise self.refuse(f"axis {axis} of {spec} has an extent of {spec.shape[axis]}, and only 1 can go")
        left = [axis for axis in range(len(spec.shape)) if axis not in self._gone]
        layout = "".join(spec.layout[axis] for axis in left) if spec.layout else ""
        return TensorSpec(spec.dtype, tuple(spec.shape[axis] for axis in left), layout)

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        return xp.squeeze(data, axis=tuple(1 + axis for axis in positive_axes(self, self._gone, data.ndim - 1)))


class ExpandDims(Operator):
    """Inserts axes of extent 1 at `axes` of the output: `expand_dims([1, 2], axes=[0, 2])` → `[[[1], [2]]]`."""

    inputs = ("data",)
    devices = _BOTH
    axes = Constant("ints", doc="positions of the new axes in the output")
    new_axis_names = Constant("str", default="", doc="their names, if samples have a layout")

    def check(self) -> None:
        if self.new_axis_names and len(self.new_axis_names) != len(self.axes):
            raise self.argument_error(
                f"new_axis_names should name {len(self.axes)} axes, one letter each, got {self.new_axis_names!r}."
            )

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.shape is None:
            return TensorSpec(spec.dtype)
        added = positive_axes(self, self.axes, len(spec.shape) + len(self.axes))
        shape, layout = list(spec.shape), list(spec.layout)
        for axis, name in sorted(zip(added, self.new_axis_names or " " * len(added), strict=True)):
            shape.insert(axis, 1)
            layout.insert(axis, name)
        named = self.new_axis_names and (spec.layout or not spec.shape)
        return TensorSpec(spec.dtype, tuple(shape), "".join(layout) if named else "")

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        added = positive_axes(self, self.axes, data.ndim - 1 + len(self.axes))
        shape = list(data.shape[1:])
        for axis in sorted(added):
            shape.insert(axis, 1)
        return xp.reshape(data, (data.shape[0], *shape))


class ElementExtract(Operator):
    """Elements along the first axis, one per output: `element_extract([[1, 2], [3, 4]], element_map=[1, 0])` → `[3, 4]`
    and `[1, 2]`.
    """

    inputs = ("data",)
    devices = _BOTH
    element_map = Constant("ints", doc="which elements are taken, counted from 0")

    def output_count(self) -> int:
        return len(self.element_map)

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        spec = inputs[0]
        if spec.shape is None:
            return [TensorSpec(spec.dtype)] * len(self.element_map)
        extent = spec.shape[0] if spec.shape else 0
        if any(not 0 <= at < (at + 1 if extent is None else extent) for at in map(int, self.element_map)):
            raise self.refuse(f"element_map={self.element_map.tolist()} should count elements of {spec}")
        return [TensorSpec(spec.dtype, spec.shape[1:], spec.layout[1:])] * len(self.element_map)

    def run_arrays(self, xp: Namespace, data: Value) -> Value | tuple[Value, ...]:
        made = tuple(data[:, int(at)] for at in self.element_map)
        return made if len(made) > 1 else made[0]


class Copy(Mapped):
    """A copy of the samples: `copy([1, 2])` → `[1, 2]`."""

    devices = _BOTH

    def run_arrays(self, xp: Namespace, data: Any) -> Value:
        return data.copy() if xp is np else xp.asarray(data, copy=True)


class Shapes(ShapeOf):
    """The shape of every sample, as `node.shape()` gives it: `shapes([[1, 2, 3]])` → `[1, 3]`."""


class CastLike(Operator):
    """Converts samples to the dtype of another input, as `cast` does: `cast_like([1.5, 300], uint8)` → `[2, 255]`."""

    inputs = ("data", "dtype_like")
    devices = _BOTH

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0].replace(dtype=inputs[1].dtype)

    def run_arrays(self, xp: Namespace, data: Value, dtype_like: Value) -> Value:
        return saturated(xp, data, dtype_of(dtype_like))


class Full(Operator):
    """Samples of `shape` that are `fill_value` everywhere: `full(7, shape=[2])` → `[7, 7]`; it may be an array of the
    last extents: `full([1, 2], shape=[3, 2])`.
    """

    inputs: ClassVar[tuple[str, ...]] = ("fill_value",)
    shape = Argument("ints", default=None, doc="the shape of each sample; that of the value by default")
    layout = Constant("str", default=None, doc="names of the axes")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        shape = inputs[0].shape
        if self.constants.get("shape", 0) is not None:
            shape = tuple(map(int, self.constants["shape"])) if "shape" in self.constants else None
        return TensorSpec(inputs[0].dtype, shape, self.layout or "")

    def run_batch(self, samples: Samples, value: TensorList, *, shape: Sequence[Array] | None) -> TensorList:
        shapes = [one.shape for one in value] if shape is None else [tuple(map(int, one)) for one in shape]
        return TensorList([np.broadcast_to(one, size).copy() for one, size in zip(value, shapes, strict=True)])


class Zeros(Full):
    """Samples of `shape` that are 0 everywhere: `zeros(shape=[2])` → `[0, 0]`."""

    inputs: ClassVar[tuple[str, ...]] = ()
    dtype = Constant("dtype", default="int32", doc="the dtype of the output")
    number: ClassVar[int] = 0

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return super().infer(TensorSpec(self.dtype, ()))

    def run_batch(self, samples: Samples, *values: TensorList, shape: Sequence[Array] | None) -> TensorList:
        value = np.full(len(samples), self.number, self.dtype)
        return super().run_batch(samples, TensorList(value), shape=shape)


class Ones(Zeros):
    """Samples of `shape` that are 1 everywhere: `ones(shape=[2])` → `[1, 1]`."""

    number = 1


class FullLike(Mapped):
    """Samples of the shape and dtype of `data` that are `fill_value`: `full_like([[1], [2]], 7)` → `[[7], [7]]`."""

    inputs: ClassVar[tuple[str, ...]] = ("data", "fill_value")

    def run(self, sample: Sample, data: Array, fill_value: Array) -> object:
        return np.broadcast_to(saturated(np, fill_value, data.dtype), data.shape).copy()


class ZerosLike(Mapped):
    """Samples of the shape of `data` that are 0 everywhere: `zeros_like([[1], [2]])` → `[[0], [0]]`."""

    number: ClassVar[int] = 0
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def run(self, sample: Sample, data: Array) -> Array:
        return np.full(data.shape, self.number, data.dtype if self.dtype is None else self.dtype)


class OnesLike(ZerosLike):
    """Samples of the shape of `data` that are 1 everywhere: `ones_like([[5], [6]])` → `[[1], [1]]`."""

    number = 1


class GetProperty(Operator):
    """A property of samples, as bytes: the record that they come from, or their layout.

    `get_property(images, key="layout")` → the bytes of "HWC"
    """

    inputs = ("data",)
    key = Constant("str", doc="'source_info', such as cats/1.jpg@0, or 'layout'", choices=("source_info", "layout"))

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = inputs[0].layout
        return TensorSpec.of("uint8", (None,))

    def run(self, sample: Sample, data: Array) -> Array:
        return np.frombuffer((self._layout if self.key == "layout" else sample.record_id).encode(), np.uint8)


class LookupTable(Operator):
    """Replaces each integer by the value of its key: `lookup_table([1, 3, 9], keys=[1, 3], values=[10, 30])` →
    `[10, 30, 0]`.
    """

    inputs = ("data",)
    keys = Constant("ints", default=(), doc="integers that are looked up", least=0, most=0xFFFF)
    values = Constant("floats", default=(), doc="the values that replace them")
    default_value = Constant("float", default=0.0, doc="the value that replaces all other integers")
    dtype = Constant("dtype", default="float32", doc="the dtype of the output")

    def check(self) -> None:
        if len(self.keys) != len(self.values):
            raise self.argument_error(f"got {len(self.keys)} keys and {len(self.values)} values: give as many.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self.expect(inputs[0], "integers", kinds="iu")
        table = np.full(int(max(self.keys, default=-1)) + 2, self.default_value)
        table[self.keys] = self.values
        self._table = saturated(np, table, self.dtype)
        return inputs[0].replace(dtype=self.dtype)

    def run_arrays(self, xp: Namespace, data: Value) -> object:
        most = len(self._table) - 1  # the index of the default
        return self._table[np.where((data < 0) | (data > most), most, data).astype(np.int64)]


class PermuteBatch(Mapped):
    """Sample i of the output is sample `indices[i]` of the batch: `permute_batch(images, indices=[2, 0, 1])`."""

    indices = Argument("ints", doc="a list with a number for each sample of the batch, or one number per sample")
    mixes_samples = True

    def run_batch(self, samples: Samples, data: TensorList, *, indices: Array) -> TensorList:
        chosen = np.asarray(self.constants.get("indices", indices)).reshape(-1)
        if len(chosen) != len(data) or any((chosen < 0) | (chosen >= len(data))):
            raise ValueError(f"indices should be {len(data)} places in the batch, got {chosen.tolist()}")
        return data.take(chosen)


class BatchPermutation(Operator):
    """For each sample, the number of a sample of the batch, for `permute_batch`: `batch_permutation()` → `2, 0, 1`.

    The permutation depends on the records of the batch and the seed.
    """

    random = True
    mixes_samples = True
    allow_repetitions = Constant("bool", default=False, doc="whether a sample may occur more than once")
    no_fixed_points = Constant("bool", default=False, doc="whether no sample gets its own number")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec.of("int32", ())

    def run_batch(self, samples: Samples) -> TensorList:
        count, own = len(samples), np.arange(len(samples))
        if self.allow_repetitions:
            shift = samples.integers(1, max(count - 1, 1))[:, 0] + 1 if self.no_fixed_points else None
            made = samples.integers(1, count)[:, 0] if shift is None else (own + shift) % max(count, 1)
        else:
            order = np.argsort(samples.bits(1)[:, 0], kind="stable")
            made = order
            if self.no_fixed_points:
                made = np.empty_like(order)
                made[order] = np.roll(order, 1)  # one cycle through all of them
        return TensorList(made.astype(np.int32))


class Read(Operator):
    """The bytes of the files whose names are given as bytes: `io.file.read(names)` → uint8, (bytes,).

    `io.file.read(np.frombuffer(b"cat.jpg", np.uint8))` → the bytes of cat.jpg, for every sample
    """

    inputs = ("filepaths",)
    without_effect = (*Operator.without_effect, "dont_use_mmap", "use_o_direct")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self.expect(inputs[0], "names as bytes, uint8[·]", dtype="uint8")
        return TensorSpec.of("uint8", (None,))

    def run(self, sample: Sample, filepaths: Array) -> Array:
        return np.fromfile(filepaths.tobytes().rstrip(b"\0").decode(), np.uint8)


class Numpy(Operator):
    """Decodes `.npy` files: `decoders.numpy(files)` → their arrays. Arrays of Python objects are refused."""

    inputs = ("data",)
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the file by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.dtype)

    def run(self, sample: Sample, data: Array) -> object:
        found = np.load(io.BytesIO(data.tobytes()), allow_pickle=False)
        return found if self.dtype is None else saturated(np, found, self.dtype)
