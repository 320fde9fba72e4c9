"""The part `device` of `benchmarks.graph`: the same operators over pixels on the host, with JAX and with torch."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from beam_pipes.graph import GraphIterator, Pipeline, pipeline_def, types
from beam_pipes.transforms import fn
from benchmarks import harness

IMAGE_BATCH, SIZE, MEAN, STD = 32, 224, (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)


def device_names() -> dict[str, str]:
    """The devices that JAX and torch would use."""
    import jax
    import torch

    return {
        "jax": jax.devices()[0].device_kind,
        "torch": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def measure_devices(images: int, threads: int, repeats: int) -> dict[str, float]:
    """Images per second through the same operators on the host, with JAX and with torch; their results are compared."""
    import jax
    import torch

    from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator

    steps = max(1, images // IMAGE_BATCH)
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGE_BATCH, 375, 500, 3), dtype=np.uint8)

    def source(iteration: int) -> Any:
        if iteration == steps:
            raise StopIteration
        return pixels

    def define(on_device: bool) -> Pipeline:
        @pipeline_def(batch_size=IMAGE_BATCH, num_threads=threads, seed=1)
        def graph() -> Any:
            found = fn.external_source(source, dtype=types.UINT8, ndim=3, layout="HWC")
            found = found.gpu() if on_device else found
            found = fn.random_resized_crop(found, size=[SIZE, SIZE])
            found = fn.color_twist(found, hue=20.0, saturation=1.2, brightness=0.9)
            return {"x": fn.crop_mirror_normalize(found, mirror=fn.random.coin_flip(), mean=MEAN, std=STD)}

        return graph()

    def waited(batch: Any) -> Any:
        if isinstance(batch, torch.Tensor) and batch.is_cuda:
            torch.cuda.synchronize()
        return jax.block_until_ready(batch) if isinstance(batch, jax.Array) else batch

    loops: dict[str, Any] = {
        "host": GraphIterator(define(False)),
        "jax": JaxGraphIterator(define(True)),
        "torch": TorchGraphIterator(define(True)),
    }
    expected = None
    for name, loop in loops.items():
        batches = [waited(batch["x"]) for batch in loop]  # to the end of the epoch; and everything is compiled
        if len(batches) != steps:
            raise AssertionError(f"{name}: {len(batches)} batches, expected {steps}")
        found = batches[0].cpu().numpy() if isinstance(batches[0], torch.Tensor) else np.asarray(batches[0])
        expected = found if expected is None else expected
        # One step of 256 for each time that pixels are rounded, by the smallest deviation.
        if (error := float(np.abs(found - expected).max())) > 3.0 / min(STD):
            raise AssertionError(f"{name}: pixels differ from those of the host by up to {error:.3f}")
    secs = harness.paired_seconds(
        {name: lambda loop=loop: [waited(batch["x"]) for batch in loop] for name, loop in loops.items()},
        repeats=repeats,
    )
    count = steps * IMAGE_BATCH
    return {f"{name}_per_sec": round(count / statistics.median(values), 1) for name, values in secs.items()}
