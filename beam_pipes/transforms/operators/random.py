"""Operators that draw random numbers keyed by record: `random.uniform`, `normal`, `beta`, `coin_flip` and `choice`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Device, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, TensorList, Value
from beam_pipes.transforms.operators.arrays import saturated

# Draws for (n, count) → values of any dtype.
Draw = Callable[[Samples, int], Array]


class Drawing(Operator):
    """An operator that draws scalars, or arrays of `shape`, or of the shape of an input."""

    random = True
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "gpu")
    inputs: ClassVar[tuple[str, ...]] = ("shape_like",)
    optional_inputs = 1
    shape = Argument("ints", default=None, doc="the shape of each sample; a scalar by default", least=0)
    dtype: np.dtype[Any]  # a constant of each operator: their defaults differ

    def shape_spec(self, like: TensorSpec | None) -> tuple[int | None, ...] | None:
        """The known shape of the samples."""
        if "shape" not in self.constants:
            return None
        if self.constants["shape"] is not None:
            if like is not None:
                raise self.refuse("give one of shape and an input whose shape is taken")
            return tuple(int(extent) for extent in self.constants["shape"])
        return () if like is None else like.shape

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape_spec(inputs[0] if inputs else None))

    def host_draws(self, samples: Samples, shapes: Sequence[tuple[int, ...]], **arguments: object) -> dict[str, Array]:
        """The draws for a device, made on the host: the same numbers."""
        # A shape without memory: the values are not read.
        like = [TensorList(np.broadcast_to(np.zeros((), np.bool_), (len(samples), *shape))) for shape in shapes]
        values = self.run_batch(samples, *like, **arguments).dense
        if values is None:
            raise ValueError(
                "on a device all samples have one shape. Give shape a constant, or draw on the host and call .gpu()"
            )
        return {"values": values}

    def run_arrays(self, xp: Namespace, *like: Value, values: Value) -> Value:
        return values


def drawn(samples: Samples, like: TensorList | None, shape: Sequence[Array] | None, draw: Draw) -> TensorList:
    """Values of the shape that each sample should have. A value depends only on its place, not on the shape."""
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


class Uniform(Drawing):
    """Uniformly distributed numbers: from the range [low, high), or one of `values`.

    `uniform(range=(10, 30))` → `17.03, 28.4, 11.9, …`

    With a dtype of integers the numbers are rounded, so that both ends of the range occur.
    """

    range = Argument(
        "floats", default=(-1.0, 1.0), doc="lowest number, and the exclusive upper bound", sizes=(2,), ascending=True
    )
    values = Argument("floats", default=None, doc="the numbers to choose from, instead of a range")
    dtype = Constant("dtype", default="float32", doc="the dtype of the output")

    def check(self) -> None:
        if self.constants.get("values") is not None and not len(self.constants["values"]):
            raise self.argument_error("values should hold at least one number.")

    def run_batch(
        self,
        samples: Samples,
        shape_like: TensorList | None = None,
        *,
        range: Array,
        values: Array | None,
        shape: Sequence[Array] | None,
    ) -> TensorList:
        if values is not None:
            return drawn(samples, shape_like, shape, lambda some, count: self._chosen(some, count, values))
        low, high = np.asarray(range)[:, :1], np.asarray(range)[:, 1:]
        return drawn(samples, shape_like, shape, lambda some, count: self._between(some, count, low, high))

    def _between(self, samples: Samples, count: int, low: Array, high: Array) -> Any:
        made = saturated(np, low + samples.uniform(count) * (high - low), self.dtype)
        if self.dtype.kind != "f":
            return made
        end = high.astype(self.dtype)
        below = np.maximum(np.nextafter(end, np.array(-np.inf, self.dtype)), low.astype(self.dtype))
        return np.where((made >= end) & (high > low), below, made)  # rounding to float32 may reach the end

    def _chosen(self, samples: Samples, count: int, values: Array) -> Any:
        rows = [np.asarray(row) for row in values]
        sizes = np.array([len(row) for row in rows])[:, None]
        chosen = np.minimum((samples.uniform(count) * sizes).astype(np.int64), sizes - 1)
        return saturated(np, np.stack([row[at] for row, at in zip(rows, chosen, strict=True)]), self.dtype)


class Normal(Drawing):
    """Normally distributed numbers.

    `normal(mean=100, stddev=15)` → `98.1, 121.7, 86.0, …`
    """

    mean = Argument("float", default=0.0, doc="the mean")
    stddev = Argument("float", default=1.0, doc="the standard deviation", least=0)
    dtype = Constant("dtype", default="float32", doc="the dtype of the output; integers are rounded")

    def run_batch(
        self,
        samples: Samples,
        shape_like: TensorList | None = None,
        *,
        mean: Array,
        stddev: Array,
        shape: Sequence[Array] | None,
    ) -> TensorList:
        middle, width = np.asarray(mean)[:, None], np.asarray(stddev)[:, None]
        return drawn(
            samples,
            shape_like,
            shape,
            lambda some, count: saturated(np, middle + _standard(some, count) * width, self.dtype),
        )


def _standard(samples: Samples, count: int) -> Array:
    """Standard normal numbers by Box and Muller; the one at a place does not depend on `count`."""
    pairs = samples.uniform(2 * count)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, ::2]))
    return radius * np.cos(2.0 * np.pi * pairs[:, 1::2])


class Beta(Drawing):
    """Numbers of a beta distribution, from 0 to 1, such as the weights of MixUp.

    `beta(alpha=0.4, beta=0.4)` → `0.031, 0.88, 0.97, …`
    """

    alpha = Argument("float", default=1.0, doc="the first parameter: the larger, the nearer to 1", above=0)
    beta = Argument("float", default=1.0, doc="the second parameter: the larger, the nearer to 0", above=0)
    dtype = Constant("dtype", default="float32", doc="the dtype of what is given", choices=("float32", "float64"))

    def run_batch(
        self,
        samples: Samples,
        shape_like: TensorList | None = None,
        *,
        alpha: Array,
        beta: Array,
        shape: Sequence[Array] | None,
    ) -> TensorList:
        def draws(some: Samples, count: int) -> Array:
            # Rejection takes an unknown number of draws: every sample has a generator of its own.
            rows = [
                Sample(some, index).generator.beta(a, b, count)
                for index, (a, b) in enumerate(zip(alpha.tolist(), beta.tolist(), strict=True))
            ]
            return np.array(rows, self.dtype).reshape(len(some), count)

        return drawn(samples, shape_like, shape, draws)


class CoinFlip(Drawing):
    """1 with the given probability, else 0: a scalar for each sample, or an array of `shape`.

    `coin_flip(probability=0.25, dtype=types.BOOL)` → `True, False, False, False, …`
    """

    probability = Argument("float", default=0.5, doc="probability of 1, from 0 to 1", least=0, most=1)
    dtype = Constant("dtype", default="int32", doc="the dtype of the output")

    def run_batch(
        self,
        samples: Samples,
        shape_like: TensorList | None = None,
        *,
        probability: Array,
        shape: Sequence[Array] | None,
    ) -> TensorList:
        return drawn(
            samples,
            shape_like,
            shape,
            lambda some, count: (some.uniform(count) < probability[:, None]).astype(self.dtype),
        )


class Choice(Drawing):
    """Elements of an array, or numbers below an integer: `choice(4)` → `2`, `choice([3, 4, 5], shape=[2])` → `[5, 3]`.

    From an array of higher rank, elements along its first axis are chosen.
    """

    inputs = ("a", "shape_like")
    devices: ClassVar[tuple[Device, ...]] = ("cpu",)
    optional_inputs = 1
    p = Argument("floats", default=None, doc="probability of each element, with sum 1; equal by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        a = inputs[0]
        if a.ndim == 0 and a.dtype is not None and a.dtype.kind not in "iu":
            raise self.refuse(f"expected an array, or the integer that numbers should be below, got {a}")
        own = self.shape_spec(inputs[1] if len(inputs) > 1 else None)
        if own is None or a.shape is None:
            return TensorSpec(a.dtype)
        return TensorSpec(a.dtype, (*own, *a.shape[1:]))

    def run_batch(
        self,
        samples: Samples,
        a: TensorList,
        shape_like: TensorList | None = None,
        *,
        p: Sequence[Array] | None,
        shape: Sequence[Array] | None,
    ) -> TensorList:
        sizes = np.array([int(one) if one.ndim == 0 else len(one) for one in a], np.int64)
        if len(sizes) and sizes.min() < 1:
            raise ValueError("there should be at least one element to choose from")
        chosen = drawn(samples, shape_like, shape, lambda some, count: self._places(some, count, sizes, p))
        made = [
            at.astype(one.dtype) if one.ndim == 0 else np.asarray(one[at]) for one, at in zip(a, chosen, strict=True)
        ]
        return TensorList(made)

    def _places(self, samples: Samples, count: int, sizes: Array, p: Sequence[Array] | None) -> Any:
        uniform = samples.uniform(count)
        if p is None:
            return np.minimum((uniform * sizes[:, None]).astype(np.int64), sizes[:, None] - 1)
        places = np.empty(uniform.shape, np.int64)
        for index, row in enumerate(p):
            row = np.asarray(row, np.float64)
            if len(row) != sizes[index] or np.any(row < 0) or not np.isclose(row.sum(), 1.0, atol=1e-5):
                raise ValueError(
                    f"p should hold {sizes[index]} probabilities whose sum is 1, got {row.tolist()} (sum {row.sum():g})"
                )
            ends = np.cumsum(row / row.sum())
            # Elements of probability zero at the end are never reached, whatever the sum rounds to.
            last = int(np.flatnonzero(row)[-1])
            places[index] = np.minimum(np.searchsorted(ends, uniform[index], side="right"), last)
        return places
