"""Dead letters: failed records, kept with everything needed to understand and replay them.

`Lineage`: from rows of a snapshot to source records, and back. Reads only the cache, never the input.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from beam_pipes.errors import CacheNotFoundError, UnknownRecordError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import DecodedExample, ExampleSpec, FeatureSpec
from beam_pipes.lineage.lineage import LINEAGE, Fate, ShardLineage, decode_lineage, lineage_file, num_lineage_files
from beam_pipes.publication.manifest import Manifest
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import Storage

DEAD_LETTER_SPEC = ExampleSpec(
    {
        "record": FeatureSpec("bytes"),
        "source": FeatureSpec("str"),
        "position": FeatureSpec("int64"),
        "ordinal": FeatureSpec("int64"),
        "stage": FeatureSpec("str"),
        "error_type": FeatureSpec("str"),
        "message": FeatureSpec("str"),
        "traceback": FeatureSpec("str"),
        "item": FeatureSpec("int64"),
    }
)
DEAD_LETTER_CODEC = ExampleCodec(DEAD_LETTER_SPEC)


# A byte of a file's name that is not UTF-8, as Python represents it. Stored text has none, and no name has a NUL.
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile("\0([0-9a-f]{4})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A record that failed.

    | field | meaning |
    | --- | --- |
    | record | its bytes as they are in the source |
    | source, position | the file, relative to the source's root, and where the record starts in it |
    | ordinal | its position in its source shard |
    | stage | the stage that failed; `source`: it could not be parsed; `write`: it could not be stored |
    | error_type, message | the exception |
    | traceback | the frames from the stage on, files without directories: the same on every machine |
    | item | which of the record's inputs in the stage failed: 0 unless an earlier stage gave several |
    """

    record: bytes
    source: str
    position: int
    ordinal: int
    stage: str
    error_type: str
    message: str
    traceback: str
    item: int = 0

    @property
    def record_id(self) -> str:
        """`books/emma.txt@1024`, as everywhere else."""
        return f"{self.source}@{self.position}"

    def to_example(self) -> dict[str, str | int]:
        """The letter as the example it is stored as."""
        example = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**example, "source": _SURROGATE.sub(lambda found: f"\0{ord(found[0]):04x}", self.source)}

    @classmethod
    def from_example(cls, example: DecodedExample) -> DeadLetter:
        """The inverse of `to_example`."""
        numbers = {name: int(example[name]) for name in ("position", "ordinal", "item")}
        source = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), example["source"])
        return cls(
            **{**{field.name: example[field.name] for field in dataclasses.fields(cls)}, **numbers, "source": source}
        )


_OPEN_SHARDS = 64
_MAX_POSITION = 1 << 63


class Origin(NamedTuple):
    """A source record: its source shard, its ordinal there, and its fate."""

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
                f"{root}: expected the lineage of snapshot {manifest.snapshot}, but it was built without. Rebuild the "
                "cache to know where its records come from.",
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

    def select(self, ids: Iterable[str]) -> tuple[dict[int, Array], list[str]]:
        """The records of many ids: source shard → ascending ordinals; and the ids that match nothing, in their order.

        An id is `file@position`, or a file name, which means all of its records.
        """
        wanted = list(dict.fromkeys(ids))
        matched: set[str] = set()
        found: dict[int, list[Array]] = {}
        for index, _, record_id, ordinals in self._matches(wanted):
            matched.add(record_id)
            found.setdefault(index, []).append(ordinals)
        by_shard = {index: np.unique(np.concatenate(parts)) for index, parts in found.items()}
        return by_shard, [each for each in wanted if each not in matched]

    def contents_of(self, ids: Iterable[str]) -> dict[str, Array]:
        """The digests of the records that each id names: id → (k,) uint64, ascending; ids that match nothing left out.

        Empty for a snapshot built by a version that kept no digests.
        """
        found: dict[str, list[Array]] = {}
        for _, shard, record_id, ordinals in self._matches(list(dict.fromkeys(ids))):
            if shard.digests is not None:
                found.setdefault(record_id, []).append(shard.digests[ordinals])
        return {record_id: np.unique(np.concatenate(parts)) for record_id, parts in found.items()}

    @functools.cached_property
    def has_digests(self) -> bool:
        """Whether records can be found by their content; False if it was built by a version that kept no digests."""
        return not self.num_shards or self.shard(0).digests is not None

    def find_contents(self, digests: Array) -> Iterator[tuple[int, ShardLineage, Array]]:
        """Where records with these digests (uint64, ascending) stand: (source shard, its lineage, ascending ordinals).

        Shards without any are left out.
        """
        for index, shard in enumerate(self):
            if shard.digests is not None and len(shard) and len(digests):
                at = np.minimum(np.searchsorted(digests, shard.digests), len(digests) - 1)
                ordinals = np.flatnonzero(digests[at] == shard.digests)
                if len(ordinals):
                    yield index, shard, ordinals

    def _matches(self, ids: list[str]) -> Iterator[tuple[int, ShardLineage, str, Array]]:
        """(source shard, its lineage, id, ordinals) wherever an id matches."""
        by_file: dict[str, dict[int, str]] = {}
        for each in ids:
            file, at, position = each.rpartition("@")
            if at and file and position.isascii() and position.isdecimal() and len(position) < 20:
                by_file.setdefault(file, {})[min(int(position), _MAX_POSITION)] = each
        whole = set(ids)
        for index, shard in enumerate(self):
            for file in shard.files:
                if file in whole:
                    yield index, shard, file, shard.ordinals_at(file)
                if file in by_file:
                    positions = np.array(sorted(by_file[file]), np.uint64)
                    for ordinal in shard.ordinals_at(file, positions):
                        yield index, shard, by_file[file][int(shard.positions[ordinal])], np.array([ordinal])

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
    """`books/emma.txt@1024` → ("books/emma.txt", 1024). Raises `UnknownRecordError` for a malformed id."""
    file, at, position = record_id.rpartition("@")
    if not at or not file or not (position.isascii() and position.isdecimal()) or len(position) > 19:
        raise UnknownRecordError(
            f"a source record is named 'file@position', such as 'books/emma.txt@1024', got {record_id!r}.",
            record=record_id,
        )
    return file, int(position)
