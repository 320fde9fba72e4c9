"""Image files: the kind of a file by its first bytes, its pixels, and the reasons for refusing it.

    decode(jpeg)                                   →  uint8 (height, width, 3), RGB, upright
    decode(png, background=(255, 255, 255))        →  the same, with transparent pixels over white

The pixels are those of Pillow, after `ImageOps.exif_transpose`; JPEG is decoded strictly by libjpeg-turbo: truncated or
damaged files are refused. `KINDS` lists the known kinds of files, with advice for those that are not read. The recipe
`images`, `decode_images` and the operators of `fn.decoders` all decode here.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.extras import require

Pixels = npt.NDArray[Any]

#: Default maximum number of pixels of an image: Pillow's own limit.
MAX_PIXELS = 178_956_970


class Kind(NamedTuple):
    """A kind of file: its name, a pattern for its first bytes, Pillow's name for it, and advice if it is not read."""

    name: str
    start: re.Pattern[bytes]
    plugin: str | None = None
    remedy: str = ""


def _kind(name: str, start: bytes, plugin: str | None = None, remedy: str = "") -> Kind:
    return Kind(name, re.compile(start, re.DOTALL), plugin, remedy)


_TO_PNG = "Convert it to PNG or JPEG"
_HEIC = "HEIF"
KINDS = (
    _kind("JPEG", rb"\xff\xd8\xff", "JPEG"),
    _kind("PNG", rb"\x89PNG\r\n\x1a\n", "PNG"),
    _kind("WebP", rb"RIFF....WEBP", "WEBP"),
    _kind("TIFF", rb"II\*\0|MM\0\*|II\+\0|MM\0\+", "TIFF"),
    _kind("BMP", rb"BM", "BMP"),
    _kind("GIF", rb"GIF8", "GIF"),
    _kind("JPEG 2000", rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  ", "JPEG2000"),
    _kind("PNM", rb"P[1-6]\s", "PPM"),
    _kind("AVIF", rb"....ftyp(avi[fs]|mif1.{4,16}avif)", "AVIF"),
    _kind("HEIC", rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)", _HEIC),
    _kind("JPEG XL", rb"\xff\x0a|\0\0\0\x0cJXL ", None, f"{_TO_PNG}, for example with djxl"),
    _kind("MP4", rb"....ftyp", None, "Take pictures out of the video, for example with ffmpeg"),
    _kind("SVG", rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<svg", None, "It has no pixels: render it as PNG"),
    _kind("HTML", rb"\s*<(!doctype html|html|!DOCTYPE|HTML)", None, "Download it again: a server sent a page instead"),
    _kind("PDF", rb"%PDF", None, "Render its pages as PNG"),
    _kind("Git LFS pointer", rb"version https://git-lfs", None, "Fetch the file it stands for: git lfs pull"),
    _kind("AppleDouble", rb"\0\x05\x16\x07", None, "It holds what macOS keeps beside a file: remove it"),
)
#: The treatment of file features: kind, feature, treatment, and the reader whose pixels are the reference.
#: docs/file-formats.md shows them, beside the kinds that are not read.
FEATURES = (
    ("all", "orientation, of Exif or else of XMP", "turned once; ignored where it cannot be read", "Pillow"),
    ("all", "transparency", "over a background, or the colours that it hides", "Pillow, `alpha_composite`"),
    ("all", "more pixels than the limit", "refused before it is decoded; `--max-pixels`", "–"),
    ("all", "colour profiles, gamma", "not applied", "Pillow, OpenCV"),
    ("all", "several frames or pages", "the first", "Pillow, OpenCV"),
    ("JPEG", "grey, colour, progressive, any subsampling", "read", "libjpeg-turbo"),
    ("JPEG", "CMYK and YCCK", "converted to RGB", "Pillow"),
    ("JPEG", "padding before the end, anything after it", "ignored", "Pillow, OpenCV"),
    ("JPEG", "cut or damaged scans", "refused", "libjpeg-turbo, strictly"),
    ("JPEG", "12 bits a channel, lossless", "refused; `ffmpeg -i 1.jpg 1.png` converts it", "–"),
    ("PNG", "1 to 8 bits, palettes, transparent colours", "read", "Pillow"),
    ("PNG, TIFF", "16 bits a channel", "the upper 8 bits", "Pillow (colours), OpenCV"),
    ("TIFF", "grey, colours, palettes, CMYK, LAB; with and without compression", "read", "Pillow"),
    ("TIFF", "grey of 12 bits", "the upper 8 bits", "arithmetic"),
    ("TIFF", "floats, signed or 32-bit integers", "refused", "–"),
    ("TIFF", "colours of floats, other numbers of channels", "refused", "–"),
    ("TIFF", "compressed by WebP, LERC, JPEG 2000 or JPEG XL", "refused", "–"),
    ("AVIF, BMP, GIF, JPEG 2000, PCX, PNM, QOI, TGA, WebP", "all that Pillow reads", "read", "Pillow"),
    ("JPEG 2000, PGM", "grey of more than 8 bits", "the upper 8 bits", "Pillow"),
    ("AVIF, HEIC", "rotations and mirrors of the container", "done once; that of HEIC's Exif ignored", "heif-convert"),
    ("HEIC", "the main picture, with the extra `heic`; more than 8 bits", "read; the upper 8 bits", "libheif"),
    ("AVIF, HEIC", "cut short", "refused", "–"),
)
_ORIENTATION = 0x0112
# Orientation → the one that reverses it.
_BACK = {6: 8, 8: 6}
_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339


def kind_of(data: memoryview | bytes) -> Kind | None:
    """The kind of a file by its first bytes, None if unknown: `kind_of(b"GIF89a…").name` → `"GIF"`."""
    start = bytes(data[:400])
    return next((kind for kind in KINDS if kind.start.match(start)), None)


def decode(
    data: memoryview,
    *,
    space: str = "RGB",
    upright: bool = True,
    background: tuple[int, int, int] | None = None,
    max_pixels: int = MAX_PIXELS,
    deep: bool = False,
    fast_idct: bool = False,
    fast_upsampling: bool = False,
) -> Pixels:
    """The pixels of an image file: (height, width, channels) uint8.

    Args:
        data: the bytes of the file.
        space: "RGB", "BGR", "GRAY", or "ANY" for the channels of the file.
        upright: whether the image is turned by its Exif orientation; unreadable Exif data is ignored.
        background: the colour that is seen through transparent pixels. None takes the colours that they hide.
        max_pixels: a larger image is refused before it is decoded.
        deep: whether grey images of 16 bits stay uint16. Else the upper 8 bits are taken, as from colours of 16 bits.
        fast_idct, fast_upsampling: JPEG is decoded faster and less exactly.

    Raises `ValueError` for files that are damaged, too large, or of a kind that is not read.
    """
    if not len(data):
        raise ValueError("the file is empty: there are no bytes to decode")
    kind = kind_of(data)
    if kind is not None and kind.name == "JPEG":
        image = _jpeg(data, space, max_pixels, fastdct=fast_idct, fastupsample=fast_upsampling)
        if image is not None:
            # Most files have no metadata, and this check is faster than opening a file with Pillow.
            is_turned = upright and any(marker == 0xE1 for marker, _ in _segments(data, head_only=True))
            return turned(image, orientation_of(_opened(data, kind))) if is_turned else image
    file = _opened(data, kind)
    _check_size(file.size, max_pixels)
    orientation = orientation_of(file)
    name = file.format if kind is None else kind.name
    _check_numbers(file, name)
    pillow: Any = require("PIL.Image", purpose="images")
    if file.format == "TIFF" and max_pixels > MAX_PIXELS and pillow.MAX_IMAGE_PIXELS is not None:
        pillow.MAX_IMAGE_PIXELS = max(pillow.MAX_IMAGE_PIXELS, max_pixels)  # Pillow checks again on loading
    try:
        file.load()
    except MemoryError:
        raise
    except Exception as error:  # of many classes: some of Pillow's readers pass on errors of zlib or struct
        unread = _COMPRESSIONS.get(getattr(file, "tag_v2", {}).get(_COMPRESSION, 0))
        what = (
            "damaged" if unread is None else f"compressed by {unread}, which Pillow does not decode in TIFF. {_TO_PNG}"
        )
        raise ValueError(f"the {name} file of {len(data)} bytes is {what}: {_said(error)}") from error
    image = _converted(file, space, background, deep=deep)
    if file.format == "TIFF":  # already turned by Pillow on loading
        return image if upright else turned(image, _BACK.get(orientation, orientation))
    return turned(image, orientation) if upright else image


def shape_of(data: memoryview, *, upright: bool = True) -> tuple[int, int, int]:
    """Height, width and channels, from the header of a file: `(375, 500, 3)`."""
    file = _opened(data, kind_of(data))
    # Pillow reports the size of a TIFF after turning it.
    is_turned = orientation_of(file) > 4 and upright != (file.format == "TIFF")
    width, height = file.size
    return (width, height, len(file.getbands())) if is_turned else (height, width, len(file.getbands()))


def orientation_of(file: Any) -> int:
    """The Exif orientation of an image that Pillow has opened, 1 to 8; 1 if it is missing or invalid.

    As in `ImageOps.exif_transpose`, the orientation in XMP is used if Exif has none. HEIC is turned by its container,
    which libheif does on decoding, and Exif counts for nothing, as the standard says.
    """
    if file.format == _HEIC:
        return 1
    try:
        found = file.getexif().get(_ORIENTATION, 1)
    except Exception:  # of many classes; the pixels do not depend on it
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def turned(image: Pixels, orientation: int) -> Pixels:
    """An image turned upright by its Exif orientation (1 to 8)."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


def _check_size(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise ValueError(
            f"the image is too large: {width} x {height} are {width * height:,} pixels, and the limit is "
            f"{max_pixels:,}. Make it smaller, or raise the limit: max_pixels={width * height} (--max-pixels)"
        )


# JPEG.


def _jpeg(data: memoryview, space: str, max_pixels: int, **options: bool) -> Pixels | None:
    """The pixels of a JPEG file; None for those that Pillow has to decode: CMYK or unusual subsampling."""
    simplejpeg = require("simplejpeg", purpose="JPEG")
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        if "subsampling" in str(error):  # libjpeg supports more modes than TurboJPEG names
            return None
        raise _damaged_jpeg(data, error) from error
    _check_size((width, height), max_pixels)
    is_cmyk = colours in ("CMYK", "YCCK")
    if is_cmyk or space == "ANY":
        space = "CMYK" if is_cmyk else "GRAY" if colours == "Gray" else "RGB"
    try:
        image: Pixels = simplejpeg.decode_jpeg(data, space, **options)
    except ValueError as error:
        if not _ends_in_padding(data, str(error)):
            raise _damaged_jpeg(data, error) from error
        image = simplejpeg.decode_jpeg(data, space, strict=False, **options)
    return None if is_cmyk else image


def _ends_in_padding(data: memoryview, words: str) -> bool:
    """Whether libjpeg complains only of equal bytes between the end of the image and the end marker.

    Some cameras and editors pad files there. Other bytes are refused: in a damaged image the decoder often reaches its
    last block too early, and considers the rest extraneous.
    """
    found = re.search(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9", words)
    end = next((at for marker, at in _segments(data) if marker == 0xD9), 0)
    return found is not None and len(set(bytes(data[max(0, end - int(found[1])) : end]))) == 1


def _damaged_jpeg(data: memoryview, error: ValueError) -> ValueError:
    """The message for a JPEG file that libjpeg-turbo refuses: damaged, or of another process."""
    for marker, at in _segments(data, head_only=True):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            bits, is_lossless = data[at + 4], marker in (0xC3, 0xC7, 0xCB, 0xCF)
            if bits != 8 or is_lossless:
                return ValueError(
                    f"the JPEG file of {len(data)} bytes is not supported: it has {bits} bits a channel"
                    f"{' and is lossless' if is_lossless else ''}; lossy ones with 8 are read. {_TO_PNG}, such as "
                    "with ffmpeg: ffmpeg -i 1.jpg 1.png"
                )
    return ValueError(f"the JPEG file of {len(data)} bytes is damaged: {error}")


def _segments(data: memoryview, *, head_only: bool = False) -> Iterator[tuple[int, int]]:
    """The markers of a JPEG file with their places, up to its end, or up to its first scan."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        yield marker, at
        if marker == 0xD9 or (marker == 0xDA and head_only):
            return
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xDA:
            # To the next marker that is neither a stuffed byte 0xff nor a restart.
            found = re.search(rb"\xff[^\x00\xd0-\xd7\xff]", data[at:])
            at = len(data) if found is None else at + found.start()
    if at + 2 == len(data) and bytes(data[at:]) == b"\xff\xd9":
        yield 0xD9, at


# All others.


def _opened(data: memoryview, kind: Kind | None) -> Any:
    """The file opened by Pillow. Raises `ValueError` if that fails."""
    pillow = require("PIL.Image", purpose="images")
    pillow.init()
    # As a class, so that Pillow itself opens what it did before.
    heic = require("pillow_heif.as_plugin", purpose="HEIC") if kind is not None and kind.plugin == _HEIC else None
    try:
        if heic is not None:
            return heic.HeifImageFile(io.BytesIO(data), None)
        if kind is not None and kind.plugin in pillow.OPEN:
            return pillow.OPEN[kind.plugin][0](io.BytesIO(data), None)  # not `open`, which has its own limit
        for name in pillow.ID if kind is None else ():  # as `open` tries them
            factory, accepts = pillow.OPEN[name]
            if accepts is None or accepts(bytes(data[:16])) is True:
                with contextlib.suppress(SyntaxError, IndexError, TypeError, struct.error):
                    return factory(io.BytesIO(data), None)
    except MemoryError:
        raise
    except Exception as error:  # as above
        if kind is not None:
            variant = _variant_of_tiff(data) if kind.name == "TIFF" else ""
            raise ValueError(
                f"the {kind.name} file of {len(data)} bytes is {variant or 'damaged'}: {_said(error)}"
            ) from error
    if kind is not None:
        raise ValueError(f"the file is {kind.name}, which is not read as an image. {kind.remedy}")
    raise ValueError(
        f"expected an image file, such as BMP, JPEG, PNG, TIFF or WebP, found {len(data)} bytes that begin with "
        f"{bytes(data[:12])!r}"
    )


def _said(error: Exception) -> str:
    """What a reader of Pillow says; what Python says of bytes that it did not find is replaced."""
    cause = error.__cause__ or error  # Pillow makes a SyntaxError of what it does not expect
    return "it ends within a header" if isinstance(cause, IndexError | struct.error) else str(error)


def _variant_of_tiff(data: memoryview) -> str:
    """`not supported, with samples of 32, 32, 32 bits (float)`; nothing if its header cannot be read."""
    tiff = require("PIL.TiffImagePlugin", purpose="images")
    try:
        file = io.BytesIO(data)
        tags = tiff.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        bits, numbers = tags[_BITS_PER_SAMPLE], tags.get(_SAMPLE_FORMAT, (1,))
    except Exception:  # of many classes
        return ""
    names = ", ".join(sorted({_NUMBERS.get(each, "unknown") for each in numbers}))
    return f"not supported, with samples of {', '.join(map(str, bits))} bits ({names}): convert it to 8 bits"


_NUMBERS = {1: "unsigned", 2: "signed", 3: "float", 5: "complex", 6: "complex float"}


# Compressions of TIFF that Pillow's wheels lack.
_COMPRESSION = 259
_COMPRESSIONS = {34712: "JPEG 2000", 34887: "LERC", 50001: "WebP", 50002: "JPEG XL", 52546: "JPEG XL"}


def _check_numbers(file: Any, name: str) -> None:
    """Raises `ValueError` for pixels of unknown range, for which no rule gives 8 bits."""
    tags = getattr(file, "tag_v2", {})
    is_wide = file.mode in ("I", "F") and not _is_grey_16(file)
    if is_wide or any(each in (2, 3, 5, 6) for each in tags.get(_SAMPLE_FORMAT, ())):
        signed = tags.get(_SAMPLE_FORMAT, (3 if file.mode == "F" else 2,))[0]
        bits = tags.get(_BITS_PER_SAMPLE, (32,))[0]
        raise ValueError(
            f"the {name} file has pixels of {bits}-bit {_NUMBERS.get(signed, 'unsigned')} numbers (mode {file.mode}), "
            "and does not say which of them are black and white. Convert it to 8 or 16 bits with the range that you "
            "mean"
        )


def _is_grey_16(file: Any) -> bool:
    """Whether pixels are grey of 16 bits; PGM's are of 32 in Pillow, which scales them to 16 by the maximum stated."""
    return bool(file.mode.startswith("I;16") or (file.mode == "I" and file.format == "PPM"))


def _converted(file: Any, space: str, background: tuple[int, int, int] | None, *, deep: bool) -> Pixels:
    if _is_grey_16(file):
        return _converted_16_bits(file, space, background, deep=deep)
    if background is not None and file.has_transparency_data:
        pillow = require("PIL.Image", purpose="images")
        colours = file.convert("RGBA")
        file = pillow.alpha_composite(pillow.new("RGBA", colours.size, (*background, 255)), colours)
        if space == "ANY":
            space = "RGB"
    if space == "ANY":
        plain = {"1": "L", "P": "RGBA" if "transparency" in file.info else "RGB", "PA": "RGBA"}
        array: Pixels = np.asarray(
            file.convert(plain.get(file.mode, file.mode if file.mode in ("L", "LA", "RGBA") else "RGB"))
        )
        return array[:, :, None] if array.ndim == 2 else array
    if space == "GRAY":
        return np.asarray(file.convert("L"))[:, :, None]
    if file.mode in ("P", "LA", "PA"):
        file = file.convert("RGBA")
    image: Pixels = np.asarray(file.convert("RGB"))
    return image[:, :, ::-1] if space == "BGR" else image


def _converted_16_bits(file: Any, space: str, background: tuple[int, int, int] | None, *, deep: bool) -> Pixels:
    values = np.asarray(file).astype(np.uint16)
    tags = getattr(file, "tag_v2", {})
    image: Pixels = (values << (16 - tags.get(_BITS_PER_SAMPLE, (16,))[0]))[:, :, None]
    if tags.get(_PHOTOMETRIC) == 0:  # 0 is white; Pillow itself inverts 8-bit images
        image = ~image
    if space in ("RGB", "BGR"):
        image = np.repeat(image, 3, 2)
    if not deep:
        image = (image >> 8).astype(np.uint8)
    hidden = file.info.get("transparency")
    if background is not None and isinstance(hidden, int) and image.shape[2] == 3:
        image[values == hidden] = background if not deep else [each * 257 for each in background]
    return image
