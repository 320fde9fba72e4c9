"""What all sources that read files share: selecting, planning and naming them."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, TypeVar

from beam_pipes.sources.byte_stream import hash_range
from beam_pipes.sources.digest_cache import Cut, DigestCache
from beam_pipes.sources.grouping import group_small_files
from beam_pipes.sources.selection import FoundFile, Paths, Selection, select
from beam_pipes.sources.source import Slice, Source, SourcePlan, SourceShard, check_target

_T = TypeVar("_T")
_R = TypeVar("_R")

# A range of a file and the stored bytes it stands for: (start, end, num_bytes).
Range = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    """A source of files. These options choose them:

    `pattern`: glob(s) over names relative to a directory (`**` crosses directories); the default takes every file.
    `exclude`: glob(s) of what to leave out; one that matches a directory leaves out all that is in it.
    `recursive=False`: only what lies directly in the directory. `hidden=True`: names that begin with a dot too.
    `relative_to`: the directory that names in record ids are relative to; needed only to keep them when the list of
    inputs changes in a way that changes the directory that all inputs have in common.
    """

    pattern: str | Sequence[str] = "**/*"
    exclude: str | Sequence[str] = ()
    recursive: bool = True
    hidden: bool = False
    relative_to: str | os.PathLike[str] | None = None

    # Whether a file without bytes holds records. (Only where a file is the record.)
    keeps_empty_files: ClassVar[bool] = False
    _selection: ClassVar[Selection]  # of each instance, and no field: it is no part of what the source is

    @abstractmethod
    def _inputs(self) -> Paths:
        """The paths that the user gave."""

    def selection(self) -> Selection:
        """Which files this source reads, and what they are called; relative paths are of when the source was made."""
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
        found = self.selection().find()
        files = [file for file in found if file.size or self.keeps_empty_files]
        cuts = self._cut_all(files, target_shard_bytes, digests if digests is not None else DigestCache())
        units = list(_units(files, cuts, target_shard_bytes))
        shards = tuple(
            SourceShard(
                index=index,
                slices=tuple(
                    Slice(file=file.name, start=cut.start, end=cut.end, digest=cut.digest) for file, cut in unit
                ),
                num_bytes=sum(cut.num_bytes for _, cut in unit),
            )
            for index, unit in enumerate(units)
        )
        return SourcePlan(shards=shards, num_bytes=sum(shard.num_bytes for shard in shards), num_files=len(found))

    def _variant(self, file: FoundFile, target_shard_bytes: int) -> str:
        """Names the way in which a file is cut: what a cached digest depends on beside the file."""
        return "whole" if file.size <= target_shard_bytes else f"{type(self).__name__}/{target_shard_bytes}"

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        """The record-aligned ranges of a file. Unless a source can do better, a file is one range."""
        return [(0, file.size, file.size)]

    def _digest(self, file: FoundFile, start: int, end: int) -> str:
        return hash_range(file.path, file.name, start, end, content_digest=file.content_digest)

    def _cut_all(self, files: list[FoundFile], target: int, digests: DigestCache) -> list[list[Cut]]:
        hashed_at_ns = time.time_ns()
        known = [digests.get(file, self._variant(file, target)) for file in files]
        unknown = [index for index, cuts in enumerate(known) if cuts is None]
        # hashlib and reading release the GIL; the number of threads never shows in the result.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="plan") as pool:
            ranges = _map(pool, lambda index: self._ranges(files[index], target), unknown)
            tasks = [(index, each) for index, some in zip(unknown, ranges, strict=True) for each in some]
            hashed = _map(pool, lambda task: self._digest(files[task[0]], task[1][0], task[1][1]), tasks)
        fresh: dict[int, list[Cut]] = {index: [] for index in unknown}
        for (index, (start, end, num_bytes)), digest in zip(tasks, hashed, strict=True):
            fresh[index].append(Cut(start, end, num_bytes, digest))
        for index, cuts in fresh.items():
            digests.put(files[index], self._variant(files[index], target), cuts, hashed_at_ns=hashed_at_ns)
        return [fresh[index] if cuts is None else cuts for index, cuts in enumerate(known)]


def _units(files: list[FoundFile], cuts: list[list[Cut]], target: int) -> Iterator[list[tuple[FoundFile, Cut]]]:
    """What becomes one shard each: every slice of a large file, and every group of neighbouring small files."""
    pairs = zip(files, cuts, strict=True)
    for is_large, run in groupby(pairs, key=lambda pair: pair[0].size > target):
        if is_large:
            yield from ([(file, cut)] for file, some in run for cut in some)
        else:
            small = list(run)
            sizes = [(file.name, file.size) for file, _ in small]
            for group in group_small_files(sizes, target_shard_bytes=target):
                unit = [(small[index][0], cut) for index in group for cut in small[index][1]]
                if unit:
                    yield unit


def _map(pool: ThreadPoolExecutor, function: Callable[[_T], _R], items: list[_T]) -> list[_R]:
    """Like `pool.map`, with one future for 64 items: a future costs as much as hashing a small file."""
    portions = [items[at : at + 64] for at in range(0, len(items), 64)] if len(items) > 512 else [[i] for i in items]
    return [result for part in pool.map(lambda some: [function(each) for each in some], portions) for result in part]


def even_cuts(size: int, target: int) -> list[int]:
    """Multiples of `target` inside a file of `size` bytes, leaving a last part of at least half a target.

    They do not depend on the size otherwise: a file that grows keeps its first slices.
    """
    return list(range(target, size - target // 2, target))
