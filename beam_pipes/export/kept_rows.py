"""The rows of a split that are not taken down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from beam_pipes.cache.split import Split


def kept_rows(split: Split) -> Iterator[int]:
    """Their indices, ascending."""
    removed = iter(split.removed_rows.tolist())
    gone = next(removed, None)
    for row in range(len(split)):
        if row == gone:
            gone = next(removed, None)
        else:
            yield row


def num_kept(split: Split) -> int:
    """How many there are."""
    return len(split) - len(np.unique(split.removed_rows))


def examples_of(split: Split) -> Iterator[dict[str, Any]]:
    """The decoded examples, in order."""
    for row in kept_rows(split):
        yield split[row]
