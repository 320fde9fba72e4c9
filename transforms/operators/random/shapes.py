"""Random numbers of a shape: what the operators that draw have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.graph.argument import Argument
from beam_pipes.graph.operator import Device, Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec

# Draws for (n, count) → values of any dtype.
Draw = Callable[[Samples, int], Any]


class Drawing(Operator):
    """An operator that draws scalars, or arrays of `shape`, or of the shape of an input."""

    random = True
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "gpu")
    inputs: ClassVar[tuple[str, ...]] = ("shape_like",)
    optional_inputs = 1
    shape = Argument("ints", default=None, doc="the shape of each sample; a scalar by default")

    def shape_spec(self, like: TensorSpec | None) -> tuple[int | None, ...] | None:
        """What is known of the shape of the samples."""
        if "shape" not in self.constants:
            return None
        if self.constants["shape"] is not None:
            if like is not None:
                raise self.refuse("give one of shape and an input whose shape is taken")
            if any(extent < 0 for extent in self.constants["shape"]):
                raise self.refuse(f"shape should hold extents, got {self.constants['shape'].tolist()}")
            return tuple(int(extent) for extent in self.constants["shape"])
        return () if like is None else like.shape

    def host_draws(self, samples: Samples, shapes: Sequence[tuple[int, ...]], **arguments: Any) -> dict[str, Any]:
        """What is drawn for a device, on the host: the same numbers."""
        # A shape without memory: nobody looks at the values.
        like = [TensorList(np.broadcast_to(np.zeros((), np.bool_), (len(samples), *shape))) for shape in shapes]
        values = self.run_batch(samples, *like, **arguments).dense
        if values is None:
            raise ValueError(
                "on a device all samples have one shape. Give shape a constant, or draw on the host and call .gpu()"
            )
        return {"values": values}

    def run_arrays(self, xp: Any, *like: Any, values: Any) -> Any:
        return values


def drawn(samples: Samples, like: TensorList | None, shape: Any, draw: Draw) -> TensorList:
    """Values of the shape that each sample should have. A value depends on its place alone, not on the shape."""
    size = len(samples)
    shapes: list[tuple[int, ...]] = [()] * size
    if like is not None:
        shapes = [one.shape for one in like]
    elif shape is not None:
        shapes = [tuple(int(extent) for extent in one) for one in shape]
    counts = [math.prod(one) for one in shapes]
    most = max(counts, default=0)
    values = draw(samples, max(most, 1))
    if len(set(shapes)) <= 1:
        of_all = shapes[0] if shapes else ()
        return TensorList(np.ascontiguousarray(values[:, : math.prod(of_all)]).reshape(size, *of_all))
    return TensorList([values[index, :count].reshape(shapes[index]) for index, count in enumerate(counts)])
