"""`NumberedSource`: the records of one reader with their numbers, for jobs that read further data sets beside it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.errors import GraphError
from beam_pipes.graph.reader import Reader
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import Source, SourcePlan, SourceShard

if TYPE_CHECKING:
    from beam_pipes.sources.digest_cache import DigestCache

# Between the digest of a slice and that of what is read beside it.
_BESIDE = "&"


@dataclasses.dataclass(frozen=True, slots=True)
class NumberedValue:
    """A value of a reader's source, and which record of the reader it is, from 0."""

    value: Any
    number: int


@dataclasses.dataclass(frozen=True, eq=False)
class NumberedSource(Source):
    """The source of `reader`; record i of it meets record i of the readers in `beside`, which stages read by number.

    What is read beside counts in the digests of all slices: where any of it changes, a build does all shards again.
    """

    reader: Reader
    beside: tuple[Reader, ...]

    @functools.cached_property
    def _source(self) -> Source:
        return self.reader.source()

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int]:
        store = self.reader.open()
        try:
            return {name: number for number, name in enumerate(store.record_ids(np.arange(len(store))))}
        finally:
            store.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"reader": self.reader, "beside": self.beside}

    @property
    def output_type(self) -> type:
        return NumberedValue

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        """The plan of the reader's source. Raises `GraphError` where the data sets are not equally long."""
        for other in self.beside:
            store = other.open()
            size = len(store)
            store.close()
            if size != len(self._numbers):
                raise GraphError(
                    f"{self.reader.name} has {len(self._numbers)} records and {other.name} {size}: before the cut "
                    "record i of one is read with record i of the other. Give them equally many, or put the cut on one "
                    "side."
                )
        plan = self._source.plan(target_shard_bytes=target_shard_bytes, digests=digests)
        whole = hashlib.sha256()
        for other in self.beside:
            for shard in other.source().plan(target_shard_bytes=target_shard_bytes, digests=digests).shards:
                whole.update(f"{other.name}\0{shard.fingerprint()}\n".encode())
        mark = _BESIDE + whole.hexdigest()
        shards = [
            dataclasses.replace(
                shard,
                slices=tuple(dataclasses.replace(piece, digest=piece.digest + mark) for piece in shard.slices),
            )
            for shard in plan.shards
        ]
        return dataclasses.replace(plan, shards=tuple(shards))

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        plain = dataclasses.replace(
            shard,
            slices=tuple(
                dataclasses.replace(piece, digest=piece.digest.partition(_BESIDE)[0]) for piece in shard.slices
            ),
        )
        for batch in self._source.read(plain, batch_records=batch_records, batch_bytes=batch_bytes):
            numbers = [self._numbers[name] for name in batch.record_ids()]
            yield batch.replacing(
                values=[NumberedValue(*pair) for pair in zip(batch.values, numbers, strict=True)],
                ordinals=batch.ordinals,
                bad=batch.bad,
                piece_of=lambda piece: piece,
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> NumberedValue:
        value = self._source.parse(raw, file=file, position=position)
        return NumberedValue(value, self._numbers[f"{file}@{position}"])

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {**self._source.fingerprint_config(), "beside": [other.name for other in self.beside]}

    def fingerprint_class(self) -> str:
        return self._source.fingerprint_class()

    def splits_of(self, shard: SourceShard) -> Sequence[str] | None:
        return self._source.splits_of(shard)
