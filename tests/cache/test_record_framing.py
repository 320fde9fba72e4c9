"""TFRecord framing: golden bytes, round trips, and every damaged byte is found and named."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import RecordWriter, read_records
from beam_pipes.errors import CacheNotFoundError, CorruptRecordError
from beam_pipes.format import framing
from beam_pipes.format.framing import masked_crc32c, scan_records


def write(path: Path, records: list[bytes]) -> bytes:
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def test_golden_bytes_of_a_frame(tmp_path: Path) -> None:
    assert masked_crc32c(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert write(tmp_path / "f", [b"abc"]).hex(" ") == GOLDEN_FRAME


GOLDEN_FRAME = "03 00 00 00 00 00 00 00 b0 99 49 0e 61 62 63 6e 57 f1 21"


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=200) | st.integers(0, 3000).map(bytes), max_size=30))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, records: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip"
    data = write(path, records)

    assert list(read_records(path)) == records
    assert list(read_records(path, verify=False)) == records
    places = list(scan_records(path))
    assert [data[offset + 12 : offset + 12 + size] for offset, size in places] == records


def test_records_across_the_pieces_of_reading_and_writing_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [bytes([i % 256]) * (i * 37 % 1000) for i in range(500)]
    monkeypatch.setattr(framing, "_READ_BYTES", 100)
    monkeypatch.setattr(framing, "WRITE_BYTES", 777)

    write(tmp_path / "f", records)

    assert list(read_records(tmp_path / "f")) == records
    with RecordWriter(tmp_path / "g") as writer:
        for at in range(0, 500, 7):
            writer.write_all(records[at : at + 7])
    assert (tmp_path / "g").read_bytes() == (tmp_path / "f").read_bytes()


def test_a_writer_counts_and_sums_what_it_wrote(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    writer.write(b"abc")
    writer.write(b"")

    assert writer.bytes_written == 19 + 16
    assert writer.crc32c == framing.google_crc32c.value(buffer.getvalue())
    writer.close()
    assert not buffer.closed and len(buffer.getvalue()) == 35


def test_every_flipped_byte_is_an_error_that_names_file_and_offset(tmp_path: Path) -> None:
    data = write(tmp_path / "f", [b"first", b"second record", b""])
    starts = [0, 21, 50]
    for position in range(len(data)):
        (tmp_path / "f").write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        offset = max(start for start in starts if start <= position)

        with pytest.raises(CorruptRecordError, match=f"f: the .*record at offset {offset}") as caught:
            list(read_records(tmp_path / "f"))

        assert caught.value.offset == offset and caught.value.path == str(tmp_path / "f")
        assert caught.value.problem == ("length" if position - offset < 12 else "payload")


def test_every_truncation_is_an_error_except_between_records(tmp_path: Path) -> None:
    data = write(tmp_path / "f", [b"first", b"second record"])
    for size in range(1, len(data)):
        (tmp_path / "f").write_bytes(data[:size])
        if size == 21:
            assert list(read_records(tmp_path / "f")) == [b"first"]
            continue
        with pytest.raises(CorruptRecordError, match="is cut short: expected .*The file was truncated"):
            list(read_records(tmp_path / "f"))
        with pytest.raises(CorruptRecordError, match="is cut short"):
            list(scan_records(tmp_path / "f"))


def test_a_bogus_length_with_a_valid_checksum_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(framing.header_of(1 << 62) + b"abc")

    with pytest.raises(
        CorruptRecordError, match="at offset 0 is cut short: expected 4611686018427387920 bytes, found 15"
    ):
        list(read_records(tmp_path / "f"))


def test_a_file_that_is_not_a_tfrecord_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"plain text, not records at all")

    with pytest.raises(
        CorruptRecordError, match="the length of the record at offset 0 is damaged.*not a TFRecord file"
    ):
        next(read_records(tmp_path / "f"))
    with pytest.raises(CacheNotFoundError, match="expected a TFRecord file at .*missing"):
        next(read_records(tmp_path / "missing"))
