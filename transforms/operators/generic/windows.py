"""Windows of arrays, with what happens where they reach beyond the array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from beam_pipes.transforms.operators.generic.conversion import saturated

POLICIES: Final = ("error", "pad", "trim_to_shape")


def held(bounds: Mapping[int, tuple[int, int]], shape: Sequence[int], policy: str) -> dict[int, tuple[int, int]]:
    """The (start, stop) of each axis under a policy: as they are, or trimmed to the array.

    Raises `ValueError` where they reach beyond it and may not.
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
    xp: Any,
    array: Any,
    bounds: Mapping[int, tuple[int, int]],
    *,
    policy: str = "error",
    fill: Sequence[float] = (0.0,),
    channel_axis: int = -1,
) -> Any:
    """The part of `array` within `bounds`, axis → (start, stop).

    With policy "pad", what lies outside is `fill`: one value, or one for each element along `channel_axis`.
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


def _filled(xp: Any, like: Any, shape: tuple[int, ...], fill: Sequence[float], channel_axis: int) -> Any:
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


def _is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"
