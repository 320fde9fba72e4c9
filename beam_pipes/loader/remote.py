"""A split whose shards come from a storage when they are needed, and ahead of it, into a bounded local directory.

Use it with `Loader(…, shuffle=BlockShuffle(window=…))`: a window of shards is read while the next one arrives. A global
shuffle works too and fetches every shard again and again, unless the directory holds them all.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from beam_pipes.cache import ExampleSpec, Manifest, Split, SplitManifest, Storage, snapshot_directory, storage_for
from beam_pipes.errors import CacheNotFoundError, ExampleIndexError, LoaderError
from beam_pipes.loader.batches import LENGTHS, Array, Batch, PadValue, merge_rows
from beam_pipes.loader.order import Indices
from beam_pipes.loader.shard_store import ShardStore

_ATTEMPTS = 5
_FETCHING_THREADS = 2

T = TypeVar("T")


def open_remote(
    path: str,
    split: str,
    *,
    local_directory: str | os.PathLike[str],
    max_bytes: int,
    storage: Storage | None = None,
) -> RemoteSplit:
    """Opens a split of the cache at `path` for reading through a local directory of at most `max_bytes`.

    `storage` is found by the path's scheme if left out. Only the manifest is read now. The directory may be shared by
    processes and by caches; it should hold two windows of shards at least. Raises `CacheNotFoundError` where there is
    no cache or no such split, `LoaderError` for a bound below the largest shard.
    """
    storage = storage_for(path) if storage is None else storage
    file = os.path.join(path, "manifest.json")
    manifest = Manifest.from_bytes(storage.read_bytes(file), path=file)
    if split not in manifest.splits:
        raise CacheNotFoundError(f"{path} has no split {split!r}; it has: {', '.join(sorted(manifest.splits))}")
    return RemoteSplit(path, split, manifest, ShardStore(local_directory, max_bytes=max_bytes, storage=storage))


class RemoteSplit:
    """Random access to the records of a split behind a `ShardStore`. The interface of `Split` that loaders use."""

    def __init__(self, path: str, name: str, manifest: Manifest, store: ShardStore) -> None:
        self.name = name
        self._path = path
        self._manifest = manifest
        self._shards: SplitManifest = manifest.splits[name]
        if self._shards.spec is None:
            raise LoaderError(f"split {name!r} of {path} holds records of kind {self._shards.kind!r}, not examples")
        self.spec: ExampleSpec = self._shards.spec
        self._store = store
        self._sizes = np.asarray(self._shards.records, np.int64)
        self._ends = np.cumsum(self._sizes)
        if len(self._sizes) and max(self._shards.bytes) > store.max_bytes:
            raise LoaderError(
                f"the largest shard of split {name!r} has {max(self._shards.bytes)} bytes, and the local directory is "
                f"bounded to {store.max_bytes}; raise max_bytes to hold two windows of shards"
            )
        self._open: OrderedDict[int, Split] = OrderedDict()
        self._recent: deque[Indices] = deque(maxlen=2)
        self._queue: deque[int] = deque()
        self._fetching = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __repr__(self) -> str:
        return f"RemoteSplit({self._path!r}, {self.name!r}, records={len(self)}, shards={self.num_shards})"

    @property
    def manifest_id(self) -> str:
        """The id of the manifest; the same as that of the local split of the same snapshot."""
        return self._manifest.id

    @property
    def num_shards(self) -> int:
        return len(self._sizes)

    @property
    def shard_sizes(self) -> Indices:
        return self._sizes

    def shard_of(self, index: int) -> int:
        return int(self._place([index])[0][0])

    def __getitem__(self, index: int) -> dict[str, Any]:
        shards, positions = self._place([index])
        example: dict[str, Any] = self._reading(int(shards[0]), lambda split: split[int(positions[0])])
        return example

    def lengths(self, feature: str) -> Indices:
        """The leading dimension of a feature in every record; fetches the indexes of all shards, no records."""
        found = [
            self._reading(shard, lambda split: split.lengths(feature), data=False)
            for shard in np.flatnonzero(self._sizes).tolist()
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def gather_values(self, feature: str, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        """As `Split.gather_values`."""

        def read(split: Split, positions: Array) -> Batch:
            values, lengths = split.gather_values(feature, positions)
            return {feature: values, feature + LENGTHS: lengths}

        batch = self._merged(indices, read, 0)
        return batch[feature], batch[feature + LENGTHS]

    def gather(
        self,
        indices: Sequence[int] | Array,
        *,
        features: Sequence[str] | None = None,
        ragged: str = "pad",
        pad_to: int | Mapping[str, int] | None = None,
        pad_value: PadValue = 0,
    ) -> Batch:
        """As `Split.gather`; fetches the shards that are not there yet."""
        options: dict[str, Any] = {"features": features, "ragged": ragged, "pad_to": pad_to, "pad_value": pad_value}
        return self._merged(indices, lambda split, positions: split.gather(positions, **options), pad_value)

    def will_need(self, blocks: Indices) -> None:
        """Fetches shards in the background, in this order. A failure is raised where the shard is read."""
        self._recent.append(blocks)
        wanted = sum(self._shards.bytes[shard] for window in self._recent for shard in window.tolist())
        if wanted > self._store.max_bytes:
            raise LoaderError(
                f"two windows of shards take {wanted} bytes, and the local directory is bounded to "
                f"{self._store.max_bytes}: choose a smaller window or raise max_bytes"
            )
        with self._lock:
            self._queue.extend(blocks.tolist())
            starting = min(_FETCHING_THREADS - self._fetching, len(self._queue))
            self._fetching += starting
        for _ in range(starting):
            threading.Thread(target=self._fetch_queued, name="beam_pipes-fetch", daemon=True).start()

    def _fetch_queued(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._fetching -= 1
                    return
                shard = self._queue.popleft()
            try:
                self._fetch(shard, data=True)
            except Exception:
                continue  # it comes again, where the reader waits for this shard

    def _place(self, indices: Sequence[int] | Array) -> tuple[Indices, Indices]:
        wanted = np.asarray(indices, np.int64).reshape(-1)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= len(self)):
            index = int(wanted[(wanted < 0) | (wanted >= len(self))][0])
            raise ExampleIndexError(f"split {self.name!r} has {len(self)} records, and there is no record {index}")
        shards = np.searchsorted(self._ends, wanted, side="right")
        return shards, wanted - (self._ends[shards] - self._sizes[shards] if wanted.size else 0)

    def _merged(
        self, indices: Sequence[int] | Array, read: Callable[[Split, Array], Batch], pad_value: PadValue
    ) -> Batch:
        shards, positions = self._place(indices)
        parts = []
        for shard in np.unique(shards).tolist() if len(shards) else [int(np.argmax(self._sizes))]:
            mine = np.flatnonzero(shards == shard)
            parts.append((mine, self._reading(shard, functools.partial(_read_at, read, positions[mine]))))
        return parts[0][1] if len(parts) == 1 else merge_rows(parts, len(shards), pad_value)

    def _reading(self, shard: int, read: Callable[[Split], T], *, data: bool = True) -> T:
        """`read` of the split that consists of one shard."""
        for attempt in range(_ATTEMPTS):
            split = self._one_shard(shard)
            try:
                self._fetch(shard, data=data)
                return read(split)
            except CacheNotFoundError:
                # Removed by another reader between fetching and mapping it; or it is not there at all.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _fetch(self, shard: int, *, data: bool) -> None:
        """Brings index and, if wanted, records of a shard into the local directory."""
        file = self._shards.file_name(self._manifest.name, self.name, shard)
        remote = os.path.join(snapshot_directory(self._path, self._manifest.snapshot), file)
        local = os.path.join(self._manifest.id[:16], file)
        index_crc32c = self._shards.index_crc32c[shard]
        self._store.fetch(remote + ".index", local + ".index", size=None, crc32c=index_crc32c)
        if data:
            self._store.fetch(remote, local, size=self._shards.bytes[shard], crc32c=self._shards.crc32c[shard])

    def _one_shard(self, shard: int) -> Split:
        """A split of this shard alone. Few stay open: an open map keeps the disk space of a removed file."""
        with self._lock:
            split = self._open.get(shard)
            if split is None:
                every = self._shards
                one = dataclasses.replace(
                    every,
                    numbers=[every.numbers[shard]],
                    records=[every.records[shard]],
                    bytes=[every.bytes[shard]],
                    crc32c=[every.crc32c[shard]],
                    index_crc32c=[every.index_crc32c[shard]],
                )
                manifest = dataclasses.replace(self._manifest, splits={self.name: one})
                directory = os.path.join(self._store.directory, self._manifest.id[:16])
                split = self._open[shard] = Split(str(self._store.directory), directory, manifest, self.name)
            self._open.move_to_end(shard)
            while sum(self._shards.bytes[number] for number in self._open) > self._store.max_bytes:
                self._open.popitem(last=False)
            return split


def _read_at(read: Callable[[Split, Array], Batch], positions: Array, split: Split) -> Batch:
    return read(split, positions)
