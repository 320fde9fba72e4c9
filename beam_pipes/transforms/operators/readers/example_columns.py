"""Features of many serialized Examples as columns.

Records of equal length mostly have the same layout: the same bytes at the same places, except for the values. So one of
them is parsed to locate each value, and the others are compared with it at all other places.

Records of different lengths that hold the same features in the same order are walked through together. One record
determines which bytes come in which order: literal ones (tags and names), lengths, and values. Then all records take
each of these steps together, in a few NumPy calls, however long each of them is. Records of another form are detected
and parsed one by one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from beam_pipes.cache.regions import overlapping_rows, take_runs
from beam_pipes.format import messages
from beam_pipes.graph.functions import LISTS, TFRecordFeature, float32, string
from beam_pipes.graph.tensors import Array

_KINDS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_MOST_LENGTH_BYTES = 5


@dataclasses.dataclass(frozen=True)
class Values:
    """Where the values of one feature are: the kind of list, and for each record the first byte and the number of
    bytes.
    """

    kind: str
    starts: Array
    sizes: Array


@dataclasses.dataclass(frozen=True)
class _Step:
    literal: Array | None = None  # bytes that are the same in all records
    name: str = ""  # of the feature whose values follow, as many bytes as the last length said
    kind: str = ""


class WireForm:
    """The form of one record: which steps lead through it."""

    def __init__(self, steps: list[_Step], places: dict[str, tuple[int, int, str]]) -> None:
        self._steps = steps
        self.places = places

    @classmethod
    def of(cls, payload: bytes) -> WireForm | None:
        """The form of a record, and `places`: feature → (first byte, end, list) in it. None if it is not plain.

        Plain: features of one list with one chunk of values each, as all writers of Examples produce them.
        """
        steps: list[_Step] = []
        places: dict[str, tuple[int, int, str]] = {}
        pending = bytearray()

        def length() -> None:
            steps.append(_Step(literal=np.frombuffer(bytes(pending), np.uint8)))
            pending.clear()

        try:
            outer = _chunks(payload, 0, len(payload))
            if len(outer) != 1 or outer[0][0] != 1:
                return None
            pending += b"\x0a"
            length()
            for entry, entry_start, entry_end in _chunks(payload, outer[0][1], outer[0][2]):
                parts = _chunks(payload, entry_start, entry_end)
                if entry != 1 or [number for number, _, _ in parts] != [1, 2]:
                    return None
                key = payload[parts[0][1] : parts[0][2]]
                lists = _chunks(payload, parts[1][1], parts[1][2])
                if len(lists) != 1 or lists[0][0] not in _KINDS or len(key) > 127:
                    return None
                values = _chunks(payload, lists[0][1], lists[0][2])
                name = key.decode()
                if len(values) != 1 or values[0][0] != 1 or name in places:
                    return None
                pending += b"\x0a"
                length()
                pending += b"\x0a" + bytes([len(key)]) + key + b"\x12"
                length()
                pending += bytes([lists[0][0] << 3 | 2])
                length()
                pending += b"\x0a"
                length()
                steps.append(_Step(name=name, kind=_KINDS[lists[0][0]]))
                places[name] = (values[0][1], values[0][2], _KINDS[lists[0][0]])
        except (IndexError, UnicodeDecodeError):
            return None
        return cls(steps, places)

    def walk(self, data: Array, starts: Array, sizes: Array) -> tuple[dict[str, Values], Array]:
        """Feature → where its values are in `data`, and which records (n, bool) are of this form.

        `starts` and `sizes` are those of the payloads.
        """
        ends = starts + sizes
        at = starts.copy()
        fits = np.ones(len(starts), np.bool_)
        last = max(len(data) - 1, 0)
        length = np.zeros(len(starts), np.int64)
        found: dict[str, Values] = {}
        inner_ends: list[Array] = []
        outermost = True
        for step in self._steps:
            if step.literal is None:
                # Entry, value, list and chunk all end here: else a length belongs to something else.
                for end in inner_ends:
                    fits &= end == at + length
                inner_ends = []
                fits &= at + length <= ends
                found[step.name] = Values(step.kind, at, np.where(fits, length, 0))
                at = at + length
                continue
            size = len(step.literal)
            read = data[np.minimum(at[:, None] + np.arange(size), last)]
            fits &= (read == step.literal).all(axis=1)
            at = at + size
            byte = data[np.minimum(at, last)]
            length = (byte & 0x7F).astype(np.int64)
            at = at + 1
            more = byte >= 0x80
            shift = 7
            while shift < 7 * _MOST_LENGTH_BYTES and more.any():
                byte = np.where(more, data[np.minimum(at, last)], 0)
                length += (byte & 0x7F).astype(np.int64) << shift
                at = at + more
                more = byte >= 0x80
                shift += 7
            fits &= ~more
            at = np.where(fits, at, starts)
            length = np.where(fits, length, 0)
            if outermost:
                fits &= at + length == ends
                outermost = False
            else:
                inner_ends.append(at + length)
        return found, fits & (at == ends)


_MOST_VARINT_BYTES = 10


def decode_varints(flat: Array, run_ends: Array) -> tuple[Array, Array]:
    """Concatenated varints → (their values int64, how many there are before each of `run_ends`).

    Bytes `01 AC 02 07`, run ends `[3, 4]` → `[1, 300, 7]`, `[2, 3]`. Run ends are places in `flat`, each after the last
    byte of a varint. Raises `ValueError` for bytes that end within a varint, and for varints of more than ten bytes.
    """
    if len(flat) and flat[-1] >= 0x80:
        raise ValueError("the bytes end within an integer")
    begins = np.ones(len(flat), np.bool_)
    np.less(flat[:-1], 0x80, out=begins[1:])
    starts = np.flatnonzero(begins)
    return _values(flat, starts), np.searchsorted(starts, run_ends)


def _values(flat: Array, starts: Array) -> Array:
    """The integers that begin at `starts`.

    What an integer would be that begins at each byte, of four bytes at most: plain loops over all bytes are several
    times faster than gathering the bytes of each integer. Pieces that stay in the caches were slower: two threads
    reached 0.76 of tf.data with them, and 1.0 without. Each call of NumPy takes the interpreter's lock.
    """
    size = len(flat)
    bits, goes_on = np.zeros(size + 3, np.uint8), np.zeros(size + 3, np.uint8)
    np.bitwise_and(flat, 0x7F, out=bits[:size])
    np.negative(flat >> np.uint8(7), out=goes_on[:size])
    more = goes_on[:size]
    words: Array = (bits[1 : size + 1] & more).astype(np.uint16)  # two bytes hold 14 bits
    words <<= np.uint16(7)
    words |= bits[:size]
    more = more & goes_on[1 : size + 1]
    for step in (2, 3):
        if not more.any():
            short: Array = words[starts].astype(np.int64)
            return short
        words = words.astype(np.uint32, copy=False)
        words |= (bits[step : size + step] & more).astype(np.uint32) << np.uint32(7 * step)
        more &= goes_on[step : size + step]
    values: Array = words[starts].astype(np.uint64)
    longer = np.flatnonzero(more[starts])
    for step in range(4, _MOST_VARINT_BYTES):
        byte = flat[starts[longer] + step]
        values[longer] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * step)
        longer = longer[byte >= 0x80]
    if len(longer):
        raise ValueError("an integer takes more than ten bytes")
    return values.view(np.int64)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _chunks(data: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """(field number, start, end) of the length-delimited fields of a message; raises `IndexError` for other ones."""
    found = []
    while start < end:
        tag, start = _varint(data, start)
        if tag & 7 != 2:
            raise IndexError
        size, start = _varint(data, start)
        if start + size > end:
            raise IndexError
        found.append((tag >> 3, start, start + size))
        start += size
    return found


Column = Array | list[Array]  # (n, …) where all samples have one shape, else a list of arrays

# Below this many records, parsing them one by one is as fast.
LEAST_RECORDS = 4
_MOST_TEMPLATES = 256


class ExampleColumns:
    """Parses Examples of declared features."""

    def __init__(self, features: Mapping[str, TFRecordFeature]) -> None:
        self.features = dict(features)
        self._names = list(self.features)
        self._templates: dict[tuple[int, frozenset[int]], Template | None] = {}
        self._form: WireForm | None = None

    def parse(self, payload: bytes, outputs: Collection[int]) -> list[Any]:
        """The samples of one record, None for features that are not requested; `ValueError` says what is wrong."""
        try:
            found = messages.Example.FromString(payload).features.feature
        except DecodeError as error:
            raise ValueError(f"the record is not a serialized Example ({len(payload)} bytes): {error}") from error
        return [
            _sample(name, feature, found[name] if name in found else None) if index in outputs else None
            for index, (name, feature) in enumerate(self.features.items())
        ]

    def read(self, data: Array, starts: Array, sizes: Array, outputs: Collection[int]) -> list[Column | None]:
        """The features of payloads in `data`, a column for each requested one."""
        wanted = frozenset(outputs)
        if not wanted:
            return [None] * len(self.features)
        if len(starts) >= LEAST_RECORDS:
            if (sizes == sizes[0]).all():
                template = self.template(data, int(starts[0]), int(sizes[0]), wanted)
                columns = None if template is None else self.laid_out(template, data, starts)
                if columns is not None:
                    return columns
            walked = self._walked(data, starts, sizes, wanted)
            if walked is not None:
                return walked
        return self._each(data, starts, sizes, wanted)

    def _each(self, data: Array, starts: Array, sizes: Array, wanted: frozenset[int]) -> list[Column | None]:
        """One by one."""
        places = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        parsed = [self.parse(data[start:end].tobytes(), wanted) for start, end in places]
        return [[one[index] for one in parsed] if index in wanted else None for index in range(len(self.features))]

    # Records of one length

    def template(self, data: Array, start: int, size: int, wanted: frozenset[int]) -> Template | None:
        """The layout of records of this length: that of the first one, which may be the payload at `start`."""
        key = (size, wanted)
        if size and key not in self._templates:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[key] = self._template(data[start : start + size].tobytes(), wanted)
        return self._templates.get(key)

    def laid_out(
        self, template: Template, data: Array, starts: Array, *, is_known: bool = False
    ) -> list[Column | None] | None:
        """The columns of payloads with the layout `template`; None if one of them differs.

        With `is_known`, all of them were compared before, and are not compared again.
        """
        if not is_known and not (data[starts[:, None] + template.positions] == template.expected).all():
            return None
        made: list[Column | None] = [None] * len(self.features)
        for index, (start, end, kind) in template.places.items():
            feature = self.features[self._names[index]]
            if kind is None:
                made[index] = _defaults(feature, len(starts))
                continue
            if start == end:
                raw = np.zeros((len(starts), 0), np.uint8)
            else:
                raw = overlapping_rows(data, end - start)[starts + start].view(np.uint8).reshape(len(starts), -1)
            column = _stacked(feature, raw)
            if column is None:
                return None
            made[index] = column
        return made

    def _template(self, payload: bytes, wanted: frozenset[int]) -> Template | None:
        form = WireForm.of(payload)
        if form is None:
            return None
        places: dict[int, tuple[int, int, str | None]] = {}
        for index in wanted:
            name = self._names[index]
            place = form.places.get(name)
            if place is not None and place[2] != LISTS[self.features[name].dtype]:
                return None
            places[index] = (0, 0, None) if place is None else place
        # Where values lie, and how long they are, is the same in all records; what they are may differ.
        fixed = np.ones(len(payload), np.bool_)
        for start, end, _ in form.places.values():
            fixed[start:end] = False
        positions = np.flatnonzero(fixed)
        return Template(positions, np.frombuffer(payload, np.uint8)[positions], places)

    # Records of several lengths

    def _walked(self, data: Array, starts: Array, sizes: Array, wanted: frozenset[int]) -> list[Column | None] | None:
        """Payloads with the same features in the same order; None if few have them."""
        if self._form is None:
            start = int(starts[0])
            self._form = WireForm.of(data[start : start + int(sizes[0])].tobytes())
            if self._form is None:
                return None
        found, fits = self._form.walk(data, starts, sizes)
        for index in wanted:
            name = self._names[index]
            if name in found and found[name].kind != LISTS[self.features[name].dtype]:
                self._form = None
                return None
        if 2 * fits.sum() < len(fits):
            self._form = None  # it was an odd one
            return None
        made: list[Column | None] = [None] * len(self.features)
        for index in wanted:
            feature = self.features[self._names[index]]
            values = found.get(self._names[index])
            column = _defaults(feature, int(fits.sum())) if values is None else _ragged(feature, data, values, fits)
            if column is None:
                return None
            made[index] = column
        if fits.all():
            return made
        others = self._each(data, starts[~fits], sizes[~fits], wanted)
        order = np.argsort(np.concatenate([np.flatnonzero(fits), np.flatnonzero(~fits)])).tolist()
        for index in wanted:
            together = [*(made[index] or ()), *(others[index] or ())] if isinstance(made[index], list) else None
            together = [*made[index], *others[index]] if together is None else together  # type: ignore[misc]
            made[index] = [together[at] for at in order]
        return made


@dataclasses.dataclass(frozen=True)
class Template:
    """A record with holes where the values are: the other bytes, and place and list of the values of each output."""

    positions: Array
    expected: Array
    places: dict[int, tuple[int, int, str | None]]


def _defaults(feature: TFRecordFeature, count: int) -> Array:
    default = feature.default()
    return np.broadcast_to(default, (count, *default.shape))


def _stacked(feature: TFRecordFeature, raw: Array) -> Array | None:
    """(n, bytes) of values → (n, …); None if they do not form samples of one shape."""
    if feature.dtype == string:
        return raw
    if feature.dtype == float32:
        values: Array = np.ascontiguousarray(raw).view("<f4") if raw.shape[1] % 4 == 0 else np.zeros((0, 0))
        count = raw.shape[1] // 4
        if raw.shape[1] % 4:
            return None
    else:
        flat = np.ascontiguousarray(raw).reshape(-1)
        is_last = (flat < 0x80).reshape(raw.shape)
        counts = is_last.sum(axis=1)
        if not raw.shape[1] or not is_last[:, -1].all() or (counts != counts[0]).any():
            return None
        values, count = decode_varints(flat, counts[:0])[0], int(counts[0])
    shape = _value_shape(feature, count)
    return None if shape is None else values.reshape(len(raw), *shape)


def _ragged(feature: TFRecordFeature, data: Array, values: Values, fits: Array) -> Column | None:
    """Values of records of any length; None if one of them needs the parser."""
    starts, sizes = values.starts[fits], values.sizes[fits]
    if feature.dtype == string:
        ends = (starts + sizes).tolist()
        return [np.array(data[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]
    flat = take_runs(data, starts, sizes, np.dtype(np.uint8))
    run_ends = np.cumsum(sizes)
    if feature.dtype == float32:
        if (sizes % 4).any():
            return None
        numbers, counts = flat.view("<f4"), sizes // 4
    else:
        if len(flat) and (flat[run_ends[sizes > 0] - 1] >= 0x80).any():
            return None
        numbers, before = decode_varints(flat, run_ends)
        counts = np.diff(before, prepend=0)
    shapes = {int(count): _value_shape(feature, int(count)) for count in np.unique(counts)}
    if None in shapes.values():
        return None
    if len(shapes) == 1:
        return numbers.reshape(len(starts), *next(iter(shapes.values())))  # type: ignore[misc]
    bounds = np.cumsum(counts).tolist()
    return [
        numbers[end - count : end].reshape(shapes[count]) for end, count in zip(bounds, counts.tolist(), strict=True)
    ]


def _value_shape(feature: TFRecordFeature, count: int) -> tuple[int, ...] | None:
    """The shape of a sample of `count` values; None if they do not fit the declaration."""
    if feature.shape is not None:
        return feature.shape if math.prod(feature.shape) == count else None
    row = math.prod(feature.partial_shape)
    if row == 0 or count % row:
        return None
    return (count // row, *feature.partial_shape)


def _sample(name: str, feature: TFRecordFeature, found: messages.Feature | None) -> Array:
    """The sample of one feature of a parsed record; the default if the record has none."""
    kind = None if found is None else found.WhichOneof("kind")
    if kind is None:
        return feature.default()
    if kind != LISTS[feature.dtype]:
        raise ValueError(f"feature {name!r}: expected {feature.dtype} ({LISTS[feature.dtype]}), found a {kind}")
    values = getattr(found, kind).value
    if feature.dtype == string:
        if len(values) != 1:
            raise ValueError(f"feature {name!r}: expected one string, found {len(values)}")
        return np.frombuffer(values[0], np.uint8)
    made = np.array(values, feature.numpy_dtype)
    shape = _value_shape(feature, made.size)
    if shape is None:
        wanted = f"shape {list(feature.shape)}" if feature.shape is not None else f"rows of {feature.partial_shape}"
        raise ValueError(f"feature {name!r}: expected {wanted}, found {made.size} values")
    return made.reshape(shape)
