"""Records as they travel: batches of consecutive records of one source shard, with lazy provenance.

The hot path only touches values. A record's origin (`record_id`) and its bytes (`raw`) are computed on request, from
the *pieces* of which a batch consists: a piece is a run of consecutive records of one file. Values in memory are hashed
by `value_bytes`, which is the same in every process.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import hashlib
import struct
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeGuard, cast

import numpy as np

from beam_pipes.checks import integer
from beam_pipes.engine.records import Table
from beam_pipes.errors import SourceError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import Record
from beam_pipes.lineage.lineage import DIGEST_BYTES

if TYPE_CHECKING:
    from google.protobuf.message import Message


def value_bytes(value: object) -> bytes:
    """Unambiguous bytes of a value made of None, bool, numbers, str, bytes, NumPy arrays, mappings, sequences, sets,
    enums, dataclasses and proto messages; `SourceError` for anything else.

    Two values of different types never have the same bytes: `1`, `1.0`, `True` and `"1"` are four values.
    """
    if isinstance(value, bytes):
        return _frame(b"b", value)
    if isinstance(value, str):
        return _frame(b"s", value.encode("utf-8", "surrogatepass"))
    if value is None or value is True or value is False:
        return _frame(b"c", str(value).encode())
    if isinstance(value, Enum):
        return _frame(b"e", _name_of(type(value)), value.name.encode())
    if isinstance(value, int):
        return _frame(b"i", str(value).encode())
    if isinstance(value, float) and not isinstance(value, np.generic):
        return _frame(b"d", struct.pack(">d", value))
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return _frame(b"z", struct.pack(">dd", value.real, value.imag))
    if isinstance(value, (np.ndarray, np.generic)):
        return _array_bytes(np.asarray(value), b"g" if isinstance(value, np.generic) else b"a")
    if isinstance(value, Mapping):
        items = sorted((value_bytes(key), value_bytes(item)) for key, item in value.items())
        return _frame(b"m", *(part for pair in items for part in pair))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [value_bytes(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return _frame(b"o", _name_of(type(value)), *fields)
    if isinstance(value, (bytearray, memoryview)):
        return _frame(b"y", bytes(value))
    if isinstance(value, Sequence):
        return _frame(b"t" if isinstance(value, tuple) else b"l", *map(value_bytes, value))
    if isinstance(value, Set):
        return _frame(b"u", *sorted(map(value_bytes, value)))
    if is_message(value):
        return _frame(b"p", value.DESCRIPTOR.full_name.encode(), value.SerializeToString(deterministic=True))
    raise SourceError(
        f"a value of type {type(value).__qualname__} cannot be hashed by content; pass digest='…', a name for the "
        "content that changes whenever the values do",
        type=type(value),
    )


def is_message(value: object) -> TypeGuard[Message]:
    """Whether this is a proto message (or, for a class, a message class), from any package."""
    return hasattr(value, "DESCRIPTOR") and hasattr(value, "SerializeToString")


def _array_bytes(array: Array, tag: bytes) -> bytes:
    kind = f"{array.dtype.str}{list(array.shape)}".encode()
    if array.dtype.hasobject:
        return _frame(tag, kind, *map(value_bytes, array.ravel().tolist()))
    return _frame(tag, kind, array.tobytes())


def _name_of(cls: type) -> bytes:
    return f"{cls.__module__}.{cls.__qualname__}".encode()


def _frame(tag: bytes, *parts: bytes) -> bytes:
    return tag + b"".join(_lengths(parts)) + b"".join(parts)


def _lengths(parts: Iterable[bytes]) -> Iterable[bytes]:
    for part in parts:
        yield b"%d," % len(part)
    yield b";"


def content_digest(raw: bytes) -> bytes:
    """The digest that lineage keeps of a source record's content: the first 8 bytes of its sha256."""
    return hashlib.sha256(raw).digest()[:DIGEST_BYTES]


def digests_of_values(values: Sequence[object], *, file: str, first: int) -> bytes:
    """`content_digest` of each of these values, which have no bytes in a file; the first is number `first` of `file`.

    A value without bytes (an object of a user's class) uses those of its place: every process identifies it by its
    position.
    """
    found = []
    for number, value in enumerate(values, start=first):
        if isinstance(value, bytes):
            content = value
        else:
            try:
                content = repr(_plain(value)).encode("utf-8", "surrogatepass")
            except Exception:
                content = f"{file}@{number}".encode()
        found.append(content_digest(content))
    return b"".join(found)


def digests_of_table(table: Table, *, file: str, first: int) -> bytes:
    """`digests_of_values` of the rows of a table, column by column."""
    columns, plain = [], _WRITTEN_ALIKE
    names = sorted(table.columns)
    try:
        for name in names:
            values = table.values(name)
            columns.append(values if plain.issuperset(map(type, values)) else [*map(_plain, values)])
        # One format for all rows, at half the time of their cells one by one: "[('a', %r), ('b', %r)]".
        row = "[" + ", ".join(f"({name!r}, ".replace("%", "%%") + "%r)" for name in names) + "]"
        written = [*map(row.__mod__, zip(*columns, strict=True))] if names else ["[]"] * len(table)
    except Exception:
        return digests_of_values(table.rows(), file=file, first=first)
    sha256 = hashlib.sha256
    return b"".join([sha256(each.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES] for each in written])


def content_of_value(value: Record) -> bytes:
    """`content_digest` of a value without a source: texts as lines of a file, others as in `Memory`."""
    if isinstance(value, str):
        return content_digest(value.encode("utf-8", "surrogatepass"))
    return digests_of_values([value], file="", first=0)


def _plain(value: Record) -> object:
    """A form that Python writes identically in every process and version: three times as fast as `value_bytes`."""
    kind = type(value)
    if kind in _WRITTEN_ALIKE:
        return value
    if kind is dict and {*map(type, value)} <= {str}:
        return [(key, item if type(item) in _WRITTEN_ALIKE else _plain(item)) for key, item in sorted(value.items())]
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        data = value.tobytes()
        return value.dtype.str, value.shape, data if len(data) <= 64 else hashlib.sha256(data).digest()
    if kind is list or kind is tuple:
        return [kind.__name__, [_plain(item) for item in value]]
    if isinstance(value, (datetime.date, datetime.time)):
        return kind.__name__, value.isoformat()
    if isinstance(value, (datetime.timedelta, decimal.Decimal)):
        return kind.__name__, str(value)
    return kind.__name__, value_bytes(value)


_WRITTEN_ALIKE = frozenset([str, bytes, int, float, bool, type(None)])


class Piece(ABC):
    """A run of consecutive records of one file, including bad ones; knows the position and the bytes of each."""

    __slots__ = ("file", "first_ordinal", "is_named")

    def __init__(self, *, file: str, first_ordinal: int, is_named: bool = False) -> None:
        """`is_named`: whether the record is a whole file, known by the name of the file."""
        self.file = file
        self.first_ordinal = first_ordinal
        self.is_named = is_named

    @abstractmethod
    def position(self, k: int) -> int:
        """Where the piece's record `k` starts: byte offset, row number or index in `file`."""

    @abstractmethod
    def raw(self, k: int) -> bytes:
        """The bytes of record `k` in the source."""

    def positions_of(self, start: int, stop: int) -> list[int]:
        """`position` of the records `start … stop - 1`."""
        return [self.position(k) for k in range(start, stop)]

    def digests_of(self, start: int, stop: int) -> bytes:
        """`content_digest` of the records `start … stop - 1`, concatenated: the same wherever a record is."""
        return b"".join([content_digest(self.raw(k)) for k in range(start, stop)])


class StoredPiece(Piece):
    """A piece with computed positions and bytes, the form in which other pieces are pickled."""

    __slots__ = ("positions", "raws")

    def __init__(
        self,
        *,
        file: str,
        first_ordinal: int,
        positions: Sequence[int],
        raws: Sequence[bytes],
        is_named: bool = False,
    ) -> None:
        super().__init__(file=file, first_ordinal=first_ordinal, is_named=is_named)
        self.positions = positions
        self.raws = raws

    def position(self, k: int) -> int:
        return self.positions[k]

    def positions_of(self, start: int, stop: int) -> list[int]:
        return list(self.positions[start:stop])

    def raw(self, k: int) -> bytes:
        return self.raws[k]


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRecord:
    """A record that could not be parsed: the material of a dead letter."""

    ordinal: int
    file: str
    position: int
    raw: bytes
    error: Exception

    @property
    def record_id(self) -> str:
        return f"{self.file}@{self.position}"


class RecordBatch:
    """Consecutive records of one source shard, in order.

    `values[i]` has ordinal `ordinals[i]` in its source shard; rows that could not be parsed take an ordinal too and are
    in `bad`. The batch covers the ordinals `first_ordinal … first_ordinal + num_records - 1`. Picklable.

    `left_out` counts what was found between the records and is not one: reason → number.
    """

    __slots__ = (
        *("first_ordinal", "num_records", "ordinals", "bad", "left_out", "_digests", "_pieces", "_starts", "_values"),
    )

    def __init__(
        self,
        *,
        first_ordinal: int,
        num_records: int,
        values: list[Record] | Table,
        ordinals: Sequence[int],
        bad: list[BadRecord],
        pieces: Sequence[Piece],
        digests: bytes | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self.left_out = dict(left_out or {})
        self.first_ordinal = first_ordinal
        self.num_records = num_records
        self._values = values
        self.ordinals = ordinals
        self.bad = bad
        self._digests = digests
        self._pieces = pieces
        self._starts = [piece.first_ordinal for piece in pieces] if len(pieces) > 1 else None

    def __len__(self) -> int:
        return len(self._values)

    @property
    def table(self) -> Table | None:
        """The values as columns; None if they are not kept so, or no longer."""
        return self._values if isinstance(self._values, Table) else None

    @property
    def values(self) -> list[Record]:
        """One value for each record that is not bad; the same list each time."""
        if isinstance(self._values, Table):
            self._values = self._values.rows()
        return self._values

    def __repr__(self) -> str:
        last = self.first_ordinal + self.num_records - 1
        return f"RecordBatch(ordinals {self.first_ordinal}…{last}, {len(self)} values, {len(self.bad)} bad)"

    def record_id(self, i: int) -> str:
        """The name of value `i`, `file@position`: the same however the input is cut into shards, or grows."""
        piece, k = self._locate(i)
        return f"{piece.file}@{piece.position(k)}"

    def record_ids(self) -> list[str]:
        """The names of all values; faster than one by one."""
        if self._starts is None:
            piece = self._pieces[0] if self._pieces else None
            if piece is None:
                return []
            name, first, position = piece.file, piece.first_ordinal, piece.position
            return [f"{name}@{position(ordinal - first)}" for ordinal in self.ordinals]
        return [self.record_id(i) for i in range(len(self))]

    def content(self, i: int) -> bytes:
        """What identifies value `i` when its neighbours change: the name of its file if it is a whole file, else the
        digest of its bytes, which it shares with its duplicates.
        """
        piece, _ = self._locate(i)
        if piece.is_named:
            return piece.file.encode("utf-8", "surrogatepass")
        at = (self.ordinals[i] - self.first_ordinal) * DIGEST_BYTES
        return self.digests()[at : at + DIGEST_BYTES]

    def position(self, i: int) -> int:
        """Where value `i` starts in its file: byte offset (decompressed), row number or index."""
        piece, k = self._locate(i)
        return piece.position(k)

    def file(self, i: int) -> str:
        """The file of value `i`, relative to the source's root."""
        return self._locate(i)[0].file

    def raw(self, i: int) -> bytes:
        """The bytes of value `i` in the source."""
        piece, k = self._locate(i)
        return piece.raw(k)

    def places(self) -> list[tuple[str, list[int]]]:
        """(file, positions) of all records of the batch, in order, the bad ones included."""
        return [(piece.file, piece.positions_of(first, last)) for piece, first, last in self._parts()]

    def digests(self) -> bytes:
        """`content_digest` of all records of the batch, in order, the bad ones included.

        Computed once, on first use: before stages run, which may change values in place.
        """
        if self._digests is None:
            self._digests = b"".join(piece.digests_of(first, last) for piece, first, last in self._parts())
        return self._digests

    def _parts(self) -> Iterator[tuple[Piece, int, int]]:
        """The pieces, and which of their records belong to the batch."""
        stop = self.first_ordinal + self.num_records
        for piece, following in zip(self._pieces, [*self._pieces[1:], None], strict=True):
            first = max(piece.first_ordinal, self.first_ordinal) - piece.first_ordinal
            yield piece, first, (stop if following is None else following.first_ordinal) - piece.first_ordinal

    def replacing(
        self,
        *,
        values: list[Record] | Table,
        ordinals: Sequence[int],
        bad: list[BadRecord],
        piece_of: Callable[[Piece], Piece],
    ) -> RecordBatch:
        """The same records with other values and bytes."""
        return RecordBatch(
            first_ordinal=self.first_ordinal,
            num_records=self.num_records,
            values=values,
            ordinals=ordinals,
            bad=bad,
            pieces=[piece_of(piece) for piece in self._pieces],
            left_out=self.left_out,
        )

    def only(self, kept: Sequence[int]) -> RecordBatch:
        """The values at the indices `kept`, in ascending order; bad rows stay."""
        return RecordBatch(
            first_ordinal=self.first_ordinal,
            num_records=self.num_records,
            values=[self.values[i] for i in kept],
            ordinals=[self.ordinals[i] for i in kept],
            bad=self.bad,
            pieces=self._pieces,
            digests=self.digests(),
        )

    def cut(self, start: int, stop: int) -> RecordBatch:
        """The part of the batch with the ordinals `start … stop - 1`, the bad rows among them included."""
        low, high = bisect_left(self.ordinals, start), bisect_left(self.ordinals, stop)
        firsts = [piece.first_ordinal for piece in self._pieces]
        return RecordBatch(
            first_ordinal=start,
            num_records=stop - start,
            values=self._values[low:high],
            ordinals=self.ordinals[low:high],
            bad=[row for row in self.bad if start <= row.ordinal < stop],
            pieces=self._pieces[max(bisect_right(firsts, start) - 1, 0) : bisect_left(firsts, stop)],
            digests=self._digests
            and self._digests[(start - self.first_ordinal) * DIGEST_BYTES : (stop - self.first_ordinal) * DIGEST_BYTES],
            left_out=self.left_out if stop == self.first_ordinal + self.num_records else None,
        )

    def _locate(self, i: int) -> tuple[Piece, int]:
        ordinal = self.ordinals[i]
        piece = self._pieces[0 if self._starts is None else bisect_right(self._starts, ordinal) - 1]
        return piece, ordinal - piece.first_ordinal

    def __reduce__(self) -> tuple[object, ...]:
        # A piece may hold a megabyte that the batch shares with its neighbours: only the batch's own part travels.
        pieces = []
        for piece, first, last in self._parts():
            ks = range(first, last)
            ordinal = piece.first_ordinal + first
            positions, raws = [piece.position(k) for k in ks], [piece.raw(k) for k in ks]
            pieces.append((piece.file, ordinal, piece.is_named, positions, raws))
        return _rebuild, (
            self.first_ordinal,
            self.num_records,
            self.values,
            self.ordinals,
            self.bad,
            pieces,
            self.digests(),  # a stored piece cannot: the content of a row is more than the bytes it travels as
            self.left_out,
        )


def _rebuild(
    first_ordinal: int,
    num_records: int,
    values: list[Record],
    ordinals: Sequence[int],
    bad: list[BadRecord],
    pieces: list[tuple[str, int, bool, list[int], list[bytes]]],
    digests: bytes,
    left_out: Mapping[str, int],
) -> RecordBatch:
    return RecordBatch(
        first_ordinal=first_ordinal,
        num_records=num_records,
        values=values,
        ordinals=ordinals,
        bad=bad,
        pieces=[
            StoredPiece(file=file, first_ordinal=first, is_named=is_named, positions=positions, raws=raws)
            for file, first, is_named, positions, raws in pieces
        ],
        digests=digests,
        left_out=left_out,
    )


def _ordinal(row: BadRecord) -> int:
    return row.ordinal


class Batcher:
    """Cuts pieces of any length into batches.

    A batch ends after `batch_records` records, or before the piece that would exceed `batch_bytes`; so it never holds
    more bytes than the larger of `batch_bytes` and one piece. `left_out` counts what is not a record, by reason; the
    next batch takes it along, even a last one without records. `beside` are values that each record has which has none
    of its own.
    """

    def __init__(self, *, batch_records: int, batch_bytes: int) -> None:
        for name, value in (("batch_records", batch_records), ("batch_bytes", batch_bytes)):
            integer(value, least=1, what=name, error=SourceError)
        self.left_out = Counter[str]()
        self.beside: Mapping[str, object] = {}
        self.next_ordinal = 0
        self.batch_records = batch_records
        self.batch_bytes = batch_bytes
        self._pieces: list[Piece] = []
        self._values: list[Record] | Table = []
        self._ordinals: list[int] | None = None  # None while no row of the batch is bad
        self._bad: list[BadRecord] = []
        self._first = 0
        self._num_records = 0
        self._num_bytes = 0.0

    def add(
        self,
        piece: Piece,
        values: list[Record] | Table,
        *,
        num_bytes: int,
        ordinals: Sequence[int] | None = None,
        bad: Sequence[BadRecord] = (),
    ) -> Iterator[RecordBatch]:
        """Takes the records of one piece; `ordinals` (of `values`) only if some of its rows are bad."""
        num_records = len(values) + len(bad)
        if self.beside:
            if isinstance(values, Table):
                more = {name: [value] * len(values) for name, value in self.beside.items()}
                values = Table({**more, **values.columns}, len(values))
            else:
                values = [{**self.beside, **cast("Mapping[str, object]", value)} for value in values]
        if self._num_records and self._num_bytes + num_bytes > self.batch_bytes:
            yield self._emit()
        done = 0
        while done < num_records:
            take = min(num_records - done, self.batch_records - self._num_records)
            first = piece.first_ordinal + done
            if not self._num_records:
                self._first = first
            if ordinals is None:
                part = values if take == num_records else values[done : done + take]
                if self._ordinals is not None:
                    self._ordinals.extend(range(first, first + take))
            else:
                low, high = bisect_left(ordinals, first), bisect_left(ordinals, first + take)
                part = values[low:high]
                if self._ordinals is None:
                    self._ordinals = list(range(self._first, self._first + self._num_records))
                self._ordinals.extend(ordinals[low:high])
                low, high = (bisect_left(bad, end, key=_ordinal) for end in (first, first + take))
                self._bad.extend(bad[low:high])
            self._values = self._values + part if self._values else part
            self._pieces.append(piece)
            self._num_records += take
            self._num_bytes += num_bytes * take / num_records
            done += take
            if self._num_records >= self.batch_records:
                yield self._emit()
        self.next_ordinal = piece.first_ordinal + num_records

    def add_parsed(
        self, piece: Piece, count: int, parse: Callable[[int], Record], *, num_bytes: int
    ) -> Iterator[RecordBatch]:
        """Takes the `count` records of a piece, parsed one by one: those that raise a `SourceError` are bad."""
        values, ordinals, bad = list[Record](), list[int](), list[BadRecord]()
        for k in range(count):
            ordinal = piece.first_ordinal + k
            try:
                values.append(parse(k))
                ordinals.append(ordinal)
            except SourceError as error:
                position, raw = piece.position(k), piece.raw(k)
                bad.append(BadRecord(ordinal=ordinal, file=piece.file, position=position, raw=raw, error=error))
        return self.add(piece, values, num_bytes=num_bytes, ordinals=ordinals if bad else None, bad=bad)

    def finish(self) -> Iterator[RecordBatch]:
        """Yields the rest."""
        if not self._num_records:
            self._first = self.next_ordinal
        if self._num_records or self.left_out:
            yield self._emit()

    def _emit(self) -> RecordBatch:
        first, count = self._first, self._num_records
        batch = RecordBatch(
            first_ordinal=first,
            num_records=count,
            values=self._values,
            ordinals=range(first, first + count) if self._ordinals is None else self._ordinals,
            bad=self._bad,
            pieces=self._pieces,
            left_out=self.left_out,
        )
        self.left_out.clear()
        self._pieces, self._values, self._ordinals, self._bad = [], [], None, []
        self._num_records, self._num_bytes = 0, 0.0
        return batch
