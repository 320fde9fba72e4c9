"""A stored Example → its values, as the spec declares them.

    OwnRecords(spec, fields_of(spec)).decode(payload)  →  {"tokens": array([5, 6, 7], dtype=int32)}

`OwnRecords` parses records that we wrote: known chunks in a known order, so that most of the work is comparing headers.
Anything else, such as the same Example written by TensorFlow, is left to the protocol buffer runtime, which takes three
times as long; `decoder_of` makes the value of each feature that it has parsed. Both give the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from beam_pipes.errors import SpecError
from beam_pipes.format import dtypes, messages
from beam_pipes.format.dtypes import Array
from beam_pipes.format.encoding import Headers
from beam_pipes.format.feature_values import exact_array, restored
from beam_pipes.format.layout import Field
from beam_pipes.format.messages import varint
from beam_pipes.format.spec import DecodedExample, ExampleSpec, FeatureSpec, FeatureValue

Shape = tuple[int, ...]
Decoder = Callable[["messages.Feature", "Shape | None"], FeatureValue]  # (message, stored shape) → value
BytesDecoder = Callable[[bytes, "Shape | None"], FeatureValue]  # (its bytes, stored shape) → value

_LISTS = {
    "raw": "bytes_list",
    "shape": "bytes_list",
    "text": "bytes_list",
    "texts": "bytes_list",
    "floats": "float_list",
}


def decoder_of(field: Field, spec: FeatureSpec) -> Decoder:
    """The function that turns the Feature message of a field into a value; it raises `SpecError`."""
    if field.kind == "text":
        return lambda message, _: text_value(field.name, spec, _single(field, message))
    if field.kind == "texts":
        return lambda message, _: _texts(field, spec, message)
    return _tensor_decoder(field, spec)


def text_value(name: str, spec: FeatureSpec, value: bytes) -> bytes | str:
    """Stored bytes as the declared `bytes` or `str`."""
    if spec.dtype == dtypes.BYTES:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise SpecError(
            f"feature {name!r}: expected UTF-8, found {value[:40]!r}: {error}. Declare bytes to read it.",
            feature=name,
            expected="str",
            found=value,
        ) from error


def shape_of_count(name: str, spec: FeatureSpec, count: int, stored: Shape | None = None) -> Shape:
    """The shape of `count` elements: the stored one, or what the spec and the count tell."""
    if stored is not None:
        fits = len(stored) == len(spec.shape) and all(
            have >= 0 and want in (None, have) for want, have in zip(spec.shape, stored, strict=True)
        )
        if fits and math.prod(stored) == count:
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
        f"feature {name!r}: expected {spec.dtype} of shape {spec.shape}, found {count} elements"
        f"{'' if stored is None else f' and the shape {stored}'}. The record was written with a different spec.",
        feature=name,
        expected=spec.shape,
        found=count,
    )


def own_array(name: str, values: Array, spec: FeatureSpec, shape: Shape) -> FeatureValue:
    """Stored values as a writable array of the declared dtype; a NumPy scalar for shape ()."""
    made, declared = values.reshape(shape), spec.numpy_dtype
    made = made.astype(declared) if made.itemsize <= declared.itemsize else restored(name, spec, made)
    return made if spec.shape else made[()]


def bytes_decoder_of(field: Field, spec: FeatureSpec) -> BytesDecoder:
    """The function that turns the bytes of a direct field into a value; it raises `SpecError`."""
    if field.kind == "text":
        return lambda data, _: text_value(field.name, spec, data)
    if field.kind == "shape":
        spec = FeatureSpec("int64", shape=(len(spec.shape),))
    storage, declared = dtypes.numpy_dtype(field.dtype), spec.numpy_dtype
    itemsize = storage.itemsize
    plain = spec.shape == (None,) and field.dtype != dtypes.BOOL
    narrower = storage.itemsize > declared.itemsize

    def decode(data: bytes, stored: Shape | None) -> FeatureValue:
        if len(data) % itemsize:
            raise SpecError(
                f"feature {field.name!r}: expected raw {field.dtype} values of {itemsize} bytes each, found "
                f"{len(data)} bytes. The record was written with a different spec.",
                feature=field.name,
                expected=field.dtype,
                found=len(data),
            )
        values = _booleans(field.name, data) if field.dtype == dtypes.BOOL else np.frombuffer(data, storage)
        if plain:
            return restored(field.name, spec, values) if narrower else values.astype(declared)
        return own_array(field.name, values, spec, shape_of_count(field.name, spec, values.size, stored))

    return decode


def _tensor_decoder(field: Field, spec: FeatureSpec) -> Decoder:
    storage = dtypes.numpy_dtype(field.dtype)
    if field.kind in ("raw", "shape"):
        from_bytes = bytes_decoder_of(field, spec)
        return lambda message, stored: from_bytes(_single(field, message), stored)

    def decode(message: messages.Feature, stored: Shape | None) -> FeatureValue:
        values = _float_list(field, message) if field.kind == "floats" else np.array(_values(field, message), storage)
        if field.kind == "ints":
            values = exact_array(field.name, FeatureSpec(spec.dtype, shape=(None,)), values)
        return own_array(field.name, values, spec, shape_of_count(field.name, spec, values.size, stored))

    return decode


def _booleans(name: str, data: bytes) -> Array:
    values = np.frombuffer(data, np.uint8)
    if values.size and values.max() > 1:
        raise SpecError(
            f"feature {name!r}: expected booleans (bytes 0 and 1), found {int(values.max())}. The record was written "
            "with a different spec.",
            feature=name,
            expected="bool",
            found=int(values.max()),
        )
    return values.view(np.bool_)


def _values(field: Field, message: messages.Feature) -> Sequence[FeatureValue]:
    """The repeated values of the list that a field expects."""
    expected = _LISTS.get(field.kind, "int64_list")
    found = message.WhichOneof("kind")
    if found not in (expected, None):
        hint = 'encoding="raw"' if found == "bytes_list" else 'encoding="list"'
        raise SpecError(
            f"feature {field.name!r}: expected a {expected} ({field.dtype}), found a {found}. Declare the feature as "
            "it was "
            f"written; numbers in a {found} have {hint}.",
            feature=field.name,
            expected=expected,
            found=found,
        )
    values: Sequence[FeatureValue] = getattr(message, expected).value
    return values


def _float_list(field: Field, message: messages.Feature) -> Array:
    """The values as they lie in the message. Through Python floats, a signalling NaN would become a quiet one."""
    values = _values(field, message)
    packed: bytes = message.float_list.SerializeToString()
    header = b"\x0a" + varint(4 * len(values))
    if values and packed.startswith(header):
        return np.frombuffer(packed, "<f4", len(values), len(header))
    return np.array(values, "<f4")


def _single(field: Field, message: messages.Feature) -> bytes:
    values = _values(field, message)
    if len(values) != 1:
        raise SpecError(
            f"feature {field.name!r}: expected one value, found {len(values)}. Declare shape=(None,) for several.",
            feature=field.name,
            expected=1,
            found=len(values),
        )
    return bytes(values[0])


def _texts(field: Field, spec: FeatureSpec, message: messages.Feature) -> Array:
    values = list(_values(field, message))
    shape_of_count(field.name, spec, len(values))
    made = np.empty(len(values), object)
    made[:] = [text_value(field.name, spec, value) for value in values]
    return made


_FILLER_TAG = 0x7A


class ChunkHeaders(dict[int, "bytes | None"]):
    """Bytes of a whole chunk → the header it must begin with; None if no payload gives a chunk of this size."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self._headers = Headers(field)

    def __missing__(self, chunk_bytes: int) -> bytes | None:
        if len(self) >= 1 << 16:
            self.clear()
        shortest = len(self._headers[0])
        found = None
        # Five nested lengths of at most five bytes each.
        for header_bytes in range(shortest, min(shortest + 25, chunk_bytes + 1)):
            header = self._headers[chunk_bytes - header_bytes]
            if len(header) == header_bytes:
                found = header
                break
        self[chunk_bytes] = found
        return found


class OwnRecords:
    """Decodes payloads of one spec, as `ExampleCodec.encode` made them."""

    def __init__(self, spec: ExampleSpec, fields: tuple[Field, ...]) -> None:
        self._fields = [
            (
                field,
                ChunkHeaders(field),
                bytes_decoder_of(field, spec[field.feature]) if field.direct else None,
                None if field.direct else decoder_of(field, spec[field.feature]),
            )
            for field in fields
        ]
        self._shaped = {field.feature for field in fields if field.kind == "shape"}
        self._order = tuple(spec)

    def decode(self, payload: bytes) -> DecodedExample | None:
        """The example, or None if the payload is not laid out as ours are.

        Raises `SpecError` if it is, and a value is none of its spec.
        """
        try:
            places = self._places(payload)
        except IndexError:  # shorter than its lengths say
            return None
        if places is None:
            return None
        shapes: dict[str, Shape] = {}
        if self._shaped:
            for (field, _, direct, _), (_, start, end) in zip(self._fields, places, strict=True):
                if field.kind == "shape" and direct is not None:
                    shapes[field.feature] = tuple(direct(payload[start:end], None).tolist())
        found: DecodedExample = {}
        for (field, _, direct, parsed), (chunk, start, end) in zip(self._fields, places, strict=True):
            if field.kind == "shape":
                continue
            if direct is not None:
                found[field.feature] = direct(payload[start:end], shapes.get(field.feature))
            elif parsed is not None:
                try:
                    message = messages.Example.FromString(payload[chunk:end]).features.feature[field.name]
                except DecodeError:
                    return None  # numbers that do not parse: the general way says so
                found[field.feature] = parsed(message, shapes.get(field.feature))
        return found

    def _places(self, payload: bytes) -> list[tuple[int, int, int]] | None:
        """(start of the chunk, start of its payload, end) of each field."""
        places: list[tuple[int, int, int]] = []
        position = 0
        for _, headers, _, _ in self._fields:
            if payload[position] == _FILLER_TAG:
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
            header = headers[end - position] if end <= len(payload) else None
            if header is None:
                return None
            start = position + len(header)
            if payload[position:start] != header:
                return None
            places.append((position, start, end))
            position = end
        if position != len(payload) and payload[position] == _FILLER_TAG:
            position += 2 + payload[position + 1]
        return places if position == len(payload) else None
