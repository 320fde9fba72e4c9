"""Globally shuffled batches of (32, 1024) int32 from the page cache: ours beside the limit and beside other readers.

    python -m benchmarks.load --json load.json                    (84 million tokens; about 3 GB of temporary files)
    python -m benchmarks.load --tokens 5000000 --repeats 1        (a minute)

memmap         `np.memmap` and a fancy index per batch: one file, no format, the limit for NumPy
native         `beam_pipes.loader.Loader` over a cache of TFRecord files; native_workers: with one thread ahead
tf_path        `beam_pipes.on_device.DataLoader.from_cache` in a loop: TensorFlow's tensors
tf_dataset     its tf.data.Dataset in a loop, as further transformations read it
to_jax         the same, `to_jax`; to_torch: `to_torch`; to_numpy: `to_numpy`
tfdata         `TFRecordDataset` over the same files, a shuffle buffer of 10,000, batched `parse_example`, `decode_raw`
grain          Grain's MapDataset over an ArrayRecord of the same tokens, raw bytes, its threads
grain_memmap   the same over the memory map, which costs Grain no format and no file
litdata        litdata's StreamingDataLoader over chunks of the same tokens, `TokensLoader`, where it is installed
torch          torch's DataLoader over the memmap, no workers, default collation; torch_getitems: batched fetch
sequential     stored order: `native` without shuffling
packed         rows of 1,024 tokens packed from documents of 16 to 1,024, with segment ids and positions; by tokens
packed_lengths  the same with the lengths of segments in place of ids and positions
packed_bare    the same batches in the fewest calls of NumPy, from a memory map, of pieces known beforehand
filtered       `native` over `split.where(…)` that keeps half of the rows
mixture        `native` over a mixture of ten caches of a tenth of the rows each

`random_access_us`: microseconds of one `random_access(split)[i]`, of shuffled rows, checksums checked. It and ratios
that end in `_cpu`, those of `packed`, `packed_bare`, `filtered`, `mixture`, `to_jax` and `to_torch` to `native`, and
that of five features, are of processor time, the best of paired passes: other users of the machine disturb that less.

All in one process; before timing, every reader is checked to give every row exactly once. Each key `a_to_b` is the
throughput of a over that of b: the median over pairs of passes taken in turns, so that what disturbs the machine
disturbs both.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    Split,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.cache import write_cache as write_split_cache
from beam_pipes.loader import Loader, Mixture, PackingPlan, pack, random_access
from benchmarks import harness

BATCH, WIDTH, SHARDS, SHUFFLE_BUFFER = 32, 1024, 16, 10_000
FIVE = ("inputs", "positions", "segments", "targets", "weights")
Tokens = npt.NDArray[np.int32]
Reader = Callable[[], Iterable[Any]]
Secs = dict[tuple[str, str], dict[str, list[float]]]  # of each pair: seconds of its paired passes
QUICK = {"memmap", "native", "native_workers", "sequential", "to_numpy", "to_torch"}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--tokens", type=int, default=84_000_000, help="tokens of one pass [84,000,000]")
    parser.add_argument("--directory", help="where the temporary files go [the system's temporary directory]")
    parser.add_argument("--readers", nargs="+", help="only these (memmap is always measured)")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-", dir=options.directory))
    try:
        rows = max(1, options.tokens // (BATCH * WIDTH)) * BATCH
        results: dict[str, Any] = {"tokens": rows * WIDTH, "batch": [BATCH, WIDTH], "shards": SHARDS}
        results |= _measure_one_feature(work, rows, options.repeats, options.readers)
        if not options.readers:
            five = results["five_features"] = _measure_five_features(work, rows // 4, options.repeats)
            results["five_features_to_memmap"] = five["native_to_memmap_cpu"]
            results |= _measure_ways(work, rows // 4, options.repeats)
        harness.report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


def _measure_one_feature(work: Path, rows: int, repeats: int, chosen: list[str] | None) -> dict[str, Any]:
    tokens = np.random.default_rng(1).integers(1, 50_257, (rows, WIDTH), dtype=np.int32)
    tokens.tofile(work / "tokens.bin")
    split = write_cache(work / "one", {"tokens": tokens})
    write_array_record(work / "tokens.array_record", tokens)
    memmap = np.memmap(work / "tokens.bin", np.int32, mode="r", shape=(rows, WIDTH))
    files = sorted(str(path) for path in (work / "one").glob("snapshots/*/*.tfrecord-*-of-?????"))
    expected = tokens[:, ::97].sum(dtype=np.int64)
    del tokens
    readers: dict[str, Reader] = {
        "memmap": lambda: memmap_batches(memmap),
        "native": lambda: Loader(split, batch_size=BATCH),
        "native_workers": lambda: Loader(split, batch_size=BATCH, workers=1, prefetch=32),
        "sequential": lambda: Loader(split, batch_size=BATCH, shuffle=False),
        "tf_path": lambda: on_device_loader(split),
        "tf_dataset": lambda: on_device_loader(split).dataset,
        "to_numpy": lambda: on_device_loader(split).to_numpy(),
        "to_jax": lambda: on_device_loader(split).to_jax(),
        "to_torch": lambda: on_device_loader(split).to_torch(),
        "tfdata": lambda: tf_record_batches(files, ["tokens"]),
        "grain": lambda: grain_batches(grain_array_record(work / "tokens.array_record")),
        "grain_memmap": lambda: grain_batches(memmap),
        "litdata": lambda: litdata_batches(work / "litdata"),
        "torch": lambda: torch_batches(memmap, batched_fetch=False),
        "torch_getitems": lambda: torch_batches(memmap, batched_fetch=True),
    }
    if importlib.util.find_spec("litdata") is None:
        del readers["litdata"]
    elif not chosen or "litdata" in chosen:
        write_litdata_chunks(work / "litdata", work / "tokens.bin", rows)
    if chosen:
        readers = {name: reader for name, reader in readers.items() if name in chosen or name == "memmap"}
    secs = _measure(readers, rows, int(expected), repeats)
    access = {"random_access_us": _random_access_us(split, repeats)}
    return access | _cpu_figures(readers, repeats) | _figures(secs, rows * WIDTH)


def _measure_ways(work: Path, rows: int, repeats: int) -> dict[str, Any]:
    """Packed, filtered and mixed rows beside plain ones: tokens a second of the loader's processor time."""
    rng = np.random.default_rng(3)
    # With fewer documents, packed rows have more padding than the check below allows.
    rows = max(200, rows // (20 * BATCH) * 20) * BATCH
    tokens = rng.integers(1, 50_257, (rows, WIDTH), dtype=np.int32)
    plain = write_cache(work / "plain", {"tokens": tokens, "keep": np.arange(rows, dtype=np.int64) % 2})
    part = rows // 10
    tenths = [write_cache(work / f"tenth-{n}", {"tokens": tokens[n * part : (n + 1) * part]}) for n in range(10)]
    lengths = rng.integers(16, WIDTH + 1, 2 * rows)
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), rows * WIDTH))]
    starts = np.cumsum(lengths) - lengths
    flat = tokens.reshape(-1)
    write_split_cache(
        work / "documents",
        {"train": ({"tokens": flat[s : s + n]} for s, n in zip(starts.tolist(), lengths.tolist(), strict=True))},
        features={"tokens": FeatureSpec("int32", shape=(None,))},
        name="benchmark",
    )
    plan = pack(Cache.open(work / "documents")["train"], sequence_length=WIDTH)
    ways: dict[str, Callable[[], Loader]] = {
        "native": lambda: Loader(plain, batch_size=BATCH, features=["tokens"]),
        "packed": lambda: Loader(plan, batch_size=BATCH),
        "packed_lengths": lambda: Loader(plan, batch_size=BATCH, segments="lengths"),
        "filtered": lambda: Loader(plain.where("keep == 1"), batch_size=BATCH, features=["tokens"]),
        "mixture_of_ten": lambda: Loader(Mixture([(tenth, 1) for tenth in tenths], exhausted="stop"), batch_size=BATCH),
    }
    rate: dict[str, float] = {}
    made = {name: way() for name, way in ways.items()}
    for name, loader in made.items():
        seen = int(sum((batch["tokens"] != 0).sum() for batch in loader))
        if not 0.98 * len(loader) * BATCH * WIDTH < seen <= len(loader) * BATCH * WIDTH:
            raise AssertionError(f"{name} gave {seen} tokens in {len(loader)} batches")
    tokens.tofile(work / "documents.bin")
    memmap = np.memmap(work / "documents.bin", np.int32, mode="r")
    first = next(iter(packed_bare(plan, memmap, starts, np.arange(BATCH))()))
    for name, array in Loader(plan, batch_size=BATCH, shuffle=False).batch_at(0).items():
        np.testing.assert_array_equal(first[name], array, err_msg=f"{name} of packed_bare")
    bare = packed_bare(plan, memmap, starts, rng.permutation(len(plan))[: len(made["packed"]) * BATCH])
    passes = {name: _pass_of(functools.partial(iter, loader)) for name, loader in made.items()}
    passes["packed_bare"] = _pass_of(bare)
    secs = harness.paired_seconds(passes, repeats=7 * repeats, clock=time.process_time)
    for name in passes:
        rate[name] = len(made[name.removesuffix("_bare")]) * BATCH * WIDTH / min(secs[name])
    return {f"{name}_to_native": round(rate[name] / rate["native"], 3) for name in passes if name != "native"}


def packed_bare(
    plan: PackingPlan, tokens: Tokens, starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> Reader:
    """Batches of these rows of a plan over documents with the given starts; all work but copying precedes the first
    one."""
    memory, counting = memoryview(tokens).cast("B"), memoryview(np.arange(WIDTH, dtype=np.int32)).cast("B")
    zeros = memoryview(bytes(4 * WIDTH))
    counted = {count: counting[: 4 * count] for count in range(WIDTH + 1)}
    begins, lengths = (starts[plan.records] + plan.starts[:, 0]).tolist(), plan.lengths[:, 0].tolist()
    offsets = plan.bin_offsets.tolist()
    pieces = []
    for batch in rows.reshape(-1, BATCH).tolist():
        places: list[tuple[memoryview, int, int]] = []
        segments: list[int] = []
        for row in batch:
            entries = range(offsets[row], offsets[row + 1])
            places += [(memory, 4 * begins[entry], 4 * (begins[entry] + lengths[entry])) for entry in entries]
            segments += range(1, len(entries) + 1)
            if left := WIDTH - sum(lengths[entry] for entry in entries):
                places.append((zeros, 0, 4 * left))
                segments.append(0)
        counts = [(end - begin) // 4 for _, begin, end in places]
        positions = [
            counted[count] if segment else zeros[: 4 * count] for segment, count in zip(segments, counts, strict=True)
        ]
        pieces.append((places, np.array(segments, np.int32), np.array(counts), positions))

    def batches() -> Iterator[dict[str, Tokens]]:
        for places, segments, counts, positions in pieces:
            copied = bytearray().join([of[begin:end] for of, begin, end in places])
            yield {
                "tokens": np.ndarray((BATCH, WIDTH), np.int32, copied),
                "segment_ids": segments.repeat(counts).reshape(BATCH, WIDTH),
                "positions": np.ndarray((BATCH, WIDTH), np.int32, bytearray().join(positions)),
            }

    return batches


def _random_access_us(split: Split, repeats: int) -> float:
    source = random_access(split)
    indices = np.random.default_rng(0).permutation(len(split))[:20_000].tolist()

    def one_by_one() -> None:
        for index in indices:
            source[index]

    one_by_one()
    secs = [harness.seconds_of(one_by_one, clock=time.process_time) for _ in range(3 * repeats)]
    return round(min(secs) / len(indices) * 1e6, 2)


def _measure_five_features(work: Path, rows: int, repeats: int) -> dict[str, Any]:
    rows = max(1, rows // BATCH) * BATCH
    rng = np.random.default_rng(2)
    columns = {name: rng.integers(1, 50_257, (rows, WIDTH), dtype=np.int32) for name in FIVE}
    np.stack(list(columns.values()), axis=1).tofile(work / "five.bin")
    split = write_cache(work / "five", columns)
    expected = sum(int(column[:, ::97].sum(dtype=np.int64)) for column in columns.values())
    del columns
    memmap = np.memmap(work / "five.bin", np.int32, mode="r", shape=(rows, len(FIVE), WIDTH))
    files = sorted(str(path) for path in (work / "five").glob("snapshots/*/*.tfrecord-*-of-?????"))
    readers: dict[str, Reader] = {
        "memmap": lambda: memmap_batches(memmap),
        "native": lambda: Loader(split, batch_size=BATCH),
        "tf_path": lambda: on_device_loader(split),
        "tf_dataset": lambda: on_device_loader(split).dataset,
        "to_jax": lambda: on_device_loader(split).to_jax(),
        "to_torch": lambda: on_device_loader(split).to_torch(),
        "tfdata": lambda: tf_record_batches(files, FIVE),
    }
    secs = _measure(readers, rows, expected, repeats)
    return _cpu_figures(readers, repeats) | _figures(secs, rows * WIDTH * len(FIVE))


def _measure(readers: dict[str, Reader], rows: int, expected: int, repeats: int) -> Secs:
    for name, reader in readers.items():
        print(f"checking {name}", file=sys.stderr, flush=True)
        seen = checksum = 0
        for batch in reader():
            arrays = list(batch.values()) if isinstance(batch, dict) else [batch]
            seen += len(arrays[0])
            checksum += sum(int(np.asarray(array)[..., ::97].sum(dtype=np.int64)) for array in arrays)
        if (seen, checksum) != (rows, expected):
            raise AssertionError(f"{name} gave {seen} rows with sum {checksum}, expected {rows} with {expected}")
    passes = {name: _pass_of(reader) for name, reader in readers.items()}
    pairs = [(name, "native") for name in readers if name != "native" and "native" in readers]
    pairs += [(name, "tfdata") for name in ("tf_path", "tf_dataset") if {name, "tfdata"} <= readers.keys()]
    secs: Secs = {}
    for first, second in pairs:
        chosen = {first: passes[first], second: passes[second]}
        # These passes take a tenth of a second, and more of them give better figures on a shared machine.
        times = repeats * (7 if {first, second} <= QUICK else 1)
        secs[first, second] = harness.paired_seconds(chosen, repeats=times)
        medians = {name: round(statistics.median(found), 3) for name, found in secs[first, second].items()}
        print(f"seconds: {medians}", file=sys.stderr, flush=True)
    return secs


def _cpu_figures(readers: dict[str, Reader], repeats: int) -> dict[str, Any]:
    """Ratios in CPU time, which other users of the machine disturb less."""
    chosen: list[str] = [name for name in ("memmap", "native", "to_jax", "to_torch") if name in readers]
    if "native" not in chosen:
        return {}
    passes = {name: _pass_of(readers[name]) for name in chosen}
    secs = harness.paired_seconds(passes, repeats=7 * repeats, clock=time.process_time)
    best = {name: min(times) for name, times in secs.items()}
    ratios = {f"{name}_to_native": round(best["native"] / best[name], 3) for name in chosen[2:]}
    return {"native_to_memmap_cpu": round(best["memmap"] / best["native"], 3), **ratios}


def _pass_of(reader: Reader) -> Callable[[], None]:
    def one_pass() -> None:
        batch = None
        for batch in reader():  # noqa: B007
            pass
        for array in batch.values() if isinstance(batch, dict) else ():
            getattr(array, "block_until_ready", lambda: None)()

    return one_pass


def _figures(secs: Secs, tokens: int) -> dict[str, Any]:
    def of(top: str, bottom: str) -> float | None:
        pair = secs.get((top, bottom)) or secs.get((bottom, top))
        return None if pair is None else round(harness.ratio(pair, bottom, top), 3)

    every: dict[str, list[float]] = {}
    for pair in secs.values():
        for name, times in pair.items():
            every.setdefault(name, []).extend(times)
    return {
        "native_to_memmap": of("native", "memmap"),
        "native_to_tfdata": of("native", "tfdata"),
        "native_to_grain": of("native", "grain"),
        "native_to_litdata": of("native", "litdata"),
        "native_to_grain_memmap": of("native", "grain_memmap"),
        "native_to_torch": of("native", "torch"),
        "tf_path_to_tfdata": of("tf_path", "tfdata"),
        "tf_dataset_to_tfdata": of("tf_dataset", "tfdata"),
        "mtokens_per_sec": {name: round(tokens / 1e6 / statistics.median(times), 1) for name, times in every.items()},
    }


def write_cache(path: Path, columns: Mapping[str, npt.NDArray[Any]]) -> Split:
    """The columns as split "train" of a cache of ordinary TFRecord files."""
    spec = ExampleSpec({name: FeatureSpec(str(each.dtype), shape=each.shape[1:]) for name, each in columns.items()})
    rows = len(next(iter(columns.values())))
    bounds = np.linspace(0, rows, SHARDS + 1).astype(int).tolist()
    snapshot = "0" * 16
    directory = snapshot_directory(path, snapshot)
    Path(directory).mkdir(parents=True)
    entries = []
    for number in range(SHARDS):
        file = shard_file_name("benchmark", "train", number, SHARDS)
        with ShardWriter(directory, file, codec=ExampleCodec(spec)) as writer:
            for row in range(bounds[number], bounds[number + 1]):
                writer.write({name: column[row] for name, column in columns.items()}, ordinal=row - bounds[number])
            entries.append(writer.commit())
    train = SplitManifest.from_entries(entries, spec=spec)
    publish(path, Manifest(name="benchmark", snapshot=snapshot, splits={"train": train}))
    return Cache.open(path)["train"]


def write_array_record(path: Path, tokens: Tokens) -> None:
    """The rows as raw bytes in Grain's own format, one record per group: the fastest setting for random access."""
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for row in tokens:
        writer.write(row.tobytes())
    writer.close()


def memmap_batches(memmap: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int32]]:
    order = np.random.default_rng(0).permutation(len(memmap))
    for start in range(0, len(order), BATCH):
        yield memmap[order[start : start + BATCH]]


def on_device_loader(split: Split) -> Any:
    from beam_pipes.on_device import DataLoader

    return DataLoader.from_cache(split, batch_size=BATCH)


def tf_record_batches(files: list[str], features: Iterable[str]) -> Any:
    import tensorflow as tf

    described = {name: tf.io.FixedLenFeature([], tf.string) for name in features}

    def parse(records: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(records, described)
        return {
            name: tf.ensure_shape(tf.io.decode_raw(value, tf.int32), (BATCH, WIDTH)) for name, value in parsed.items()
        }

    return (
        tf.data.Dataset.from_tensor_slices(files)
        .shuffle(len(files))
        .interleave(
            tf.data.TFRecordDataset, cycle_length=SHARDS, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
        .shuffle(SHUFFLE_BUFFER)
        .batch(BATCH, drop_remainder=True)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def grain_array_record(path: Path) -> Any:
    import grain.python as grain

    return grain.ArrayRecordDataSource(str(path))


def grain_batches(source: Any) -> Any:
    """`source` gives rows by index: arrays, or their raw bytes."""
    import grain.python as grain

    return (
        grain.MapDataset.source(source)
        .shuffle(seed=1)
        .map(lambda record: np.frombuffer(record, np.int32) if isinstance(record, bytes) else record)
        .batch(BATCH, drop_remainder=True)
        .to_iter_dataset()
    )


def litdata_rows(part: tuple[str, int, int]) -> Iterator[Any]:
    """The rows of a part of a file, as litdata stores them."""
    import torch

    path, start, stop = part
    rows = np.memmap(path, np.int32, mode="r").reshape(-1, WIDTH)
    for row in range(start, stop):
        yield torch.from_numpy(np.array(rows[row]))


def write_litdata_chunks(directory: Path, tokens: Path, rows: int) -> None:
    """As many chunks as the cache has shards."""
    import litdata

    each = -(-rows // SHARDS)
    parts = [(str(tokens), start, min(start + each, rows)) for start in range(0, rows, each)]
    litdata.optimize(
        litdata_rows,
        parts,
        str(directory),
        chunk_size=each * WIDTH,
        item_loader=litdata.TokensLoader(),
        num_workers=1,
        verbose=False,
    )


def litdata_batches(directory: Path) -> Any:
    import litdata

    loader = litdata.TokensLoader(block_size=WIDTH)
    dataset = litdata.StreamingDataset(str(directory), item_loader=loader, shuffle=True, drop_last=True, seed=1)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)


class MemmapDataset:
    """The usual torch version: a map-style dataset over a memory map."""

    def __init__(self, memmap: npt.NDArray[np.int32]) -> None:
        self._memmap = memmap

    def __len__(self) -> int:
        return len(self._memmap)

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.from_numpy(np.array(self._memmap[index]))


class BatchedMemmapDataset(MemmapDataset):
    """The same with torch's batched fetch."""

    def __getitems__(self, indices: list[int]) -> Any:
        import torch

        return torch.from_numpy(self._memmap[indices])


def torch_batches(memmap: npt.NDArray[np.int32], *, batched_fetch: bool) -> Any:
    from torch.utils.data import DataLoader

    if batched_fetch:
        return DataLoader(BatchedMemmapDataset(memmap), batch_size=BATCH, shuffle=True, collate_fn=lambda batch: batch)
    return DataLoader(MemmapDataset(memmap), batch_size=BATCH, shuffle=True)


if __name__ == "__main__":
    main()
