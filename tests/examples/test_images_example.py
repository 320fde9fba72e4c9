"""The images example, end to end on pictures that it draws."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from beam_pipes import Cache
from beam_pipes.graph import GraphIterator
from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator
from beam_pipes.runners import LocalOptions, build
from examples import images


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(images.write_images(tmp_path_factory.mktemp("images"), per_shape=12))


@pytest.fixture(scope="module")
def cache(root: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("images_cache") / "cache"
    return build(images.declaration(root), path, options=LocalOptions(workers=1)).path


def whole(batches: Any) -> dict[str, np.ndarray]:
    parts = list(batches)
    return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}


def test_the_cache_holds_decoded_and_resized_pixels(root: str, cache: str) -> None:
    split = Cache.open(cache)["train"]
    example = split[0]

    assert 36 == len(split)
    pixels = next(value for value in example.values() if np.shape(value) == (64, 64, 3))
    assert np.uint8 == pixels.dtype
    with Image.open(Path(root, "circle", "000.png")) as file:
        resized = np.asarray(file.resize((64, 64), Image.Resampling.BILINEAR))
    # At its edges Pillow leaves out what is missing, and the operator repeats the last pixel, as DALI does.
    assert np.abs(pixels.astype(int) - resized)[2:-2, 2:-2].max() <= 1


def test_an_epoch_is_a_function_of_seed_and_number(root: str, cache: str) -> None:
    iterator = JaxGraphIterator(images.training(root, cache=cache))
    batches = list(images.epoch(iterator, 0))
    first, second, back = whole(batches), whole(images.epoch(iterator, 1)), whole(images.epoch(iterator, 0))

    again = whole(images.epoch(JaxGraphIterator(images.training(root, cache=cache)), 1))
    other = whole(images.epoch(JaxGraphIterator(images.training(root, cache=cache, seed=8)), 0))

    assert [(16, 3, 48, 48)] * 2 == [batch["images"].shape for batch in batches]
    assert all(isinstance(batch["images"], jax.Array) for batch in batches)
    assert {0, 1, 2} == set(first["labels"].tolist())
    np.testing.assert_array_equal(second["images"], again["images"])
    np.testing.assert_array_equal(first["images"], back["images"])
    assert not np.array_equal(first["images"], second["images"])
    assert not np.array_equal(first["images"], other["images"])


def test_what_becomes_of_an_image_depends_on_no_batch_size_no_cache_and_no_place(root: str, cache: str) -> None:
    pipes = [
        images.training(root, cache=cache, batch_size=12),
        images.training(root, cache=cache, batch_size=4),
        images.training(root, batch_size=12),
    ]
    expected, smaller, from_files = (whole(images.epoch(GraphIterator(pipe), 3)) for pipe in pipes)
    on_jax, on_torch = (whole(images.epoch(kind(pipes[0]), 3)) for kind in (JaxGraphIterator, TorchGraphIterator))

    for found in (smaller, from_files, on_jax, on_torch):
        np.testing.assert_array_equal(expected["labels"], found["labels"])
        # Two operators round to whole colours, each within 1 on a device; a colour is 1 / 64 here.
        np.testing.assert_allclose(expected["images"], found["images"], atol=3 / images.STD)
    np.testing.assert_array_equal(expected["images"], from_files["images"])
    np.testing.assert_array_equal(expected["images"], smaller["images"])


def test_resizing_in_this_process_makes_no_cache_stale(root: str, cache: str) -> None:
    from_files = images.training(root).run()

    cached = images.training(root, cache=cache).run()

    assert from_files["labels"].as_array().tolist() == cached["labels"].as_array().tolist()


def test_an_epoch_that_stopped_continues(root: str, cache: str) -> None:
    pipe = images.training(root, cache=cache, batch_size=8)
    batches = iter(JaxGraphIterator(pipe))
    next(batches)
    state = pipe.state.to_json()
    rest = whole(batches)

    other = images.training(root, cache=cache, batch_size=8)
    other.restore(state)

    np.testing.assert_array_equal(rest["images"], whole(JaxGraphIterator(other))["images"])


def test_the_command_line(tmp_path: Path, cache: str, capsys: pytest.CaptureFixture[str]) -> None:
    images.main(["--write", str(tmp_path / "images"), "--cache", cache])

    printed = capsys.readouterr().out
    assert 120 == len(list((tmp_path / "images").glob("*/*.png")))
    assert re.search(r"2 batches an epoch: images \(16, 3, 48, 48\) float32 on \w+:0", printed)
    assert "the second epoch: other pixels\nthe first epoch, again: the same pixels\n" in printed
