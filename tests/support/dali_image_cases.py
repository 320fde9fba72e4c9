"""Cases of operators of images."""

from __future__ import annotations

from typing import Any

import numpy as np
from dali_samples import GREY, PIXELS, REAL_PIXELS, SMOOTH, Case, draw, smooth

COLOURS: dict[str, list[dict[str, Any]]] = {
    "brightness": [{"brightness": 1.5}, {"brightness": 0.5, "brightness_shift": 0.1}],
    "contrast": [{"contrast": 0.5}, {"contrast": 1.5, "contrast_center": 100.0}],
    "hsv": [{"hue": 30.0, "saturation": 0.5, "value": 1.2}, {"saturation": 2.0}],
    "hue": [{"hue": 30.0}, {"hue": -120.0}],
    "saturation": [{"saturation": 0.5}, {"saturation": 1.7}],
}
SPACES = ("RGB", "BGR", "GRAY", "YCbCr")
MASKS = [draw(26, 64, 48, 1), draw(27, 33, 50, 1), draw(28, 100, 75, 1), draw(29, 40, 319, 1)]
MEAN = np.array([[[124, 116, 104]]], np.float32)
ROWS = np.arange(4, dtype=np.float32).reshape(4, 1, 1)

IMAGES = {
    **{
        f"{name}.{kind}": Case(
            lambda m, x, name=name, calls=calls: [
                made
                for options in calls
                for made in (getattr(m.fn, name)(x, **options), getattr(m.fn, name)(x, **options, dtype=m.types.FLOAT))
            ],
            [samples],
            "HWC",
            atol=2e-4,
        )
        for name, calls in COLOURS.items()
        for kind, samples in {"bytes": PIXELS, "floats": REAL_PIXELS}.items()
    },
    **{
        f"color_space_conversion.{one}.{other}": Case(
            lambda m, x, one=one, other=other: m.fn.color_space_conversion(
                x, image_type=getattr(m.types, one), output_type=getattr(m.types, other)
            ),
            [GREY if one == "GRAY" else PIXELS],
            "HWC",
        )
        for one in SPACES
        for other in SPACES
        if one != other
    },
    "gaussian_blur": Case(
        lambda m, x: [
            made
            for options in (
                {"sigma": 1.0},
                {"window_size": 5},
                {"sigma": 1.0, "window_size": 3},
                {"sigma": (0.5, 2.0)},
                {"window_size": (3, 7)},
            )
            for made in (m.fn.gaussian_blur(x, **options, dtype=m.types.FLOAT), m.fn.gaussian_blur(x, **options))
        ],
        [PIXELS],
        "HWC",
        atol=1e-4,
        share=0.01,
        most=1,
    ),
    "erase": Case(
        lambda m, x: (
            m.fn.erase(x, anchor=(1, 2), shape=(2, 2)),
            m.fn.erase(x, anchor=(1, 2), shape=(2, 2), axis_names="WH"),
            m.fn.erase(x, anchor=(0.25, 0.4), shape=(0.5, 0.5), normalized=True),
            m.fn.erase(x, anchor=(0, 0, 2, 3), shape=(1, 1, 5, 5), fill_value=(9, 8, 7)),
            m.fn.erase(x, anchor=(2, 2), shape=(2, 3), centered_anchor=True),
            m.fn.erase(x, anchor=(1,), shape=(2,), axes=[0]),
            m.fn.erase(x, anchor=(-1, 1.6), shape=(2, 1.6)),
            m.fn.erase(x, shape=(2, 2)),
        ),
        [PIXELS],
        "HWC",
    ),
    "grid_mask": Case(
        lambda m, x: (
            m.fn.grid_mask(x, tile=4, ratio=0.5),
            m.fn.grid_mask(x, tile=5, ratio=0.4, angle=0.5, shift_x=1.0, shift_y=2.0),
        ),
        [PIXELS],
        "HWC",
    ),
    "paste": Case(
        lambda m, x: (
            m.fn.paste(x, ratio=1.5, fill_value=(1, 2, 3)),
            m.fn.paste(x, ratio=2.0, fill_value=(9, 9, 9), paste_x=0.0, paste_y=1.0),
            m.fn.paste(x, ratio=1.3, fill_value=(0, 0, 0)),
            m.fn.paste(x, ratio=1.0, fill_value=(5, 6, 7), min_canvas_size=13.0),
        ),
        [PIXELS],
        "HWC",
    ),
    "multi_paste": Case(
        lambda m, x, y: (
            m.fn.multi_paste(x, y, output_size=(14, 16)),
            m.fn.multi_paste(x, in_ids=[1, 0], output_size=(14, 16), dtype=m.types.FLOAT),
            m.fn.multi_paste(y, y),
        ),
        [PIXELS, [draw(13, 7, 9, 3), PIXELS[1]]],
        "HWC",
    ),
    "multi_paste.regions": Case(
        lambda m, x, ids, *rows: (
            m.fn.multi_paste(
                x,
                in_ids=ids,
                output_size=(14, 16),
                **dict(zip(("in_anchors", "shapes", "out_anchors"), rows[:3], strict=True)),
            ),
            m.fn.multi_paste(
                x,
                in_ids=ids,
                output_size=(14, 16),
                **dict(zip(("in_anchors_rel", "shapes_rel", "out_anchors_rel"), rows[3:], strict=True)),
            ),
        ),
        [
            PIXELS,
            [np.array([1, 0, 1], np.int32), np.array([1], np.int32)],
            *(
                [np.array(one, dtype) for one in column]
                for dtype, *column in (
                    (np.int32, [[0, 0], [2, 3], [1, 4]], [[3, 2]]),
                    (np.int32, [[5, 4], [7, 6], [0, 3]], [[4, 7]]),
                    (np.int32, [[0, 0], [1, 2], [8, 9]], [[9, 9]]),
                    (np.float32, [[0.3, 0.5], [0.4, 0.1], [0, 0]], [[0.38, 0.15]]),
                    (np.float32, [[0.5, 0.3], [0.3, 0.83], [1, 0.2]], [[0.52, 0.77]]),
                    (np.float32, [[0.53, 0.17], [0.6, 0.2], [0, 0]], [[0.29, 0.44]]),
                )
            ),
        ],
        "HWC",
    ),
    "rotate.nearest": Case(
        lambda m, x: [
            m.fn.rotate(
                x, angle=float(angle), keep_size=keep_size, fill_value=7, interp_type=m.types.INTERP_NN, device="cpu"
            )
            for angle in (90, 45, 30, 180, 270, -45, -90, 135)
            for keep_size in (False, True)
        ],
        [[*PIXELS, draw(25, 8, 8, 3)]],
        "HWC",
        share=0.04,  # two pixels of 64, at 45 degrees
        most=255,
    ),
    "warp_affine.nearest": Case(
        lambda m, x: [
            m.fn.warp_affine(x, matrix=matrix, fill_value=7, interp_type=m.types.INTERP_NN)
            for matrix in ((1, 0, 0.5, 0, 1, 0.5), (0.5, 0, 0, 0, 0.5, 0), (1.1, 0.3, -4, 0.2, 0.9, 2.5))
        ],
        [PIXELS],
        "HWC",
    ),
    "resize.nearest": Case(
        lambda m, x: [
            m.fn.resize(x, interp_type=m.types.INTERP_NN, **options)
            for options in (
                {"size": [224, 40]},  # places exactly between two pixels
                {"resize_shorter": 30},
                {"resize_longer": 77, "antialias": False},
                {"resize_x": 77, "resize_y": 30, "subpixel_scale": False},
                {"size": [-50, 60], "roi_start": [3.3, 48.0], "roi_end": [30.7, 2.0]},
            )
        ],
        [MASKS],
        "HWC",
    ),
    "resize.save_attrs": Case(
        lambda m, x: (
            *m.fn.resize(x, resize_shorter=4, save_attrs=True, interp_type=m.types.INTERP_NN),
            m.fn.resize(x, size=[3, 4], roi_start=[1, 1], roi_end=[3, 4], save_attrs=True)[1],
        ),
        [PIXELS],
        "HWC",
    ),
    "crop.whole": Case(
        lambda m, x: (
            m.fn.crop(x, crop_h=0, crop_w=2),
            m.fn.crop(x, crop_h=3, crop_w=-1),
            m.fn.crop(x, crop=[-1, 2]),
            m.fn.crop_mirror_normalize(x, crop_h=-2.0, crop_w=2, std=[1.0]),
        ),
        [PIXELS],
        "HWC",
    ),
    "normalize.arrays": Case(
        lambda m, x: (
            m.fn.normalize(x, mean=m.types.Constant(MEAN), stddev=2.0, axes=[0, 1]),
            m.fn.normalize(x, mean=MEAN, stddev=2.0),
            m.fn.normalize(x, mean=MEAN, axes=[0, 1]),
            m.fn.normalize(x, mean=m.fn.reductions.mean(x, axes=[0, 1], keep_dims=True), axis_names="HW"),
            m.fn.normalize(x, mean=ROWS, stddev=ROWS + 1),
            m.fn.normalize(x, stddev=np.arange(1, 13, dtype=np.float32).reshape(4, 1, 3), axis_names="W"),
        ),
        [[draw(31, 4, 5, 3), draw(32, 4, 7, 3)]],
        "HWC",
        rtol=1e-5,
        atol=3e-5,
    ),
    "auto_aug": Case(
        lambda m, x: [
            m.augment(x, name, magnitudes, index, is_negative)
            for name, *magnitudes in (
                ("translate_x", 0, 32, True),
                ("translate_y", 0, 32, True),
                ("shear_x", 0, 0.99, True),
                ("shear_y", 0, 0.3, True),
                ("rotate", 0, 135, True),
                ("brightness", 0.01, 0.99, True),
                ("contrast", 0.01, 0.99, True),
                ("color", 0.01, 0.99, True),
                ("sharpness", 0.01, 0.99, True),
                ("posterize", 8, 2, False),
                ("solarize", 256, 0, False),
                ("solarize_add", 0, 110, False),
                *((name, 0, 0, False) for name in ("equalize", "auto_contrast", "invert")),
            )
            for index, is_negative in ((3, False), (7, True))
        ],
        [[smooth(12, 16, 3), draw(33, 17, 11, 3), np.full((8, 9, 3), 77, np.uint8)]],
        "HWC",
        share=0.04,  # a place between two pixels, a value between two numbers
        most=1,
    ),
    "noise.none": Case(
        lambda m, x: (
            m.fn.noise.gaussian(x, mean=3.0, stddev=0.0),
            m.fn.noise.salt_and_pepper(x, prob=0.0),
            m.fn.noise.salt_and_pepper(x, prob=1.0, salt_vs_pepper=1.0),
            m.fn.noise.salt_and_pepper(x, prob=1.0, salt_vs_pepper=0.0, pepper_val=7.0, per_channel=True),
        ),
        [PIXELS],
        "HWC",
    ),
    "resize_crop_mirror": Case(
        lambda m, x: (
            m.fn.resize_crop_mirror(x, resize_shorter=20, crop=(12, 14), mirror=1),
            m.fn.resize_crop_mirror(x, resize_x=20, resize_y=18, crop_h=10, crop_w=11, crop_pos_x=0.2, crop_pos_y=1.0),
            m.fn.resize_crop_mirror(x, size=(20, 20), crop=(10, 10), mirror=2),
        ),
        [SMOOTH],
        "HWC",
        share=0.06,
        most=1,
    ),
}
