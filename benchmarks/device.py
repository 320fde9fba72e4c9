"""Does the loader keep a device busy? Training steps fed by it, over the same steps on one resident batch.

    python -m benchmarks.device --json device.json             (on the GPU, if there is one)
    python -m benchmarks.device --frameworks jax --sizes large

Batches of (32, 1024) int32 tokens come globally shuffled from a cache of TFRecord files in the page cache, through
`JaxDataLoader(loader).prefetch_to_devices()` or `TorchDataLoader(loader).prefetch_to_devices()`; TensorFlow is not
imported. A step is forward, backward and update of an embedding and a stack of dense layers: the small one takes a
fraction of a millisecond on a GPU, the large one tens. `fed_to_resident` is the median over runs taken in turns; 1.0
means that loading costs nothing. On a CPU sizes are smaller, and the loader's threads compete with the step for cores.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.loader import Loader
from benchmarks.harness import paired_seconds, parser, ratio, report
from benchmarks.load import WIDTH, write_cache

VOCABULARY = 32_768


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

Feed = Callable[[], Iterator[Any]]
Steps = Callable[[Iterator[Any]], None]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    made = parser(__doc__)
    made.add_argument("--frameworks", nargs="+", choices=["jax", "torch"], default=["jax", "torch"])
    made.add_argument("--sizes", nargs="+", choices=["small", "large"], default=["small", "large"])
    made.add_argument("--rows", type=int, default=20_000, help="records of 1,024 tokens in the cache [20,000]")
    made.add_argument("--steps", type=int, help="steps of a run [by size]")
    made.add_argument("--prefetch", type=int, default=2, help="batches ready on the host, and on the device [2]")
    options = made.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        tokens = np.random.default_rng(1).integers(0, VOCABULARY, (options.rows, WIDTH), dtype=np.int32)
        split = write_cache(work / "cache", {"tokens": tokens})
        results: dict[str, Any] = {}
        for framework in options.frameworks:
            device = FRAMEWORKS[framework]()
            results[framework] = {"device": device.name, "version": importlib.import_module(framework).__version__}
            for size_name in options.sizes:
                size = SIZES[device.kind, size_name]
                size = dataclasses.replace(size, steps=options.steps or size.steps)
                results[framework][size_name] = _measure(device, split, size, options)
        report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


def _measure(device: Any, split: Any, size: Size, options: Any) -> dict[str, Any]:
    run = device.training(size)
    resident = device.resident(_first_batch(split, size))
    fed = device.fed(split, size, options.prefetch)
    warm = itertools.islice(fed(), 3)
    run(warm)
    runs = {
        "resident": lambda: run(itertools.repeat(resident, size.steps)),
        "fed": lambda: run(itertools.islice(fed(), size.steps)),
    }
    secs = paired_seconds(runs, repeats=max(3, options.repeats))
    return {
        "fed_to_resident": round(ratio(secs, "fed", "resident"), 4),
        "resident_step_ms": round(min(secs["resident"]) / size.steps * 1e3, 3),
        "fed_step_ms": round(min(secs["fed"]) / size.steps * 1e3, 3),
        **dataclasses.asdict(size),
    }


def _first_batch(split: Any, size: Size) -> Any:
    return Loader(split, batch_size=size.rows, seed=1).batch_at(0)


class JaxDevice:
    """Steps of JAX on its default device."""

    def __init__(self) -> None:
        import jax

        self._device = jax.devices()[0]
        self.kind = "cpu" if self._device.platform == "cpu" else "gpu"
        self.name = f"{self._device.platform}: {self._device.device_kind}"

    def resident(self, batch: Any) -> Any:
        import jax

        return jax.device_put(batch, self._device)

    def fed(self, split: Any, size: Size, prefetch: int) -> Feed:
        from beam_pipes.on_device import JaxDataLoader

        loader = JaxDataLoader(Loader(split, batch_size=size.rows, seed=1, epochs=None)).prefetch_to_devices(prefetch)
        return lambda: iter(loader)

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


class TorchDevice:
    """Steps of torch on the first GPU, or on the CPU."""

    def __init__(self) -> None:
        import torch

        self.kind = "gpu" if torch.cuda.is_available() else "cpu"
        self._device = torch.device("cuda" if self.kind == "gpu" else "cpu")
        self.name = f"cuda: {torch.cuda.get_device_name()}" if self.kind == "gpu" else "cpu"

    def resident(self, batch: Any) -> Any:
        import torch

        return {name: torch.from_numpy(array).to(self._device) for name, array in batch.items()}

    def fed(self, split: Any, size: Size, prefetch: int) -> Feed:
        from beam_pipes.on_device import TorchDataLoader

        loader = TorchDataLoader(Loader(split, batch_size=size.rows, seed=1, epochs=None))
        prefetched = loader.prefetch_to_devices(prefetch, device=self._device)
        return lambda: iter(prefetched)

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


FRAMEWORKS: dict[str, Callable[[], Any]] = {"jax": JaxDevice, "torch": TorchDevice}


if __name__ == "__main__":
    main()
