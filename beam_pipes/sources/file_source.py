"""The base of all sources that read files: selecting, planning and naming files.

`NumberedSource`: files with an index, whose records are known by number. `Files`: whole files as records.

Small files are grouped into source shards so that a changed file changes its own group only. A file begins a group by a
hash of its own name and size, not by how many files came before it (content-defined chunking, as in rsync-like tools,
over file names instead of bytes).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from beam_pipes.sources.byte_stream import hash_range, object_range_digest, require_digest, slice_bytes
from beam_pipes.sources.digests import Cut, Cuts, DigestCache, keys_of
from beam_pipes.sources.helpers import Helpers
from beam_pipes.sources.record_batch import Batcher, RecordBatch, StoredPiece
from beam_pipes.sources.selection import MANY_FILES, FoundFile, FoundFiles, Paths, Selection, select
from beam_pipes.sources.source import (
    Slice,
    Source,
    SourcePlan,
    SourceShard,
    WholeFiles,
    check_target,
)

# No group holds more than this many times the target.
MAX_TARGETS = 4


def group_small_files(files: Iterable[tuple[str, int]], *, target_shard_bytes: int) -> list[list[int]]:
    """Indices of `files` (name, bytes), in order, cut into groups of about `target_shard_bytes`.

    A file begins a group iff hash64(name) / 2⁶⁴ < weight / target, or the group would exceed 4 × target. The weight is
    its size plus target / 16384, so that a group of tiny files holds no more of them than a worker opens in seconds.
    """
    groups: list[list[int]] = []
    room, least, blake2b = -1, target_shard_bytes // 16384, hashlib.blake2b
    for index, (name, size) in enumerate(files):
        weight = size + least
        if weight <= room:  # and its name begins no group; inlined, because every file of a plan passes through here
            hashed = int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")
            if hashed * target_shard_bytes >= weight << 64:
                groups[-1].append(index)
                room -= weight
                continue
        groups.append([index])
        room = MAX_TARGETS * target_shard_bytes - weight
    return groups


class Range(NamedTuple):
    """A range of a file and the number of stored bytes it stands for; `stored` as in `Slice`."""

    start: int
    end: int
    num_bytes: int
    stored: tuple[int, int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    """A source of files. These options choose them:

    `pattern`: glob(s) over names relative to a directory (`**` crosses directories); the default takes every file.
    `exclude`: glob(s) of files to exclude; one that matches a directory excludes its contents.
    `recursive=False`: only files directly in the directory. `hidden=True`: also names that begin with a dot.
    `relative_to`: the directory that names in record ids are relative to; needed only to keep them when the list of
    inputs changes in a way that changes the directory that all inputs have in common.
    """

    pattern: str | Sequence[str] = "**/*"
    exclude: str | Sequence[str] = ()
    recursive: bool = True
    hidden: bool = False
    relative_to: str | os.PathLike[str] | None = None

    # Whether a file without bytes holds records (only if the file is the record).
    keeps_empty_files: ClassVar[bool] = False
    _selection: ClassVar[Selection]  # per instance, and not a field: it is not part of what the source is

    @abstractmethod
    def _inputs(self) -> Paths:
        """The paths that the user gave."""

    def selection(self) -> Selection:
        """Which files this source reads, and their names; relative paths refer to the working directory when the source
        was created.
        """
        return self._selection

    def __post_init__(self) -> None:
        for option in ("paths", "root", "pattern", "exclude"):
            if isinstance(value := getattr(self, option, None), list):
                object.__setattr__(self, option, tuple(value))  # so that the source is hashable
        selection = select(
            self._inputs(),
            pattern=self.pattern,
            exclude=self.exclude,
            recursive=self.recursive,
            hidden=self.hidden,
            relative_to=self.relative_to,
        )
        object.__setattr__(self, "_selection", selection)

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        check_target(target_shard_bytes)
        with Helpers() as helpers:
            found = self.selection().find(helpers)
            files, left_out = found, Counter(found.left_out.values())
            if not self.keeps_empty_files and not all(found.sizes):
                left_out["empty"] = found.sizes.count(0)
                files = found.selected([index for index, size in enumerate(found.sizes) if size])
            cuts = self._cut_all(files, target_shard_bytes, digests if digests is not None else DigestCache(), helpers)
        shards = tuple(_shards(files, cuts, target_shard_bytes))
        num_bytes = sum(shard.num_bytes for shard in shards)
        return SourcePlan(shards=shards, num_bytes=num_bytes, num_files=len(found), left_out=left_out)

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        selection = self.selection()
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        for part in shard.slices:
            yield from self.read_slice(batcher, part, selection.path_of(part.file))
        yield from batcher.finish()

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        """Adds the records of a slice of the file at `path` to the batcher; yields what that yields."""
        raise NotImplementedError(f"{type(self).__name__} has neither read nor read_slice")

    # Raised when the same bytes give other values.
    VERSION: ClassVar[int] = 1

    def fingerprint_config(self) -> Mapping[str, object]:
        """All options but those that choose files."""
        choosing = {each.name for each in fields(FileSource)} | {"paths", "root"}
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in choosing}
        return {"source": type(self).__name__, "version": self.VERSION, **own}

    def _variant(self, target_shard_bytes: int | None) -> str:
        """Names the way in which files larger than the target are cut, or others (None): digests depend on it."""
        return "whole" if target_shard_bytes is None else f"{type(self).__name__}/{target_shard_bytes}"

    def _keys(self, files: FoundFiles, target_shard_bytes: int) -> bytes:
        """The keys under which digests are kept; see `keys_of`."""
        variants = self._variant(None), self._variant(target_shard_bytes)
        return keys_of(files, *variants, target=target_shard_bytes)

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        """The record-aligned ranges of a file. Unless a source can do better, a file is one range."""
        return [Range(0, file.size, file.size)]

    def _digest(self, file: FoundFile, each: Range) -> str:
        start, end, _ = each.stored or each[:3]
        return hash_range(file.path, file.name, start, end, content_digest=file.content_digest)

    def _cut(self, file: FoundFile, each: Range) -> Cut:
        return Cut(each.start, each.end, each.num_bytes, self._digest(file, each), each.stored)

    def _cut_all(self, files: FoundFiles, target: int, digests: DigestCache, helpers: Helpers) -> Cuts:
        hashed_at_ns = time.time_ns()
        keys = self._keys(files, target)
        cuts, unknown = digests.lookup(keys)
        most = min(target, _SMALL_BYTES)
        small = [index for index in unknown if files.sizes[index] <= most]
        large = [index for index in unknown if files.sizes[index] > most]
        many = len(small) >= MANY_FILES and not files.content_digests
        size = _PORTION_OF_MANY if many else _PORTION_OF_FEW if len(small) > 8 * _PORTION_OF_FEW else 1
        portions = [_Portion(self, target, files, small[at : at + size]) for at in range(0, len(small), size)]
        # hashlib and reading release the GIL; the number of threads never shows in the result.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="plan") as pool:
            found = helpers.map(_Portion.cut, portions) if many else list(pool.map(_Portion.cut, portions))
            ranges = list(pool.map(lambda index: self._ranges(files[index], target), large))
            tasks = [(index, each) for index, some in zip(large, ranges, strict=True) for each in some]
            of_large = list(pool.map(lambda task: self._cut(files[task[0]], task[1]), tasks))
        for portion, part in zip(portions, found, strict=True):
            cuts.take(portion.indices, part)
        made = iter(of_large)
        for index, some in zip(large, ranges, strict=True):
            cuts.others[index] = list(itertools.islice(made, len(some)))
        digests.put_all(files, keys, cuts, unknown, hashed_at_ns=hashed_at_ns)
        return cuts


# Larger files are read by threads: hashing releases the interpreter lock.
_SMALL_BYTES = 1 << 20
# A request to another process costs as much as hashing a few files, a future as much as hashing one.
_PORTION_OF_MANY = 4000
_PORTION_OF_FEW = 64


class _Portion:
    """Some small files to be hashed; only such files travel to another process."""

    def __init__(self, source: FileSource, target: int, files: FoundFiles, indices: Sequence[int]) -> None:
        self.source = source
        self.target = target
        self.files = files
        self.indices = indices

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "files": self.files.selected(self.indices), "indices": range(len(self.indices))}

    def cut(self) -> Cuts:
        """The slices of these files, by their index among them."""
        source = self.source
        files = map(self.files.__getitem__, self.indices)
        return Cuts.of_all(
            (file.size, [source._cut(file, each) for each in source._ranges(file, self.target)]) for file in files
        )


def _shards(files: FoundFiles, cuts: Cuts, target: int) -> Iterator[SourceShard]:
    """One shard of every slice of a large file, and of every group of neighbouring small files."""
    names, sizes, number = files.names, files.sizes, itertools.count()
    last = 0
    while (first := last) < len(files):
        is_large = sizes[first] > target
        last = next((each for each in range(first, len(files)) if (sizes[each] > target) != is_large), len(files))
        if is_large:
            for index in range(first, last):
                for cut in cuts.of(index, sizes[index]):
                    yield SourceShard(index=next(number), slices=(_slice(names[index], cut),), num_bytes=cut.num_bytes)
            continue
        small = zip(names[first:last], sizes[first:last], strict=True)
        for group in group_small_files(small, target_shard_bytes=target):
            start, end = first + group[0], first + group[-1] + 1
            if end - start >= _MANY_SLICES and cuts.others.keys().isdisjoint(range(start, end)):
                whole = WholeFiles(names[start:end], sizes[start:end], cuts.digests[start:end].tobytes())
                yield SourceShard(index=next(number), slices=whole, num_bytes=sum(sizes[start:end]))
                continue
            unit = [(names[index], cut) for index in range(start, end) for cut in cuts.of(index, sizes[index])]
            if unit:
                slices = tuple(_slice(name, cut) for name, cut in unit)
                yield SourceShard(index=next(number), slices=slices, num_bytes=sum(cut.num_bytes for _, cut in unit))


# From this many slices on, they are kept as columns.
_MANY_SLICES = 8


def _slice(name: str, cut: Cut) -> Slice:
    return Slice(file=name, start=cut.start, end=cut.end, digest=cut.digest, stored=cut.stored)


def even_cuts(size: int, target: int) -> list[int]:
    """Multiples of `target` inside a file of `size` bytes, leaving a last part of at least half a target.

    Otherwise they do not depend on the size: a file that grows keeps its first slices.
    """
    return list(range(target, size - target // 2, target))


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file: its name relative to the source's root, with `/` between the parts, and its bytes."""

    path: str
    content: bytes


@dataclass(frozen=True)
class Files(FileSource):
    """Every file is one record, a `FileContent`; files without bytes too. Record ids are `name@0`.

    `Files("corpus", pattern="**/*.py")` → `FileContent(path="a/b.py", content=b"import os\\n")`, …

    A file is never split, and is held in memory as a whole. Compressed files are not decompressed.
    """

    root: Paths

    keeps_empty_files: ClassVar[bool] = True

    def _inputs(self) -> Paths:
        return self.root

    @property
    def output_type(self) -> type:
        return FileContent

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        content = b"".join(slice_bytes(path, part))
        piece = StoredPiece(
            file=part.file, first_ordinal=batcher.next_ordinal, positions=[0], raws=[content], is_named=True
        )
        yield from batcher.add(piece, [FileContent(part.file, content)], num_bytes=len(content))

    def parse(self, raw: bytes, *, file: str, position: int) -> FileContent:
        return FileContent(file, raw)


# Bytes of numbered records that are read at once.
_GROUP_BYTES = 4 << 20


class Numbered(Protocol):
    """An open file whose records are numbered from 0."""

    @property
    def num_records(self) -> int: ...

    @property
    def num_bytes(self) -> int:
        """Bytes of all records together."""
        ...

    @property
    def kind(self) -> bytes:
        """What the interpretation of the bytes depends on, such as a dtype."""
        ...

    @property
    def content_digest(self) -> str | None:
        """The object store's digest of the whole content; None for files, which must be read."""
        ...

    def records(self, start: int, stop: int) -> Sequence[bytes]:
        """The bytes of records `start … stop`."""
        ...


NumberedT = TypeVar("NumberedT", bound=Numbered)


@dataclass(frozen=True)
class NumberedSource(FileSource, Generic[NumberedT]):
    """A source of files whose records are numbered; large files are cut into ranges of records of about equal bytes."""

    paths: Paths

    def _inputs(self) -> Paths:
        return self.paths

    @abstractmethod
    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[NumberedT]:
        """Opens a file. Raises `SourceError`, naming it, if it is damaged."""

    @abstractmethod
    def _value(self, raw: bytes, opened: NumberedT) -> object:
        """The value of a record."""

    # Planning.

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        with self._open(file.path, file.name) as opened:
            count, num_bytes = opened.num_records, opened.num_bytes
        # A number of records that does not depend on the end: a file that grows keeps its first slices.
        each = max(1, count * target_shard_bytes // max(1, num_bytes))
        each = 1 << (each.bit_length() - 1) if each < count else max(1, count)
        return [
            Range(start, min(start + each, count), -(-num_bytes * (min(start + each, count) - start) // count))
            for start in range(0, count, each)
        ]

    def _digest(self, file: FoundFile, each: Range) -> str:
        with self._open(file.path, file.name) as opened:
            digest = _Digest(opened)
            if opened.content_digest is None:
                for _, raws in _groups(opened, each.start, each.end):
                    digest.update(raws)
            return digest.of(each.start, each.end)

    # Reading.

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        with self._open(path, part.file) as opened:
            digest = _Digest(opened)
            for first, raws in _groups(opened, part.start, min(part.end, opened.num_records)):
                digest.update(raws)
                numbers = range(first, first + len(raws))
                piece = StoredPiece(file=part.file, first_ordinal=batcher.next_ordinal, positions=numbers, raws=raws)
                yield from self._add(batcher, piece, raws, opened)
            require_digest(part, digest.of(part.start, part.end), unit="records")

    def _add(
        self, batcher: Batcher, piece: StoredPiece, raws: Sequence[bytes], opened: NumberedT
    ) -> Iterator[RecordBatch]:
        values = [self._value(raw, opened) for raw in raws]
        return batcher.add(piece, values, num_bytes=sum(map(len, raws)))

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        with self._open(self.selection().path_of(file), file) as opened:
            return self._value(raw, opened)


def _groups(opened: Numbered, start: int, stop: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    each = max(1, opened.num_records * _GROUP_BYTES // max(1, opened.num_bytes))
    for first in range(start, stop, each):
        yield first, opened.records(first, min(first + each, stop))


class _Digest:
    """The digest of a range of records: of their bytes, or of the object store's digest of the whole content."""

    def __init__(self, opened: Numbered) -> None:
        self._content = opened.content_digest
        self._read = hashlib.sha256(opened.kind)

    def update(self, raws: Sequence[bytes]) -> None:
        """The next records of the range."""
        if self._content is None:
            for raw in raws:
                self._read.update(b"%d:" % len(raw))
                self._read.update(raw)

    def of(self, start: int, stop: int) -> str:
        """The digest of records `start … stop`."""
        return self._read.hexdigest() if self._content is None else object_range_digest(self._content, start, stop)
