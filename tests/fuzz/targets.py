"""Fuzz targets: every parser that reads a file from outside, as a function of the file's bytes.

A target takes any bytes and either returns or raises an exception of ours (`BeamPipesError`); whatever else comes out
is a finding. Where a checksum would turn every mutation away, a target also repairs it: who makes a file on purpose
does the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from beam_pipes.building.completion import read_completion
from beam_pipes.building.declaration_fingerprint import read_fingerprint
from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    SplitManifest,
    publish,
    read_records,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.cache.split import Split
from beam_pipes.errors import BeamPipesError
from beam_pipes.format.framing import check_frame, masked_crc32c, scan_records
from beam_pipes.format.index import decode_index, index_checksum, index_path
from beam_pipes.lineage.lineage import LineageWriter, decode_lineage
from beam_pipes.lineage.reader import DEAD_LETTER_CODEC, DeadLetter
from beam_pipes.lineage.takedown import Overlay, Takedown
from beam_pipes.loader import Loader, LoaderState, PackingPlan, pack
from beam_pipes.loader.from_state import loader_from_state
from beam_pipes.sources import CSV, JSONLines, Parquet, TextLines, TFRecords
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import storage_for

Target = Callable[[bytes], None]

GOLDEN = Path(__file__).parents[1] / "golden" / "cache_v1"
RAGGED = ExampleSpec(
    {
        "tokens": FeatureSpec("int32", shape=(None,)),
        "text": FeatureSpec("str"),
        "box": FeatureSpec("float32", shape=(None, None)),
        "list": FeatureSpec("int64", shape=(None,), encoding="list"),
        "flag": FeatureSpec("bool"),
    }
)
FIXED = ExampleSpec({"x": FeatureSpec("uint8", shape=(3,)), "y": FeatureSpec("float64")})
_CODECS = (ExampleCodec(RAGGED), ExampleCodec(FIXED))


@functools.cache
def scratch() -> Path:
    """A directory in memory where there is one; removed at exit, or by who has named it: libFuzzer exits at once."""
    import atexit

    if given := os.environ.get("BEAM_PIPES_FUZZ_SCRATCH"):
        return Path(given)
    made = Path(tempfile.mkdtemp(prefix="beam_pipes-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def example(number: int) -> dict[str, Any]:
    return {
        "tokens": np.arange(number % 5, dtype=np.int32) + number,
        "text": "ü" * (number % 3),
        "box": np.ones((number % 2, number % 4), np.float32),
        "list": np.arange(number % 3, dtype=np.int64) - 1,
        "flag": number % 2 == 0,
    }


@functools.cache
def small_cache() -> Cache:
    """A cache of 12 ragged examples in two shards."""
    path = scratch() / "small"
    directory = snapshot_directory(path, "0123456789abcdef")
    os.makedirs(directory)
    entries = []
    for shard in range(2):
        with ShardWriter(directory, shard_file_name("small", "train", shard, 2), codec=_CODECS[0]) as writer:
            for number in range(6):
                writer.write(example(6 * shard + number), number)
            entries.append(writer.commit())
    splits = {"train": SplitManifest.from_entries(entries, spec=RAGGED)}
    publish(path, Manifest(name="small", snapshot="0123456789abcdef", splits=splits))
    return Cache.open(path)


def _file(name: str, data: bytes) -> Path:
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _ours(function: Callable[[], Any]) -> None:
    """Runs one of several attempts of a target."""
    with contextlib.suppress(BeamPipesError):
        function()


def _read_all(cache: Cache) -> None:
    for name in cache.splits:

        def read(name: str = name) -> None:
            split = cache[name]
            count = min(len(split), 64)
            _ours(lambda: [split[index] for index in range(count)])
            _ours(lambda: list(_first(split, 64)))
            _ours(lambda: split.gather(range(count)))
            _ours(lambda: split.gather(range(count), ragged="values"))
            _ours(lambda: split.source_ordinals if len(split) < 1000 else None)
            _ours(lambda: split.views(0))
            _ours(split.close)

        _ours(read)
    _ours(lambda: list(cache.dead_letters()))
    _ours(lambda: cache.lineage)
    _ours(lambda: cache.asset_path("x"))


def _first(split: Split, count: int) -> Iterator[Any]:
    for value, _ in zip(split, range(count), strict=False):
        yield value


# The targets


def manifest(data: bytes) -> None:
    Manifest.from_bytes(data).to_bytes()


def cache(data: bytes) -> None:
    """A manifest over the shards of the golden cache, and everything that it leads to."""
    root = scratch() / "golden"
    if not root.exists():
        shutil.copytree(GOLDEN, root)
    made = Manifest.from_bytes(data, path="manifest.json")
    home = os.path.realpath(root)
    directory = snapshot_directory(root, made.snapshot)
    for split, entry in made.splits.items():
        for shard in range(min(len(entry.numbers), 4)):
            path = os.path.realpath(os.path.join(directory, entry.file_name(made.name, split, shard)))
            assert path.startswith(home + os.sep), f"a shard outside of the cache: {path}"
    for other in (*made.assets, *made.dead_letters):
        path = os.path.realpath(os.path.join(directory, *other.file.split("/")))
        assert path.startswith(home + os.sep), f"a file outside of the cache: {path}"
    _read_all(Cache(str(root), directory, made))


def index(data: bytes) -> None:
    _ours(lambda: decode_index(data, path="index"))
    body = data[:-8]
    decode_index(body + struct.pack("<I4s", google_crc32c.value(body), b"xdni"), path="index")


def gather(data: bytes) -> None:
    """An index whose numbers were changed, its checksum and the manifest's made to fit: nothing outside is read."""
    whole = small_cache()
    entry = whole.manifest.splits["train"]
    directory = scratch() / "gather"
    if not directory.exists():
        shutil.copytree(whole.directory, directory)
    original = Path(index_path(os.path.join(whole.directory, entry.file_name("small", "train", 0)))).read_bytes()
    made = bytearray(original)
    start = 64 * ((len(original) // 64) // 3)
    for at in range(0, len(data) - 1, 2):
        made[start + data[at] % (len(made) - start - 8)] ^= data[at + 1]
    made[-8:-4] = struct.pack("<I", google_crc32c.value(bytes(made[:-8])))
    Path(index_path(str(directory / entry.file_name("small", "train", 0)))).write_bytes(made)
    checksums = [index_checksum(bytes(made)), *entry.index_crc32c[1:]]
    changed = dataclasses.replace(whole.manifest, splits={"train": dataclasses.replace(entry, index_crc32c=checksums)})
    split = Split(whole.path, str(directory), changed, "train")
    for number in range(12):
        _ours(lambda number=number: split[number])  # type: ignore[misc]
        _ours(lambda number=number: split.gather([number]))  # type: ignore[misc]
    _ours(lambda: split.gather(range(12), ragged="values"))
    _ours(lambda: split.lengths("tokens"))


def framing(data: bytes) -> None:
    if len(data) >= 16:
        header, payload = data[:8], data[12:-4]
        framed = header + struct.pack("<I", masked_crc32c(header)) + payload
        framed += struct.pack("<I", masked_crc32c(payload))
        _ours(lambda: check_frame("x", 0, framed))
        _ours(lambda: list(read_records(_file("framing/x.tfrecord", framed))))
    path = _file("framing/x.tfrecord", data)
    _ours(lambda: list(scan_records(path)))
    _ours(lambda: check_frame("x", 0, data))
    list(read_records(path))


def codec(data: bytes) -> None:
    for each in _CODECS:
        _ours(lambda each=each: each.encode(each.decode(data)))  # type: ignore[misc]


def text(data: bytes) -> None:
    _source(TextLines, "text/x.txt", data)
    _source(TextLines, "text/x.txt", data, errors="replace", strip_newline=False)


def json_lines(data: bytes) -> None:
    _source(JSONLines, "jsonl/x.jsonl", data)
    _source(JSONLines, "jsonl/x.jsonl", data, schema={"a": int, "b": [float], "c": str})


def csv(data: bytes) -> None:
    _source(CSV, "csv/x.csv", data)
    _source(CSV, "csv/x.csv", data, schema={"a": int, "b": float}, quoted_newlines=False)
    _source(CSV, "csv/x.csv", data, columns=["a", "b"], header=False)


def tfrecords(data: bytes) -> None:
    _source(TFRecords, "tfrecords/x.tfrecord", data, max_record_bytes=1 << 20)
    framed = b""
    for payload in data.split(b"||"):
        header = struct.pack("<Q", len(payload))
        framed += header + struct.pack("<I", masked_crc32c(header)) + payload
        framed += struct.pack("<I", masked_crc32c(payload))
    _source(TFRecords, "tfrecords/x.tfrecord", framed, message=RAGGED)


def compressed(data: bytes) -> None:
    for suffix in ("gz", "bz2", "zst"):
        _source(TextLines, f"compressed-{suffix}/x.txt.{suffix}", data)


def parquet(data: bytes) -> None:
    _source(Parquet, "parquet/x.parquet", data)


def _source(kind: Any, name: str, data: bytes, **options: Any) -> None:
    path = _file(name, data)

    def read() -> None:
        source = kind(str(path.parent), **options)
        for target in (1 << 20, 8):
            plan = source.plan(target_shard_bytes=target)
            for shard in plan.shards[:8]:
                for batch in source.read(shard, batch_records=4, batch_bytes=1 << 20):
                    batch.places()
                    for number in range(len(batch)):
                        source.parse(batch.raw(number), file=batch.file(number), position=batch.position(number))

    _ours(read)


def completion(data: bytes) -> None:
    file = str(_file("completion/00000-of-00001.json", data))
    read_completion(storage_for(file), file)


def sidecars(data: bytes) -> None:
    """The files beside a manifest that readers may ask for."""
    directory = scratch() / "sidecars"
    for name in ("fingerprint.json", "build.json"):
        _file(f"sidecars/{name}", data)
    _ours(lambda: read_fingerprint(str(directory)))
    made = Cache(str(directory), str(directory), small_cache().manifest)
    _ours(lambda: made.build_info)


def dead_letters(data: bytes) -> None:
    DeadLetter.from_example(DEAD_LETTER_CODEC.decode(data))


def loader_state(data: bytes) -> None:
    state = LoaderState.from_json(data)
    _ours(lambda: LoaderState.from_json(state.to_json()))
    _ours(lambda: loader_from_state(state, [small_cache().path], batch_size=2))
    loader = Loader(small_cache()["train"], batch_size=2, seed=min(state.seed, 2**64 - 1), epochs=None)
    known = loader.state
    moved = dataclasses.replace(known, epoch=state.epoch, position=state.position, takedown=state.takedown)
    loader.restore(moved)
    loader.batch_at(0)


def packing_plan(data: bytes) -> None:
    split = small_cache()["train"]
    _ours(lambda: PackingPlan.load(_file("plan/x.plan", data)))
    repaired = data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little")
    plan = PackingPlan.load(_file("plan/x.plan", repaired), split)
    loader = Loader(plan, batch_size=1, last="partial")
    for step in range(min(len(loader), 8)):
        _ours(lambda step=step: loader.batch_at(step))  # type: ignore[misc]


def takedown(data: bytes) -> None:
    _ours(lambda: Overlay.from_bytes(data, path="takedown.json"))
    try:
        content = json.loads(data)
        content.pop("crc32c", None)
        repaired = canonical_json({**content, "crc32c": google_crc32c.value(canonical_json(content))})
    except Exception:
        return  # no JSON object: seen above
    Overlay.from_bytes(repaired, path="takedown.json").to_bytes()


def lineage(data: bytes) -> None:
    _ours(lambda: decode_lineage(data, path="lineage"))
    body = data[:-4]
    made = decode_lineage(body + struct.pack("<I", google_crc32c.value(body)), path="lineage")
    for ordinal in range(min(len(made), 16)):
        made.record_id(ordinal)
        made.fate(ordinal)
    for file in made.files[:4]:
        made.ordinals_at(file, np.array([0, 5], np.uint64))


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        manifest,
        cache,
        index,
        gather,
        framing,
        codec,
        text,
        json_lines,
        csv,
        tfrecords,
        compressed,
        parquet,
        completion,
        sidecars,
        dead_letters,
        loader_state,
        packing_plan,
        takedown,
        lineage,
    )
}


def run(name: str, data: bytes) -> None:
    """One input through one target; raises what is not ours to raise."""
    _ours(lambda: TARGETS[name](data))


def seeds() -> dict[str, list[bytes]]:
    """Well-formed inputs of every target, made anew; `corpus/` holds them, and whatever once broke a parser."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    from beam_pipes.building.completion import Completion, LineageEntry
    from beam_pipes.engine.account import Account
    from beam_pipes.sources.source import Slice

    whole = small_cache()
    entry = whole.manifest.splits["train"]
    shard = Path(whole.directory, entry.file_name("small", "train", 0))
    plan = pack(whole["train"], sequence_length=8, feature="tokens")
    plan.save(scratch() / "seed.plan")
    table = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", None], "c": [[1.0], []]}), table)
    writer = LineageWriter()
    writer.add([("a.txt", [0, 5, 9]), ("b.txt", [3])], {}, bytes(range(32)))
    letter = DeadLetter(
        record=b"r", source="a", position=1, ordinal=0, stage="S", error_type="E", message="m", traceback="t"
    )
    gone = Takedown(number=1, at="now", by="me", reason="r", ids=("a.txt@5", "b.txt"), gone="then", next_build=True)
    overlay = Overlay(
        revision=1,
        takedowns=(gone.with_contents({"b.txt": np.array([3, 1 << 63], np.uint64)}),),
        rows={"0123456789abcdef": {"train": np.array([1, 2, 5])}},
    )
    done = Completion(
        index=0,
        fingerprint="ab",
        source=(Slice(file="a", start=0, end=3, digest="00"),),
        entries={},
        dead_letters=None,
        lineage=LineageEntry(bytes=1, crc32c=2),
        account=Account(),
    )
    manifest_bytes = whole.manifest.to_bytes()
    return {
        "manifest": [manifest_bytes, (GOLDEN / "manifest.json").read_bytes()],
        "cache": [(GOLDEN / "manifest.json").read_bytes()],
        "index": [Path(index_path(str(shard))).read_bytes()],
        "gather": [b"\x01\x02\x80\xff", bytes(range(64))],
        "framing": [shard.read_bytes(), b"\0" * 16],
        "codec": [_CODECS[0].encode(example(7)), _CODECS[1].encode({"x": np.zeros(3, np.uint8), "y": 1.0})],
        "text": [b"one\r\n\ntwo\xff\n", b"\xef\xbb\xbfx"],
        "json_lines": [b'{"a": 1, "b": [1.5], "c": "x"}\n\n{"a": 2}\n'],
        "csv": [b'a,b\n1,2.5\n"3\n",4\n', b"a,b\r\n\r\n1,\n"],
        "tfrecords": [_CODECS[0].encode(example(3)) + b"||" + _CODECS[0].encode(example(4)), shard.read_bytes()[:120]],
        "compressed": [zlib.compress(b"x\ny\n", wbits=31)],
        "parquet": [table.getvalue()],
        "completion": [json.dumps(done.to_json()).encode()],
        "sidecars": [b'{"digest":"d","options":{},"stages":{"S":{"digest":"e","parts":{"a":"b"}}}}'],
        "dead_letters": [DEAD_LETTER_CODEC.encode(letter.to_example())],
        "loader_state": [Loader(whole["train"], batch_size=2, seed=3).get_state()],
        "packing_plan": [(scratch() / "seed.plan").read_bytes()],
        "takedown": [overlay.to_bytes()],
        "lineage": [writer.to_bytes()],
    }
