"""NumpyDataLoader: elements as NumPy arrays of their own memory."""

from __future__ import annotations

from typing import Any

from beam_pipes.on_device.conversions import to_host
from beam_pipes.on_device.lambda_loader import ConvertedLoader


class NumpyDataLoader(ConvertedLoader):
    """`{'x': <tf.Tensor [1, 2]>}` → `{'x': array([1, 2], dtype=int32)}`, writable and the consumer's own.

    Scalars become NumPy scalars, strings `bytes`, ragged values an object array of rows.
    """

    def _host(self, sample: Any) -> Any:
        return to_host(sample)
