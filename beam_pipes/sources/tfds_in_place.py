"""`open_tfds`: a prepared TFDS or RLDS data set as a cache whose shards are TFDS's own files; nothing is copied.

    robot/1.0.0/robot-train.tfrecord-00000-of-00001                            stays as it is
    robot/1.0.0/beam_pipes_index/snapshots/3f…/robot-train.tfrecord-…          a symbolic link to it
                                              /robot-train.tfrecord-….index    where its records are
                                              /lineage/…, assets/lengths-train what `who` and `Windows` need

Files are read once to make the index. Records are decoded by TFDS when they are loaded, and checked as they are read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from beam_pipes.cache.reader import Cache
from beam_pipes.errors import BeamPipesError, CacheBusyError, CacheNotFoundError, SourceError, SpecError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.framing import FRAME_BYTES, read_records
from beam_pipes.format.index import OFFSET, ORDINAL, SIZE, encode_index, index_checksum, index_path
from beam_pipes.format.layout import ShardEntry
from beam_pipes.format.spec import DecodedExample, ExampleSpec, Record
from beam_pipes.lineage.lineage import LINEAGE, LineageWriter, lineage_checksum, lineage_digest, lineage_file
from beam_pipes.publication.manifest import FORMAT_VERSION, FileEntry, Manifest, SplitManifest, shard_file_name
from beam_pipes.publication.publish import publish, snapshot_directory
from beam_pipes.sources.tfds import TfdsFeatures, TfdsRecords, tfds_splits
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import TEMPORARY_PREFIX, directory_path, is_remote, storage_for
from beam_pipes.storage.locks import BUILD_LOCK

#: The directory of the index in that of the data set.
INDEX = "beam_pipes_index"
#: Sizes and times of the files that were indexed.
_FILES = "files.json"


def open_tfds(
    directory: str | os.PathLike[str], *, index: str | os.PathLike[str] | None = None, encoded: Sequence[str] = ()
) -> Cache:
    """A prepared data set, opened for loaders without a build: `Loader(open_tfds("robot/1.0.0")["train"], …)`.

        robot = open_tfds("robot/1.0.0")
        robot["train"][7]  →  {"steps/action": array of shape (steps, 7), "task": 0, …}

    Its splits can be used wherever a split can: loaders of every kind, shuffled and resumed on any number of hosts,
    `Windows`, `where`, `pack`, mixtures, `who` and `when`. Values and names are those of `TfdsFeatures`. Needs the
    extra `tfds`, and TFRecord files on a file system.

    Args:
        directory: of a version, with `dataset_info.json`.
        index: where the index is made, or was; default: `beam_pipes_index` in `directory`. Give a directory of your
            own where that cannot be written. Files that have changed since are indexed again.
        encoded: names of pictures that remain the bytes of a JPEG or PNG file.

    Raises:
        SourceError: TFDS does not open the directory, a file is incomplete, or the data set is not on a file system.
    """
    top = directory_path(directory)
    if is_remote(top):
        raise SourceError(
            f"expected a data set on a file system, got {top!r}: files are loaded in place. Copy it, or build a cache "
            "from tfds_splits(directory), which reads it from there.",
            file=top,
        )
    root = directory_path(os.path.join(top, INDEX) if index is None else index)
    sources = tfds_splits(top, encoded=encoded)
    stats = [[file, *_stat(f"{top}/{file}")] for source in sources.values() for file, _ in source.record_counts]
    while not _is_current(root, stats):
        try:
            _make_index(top, root, sources, stats)
        except CacheBusyError:  # another process makes it
            time.sleep(0.2)
    cache = Cache.open(root)
    features = TfdsFeatures(top, tuple(encoded))
    lengths = {name: cache.asset_path(f"lengths-{name}") for name in sources}
    return cache.replacing({name: cache[name].decoded(_TfdsDecoder(features, lengths[name])) for name in sources})


@dataclasses.dataclass(frozen=True)
class _TfdsDecoder:
    """Reads records as TFDS does; the lengths of ragged features come from the index."""

    features: TfdsFeatures
    lengths_file: str

    @property
    def spec(self) -> ExampleSpec:
        return self.features.spec

    def of_records(self, kind: str, proto: str | None, *, where: str) -> _TfdsDecoder:
        if kind != "bytes":
            raise SpecError(f"{where}: expected records that TFDS wrote, got {proto or kind}", found=kind)
        return self

    def decode(self, payload: bytes, message_of: Callable[[bytes], Record]) -> DecodedExample:
        return {name: _as_array(value) for name, value in self.features.decode(payload).items()}

    def known_lengths(self, feature: str) -> Array | None:
        return self._lengths.get(feature)

    @functools.cached_property
    def _lengths(self) -> Mapping[str, Array]:
        with np.load(self.lengths_file, allow_pickle=False) as stored:
            names, *lengths = stored.values()
            return dict(zip(names.tolist(), lengths, strict=True))

    def __getstate__(self) -> dict[str, object]:
        return {"features": self.features, "lengths_file": self.lengths_file}


def _as_array(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    made = np.empty(len(value), object)
    made[:] = value
    return made


def _stat(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error}. Copy the data set again.", file=path) from error
    return found.st_size, found.st_mtime_ns


def _is_current(root: str, stats: object) -> bool:
    try:
        return storage_for(root).read_bytes(f"{root}/{_FILES}") == canonical_json(stats)
    except (CacheNotFoundError, OSError):
        return False


def _make_index(top: str, root: str, sources: Mapping[str, TfdsRecords], stats: object) -> None:
    """Writes what a snapshot has besides its shards, and publishes it."""
    storage = storage_for(root)
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
        shards = [(split, file, count) for split, source in sources.items() for file, count in source.record_counts]
        name = shards[0][1].partition("-")[0] if shards else "tfds"
        files: dict[str, bytes] = {}  # what is written beside the links, by its path in the snapshot
        entries: dict[str, list[ShardEntry]] = {split: [] for split in sources}
        checksums = []
        for number, (split, file, count) in enumerate(shards):
            ours = shard_file_name(name, split, number, len(shards))
            entry, files[index_path(ours)], lineage = _indexed(f"{top}/{file}", file, ours, count)
            entries[split].append(entry)
            files[lineage_file(number, len(shards))] = lineage
            checksums.append(lineage_checksum(lineage))
        for split, source in sources.items():
            files[f"assets/lengths-{split}"] = _lengths(top, source)
        splits = {
            split: SplitManifest(
                kind="bytes",
                shard_count=len(shards),
                numbers=[number for number, (owner, *_) in enumerate(shards) if owner == split],
                records=[entry.records for entry in found],
                bytes=[entry.bytes for entry in found],
                crc32c=[entry.crc32c for entry in found],
                index_crc32c=[entry.index_crc32c for entry in found],
            )
            for split, found in entries.items()
        }
        assets = [
            FileEntry(file=file, bytes=len(data), crc32c=google_crc32c.value(data))
            for file, data in files.items()
            if file.startswith("assets/")
        ]
        digests = {LINEAGE: lineage_digest(checksums)}
        content = [FORMAT_VERSION, name, digests, [each.to_json() for each in splits.values()]]
        snapshot = hashlib.sha256(canonical_json(content)).hexdigest()[:16]
        directory = snapshot_directory(root, snapshot)
        for file, data in files.items():
            storage.makedirs(os.path.dirname(f"{directory}/{file}"))
            storage.replace(f"{directory}/{file}", data)
        inside = os.path.commonpath([top, root]) == top  # the data set may then be moved with its index
        for number, (split, file, _) in enumerate(shards):
            link = f"{directory}/{shard_file_name(name, split, number, len(shards))}"
            target = os.path.relpath(f"{top}/{file}", directory) if inside else f"{top}/{file}"
            temporary = f"{directory}/{TEMPORARY_PREFIX}{number}"
            os.symlink(target, temporary)
            os.replace(temporary, link)
        publish(root, Manifest(name=name, snapshot=snapshot, splits=splits, assets=assets, fingerprints=digests))
        storage.replace(f"{root}/{_FILES}", canonical_json(stats))


def _indexed(path: str, file: str, ours: str, count: int) -> tuple[ShardEntry, bytes, bytes]:
    """The entry of a file of TFDS as a shard, its index and its lineage. Reads it twice, and checks every record."""
    sizes, digests = [], bytearray()
    try:
        for payload in read_records(path):
            sizes.append(len(payload))
            digests += hashlib.sha256(payload).digest()[:8]
    except BeamPipesError as error:
        raise SourceError(f"{error} Copy the data set again.", file=path) from error
    if len(sizes) != count:
        raise SourceError(
            f"input {file} holds {len(sizes)} records, and dataset_info.json says {count}. Copy the data set again.",
            file=file,
        )
    ends = np.cumsum(np.array(sizes, np.uint64) + np.uint64(FRAME_BYTES), dtype=np.uint64)
    offsets = np.concatenate([np.zeros(1, np.uint64), ends])
    columns = {OFFSET: offsets[:-1], SIZE: np.array(sizes, np.uint32), ORDINAL: np.arange(count, dtype=np.uint64)}
    index = encode_index(columns)
    lineage = LineageWriter()
    lineage.add([(file, offsets[:-1].tolist())], {}, bytes(digests))
    entry = ShardEntry(
        file=ours,
        records=count,
        bytes=int(offsets[-1]),
        crc32c=functools.reduce(google_crc32c.extend, _chunks(path), 0),
        index_crc32c=index_checksum(index),
        lengths={},
        layout=None,
    )
    return entry, index, lineage.to_bytes()


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as opened:
        while chunk := opened.read(1 << 23):
            yield chunk


def _lengths(top: str, source: TfdsRecords) -> bytes:
    """Feature → how many entries each record has, for what varies and is known without decoding pictures."""
    assert isinstance(source.message, TfdsFeatures)
    features = TfdsFeatures(top, source.message.pictures)
    names = [name for name, spec in features.spec.items() if spec.shape[:1] == (None,)]
    found: dict[str, list[int]] = {name: [] for name in names}
    for file, _ in source.record_counts if names else ():
        for payload in read_records(f"{top}/{file}"):
            for name, value in features.decode(payload).items():
                if name in found:
                    found[name].append(len(_as_array(value)))
    made = io.BytesIO()
    np.savez(made, np.array(names, np.str_), *(np.array(found[name], np.int64) for name in names))
    return made.getvalue()
