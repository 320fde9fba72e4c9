"""What a loader reads: *rows*, numbered from 0, gathered by number. A row is a record, or a packed bin of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import LENGTHS, Batch, Fills, PadValue, fills_of
from beam_pipes.loader.identity import Identity
from beam_pipes.loader.order import Indices


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatherOptions:
    """How rows become arrays; none of it changes which rows come, or their order.

    features: the features to read, all by default; fewer are proportionally cheaper.
    ragged: "pad" to rectangular arrays, or "values": all values concatenated, beside `<feature>/lengths`.
    pad_to: the padded width, one for all ragged features or by name; the longest of the batch by default. A fixed
        width gives static shapes, which compilers want.
    pad_value: what fills ragged features, one for all or by name; checked against the dtype. Rows that `last="pad"`
        adds hold 0 in features of a fixed shape, unless named, and in lengths, shapes, segment ids and positions.
    """

    features: tuple[str, ...] | None = None
    ragged: str = "pad"
    pad_to: int | Mapping[str, int] | None = None
    pad_value: PadValue = 0

    def __post_init__(self) -> None:
        if self.ragged not in ("pad", "values"):
            raise LoaderError(f"ragged should be 'pad' or 'values', got {self.ragged!r}")
        if self.ragged == "values" and self.pad_to is not None:
            raise LoaderError("pad_to has no meaning with ragged='values'; leave one of them out")
        for width in self.pad_to.values() if isinstance(self.pad_to, Mapping) else [self.pad_to]:
            is_integer = isinstance(width, (int, np.integer)) and not isinstance(width, bool)
            if width is not None and not (is_integer and width >= 0):
                raise LoaderError(f"pad_to should be a width, or a width for each name, got {self.pad_to!r}")


class Rows(Protocol):
    """A numbered set of rows. Reading is safe from several threads."""

    @property
    def size(self) -> int: ...

    @property
    def features(self) -> tuple[str, ...]: ...

    @property
    def fills(self) -> Fills:
        """What fills each feature; other columns of a batch are 0 where there is nothing."""
        ...

    @property
    def split(self) -> Any:
        """The split that the rows are made of."""
        ...

    @property
    def row_bytes(self) -> int | None:
        """Bytes of a row in a batch; None if a row looks different beside other rows (padded to the longest)."""
        ...

    @property
    def block_sizes(self) -> Indices:
        """Sizes of runs of consecutive rows that are stored together."""
        ...

    @property
    def draws_anew(self) -> bool:
        """Whether a row is another one in every epoch: `gather` then gets `row + epoch · size`."""
        ...

    def identity(self) -> dict[str, Any]:
        """What the rows depend on, as JSON; part of the state."""
        ...

    def gather(self, rows: Indices) -> Batch: ...

    def will_need(self, blocks: Indices) -> None:
        """Says which blocks come next, so that they can be fetched meanwhile."""
        ...

    def check_room(self, windows: Sequence[Indices]) -> None:
        """Raises `LoaderError` where there is no room for a window of blocks beside the next one."""
        ...


class SplitRows:
    """The records of a split."""

    draws_anew = False

    def __init__(self, split: Any, options: GatherOptions) -> None:
        self._identity = Identity.of_split(split)
        self.split = self._split = split
        self._options = dataclasses.asdict(options)
        unknown = sorted(set(options.features or ()) - set(split.spec))
        if unknown:
            raise LoaderError(
                f"split {split.name!r} has no feature {unknown[0]!r}; it has: {', '.join(sorted(split.spec))}",
                feature=unknown[0],
            )
        if options.features is not None:
            self._options["features"] = list(options.features)
        self.size = len(split)
        self.features = options.features or tuple(split.spec)
        self.fills = fills_of(split.spec, self.features, options.pad_value)

    @property
    def row_bytes(self) -> int | None:
        total = 0
        for name in self.features:
            spec = self._split.spec[name]
            shape = spec.shape
            if spec.ragged:
                pad_to = self._options["pad_to"]
                width = pad_to.get(name) if isinstance(pad_to, Mapping) else pad_to
                if self._options["ragged"] == "values" or width is None or None in shape[1:]:
                    return None
                shape = (width, *shape[1:])
            total += math.prod(shape) * spec.numpy_dtype.itemsize
        return total

    @property
    def block_sizes(self) -> Indices:
        return np.asarray(self._split.shard_sizes, np.int64)

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(self._identity)

    def gather(self, rows: Indices) -> Batch:
        batch: Batch = self._split.gather(rows, **self._options)
        return batch

    def will_need(self, blocks: Indices) -> None:
        will_need = getattr(self._split, "will_need", None)
        if will_need is not None:
            will_need(blocks)

    def check_room(self, windows: Sequence[Indices]) -> None:
        check_room = getattr(self._split, "check_room", None)
        if check_room is not None:
            check_room(windows)


def checked_features(features: Sequence[str]) -> tuple[str, ...]:
    """`features` as a tuple; raises `LoaderError` for a single string, and for an empty list."""
    if isinstance(features, str) or not features:
        raise LoaderError(f"features should be a list of at least one name, got {features!r}")
    return tuple(features)


def checked_name(name: str, features: tuple[str, ...]) -> str:
    """A column that the loader adds; raises `LoaderError` where a feature has that name."""
    if name in features or name + LENGTHS in features:
        raise LoaderError(
            f"the loader adds a column {name!r}, and there is a feature of that name; "
            "leave it out with features=[…], or rename it when building the cache",
            feature=name,
        )
    return name
