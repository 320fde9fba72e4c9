"""`fn.normalize`: mean zero, deviation one.

`fn.python_function`: a function of yours, for every sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import TensorList
from beam_pipes.transforms.operators.arrays import cast_to, dtype_of, known_axes, saturated


class Normalize(Operator):
    """`scale * (x - mean) / stddev + shift`, in float32.

    `normalize([[1, 2, 3], [4, 5, 9]], axes=[0])` → `[[-1, -1, -1], [1, 1, 1]]`

    Mean and deviation are those of each sample over `axes` (all by default), or of the whole batch with `batch`, unless
    they are given: as one number, or as one for each element along the axis that is not in `axes`. A given mean is what
    the deviation is computed about. Where the deviation is zero the result is `shift`.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    axes = Constant("ints", default=None, doc="the axes that mean and deviation are taken over; all by default")
    axis_names = Constant("str", default=None, doc="the same by name")
    batch = Constant("bool", default=False, doc="whether they are taken over all samples of the batch together")
    mean = Argument("floats", default=None, doc="the mean; computed by default")
    stddev = Argument("floats", default=None, doc="the standard deviation; computed by default")
    ddof = Constant("int", default=0, doc="the variance is divided by the number of elements less this")
    epsilon = Constant("float", default=0.0, doc="added to the variance")
    scale = Constant("float", default=1.0, doc="the deviation of the result")
    shift = Constant("float", default=0.0, doc="the mean of the result")
    dtype = Constant("dtype", default="float32", doc="the dtype of the result; integers are rounded and held in range")

    def check(self) -> None:
        if self.axes is not None and self.axis_names is not None:
            raise self.argument_error("give one of axes and axis_names.")
        if self.ddof < 0 or self.epsilon < 0:
            raise self.argument_error(f"ddof and epsilon should not be negative, got {self.ddof} and {self.epsilon}.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._known = known_axes(self, inputs[0], self.axes, self.axis_names)
        return inputs[0].replace(dtype=self.dtype)

    def _axes(self, ndim: int) -> tuple[int, ...]:
        """The axes of a batch, in which samples stand along axis 0."""
        return tuple(range(1, ndim)) if self._known is None else tuple(axis % (ndim - 1) + 1 for axis in self._known)

    def _given(self, xp: Any, values: Any, ndim: int, axes: tuple[int, ...]) -> Any:
        """(n, k) numbers, standing along the axis that is left."""
        values = cast_to(xp, values, np.dtype("float32"))
        shape = [values.shape[0]] + [1] * (ndim - 1)
        if values.shape[1] > 1:
            left = [axis for axis in range(1, ndim) if axis not in axes]
            if len(left) != 1:
                raise ValueError(f"mean and stddev should be one number where {len(left)} axes are not in axes")
            shape[left[0]] = values.shape[1]
        return xp.reshape(values, tuple(shape))

    def _normalized(self, xp: Any, values: Any, mean: Any, variance: Any, stddev: Any) -> Any:
        if stddev is None:
            stddev = xp.sqrt(variance + self.epsilon)
        factor = xp.where(stddev == 0, xp.zeros_like(stddev), self.scale / xp.where(stddev == 0, stddev + 1, stddev))
        return saturated(xp, (values - mean) * factor + self.shift, self.dtype)

    def run_arrays(self, xp: Any, data: Any, *, mean: Any, stddev: Any) -> Any:
        values = data if dtype_of(data) == np.float64 else cast_to(xp, data, np.dtype("float32"))
        axes = self._axes(data.ndim)
        over = ((0,) if self.batch else ()) + axes
        mean = xp.mean(values, axis=over, keepdims=True) if mean is None else self._given(xp, mean, data.ndim, axes)
        variance = None
        if stddev is None:
            count = max(int(np.prod([data.shape[axis] for axis in over])) - self.ddof, 1)
            variance = xp.sum((values - mean) ** 2, axis=over, keepdims=True) / count
        else:
            stddev = self._given(xp, stddev, data.ndim, axes)
        return self._normalized(xp, values, mean, variance, stddev)

    @property
    def run_batch(self) -> Any:
        return self._over_batch if self.mixes_samples else None

    @property
    def mixes_samples(self) -> bool:
        return self.batch and any(self.constants.get(name, "a node") is None for name in ("mean", "stddev"))

    def _over_batch(self, samples: Samples, data: TensorList, *, mean: Any, stddev: Any) -> Any:
        if not len(data) or data.dense is not None:
            return self.run_arrays(np, data.dense, mean=mean, stddev=stddev) if len(data) else TensorList([])
        ndim = data[0].ndim + 1
        axes = self._axes(ndim)
        wide = [np.asarray(one, np.float32)[None] for one in data]
        count = max(sum(int(np.prod([one.shape[axis] for axis in axes])) for one in wide), 1)
        if mean is None:
            middle = sum(one.sum(axis=axes, keepdims=True, dtype=np.float64) for one in wide) / count
            middles = [middle] * len(wide)
        else:
            middles = [self._given(np, mean[i : i + 1], ndim, axes) for i in range(len(wide))]
        variance, stddevs = None, [None] * len(wide)
        if stddev is None:
            squares = sum(
                ((one - middle) ** 2).sum(axis=axes, keepdims=True) for one, middle in zip(wide, middles, strict=True)
            )
            variance = squares / max(count - self.ddof, 1)
        else:
            stddevs = [self._given(np, stddev[i : i + 1], ndim, axes) for i in range(len(wide))]
        return TensorList(
            [
                self._normalized(np, one, np.asarray(middle, np.float32), variance, deviation)[0]
                for one, middle, deviation in zip(wide, middles, stddevs, strict=True)
            ]
        )


class PythonFunction(Operator):
    """Calls a Python function for every sample, or once for the batch (`batch_processing=True`: with lists of samples).

    It has side effects as far as the graph knows: it runs even where nobody uses what it gives, in the order of the
    batches. It returns one array for each output; a tuple where there are several.

        python_function(image, function=lambda image: image[::-1])
    """

    inputs = ("input",)
    variadic = True
    optional_inputs = 1
    side_effects = True
    holds_gil = True
    positional = ("function",)
    function = Constant("callable", doc="what is called with NumPy arrays, one for each input")
    num_outputs = Constant("int", default=1, doc="how many arrays it returns")
    batch_processing = Constant("bool", default=False, doc="whether it takes and gives lists of all samples of a batch")

    def output_count(self) -> int:
        return int(self.num_outputs)

    def result(self, nodes: Any) -> Any:
        return None if not nodes else super().result(nodes)

    @property
    def mixes_samples(self) -> bool:
        return bool(self.batch_processing)

    def run(self, sample: Sample, *inputs: Any) -> Any:
        made = self.function(*inputs)
        if self.num_outputs == 0:
            return ()
        return made

    @property
    def run_batch(self) -> Any:
        return self._run_batch if self.batch_processing else None

    def _run_batch(self, samples: Samples, *columns: TensorList) -> Any:
        made = self.function(*[list(column) for column in columns])
        if self.num_outputs == 1:
            return TensorList(list(made))
        return tuple(TensorList(list(one)) for one in made) if self.num_outputs else ()
