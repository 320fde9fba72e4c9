"""`LocalCopies`: the shards of one split, brought from a storage into a bounded local directory when they are needed.

Who reads in the order of shards says what comes next (`will_need`), and finds it there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.cache.index import index_path
from beam_pipes.cache.shard_store import ShardStore
from beam_pipes.cache.split_manifest import SplitManifest
from beam_pipes.cache.storage import Storage
from beam_pipes.errors import LoaderError

# Room for some hundred shards of the default size.
MAX_LOCAL_BYTES = 16 << 30

_FETCHING_THREADS = 2


class LocalCopies:
    """`data` and `index` give the local path of a shard's file, and copy it first where it is not there. Thread-safe.

    `directory` is the snapshot's in the storage, `key` a name for it that is unique among caches.
    """

    def __init__(
        self, store: ShardStore, directory: str, key: str, name: str, split: str, shards: SplitManifest
    ) -> None:
        self._store = store
        self._directory = directory
        self._key = key
        self._split = split
        self._shards = shards
        self._files = [shards.file_name(name, split, shard) for shard in range(len(shards.numbers))]
        self._queue: deque[int] = deque()
        self._fetching = 0
        self._lock = threading.Lock()
        if len(shards.bytes) and max(shards.bytes) > store.max_bytes:
            raise LoaderError(
                f"the largest shard of split {split!r} has {max(shards.bytes)} bytes, and the local directory is "
                f"bounded to {store.max_bytes}; raise max_bytes to hold two windows of shards"
            )

    @property
    def max_bytes(self) -> int:
        return self._store.max_bytes

    def data(self, shard: int) -> str:
        """The local path of the records of a shard, whose checksum was that of the manifest when they came."""
        size, crc32c = self._shards.bytes[shard], self._shards.crc32c[shard]
        return self._fetch(self._files[shard], size, crc32c)

    def index(self, shard: int) -> str:
        """The local path of the index of a shard."""
        return self._fetch(index_path(self._files[shard]), None, self._shards.index_crc32c[shard])

    def will_need(self, blocks: Any) -> None:
        """Fetches these shards in the background, in this order, and no others that are still waited for.

        Those that are here are the last to go. A failure is raised where the shard is read.
        """
        for shard in blocks.tolist():
            for file in (self._files[shard], index_path(self._files[shard])):
                self._store.touch(os.path.join(self._key, file))
        with self._lock:
            self._queue = deque(blocks.tolist())
            starting = min(_FETCHING_THREADS - self._fetching, len(self._queue))
            self._fetching += starting
        for _ in range(starting):
            threading.Thread(target=self._fetch_queued, name="beam_pipes-fetch", daemon=True).start()

    def check_room(self, windows: Sequence[Any], index_bytes: Any) -> None:
        """Raises `LoaderError` where two neighbouring windows of shards do not fit into the directory together."""
        shard_bytes = np.asarray(self._shards.bytes, np.int64) + index_bytes
        taken = [int(shard_bytes[window].sum()) for window in windows]
        wanted = max(map(sum, zip(taken, [*taken[1:], 0], strict=True)), default=0)
        if wanted > self._store.max_bytes:
            raise LoaderError(
                f"two windows of shards take {wanted} bytes with their indexes, and the local directory is bounded to "
                f"{self._store.max_bytes}: choose a smaller window or raise max_bytes"
            )

    def _fetch_queued(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._fetching -= 1
                    return
                shard = self._queue.popleft()
            try:
                self.index(shard)
                self.data(shard)
            except Exception:
                continue  # it comes again, where the reader waits for this shard

    def _fetch(self, file: str, size: int | None, crc32c: int) -> str:
        remote = os.path.join(self._directory, file)
        return self._store.fetch(remote, os.path.join(self._key, file), size=size, crc32c=crc32c)


def temporary_store(*, max_bytes: int, storage: Storage) -> ShardStore:
    """A store in a directory of this process alone, which goes with the store, or with the process."""
    directory = tempfile.mkdtemp(prefix="beam-pipes-shards-")
    store = ShardStore(directory, max_bytes=max_bytes, storage=storage)
    store.place = None
    weakref.finalize(store, _remove, directory, os.getpid())
    return store


def _remove(directory: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child does not take the directory away from its parent
        shutil.rmtree(directory, ignore_errors=True)
