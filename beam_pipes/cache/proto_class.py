"""The codec of a split that is read: finds the message class of protos by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.cache import messages
from beam_pipes.cache.codec import BytesCodec, ExampleCodec, ProtoCodec, RecordCodec, RecordKind
from beam_pipes.cache.split_manifest import SplitManifest
from beam_pipes.errors import CacheError


class UnknownProtoCodec:
    """Protos whose class is not known here: their bytes can be read, not their fields."""

    kind: RecordKind = "proto"
    index_columns: tuple[str, ...] = ()

    def __init__(self, full_name: str, where: str) -> None:
        self._full_name = full_name
        self._where = where

    def encode(self, value: Any) -> bytes:
        return bytes(value)

    def encode_indexed(self, value: Any) -> tuple[bytes, tuple[int, ...]]:
        return bytes(value), ()

    def layout_of(self, payload_bytes: int, row: Sequence[int]) -> None:
        return None

    def decode(self, payload: bytes) -> Any:
        raise CacheError(
            f"{self._where}: the records are {self._full_name}, and no such message class is loaded. Import its "
            "module, or "
            "pass the class: Cache.open(path, proto=TheClass). record_bytes(i) works without.",
            proto=self._full_name,
        )


def find_message_class(full_name: str) -> Any:
    """The loaded message class of this full name, such as "beam_pipes.SequenceExample", or None."""
    package, _, name = full_name.rpartition(".")
    if package == "beam_pipes" and hasattr(messages, name):
        return getattr(messages, name)
    from google.protobuf import descriptor_pool, message_factory

    try:
        return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name))
    except KeyError:
        return None


def codec_of_split(split: SplitManifest, proto: Any, *, where: str) -> RecordCodec:
    """The codec that reads a split; `proto` is the class the caller gave, or None."""
    if split.kind == "example":
        assert split.spec is not None
        return ExampleCodec(split.spec)
    if split.kind == "bytes":
        return BytesCodec()
    assert split.proto is not None
    if proto is None:
        proto = find_message_class(split.proto)
        return UnknownProtoCodec(split.proto, where) if proto is None else ProtoCodec(proto)
    found = proto.DESCRIPTOR.full_name
    if found != split.proto:
        raise CacheError(
            f"{where}: the records are {split.proto}, got proto={found}. Pass the class they were written with.",
            expected=split.proto,
            found=found,
        )
    return ProtoCodec(proto)
