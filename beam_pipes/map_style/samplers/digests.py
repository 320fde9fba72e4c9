"""A short name for the content of an array."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np


def digest(array: np.ndarray[Any, Any]) -> str:
    """Returns `"<size>:<16 hex digits>"` of the values as little-endian 64-bit numbers; equal arrays, equal digests."""
    wide = "<f8" if array.dtype.kind == "f" else "<i8"
    content = hashlib.sha256(np.ascontiguousarray(array).astype(wide).tobytes()).hexdigest()
    return f"{array.size}:{content[:16]}"


def digest_list(indices: Sequence[Any] | np.ndarray[Any, Any]) -> str:
    """Returns the same for a list of indices, or of lists of indices: `"<length>:<16 hex digits>"`."""
    plain = [np.asarray(item).tolist() for item in indices]
    return f"{len(plain)}:{hashlib.sha256(repr(plain).encode()).hexdigest()[:16]}"
