"""A stored Example → its values, as the spec declares them.

    OwnRecords(fields).places(payload)  →  the start and end of the content of each field

A field's *content* is what `encoding` makes of its value: the bytes of a tensor or a text, packed numbers, or the
entries of a list of texts. `OwnRecords` locates it in records that we wrote: known chunks in a known order, so that
most of the work is comparing headers. Anything else, such as the same Example written by TensorFlow, is left to the
protocol buffer runtime, which takes three times as long, and `content_of` gives the content of each Feature that it
has parsed. `decoder_of` makes the value of a content, wherever it comes from.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from beam_pipes.errors import CorruptRecordError, SpecError
from beam_pipes.format import dtypes, messages
from beam_pipes.format.dtypes import Array
from beam_pipes.format.encoding import headers
from beam_pipes.format.feature_values import array_converter, restored
from beam_pipes.format.layout import Field, FixedLayout
from beam_pipes.format.spec import FeatureSpec, FeatureValue
from beam_pipes.format.wire import FILLER, FILLER_TAG, Computed, unpacked_varints, varint_at

Shape = tuple[int, ...]
# (bytes, where the content starts and ends in them, stored shape) → value
Decoder = Callable[[bytes, int, int, "Shape | None"], FeatureValue]

_LISTS = {"floats": "float_list", "ints": "int64_list"}  # other fields: bytes_list


M = TypeVar("M", bound=Message)


def parsed(cls: type[M], payload: bytes, *, advice: str = "") -> M:
    """A message; raises `CorruptRecordError` if the payload is not a valid `cls`."""
    try:
        return cls.FromString(payload)
    except DecodeError as error:
        raise CorruptRecordError(
            f"expected a serialized {cls.__name__}, got {len(payload)} bytes that do not parse: {error}{advice}",
            problem="payload",
        ) from error


def content_of(field: Field, message: messages.Feature) -> bytes:
    """The content of a field in a parsed Feature; raises `SpecError` if it has another list, or several values."""
    expected, found = _LISTS.get(field.kind, "bytes_list"), message.WhichOneof("kind")
    if found not in (expected, None):
        hint = 'encoding="raw"' if found == "bytes_list" else 'encoding="list"'
        raise SpecError(
            f"expected a {expected} ({field.dtype}), found a {found}. Declare the feature as it was written; numbers "
            f"in a {found} have {hint}."
        ).about("feature", field.name, expected=expected, found=found)
    values = getattr(message, expected)
    if field.kind in ("ints", "floats", "texts"):
        # Copied as stored in the message: a conversion to Python floats would turn a signalling NaN into a quiet one.
        values.DiscardUnknownFields()
        content: bytes = values.SerializeToString()
        return content if field.kind == "texts" or not content else content[varint_at(content, 1)[1] :]
    values = values.value
    if len(values) != 1:
        raise SpecError(f"expected one value, found {len(values)}. Declare shape=(None,) for several.").about(
            "feature", field.name, expected=1, found=len(values)
        )
    return bytes(values[0])


def text_value(name: str, spec: FeatureSpec, value: bytes) -> bytes | str:
    """Stored bytes as the declared `bytes` or `str`."""
    if spec.dtype == dtypes.BYTES:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise SpecError(f"expected UTF-8, found {value[:40]!r}: {error}. Declare bytes to read it.").about(
            "feature", name, expected="str", found=value
        ) from error


def shape_of_count(name: str, spec: FeatureSpec, count: int, stored: Shape | None = None) -> Shape:
    """The shape of `count` elements: the stored one, or the one that spec and count imply."""
    if stored is not None:
        fits = len(stored) == len(spec.shape) and all(
            have >= 0 and want in (None, have) for want, have in zip(spec.shape, stored, strict=True)
        )
        # Without elements, any number of them may stand beside a 0; NumPy makes no array of 2^63 bytes or more.
        if fits and math.prod(stored) == count and (count or math.prod(filter(None, stored)) < 1 << 59):
            return stored
    elif spec.ragged:
        rest = tuple(size for size in spec.shape[1:] if size is not None)
        row = math.prod(rest)
        if count % row == 0:
            return (count // row, *rest)
    else:
        shape = tuple(size for size in spec.shape if size is not None)
        if math.prod(shape) == count:
            return shape
    raise SpecError(
        f"expected {spec.dtype} of shape {spec.shape}, found {count} "
        f"elements{'' if stored is None else f' and the shape {stored}'}. The record was written with a different spec."
    ).about("feature", name, expected=spec.shape, found=count)


def decoder_of(field: Field, spec: FeatureSpec) -> Decoder:
    """The function that turns the content of a field into a value.

    It raises `SpecError`, and `IndexError` or `ValueError` for bytes that the parser has to look at.
    """
    name = field.name
    if field.kind == "text":
        return lambda data, start, end, _: text_value(name, spec, data[start:end])
    if field.kind == "texts":
        return lambda data, start, end, _: _texts(name, spec, data, start, end)
    if field.kind == "shape":
        spec = FeatureSpec("int64", shape=(len(spec.shape),))
    if field.kind == "ints":
        return _ints_decoder(name, spec)
    storage, declared = dtypes.numpy_dtype(field.dtype), spec.numpy_dtype
    itemsize, same, narrower = storage.itemsize, storage == declared, storage.itemsize > declared.itemsize
    is_bool, num_bytes = field.dtype == dtypes.BOOL, field.num_bytes
    known = () if spec.ragged else tuple(size for size in spec.shape if size is not None)
    any_size, num_values = spec.shape == (None,), math.prod(known)
    # The usual case, a scalar or a vector in its own dtype, is one call.
    own: Callable[[Array], FeatureValue] | None = None
    if same and not is_bool and len(known) == len(spec.shape) < 2:
        own = operator.methodcaller("copy") if spec.shape else operator.itemgetter(0)

    def decode(data: bytes, start: int, end: int, stored: Shape | None) -> FeatureValue:
        size = end - start
        if own is not None and size == num_bytes:
            return own(np.frombuffer(data, storage, num_values, start))
        if size % itemsize:
            raise SpecError(
                f"expected raw {field.dtype} values of {itemsize} bytes each, found {size} bytes. The record was "
                "written with a different spec."
            ).about("feature", name, expected=field.dtype, found=size)
        values = np.frombuffer(data, storage, size // itemsize, start)
        # Any other byte viewed as bool would be a value that is neither True nor False.
        if is_bool and (others := data[start:end].translate(None, b"\0\1")):
            raise SpecError(
                f"expected booleans (bytes 0 and 1), found {max(others)}. The record was written with a different spec."
            ).about("feature", name, expected="bool", found=max(others))
        if not any_size:
            values = values.reshape(known if size == num_bytes else shape_of_count(name, spec, values.size, stored))
        made = values.copy() if same else restored(name, spec, values) if narrower else values.astype(declared)
        return made if spec.shape else made[()]

    return decode


def _ints_decoder(name: str, spec: FeatureSpec) -> Decoder:
    exactly = array_converter(name, FeatureSpec(spec.dtype, shape=(None,)))

    def decode(data: bytes, start: int, end: int, stored: Shape | None) -> FeatureValue:
        values = exactly(unpacked_varints(data[start:end]))
        made = values.reshape(shape_of_count(name, spec, values.size, stored))
        return made if made.ndim else made[()]

    return decode


def _texts(name: str, spec: FeatureSpec, data: bytes, start: int, end: int) -> Array:
    values = parsed(messages.BytesList, data[start:end]).value
    shape_of_count(name, spec, len(values))
    made = np.empty(len(values), object)
    made[:] = [text_value(name, spec, value) for value in values]
    return made


def chunk_headers(field: Field) -> Computed[int, bytes | None]:
    """Size of a whole chunk in bytes → the header it must begin with; None if no payload gives a chunk of this size."""
    of_size = headers(field)
    shortest = len(of_size[0])

    def header(chunk_bytes: int) -> bytes | None:
        # Five nested lengths of at most five bytes each.
        sizes = range(shortest, min(shortest + 25, chunk_bytes + 1))
        return next((of_size[chunk_bytes - size] for size in sizes if len(of_size[chunk_bytes - size]) == size), None)

    return Computed(header)


class OwnRecords:
    """Where the contents of fields are in payloads that `ExampleCodec.encode` made from one spec."""

    def __init__(self, fields: Sequence[Field], layout: FixedLayout | None) -> None:
        self._headers = [chunk_headers(field) for field in fields]
        # For a fixed layout: the constant bytes before, between and after the contents, whose places are constant too.
        self.template: list[bytes] = []
        self._constants: list[bytes] = []
        self._positions = [0]
        self._fixed: list[tuple[int, int]] = []
        self._size = None if layout is None else layout.payload_bytes
        if layout is None:
            return
        for field in fields:
            start, size = layout.fields[field.name]
            header = headers(field)[size]
            self._constants.append(FILLER[start - self._positions[-1] - len(header)] + header)
            self._positions.append(start + size)
            self._fixed.append((start, start + size))
        self._constants.append(FILLER[layout.payload_bytes - self._positions[-1]])
        self.template = [part for constant in self._constants for part in (constant, b"")][:-1]

    def places(self, payload: bytes) -> list[tuple[int, int]] | None:
        """(start, end) of the content of each field; None if the payload is not laid out as ours are.

        Raises `IndexError` for a payload that is shorter than its lengths say.
        """
        if self._size is not None:
            alike = len(payload) == self._size and all(map(payload.startswith, self._constants, self._positions))
            return self._fixed if alike else None
        places: list[tuple[int, int]] = []
        position = 0
        for header_of in self._headers:
            if payload[position] == FILLER_TAG:
                position += 2 + payload[position + 1]
            at = position + 1
            length = payload[at]
            shift = 7
            if length >= 0x80:
                length &= 0x7F
                while True:
                    at += 1
                    byte = payload[at]
                    length |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
            end = at + 1 + length
            header = header_of[end - position] if end <= len(payload) else None
            if header is None or not payload.startswith(header, position):
                return None
            places.append((position + len(header), end))
            position = end
        if position != len(payload) and payload[position] == FILLER_TAG:
            position += 2 + payload[position + 1]
        return places if position == len(payload) else None
