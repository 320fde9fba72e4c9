"""Outputs of graphs as plain Python values, to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.graph import Pipeline


def plain(batch: Any) -> dict[str, list[tuple[str, Any]]]:
    """Name → (dtype, value) for each sample, from the outputs of `run` or an iterator."""
    columns: Mapping[str, Any] = batch if isinstance(batch, Mapping) else batch.as_dict()
    return {
        name: [(np.asarray(one).dtype.name, np.asarray(one).tolist()) for one in column]
        for name, column in columns.items()
    }


def batches(pipe: Pipeline, count: int) -> list[dict[str, list[tuple[str, Any]]]]:
    """The next `count` batches."""
    return [plain(pipe.run()) for _ in range(count)]


def numbered(count: int) -> Any:
    """A source for `external_source(…, batch=False)`: `count` samples, each its number as int64."""

    def source(info: Any) -> Any:
        if info.idx_in_epoch >= count:
            raise StopIteration
        return np.int64(info.idx_in_epoch)

    return source
