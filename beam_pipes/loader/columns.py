"""One feature of several records, as rows are made of them.

A *column* is what a split gives for some records: of a ragged feature all values, one after the other, and how many
each record has; of any other feature one value a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import Indices


class Column(NamedTuple):
    """`values` is (sum of lengths, *rest) with `lengths` (n,), or (n, *shape) without."""

    values: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64] | None = None


def columns_of(split: Any, features: Sequence[str], records: Indices) -> dict[str, Column]:
    """Features of some records of a split, or of anything that is read like one.

    What derives several features of a record together has a `columns_of(features, records)` of its own, which is
    called instead: so they are derived once.
    """
    read = getattr(split, "columns_of", None)
    if read is not None:
        columns: dict[str, Column] = read(features, records)
        return columns
    columns = {}
    for name in features:
        if split.spec[name].has_shape_feature:
            columns[name] = _uniform(split, name, records)
        elif split.spec[name].ragged:
            columns[name] = Column(*split.gather_values(name, records))
        else:
            columns[name] = Column(split.gather(records, features=[name])[name])
    return columns


def _uniform(split: Any, feature: str, records: Indices) -> Column:
    """A feature whose inner dimensions are not fixed by its spec, but are the same in these records."""
    read = split.gather(records, features=[feature], ragged="values")
    values, lengths, shapes = read[feature], read[f"{feature}/lengths"], read[f"{feature}/shape"]
    inner = np.unique(shapes[:, 1:], axis=0)
    if len(inner) > 1:
        raise LoaderError(
            f"feature {feature!r} has the inner dimensions {inner[0].tolist()} and {inner[1].tolist()} in records of "
            "one batch, so that its values cannot be laid out in rows; make them alike when the cache is built, or "
            "leave the feature out",
            feature=feature,
        )
    sizes = inner[0].tolist() if len(inner) else [0] * (shapes.shape[1] - 1)
    return Column(values.reshape(int(lengths.sum()), *sizes), lengths)
