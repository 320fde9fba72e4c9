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
conversion JPEG files of 500 × 375 into a store, as litdata measures on ImageNet: the recipe `images` with one worker
           and with two, and `litdata.optimize` likewise; images of 60 kB a second by the clock
datarax    three small scenarios of datarax's harness, in the order of the data: rows of 128 tokens, images of 32 × 32
           to float32 in [0, 1], 100 dense features. Ours reads a cache on disk, the others arrays in memory; transforms
           run on batches here, on elements in Grain, compiled in datarax. Its protocol of 5 + 50 batches would count
           what was read ahead while it warmed up, so 2,000 are taken of endless epochs, of datarax one epoch
balance    the most expensive step over the mean, by the squares of lengths of segments, with and without
           `BalancedShuffle`

`_per_cpu_sec` are rates by the processor time of all threads. Grain is measured where it and array_record are there,
datarax and litdata where they can be imported.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes import build
from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.loader import BlockOrder, KeyedPermutation, Loader, random_access
from beam_pipes.recipes.images import images
from benchmarks import harness, packing
from benchmarks.block_shuffle import quality
from benchmarks.graph import write_images
from benchmarks.image_stores import write_litdata
from benchmarks.load import grain_array_record, grain_batches, memmap_batches, write_array_record
from benchmarks.mixture_size import _has_grain

ROWS, WIDTH, BATCH = 8_192, 2_048, 32
IMAGES = 1_000


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


def datarax(work: Path) -> dict[str, Any]:
    draw = np.random.default_rng(42)
    scenarios: dict[str, tuple[np.ndarray[Any, Any], int]] = {
        "nlp_1": (draw.integers(0, 32_000, (10_000, 128), dtype=np.int32), 32),
        "cv_1": (draw.integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8), 64),
        "tab_1": (draw.standard_normal((10_000, 100), dtype=np.float32), 256),
    }
    sides: dict[str, Callable[..., Any]] = {"ours": _of_ours}
    if _has_grain():
        sides["grain"] = _of_grain
    if importlib.util.find_spec("datarax") is not None:
        sides["datarax"] = _of_datarax
    results: dict[str, Any] = {}
    for name, (data, batch) in scenarios.items():
        spec = {"x": FeatureSpec(str(data.dtype), shape=data.shape[1:])}
        write_cache(work / name, {"train": ({"x": row} for row in data)}, features=spec, num_shards=1)
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(3):
            for side, make in sides.items():
                batches = _checked(iter(make(work / name, data, batch)), data, batch)
                rates[side].append(_rate(map(_finished, batches), 2_000, warm=5))
        results[name] = _with_ratio(
            {f"{side}_batches": statistics.median(found) for side, found in rates.items()}, "batches"
        )
    return results


def _checked(batches: Iterator[Any], data: np.ndarray[Any, Any], size: int) -> Iterator[Any]:
    """The batches, the first of which must be the first rows of the data."""
    first = next(batches)
    if not np.allclose(np.asarray(first["x"]), _in_unit(data[:size]), atol=1e-6):
        raise AssertionError(f"expected the first rows, got {first}")
    return itertools.chain([first], batches)


def _in_unit(x: Any) -> Any:
    """Bytes as float32 in [0, 1]; other numbers as they are."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x


def _of_ours(directory: Path, data: np.ndarray[Any, Any], batch: int) -> Any:
    return Loader(
        f"{directory}/train",
        batch_size=batch,
        shuffle=False,
        epochs=None,
        transform=lambda rows: {"x": _in_unit(rows["x"])},
    )


def _of_grain(directory: Path, data: np.ndarray[Any, Any], batch: int) -> Any:
    import grain

    elements = grain.MapDataset.source(data).map(lambda row: {"x": _in_unit(row)})  # type: ignore[arg-type]
    return elements.batch(batch, drop_remainder=True).repeat().to_iter_dataset()


def _of_datarax(directory: Path, data: np.ndarray[Any, Any], batch: int) -> Any:
    from datarax import Pipeline
    from datarax.core.config import ElementOperatorConfig
    from datarax.operators.element_operator import ElementOperator
    from datarax.sources import MemorySource, MemorySourceConfig
    from flax import nnx

    def to_unit(element: Any, key: Any) -> Any:
        return element.replace(data={"x": _in_unit(element.data["x"])})

    source = MemorySource(config=MemorySourceConfig(shuffle=False), data={"x": data}, rngs=nnx.Rngs(42))
    stages = [ElementOperator(ElementOperatorConfig(stochastic=False), fn=to_unit, rngs=nnx.Rngs(42))]
    stages = stages if data.dtype == np.uint8 else []
    return Pipeline(source=source, stages=stages, batch_size=batch, rngs=nnx.Rngs(42))


def conversion(work: Path) -> dict[str, Any]:
    write_images(work / "jpegs", IMAGES)
    paths = sorted((work / "jpegs" / "all").glob("*.jpg"))
    workers = (1, 2)
    runs: dict[str, Callable[[], Any]] = {f"ours_by_{n}": functools.partial(_images, work, n) for n in workers}
    if importlib.util.find_spec("litdata") is not None:
        runs |= {f"litdata_by_{n}": functools.partial(_optimized, work, paths, n) for n in workers}
    harness.paired_seconds(runs, repeats=1)  # imports
    secs = harness.paired_seconds(runs, repeats=3)
    found = {f"{name}_images_per_sec": round(IMAGES / statistics.median(each)) for name, each in secs.items()}
    ratios = {f"ours_to_litdata_by_{n}": harness.ratio(secs, f"litdata_by_{n}", f"ours_by_{n}") for n in workers}
    return found | {name: round(value, 3) for name, value in ratios.items()} if len(runs) > len(workers) else found


def _images(work: Path, workers: int) -> None:
    with tempfile.TemporaryDirectory(dir=work) as directory:
        build(images(work / "jpegs").declaration(), to=f"{directory}/cache", workers=workers)
        assert len(Cache.open(f"{directory}/cache")["train"]) == IMAGES


def _optimized(work: Path, paths: list[Path], workers: int) -> None:
    with tempfile.TemporaryDirectory(dir=work) as directory:
        write_litdata(Path(directory, "store"), paths, workers=workers)


def balance(work: Path) -> dict[str, Any]:
    return packing.step_cost(packing.distributions(200_000, 8_192)["lognormal"], 8_192, 64)


def _rate(elements: Iterator[Any], count: int, *, warm: int = 1) -> float:
    """Elements per second of processor time, after the first `warm`, which open files and start to read ahead."""
    for _ in range(warm):
        next(elements)
    if warm > 1:
        time.sleep(0.5)  # until as much is read ahead as there will be at the end
    started = time.process_time()
    taken = sum(1 for _ in itertools.islice(elements, count))
    return taken / (time.process_time() - started)


def _finished(batch: Any) -> Any:
    """A batch; arrays of a device that are still computed are waited for."""
    for value in batch.values():
        if hasattr(value, "block_until_ready"):
            value.block_until_ready()
    return batch


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
    "conversion": conversion,
    "datarax": datarax,
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
