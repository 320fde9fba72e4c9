"""The origin of samples: readers, and operators that are fed from Python.

A reader opens the records (`open`), and the graph decides which record is read when: a record's place is a function of
(seed, epoch, position), so that shards and epochs are exact and a run can be resumed anywhere.

Before a cut, a job reads the records. It needs three things of each: its name, its place, and a digest that changes
when the record does. `StoredRecords` is a source that any reader has: the store of the reader knows names and places,
and `RecordStore.made_from` gives the files and facts that the digest covers.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from beam_pipes.checks import integer
from beam_pipes.errors import GraphError, SourceError
from beam_pipes.graph.operator import Constant, Operator
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.lineage.lineage import DIGEST_BYTES
from beam_pipes.loader.order import Indices as Indices
from beam_pipes.publication.terms import FIELDS
from beam_pipes.sources.byte_stream import hash_range, read_error, require_digest
from beam_pipes.sources.digests import Cut, DigestCache
from beam_pipes.sources.file_source import group_small_files
from beam_pipes.sources.record_batch import Batcher, Piece, RecordBatch, value_bytes
from beam_pipes.sources.selection import FoundFile
from beam_pipes.sources.source import Slice, Source, SourcePlan, SourceShard, WholeFiles, check_target


@dataclasses.dataclass(frozen=True)
class BatchPlace:
    """The place of a batch: samples `first` … `first + size - 1` of this shard's epoch `epoch`.

    `padded` of them at the end repeat the last one. A stream may give fewer than `size`.
    """

    epoch: int
    iteration: int
    first: int
    size: int
    padded: int = 0
    marks_valid: bool = False


class Stream(abc.ABC):
    """Where the samples of one operator come from, batch after batch."""

    @abc.abstractmethod
    def next(self, place: BatchPlace) -> Sequence[TensorList] | None:
        """The next batch, a column for each output, or None at the end of the epoch."""

    @abc.abstractmethod
    def move(self, epoch: int, iteration: int, *, batch_size: int) -> None:
        """Continues at batch `iteration` of an epoch; raises `GraphError` if the source cannot."""

    @property
    @abc.abstractmethod
    def ends_quietly(self) -> bool:
        """Whether the next epoch begins automatically, without a `StopIteration` in between."""

    @property
    def needs_reset(self) -> bool:
        """Whether, once exhausted, it ends every run of the pipeline until `reset` is called."""
        return False

    @property
    def num_waiting(self) -> int | None:
        """The number of pushed batches not yet taken; None if batches are not pushed to this stream."""
        return None

    def forget(self) -> None:  # noqa: B027 - most streams have nothing to forget
        """Drops the pushed batches, because the run continues elsewhere."""


class Fed(Operator):
    """An operator whose samples are supplied."""

    is_source: ClassVar[bool] = True
    holds_gil: ClassVar[bool] = True

    @abc.abstractmethod
    def stream(self) -> Stream:
        """The stream of its samples."""


class NumberedRecords(abc.ABC):
    """The records of a data set by number, in their stored order: their number and names."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of records."""

    @abc.abstractmethod
    def record_ids(self, indices: Indices) -> Sequence[str]:
        """The names of records, `file@position`, used as keys of draws and in messages."""

    @abc.abstractmethod
    def identity(self) -> Mapping[str, object]:
        """The identity of the records, as JSON values without paths: a checkpoint is refused if it has changed."""

    def close(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Closes files."""


class MadeFrom(NamedTuple):
    """What determines a record: the content of `files` (paths), and `facts`, plain values such as a label.

    `is_whole_file`: it has one file, for itself, and the bytes of a dead letter are those of the file.
    """

    files: Sequence[str]
    facts: object = None
    is_whole_file: bool = False


class RecordStore(NumberedRecords):
    """Readable records, opened by a reader."""

    def made_from(self, index: int) -> MadeFrom:
        """What a job compares to find out whether a record has changed; by default, without files, its samples."""
        return MadeFrom(())

    @abc.abstractmethod
    def read(self, indices: Indices, outputs: Collection[int]) -> Sequence[TensorList | None]:
        """Records as columns, one for each output of the reader; those that are not in `outputs` may be None.

        It may raise anything for a record that cannot be read: then the graph reads the records one by one, and names
        the bad one.
        """


class Reader(Operator):
    """A reader; its subclasses add where the records are, and implement `open`.

    It can stand before a cut (`graph.cache`): a job reads its records by number (`StoredRecords`), unless it has a
    `source` of its own, whose values `from_source` takes.
    """

    shard_id = Constant("int", default=0, doc="which of the `num_shards` parts of every epoch is read here")
    num_shards = Constant("int", default=1, doc="into how many disjoint parts an epoch is divided")
    random_shuffle = Constant("bool", default=False, doc="another order each epoch, over all records of the data set")
    stick_to_shard = Constant(
        "bool",
        default=False,
        doc="this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a whole",
    )
    shuffle_after_epoch = Constant("bool", default=False, doc="as random_shuffle")
    pad_last_batch = Constant(
        "bool", default=False, doc="fills the last batch of an epoch with its last record, as last='pad' of a pipeline"
    )
    seed = Constant("int", default=None, doc="the key of the order; the pipeline's seed by default")
    license = Constant("str", default="", doc="SPDX license of the records, such as CC-BY-4.0: kept by a cache of them")
    origin = Constant("str", default="", doc="URL or name of where the records come from; kept likewise")
    collected = Constant("str", default="", doc="when they were collected, such as 2024-05 or 2023-11/2024-05")
    terms = Constant("str", default="", doc="URL or sentence of what else their licensor requires")

    without_effect: ClassVar[tuple[str, ...]] = (
        *("bytes_per_sample_hint", "cache_header_information", "dont_use_mmap", "initial_fill", "lazy_init"),
        *("prefetch_queue_depth", "read_ahead", "register_buffers", "shuffle_after_epoch_seed", "skip_cached_images"),
        *("tensor_init_bytes", "use_o_direct"),
    )
    is_source: ClassVar[bool] = True

    #: Arguments that locate the records: a cache depends on the records, not on their location.
    locations: ClassVar[tuple[str, ...]] = ("file_root", "file_list", "files", "path", "index_path")
    _order_only: ClassVar[tuple[str, ...]] = (
        *("shard_id", "num_shards", "random_shuffle", "shuffle_after_epoch", "stick_to_shard", "seed"),
        "pad_last_batch",
    )

    def check(self) -> None:
        shards = integer(self.num_shards, least=1, what="num_shards", error=self.argument_error)
        integer(self.shard_id, least=0, most=shards - 1, what="shard_id", error=self.argument_error)

    def fingerprint_config(self) -> Mapping[str, object]:
        left_out = {*self.locations, *self._order_only, *FIELDS}
        kept = {name: value for name, value in self.constants.items() if name not in left_out}
        return {"op_name": self.op_name, "version": self.version, **kept}

    @abc.abstractmethod
    def open(self) -> RecordStore:
        """The data set. Called when the graph is built, and again by each process that reads."""

    @functools.cached_property
    def shared_store(self) -> RecordStore:
        """The data set, opened once for all that a job does with it in this process."""
        return self.open()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "shared_store"}

    def source(self) -> Source:
        """The same records for a job that reads them all once, in the same order and with the same record ids."""
        return StoredRecords(self)

    def declared_source(self) -> Source:
        """`source()`, with what is declared here about the records."""
        notes = {field: value for field in FIELDS if (value := getattr(self, field))}
        return dataclasses.replace(self.source(), **notes) if notes else self.source()

    def from_source(self, value: Any) -> Sequence[Array]:
        """The outputs for one value of `source()`, or for the number of a record: a sample for each."""
        columns = self.shared_store.read(np.array([value]), range(self.output_count()))
        return [column[0] for column in columns if column is not None]


# The way in which digests of whole files are kept between plans.
_VARIANT = "whole file of a reader"


@dataclasses.dataclass(frozen=True, eq=False)
class StoredRecords(Source):
    """The numbers of the records of `reader`, in the order of their numbers; `reader.from_source` reads them.

    Neighbouring records are one source shard, of about the target in bytes of files; a file with several records (a
    video, an archive) counts in parts. If a file changes, all of its records are processed again. Workers read the same
    paths as the launching process. Raises `GraphError` for two records of one name.
    """

    reader: Reader

    @property
    def output_type(self) -> type:
        return int

    @property
    def _store(self) -> RecordStore:
        return self.reader.shared_store

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int]:
        names = self._store.record_ids(np.arange(len(self._store)))
        numbers = {name: number for number, name in enumerate(names)}
        if len(numbers) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise GraphError(
                f"{self.reader.name}: two records are called {twice!r}, and before a cut the name of a record is its "
                "key. List each file once, or put the cut on the other side."
            )
        return numbers

    def __getstate__(self) -> dict[str, object]:
        return {"reader": self.reader}

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        check_target(target_shard_bytes)
        for holder, name in ((self.reader, "shared_store"), (self, "_numbers")):
            vars(holder).pop(name, None)  # a plan covers the files that are there now
        content_of = functools.cache(functools.partial(_digest_of_file, digests=digests))
        names = list(self._numbers)
        paths = [self._store.made_from(number).files for number in range(len(names))]
        uses = Counter(path for some in paths for path in some)
        sizes = {path: _status(path).st_size for path in uses}
        weights = [sum(sizes[path] // uses[path] for path in some) for some in paths]
        shards: list[SourceShard] = []
        for group in group_small_files(zip(names, weights, strict=True), target_shard_bytes=target_shard_bytes):
            slices = [
                self._slice(names, first, last, content_of) for first, last in _runs(names, group[0], group[-1] + 1)
            ]
            num_bytes = sum(weights[index] for index in group)
            shards.append(SourceShard(index=len(shards), slices=_compact(slices), num_bytes=num_bytes))
        return SourcePlan(shards=tuple(shards), num_bytes=sum(sizes.values()), num_files=len(sizes))

    def _slice(self, names: Sequence[str], first: int, last: int, content_of: Callable[[str], bytes]) -> Slice:
        """The records `first … last - 1`, which have one file in their names."""
        digest = hashlib.sha256(b"".join(self._digest(number, content_of) for number in range(first, last)))
        file, start = _parts(names[first])
        return Slice(file=file, start=start, end=_parts(names[last - 1])[1] + 1, digest=digest.hexdigest())

    def _digest(self, number: int, content_of: Callable[[str], bytes]) -> bytes:
        files, facts, _ = self._store.made_from(number)
        if not files:
            columns = self._store.read(np.array([number]), range(self.reader.output_count()))
            facts = [facts, [None if column is None else column[0] for column in columns]]
        return hashlib.sha256(value_bytes(facts) + b"".join(map(content_of, files))).digest()

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        content_of = functools.cache(_digest_of_file)
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        for part in shard.slices:
            try:
                first, last = (self._numbers[f"{part.file}@{at}"] for at in (part.start, part.end - 1))
            except KeyError as error:
                raise SourceError(
                    f"{self.reader.name} has no record {error} any more: plan again", file=part.file, offset=part.start
                ) from error
            made = [self._digest(number, content_of) for number in range(first, last + 1)]
            require_digest(part, hashlib.sha256(b"".join(made)).hexdigest(), unit="records")
            piece = _NumberedPiece(self, part.file, batcher.next_ordinal, first, made)
            yield from batcher.add(piece, list(range(first, last + 1)), num_bytes=shard.num_bytes // len(shard.slices))
        yield from batcher.finish()

    def raw(self, number: int) -> bytes:
        """The bytes of a record that is a whole file, such as a picture; else what it is made from, as JSON."""
        files, facts, is_whole_file = self._store.made_from(number)
        if is_whole_file:
            with open(files[0], "rb") as file:
                return file.read()
        described = {"reader": self.reader.op_name, "files": list(map(os.path.basename, files)), "record": facts}
        return json.dumps(described, default=repr).encode()

    def parse(self, raw: bytes, *, file: str, position: int) -> int:
        number = self._numbers.get(f"{file}@{position}")
        if number is None or raw != self.raw(number):
            raise SourceError(
                f"records of {self.reader.name} are read from its files, not from bytes: repair the files, and build "
                "again",
                file=file,
                offset=position,
            )
        return number

    def fingerprint_config(self) -> Mapping[str, object]:
        return {"reader": self.reader.op_name}


class _NumberedPiece(Piece):
    """Records of a store that follow each other, of one file."""

    __slots__ = ("_source", "_first", "_digests")

    def __init__(self, source: StoredRecords, file: str, ordinal: int, first: int, digests: Sequence[bytes]) -> None:
        super().__init__(file=file, first_ordinal=ordinal)
        self._source, self._first, self._digests = source, first, digests

    def position(self, k: int) -> int:
        (name,) = self._source._store.record_ids(np.array([self._first + k]))
        return _parts(name)[1]

    def raw(self, k: int) -> bytes:
        return self._source.raw(self._first + k)

    def digests_of(self, start: int, stop: int) -> bytes:
        return b"".join(digest[:DIGEST_BYTES] for digest in self._digests[start:stop])


def _parts(name: str) -> tuple[str, int]:
    """`"a.mp4@6"` → `("a.mp4", 6)`"""
    file, _, position = name.rpartition("@")
    return file, int(position)


def _runs(names: Sequence[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The longest runs of records `first … last - 1` with one file in their names, at growing positions."""
    begin = first
    for number in range(first + 1, last + 1):
        (file, position), following = _parts(names[number - 1]), None if number == last else _parts(names[number])
        if following is None or following[0] != file or following[1] <= position:
            yield begin, number
            begin = number


def _compact(slices: list[Slice]) -> tuple[Slice, ...] | WholeFiles:
    """Slices of the many files of a shard, as columns if each of them begins at 0."""
    if len(slices) == 1 or any(piece.start for piece in slices):
        return tuple(slices)
    digests = b"".join(bytes.fromhex(piece.digest) for piece in slices)
    return WholeFiles([piece.file for piece in slices], [piece.end for piece in slices], digests)


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise read_error(path, error, offset=0) from error


def _digest_of_file(path: str, *, digests: DigestCache | None = None) -> bytes:
    """The sha256 of a file; one that has not changed since the last plan is not read again."""
    found = FoundFile.of(os.path.basename(path), os.path.abspath(path), _status(path))
    known = None if digests is None else digests.get(found, _VARIANT)
    if known:
        return bytes.fromhex(known[0].digest)
    started = time.time_ns()
    digest = hash_range(path, path, 0, found.size)
    if digests is not None:
        digests.put(found, _VARIANT, [Cut(0, found.size, found.size, digest)], hashed_at_ns=started)
    return bytes.fromhex(digest)
