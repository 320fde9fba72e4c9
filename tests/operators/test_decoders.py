"""Decoders of images and sound: what files hold, how they are turned, and what is said of damaged ones."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile
from operator_runs import run
from PIL import Image as Pillow

from beam_pipes.errors import InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline, types
from beam_pipes.transforms import fn
from beam_pipes.transforms.image_files import turned

RAMP = np.stack([*np.meshgrid(np.arange(0, 240, 6), np.arange(0, 200, 8)), np.full((25, 40), 90)], -1)
IMAGE = RAMP.astype(np.uint8)


def encoded(kind: str, image: Any = IMAGE, mode: str | None = None, **options: Any) -> Any:
    buffer = io.BytesIO()
    Pillow.fromarray(image, mode).save(buffer, kind, **options) if mode is None else Pillow.fromarray(image).convert(
        mode
    ).save(buffer, kind, **options)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def decode(data: Any, **options: Any) -> Any:
    return run(lambda x: fn.decoders.image(x, **options), [data])[0]


@pytest.mark.parametrize(
    ("kind", "options", "exact"),
    [("PNG", {}, True), ("WEBP", {"lossless": True}, True), ("JPEG", {"quality": 95}, False), ("BMP", {}, True)],
)
def test_files_are_decoded(kind: str, options: dict[str, Any], exact: bool) -> None:
    data = encoded(kind, **options)
    found = decode(data)
    assert found.shape == IMAGE.shape and found.dtype == np.uint8
    assert np.array_equal(found, IMAGE) if exact else np.abs(found.astype(int) - IMAGE).mean() < 2
    assert np.array_equal(decode(data, output_type=types.BGR), found[:, :, ::-1])
    grey = decode(data, output_type=types.GRAY)
    assert grey.shape == (25, 40, 1) and np.abs(grey[:, :, 0] - found @ [0.299, 0.587, 0.114]).max() < 4


def test_jpeg_is_what_pillow_decodes() -> None:
    data = encoded("JPEG", quality=90)
    expected = np.asarray(Pillow.open(io.BytesIO(data.tobytes())))
    assert np.abs(decode(data).astype(int) - expected).max() <= 1
    progressive = encoded("JPEG", progressive=True)
    assert np.abs(decode(progressive).astype(int) - IMAGE).mean() < 3
    assert decode(encoded("JPEG", mode="CMYK")).shape == (25, 40, 3)


def test_ycbcr_is_the_studio_range_that_dali_gives() -> None:
    black_white_red = [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0]]
    blue_grey_yellow = [[0, 0, 255], [128, 128, 128], [255, 255, 0], [10, 200, 90]]
    pixels = np.array([black_white_red, blue_grey_yellow], np.uint8)
    there = [  # of fn.color_space_conversion of DALI 2.4
        [[16, 128, 128], [235, 128, 128], [81, 90, 240], [145, 54, 34]],
        [[41, 240, 110], [126, 128, 128], [210, 16, 146], [128, 108, 52]],
    ]
    exact = decode(encoded("PNG", image=pixels), output_type=types.YCbCr)
    assert exact.dtype == np.uint8 and exact.tolist() == there
    large = np.repeat(np.repeat(pixels, 16, 0), 16, 1)
    jpeg = decode(encoded("JPEG", image=large, quality=100, subsampling=0), output_type=types.YCbCr)
    assert np.abs(jpeg[8::16, 8::16].astype(int) - there).max() <= 2


def test_other_dtypes_have_their_full_range() -> None:
    data = encoded("PNG")
    np.testing.assert_allclose(decode(data, dtype=types.FLOAT), IMAGE / 255, atol=1e-6)
    assert np.array_equal(decode(data, dtype="uint16"), IMAGE.astype(np.uint16) * 257)


def test_channels_that_the_file_has() -> None:
    alpha = np.concatenate([IMAGE, np.full((25, 40, 1), 128, np.uint8)], axis=2)
    data = encoded("PNG", alpha)
    assert np.array_equal(decode(data), IMAGE)
    assert np.array_equal(decode(data, output_type=types.ANY_DATA), alpha)
    grey = encoded("PNG", IMAGE[:, :, 0])
    assert decode(grey, output_type=types.ANY_DATA).shape == (25, 40, 1)
    assert np.array_equal(decode(grey), np.repeat(IMAGE[:, :, :1], 3, axis=2))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_images_are_turned_as_their_exif_data_says(orientation: int, kind: str) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    data = encoded(kind, exif=exif)
    plain = decode(data, adjust_orientation=False)
    assert plain.shape == IMAGE.shape
    assert np.array_equal(decode(data), turned(plain, orientation))
    upright = np.asarray(
        {
            1: lambda a: a,
            2: lambda a: a[:, ::-1],
            3: lambda a: a[::-1, ::-1],
            4: lambda a: a[::-1],
            5: lambda a: a.transpose(1, 0, 2),
            6: lambda a: np.rot90(a, -1),
            7: lambda a: np.rot90(a, -1)[::-1],
            8: lambda a: np.rot90(a),
        }[orientation](plain)
    )
    if orientation != 7:
        assert np.array_equal(turned(plain, orientation), upright)
    assert turned(plain, orientation).shape == upright.shape


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encoded("JPEG")[:-300], r"the JPEG file of \d+ bytes is damaged"),
        (encoded("PNG")[:70], r"the PNG file of 70 bytes is damaged"),
        (encoded("WEBP")[:100], r"the WebP file of 100 bytes is damaged"),
        (
            np.frombuffer(b"hello, this is text", np.uint8),
            r"expected an image file, such as BMP, JPEG, PNG, TIFF or WebP, found 19 bytes",
        ),
        (np.zeros(0, np.uint8), r"there are no bytes to decode"),
    ],
)
def test_damaged_files_are_errors_that_name_the_sample(data: Any, words: str) -> None:
    with pytest.raises(
        OperatorError, match=rf"operator 'decoders.image' failed on record 'external_source@0'.*{words}"
    ):
        decode(data)


def test_damaged_files_follow_on_error() -> None:
    files = [encoded("PNG"), encoded("PNG")[:70], encoded("JPEG")]
    pipe = Pipeline(batch_size=3, on_error="dead_letter")
    with pipe:
        pipe.set_outputs(fn.decoders.image(fn.external_source(lambda i: files, dtype=types.UINT8, ndim=1)))
    (images,) = pipe.run()
    assert len(images) == 2
    assert [letter.record for letter in pipe.dead_letters] == ["external_source@1"]


def test_decoders_take_bytes_only() -> None:
    with pytest.raises(InferenceError, match=r"expected the bytes of files, uint8\[·\], got float32"):
        decode(np.zeros(3, np.float32))


def sound(wave: Any, rate: int, kind: str = "WAV", **options: Any) -> Any:
    buffer = io.BytesIO()
    soundfile.write(buffer, wave, rate, format=kind, **options)
    return np.frombuffer(buffer.getvalue(), np.uint8)


STEREO = np.stack([np.sin(np.arange(800) * 0.1), np.cos(np.arange(800) * 0.05)], 1) * 0.5


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_sound_is_decoded(kind: str) -> None:
    data = sound(STEREO, 8000, kind, subtype="PCM_16")
    wave, rate = run(lambda x: fn.decoders.audio(x), [data])
    assert wave[0].shape == (800, 2) and wave[0].dtype == np.float32 and float(rate[0]) == 8000.0
    np.testing.assert_allclose(wave[0], STEREO, atol=1e-4)
    mono, _ = run(lambda x: fn.decoders.audio(x, downmix=True), [data])
    np.testing.assert_allclose(mono[0], STEREO.mean(axis=1), atol=1e-4)
    whole, _ = run(lambda x: fn.decoders.audio(x, dtype=types.INT16), [data])
    assert whole[0].dtype == np.int16 and np.abs(whole[0] - STEREO * 32767).max() < 2


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_stored_integers_are_those_of_the_file(kind: str) -> None:
    """As in DALI: by way of floats, half of all loud samples would be one off."""
    stored = np.array([[0, 1], [16384, -16385], [32767, -32768], [20001, -29999]], np.int16)
    data = sound(stored, 8000, kind, subtype="PCM_16")

    for rate in (0.0, 8000.0):
        short, _ = run(lambda x, rate=rate: fn.decoders.audio(x, dtype=types.INT16, sample_rate=rate), [data])
        np.testing.assert_array_equal(short[0], stored)
    long, _ = run(lambda x: fn.decoders.audio(x, dtype=types.INT32), [data])
    np.testing.assert_array_equal(long[0], stored.astype(np.int32) << 16)
    mixed, _ = run(lambda x: fn.decoders.audio(x, dtype=types.INT16, downmix=True), [data])
    assert np.abs(mixed[0] - stored.mean(axis=1)).max() <= 1
    floats, _ = run(
        lambda x: fn.decoders.audio(x, dtype=types.INT16), [sound(STEREO.astype(np.float32), 8000, subtype="FLOAT")]
    )
    np.testing.assert_array_equal(floats[0], np.rint(STEREO.astype(np.float32).astype(np.float64) * 32767))


def test_sound_is_resampled() -> None:
    data = sound(STEREO, 8000, subtype="FLOAT")
    wave, rate = run(lambda x: fn.decoders.audio(x, sample_rate=16000), [data])
    assert abs(len(wave[0]) - 1600) <= 1 and float(rate[0]) == 16000.0
    middle = slice(200, 1400)
    np.testing.assert_allclose(wave[0][middle, 0], np.sin(np.arange(1600) * 0.05)[middle] * 0.5, atol=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[: len(content) // 2], "should have 3,200 bytes of samples, .* ends after 1,578"),
        (lambda content: content * 2, "is several recordings one after the other"),
    ],
)
def test_sound_that_is_cut_or_joined_is_refused_as_the_recipe_refuses_it(
    change: Callable[[bytes], bytes], words: str
) -> None:
    data = np.frombuffer(change(sound(STEREO, 8000, subtype="PCM_16").tobytes()), np.uint8)
    with pytest.raises(OperatorError, match=words):
        run(lambda x: fn.decoders.audio(x), [data])


def test_damaged_sound_names_the_sample() -> None:
    with pytest.raises(
        OperatorError, match=r"on record 'external_source@0'.*cannot decode sound from a file of 9 bytes"
    ):
        run(lambda x: fn.decoders.audio(x)[0], [np.frombuffer(b"not sound", np.uint8)])
    with pytest.raises(OperatorArgumentError, match=r"dtype should be one of float32, int16, int32, got 'uint8'"):
        fn.decoders.audio(np.zeros(3, np.uint8), dtype="uint8")
