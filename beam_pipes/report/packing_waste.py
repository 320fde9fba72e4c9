"""What rows of a few lengths would waste, packed and not."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.loader.packing import ALGORITHMS


class Waste(NamedTuple):
    """Rows of `sequence_length` places. `packed` and `padded` are the shares of places that hold no token: rows packed
    by best-fit, and one record a row. `cut` is the share of tokens that lie beyond the end of a row."""

    sequence_length: int
    packed_rows: int
    packed: float
    padded: float
    cut: float


def packing_waste(lengths: npt.NDArray[np.int64], *, sequence_lengths: list[int] | None = None) -> list[Waste]:
    """The waste at each sequence length; by default powers of two from the median to the longest record, five at most.

    Lengths 6, 4, 3, 3, 2, 2 at 10 → packed 0.0 in 2 rows, padded 0.667, cut 0.0.
    """
    filled = lengths[lengths > 0]
    if not len(filled):
        return []
    wanted = sequence_lengths if sequence_lengths is not None else _powers(filled)
    made = []
    for length in wanted:
        kept = np.minimum(filled, length)
        rows = int(ALGORITHMS["best_fit"](kept, length).max()) + 1
        tokens, places = int(kept.sum()), rows * length
        made.append(
            Waste(
                sequence_length=length,
                packed_rows=rows,
                packed=1 - tokens / places,
                padded=1 - tokens / (len(kept) * length),
                cut=1 - tokens / int(filled.sum()),
            )
        )
    return made


def _powers(lengths: npt.NDArray[np.int64]) -> list[int]:
    low = max(3, math.ceil(math.log2(max(1.0, float(np.median(lengths))))))
    high = max(low, math.ceil(math.log2(float(lengths.max()))))
    return sorted({2 ** int(round(power)) for power in np.linspace(low, high, min(5, high - low + 1))})
