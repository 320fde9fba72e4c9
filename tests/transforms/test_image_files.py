"""Image files of other writers (Pillow, OpenCV, and bytes put together here): pixels are those that Pillow shows."""

from __future__ import annotations

import io
import re
import struct
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pillow_heif
import pytest
import simplejpeg
from PIL import Image, ImageOps

from beam_pipes.errors import MissingExtraError
from beam_pipes.recipes import decode_images, images
from beam_pipes.recipes.image_pixels import decoded_image
from beam_pipes.transforms.image_files import KINDS, decode, kind_of, shape_of

RAMP = np.stack([*np.meshgrid(np.arange(0, 240, 10), np.arange(0, 200, 12)), np.full((17, 24), 90)], -1).astype(
    np.uint8
)
WIDE = np.linspace(0, 65535, 17 * 24).astype(np.uint16).reshape(17, 24)
WHITE = (255, 255, 255)


def written(kind: str, image: Any = RAMP, mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    made = Image.fromarray(image)
    (made if mode is None else made.convert(mode)).save(file, kind, **options)
    return file.getvalue()


def by_opencv(suffix: str, image: Any) -> bytes:
    done, data = cv2.imencode(suffix, image)
    assert done
    return bytes(data)


def shown(data: bytes) -> Any:
    """As Pillow shows it, upright, on white."""
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if upright.has_transparency_data:
        colours = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    return np.asarray(upright.convert("RGB"))


CONTAINERS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "PNG": {},
    "WEBP": {"lossless": True},
    "TIFF": {},
    "TIFF packed": {"compression": "tiff_lzw"},
    "AVIF": {"quality": 90},
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("container", CONTAINERS)
def test_an_image_is_turned_once_whatever_holds_it(container: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    kind = container.partition(" ")[0]
    data = written(kind, exif=exif, **CONTAINERS[container])
    plain = written(kind, **CONTAINERS[container])

    found = decode(memoryview(data))

    assert found.shape == ((24, 17, 3) if orientation > 4 else (17, 24, 3)) == shape_of(memoryview(data))
    assert np.abs(found.astype(int) - shown(data)).max() <= (2 if kind == "JPEG" else 0)
    stored = decode(memoryview(data), upright=False)
    assert np.array_equal(stored, decode(memoryview(plain)))
    assert shape_of(memoryview(data), upright=False) == stored.shape


def heic(image: Any = RAMP, orientation: int = 1) -> bytes:
    """A file of libheif, with the orientation in its container (as `irot` and `imir`) and in its Exif."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(image)).save(file, quality=-1, chroma=444, exif=exif.tobytes())
    assert (b"irot" in file.getvalue(), b"imir" in file.getvalue()) == (
        orientation in (3, 5, 6, 7, 8),
        orientation in (2, 4, 5, 7),
    )
    return file.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_of_a_phone_is_turned_once(orientation: int) -> None:
    data = heic(orientation=orientation)
    exif = Image.Exif()
    exif[0x0112] = orientation
    expected = shown(written("PNG", exif=exif))

    found = decode(memoryview(data))

    assert found.shape == expected.shape == shape_of(memoryview(data))
    assert np.abs(found.astype(int) - expected).max() <= 2


def test_a_picture_of_a_phone_that_is_cut_or_too_large_is_refused() -> None:
    data = heic()
    for size in (30, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match=f"the HEIC file of {size} bytes is damaged: "):
            decode(memoryview(data[:size]))
    with pytest.raises(ValueError, match="the image is too large: 24 x 17 are 408 pixels, and the limit is 100"):
        decode(memoryview(data), max_pixels=100)


def test_transparent_and_deep_pictures_of_a_phone() -> None:
    half = np.dstack([RAMP, np.full(RAMP.shape[:2], 128, np.uint8)])
    over_white = decode(memoryview(heic(half)), background=WHITE)
    assert np.abs(over_white.astype(int) - (RAMP / 2 + 127.5)).max() <= 4
    deep = decode(memoryview(heic(WIDE)))
    assert deep.dtype == np.uint8 and np.abs(deep[..., 0].astype(int) - (WIDE >> 8)).max() <= 2


def test_the_extra_for_pictures_of_phones_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.HEIC").write_bytes(heic())
    assert images(tmp_path).declaration()
    monkeypatch.setitem(sys.modules, "pillow_heif.as_plugin", None)

    for use in (lambda: images(tmp_path), lambda: decode(memoryview(heic()))):
        with pytest.raises(MissingExtraError, match=r"HEIC.* needs pillow_heif.* pip install 'beam-pipes\[heic\]'"):
            use()


def with_segment(content: bytes) -> bytes:
    jpeg = written("JPEG", quality=95)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01"
XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta tiff:Orientation="%d">\xa8</x:xmpmeta>'


@pytest.mark.parametrize(
    ("content", "is_turned"),
    [
        pytest.param(b"Exif\0\0garbage!garbage!", False, id="garbage"),
        pytest.param(EXIF[:12], False, id="cut"),
        pytest.param(EXIF + b"\x02\0\x04\0\0\0abc\0\0\0\0\0", False, id="text"),
        pytest.param(EXIF + b"\x03\0\x02\0\0\0\x06\0\x03\0\0\0\0\0", True, id="two_numbers"),
        pytest.param(EXIF + b"\x03\0\x01\0\0\0\x09\0\0\0\0\0\0\0", False, id="nine"),
        pytest.param(EXIF + b"\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0", True, id="six"),
        pytest.param(XMP % 6, True, id="xmp"),
        pytest.param(XMP % 0, False, id="xmp_zero"),
    ],
)
@pytest.mark.filterwarnings("ignore:Metadata Warning")
def test_an_orientation_that_cannot_be_read_says_nothing(content: bytes, is_turned: bool) -> None:
    plain = decode(memoryview(written("JPEG", quality=95)))

    found = decode(memoryview(with_segment(content)))

    assert np.array_equal(found, np.rot90(plain, -1) if is_turned else plain)


def resampled() -> bytes:
    """A JPEG whose chroma has a third of the lines: sampling factors 1x3."""
    jpeg = bytearray(written("JPEG", np.zeros((48, 48, 3), np.uint8), subsampling=0))
    jpeg[jpeg.index(b"\xff\xc0") + 11] = 0x13
    return bytes(jpeg)


ALPHA = np.dstack([RAMP, np.tile(np.linspace(0, 255, 24).astype(np.uint8), (17, 1))])
FILES: dict[str, bytes] = {
    "grey": written("PNG", mode="L"),
    "bits": written("PNG", mode="1"),
    "palette": written("PNG", mode="P"),
    "alpha": written("PNG", ALPHA),
    "alpha_webp": written("WEBP", ALPHA, lossless=True, exact=True),
    "alpha_tiff": written("TIFF", ALPHA),
    "grey_alpha": written("PNG", ALPHA, mode="LA"),
    "palette_with_alpha": written("PNG", ALPHA, mode="P", transparency=bytes(range(256))),
    "colour_key": written("PNG", transparency=(0, 0, 90)),
    "grey_key": written("PNG", RAMP[:, :, 0], transparency=30),
    "colours_of_16_bits_png": by_opencv(".png", np.dstack([WIDE, WIDE[::-1], WIDE.T.reshape(17, 24)])),
    "colours_of_16_bits_tiff": by_opencv(".tiff", np.dstack([WIDE, WIDE[::-1], WIDE.T.reshape(17, 24)])),
    "alpha_of_16_bits": by_opencv(".png", np.dstack([WIDE, WIDE[::-1], WIDE, WIDE])),
    "cmyk_tiff": written("TIFF", mode="CMYK"),
    "cmyk_jpeg": written("JPEG", mode="CMYK", quality=95),
    "lab_tiff": written("TIFF", mode="LAB"),
    "unusual_subsampling": resampled(),
    "gif": written("GIF", mode="P"),
    "bmp": written("BMP"),
    "jpeg_2000": written("JPEG2000", ALPHA),
    "pbm": written("PPM", mode="1"),
    "pcx": written("PCX", mode="P"),
    "ppm": written("PPM"),
    "qoi": written("QOI", ALPHA),
    "tga": written("TGA", ALPHA),
    "animation": written("WEBP", save_all=True, append_images=[Image.new("RGB", (24, 17), "red")], lossless=True),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_that_pillow_shows(name: str) -> None:
    assert np.array_equal(decoded_image(FILES[name]), shown(FILES[name]))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(written("PNG", WIDE), id="png"),
        pytest.param(written("TIFF", WIDE), id="tiff"),
        pytest.param(by_opencv(".png", WIDE), id="opencv_png"),
        pytest.param(by_opencv(".tiff", WIDE), id="opencv_tiff"),
        pytest.param(by_opencv(".pgm", WIDE), id="opencv_pgm"),
        pytest.param(written("JPEG2000", WIDE), id="jpeg_2000"),
    ],
)
def test_grey_of_16_bits_keeps_the_upper_8(data: bytes) -> None:
    found = decoded_image(data)

    assert found.dtype == np.uint8 and np.array_equal(found, np.repeat(WIDE[:, :, None] >> 8, 3, 2))
    assert np.array_equal(found, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))
    assert np.array_equal(decode_images({"image": [data]}, size=(17, 24))["image"][0], found)  # type: ignore[dict-item]
    assert np.array_equal(decode(memoryview(data), space="GRAY", deep=True)[:, :, 0], WIDE)


def test_grey_of_16_bits_may_have_white_as_0_or_12_bits_or_a_transparent_value() -> None:
    inverted = written("TIFF", WIDE, tiffinfo={262: 0})
    assert np.array_equal(decoded_image(inverted)[:, :, 0], (65535 - WIDE) >> 8)
    values = np.arange(0, 4096, 64, dtype=np.uint16)
    packed = np.packbits(np.unpackbits(values.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1)[:, 4:]).tobytes()
    tags = {256: 64, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8 + 2 + 12 * 9 + 4, 277: 1, 278: 1, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    twelve = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4) + packed
    assert np.array_equal(decoded_image(twelve)[0, :, 0], values >> 4)
    assert decoded_image(written("PNG", WIDE, transparency=0), background="red")[0, 0].tolist() == [255, 0, 0]


def test_colours_that_transparent_pixels_hide_are_taken_only_if_asked_for() -> None:
    hidden = np.dstack([RAMP, np.zeros((17, 24), np.uint8)])

    assert (decoded_image(written("PNG", hidden)) == 255).all()
    assert (decoded_image(written("PNG", hidden), background="#0a141e") == [10, 20, 30]).all()
    assert np.array_equal(decoded_image(written("PNG", hidden), background="none"), RAMP)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(written("TIFF", WIDE.astype(np.float32)), "the TIFF file has pixels of 32-bit float", id="float"),
        pytest.param(written("TIFF", WIDE.astype(np.int32)), "the TIFF file has pixels of 32-bit signed", id="int32"),
        pytest.param(
            by_opencv(".tiff", np.dstack([WIDE.astype(np.float32)] * 3)),
            "is not supported, with samples of 32, 32, 32 bits (float): convert it to 8 bits: ",
            id="float_colours",
        ),
        pytest.param(written("TIFF")[:-300], "the TIFF file of ", id="cut_tiff"),
        pytest.param(written("PNG")[:60], "the PNG file of 60 bytes is damaged", id="cut_png"),
        pytest.param(written("JPEG")[:-30], "bytes is damaged: Premature end of JPEG file", id="cut_jpeg"),
        pytest.param(written("JPEG", mode="CMYK")[:-30], "bytes is damaged: Premature end", id="cut_cmyk_jpeg"),
        pytest.param(
            written("JPEG")[:21], "the JPEG file of 21 bytes is damaged: it ends within a header", id="cut_in_a_header"
        ),
        pytest.param(b"", "the file is empty: there are no bytes to decode", id="empty"),
        pytest.param(
            b"hello", "expected an image file, such as BMP, JPEG, PNG, TIFF or WebP, found 5 bytes", id="text"
        ),
        pytest.param(
            b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "the HEIC file of 24 bytes is damaged: Invalid input", id="heic"
        ),
        pytest.param(b"<!DOCTYPE html><html>", "the file is HTML, which is not read as an image. Download", id="html"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1", "the file it stands for: git lfs pull", id="lfs"),
    ],
)
def test_files_without_pixels_of_8_or_16_bits_are_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        decode(memoryview(data))


def test_a_tiff_of_a_compression_that_pillow_lacks_is_not_called_damaged() -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, "TIFF", compression="tiff_lzw")
    lzw, webp = (b"\x03\x01\x03\0\x01\0\0\0" + value.to_bytes(4, "little") for value in (5, 50001))
    data = file.getvalue().replace(lzw, webp)

    with pytest.raises(ValueError, match="is compressed by WebP, which Pillow does not decode in TIFF. Conv"):
        decode(memoryview(data))


def test_processes_of_jpeg_that_are_not_decoded_are_reported_from_damage() -> None:
    jpeg = written("JPEG", mode="L")
    at = jpeg.index(b"\xff\xc0")
    twelve, lossless = bytearray(jpeg), bytearray(jpeg)
    twelve[at + 1], twelve[at + 4] = 0xC1, 12
    lossless[at + 1] = 0xC3
    with pytest.raises(ValueError, match="is not supported: it has 12 bits a channel; lossy ones with 8 are read"):
        decode(memoryview(bytes(twelve)))
    with pytest.raises(ValueError, match="is not supported: it has 8 bits a channel and is lossless; lossy ones"):
        decode(memoryview(bytes(lossless)))


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str)
@pytest.mark.parametrize("junk", [b"\x7f", b"\x7f" * 258, bytes(40)], ids=["one", "many", "zeros"])
def test_padding_before_and_after_the_end_of_a_jpeg_is_no_damage(junk: bytes, options: dict[str, Any]) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (40, 56, 3), np.uint8)
    jpeg = written("JPEG", noise, quality=90, **options)
    plain = decode(memoryview(jpeg))

    for changed in (jpeg[:-2] + junk + jpeg[-2:], jpeg + junk, jpeg[:-2] + junk + jpeg[-2:] + jpeg):
        assert np.array_equal(decode(memoryview(changed)), plain)


def test_a_damaged_scan_that_ends_too_early_stays_an_error() -> None:
    """libjpeg says "extraneous bytes" of both; Pillow shows such images."""
    image = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 255, (96, 96, 3), np.uint8), (9, 9), 0)
    jpeg = written("JPEG", image, quality=85)
    early = 0
    for at in range(len(jpeg) // 2, len(jpeg) - 40):
        damaged = jpeg[:at] + bytes([jpeg[at] ^ 0x55]) + jpeg[at + 1 :]
        try:
            simplejpeg.decode_jpeg(damaged)
        except ValueError as error:
            early += "extraneous bytes before marker 0xd9" in str(error)
            with pytest.raises(ValueError, match="is damaged"):
                decode(memoryview(damaged))
    assert early > 20


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF"])
def test_the_limit_on_pixels_is_one_for_all_kinds(kind: str) -> None:
    data = memoryview(written(kind, mode="P" if kind == "GIF" else None))

    assert decode(data, max_pixels=17 * 24).shape == (17, 24, 3)
    words = (
        "the image is too large: 24 x 17 are 408 pixels, and the limit is 407. Make it smaller, or raise the limit: "
    )
    with pytest.raises(ValueError, match=re.escape(words + "max_pixels=408 (--max-pixels)")):
        decode(data, max_pixels=407)


def test_a_larger_image_than_pillow_opens_is_read_if_the_limit_is_raised() -> None:
    file = io.BytesIO()
    Image.new("1", (20_000, 9_000)).save(file, "PNG")
    data = memoryview(file.getvalue())

    with pytest.raises(ValueError, match=r"20000 x 9000 are 180,000,000 pixels, and the limit is 178,956,970\."):
        decode(data)
    assert decode(data, space="GRAY", max_pixels=180_000_000).shape == (9_000, 20_000, 1)


def test_kinds_are_recognized_by_their_first_bytes() -> None:
    for kind in ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "AVIF"):
        found = kind_of(written(kind))
        assert found is not None and found.name.upper() == kind == found.plugin
    assert kind_of(b"\0\0\0\x20ftypisom\0\0\0\0") == next(kind for kind in KINDS if kind.name == "MP4")
    assert kind_of(b"hello") is None


@pytest.mark.parametrize("name", ["bmp", "gif", "jpeg_2000", "lab_tiff", "pcx", "ppm", "qoi", "tga"])
def test_the_limit_of_pixels_is_one_for_all_kinds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = shown(FILES[name])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)

    assert np.array_equal(decoded_image(FILES[name], max_pixels=200_000_000), expected)
    with pytest.raises(
        ValueError, match=r"too large: 24 x 17 are 408 pixels, and the limit is 400. .* \(--max-pixels\)"
    ):
        decoded_image(FILES[name], max_pixels=400)
