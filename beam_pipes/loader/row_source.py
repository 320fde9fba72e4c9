"""One source of rows: a path, a split, a packing plan, windows, or padded records. (A `Mixture` has several.)"""

from __future__ import annotations

import dataclasses
import os
import resource
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np

from beam_pipes.cache.columns import PadTo
from beam_pipes.cache.reader import Cache, open_split
from beam_pipes.cache.split import Split
from beam_pipes.checks import choice, known
from beam_pipes.errors import LoaderError
from beam_pipes.format.message_features import MessageDecoder
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.loader.order import Indices

S = TypeVar("S")


class SplitLike(Protocol):
    """A split of a cache, or anything with its interface (a split after the steps of a task, several side by side).

    `manifest_id` and `name` identify the data, so that a state of other data is refused; `spec` has its features.
    """

    name: str

    @property
    def manifest_id(self) -> str: ...
    @property
    def spec(self) -> Mapping[str, FeatureSpec]: ...
    def __len__(self) -> int: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """A split of one snapshot: the id of its manifest, its name, its number of records."""

    manifest: str
    split: str
    rows: int

    @classmethod
    def of_split(cls, split: SplitLike) -> Identity:
        try:
            return cls(manifest=str(split.manifest_id), split=str(split.name), rows=len(split))
        except (AttributeError, TypeError) as error:
            raise LoaderError(
                f"expected a split of a cache (Cache.open(path)['train']), got {type(split).__name__}"
            ) from error

    def __str__(self) -> str:
        return f"split {self.split!r} of manifest {self.manifest} ({self.rows} records)"


class MeasuredSplit(SplitLike, Protocol):
    """A split that knows how long its records are, as views of splits read it."""

    @property
    def shard_sizes(self) -> np.ndarray: ...
    def lengths(self, feature: str, indices: np.ndarray | None = None) -> np.ndarray: ...


class ReadSplit(MeasuredSplit, Protocol):
    """A split that is read: rows are made from it. One that derives features of a record together has `columns_of`,
    which is called in place of `gather` and `gather_values` (see `columns.columns_of`)."""

    def shapes(self, feature: str, indices: Indices) -> np.ndarray: ...
    def gather_values(self, feature: str, indices: Indices) -> tuple[np.ndarray, np.ndarray]: ...
    def gather(
        self,
        indices: Indices,
        *,
        features: Sequence[str] | None = None,
        ragged: Literal["pad", "values"] = "pad",
        pad_to: PadTo = None,
    ) -> dict[str, np.ndarray]: ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PaddedSplit:
    """Records of a split as rows of fixed length; passed to `Loader` in place of a split.

    Record [5, 6, 7] in a row of 5: tokens [5, 6, 7, 0, 0], tokens_segment_ids [1, 1, 1, 0, 0], tokens_positions
    [0, 1, 2, 0, 0]: the same columns as a `PackingPlan` of several features, so that consumers can read both.

    split: the split, its path, or anything with its interface.
    sequence_lengths: feature → length of its leading dimension in a row; None keeps it: a fixed shape, or a ragged
        feature padded to the longest row of the global batch. Only these features are read.
    segments: adds the segment ids and positions of ragged features.
    overlong: a record longer than its row is an error ("error"), or cut off ("truncate").
    """

    split: MeasuredSplit
    sequence_lengths: Mapping[str, int | None]
    segments: bool = True
    overlong: str = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", one_split(self.split, "PaddedSplit"))
        choice(self.overlong, of=("error", "truncate"), what="overlong", error=LoaderError)
        if not self.sequence_lengths:
            raise LoaderError("sequence_lengths={} names no feature; pass {name: length}, or None for a length")
        for name, length in self.sequence_lengths.items():
            where = f"split {self.split.name!r}"
            known(name, among=sorted(self.split.spec), what="feature", where=where, error=LoaderError, feature=name)
            spec = self.split.spec[name]
            if length is not None and spec.shape[:1] not in ((None,), (length,)):
                raise LoaderError(
                    f"the leading dimension of feature {name!r} is fixed by its shape {spec.shape} and cannot be "
                    f"padded to {length}; leave its length out",
                    feature=name,
                )

    def __len__(self) -> int:
        return len(self.split)


def allow_open_files(sources: int) -> None:
    """Raises the limit of this process, often 1,024, where it may: every snapshot that is read keeps a file open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sources + 1024 if hard == resource.RLIM_INFINITY else min(sources + 1024, hard)
    if sources > 256 and soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def opened(
    source: str | os.PathLike[str] | S, decode: MessageDecoder | Mapping[str, FeatureSpec] | None = None
) -> Split | S:
    """Opens a path; returns everything else unchanged. With `decode`, a split of messages read as examples.

    `opened("cache/train")` → the split `train` of the published snapshot in `cache`. Raises `CacheNotFoundError` if
    there is no such split; it lists the existing ones.
    """
    found: Split | S
    if isinstance(source, str | os.PathLike):
        found = open_split(source)
        found.follows_states = True
    else:
        found = source
    if isinstance(found, Cache):
        raise LoaderError(
            f"a loader reads one split, got the cache {found.path!r}. Choose one: "
            f"{', '.join(f'cache[{split!r}]' for split in found.splits)}."
        )
    if decode is None:
        return found
    if not isinstance(found, Split):
        raise LoaderError(
            f"decode is for one split of a cache, got {type(found).__name__}. Decode before: "
            "cache['train'].decoded(…) in the place of cache['train']."
        )
    return found.decoded(decode)


def one_split(source: str | os.PathLike[str] | S, reader: str) -> Split | S:
    """`opened`, for a `reader` that takes the records of one split.

    `one_split("cache/train", "pack")` → the split. Raises `LoaderError` for a plan, a loader, None.
    """
    found = opened(source)
    if not isinstance(getattr(found, "spec", None), Mapping):
        raise LoaderError(
            f"{reader} takes one split of a cache, Cache.open(path)['train'], or its path; got "
            f"{type(found).__name__}. Packing plans and mixtures are read by Loader(…) alone."
        )
    return found
