"""Codecs: values ↔ record payloads. One for examples, one for messages of any class, one for bytes."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NoReturn, Protocol, TypeAlias

import numpy as np
from google.protobuf.message import Message

from beam_pipes.errors import CacheError, SpecError
from beam_pipes.format import messages
from beam_pipes.format.decoding import Decoder, OwnRecords, Shape, content_of, decoder_of, parsed
from beam_pipes.format.dtypes import Array
from beam_pipes.format.encoding import Converter, converter_of, gap_before, headers, prefixes, scalars_of, texts_of
from beam_pipes.format.framing import FRAME_BYTES
from beam_pipes.format.layout import (
    MAX_PAYLOAD_BYTES,
    FixedLayout,
    fields_of,
    has_length_column,
    start_columns,
)
from beam_pipes.format.spec import ColumnValues, DecodedExample, Example, ExampleSpec, FeatureSpec, Record
from beam_pipes.format.wire import FILLER, Computed

RecordKind = Literal["example", "proto", "bytes"]
IndexRow = tuple[int, ...]  # what the index keeps of a record beside offset, size and ordinal


# What a field holds in each example: an array of scalars as they are stored, or payloads and lengths.
_Content: TypeAlias = "Array | tuple[Sequence[bytes], Sequence[int]]"

# Fewer examples are joined with lists, since each call of NumPy takes as long as a dozen of them.
_FEW = 32

# Frames have 16 bytes: payloads of a multiple of 8 keep the next record in the same phase. A tail has at most 9 bytes.
_TAILS = [FILLER[gap if gap != 1 else 9] for gap in (0, *range(7, 0, -1))]


def _check_size(num_bytes: int) -> None:
    if num_bytes > MAX_PAYLOAD_BYTES - 9:
        raise SpecError(
            f"an example should take less than 2 GiB, the most that protocol buffers parse, got {num_bytes} bytes. "
            "Split it into several."
        )


def _turned(converted: list[tuple[bytes, int]]) -> tuple[Sequence[bytes], Sequence[int]]:
    payloads, lengths = zip(*converted, strict=True) if converted else ((), ())
    return payloads, lengths


def _each(values: Array) -> list[bytes]:
    """The bytes of each value."""
    return values.view(f"V{values.itemsize}").tolist()  # type: ignore[no-any-return]


class RecordCodec(Protocol):
    """Values ↔ payloads of one kind of record."""

    kind: RecordKind
    index_columns: tuple[str, ...]

    def encode(self, value: Record) -> bytes: ...

    def encode_indexed(self, value: Record) -> tuple[bytes, IndexRow]: ...

    def encode_all(self, values: Sequence[Record]) -> tuple[list[bytes], list[IndexRow]]: ...

    def decode(self, payload: bytes) -> Record: ...

    def layout_of(self, payload_bytes: int, row: Sequence[int]) -> FixedLayout | None: ...


class ExampleCodec:
    """Examples ↔ serialized `tf.train.Example`, deterministic: equal examples give equal bytes.

        codec = ExampleCodec(ExampleSpec({"tokens": FeatureSpec("int32", shape=(None,))}))
        codec.decode(codec.encode({"tokens": [7, 8, 9]}))  →  {"tokens": array([7, 8, 9], dtype=int32)}

    The payload is a multiple of 8 bytes long, and the raw bytes of each tensor start at 4 modulo 8 in it, which is
    an aligned offset of the file after a frame's header of 12 bytes. Thread-safe.
    """

    kind: RecordKind = "example"

    def __init__(self, spec: ExampleSpec) -> None:
        self.spec = spec
        self.fields = fields_of(spec)
        self._num_features = len(spec)
        starting = start_columns(self.fields)
        self.index_columns = tuple(
            column
            for field in self.fields
            for column, present in (
                (f"length/{field.feature}", has_length_column(field, spec)),
                (f"start/{field.name}", field.name in starting),
            )
            if present
        )
        self._starting = frozenset(starting)
        self.constant_starts: dict[str, int] = self._constant_starts()
        self.fixed_layout = self._fixed_layout() if spec.fixed else None

    # Resolved once per spec, because every record needs them; lazily, because few codecs need all of them, and wide
    # tables have 100,000 features.

    @functools.cached_property
    def _steps(self) -> list[tuple[str, Converter, Computed[int, bytes], bool, bool]]:
        return [
            (
                field.feature,
                converter_of(field, self.spec[field.feature]),
                prefixes(field),
                has_length_column(field, self.spec),
                field.name in self._starting,
            )
            for field in self.fields
        ]

    @functools.cached_property
    def _decoders(self) -> list[tuple[str, Decoder]]:
        return [(field.feature, decoder_of(field, self.spec[field.feature])) for field in self.fields]

    @functools.cached_property
    def _shapes(self) -> list[int]:
        """Which fields hold the shapes of features, the last one first."""
        return [number for number, field in enumerate(self.fields) if field.kind == "shape"][::-1]

    @functools.cached_property
    def _own_records(self) -> OwnRecords:
        return OwnRecords(self.fields, self.fixed_layout)

    @functools.cached_property
    def _slots(self) -> list[tuple[int, str, Converter]]:
        """For a fixed spec: the part of the template that each feature fills."""
        return [(2 * number + 1, feature, convert) for number, (feature, convert, *_) in enumerate(self._steps)]

    def encode(self, value: Example) -> bytes:
        """The serialized example.

        Raises `SpecError`, naming the feature, where `value` has other features than declared, or a value does not
        match its spec exactly.
        """
        return self.encode_indexed(value)[0]

    def encode_indexed(self, value: Example) -> tuple[bytes, IndexRow]:
        """The serialized example, and its values in the `index_columns`."""
        if self.fixed_layout is not None:
            return self._encode_fixed(value), ()
        parts: list[bytes] = []
        row: list[int] = []
        position = 0
        try:
            for feature, convert, prefix_of, has_length, has_start in self._steps:
                payload, length = convert(value[feature])
                size = len(payload)
                prefix = prefix_of[size << 3 | position & 7]
                parts += (prefix, payload)
                position += len(prefix) + size
                if has_length:
                    row.append(length)
                if has_start:
                    row.append(position - size)
        except KeyError as error:
            # Names are compared only after a failure, not for each record.
            self._check_names(value)
            raise error  # not a missing feature: raised inside the value
        # All declared features were found, so a different number means that there are others.
        if len(value) != self._num_features:
            self._check_names(value)
        parts.append(_TAILS[position & 7])
        _check_size(position)
        return b"".join(parts), tuple(row)

    def encode_all(self, values: Sequence[Example]) -> tuple[list[bytes], list[IndexRow]]:
        """`encode_indexed` of each value, feature by feature: 0.45 µs for an example of one feature, against 0.7 µs.

        Raises for any value that cannot be encoded; `encode_indexed` of it says why.
        """
        count = len(values)
        if {*map(len, values)} - {self._num_features}:
            for value in values:
                self._check_names(value)
        if self.fixed_layout is not None:
            columns: list[Iterable[bytes]] = [itertools.repeat(part, count) for part in self._own_records.template]
            for slot, feature, convert in self._slots:
                columns[slot] = [convert(value[feature])[0] for value in values]
            return [*map(b"".join, zip(*columns, strict=True))], [()] * count
        steps = ([convert(value[feature]) for value in values] for feature, convert, *_ in self._steps)
        return self._joined((_turned(step) for step in steps), count)

    def encode_columns(self, columns: Mapping[str, ColumnValues]) -> tuple[list[bytes], list[IndexRow]]:
        """`encode_all` of the rows of columns; of numbers in arrays at a tenth of the time."""
        if columns.keys() != self.spec.keys():
            self._check_names(columns)
        if not (size := len(next(iter(columns.values())))):
            return [], []
        return self._joined((self._contents(columns[field.feature], n) for n, field in enumerate(self.fields)), size)

    def _contents(self, column: ColumnValues, number: int) -> _Content:
        """The values of one field of columns."""
        field = self.fields[number]
        spec = self.spec[field.feature]
        if (stored := scalars_of(field, spec, column)) is not None:
            return stored
        if field.kind == "text" and isinstance(column, list) and (texts := texts_of(spec, column)) is not None:
            return texts, [*map(len, texts)]
        _, convert, *_ = self._steps[number]
        return _turned([*map(convert, column if isinstance(column, list) else column.tolist())])

    def _joined(self, contents: Iterable[_Content], count: int) -> tuple[list[bytes], list[IndexRow]]:
        """Examples from the content of each of their fields."""
        columns: list[Iterable[bytes]] = []
        index: list[Sequence[int]] = []
        if count < _FEW and self.fixed_layout is None:
            ends = [0] * count
            for content, (_, _, prefix_of, has_length, has_start) in zip(contents, self._steps, strict=True):
                payloads, lengths = content if isinstance(content, tuple) else (_each(content), [1] * count)
                sizes = [*map(len, payloads)]
                prefixes = [prefix_of[size << 3 | end & 7] for size, end in zip(sizes, ends, strict=True)]
                columns += (prefixes, payloads)
                ends = [end + len(prefix) + size for end, prefix, size in zip(ends, prefixes, sizes, strict=True)]
                if has_length:
                    index.append(lengths)
                if has_start:
                    index.append([end - size for end, size in zip(ends, sizes, strict=True)])
            _check_size(max(ends, default=0))
            columns.append([_TAILS[end & 7] for end in ends])
        else:
            self._join_many(contents, count, columns, index)
        made = [*columns[0]] if len(columns) == 1 else [*map(b"".join, zip(*columns, strict=True))]
        return made, [*zip(*index, strict=True)] if index else [()] * count

    def _join_many(
        self, contents: Iterable[_Content], count: int, columns: list[Iterable[bytes]], index: list[Sequence[int]]
    ) -> None:
        """Adds the parts of many examples to `columns`, and the columns of their index.

        Fields of scalars that follow each other are filled into a few constant runs of bytes, since their places depend
        only on the phase of the first.
        """
        ends: Array = np.zeros(count, np.int64)
        run: list[Array] = []
        for number, content in enumerate(contents):
            if not isinstance(content, tuple):
                run.append(content)
                continue
            if run:
                columns.append(self._filled(number, run, ends, index))
                run = []
            payloads, lengths = content
            _, _, prefix_of, has_length, has_start = self._steps[number]
            sizes = np.fromiter(map(len, payloads), np.int64, count)
            prefixes = [*map(prefix_of.__getitem__, (sizes << 3 | ends & 7).tolist())]
            columns += (prefixes, payloads)
            ends += np.fromiter(map(len, prefixes), np.int64, count)
            if has_length:
                index.append(lengths)
            if has_start:
                index.append(ends.tolist())
            ends += sizes
        if run:
            columns.append(self._filled(len(self.fields), run, ends, index))
        else:
            columns.append([*map(_TAILS.__getitem__, (ends & 7).tolist())])
        _check_size(int(ends.max()))

    def _filled(self, end: int, run: list[Array], ends: Array, index: list[Sequence[int]]) -> list[bytes]:
        """The bytes of the fields of scalars before number `end`, for each example; the last field's have the tail.

        Moves `ends`, and adds the starts of fields to `index`.
        """
        first, phases = end - len(run), ends & 7
        found = np.flatnonzero(np.bincount(phases)).tolist()
        lengths, places = np.zeros(8, np.int64), np.zeros((8, len(run)), np.int64)
        made: dict[int, list[bytes]] = {}
        for phase in found:
            template, starts = self._runs[first, end, phase]
            places[phase], lengths[phase] = starts, starts[-1] + run[-1].itemsize
            some = run if len(found) == 1 else [values[phases == phase] for values in run]
            rows: Array = np.tile(np.frombuffer(template, np.uint8), (len(some[0]), 1))
            for values, at in zip(some, starts, strict=True):
                rows[:, at : at + values.itemsize] = values.view(np.uint8).reshape(len(rows), -1)
            made[phase] = _each(rows.view(f"V{len(template)}").ravel())
        if self._starting:
            for number, field in enumerate(self.fields[first:end]):
                if field.name in self._starting:
                    index.append((ends + places[:, number][phases]).tolist())
        ends += lengths[phases]
        if len(found) == 1:
            return made[found[0]]
        parts = {phase: iter(parts) for phase, parts in made.items()}
        return [next(parts[phase]) for phase in phases.tolist()]

    @functools.cached_property
    def _runs(self) -> Computed[tuple[int, int, int], tuple[bytes, list[int]]]:
        """First field, the one after the last, and the phase of the first → the bytes of these fields of scalars, with
        zeros for the values, and where these are.
        """

        def run(key: tuple[int, int, int]) -> tuple[bytes, list[int]]:
            first, end, phase = key
            parts, starts, position = list[bytes](), list[int](), phase
            for field in self.fields[first:end]:
                size = field.num_bytes or 0
                header = headers(field)[size]
                gap = gap_before(position + len(header), field.alignment)
                position += gap + len(header) + size
                parts += (FILLER[gap], header, bytes(size))
                starts.append(position - size - phase)
            return b"".join([*parts, _TAILS[position & 7] if end == len(self.fields) else b""]), starts

        return Computed(run)

    def _encode_fixed(self, value: Example) -> bytes:
        # All records of a fixed spec are equal except for the values, which are filled into a list of constant parts.
        parts = self._own_records.template.copy()
        try:
            for slot, feature, convert in self._slots:
                parts[slot] = convert(value[feature])[0]
        except KeyError as error:
            self._check_names(value)
            raise error
        if len(value) != self._num_features:
            self._check_names(value)
        return b"".join(parts)

    def decode(self, payload: bytes) -> DecodedExample:
        """The example from any legal serialization, whoever wrote it. Arrays are independent copies.

        Raises:
            CorruptRecordError: `payload` is not a serialized Example.
            SpecError: the Example does not hold the declared features.
        """
        # Nearly all records are our own: their values are read at known offsets. A record that differs in a single byte
        # between the values is parsed: other writers may order fields and pack lists as they like.
        try:
            places = self._own_records.places(payload)
            if places is not None:
                return self._values(payload, places)
        except SpecError:
            raise
        except (IndexError, ValueError):
            pass  # shorter than its lengths say, or values that do not parse: the parser knows
        features = parsed(
            messages.Example, payload, advice=' Is the record of another kind ("proto", "bytes")?'
        ).features.feature
        if len(features) != len(self.fields) or any(field.name not in features for field in self.fields):
            expected, found = sorted(field.name for field in self.fields), sorted(features)
            differing = sorted(set(expected) ^ set(found))
            raise SpecError(
                f"expected a record with the features {expected}, found {found}. The record was written with a "
                "different spec."
            ).about("feature", differing[0], expected=expected, found=found)
        contents = [content_of(field, features[field.name]) for field in self.fields]
        ends = [0, *itertools.accumulate(map(len, contents))]
        return self._values(b"".join(contents), list(itertools.pairwise(ends)))

    def _values(self, data: bytes, places: Sequence[tuple[int, int]]) -> DecodedExample:
        """The value of each feature, by where its content is in `data`."""
        if not self._shapes:
            values: DecodedExample = {}
            # A loop, and a zip that compares no lengths, take 0.3 of 1.6 µs less than a dict comprehension.
            for (feature, decode), (start, end) in zip(self._decoders, places):  # noqa: B905
                values[feature] = decode(data, start, end, None)
            return values
        # The shape of a tensor of several dimensions is a feature of its own, which is needed to decode its values.
        fields = list(zip(self._decoders, places, strict=True))
        shapes: dict[str, Shape] = {}
        for number in self._shapes:
            (feature, decode), place = fields.pop(number)
            shapes[feature] = tuple(decode(data, *place, None).tolist())
        return {feature: decode(data, *place, shapes.get(feature)) for (feature, decode), place in fields}

    def layout_of(self, payload_bytes: int, row: Sequence[int]) -> FixedLayout | None:
        """The layout of a record with this size and index row; None if a field needs parsing."""
        if any(not field.direct or field.kind == "shape" for field in self.fields):
            return None
        columns = dict(zip(self.index_columns, row, strict=True))
        fields: dict[str, tuple[int, int]] = {}
        for field in self.fields:
            start = self.constant_starts.get(field.name)
            fields[field.name] = (
                columns[f"start/{field.name}"] if start is None else start,
                columns[f"length/{field.feature}"] * field.row_bytes if field.num_bytes is None else field.num_bytes,
            )
        return FixedLayout(stride=payload_bytes + FRAME_BYTES, fields=fields)

    def _constant_starts(self) -> dict[str, int]:
        starts: dict[str, int] = {}
        position = 0
        for field in self.fields:
            # The places of all fields after the first one of varying length vary with it.
            if field.num_bytes is None:
                break
            start = position + len(headers(field)[field.num_bytes])
            starts[field.name] = start = start + gap_before(start, field.alignment)
            position = start + field.num_bytes
        return starts

    def _fixed_layout(self) -> FixedLayout:
        end = 0
        for field in self.fields:
            end = self.constant_starts[field.name] + (field.num_bytes or 0)
        gap = -end & 7
        layout = self.layout_of(end + gap + (8 if gap == 1 else 0), ())
        assert layout is not None
        return layout

    def _check_names(self, value: Example) -> None:
        missing = sorted(self.spec.keys() - set(value))
        extra = sorted(set(value) - self.spec.keys(), key=repr)
        if not missing and not extra:
            return
        problems = [f"{word} {names}" for word, names in (("missing", missing), ("unexpected", extra)) if names]
        raise SpecError(
            f"expected an example with the features {list(self.spec)}, got {sorted(value, key=repr)}: "
            f"{', '.join(problems)}. Give every example all declared features, or change the spec."
        ).about("feature", (missing or extra)[0], expected=list(self.spec), found=sorted(value, key=repr))


class _WholeRecords:
    """Codecs of records that are a single value: the index has no columns for them, and there is no layout."""

    index_columns: tuple[str, ...] = ()

    @abc.abstractmethod
    def encode(self, value: Record) -> bytes: ...

    def encode_indexed(self, value: Record) -> tuple[bytes, IndexRow]:
        return self.encode(value), ()

    def encode_all(self, values: Sequence[Record]) -> tuple[list[bytes], list[IndexRow]]:
        return [*map(self.encode, values)], [()] * len(values)

    def layout_of(self, payload_bytes: int, row: Sequence[int]) -> FixedLayout | None:
        return None


class ProtoCodec(_WholeRecords):
    """Messages of one protocol buffer class ↔ their deterministic serialization."""

    kind: RecordKind = "proto"

    def __init__(self, proto: type[Message]) -> None:
        self.proto = proto

    def encode(self, value: object) -> bytes:
        """Raises `SpecError` if `value` is not a message of the class."""
        if not isinstance(value, self.proto):
            raise SpecError(f"expected a record of {self.proto.__name__}, got {type(value).__name__}", found=value)
        # Maps have no order of their own: without this, equal messages would give different bytes and shards.
        return bytes(value.SerializeToString(deterministic=True))

    def decode(self, payload: bytes) -> Message:
        """Raises `CorruptRecordError` if `payload` does not parse."""
        return parsed(self.proto, payload)


class UnknownProtoCodec(_WholeRecords):
    """Protos of an unknown class: their bytes can be read, but not their fields."""

    kind: RecordKind = "proto"

    def __init__(self, full_name: str, where: str) -> None:
        self._full_name = full_name
        self._where = where

    def encode(self, value: bytes) -> bytes:
        return bytes(value)

    def decode(self, payload: bytes) -> NoReturn:
        raise CacheError(
            f"{self._where}: the records are {self._full_name}, but no such message class is loaded. Import its "
            "module, or pass the class: Cache.open(path, proto=TheClass). record_bytes(i) works without it.",
            proto=self._full_name,
        )


class BytesCodec(_WholeRecords):
    """Records that are plain bytes; an object with `SerializeToString` is serialized by it."""

    kind: RecordKind = "bytes"

    def encode(self, value: object) -> bytes:
        """Raises `SpecError` if `value` is not bytes."""
        serialize = getattr(value, "SerializeToString", None)
        if callable(serialize):
            value = serialize()
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise SpecError(f"expected a record of bytes, got {type(value).__name__}", found=value)
        return bytes(value)

    def decode(self, payload: bytes) -> bytes:
        return payload


def codec_for(
    kind: str, *, spec: ExampleSpec | Mapping[str, FeatureSpec] | None = None, proto: type[Message] | None = None
) -> RecordCodec:
    """The codec of a kind of record: "example" needs `spec`, "proto" needs `proto`, "bytes" neither."""
    if kind == "example" and spec is not None:
        return ExampleCodec(spec if isinstance(spec, ExampleSpec) else ExampleSpec(spec))
    if kind == "proto" and proto is not None:
        return ProtoCodec(proto)
    if kind == "bytes":
        return BytesCodec()
    raise SpecError(
        f'expected kind "example" with a spec, "proto" with a message class, or "bytes", got {kind!r} with '
        f"spec={spec!r} and "
        f"proto={proto!r}"
    )


def codec_of_records(
    kind: str, *, spec: ExampleSpec | None, full_name: str | None, proto: type[Message] | None, where: str
) -> RecordCodec:
    """The codec that reads the records of a split: examples of `spec`, bytes, or messages of the class `full_name`.

    `proto` is the class that the caller gave, or None for the loaded one. Raises `CacheError` if it is a different one.
    """
    if kind == "example":
        assert spec is not None
        return ExampleCodec(spec)
    if kind == "bytes":
        return BytesCodec()
    assert full_name is not None
    if proto is None:
        proto = messages.find_message_class(full_name)
        return UnknownProtoCodec(full_name, where) if proto is None else ProtoCodec(proto)
    found = proto.DESCRIPTOR.full_name
    if found != full_name:
        raise CacheError(
            f"{where}: the records are {full_name}, got proto={found}. Pass the class they were written with.",
            expected=full_name,
            found=found,
        )
    return ProtoCodec(proto)
