"""Operators that join or pad samples: `cat`, `stack`, `pad` and `one_hot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, TensorList, Value
from beam_pipes.transforms.operators.arrays import axes_in, known_axes, positive_axes, saturated


class Cat(Operator):
    """Joins samples along an existing axis.

    `cat([1, 2], [3])` → `[1, 2, 3]`
    """

    inputs = ("input",)
    variadic = True
    devices = ("cpu", "gpu")
    axis = Constant("int", default=0, doc="the axis")
    axis_name = Constant("str", default=None, doc="the same by its name in the layout")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        first = joined(self, inputs)
        self._axis = axes_in(self, first.layout, self.axis_name)[0] if self.axis_name is not None else int(self.axis)
        if first.shape is None:
            return first
        if not first.shape:
            raise self.refuse("scalars have no axis to be joined along; use fn.stack")
        axis = positive_axes(self, [self._axis], len(first.shape))[0]
        extents = [spec.shape[axis] if spec.shape is not None else None for spec in inputs]
        shape = list(first.shape)
        for at in range(len(shape)):
            if at != axis:
                shape[at] = agreed(self, at, [spec.shape[at] for spec in inputs if spec.shape is not None])
        shape[axis] = None if None in extents else sum(extent for extent in extents if extent is not None)
        return first.replace(shape=tuple(shape))

    def run_arrays(self, xp: Namespace, *arrays: Value) -> Value:
        axis = self._axis % (arrays[0].ndim - 1) + 1
        return np.concatenate(arrays, axis=axis) if xp is np else xp.concat(arrays, axis=axis)


def joined(operator: Operator, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    """The common spec of inputs to be joined; raises `InferenceError` if they differ."""
    dtypes = {spec.dtype for spec in inputs if spec.dtype is not None}
    ranks = {spec.ndim for spec in inputs if spec.ndim is not None}
    layouts = {spec.layout for spec in inputs if spec.layout}
    for what, found in (("dtype", dtypes), ("rank", ranks), ("layout", layouts)):
        if len(found) > 1:
            shown = ", ".join(str(spec) for spec in inputs)
            raise operator.refuse(f"all inputs should have one {what}, got {shown}")
    shaped = next((spec for spec in inputs if spec.shape is not None), inputs[0])
    dtype = next(iter(dtypes)) if len(dtypes) == 1 and all(spec.dtype is not None for spec in inputs) else None
    return TensorSpec(dtype, shaped.shape, next(iter(layouts), ""))


def agreed(operator: Operator, axis: int, extents: list[int | None]) -> int | None:
    """The common extent of all inputs along an axis, as far as known."""
    known = {extent for extent in extents if extent is not None}
    if len(known) > 1:
        raise operator.refuse(f"all inputs should have one extent along axis {axis}, got {sorted(known)}")
    return next(iter(known), None)


class Stack(Operator):
    """Puts samples of one shape side by side along a new axis.

    `stack([1, 2], [3, 4])` → `[[1, 2], [3, 4]]`
    """

    inputs = ("input",)
    variadic = True
    devices = ("cpu", "gpu")
    axis = Constant("int", default=0, doc="position of the new axis in the output")
    axis_name = Constant("letter", default=None, doc="its name, if the samples have a layout")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        first = joined(self, inputs)
        if first.shape is None:
            return first.replace(layout="")
        ndim = len(first.shape)
        axis = self._at(ndim)
        shape = [agreed(self, at, [spec.shape[at] for spec in inputs if spec.shape is not None]) for at in range(ndim)]
        shape.insert(axis, len(inputs))
        layout = ""
        if self.axis_name is not None and len(first.layout) == ndim:
            layout = first.layout[:axis] + self.axis_name + first.layout[axis:]
        return TensorSpec(first.dtype, tuple(shape), layout)

    def _at(self, ndim: int) -> int:
        if not -ndim - 1 <= self.axis <= ndim:
            raise self.refuse(f"axis={self.axis} is out of range for an output of rank {ndim + 1}")
        return int(self.axis) % (ndim + 1)

    def run_arrays(self, xp: Namespace, *arrays: Value) -> Value:
        axis = 1 + self._at(arrays[0].ndim - 1)
        return np.stack(arrays, axis=axis) if xp is np else xp.stack(arrays, axis=axis)


class Pad(Operator):
    """Pads samples at the end of `axes` to the largest extent of the batch, or to `shape`, a multiple of `align`.

    `pad([[0, 1], [0, 1, 2]], align=4, fill_value=-1)` → `[[0, 1, -1, -1], [0, 1, 2, -1]]`

    An extent of -1 in a constant `shape` means the largest of the batch; a sample larger than `shape` keeps its size.
    Padding to the largest of the batch is done on the host, after any cut.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    axes = Constant("ints", default=None, doc="the axes to pad; all by default")
    axis_names = Constant("str", default=None, doc="the same by name")
    shape = Argument("ints", default=None, doc="extents of the output, one for each of the axes", static=True)
    align = Constant("ints", default=None, doc="extents are multiples of it: one, or one for each of the axes", least=1)
    fill_value = Argument("float", default=0.0, doc="the padding value")

    exclusive = (("axes", "axis_names"),)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._extents: Sequence[int | None] | None = None
        self._known = known_axes(self, spec, self.axes, self.axis_names)
        if spec.shape is None:
            return spec
        axes = self._axes(len(spec.shape))
        self._extents = [spec.shape[axis] for axis in axes]
        wanted = self.constants.get("shape", "node")
        if not isinstance(wanted, str) and wanted is not None and len(wanted) != len(axes):
            raise self.refuse(f"shape should have a number for each of {len(axes)} axes, got {wanted.tolist()}")
        if self.align is not None and len(self.align) not in (1, len(axes)):
            raise self.refuse(f"align should be one number or {len(axes)}, got {self.align.tolist()}")
        shape = list(spec.shape)
        for position, axis in enumerate(axes):
            extent = shape[axis]
            if isinstance(wanted, str) or extent is None:
                shape[axis] = None
            else:
                least = -1 if wanted is None else int(wanted[position])
                shape[axis] = self._aligned(position, max(extent, least))
        return spec.replace(shape=tuple(shape))

    @property
    def mixes_samples(self) -> bool:
        wanted = self.constants.get("shape", ())
        extents = [None] if self._extents is None else self._extents
        wanted = [-1] * len(extents) if wanted is None else wanted
        if self._extents is None:
            return any(least < 0 for least in wanted)
        return any(least < 0 and extent is None for least, extent in zip(wanted, extents, strict=False))

    def _axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim)) if self._known is None else tuple(axis % ndim for axis in self._known)

    def _aligned(self, position: int, extent: int) -> int:
        if self.align is None:
            return extent
        align = int(self.align[position if len(self.align) > 1 else 0])
        return -(-extent // align) * align

    def _target(self, shape: Sequence[int], largest: Sequence[int], wanted: Any) -> tuple[int, ...]:
        made = list(shape)
        for position, axis in enumerate(self._axes(len(shape))):
            least = -1 if wanted is None else int(wanted[position])
            if least < 0 and "shape" not in self.constants:
                raise ValueError(f"an extent of -1 is taken in a constant shape only, got {list(wanted)} from a node")
            made[axis] = self._aligned(position, max(shape[axis], largest[axis] if least < 0 else least))
        return tuple(made)

    def run_batch(self, samples: Samples, data: TensorList, *, shape: Any, fill_value: Array) -> TensorList:
        if not len(data):
            return TensorList([])
        if len({one.ndim for one in data}) > 1:
            raise ValueError("all samples should have one rank")
        shapes = [one.shape for one in data]
        largest = tuple(max(extents) for extents in zip(*shapes, strict=True))
        of_all = shape is None or isinstance(shape, tuple)
        targets = [self._target(own, largest, shape if of_all else shape[i]) for i, own in enumerate(shapes)]
        if len(set(targets)) == 1:
            made = np.empty((len(data), *targets[0]), data.dtype)
            made[...] = saturated(np, fill_value, made.dtype).reshape(-1, *[1] * (made.ndim - 1))
            for index, one in enumerate(data):
                made[index][tuple(map(slice, one.shape))] = one
            return TensorList(made)
        padded = []
        for index, one in enumerate(data):
            filled = np.full(targets[index], saturated(np, fill_value[index : index + 1], one.dtype)[0], one.dtype)
            filled[tuple(map(slice, one.shape))] = one
            padded.append(filled)
        return TensorList(padded)

    def run_arrays(self, xp: Namespace, data: Value, *, shape: Value, fill_value: Value) -> Value:
        own = data.shape[1:]
        target = self._target(own, own, shape)
        dtype = np.dtype(str(data.dtype).rpartition(".")[2])
        fill = xp.reshape(saturated(xp, fill_value, dtype), (-1,) + (1,) * len(own))
        for axis, (have, want) in enumerate(zip(own, target, strict=True), start=1):
            if want > have:
                missing = (*data.shape[:axis], want - have, *data.shape[axis + 1 :])
                data = xp.concat([data, xp.broadcast_to(fill, missing)], axis=axis)
        return data


class OneHot(Operator):
    """A new axis of `num_classes`, `on_value` at the class and `off_value` elsewhere.

    `one_hot(1, num_classes=3)` → `[0.0, 1.0, 0.0]`

    A number that is not a class gives `off_value` everywhere. A sample of shape (1,) counts as a scalar.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    num_classes = Constant("int", doc="number of classes", least=1)
    axis = Constant("int", default=-1, doc="position of the new axis in the output")
    axis_name = Constant("letter", default=None, doc="its name: the output then has a layout")
    on_value = Constant("float", default=1.0, doc="value at the class")
    off_value = Constant("float", default=0.0, doc="value elsewhere")
    dtype = Constant("dtype", default="float32", doc="the dtype of the output")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self.expect(spec, "class numbers (integers)", kinds="iub")
        if spec.shape is None:
            return TensorSpec(self.dtype)
        own = () if spec.shape == (1,) else spec.shape
        axis = self._axis(len(own))
        shape = (*own[:axis], self.num_classes, *own[axis:])
        layout = ""
        if self.axis_name is not None and len(spec.layout) == len(own):
            layout = spec.layout[:axis] + self.axis_name + spec.layout[axis:]
        return TensorSpec(self.dtype, None if spec.shape == (None,) and self.axis != 0 else shape, layout)

    def _axis(self, ndim: int) -> int:
        if not -ndim - 1 <= self.axis <= ndim:
            raise self.refuse(f"axis={self.axis} is out of range for an output of rank {ndim + 1}")
        return int(self.axis) % (ndim + 1)

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        own = data.shape[1:]
        if own == (1,):
            data, own = xp.reshape(data, (-1,)), ()
        axis = 1 + self._axis(len(own))
        classes: Any = xp.reshape(
            xp.asarray(np.arange(self.num_classes, dtype="int32")), (self.num_classes,) + (1,) * (len(own) + 1 - axis)
        )
        if type(data).__module__.partition(".")[0] == "torch":
            classes = classes.to(data.device)
        values = saturated(np, np.array([self.on_value, self.off_value]), self.dtype)
        chosen = xp.expand_dims(data, axis=axis) == classes
        on: Any = xp.full(chosen.shape, values[0].item(), dtype=getattr(xp, self.dtype.name))
        off: Any = xp.full(chosen.shape, values[1].item(), dtype=getattr(xp, self.dtype.name))
        if type(data).__module__.partition(".")[0] == "torch":
            on, off = on.to(data.device), off.to(data.device)
        return xp.where(chosen, on, off)
