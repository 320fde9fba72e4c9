"""The recipe `images`: what it declares, and what becomes of files."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_files import BLUE, RED, built, loaded, picture
from PIL import Image

from beam_pipes import Cache, Loader, build
from beam_pipes.errors import DeclarationError
from beam_pipes.recipes import decode_images, image_example, images
from beam_pipes.recipes.image_pixels import decoded_image, encoded_image, fitted
from beam_pipes.sources import FileContent

pytestmark = pytest.mark.usefixtures("here")


def pets() -> None:
    for pet in ("cat", "dog"):
        for number in range(4):
            picture(f"pets/{pet}/{number}.{'PNG' if number % 2 else 'png'}")
    Path("pets/README.md").write_text("about")


def test_folders_are_classes_and_images_have_one_size() -> None:
    pets()
    recipe = images("pets", resize=10)

    cache = built(recipe)

    examples = {example["path"]: example for example in cache["train"]}
    assert {path: int(example["label"]) for path, example in examples.items()} == {
        f"{pet}/{number}.{'PNG' if number % 2 else 'png'}": label
        for label, pet in enumerate(("cat", "dog"))
        for number in range(4)
    }
    assert examples["cat/0.png"]["image"][:, [0, 9]].tolist() == [[list(RED), list(BLUE)]] * 10
    assert loaded(recipe, cache)["image"].shape == (8, 10, 10, 3)


@pytest.mark.parametrize(
    ("fit", "row"),
    [
        ("crop", [RED] * 5 + [BLUE] * 5),
        ("stretch", [RED] * 5 + [BLUE] * 5),
        ("pad", [RED] * 5 + [BLUE] * 5),
    ],
)
def test_an_image_fits_into_a_size(fit: str, row: list[Any]) -> None:
    picture("a.png", height=20, width=40)

    image = fitted(decoded_image(Path("a.png").read_bytes()), (10, 10), fit=fit)

    assert image.shape == (10, 10, 3)
    middle = image[5].tolist()
    assert middle[:4] + middle[6:] == [list(each) for each in row[:4] + row[6:]]
    assert (image[0].max() == 0) == (fit == "pad")


def test_odd_margins_and_odd_cuts_keep_the_size() -> None:
    for shape in ((7, 12), (12, 7), (1, 9), (5, 5)):
        for fit in ("crop", "pad", "stretch"):
            assert fitted(np.full((*shape, 3), 9, np.uint8), (5, 5), fit=fit).shape == (5, 5, 3)


@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_encoded_images_are_decoded_by_the_loader(encode: str) -> None:
    pets()
    quality = {"quality": 95} if encode == "jpeg" else {}
    recipe = images("pets", resize=(8, 16), encode=encode, **quality)

    cache = built(recipe)
    batch = loaded(recipe, cache)

    first = next(iter(cache["train"]))["image"]
    assert Image.open(io.BytesIO(first)).size == (16, 8)
    assert batch["image"].shape == (8, 8, 16, 3) and batch["image"].dtype == np.uint8
    assert np.abs(batch["image"][:, 4, 2].astype(int) - RED).max() <= (0 if encode == "png" else 8)


def test_files_are_stored_as_they_are_unless_they_are_resized() -> None:
    pets()
    recipe = images("pets")

    cache = built(recipe)

    assert next(iter(cache["train"]))["image"] == Path("pets/cat/0.png").read_bytes()
    batch = loaded(recipe, cache)
    assert decode_images(batch, size=(5, 6))["image"].shape == (8, 5, 6, 3)
    assert Loader(cache["train"], batch_size=2).features == ("image", "label", "path")


def test_folders_called_as_splits_are_splits() -> None:
    for split in ("train", "val"):
        for pet in ("cat", "dog"):
            picture(f"pets/{split}/{pet}/{split}.png")
    recipe = images("pets", resize=4)

    cache = built(recipe)

    assert {split: [(each["path"], int(each["label"])) for each in cache[split]] for split in cache.splits} == {
        "train": [("cat/train.png", 0), ("dog/train.png", 1)],
        "val": [("cat/val.png", 0), ("dog/val.png", 1)],
    }
    with pytest.raises(DeclarationError, match="the folders train, val of 'pets' are already splits, but splits were"):
        images("pets", splits={"train": 1.0})
    assert images("pets/train", splits={"train": 0.5, "eval": 0.5}).declaration().splits == ("train", "eval")


def test_what_a_regular_expression_finds_in_paths_stays_together() -> None:
    for number in range(24):
        picture(f"scans/{'ill' if number % 3 else 'well'}/patient{number % 8:02}-{number}.png")
    picture("scans/ill/nobody.png")
    recipe = images("scans", by=r"(patient\d+)-", splits={"train": 0.5, "eval": 0.5})

    result = build(recipe.declaration(), to="cache", workers=1)

    cache = Cache.open("cache")
    groups = [{each["group"] for each in cache[split]} for split in cache.splits]
    assert groups[0] | groups[1] == {f"patient{number:02}" for number in range(8)}
    assert groups[0] and groups[1] and not groups[0] & groups[1]
    assert result.account.units["image_example"].dropped == {"no_group": 1}


@pytest.mark.parametrize("resize", [4, None])
def test_a_damaged_image_is_one_dead_letter(resize: int | None) -> None:
    pets()
    Path("pets/cat/9.png").write_bytes(Path("pets/cat/0.png").read_bytes()[:60])
    recipe = images("pets", resize=resize, on_error="dead_letter")

    account = build(recipe.declaration(), to="cache", workers=1).account

    assert (account.written, account.dead) == (8, 1)
    with pytest.raises(ValueError, match="the PNG file of 60 bytes is damaged"):
        image_example(FileContent("9.png", Path("pets/cat/9.png").read_bytes()), size=(4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encode": "pixels"},
            "pixels of images that differ in size do not fit into one array. Give them one with res",
        ),
        (
            {"resize": 9, "encode": "files"},
            "files that are stored as they are cannot be resized. Choose encode='jpeg',",
        ),
        ({"resize": 9, "encode": "gif"}, "encode should be one of pixels, jpeg, png, files, got 'gif'."),
        ({"resize": 9, "fit": "cut"}, "fit should be one of crop, pad, stretch, got 'cut'."),
        ({"resize": (0, 9)}, "resize should be a number of pixels, or height and width, got (0, 9)."),
        ({"resize": 9, "quality": 0}, "quality is that of JPEG, 1 to 100, got 0."),
        ({"by": "(", "splits": {"train": 1.0}}, "by='(' (--by) should be a regular expression: "),
        ({"by": "x"}, "by='x' says what stays in one split, but there are no splits."),
    ],
)
def test_options_of_images_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    pets()
    with pytest.raises(DeclarationError, match=re.escape(message)):
        images("pets", **options)


def test_directories_without_classes_or_images_are_refused() -> None:
    picture("mixed/cat/1.png")
    picture("mixed/2.png")
    Path("none").mkdir()
    Path("none/a.txt").write_text("a")
    with pytest.raises(
        DeclarationError, match="the image '2.png' is not in a folder, so it has no class. Move it into"
    ):
        images("mixed")
    assert "label" not in images("mixed", label=False).declaration().features
    with pytest.raises(DeclarationError, match="there are no images in 'none'; known are .apng, .avif, .bmp, "):
        images("none")
    with pytest.raises(
        DeclarationError, match="'absent' should be a directory of images, but does not exist. Name one directory of"
    ):
        images("absent")
    Path("none/b.zip").write_bytes(b"PK")
    with pytest.raises(DeclarationError, match="It has 1 .txt, 1 .zip. Unpack archives of zip first: unzip FILE."):
        images("none")
    with pytest.raises(
        DeclarationError, match=r"'mixed/\*.png' should be a directory of images, but is a glob. Name one"
    ):
        images("mixed/*.png")
    Path("pets.tgz").write_bytes(b"")
    words = "'pets.tgz' should be .*, but is a file. .* Names of archives end in .tar, .tar.gz, .tar.bz2 or .tar.zst."
    with pytest.raises(DeclarationError, match=words):
        images("pets.tgz")


def test_pixels_survive_png() -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    assert decoded_image(encoded_image(pixels, "png")).tolist() == pixels.tolist()


@pytest.mark.parametrize(
    ("suffix", "kind", "mode"),
    [
        ("gif", "GIF", "P"),
        ("jfif", "JPEG", "RGB"),
        ("jpe", "JPEG", "L"),
        ("JFIF", "JPEG", "CMYK"),
        ("apng", "PNG", "RGBA"),
        ("ppm", "PPM", "RGB"),
        ("pgm", "PPM", "L"),
        ("pbm", "PPM", "1"),
        ("pnm", "PPM", "RGB"),
    ],
)
def test_suffixes_that_are_rare(suffix: str, kind: str, mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 4), np.uint8)
    pixels[..., 3] = 255
    Path("pets/cat").mkdir(parents=True)
    Image.fromarray(pixels).convert("RGB").convert(mode).save(f"pets/cat/1.{suffix}", kind)

    [example] = built(images("pets"))["train"]

    assert example["path"] == f"cat/1.{suffix}"
    right = np.asarray(Image.open(io.BytesIO(example["image"])).convert("RGB"))
    assert np.abs(decoded_image(example["image"]).astype(int) - right).max() <= (mode == "CMYK")
