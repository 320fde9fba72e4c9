"""`Stored`: a file or directory that an analysis made, with a record beside it that proves it complete.

| below `DIR/analysis` | what |
| --- | --- |
| `accumulators/<analyzer>/<source shard>/content` | what `Accumulator.save` wrote |
| `accumulators/<analyzer>/<source shard>/record.json` | sizes, checksums, counts |
| `results/<digest>/content` | what `Analyzer.merge` wrote |
| `results/<digest>/record.json` | sizes, checksums, counts, the digest of the content |
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import google_crc32c

from beam_pipes.errors import CacheNotFoundError
from beam_pipes.identity.canonical import digest_of
from beam_pipes.publication.manifest import FileEntry
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import TEMPORARY_PREFIX, is_remote, storage_for
from beam_pipes.storage.locks import reached
from beam_pipes.storage.protocol import FileStatus, Storage

# Below the directory of the cache.
DIRECTORY = "analysis"
ACCUMULATORS = "accumulators"
RESULTS = "results"

# Digests in paths are cut to this many hexadecimal digits: 128 bits.
_NAME_LENGTH = 32

CONTENT = "content"
RECORD = "record.json"
_CHECKSUM = "crc32c"
_CHUNK_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """`files` are relative to `place`; `facts` are what their maker records about them."""

    place: str
    files: tuple[FileEntry, ...]
    facts: JsonObject

    @property
    def path(self) -> str:
        """The file, or the directory."""
        return f"{self.place}/{CONTENT}"

    @property
    def num_bytes(self) -> int:
        return sum(entry.bytes for entry in self.files)

    def is_undamaged(self, storage: Storage) -> bool:
        """Reads everything, and compares it with its checksums."""
        try:
            for entry in self.files:
                crc = 0
                with storage.open_read(f"{self.place}/{entry.file}") as file:
                    while data := file.read(_CHUNK_BYTES):
                        crc = google_crc32c.extend(crc, data)
                if crc != entry.crc32c:
                    return False
        except OSError:
            return False
        return True


def store(place: str, made: str, facts: Mapping[str, object]) -> Stored:
    """Stores the local file or directory `made`, then its record; each file appears complete, the record last."""
    storage = storage_for(place)
    entries = []
    for name, path in _files(made):
        target = f"{place}/{name}"
        storage.makedirs(target.rpartition("/")[0])
        staged = storage.stage(target)
        try:
            size = crc = 0
            with open(path, "rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    staged.write(data)
                    size += len(data)
                    crc = google_crc32c.extend(crc, data)
            staged.commit()
        finally:
            staged.abort()
        entries.append(FileEntry(file=name, bytes=size, crc32c=crc))
    reached("analysis/content-stored")
    stored = Stored(place=place, files=tuple(entries), facts=facts)
    value = {"facts": dict(facts), "files": [entry.to_json() for entry in entries]}
    storage.replace(f"{place}/{RECORD}", _text({**value, _CHECKSUM: google_crc32c.value(_text(value))}))
    reached("analysis/recorded")
    return stored


def find_stored(storage: Storage, place: str, files: Mapping[str, FileStatus] | None = None) -> Stored | None:
    """What is stored at `place`, with all its files complete; None if it must be made.

    `files` is a listing of `place`, if the caller has one. What cannot be read counts as missing.
    """
    if files is not None and RECORD not in files:
        return None
    try:
        data = storage.read_bytes(f"{place}/{RECORD}")
        value = json.loads(data)
        del value[_CHECKSUM]
        if _text({**value, _CHECKSUM: google_crc32c.value(_text(value))}) != data:
            return None
        entries = tuple(FileEntry.from_json(each) for each in value["files"])
        found = storage.tree(place) if files is None else files
        if any(entry.file not in found or found[entry.file].size != entry.bytes for entry in entries):
            return None
        return Stored(place=place, files=entries, facts=value["facts"])
    except (CacheNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def discard(storage: Storage, place: str) -> None:
    """Removes what is stored at `place`, the record first."""
    storage.delete(f"{place}/{RECORD}")
    if storage.is_directory(place):
        storage.delete_tree(place)


@contextlib.contextmanager
def scratch(root: str) -> Iterator[str]:
    """A temporary directory beside the cache, where there is room; removed at the end of the block.

    If the process dies, what it leaves has a temporary name and is swept by the next build.
    """
    if is_remote(root):
        with tempfile.TemporaryDirectory(prefix="beam-pipes-analysis-") as directory:
            yield directory
        return
    directory = os.path.join(root, f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}-analysis")
    os.makedirs(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _files(made: str) -> Iterator[tuple[str, str]]:
    """(name in the store, local path) of a file, or of all files of a directory, sorted."""
    if not os.path.isdir(made):
        yield CONTENT, made
        return
    for directory, subdirectories, names in os.walk(made):
        subdirectories.sort()
        for name in sorted(names):
            path = os.path.join(directory, name)
            yield f"{CONTENT}/{os.path.relpath(path, made)}".replace(os.sep, "/"), path


def _text(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def accumulator_place(root: str, digest: str, name: str) -> str:
    """Where an analyzer (by `digest`) has the accumulator of the source shard with the fingerprint `name`."""
    return f"{root}/{DIRECTORY}/{ACCUMULATORS}/{digest[:_NAME_LENGTH]}/{name[:_NAME_LENGTH]}"


def result_place(root: str, digest: str, names: Sequence[str]) -> str:
    """Where an analyzer has its result over the source shards with the fingerprints `names`."""
    return f"{root}/{DIRECTORY}/{RESULTS}/{digest_of([digest, names])[:_NAME_LENGTH]}"
