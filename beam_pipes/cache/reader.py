"""`Cache`: a published snapshot, open for reading."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from beam_pipes.cache.dead_letters import DEAD_LETTER_CODEC, DeadLetter
from beam_pipes.cache.framing import read_records
from beam_pipes.cache.manifest import FILE_NAME, Manifest
from beam_pipes.cache.publish import BUILD, SNAPSHOTS, snapshot_directory
from beam_pipes.cache.split import Split
from beam_pipes.cache.storage import storage_for
from beam_pipes.cache.verify import VerifyReport, verify_snapshot
from beam_pipes.errors import CacheNotFoundError, StaleCacheError


class Cache:
    """A snapshot of a cache. It sees what was published when it was opened, whatever is published later.

        cache = Cache.open("demo")
        cache.splits    →  ("eval", "train")
        cache["train"]  →  Split

    Opening reads the manifest and nothing else.
    """

    def __init__(self, path: str, directory: str, manifest: Manifest, proto: Any = None) -> None:
        self.path = path
        self.directory = directory
        self.manifest = manifest
        self._proto = proto
        self._open: dict[str, Split] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        snapshot: str | None = None,
        verify: bool = False,
        proto: Any = None,
    ) -> Cache:
        """Opens the current snapshot of the cache at `path`, or the one with the id `snapshot`.

        Args:
            path: the directory with `manifest.json`, or a snapshot's own directory.
            verify: check every byte first (reads everything once).
            proto: the message class of records that are protos, or split → class. Left out, it is found by its name
                where its module is imported.

        Raises:
            CacheNotFoundError: nothing is published there.
            CorruptManifestError: the manifest is damaged.
            UnsupportedFormatError: another version of beam-pipes wrote it.
            CorruptCacheError: with `verify`, something else is damaged.
        """
        root = os.fspath(path)
        storage = storage_for(root)
        file = os.path.join(root if snapshot is None else snapshot_directory(root, snapshot), FILE_NAME)
        try:
            data = storage.read_bytes(file)
        except CacheNotFoundError as error:
            known = storage.list(os.path.join(root, SNAPSHOTS))
            if snapshot is not None:
                found = f"the snapshots there are {known}" if known else "there are no snapshots"
                message = f"{root}: expected the snapshot {snapshot!r}, and it is not published; {found}"
            elif known:
                message = (
                    f"{root}: nothing is published yet (expected {FILE_NAME}); a build of {', '.join(known)} was "
                    "begun. "
                    "Run it again: it goes on where it stopped."
                )
            else:
                message = f"{root}: expected a cache, a directory with {FILE_NAME}, and there is none. Build it first."
            raise CacheNotFoundError(message, path=root, snapshot=snapshot) from error
        manifest = Manifest.from_bytes(data, path=file)
        parent, last = os.path.split(os.path.abspath(root))
        if last == manifest.snapshot and os.path.basename(parent) == SNAPSHOTS:
            root = os.path.dirname(parent)
        cache = cls(root, snapshot_directory(root, manifest.snapshot), manifest, proto)
        if verify:
            cache.verify().raise_if_damaged()
        return cache

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, sorted."""
        return tuple(sorted(self.manifest.splits))

    @property
    def statistics(self) -> list[Any]:
        """The merged statistics as JSON states."""
        return list(self.manifest.statistics)

    @functools.cached_property
    def build_info(self) -> dict[str, Any]:
        """What `build.json` says of the run that made the snapshot (runner, times); empty where there is none."""
        storage = storage_for(self.directory)
        file = os.path.join(self.directory, BUILD)
        return dict(json.loads(storage.read_bytes(file))) if storage.exists(file) else {}

    def __getitem__(self, split: str) -> Split:
        """Raises `CacheNotFoundError` where there is no such split."""
        found = self._open.get(split)
        if found is None:
            if split not in self.manifest.splits:
                raise CacheNotFoundError(
                    f"{self.path}: expected one of the splits {list(self.splits)}, got {split!r}",
                    path=self.path,
                    split=split,
                )
            proto = self._proto.get(split) if isinstance(self._proto, Mapping) else self._proto
            if self.manifest.splits[split].kind != "proto":
                proto = None
            found = self._open[split] = Split(self.path, self.directory, self.manifest, split, proto)
        return found

    def __repr__(self) -> str:
        return f"<Cache {self.path!r}, snapshot {self.manifest.snapshot}: {', '.join(self.splits) or 'no splits'}>"

    def asset_path(self, name: str) -> str:
        """The path of an asset, given as it was named in the build. Raises `CacheNotFoundError` where there is none."""
        files = {entry.file for entry in self.manifest.assets}
        for file in (name, f"assets/{name}"):
            if file in files:
                return os.path.join(self.directory, *file.split("/"))
        raise CacheNotFoundError(
            f"{self.path}: expected one of the assets {sorted(files)}, got {name!r}", path=self.path
        )

    def dead_letters(self) -> Iterator[DeadLetter]:
        """The records that failed in the build, in the order of source shards."""
        for entry in self.manifest.dead_letters:
            for payload in read_records(os.path.join(self.directory, *entry.file.split("/"))):
                yield DeadLetter.from_example(DEAD_LETTER_CODEC.decode(payload))

    def verify(self) -> VerifyReport:
        """Reads everything once and reports every problem, with file and offset."""
        return verify_snapshot(self.directory, self.manifest)


@functools.lru_cache(maxsize=8)
def _reopen(path: str, snapshot: str) -> Cache:
    return Cache.open(path, snapshot=snapshot)


def reopen_split(path: str, snapshot: str, manifest_id: str, split: str, proto: Any) -> Split:
    """What unpickling a `Split` calls."""
    cache = _reopen(path, snapshot)
    if cache.manifest.id != manifest_id:
        _reopen.cache_clear()
        cache = _reopen(path, snapshot)
    if cache.manifest.id != manifest_id:
        raise StaleCacheError(
            f"{path}: expected manifest {manifest_id} of snapshot {snapshot}, found {cache.manifest.id}: the "
            "snapshot was "
            "deleted and built anew. Open the cache again.",
            path=path,
            expected=manifest_id,
            found=cache.manifest.id,
        )
    return Split(cache.path, cache.directory, cache.manifest, split, proto)
