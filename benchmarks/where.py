"""`split.where(…)` over many records: seconds and the peak of memory, each time in a fresh process.

    python -m benchmarks.where --json where.json                     (10^8 records; 7 GB of temporary files)
    python -m benchmarks.where --records 1000000 --repeats 1         (seconds)

The cache is what a build of one scalar feature, `score` (float32), publishes: TFRecord files with their checksums,
indexes, a manifest. NumPy makes a million records of it at once. The score of record `i` is
`(2654435761 · i mod 2^32) / 2^32`, so that the number of records that meet a condition is known, and checked.

`anonymous_mb`: the peak of memory that the system cannot reclaim, minus that of the open cache. Pages of mapped files
(`mapped_mb`) are extra and are reclaimed when needed. Each remaining record costs 4 bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.format.framing import HEADER_BYTES, header_of
from beam_pipes.format.index import ORDINAL, encode_index, index_checksum, index_path
from beam_pipes.format.layout import ShardEntry
from benchmarks import harness

CODEC = ExampleCodec(ExampleSpec({"score": FeatureSpec("float32")}))
SHARD_RECORDS, SNAPSHOT = 1 << 20, "0" * 16
SHARES = (0.001, 0.5, 1.0)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, default=100_000_000, help="records of the split [100,000,000]")
    parser.add_argument("--directory", help="where the temporary files go [the system's temporary directory]")
    parser.add_argument("--filter", nargs=2, metavar=("CACHE", "SHARE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.filter:
        print(json.dumps(filtered(Path(options.filter[0]), float(options.filter[1]))))
        return {}
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-", dir=options.directory))
    try:
        write_cache(work / "cache", options.records)
        results: dict[str, Any] = {"records": options.records}
        results["cache_mb"] = sum(path.stat().st_size for path in work.rglob("*") if path.is_file()) // 10**6
        for share in SHARES:
            child = ["-m", "benchmarks.where", "--filter", str(work / "cache"), str(share)]
            runs = [json.loads(harness.run_measured(child).output) for _ in range(options.repeats)]
            results[f"where_{share:g}"] = min(runs, key=lambda run: float(run["secs"]))
        harness.report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


def scores(first: int, count: int) -> npt.NDArray[np.float32]:
    """(count,): the scores of records, which are the same in every order of execution."""
    numbers = np.arange(first, first + count, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32)
    made: npt.NDArray[np.float32] = (numbers / (1 << 32)).astype(np.float32)
    return made


def write_cache(path: Path, records: int) -> None:
    """The cache: every record is one that the codec encodes, with another value in its place."""
    directory = Path(snapshot_directory(path, SNAPSHOT))
    directory.mkdir(parents=True)
    shards = -(-records // SHARD_RECORDS)
    entries = []
    for number in range(shards):
        first = number * SHARD_RECORDS
        values = scores(first, min(SHARD_RECORDS, records - first))
        file = shard_file_name("benchmark", "train", number, shards)
        entries.append(write_shard(directory, file, values))
    train = SplitManifest.from_entries(entries, spec=CODEC.spec)
    publish(path, Manifest(name="benchmark", snapshot=SNAPSHOT, splits={"train": train}))
    if Cache.open(path)["train"][records - 1]["score"] != scores(records - 1, 1)[0]:  # checks a record's checksums
        raise AssertionError("the last record is another one")


def write_shard(directory: Path, file: str, values: npt.NDArray[np.float32]) -> ShardEntry:
    payload = np.frombuffer(CODEC.encode({"score": np.float32(0)}), np.uint8)
    assert CODEC.fixed_layout is not None
    start, size = CODEC.fixed_layout.fields["score"]
    frames = np.empty((len(values), CODEC.fixed_layout.stride), np.uint8)
    frames[:, :HEADER_BYTES] = np.frombuffer(header_of(len(payload)), np.uint8)
    body = frames[:, HEADER_BYTES : HEADER_BYTES + len(payload)]
    body[:] = payload
    body[:, start : start + size] = values.view(np.uint8).reshape(-1, size)
    crc = _crc32c(body)
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    frames[:, HEADER_BYTES + len(payload) :] = masked.view(np.uint8).reshape(-1, 4)
    data = frames.tobytes()
    (directory / file).write_bytes(data)
    index = encode_index({ORDINAL: np.arange(len(values), dtype=np.uint64)})
    Path(index_path(str(directory / file))).write_bytes(index)
    return ShardEntry(
        file=file,
        records=len(values),
        bytes=len(data),
        crc32c=google_crc32c.value(data),
        index_crc32c=index_checksum(index),
        layout=CODEC.fixed_layout,
    )


def _crc32c(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """(n,): the checksum of each row, all rows at once, byte by byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    return ~crc


def filtered(path: Path, share: float) -> dict[str, Any]:
    """One `where` in this process."""
    split = Cache.open(path)["train"]
    len(split)
    before, peak, done = harness.anonymous_bytes(), [0, 0], threading.Event()

    def sample() -> None:
        while not done.wait(0.02):
            anonymous = harness.anonymous_bytes()
            peak[0] = max(peak[0], anonymous - before)
            peak[1] = max(peak[1], harness.resident_bytes() - anonymous)

    sampler = threading.Thread(target=sample)
    sampler.start()
    started, cpu = time.perf_counter(), time.process_time()
    found = split.where(f"score < {share}")
    secs, cpu_secs = time.perf_counter() - started, time.process_time() - cpu
    done.set()
    sampler.join()
    expected = sum(
        int((scores(first, min(SHARD_RECORDS, len(split) - first)) < share).sum())
        for first in range(0, len(split), SHARD_RECORDS)
    )
    if len(found) != expected:
        raise AssertionError(f"{len(found)} records meet the condition, expected {expected}")
    return {
        "secs": round(secs, 2),
        "cpu_secs": round(cpu_secs, 2),
        "left": len(found),
        "anonymous_mb": peak[0] // 10**6,
        "mapped_mb": peak[1] // 10**6,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
