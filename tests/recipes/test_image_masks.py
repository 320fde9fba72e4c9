"""`images --masks`: masks beside images, pixel by pixel as Pillow and arithmetic have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_files import built, loaded
from PIL import Image
from typer.testing import CliRunner

from beam_pipes import Cache
from beam_pipes.commands import app
from beam_pipes.recipes import images

pytestmark = pytest.mark.usefixtures("here")

CLASSES = np.repeat(np.repeat(np.arange(6, dtype=np.uint8).reshape(2, 3), 4, 0), 4, 1)  # 8 x 12


def save(path: str, pixels: Any, **options: Any) -> None:
    """Writes pixels, or an image of Pillow, as a file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(path, **options)


def pictures(*names: str, **options: Any) -> None:
    """Images that are as their masks: ten times the number of the class."""
    for name in names:
        save(f"pics/{name}", np.repeat(CLASSES[..., None] * 10, 3, 2), **options)


def palette(numbers: np.ndarray) -> Image.Image:
    made = Image.fromarray(numbers, "P")
    made.putpalette([0, 0, 0, 255, 0, 0, 255, 0, 0, 7, 7, 7, 9, 9, 9, 0, 0, 1])  # two classes of one colour
    return made


def test_masks_keep_their_numbers_and_are_cut_as_their_images_are() -> None:
    """Grey, a palette, 16 bits; `_mask` in the name; image and mask at each place agree after a cut and a stretch."""
    pictures("a/1.png", "b/1.png", "2.png")
    save("masks/a/1.png", CLASSES)
    save("masks/b/1_mask.PNG", palette(CLASSES))
    save("masks/2.tif", CLASSES.astype(np.uint16) + 300)

    for size, fit in (((4, 4), "crop"), ((16, 24), "stretch")):
        cache = built(images("pics", masks="masks", resize=size, fit=fit), to=f"cache-{fit}")

        rows = {str(row["path"]): row for row in cache["train"]}
        assert cache["train"].spec["mask"].dtype == "uint16" and "label" not in cache["train"].spec
        for path, base in (("a/1.png", 0), ("b/1.png", 0), ("2.png", 300)):
            mask = np.asarray(rows[path]["mask"]).astype(int) - base
            assert set(mask.flat) <= set(range(6)) and mask.shape == size
            near = np.abs(np.asarray(rows[path]["image"])[..., 0].astype(int) - 10 * mask)
            assert near.max() <= 15  # half of the step between two classes; one pixel beside would be 30
    whole = np.repeat(np.repeat(CLASSES, 2, 0), 2, 1)
    assert np.array_equal(np.asarray(rows["a/1.png"]["mask"]), whole)


@pytest.mark.parametrize("encode", ["files", "png", "jpeg"])
def test_masks_that_are_stored_as_files_are_decoded_by_the_loader(encode: str) -> None:
    pictures("1.png")
    save("masks/1.png", palette(CLASSES))
    size = None if encode == "files" else (8, 12)
    recipe = images("pics", masks="masks", encode=encode, resize=size)

    cache = built(recipe)

    row = next(iter(cache["train"]))
    if encode == "files":
        assert row["mask"] == Path("masks/1.png").read_bytes()
    else:
        assert np.array_equal(loaded(recipe, cache)["mask"], CLASSES[None])


def test_a_mask_that_changes_is_built_again_and_masks_of_no_image_are_counted() -> None:
    pictures("1.png")
    save("masks/1.png", CLASSES)
    save("masks/other.png", CLASSES)
    built(images("pics", masks="masks", resize=(8, 12)))
    save("masks/1.png", CLASSES[::-1].copy())

    result = CliRunner().invoke(app, "images pics --masks masks --resize 8x12 --to cache --no-report".split())

    assert result.exit_code == 0 and "1 masks of no image" in result.output
    assert np.array_equal(np.asarray(next(iter(Cache.open("cache")["train"]))["mask"]), CLASSES[::-1])


def test_a_mask_is_of_the_image_as_its_exif_turns_it() -> None:
    exif = Image.Exif()
    exif[274] = 6
    pictures("1.jpg", exif=exif)
    save("masks/1.png", np.rot90(CLASSES, -1).copy())

    row = next(iter(built(images("pics", masks="masks", resize=(12, 8)))["train"]))

    assert np.array_equal(np.asarray(row["mask"]), np.rot90(CLASSES, -1))
    assert np.abs(np.asarray(row["image"])[..., 0].astype(int) - 10 * np.asarray(row["mask"])).mean() < 9


@pytest.mark.parametrize(
    ("masks", "options", "message"),
    [
        ({}, "", "1 of 1 images have no mask. That of 'a/1.png' should be masks/a/1.png; .*JPEG changes"),
        ({"a/1.jpg": CLASSES}, "", "1 of 1 images have no mask"),
        ({"a/1.png": CLASSES[:4]}, "", "'a/1.png' has 12 x 4 pixels, and its image 'a/1.png' 12 x 8, turned"),
        ({"a/1.png": np.zeros((8, 12, 3), np.uint8)}, "", "pixels of the kind RGB, and should have one page"),
        ({"a/1.png": CLASSES, "a/1_mask.png": CLASSES}, "", "two masks are of one image: 'a/1.png' and 'a/1_mask"),
        ({"a/1.png": CLASSES}, "--resize 4 --fit pad", "would add pixels to masks.*Choose crop or stretch."),
        (
            {"a/1.png": CLASSES},
            "--masks nowhere",
            "masks .--masks. should be a directory of masks, and 'nowhere' is no",
        ),
        ({"a/1.png": CLASSES}, "--masks pics/a", "are inside of the directory of images"),
    ],
)
def test_mistakes_with_masks_are_told(masks: dict[str, Any], options: str, message: str) -> None:
    pictures("a/1.png")
    Path("masks").mkdir()
    for name, pixels in masks.items():
        save(f"masks/{name}", pixels)

    command = f"images pics {'' if '--masks' in options else '--masks masks'} {options} --to cache"
    result = CliRunner().invoke(app, command.split())

    words = " ".join(str(result.exception if result.exception is not None else result.output).split())
    assert result.exit_code and re.search(message, words), words


def test_masks_of_one_bit_and_of_more_are_not_mixed() -> None:
    pictures("1.png", "2.png")
    save("masks/1.png", Image.fromarray(CLASSES > 2))
    save("masks/2.png", (CLASSES > 2).astype(np.uint8) * 255)

    result = CliRunner().invoke(app, "images pics --masks masks --resize 8 --to cache".split())

    assert "are one bit, 0 or 1, and those of '2.png' more" in " ".join(str(result.exception).split())
    Path("masks/2.png").unlink()
    save("masks/2.png", Image.fromarray(CLASSES > 3))
    rows = built(images("pics", masks="masks", resize=(8, 12)))["train"]
    assert {int(np.asarray(row["mask"]).sum()) for row in rows} == {3 * 16, 2 * 16}
