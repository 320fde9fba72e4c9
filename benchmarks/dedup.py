"""Deduplication: text per second into accumulators; seconds and memory of merging digests and signatures.

    python -m benchmarks.dedup --records 10000000 --near-records 1000000 --json dedup.json

Merging is measured in a process of its own, over accumulators made of random digests and signatures, a fifth of which
repeat others (near ones with a twentieth of their numbers changed). `peak_bytes` is its peak resident memory beyond
that after its imports; `secs` is its CPU time; `to_tenth` is the peak over that of a tenth of the records.

`extrapolated` is not measured: it is the cost of `--at` records if memory grows linearly through both sizes, and time
as a power of the number of records, at least the first.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.analysis import Analyzer
from beam_pipes.transforms.dedup import ExactDuplicates, NearDuplicates, plain_text
from beam_pipes.transforms.dedup.exact import DIGESTS
from beam_pipes.transforms.dedup.likeness import band_digests
from beam_pipes.transforms.dedup.row_file import Column, RowWriter
from benchmarks import harness

SHARD_RECORDS = 250_000
REPEATED = 0.2
CHANGED = 0.05

_MERGE = """
import json, sys, time
from benchmarks.dedup import ANALYZERS, peak_resident_bytes
analyzer = ANALYZERS[sys.argv[1]]
before = peak_resident_bytes()
started = time.process_time()
analyzer.merge(sys.argv[3:], sys.argv[2])
secs = time.process_time() - started
peak = peak_resident_bytes() - before
duplicates = analyzer.read(sys.argv[2])
print(json.dumps({"secs": round(secs, 2), "peak_bytes": peak, "removed": len(duplicates)}))
"""

ANALYZERS: dict[str, Analyzer] = {"exact": ExactDuplicates("exact"), "near": NearDuplicates("near")}


def write_exact(directory: Path, records: int) -> list[str]:
    """Accumulators of random digests."""
    rng = np.random.Generator(np.random.PCG64(1))
    distinct = max(1, int(records * (1 - REPEATED)))
    paths: list[str] = []
    for first in range(0, records, SHARD_RECORDS):
        count = min(SHARD_RECORDS, records - first)
        numbers = np.arange(first, first + count)
        repeats = numbers >= distinct
        numbers[repeats] = rng.integers(0, distinct, int(repeats.sum()))
        words = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(32)
        words *= np.uint64(0xBF58476D1CE4E5B9)
        writer = RowWriter(DIGESTS, owner="exact")
        _add(writer, first, count, {DIGESTS.name: np.stack([words, ~words], axis=1)})
        paths.append(_save(writer, directory, len(paths)))
    return paths


def write_near(directory: Path, records: int) -> list[str]:
    """Accumulators of random signatures; repeated ones repeat one of the same source shard."""
    near = NearDuplicates("near")
    count = near.bands * near.rows
    rng = np.random.Generator(np.random.PCG64(2))
    paths: list[str] = []
    for first in range(0, records, SHARD_RECORDS // 10):
        rows = min(SHARD_RECORDS // 10, records - first)
        signatures = rng.integers(0, 2**32, (rows, count), np.uint32)
        distinct = max(1, int(rows * (1 - REPEATED)))
        signatures[distinct:] = signatures[rng.integers(0, distinct, rows - distinct)]
        changed = rng.random((rows - distinct, count)) < CHANGED
        signatures[distinct:][changed] = rng.integers(0, 2**32, int(changed.sum()), np.uint32)
        writer = RowWriter(
            Column("bands", "<u8", 1 + near.bands, by_value=True), Column("signatures", "<u4", count), owner="near"
        )
        bands = band_digests(signatures, bands=near.bands, rows=near.rows)
        _add(writer, first, rows, {"signatures": signatures, "bands": bands})
        paths.append(_save(writer, directory, len(paths)))
    return paths


def _add(writer: RowWriter, first: int, count: int, columns: dict[str, np.ndarray[Any, Any]]) -> None:
    step = 10_000
    for start in range(0, count, step):
        ids = [f"part.txt@{first + number}" for number in range(start, min(start + step, count))]
        writer.add(ids, {name: column[start : start + step] for name, column in columns.items()})


def _save(writer: RowWriter, directory: Path, number: int) -> str:
    path = directory / f"accumulator-{number:05d}"
    writer.save(str(path))
    return str(path)


def merging(kind: str, records: int) -> dict[str, Any]:
    """Seconds, peak of memory and rows of one merge."""
    directory = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        paths = (write_exact if kind == "exact" else write_near)(directory, records)
        stored = sum(Path(path).stat().st_size for path in paths)
        measured = harness.run_measured(["-c", _MERGE, kind, str(directory / "result"), *paths])
        figures = json.loads(measured.output)
        return {"records": records, "accumulator_bytes_per_record": round(stored / records, 1), **figures}
    finally:
        shutil.rmtree(directory)


def extrapolated(tenth: dict[str, Any], whole: dict[str, Any], records: int) -> dict[str, float]:
    """The extrapolated cost of a merge of this many records, from two measured merges.

    10^5 records in 1 s and 10 MB, 10^6 in 12 s and 28 MB → 10^8 in 12 · 100^1.079 = 1,728 s and 2,008 MB.
    """
    slope = max(0.0, (whole["peak_bytes"] - tenth["peak_bytes"]) / (whole["records"] - tenth["records"]))
    growth = math.log(max(whole["secs"], 0.01) / max(tenth["secs"], 0.01))
    power = max(1.0, growth / math.log(whole["records"] / tenth["records"]))
    return {
        "records": records,
        "peak_bytes": round(whole["peak_bytes"] + slope * (records - whole["records"])),
        "secs": round(whole["secs"] * (records / whole["records"]) ** power),
        "accumulator_bytes": round(whole["accumulator_bytes_per_record"] * records),
    }


def accumulating(num_bytes: int, *, repeats: int) -> dict[str, float]:
    """Megabytes of text per second and core: lines of 20 to 200 words, in batches of 256."""
    rng = np.random.Generator(np.random.Philox(key=0))
    words = [f"{word:x}" for word in rng.integers(0, 2**24, 5_000)]
    texts: list[str] = []
    size = 0
    while size < num_bytes:
        texts.append(" ".join(words[index] for index in rng.integers(0, 5_000, rng.integers(20, 200))))
        size += len(texts[-1]) + 1
    ids = [f"part.txt@{number}" for number in range(len(texts))]

    def run(analyzer: Analyzer) -> float:
        started = time.process_time()
        accumulator = analyzer.accumulator()
        for start in range(0, len(texts), 256):
            accumulator.add(texts[start : start + 256], ids[start : start + 256])
        return time.process_time() - started

    analyzers = {**ANALYZERS, "exact_plain_text": ExactDuplicates("plain", normalize=plain_text)}
    return {
        f"{name}_mb_per_sec": round(size / 1e6 / min(run(analyzer) for _ in range(repeats)), 1)
        for name, analyzer in analyzers.items()
    }


def peak_resident_bytes() -> int:
    """The peak resident memory of this process so far."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmHWM"].split()[0]) * 1024


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="digests to merge [10,000,000]")
    parser.add_argument("--near-records", type=int, default=1_000_000, help="signatures to merge [1,000,000]")
    parser.add_argument("--bytes", type=int, default=20_000_000, help="text for accumulators [20 MB]")
    parser.add_argument("--at", type=int, default=100_000_000, help="records to extrapolate to [100,000,000]")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = accumulating(options.bytes, repeats=options.repeats)
    for kind, records in (("exact", options.records), ("near", options.near_records)):
        tenth, whole = merging(kind, max(1, records // 10)), merging(kind, records)
        results[kind] = {**whole, "to_tenth": round(whole["peak_bytes"] / max(1, tenth["peak_bytes"]), 2)}
        results[kind]["extrapolated"] = extrapolated(tenth, whole, options.at)
    harness.report(results, options.json)
    return results


if __name__ == "__main__":
    main()
