"""Axes of samples: by number, negative ones from the end, or by their names in a layout."""

from __future__ import annotations

from collections.abc import Sequence

from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec


def known_axes(
    operator: Operator, spec: TensorSpec, axes: Sequence[int] | None, axis_names: str | None
) -> tuple[int, ...] | None:
    """The axes meant, counted from 0; None where all are, or where it takes the sample to know.

    Raises `InferenceError` where the layout lacks a name, or the rank an axis.
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
    """Axes counted from 0; raises `InferenceError` for one that there is not, or that is named twice."""
    found = []
    for axis in axes:
        if not -ndim <= axis < ndim:
            raise operator.refuse(f"axis {axis} is out of range for samples of rank {ndim}")
        found.append(int(axis) % ndim)
    if len(set(found)) != len(found):
        raise operator.refuse(f"the axes {list(map(int, axes))} name one of them twice")
    return tuple(found)
