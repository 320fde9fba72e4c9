"""Graphs of one operator each, that DALI and we run on the same samples; as a program, it records DALI's answers.

`.venv-dali/bin/python tests/support/dali_cases.py` writes `dali_answers.npz` and `dali_operators.json`, the operators
that this DALI has on the CPU, into `tests/references/`. A case is a function of the modules (`fn`, `types`, `math`)
and of data nodes; the rest of it says which samples the nodes give, and how far apart the answers may be.
"""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import sys
import tarfile
import tempfile
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REFERENCES = Path(__file__).parents[1] / "references"
ANSWERS = REFERENCES / "dali_answers.npz"
OPERATORS = REFERENCES / "dali_operators.json"
NAMES = REFERENCES / "dali_files"
CLIP = REFERENCES / "clip.webm"  # 20 frames of VP9, 16×12, a key frame every 7


@dataclasses.dataclass(frozen=True)
class Case:
    """`call(m, *nodes)` with m.fn, m.types, m.math and m.files, a directory; `columns` are lists of samples.

    `atol` and `rtol` are the tolerance; `share` is the part of elements that may lie further apart, up to `most`.
    """

    call: Callable[..., Any]
    columns: Sequence[Any] = ()
    layout: str | None = None
    atol: float = 0.0
    rtol: float = 0.0
    share: float = 0.0
    most: float = 0.0
    size: int = 0


def _draw(seed: int, *shape: int, dtype: str = "uint8") -> Any:
    draws = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return draws.normal(size=shape).astype(dtype)
    return draws.integers(0, 250, shape).astype(dtype)


def _npy(array: Any) -> Any:
    file = io.BytesIO()
    np.save(file, array)
    return np.frombuffer(file.getvalue(), np.uint8)


BYTES = [np.array([1, 4, 200], np.uint8), np.array([9, 0, 7], np.uint8)]
INTS = [np.array([-3, 2, 9], np.int32), np.array([1, -1, 3], np.int32)]
FLOATS = [np.array([-1.5, 0.25, 2], np.float32), np.array([0.5, -0.75, 3], np.float32)]
DOUBLES = [one.astype(np.float64) for one in FLOATS]
TABLES = [_draw(1, 2, 3, 4), _draw(2, 3, 1, 4)]
FLAT = [_draw(3, 2, 1, 3), _draw(4, 4, 1, 2)]
REALS = [_draw(5, 3, 4, dtype="float32"), _draw(6, 2, 5, dtype="float32")]

ARRAYS = {
    **{
        f"math.{name}.{kind}": Case(lambda m, x, name=name: getattr(m.math, name)(x), [samples], rtol=3e-6, atol=1e-7)
        for name in "abs fabs floor ceil sqrt rsqrt cbrt exp log log2 log10 sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh".split()
        for kind, samples in {"ints": INTS, "floats": FLOATS}.items()
    },
    **{
        f"math.{name}.{kind}": Case(
            lambda m, a, b, name=name: getattr(m.math, name)(a, b), samples, rtol=3e-6, atol=1e-7
        )
        for name in "min max pow fpow atan2".split()
        for kind, samples in {
            "bytes_ints": [BYTES, INTS],
            "ints_bytes": [INTS, BYTES],
            "floats_ints": [FLOATS, INTS],
            "doubles_floats": [DOUBLES, FLOATS],
        }.items()
        if (name, kind) != ("pow", "bytes_ints")  # 9 to the power of -1, and what 200**9 wraps around to
    },
    "math.max.number": Case(lambda m, a: (m.math.max(a, 3), m.math.max(a, 2.5)), [BYTES]),
    "math.max.broadcast": Case(lambda m, a, b: m.math.max(a, b), [TABLES, [_draw(7, 4), _draw(8, 1)]]),
    "math.pow.negative": Case(lambda m, a: m.math.pow(a, -1), [INTS]),
    "math.pow.wraps": Case(lambda m, a: m.math.pow(a, a), [BYTES]),
    "math.clamp": Case(lambda m, a: (m.math.clamp(a, 2, 100), m.math.clamp(a, 2, 100.5)), [BYTES]),
    **{
        f"reductions.{name}.{kind}": Case(
            lambda m, x, name=name: (
                getattr(m.fn.reductions, name)(x),
                getattr(m.fn.reductions, name)(x, axes=0),
                getattr(m.fn.reductions, name)(x, axes=[1, 0], keep_dims=True),
                getattr(m.fn.reductions, name)(x, axis_names="W"),
            ),
            [samples],
            layout,
            rtol=1e-6,
            atol=1e-6,
        )
        for name in "sum mean mean_square rms min max".split()
        for kind, samples, layout in (("bytes", TABLES, "HWC"), ("floats", REALS, "HW"))
    },
    "reductions.sum.dtype": Case(lambda m, x: m.fn.reductions.sum(x, dtype=m.types.FLOAT), [TABLES]),
    "reductions.std_dev": Case(
        lambda m, x: (
            m.fn.reductions.std_dev(x, m.fn.reductions.mean(x)),
            m.fn.reductions.std_dev(x, m.fn.reductions.mean(x, axes=0), axes=0, ddof=1),
        ),
        [REALS],
        rtol=1e-6,
    ),
    "reductions.variance": Case(
        lambda m, x: (
            m.fn.reductions.variance(x, m.fn.reductions.mean(x)),
            m.fn.reductions.variance(x, m.fn.reductions.mean(x, axes=[0, 1], keep_dims=True), axes=[0, 1]),
        ),
        [TABLES],
        rtol=1e-6,
    ),
    "transpose": Case(
        lambda m, x: (
            m.fn.transpose(x),
            m.fn.transpose(x, perm=[1, 0, 2]),
            m.fn.transpose(x, output_layout="CHW"),
            m.fn.get_property(m.fn.transpose(x, perm=[1, 0, 2]), key="layout"),
            m.fn.get_property(m.fn.transpose(x, perm=[1, 0, 2], transpose_layout=False), key="layout"),
            m.fn.get_property(m.fn.transpose(x, perm=[1, 0, 2], output_layout="ABC"), key="layout"),
        ),
        [TABLES],
        "HWC",
    ),
    "squeeze": Case(
        lambda m, x: (
            m.fn.squeeze(x, axes=[1]),
            m.fn.squeeze(x, axis_names="W"),
            m.fn.get_property(m.fn.squeeze(x, axes=1), key="layout"),
        ),
        [FLAT],
        "HWC",
    ),
    "expand_dims": Case(
        lambda m, x: (
            m.fn.expand_dims(x, axes=[0, 2]),
            m.fn.expand_dims(x, axes=[3], new_axis_names="F"),
            m.fn.get_property(m.fn.expand_dims(x, axes=[0, 3], new_axis_names="FD"), key="layout"),
        ),
        [TABLES],
        "HWC",
    ),
    "element_extract": Case(
        lambda m, x: (*m.fn.element_extract(x, element_map=[1, 0, 1]), m.fn.element_extract(x, element_map=1)), [TABLES]
    ),
    "copy": Case(lambda m, x: m.fn.copy(x), [TABLES]),
    "cast_like": Case(lambda m, x, y: m.fn.cast_like(x, y), [[one * 300 for one in REALS], TABLES]),
    "full": Case(
        lambda m, x: (
            m.fn.full(7, shape=[2]),
            m.fn.full(np.float32(2.5)),
            m.fn.full(np.array([1, 2], np.int16), shape=[3, 2]),
            m.fn.full_like(x, 2.5),
            m.fn.full(x, shape=[2, 3]),
        ),
        [BYTES],
    ),
    "zeros and ones": Case(
        lambda m, x: (
            m.fn.zeros(shape=[2]),
            m.fn.ones(dtype=m.types.FLOAT),
            m.fn.zeros_like(x),
            m.fn.ones_like(x, dtype=m.types.INT16),
        ),
        [TABLES],
    ),
    "lookup_table": Case(
        lambda m, x: (
            m.fn.lookup_table(x, keys=[1, 3], values=[10.7, -3.5], default_value=5.5),
            m.fn.lookup_table(x, keys=[1, 3], values=[10.7, -3.5], default_value=5.5, dtype=m.types.INT32),
        ),
        [[np.array([-1, 1, 100000, 3, 2], np.int32)]],
    ),
    "permute_batch": Case(lambda m, x: m.fn.permute_batch(x, indices=[1, 0]), [REALS]),
    "permute_batch.node": Case(
        lambda m, x, at: m.fn.permute_batch(x, indices=at), [REALS, [np.array(1, np.int32), np.array(1, np.int32)]]
    ),
    "decoders.numpy": Case(
        lambda m, x: (m.fn.decoders.numpy(x, dtype=m.types.FLOAT), m.fn.decoders.numpy(x)),
        [[_npy(one) for one in INTS]],
    ),
}

MAPS = [np.array([[1, 0, 2], [0, 3, 1]], np.float32), np.array([[0.5, 1, 0], [-1, 0.25, 3]], np.float32)]
POINTS = [_draw(9, 3, 2, dtype="float32"), _draw(10, 1, 2, dtype="float32")]
BOXES = [np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.25, 0.5]], np.float32), np.array([[0, 0, 1, 1]], np.float32)]
CLOSE = {"rtol": 1e-6, "atol": 2e-6}

COORDINATES = {
    **{
        f"transforms.{name}": Case(
            lambda m, x, name=name, calls=calls: [
                made
                for options in calls
                for made in (
                    getattr(m.fn.transforms, name)(**options),
                    *(
                        getattr(m.fn.transforms, name)(x, **options, reverse_order=reverse)
                        for reverse in ((False, True) if _ndim(options) == 2 else ())
                    ),
                )
            ],
            [MAPS],
            **CLOSE,
        )
        for name, calls in {
            "translation": [{"offset": (1, 2)}, {"offset": (1, 2, 3)}],
            "scale": [{"scale": (2, 3)}, {"scale": (2, 3), "center": (1, 2)}, {"scale": 2, "ndim": 3}],
            "rotation": [
                {"angle": 30},
                {"angle": 30, "center": (1, 2)},
                {"angle": 30, "axis": (1, 2, 0)},
                {"angle": -100, "axis": (0, 1, 2), "center": (1, 2, 3)},
            ],
            "shear": [{"shear": (2, 1)}, {"angles": (30, 10), "center": (1, 2)}, {"shear": (1, 2, 3, 4, 5, 6)}],
            "crop": [
                {"from_start": (0, 1), "from_end": (1, 1.5), "to_start": (0.2, 0.3), "to_end": (0.8, 0.5)},
                {"from_start": (0, 1), "from_end": (1, 0.5), "absolute": True},
                {"from_start": (0.1, 0.2)},
            ],
        }.items()
    },
    "transforms.angle": Case(
        lambda m, angle: m.fn.transforms.rotation(angle=angle), [[np.float32(10), np.float32(-70)]], **CLOSE
    ),
    "transforms.combine": Case(
        lambda m, x, y: (
            m.fn.transforms.combine(x, y, m.fn.transforms.scale(scale=(2, 3))),
            m.fn.transforms.combine(x, y, reverse_order=True),
        ),
        [MAPS, MAPS[::-1]],
        **CLOSE,
    ),
    "coord_transform": Case(
        lambda m, x, y: (
            m.fn.coord_transform(x, M=(1, 2, 3, 4), T=(10, 20)),
            m.fn.coord_transform(x, MT=(1, 2, 3, 4, 5, 6)),
            m.fn.coord_transform(x, M=2, T=1),
            m.fn.coord_transform(x, M=(1, 2, 3, 4, 5, 6)),
            m.fn.coord_transform(x, MT=y),
            m.fn.coord_transform(x),
        ),
        [POINTS, MAPS],
        **CLOSE,
    ),
    "coord_flip": Case(
        lambda m, x: (
            m.fn.coord_flip(x),
            m.fn.coord_flip(x, flip_y=1, layout="yx", center_x=1),
            m.fn.coord_flip(x, flip_x=0, flip_y=1),
        ),
        [POINTS],
        **CLOSE,
    ),
    "bb_flip": Case(
        lambda m, x: (m.fn.bb_flip(x), m.fn.bb_flip(x, ltrb=True, vertical=1), m.fn.bb_flip(x, horizontal=0)),
        [[np.sort(one, axis=1) for one in BOXES]],
        **CLOSE,
    ),
    "bbox_paste": Case(
        lambda m, x: (
            m.fn.bbox_paste(x, ratio=2.0),
            m.fn.bbox_paste(x, ratio=3.0, paste_x=0.2, paste_y=1.0, ltrb=True),
        ),
        [[np.sort(one, axis=1) for one in BOXES]],
        **CLOSE,
    ),
    "random_bbox_crop.whole": Case(
        lambda m, x, labels: (
            *m.fn.random_bbox_crop(x, labels, ltrb=False, output_bbox_indices=True),
            *m.fn.random_bbox_crop(x, bbox_layout="xyWH"),
        ),
        [BOXES, [np.array([7, 8], np.int32), np.array([9], np.int32)]],
        **CLOSE,
    ),
}


def _ndim(options: Mapping[str, Any]) -> int:
    found = [len(value) for value in options.values() if isinstance(value, tuple)]
    return 3 if "axis" in options or 6 in found or "ndim" in options else max(found, default=2)


def _smooth(*shape: int) -> Any:
    y, x = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    waves = [127 + 100 * np.sin(x / (3 + at) + at) * np.cos(y / (5 - at)) for at in range(shape[2])]
    return np.stack(waves, axis=-1).astype(np.uint8)


PIXELS = [_draw(11, 10, 12, 3), _draw(12, 7, 9, 3)]
REAL_PIXELS = [np.random.default_rng(13).random((4, 5, 3), np.float32)]
SMOOTH = [_smooth(24, 32, 3), _smooth(16, 16, 3)]
GREY = [_draw(14, 9, 8, 1), _draw(15, 4, 5, 1)]
COLOURS: dict[str, list[dict[str, Any]]] = {
    "brightness": [{"brightness": 1.5}, {"brightness": 0.5, "brightness_shift": 0.1}],
    "contrast": [{"contrast": 0.5}, {"contrast": 1.5, "contrast_center": 100.0}],
    "hsv": [{"hue": 30.0, "saturation": 0.5, "value": 1.2}, {"saturation": 2.0}],
    "hue": [{"hue": 30.0}, {"hue": -120.0}],
    "saturation": [{"saturation": 0.5}, {"saturation": 1.7}],
}
SPACES = ("RGB", "BGR", "GRAY", "YCbCr")

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
        [PIXELS, [_draw(13, 7, 9, 3), PIXELS[1]]],
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
        [[*PIXELS, _draw(25, 8, 8, 3)]],
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

WAVES = [_draw(16, 300, dtype="float32") / 4, _draw(17, 120, dtype="float32") / 4]
QUIET = [
    np.concatenate([np.zeros(50), np.sin(np.arange(100) / 3) * 8000, np.zeros(80)]).astype(np.int16),
    np.concatenate([np.zeros(5), np.linspace(1, 9000, 60)]).astype(np.int16),
]
BINS = [_draw(18, 6, 4, dtype="float32"), _draw(19, 9, 2, dtype="float32")]

SOUND = {
    "preemphasis_filter": Case(
        lambda m, x, y: (
            m.fn.preemphasis_filter(x),
            m.fn.preemphasis_filter(x, border="zero", preemph_coeff=0.5),
            m.fn.preemphasis_filter(y, border="reflect", preemph_coeff=0.5),
            m.fn.preemphasis_filter(y, dtype=m.types.INT16),
        ),
        [WAVES, QUIET],
        **CLOSE,
    ),
    "nonsilent_region": Case(
        lambda m, x, y: [
            made
            for options in (
                {"window_length": 10},
                {"window_length": 10, "cutoff_db": -20.0},
                {"window_length": 1, "cutoff_db": -10.0, "reference_power": 1e6},
                {},
            )
            for made in m.fn.nonsilent_region(x, **options)
        ],
        [QUIET, WAVES],
    ),
    "power_spectrum": Case(
        lambda m, x, y: (
            m.fn.power_spectrum(x),
            m.fn.power_spectrum(x, nfft=512, power=1),
            m.fn.power_spectrum(y, axis=0, nfft=8),
        ),
        [WAVES, BINS],
        rtol=1e-4,
        atol=1e-5,
    ),
    "mfcc": Case(
        lambda m, x: [
            m.fn.mfcc(x, **options)
            for options in (
                {"n_mfcc": 4},
                {},
                {"n_mfcc": 4, "normalize": True},
                {"n_mfcc": 4, "lifter": 3.0},
                {"n_mfcc": 4, "dct_type": 1},
                {"n_mfcc": 4, "dct_type": 3},
                {"n_mfcc": 4, "dct_type": 3, "normalize": True},
                {"n_mfcc": 4, "dct_type": 4, "normalize": True},
                {"n_mfcc": 2, "axis": 1},
            )
        ],
        [BINS],
        atol=1e-5,
    ),
    "audio_resample": Case(
        lambda m, x, y: (
            m.fn.audio_resample(x, scale=1.5),
            m.fn.audio_resample(x, in_rate=44100, out_rate=16000),
            m.fn.audio_resample(x, out_length=77, quality=0),
            m.fn.audio_resample(x, scale=2.1, quality=100),
            m.fn.audio_resample(m.fn.stack(x, x * 0.5, axis=1), scale=0.55),
        ),
        [WAVES, QUIET],
        atol=5e-4,
    ),
    "audio_resample.ints": Case(
        lambda m, x, y: (m.fn.audio_resample(y, scale=1.3), m.fn.audio_resample(x, scale=0.8, dtype=m.types.INT16)),
        [WAVES, QUIET],
        atol=1,
    ),
}


def write_files(root: Path) -> None:
    """What the readers of the cases read: an archive, images with annotations, waves with a manifest."""
    with tarfile.open(root / "a.tar", "w") as archive:
        for name, content in (
            *(("0.jpg", b"abc"), ("0.cls", b"1"), (".hidden.jpg", b"z"), ("1.png", b"xyzw"), ("1.cls", b"22")),
            *(("dir/2.cls", b"333"), ("dir/2.a.jpg", b"q"), ("3.JPG", b"up")),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    for name in "abc":
        (root / f"{name}.jpg").write_bytes(name.encode())
    boxes = [
        (5, 7, [10, 5, 20, 10], 0),
        (20, 3, [1, 2, 3, 0.05], 0),
        (5, 3, [0, 0, 50, 50], 1),
        (20, 3, [1, 2, 3, 4], 0),
    ]
    told = {
        "images": [
            {"id": 5, "width": 100, "height": 50, "file_name": "b.jpg"},
            {"id": 20, "width": 10, "height": 20, "file_name": "a.jpg"},
            {"id": 9, "width": 10, "height": 20, "file_name": "c.jpg"},
        ],
        "categories": [{"id": 7, "name": "x"}, {"id": 3, "name": "y"}],
        "annotations": [
            {"id": at, "image_id": image, "category_id": category, "bbox": box, "iscrowd": crowd, "area": 1}
            | {"segmentation": [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12, 13, 14]][: 1 + at % 2]}
            for at, (image, category, box, crowd) in enumerate(boxes)
        ],
    }
    (root / "boxes.json").write_text(json.dumps(told))
    runs = [{"size": [10, 12], "counts": [5, 10, 20, 30, 55]}, {"size": [10, 12], "counts": "P146000000000l0"}]
    polygons = [[[2, 2, 8, 2, 8, 7, 2, 7], [0.5, 0.5, 3.7, 1.2, 2.2, 3.9]], [[5, 4, 11, 4, 11, 9, 5, 9]]]
    drawn = [(1, 7, polygons[0]), (1, 3, polygons[1]), (1, 9, [[3, 3, 6, 3, 6, 6]]), (2, 3, runs[0]), (2, 7, runs[1])]
    masks = {
        "images": [
            {"id": at, "width": 12, "height": 10, "file_name": f"{name}.jpg"} for at, name in ((1, "a"), (2, "b"))
        ],
        "categories": told["categories"] + [{"id": 9, "name": "z"}],
        "annotations": [
            {"id": at, "image_id": image, "category_id": category, "bbox": [0, 0, 9, 9], "segmentation": segmentation}
            for at, (image, category, segmentation) in enumerate(drawn)
        ],
    }
    (root / "masks.json").write_text(json.dumps(masks))
    (root / "clips" / "b").mkdir(parents=True)
    for clip in ("clips/clip.webm", "clips/b/again.webm"):
        shutil.copy(CLIP, root / clip)
    for stream, count in (("walk", 4), ("run", 7)):
        (root / "streams" / stream).mkdir(parents=True)
        for at in range(count):
            pixels = _draw(20 + at, 5, 6, 3).tobytes()
            (root / "streams" / stream / f"{at}.ppm").write_bytes(b"P6\n6 5\n255\n" + pixels)
    lines = []
    for name, channels, rate in (("x", 1, 8000), ("y", 2, 16000)):
        with wave.open(str(root / f"{name}.wav"), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes((np.sin(np.arange(400 * channels) / 5) * 9000).astype("<i2").tobytes())
        lines.append({"audio_filepath": str(root / f"{name}.wav"), "duration": 400 / rate, "text": f"{name} wörd"})
    lines[1] |= {"offset": 0.0005, "duration": 0.01}
    (root / "speech.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


READERS = {
    "readers.webdataset": Case(
        lambda m: (
            *m.fn.readers.webdataset(paths=f"{m.files}/a.tar", ext=["jpg;png", "cls"]),
            *m.fn.readers.webdataset(paths=f"{m.files}/a.tar", ext=["jpg", "cls"], case_sensitive_extensions=False),
            *m.fn.readers.webdataset(
                paths=f"{m.files}/a.tar", ext=["a.jpg", "cls"], dtypes=[m.types.UINT8, m.types.INT8]
            ),
        ),
        size=4,
    ),
    "readers.webdataset.skip": Case(
        lambda m: m.fn.readers.webdataset(
            paths=f"{m.files}/a.tar", ext=["jpg;png", "cls"], missing_component_behavior="skip"
        ),
        size=2,
    ),
    "readers.coco": Case(
        lambda m: m.fn.readers.coco(file_root=m.files, annotations_file=f"{m.files}/boxes.json"), size=3
    ),
    "readers.coco.options": Case(
        lambda m: (
            *m.fn.readers.coco(
                file_root=m.files,
                annotations_file=f"{m.files}/boxes.json",
                **{"ratio": True, "ltrb": True, "skip_empty": True, "avoid_class_remapping": True},
                **{"image_ids": True, "include_iscrowd": False, "polygon_masks": True},
            ),
            *m.fn.readers.coco(
                file_root=m.files,
                annotations_file=f"{m.files}/boxes.json",
                images=["c.jpg", "b.jpg"],
                size_threshold=20.0,
            ),
        ),
        size=2,
        atol=1e-7,
    ),
    "readers.coco.masks": Case(
        lambda m: (
            *m.fn.readers.coco(
                file_root=m.files, annotations_file=f"{m.files}/masks.json", pixelwise_masks=True, image_ids=True
            ),
            *m.fn.readers.coco(
                file_root=m.files,
                annotations_file=f"{m.files}/masks.json",
                pixelwise_masks=True,
                avoid_class_remapping=True,
            ),
        ),
        size=2,
    ),
    "readers.sequence": Case(
        lambda m: (
            m.fn.readers.sequence(file_root=f"{m.files}/streams", sequence_length=2),
            m.fn.readers.sequence(file_root=f"{m.files}/streams", sequence_length=3, stride=2, step=2),
            m.fn.readers.sequence(file_root=f"{m.files}/streams", sequence_length=1, step=2, image_type=m.types.GRAY),
        ),
        size=3,
    ),
    **{
        f"readers.video.{name}": Case(
            lambda m, options=options: getattr(m.fn, "experimental", m.fn).readers.video(
                **({"filenames": [f"{m.files}/clips/clip.webm"]} if "file_root" not in options else {}),
                **{key: f"{m.files}/clips" if key == "file_root" else value for key, value in options.items()},
            ),
            size=size,
            atol=1,
        )
        for name, size, options in (
            ("plain", 1, {"sequence_length": 6, "stride": 2, "step": 9, "labels": [7], "enable_frame_num": "scalar"}),
            ("constant", 4, {"sequence_length": 6, "pad_mode": "constant", "fill_value": [1, 2, 3]}),
            ("edge", 4, {"sequence_length": 2, "stride": 3, "pad_mode": "edge", "enable_frame_num": "sequence"}),
            ("reflect", 2, {"sequence_length": 11, "pad_mode": "reflect", "enable_frame_num": "sequence"}),
            ("symmetric", 2, {"sequence_length": 11, "pad_mode": "symmetric", "enable_timestamps": True}),
            ("root", 1, {"sequence_length": 4, "step": 16, "file_root": ""}),
        )
    },
    "readers.nemo_asr": Case(
        lambda m: (
            *m.fn.readers.nemo_asr(manifest_filepaths=f"{m.files}/speech.json"),
            *m.fn.readers.nemo_asr(
                manifest_filepaths=f"{m.files}/speech.json",
                **{"read_idxs": True, "read_sample_rate": False, "dtype": m.types.INT16, "max_duration": 1.0},
            ),
        ),
        size=2,
        atol=1e-6,
    ),
    "readers.nemo_asr.channels": Case(
        lambda m: m.fn.readers.nemo_asr(
            manifest_filepaths=f"{m.files}/speech.json", downmix=False, min_duration=0.02, read_text=False
        ),
        size=1,
        atol=1e-6,
    ),
    "io.file.read": Case(lambda m: m.fn.io.file.read(np.frombuffer(f"{m.files}/a.jpg".encode(), np.uint8)), size=1),
}

CASES: Mapping[str, Case] = {**ARRAYS, **COORDINATES, **IMAGES, **SOUND, **READERS}


def outputs_of(case: Case, modules: Any, pipeline: Any) -> list[list[Any]]:
    """Runs a case within an unbuilt pipeline of either system; a list of samples for each output."""
    with pipeline:
        nodes = []
        for index, column in enumerate(case.columns):
            options = {"layout": case.layout} if case.layout and not index else {}
            nodes.append(modules.fn.external_source(_forever(column), **options))
        made = case.call(modules, *nodes)
        pipeline.set_outputs(*(made if isinstance(made, (tuple, list)) else [made]))
    pipeline.build()
    return [[np.array(column.at(index)) for index in range(len(column))] for column in pipeline.run()]


def _forever(column: Any) -> Callable[[], Any]:
    return lambda: column


def batch_size(case: Case) -> int:
    """Samples of a case: those of its first column, where it does not say."""
    return case.size or len(case.columns[0])


def write_answers(answers: Mapping[str, Any]) -> None:
    """One array for each dtype: a file of an archive costs more than most answers do."""
    dtypes = sorted({one.dtype.name for one in answers.values()})
    joined = {
        dtype: np.concatenate([one.ravel() for one in answers.values() if one.dtype.name == dtype]) for dtype in dtypes
    }
    index = [[key, one.dtype.name, list(one.shape)] for key, one in answers.items()]
    np.savez_compressed(ANSWERS, index=np.frombuffer(json.dumps(index).encode(), np.uint8), **joined)


def read_answers() -> dict[str, Any]:
    """`case|output|sample` → what DALI gave."""
    with np.load(ANSWERS) as file:
        arrays = dict(file)
    begins, made = dict.fromkeys(arrays, 0), {}
    for key, dtype, shape in json.loads(arrays.pop("index").tobytes()):
        begin = begins[dtype]
        begins[dtype] = begin + int(np.prod(shape))
        made[key] = arrays[dtype][begin : begins[dtype]].reshape(shape)
    return made


def main() -> None:
    """Records what DALI gives."""
    import types as namespace

    from nvidia import dali
    from nvidia.dali import fn, math, ops, types

    files = tempfile.TemporaryDirectory()
    write_files(Path(files.name))
    modules = namespace.SimpleNamespace(fn=fn, math=math, types=types, files=files.name)
    answers = {}
    for name, case in CASES.items():
        if sys.argv[1:] and not any(one in name for one in sys.argv[1:]):
            continue
        pipeline = dali.Pipeline(batch_size=batch_size(case), num_threads=1, device_id=None, seed=7)
        try:
            outputs = outputs_of(case, modules, pipeline)
        except Exception as error:
            raise RuntimeError(f"{name}: {error}") from error
        for at, column in enumerate(outputs):
            for index, sample in enumerate(column):
                answers[f"{name}|{at}|{index}"] = sample
    write_answers(answers)
    found = {}
    for schema in sorted(ops.cpu_ops()):
        known = dali.backend.GetSchema(schema)
        if not schema.startswith("_") and not known.IsDeprecated() and not known.IsDocHidden():
            names = [one for one in known.GetArgumentNames() if not known.IsDeprecatedArg(one)]
            found[_name(schema)] = sorted(set(names) - {"bytes_per_sample_hint", "device", "preserve", "seed"})
    written = {"version": dali.__version__, "operators": found}
    OPERATORS.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _name(schema: str) -> str:
    from nvidia.dali.ops._names import _functional

    *family, last = schema.split("__")
    return ".".join([*family, _functional._to_snake_case(last)])


if __name__ == "__main__":
    main()
