"""`TaskSource`: the source shards of all splits of a task, as the source of a build."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beam_pipes.errors import BeamPipesError, SourceError, TaskError
from beam_pipes.format.spec import owned
from beam_pipes.publication.terms import Terms
from beam_pipes.sources.byte_stream import hash_range
from beam_pipes.sources.digests import Cut, DigestCache
from beam_pipes.sources.file_source import Range, group_small_files
from beam_pipes.sources.lines import line_ranges
from beam_pipes.sources.memory import MemoryPiece
from beam_pipes.sources.record_batch import Batcher, RecordBatch
from beam_pipes.sources.selection import FoundFile
from beam_pipes.sources.source import Slice, Source, SourcePlan, SourceShard, check_target
from beam_pipes.tasks.caches.offline import TaskReference, example_of, raw_bytes
from beam_pipes.tasks.providers.task_cache import part_name, plain_preprocessor
from beam_pipes.tasks.providers.task_examples import stream_shard
from beam_pipes.tasks.sources.data_source import declared_by
from beam_pipes.tasks.sources.files import FileDataSource, TextLineDataSource, read_lines
from beam_pipes.tasks.steps.step import num_streamed_steps

if TYPE_CHECKING:
    from beam_pipes.tasks.providers.task import Task

# Small files of a split are grouped as long as about this many groups remain: readers of SeqIO's layout distribute a
# cache by its files.
SHARDS_OF_A_SPLIT = 64

_UNPLANNED = "unplanned"


class _Shard(NamedTuple):
    """A shard of the task's source. `label` names it in the build, wherever its file lies: `train/part-1.txt`."""

    split: str
    name: str
    label: str
    file: FoundFile | None


class _ExamplePiece(MemoryPiece):
    __slots__ = ()

    def raw(self, k: int) -> bytes:
        return raw_bytes(self.values[k])


class TaskSource(Source):
    """All splits of a task, shard by shard of its source; record ids are `train/part-1.txt@17`, the 18th of its shard.

    It gives the examples after the last step that exists only as a function of a dataset: such functions run while a
    shard is read, over a stream of its examples. Without such a step it gives raw examples; text files larger than the
    target are then read in parts (and record ids count from the first byte of the part).

    A file is identified by its content. Input of other sources is not visible: they are identified by their options and
    code, and a TFDS data set by its name and version.
    """

    def __init__(self, reference: TaskReference, *, seed: int = 0) -> None:
        self._reference = reference
        self._seed = seed

    @property
    def output_type(self) -> type:
        return object

    @property
    def num_streamed(self) -> int:
        """The number of offline steps that run while the source is read."""
        return num_streamed_steps(self._reference.get().offline_steps())

    def stages(self) -> Mapping[str, object]:
        task = self._reference.get()
        steps = enumerate(task.offline_steps()[: self.num_streamed])
        return {
            "data": task.source,
            **{part_name(number, step): plain_preprocessor(step.preprocessor) for number, step in steps},
        }

    def fingerprint_config(self) -> Mapping[str, object]:
        return {"source": "TaskSource", "version": 1}

    def splits_of(self, shard: SourceShard) -> Sequence[str]:
        return sorted({self._shards[piece.file].split for piece in shard.slices})

    def terms_of(self, file: str) -> Terms:
        shard = self._shards[file]
        return declared_by(self._reference.get().source, shard.split, shard.name)

    def all_terms(self) -> Sequence[Terms]:
        return list(dict.fromkeys(map(self.terms_of, self._shards)))

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        check_target(target_shard_bytes)
        digests = digests if digests is not None else DigestCache()
        groups: list[list[tuple[Slice, int]]] = []
        for split in self._reference.get().splits:
            shards = [shard for shard in self._shards.values() if shard.split == split]
            if not shards:
                raise SourceError(
                    f"No shards found for task {self._reference.name!r}, split {split!r}. Check the files it names, or "
                    "leave the split out of the task",
                    split=split,
                )
            groups += self._groups(shards, target_shard_bytes, digests)
        made = tuple(
            SourceShard(
                index=index, slices=tuple(piece for piece, _ in group), num_bytes=sum(size for _, size in group)
            )
            for index, group in enumerate(groups)
        )
        return SourcePlan(shards=made, num_bytes=sum(shard.num_bytes for shard in made), num_files=len(self._shards))

    def unplanned_shards(self, split: str) -> Iterator[SourceShard]:
        """Every shard of a split, for reading its first examples: nothing is hashed."""
        for shard in self._shards.values():
            if shard.split == split:
                size = shard.file.size if shard.file is not None else 0
                yield SourceShard(
                    index=0, slices=(Slice(file=shard.label, start=0, end=size, digest=_UNPLANNED),), num_bytes=size
                )

    def _groups(self, shards: Sequence[_Shard], target: int, digests: DigestCache) -> Iterator[list[tuple[Slice, int]]]:
        """The unit of reading: neighbouring small files, or a part of a large one."""
        total = sum(shard.file.size for shard in shards if shard.file is not None)
        # A power of two, so that adding a file rarely changes it: groups change only when the split has doubled.
        small = min(target, 1 << max(total // SHARDS_OF_A_SPLIT, 1).bit_length() - 1)
        run: list[_Shard] = []
        for shard in [*shards, None]:
            if shard is not None and shard.file is not None and shard.file.size <= small:
                run.append(shard)
                continue
            sizes = [(each.label, each.file.size) for each in run if each.file is not None]
            for group in group_small_files(sizes, target_shard_bytes=small):
                yield [cut for index in group for cut in self._cuts(run[index], target, digests)]
            run = []
            if shard is not None:
                yield from ([cut] for cut in self._cuts(shard, target, digests))

    def _cuts(self, shard: _Shard, target: int, digests: DigestCache) -> list[tuple[Slice, int]]:
        file = shard.file
        if file is None:
            digest = self._digest_of_unseen(shard)
            return [(Slice(file=shard.label, start=0, end=0, digest=digest), 0)]
        in_parts = file.size > target and self._reads_parts
        variant = f"lines/{target}" if in_parts else "whole"
        cuts = digests.get(file, variant)
        if cuts is None:
            hashed_at_ns = time.time_ns()
            ranges = line_ranges(file, target) if in_parts else [Range(0, file.size, file.size)]
            cuts = [
                Cut(each.start, each.end, each.num_bytes, hash_range(file.path, shard.label, each.start, each.end))
                for each in ranges
            ]
            digests.put(file, variant, cuts, hashed_at_ns=hashed_at_ns)
        return [
            (Slice(file=shard.label, start=cut.start, end=cut.end, digest=cut.digest), cut.num_bytes) for cut in cuts
        ]

    def _digest_of_unseen(self, shard: _Shard) -> str:
        identity = getattr(self._reference.get().source, "shard_identity", None)
        known = identity(shard.split, shard.name) if identity is not None else shard.name
        return hashlib.sha256(json.dumps([shard.split, known]).encode()).hexdigest()

    @property
    def _reads_parts(self) -> bool:
        """Whether examples are independent lines."""
        return self.num_streamed == 0 and type(self._reference.get().source) is TextLineDataSource

    @functools.cached_property
    def _shards(self) -> dict[str, _Shard]:
        task = self._reference.get()
        return {shard.label: shard for split in task.splits for shard in _shards_of(task, split)}

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        for part in shard.slices:
            position = part.start
            for values, num_bytes in _chunks(self._examples(part), batch_records, batch_bytes):
                piece = _ExamplePiece(file=part.file, first_ordinal=batcher.next_ordinal, values=values, start=position)
                # Steps may change examples in place; a dead letter must still hold the original.
                yield from batcher.add(piece, [owned(value) for value in values], num_bytes=num_bytes)
                position += len(values)
        yield from batcher.finish()

    def _examples(self, part: Slice) -> Iterator[object]:
        task = self._reference.get()
        shard = self._shards.get(part.file)
        if shard is None:
            raise SourceError(
                f"task {task.name!r} has no shard {part.file!r} any more: it was there when the build was planned; "
                "plan again",
                file=part.file,
            )
        given = 0
        try:
            for example in self._stream(task, shard, part):
                given += 1
                yield example
        except BeamPipesError:
            raise
        except Exception as error:
            raise TaskError(
                f"task {task.name!r}: reading {part.file!r} failed after {given} examples: {type(error).__name__}: "
                f"{error}. Functions of a dataset run over a stream, which ends with their first exception: on_error "
                "does not help here. Repair the input or the function, or write it as a python_map",
                task=task.name,
                file=part.file,
            ) from error
        if shard.file is None or part.digest == _UNPLANNED:
            return
        if hash_range(shard.file.path, part.file, part.start, part.end) != part.digest:
            raise SourceError(f"input {part.file} changed after it was planned; plan again", file=part.file)

    def _stream(self, task: Task, shard: _Shard, part: Slice) -> Iterator[object]:
        if shard.file is not None and self._reads_parts:
            skip = getattr(task.source, "skip_header_lines", 0) if part.start == 0 else 0
            return read_lines(shard.name, part.start, part.end, skip=skip)
        return stream_shard(task, shard.split, shard.name, seed=self._seed, num_steps=self.num_streamed)

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        """A line unchanged; anything else as an example of int64, float32 and bytes."""
        if isinstance(self._reference.get().source, TextLineDataSource) and self.num_streamed == 0:
            return raw
        return example_of(raw)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_shards"}


def _shards_of(task: Task, split: str) -> Iterator[_Shard]:
    names = list(task.source.list_shards(split))
    files = isinstance(task.source, FileDataSource) and all(map(os.path.isfile, names))
    base = os.path.commonpath([os.path.dirname(os.path.abspath(name)) for name in names]) if files and names else ""
    for name in names:
        if not files:
            yield _Shard(split, name, split if name == split else f"{split}/{name}", None)
            continue
        path = os.path.abspath(name)
        status = os.stat(path)
        label = f"{split}/{os.path.relpath(path, base).replace(os.sep, '/')}"
        yield _Shard(split, name, label, FoundFile.of(label, path, status))


def _chunks(examples: Iterator[object], batch_records: int, batch_bytes: int) -> Iterator[tuple[list[object], int]]:
    """Consecutive examples that make a batch, and their approximate size in bytes."""
    values: list[object] = []
    num_bytes = 0
    for example in examples:
        values.append(example)
        num_bytes += _num_bytes(example)
        if len(values) >= batch_records or num_bytes >= batch_bytes:
            yield values, num_bytes
            values, num_bytes = [], 0
    if values:
        yield values, num_bytes


def _num_bytes(example: object) -> int:
    if isinstance(example, bytes):
        return len(example)
    if isinstance(example, Mapping):
        return sum(map(_num_bytes, example.values()))
    return example.nbytes if isinstance(example, (np.ndarray, np.generic)) else 64
