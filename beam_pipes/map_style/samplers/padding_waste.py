"""How much of what is fed is padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def padding_waste(batches: Iterable[Sequence[int]], lengths: Sequence[int] | np.ndarray[Any, Any]) -> float:
    """Returns the share of padding, in [0, 1), when each batch of indices is padded to its longest example.

    padding_waste([[0, 1]], lengths=[2, 4]) → 0.25: six of eight elements are data
    """
    known = np.asarray(lengths, dtype=np.int64)
    data = padded = 0
    for batch in batches:
        chosen = known[np.asarray(batch, dtype=np.int64)]
        data += int(chosen.sum())
        padded += len(chosen) * int(chosen.max(initial=0))
    return 1.0 - data / padded if padded else 0.0
