"""Parsing the records that we wrote: known chunks in a known order, so that most of the work is comparing headers.

Anything else, such as the same Example written by TensorFlow, is left to the protocol buffer runtime, which takes three
times as long.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from beam_pipes.cache import messages
from beam_pipes.cache.decode_fields import bytes_decoder_of, decoder_of
from beam_pipes.cache.encode_fields import Headers
from beam_pipes.cache.fields import Field
from beam_pipes.cache.spec import ExampleSpec

_FILLER_TAG = 0x7A


class ChunkHeaders(dict[int, "bytes | None"]):
    """Bytes of a whole chunk → the header it must begin with; None where no payload gives a chunk of this size."""

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

    def decode(self, payload: bytes) -> dict[str, Any] | None:
        """The example, or None where the payload is not laid out as ours are.

        Raises `SpecError` where it is, and a value is none of its spec.
        """
        try:
            places = self._places(payload)
        except IndexError:  # shorter than its lengths say
            return None
        if places is None:
            return None
        shapes: dict[str, Any] = {}
        if self._shaped:
            for (field, _, direct, _), (_, start, end) in zip(self._fields, places, strict=True):
                if field.kind == "shape" and direct is not None:
                    shapes[field.feature] = tuple(direct(payload[start:end], None).tolist())
        found: dict[str, Any] = {}
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
