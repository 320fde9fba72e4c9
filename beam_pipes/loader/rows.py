"""What a loader reads: *rows*, numbered from 0, gathered by number. A row is a record, or a packed bin of them."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.columns import PadTo, padded_shape
from beam_pipes.cache.regions import ArenaValues
from beam_pipes.checks import known
from beam_pipes.errors import LoaderError, SpecError
from beam_pipes.format import dtypes
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.lineage.takedown import is_removed
from beam_pipes.loader.batches import LENGTHS, SHAPE, Batch, Fills, PadValue, fills_of
from beam_pipes.loader.columns import stored_split
from beam_pipes.loader.order import Indices
from beam_pipes.loader.row_source import Identity, MeasuredSplit, ReadSplit


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatherOptions:
    """How rows become arrays; no option changes which rows come, or their order.

    features: the features to read, all by default; fewer are proportionally cheaper.
    ragged: "pad" to rectangular arrays, or "values": all values concatenated, beside `<feature>/lengths`.
    pad_to: the padded width, one for all ragged features or by name (a whole shape where more than the leading
        dimension varies); by default the longest row of the global batch, the same on every host. A fixed width gives
        static shapes, which compilers want, and batches that can be read in groups.
    pad_value: the padding of ragged features, one for all or by name; checked against the dtype. Rows that `last="pad"`
        adds hold 0 in features of a fixed shape, unless named, and in lengths, shapes, segment ids and positions.
    keeps_places: packed rows keep the places of records that are taken down, as padding, and do not close up.
    segments: what packed rows say about their segments: "ids" and positions, or "lengths".
    """

    features: tuple[str, ...] | None = None
    ragged: str = "pad"
    pad_to: PadTo = None
    pad_value: PadValue = 0
    keeps_places: bool = False
    segments: str = "ids"

    def __post_init__(self) -> None:
        if self.ragged not in ("pad", "values"):
            raise LoaderError(f"ragged should be 'pad' or 'values', got {self.ragged!r}")
        if self.ragged == "values" and self.pad_to is not None:
            raise LoaderError("pad_to has no meaning with ragged='values'; leave one of them out")
        named = isinstance(self.pad_to, Mapping)
        for size in self.pad_to.values() if isinstance(self.pad_to, Mapping) else [self.pad_to]:
            widths = size if named and isinstance(size, (tuple, list)) else [size]
            if size is not None and not all(map(_is_width, widths)):
                raise LoaderError(f"pad_to should be a width, or a width or shape for each name, got {self.pad_to!r}")


def _is_width(size: object) -> bool:
    return isinstance(size, (int, np.integer)) and not isinstance(size, bool) and int(size) >= 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """What is known about a column of every batch before any is read.

    dtype: its name, "bytes" and "str" for objects. shape: of one row; None if the longest row of the global batch
    decides. concatenated: whether it holds the values of all rows, one after the other, and `shape` is that of one.
    """

    dtype: str
    shape: tuple[int | None, ...]
    concatenated: bool = False

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}" + (" as values" if self.concatenated else "")


Columns = Mapping[str, ColumnSpec]
Mask = npt.NDArray[np.bool_]
Shapes = Mapping[str, tuple[int, ...]]


def varying(columns: Columns) -> tuple[str, ...]:
    """The columns that are padded to the longest row of a batch."""
    return tuple(name for name, column in columns.items() if None in column.shape and not column.concatenated)


def row_bytes(columns: Columns) -> int | None:
    """Bytes of a row in a batch; None if a row's form depends on the other rows."""
    total = 0
    for column in columns.values():
        if column.concatenated or None in column.shape:
            return None
        total += math.prod(size or 0 for size in column.shape) * dtypes.numpy_dtype(column.dtype).itemsize
    return total


class InMemory(Protocol):
    """A column of rows that are in memory: `rows` copies some of them."""

    def rows(self, first: int, last: int) -> Array:
        """(last - first, *shape)"""
        ...


class Rows(abc.ABC):
    """A numbered set of rows of a split. Reading is safe from several threads."""

    #: The padding of each feature; other columns of a batch are 0 for missing rows.
    fills: Fills
    #: The columns of every batch, in order.
    columns: Columns
    #: Whether rows differ in every epoch: `gather` then gets `row + epoch · size`.
    draws_anew: bool = False

    def __init__(self, split: MeasuredSplit, size: int, features: tuple[str, ...], pad_value: PadValue) -> None:
        self.split = split
        self.size = size
        self.features = features
        self.fills = fills_of(split.spec, features, pad_value)

    @property
    def block_sizes(self) -> Indices:
        """Sizes of runs of consecutive rows that are stored together."""
        return np.asarray(self.split.shard_sizes, np.int64)

    @property
    def most_segments(self) -> int | None:
        """The maximum number of segments in a row; None if that differs by epoch."""
        return 1

    @property
    def segment_multiple(self) -> int:
        """Each segment takes a multiple of this many positions; 1 for rows that are not packed."""
        return 1

    def identity(self) -> dict[str, object]:
        """Everything the rows depend on, as JSON; part of the state."""
        return dataclasses.asdict(Identity.of_split(self.split))

    @abc.abstractmethod
    def costs(self, epoch: int) -> Indices:
        """The cost of each row: the sum of its segments' squared lengths. Raises `LoaderError` without lengths."""

    @abc.abstractmethod
    def widest(self, rows: Indices) -> Shapes:
        """For each column that varies: the smallest shape of a row that holds these rows. Reads no values."""

    @abc.abstractmethod
    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        """The rows as a batch; columns that vary get `shapes`, by default the smallest that hold these rows.

        `shapes` may name columns of a mixture's other sources; they are ignored.
        """

    def is_gone(self, rows: Indices) -> Mask:
        """Whether all records of these rows are taken down now."""
        return is_removed(rows % max(1, self.size), stored_split(self.split).removed_rows)

    def located(self, rows: Indices) -> Mapping[str, InMemory] | None:
        """Where the columns of these rows are in memory; None if a batch is more than a copy of them."""
        return None

    def will_need(self, blocks: Indices) -> None:
        """Announces the next blocks, so that they can be fetched in the background."""
        will_need = getattr(self.split, "will_need", None)
        if will_need is not None:
            will_need(blocks)

    def check_room(self, windows: Sequence[Indices]) -> None:
        """Raises `LoaderError` if there is no room for two consecutive windows of blocks."""
        check_room = getattr(self.split, "check_room", None)
        if check_room is not None:
            check_room(windows)


class SplitRows(Rows):
    """The records of a split."""

    split: ReadSplit

    def __init__(self, split: ReadSplit, options: GatherOptions) -> None:
        self._identity = Identity.of_split(split)
        where = f"split {split.name!r}"
        for name in options.features or ():
            known(name, among=sorted(split.spec), what="feature", where=where, error=LoaderError, feature=name)
        super().__init__(split, len(split), options.features or tuple(split.spec), options.pad_value)
        self._options = dataclasses.asdict(options)
        del self._options["keeps_places"], self._options["segments"]
        if options.features is not None:
            self._options["features"] = list(options.features)
        self.columns = _columns_of_split(split.spec, self.features, options)
        self._varying = varying(self.columns)
        self._pad_to = {name: column.shape for name, column in self.columns.items() if None not in column.shape}

    def identity(self) -> dict[str, object]:
        return dataclasses.asdict(self._identity)  # of the records as of opening

    def costs(self, epoch: int) -> Indices:
        lengths = [self.split.lengths(name) for name in self.features if self.split.spec[name].ragged]
        if not lengths:
            raise LoaderError(
                "BalancedShuffle balances rows of different lengths, and no feature that is read varies in length: "
                f"{', '.join(self.features)}. Pass shuffle=True."
            )
        return np.asarray(sum(np.asarray(each, np.int64) ** 2 for each in lengths), np.int64)

    def widest(self, rows: Indices) -> Shapes:
        found = {}
        for name in self._varying:
            longest = self.split.shapes(name, rows).max(axis=0, initial=0).tolist()
            known = self.columns[name].shape
            found[name] = tuple(one if size is None else size for one, size in zip(longest, known, strict=True))
        return found

    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        options = self._options
        if shapes is not None:
            wider = {name: shapes[name] for name in self._varying}
            options = {**options, "pad_to": {**self._pad_to, **wider}}
        batch: Batch = self.split.gather(rows, **options)
        return batch

    def located(self, rows: Indices) -> Mapping[str, ArenaValues] | None:
        """Where the features of these rows are in memory; None if a batch is more than a copy of them."""
        locate = getattr(self.split, "located", None)
        if locate is None or any(self.split.spec[name].ragged for name in self.features):
            return None
        found: Mapping[str, ArenaValues] | None = locate(rows, self.features)
        return found


def _columns_of_split(spec: Mapping[str, FeatureSpec], features: Sequence[str], options: GatherOptions) -> Columns:
    columns: dict[str, ColumnSpec] = {}
    for name in features:
        feature = spec[name]
        if not feature.ragged or options.ragged == "pad":
            try:
                shape = padded_shape(name, feature, options.pad_to)
            except SpecError as error:
                raise LoaderError(str(error), feature=name) from error
            columns[name] = ColumnSpec(dtype=feature.dtype, shape=shape)
            continue
        inner = () if feature.has_shape_feature else feature.shape[1:]
        columns[name] = ColumnSpec(dtype=feature.dtype, shape=inner, concatenated=True)
        columns[name + LENGTHS] = ColumnSpec(dtype="int64", shape=())
        if feature.has_shape_feature:
            columns[name + SHAPE] = ColumnSpec(dtype="int64", shape=(len(feature.shape),))
    return columns


def columns_in_common(sources: Sequence[Rows]) -> Columns:
    """The columns of a mixture of these sources; a dimension that varies in one of them varies in the mixture.

    Raises `LoaderError`, saying which source has what and what to do, if names, dtypes, ranks or known dimensions
    differ: the sources in a batch vary from step to step and from host to host, but its dtypes and shapes must not.
    """
    first = sources[0].columns
    owners = {name: {column: 0} for name, column in first.items()}  # the first source with each kind of column
    for number, rows in enumerate(sources[1:], 1):
        if rows.columns.keys() != first.keys():
            lacking, having = (number, 0) if first.keys() - rows.columns.keys() else (0, number)
            name = min(sources[having].columns.keys() - sources[lacking].columns.keys())
            raise LoaderError(
                f"the sources of a mixture give different features: {_named(sources, having)} has {name!r}, and "
                f"{_named(sources, lacking)} has only {', '.join(map(repr, sources[lacking].columns))}. Pass "
                "features=[…] with those that all of them have, and pack all of them or none.",
                feature=name,
                source=number,
            )
        for name, column in rows.columns.items():
            for other, owner in owners[name].items():
                if not _alike(column, other):
                    same_dtype = column.dtype == other.dtype
                    remedy = "pack all of them to one length, or give it one shape" if same_dtype else "cast it"
                    raise LoaderError(
                        f"the sources of a mixture differ in feature {name!r}: {_named(sources, owner)} has {other}, "
                        f"and {_named(sources, number)} has {column}. Rows of one batch need one dtype and shape: "
                        f"{remedy} in a stage and build the cache again, or leave {name!r} out with features=[…].",
                        feature=name,
                        source=number,
                    )
            owners[name].setdefault(column, number)
    common = {}
    for name, kinds in owners.items():
        sizes = zip(*(column.shape for column in kinds), strict=True)
        shape = tuple(None if None in found else found[0] for found in sizes)
        common[name] = dataclasses.replace(first[name], shape=shape)
    return common


def _alike(one: ColumnSpec, other: ColumnSpec) -> bool:
    """Whether rows of both fit into one array."""
    return (one.dtype, one.concatenated, len(one.shape)) == (other.dtype, other.concatenated, len(other.shape)) and all(
        None in pair or len(set(pair)) == 1 for pair in zip(one.shape, other.shape, strict=True)
    )


def _named(sources: Sequence[Rows], number: int) -> str:
    split = sources[number].split
    return f"source {number} ({split.name!r} of {getattr(stored_split(split), 'path', split)})"


def checked_features(features: Sequence[str]) -> tuple[str, ...]:
    """`features` as a tuple; raises `LoaderError` for a single string, and for an empty list."""
    if isinstance(features, str) or not features:
        raise LoaderError(f"features should be a list of at least one name, got {features!r}")
    return tuple(features)


def checked_name(name: str, features: tuple[str, ...]) -> str:
    """A column that the loader adds; raises `LoaderError` if a feature has that name."""
    if name in features or name + LENGTHS in features:
        raise LoaderError(
            f"the loader adds a column {name!r}, and there is a feature of that name; "
            "leave it out with features=[…], or rename it when building the cache",
            feature=name,
        )
    return name
