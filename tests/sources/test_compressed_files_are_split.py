"""Compressed files of frames: any cut gives each line once, with the ids that the unsplit file gives."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.sources import CSV, JSONLines, Tar, TextLines, TFRecords
from beam_pipes.sources.byte_stream import advice_if_not_utf8, frames_of
from beam_pipes.sources.digests import DigestCache
from beam_pipes.sources.repaired import RepairedSource
from beam_pipes.sources.source import Source, SourcePlan, SourceShard

SKIPPABLE = struct.pack("<II", 0x184D2A5E, 5) + b"table"


def bgzip_block(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    header = struct.pack("<4BI2BH2BHH", 31, 139, 8, 4, 0, 0, 255, 6, 66, 67, 2, len(body) + 25)
    return header + body + struct.pack("<II", zlib.crc32(data), len(data))


def zstd_frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def zstd_frame_of_unknown_length(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return SKIPPABLE + stream.compress(data) + stream.flush()


KINDS = {
    "bgzip": (".gz", bgzip_block, bgzip_block(b"")),
    "zstd": (".zst", zstd_frame, SKIPPABLE),
    "zstd, lengths unknown": (".zst", zstd_frame_of_unknown_length, b""),
}


def write(path: Path, parts: Sequence[bytes], kind: str) -> Path:
    suffix, frame, end = KINDS[kind]
    made = path.with_name(path.name + suffix)
    made.write_bytes(b"".join(map(frame, parts)) + end)
    return made


def records(source: Source, shards: Sequence[SourceShard]) -> list[tuple[str, int, object]]:
    return [
        (file, position, value)
        for shard in shards
        for batch in source.read(shard)
        for (file, position), value in zip(
            ((file, position) for file, positions in batch.places() for position in positions),
            batch.values,
            strict=True,
        )
    ]


def plan_of(source: Source, target: int) -> SourcePlan:
    return source.plan(target_shard_bytes=target)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.text("ab\r é", max_size=20), max_size=30),
    cuts=st.lists(st.integers(0, 600), max_size=12),
    target=st.integers(1, 200),
    final_newline=st.booleans(),
)
def test_any_cut_gives_each_line_once(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    lines: list[str],
    cuts: list[int],
    target: int,
    final_newline: bool,
) -> None:
    text = ("\n".join(lines) + "\n" * final_newline).encode()
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[start:end] for start, end in zip(bounds[:-1], bounds[1:], strict=True)]
    source = TextLines(write(tmp_path_factory.mktemp("split") / "a.txt", parts, kind))
    whole = plan_of(source, 10**9)

    split = plan_of(source, target)

    assert records(source, split.shards) == records(source, whole.shards)
    assert split.num_bytes == whole.num_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_shards_hold_about_the_target_and_are_read_alone(tmp_path: Path, kind: str) -> None:
    lines = [f"{n} {n * n % 9973} {'x' * (n % 50)}" for n in range(20_000)]
    text = "".join(f"{line}\n" for line in lines).encode()
    path = write(tmp_path / "a.txt", [text[at : at + 5000] for at in range(0, len(text), 5000)], kind)
    target = path.stat().st_size // 10
    source = TextLines(path)

    shards = plan_of(source, target).shards

    assert 9 <= len(shards) <= 10
    assert all(target / 2 <= shard.num_bytes <= 2 * target for shard in shards)
    of_shards = [records(source, [SourceShard.from_json(json.loads(json.dumps(s.to_json())))]) for s in shards]
    assert [value for part in of_shards for _, _, value in part] == lines
    stored = [piece.stored for shard in shards for piece in shard.slices]
    assert sum(end - start for start, end, _ in filter(None, stored)) < 1.3 * path.stat().st_size


def test_frames_that_end_with_lines_are_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [b"line %04d\n" % n * 50 for n in range(100)], "zstd")

    stored = [s.stored for shard in plan_of(TextLines(path), 500).shards for s in shard.slices]

    assert len(stored) > 3
    assert [each[0] for each in stored[1:] if each] == [each[1] for each in stored[:-1] if each]


def test_one_line_over_many_frames_is_in_one_shard(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [b"first\nsec", *[b"o" * 100] * 50, b"nd\nthird\n"], "bgzip")
    source = TextLines(path)

    plan = plan_of(source, 100)

    assert [value for _, _, value in records(source, plan.shards)] == ["first", "sec" + "o" * 5000 + "nd", "third"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_objects_are_split_too(tmp_path: Path, kind: str) -> None:
    rows = [b"name,n\n", *(b"row %d,%d\n" % (n, n * n) for n in range(2000))]
    objects = [b'{"n": %d}\n' % n for n in range(2000)]
    table = CSV(write(tmp_path / "t.csv", rows, kind), quoted_newlines=False)
    lines = JSONLines(write(tmp_path / "o.jsonl", objects, kind))

    for source in (table, lines):
        split = plan_of(source, 4000)
        assert len(split.shards) > 5
        assert records(source, split.shards) == records(source, plan_of(source, 10**9).shards)


def test_digests_of_parts_are_kept(tmp_path: Path) -> None:
    import os
    import time

    path = write(tmp_path / "a.txt", [b"line %04d\n" % n * 50 for n in range(100)], "zstd")
    os.utime(path, ns=(time.time_ns() - 10**10,) * 2)
    time.sleep(0.06)
    digests = DigestCache()
    first = TextLines(path).plan(target_shard_bytes=500, digests=digests)
    digests.save(tmp_path / "digests")
    digests = DigestCache.load(tmp_path / "digests")

    assert TextLines(path).plan(target_shard_bytes=500, digests=digests) == first
    assert (digests.hits, digests.misses) == (1, 0)


def test_a_part_that_changed_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [b"line %04d\n" % n * 50 for n in range(100)], "zstd")
    source = TextLines(path)
    shards = plan_of(source, 500).shards
    write(tmp_path / "a.txt", [b"lime %04d\n" % n * 50 for n in range(100)], "zstd")

    with pytest.raises(SourceError, match=r"input a\.txt\.zst changed after it was planned"):
        records(source, shards[3:4])


def test_a_record_of_a_part_can_be_repaired(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [b"line %04d\n" % n * 50 for n in range(100)], "bgzip")
    source = RepairedSource(TextLines(path), {"a.txt.gz@30000": b"repaired"})

    found = records(source, plan_of(source, 500).shards)

    assert found[3000] == ("a.txt.gz", 30_000, "repaired")
    assert len({value for _, _, value in found}) == 101


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.gz", gzip.compress(b"line\n" * 5000, mtime=0)),
        ("members.gz", gzip.compress(b"line\n", mtime=0) * 500),
        ("single.zst", zstd_frame(b"line of text %d\n" * 5000)),
        ("damaged.zst", zstd_frame(b"line\n") * 500 + b"rubbish"),
        ("short.zst", (zstd_frame(b"line\n") * 500)[:-30]),
        ("short.gz", (bgzip_block(b"line\n") * 500)[:-3]),
        ("empty.gz", b""),
    ],
)
def test_what_is_not_a_sequence_of_frames_is_one_piece(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    frames = frames_of(str(path), name, len(content))

    assert len(frames) <= 1
    assert [len(shard.slices) for shard in plan_of(TextLines(tmp_path, pattern=name), 50).shards] == [1] * bool(content)


def test_a_block_of_bgzip_is_what_gzip_reads() -> None:
    assert gzip.decompress(bgzip_block(b"some text") + bgzip_block(b"")) == b"some text"


@pytest.mark.parametrize("source", [TextLines, CSV, JSONLines, TFRecords, Tar], ids=lambda source: source.__name__)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b"a\n" * 999, mtime=0), "It begins as gzip data do: give the file a name that ends in .gz"),
        (zstd_frame(b"a\n" * 999), "It begins as zstd data do: give the file a name that ends in .zst"),
        (lzma.compress(b"a\n" * 999), "It begins as xz data do: no source decompresses it: do so first"),
    ],
    ids=["gzip", "zstd", "xz"],
)
def test_a_file_whose_name_does_not_say_that_it_is_compressed(
    tmp_path: Path, source: Callable[[Path], Source], content: bytes, words: str
) -> None:
    (tmp_path / "x").write_bytes(content)
    made = source(tmp_path / "x")
    with pytest.raises(SourceError, match=words):
        for batch in (batch for shard in made.plan(target_shard_bytes=1 << 20).shards for batch in made.read(shard)):
            raise batch.bad[0].error


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.txt.bz2",
            gzip.compress(b"a\n", mtime=0),
            "is not bzip2 data, as its name says. It begins as gzip data do: give",
        ),
        ("a.txt.gz", b"to be\n", "is not gzip data, as its name says. Take the suffix off its name if it is not comp"),
        ("a.txt.zst", b"to be\n", "is not zstd data, as its name says. Take the suffix off its name if it is not comp"),
    ],
)
def test_a_file_that_is_not_compressed_as_its_name_says(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=f"input {name} {words}"):
        records(TextLines(tmp_path / name), plan_of(TextLines(tmp_path / name), 1 << 20).shards)


@pytest.mark.parametrize("text", ["to be\n", "\u0431\u044b\u0442\u044c \u0438\u043b\u0438\r\n" * 3, "caf\xe9"])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_wide_text_is_known_with_and_without_a_byte_order_mark(text: str, encoding: str) -> None:
    wide = f"begins as {encoding} does, without a byte order mark: convert it to UTF-8 (iconv -f {encoding} -t UTF-8"
    assert wide in advice_if_not_utf8(text.encode(encoding))
    assert f"begins as {encoding[:6]} does: convert it" in advice_if_not_utf8(("\ufeff" + text).encode(encoding))


@pytest.mark.parametrize(
    "content",
    [
        b"to be\n",
        b"",
        b"\0",
        b"\0\0\0\0",
        b"a\0b\n",
        b"k\0v\n" * 9,
        b"ab\0cd\0" * 9,
        b"BZh is how a text may begin",
        b"(\xc2\xb5)",
        bytes(9) + b"tail\n",
    ],
)
def test_text_with_nuls_and_other_beginnings_is_given_no_advice(content: bytes) -> None:
    assert advice_if_not_utf8(content) == ""


def test_a_damaged_file_without_a_known_beginning_is_given_no_advice() -> None:
    assert advice_if_not_utf8(b"\x1fno") == advice_if_not_utf8(b"") == ""


def test_zstd_with_the_longest_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    window = zstandard.ZstdCompressionParameters(window_log=31, compression_level=1)
    stream = zstandard.ZstdCompressor(compression_params=window).compressobj()
    path.write_bytes(stream.compress(b"to be\nor not\n") + stream.flush())
    assert zstandard.get_frame_parameters(path.read_bytes()).window_size == 1 << 31

    source = TextLines(path)
    shards = source.plan(target_shard_bytes=1 << 20).shards
    assert [value for batch in source.read(shards[0]) for value in batch.values] == ["to be", "or not"]
