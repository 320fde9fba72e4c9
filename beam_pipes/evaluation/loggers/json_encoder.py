"""JSON of what evaluation handles: arrays, tensors, bytes, metric values."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import numpy as np


class TensorAndNumpyEncoder(json.JSONEncoder):
    """Encodes NumPy arrays and scalars, TensorFlow and ragged tensors, bytes and dataclasses.

    `{"ids": array([1, 2]), "text": b"Hi"}` → `{"ids": [1, 2], "text": "Hi"}`. Arrays with more than
    `max_ndarray_size` values become a summary (`"ndarray(shape=(64,), dtype=int64); summary: 0, 1, 2, 3, 4 ...
    59, 60, 61, 62, 63"`), bytes that are not UTF-8 become base64, bfloat16 becomes float; fields of a dataclass that
    are None are left out.
    """

    def __init__(self, *args: Any, max_ndarray_size: int = 32, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_ndarray_size = max_ndarray_size

    def default(self, o: Any) -> Any:
        if isinstance(o, bytes):
            return _text_of(o)
        if hasattr(o, "to_list") and hasattr(o, "row_splits"):  # tf.RaggedTensor
            return o.to_list()
        if hasattr(o, "numpy") and not isinstance(o, np.ndarray):  # tf.Tensor
            return self.default(np.asarray(o.numpy()))
        if isinstance(o, np.ndarray):
            return self._array(o)
        if isinstance(o, np.generic):
            return o.item() if o.dtype.kind in "biufSU" else float(o)  # bfloat16
        if dataclasses.is_dataclass(o) and not isinstance(o, type):
            fields = ((field.name, getattr(o, field.name)) for field in dataclasses.fields(o))
            return {name: value for name, value in fields if value is not None}
        return super().default(o)

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        plain = array if array.dtype.kind in "biufSUOM" else array.astype(np.float32)
        if plain.dtype.kind == "S":
            plain = plain.astype(object)
        if array.ndim == 0 or array.size <= self.max_ndarray_size:
            return plain.tolist()
        flat = plain.reshape(-1)
        first, last = (json.dumps(part.tolist(), cls=type(self))[1:-1] for part in (flat[:5], flat[-5:]))
        return f"{type(array).__name__}(shape={array.shape}, dtype={array.dtype}); summary: {first} ... {last}"


def _text_of(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")
