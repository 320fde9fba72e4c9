"""Batches of waveforms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from beam_pipes.map_style.batching.sequences import pad_into_batch


def batch_wav(
    minibatch: Sequence[ArrayLike],
    pad_value: float = 0.0,
    dtype: DTypeLike = np.float32,
    *,
    length: int | None = None,
    return_lengths: bool = False,
) -> Any:
    """Pads waveforms with `pad_value` to the longest and stacks them.

    Args:
      minibatch: arrays of shape (T_i,), or (C, T_i) with the same number of channels C.
      pad_value: written behind shorter waveforms; 0.0, silence, by default. It has to be a value of `dtype`.
      dtype: float32 by default. int16 samples become floats of the same value: they are not scaled.
      length: pad to this many samples instead of the longest, for a static shape.
      return_lengths: return `(waves, lengths)`, lengths in samples, int64 of shape (B,).

    Returns an array of shape (B, T) or (B, C, T). Raises `DatasetError` for an empty minibatch or unequal channels.
    """
    return pad_into_batch(
        "batch_wav",
        minibatch,
        axis=-1,
        pad_value=pad_value,
        dtype=dtype,
        length=length,
        lengths=return_lengths,
        ranks=(1, 2),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WavBatcher:
    """`batch_wav` with its options held, for places that take a callable."""

    pad_value: float = 0.0
    dtype: DTypeLike = np.float32
    length: int | None = None
    return_lengths: bool = False

    def __call__(self, minibatch: Sequence[ArrayLike]) -> Any:
        return batch_wav(minibatch, self.pad_value, self.dtype, length=self.length, return_lengths=self.return_lengths)
