"""Graphs on the host: tokens, images, and a rotation of some of them: ours beside tf.data and DALI, in one process.

    python -m benchmarks.graph --json graph.json                            (2,000 images, 100,000 records; minutes)
    python -m benchmarks.graph --images 64 --records 4096 --repeats 1       (a minute)

tokens        TFRecords of 512 uint16 as raw bytes → shuffled batches of 256; tokens_int64: the same as an int64_list
images        JPEG of 500×375 → decode → resize to 224×224 with antialiasing → (x - mean) / std, float32 CHW
conditional   JPEG → decode → a quarter of the images turned by 10 to 30 degrees, in a canvas of their size
augment       JPEG → decode → random part, resized to 224×224 → mirror → (x - mean) / std, on one and on two threads;
              beside tf.data (decode and crop in one) and DALI also torchvision v2, with as many workers
audio         WAV of 3 s at 44.1 kHz → 16 kHz → 80 mels in decibels → each of them normalised over time; beside DALI and
              torchaudio, with as many workers
device        pixels of 500×375 → random part, resized to 224×224 → colours → mirror → (x - mean) / std, with JAX and
              torch, beside the same on the host; where one of them has a GPU, or with --device

DALI takes part where it can be imported, or where `make test` has made its environment, .venv-dali; its operators for
the host need no GPU. What each alternative gives is checked before it is timed: every record once and
whole; pixels as ours but for the decoder's rounding; a quarter of the images turned. Ours checks the checksum of every
record when it is first read, and shuffles over the whole file; the others have shuffle buffers of 4,096 records.

A key `a_to_best` (`augment_to_best_1`: on one thread) is our throughput over that of the best alternative: medians over
runs taken in turns. `*_cpu_ms` is processor time for one sample, of all threads and workers, in the run that took
least of it, and `cpu_to_best` our ratio by that.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import os
import re
import statistics
import sys
import tempfile
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import beam_pipes.graph.functions as tfrec
from beam_pipes.export.export import dali_index_text
from beam_pipes.format.framing import RecordWriter, scan_records
from beam_pipes.format.messages import Example
from beam_pipes.graph import GraphIterator, Pipeline, pipeline_def, types
from beam_pipes.transforms import fn
from benchmarks import harness
from benchmarks.graph_devices import IMAGE_BATCH, MEAN, SIZE, STD, device_names, measure_devices

LENGTH, VOCABULARY, TOKEN_BATCH, SHUFFLE_BUFFER = 512, 50_000, 256, 4096
PROBABILITY, ANGLES = 0.25, (10.0, 30.0)

AUDIO_BATCH, WAVE_SECS, FROM_HZ, TO_HZ, WINDOW, STEP, POINTS, MELS = 16, 3, 44_100, 16_000, 400, 160, 512, 80

Batches = Callable[[], Iterator[np.ndarray]]  # one epoch


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--images", type=int, default=2000, help="how many JPEG files [2000]")
    parser.add_argument("--records", type=int, default=100_096, help="how many records of tokens [100096]")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each alternative")
    parser.add_argument("--device", action="store_true", help="the part for devices also where there is no GPU")
    parser.add_argument(
        "--only", action="append", help="one of the parts, such as augment_1; several times for several"
    )
    options = parser.parse_args(arguments)
    dali()
    images = max(IMAGE_BATCH, options.images // IMAGE_BATCH * IMAGE_BATCH)
    records = max(TOKEN_BATCH, options.records // TOKEN_BATCH * TOKEN_BATCH)
    whole: dict[str, Any] = {"images": images, "records": records, "threads": options.threads}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        packed, listed, total = write_tokens(root, records)
        write_images(root / "images", images)
        waves = max(AUDIO_BATCH, images // 4 // AUDIO_BATCH * AUDIO_BATCH)
        write_waves(root / "waves", waves)
        photos, threads = root / "images", options.threads
        cases: dict[str, tuple[Callable[[], dict[str, Batches]], Callable[[dict[str, Batches]], None], int]] = {
            "tokens": (lambda: token_readers(packed, True, threads), token_check(records, total), records),
            "tokens_int64": (lambda: token_readers(listed, False, threads), token_check(records, total), records),
            "images": (lambda: image_readers(photos, threads), check_images, images),
            "conditional": (lambda: conditional_readers(photos, threads), check_turned, images),
            "augment_1": (lambda: augmenting_readers(photos, 1), check_augmented, images),
            "augment_2": (lambda: augmenting_readers(photos, 2), check_augmented, images),
            "audio": (lambda: audio_readers(root / "waves", threads), check_audio, waves),
        }
        for name in options.only or cases:
            make, check, count = cases[name]
            if len(readers := make()) > 1:
                check(readers)
                whole |= measured(name, readers, count, options.repeats)
    devices = device_names()
    if options.device or any("cpu" not in name.lower() for name in devices.values()):
        whole["device"] = {**devices, **measure_devices(images, options.threads, options.repeats)}
    harness.report(whole, options.json)
    return whole


def measured(name: str, readers: dict[str, Batches], count: int, repeats: int) -> dict[str, Any]:
    """Samples per second and processor time of each of `readers`, and the ratio to the best of the others."""
    cpu: dict[str, list[float]] = {key: [] for key in readers}
    secs = harness.paired_seconds(
        {key: lambda key=key, epoch=epoch: cpu[key].append(cpu_secs_of(epoch)) for key, epoch in readers.items()},
        repeats=repeats,
    )
    medians = {key: statistics.median(values) for key, values in secs.items()}
    best = min(value for key, value in medians.items() if key != "ours")
    least = {key: min(values) for key, values in cpu.items()}
    best_cpu = min(value for key, value in least.items() if key != "ours")
    return {
        name: {f"{key}_per_sec": round(count / value, 1) for key, value in medians.items()}
        | {f"{key}_cpu_ms": round(1e3 * value / count, 4) for key, value in least.items()}
        | {"cpu_to_best": round(best_cpu / least["ours"], 3)},
        re.sub("(_[12])?$", r"_to_best\1", name, count=1): round(best / medians["ours"], 3),
    }


def cpu_secs_of(epoch: Batches) -> float:
    """Goes through an epoch; returns the processor time of this process and its workers."""
    before = harness.cpu_secs_of_tree()
    for _ in epoch():
        pass
    return harness.cpu_secs_of_tree() - before


@functools.cache
def dali() -> Any:
    """The modules of DALI, or None.

    Called before anything imports TensorFlow: both contain an LLVM, as Triton does, and only one import order works.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton._C.libtriton")
    for place in Path(__file__).parents[1].glob(".venv-dali/lib/python*/site-packages"):
        if str(place) not in sys.path:
            sys.path.append(str(place))  # after ours, so that only DALI is imported from it
    try:
        for module in ("fn", "tfrecord", "types"):
            importlib.import_module(f"nvidia.dali.{module}")
    except ImportError:
        return None
    library: Any = importlib.import_module("nvidia.dali")
    with library.Pipeline(batch_size=1, num_threads=1, device_id=None) as pipe:  # it loads its decoder with the first
        pipe.set_outputs(library.fn.decoders.image(library.fn.external_source(source=lambda: [np.zeros(8, np.uint8)])))
    pipe.build()
    return library


# Input


def write_tokens(root: Path, records: int) -> tuple[Path, Path, int]:
    """The same tokens as raw bytes and as int64 lists, each with an index for DALI; and their sum."""
    rng = np.random.default_rng(0)
    packed, listed, total = root / "packed.tfrecord", root / "listed.tfrecord", 0
    with RecordWriter(packed) as raw, RecordWriter(listed) as ints:
        for number in range(records):
            # Tokens of text are mostly common ones; the first two are the number of the record.
            tokens = np.minimum(rng.zipf(1.2, LENGTH), VOCABULARY - 1).astype(np.uint16)
            tokens[:2] = number >> 15, number & 0x7FFF
            total += int(tokens.sum(dtype=np.int64))
            for writer, kind in ((raw, "bytes"), (ints, "ints")):
                message = Example()
                feature = message.features.feature["tokens"]
                if kind == "bytes":
                    feature.bytes_list.value.append(tokens.astype("<u2").tobytes())
                else:
                    feature.int64_list.value.extend(tokens.tolist())
                writer.write(message.SerializeToString())
    for path in (packed, listed):
        places = np.array(list(scan_records(path)))
        path.with_suffix(".idx").write_text(dali_index_text(places[:, 0], places[:, 1]))
    return packed, listed, total


def write_images(directory: Path, count: int) -> None:
    """JPEG files of 500×375, smooth with some noise: about 60 kB each."""
    from PIL import Image

    (directory / "all").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
        pixels = np.clip(smooth + rng.integers(-12, 12, smooth.shape), 8, 255).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        (directory / "all" / f"{number:06}.jpg").write_bytes(buffer.getvalue())


# Tokens


def token_readers(path: Path, packed: bool, threads: int) -> dict[str, Batches]:
    feature = tfrec.FixedLenFeature([], tfrec.string, "") if packed else tfrec.FixedLenFeature([LENGTH], tfrec.int64, 0)

    @pipeline_def(batch_size=TOKEN_BATCH, num_threads=threads, seed=1)
    def ours() -> Any:
        tokens = fn.readers.tfrecord(path=str(path), features={"tokens": feature}, random_shuffle=True)["tokens"]
        return {"tokens": fn.reinterpret(tokens, dtype=types.UINT16) if packed else tokens}

    pipe = ours()
    readers: dict[str, Batches] = {
        "ours": lambda: (batch["tokens"] for batch in GraphIterator(pipe)),
        "tfdata": tfdata_tokens(path, packed, threads),
    }
    if (library := dali()) is not None:
        readers["dali"] = dali_tokens(library, path, packed, threads)
    return readers


def tfdata_tokens(path: Path, packed: bool, threads: int) -> Batches:
    import tensorflow as tf

    spec = tf.io.FixedLenFeature([], tf.string) if packed else tf.io.FixedLenFeature([LENGTH], tf.int64)

    def parse(batch: Any) -> Any:
        tokens = tf.io.parse_example(batch, {"tokens": spec})["tokens"]
        return tf.io.decode_raw(tokens, tf.uint16) if packed else tokens

    dataset = tf.data.TFRecordDataset([str(path)]).shuffle(SHUFFLE_BUFFER, seed=1).batch(TOKEN_BATCH)
    dataset = dataset.map(parse, num_parallel_calls=threads).prefetch(2)
    return lambda: iter(dataset.as_numpy_iterator())


def dali_tokens(library: Any, path: Path, packed: bool, threads: int) -> Batches:
    of = library.tfrecord
    feature = of.FixedLenFeature([], of.string, "") if packed else of.FixedLenFeature([LENGTH], of.int64, 0)

    @library.pipeline_def(batch_size=TOKEN_BATCH, num_threads=threads, device_id=None, seed=1)
    def define() -> Any:
        tokens = library.fn.readers.tfrecord(
            path=str(path),
            index_path=str(path.with_suffix(".idx")),
            features={"tokens": feature},
            random_shuffle=True,
            initial_fill=SHUFFLE_BUFFER,
            name="reader",
        )["tokens"]
        return library.fn.reinterpret(tokens, dtype=library.types.UINT16) if packed else tokens

    return dali_epochs(define())


def dali_epochs(pipe: Any) -> Batches:
    """Epochs of a DALI pipeline whose reader is called "reader"."""
    pipe.build()
    size = pipe.max_batch_size

    def epoch() -> Iterator[np.ndarray]:
        for _ in range(pipe.epoch_size("reader") // size):
            (batch,) = pipe.run()
            yield batch.as_array() if batch.is_dense_tensor() else [np.asarray(batch[i]) for i in range(len(batch))]

    return epoch


def token_check(records: int, total: int) -> Callable[[dict[str, Batches]], None]:
    def check(readers: dict[str, Batches]) -> None:
        for name, epoch in readers.items():
            seen, found = np.zeros(records, np.int64), 0
            for batch in epoch():
                numbers = (batch[:, 0].astype(np.int64) << 15) + batch[:, 1]
                np.add.at(seen, numbers, 1)
                found += int(batch.sum(dtype=np.int64))
            if not (seen == 1).all() or found != total:
                raise AssertionError(f"{name}: {(seen != 1).sum()} records are missing or twice, or tokens differ")

    return check


# Images


def image_readers(root: Path, threads: int) -> dict[str, Batches]:
    @pipeline_def(batch_size=IMAGE_BATCH, num_threads=threads)
    def ours() -> Any:
        images = fn.decoders.image(fn.readers.file(file_root=str(root))[0])
        return {"images": fn.crop_mirror_normalize(fn.resize(images, size=[SIZE, SIZE]), mean=MEAN, std=STD)}

    pipe = ours()
    readers: dict[str, Batches] = {
        "ours": lambda: (batch["images"] for batch in GraphIterator(pipe)),
        "tfdata": tfdata_images(root, threads),
    }
    if (library := dali()) is not None:

        @library.pipeline_def(batch_size=IMAGE_BATCH, num_threads=threads, device_id=None)
        def theirs() -> Any:
            of = library.fn
            images = of.decoders.image(of.readers.file(file_root=str(root), name="reader")[0])
            return of.crop_mirror_normalize(of.resize(images, size=[SIZE, SIZE]), mean=list(MEAN), std=list(STD))

        readers["dali"] = dali_epochs(theirs())
    return readers


def tfdata_files(root: Path) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(sorted(map(str, root.glob("all/*.jpg")))).map(tf.io.read_file)


def tfdata_images(root: Path, threads: int) -> Batches:
    import tensorflow as tf

    def load(data: Any) -> Any:
        image = tf.image.resize(
            tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"), [SIZE, SIZE], antialias=True
        )
        return tf.transpose((image - MEAN) / STD, [2, 0, 1])

    dataset = tfdata_files(root).map(load, num_parallel_calls=threads).batch(IMAGE_BATCH).prefetch(2)
    return lambda: iter(dataset.as_numpy_iterator())


def check_images(readers: dict[str, Batches]) -> None:
    """Shapes of all images; pixels of the first batch as ours, but for rounding (1/58 is one step of 256)."""
    expected = None
    for batch in readers["ours"]():  # to the end of the epoch: the next one begins with the same images
        expected = batch if expected is None else expected
    for name, epoch in readers.items():
        for index, batch in enumerate(epoch()):
            if batch.shape != (IMAGE_BATCH, 3, SIZE, SIZE) or batch.dtype != np.float32:
                raise AssertionError(f"{name}: expected float32 {(IMAGE_BATCH, 3, SIZE, SIZE)}, got {batch.shape}")
            if index == 0 and (error := float(np.abs(batch - expected).mean())) > 0.05:
                raise AssertionError(f"{name}: pixels differ from ours by {error:.3f} on average")


# Random parts


def augmenting_readers(root: Path, threads: int) -> dict[str, Batches]:
    @pipeline_def(batch_size=IMAGE_BATCH, num_threads=threads, seed=1)
    def ours() -> Any:
        images = fn.decoders.image(fn.readers.file(file_root=str(root))[0])
        images = fn.random_resized_crop(images, size=[SIZE, SIZE])
        return {"x": fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), mean=MEAN, std=STD)}

    pipe = ours()
    readers: dict[str, Batches] = {
        "ours": lambda: (batch["x"] for batch in GraphIterator(pipe)),
        "tfdata": tfdata_augmented(root, threads),
    }
    if (library := dali()) is not None:

        @library.pipeline_def(batch_size=IMAGE_BATCH, num_threads=threads, device_id=None, seed=1)
        def theirs() -> Any:
            of = library.fn
            images = of.decoders.image(of.readers.file(file_root=str(root), name="reader")[0])
            images = of.random_resized_crop(images, size=[SIZE, SIZE])
            return of.crop_mirror_normalize(images, mirror=of.random.coin_flip(), mean=list(MEAN), std=list(STD))

        readers["dali"] = dali_epochs(theirs())
    if importlib.util.find_spec("torchvision") is not None:
        readers["torchvision"] = torch_batches(TorchvisionFiles(root), IMAGE_BATCH, threads)
    return readers


def tfdata_augmented(root: Path, threads: int) -> Batches:
    import tensorflow as tf

    def load(data: Any) -> Any:
        start, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(data),
            tf.zeros([1, 0, 4]),
            min_object_covered=0.0,
            aspect_ratio_range=(0.75, 4.0 / 3.0),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([start[0], start[1], size[0], size[1]])
        image = tf.io.decode_and_crop_jpeg(data, window, channels=3, dct_method="INTEGER_ACCURATE")
        image = tf.image.random_flip_left_right(tf.image.resize(image, [SIZE, SIZE], antialias=True))
        return tf.transpose((image - MEAN) / STD, [2, 0, 1])

    dataset = tfdata_files(root).map(load, num_parallel_calls=threads).batch(IMAGE_BATCH).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(options)
    return lambda: iter(dataset.as_numpy_iterator())


class TorchvisionFiles:
    """A dataset of torch: files, decoded and transformed by torchvision."""

    def __init__(self, root: Path) -> None:
        from torchvision.transforms import v2

        self.paths = sorted(map(str, root.glob("all/*.jpg")))
        flip, mean, std = v2.RandomHorizontalFlip(), [one / 255 for one in MEAN], [one / 255 for one in STD]
        crop, scaled = v2.RandomResizedCrop([SIZE, SIZE], antialias=True), v2.ToDtype(self.dtype(), scale=True)
        self.transform = v2.Compose([crop, flip, scaled, v2.Normalize(mean, std)])

    @staticmethod
    def dtype() -> Any:
        import torch

        torch.set_num_threads(1)
        return torch.float32

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        from torchvision import io as images

        return self.transform(images.decode_jpeg(images.read_file(self.paths[index])))


def torch_batches(dataset: Any, batch: int, threads: int) -> Batches:
    """A torch DataLoader over a dataset: without workers for one thread, else with one worker per thread."""
    from torch.utils.data import DataLoader

    workers: dict[str, Any] = {}
    if threads > 1:
        workers = {"num_workers": threads, "persistent_workers": True, "multiprocessing_context": "spawn"}
    loader: Any = DataLoader(dataset, batch_size=batch, **workers)
    return lambda: (batch.numpy() for batch in loader)


def check_augmented(readers: dict[str, Batches]) -> None:
    """Shapes of all batches; mean and deviation over an epoch must equal ours, although the random parts differ."""
    figures = {}
    for name, epoch in readers.items():
        moments = []
        for batch in epoch():
            if batch.shape != (IMAGE_BATCH, 3, SIZE, SIZE) or batch.dtype != np.float32:
                raise AssertionError(f"{name}: expected float32 {(IMAGE_BATCH, 3, SIZE, SIZE)}, got {batch.shape}")
            moments.append((batch.mean(), batch.std(axis=(2, 3)).mean()))
        figures[name] = np.mean(moments, axis=0)
        if np.abs(figures[name] - figures["ours"]).max() > 0.05:
            raise AssertionError(f"{name}: mean and deviation {figures[name]} differ from ours, {figures['ours']}")


# Sound


def write_waves(directory: Path, count: int) -> None:
    """WAV files of 16 bits: noise over gliding tones, below half of the lower rate: DALI and we filter nothing."""
    directory.mkdir()
    rng, at = np.random.default_rng(2), np.arange(WAVE_SECS * FROM_HZ) / FROM_HZ
    for number in range(count):
        spectrum = np.fft.rfft(0.3 * rng.standard_normal(len(at)))
        spectrum[WAVE_SECS * TO_HZ // 2 - 1000 :] = 0
        tones = np.sin(2 * np.pi * (200 + 40 * number % 3000 + 150 * at) * at) + np.fft.irfft(spectrum)
        with wave.open(str(directory / f"{number:05}.wav"), "wb") as file:
            file.setparams((1, 2, FROM_HZ, 0, "NONE", ""))
            file.writeframes((tones * 8000).astype("<i2").tobytes())


def audio_readers(root: Path, threads: int) -> dict[str, Batches]:
    paths = sorted(map(str, root.glob("*.wav")))

    def mels(of: Any) -> Any:
        sound = of.decoders.audio(of.readers.file(files=paths, name="reader")[0], downmix=True)[0]
        sound = of.audio_resample(sound, in_rate=float(FROM_HZ), out_rate=float(TO_HZ))
        powers = of.spectrogram(sound, nfft=POINTS, window_length=WINDOW, window_step=STEP)
        decibels = of.to_decibels(of.mel_filter_bank(powers, nfilter=MELS, sample_rate=float(TO_HZ)), cutoff_db=-80.0)
        return of.normalize(decibels, axes=[1])

    @pipeline_def(batch_size=AUDIO_BATCH, num_threads=threads)
    def ours() -> Any:
        return {"x": mels(fn)}

    made: dict[str, Batches] = {"ours": lambda: (batch["x"] for batch in GraphIterator(pipe))}
    pipe = ours()
    if importlib.util.find_spec("torchaudio") is not None:
        made["torchaudio"] = torch_batches(TorchaudioFiles(paths), AUDIO_BATCH, threads)
    if (library := dali()) is None:
        return made

    @library.pipeline_def(batch_size=AUDIO_BATCH, num_threads=threads, device_id=None)
    def theirs() -> Any:
        return mels(library.fn)

    return {**made, "dali": dali_epochs(theirs())}


class TorchaudioFiles:
    """A dataset of torch: sound files, as mels by torchaudio."""

    def __init__(self, paths: list[str]) -> None:
        from torchaudio import transforms

        mel = {"n_mels": MELS, "norm": "slaney", "mel_scale": "slaney"}
        self.paths = paths
        self.resample = transforms.Resample(FROM_HZ, TO_HZ)
        self.mels = transforms.MelSpectrogram(TO_HZ, n_fft=POINTS, win_length=WINDOW, hop_length=STEP, **mel)
        self.decibels = transforms.AmplitudeToDB(top_db=80.0)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        import soundfile
        import torch

        torch.set_num_threads(1)
        wave, _ = soundfile.read(self.paths[index], dtype="float32")
        decibels = self.decibels(self.mels(self.resample(torch.from_numpy(wave))))
        deviation, mean = torch.std_mean(decibels, dim=1, keepdim=True, correction=0)
        return (decibels - mean) / deviation


def check_audio(readers: dict[str, Batches]) -> None:
    """Every number equals DALI's to a thousandth of a deviation on average, and torchaudio's to a tenth."""
    for name, most in (("dali", 1e-3), ("torchaudio", 0.1)):
        for ours, theirs in zip(readers["ours"](), readers.get(name, readers["ours"])(), strict=True):
            if ours.shape != theirs.shape or (error := float(np.abs(ours - theirs).mean())) > most:
                raise AssertionError(f"ours {ours.shape} differs from {name}'s {theirs.shape} by {error} on average")


# A condition


def conditional_readers(root: Path, threads: int) -> dict[str, Batches]:
    @pipeline_def(batch_size=IMAGE_BATCH, num_threads=threads, seed=1, enable_conditionals=True)
    def ours() -> Any:
        images = fn.decoders.image(fn.readers.file(file_root=str(root))[0])
        turn = fn.random.coin_flip(probability=PROBABILITY, dtype=types.BOOL)
        if turn:
            result = fn.rotate(images, angle=fn.random.uniform(range=ANGLES), fill_value=0, keep_size=True)
        else:
            result = images
        return {"images": result}

    pipe: Pipeline = ours()
    readers: dict[str, Batches] = {
        "ours": lambda: (batch["images"] for batch in GraphIterator(pipe)),
        "tfdata": tfdata_turned(root, threads),
    }
    if (library := dali()) is not None:

        @library.pipeline_def(
            batch_size=IMAGE_BATCH, num_threads=threads, device_id=None, seed=1, enable_conditionals=True
        )
        def theirs() -> Any:
            of = library.fn
            images = of.decoders.image(of.readers.file(file_root=str(root), name="reader")[0])
            turn = of.random.coin_flip(probability=PROBABILITY, dtype=library.types.BOOL)
            if turn:
                result = of.rotate(images, angle=of.random.uniform(range=ANGLES), fill_value=0, keep_size=True)
            else:
                result = images
            return result

        readers["dali"] = dali_epochs(theirs())
    return readers


def tfdata_turned(root: Path, threads: int) -> Batches:
    import tensorflow as tf

    def turned(image: Any) -> Any:
        angle = tf.random.uniform([], *ANGLES) * (np.pi / 180)
        cosine, sine = tf.cos(angle), tf.sin(angle)
        x, y = 249.5, 187.0
        matrix = tf.stack([cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y, 0.0, 0.0])
        made = tf.raw_ops.ImageProjectiveTransformV3(
            images=image[None],
            transforms=matrix[None],
            output_shape=[375, 500],
            fill_value=0.0,
            interpolation="BILINEAR",
            fill_mode="CONSTANT",
        )
        return made[0]

    def load(data: Any) -> Any:
        image = tf.ensure_shape(tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"), [375, 500, 3])
        return tf.cond(tf.random.uniform([]) < PROBABILITY, lambda: turned(image), lambda: image)

    dataset = tfdata_files(root).map(load, num_parallel_calls=threads).batch(IMAGE_BATCH).prefetch(2)
    return lambda: iter(dataset.as_numpy_iterator())


def check_turned(readers: dict[str, Batches]) -> None:
    """Only turned images have black corners: about a quarter of all must be turned."""
    for name, epoch in readers.items():
        corners = [bool((image[0, 0] == 0).all()) for batch in epoch() for image in batch]
        share = sum(corners) / len(corners)
        if abs(share - PROBABILITY) > 4 * (PROBABILITY * (1 - PROBABILITY) / len(corners)) ** 0.5:
            raise AssertionError(f"{name}: {share:.3f} of the images are turned, expected about {PROBABILITY}")


if __name__ == "__main__":
    main()
