"""TFRecords: messages and examples, splitting at frames, every kind of damage."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.framing import FRAME_BYTES, RecordWriter, header_of
from beam_pipes.format.messages import Example
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.sources import BadRecord, TFRecords

SPEC = ExampleSpec({"n": FeatureSpec("int64")})


def framed(*payloads: bytes) -> bytes:
    parts: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> int:
            parts.append(data)
            return len(data)

        def close(self) -> None:
            pass

    with RecordWriter(Sink()) as writer:
        for payload in payloads:
            writer.write(payload)
    return b"".join(parts)


def read(source: TFRecords, *, target: int = 1 << 30, **options: int) -> tuple[list[Any], list[BadRecord]]:
    values: list[Any] = []
    bad: list[BadRecord] = []
    for shard in source.plan(target_shard_bytes=target).shards:
        for batch in source.read(shard, **options):
            values += batch.values
            bad += batch.bad
    return values, bad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tfrecord"


def test_payloads_are_bytes_messages_or_examples(path):
    payload = ExampleCodec(SPEC).encode({"n": 7})
    path.write_bytes(framed(payload))

    (as_bytes,), _ = read(TFRecords(path))
    (as_message,), _ = read(TFRecords(path, Example))
    (as_example,), _ = read(TFRecords(path, SPEC))

    assert as_bytes == payload
    assert list(as_message.features.feature) == ["n"]
    assert as_example == {"n": 7}


def test_positions_are_offsets_of_frames(path):
    path.write_bytes(framed(b"a", b"", b"bcd"))
    source = TFRecords(path)
    (shard,) = source.plan(target_shard_bytes=1 << 20).shards

    (batch,) = source.read(shard)

    assert batch.record_ids() == ["a.tfrecord@0", "a.tfrecord@17", "a.tfrecord@33"]
    assert [batch.raw(i) for i in range(3)] == [b"a", b"", b"bcd"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=30), st.integers(1, 300), st.integers(1, 100), st.booleans())
def test_split_or_compressed_every_record_is_read_once(tmp_path_factory, payloads, target, batch_bytes, compress):
    content = framed(*payloads)
    path = tmp_path_factory.mktemp("tf") / ("a.gz" if compress else "a")
    path.write_bytes(gzip.compress(content) if compress else content)

    values, bad = read(TFRecords(path), target=target, batch_bytes=batch_bytes)

    assert (values, bad) == (payloads, [])


def test_large_records_are_read_whole(path):
    payloads = [b"x" * 3_000_000, b"y", b"z" * 2_500_000]
    path.write_bytes(framed(*payloads))

    assert read(TFRecords(path))[0] == payloads
    assert read(TFRecords(path), target=1000)[0] == payloads
    assert len(TFRecords(path).plan(target_shard_bytes=1 << 20).shards) == 2


def test_a_damaged_payload_is_a_bad_record(path):
    content = bytearray(framed(b"one", b"two", b"three"))
    content[19 + 12] ^= 1
    path.write_bytes(content)

    values, bad = read(TFRecords(path))

    assert values == [b"one", b"three"]
    assert [(b.ordinal, b.position, b.raw) for b in bad] == [(1, 19, b"uwo")]
    assert str(bad[0].error) == "the payload (3 bytes) does not match its checksum"


def test_a_payload_that_does_not_parse_is_a_bad_record(path):
    path.write_bytes(framed(b"\xff\xff", ExampleCodec(SPEC).encode({"n": 1})))

    messages, bad_messages = read(TFRecords(path, Example))
    examples, bad_examples = read(TFRecords(path, SPEC))

    assert len(messages) == len(examples) == 1
    assert "expected a beam_pipes.Example: " in str(bad_messages[0].error)
    assert "expected an example of the declared features: " in str(bad_examples[0].error)


@pytest.mark.parametrize("target", [1 << 30, 10])
def test_a_damaged_length_stops_with_file_and_offset(path, target):
    content = bytearray(framed(b"one", b"two", b"three"))
    content[19] ^= 4
    path.write_bytes(content)

    with pytest.raises(SourceError, match="input a.tfrecord is damaged at byte 19: the length of the record") as raised:
        read(TFRecords(path), target=target)
    assert (raised.value.file, raised.value.offset) == ("a.tfrecord", 19)


@pytest.mark.parametrize("cut", range(20, 38))
def test_a_truncated_file_stops_with_file_and_offset(path, cut):
    path.write_bytes(framed(b"one", b"two")[:cut])

    with pytest.raises(
        SourceError, match="input a.tfrecord is truncated: the record at byte 19 has .* bytes, expected"
    ):
        read(TFRecords(path))


def test_a_huge_length_with_a_valid_checksum_allocates_nothing(path):
    path.write_bytes(framed(b"one") + header_of(1 << 62) + b"x")

    with pytest.raises(
        SourceError, match=f"has a record of {1 << 62} bytes at byte 19, expected at most max_record_bytes"
    ):
        read(TFRecords(path))
    path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(SourceError, match="expected at most max_record_bytes=1073741824"):
        read(TFRecords(path.with_suffix(".gz")))


def test_a_file_of_something_else_is_named(path):
    path.write_bytes(b"This is text, not records, and long enough for a header.")

    with pytest.raises(SourceError, match="This is not a TFRecord file, or its bytes have changed"):
        read(TFRecords(path))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 60), st.integers(0, 255), st.integers(1, 60))
def test_any_damage_is_seen(tmp_path_factory, payload, at, value, target):
    content = bytearray(framed(b"first", payload, b"last"))
    at %= len(content)
    changed = content[at] != value
    content[at] = value
    path = tmp_path_factory.mktemp("tf") / "a"
    path.write_bytes(content)

    try:
        values, bad = read(TFRecords(path), target=target)
    except SourceError:
        assert changed
        return
    assert (values, bad) == ([b"first", payload, b"last"], []) or (changed and len(bad) == 1)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100), st.integers(1, 50))
def test_any_bytes_give_records_or_our_own_error(tmp_path_factory, content, target):
    path = tmp_path_factory.mktemp("tf") / "a"
    path.write_bytes(content)

    try:
        values, bad = read(TFRecords(path), target=target)
    except SourceError:
        return
    assert sum(len(value) + FRAME_BYTES for value in [*values, *(b.raw for b in bad)]) == len(content)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"message": dict}, "message should be None .for bytes., a proto class or an ExampleSpec, got <class 'dict'>"),
        ({"message": Example()}, "message should be None"),
        ({"max_record_bytes": 0}, "max_record_bytes should be an integer of at least 1, got 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(SourceError, match=message):
        TFRecords("x", **options)


def test_the_message_is_part_of_the_configuration():
    configs = [TFRecords("x", message).fingerprint_config()["message"] for message in (None, Example, SPEC)]

    assert configs[:2] == [None, "beam_pipes.Example"]
    assert configs[2] == SPEC.to_json()


def test_lengths_are_little_endian(path):
    assert struct.unpack("<Q", framed(b"abc")[:8]) == (3,)
