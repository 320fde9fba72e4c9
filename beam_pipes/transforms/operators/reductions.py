"""`fn.normalize`: mean zero, deviation one; and `fn.reductions.*`: one number for each sample, or along some of its
axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, TensorList, Value
from beam_pipes.transforms.operators.arrays import cast_to, dtype_of, known_axes, positive_axes, saturated


class Normalize(Operator):
    """`scale * (x - mean) / stddev + shift`, in float32.

    `normalize([[1, 2, 3], [4, 5, 9]], axes=[0])` → `[[-1, -1, -1], [1, 1, 1]]`

    Mean and deviation are those of each sample over `axes` (all by default), or of the whole batch with `batch`, unless
    given: as one number, or as an array, constant or data node, of the extents that are not in `axes` and 1 elsewhere
    (`[[[124, 116, 104]]]` for HWC). Without `axes` those are where the array has 1. The deviation is computed about a
    given mean. If the deviation is zero, the result is `shift`.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    axes = Constant("ints", default=None, doc="the axes that mean and deviation are taken over; all by default")
    axis_names = Constant("str", default=None, doc="the same by name")
    batch = Constant("bool", default=False, doc="whether they are taken over all samples of the batch together")
    mean = Argument("matrix", default=None, doc="the mean, an array of any rank; computed by default")
    stddev = Argument("matrix", default=None, doc="the standard deviation likewise")
    ddof = Constant("int", default=0, doc="the variance is divided by the number of elements less this")
    epsilon = Constant("float", default=0.0, doc="added to the variance")
    scale = Constant("float", default=1.0, doc="the deviation of the result")
    shift = Constant("float", default=0.0, doc="the mean of the result")
    dtype = Constant("dtype", default="float32", doc="the dtype of the result; integers are rounded and held in range")

    exclusive = (("axes", "axis_names"),)

    def __init__(self, constants: Mapping[str, object], *, name: str = "", nodes: Sequence[str] = ()) -> None:
        # Values are taken row by row, and without `axes` the shape of an array tells them.
        given = (constants.get("mean"), constants.get("stddev"))
        self._shapes = [one.shape for one in given if isinstance(one, np.ndarray)]
        super().__init__(constants, name=name, nodes=nodes)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._known = known_axes(self, inputs[0], self.axes, self.axis_names)
        return inputs[0].replace(dtype=self.dtype)

    def _axes(self, shape: Sequence[int], *given: Value | None) -> tuple[int, ...]:
        """The axes of a batch of this shape, where axis 0 counts samples, for given means and deviations (n, k)."""
        every = range(1, len(shape))
        if self._known is not None:
            return tuple(axis % (len(shape) - 1) + 1 for axis in self._known)
        most = max((int(one.shape[1]) for one in given if one is not None), default=1)
        if most == 1:
            return tuple(every)
        for known in self._shapes:
            if len(known) == len(every) and np.prod(known) == most:
                return tuple(axis for axis in every if known[axis - 1] == 1)
        fitting = [
            left
            for count in range(1, len(shape))
            for left in itertools.combinations(every, count)
            if math.prod(shape[axis] for axis in left) == most and all(shape[axis] > 1 for axis in left)
        ]
        if len(fitting) != 1:
            raise ValueError(f"mean and stddev of {most} numbers need axes, for samples of shape {tuple(shape[1:])}")
        return tuple(axis for axis in every if axis not in fitting[0])

    def _given(self, xp: Namespace, values: Value, extents: Sequence[int], axes: tuple[int, ...]) -> Value:
        """(n, k) numbers along the remaining axes of a batch of these extents."""
        values = cast_to(xp, values, np.dtype("float32"))
        left = set(range(1, len(extents))).difference(axes if values.shape[1] > 1 else range(len(extents)))
        shape = [extents[axis] if axis in left else 1 for axis in range(len(extents))]
        if math.prod(shape) != values.shape[1]:
            raise ValueError(
                f"mean and stddev should be one number or {math.prod(shape)}, those of shape {tuple(shape[1:])}, got "
                f"{values.shape[1]}"
            )
        return xp.reshape(values, (values.shape[0], *shape[1:]))

    def _normalized(
        self, xp: Namespace, values: Value, mean: Value, variance: Value | None, stddev: Value | None
    ) -> Value:
        if stddev is None:
            stddev = xp.sqrt(variance + self.epsilon)
        factor = xp.where(stddev == 0, xp.zeros_like(stddev), self.scale / xp.where(stddev == 0, stddev + 1, stddev))
        return saturated(xp, (values - mean) * factor + self.shift, self.dtype)

    def run_arrays(self, xp: Namespace, data: Value, *, mean: Value | None, stddev: Value | None) -> Value:
        values = data if dtype_of(data) == np.float64 else cast_to(xp, data, np.dtype("float32"))
        axes = self._axes(data.shape, mean, stddev)
        over = ((0,) if self.batch else ()) + axes
        mean = xp.mean(values, axis=over, keepdims=True) if mean is None else self._given(xp, mean, data.shape, axes)
        variance = None
        if stddev is None:
            count = max(int(np.prod([data.shape[axis] for axis in over])) - self.ddof, 1)
            variance = xp.sum((values - mean) ** 2, axis=over, keepdims=True) / count
        else:
            stddev = self._given(xp, stddev, data.shape, axes)
        return self._normalized(xp, values, mean, variance, stddev)

    @property
    def run_batch(self) -> object:
        return self._over_batch if self.mixes_samples else None

    @property
    def mixes_samples(self) -> bool:
        return self.batch and any(self.constants.get(name, "a node") is None for name in ("mean", "stddev"))

    def _over_batch(
        self, samples: Samples, data: TensorList, *, mean: Array | None, stddev: Array | None
    ) -> Value | TensorList:
        if not len(data) or data.dense is not None:
            return self.run_arrays(np, data.as_array(), mean=mean, stddev=stddev) if len(data) else TensorList([])
        axes = self._axes((1, *data[0].shape), mean, stddev)
        wide = [np.asarray(one, np.float32)[None] for one in data]
        count = max(sum(int(np.prod([one.shape[axis] for axis in axes])) for one in wide), 1)
        if mean is None:
            middle = sum(one.sum(axis=axes, keepdims=True, dtype=np.float64) for one in wide) / count
            middles = [middle] * len(wide)
        else:
            middles = [self._given(np, mean[i : i + 1], one.shape, axes) for i, one in enumerate(wide)]
        stddevs: list[Value | None]
        variance, stddevs = None, [None] * len(wide)
        if stddev is None:
            squares = sum(
                ((one - middle) ** 2).sum(axis=axes, keepdims=True) for one, middle in zip(wide, middles, strict=True)
            )
            variance = squares / max(count - self.ddof, 1)
        else:
            stddevs = [self._given(np, stddev[i : i + 1], one.shape, axes) for i, one in enumerate(wide)]
        return TensorList(
            [
                self._normalized(np, one, np.asarray(middle, np.float32), variance, deviation)[0]
                for one, middle, deviation in zip(wide, middles, stddevs, strict=True)
            ]
        )


class Reduction(Operator):
    """Samples with some axes reduced to one number."""

    inputs: ClassVar[tuple[str, ...]] = ("data",)
    axes = Constant("ints", default=None, doc="the axes that are reduced; all by default")
    axis_names = Constant("str", default=None, doc="the same by name")
    keep_dims = Constant("bool", default=False, doc="whether these axes stay, with an extent of 1")
    #: (samples, axis, keepdims) → the reduced values.
    function: Any = None
    dtype: Any = None

    exclusive = (("axes", "axis_names"),)

    def result_dtype(self, found: np.dtype) -> np.dtype:
        """The dtype of the result: as given, else float32, or float64 for float64."""
        return self.dtype or (found if found == np.float64 else np.dtype(np.float32))

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._known = known_axes(self, spec, self.axes, self.axis_names)
        dtype = None if spec.dtype is None else self.result_dtype(spec.dtype)
        if spec.shape is None:
            return TensorSpec(dtype)
        gone = self._axes(len(spec.shape))
        if self.keep_dims:
            kept = tuple(1 if at in gone else size for at, size in enumerate(spec.shape))
            return TensorSpec(dtype, kept, spec.layout)
        left = [at for at in range(len(spec.shape)) if at not in gone]
        layout = "".join(spec.layout[at] for at in left) if spec.layout else ""
        return TensorSpec(dtype, tuple(spec.shape[at] for at in left), layout)

    def _axes(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim)) if self._known is None else positive_axes(self, self._known, ndim)

    def run_arrays(self, xp: Namespace, data: Array, *means: Array) -> object:
        axes = tuple(1 + axis for axis in self._axes(data.ndim - 1))
        wide = data if dtype_of(data).kind in "iub" else data.astype(np.float64)
        made = saturated(np, self.function(wide, axis=axes, keepdims=True), self.result_dtype(dtype_of(data)))
        return made if self.keep_dims else np.squeeze(made, axis=axes)


class Min(Reduction):
    """The least value: `reductions.min([[3, 1], [2, 5]], axes=1)` → `[1, 2]`."""

    function = staticmethod(np.min)

    def result_dtype(self, found: np.dtype) -> np.dtype:
        return found


class Max(Min):
    """The greatest value: `reductions.max([[3, 1], [2, 5]], axes=1)` → `[3, 5]`."""

    function = staticmethod(np.max)


class Sum(Reduction):
    """The sum: `reductions.sum([[3, 1], [2, 5]], axes=1)` → `[4, 7]`; of integers 64 bits wide, of floats float32."""

    dtype = Constant("dtype", default=None, doc="the dtype of the result: int64, uint64 or float32 by default")
    function = staticmethod(np.sum)

    def result_dtype(self, found: np.dtype) -> np.dtype:
        whole = {"i": "int64", "u": "uint64", "b": "uint64"}.get(found.kind)
        return np.dtype(whole) if whole and self.dtype is None else super().result_dtype(found)


class Mean(Reduction):
    """The mean: `reductions.mean([[3, 1], [2, 5]], axes=1)` → `[2, 3.5]`, float32."""

    dtype = Constant("dtype", default=None, doc="the dtype of the result; float32 by default, float64 for float64")
    function: Any = staticmethod(np.mean)


class MeanSquare(Mean):
    """The mean of the squares: `reductions.mean_square([3, 1])` → `5`, float32."""

    function = staticmethod(lambda data, **over: np.square(data, dtype=np.float64).mean(**over))


class RMS(Mean):
    """The square root of the mean of the squares: `reductions.rms([3, 1])` → `2.236`, float32."""

    function = staticmethod(lambda data, **over: np.sqrt(np.square(data, dtype=np.float64).mean(**over)))


class Variance(Reduction):
    """The mean square difference from `mean`: `reductions.variance([3, 1], reductions.mean([3, 1]))` → `1`, float32.

    `mean` is one number, or the result of `reductions.mean` over the same axes.
    """

    inputs: ClassVar[tuple[str, ...]] = ("data", "mean")
    ddof = Constant("int", default=0, doc="sums are divided by the number of elements less this")
    function: Any = staticmethod(lambda variance: variance)

    def run_arrays(self, xp: Namespace, data: Array, *means: Array) -> object:
        mean = means[0]
        axes = tuple(1 + axis for axis in self._axes(data.ndim - 1))
        shape = [1 if at in axes else extent for at, extent in enumerate(data.shape)]
        if mean[0].size not in (1, math.prod(shape[1:])):
            raise ValueError(f"mean should be one number or of shape {tuple(shape[1:])}, got shape {mean.shape[1:]}")
        about = mean.reshape([len(data)] + [1] * (data.ndim - 1) if mean[0].size == 1 else shape)
        count = max(math.prod(data.shape[axis] for axis in axes) - self.ddof, 1)
        made = np.square(data - about, dtype=np.float64).sum(axis=axes, keepdims=self.keep_dims) / count
        return self.function(made).astype(self.result_dtype(data.dtype))


class StdDev(Variance):
    """The root mean square difference from `mean`: `reductions.std_dev([3, 1], 2)` → `1`, float32."""

    function = staticmethod(np.sqrt)
