"""The digest of a record's content: equal content, equal digest; anything else differs."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import Message

from beam_pipes.engine.signature import brief
from beam_pipes.errors import DeclarationError

DIGEST_BYTES = 16


def content_digest(value: Any) -> bytes:
    """16 bytes (BLAKE2b) that name the content of `value`.

    Of 10^9 records that all differ, two get the same digest with a probability of 10^-21: as good as never.

    Known are None, booleans, numbers, str, bytes, lists, tuples, mappings (their order does not count), NumPy arrays
    (dtype, shape and values count) and protocol buffers. A NumPy scalar is the number it holds. Texts and bytes are
    never the same content.

        content_digest("to be") == content_digest("to be")
        content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
        content_digest("1") != content_digest(1)

    Raises `DeclarationError` for values of any other class.

    Source: BLAKE2, RFC 7693.
    """
    # `person` keeps kinds apart without copying the text to put a letter before it.
    if isinstance(value, str):
        return hashlib.blake2b(
            value.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, person=b"text"
        ).digest()
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=DIGEST_BYTES, person=b"bytes").digest()
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"value")
    _feed(value, digest.update)
    return digest.digest()


def _feed(value: Any, update: Any) -> None:
    """Gives `update` bytes that no other value gives: each part begins with its kind and its size."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        update(b"N")
    elif isinstance(value, bool):
        update(b"T" if value else b"F")
    elif isinstance(value, str):
        _feed_sized(b"s", value.encode("utf-8", "surrogatepass"), update)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _feed_sized(b"b", bytes(value), update)
    elif isinstance(value, int):
        update(b"i%d;" % value)
    elif isinstance(value, float):
        update(b"f" + struct.pack("<d", value))
    elif isinstance(value, (list, tuple)):
        update(b"l%d;" % len(value))
        for each in value:
            _feed(each, update)
    elif isinstance(value, Mapping):
        update(b"m%d;" % len(value))
        items = {content_digest(key): item for key, item in value.items()}
        for key in sorted(items):
            update(key)
            _feed(items[key], update)
    elif isinstance(value, np.ndarray):
        _feed_array(value, update)
    elif isinstance(value, Message):
        _feed_sized(b"p", value.DESCRIPTOR.full_name.encode(), update)
        _feed_sized(b"b", value.SerializeToString(deterministic=True), update)
    else:
        raise DeclarationError(
            "content should be text, bytes, numbers, arrays, protocol buffers, or lists and mappings of these, got "
            f"{brief(value)}. Give the analyzer of=..., a pipeline that ends in the content to compare.",
            found=type(value),
        )


def _feed_sized(kind: bytes, data: bytes, update: Any) -> None:
    update(kind + b"%d;" % len(data))
    update(data)


def _feed_array(array: np.ndarray[Any, Any], update: Any) -> None:
    update(b"a%d;" % array.ndim + b"".join(b"%d;" % size for size in array.shape))
    if array.dtype.hasobject or array.dtype.kind in "SUV":
        update(b"O")
        for each in array.ravel().tolist():
            _feed(each, update)
        return
    little = array.dtype.newbyteorder("<")
    update(little.str.encode())
    update(np.ascontiguousarray(array, dtype=little).tobytes())
