"""Pixels of images, and of masks: files of one number for each pixel, in a directory of the same paths.

    images/a/1.jpg, masks/a/1.png   ──▶   {"image": …, "mask": uint8 (224, 224), "path": "a/1.jpg"}

The mask of `a/1.jpg` is `a/1.png` or `a/1_mask.png`. Its numbers are stored as they are: those of grey pixels of 8 or
16 bits, the places in a palette, or 0 and 1 of one bit. Colours are refused, and so is JPEG, which changes numbers.
`find_masks` reads the heads of all masks before a build; `mask_of` is what the stage does with each.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.extras import require
from beam_pipes.format.dtypes import Array
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.media_files import is_hidden
from beam_pipes.sources.selection import FoundFile
from beam_pipes.storage.local import is_remote
from beam_pipes.transforms.image_files import MAX_PIXELS, decode

Pixels = npt.NDArray[np.uint8]

#: The suffixes of masks: formats that keep each number.
MASK_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".gif")
# What Pillow calls pixels that are one number, and the dtype that holds them.
_DTYPES = {"1": "uint8", "L": "uint8", "P": "uint8", "I;16": "uint16", "I;16B": "uint16"}


def decoded_image(content: bytes, *, background: str = "white", max_pixels: int = MAX_PIXELS) -> Pixels:
    """The pixels of an image file: uint8 (height, width, 3), RGB, upright, over `background` where it is transparent.

    Raises `ValueError` for a file that is damaged, too large, or unsupported.
    """
    return decode(memoryview(content), background=colour_of(background), max_pixels=max_pixels)


@functools.lru_cache(maxsize=8)
def colour_of(name: str) -> tuple[int, int, int] | None:
    """The colour of a name: `"white"` → `(255, 255, 255)`, `"none"` → None."""
    if name == "none":
        return None
    try:
        red, green, blue = require("PIL.ImageColor", purpose="images").getrgb(name)[:3]
    except ValueError as error:
        raise DeclarationError(
            f"background should be a colour, such as white, #ff8000 or 'rgb(255, 128, 0)', or none; got {name!r}."
        ) from error
    return red, green, blue


def fitted(image: Array, size: tuple[int, int], *, fit: str, nearest: bool = False) -> Array:
    """An image of another size: `fitted(image, (224, 224), fit="crop")` of (300, 400, 3) → (224, 224, 3).

    "crop" scales it until it covers the size and cuts out the middle; "pad" scales it until it fits, and centres it on
    black; "stretch" changes its aspect ratio. `nearest` takes the nearest pixel, for masks, instead of a mean.
    """
    from beam_pipes.graph.types import DALIInterpType
    from beam_pipes.transforms.operators.image.resampling import resized, target_of

    of = DALIInterpType.INTERP_NN if nearest else DALIInterpType.INTERP_LINEAR
    mode = {"crop": "not_smaller", "pad": "not_larger", "stretch": "stretch"}[fit]
    target = target_of(image.shape[:2], size=size, mode=mode)
    image = resized(image, target, min_filter=of, mag_filter=of, antialias=not nearest, dtype=image.dtype)
    for axis, wanted in enumerate(size):
        extra = image.shape[axis] - wanted
        if extra > 0:
            image = np.take(image, np.arange(extra // 2, extra // 2 + wanted), axis)
        elif extra < 0:
            margins = [(-extra // 2, -extra - -extra // 2) if axis == each else (0, 0) for each in range(3)]
            image = np.pad(image, margins)
    return np.ascontiguousarray(image)


def encoded_image(image: Array, encode: str, *, quality: int = 90) -> bytes:
    """Pixels as a file, "jpeg" or "png"."""
    if encode == "jpeg":
        jpeg: bytes = require("simplejpeg", purpose="JPEG").encode_jpeg(np.ascontiguousarray(image), quality=quality)
        return jpeg
    file = io.BytesIO()
    require("PIL.Image", purpose="PNG").fromarray(image).save(file, "PNG")
    return file.getvalue()


class MasksFound(NamedTuple):
    """The dtype of masks, and how many are of no image."""

    dtype: str
    num_unused: int


def find_masks(root: str, images: Sequence[str], *, data: str) -> MasksFound:
    """The masks of images, by the paths of these in `data`.

    Raises `DeclarationError` if one is missing, or there twice, or is not one number for each pixel.
    """
    if is_remote(root) or not os.path.isdir(root):
        what = "is elsewhere: copy it to this machine" if is_remote(root) else "is no directory"
        raise DeclarationError(f"masks (--masks) should be a directory of masks, and {root!r} {what}.")
    if os.path.realpath(root).startswith(os.path.join(os.path.realpath(data), "")):
        raise DeclarationError(
            f"the masks in {root!r} are inside of the directory of images, {data!r}, and would be images too. Name the "
            "directory of the images alone, beside that of the masks."
        )
    files: dict[str, list[str]] = {}
    for path in sorted(Path(root).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix.lower() in MASK_SUFFIXES and not is_hidden(name):
            files.setdefault(_stem(name).removesuffix("_mask"), []).append(name)
    of_stems: dict[str, list[str]] = {}
    for image in images:
        of_stems.setdefault(_stem(image), []).append(image)
    missing = [image for stem, of_stem in of_stems.items() if stem not in files for image in of_stem]
    if missing:
        raise DeclarationError(
            f"{len(missing):,} of {len(images):,} images have no mask. That of {missing[0]!r} should be "
            f"{os.path.join(root, _stem(missing[0]))}.png; known are {', '.join(MASK_SUFFIXES)} (JPEG changes the "
            "numbers of a mask). Add the masks, or take such images away."
        )
    for stem, of_stem in of_stems.items():
        twice = of_stem if len(of_stem) > 1 else files[stem]
        if len(twice) > 1:
            what = "images have one mask" if twice is of_stem else "masks are of one image"
            raise DeclarationError(f"two {what}: {twice[0]!r} and {twice[1]!r}. Rename one of them, or take it away.")
    modes = {}
    for stem in of_stems:
        with open(os.path.join(root, files[stem][0]), "rb") as head:
            modes[_opened(head, files[stem][0]).mode] = files[stem][0]
    if "1" in modes and len(modes) > 1:
        other = next(name for mode, name in modes.items() if mode != "1")
        raise DeclarationError(
            f"pixels of the mask {modes['1']!r} are one bit, 0 or 1, and those of {other!r} more, where white is 255. "
            "Write all of one kind: with Pillow, Image.open(MASK).convert('L')."
        )
    return MasksFound(max((_DTYPES[mode] for mode in modes), key=len), len(files.keys() - of_stems.keys()))


def mask_of(root: Asset, path: str, shape: tuple[int, ...]) -> tuple[bytes, Array]:
    """The file and the numbers, uint8 or uint16 (height, width), of an image's mask.

    `shape` is the height and width of the image, upright. Raises `TaskError` if the mask is not there or is another
    one, has another size, or is damaged.
    """
    suffixes = (*MASK_SUFFIXES, *map(str.upper, MASK_SUFFIXES), *map(str.title, MASK_SUFFIXES))
    names = [f"{_stem(path)}{ending}{suffix}" for ending in ("", "_mask") for suffix in suffixes]
    name = next((name for name in names if os.path.isfile(os.path.join(root, name))), None)
    if name is None:
        raise TaskError(
            f"the image {path!r} has no mask any more in {os.fspath(root)!r}. Build again once it is there."
        )
    content = Path(root, name).read_bytes()
    file = _opened(io.BytesIO(content), name)
    if (file.height, file.width) != tuple(shape):
        raise TaskError(
            f"the mask {name!r} has {file.width} x {file.height} pixels, and its image {path!r} {shape[1]} x "
            f"{shape[0]}, turned as its Exif says. Write masks of the size of their images, or drop such images "
            "(--on-error drop)."
        )
    return content, _numbers(file, name)


def numbers_of_mask(content: bytes, name: str) -> Array:
    """The numbers of a mask: uint8 or uint16 (height, width). `name` is for messages."""
    return _numbers(_opened(io.BytesIO(content), name), name)


def _numbers(file: Any, name: str) -> Array:
    try:
        numbers = np.asarray(file)
    except (OSError, SyntaxError, ValueError) as error:
        raise _damaged(name, error) from error
    return numbers.astype(_DTYPES[file.mode], copy=False)


def _stem(path: str) -> str:
    return str(PurePosixPath(path).with_suffix(""))


def _opened(content: BinaryIO, name: str) -> Any:
    """A mask, its head read. Raises `TaskError` unless it is one number for each pixel."""
    try:
        file = require("PIL.Image", purpose="masks").open(content)
    except (OSError, SyntaxError, ValueError) as error:
        raise _damaged(name, error) from error
    if file.mode not in _DTYPES or getattr(file, "n_frames", 1) > 1:
        what = f"{file.n_frames} pages" if file.mode in _DTYPES else f"pixels of the kind {file.mode}"
        raise TaskError(
            f"the mask {name!r} has {what}, and should have one page with one number for each pixel, of 8 or 16 bits: "
            "grey, or a palette. Where colours stand for classes, write the numbers of the classes instead."
        )
    return file


def _damaged(name: str, error: Exception) -> TaskError:
    return TaskError(f"the mask {name!r} cannot be read: {error}. Repair it, or drop such images (--on-error drop).")


def check_no_masks(inside: Sequence[Sequence[str]], files: Sequence[FoundFile]) -> None:
    """Raises `DeclarationError` for folders that hold the masks of images in others, and are no class."""
    stems: dict[str, set[str]] = {}
    for folders, file in zip(inside, files, strict=True):
        for folder in folders:
            stems.setdefault(folder, set()).add(PurePosixPath(file.name).stem.removesuffix("_mask"))
    masks = [folder for folder in stems if re.search("(?i)mask|segmentation|^(annotations?|labels?|gt)$", folder)]
    for folder in masks:
        # Most of them: some images have no mask.
        is_about = (each for each in stems if 2 * len(stems[each] & stems[folder]) > len(stems[folder]))
        other = next((each for each in is_about if each not in masks), None)
        if other is not None:
            raise DeclarationError(
                f"the images in folders {folder!r} are called as those in {other!r}, so they are masks, and no class. "
                f"Name the directory {other!r} as the data, and {folder!r} as its masks: masks=… (--masks), or leave "
                "masks out by naming the former alone. In a tar archive a mask is a field of its sample, 1.mask.png of "
                "1.jpg (--keep-field mask.png:bytes). If they are a class: class_folder=1 (--class-folder 1)."
            )
