"""A split as a sequence of examples, for the loaders of others; remote splits, read through a local directory.

`random_access` makes a split torch's map-style dataset and Grain's random-access data source. `open_remote` opens a
split whose shards are prefetched from a storage into a bounded local directory: read it with
`Loader(…, shuffle=BlockShuffle(window=…))`, a window of shards while the next one arrives. A global shuffle works too,
but fetches every shard again and again unless the directory holds them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.checks import known
from beam_pipes.errors import LoaderError, SplitNotFoundError
from beam_pipes.format.spec import DecodedExample, Record
from beam_pipes.loader.row_source import Identity, one_split
from beam_pipes.storage.protocol import Storage


def random_access(
    split: Split | str | os.PathLike[str],
    *,
    features: Sequence[str] | None = None,
    transform: Callable[[DecodedExample], object] | None = None,
) -> RandomAccess:
    """`split` (or its path) as a sequence of examples, for the loaders of other libraries.

    `torch.utils.data.DataLoader(random_access(cache["train"]), batch_size=32, shuffle=True)`;
    `grain.MapDataset.source(random_access(cache["train"]))`. Their order, hosts and checkpoints apply, not ours.

    features: names to read, all by default. transform: a function of one example, applied after reading; a module-level
    one where worker processes are spawned.
    """
    split = one_split(split, "random_access")
    for name in features or ():
        where = f"split {split.name!r}"
        known(name, among=sorted(split.spec), what="feature", where=where, error=LoaderError, feature=name)
    return RandomAccess(split, None if features is None else tuple(features), transform)


class RandomAccess:
    """Examples by index: `source[i]` → {'tokens': array(…)}. Picklable (files are opened again), thread-safe.

    `__getitems__` reads a list of examples at once, which torch's DataLoader uses where it exists: about four times
    faster than one by one.
    """

    def __init__(
        self, split: Split, features: tuple[str, ...] | None, transform: Callable[[DecodedExample], object] | None
    ) -> None:
        self._split = split
        self._features = features
        self._transform = transform

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, index: int) -> Record:
        example = self._split[index]  # a new one, returned as it is
        if self._features is not None:
            example = {name: example[name] for name in self._features}
        return example if self._transform is None else self._transform(example)

    def __getitems__(self, indices: Sequence[int]) -> list[Record]:
        names = self._features or tuple(self._split.spec)
        fixed = [name for name in names if None not in self._split.spec[name].shape]
        if len(fixed) < len(names):
            return [self[index] for index in indices]
        batch = self._split.gather(np.asarray(indices, np.int64), features=list(names))
        return [self._finish({name: batch[name][row] for name in names}) for row in range(len(indices))]

    def __iter__(self) -> Iterator[Record]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        # Grain compares this between saving and restoring: it must name the data, without any memory address.
        transform = getattr(self._transform, "__qualname__", type(self._transform).__name__)
        features = "all" if self._features is None else ",".join(self._features)
        return f"RandomAccess({Identity.of_split(self._split)}, features={features}, transform={transform})"

    def _finish(self, example: DecodedExample) -> Record:
        return dict(example) if self._transform is None else self._transform(dict(example))


def open_remote(
    path: str,
    split: str,
    *,
    local_directory: str | os.PathLike[str],
    max_bytes: int,
    storage: Storage | None = None,
) -> Split:
    """Opens a split of the cache at `path` for reading through a local directory of at most `max_bytes`.

    `open_remote("gs://bucket/books", "train", local_directory="shards", max_bytes=10 << 30)` is
    `Cache.open("gs://bucket/books", local_directory="shards", max_local_bytes=10 << 30)["train"]`.

    `storage` is found by the path's scheme if left out. Only the manifest is read now. The directory may be shared by
    processes and caches; it should hold at least two windows of shards. Raises `CacheNotFoundError` if there is
    no cache or no such split, `LoaderError` for a bound below the largest shard.
    """
    cache = Cache.open(path, local_directory=local_directory, max_local_bytes=max_bytes, storage=storage)
    known(split, among=cache.splits, what="split", where=str(path), error=SplitNotFoundError, path=path)
    return cache[split]
