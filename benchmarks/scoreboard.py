"""Shapes and measures that others chose for their own systems, ours beside theirs, losses too.

    python -m benchmarks.scoreboard --json docs/figures/scoreboard.json
    python -m benchmarks.scoreboard --only maxtext

maxtext    batches of 32 rows of 2,048 tokens, the shape of MaxText's loader script: 1,000 of ours and of a bare memory
           map, 100 of Grain's
iterating  examples one by one, of the size of MNIST's (784 bytes) and texts of 200 to 900 bytes, the length of those of
           TinyStories, as in grain#1164 and array_record#143: `random_access`, a list in memory, and Grain
cropping   rows of 2,048 that begin with BOS: tokens lost to cropping in a buffer of 1,000 documents, as nanochat fills
           rows, beside padding and BOS of a plan, which loses none
shuffle    the deviation of batch means over that of a global shuffle, where neighbours in the store are alike: blocks
           of ours, and buffers as other loaders have, by the number of records that they hold
balance    the most expensive step over the mean, by the squares of lengths of segments, with and without
           `BalancedShuffle`

`_per_cpu_sec` are rates by the processor time of all threads. Grain is measured where it and array_record are there.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.loader import BlockOrder, KeyedPermutation, Loader, random_access
from benchmarks import harness, packing
from benchmarks.block_shuffle import quality
from benchmarks.load import grain_array_record, grain_batches, memmap_batches, write_array_record
from benchmarks.mixture_size import _has_grain

ROWS, WIDTH, BATCH = 8_192, 2_048, 32


def maxtext(work: Path) -> dict[str, Any]:
    tokens = np.random.default_rng(1).integers(0, 32_000, (ROWS, WIDTH), dtype=np.int32)
    spec = {"tokens": FeatureSpec("int32", shape=(WIDTH,))}
    write_cache(work / "rows", {"train": ({"tokens": row} for row in tokens)}, features=spec, num_shards=8)
    loader = Loader(f"{work}/rows/train", batch_size=BATCH, epochs=None)
    tokens.tofile(work / "rows.bin")
    mapped = np.memmap(work / "rows.bin", np.int32, mode="r", shape=tokens.shape)
    found = {
        "ours_batches": _rate(iter(loader), 1_000),
        "memmap_batches": _rate(itertools.chain.from_iterable(memmap_batches(mapped) for _ in range(4)), 1_000),
    }
    if _has_grain():
        write_array_record(work / "rows.array_record", tokens)
        found["grain_batches"] = _rate(iter(grain_batches(grain_array_record(work / "rows.array_record"))), 100)
    return _with_ratio(found, "batches")


def iterating(work: Path) -> dict[str, Any]:
    draw = np.random.default_rng(2)
    texts = [draw.bytes(900)[: int(size)] for size in draw.integers(200, 900, 20_000)]
    images = [draw.bytes(784) for _ in range(20_000)]
    results: dict[str, Any] = {}
    for name, records in (("mnist", images), ("tinystories", texts)):
        spec = {"x": FeatureSpec("uint8", shape=(784,) if name == "mnist" else (None,))}
        arrays = ({"x": np.frombuffer(record, np.uint8)} for record in records)
        write_cache(work / name, {"train": arrays}, features=spec, num_shards=4)
        split = Cache.open(work / name)["train"]
        access, count = random_access(split), len(records)
        order = KeyedPermutation(count, seed=1).records(np.arange(count)).tolist()
        padded = {} if name == "mnist" else {"ragged": "values"}
        found = {
            "ours_examples": _rate(map(access.__getitem__, order), count),
            "list_examples": _rate(map(records.__getitem__, order), count),
            "ours_in_batches_of_256_examples": 256
            * _rate(iter(Loader(split, batch_size=256, epochs=None, **padded)), count // 256),  # type: ignore[arg-type]
        }
        if _has_grain():
            from array_record.python.array_record_module import ArrayRecordWriter

            writer = ArrayRecordWriter(str(work / f"{name}.array_record"), "group_size:1")
            for record in records:
                writer.write(record)
            writer.close()
            found["grain_examples"] = _rate(_grain(str(work / f"{name}.array_record")), 4_000)
        results[name] = _with_ratio(found, "examples")
    return results


def _grain(path: str) -> Iterator[Any]:
    import grain

    shuffled = grain.MapDataset.source(grain.sources.ArrayRecordDataSource([path])).seed(1).shuffle()
    return iter(shuffled.map(lambda record: np.frombuffer(record, np.uint8)).to_iter_dataset())


def cropping(work: Path) -> dict[str, Any]:
    found = packing.with_bos(200_000, WIDTH)
    return {name: found[name] for name in ("padding", "bos", "lost", "lost_by_cropping")}


def shuffle(work: Path) -> dict[str, Any]:
    shards, records = 256, 256
    stored = np.repeat(np.arange(shards), records)
    ideal, _ = quality(stored[KeyedPermutation(len(stored), seed=1).records(np.arange(len(stored)))], 256)
    found: dict[str, Any] = {}
    for window in (8, 64):
        order = BlockOrder([records] * shards, window=window, seed=1)
        found[f"blocks_of_{window * records}"] = quality(stored[order.records(np.arange(len(stored)))], 256)[0] / ideal
    for held in (2_048, 16_384):
        found[f"buffer_of_{held}"] = quality(np.array(list(_buffered(stored.tolist(), held))), 256)[0] / ideal
    return {name: round(spread, 2) for name, spread in found.items()}


def _buffered(records: list[int], held: int) -> Iterator[int]:
    """As a buffer shuffles: each record takes the place of a random one, which is given."""
    draw, coming = np.random.default_rng(1), iter(records)
    buffer = list(itertools.islice(coming, held))
    for record, place in zip(coming, draw.integers(0, held, len(records)).tolist(), strict=False):
        yield buffer[place]
        buffer[place] = record
    yield from (buffer[place] for place in draw.permutation(len(buffer)).tolist())


def balance(work: Path) -> dict[str, Any]:
    return packing.step_cost(packing.distributions(200_000, 8_192)["lognormal"], 8_192, 64)


def _rate(elements: Iterator[Any], count: int) -> float:
    """Elements per second of processor time, after the first, which opens files."""
    next(elements)
    started = time.process_time()
    taken = sum(1 for _ in itertools.islice(elements, count - 1))
    return taken / (time.process_time() - started)


def _with_ratio(found: dict[str, float], what: str) -> dict[str, Any]:
    made: dict[str, Any] = {f"{name}_per_cpu_sec": round(rate) for name, rate in found.items()}
    for name in found:
        if name.endswith(f"_{what}") and not name.startswith("ours_"):
            made[f"ours_to_{name.removesuffix(f'_{what}')}"] = round(found[f"ours_{what}"] / found[name], 3)
    return made


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "maxtext": maxtext,
    "iterating": iterating,
    "cropping": cropping,
    "shuffle": shuffle,
    "balance": balance,
}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to measure [all]")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    for part in options.only:
        work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
        try:
            results[part] = PARTS[part](work)
        finally:
            shutil.rmtree(work)
    harness.report(results, options.json)
    return results


if __name__ == "__main__":
    main()
