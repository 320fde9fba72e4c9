"""`fn.slice`: a window of each sample.

Windows of arrays, and the policies for windows beyond the array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Device, Operator
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given, Namespace, Value
from beam_pipes.transforms.operators.arrays import axes_in, positive_axes, saturated

POLICIES: Final = ("error", "pad", "trim_to_shape")
BOUNDS = ("start", "rel_start", "end", "rel_end", "shape", "rel_shape")


class Slice(Operator):
    """Cuts a window out of each sample.

    `slice([0, 1, 2, 3, 4, 5], start=[1], end=[3], axes=[0])` → `[1, 2]`

    It begins at `start`, `rel_start` (times the extent) or the second input, and ends at `end`, `rel_end`, or by
    `shape`, `rel_shape` or the third input. Numbers are in the order of `axes`, or of `axis_names` if samples have a
    layout; by default width, then height. Float inputs are relative if `normalized_anchor` and `normalized_shape` are
    set.
    """

    inputs: ClassVar[tuple[str, ...]] = ("data", "anchor", "shape_input")
    optional_inputs = 2
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "gpu")
    start = Argument("ints", default=None, doc="start of the window, in elements", static=True)
    rel_start = Argument("floats", default=None, doc="start, from 0 to 1", static=True)
    end = Argument("ints", default=None, doc="end of the window, in elements", static=True)
    rel_end = Argument("floats", default=None, doc="end, from 0 to 1", static=True)
    shape = Argument("ints", default=None, doc="number of elements", static=True)
    rel_shape = Argument("floats", default=None, doc="fraction of the extent", static=True)
    axes = Constant("ints", default=(1, 0), doc="the axes that the numbers are for")
    axis_names = Constant(
        "str", default="WH", doc="the same by name; taken where samples have a layout with these names"
    )
    normalized_anchor = Constant("bool", default=True, doc="whether an anchor of floats is relative")
    normalized_shape = Constant("bool", default=True, doc="whether a shape of floats is relative")
    out_of_bounds_policy = Constant(
        "str",
        default="error",
        doc="the policy for windows beyond the sample",
        choices=POLICIES,
    )
    fill_values = Constant("floats", default=0.0, doc="the padding: one value, or one per channel")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    exclusive = (("start", "rel_start"), ("end", "rel_end", "shape", "rel_shape"))

    def _axes(self, layout: str, ndim: int | None) -> tuple[int, ...]:
        by_name = bool(layout) and all(name in layout for name in self.axis_names)
        if by_name and tuple(self.axes) == (1, 0):
            return axes_in(self, layout, self.axis_names)
        return tuple(map(int, self.axes)) if ndim is None else positive_axes(self, self.axes, ndim)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._layout = spec.layout
        axes = self._axes(spec.layout, spec.ndim)
        if len(inputs) == 1 and not any(map(self.is_given, BOUNDS)):
            raise self.refuse("give start, end, shape (or rel_start, rel_end, rel_shape), or an anchor as second input")
        made = spec.replace(dtype=self.dtype if self.dtype is not None else spec.dtype)
        if spec.shape is None:
            return made
        shape = list(spec.shape)
        for position, axis in enumerate(axes):
            shape[axis] = self._known_extent(len(inputs), position, shape[axis])
        return made.replace(shape=tuple(shape))

    def _known_extent(self, num_inputs: int, position: int, extent: int | None) -> int | None:
        if num_inputs > 1 or any(name not in self.constants for name in BOUNDS):
            return None
        if self.out_of_bounds_policy == "trim_to_shape" and extent is None:
            return None
        one = {name: None if self.constants[name] is None else self.constants[name] for name in BOUNDS}
        if extent is None:
            if one["shape"] is not None and one["rel_start"] is None:
                return int(one["shape"][position])
            if one["start"] is not None and one["end"] is not None:
                return int(one["end"][position] - one["start"][position])
            return None
        try:
            begin, stop = self._bounds(position, extent, None, None, **one)
        except IndexError:
            raise self.refuse(f"there should be a number for each of the {len(self.axes)} axes") from None
        if self.out_of_bounds_policy == "trim_to_shape":
            begin, stop = max(begin, 0), min(stop, extent)
        return max(stop - begin, 0)

    def _bounds(
        self, at: int, extent: int, anchor: Value | None, shape_input: Value | None, **given: Given
    ) -> tuple[int, int]:
        """(start, stop) of one axis."""
        begin = 0.0
        if anchor is not None:
            relative = np.asarray(anchor).dtype.kind == "f" and self.normalized_anchor
            begin = float(np.atleast_1d(anchor)[at]) * (extent if relative else 1)
        elif given["start"] is not None:
            begin = float(given["start"][at])
        elif given["rel_start"] is not None:
            begin = float(given["rel_start"][at]) * extent
        stop = float(extent)
        if shape_input is not None:
            relative = np.asarray(shape_input).dtype.kind == "f" and self.normalized_shape
            stop = begin + float(np.atleast_1d(shape_input)[at]) * (extent if relative else 1)
        elif given["end"] is not None:
            stop = float(given["end"][at])
        elif given["rel_end"] is not None:
            stop = float(given["rel_end"][at]) * extent
        elif given["shape"] is not None:
            stop = begin + float(given["shape"][at])
        elif given["rel_shape"] is not None:
            stop = begin + float(given["rel_shape"][at]) * extent
        return int(np.floor(begin + 0.5)), int(np.floor(stop + 0.5))

    def _cut(
        self,
        xp: Namespace,
        data: Value,
        lead: int,
        anchor: Value | None,
        shape_input: Value | None,
        given: dict[str, Given],
    ) -> Value:
        extents = data.shape[lead:]
        axes = self._axes(self._layout, len(extents))
        bounds = {
            lead + axis: self._bounds(position, extents[axis], anchor, shape_input, **given)
            for position, axis in enumerate(axes)
        }
        cut = window(xp, data, bounds, policy=self.out_of_bounds_policy, fill=tuple(self.fill_values))
        return cut if self.dtype is None else saturated(xp, cut, self.dtype)

    def run(
        self, sample: object, data: Array, anchor: Array | None = None, shape_input: Array | None = None, **given: Given
    ) -> Value:
        return self._cut(np, data, 0, anchor, shape_input, given)

    def run_arrays(self, xp: Namespace, data: Value, *windows: Value, **given: Given) -> Value | list[Value]:
        if windows and xp is np:
            return [self.run(None, one, *window, **given) for one, *window in zip(data, *windows, strict=True)]
        if windows:
            raise ValueError("on the device the window should be given as start=, shape=, …, computed on the host")
        return self._cut(xp, data, 1, None, None, given)


def held(bounds: Mapping[int, tuple[int, int]], shape: Sequence[int], policy: str) -> dict[int, tuple[int, int]]:
    """The (start, stop) of each axis under a policy: unchanged, or trimmed to the array.

    Raises `ValueError` if they exceed it and must not.
    """
    made = {}
    for axis, (start, stop) in bounds.items():
        if stop < start:
            raise ValueError(f"the window {start}:{stop} of axis {axis} has a negative length")
        if policy == "trim_to_shape":
            start, stop = min(max(start, 0), shape[axis]), min(max(stop, 0), shape[axis])
        elif policy == "error" and (start < 0 or stop > shape[axis]):
            raise ValueError(
                f"the window {start}:{stop} of axis {axis} reaches beyond the {shape[axis]} elements there; "
                "allow it with out_of_bounds_policy='pad' or 'trim_to_shape'"
            )
        made[axis] = (start, stop)
    return made


def window(
    xp: Namespace,
    array: Value,
    bounds: Mapping[int, tuple[int, int]],
    *,
    policy: str = "error",
    fill: Sequence[float] = (0.0,),
    channel_axis: int = -1,
) -> Value:
    """The part of `array` within `bounds`, axis → (start, stop).

    With policy "pad", elements outside are `fill`: one value, or one for each element along `channel_axis`.
    """
    bounds = held(bounds, array.shape, policy)
    inside = [slice(None)] * array.ndim
    missing: list[tuple[int, int, int]] = []
    for axis, (start, stop) in bounds.items():
        size = array.shape[axis]
        first, last = min(max(start, 0), size), min(max(stop, 0), size)
        inside[axis] = slice(first, max(first, last))
        before = min(max(-start, 0), stop - start)
        after = (stop - start) - before - max(last - first, 0)
        if before or after:
            missing.append((axis, before, after))
    made = array[tuple(inside)]
    for axis, before, after in missing:
        parts = [made]
        for count, at in ((before, 0), (after, len(parts))):
            if count:
                shape = (*made.shape[:axis], count, *made.shape[axis + 1 :])
                parts.insert(at if at == 0 else len(parts), _filled(xp, made, shape, fill, channel_axis))
        made = xp.concat(parts, axis=axis) if xp is not np else np.concatenate(parts, axis=axis)
    return made


def _filled(xp: Namespace, like: Value, shape: tuple[int, ...], fill: Sequence[float], channel_axis: int) -> Value:
    dtype = np.dtype(str(like.dtype).rpartition(".")[2])
    values = saturated(np, np.asarray(fill, np.float64), dtype)
    if len(values) > 1:
        if shape[channel_axis] != len(values):
            raise ValueError(f"fill_values should be one value or {shape[channel_axis]}, got {len(values)}")
        along = [1] * len(shape)
        along[channel_axis] = len(values)
        values = values.reshape(along)
    made = np.broadcast_to(values.reshape((1,) * len(shape)) if len(fill) == 1 else values, shape)
    if xp is np:
        return made
    device = getattr(like, "device", None)
    copied = np.ascontiguousarray(made)
    return xp.asarray(copied, device=device) if _is_torch(like) else xp.asarray(copied)


def _is_torch(array: Value) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"
