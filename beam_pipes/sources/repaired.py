"""A source with some records repaired: their bytes replaced, at their places."""

from __future__ import annotations

import base64
import bisect
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_pipes.errors import SourceError
from beam_pipes.lineage.lineage import DIGEST_BYTES
from beam_pipes.publication.terms import Terms
from beam_pipes.sources.record_batch import BadRecord, Piece, RecordBatch, content_digest
from beam_pipes.sources.source import Slice, Source, SourcePlan, SourceShard

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache

# Separates the digest of a slice from that of its repairs.
_AND = "+"


@dataclasses.dataclass(frozen=True, eq=False)
class RepairedSource(Source):
    """`source` with the bytes of some records replaced; everything else stays, including places and names of records.

        RepairedSource(TextLines("logs"), {"day-4.txt@10": b"4 2 ERROR"})

    `repairs` maps record ids (`file@position`) to the bytes that should be there, without the end of the line.
    Only the source shards with repaired records have a different fingerprint than with `source` alone. An unknown id is
    an error of the build.
    """

    source: Source
    repairs: Mapping[str, bytes]

    def __post_init__(self) -> None:
        for record_id, raw in self.repairs.items():
            if not isinstance(record_id, str) or not record_id.rpartition("@")[2].isdecimal():
                raise SourceError(f"repairs should be keyed by record ids such as 'a.txt@10', got {record_id!r}")
            if not isinstance(raw, bytes):
                raise SourceError(f"the repair of {record_id} should be bytes, got {raw!r:.80}")
        object.__setattr__(self, "repairs", dict(self.repairs))

    @property
    def output_type(self) -> type:
        return self.source.output_type

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        plan = self.source.plan(target_shard_bytes=target_shard_bytes, digests=digests)
        repaired = self._by_slice(plan.shards)
        shards = []
        for shard in plan.shards:
            slices = [
                piece
                if not (records := repaired.get((shard.index, number)))
                else dataclasses.replace(piece, digest=piece.digest + _AND + _digest(records))
                for number, piece in enumerate(shard.slices)
            ]
            shards.append(dataclasses.replace(shard, slices=tuple(slices)))
        return dataclasses.replace(plan, shards=tuple(shards))

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        plain, concerned = unrepaired(shard)
        batches = self.source.read(plain, batch_records=batch_records, batch_bytes=batch_bytes)
        if not concerned:
            yield from batches
            return
        left = self.repaired_records(shard)
        for batch in batches:
            left.difference_update(f"{file}@{position}" for file, positions in batch.places() for position in positions)
            yield self._repaired(batch)
        if left:
            raise SourceError(
                f"repairs are given for {sorted(left)[:5]}, but no record of the input starts there. Take the ids from "
                "the dead letters",
                shard=shard.index,
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        return self.source.parse(raw, file=file, position=position)

    def fingerprint_config(self) -> Mapping[str, object]:
        return self.source.fingerprint_config()

    def fingerprint_class(self) -> str:
        return self.source.fingerprint_class()

    def stages(self) -> Mapping[str, object]:
        return self.source.stages()

    def splits_of(self, shard: SourceShard) -> Sequence[str] | None:
        return self.source.splits_of(unrepaired(shard)[0])

    def parts(self) -> Sequence[Source]:
        return self.source.parts()

    def terms_of(self, file: str) -> Terms:
        return self.source.terms_of(file)

    def repair_of(self, file: str, position: int) -> bytes | None:
        """The bytes that should be there, or None if it is not repaired."""
        return self.repairs.get(f"{file}@{position}")

    def _by_slice(self, shards: Iterable[SourceShard]) -> dict[tuple[int, int], list[tuple[int, bytes]]]:
        """(shard, number of its slice) → the repaired records in it, in order."""
        places: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        for shard in shards:
            for number, piece in enumerate(shard.slices):
                places.setdefault(piece.file, []).append((piece.start, (shard.index, number)))
        for found in places.values():
            found.sort()
        repaired: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        for record_id, raw in self.repairs.items():
            file, _, position = record_id.rpartition("@")
            if file not in places:
                raise SourceError(f"a repair is given for {record_id!r}, but the input has no file {file!r}", file=file)
            # Positions in a compressed file may exceed its stored size: those are in the last slice.
            at = bisect.bisect_right(places[file], (int(position), (1 << 62, 0))) - 1
            repaired.setdefault(places[file][max(at, 0)][1], []).append((int(position), raw))
        return {key: sorted(records) for key, records in repaired.items()}

    def repaired_records(self, shard: SourceShard) -> set[str]:
        """The ids of the repaired records of a shard."""
        expected = set()
        for piece in shard.slices:
            repaired = piece.digest.partition(_AND)[2]
            behind = sorted(
                (int(position), raw)
                for (file, _, position), raw in ((name.rpartition("@"), raw) for name, raw in self.repairs.items())
                if file == piece.file and int(position) >= piece.start
            )
            within = [(position, raw) for position, raw in behind if position < piece.end]
            records = within if _digest(within) == repaired else behind
            expected |= {f"{piece.file}@{position}" for position, _ in records if repaired}
        return expected

    def _repaired(self, batch: RecordBatch) -> RecordBatch:
        places = [(file, position) for file, positions in batch.places() for position in positions]
        repaired = {
            batch.first_ordinal + k: (file, position, raw)
            for k, (file, position) in enumerate(places)
            if (raw := self.repair_of(file, position)) is not None
        }
        if not repaired:
            return batch
        values = dict(zip(batch.ordinals, batch.values, strict=True))
        bad = {row.ordinal: row for row in batch.bad}
        for ordinal, (file, position, raw) in repaired.items():
            values.pop(ordinal, None)
            bad.pop(ordinal, None)
            try:
                values[ordinal] = self.source.parse(raw, file=file, position=position)
            except SourceError as error:
                bad[ordinal] = BadRecord(ordinal=ordinal, file=file, position=position, raw=raw, error=error)
        ordinals = sorted(values)
        return batch.replacing(
            values=[values[ordinal] for ordinal in ordinals],
            ordinals=ordinals,
            bad=[bad[ordinal] for ordinal in sorted(bad)],
            piece_of=lambda piece: _RepairedPiece(piece, {o: raw for o, (_, _, raw) in repaired.items()}),
        )


class _RepairedPiece(Piece):
    """A piece in which some records have other bytes."""

    __slots__ = ("_piece", "_repaired")

    def __init__(self, piece: Piece, repaired: Mapping[int, bytes]) -> None:
        super().__init__(file=piece.file, first_ordinal=piece.first_ordinal, is_named=piece.is_named)
        self._piece = piece
        self._repaired = repaired

    def position(self, k: int) -> int:
        return self._piece.position(k)

    def positions_of(self, start: int, stop: int) -> list[int]:
        return self._piece.positions_of(start, stop)

    def raw(self, k: int) -> bytes:
        repaired = self._repaired.get(self.first_ordinal + k)
        return self._piece.raw(k) if repaired is None else repaired

    def digests_of(self, start: int, stop: int) -> bytes:
        found = bytearray(self._piece.digests_of(start, stop))
        for ordinal, repaired in self._repaired.items():
            at = (ordinal - self.first_ordinal - start) * DIGEST_BYTES
            if 0 <= at < len(found):
                found[at : at + DIGEST_BYTES] = content_digest(repaired)
        return bytes(found)


def unrepaired(shard: SourceShard) -> tuple[SourceShard, bool]:
    """A source shard without its repairs, and whether it has any."""
    slices = tuple(_plain(piece) for piece in shard.slices)
    return dataclasses.replace(shard, slices=slices), slices != shard.slices


def _plain(piece: Slice) -> Slice:
    plain, repaired, _ = piece.digest.partition(_AND)
    return dataclasses.replace(piece, digest=plain) if repaired else piece


def _digest(records: Iterable[tuple[int, bytes]]) -> str:
    rows = [[position, hashlib.sha256(raw).hexdigest()] for position, raw in records]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_repairs(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Repairs from a file of JSON lines, as `beam-pipes dead DIR --export FILE` writes it, after it was edited.

    Each line is an object with `source`, `position`, and the record as `text` or `base64`. A line whose record is
    unchanged since the export (`sha256`) repairs nothing. Raises `SourceError`, naming the line.
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        raise SourceError(
            f"expected a file of repaired records at {os.fspath(path)!r}, as `beam-pipes dead DIR --export FILE` "
            f"writes it, but it cannot be read: {error.strerror}.",
            file=os.fspath(path),
        ) from error
    repairs: dict[str, bytes] = {}
    with file as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
                record_id = f"{fields['source']}@{int(fields['position'])}"
                if "text" in fields:
                    raw = fields["text"].encode("utf-8")
                else:
                    raw = base64.b64decode(fields["base64"], validate=True)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SourceError(
                    f"{os.fspath(path)}, line {number}: expected an object with source, position, and text or base64, "
                    f"got {line.strip()!r:.120}: {error!r}",
                    line=number,
                ) from error
            if hashlib.sha256(raw).hexdigest() != fields.get("sha256"):
                repairs[record_id] = raw
    return repairs
