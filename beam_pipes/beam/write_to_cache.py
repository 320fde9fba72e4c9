"""`WriteToCache`: writes the result of any Beam pipeline to a cache.

    (events | Filter… | CoGroupByKey…)  →  WriteToCache("gs://bucket/agg", features=…)  →  Loader("gs://bucket/agg/train")

A build knows its input files. Here there is only an unordered collection, whose bundles a runner may cut and repeat. So
a record's place is a function of the record: its *key* (or its content) says which split and which shard it goes to;
inside a shard, records are in the order of (key, content). The same records give the same bytes on every runner.

    element ── Encode ──┬── GroupByKey(shard) ───────────┐
                        └── Add digests ── Plan snapshot ─┴── Write shards ── Publish

Records are encoded before the shuffle, once, so that it moves payloads and not Python objects. The snapshot is named by
a sum of digests over all records, which does not depend on their order and costs one number per shard. A shard that
another snapshot already has is linked from there, and writing equal records again changes nothing. The files are
written, counted, completed and published by what builds use: `ShardOutput` and `commit`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import heapq
import itertools
import operator
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import IO, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from google.protobuf.message import Message

from beam_pipes.beam.encode import (
    Collection,
    Encode,
    Encoded,
    EncodedFields,
    Key,
    features_of_schema,
    letter,
    letter_of,
    splitter,
)
from beam_pipes.beam.lower import Element, Mirror, TypeHint
from beam_pipes.beam.shards import gathered
from beam_pipes.building.commit import commit, reuse
from beam_pipes.building.completion import find_completion
from beam_pipes.building.declaration import DEFAULT_TARGET_SHARD_BYTES, Declaration, KeyOf, MaxBad
from beam_pipes.building.declaration_fingerprint import FILE_NAME as FINGERPRINT
from beam_pipes.building.declaration_fingerprint import fingerprint_declaration
from beam_pipes.building.expectation import Expectation
from beam_pipes.building.leftovers import (
    DEFAULT_KEEP,
    build_lock,
    collect_while_locked,
    remove_temporaries,
    say_writing,
    say_written,
    writing,
)
from beam_pipes.building.reading import EncodedRun
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_output import WRITE, ShardOutput
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.checks import integer
from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import OnError
from beam_pipes.errors import CacheBusyError, DeclarationError, ReconciliationError, logger
from beam_pipes.format.codec import IndexRow
from beam_pipes.format.framing import FRAME_BYTES
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.identity.canonical import digest_of
from beam_pipes.lineage.lineage import DIGEST_BYTES, Fate, LineageWriter
from beam_pipes.lineage.lineage import VERSION as LINEAGE_VERSION
from beam_pipes.lineage.reader import DeadLetter
from beam_pipes.publication.manifest import FORMAT_VERSION
from beam_pipes.publication.publish import published_id
from beam_pipes.publication.terms import Terms, noted, terms_by_range
from beam_pipes.sources.source import Slice, SourceShard
from beam_pipes.storage.local import directory_path, storage_for
from beam_pipes.storage.protocol import in_parallel

_log = logger(__name__)

# Records of a shard that are sorted in memory at once; more go through files. A record takes more memory than its
# bytes.
_SORTED_BYTES = 128 << 20
_RECORD_BYTES = 512
# Payloads above this size stay in the files of sorted runs while these are merged.
_LEFT_BYTES = 64 << 10
# How much is written at once.
_PART_RECORDS = 4096
_PART_BYTES = 16 << 20
_SAY_EVERY_SECS = 3600


class WrittenCache(NamedTuple):
    """The outputs of `WriteToCache`: `published`, the manifest's id, once; `dead_letters`, a `DeadLetter` for each."""

    published: beam.PCollection
    dead_letters: beam.PCollection


class WriteToCache(beam.PTransform):  # type: ignore[misc]
    """Writes a collection to a published cache; returns a `WrittenCache`.

        lengths = {"user": FeatureSpec("str"), "counts": FeatureSpec("int64", shape=(None,))}
        (
            pipeline
            | beam.io.ReadFromText("clicks.tsv")
            | beam.Map(parse)                                 # ("ann", 3), ("bob", 1), ("ann", 5)
            | beam.GroupByKey()
            | beam.Map(lambda pair: {"user": pair[0], "counts": sorted(pair[1])})
            | WriteToCache("cache", features=lengths, key="user", splits={"train": 0.9, "test": 0.1})
        )

    Elements are dicts, `beam.Row`s or `tf.train.Example`s with `features`; rows with a schema, which defines the
    features; messages of `proto`; or `bytes`. The bytes of the cache are a function of the elements and the options;
    runners, bundles, retries and the order of elements do not matter. Sort whatever depends on order inside an element
    (`GroupByKey` gives values in any order), as above.

    Args:
        to: the directory of the cache, also on `gs://`.
        features: name → `FeatureSpec` of the examples. Default: those of the collection's schema: `int` is int64,
            `float` is float64, a sequence is a dimension that varies, and a field that may be missing must be there.
        proto: the class of the messages, in place of `features`.
        key: the name of a feature, or a function of the element that gives a str, bytes or an int. Records of one key
            go to one split and one shard; record ids are `key@0`, `key@1` …, for `who`, `why` and `takedown`. By
            default the digest of the content.
        splits: split → share of keys; they add up to 1. With `split_by` a list of names. Default: all to "train".
        split_by: a function of the element that names its split, one of `splits`.
        name: the prefix of the files, and part of the key for drawing splits: two caches with equal name and seed agree
            on every key.
        seed: another seed, another choice of splits.
        num_shards: files of each split, each sorted by one worker. By default as many as the records need, a power of
            two, so that few files change when records are added: 1 for up to `target_shard_bytes`, 64 for 2 GiB. The
            job then counts all bytes before it sends records to their shards, and a service keeps the encoded records
            meanwhile; a number saves that.
        target_shard_bytes: the size that shards have at most, of all splits together, up to 4096 shards.
        on_error: what happens to an element that cannot be stored: "fail" (the default), "dead_letter" (kept in the
            cache, and returned as `dead_letters`) or "drop" (counted).
        max_bad, allow_empty: as in `Declaration`: how many may fail, and be missing, before nothing is published.
        expectations: as in `Declaration`.
        terms: the license and the origin of all records, `Terms(license="CC-BY-4.0")`: what sources of a build declare.
        keep: old snapshots that stay besides the published one, as for `build`; None: all.

    Raises `DeclarationError` at construction for options that do not go together; in the job `StageError` for an
    element that cannot be stored, `ReconciliationError` if a runner delivered other records than were counted.
    """

    def __init__(
        self,
        to: str | os.PathLike[str],
        *,
        features: Mapping[str, FeatureSpec] | ExampleSpec | None = None,
        proto: type[Message] | None = None,
        key: KeyOf | None = None,
        splits: Mapping[str, float] | Sequence[str] = ("train",),
        split_by: Callable[[Element], str] | None = None,
        name: str = "collection",
        seed: int = 0,
        num_shards: int | None = None,
        target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
        on_error: OnError = "fail",
        max_bad: MaxBad = "tenth",
        allow_empty: bool = False,
        expectations: Sequence[Expectation] = (),
        terms: Terms | None = None,
        keep: int | None = DEFAULT_KEEP,
    ) -> None:
        super().__init__()
        if keep is not None:
            integer(keep, what="WriteToCache: keep", least=0)
        self._keep = keep
        self._terms = (terms or Terms()).checked()
        if features is not None and proto is not None:
            raise DeclarationError(
                "WriteToCache: features describe examples, while proto names messages. Give only one of them."
            )
        if num_shards is not None:
            integer(num_shards, least=1, what="WriteToCache: num_shards")
            if target_shard_bytes != DEFAULT_TARGET_SHARD_BYTES:
                raise DeclarationError(
                    f"WriteToCache: got num_shards={num_shards} and target_shard_bytes={target_shard_bytes}. Leave one "
                    "out: either says how large the files are."
                )
        self._target_bytes = integer(target_shard_bytes, least=1, what="WriteToCache: target_shard_bytes")
        self._key_name = key if isinstance(key, str) else None
        self._key = Key(key)
        self._num_shards = num_shards
        kind: type = dict if features is not None else proto if proto is not None else bytes
        self._split = functools.partial(splitter, splits=splits, split_by=split_by, seed=seed)
        self._splits = tuple(splits)
        self._declaration = Declaration(
            name=name,
            source=Collection(kind),
            pipeline=self._split(kind),
            features=self._by_split(features),
            seed=seed,
            on_error=on_error,
            max_bad=max_bad,
            allow_empty=allow_empty,
            expectations=expectations,
        )
        self._to = directory_path(to)

    def _by_split(self, features: Mapping[str, FeatureSpec] | ExampleSpec | None) -> dict[str, ExampleSpec] | None:
        if features is None:
            return None
        if self._key_name is not None and self._key_name not in features:
            raise DeclarationError(
                f"WriteToCache: key={self._key_name!r} is not a feature. There are: {', '.join(sorted(features))}. "
                "Give the name of one, or a function of the element."
            )
        spec = features if isinstance(features, ExampleSpec) else ExampleSpec(features)
        return dict.fromkeys(self._splits, spec)

    def _declared_for(self, element_type: TypeHint) -> Declaration:
        """The declaration, with the features of the collection's schema if none are given."""
        if self._declaration.source.output_type is not bytes:
            return self._declaration
        features = self._by_split(features_of_schema(element_type))
        if features is None:
            return self._declaration
        return dataclasses.replace(
            self._declaration, source=Collection(dict), pipeline=self._split(dict), features=features
        )

    def expand(self, pcoll: beam.PCollection) -> WrittenCache:
        if not pcoll.is_bounded:
            raise DeclarationError(
                "WriteToCache: the collection is unbounded, but a snapshot needs all records. Write the stream to "
                "files, and build a cache from these."
            )
        handle = DeclarationHandle(self._declared_for(pcoll.element_type))
        shards = self._num_shards
        if not pcoll.windowing.is_default():  # a step for each element
            pcoll = pcoll | "Global window" >> beam.WindowInto(GlobalWindows())
        encoded = pcoll | "Encode" >> beam.ParDo(Encode(handle, self._key, shards or _BUCKETS))
        planned = (
            encoded
            | "Add digests" >> beam.CombineGlobally(_AddDigests())
            | "Plan snapshot" >> beam.ParDo(_Plan(handle, self._to, shards, self._target_bytes, self._terms))
        )
        in_shards = encoded
        if shards is None:
            in_shards = encoded | "Choose shards" >> beam.Map(_in_shard, beam.pvalue.AsSingleton(planned))
        written = (
            in_shards
            | "Group by shard" >> beam.GroupByKey()
            | "Write shards" >> beam.ParDo(_WriteShard(handle), beam.pvalue.AsSingleton(planned))
        )
        published = gathered(pcoll.pipeline, (written,)) | "Publish" >> beam.ParDo(
            _Publish(self._keep), beam.pvalue.AsSingleton(planned)
        )
        letters = encoded | "Dead letters" >> beam.FlatMap(letter_of)
        return WrittenCache(published, letters)


# Bucket → the sum of its records' digests, how many there are, and their bytes. A bucket is a shard where the number of
# shards is given; otherwise shards are made of `_BUCKETS` divided by a power of two.
_Totals = dict[int, tuple[int, int, int]]
_NOTHING = (0, 0, 0)
_MODULUS = 1 << 256
_BUCKETS = 4096


class _AddDigests(beam.CombineFn):  # type: ignore[misc]
    """A digest of a multiset: the sum of its members' (AdHash; Bellare and Micciancio, EUROCRYPT 1997)."""

    def create_accumulator(self) -> _Totals:
        return {}

    def add_input(self, totals: _Totals, keyed: tuple[int, EncodedFields]) -> _Totals:
        bucket, fields = keyed
        record = Encoded(*fields)
        totals[bucket] = _sum(totals.get(bucket, _NOTHING), (record.digest(), 1, len(record.payload) + FRAME_BYTES))
        return totals

    def merge_accumulators(self, accumulators: Iterable[_Totals]) -> _Totals:
        merged: _Totals = {}
        for totals in accumulators:
            for bucket, total in totals.items():
                merged[bucket] = _sum(merged.get(bucket, _NOTHING), total)
        return merged

    def extract_output(self, totals: _Totals) -> _Totals:
        return totals


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return (one[0] + other[0]) % _MODULUS, one[1] + other[1], one[2] + other[2]


def _in_shard(keyed: tuple[int, EncodedFields], planned: _Planned) -> tuple[int, EncodedFields]:
    return keyed[0] * len(planned.tasks) // _BUCKETS, keyed[1]


class _Planned(NamedTuple):
    header: BuildHeader
    tasks: tuple[ShardTask, ...]
    said_at: float  # when the directory was last marked as being written to


class _Plan(beam.DoFn):  # type: ignore[misc]
    """Digests of all records → the snapshot; links shards of other snapshots, and writes empty ones."""

    def __init__(
        self, handle: DeclarationHandle, root: str, num_shards: int | None, target_bytes: int, terms: Terms
    ) -> None:
        self._handle = handle
        self._root = root
        self._terms = terms
        self._given = num_shards
        self._target_bytes = target_bytes

    def _in_shards(self, totals: _Totals) -> tuple[_Totals, int]:
        """The totals of shards in place of buckets, and how many shards there are."""
        if self._given is not None:
            return totals, self._given
        num_bytes = sum(size for _, _, size in totals.values())
        num_shards = min(_BUCKETS, 1 << (max(1, -(-num_bytes // self._target_bytes)) - 1).bit_length())
        merged: _Totals = {}
        for bucket, total in totals.items():
            shard = bucket * num_shards // _BUCKETS
            merged[shard] = _sum(merged.get(shard, _NOTHING), total)
        return merged, num_shards

    def process(self, of_buckets: _Totals) -> Iterator[_Planned]:
        declaration, root = self._handle.get(), self._root
        totals, num_shards = self._in_shards(of_buckets)
        specs = declaration.declared_specs
        found = fingerprint_declaration(declaration, specs)
        tasks = []
        for index in range(num_shards):
            digest, count, _ = totals.get(index, _NOTHING)
            records = Slice(file="collection", start=0, end=count, digest=f"{digest:064x}")
            shard = SourceShard(index=index, slices=(records,), num_bytes=0)
            tasks.append(
                ShardTask(shard=shard, fingerprint=digest_of([found.digest, shard.fingerprint(), LINEAGE_VERSION]))
            )
        digests = [task.fingerprint for task in tasks]
        sources = terms_by_range([self._terms] * num_shards)
        named = [FORMAT_VERSION, LINEAGE_VERSION, declaration.name, found.digest, digests]
        snapshot = digest_of(noted(named, sources))[:16]
        header = dataclasses.replace(
            BuildHeader.of(declaration, root, snapshot, num_shards=num_shards, specs=specs),
            replaces=published_id(root),
            fingerprints={**declaration.fingerprints, "declaration": found.digest, "source": digest_of(digests)},
            sources=sources,
        )
        with writing(root):
            storage_for(header.directory).makedirs(header.directory)
            say_writing(header.directory)
            header.storage.replace(f"{header.directory}/{FINGERPRINT}", found.to_bytes())
            empty = [task for task in reuse(header, tasks) if task.index not in totals]
            in_parallel(
                storage_for(header.directory), lambda task: ShardOutput(declaration, header, task).commit(), empty
            )
        yield _Planned(header, tuple(tasks), time.time())


class _WriteShard(beam.DoFn):  # type: ignore[misc]
    """The records of a shard, in any order → its files, in the order of (key, split, content)."""

    def __init__(self, handle: DeclarationHandle) -> None:
        self._handle = handle

    def setup(self) -> None:
        self._mirror = Mirror(self._handle.get().name, WRITE)
        self._said_at = 0.0

    def process(self, keyed: tuple[int, Iterable[EncodedFields]], planned: _Planned) -> Iterator[int]:
        index, records = keyed
        task = planned.tasks[index]
        if find_completion(planned.header, task) is None:
            self._say_writing(planned)
            output = ShardOutput(self._handle.get(), planned.header, task)
            try:
                self._write(output, task, itertools.starmap(Encoded, records))
                output.commit()
            except BaseException:
                output.abort()
                raise
        yield index

    def _say_writing(self, planned: _Planned) -> None:
        # Once an hour in each worker: a store allows one write per second to an object.
        if time.time() > max(self._said_at, planned.said_at) + _SAY_EVERY_SECS:
            self._said_at = time.time()
            with writing(planned.header.root):
                say_writing(planned.header.directory)

    def _write(self, output: ShardOutput, task: ShardTask, records: Iterable[Encoded]) -> None:
        parts = _Parts(self._handle.get())
        for sequence, chunk in enumerate(_chunks(_in_order(records))):
            part = parts.part(chunk, sequence)
            output.write(part)
            self._mirror.show(part.account)
        (expected,) = task.shard.slices
        if (f"{parts.digest:064x}", parts.count) != (expected.digest, expected.end):
            raise ReconciliationError(
                f"shard {task.index}: {expected.end} records were counted before the shuffle, and {parts.count}, or "
                "different ones, came out of it. A step before WriteToCache gives different results when the runner "
                "repeats it: look for randomness, clocks and unsorted groups. Nothing was published.",
                shard=task.index,
            )


class _Parts:
    """Makes parts of ordered records: numbers the records of each key, counts, and adds up their digests."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._previous: bytes | None = None
        self._position = 0
        self.count = 0
        self.digest = 0

    def part(self, records: Sequence[Encoded], sequence: int) -> EncodedRun:
        """The next part, for `ShardOutput.write`."""
        written: dict[str, list[tuple[bytes, int, IndexRow]]] = {split: [] for split in self._declaration.splits}
        letters: list[DeadLetter] = []
        places: list[tuple[str, list[int]]] = []
        fates: dict[int, Fate] = {}
        digests = bytearray()
        drops = self._declaration.on_error == "drop"
        for number, record in enumerate(records):
            self._position = self._position + 1 if record.key == self._previous else 0
            self._previous = record.key
            ordinal, self.count = self.count, self.count + 1
            self.digest = (self.digest + record.digest()) % _MODULUS
            file = record.key.decode("utf-8", "backslashreplace")
            places.append((file, [self._position]))
            digests += hashlib.sha256(record.payload).digest()[:DIGEST_BYTES]
            if record.failure is None:
                written[record.split].append((record.payload, ordinal, record.row))
            elif drops and record.stage == WRITE:
                fates[number] = Fate(status="dropped", drops=((WRITE, f"error/{record.failure[0]}"),))
            else:
                fates[number] = Fate(status="dead", stage=record.stage, error=record.failure[0])
                letters.append(letter(record, file, self._position, ordinal))
        lineage = LineageWriter()
        lineage.add(places, fates, bytes(digests))
        return EncodedRun(
            first_sequence=sequence,
            next_sequence=sequence + 1,
            records=written,
            dead_letters=letters,
            account=self._account(records, written),
            lineage=lineage,
        )

    def _account(self, records: Sequence[Encoded], written: Mapping[str, Sized]) -> Account:
        account = Account(read=len(records), outputs={split: len(rows) for split, rows in written.items()})
        booked = account.unit(WRITE)
        failed = [(record.stage, record.failure[0]) for record in records if record.failure is not None]
        booked.inputs = booked.kept = booked.outputs = account.written = len(records) - len(failed)
        for stage, error_type in failed:
            booked = account.unit(stage)
            booked.inputs += 1
            if self._declaration.on_error == "drop" and stage == WRITE:
                booked.dropped[f"error/{error_type}"] = booked.dropped.get(f"error/{error_type}", 0) + 1
                account.dropped += 1
            else:
                booked.dead += 1
                account.dead += 1
        return account


_BY_KEY = operator.itemgetter(0, 1, 2)


def _chunks(records: Iterator[Encoded]) -> Iterator[list[Encoded]]:
    """Records in lists of up to `_PART_RECORDS`, and of up to `_PART_BYTES` plus one record."""
    while chunk := list(itertools.islice(records, 1)):
        size = len(chunk[0].payload)
        while size < _PART_BYTES and len(chunk) < _PART_RECORDS and (record := next(records, None)) is not None:
            chunk.append(record)
            size += len(record.payload)
        yield chunk


def _in_order(records: Iterable[Encoded]) -> Iterator[Encoded]:
    """Sorts in memory, or through files above `_SORTED_BYTES`."""
    runs: list[Iterator[Encoded]] = []
    held: list[Encoded] = []
    size = 0
    for record in records:
        held.append(record)
        size += len(record.payload) + len(record.key) + _RECORD_BYTES
        if size >= _SORTED_BYTES:
            runs.append(_spilled(sorted(held, key=_BY_KEY)))
            held, size = [], 0
    held.sort(key=_BY_KEY)
    if not runs:
        return iter(held)
    return map(_read, heapq.merge(*runs, held, key=_BY_KEY))


def _read(record: Encoded) -> Encoded:
    return record._replace(payload=record.payload.read()) if isinstance(record.payload, _Spilled) else record


@functools.total_ordering
class _Spilled:
    """A payload in a file, compared like its bytes: a merge holds a record of each run, too many for memory."""

    __slots__ = ("_file", "_size", "_start")

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._start, self._size = file, file.tell(), size

    def read(self) -> bytes:
        self._file.seek(self._start)
        return self._file.read(self._size)

    def __eq__(self, other: object) -> bool:
        return self.read() == (other.read() if isinstance(other, _Spilled) else other)

    def __lt__(self, other: bytes | _Spilled) -> bool:
        return self.read() < (other.read() if isinstance(other, _Spilled) else other)


def _spilled(records: Sequence[Encoded]) -> Iterator[Encoded]:
    """Writes records to an unnamed file, and returns them one by one; large payloads stay there until they are read."""
    file = tempfile.TemporaryFile()
    for record in records:
        large = len(record.payload) > _LEFT_BYTES
        pickle.dump((record._replace(payload=b"") if large else record, len(record.payload) * large), file)
        if large:
            file.write(record.payload)
    file.seek(0)
    return _read_back(file, len(records))


def _read_back(file: IO[bytes], count: int) -> Iterator[Encoded]:
    with file:
        for _ in range(count):
            record, left = pickle.load(file)
            after = file.tell() + left
            yield record._replace(payload=_Spilled(file, left)) if left else record
            if left:
                file.seek(after)


class _Publish(beam.DoFn):  # type: ignore[misc]
    """Publishes the snapshot when all shards exist; repeating it writes the same bytes. Removes old snapshots then."""

    def __init__(self, keep: int | None) -> None:
        self._keep = keep

    def process(self, keyed: tuple[None, Iterable[int]], planned: _Planned) -> Iterator[str]:
        yield commit(planned.header).id
        root = planned.header.root
        with writing(root):
            say_written(planned.header.directory)
        # A build that runs there removes them too.
        with writing(root), contextlib.suppress(CacheBusyError), build_lock(root):
            remove_temporaries(planned.header.storage, root)
            if self._keep is not None:
                for line in collect_while_locked(root, keep=self._keep).held_in_words():
                    _log.info("%s: %s.", root, line)
