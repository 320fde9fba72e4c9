"""One source of rows: a path, a split, a packing plan, or records padded one by one. (A `Mixture` has several.)"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from beam_pipes.cache.decoding import MessageDecoder
from beam_pipes.cache.reader import Cache, open_split
from beam_pipes.cache.spec import FeatureSpec
from beam_pipes.cache.split import Split
from beam_pipes.errors import LoaderError

if TYPE_CHECKING:
    from beam_pipes.loader.packed_rows import PaddedSplit
    from beam_pipes.loader.packing.plan import PackingPlan


class SplitLike(Protocol):
    """A split of a cache, or what is read like one (a split behind the steps of a task, several side by side).

    `manifest_id` and `name` say which data it is, so that a state of other data is refused; `spec` has its features.
    """

    name: str

    @property
    def manifest_id(self) -> str: ...
    @property
    def spec(self) -> Mapping[str, Any]: ...
    def __len__(self) -> int: ...


RowSource: TypeAlias = "str | os.PathLike[str] | SplitLike | PackingPlan | PaddedSplit"


def opened(source: Any, decode: MessageDecoder | Mapping[str, FeatureSpec] | None = None) -> Any:
    """What a path names, opened; everything else as it is. With `decode`, a split of messages read as examples.

    `opened("cache/train")` → the split `train` of the published snapshot in `cache`. Raises `CacheNotFoundError` where
    there is no such split; it lists those that there are.
    """
    if isinstance(source, str | os.PathLike):
        source = open_split(source)
    if isinstance(source, Cache):
        raise LoaderError(
            f"a loader reads one split, got the cache {source.path!r}. Choose one: "
            f"{', '.join(f'cache[{split!r}]' for split in source.splits)}."
        )
    if decode is None:
        return source
    if not isinstance(source, Split):
        raise LoaderError(
            f"decode is for one split of a cache, got {type(source).__name__}. Decode before: "
            "cache['train'].decoded(…) in the place of cache['train']."
        )
    return source.decoded(decode)
