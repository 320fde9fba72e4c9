"""Batches of token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from beam_pipes.map_style.batching.sequences import pad_into_batch


def batch_text_id(
    minibatch: Sequence[ArrayLike],
    pad_id: int = 0,
    dtype: DTypeLike = np.int64,
    *,
    length: int | None = None,
    return_lengths: bool = False,
) -> Any:
    """Pads sequences of ids to the longest and stacks them.

        batch_text_id([[5, 6, 7], [8]])                → [[5, 6, 7], [8, 0, 0]]
        batch_text_id([[5], []], return_lengths=True)  → ([[5], [0]], [1, 0])

    Args:
      minibatch: 1-D integer arrays of shape (T_i,).
      pad_id: written behind shorter sequences, 0 by default; it has to be a value of `dtype`.
      dtype: int64 by default; an id outside its range is an error, with the index of its example.
      length: pad to this length instead of the longest, for a static shape.
      return_lengths: return `(ids, lengths)`, lengths int64 of shape (B,).

    Returns ids of shape (B, T). Raises `DatasetError` for an empty minibatch or an example that is not 1-D.
    """
    return pad_into_batch(
        "batch_text_id",
        minibatch,
        axis=0,
        pad_value=pad_id,
        dtype=dtype,
        length=length,
        lengths=return_lengths,
        ranks=(1,),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextIDBatcher:
    """`batch_text_id` with its options held, for places that take a callable."""

    pad_id: int = 0
    dtype: DTypeLike = np.int64
    length: int | None = None
    return_lengths: bool = False

    def __call__(self, minibatch: Sequence[ArrayLike]) -> Any:
        return batch_text_id(minibatch, self.pad_id, self.dtype, length=self.length, return_lengths=self.return_lengths)
