"""The class of operator cases, and the samples that the cases share."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """`call(m, *nodes)` with m.fn, m.types, m.math and m.files, a directory; `columns` are lists of samples.

    `atol` and `rtol` are the tolerance; `share` is the fraction of elements that may differ more, up to `most`.
    """

    call: Callable[..., Any]
    columns: Sequence[Any] = ()
    layout: str | None = None
    atol: float = 0.0
    rtol: float = 0.0
    share: float = 0.0
    most: float = 0.0
    size: int = 0


def draw(seed: int, *shape: int, dtype: str = "uint8") -> Any:
    draws = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return draws.normal(size=shape).astype(dtype)
    return draws.integers(0, 250, shape).astype(dtype)


def npy(array: Any) -> Any:
    file = io.BytesIO()
    np.save(file, array)
    return np.frombuffer(file.getvalue(), np.uint8)


def smooth(*shape: int) -> Any:
    y, x = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    waves = [127 + 100 * np.sin(x / (3 + at) + at) * np.cos(y / (5 - at)) for at in range(shape[2])]
    return np.stack(waves, axis=-1).astype(np.uint8)


#: The tolerance of single precision.
CLOSE = {"rtol": 1e-6, "atol": 2e-6}

BYTES = [np.array([1, 4, 200], np.uint8), np.array([9, 0, 7], np.uint8)]
INTS = [np.array([-3, 2, 9], np.int32), np.array([1, -1, 3], np.int32)]
FLOATS = [np.array([-1.5, 0.25, 2], np.float32), np.array([0.5, -0.75, 3], np.float32)]
DOUBLES = [one.astype(np.float64) for one in FLOATS]
TABLES = [draw(1, 2, 3, 4), draw(2, 3, 1, 4)]
FLAT = [draw(3, 2, 1, 3), draw(4, 4, 1, 2)]
REALS = [draw(5, 3, 4, dtype="float32"), draw(6, 2, 5, dtype="float32")]

PIXELS = [draw(11, 10, 12, 3), draw(12, 7, 9, 3)]
REAL_PIXELS = [np.random.default_rng(13).random((4, 5, 3), np.float32)]
SMOOTH = [smooth(24, 32, 3), smooth(16, 16, 3)]
GREY = [draw(14, 9, 8, 1), draw(15, 4, 5, 1)]
