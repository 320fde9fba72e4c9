"""Batches of spectrograms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from beam_pipes.map_style.batching.sequences import pad_into_batch


def batch_spec(
    minibatch: Sequence[ArrayLike],
    pad_value: float = 0.0,
    time_major: bool = False,
    dtype: DTypeLike = np.float32,
    *,
    length: int | None = None,
    return_lengths: bool = False,
) -> Any:
    """Pads spectrograms with `pad_value` to the most frames and stacks them.

    Args:
      minibatch: arrays of shape (F, T_i) or (C, F, T_i); with `time_major` (T_i, F) or (T_i, C, F).
      pad_value: written behind shorter spectrograms, 0.0 by default. It has to be a value of `dtype`; for
        log magnitudes the value of silence is log(1e-5) = -11.5, not 0.
      time_major: time is the first axis of an example instead of the last.
      dtype: float32 by default.
      length: pad to this many frames instead of the longest, for a static shape.
      return_lengths: return `(spectrograms, lengths)`, lengths in frames, int64 of shape (B,).

    Returns an array of shape (B, F, T) or (B, C, F, T); with `time_major` (B, T, F) or (B, T, C, F). Raises
    `DatasetError` for an empty minibatch or unequal bands.
    """
    return pad_into_batch(
        "batch_spec",
        minibatch,
        axis=0 if time_major else -1,
        pad_value=pad_value,
        dtype=dtype,
        length=length,
        lengths=return_lengths,
        ranks=(2, 3),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecBatcher:
    """`batch_spec` with its options held, for places that take a callable."""

    pad_value: float = 0.0
    time_major: bool = False
    dtype: DTypeLike = np.float32
    length: int | None = None
    return_lengths: bool = False

    def __call__(self, minibatch: Sequence[ArrayLike]) -> Any:
        return batch_spec(
            minibatch,
            self.pad_value,
            self.time_major,
            self.dtype,
            length=self.length,
            return_lengths=self.return_lengths,
        )
