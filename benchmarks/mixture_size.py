"""A mixture of many caches: what does each source cost a process?

    python -m benchmarks.mixture_size --json mixture_size.json
    python -m benchmarks.mixture_size --sources 35 --workers 4

Each count of sources is a fresh process per reader. Every source is a cache of its own, of a few thousand records of
16 tokens in two shards; rates go from 1 to 7. Rows are read in a global shuffle, so that soon every file of each source
has been read from. `open_secs` is from the paths to the mixture, `first_batch_secs` from there to the first batch;
`batches_per_cpu_sec` counts the processor time of all threads.
Threads, open files and memory (without pages of mapped files) are what the process has more of after the last batch
than before it opened anything. `grain`: the same rows as ArrayRecord files, one a source, mixed by
`grain.MapDataset.mix` and made into batches by one `to_iter_dataset()` with its default threads. A pool of threads for
each source comes from an IterDataset for each (maxtext#5037), which this is not. `--open-files` lowers the limit of
open files first, to the one of many systems: 1024.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness

WIDTH, SHARDS = 16, 2


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--sources", type=int, nargs="+", default=[35, 1000], help="counts of sources [35 1000]")
    parser.add_argument("--records", type=int, default=2_000, help="records of a source [2,000]")
    parser.add_argument("--batches", type=int, default=500, help="batches of 256 rows [500]")
    parser.add_argument("--workers", type=int, default=0, help="threads of our loader [0]")
    parser.add_argument("--open-files", type=int, default=1024, help="soft limit of open files at the start [1024]")
    parser.add_argument("--phase", choices=["native", "grain"], help=_SET_BY_MAIN)
    parser.add_argument("--directory", help=_SET_BY_MAIN)
    options = parser.parse_args(arguments)
    if options.phase:
        found = _measured(options)
        print(json.dumps(found), flush=True)
        return found
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    readers = ["native", "grain"] if _has_grain() else ["native"]
    results: dict[str, Any] = {"batches": options.batches, "workers": options.workers}
    if len(readers) == 1:
        results["grain"] = "grain and array_record are not installed"
    try:
        _write(work, max(options.sources), options.records, with_grain=len(readers) > 1)
        for count in options.sources:
            for reader in readers:
                done = harness.run_measured(
                    ["-m", "benchmarks.mixture_size", "--phase", reader, "--directory", str(work)]
                    + ["--sources", str(count), "--batches", str(options.batches), "--workers", str(options.workers)]
                    + ["--open-files", str(options.open_files)]
                )
                results[f"{reader}_{count}"] = json.loads(done.output.splitlines()[-1])
        harness.report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


_SET_BY_MAIN = "of one process; set by the benchmark itself"


def _has_grain() -> bool:
    try:
        import array_record.python.array_record_module
        import grain  # noqa: F401 - both
    except ImportError:
        return False
    return bool(array_record)


def _write(work: Path, count: int, records: int, *, with_grain: bool) -> None:
    """`count` copies of one cache, each with files of its own."""
    from beam_pipes.cache import FeatureSpec, write_cache

    tokens = np.random.default_rng(1).integers(0, 50_257, (records, WIDTH), dtype=np.int32)
    features = {"tokens": FeatureSpec("int32", shape=(WIDTH,))}
    write_cache(work / "one", {"train": ({"tokens": row} for row in tokens)}, features=features, num_shards=SHARDS)
    if with_grain:
        from benchmarks.load import write_array_record

        write_array_record(work / "one.array_record", tokens)
    for number in range(count):
        shutil.copytree(work / "one", work / f"source-{number}")
        if with_grain:
            shutil.copy(work / "one.array_record", work / f"source-{number}.array_record")


def _measured(options: Any) -> dict[str, Any]:
    (count,) = options.sources
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(options.open_files, hard), hard))
    work = Path(options.directory)
    rates = [1 + number % 7 for number in range(count)]
    iterate = _native if options.phase == "native" else _grain
    before = _counts(after=iterate(work, rates[:1], 0))
    began = time.perf_counter()
    batches = iterate(work, rates, options.workers)
    next(batches)  # None: the mixture is there
    opened = time.perf_counter()
    next(batches)
    first, cpu = time.perf_counter(), time.process_time()
    for _ in range(options.batches):
        next(batches)
    last, last_cpu = time.perf_counter(), time.process_time()
    after = _counts()
    return {
        "open_secs": round(opened - began, 3),
        "first_batch_secs": round(first - opened, 3),
        "batches_per_sec": round(options.batches / (last - first), 1),
        "batches_per_cpu_sec": round(options.batches / (last_cpu - cpu), 1),
        **{name: after[name] - before[name] for name in after},
    }


def _counts(*, after: Iterator[Any] | None = None) -> dict[str, int]:
    """What this process has, `after` an iteration that imported all that is needed."""
    for _ in itertools.islice(after or (), 3):
        pass
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "python_threads": threading.active_count(),
        "open_files": len(os.listdir("/proc/self/fd")),
        "mappings": len(Path("/proc/self/maps").read_text(encoding="ascii").splitlines()),
        "anonymous_mib": harness.anonymous_bytes() >> 20,
    }


def _native(work: Path, rates: list[int], workers: int) -> Iterator[Any]:
    from beam_pipes.loader import Loader, Mixture

    mixture = Mixture([(f"{work}/source-{number}/train", rate) for number, rate in enumerate(rates)])
    yield None
    yield from Loader(mixture, batch_size=256, seed=1, epochs=None, workers=workers)


def _grain(work: Path, rates: list[int], workers: int) -> Iterator[Any]:
    import grain

    sources = [
        grain.MapDataset.source(grain.sources.ArrayRecordDataSource([f"{work}/source-{number}.array_record"]))
        .seed(number)
        .shuffle()
        .repeat()
        for number in range(len(rates))
    ]
    mixed = grain.MapDataset.mix(sources, weights=rates)
    yield None
    decoded = mixed.map(lambda record: np.frombuffer(record, np.int32))
    yield from iter(decoded.to_iter_dataset().batch(256))


if __name__ == "__main__":
    main()
