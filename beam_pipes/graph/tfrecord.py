"""How features of TFRecords are declared to `fn.readers.tfrecord`, with DALI's names.

import beam_pipes.graph.tfrecord as tfrec

{"image": tfrec.FixedLenFeature([], tfrec.string, ""), "label": tfrec.FixedLenFeature([1], tfrec.int64, -1)}
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from beam_pipes.cache.exact import NotExactError, NotNumbersError, exact_number
from beam_pipes.errors import OperatorArgumentError

int64: Final = "int64"
float32: Final = "float32"
string: Final = "string"

#: What a feature holds → the dtype of its samples, and the list of an Example that stores it.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    int64: np.dtype("int64"),
    float32: np.dtype("float32"),
    string: np.dtype("uint8"),
}
LISTS: Final = {int64: "int64_list", float32: "float_list", string: "bytes_list"}


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class TFRecordFeature:
    """A feature as it is declared. `shape` is None where the number of values varies; then values are given in rows of
    `partial_shape`.
    """

    dtype: str
    default_value: Any
    shape: tuple[int, ...] | None
    partial_shape: tuple[int, ...]

    def _set(self, dtype: str, default: Any, shape: Sequence[int] | None, partial: Sequence[int]) -> None:
        if dtype not in DTYPES:
            raise OperatorArgumentError(f"a feature is one of {', '.join(DTYPES)}, got {dtype!r}.")
        for extents in (shape or (), partial):
            if any(isinstance(one, bool) or not isinstance(one, (int, np.integer)) or one < 0 for one in extents):
                raise OperatorArgumentError(f"the shape of a feature holds extents from 0 on, got {list(extents)}.")
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "default_value", default)
        object.__setattr__(self, "shape", None if shape is None else tuple(map(int, shape)))
        object.__setattr__(self, "partial_shape", tuple(map(int, partial)))
        if dtype == string and (self.partial_shape or math.prod(self.shape or ()) != 1):
            raise OperatorArgumentError(
                f"a feature of strings holds one string, shape [], got {list(self.shape or self.partial_shape)}."
            )
        if dtype != string:
            self.default()  # while the declaration is at hand

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of samples: strings are uint8, their bytes."""
        return DTYPES[self.dtype]

    def default(self) -> np.ndarray[Any, Any]:
        """The sample of a record that lacks the feature."""
        if self.dtype == string:
            given = self.default_value or b""
            return np.frombuffer(given.encode() if isinstance(given, str) else bytes(given), np.uint8)
        try:
            given = np.asarray(exact_number(0 if self.default_value is None else self.default_value, self.numpy_dtype))
        except (NotExactError, NotNumbersError):
            raise OperatorArgumentError(
                f"default_value={self.default_value!r:.40} is no {self.dtype}, which is what the feature is. Choose a "
                "number that is one."
            ) from None
        if self.shape is not None:
            return np.array(np.broadcast_to(given, self.shape), order="C")
        made = np.atleast_1d(given) if self.default_value is not None else np.zeros(0, self.numpy_dtype)
        row = math.prod(self.partial_shape)
        return np.resize(made, row * max(1, made.size // row)).reshape(-1, *self.partial_shape) if row != 1 else made


class FixedLenFeature(TFRecordFeature):
    """As many values as `shape` says in every record; `default_value` (one, or an array of that shape) without them.

    A `string` has shape [] and gives its bytes, (number of bytes,) uint8.
    """

    def __init__(self, shape: Sequence[int], dtype: str, default_value: Any = None) -> None:
        self._set(dtype, default_value, list(shape), ())


class VarLenFeature(TFRecordFeature):
    """Any number of values: `VarLenFeature(int64, -1)` gives (n,), `VarLenFeature([2], int64, -1)` gives (n / 2, 2).

    Records without the feature give the default: one value, or none where it is None.
    """

    def __init__(self, *args: Any, partial_shape: Sequence[int] = ()) -> None:
        if args and not isinstance(args[0], str):
            partial_shape, args = args[0], args[1:]
        if not 1 <= len(args) <= 2:
            raise OperatorArgumentError(
                "VarLenFeature takes (dtype, default_value) or (partial_shape, dtype, default_value)."
            )
        self._set(args[0], args[1] if len(args) > 1 else None, None, partial_shape)
