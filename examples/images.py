"""Images, decoded and resized once, and changed at random on the device: another crop and colour in every epoch.

python -m examples.images --write .demo/images
beam-pipes build examples.images:declaration --to .demo/images_cache
python -m examples.images --cache .demo/images_cache
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from beam_pipes import graph
from beam_pipes.building import Declaration
from beam_pipes.graph import GraphIterator, pipeline_def
from beam_pipes.transforms import fn

ROOT = ".demo/images"
SHAPES = ("circle", "cross", "square")
STORED, SEEN = 64, 48  # pixels a side in the cache, and of what a model sees
MEAN, STD = 127.0, 64.0


def write_images(root: str | os.PathLike[str], per_shape: int = 40, *, seed: int = 0) -> Path:
    """Writes `circle/000.png` and so on, shapes of any colour and size on noise, and returns the directory."""
    root = Path(root)
    for shape in SHAPES:
        (root / shape).mkdir(parents=True, exist_ok=True)
        for number in range(per_shape):
            random = np.random.default_rng([seed, SHAPES.index(shape), number])
            height, width = random.integers(60, 120, size=2)
            radius = random.uniform(0.2, 0.4) * min(height, width)
            down, right = random.uniform(radius, height - radius), random.uniform(radius, width - radius)
            rows, columns = abs(np.arange(height) - down)[:, None], abs(np.arange(width) - right)[None]
            inside = {
                "circle": rows**2 + columns**2 < radius**2,
                "cross": (np.minimum(rows, columns) < radius / 3) & (np.maximum(rows, columns) < radius),
                "square": np.maximum(rows, columns) < radius,
            }[shape]
            pixels = random.integers(0, 100, (height, width, 3))
            pixels[inside] = random.integers(100, 256, 3)
            Image.fromarray(pixels.astype(np.uint8)).save(root / shape / f"{number:03d}.png")
    return root


@pipeline_def(batch_size=16, num_threads=2, seed=7, last="drop")
def training(root: str = ROOT) -> dict[str, Any]:
    """What a model trains on. Up to the cut it is done once, by a build; behind it for every batch, on the device."""
    files, labels = fn.readers.file(file_root=root, random_shuffle=True)
    stored = graph.cache(fn.resize(fn.decoders.image(files), size=(STORED, STORED)))
    images = fn.random_resized_crop(stored.gpu(), size=(SEEN, SEEN), random_area=(0.4, 1.0))
    images = fn.color_twist(
        images,
        hue=fn.random.uniform(range=(-40.0, 40.0)),
        saturation=fn.random.uniform(range=(0.6, 1.4)),
        brightness=fn.random.uniform(range=(0.8, 1.2)),
    )
    images = fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), mean=MEAN, std=STD)
    return {"images": images, "labels": labels[0]}


def declaration(root: str = ROOT) -> Declaration:
    """The cache: (64, 64, 3) uint8 of each image, and its label. Workers may stand in another directory than we do."""
    return training(os.path.abspath(root)).offline_declaration("images")


def epoch(iterator: GraphIterator, number: int) -> Iterator[dict[str, Any]]:
    """The batches of an epoch: `images` float32 (16, 3, 48, 48) and `labels` int32 (16,).

    What comes is a function of the pipeline's seed and the number, whatever was read before.
    """
    iterator.pipe.reset(number)
    yield from iterator


def main(arguments: list[str] | None = None) -> None:
    """Writes images, or reads two epochs of a cache and the first of them again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="DIR", help="write images to DIR")
    parser.add_argument("--cache", metavar="DIR", help="read what the build wrote to DIR")
    options = parser.parse_args(arguments)
    if options.write:
        print(f"{3 * 40} images lie in {write_images(options.write)}")
    if options.cache:
        from beam_pipes.on_device import JaxGraphIterator  # here: workers of a build need no JAX

        iterator = JaxGraphIterator(training(cache=options.cache))
        first, second, again = (list(epoch(iterator, number)) for number in (0, 1, 0))
        images = first[0]["images"]
        print(f"{len(first)} batches an epoch: images {images.shape} {images.dtype} on {images.device}")
        for name, other in (("the second epoch", second), ("the first epoch, again", again)):
            same = all(np.array_equal(a["images"], b["images"]) for a, b in zip(first, other, strict=True))
            print(f"{name}: {'the same' if same else 'other'} pixels")


if __name__ == "__main__":
    main()
