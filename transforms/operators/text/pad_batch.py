"""`fn.pad_batch`: sequences of a batch filled up to one length."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import saturated


class PadBatch(Operator):
    """Pads sequences (along their first axis) to the longest of the batch, and gives their lengths.

    `pad_batch([[7, 8, 9], [5]])` → `[[7, 8, 9], [5, 0, 0]]`, `[3, 1]`

    With `length` all batches are that long: shapes that do not change are compiled once. Longer sequences are an error,
    or are cut with `truncate`; their length is then that of what is left.
    """

    inputs = ("sequences",)
    num_outputs = 2
    length = Constant("int", default=None, doc="the length of all batches; that of the longest sequence by default")
    multiple_of = Constant("int", default=1, doc="lengths are a multiple of it")
    pad_value = Constant("float", default=0.0, doc="what is padded with")
    truncate = Constant("bool", default=False, doc="whether sequences longer than `length` are cut")

    @property
    def mixes_samples(self) -> bool:
        return self.length is None

    def check(self) -> None:
        if self.multiple_of < 1 or (self.length is not None and self.length < 1):
            raise self.argument_error(
                f"length and multiple_of should be at least 1, got {self.length} and {self.multiple_of}."
            )
        if self.truncate and self.length is None:
            raise self.argument_error("truncate needs length.")

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        spec = inputs[0]
        if spec.ndim == 0:
            raise self.refuse(f"expected sequences, got scalars: {spec}")
        if spec.dtype is not None and saturated(np, np.array([self.pad_value]), spec.dtype)[0] != self.pad_value:
            raise self.refuse(f"pad_value={self.pad_value:g} is no {spec.dtype}")
        shape = None if spec.shape is None else (self._target(0) if self.length else None, *spec.shape[1:])
        return [spec.replace(shape=shape), TensorSpec.of("int32", ())]

    def _target(self, longest: int) -> int:
        wanted = int(self.length or longest)
        return -(-wanted // int(self.multiple_of)) * int(self.multiple_of)

    def run_batch(self, samples: Samples, sequences: TensorList) -> tuple[Any, Any]:
        lengths = np.array([len(one) for one in sequences], np.int64)
        if self.truncate:
            lengths = np.minimum(lengths, self.length)
        elif self.length is not None and len(lengths) and lengths.max() > self.length:
            raise ValueError(
                f"a sequence of {lengths.max()} is longer than length={self.length}; cut it with truncate=True"
            )
        if not len(lengths):
            return TensorList([]), TensorList(np.zeros(0, np.int32))
        target = self._target(int(lengths.max()))
        first = sequences[0]
        if any(one.shape[1:] != first.shape[1:] for one in sequences):
            raise ValueError("sequences should be alike but for their length")
        made = np.full((len(lengths), target, *first.shape[1:]), self.pad_value, first.dtype)
        for index, (one, length) in enumerate(zip(sequences, lengths.tolist(), strict=True)):
            made[index, :length] = one[:length]
        return made, lengths.astype(np.int32)
