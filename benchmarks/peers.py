"""SPDL's published benchmarks, repeated at small size: ours beside SPDL and others.

    python -m benchmarks.peers --json peers.json
    python -m benchmarks.peers --megabytes 4 --images 64 --repeats 1              (small)

tar        archives of members of 256 B, 4 KiB, 64 KiB and 1 MiB on disk → name and bytes of every member
arrays     a picture (3, 640, 480) and its labels (640, 480), uint8, stored one by one → the two arrays
handover   arrays of 2, 8 and 32 MiB, made in one worker process → this process, which looks at their first number
start      a data set of 16 and 64 MiB of short strings → the first batch of two worker processes
wav        sound of 1, 10 and 60 s, two channels of 16 bits at 44.1 kHz, as bytes → int16
resize     JPEG files of 500×375 → batches of (32, 224, 224, 3) uint8, on two threads

A library that is not installed is named under `not_measured`, with what would install it. What each gives is checked
before it is timed: every member, array, wave and image once, and the bytes or numbers that were stored; pixels of
`resize` differ in resampling, so their means are compared.

For each library: `per_sec`, median, least and most of the runs, taken in turns; `cpu_ms`, processor time of one item,
of all threads and processes, the median. `ours_to_NAME` is the median over the pairs of runs of our rate over NAME's,
and `ours_to_NAME_cpu` the same by processor time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import statistics
import sys
import tarfile
import tempfile
import time
import wave
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.cache import FeatureSpec, write_cache
from beam_pipes.graph import GraphIterator, pipeline_def, types
from beam_pipes.loader import random_access
from beam_pipes.map_style import DataLoader
from beam_pipes.sources import Tar
from beam_pipes.transforms import fn
from benchmarks import harness
from benchmarks.graph import write_images

MIB = 1 << 20
MEMBER_BYTES = (1 << 8, 1 << 12, 1 << 16, 1 << 20)
WAVE_SECS, RATE_HZ, CHANNELS = (1, 10, 60), 44_100, 2
BATCH, SIZE, WORKERS = 32, 224, 2
INSTALLED_BY = {
    "spdl.io": "spdl-io spdl-core",
    "webdataset": "webdataset",
    "soundfile": "soundfile",
    "torch": "torch",
}

Pass = Callable[[], Any]
Figures = dict[str, Any]


def main(arguments: list[str] | None = None) -> Figures:
    parser = harness.parser(__doc__)
    parser.set_defaults(repeats=5)
    parser.add_argument("--megabytes", type=int, default=64, help="bytes of an archive, of arrays, of sounds [64]")
    parser.add_argument("--images", type=int, default=1000, help="how many JPEG files [1000]")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one of the parts; several for several")
    options = parser.parse_args(arguments)
    whole: Figures = {"not_measured": not_measured()}
    with tempfile.TemporaryDirectory() as directory:
        for name in options.only or PARTS:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            root = Path(directory, name)
            root.mkdir()
            whole[name] = PARTS[name](root, options)
    harness.report(whole, options.json)
    return whole


def not_installed(installed_by: Mapping[str, str]) -> dict[str, str]:
    """Module → how to install it, for missing modules."""
    return {name: f"not installed: pip install {how}" for name, how in installed_by.items() if module(name) is None}


def not_measured() -> dict[str, str]:
    found = not_installed(INSTALLED_BY)
    if module("spdl.io") is not None and spdl_with_ffmpeg() is None:
        found["spdl.io of sound and images"] = "the libraries of FFmpeg 4 to 9 are not where the loader finds them"
    return found


@functools.cache
def module(name: str) -> Any:
    """The module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@functools.cache
def spdl_with_ffmpeg() -> Any:
    """SPDL if it finds FFmpeg, which its decoders need."""
    spdl = module("spdl.io")
    try:
        return None if spdl is None else (spdl.demux_config() and spdl)
    except RuntimeError:
        return None


def measured(runs: Mapping[str, Pass], *, items: int, repeats: int, in_process: bool = True) -> Figures:
    """Rates and processor time of the runs in turns, and how ours compare with each of the others."""
    clock = time.process_time if in_process else harness.cpu_secs_of_tree
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    timed = {name: lambda name=name, run=run: cpu[name].append(_cpu_of(run, clock)) for name, run in runs.items()}
    for run in runs.values():
        run()  # caches, threads and workers are there from here on
    return compared(harness.paired_seconds(timed, repeats=repeats), cpu, items)


def _cpu_of(run: Pass, clock: Callable[[], float]) -> float:
    before = clock()
    run()
    return clock() - before


def compared(secs: Mapping[str, list[float]], cpu: Mapping[str, list[float]], items: int) -> Figures:
    made: Figures = {}
    for name, values in secs.items():
        rates = [items / value for value in values]
        made[name] = {
            "per_sec": [float(f"{each:.4g}") for each in (statistics.median(rates), min(rates), max(rates))],
            "cpu_ms": float(f"{1e3 * statistics.median(cpu[name]) / items:.3g}"),
        }
    for ours in (name for name in secs if name.startswith("ours")):
        for other in (name for name in secs if not name.startswith("ours")):
            made[f"{ours}_to_{other}"] = round(harness.ratio(secs, other, ours), 3)
            if min(*cpu[ours], *cpu[other]) > 0:
                made[f"{ours}_to_{other}_cpu"] = round(harness.ratio(cpu, other, ours), 3)
    return made


def through(items: Callable[[], Iterable[Any]]) -> Pass:
    """Goes through all of them."""

    def run() -> None:
        for _ in items():
            pass

    return run


# Tar archives


def tar(root: Path, options: Any) -> Figures:
    found: Figures = {}
    for size in MEMBER_BYTES:
        count = max(1, min(20_000, options.megabytes * MIB // (size + 1024)))
        directory = root / str(size)
        directory.mkdir()
        rng = np.random.default_rng(size)
        contents = {f"{number:06}": rng.bytes(size) for number in range(count)}
        with tarfile.open(directory / "a.tar", "w") as archive:
            for name, content in contents.items():
                info = tarfile.TarInfo(f"{name}.bin")
                info.size = size
                archive.addfile(info, io.BytesIO(content))
        readers = tar_readers(directory / "a.tar")
        for name, reader in readers.items():
            if {key: bytes(content) for key, content in reader()} != contents:
                raise AssertionError(f"{name}: members of {size} bytes differ from those that were written")
        runs = {name: through(reader) for name, reader in readers.items()}
        found[f"{size}_bytes"] = measured(runs, items=count, repeats=options.repeats)
    return found


def tar_readers(path: Path) -> dict[str, Callable[[], Iterator[tuple[str, Any]]]]:
    """Name, without its extension, and content of every member."""

    @pipeline_def(batch_size=BATCH, num_threads=1, last="partial")
    def graph() -> Any:
        return {"x": fn.readers.webdataset(paths=[str(path)], ext=["bin"])}

    source = Tar(path, decode=False)
    plan = source.plan(target_shard_bytes=1 << 30)

    def ours() -> Iterator[tuple[str, Any]]:
        for shard in plan.shards:
            for batch in source.read(shard):
                yield from ((value["__key__"], value["bin"]) for value in batch.values)

    def ours_graph() -> Iterator[tuple[str, Any]]:
        samples = (sample for batch in GraphIterator(graph()) for sample in batch["x"])
        return ((f"{number:06}", sample) for number, sample in enumerate(samples))

    def python() -> Iterator[tuple[str, Any]]:
        with tarfile.open(path) as archive:
            for member in archive:
                opened = archive.extractfile(member)
                assert opened is not None
                yield member.name[:-4], opened.read()

    readers: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
        "ours": ours,
        "ours_graph": ours_graph,
        "python": python,
    }
    if (spdl := module("spdl.io")) is not None:

        def views() -> Iterator[tuple[str, Any]]:
            return ((name[:-4], content) for name, content in spdl.iter_tarfile(path.read_bytes()))

        def from_file() -> Iterator[tuple[str, Any]]:
            with path.open("rb") as file:
                yield from ((name[:-4], content) for name, content in spdl.iter_tarfile(file))

        readers |= {
            "spdl_views": views,
            "spdl_bytes": lambda: ((name, bytes(view)) for name, view in views()),
            "spdl_file": from_file,
        }
    if (webdataset := module("webdataset")) is not None:

        def samples() -> Iterator[tuple[str, Any]]:
            for sample in webdataset.WebDataset(str(path), shardshuffle=False):
                yield sample["__key__"], sample["bin"]

        readers["webdataset"] = samples
    return readers


# Arrays of stored bytes


def arrays(root: Path, options: Any) -> Figures:
    rng = np.random.default_rng(3)
    shapes = {"img": (3, 640, 480), "lbl": (640, 480)}
    count = max(2, options.megabytes * MIB // sum(map(np.prod, shapes.values())))
    stored = [
        {name: rng.integers(0, 256, shape, dtype=np.uint8) for name, shape in shapes.items()} for _ in range(count)
    ]
    specs = {name: FeatureSpec("uint8", shape=shape) for name, shape in shapes.items()}
    source = random_access(write_cache(root / "cache", {"train": stored}, features=specs)["train"])
    for number, sample in enumerate(stored):
        np.savez(root / f"{number}.npz", **sample)
        for name, array in sample.items():
            np.save(root / f"{number}.{name}.npy", array)

    def content(name: str) -> bytes:
        return (root / name).read_bytes()

    def npz(number: int) -> dict[str, Any]:
        with np.load(io.BytesIO(content(f"{number}.npz"))) as opened:
            return dict(opened)

    readers: dict[str, Callable[[int], Mapping[str, Any]]] = {
        "ours": lambda number: source[number],
        "numpy_npz": npz,
        "numpy_npy": lambda number: {
            name: np.load(io.BytesIO(content(f"{number}.{name}.npy"))) for name in ("img", "lbl")
        },
    }
    if (spdl := module("spdl.io")) is not None:
        readers["spdl_npz"] = lambda number: spdl.load_npz(content(f"{number}.npz"))
        readers["spdl_npy"] = lambda number: {
            name: spdl.load_npy(content(f"{number}.{name}.npy")) for name in ("img", "lbl")
        }
    if (torch := module("torch")) is not None:
        for number, sample in enumerate(stored):
            torch.save({name: torch.from_numpy(array) for name, array in sample.items()}, root / f"{number}.pt")
        readers["torch_pt"] = lambda number: torch.load(io.BytesIO(content(f"{number}.pt")))
    for name, reader in readers.items():
        for number, sample in enumerate(stored):
            found = reader(number)
            for key, array in sample.items():
                np.testing.assert_array_equal(np.asarray(found[key]), array, err_msg=f"{name}: {key} of {number}")
    runs = {name: through(lambda reader=reader: map(reader, range(count))) for name, reader in readers.items()}
    return measured(runs, items=count, repeats=options.repeats)


# From a worker process to this one


@dataclasses.dataclass(frozen=True)
class Numbered:
    """`count` arrays of `size` float32, each full of its own number; by index for loaders, in order for SPDL."""

    count: int
    size: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> npt.NDArray[np.float32]:
        return np.full(self.size, index, np.float32)

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        return (self[index] for index in range(self.count))


def only(examples: list[Any]) -> Any:
    (example,) = examples
    return example


def handover(root: Path, options: Any) -> Figures:
    found: Figures = {}
    for mebibytes in (2, 8, 32):
        count = max(2, min(128, 4 * options.megabytes // mebibytes))
        data = Numbered(count, mebibytes * MIB // 4)
        with contextlib.ExitStack() as stack:
            readers = handovers(data, stack)
            for name, reader in readers.items():
                seen = [(float(array[0]), float(array[-1]), len(array)) for array in reader()]
                if seen != [(number, number, data.size) for number in range(count)]:
                    raise AssertionError(f"{name}: arrays of {mebibytes} MiB differ from those of the worker")
            # Arrays are released immediately: SPDL's pool reuses its memory.
            runs = {
                name: through(lambda reader=reader: (float(array[0]) for array in reader()))
                for name, reader in readers.items()
            }
            found[f"{mebibytes}_mib"] = measured(runs, items=count, repeats=options.repeats, in_process=False)
    return found


def handovers(data: Numbered, stack: contextlib.ExitStack) -> dict[str, Callable[[], Iterable[Any]]]:
    loader = DataLoader(data, batch_size=1, num_workers=1, worker_type="process", collate_fn=only)
    stack.callback(loader.close)
    readers: dict[str, Callable[[], Iterable[Any]]] = {"ours": lambda: loader}
    if module("torch") is not None:
        from torch.utils.data import DataLoader as TorchDataLoader

        theirs: Any = TorchDataLoader(
            data,  # type: ignore[arg-type]
            batch_size=None,
            num_workers=1,
            multiprocessing_context="spawn",
            persistent_workers=True,
        )
        readers["torch"] = lambda: theirs
    if (spdl := module("spdl.pipeline")) is not None:
        room = 4 * data.size + MIB
        slots = data.count + 2  # a writer that finds no room raises an error, so all of a pass has to fit
        arenas = {
            "spdl_queue": lambda: None,
            "spdl_ring": lambda: spdl.SharedMemoryRingBuffer(capacity=room * slots),
            "spdl_pool": lambda: spdl.SharedMemorySegmentPool(segment_size=room, count=slots),
        }
        for name, arena in arenas.items():
            config = spdl.PipelineBuilder().add_source(data).add_sink(buffer_size=3).get_config()
            source = spdl.run_pipeline_in_subprocess(config, num_threads=1, arena=arena(), buffer_size=3)
            readers[name] = lambda source=source: source
    return readers


@dataclasses.dataclass(frozen=True)
class Strings:
    """Short strings, such as paths, all sent to every worker; an example is the length of one."""

    strings: list[bytes]

    def __len__(self) -> int:
        return len(self.strings)

    def __getitem__(self, index: int) -> int:
        return len(self.strings[index])


def start(root: Path, options: Any) -> Figures:
    from_torch: Any = module("torch.utils.data") if module("torch") is not None else None
    found: Figures = {}
    for mebibytes in (16, 64):
        if mebibytes > options.megabytes:
            continue
        data = Strings([b"train/%058d" % number for number in range(mebibytes * MIB // 64)])

        def ours(data: Strings = data) -> Any:
            with DataLoader(data, batch_size=256, num_workers=WORKERS, worker_type="process") as loader:
                return next(iter(loader))

        def theirs(data: Strings = data) -> Any:
            loader = from_torch.DataLoader(
                data, batch_size=256, num_workers=WORKERS, multiprocessing_context="spawn", prefetch_factor=1
            )
            return next(iter(loader))

        runs = {"ours": ours} | ({} if from_torch is None else {"torch": theirs})
        for name, run in runs.items():
            if np.asarray(run()).tolist() != [64] * 256:
                raise AssertionError(f"{name}: the first batch is not that of 256 strings of 64 bytes")
        secs = harness.paired_seconds(runs, repeats=options.repeats)
        found[f"{mebibytes}_mib_secs"] = {
            **{name: [round(each, 2) for each in (statistics.median(t), min(t), max(t))] for name, t in secs.items()},
            **({"ours_to_torch": round(harness.ratio(secs, "torch", "ours"), 3)} if from_torch is not None else {}),
        }
    return found


# Sound


def wav(root: Path, options: Any) -> Figures:
    found: Figures = {}
    for seconds in WAVE_SECS:
        at = np.arange(seconds * RATE_HZ)[:, None] / RATE_HZ
        samples = (np.sin(2 * np.pi * (440 + 110 * np.arange(CHANNELS)) * at) * 32767).astype(np.int16)
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setparams((CHANNELS, 2, RATE_HZ, 0, "NONE", ""))
            file.writeframes(samples.astype("<i2").tobytes())
        data = buffer.getvalue()
        count = max(2, options.megabytes * MIB // len(data))
        readers = wave_readers(data, count)
        for name, reader in readers.items():
            heard = 0
            for found_wave in reader():
                heard += 1
                np.testing.assert_array_equal(np.asarray(found_wave), samples, err_msg=name)
            if heard != count:
                raise AssertionError(f"{name}: {heard} of {count} sounds")
        runs = {name: through(reader) for name, reader in readers.items()}
        found[f"{seconds}_secs"] = measured(runs, items=count, repeats=options.repeats)
    return found


def wave_readers(data: bytes, count: int) -> dict[str, Callable[[], Iterator[Any]]]:
    encoded = np.frombuffer(data, np.uint8)

    def given(info: Any) -> Any:
        if info.idx_in_epoch >= count:
            raise StopIteration
        return encoded

    @pipeline_def(batch_size=1, num_threads=1)
    def graph() -> Any:
        sounds = fn.external_source(source=given, batch=False, dtype=types.UINT8, ndim=1)
        return {"x": fn.decoders.audio(sounds, dtype=types.INT16)[0]}

    readers: dict[str, Callable[[], Iterator[Any]]] = {
        "ours": lambda: (sound for batch in GraphIterator(graph()) for sound in batch["x"])
    }
    if (soundfile := module("soundfile")) is not None:
        readers["soundfile"] = lambda: (soundfile.read(io.BytesIO(data), dtype="int16")[0] for _ in range(count))
    if (spdl := module("spdl.io")) is not None:
        readers["spdl_wav"] = lambda: (spdl.to_numpy(spdl.load_wav(data)) for _ in range(count))
    if spdl_with_ffmpeg() is not None:
        readers["spdl_audio"] = lambda: (spdl.to_numpy(spdl.load_audio(data, filter_desc=None)) for _ in range(count))
    return readers


# Images


def resize(root: Path, options: Any) -> Figures:
    count = max(BATCH, options.images // BATCH * BATCH)
    write_images(root, count)

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS)
    def graph() -> Any:
        images = fn.decoders.image(fn.readers.file(file_root=str(root))[0])
        return {"x": fn.resize(images, size=[SIZE, SIZE])}

    pipe = graph()
    readers: dict[str, Callable[[], Iterator[Any]]] = {"ours": lambda: (batch["x"] for batch in GraphIterator(pipe))}
    if (spdl := spdl_with_ffmpeg()) is not None:
        paths = sorted(map(str, root.glob("all/*.jpg")))
        # Its own resizing keeps the shape and fills up with black.
        scale = f"scale={SIZE}:{SIZE}:flags=bilinear,format=rgb24"
        load = functools.partial(spdl.load_image_batch, width=None, height=None, pix_fmt=None, filter_desc=scale)

        def theirs() -> Iterator[Any]:
            made = module("spdl.pipeline").PipelineBuilder().add_source(paths).aggregate(BATCH)
            pipeline = made.pipe(load, concurrency=WORKERS).add_sink(3).build(num_threads=WORKERS)
            with pipeline.auto_stop():
                yield from map(spdl.to_numpy, pipeline)

        readers["spdl"] = theirs
    means = {}
    for name, reader in readers.items():
        batches = list(reader())
        if [(batch.shape, batch.dtype) for batch in batches] != [((BATCH, SIZE, SIZE, 3), np.uint8)] * (count // BATCH):
            raise AssertionError(f"{name}: expected {count // BATCH} batches of uint8 {(BATCH, SIZE, SIZE, 3)}")
        means[name] = np.mean([batch.mean(axis=(1, 2)) for batch in batches])
        if abs(means[name] - means["ours"]) > 2:
            raise AssertionError(f"{name}: the mean {means[name]} of all pixels differs from ours, {means['ours']}")
    return measured({name: through(reader) for name, reader in readers.items()}, items=count, repeats=options.repeats)


PARTS: dict[str, Callable[[Path, Any], Figures]] = {
    "tar": tar,
    "arrays": arrays,
    "handover": handover,
    "start": start,
    "wav": wav,
    "resize": resize,
}


if __name__ == "__main__":
    main()
