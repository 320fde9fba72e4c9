"""Tar archives in the layout of WebDataset, written by `tarfile`."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from beam_pipes import FeatureSpec, Loader, build, declare
from beam_pipes.cache import Cache
from beam_pipes.commands.caches import account_table
from beam_pipes.errors import SourceError
from beam_pipes.runners import LocalOptions
from beam_pipes.sources import Tar
from beam_pipes.sources.record_batch import BadRecord
from beam_pipes.sources.tar import _header


def archive(members: list[tuple[str, bytes]], *, format: int = tarfile.PAX_FORMAT) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=format) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_700_000_000
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


def samples(count: int, *, prefix: str = "train/") -> list[tuple[str, bytes]]:
    return [
        member
        for number in range(count)
        for member in [
            (f"{prefix}{number:05d}.jpg", bytes([number % 256]) * (100 + 37 * number % 900)),
            (f"{prefix}{number:05d}.json", json.dumps({"label": number}).encode()),
        ]
    ]


def records(source: Tar, *, target: int = 1 << 30, **limits: int) -> tuple[list[Any], list[BadRecord]]:
    batches = [b for shard in source.plan(target_shard_bytes=target).shards for b in source.read(shard, **limits)]
    for batch in batches:
        for k, value in enumerate(batch.values):
            assert source.parse(batch.raw(k), file=batch.file(k), position=0) == value
    return [value for b in batches for value in b.values], [row for b in batches for row in b.bad]


def test_members_of_a_name_are_a_sample(tmp_path: Path) -> None:
    members = [
        ("a/1.seg.png", b"\x89"),
        ("a/1.jpg", b"\xff\xd8"),
        ("a/1.cls", b"7"),
        ("a/1.txt", "né".encode()),
        ("a/2.JSON", b'{"x": [1, 2.5]}'),
        ("README", b"no extension"),
        (".hidden.jpg", b""),
    ]
    (tmp_path / "x.tar").write_bytes(archive(members))

    found, bad = records(Tar(tmp_path))

    first = {"__key__": "a/1", "seg.png": b"\x89", "jpg": b"\xff\xd8", "cls": 7, "txt": "né"}
    assert found == [first, {"__key__": "a/2", "JSON": {"x": [1, 2.5]}}]
    assert list(found[0]) == list(first) and bad == []
    assert records(Tar(tmp_path, decode=False))[0][1]["JSON"] == b'{"x": [1, 2.5]}'


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_large_archives_are_split_between_samples(tmp_path: Path, format: int) -> None:
    """Long names have headers in front of the header."""
    prefix = "train/" if format == tarfile.USTAR_FORMAT else f"{'long/' * 30}é"
    data = archive(samples(60, prefix=prefix), format=format)
    (tmp_path / "x.tar").write_bytes(data)
    (tmp_path / "y.tar.gz").write_bytes(gzip.compress(data, mtime=0))
    source = Tar(tmp_path)

    plan = source.plan(target_shard_bytes=10_000)
    found, bad = records(source, target=10_000, batch_records=7)

    pieces = [part for shard in plan.shards for part in shard.slices]
    assert len([part for part in pieces if part.file == "x.tar"]) >= 5
    assert [value["json"]["label"] for value in found] == [*range(60), *range(60)] and bad == []
    assert found[:60] == found[60:]
    ids = [b.record_id(k) for shard in plan.shards for b in source.read(shard) for k in range(len(b))]
    assert ids[0] == "x.tar@0" and len(set(ids)) == 120
    (shard, *_) = (shard for shard in plan.shards if shard.slices[0].start > 0)
    assert next(source.read(shard)).position(0) == shard.slices[0].start


def test_members_larger_than_a_chunk_sparse_ones_and_what_lies_between_samples(tmp_path: Path) -> None:
    """Inputs are read a mebibyte at a time; a sparse member stores a map of what it holds, and only that."""
    large = bytes(range(256)) * 9001
    members = [("1.bin", large), ("ignored", large), ("2.bin", b"z" * (1 << 20)), ("3.bin", b"")]
    data = bytearray(archive(members).rstrip(b"\0"))
    data += bytes(-len(data) % tarfile.BLOCKSIZE)
    sparse = tarfile.TarInfo("4.bin")
    content = b"1\n4096\n3\n".ljust(tarfile.BLOCKSIZE, b"\0") + b"abc"
    sparse.size = len(content)
    sparse.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "4.bin",
        "GNU.sparse.realsize": "4099",
    }
    data += sparse.tobuf(tarfile.PAX_FORMAT) + content.ljust(2 * tarfile.BLOCKSIZE, b"\0") + bytes(1024)
    (tmp_path / "x.tar").write_bytes(data)

    found, _ = records(Tar(tmp_path))

    expected = {"1": large, "2": b"z" * (1 << 20), "3": b"", "4": bytes(4096) + b"abc"}
    assert {value["__key__"]: value["bin"] for value in found} == expected


@pytest.mark.parametrize("name", ["a.b", "d/" * 49 + ".x", "d/" * 49 + ".xy", "é.b", "a b/c.b", "x" * 120 + ".b"])
@pytest.mark.parametrize("size", [0, 1, 511, 8**11 - 1, 8**11])
def test_headers_of_raw_records_are_those_of_tarfile(name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size

    assert _header(name, size) == info.tobuf(tarfile.PAX_FORMAT)


def test_a_sample_that_cannot_be_decoded_is_a_bad_record_alone(tmp_path: Path) -> None:
    members = [
        ("1.json", b"{"),
        ("2.json", b"1"),
        ("3.txt", b"\xff"),
        ("4.cls", b"x"),
        ("5.jpg", b"a"),
        ("5.jpg", b"b"),
        ("6.json", b'{"score": 1e400}'),
    ]
    (tmp_path / "x.tar").write_bytes(archive(members))

    found, bad = records(Tar(tmp_path))

    assert found == [{"__key__": "2", "json": 1}]
    output = [str(row.error) for row in bad]
    assert re.match(r"1\.json of x\.tar cannot be decoded: JSONDecodeError: Expecting property name", output[0])
    assert re.match(
        r"3\.txt of x\.tar cannot be decoded: ValueError: expected text in UTF-8, found byte 0xff at byte 0", output[1]
    )
    assert (
        output[2].startswith("4.cls of x.tar holds b'") and "a .cls is the number of a class. Put the name" in output[2]
    )
    assert output[3] == "the sample '5' has two members with the extension 'jpg', expected one of each"
    assert (
        output[4]
        == "6.json of x.tar cannot be decoded: ValueError: expected a number in the range of float64, got 1e400"
    )
    assert [row.record_id for row in bad] == [f"x.tar@{at}" for at in (0, 2048, 3072, 4096, 6144)]


def test_what_is_not_an_archive_or_breaks_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(archive(samples(5))[:3000])
    with pytest.raises(
        SourceError, match=r"input x\.tar is not a tar archive, or is damaged or truncated, at or after byte \d+"
    ):
        records(Tar(tmp_path))
    (tmp_path / "x.tar").write_bytes(b"no archive" * 1000)
    with pytest.raises(
        SourceError, match=r"input x\.tar is not a tar archive, .* Create or download it again, or leave it out"
    ):
        records(Tar(tmp_path), target=1000)
    (tmp_path / "x.tar").write_bytes(archive(samples(5)))
    with pytest.raises(
        SourceError, match=r"a sample of \d+ bytes or more at byte 0 \('train/00000'\), expected at most"
    ):
        records(Tar(tmp_path, max_record_bytes=50))


@pytest.mark.parametrize("target", [1 << 30, 2000])
@pytest.mark.parametrize("damage", ["bytes", "cut"])
def test_no_samples_are_lost_without_a_word_where_a_later_header_is_damaged(
    tmp_path: Path, damage: str, target: int
) -> None:
    """`tarfile` takes such a header for the end of the archive."""
    whole = archive(samples(5))
    place = whole.index(b"train/00003.jpg")
    broken = whole[:place] + b"\x55" * 512 + whole[place + 512 :] if damage == "bytes" else whole[: place + 100]
    (tmp_path / "x.tar").write_bytes(broken)

    with pytest.raises(SourceError, match=r"damaged or truncated, at or after byte \d+: (invalid|bad|truncated)"):
        records(Tar(tmp_path), target=target)


def test_an_archive_that_follows_another_is_not_left_out_without_a_word(tmp_path: Path) -> None:
    first = archive(samples(2))
    (tmp_path / "x.tar").write_bytes(first + archive(samples(2, prefix="b/")))
    end = len(first.rstrip(b"\0")) // 512 * 512 + 512

    with pytest.raises(
        SourceError, match=rf"goes on after the end of its archive, which is at byte {end + 512}: it may"
    ):
        records(Tar(tmp_path))

    (tmp_path / "x.tar").write_bytes(first + bytes(1 << 21))
    assert len(records(Tar(tmp_path))[0]) == 2


@pytest.mark.parametrize("target", [1 << 30, 2000])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_an_archive_that_was_cut_between_two_members_is_not_taken_for_a_whole_one(
    tmp_path: Path, suffix: str, target: int
) -> None:
    """GNU tar and `tarfile` read such an archive without a word."""
    whole = archive(samples(5))
    end = whole.index(b"train/00003.jpg")
    assert len(tarfile.open(fileobj=io.BytesIO(whole[:end])).getnames()) == 6
    path = tmp_path / f"x y{suffix}"
    pack = gzip.compress if suffix == ".tar.gz" else bytes

    path.write_bytes(pack(whole[:end]))
    with pytest.raises(
        SourceError, match=rf"input x y.* breaks off at byte {end}, after a member: the zeros are"
    ) as caught:
        records(Tar(path), target=target)

    path.write_bytes(pack(whole[:end] + bytes(512)))  # as GNU tar, which warns of a lone block of zeros
    assert len(records(Tar(path), target=target)[0]) == 3
    if suffix == ".tar":
        path.write_bytes(whole[:end])
        subprocess.run(str(caught.value).partition("append them: ")[2], shell=True, check=True)
        assert len(records(Tar(path), target=target)[0]) == 3


def test_members_that_are_no_part_of_a_sample_are_counted(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, kind in [
            ("a", tarfile.DIRTYPE),
            ("a/1.jpg", tarfile.REGTYPE),
            ("a/2.jpg", tarfile.LNKTYPE),
            ("a/3.jpg", tarfile.SYMTYPE),
            ("a/README", tarfile.REGTYPE),
            ("a/._1.jpg", tarfile.REGTYPE),
            (".DS_Store", tarfile.REGTYPE),
            ("pipe", tarfile.FIFOTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a/1.jpg"
            tar.addfile(info)
    with tarfile.open(tmp_path / "y.tar", "w") as tar:
        info = tarfile.TarInfo("only.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, "a/1.jpg"
        tar.addfile(info)

    result = build(
        declare(
            "links", Tar(tmp_path), [lambda sample: {"key": sample["__key__"]}], features={"key": FeatureSpec("str")}
        ),
        to=tmp_path / "cache",
        workers=1,
    )

    account = result.account.units["source"]
    assert (account.inputs, account.outputs) == (1, 1)
    assert account.partly_dropped == {"link": 3, "no_suffix": 1, "hidden": 2, "special": 1}
    shown = Console(file=io.StringIO(), width=200)
    shown.print(account_table(result.account))
    assert "left out: hidden 2, link 3, no_suffix 1, special 1" in shown.file.getvalue()  # type: ignore[attr-defined]
    batches = [b for s in Tar(tmp_path).plan(target_shard_bytes=1 << 20).shards for b in Tar(tmp_path).read(s)]
    assert [pickle.loads(pickle.dumps(batch)).left_out for batch in batches] == [batch.left_out for batch in batches]


@pytest.mark.parametrize(
    ("option", "words"), [({"decode": 1}, "decode should be"), ({"max_record_bytes": 0}, "max_re")]
)
def test_options_are_checked(tmp_path: Path, option: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        Tar(tmp_path, **option)


def labelled(sample: dict) -> dict:  # type: ignore[type-arg]
    return {"key": sample["__key__"], "label": sample["json"]["label"], "size": len(sample["jpg"])}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_build_from_archives_keeps_what_is_bad_as_dead_letters(tmp_path: Path, workers: int) -> None:
    for number in range(3):
        broken = [("bad.json", b"{"), ("bad.jpg", b"x")] if number == 1 else []
        members = samples(20, prefix=f"{number}/") + broken
        (tmp_path / f"{number}.tar").write_bytes(archive(members))

    build(
        "tars",
        Tar(tmp_path, pattern="*.tar"),
        [labelled],
        to=tmp_path / "cache",
        options=LocalOptions(workers=workers),
        splits={"train": 1.0},
        on_error="dead_letter",
    )

    cache = Cache.open(tmp_path / "cache", verify=True)
    (letter,) = cache.dead_letters()
    assert "bad.json of " in letter.message
    keys = [key for batch in Loader(tmp_path / "cache" / "train", batch_size=20) for key in batch["key"].tolist()]
    assert sorted(keys) == sorted(f"{number}/{sample:05d}" for number in range(3) for sample in range(20))
