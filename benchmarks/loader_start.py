"""Time to the first batch, and to restore, on a cache of 10^9 records in 10^5 shards. Only the manifest is real.

    python -m benchmarks.loader_start --json loader_start.json

The manifest describes records of a fixed layout. One shard exists; the others are links to it, so that the first batch
of a global shuffle opens about 32 of 10^5 files. Each phase is a fresh process: `open` reads and checks the manifest,
`first_batch` opens, makes a loader and takes one globally shuffled batch, `restore` does the same from a state in the
middle of the second epoch. Imports are outside of the seconds; peak memory is of the whole process.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness

WIDTH = 16


def write_synthetic_cache(path: Path, records: int, shards: int) -> None:
    """A published manifest of `records` records in `shards` shards, all links to one file."""
    import numpy as np

    from beam_pipes.cache import (
        ExampleCodec,
        ExampleSpec,
        FeatureSpec,
        Manifest,
        ShardWriter,
        SplitManifest,
        publish,
        shard_file_name,
        snapshot_directory,
    )

    spec = ExampleSpec({"tokens": FeatureSpec("int32", shape=(WIDTH,))})
    per_shard = records // shards
    snapshot = "0" * 16
    directory = Path(snapshot_directory(path, snapshot))
    directory.mkdir(parents=True)
    first = shard_file_name("synthetic", "train", 0, shards)
    with ShardWriter(directory, first, codec=ExampleCodec(spec)) as writer:
        for ordinal in range(per_shard):
            writer.write({"tokens": np.full(WIDTH, ordinal, np.int32)}, ordinal=ordinal)
        entry = writer.commit()
    train = SplitManifest(
        kind="example",
        spec=spec,
        shard_count=shards,
        numbers=list(range(shards)),
        records=[per_shard] * shards,
        bytes=[entry.bytes] * shards,
        crc32c=[entry.crc32c] * shards,
        index_crc32c=[entry.index_crc32c] * shards,
        layout=entry.layout,
    )
    for number in range(1, shards):
        os.symlink(first, directory / shard_file_name("synthetic", "train", number, shards))
    publish(path, Manifest(name="synthetic", snapshot=snapshot, splits={"train": train}))


def child(phase: str, path: str) -> None:
    """One phase in this process; prints its seconds."""
    from beam_pipes.cache import Cache
    from beam_pipes.loader import Loader

    before = harness.anonymous_bytes()
    started = time.perf_counter()
    split = Cache.open(path)["train"]
    figures: dict[str, Any] = {"records": len(split)}
    if phase != "open":
        loader = Loader(split, batch_size=32, seed=1, epochs=2)
        if phase == "restore":
            position = len(split) // 64 * 32
            loader.load_state_dict({**loader.state_dict(), "epoch": 1, "position": position})
        batch = next(iter(loader))["tokens"]
        figures["secs"] = time.perf_counter() - started
        if batch.shape != (32, WIDTH) or (batch != batch[:, :1]).any():
            raise AssertionError(f"unexpected batch {batch}")
        figures["state_bytes"] = len(loader.get_state())
    else:
        figures["secs"] = time.perf_counter() - started
    figures["grown_bytes"] = harness.anonymous_bytes() - before
    print(json.dumps(figures))


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, default=10**9)
    parser.add_argument("--shards", type=int, default=10**5)
    parser.add_argument("--child", nargs=2, metavar=("PHASE", "PATH"), help="one phase (used by itself)")
    options = parser.parse_args(arguments)
    if options.child:
        child(*options.child)
        return {}
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        write_synthetic_cache(work / "cache", options.records, options.shards)
        results: dict[str, Any] = {"records": options.records, "shards": options.shards}
        results["manifest_bytes"] = (work / "cache" / "manifest.json").stat().st_size
        for phase in ("open", "first_batch", "restore"):
            runs = [
                harness.run_measured(["-m", "benchmarks.loader_start", "--child", phase, str(work / "cache")])
                for _ in range(options.repeats)
            ]
            found = [json.loads(run.output.strip().splitlines()[-1]) for run in runs]
            results[f"{phase}_secs"] = round(statistics.median(one["secs"] for one in found), 3)
            results[f"{phase}_peak_rss_bytes"] = max(run.peak_rss_bytes for run in runs)
            results[f"{phase}_grown_bytes"] = max(one["grown_bytes"] for one in found)
        results["state_bytes"] = found[-1]["state_bytes"]
        harness.report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
