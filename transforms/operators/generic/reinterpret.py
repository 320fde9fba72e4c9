"""`fn.reinterpret`: the same bytes as another dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.reshape import Reshape


class Reinterpret(Reshape):
    """Takes the bytes of samples for elements of another dtype (little-endian), and may give them another shape.

    `reinterpret([1, 0, 2, 1], dtype=types.UINT16)` → `[1, 258]`

    Without a shape the last extent is what changes: 4 bytes make 2 elements of 2 bytes.
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
        given = len(inputs) > 1 or any(
            self.constants.get(name, 0) is not None for name in ("shape", "rel_shape", "src_dims", "layout")
        )
        return super().infer(spec, *inputs[1:]) if given else spec

    def run(self, sample: Any, data: Any, shape_input: Any = None, *, shape: Any, rel_shape: Any) -> Any:
        seen = self._seen(data)
        if shape_input is None and shape is None and rel_shape is None and self.src_dims is None:
            return seen
        return super().run(sample, seen, shape_input, shape=shape, rel_shape=rel_shape)

    def run_arrays(self, xp: Any, data: Any, *shapes: Any, shape: Any, rel_shape: Any) -> Any:
        seen = self._seen(data)
        if not shapes and shape is None and rel_shape is None and self.src_dims is None:
            return seen
        return super().run_arrays(np, seen, *shapes, shape=shape, rel_shape=rel_shape)

    def _seen(self, data: Any) -> Any:
        if self.dtype is None or data.dtype == self.dtype:
            return data
        if data.ndim == 0 or data.shape[-1] * data.itemsize % self.dtype.itemsize:
            raise ValueError(f"{data.dtype} of shape {data.shape} does not make whole elements of {self.dtype}")
        return np.ascontiguousarray(data).view(self.dtype)
