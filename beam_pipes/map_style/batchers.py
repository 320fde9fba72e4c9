"""Batches of spectrograms, of token ids and of waveforms, padded to one length.

Each comes as a function and as a class that holds its options, for places that take a callable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Literal, overload

import numpy as np
from numpy.typing import DTypeLike

from beam_pipes.format.dtypes import Array
from beam_pipes.map_style.batching import Batched, Lengths, Minibatch, pad_into_batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Batcher:
    """A batch function with its options held: the fields are named as its arguments are."""

    _batch: ClassVar[Callable[..., Batched]]
    length: int | None = None
    return_lengths: bool = False

    def __call__(self, minibatch: Minibatch) -> Batched:
        return self._batch(minibatch, **vars(self))


@overload
def batch_spec(
    minibatch: Minibatch,
    pad_value: float = ...,
    time_major: bool = ...,
    dtype: DTypeLike = ...,
    *,
    length: int | None = ...,
    return_lengths: Literal[False] = ...,
) -> Array: ...
@overload
def batch_spec(
    minibatch: Minibatch,
    pad_value: float = ...,
    time_major: bool = ...,
    dtype: DTypeLike = ...,
    *,
    length: int | None = ...,
    return_lengths: Literal[True],
) -> tuple[Array, Lengths]: ...
def batch_spec(
    minibatch: Minibatch,
    pad_value: float = 0.0,
    time_major: bool = False,
    dtype: DTypeLike = np.float32,
    *,
    length: int | None = None,
    return_lengths: bool = False,
) -> Batched:
    """Pads spectrograms with `pad_value` to the most frames and stacks them.

    Args:
      minibatch: arrays of shape (F, T_i) or (C, F, T_i); with `time_major` (T_i, F) or (T_i, C, F).
      pad_value: appended to shorter spectrograms, 0.0 by default. It must be a value of `dtype`; for
        log magnitudes the value of silence is log(1e-5) = -11.5, not 0.
      time_major: time is the first axis of an example instead of the last.
      dtype: float32 by default.
      length: pad to this many frames instead of the longest, for a static shape.
      return_lengths: return `(spectrograms, lengths)`, lengths in frames, int64 of shape (B,).

    Returns an array of shape (B, F, T) or (B, C, F, T); with `time_major` (B, T, F) or (B, T, C, F). Raises
    `DatasetError` for an empty minibatch or unequal bands.
    """
    return pad_into_batch(
        "batch_spec", (2, 3), minibatch, 0 if time_major else -1, pad_value, dtype, length, return_lengths
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecBatcher(_Batcher):
    """`batch_spec` with its options held, for places that take a callable."""

    _batch = staticmethod(batch_spec)
    pad_value: float = 0.0
    time_major: bool = False
    dtype: DTypeLike = np.float32


@overload
def batch_text_id(
    minibatch: Minibatch,
    pad_id: int = ...,
    dtype: DTypeLike = ...,
    *,
    length: int | None = ...,
    return_lengths: Literal[False] = ...,
) -> Array: ...
@overload
def batch_text_id(
    minibatch: Minibatch,
    pad_id: int = ...,
    dtype: DTypeLike = ...,
    *,
    length: int | None = ...,
    return_lengths: Literal[True],
) -> tuple[Array, Lengths]: ...
def batch_text_id(
    minibatch: Minibatch,
    pad_id: int = 0,
    dtype: DTypeLike = np.int64,
    *,
    length: int | None = None,
    return_lengths: bool = False,
) -> Batched:
    """Pads sequences of ids to the longest and stacks them.

        batch_text_id([[5, 6, 7], [8]])                → [[5, 6, 7], [8, 0, 0]]
        batch_text_id([[5], []], return_lengths=True)  → ([[5], [0]], [1, 0])

    Args:
      minibatch: 1-D integer arrays of shape (T_i,).
      pad_id: appended to shorter sequences, 0 by default; it must be a value of `dtype`.
      dtype: int64 by default; an id outside its range is an error, with the index of its example.
      length: pad to this length instead of the longest, for a static shape.
      return_lengths: return `(ids, lengths)`, lengths int64 of shape (B,).

    Returns ids of shape (B, T). Raises `DatasetError` for an empty minibatch or an example that is not 1-D.
    """
    return pad_into_batch("batch_text_id", (1,), minibatch, 0, pad_id, dtype, length, return_lengths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextIDBatcher(_Batcher):
    """`batch_text_id` with its options held, for places that take a callable."""

    _batch = staticmethod(batch_text_id)
    pad_id: int = 0
    dtype: DTypeLike = np.int64


@overload
def batch_wav(
    minibatch: Minibatch,
    pad_value: float = ...,
    dtype: DTypeLike = ...,
    *,
    length: int | None = ...,
    return_lengths: Literal[False] = ...,
) -> Array: ...
@overload
def batch_wav(
    minibatch: Minibatch,
    pad_value: float = ...,
    dtype: DTypeLike = ...,
    *,
    length: int | None = ...,
    return_lengths: Literal[True],
) -> tuple[Array, Lengths]: ...
def batch_wav(
    minibatch: Minibatch,
    pad_value: float = 0.0,
    dtype: DTypeLike = np.float32,
    *,
    length: int | None = None,
    return_lengths: bool = False,
) -> Batched:
    """Pads waveforms with `pad_value` to the longest and stacks them.

    Args:
      minibatch: arrays of shape (T_i,), or (C, T_i) with the same number of channels C.
      pad_value: appended to shorter waveforms; 0.0, silence, by default. It must be a value of `dtype`.
      dtype: float32 by default. int16 samples become floats of the same value: they are not scaled.
      length: pad to this many samples instead of the longest, for a static shape.
      return_lengths: return `(waves, lengths)`, lengths in samples, int64 of shape (B,).

    Returns an array of shape (B, T) or (B, C, T). Raises `DatasetError` for an empty minibatch or unequal channels.
    """
    return pad_into_batch("batch_wav", (1, 2), minibatch, -1, pad_value, dtype, length, return_lengths)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WavBatcher(_Batcher):
    """`batch_wav` with its options held, for places that take a callable."""

    _batch = staticmethod(batch_wav)
    pad_value: float = 0.0
    dtype: DTypeLike = np.float32
