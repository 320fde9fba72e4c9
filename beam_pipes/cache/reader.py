"""`Cache`: a published snapshot, open for reading."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.message import Message

from beam_pipes.cache.local_copies import MAX_LOCAL_BYTES, ShardStore, store_for
from beam_pipes.cache.signature import Trusted, check_signature, signed_problems
from beam_pipes.cache.split import Split
from beam_pipes.cache.verify import Problem, VerifyReport, verify_snapshot
from beam_pipes.errors import CacheNotFoundError, SplitNotFoundError
from beam_pipes.extras import require
from beam_pipes.format.framing import read_records
from beam_pipes.lineage.reader import DEAD_LETTER_CODEC, DeadLetter, Lineage
from beam_pipes.lineage.takedown import Overlay, RemovedRows
from beam_pipes.publication.manifest import FileEntry, Manifest
from beam_pipes.publication.publish import BUILD, SNAPSHOTS, read_manifest, snapshot_directory
from beam_pipes.storage.checked_json import JsonObject, JsonValue, parse_object
from beam_pipes.storage.local import absolute_path, is_remote, storage_for
from beam_pipes.storage.protocol import Storage


class Cache:
    """A snapshot of a cache. It sees what was published when it was opened, even if something else is published later.

        cache = Cache.open("demo")
        cache.splits    →  ("eval", "train")
        cache["train"]  →  Split

    Opening reads only the manifest.
    """

    def __init__(
        self,
        path: str,
        directory: str,
        manifest: Manifest,
        proto: type[Message] | Mapping[str, type[Message]] | None = None,
        *,
        storage: Storage | None = None,
        local_directory: str | os.PathLike[str] | None = None,
        max_local_bytes: int = MAX_LOCAL_BYTES,
        mmap: bool = True,
    ) -> None:
        self.path = path
        self._mmap = mmap
        self._storage = storage_for(path) if storage is None else storage
        self._local_directory = local_directory
        self._max_local_bytes = max_local_bytes
        self.directory = directory
        self.manifest = manifest
        self._proto = proto
        self._open: dict[str, Split] = {}
        self._takedowns = RemovedRows(path, manifest.snapshot, storage=self._storage)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        snapshot: str | None = None,
        verify: bool | None = None,
        trusted: Trusted | None = None,
        proto: type[Message] | Mapping[str, type[Message]] | None = None,
        local_directory: str | os.PathLike[str] | None = None,
        max_local_bytes: int = MAX_LOCAL_BYTES,
        mmap: bool = True,
        storage: Storage | None = None,
    ) -> Cache:
        """Opens the current snapshot of the cache at `path`, or the one with the id `snapshot`.

        Args:
            path: the directory with `manifest.json`, or a snapshot's own directory.
            verify: check every byte first (reads everything once). By default only with `trusted`.
            trusted: files with public keys; a snapshot that none of them has signed, or that was changed since, is
                refused (`beam-pipes sign`, extra `sign`). `verify=False` leaves it at the signature and the manifest,
                whose checksums (crc32c) find damage to other files, and not forgery.
            proto: the message class of records that are protos, or split → class. Left out, it is found by its name
                where its module is imported.
            local_directory: where shards are copied when they are needed, from an object store or a mounted network
                disk; it may be shared by processes and caches, and stays. By default, object stores have a private
                directory that is removed with this process, and files are read where they are.
            max_local_bytes: the bound of that directory; the least recently used shards are removed. 16 GiB hold a few
                hundred.
            mmap: map files into memory. False reads them by `pread`, several times slower: for file systems on which
                files may be truncated or lost while they are read, which ends a process that has mapped them (SIGBUS).
            storage: what serves the path; found by its scheme if left out.

        Raises:
            CacheNotFoundError: nothing is published there.
            CorruptManifestError: the manifest is damaged.
            UnsupportedFormatError: another version of beam-pipes wrote it.
            CorruptCacheError: with `verify`, something else is damaged.
            SignatureError: with `trusted`, nobody who is trusted has signed it, or what was signed was another one.
        """
        root = os.path.expanduser(os.fspath(path))
        if storage is None:
            storage = storage_for(root)
        manifest = read_manifest(root, snapshot, storage=storage)
        parent, last = os.path.split(root if is_remote(root) else os.path.abspath(root))
        if last == manifest.snapshot and os.path.basename(parent) == SNAPSHOTS:
            root = os.path.dirname(parent)
        if storage.local_path(root) is not None:
            root = absolute_path(root)
        cache = cls(
            root,
            snapshot_directory(root, manifest.snapshot),
            manifest,
            proto,
            storage=storage,
            local_directory=local_directory,
            max_local_bytes=max_local_bytes,
            mmap=mmap,
        )
        if trusted is not None and verify is False:
            check_signature(cache.directory, manifest, trusted=trusted, storage=storage)
        elif verify or trusted is not None:
            cache.verify(trusted=trusted).raise_if_damaged()
        return cache

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, sorted."""
        return tuple(sorted(self.manifest.splits))

    @property
    def statistics(self) -> list[JsonObject]:
        """The merged statistics as JSON states."""
        return list(self.manifest.statistics)

    @functools.cached_property
    def build_info(self) -> dict[str, JsonValue]:
        """What `build.json` says of the run that made the snapshot (runner, times); empty if there is none."""
        file = os.path.join(self.directory, BUILD)
        try:
            return parse_object(self._storage.read_bytes(file), path=file)
        except CacheNotFoundError:
            return {}

    @functools.cached_property
    def _store(self) -> ShardStore | None:
        return store_for(self.directory, self._local_directory, self._max_local_bytes, storage=self._storage)

    def __iter__(self) -> Iterator[str]:
        """The names of the splits, as in a mapping: `{name: len(cache[name]) for name in cache}`."""
        return iter(self.splits)

    def __len__(self) -> int:
        """How many splits there are."""
        return len(self.manifest.splits)

    def __contains__(self, split: object) -> bool:
        return split in self.manifest.splits

    def __getitem__(self, split: str) -> Split:
        """Raises `SplitNotFoundError`, a `KeyError` too, if there is no such split."""
        found = self._open.get(split)
        if found is None:
            if split not in self.manifest.splits:
                raise SplitNotFoundError(
                    f"{self.path}: expected one of the splits {list(self.splits)}, got {split!r}",
                    path=self.path,
                    split=split,
                )
            proto = self._proto.get(split) if isinstance(self._proto, Mapping) else self._proto
            if self.manifest.splits[split].kind != "proto":
                proto = None
            found = self._open[split] = Split(
                self.path,
                self.directory,
                self.manifest,
                split,
                proto,
                self._takedowns,
                storage=self._storage,
                store=self._store,
                mmap=self._mmap,
            )
        return found

    def replacing(self, splits: Mapping[str, Split]) -> Cache:
        """The same snapshot, with other objects for some of its splits: those with `columns`."""
        made = copy.copy(self)
        made._open = {**self._open, **splits}
        return made

    def __repr__(self) -> str:
        return f"<Cache {self.path!r}, snapshot {self.manifest.snapshot}: {', '.join(self.splits) or 'no splits'}>"

    def asset_path(self, name: str) -> str:
        """The path of an asset (a file, or a directory of them), given as it was named in the build.

        For a cache on an object store, the path of its local copy. Raises `CacheNotFoundError` if there is none.
        """
        files = {entry.file: entry for entry in self.manifest.assets}
        for file in (name, f"assets/{name}"):
            if file in files:
                return self._asset_file(files[file])
            inside = [entry for path, entry in files.items() if path.startswith(f"{file}/")]
            for entry in inside:
                # Copies lie relative to each other as in the cache: the path of one gives the directory.
                path = self._asset_file(entry).removesuffix(os.path.join(*entry.file[len(file) :].split("/")))
            if inside:
                return path.rstrip(os.sep)
        raise CacheNotFoundError(
            f"{self.path}: expected one of the assets {sorted(files)}, got {name!r}", path=self.path
        )

    def _asset_file(self, entry: FileEntry) -> str:
        path = os.path.join(self.directory, *entry.file.split("/"))
        if self._store is None:
            return path
        key = os.path.join(self.manifest.id[:16], *entry.file.split("/"))
        return self._store.fetch(path, key, size=entry.bytes, crc32c=entry.crc32c)

    def tf_transform_output(self, name: str) -> Any:
        """What a `TransformFn` called `name` learned, as a `tft.TFTransformOutput`: feature specs, vocabularies,
        and `transform_features_layer()` for Keras. Raises `CacheNotFoundError` if there is no such asset."""
        directory = self.asset_path(name)
        tft = require("tensorflow_transform", purpose="Cache.tf_transform_output")
        return tft.TFTransformOutput(directory)

    def dead_letters(self) -> Iterator[DeadLetter]:
        """The records that failed in the build, in the order of source shards; not those that are taken down."""
        rows, ids = self._takedowns.of_dead_letters(sum(entry.records or 0 for entry in self.manifest.dead_letters))
        removed = set(rows.tolist())
        number = 0
        for entry in self.manifest.dead_letters:
            for payload in read_records(os.path.join(self.directory, *entry.file.split("/"))):
                letter = DeadLetter.from_example(DEAD_LETTER_CODEC.decode(payload))
                if number not in removed and not {letter.source, letter.record_id} & ids:
                    yield letter
                number += 1

    @property
    def takedowns(self) -> Overlay:
        """All takedowns of the cache, as of now."""
        return self._takedowns.overlay()

    @functools.cached_property
    def lineage(self) -> Lineage:
        """Where the records come from, and the fate of every source record."""
        return Lineage(self.path, self.directory, self.manifest, storage=self._storage)

    def verify(self, *, trusted: Trusted | None = None) -> VerifyReport:
        """Reads everything once and reports every problem, with file and offset.

        With `trusted`, files with public keys, it is read twice: every file is compared with the digest that was signed
        too. Raises `SignatureError` if nobody who is trusted has signed this snapshot.
        """
        signed: list[Problem] = []
        if trusted is not None:
            signed += signed_problems(self.directory, self.manifest, trusted=trusted, storage=self._storage)
        report = verify_snapshot(self.directory, self.manifest, storage=self._storage)
        return dataclasses.replace(report, problems=(*signed, *report.problems))


def open_split(path: str | os.PathLike[str], split: str | None = None) -> Split:
    """A split by its path: `open_split("cache/train")` is `Cache.open("cache")["train"]`; `gs://…` too.

    The path of a cache is enough if the cache has one split, or if `split` names it. Raises `CacheNotFoundError`
    where there is no such split; it lists the existing ones.
    """
    root = os.fspath(path)
    trimmed = root.rstrip("/") or root
    parent, _, name = trimmed.rpartition("/")
    above: Cache | CacheNotFoundError | None = None
    if split is None and name not in ("", ".", ".."):
        # Most paths name a split, which this finds with a single read of the manifest.
        try:
            above = Cache.open(parent or ("/" if trimmed.startswith("/") else "."))
        except CacheNotFoundError as error:
            above = error
        else:
            if name in above.splits:
                return above[name]
    try:
        cache = Cache.open(root)
    except CacheNotFoundError as error:
        if isinstance(above, Cache):
            listed = ", ".join(repr(_joined(parent, each)) for each in above.splits)
            message = f"{root}: the cache {parent or '.'!r} has no split {name!r}. Choose one of: {listed}."
            raise SplitNotFoundError(message, path=root, split=name) from error
        if above is not None and parent:
            message = f"{root}: expected a split of a cache, or a cache. {above}"
        else:
            raise
        raise CacheNotFoundError(message, path=root, split=name) from error
    if split is not None:
        return cache[split]
    if len(cache.splits) == 1:
        return cache[cache.splits[0]]
    listed = " or ".join(repr(_joined(trimmed, each)) for each in cache.splits)
    raise CacheNotFoundError(
        f"{root}: expected one split, but this is a cache with {', '.join(map(repr, cache.splits))}. Write {listed}.",
        path=root,
    )


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
