"""`CachedRecords`: the records of a cache as input of another build."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.errors import BeamPipesError, SourceError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.publication.manifest import Manifest, SplitManifest
from beam_pipes.publication.terms import Terms
from beam_pipes.sources.digests import DigestCache
from beam_pipes.sources.record_batch import Batcher, RecordBatch, StoredPiece
from beam_pipes.sources.source import Slice, Source, SourcePlan, SourceShard, check_target


@dataclass(frozen=True)
class CachedRecords(Source):
    """The examples of one split of a snapshot, in stored order: feature → value. Record ids are `number@row`.

    A shard of the cache is a source shard, known by what its manifest says of it: only shards that are new since the
    last build are read again. `CachedRecords("cache", "train")` reads what is published when it is made.

    Records keep the terms under which the cache has them (`license`, `origin`, …); options of these names are for a
    cache that declares none.

    Records that are taken down are read as their stand-ins. Raises `SourceError` for a split that holds no examples,
    and for terms of a cache that declares its own.
    """

    path: str
    split: str
    snapshot: str | None = None

    def __post_init__(self) -> None:
        cache = Cache.open(self.path, snapshot=self.snapshot)
        object.__setattr__(self, "path", cache.path)
        object.__setattr__(self, "snapshot", cache.manifest.snapshot)
        if (kind := cache[self.split].kind) != "example":
            raise SourceError(
                f"the split {self.split!r} of {self.path!r} holds {kind} records, expected examples. Build a cache of "
                "examples from what these were made of (a data set of TFDS: tfds_splits(directory)), and read that."
            )
        if cache.manifest.sources and (given := super().terms_of("")):
            option, value = next((option, value) for option, value in given.to_json().items() if value)
            raise SourceError(
                f"{option}={value!r} is given for the records of {self.path!r}, which declares its own terms, and each "
                f"record keeps them. Omit {option}; to correct it, build that cache with the right one, which rebuilds "
                "no shard."
            )

    @cached_property
    def records(self) -> Split:
        """The split that is read."""
        return Cache.open(self.path, snapshot=self.snapshot)[self.split]

    @cached_property
    def _snapshot(self) -> Manifest:
        return Cache.open(self.path, snapshot=self.snapshot).manifest

    @property
    def _manifest(self) -> SplitManifest:
        return self._snapshot.splits[self.split]

    @cached_property
    def _firsts(self) -> dict[int, int]:
        """The first row of each shard, by its number."""
        firsts = itertools.accumulate(self._manifest.records, initial=0)
        return dict(zip(self._manifest.numbers, firsts, strict=False))

    def __getstate__(self) -> dict[str, object]:
        notes = super().terms_of("").to_json()
        return {"path": self.path, "split": self.split, "snapshot": self.snapshot, **notes}

    @property
    def output_type(self) -> type:
        return dict

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        check_target(target_shard_bytes)
        shards: list[SourceShard] = []
        manifest = self._manifest
        columns = (manifest.numbers, manifest.records, manifest.bytes, manifest.crc32c)
        for number, records, num_bytes, crc32c in zip(*columns, strict=True):
            if records:
                content = hashlib.sha256(f"{crc32c}/{num_bytes}/{records}".encode()).hexdigest()
                part = Slice(file=f"{number:05d}", start=0, end=records, digest=content)
                shards.append(SourceShard(index=len(shards), slices=(part,), num_bytes=num_bytes))
        return SourcePlan(shards=tuple(shards), num_bytes=manifest.num_bytes, num_files=len(shards))

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        records = self.records
        decode = ExampleCodec(records.spec).decode
        for part in shard.slices:
            first = self._firsts[int(part.file)]
            for start in range(part.start, part.end, batch_records):
                rows = range(first + start, first + min(start + batch_records, part.end))
                try:
                    raws = [records.record_bytes(row) for row in rows]
                except BeamPipesError as error:
                    raise SourceError(f"input {self.path}: {error}", file=part.file, offset=start) from error
                piece = StoredPiece(
                    file=part.file,
                    first_ordinal=batcher.next_ordinal,
                    positions=range(start, start + len(raws)),
                    raws=raws,
                )
                yield from batcher.add(piece, [decode(raw) for raw in raws], num_bytes=sum(map(len, raws)))
        yield from batcher.finish()

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        return ExampleCodec(self.records.spec).decode(raw)

    def terms_of(self, file: str) -> Terms:
        return self._snapshot.terms_of(int(file)) if self._snapshot.sources else super().terms_of(file)

    def all_terms(self) -> Sequence[Terms]:
        return list(dict.fromkeys(map(self.terms_of, [f"{number:05d}" for number in self._manifest.numbers])))

    def fingerprint_config(self) -> Mapping[str, object]:
        return {"spec": self.records.spec.to_json()}
