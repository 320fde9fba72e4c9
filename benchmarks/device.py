"""Does the loader keep a device busy, and is what arrives there right?

    python -m benchmarks.device --json device.json             (on the GPU, if there is one)
    python -m benchmarks.device --frameworks jax --sizes large
    python -m benchmarks.device --fake --pattern-secs 3        (without a GPU: a fake one)

Batches come globally shuffled from a cache of TFRecord files in the page cache, through `prefetch_to_devices()` of the
loaders of JAX, torch and TensorFlow. A framework that is not installed is named in the results.

`fed_to_resident`: training steps fed by the loader over the same steps on one batch that is replayed from the device,
the median over runs taken in turns; 1.0 means that loading costs nothing. A step is forward, backward and update of an
embedding and a stack of dense layers: the small one takes a fraction of a millisecond on a GPU, the large one tens.
`headspace`: batches a second that the loader's path alone brings to the device, over those that the steps take.

`transfer`: bytes a second of batches of 16 MiB: all the path, the path replaying one batch that is in memory (what lies
behind reading), and beside it plain copies from pinned and from ordinary memory, where torch has a GPU.

`pattern`: records hold their number in each of their elements. On the device a reduction compares every element with
what it should be, while the loop overwrites each batch afterwards, runs on two streams (torch), donates it (JAX), and
the device is kept behind by other work. `wrong` has to be 0. Batches are small (copied by the consumer) and large.

With `--fake` the copies are those of a device that is slow and overwrites host memory; the steps run on the CPU, where
sizes are smaller, and the loader's threads compete with the steps for cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.loader import Loader
from benchmarks.device_fake import FakeDevice
from benchmarks.harness import paired_seconds, parser, ratio, report
from benchmarks.load import WIDTH, write_cache

VOCABULARY = 32_768
FAKE_COPY_SECS = 0.001
TRANSFER_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """A step: rows of a batch, width and number of the dense layers, and how many steps a run has."""

    rows: int
    width: int
    layers: int
    steps: int


SIZES = {
    ("gpu", "small"): Size(rows=32, width=256, layers=2, steps=500),
    ("gpu", "large"): Size(rows=32, width=2048, layers=16, steps=50),
    ("cpu", "small"): Size(rows=32, width=16, layers=1, steps=20),
    ("cpu", "large"): Size(rows=32, width=64, layers=2, steps=8),
}
# Batches of the pattern: 128 KiB, copied by the consumer, and 8 MiB, which threads prepare.
PATTERN_ROWS = {"gpu": (32, 2048), "cpu": (32, 256)}
# Width of the square products that keep the device behind the loop.
BUSY = {"gpu": 1024, "cpu": 16}

Feed = Callable[[], Iterator[Any]]
Steps = Callable[[Iterator[Any]], None]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    made = parser(__doc__)
    made.add_argument("--frameworks", nargs="+", choices=list(FRAMEWORKS), default=list(FRAMEWORKS))
    made.add_argument("--sizes", nargs="*", choices=["small", "large"], default=["small", "large"])
    made.add_argument("--rows", type=int, default=16_384, help="records of 1,024 tokens in the cache [16,384]")
    made.add_argument("--steps", type=int, help="steps of a run [by size]")
    made.add_argument("--prefetch", type=int, default=2, help="batches ready on the host, and on the device [2]")
    made.add_argument("--pattern-secs", type=float, default=10.0, help="seconds of the pattern test, all together [10]")
    made.add_argument("--fake", action="store_true", help="copies of a fake device")
    options = made.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several frameworks share the GPU
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        tokens = np.random.default_rng(1).integers(0, VOCABULARY, (options.rows, WIDTH), dtype=np.int32)
        split = write_cache(work / "cache", {"tokens": tokens})
        numbers = np.repeat(np.arange(options.rows, dtype=np.int32)[:, None], WIDTH, axis=1)
        pattern = write_cache(work / "pattern", {"tokens": numbers})
        results: dict[str, Any] = {"fake": options.fake}
        there = [name for name in options.frameworks if importlib.util.find_spec(name) is not None]
        for framework in options.frameworks:
            if framework not in there:
                results[framework] = {"missing": f"{framework} is not installed"}
                print(f"{framework} is not installed: not measured", flush=True)
                continue
            device = FRAMEWORKS[framework](options.fake)
            found = results[framework] = {
                "device": device.name,
                "version": importlib.import_module(framework).__version__,
            }
            for size_name in options.sizes:
                size = SIZES[device.kind, size_name]
                size = dataclasses.replace(size, steps=options.steps or size.steps)
                found[size_name] = _measure(device, split, size, options)
            if options.sizes:
                found["transfer"] = _transfer(device, split, options)
            found["pattern"] = _pattern(device, pattern, options, options.pattern_secs / len(there))
        report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


def _measure(device: Any, split: Any, size: Size, options: Any) -> dict[str, Any]:
    run = device.training(size)
    resident = device.resident(Loader(split, batch_size=size.rows, seed=1).batch_at(0))
    fed = device.fed(Loader(split, batch_size=size.rows, seed=1, epochs=None), options.prefetch)
    with contextlib.closing(iter(fed)) as batches:
        run(itertools.islice(batches, 20))  # compiles; and what is quick shows that it is
        run(itertools.repeat(resident, 3))
        runs = {
            "resident": lambda: run(itertools.repeat(resident, size.steps)),
            "fed": lambda: run(itertools.islice(batches, size.steps)),
        }
        secs = paired_seconds(runs, repeats=max(3, options.repeats))
        rate = _batches_per_sec(device, batches, size.steps)
    resident_secs = min(secs["resident"]) / size.steps
    return {
        "fed_to_resident": round(ratio(secs, "fed", "resident"), 4),
        "resident_step_ms": round(resident_secs * 1e3, 3),
        "fed_step_ms": round(min(secs["fed"]) / size.steps * 1e3, 3),
        "path_batches_per_sec": round(rate, 1),
        "headspace": round(rate * resident_secs, 2),
        **dataclasses.asdict(size),
    }


def _batches_per_sec(device: Any, batches: Iterator[Any], count: int) -> float:
    device.wait(next(batches))
    began = time.perf_counter()
    for _ in range(count):
        batch = next(batches)
    device.wait(batch)
    return count / (time.perf_counter() - began)


def _transfer(device: Any, split: Any, options: Any) -> dict[str, Any]:
    rows = min(TRANSFER_BYTES // (WIDTH * 4), len(split))
    count = 50 if device.kind == "gpu" else 5
    whole = Loader(split, batch_size=rows, seed=1, epochs=None)
    one = {name: np.array(array) for name, array in whole.batch_at(0).items()}
    found = {"batch_bytes": sum(array.nbytes for array in one.values())}
    for name, source in {"path": whole, "replay": [one] * (count + 20)}.items():
        with contextlib.closing(iter(device.fed(source, options.prefetch))) as batches:
            for _ in range(10):
                next(batches)
            rate = _batches_per_sec(device, batches, count)
        found[f"{name}_gb_per_sec"] = round(rate * found["batch_bytes"] / 1e9, 2)
    return {**found, **device.copy_peaks(one["tokens"])}


def _pattern(device: Any, split: Any, options: Any, secs: float) -> dict[str, Any]:
    found: dict[str, Any] = {"secs": round(secs, 1), "batches": 0, "elements": 0, "wrong": 0}
    sizes = [rows for rows in PATTERN_ROWS[device.kind] if rows <= len(split)]
    for rows in sizes:
        loader = Loader(split, batch_size=rows, shuffle=False, epochs=None, last="drop")
        check = device.checking(rows)
        until, number = time.perf_counter() + secs / len(sizes), 0
        with contextlib.closing(iter(device.fed(loader, options.prefetch))) as batches:
            while time.perf_counter() < until:
                for batch in itertools.islice(batches, 50):
                    check(batch["tokens"], number % (len(split) // rows) * rows, number)
                    number += 1
                found["wrong"] += check.wrong()
        found["batches"] += number
        found["elements"] += number * rows * WIDTH
    return found


class _Device:
    """What the frameworks share: the path from a source of batches to the device."""

    kind: str
    name: str

    def __init__(self, fake: bool) -> None:
        self.fake = fake

    def copies(self) -> FakeDevice | None:
        return FakeDevice(self.made, copy_secs=FAKE_COPY_SECS) if self.fake else None

    def made(self, array: np.ndarray) -> Any:
        """Device memory of the fake as an array of the framework."""
        raise NotImplementedError

    def copy_peaks(self, array: np.ndarray) -> dict[str, float]:
        """GB a second of plain copies, where they can be made."""
        return {}


class JaxDevice(_Device):
    """Steps of JAX on its default device."""

    def __init__(self, fake: bool = False) -> None:
        import jax

        super().__init__(fake)
        self._device = jax.devices()[0]
        self.kind = "cpu" if self._device.platform == "cpu" else "gpu"
        self.name = f"{self._device.platform}: {self._device.device_kind}"

    def made(self, array: np.ndarray) -> Any:
        import jax.numpy as jnp

        return jnp.array(array)

    def resident(self, batch: Any) -> Any:
        import jax

        return jax.device_put(batch, self._device)

    def wait(self, batch: Any) -> None:
        import jax

        jax.block_until_ready(batch)

    def fed(self, source: Any, prefetch: int) -> Any:
        from beam_pipes.on_device import JaxDataLoader

        return JaxDataLoader(source).prefetch_to_devices(prefetch, copies=self.copies())

    def training(self, size: Size) -> Steps:
        import jax
        import jax.numpy as jnp

        dtype = jnp.float32 if self.kind == "cpu" else jnp.bfloat16
        keys = jax.random.split(jax.random.key(0), size.layers + 1)
        scale = size.width**-0.5
        parameters = {
            "embedding": jax.random.normal(keys[0], (VOCABULARY, size.width), dtype) * scale,
            "dense": [jax.random.normal(key, (size.width, size.width), dtype) * scale for key in keys[1:]],
        }

        def loss(parameters: Any, tokens: Any) -> Any:
            hidden = parameters["embedding"][tokens]
            for dense in parameters["dense"]:
                hidden = jnp.tanh(hidden @ dense)
            return jnp.mean(jnp.square(hidden.astype(jnp.float32)))

        @jax.jit
        def step(parameters: Any, tokens: Any) -> Any:
            gradients = jax.grad(loss)(parameters, tokens)
            return jax.tree.map(lambda p, g: p - jnp.asarray(1e-3, dtype) * g, parameters, gradients)

        def run(batches: Iterator[Any]) -> None:
            trained = parameters
            for batch in batches:
                trained = step(trained, batch["tokens"])
            jax.block_until_ready(trained)

        return run

    def checking(self, rows: int) -> Any:
        import functools

        import jax
        import jax.numpy as jnp

        busy_width = BUSY[self.kind]

        @functools.partial(jax.jit, donate_argnums=(0, 1, 3))
        def compare(wrong: Any, tokens: Any, first: Any, busy: Any) -> Any:
            for _ in range(4):
                busy = jnp.tanh(busy @ busy)
            expected = first + jnp.arange(rows, dtype=jnp.int32)[:, None]
            # Of the shape and type of the batch, so that it is written into the batch's donated memory.
            return wrong + jnp.sum(tokens != expected), jnp.full_like(tokens, -1) + tokens * 0, busy

        class Check:
            def __init__(self) -> None:
                self._wrong, self._busy = jnp.zeros((), jnp.int32), jnp.zeros((busy_width,) * 2, jnp.bfloat16)

            def __call__(self, tokens: Any, first: int, number: int) -> None:
                self._wrong, _, self._busy = compare(self._wrong, tokens, np.int32(first), self._busy)

            def wrong(self) -> int:
                found, self._wrong = int(self._wrong), jnp.zeros((), jnp.int32)
                return found

        return Check()


class TorchDevice(_Device):
    """Steps of torch on the first GPU, or on the CPU."""

    def __init__(self, fake: bool = False) -> None:
        import torch

        super().__init__(fake)
        self.kind = "gpu" if torch.cuda.is_available() and not fake else "cpu"
        self._device = torch.device("cuda" if self.kind == "gpu" else "cpu")
        self.name = f"cuda: {torch.cuda.get_device_name()}" if self.kind == "gpu" else "cpu"

    def made(self, array: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(array)

    def resident(self, batch: Any) -> Any:
        import torch

        return {name: torch.from_numpy(array).to(self._device) for name, array in batch.items()}

    def wait(self, batch: Any) -> None:
        import torch

        if self.kind == "gpu":
            torch.cuda.synchronize()

    def fed(self, source: Any, prefetch: int) -> Any:
        from beam_pipes.on_device import TorchDataLoader

        return TorchDataLoader(source).prefetch_to_devices(prefetch, device=self._device, copies=self.copies())

    def copy_peaks(self, array: np.ndarray) -> dict[str, float]:
        import torch

        if self.kind == "cpu":
            return {}
        ordinary = torch.from_numpy(array)
        found = {}
        for name, host in {"pinned": ordinary.pin_memory(), "pageable": ordinary}.items():
            on_device = host.to(self._device)
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(50):
                on_device.copy_(host, non_blocking=True)
            torch.cuda.synchronize()
            found[f"{name}_copy_gb_per_sec"] = round(50 * array.nbytes / (time.perf_counter() - began) / 1e9, 2)
        return found

    def training(self, size: Size) -> Steps:
        import torch

        dtype = torch.float32 if self.kind == "cpu" else torch.bfloat16
        torch.manual_seed(0)
        layers: list[Any] = [torch.nn.Embedding(VOCABULARY, size.width)]
        for _ in range(size.layers):
            layers += [torch.nn.Linear(size.width, size.width, bias=False), torch.nn.Tanh()]
        model = torch.nn.Sequential(*layers).to(self._device, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def run(batches: Iterator[Any]) -> None:
            for batch in batches:
                optimizer.zero_grad(set_to_none=True)
                model(batch["tokens"]).float().square().mean().backward()
                optimizer.step()
            if self.kind == "gpu":
                torch.cuda.synchronize()

        return run

    def checking(self, rows: int) -> Any:
        import torch

        device, on_gpu = self._device, self.kind == "gpu"
        own = [torch.cuda.Stream(device) for _ in range(2)] if on_gpu else [None]
        offsets = torch.arange(rows, dtype=torch.int32, device=device)[:, None]
        counts = [torch.zeros((), dtype=torch.int64, device=device) for _ in own]
        busy = torch.ones((BUSY[self.kind],) * 2, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)

        class Check:
            def __call__(self, tokens: Any, first: int, number: int) -> None:
                place = number // 7 % len(own)  # some batches are checked on the one stream, some on the other
                stream = own[place]
                if stream is not None:
                    stream.wait_stream(torch.cuda.current_stream(device))
                    tokens.record_stream(stream)
                with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
                    for _ in range(4 if on_gpu else 1):
                        torch.tanh(busy @ busy)
                    counts[place] += (tokens != first + offsets).sum()
                    tokens.fill_(-1)

            def wrong(self) -> int:
                if on_gpu:
                    torch.cuda.synchronize()
                found = sum(int(count) for count in counts)
                for count in counts:
                    count.zero_()
                return found

        return Check()


class TensorFlowDevice(_Device):
    """Steps of TensorFlow on its first GPU, or on the CPU, over `DataLoader.prefetch_to_devices()`."""

    def __init__(self, fake: bool = False) -> None:
        import tensorflow as tf

        super().__init__(fake)
        gpus = tf.config.list_logical_devices("GPU")
        self.kind = "gpu" if gpus and not fake else "cpu"
        self._device = gpus[0].name if self.kind == "gpu" else "/cpu:0"
        self.name = self._device

    def made(self, array: np.ndarray) -> Any:
        return array  # tf.data takes it over

    def resident(self, batch: Any) -> Any:
        import tensorflow as tf

        with tf.device(self._device):
            return {name: tf.identity(tf.constant(array)) for name, array in batch.items()}

    def wait(self, batch: Any) -> None:
        batch["tokens"][:1, :1].numpy()

    def fed(self, source: Any, prefetch: int) -> Any:
        import tensorflow as tf

        from beam_pipes.on_device import DataLoader

        if isinstance(source, Loader):
            loader = DataLoader.from_cache(source)
        else:
            loader = DataLoader(tf.data.Dataset.from_tensors(source[0]).repeat(len(source)))
        return _Iterated(loader.prefetch_to_devices(prefetch, device=self._device, copies=self.copies()))

    def training(self, size: Size) -> Steps:
        import tensorflow as tf

        with tf.device(self._device):
            dtype = tf.float32 if self.kind == "cpu" else tf.bfloat16
            tf.random.set_seed(0)
            scale = size.width**-0.5
            embedding = tf.Variable(tf.random.normal((VOCABULARY, size.width), stddev=scale, dtype=dtype))
            dense = [
                tf.Variable(tf.random.normal((size.width, size.width), stddev=scale, dtype=dtype))
                for _ in range(size.layers)
            ]

        @tf.function
        def step(tokens: Any) -> Any:
            with tf.GradientTape() as tape:
                hidden = tf.gather(embedding, tokens)
                for each in dense:
                    hidden = tf.tanh(hidden @ each)
                loss = tf.reduce_mean(tf.square(tf.cast(hidden, tf.float32)))
            variables = [embedding, *dense]
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(tf.cast(1e-3, dtype) * tf.convert_to_tensor(gradient))
            return loss

        def run(batches: Iterator[Any]) -> None:
            loss = None
            with tf.device(self._device):
                for batch in batches:
                    loss = step(batch["tokens"])
            if loss is not None:
                loss.numpy()

        return run

    def checking(self, rows: int) -> Any:
        import tensorflow as tf

        with tf.device(self._device):
            offsets = tf.range(rows, dtype=tf.int32)[:, None]

        @tf.function
        def compare(tokens: Any, first: Any) -> Any:
            return tf.math.count_nonzero(tokens != first + offsets)

        class Check:
            def __init__(self) -> None:
                self._found: list[Any] = []

            def __call__(self, tokens: Any, first: int, number: int) -> None:
                self._found.append(compare(tokens, tf.constant(first, tf.int32)))

            def wrong(self) -> int:
                found, self._found = self._found, []
                return sum(int(each) for each in found)

        return Check()


@dataclasses.dataclass(frozen=True)
class _Iterated:
    """A loader of TensorFlow, whose iterator can be closed as those of the others can."""

    loader: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        yield from self.loader


FRAMEWORKS: dict[str, Callable[[bool], Any]] = {"jax": JaxDevice, "torch": TorchDevice, "tensorflow": TensorFlowDevice}


if __name__ == "__main__":
    main()
