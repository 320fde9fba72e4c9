"""`fn.pack`: several sequences of a batch in one row."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.loader.packing.best_fit import best_fit
from beam_pipes.loader.packing.first_fit import first_fit

METHODS = {"first_fit": first_fit, "best_fit": best_fit}


class Pack(Operator):
    """Puts the sequences of a batch one behind the other into rows of `length`: tokens, segments, positions.

        pack([[7, 8], [5], [1, 2, 3]], length=4)
          → tokens     [[7, 8, 5, 0], [1, 2, 3, 0], [0, 0, 0, 0]]
            segments   [[1, 1, 2, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
            positions  [[0, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0]]

    A batch has as many rows as sequences; those that are not needed stand at its end and hold nothing (segment 0
    everywhere). Segments count from 1 within each row. To pack over a whole data set, with next to nothing wasted, plan
    it from the cache's index (`beam_pipes.loader`) instead.
    """

    inputs = ("sequences",)
    num_outputs = 3
    length = Constant("int", doc="tokens of a row")
    method = Constant("str", default="first_fit", doc="'first_fit' keeps the order of rows, 'best_fit' wastes less")
    truncate = Constant("bool", default=False, doc="whether sequences longer than a row are cut")
    pad_value = Constant("int", default=0, doc="what fills the rest of a row")

    mixes_samples = True

    def check(self) -> None:
        if self.length < 1:
            raise self.argument_error(f"length should be at least 1, got {self.length}.")
        if self.method not in METHODS:
            raise self.argument_error(f"method should be one of {', '.join(METHODS)}, got {self.method!r}.")

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        spec = inputs[0]
        if spec.ndim not in (1, None):
            raise self.refuse(f"expected sequences of rank 1, got {spec}")
        shape = (int(self.length),)
        return [TensorSpec(spec.dtype, shape), TensorSpec.of("int32", shape), TensorSpec.of("int32", shape)]

    def run_batch(self, samples: Samples, sequences: TensorList) -> tuple[Any, Any, Any]:
        size = len(sequences)
        kept = [one[: self.length] if self.truncate else one for one in sequences]
        lengths = np.array([len(one) for one in kept], np.int64)
        if size and lengths.max() > self.length:
            raise ValueError(
                f"a sequence of {lengths.max()} tokens is longer than length={self.length}; cut it with truncate=True"
            )
        dtype = sequences.dtype if size else np.dtype("int32")
        tokens = np.full((size, self.length), self.pad_value, dtype)
        segments = np.zeros((size, self.length), np.int32)
        positions = np.zeros((size, self.length), np.int32)
        used = [0] * size
        counts = [0] * size
        filled = np.flatnonzero(lengths)
        rows = METHODS[self.method](lengths[filled], int(self.length)) if len(filled) else filled
        for index, row in zip(filled.tolist(), rows.tolist(), strict=True):
            one = kept[index]
            start, end = used[row], used[row] + len(one)
            counts[row] += 1
            tokens[row, start:end] = one
            segments[row, start:end] = counts[row]
            positions[row, start:end] = np.arange(len(one))
            used[row] = end
        return tokens, segments, positions
