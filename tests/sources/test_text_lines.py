"""Lines of text: ends of lines, encodings, compression, damage."""

from __future__ import annotations

import bz2
import errno
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.sources import RecordBatch, TextLines
from beam_pipes.sources.byte_stream import LATIN_1, read_error
from beam_pipes.sources.lines import OVERLONG_KEPT_BYTES, line_blocks

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def batches_of(source: TextLines, target: int = 1 << 30, **options: int) -> Iterator[RecordBatch]:
    for shard in source.plan(target_shard_bytes=target).shards:
        yield from source.read(shard, **options)


def read(path: Path, content: bytes, **options) -> list[str]:
    path.write_bytes(content)
    return [line for batch in batches_of(TextLines(path, **options)) for line in batch.values]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        pytest.param(b"a\nb\n", ["a", "b"], id="lf"),
        pytest.param(b"a\r\nb\r\n", ["a", "b"], id="crlf"),
        pytest.param(b"a\nb\r\nc", ["a", "b", "c"], id="mixed, no final newline"),
        pytest.param(b"\n\na\n\n", ["", "", "a", ""], id="empty lines"),
        pytest.param(b"\n", [""], id="one empty line"),
        pytest.param(b"a\rb\n", ["a\rb"], id="a lone carriage return is data"),
        pytest.param(b"a\r\r\nb\r", ["a\r", "b\r"], id="only one carriage return is taken"),
        pytest.param(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"], id="a mark at the start of the file only"),
        pytest.param(b"\xef\xbb\xbf", [""], id="nothing but a mark"),
        pytest.param("a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d"], id="other separators are data"),
        pytest.param("ä\n€\n😀".encode(), ["ä", "€", "😀"], id="utf-8"),
        pytest.param(b"\0\n", ["\0"], id="nul"),
    ],
)
def test_lines_are_split_at_newlines_only(tmp_path, content, lines):
    assert read(tmp_path / "a.txt", content) == lines


def test_lines_may_keep_their_ends(tmp_path):
    path = tmp_path / "a.txt"

    assert read(path, b"a\r\nb\n\nc", strip_newline=False) == ["a\r\n", "b\n", "\n", "c"]
    assert next(batches_of(TextLines(path, strip_newline=False))).raw(0) == b"a\r\n"


def test_positions_are_byte_offsets_and_raw_bytes_have_no_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("ä\r\n\nb".encode())
    (batch,) = batches_of(TextLines(path))

    assert batch.record_ids() == ["a.txt@0", "a.txt@4", "a.txt@5"]
    assert [batch.record_id(i) for i in range(3)] == batch.record_ids()
    assert [batch.raw(i) for i in range(3)] == ["ä".encode(), b"", b"b"]


def test_a_line_that_is_not_utf8_is_a_bad_record_at_its_place(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xff\nthree\n\xc3")
    (batch,) = batches_of(TextLines(path))

    assert batch.values == ["one", "three"]
    assert list(batch.ordinals) == [0, 2]
    assert [(b.ordinal, b.position, b.raw, b.record_id) for b in batch.bad] == [
        (1, 4, b"tw\xff", "a.txt@4"),
        (3, 14, b"\xc3", "a.txt@14"),
    ]
    assert (
        str(batch.bad[0].error)
        == "expected UTF-8, found byte 0xff at byte 2 of the record: invalid start byte" + LATIN_1
    )
    assert batch.record_ids() == ["a.txt@0", "a.txt@8"]
    assert (batch.first_ordinal, batch.num_records, len(batch)) == (0, 4, 2)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("errors", ["dead_letter", "replace"])
def test_a_file_in_utf16_is_refused_as_a_whole(tmp_path, encoding, errors):
    """All lines but the first would be UTF-8, with a NUL beside each letter."""
    with pytest.raises(
        SourceError, match="input a.txt is not text in UTF-8. It begins as UTF-16 does: convert it to UTF-8"
    ):
        read(tmp_path / "a.txt", "\ufeffa\nb\nc\n".encode(encoding), errors=errors)
    # Without a byte order mark every line would be a record.
    with pytest.raises(
        SourceError, match=f"begins as UTF-16.. does.*iconv -f {encoding.upper().replace('16-', '16')} "
    ):
        read(tmp_path / "a.txt", "Käse\nb\n".encode(encoding), errors=errors)
    assert read(tmp_path / "a.txt", b"a\0b\0\nc\n", errors=errors)


def test_bad_lines_end_up_in_the_batch_that_holds_their_place(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"".join(b"\xff\n" if n % 3 == 0 else b"%d\n" % n for n in range(10)))

    batches = list(batches_of(TextLines(path), batch_records=4))

    assert [(b.first_ordinal, b.num_records, list(b.ordinals)) for b in batches] == [
        (0, 4, [1, 2]),
        (4, 4, [4, 5, 7]),
        (8, 2, [8]),
    ]
    assert [[bad.ordinal for bad in b.bad] for b in batches] == [[0, 3], [6], [9]]
    assert [b.record_id(0) for b in batches] == ["a.txt@2", "a.txt@8", "a.txt@16"]


def test_bytes_that_are_not_utf8_can_be_replaced(tmp_path):
    assert read(tmp_path / "a.txt", b"tw\xff\n\xe2\x82\nc", errors="replace") == ["tw\ufffd", "\ufffd", "c"]


def test_batches_run_across_small_files(tmp_path):
    for n in range(10):
        (tmp_path / f"{n}.txt").write_text(f"{n}\n{n}\n{n}\n")

    source = TextLines(tmp_path)
    (shard,) = source.plan(target_shard_bytes=1 << 30).shards[-1:]
    batches = list(source.read(shard, batch_records=8))

    assert len(batches[0]) == 8
    assert batches[0].record_ids() == [batches[0].record_id(i) for i in range(8)]
    assert batches[0].record_ids()[2:4] == [f"{shard.slices[0].file}@4", f"{shard.slices[1].file}@0"]


def test_batches_are_bounded_in_bytes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(("x" * 9_999 + "\n") * 500)

    sizes = [sum(map(len, b.values)) for b in batches_of(TextLines(path), batch_bytes=50_000, batch_records=1000)]

    assert sum(sizes) == 500 * 9_999
    assert max(sizes) <= 100_000


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read_as_a_stream_and_never_split(tmp_path, suffix):
    text = "".join(f"line {n} äöü\n" for n in range(30_000))
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](text.encode()))
    source = TextLines(path)

    plan = source.plan(target_shard_bytes=100)
    batches = list(source.read(plan.shards[0]))

    assert len(plan.shards) == 1
    assert "".join(line + "\n" for batch in batches for line in batch.values) == text
    assert batches[-1].position(0) == len(text.encode().rpartition(f"\n{batches[-1].values[0]}\n".encode())[0]) + 1


@pytest.mark.parametrize("suffix", COMPRESS)
def test_several_members_in_one_file_are_one_stream(tmp_path, suffix):
    compress = COMPRESS[suffix]

    assert read(tmp_path / f"a{suffix}", compress(b"a\nb") + compress(b"c\n") + compress(b"") + compress(b"d")) == [
        "a",
        "bc",
        "d",
    ]


def test_zeros_after_a_gzip_member_are_padding(tmp_path):
    assert read(tmp_path / "a.gz", gzip.compress(b"a\n") + b"\0" * 100 + gzip.compress(b"b\n") + b"\0") == ["a", "b"]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_truncated_file_is_named_with_its_offset(tmp_path, suffix):
    content = COMPRESS[suffix]("".join(f"line {n * n}\n" for n in range(20_000)).encode())
    cut = len(content) // 2

    with pytest.raises(
        SourceError, match=f"input a{suffix} is damaged: .* near byte {cut}: the file is truncated"
    ) as e:
        read(tmp_path / f"a{suffix}", content[:cut])
    assert e.value.offset == cut


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_bytes_are_named(tmp_path, suffix):
    content = bytearray(COMPRESS[suffix]("".join(f"line {n * n}\n" for n in range(20_000)).encode()))
    content[len(content) // 2 : len(content) // 2 + 50] = b"\xff" * 50

    with pytest.raises(SourceError, match=f"input a{suffix} is damaged"):
        read(tmp_path / f"a{suffix}", bytes(content))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_trailing_bytes_are_not_ignored(tmp_path, suffix):
    with pytest.raises(SourceError, match=f"input a{suffix} is damaged"):
        read(tmp_path / f"a{suffix}", COMPRESS[suffix](b"a\n") + b"garbage that is no member")


def test_a_small_file_that_expands_hugely_is_read_in_bounded_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "bomb.zst"
    path.write_bytes(zstandard.compress(b"\n" * 50_000_000))
    source = TextLines(path)
    (shard,) = source.plan(target_shard_bytes=1 << 30).shards

    tracemalloc.start()
    batch = next(source.read(shard))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(batch) == 256
    assert path.stat().st_size < 10_000
    assert peak < 80_000_000


def test_an_overlong_line_is_a_bad_record_with_its_beginning(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n" + b"x" * 3_000_000 + b"\nb\n" + b"y" * 2_000_000)
    source = TextLines(path, max_line_bytes=1 << 20)
    batches = list(batches_of(source))

    assert [line for b in batches for line in b.values] == ["a", "b"]
    assert [(bad.position, bad.raw) for b in batches for bad in b.bad] == [
        (2, b"x" * OVERLONG_KEPT_BYTES),
        (3_000_005, b"y" * OVERLONG_KEPT_BYTES),
    ]
    assert "line is 3000001 bytes long, expected at most max_line_bytes=1048576" in str(batches[0].bad[0].error)


@given(st.lists(st.integers(0, 30), max_size=12), st.lists(st.integers(1, 10), min_size=1), st.booleans())
@settings(max_examples=300)
def test_blocks_do_not_depend_on_where_chunks_end(lengths, cuts, final):
    limit = 16
    data = b"\n".join(bytes([97 + n % 26]) * n for n in lengths) + (b"\n" if final else b"")

    def chunks() -> Iterator[bytes]:
        at, n = 0, 0
        while at < len(data):
            yield data[at : at + cuts[n % len(cuts)]]
            at, n = at + cuts[n % len(cuts)], n + 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_pipes.sources.lines.OVERLONG_KEPT_BYTES", 4)
        blocks = list(line_blocks(chunks(), offset=100, max_line_bytes=limit))

    assert sum(block.length for block in blocks) == len(data)
    assert [block.offset for block in blocks] == [100 + sum(b.length for b in blocks[:n]) for n in range(len(blocks))]
    lines = [line for line in data.splitlines(keepends=True)]
    assert [b.data for b in blocks if b.is_overlong] == [line[:4] for line in lines if len(line) > limit]
    whole = b"".join(block.data for block in blocks if not block.is_overlong)
    assert whole == b"".join(line for line in lines if len(line) <= limit)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"errors": "ignore"}, "errors should be one of dead_letter, replace, got 'ignore'"),
        ({"max_line_bytes": 10}, "max_line_bytes should be an integer of at least 1048576, got 10"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(SourceError, match=message):
        TextLines("x", **options)


def test_a_file_that_may_not_be_read_says_what_to_do() -> None:
    denied = read_error("a.txt", PermissionError(errno.EACCES, "Permission denied"), offset=0)

    assert "a.txt cannot be read (at byte 0): Permission denied. Give this account the right to read it" in str(denied)
    assert "(chmod a+r FILE), or leave it out of the input" in str(denied)
