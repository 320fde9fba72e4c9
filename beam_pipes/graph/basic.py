"""The operators that the graph itself needs.

Constants (`ConstantSample`, and in debug mode batches that the user holds), moves between host and device
(`node.gpu()`, `node.cpu()`), `node.shape()`, and the two ends of a condition: `Merge` puts the samples of both branches
back into their order; `Partial` is a value that only one branch has, as after an early return.
"""

from __future__ import annotations

import numpy as np

from beam_pipes.errors import GraphError
from beam_pipes.format.exact import natural_array
from beam_pipes.graph.operator import Constant, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, TensorList, Value


class BatchConstant(Operator):
    """One array for each sample of this batch."""

    op_name = "batch_constant"
    samples = Constant("any", doc="arrays, one for each sample")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        arrays = [_to_numpy(sample) for sample in self.samples]
        dtypes, ranks = {array.dtype for array in arrays}, {array.ndim for array in arrays}
        return TensorSpec.of_rank(dtypes.pop() if len(dtypes) == 1 else None, ranks.pop() if len(ranks) == 1 else None)

    def run_batch(self, samples: Samples) -> TensorList:
        if len(self.samples) != samples.records.size:
            raise GraphError(
                f"a list of {len(self.samples)} arrays was given for a batch of {samples.records.size} samples."
            )
        return TensorList([_to_numpy(self.samples[row]) for row in samples.rows.tolist()])


def _to_numpy(value: object) -> Array:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def constant_array(value: object) -> np.ndarray:
    """A constant in DALI's dtype for it: `3` → int32, `0.5` and float64 arrays → float32.

    Arrays of 64-bit integers become 32-bit ones if these hold all values. Other dtypes and NumPy scalars stay.
    """
    if isinstance(value, np.generic):
        return np.asarray(value)
    array = natural_array(value)
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    narrow = {"int64": np.int32, "uint64": np.uint32}.get(array.dtype.name)
    fits = narrow is not None and (not array.size or bool((array == array.astype(narrow)).all()))
    return array.astype(narrow) if fits else array


class ConstantSample(Operator):
    """The same value for every sample."""

    op_name = "constant"
    value = Constant("any", doc="an array or a number")
    layout = Constant("str", default="", doc="names of the axes")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        value = np.asarray(self.value)
        return TensorSpec.of(value.dtype, value.shape, self.layout)

    def run_batch(self, samples: Samples) -> TensorList:
        value = np.asarray(self.value)
        return TensorList(np.broadcast_to(value, (len(samples), *value.shape)))


class _Copy(Operator):
    inputs = ("data",)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0]

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        return data

    def run(self, sample: Sample, data: Array) -> Array:
        return data


class ToDevice(_Copy):
    """The same samples on the device."""

    op_name = "to_device"
    devices = ("mixed",)


class ToHost(_Copy):
    """The same samples, back on the host: an output of the graph."""

    op_name = "to_host"
    devices = ("gpu",)


class Merge(Operator):
    """For each sample, the result of the branch that ran for it. The engine runs it, because it reads from branches."""

    op_name = "merge"
    inputs = ("predicate", "then", "orelse")
    devices = ("cpu", "gpu")
    reads_branches = True

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        _, then, orelse = inputs
        shape = None
        if then.shape is not None and orelse.shape is not None:
            shape = tuple(a if a == b else None for a, b in zip(then.shape, orelse.shape, strict=True))
        layout = then.layout if then.layout == orelse.layout else ""
        return TensorSpec(then.dtype if then.dtype is not None else orelse.dtype, shape, layout)


class Partial(Operator):
    """The samples of one branch. The engine runs it, because it reads from a branch."""

    op_name = "partial"
    inputs = ("predicate", "value")
    devices = ("cpu", "gpu")
    reads_branches = True
    branch = Constant("bool", doc="the branch that has a value")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[1]


class RecordName(Operator):
    """uint8, (bytes,): the record of every sample, such as `cat/3.jpg@0`."""

    op_name = "record_name"
    inputs = ("data",)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec.of("uint8", (None,))

    def run_batch(self, samples: Samples, data: TensorList) -> TensorList:
        names = [samples.record_id(index).encode("utf-8", "surrogateescape") for index in range(len(samples))]
        return TensorList([np.frombuffer(name, np.uint8) for name in names])


class ShapeOf(Operator):
    """(rank,), int64 by default: the shape of every sample."""

    op_name = "shapes"
    inputs = ("data",)
    devices = ("cpu", "gpu")
    dtype = Constant("dtype", default="int64", doc="the dtype of the shape")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec.of(self.dtype, (inputs[0].ndim,))

    def run_batch(self, samples: Samples, data: TensorList) -> TensorList:
        if data.is_stacked:
            shape = np.array(data.as_array().shape[1:], self.dtype)
            return TensorList(np.broadcast_to(shape, (len(data), len(shape))))
        return TensorList([np.array(sample.shape, self.dtype) for sample in data])

    def run_arrays(self, xp: Namespace, data: Value) -> Value:
        shape = np.array(data.shape[1:], self.dtype)
        return xp.asarray(np.tile(shape, (data.shape[0], 1)))
