"""`open_tfds`: a prepared TFDS or RLDS data set as a cache whose shards are TFDS's own files; nothing is copied.

    robot/1.0.0/robot-train.tfrecord-00000-of-00001                            stays as it is
    robot/1.0.0/beam_pipes_index/snapshots/3f…/robot-train.tfrecord-…          a symbolic link to it
                                              /robot-train.tfrecord-….index    where its records are
                                              /lineage/…, assets/lengths-train what `who` and `Windows` need

Files are read once to make the index. Records are decoded by TFDS when they are loaded, and checked as they are read.

What cannot be mapped, ArrayRecord and files on an object store, has shards of *pointers* in the index, small records
that say where each record is; `_TfdsDecoder.resolve` reads it there, or in a local copy of its file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import google_crc32c
import numpy as np

from beam_pipes.cache.local_copies import MAX_LOCAL_BYTES, ShardStore, store_for
from beam_pipes.cache.reader import Cache
from beam_pipes.errors import (
    BeamPipesError,
    CacheBusyError,
    CacheError,
    CacheNotFoundError,
    SourceError,
    SpecError,
)
from beam_pipes.format.dtypes import Array
from beam_pipes.format.framing import FRAME_BYTES, RecordWriter, check_frame, intact_payload, read_records
from beam_pipes.format.index import OFFSET, ORDINAL, SIZE, encode_index, index_checksum, index_path
from beam_pipes.format.layout import ShardEntry
from beam_pipes.format.spec import DecodedExample, ExampleSpec, Record
from beam_pipes.lineage.lineage import LINEAGE, LineageWriter, lineage_checksum, lineage_digest, lineage_file
from beam_pipes.publication.manifest import FORMAT_VERSION, FileEntry, Manifest, SplitManifest, shard_file_name
from beam_pipes.publication.publish import publish, snapshot_directory
from beam_pipes.sources.byte_stream import content_digest_of, open_input
from beam_pipes.sources.tfds import TfdsArrayRecords, TfdsFeatures, TfdsRecords, check_count, tfds_splits
from beam_pipes.sources.training_formats import ArrayRecordFile
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import TEMPORARY_PREFIX, directory_path, is_remote, storage_for
from beam_pipes.storage.locks import BUILD_LOCK

#: The directory of the index in that of the data set.
INDEX = "beam_pipes_index"
#: Sizes and times of the files that were indexed.
_FILES = "files.json"
#: A pointer: number of the file in its split, byte of a TFRecord or number of a record, bytes of the frame or 0.
_POINTER = struct.Struct("<IQQ")
_Records: TypeAlias = "TfdsRecords | TfdsArrayRecords"
_AT_ONCE = 64  # records of an ArrayRecord file


def open_tfds(
    directory: str | os.PathLike[str],
    *,
    index: str | os.PathLike[str] | None = None,
    encoded: Sequence[str] = (),
    local_directory: str | os.PathLike[str] | None = None,
    max_local_bytes: int = MAX_LOCAL_BYTES,
) -> Cache:
    """A prepared data set, opened for loaders without a build: `Loader(open_tfds("robot/1.0.0")["train"], …)`.

        robot = open_tfds("robot/1.0.0")
        robot["train"][7]  →  {"steps/action": array of shape (steps, 7), "task": 0, …}

    Its splits can be used wherever a split can: loaders of every kind, shuffled and resumed on any number of hosts,
    `Windows`, `where`, `pack`, mixtures, `who` and `when`. Values and names are those of `TfdsFeatures`. Needs the
    extra `tfds`, for ArrayRecord `formats` too. TFRecord files of a file system are mapped, ArrayRecord files read by
    their library; those on `gs://`, `s3://` and `az://` are copied to a bounded local directory when needed.

    Args:
        directory: of a version, with `dataset_info.json`.
        index: where the index is made, or was; default: `beam_pipes_index` in `directory`. Give a directory of your
            own where that cannot be written. Files that have changed since are indexed again.
        encoded: names of pictures that remain the bytes of a JPEG or PNG file.
        local_directory, max_local_bytes: the directory of local copies and its bound, as in `Cache.open`.

    Raises:
        SourceError: TFDS does not open the directory, a file is incomplete, or the format is another one.
    """
    top = directory_path(directory)
    root = directory_path(f"{top}/{INDEX}" if index is None else index)
    sources = tfds_splits(top, encoded=encoded)
    copies = None if local_directory is None else os.fspath(local_directory)
    files = _Files(top, copies, max_local_bytes)
    stats = [[file, *_stat(f"{top}/{file}")] for source in sources.values() for file, _ in source.record_counts]
    while not _is_current(root, stats):
        try:
            _make_index(files, root, sources, stats)
        except CacheBusyError:  # another process makes it
            time.sleep(0.2)
    cache = Cache.open(root)
    features = TfdsFeatures(top, tuple(encoded))
    decoders = {name: _TfdsDecoder(features, root, cache.manifest.snapshot, name, files) for name in sources}
    return cache.replacing({name: cache[name].decoded(decoder) for name, decoder in decoders.items()})


@dataclasses.dataclass(frozen=True, eq=False)
class _Files:
    """The files of a data set on this machine: where they are, or copies. Readers of them belong to one process."""

    top: str
    local_directory: str | None
    max_local_bytes: int

    @functools.cached_property
    def _store(self) -> ShardStore | None:
        return store_for(self.top, self.local_directory, self.max_local_bytes, storage=storage_for(self.top))

    def path(self, file: str, size: int, crc32c: int) -> str:
        """Raises `CacheError` for a file that has changed since it was indexed."""
        path = f"{self.top}/{file}"
        if self._store is not None:
            return self._store.fetch(path, f"tfds/{size}-{crc32c:08x}/{file}", size=size, crc32c=crc32c)
        if (found := _stat(path)[0]) != size:
            raise CacheError(
                f"{path} has {found} bytes, and had {size} when it was indexed: it was replaced while it is read. Call "
                "open_tfds again, and start a new run.",
                path=path,
            )
        return path

    def __getstate__(self) -> dict[str, object]:
        directory, most = (self._store and self._store.place) or (self.local_directory, self.max_local_bytes)
        return {"top": self.top, "local_directory": directory, "max_local_bytes": most}


@functools.lru_cache(maxsize=128)
def _array_records(path: str, file: str, of_process: int) -> ArrayRecordFile:
    """An open file; its library has threads, which a forked process does not inherit."""
    return ArrayRecordFile(path, file)


@dataclasses.dataclass(frozen=True)
class _TfdsDecoder:
    """Reads records as TFDS does; the lengths of ragged features come from the index."""

    features: TfdsFeatures
    root: str
    snapshot: str
    split: str
    files: _Files

    @property
    def spec(self) -> ExampleSpec:
        return self.features.spec

    def of_records(self, kind: str, proto: str | None, *, where: str) -> _TfdsDecoder:
        if kind != "bytes":
            raise SpecError(f"{where}: expected records that TFDS wrote, got {proto or kind}", found=kind)
        return self

    def decode(self, payload: bytes, message_of: Callable[[bytes], Record]) -> DecodedExample:
        return {name: _as_array(value) for name, value in self.features.decode(self.resolve(payload)).items()}

    def resolve(self, payload: bytes) -> bytes:
        """The record of TFDS: the one that a pointer names."""
        if not self._pointed:
            return payload
        number, at, size = _POINTER.unpack(payload)
        file, *known = self._pointed[number]
        path = self.files.path(file, *known)
        if not size:
            return _array_records(path, file, os.getpid()).records(at, at + 1)[0]
        with open(path, "rb", buffering=0) as opened:
            frame = os.pread(opened.fileno(), size, at)
        return intact_payload(frame) or check_frame(f"{self.files.top}/{file}", at, frame)

    def known_lengths(self, feature: str) -> Array | None:
        return self._lengths.get(feature)

    @functools.cached_property
    def _lengths(self) -> Mapping[str, Array]:
        names, *lengths = self._asset("lengths")
        return dict(zip(names.tolist(), lengths, strict=True))

    @functools.cached_property
    def _pointed(self) -> list[tuple[str, int, int]]:
        """Name, size and checksum of each file that pointers name; none if records are where they seem to be."""
        return list(zip(*(each.tolist() for each in self._asset("pointed")), strict=True))

    def _asset(self, kind: str) -> Sequence[Array]:
        cache = Cache.open(self.root, snapshot=self.snapshot)  # local copies of its files go with it
        with np.load(cache.asset_path(f"{kind}-{self.split}"), allow_pickle=False) as stored:
            return list(stored.values())

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _as_array(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    made = np.empty(len(value), object)
    made[:] = value
    return made


def _stat(path: str) -> tuple[int, int | str]:
    """Size, and when the file was written, or what identifies the object."""
    try:
        if is_remote(path):
            with open_input(path) as opened:
                return opened.seek(0, os.SEEK_END), str(content_digest_of(opened))
        found = os.stat(path)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error}. Copy the data set again.", file=path) from error
    return found.st_size, found.st_mtime_ns


def _is_current(root: str, stats: object) -> bool:
    try:
        return storage_for(root).read_bytes(f"{root}/{_FILES}") == canonical_json(stats)
    except (CacheNotFoundError, OSError):
        return False


def _make_index(files: _Files, root: str, sources: Mapping[str, _Records], stats: object) -> None:
    """Writes what a snapshot has besides its shards, or pointers as shards, and publishes it."""
    top, storage = files.top, storage_for(root)
    try:
        storage.makedirs(root)
        lock = storage.lock(f"{root}/{BUILD_LOCK}", root)
    except PermissionError as error:
        raise SourceError(
            f"the index of {top!r} cannot be written to {root!r}: {error.strerror}. Give a directory of your own: "
            "open_tfds(directory, index=…).",
            file=root,
        ) from error
    with lock:
        shards = [(split, file) for split, source in sources.items() for file, _ in source.record_counts]
        name = shards[0][1].partition("-")[0] if shards else "tfds"
        written: dict[str, bytes] = {}  # what is written beside the links, by its path in the snapshot
        links: dict[str, str] = {}
        entries: dict[str, list[ShardEntry]] = {split: [] for split in sources}
        pointed: dict[str, list[tuple[str, int, int]]] = {split: [] for split in sources}
        checksums = []
        for number, (split, file) in enumerate(shards):
            ours = shard_file_name(name, split, number, len(shards))
            found = _indexed(files, sources[split], file, ours, number=len(pointed[split]))
            entries[split].append(found.entry)
            written[index_path(ours)] = found.offsets
            written[lineage_file(number, len(shards))] = found.lineage
            checksums.append(lineage_checksum(found.lineage))
            if found.pointers is None:
                links[ours] = f"{top}/{file}"
            else:
                written[ours] = found.pointers
                pointed[split].append((file, *found.known))
        for split, source in sources.items():
            written[f"assets/lengths-{split}"] = _lengths(files, source, pointed[split])
            columns = list(zip(*pointed[split], strict=True)) or [(), (), ()]
            written[f"assets/pointed-{split}"] = _saved(
                np.array(columns[0], np.str_), *(np.array(each, np.int64) for each in columns[1:])
            )
        splits = {
            split: SplitManifest(
                kind="bytes",
                shard_count=len(shards),
                numbers=[number for number, (owner, _) in enumerate(shards) if owner == split],
                records=[entry.records for entry in found],
                bytes=[entry.bytes for entry in found],
                crc32c=[entry.crc32c for entry in found],
                index_crc32c=[entry.index_crc32c for entry in found],
            )
            for split, found in entries.items()
        }
        assets = [
            FileEntry(file=file, bytes=len(data), crc32c=google_crc32c.value(data))
            for file, data in written.items()
            if file.startswith("assets/")
        ]
        digests = {LINEAGE: lineage_digest(checksums)}
        content = [FORMAT_VERSION, name, digests, [each.to_json() for each in splits.values()]]
        snapshot = hashlib.sha256(canonical_json(content)).hexdigest()[:16]
        directory = snapshot_directory(root, snapshot)
        for file, data in written.items():
            storage.makedirs(os.path.dirname(f"{directory}/{file}"))
            storage.replace(f"{directory}/{file}", data)
        inside = root == top or root.startswith(f"{top}/")  # the data set may then be moved with its index
        for number, (link, path) in enumerate(links.items()):
            target = os.path.relpath(path, directory) if inside else path
            temporary = f"{directory}/{TEMPORARY_PREFIX}{number}"
            os.symlink(target, temporary)
            os.replace(temporary, f"{directory}/{link}")
        publish(root, Manifest(name=name, snapshot=snapshot, splits=splits, assets=assets, fingerprints=digests))
        storage.replace(f"{root}/{_FILES}", canonical_json(stats))


class _Indexed(NamedTuple):
    """What a file becomes in the index; `known`: its size and checksum; `pointers`: its shard, if it is not linked."""

    entry: ShardEntry
    offsets: bytes
    lineage: bytes
    known: tuple[int, int]
    pointers: bytes | None


def _indexed(files: _Files, source: _Records, file: str, ours: str, *, number: int) -> _Indexed:
    """Reads the file twice, and checks every record."""
    path, in_place = f"{files.top}/{file}", isinstance(source, TfdsRecords) and not is_remote(files.top)
    sizes, digests = [], bytearray()
    known = _size_and_checksum(path)
    try:
        for payload in _payloads(files, source, file, known):
            sizes.append(len(payload))
            digests += hashlib.sha256(payload).digest()[:8]
    except BeamPipesError as error:
        raise SourceError(f"{error} Copy the data set again.", file=path) from error
    check_count(file, len(sizes), source.record_counts)
    frames = np.array(sizes, np.uint64) + np.uint64(FRAME_BYTES)
    places = np.cumsum(frames, dtype=np.uint64) - frames
    if isinstance(source, TfdsArrayRecords):
        frames, places = np.zeros_like(frames), np.arange(len(sizes), dtype=np.uint64)
    lineage = LineageWriter()
    lineage.add([(file, places.tolist())], {}, bytes(digests))
    num_bytes, crc32c, pointers = *known, None
    if not in_place:
        shard = io.BytesIO()
        with RecordWriter(shard) as records:
            for at, size in zip(places.tolist(), frames.tolist(), strict=True):
                records.write(_POINTER.pack(number, at, size))
        pointers = shard.getvalue()
        num_bytes, crc32c = len(pointers), google_crc32c.value(pointers)
        places = np.arange(len(sizes), dtype=np.uint64) * np.uint64(_POINTER.size + FRAME_BYTES)
        sizes = [_POINTER.size] * len(sizes)
    columns = {OFFSET: places, SIZE: np.array(sizes, np.uint32), ORDINAL: np.arange(len(sizes), dtype=np.uint64)}
    index = encode_index(columns)
    entry = ShardEntry(
        file=ours,
        records=len(sizes),
        bytes=num_bytes,
        crc32c=crc32c,
        index_crc32c=index_checksum(index),
        lengths={},
        layout=None,
    )
    return _Indexed(entry, index, lineage.to_bytes(), known, pointers)


def _payloads(files: _Files, source: _Records, file: str, known: tuple[int, int]) -> Iterator[bytes]:
    """The records of a file, in order."""
    if isinstance(source, TfdsRecords):
        yield from read_records(f"{files.top}/{file}")
        return
    with contextlib.closing(ArrayRecordFile(files.path(file, *known), file)) as opened:
        for first in range(0, opened.num_records, _AT_ONCE):
            yield from opened.records(first, min(first + _AT_ONCE, opened.num_records))


def _size_and_checksum(path: str) -> tuple[int, int]:
    size = crc32c = 0
    with open_input(path) as opened:
        while chunk := opened.read(1 << 23):
            size += len(chunk)
            crc32c = google_crc32c.extend(crc32c, chunk)
    return size, crc32c


def _lengths(files: _Files, source: _Records, pointed: Sequence[tuple[str, int, int]]) -> bytes:
    """Feature → how many entries each record has, for what varies and is known without decoding pictures."""
    assert isinstance(source.message, TfdsFeatures)
    features = TfdsFeatures(files.top, source.message.pictures)
    names = [name for name, spec in features.spec.items() if spec.shape[:1] == (None,)]
    found: dict[str, list[int]] = {name: [] for name in names}
    known = {file: (size, crc32c) for file, size, crc32c in pointed}
    for file, _ in source.record_counts if names else ():
        for payload in _payloads(files, source, file, known.get(file, (0, 0))):
            for name, value in features.decode(payload).items():
                if name in found:
                    found[name].append(len(_as_array(value)))
    return _saved(np.array(names, np.str_), *(np.array(found[name], np.int64) for name in names))


def _saved(*arrays: Array) -> bytes:
    made = io.BytesIO()
    np.savez(made, *arrays)
    return made.getvalue()
