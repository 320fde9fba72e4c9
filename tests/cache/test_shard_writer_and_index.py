"""Shards and their index: what is committed, what is left behind, golden bytes, and damaged indexes."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from cache_examples import FIXED, MIXED, fixed_example, mixed_example

from beam_pipes.cache import BytesCodec, ExampleCodec, ExampleSpec, FeatureSpec, ShardEntry, ShardWriter
from beam_pipes.errors import CorruptIndexError, SpecError, UnsupportedFormatError
from beam_pipes.format.index import decode_index, encode_index, index_layout, index_positions


def write(directory: Path, spec: ExampleSpec, count: int, name: str = "shard") -> ShardEntry:
    make = fixed_example if spec is FIXED else mixed_example
    with ShardWriter(directory, name, codec=ExampleCodec(spec)) as writer:
        for i in range(count):
            writer.write(make(i), ordinal=3 * i)
        return writer.commit()


@pytest.mark.parametrize("spec", [FIXED, MIXED], ids=["fixed", "mixed"])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_an_entry_tells_size_checksums_and_totals(tmp_path: Path, spec: ExampleSpec, count: int) -> None:
    entry = write(tmp_path, spec, count)

    data, index = (tmp_path / "shard").read_bytes(), (tmp_path / "shard.index").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["shard", "shard.index"]
    assert (entry.records, entry.bytes, entry.crc32c) == (count, len(data), google_crc32c.value(data))
    assert entry.index_crc32c == google_crc32c.value(index[:-8])
    assert ShardEntry.from_json(json.loads(json.dumps(entry.to_json()))) == entry
    if spec is MIXED:
        lengths = [len(mixed_example(i)["grid"]) for i in range(count)]
        assert entry.lengths["grid"] == (sum(lengths), max(lengths, default=0))
        texts = [len(mixed_example(i)["text"].encode()) for i in range(count)]
        assert entry.lengths["text"] == (sum(texts), max(texts, default=0))
    else:
        assert entry.layout is not None and entry.layout.stride * count == entry.bytes


@pytest.mark.parametrize("spec", [FIXED, MIXED], ids=["fixed", "mixed"])
def test_equal_examples_give_equal_bytes(tmp_path: Path, spec: ExampleSpec) -> None:
    assert write(tmp_path, spec, 9, "a").crc32c == write(tmp_path, spec, 9, "b").crc32c
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a.index").read_bytes() == (tmp_path / "b.index").read_bytes()


def test_every_frame_starts_on_a_multiple_of_eight_bytes(tmp_path: Path) -> None:
    write(tmp_path, MIXED, 30)

    columns = decode_index((tmp_path / "shard.index").read_bytes(), path="index")

    assert not (columns["offset"] % 8).any()
    assert columns["ordinal"].tolist() == [3 * i for i in range(30)]
    for name in ("grid", "größen", "image", "image/shape"):
        assert not ((columns["offset"] + 12 + columns[f"start/{name}"]) % 8).any(), name


def test_an_aborted_shard_leaves_nothing_behind(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "shard", codec=BytesCodec()) as writer:
        writer.write(b"x" * 3_000_000, ordinal=0)
        assert [name[:5] for name in os.listdir(tmp_path)] == [".tmp-"]

    assert os.listdir(tmp_path) == []


def test_a_value_that_is_refused_leaves_the_shard_as_it_was(tmp_path: Path) -> None:
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec("int8")}))
    with ShardWriter(tmp_path, "shard", codec=codec) as writer:
        writer.write({"x": 1}, ordinal=0)
        with pytest.raises(SpecError, match="exact in int8, got 300"):
            writer.write({"x": 300}, ordinal=1)
        writer.write({"x": 2}, ordinal=2)
        entry = writer.commit()

    assert entry.records == 2


def test_committing_again_replaces_what_was_there(tmp_path: Path) -> None:
    write(tmp_path, FIXED, 3)

    entry = write(tmp_path, FIXED, 5)

    assert entry.bytes == (tmp_path / "shard").stat().st_size


def test_encoded_records_are_written_with_their_index_row(tmp_path: Path) -> None:
    codec = ExampleCodec(MIXED)
    with ShardWriter(tmp_path, "encoded", codec=codec) as writer:
        for i in range(9):
            payload, row = codec.encode_indexed(mixed_example(i))
            writer.write_encoded(payload, 3 * i, row)
        assert writer.records == 9
        assert [ordinal for _, ordinal, _ in writer.read_back()] == [3 * i for i in range(9)]
        entry = writer.commit()

    assert entry.crc32c == write(tmp_path, MIXED, 9).crc32c
    with (
        ShardWriter(tmp_path, "bad", codec=codec) as writer,
        pytest.raises(SpecError, match="expected an index row of"),
    ):
        writer.write_encoded(b"", 0, (1,))


def test_a_file_name_with_directories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a plain name without directories, got '../x'"):
        ShardWriter(tmp_path, "../x", codec=BytesCodec())


@pytest.mark.parametrize(
    "change", [{"records": -1}, {"layout": {}}, {"extra": 1}, {"lengths": []}, {"crc32c": "0"}], ids=str
)
def test_json_that_is_not_a_shard_entry_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    made = write(tmp_path, FIXED, 3).to_json()

    with pytest.raises(SpecError, match="expected a (shard entry|layout), an object of|should be an int >= 0"):
        ShardEntry.from_json({**made, **change})


def test_layouts_that_are_equal_in_python_alone_are_distinguished(tmp_path: Path) -> None:
    made = json.loads(json.dumps(write(tmp_path, FIXED, 3).to_json()))
    first, again = ShardEntry.from_json(made), ShardEntry.from_json(json.loads(json.dumps(made)))

    assert first == again and first.layout is again.layout
    with pytest.raises(SpecError, match="expected a layout, an object of"):
        ShardEntry.from_json({**made, "layout": {**made["layout"], "stride": float(made["layout"]["stride"])}})


def test_golden_bytes_of_an_index() -> None:
    made = encode_index({"ordinal": np.array([5, 6], np.uint64)})

    header = b'{"columns":[["ordinal","<u8"]],"records":2}'
    expected = struct.pack("<8sII", b"bp-index", 1, 48) + header.ljust(48) + struct.pack("<QQ", 5, 6).ljust(64, b"\0")
    assert made == expected + struct.pack("<I4s", google_crc32c.value(expected), b"xdni")


def test_the_positions_of_columns_over_many_shards_are_those_of_each() -> None:
    columns = ("offset", "size", "ordinal", "length/größe")
    records = np.array([0, 1, 9, 10, 99, 100, 12345, 1_000_000])

    offsets, sizes = index_positions(columns, records)

    for shard, count in enumerate(records.tolist()):
        layout = index_layout(columns, count)
        assert {name: int(offsets[name][shard]) for name in columns} == dict(layout.offsets)
        assert int(sizes[shard]) == layout.size
    assert index_positions(columns, np.zeros(0, np.int64))[1].tolist() == []


def test_every_flipped_byte_and_truncation_of_an_index_is_found(tmp_path: Path) -> None:
    write(tmp_path, MIXED, 2)
    data = (tmp_path / "shard.index").read_bytes()

    for position in range(len(data)):
        damaged = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(CorruptIndexError, match="the.index: the index is damaged: expected"):
            decode_index(damaged, path="the.index")
        with pytest.raises(CorruptIndexError, match="the.index: the index is damaged: expected"):
            decode_index(data[:position], path="the.index")


def test_an_index_of_a_later_version_is_unsupported() -> None:
    body = bytearray(encode_index({"ordinal": np.zeros(0, np.uint64)})[:-8])
    body[8] = 2
    made = bytes(body) + struct.pack("<I4s", google_crc32c.value(bytes(body)), b"xdni")

    with pytest.raises(UnsupportedFormatError, match="expected an index of version 1, found version 2"):
        decode_index(made, path="the.index")
