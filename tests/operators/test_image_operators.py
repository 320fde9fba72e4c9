"""Operators over images, against plain references, Pillow, and numbers that DALI 2.4 gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_runs import run
from PIL import Image as Pillow

from beam_pipes.errors import InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline, types
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.image.affine import inverse, rotation_canvas, sampled
from beam_pipes.transforms.operators.image.resampling import resample, weights
from beam_pipes.transforms.operators.image.resize import RandomResizedCrop

IMAGE = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
SMALL = np.arange(6, dtype=np.uint8).reshape(2, 3, 1) * 10
PIXEL = np.array([[[200, 100, 50]]], np.uint8)


def one(call: Any, *samples: Any, layout: str = "HWC") -> Any:
    return run(call, *[[sample] for sample in samples], layout=layout)[0]


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"size": [30, 40]}, (30, 40)),
        ({"size": [30, 0]}, (30, 45)),
        ({"size": 30}, (30, 30)),
        ({"size": [30, 0], "mode": "stretch"}, (30, 90)),
        ({"size": [30, 30], "mode": "not_larger"}, (20, 30)),
        ({"size": [30, 30], "mode": "not_smaller"}, (30, 45)),
        ({"size": [30, 30], "mode": "not_larger", "max_size": 20}, (13, 20)),
        ({"resize_x": 45}, (30, 45)),
        ({"resize_y": 20}, (20, 30)),
        ({"resize_x": 45, "resize_y": 20}, (20, 45)),
        ({"resize_shorter": 59.5}, (60, 89)),
        ({"resize_shorter": 40, "max_size": 45}, (30, 45)),
        ({"resize_longer": 20}, (13, 20)),
    ],
)
def test_resize_gives_dalis_sizes(options: dict[str, Any], shape: tuple[int, int]) -> None:
    assert one(lambda x: fn.resize(x, **options), IMAGE).shape == (*shape, 3)


@pytest.mark.parametrize("interpolation", ["INTERP_LINEAR", "INTERP_CUBIC", "INTERP_LANCZOS3", "INTERP_GAUSSIAN"])
@pytest.mark.parametrize("size", [(30, 40), (100, 140), (20, 120)])
@pytest.mark.parametrize("antialias", [True, False])
def test_resize_is_its_reference(interpolation: str, size: tuple[int, int], antialias: bool) -> None:
    found = one(lambda x: fn.resize(x, size=size, interp_type=interpolation, antialias=antialias), IMAGE)
    kind = types.DALIInterpType[interpolation]
    stretched = antialias or kind == types.INTERP_GAUSSIAN
    matrices = [
        weights(out, 0.0, float(length), length, kind, stretched and length > out)
        for out, length in zip(size, IMAGE.shape[:2], strict=True)
    ]
    expected = np.clip(resample(IMAGE, *matrices), 0, 255)
    assert np.abs(found - expected).max() <= 1.01
    as_floats = one(
        lambda x: fn.resize(x, size=size, interp_type=interpolation, antialias=antialias, dtype=types.FLOAT), IMAGE
    )
    np.testing.assert_allclose(as_floats, resample(IMAGE, *matrices), atol=2e-3)


def test_resize_within_the_image_is_pillows() -> None:
    found = one(lambda x: fn.resize(x, size=[30, 40]), IMAGE)
    expected = np.asarray(Pillow.fromarray(IMAGE).resize((40, 30), Pillow.Resampling.BILINEAR))
    inner = np.abs(found.astype(int) - expected)[2:-2, 2:-2]
    assert inner.max() <= 1  # at the edge Pillow leaves out what lies beyond, and DALI repeats the edge


def test_resize_nearest_regions_and_mirrors() -> None:
    assert np.array_equal(one(lambda x: fn.resize(x, size=[30, 45], interp_type="INTERP_NN"), IMAGE), IMAGE[1::2, 1::2])
    whole = one(lambda x: fn.resize(x, size=[20, 20], roi_start=[10, 20], roi_end=[50, 60]), IMAGE)
    part = one(lambda x: fn.resize(x, size=[20, 20]), IMAGE[10:50, 20:60])
    assert np.abs(whole.astype(int) - part)[2:-2, 2:-2].max() <= 1
    mirrored = one(lambda x: fn.resize(x, size=[20, 20], roi_start=[50, 60], roi_end=[10, 20]), IMAGE)
    assert np.array_equal(mirrored, whole[::-1, ::-1])
    assert np.array_equal(
        one(lambda x: fn.resize(x, resize_x=-45), IMAGE), one(lambda x: fn.resize(x, resize_x=45), IMAGE)[:, ::-1]
    )


@pytest.mark.parametrize(("layout", "order"), [("CHW", (2, 0, 1)), ("HWC", (0, 1, 2)), ("WHC", (1, 0, 2))])
def test_resize_and_rotate_know_layouts(layout: str, order: tuple[int, ...]) -> None:
    for call in (lambda x: fn.resize(x, size=[20, 30]), lambda x: fn.rotate(x, angle=20, keep_size=True)):
        expected = one(call, IMAGE).transpose(order)
        assert np.array_equal(one(call, np.ascontiguousarray(IMAGE.transpose(order)), layout=layout), expected)
    frames = np.stack([IMAGE, IMAGE[::-1]])
    found = one(lambda x: fn.resize(x, size=[20, 30]), frames, layout="FHWC")
    assert np.array_equal(found[1], one(lambda x: fn.resize(x, size=[20, 30]), IMAGE[::-1]))
    grey = one(lambda x: fn.resize(x, size=[20, 30]), IMAGE[:, :, 0], layout="HW")
    assert np.array_equal(grey, one(lambda x: fn.resize(x, size=[20, 30]), IMAGE[:, :, :1])[:, :, 0])


def test_resize_says_what_is_wrong() -> None:
    with pytest.raises(OperatorArgumentError, match=r"give one of size, resize_x, resize_y"):
        one(lambda x: fn.resize(x), IMAGE)
    with pytest.raises(OperatorArgumentError, match=r"size and resize_shorter do not go together"):
        one(lambda x: fn.resize(x, size=3, resize_shorter=4), IMAGE)
    with pytest.raises(OperatorArgumentError, match=r"mode should be one of default, stretch"):
        one(lambda x: fn.resize(x, size=3, mode="fit"), IMAGE)
    with pytest.raises(InferenceError, match=r"dtype should be that of the input \(uint8\) or float32, got int32"):
        one(lambda x: fn.resize(x, size=3, dtype="int32"), IMAGE)
    with pytest.raises(InferenceError, match=r"expected images, with axes H and W, got"):
        one(lambda x: fn.resize(x, size=3), IMAGE, layout="abc")
    with pytest.raises(OperatorArgumentError, match=r"interp_type should be one of types.INTERP_NN"):
        one(lambda x: fn.resize(x, size=3, interp_type="bicubic"), IMAGE)


def test_random_resized_crop_takes_windows_within_the_image() -> None:
    operator = RandomResizedCrop({"size": [8, 8]})
    draws = np.random.default_rng(1).random((200, 10, 4))
    windows = [operator.window(60, 90, some) for some in draws]
    for top, left, height, width in windows:
        assert 0 <= top <= 60 - height and 0 <= left <= 90 - width
        assert 0.07 <= height * width / 5400 <= 1.0 and 0.7 <= width / height <= 1.4
    assert len(set(windows)) > 150
    assert operator.window(10, 1000, draws[0][:0]) == (0, 493, 10, 13)


def test_random_resized_crop_is_keyed_by_record() -> None:
    samples = [IMAGE, IMAGE[:40], IMAGE[:, :50]]
    both = run(lambda x: fn.random_resized_crop(x, size=[16, 12], name="crop"), samples, layout="HWC")
    assert [one.shape for one in both] == [(16, 12, 3)] * 3
    again = run(lambda x: fn.random_resized_crop(x, size=[16, 12], name="crop"), samples, layout="HWC", num_threads=2)
    assert all(np.array_equal(a, b) for a, b in zip(both, again, strict=True))
    with pytest.raises(OperatorArgumentError, match=r"random_area should be 2 numbers, each above 0"):
        fn.random_resized_crop(IMAGE, size=3, random_area=(0, 2))


@pytest.mark.parametrize(
    ("shape", "angle", "expected"),
    [
        ((20, 30), 30, (34, 36)),
        ((21, 30), 30, (35, 38)),
        ((60, 90), 123, (110, 100)),
        ((2, 3), 90, (3, 2)),
        ((5, 7), 0, (5, 7)),
    ],
)
def test_the_canvas_of_a_rotation_is_dalis(shape: Any, angle: float, expected: Any) -> None:
    assert rotation_canvas(*shape, angle) == expected
    assert one(lambda x: fn.rotate(x, angle=angle), np.zeros((*shape, 1), np.uint8)).shape == (*expected, 1)


def test_rotation_is_counter_clockwise_and_gives_dalis_numbers() -> None:
    assert one(lambda x: fn.rotate(x, angle=90.0, fill_value=0), SMALL)[:, :, 0].tolist() == [
        [20, 50],
        [10, 40],
        [0, 30],
    ]
    for turns in range(4):
        assert np.array_equal(
            one(lambda x, angle=90.0 * turns: fn.rotate(x, angle=angle), IMAGE), np.rot90(IMAGE, turns)
        )
    found = one(
        lambda x: fn.rotate(x, angle=45.0, fill_value=7, keep_size=True),
        np.arange(16, dtype=np.float32).reshape(4, 4, 1),
    )
    expected = [[4.9173, 2.5503, 6.0858, 7.7574], [1.136, 4.6716, 8.2071, 11.7426], [3.2574, 6.7929, 10.3284, 13.864]]
    np.testing.assert_allclose(found[:3, :, 0], expected, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"matrix": [1, 0, 0.5, 0, 1, 0]}, [[5, 15, 20], [35, 45, 50]]),
        ({"matrix": [1, 0, 0.5, 0, 1, 0], "fill_value": 100}, [[5, 15, 60], [35, 45, 75]]),
        ({"matrix": [1, 0, 1, 0, 1, 0], "fill_value": 100, "inverse_map": False}, [[100, 0, 10], [100, 30, 40]]),
        (
            {"matrix": [1, 0, 0.5, 0, 1, 0], "fill_value": 100, "interp_type": types.INTERP_NN},
            [[10, 20, 100], [40, 50, 100]],
        ),
    ],
)
def test_warp_affine_gives_dalis_numbers(options: dict[str, Any], expected: Any) -> None:
    assert one(lambda x: fn.warp_affine(x, **options), SMALL)[:, :, 0].tolist() == expected
    matrix = np.array(options.pop("matrix"), np.float32).reshape(2, 3)
    by_input = one(lambda x, m: fn.warp_affine(x, m, **options), SMALL, matrix)
    assert by_input[:, :, 0].tolist() == expected


@pytest.mark.parametrize("fill", [None, 5.0])
def test_warps_are_their_reference(fill: float | None) -> None:
    matrix = [0.9, 0.1, 3.0, -0.1, 0.95, 4.0]
    found = one(lambda x: fn.warp_affine(x, matrix=matrix, fill_value=fill, size=[50, 40.4]), IMAGE)
    expected = sampled(
        np, IMAGE[None], np.array(matrix).reshape(1, 2, 3), (50, 40), types.INTERP_LINEAR, fill, np.dtype("float32")
    )[0]
    assert found.shape == (50, 40, 3) and np.abs(found - expected).max() < 1.5


def test_warps_say_what_is_wrong() -> None:
    with pytest.raises(OperatorArgumentError, match=r"matrix should be 6 numbers, got"):
        one(lambda x: fn.warp_affine(x, matrix=[1, 0, 0, 1]), SMALL)
    with pytest.raises(
        OperatorArgumentError, match=r"interp_type should be one of types.INTERP_NN, types.INTERP_LINEAR"
    ):
        one(lambda x: fn.rotate(x, angle=3, interp_type=types.INTERP_CUBIC), SMALL)
    with pytest.raises(OperatorArgumentError, match=r"has no inverse"):
        one(lambda x: fn.warp_affine(x, matrix=[0, 0, 0, 0, 0, 0], inverse_map=False), SMALL)
    with pytest.raises(InferenceError, match=r"give matrix, or a second input"):
        one(lambda x: fn.warp_affine(x), SMALL)
    with pytest.raises(OperatorError, match=r"the angle should be a number of degrees, got nan"):
        one(lambda x, a: fn.rotate(x, angle=a), SMALL, np.float32(np.nan))
    assert np.allclose(inverse(np.array([[2.0, 0, 1], [0, 1, 0]])), [[0.5, 0, -0.5], [0, 1, 0]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"hue": 30.0}, [168.9306, 127.0162, -7.6207]),
        ({"saturation": 0.5}, [162.0792, 112.0767, 87.2746]),
        ({"brightness": 1.5}, [300, 150, 75]),
        ({"contrast": 0.5}, [164, 114, 89]),
        ({"hue": 30.0, "saturation": 0.5, "brightness": 1.5, "contrast": 0.5}, [205.9083, 190.1886, 139.8482]),
    ],
)
def test_color_twist_gives_dalis_numbers(options: dict[str, float], expected: list[float]) -> None:
    np.testing.assert_allclose(
        one(lambda x: fn.color_twist(x, dtype=types.FLOAT, **options), PIXEL)[0, 0], expected, atol=1e-3
    )
    found = one(lambda x: fn.color_twist(x, **options), PIXEL)
    assert found.dtype == np.uint8 and np.abs(found[0, 0] - np.clip(expected, 0, 255)).max() <= 0.51


def test_color_twist_of_one_saturation_to_each_sample() -> None:
    found = run(
        lambda x, s: fn.color_twist(x, saturation=s), [PIXEL, PIXEL], [np.float32(0), np.float32(1)], layout="HWC"
    )
    assert found[1].tolist() == PIXEL.tolist() and np.ptp(found[0]) <= 1
    with pytest.raises(InferenceError, match=r"expected images with channels last"):
        one(lambda x: fn.color_twist(x), PIXEL, layout="CHW")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"brightness": 0.5}, [100, 50, 25]),
        ({"contrast": 0.5}, [164, 114, 89]),
        ({"brightness_shift": 0.1}, [226, 126, 76]),
        ({"brightness": 1.5, "contrast": 0.5, "brightness_shift": 0.25}, [255, 235, 197]),
        ({"brightness": 1.5, "contrast": 0.5, "brightness_shift": 0.25, "dtype": "float32"}, [246.25, 171.25, 133.75]),
        ({"contrast": 0.5, "contrast_center": 0.0}, [100, 50, 25]),
    ],
)
def test_brightness_contrast_gives_dalis_numbers(options: dict[str, Any], expected: list[float]) -> None:
    assert one(lambda x: fn.brightness_contrast(x, **options), PIXEL)[0, 0].tolist() == expected


def test_the_middle_of_a_dtype_is_what_contrast_leaves() -> None:
    ints = one(lambda x: fn.brightness_contrast(x, contrast=0.5, dtype=types.FLOAT), PIXEL.astype(np.int16))
    assert ints[0, 0].tolist() == [8292, 8242, 8217]
    floats = one(lambda x: fn.brightness_contrast(x, contrast=0.5), PIXEL.astype(np.float32) / 255)
    np.testing.assert_allclose(floats[0, 0], [0.6422, 0.4461, 0.348], atol=1e-4)


GRID = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6, 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"crop": (3, 3)}, GRID[1:4, 2:5]),
        ({"crop": (3, 3), "rounding": "truncate"}, GRID[0:3, 1:4]),
        ({"crop_h": 2, "crop_w": 4, "crop_pos_x": 1.0, "crop_pos_y": 0.0}, GRID[:2, 2:]),
        ({"crop": 2, "dtype": "float32"}, GRID[1:3, 2:4].astype(np.float32)),
        ({"crop": (6, 3), "out_of_bounds_policy": "trim_to_shape"}, GRID[:, 2:5]),
        (
            {"crop": (6, 3), "out_of_bounds_policy": "pad", "fill_values": 99},
            np.pad(GRID, ((1, 1), (0, 0), (0, 0)), constant_values=99)[:, 2:5],
        ),
    ],
)
def test_crop_gives_dalis_windows(options: dict[str, Any], expected: Any) -> None:
    found = one(lambda x: fn.crop(x, **options), GRID)
    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_crop_at_a_place_of_its_own_for_each_sample() -> None:
    places = [np.float32(0), np.float32(0.5), np.float32(1)]
    found = run(lambda x, p: fn.crop(x, crop=(4, 2), crop_pos_x=p), [GRID] * 3, places, layout="HWC")
    assert [one[0, 0, 0] for one in found] == [0, 2, 4]


@pytest.mark.parametrize("size", [{"crop": (20.7, 40.2)}, {"crop_h": 20.7, "crop_w": 40.2}])
@pytest.mark.parametrize(
    ("operator", "shape"), [(fn.crop, (20, 40, 3)), (fn.crop_mirror_normalize, (3, 20, 40))], ids=["crop", "normalize"]
)
def test_fractions_of_a_window_are_cut_off_as_in_dali(operator: Any, shape: Any, size: dict[str, Any]) -> None:
    assert one(lambda image: operator(image, **size), IMAGE).shape == shape


def test_crop_says_what_is_wrong() -> None:
    with pytest.raises(OperatorArgumentError, match=r"crop_h and crop_w go together: crop_h was given alone"):
        one(lambda x: fn.crop(x, crop_h=2), GRID)
    with pytest.raises(OperatorError, match=r"the window -1:4 of axis 0 reaches beyond the 4 elements there"):
        one(lambda x: fn.crop(x, crop=(5, 3)), GRID)
    with pytest.raises(OperatorArgumentError, match=r"crop_pos_x should be a number from 0 to 1, got 2.0"):
        one(lambda x: fn.crop(x, crop=2, crop_pos_x=2.0), GRID)
    pipe = Pipeline(batch_size=1)
    with pipe, pytest.raises(InferenceError, match=r"a window of height 5 is larger than the image"):
        fn.crop(fn.cast(GRID, dtype="uint8"), crop=5)


def test_crop_mirror_normalize_gives_dalis_numbers() -> None:
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    found = one(
        lambda x: fn.crop_mirror_normalize(
            x,
            mean=[0.5, 1.0, 2.0],
            std=2.0,
            scale=3.0,
            shift=1.0,
            dtype=types.UINT8,
            output_layout="HWC",
            mirror=1,
            crop=(2, 3),
            pad_output=True,
            fill_values=9,
        ),
        image,
    )
    assert found.tolist() == [
        [[45, 46, 46, 0], [41, 42, 42, 0], [36, 37, 37, 0]],
        [[72, 73, 73, 0], [68, 69, 69, 0], [63, 64, 64, 0]],
    ]
    plain = one(fn.crop_mirror_normalize, image)
    assert plain.dtype == np.float32 and np.array_equal(plain, image.transpose(2, 0, 1))
    mean, std = [12.0, 5.0, 7.0], [2.0, 3.0, 4.0]
    found = one(lambda x: fn.crop_mirror_normalize(x, mean=mean, std=std), image)
    np.testing.assert_allclose(found, ((image - np.array(mean)) / std).transpose(2, 0, 1), rtol=1e-5, atol=1e-5)
    with pytest.raises(InferenceError, match=r"mean should be one number or 3, got 2"):
        pipe = Pipeline(batch_size=1)
        with pipe:
            fn.crop_mirror_normalize(fn.cast(image, dtype="uint8"), mean=[1, 2])
    with pytest.raises(OperatorArgumentError, match=r"std should not be zero"):
        one(lambda x: fn.crop_mirror_normalize(x, std=0.0), image)
