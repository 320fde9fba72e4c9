"""`TensorSpec`: what is known of a data node's samples before anything runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """dtype, shape and layout of every sample of a node; None where it is not known.

    `shape` has None for a dimension that varies by sample, and is None itself where not even the rank is known.
    `layout` names the axes ("HWC", "CHW", "FHWC"); "" where they have no names.
    """

    dtype: np.dtype[Any] | None = None
    shape: tuple[int | None, ...] | None = None
    layout: str = ""

    @classmethod
    def of(cls, dtype: Any, shape: tuple[int | None, ...] | None = None, layout: str = "") -> TensorSpec:
        """`TensorSpec.of("float32", (None, None, 3), "HWC")`."""
        return cls(None if dtype is None else np.dtype(dtype), shape, layout)

    @classmethod
    def of_rank(cls, dtype: Any, ndim: int | None, layout: str = "") -> TensorSpec:
        """A spec of which the rank is known, and no dimension."""
        return cls.of(dtype, None if ndim is None else (None,) * ndim, layout)

    @property
    def ndim(self) -> int | None:
        """The rank; None where it is not known."""
        return None if self.shape is None else len(self.shape)

    def replace(self, **changes: Any) -> TensorSpec:
        """The same with other fields: `spec.replace(dtype=np.dtype("uint8"))`."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        dtype = "?" if self.dtype is None else self.dtype.name
        shape = "?" if self.shape is None else "×".join("·" if size is None else str(size) for size in self.shape)
        return f"{dtype}[{shape}]" + (f" {self.layout}" if self.layout else "")


UNKNOWN = TensorSpec()


def axis_of(layout: str, name: str) -> int | None:
    """The axis that is called `name`: `axis_of("HWC", "C")` → 2; None where the layout has none."""
    at = layout.find(name)
    return None if at < 0 else at
