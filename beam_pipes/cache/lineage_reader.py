"""`Lineage`: from rows of a snapshot to source records, and back. Reads the cache alone, never the input."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from beam_pipes.cache.lineage import LINEAGE, Fate, ShardLineage, decode_lineage, lineage_file, num_lineage_files
from beam_pipes.cache.manifest import Manifest
from beam_pipes.cache.storage import Storage, storage_for
from beam_pipes.errors import CacheNotFoundError, UnknownRecordError

_OPEN_SHARDS = 64
_MAX_POSITION = 1 << 63


class Origin(NamedTuple):
    """A source record: the source shard that it belongs to, its ordinal there, and what became of it."""

    record_id: str
    source_shard: int
    ordinal: int
    fate: Fate


class Lineage:
    """The lineage of one snapshot. Thread-safe; few source shards are held at a time."""

    def __init__(self, root: str, directory: str, manifest: Manifest, *, storage: Storage | None = None) -> None:
        self._root = root
        self._directory = directory
        self._storage = storage_for(root) if storage is None else storage
        self.num_shards = num_lineage_files(manifest)
        if not self.num_shards and LINEAGE not in manifest.fingerprints:
            raise CacheNotFoundError(
                f"{root}: expected the lineage of snapshot {manifest.snapshot}, and it was built without. Build the "
                "cache again to know where its records come from.",
                path=root,
                snapshot=manifest.snapshot,
            )
        self.shard = functools.lru_cache(maxsize=_OPEN_SHARDS)(self._read)

    def _read(self, index: int) -> ShardLineage:
        path = os.path.join(self._directory, *lineage_file(index, self.num_shards).split("/"))
        return decode_lineage(self._storage.read_bytes(path), path=path)

    def __iter__(self) -> Iterator[ShardLineage]:
        """The lineage of each source shard, in order."""
        return map(self._read, range(self.num_shards))

    def find(self, record_id: str) -> Origin:
        """The source record with this id. Raises `UnknownRecordError`, naming the nearest ones."""
        file, position = split_id(record_id)
        for index in range(self.num_shards):
            shard = self.shard(index)
            ordinals = shard.ordinals_at(file, np.array([position], np.uint64))
            if len(ordinals):
                ordinal = int(ordinals[0])
                return Origin(record_id, index, ordinal, shard.fate(ordinal))
        raise self._unknown(record_id, file, position)

    def select(self, ids: Iterable[str]) -> tuple[dict[int, Any], list[str]]:
        """The records of many ids: source shard → ascending ordinals; and the ids that match nothing, in their order.

        An id is `file@position`, or a file, which stands for all of its records.
        """
        wanted = list(dict.fromkeys(ids))
        by_file: dict[str, dict[int, str]] = {}
        for each in wanted:
            file, at, position = each.rpartition("@")
            if at and file and position.isascii() and position.isdecimal() and len(position) < 20:
                by_file.setdefault(file, {})[min(int(position), _MAX_POSITION)] = each
        whole = set(wanted)
        matched: set[str] = set()
        found: dict[int, Any] = {}
        for index, shard in enumerate(self):
            parts = []
            for file in shard.files:
                if file in whole:
                    matched.add(file)
                    parts.append(shard.ordinals_at(file))
                if file in by_file:
                    positions = np.array(sorted(by_file[file]), np.uint64)
                    ordinals = shard.ordinals_at(file, positions)
                    matched.update(by_file[file][int(position)] for position in shard.positions[ordinals])
                    parts.append(ordinals)
            if sum(map(len, parts)):
                found[index] = np.unique(np.concatenate(parts))
        return found, [each for each in wanted if each not in matched]

    def _unknown(self, record_id: str, file: str, position: int) -> UnknownRecordError:
        files = {name for shard in self for name in shard.files}
        if file in files:
            near = [f"{file}@{each}" for each in self._nearest(file, position)]
        else:
            names = difflib.get_close_matches(file, files, n=3, cutoff=0.5)
            near = [f"{name}@{self._nearest(name, position)[0]}" for name in names]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        found = f"{len(files)} files" if file not in files else f"no record that starts at {position}"
        return UnknownRecordError(
            f"{self._root}: no source record has the id {record_id!r}; found {found}.{hint}",
            record=record_id,
            nearest=near,
        )

    def _nearest(self, file: str, position: int) -> list[int]:
        """Where the records of a file around a position start, the one that covers it first."""
        parts = []
        for shard in self:
            parts += [shard.positions[first : first + count] for name, first, count in shard.runs if name == file]
        positions = np.sort(np.concatenate(parts))
        at = max(0, int(np.searchsorted(positions, np.uint64(min(position, _MAX_POSITION)), side="right")) - 1)
        return [int(each) for each in positions[at : at + 2]]


def split_id(record_id: str) -> tuple[str, int]:
    """`books/emma.txt@1024` → ("books/emma.txt", 1024). Raises `UnknownRecordError` for what is no id."""
    file, at, position = record_id.rpartition("@")
    if not at or not file or not (position.isascii() and position.isdecimal()) or len(position) > 19:
        raise UnknownRecordError(
            f"a source record is named 'file@position', such as 'books/emma.txt@1024', got {record_id!r}.",
            record=record_id,
        )
    return file, int(position)
