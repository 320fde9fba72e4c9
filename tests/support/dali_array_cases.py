"""Cases of operators of arrays, of shapes and of coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dali_samples import BYTES, CLOSE, DOUBLES, FLAT, FLOATS, INTS, REALS, TABLES, Case, draw, npy

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
    "math.max.broadcast": Case(lambda m, a, b: m.math.max(a, b), [TABLES, [draw(7, 4), draw(8, 1)]]),
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
        [[npy(one) for one in INTS]],
    ),
}

MAPS = [np.array([[1, 0, 2], [0, 3, 1]], np.float32), np.array([[0.5, 1, 0], [-1, 0.25, 3]], np.float32)]
POINTS = [draw(9, 3, 2, dtype="float32"), draw(10, 1, 2, dtype="float32")]
BOXES = [np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.25, 0.5]], np.float32), np.array([[0, 0, 1, 1]], np.float32)]

_BOXES = np.random.default_rng(30).uniform(0, 0.6, (50, 2)).astype(np.float32)
_BOXES = np.concatenate([_BOXES, _BOXES + np.random.default_rng(31).uniform(0.05, 0.4, (50, 2)).astype(np.float32)], 1)
_LABELS = np.arange(1, 51, dtype=np.int32)

COORDINATES = {
    "box_encoder": Case(
        lambda m, boxes, labels: [
            made
            for options in (
                {},
                {"criteria": 0.2},
                {"offset": True},
                {"offset": True, "scale": 300.0, "means": [0.1, 0.2, 0.3, 0.4], "stds": [0.1, 0.1, 0.2, 0.2]},
            )
            for made in m.fn.box_encoder(boxes, labels, anchors=_BOXES[:40].ravel().tolist(), **options)
        ],
        # Two boxes of one anchor, one that meets none, and none at all.
        [
            [_BOXES[40:43], np.concatenate([_BOXES[3:5], _BOXES[3:4]]), _BOXES[40:] + 9, _BOXES[:0]],
            [_LABELS[:3], _LABELS[5:8], _LABELS[:10], _LABELS[:0]],
        ],
        atol=1e-6,
    ),
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
