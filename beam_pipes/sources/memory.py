"""A list of values as a source."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from beam_pipes.checks import integer
from beam_pipes.errors import SourceError
from beam_pipes.format.spec import owned
from beam_pipes.sources.record_batch import Batcher, Piece, RecordBatch, digests_of_values, is_message, value_bytes
from beam_pipes.sources.source import (
    Slice,
    Source,
    SourcePlan,
    SourceShard,
    check_target,
)

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache


class MemoryPiece(Piece):
    """Values in memory, from number `start` of their file on."""

    __slots__ = ("values", "start")

    def __init__(self, *, file: str, first_ordinal: int, values: Sequence[object], start: int) -> None:
        super().__init__(file=file, first_ordinal=first_ordinal)
        self.values = values
        self.start = start

    def position(self, k: int) -> int:
        return self.start + k

    def raw(self, k: int) -> bytes:
        return _raw(self.values[k])

    def digests_of(self, start: int, stop: int) -> bytes:
        return digests_of_values(self.values[start:stop], file=self.file, first=self.start + start)


@dataclass(frozen=True, eq=False)
class Memory(Source):
    """Values in memory. Record ids are `name@index`.

    `Memory(["a b", "c"])` → `"a b"` (`memory@0`), `"c"` (`memory@1`).

    All values are of one class; `value_type` names a common base, and the type of an empty list. A source shard holds
    `records_per_shard` values, whatever the target in bytes. Slices are identified by the values' content; if their
    types cannot be hashed by content, by `digest`, which must change when a value does. The values travel
    with the declaration: for thousands of values, not for millions.
    """

    values: Sequence[object]
    _: KW_ONLY
    records_per_shard: int = 1024
    value_type: type | None = None
    digest: str | None = None
    name: str = "memory"

    def __post_init__(self) -> None:
        if isinstance(self.values, (str, bytes)) or not isinstance(self.values, Sequence):
            raise SourceError(
                f"values should be a list, got {type(self.values).__qualname__}; pass list(values)", values=self.values
            )
        object.__setattr__(self, "values", tuple(self.values))
        records = integer(self.records_per_shard, least=1, what="records_per_shard", error=SourceError)
        object.__setattr__(self, "records_per_shard", records)
        if not self.values and self.value_type is None:
            raise SourceError("an empty list has no type: pass value_type, the class of its values")
        expected = self.output_type
        for index, value in enumerate(self.values):
            if self.value_type is None and type(value) is not expected or not isinstance(value, expected):
                raise SourceError(
                    f"all values should be {expected.__qualname__}, got {type(value).__qualname__} at index {index}: "
                    f"{value!r:.80}. Pass value_type, a class that all of them are instances of",
                    index=index,
                )

    @property
    def output_type(self) -> type:
        return self.value_type if self.value_type is not None else type(self.values[0])

    def plan(self, *, target_shard_bytes: int = 1 << 26, digests: DigestCache | None = None) -> SourcePlan:
        check_target(target_shard_bytes)
        shards: list[SourceShard] = []
        for start in range(0, len(self.values), self.records_per_shard):
            part = self.values[start : start + self.records_per_shard]
            end = start + len(part)
            if self.digest is not None:
                content, num_bytes = [self.digest.encode()], sum(map(sys.getsizeof, part))
            else:
                content = [value_bytes(value) for value in part]
                num_bytes = sum(map(len, content))
            total = hashlib.sha256()
            for each in content:
                total.update(hashlib.sha256(each).digest())
            piece = Slice(file=self.name, start=start, end=end, digest=total.hexdigest())
            shards.append(SourceShard(index=len(shards), slices=(piece,), num_bytes=num_bytes))
        return SourcePlan(
            shards=tuple(shards), num_bytes=sum(shard.num_bytes for shard in shards), num_files=1 if shards else 0
        )

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        for part in shard.slices:
            if part.end > len(self.values):
                raise SourceError(
                    f"{self.name} holds {len(self.values)} values, expected {part.end}: plan again", offset=part.start
                )
            for start in range(part.start, part.end, batch_records):
                values = list(self.values[start : min(start + batch_records, part.end)])
                piece = MemoryPiece(file=self.name, first_ordinal=batcher.next_ordinal, values=values, start=start)
                # Stages may change records in place: they get copies, and the values stay as declared.
                records = [owned(value) for value in values]
                yield from batcher.add(piece, records, num_bytes=_num_bytes(values))
        yield from batcher.finish()

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        kind = message_class = self.output_type
        if kind is bytes:
            return raw
        if kind is str:
            return raw.decode("utf-8", "surrogatepass")
        if is_message(kind):
            message = message_class()
            message.ParseFromString(raw)
            return message
        if not 0 <= position < len(self.values):
            raise SourceError(f"{self.name} holds {len(self.values)} values, none at {position}", offset=position)
        return self.values[position]

    def fingerprint_config(self) -> Mapping[str, object]:
        return {"source": "Memory", "version": 1, "records_per_shard": self.records_per_shard, "name": self.name}


def _raw(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if is_message(value):
        return bytes(value.SerializeToString(deterministic=True))
    try:
        return value_bytes(value)
    except SourceError:
        return repr(value).encode()  # a type without bytes of its own: something to look at in a dead letter


def _num_bytes(values: Sequence[object]) -> int:
    return sum(len(v) if isinstance(v, (str, bytes)) else int(getattr(v, "nbytes", 64)) for v in values)
