"""`fn.pad`: samples filled up to one extent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.axes import known_axes
from beam_pipes.transforms.operators.generic.conversion import saturated


class Pad(Operator):
    """Pads samples at the end of `axes` to the largest extent of the batch, or to `shape`, a multiple of `align`.

    `pad([[0, 1], [0, 1, 2]], align=4, fill_value=-1)` → `[[0, 1, -1, -1], [0, 1, 2, -1]]`

    An extent of -1 in `shape` stands for the largest of the batch, where `shape` is a constant; a sample that is larger
    than `shape` keeps its size. Padding to the largest of the batch is done on the host, behind any cut.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    axes = Constant("ints", default=None, doc="the axes to pad; all by default")
    axis_names = Constant("str", default=None, doc="the same by name")
    shape = Argument("ints", default=None, doc="extents of the output, one for each of the axes", static=True)
    align = Constant("ints", default=None, doc="extents are multiples of it: one, or one for each of the axes")
    fill_value = Argument("float", default=0.0, doc="what is padded with")

    def check(self) -> None:
        if self.axes is not None and self.axis_names is not None:
            raise self.argument_error("give one of axes and axis_names.")
        if self.align is not None and any(self.align < 1):
            raise self.argument_error(f"align should be at least 1, got {self.align.tolist()}.")

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

    def run_batch(self, samples: Samples, data: TensorList, *, shape: Any, fill_value: Any) -> TensorList:
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

    def run_arrays(self, xp: Any, data: Any, *, shape: Any, fill_value: Any) -> Any:
        own = data.shape[1:]
        target = self._target(own, own, shape)
        dtype = np.dtype(str(data.dtype).rpartition(".")[2])
        fill = xp.reshape(saturated(xp, fill_value, dtype), (-1,) + (1,) * len(own))
        for axis, (have, want) in enumerate(zip(own, target, strict=True), start=1):
            if want > have:
                missing = (*data.shape[:axis], want - have, *data.shape[axis + 1 :])
                data = xp.concat([data, xp.broadcast_to(fill, missing)], axis=axis)
        return data
