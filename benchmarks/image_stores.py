"""Stores of images, written by each library and read twice: ours beside litdata, MosaicML Streaming and WebDataset.

    python -m benchmarks.image_stores --json image_stores.json
    python -m benchmarks.image_stores --images 64 --repeats 1              (small)

litdata publishes a table of the first and second epoch of ImageNet from S3. Here JPEG files of 500×375 are stored by
each library's own writer and read back from disk, shuffled → a random part of each, resized to 224×224 → batches of
float32 tensors, two workers. All but our graph read with torch's DataLoader and transform with torchvision, so that
they differ only in the store. Each has its own process for all of its runs, which are taken in turns.

Every epoch must contain each image once; pixels depend on draws, so their mean is only bounded. A
library that is not installed is named under `not_measured`. `first_epoch` and `second_epoch` have what
`benchmarks.peers` has for each of its jobs.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import beam_pipes.graph.functions as tfrec
from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.graph import GraphIterator, pipeline_def, types
from beam_pipes.loader import random_access
from beam_pipes.transforms import fn
from benchmarks import harness
from benchmarks.graph import write_images
from benchmarks.peers import BATCH, SIZE, WORKERS, Figures, compared, module, not_installed

INSTALLED_BY = {
    "litdata": "litdata torchvision",
    "streaming": "mosaicml-streaming",
    "torchvision": "torchvision",
    "webdataset": "webdataset",
    "torch": "torch",
}
SIDES = ("ours", "ours_graph", "litdata", "mosaicml", "webdataset")


def main(arguments: list[str] | None = None) -> Figures:
    parser = harness.parser(__doc__)
    parser.set_defaults(repeats=5)
    parser.add_argument("--images", type=int, default=1000, help="how many JPEG files [1000]")
    parser.add_argument("--side", nargs=2, metavar=("NAME", "ROOT"), help="one store: this script starts it")
    options = parser.parse_args(arguments)
    if options.side:
        for _ in sys.stdin:
            print(json.dumps(two_epochs(*options.side, images=options.images)), flush=True)
            gc.collect()  # loaders that workers of the next round would inherit
        return {}
    with tempfile.TemporaryDirectory() as directory:
        whole = {"not_measured": not_installed(INSTALLED_BY), **stream(Path(directory), options)}
    harness.report(whole, options.json)
    return whole


def stream(root: Path, options: Any) -> Figures:
    count = max(BATCH, options.images)
    write_images(root / "jpegs", count)
    sides = [name for name in SIDES if _is_there(name)]
    for name in sides:
        WRITERS[name.partition("_")[0]](root / name, sorted((root / "jpegs" / "all").glob("*.jpg")))
    epochs: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(_side(name, root / name, count)) for name in sides}

        def run(name: str) -> None:
            asked, answers = processes[name].stdin, processes[name].stdout
            assert asked is not None and answers is not None
            print("again", file=asked, flush=True)
            while not (line := answers.readline()).startswith("{"):
                if not line:
                    raise AssertionError(f"{name}: the process ended, with what is said above")
            for key, value in json.loads(line).items():
                epochs.setdefault(key, {}).setdefault(name, []).append(value)

        runs = {name: functools.partial(run, name) for name in sides}
        harness.paired_seconds(runs, repeats=1)  # imports
        epochs.clear()
        harness.paired_seconds(runs, repeats=options.repeats)
    return {f"{epoch}_epoch": compared(epochs[epoch], epochs[f"{epoch}_cpu"], count) for epoch in ("first", "second")}


def _is_there(name: str) -> bool:
    needs = {"webdataset": ["webdataset"], "mosaicml": ["streaming"], "litdata": ["litdata"]}.get(name, [])
    return all(
        module(each) is not None for each in ["torch", *needs, *(["torchvision"] if name != "ours_graph" else [])]
    )


@contextlib.contextmanager
def _side(name: str, root: Path, images: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.image_stores", "--images", str(images), "--side", name, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def two_epochs(name: str, root: str, *, images: int) -> dict[str, float]:
    """Seconds and processor seconds of two epochs, each of which must contain every image once."""
    if name != "ours_graph":
        transform()  # its imports do not count: workers are forked with them
    batches = READERS[name](root)
    found: dict[str, float] = {}
    for epoch in ("first", "second"):
        cpu, started = harness.cpu_secs_of_tree(), time.perf_counter()
        seen, mean = [], 0.0
        for pixels, labels in batches():
            seen += labels.tolist()
            mean += float(pixels[:, :, ::16, ::16].sum()) / (3 * 14 * 14)
            if pixels.shape[1:] != (3, SIZE, SIZE) or str(pixels.dtype) != "torch.float32":
                raise AssertionError(f"{name}: expected float32 (n, 3, {SIZE}, {SIZE}), got {pixels.shape}")
        found |= {epoch: time.perf_counter() - started, f"{epoch}_cpu": harness.cpu_secs_of_tree() - cpu}
        if sorted(seen) != list(range(images)) or not 0.4 < mean / images < 0.6:
            raise AssertionError(f"{name}: {len(set(seen))} of {images} images in {len(seen)}, mean {mean / images}")
    return found


def photo(sample: Mapping[str, Any]) -> tuple[Any, int]:
    """A JPEG → a random part of it, (3, 224, 224) float32 in [0, 1]; and its label."""
    import torch

    data: Any = sample.get("image", sample.get("jpg"))
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return transform()(module("torchvision.io").decode_jpeg(encoded)), int(sample.get("label", sample.get("cls", -1)))


@functools.cache
def transform() -> Any:
    import torch

    torch.set_num_threads(1)
    v2, _ = module("torchvision.transforms.v2"), module("torchvision.io")
    return v2.Compose([v2.RandomResizedCrop([SIZE, SIZE], antialias=True), v2.ToDtype(torch.float32, scale=True)])


def samples_of(paths: list[Path]) -> Iterator[dict[str, Any]]:
    return ({"image": path.read_bytes(), "label": int(path.stem)} for path in paths)


def write_ours(directory: Path, paths: list[Path]) -> None:
    specs = {"image": FeatureSpec("bytes", shape=()), "label": FeatureSpec("int64", shape=())}
    write_cache(directory, {"train": samples_of(paths)}, features=specs, num_shards=4)


def litdata_sample(path: str) -> dict[str, Any]:
    return {"image": Path(path).read_bytes(), "label": int(Path(path).stem)}


def write_litdata(directory: Path, paths: list[Path], *, workers: int = 1) -> None:
    import litdata

    litdata.optimize(
        litdata_sample, list(map(str, paths)), str(directory), chunk_bytes="16MB", num_workers=workers, verbose=False
    )


def write_mosaicml(directory: Path, paths: list[Path]) -> None:
    columns = {"image": "bytes", "label": "int"}
    with module("streaming").MDSWriter(columns=columns, out=str(directory), size_limit=16_000_000) as writer:
        for sample in samples_of(paths):
            writer.write(sample)


def write_webdataset(directory: Path, paths: list[Path]) -> None:
    directory.mkdir()
    with module("webdataset").ShardWriter(f"{directory}/%04d.tar", maxsize=16_000_000, verbose=0) as writer:
        for path in paths:
            writer.write({"__key__": path.stem, "jpg": path.read_bytes(), "cls": int(path.stem)})


WRITERS = {"ours": write_ours, "litdata": write_litdata, "mosaicml": write_mosaicml, "webdataset": write_webdataset}


def torch_loader(data: Any, *, of: Any = None, **options: Any) -> Callable[[], Any]:
    """Batches of a data set by two workers of torch's DataLoader, or of a loader that is used like it."""
    make = module("torch.utils.data").DataLoader if of is None else of
    loader = make(data, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True, **options)
    return lambda: loader


def read_ours(root: str) -> Callable[[], Any]:
    split = Cache.open(root)["train"]
    return torch_loader(random_access(split, transform=photo), shuffle=True)


def read_ours_by_graph(root: str) -> Callable[[], Any]:
    import torch

    shards = sorted(map(str, Path(root).glob("snapshots/*/*.tfrecord-*-of-?????")))
    features = {name: tfrec.FixedLenFeature([], tfrec.string, "") for name in ("image", "label")}

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, seed=1, last="partial")
    def graph() -> Any:
        read = fn.readers.tfrecord(path=shards, features=features, random_shuffle=True)
        images = fn.random_resized_crop(fn.decoders.image(read["image"]), size=[SIZE, SIZE])
        return {
            "x": fn.crop_mirror_normalize(images, mean=[0.0] * 3, std=[255.0] * 3),
            "label": fn.reinterpret(read["label"], dtype=types.INT64),
        }

    pipe = graph()
    return lambda: (
        (torch.from_numpy(batch["x"]), torch.from_numpy(batch["label"].reshape(-1))) for batch in GraphIterator(pipe)
    )


def read_litdata(root: str) -> Callable[[], Any]:
    import litdata

    data = litdata.StreamingDataset(root, shuffle=True, drop_last=False, transform=photo)
    return torch_loader(data, of=litdata.StreamingDataLoader)


def read_mosaicml(root: str) -> Callable[[], Any]:
    streaming = module("streaming")

    class Photos(streaming.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: Any) -> Any:
            return photo(super().__getitem__(index))

    streaming.base.util.clean_stale_shared_memory()
    return torch_loader(Photos(local=root, shuffle=True, batch_size=BATCH))


def read_webdataset(root: str) -> Callable[[], Any]:
    webdataset = module("webdataset")
    shards = sorted(map(str, Path(root).glob("*.tar")))
    data = webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False).shuffle(1000).map(photo)
    return torch_loader(data)


READERS: dict[str, Callable[[str], Callable[[], Any]]] = {
    "ours": read_ours,
    "ours_graph": read_ours_by_graph,
    "litdata": read_litdata,
    "mosaicml": read_mosaicml,
    "webdataset": read_webdataset,
}


if __name__ == "__main__":
    main()
