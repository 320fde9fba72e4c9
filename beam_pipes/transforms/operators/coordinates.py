"""Points and boxes: `transforms.*`, matrices of affine maps; `coord_transform` and `coord_flip` of points; `bb_flip`,
`bbox_paste` and `random_bbox_crop` of boxes.

A map of d axes is a matrix (d, d + 1), float32: its last column is added. `transforms.*` may take a map, and then
return the composition that applies it first and their own map after it; with `reverse_order`, in the reverse order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Node, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given
from beam_pipes.transforms.operators.arrays import Mapped, positive_range, saturated


def joined(first: Array, second: Array) -> Array:
    """The map that applies `first`, then `second`."""
    if first.shape != second.shape or first.shape[1] != first.shape[0] + 1:
        raise ValueError(f"maps should be matrices (d, d + 1) of one d, got shapes {first.shape} and {second.shape}")
    last = np.eye(1, first.shape[1], first.shape[1] - 1)
    made: Array = second @ np.vstack([first, last])
    return made


class AffineMap(Operator):
    """An affine map, given by arguments."""

    inputs: ClassVar[tuple[str, ...]] = ("transform",)
    optional_inputs = 1
    reverse_order = Constant("bool", default=False, doc="whether this map comes before that of the input")

    #: (arguments) → (d, d + 1): the map itself.
    matrix: Any = None

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        names = [name for name, argument in self.arguments.items() if not argument.constant_only]
        if any(name not in self.constants for name in names):
            return TensorSpec.of_rank("float32", 2)
        try:
            own = self.matrix(**{name: self.constants[name] for name in names})
        except ValueError as error:
            raise self.argument_error(f"{error}.") from error
        return TensorSpec.of("float32", own.shape)

    def run(self, sample: Sample, transform: Array | None = None, **given: Given) -> object:
        made = self.matrix(**given)
        if transform is not None:
            made = joined(made, transform) if self.reverse_order else joined(np.asarray(transform, np.float64), made)
        return made.astype(np.float32)


def about(linear: Array, center: Array | None) -> Array:
    """A linear map, (d, d), about a fixed point; the origin without one."""
    if center is None:
        return np.column_stack([linear, np.zeros(len(linear))])
    if len(center) != len(linear):
        raise ValueError(f"center should hold {len(linear)} coordinates, got {list(center)}")
    return np.column_stack([linear, center - linear @ center])


class Translation(AffineMap):
    """Adds `offset`: `transforms.translation(offset=(1, 2))` → `[[1, 0, 1], [0, 1, 2]]`."""

    offset = Argument("floats", doc="the offset, one number per axis")

    def matrix(self, *, offset: Array) -> Array:
        return np.column_stack([np.eye(len(offset)), offset])


class Scale(AffineMap):
    """Multiplies by `scale`: `transforms.scale(scale=(2, 3))` → `[[2, 0, 0], [0, 3, 0]]`."""

    scale = Argument("floats", doc="a factor for each axis, or one with ndim")
    center = Argument("floats", default=None, doc="the fixed point; the origin by default")
    ndim = Constant("int", default=None, doc="number of axes, if scale is one number")

    def matrix(self, *, scale: Array, center: Array | None) -> Array:
        return about(np.diag(np.broadcast_to(scale, self.ndim or len(scale))), center)


class Rotation(AffineMap):
    """Turns by `angle`, from the first axis to the second: `transforms.rotation(angle=90)` → `[[0, -1, 0], [1, 0, 0]]`.

    With `axis`, it is a rotation in three dimensions about this axis.
    """

    angle = Argument("float", doc="degrees")
    axis = Argument("floats", default=None, doc="the axis of rotation, three numbers")
    center = Argument("floats", default=None, doc="the fixed point; the origin by default")

    def matrix(self, *, angle: float, axis: Array | None, center: Array | None) -> Array:
        cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        if axis is None:
            return about(np.array([[cosine, -sine], [sine, cosine]]), center)
        if len(axis) != 3 or not np.linalg.norm(axis):
            raise ValueError(f"axis should be three numbers, not all zero, got {list(axis)}")
        x, y, z = axis / np.linalg.norm(axis)
        across = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        return about(cosine * np.eye(3) + sine * across + (1 - cosine) * np.outer((x, y, z), (x, y, z)), center)


class Shear(AffineMap):
    """Adds to each axis parts of the others: `transforms.shear(shear=(2, 1))` → `[[1, 2, 0], [1, 1, 0]]`.

    Two numbers are for two axes (xy, yx), six for three (xy, xz, yx, yz, zx, zy).
    """

    shear = Argument("floats", default=None, doc="the parts")
    angles = Argument("floats", default=None, doc="the same as angles in degrees, whose tangents are the parts")
    center = Argument("floats", default=None, doc="the fixed point; the origin by default")

    def matrix(self, *, shear: Array | None, angles: Array, center: Array | None) -> Array:
        if (shear is None) == (angles is None):
            raise ValueError("give one of shear and angles")
        parts = np.tan(np.radians(angles)) if shear is None else shear
        if len(parts) not in (2, 6):
            raise ValueError(f"shear should hold two numbers, or six for three axes, got {len(parts)}")
        ndim = 2 if len(parts) == 2 else 3
        made = np.eye(ndim)
        made[~np.eye(ndim, dtype=bool)] = parts
        return about(made, center)


class Crop(AffineMap):
    """Maps one box to another: `transforms.crop(from_end=(2, 4))` → `[[0.5, 0, 0], [0, 0.25, 0]]`."""

    from_start = Argument("floats", default=0.0, doc="start of the source box")
    from_end = Argument("floats", default=1.0, doc="its end")
    to_start = Argument("floats", default=0.0, doc="start of the target box")
    to_end = Argument("floats", default=1.0, doc="its end")
    absolute = Constant("bool", default=False, doc="whether reversed starts and ends are swapped")

    def matrix(self, *, from_start: Array, from_end: Array, to_start: Array, to_end: Array) -> Array:
        try:
            ends = np.array(np.broadcast_arrays(from_start, from_end, to_start, to_end), np.float64)
        except ValueError:
            raise ValueError("starts and ends should hold as many numbers, one for each axis") from None
        if self.absolute:
            ends = np.concatenate([np.sort(ends[:2], axis=0), np.sort(ends[2:], axis=0)])
        factor = (ends[3] - ends[2]) / (ends[1] - ends[0])
        return np.column_stack([np.diag(factor), ends[2] - factor * ends[0]])


class Combine(Operator):
    """The composition of several maps, in order: `transforms.combine(turn, move)`."""

    inputs = ("transforms",)
    variadic = True
    reverse_order = Constant("bool", default=False, doc="whether the last one comes first")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0].replace(dtype=np.dtype("float32"))

    def run(self, sample: Sample, *transforms: Array) -> Array:
        order = reversed(transforms) if self.reverse_order else transforms
        return functools.reduce(joined, [np.asarray(one, np.float64) for one in order]).astype(np.float32)


class CoordTransform(Operator):
    """`M @ x + T` for every point: (…, d) → (…, e).

    `coord_transform([[1, 2]], M=(1, 0, 0, 2), T=(10, 20))` → `[[11, 24]]`; `MT` is both, as returned by `transforms.*`.
    """

    inputs = ("data",)
    M = Argument("matrix", default=None, doc="a matrix row by row, or a number: a factor of all coordinates")
    T = Argument("floats", default=None, doc="what is added")
    MT = Argument("matrix", default=None, doc="matrix and what is added, as rows of d + 1 numbers")
    dtype = Constant("dtype", default="float32", doc="the dtype of the output")

    def check(self) -> None:
        if self.constants.get("MT", 0) is not None and any(self.constants.get(one, 0) is not None for one in "MT"):
            raise self.argument_error("give MT, or M and T.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self.expect(inputs[0], "points, (…, coordinates)", least_rank=1)
        shape = inputs[0].shape
        return inputs[0].replace(dtype=self.dtype, shape=None if shape is None else (*shape[:-1], None))

    def run(self, sample: Sample, data: Array, *, M: Array | None, T: Array | None, MT: Array | None) -> object:  # noqa: N803 - DALI's names
        ndim = data.shape[-1]
        if MT is not None:
            if MT.size % (ndim + 1):
                raise ValueError(f"MT should have rows of {ndim + 1} numbers, got {MT.size} in all")
            M, T = np.hsplit(MT.reshape(-1, ndim + 1), [ndim])  # noqa: N806
        elif M is None or M.size == 1:
            M = np.eye(ndim) * (1.0 if M is None else M[0])  # noqa: N806
        elif M.size % ndim:
            raise ValueError(f"M should have rows of {ndim} numbers, got {M.size} in all")
        made: Array = data.astype(np.float64) @ M.reshape(-1, ndim).T + (0 if T is None else T.ravel())
        return saturated(np, made, self.dtype)


class CoordFlip(Mapped):
    """Mirrors points about a centre: `coord_flip([[0.25, 1]])` → `[[0.75, 1]]`."""

    layout = Constant("str", default=None, doc="order of the coordinates: xy, or xyz for three, by default")
    flip_x = Argument("int", default=1, doc="mirrors x if not 0")
    flip_y = Argument("int", default=0, doc="mirrors y if not 0")
    flip_z = Argument("int", default=0, doc="mirrors z if not 0")
    center_x = Argument("float", default=0.5, doc="the centre for x")
    center_y = Argument("float", default=0.5, doc="the centre for y")
    center_z = Argument("float", default=0.5, doc="the centre for z")

    def run(self, sample: Sample, data: Array, **given: Given) -> object:
        made = data.copy()
        for at, name in enumerate(self.layout or "xyz"[: data.shape[-1]]):
            if given[f"flip_{name}"]:
                made[..., at] = 2 * np.float32(given[f"center_{name}"]) - data[..., at]
        return made


class _Boxes(Operator):
    """An operator over boxes (n, 4), as two corners (ltrb), or as a corner and a size; coordinates from 0 to 1."""

    inputs: ClassVar[tuple[str, ...]] = ("boxes",)
    ltrb = Constant("bool", default=False, doc="whether boxes are two corners, or left, top, width, height")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        if inputs[0].shape is not None and (len(inputs[0].shape) > 2 or inputs[0].shape[-1:] not in ((4,), (None,))):
            raise self.refuse(f"expected boxes of four numbers, (n, 4), got {inputs[0]}")
        return inputs[0].replace(dtype=np.dtype("float32"))

    def _moved(self, boxes: Array, move: Callable[[Array], Array]) -> Array:
        """Boxes whose corners, (…, 2, 2), were mapped by `move`, which may exchange them."""
        corners = np.asarray(boxes, np.float64).reshape(*boxes.shape[:-1], 2, 2)
        if not self.ltrb:
            corners = np.cumsum(corners, axis=-2)
        made = np.sort(move(corners), axis=-2)
        if not self.ltrb:
            made[..., 1, :] -= made[..., 0, :]
        return made.reshape(boxes.shape).astype(np.float32)


class BbFlip(_Boxes):
    """Mirrors boxes: `bb_flip([[0.1, 0.2, 0.3, 0.4]])` → `[[0.6, 0.2, 0.3, 0.4]]` (left, top, width, height)."""

    horizontal = Argument("int", default=1, doc="mirrors left and right if not 0")
    vertical = Argument("int", default=0, doc="mirrors top and bottom if not 0")

    def run(self, sample: Sample, boxes: Array, *, horizontal: int, vertical: int) -> Array:
        mirrored = np.array([bool(horizontal), bool(vertical)])
        return self._moved(boxes, lambda corners: np.where(mirrored, 1 - corners, corners))


class BBoxPaste(_Boxes):
    """Boxes where `paste` puts their image on a canvas `ratio` times as large: `bbox_paste([[0, 0, 1, 1]], ratio=2)` →
    `[[0.25, 0.25, 0.5, 0.5]]`.
    """

    ratio = Argument("float", doc="size of the canvas relative to the image, at least 1", least=1)
    paste_x = Argument("float", default=0.5, doc="position of the image: 0 at the left, 1 at the right")
    paste_y = Argument("float", default=0.5, doc="position of the image: 0 at the top, 1 at the bottom")

    def run(self, sample: Sample, boxes: Array, *, ratio: float, paste_x: float, paste_y: float) -> Array:
        start = np.array([paste_x, paste_y]) * (ratio - 1)
        return self._moved(boxes, lambda corners: (corners + start) / ratio)


_LAYOUTS = {True: "xyXY", False: "xyWH"}


class RandomBBoxCrop(Operator):
    """A random window of each image that keeps its boxes: anchor and shape, for `slice`, the boxes in it, their labels.

    For each sample, one of `thresholds` is drawn, or no crop. Windows are drawn until each box (without
    `all_boxes_above_threshold`, one of them) overlaps the window by that much. Boxes whose centre is outside are
    dropped, or, with `bbox_prune_threshold`, those with a smaller remaining part.
    """

    inputs = ("boxes", "labels")
    optional_inputs = 1
    random = True
    thresholds = Constant("floats", default=0.0, doc="minimum overlaps, one of which is drawn")
    threshold_type = Constant("str", default="iou", doc="the definition of overlap", choices=("iou", "overlap"))
    all_boxes_above_threshold = Constant("bool", default=True, doc="whether each box must overlap, or only one of them")
    aspect_ratio = positive_range(default=(1.0, 1.0), doc="least and largest width / height of the window")
    scaling = positive_range(default=(1.0, 1.0), doc="least and largest extent of the window", most=1)
    crop_shape = Argument("ints", default=None, doc="the size of the window in pixels, instead of a drawn one")
    input_shape = Argument("ints", default=None, doc="the size of the image in pixels; goes with crop_shape")
    shape_layout = Constant("str", default="WH", doc="order of these two extents", choices=("WH", "HW"))
    bbox_layout = Constant(
        "str", default=None, doc="layout of boxes; by default given by ltrb", choices=_LAYOUTS.values()
    )
    ltrb = Constant("bool", default=True, doc="whether boxes are two corners, or left, top, width, height")
    bbox_prune_threshold = Constant("float", default=None, doc="minimum part of a box for it to be kept")
    allow_no_crop = Constant("bool", default=True, doc="whether the draw may give no crop; not with crop_shape")
    num_attempts = Constant("int", default=1, doc="windows tried with a threshold before another is drawn")
    total_num_attempts = Constant(
        "int", default=-1, doc="number of windows after which the whole image is taken; -1 is 10000"
    )
    output_bbox_indices = Constant("bool", default=False, doc="whether the indices of kept boxes are an output")
    without_effect = (*Operator.without_effect, "quiet")
    together = (("crop_shape", "input_shape"),)

    @property
    def _layout(self) -> str:
        return str(self.bbox_layout or _LAYOUTS[self.ltrb])

    def output_count(self) -> int:
        return 5 if self.output_bbox_indices else 4

    def infer(self, *inputs: TensorSpec) -> Sequence[TensorSpec]:
        self._with_labels = len(inputs) > 1
        shapes = [("float32", (2,)), ("float32", (2,)), ("float32", (None, 4)), ("int32", (None,)), ("int32", (None,))]
        return [TensorSpec.of(*one) for one in shapes[: self.output_count()]]

    def result(self, nodes: Sequence[Node]) -> object:
        return list(nodes) if self._with_labels else [*nodes[:3], *nodes[4:]]

    def run(
        self,
        sample: Sample,
        boxes: Array,
        labels: Array | None = None,
        *,
        crop_shape: Array | None,
        input_shape: Array | None,
    ) -> object:
        corners = np.asarray(boxes, np.float64).reshape(-1, 2, 2)
        if self._layout == "xyWH":
            corners = np.cumsum(corners, axis=1)
        pixels, size = np.ones(2), None
        if crop_shape is not None:
            order = [self.shape_layout.index(name) for name in "WH"]
            pixels, size = np.asarray(input_shape, np.float64)[order], np.asarray(crop_shape, np.float64)[order]
        start, extent, kept = self._window(sample.generator, corners, size, pixels)
        inside = np.clip((corners[kept] - start) / extent, 0.0, 1.0)
        if self._layout == "xyWH":
            inside[:, 1] -= inside[:, 0]
        places = np.flatnonzero(kept).astype(np.int32)
        chosen = places if labels is None else np.asarray(labels).reshape(-1)[kept].astype(np.int32)
        made = (start * pixels, extent * pixels, inside.reshape(-1, 4))
        return (*(one.astype(np.float32) for one in made), chosen, *([places] if self.output_bbox_indices else []))

    def _window(
        self, draws: np.random.Generator, corners: Array, size: Array | None, pixels: Array
    ) -> tuple[Array, Array, Array]:
        """Where a window begins, its extent, both 0 to 1, and which boxes it keeps."""
        whole = np.zeros(2), np.ones(2), np.ones(len(corners), np.bool_)
        options = [*self.thresholds, *([None] if self.allow_no_crop and size is None else [])]
        left = self.total_num_attempts if self.total_num_attempts > 0 else 10_000
        while left > 0:
            threshold = options[draws.integers(len(options))]
            if threshold is None:
                break
            for _ in range(min(self.num_attempts, left)):
                left -= 1
                extent = self._extent(draws) if size is None else size / pixels
                if extent is None:
                    continue
                places = draws.uniform(size=2) * (1 - extent)
                start = places if size is None else draws.integers(0, (pixels - size).astype(int) + 1) / pixels
                kept = self._kept(corners, start, extent, threshold)
                if kept is not None:
                    return start, extent, kept
        if size is not None and left <= 0:
            raise ValueError("no window of crop_shape overlaps the boxes as thresholds ask; give lower ones")
        return whole

    def _extent(self, draws: np.random.Generator) -> Array | None:
        """A random width and height; None if their ratio is not allowed."""
        (least, most), (low, high) = self.aspect_ratio, self.scaling
        extent = draws.uniform(low, high, 2)
        if least == most:
            fixed = np.array([extent[1] * least, extent[1]] if draws.integers(2) else [extent[0], extent[0] / least])
            extent = fixed * (extent.max() / fixed.max())
        ratio = extent[0] / extent[1]
        return extent if least * (1 - 1e-9) <= ratio <= most * (1 + 1e-9) else None

    def _kept(self, corners: Array, start: Array, extent: Array, threshold: float) -> Array | None:
        """Which boxes a window keeps; None if it does not meet the conditions."""
        area = np.prod(corners[:, 1] - corners[:, 0], axis=1)
        common = np.minimum(corners[:, 1], start + extent) - np.maximum(corners[:, 0], start)
        shared = np.prod(np.clip(common, 0.0, None), axis=1)
        union = area + np.prod(extent) - shared if self.threshold_type == "iou" else area
        enough = shared / np.maximum(union, 1e-12) >= threshold
        if len(corners) and not (enough.all() if self.all_boxes_above_threshold else enough.any()):
            return None
        middle = corners.mean(axis=1)
        kept = ((middle >= start) & (middle <= start + extent)).all(axis=1)
        if self.bbox_prune_threshold is not None:
            kept = shared >= self.bbox_prune_threshold * np.maximum(area, 1e-12)
        return kept if kept.any() or not len(corners) else None


class BoxEncoder(Operator):
    """Matches boxes with the default boxes of SSD (Liu et al., 2016): boxes (n, 4) as left, top, right, bottom, and
    labels (n,) → a box (anchors, 4) float32 and a label (anchors,) int32 for each anchor.

    An anchor has the box that it overlaps most, if their intersection over union is above `criteria`; and every box the
    anchor that overlaps it most. Boxes are given as centre, width and height: those of the match, and of an anchor
    without one, which has label 0. With `offset` they are differences from the anchor, `(centre - centre of the anchor)
    / size of the anchor` and `log(size / size of the anchor)`, less `means`, divided by `stds`; 0 without a match.
    """

    inputs = ("bboxes", "labels")
    num_outputs = 2
    anchors = Constant("matrix", doc="default boxes, four numbers each: left, top, right, bottom")
    criteria = Constant("float", default=0.5, doc="least intersection over union of a match", least=0, most=1)
    offset = Constant("bool", default=False, doc="whether boxes are differences from their anchors")
    scale = Constant("float", default=1.0, doc="a factor of boxes and anchors before differences are taken")
    means = Constant("floats", default=(0.0, 0.0, 0.0, 0.0), doc="subtracted from differences", sizes=(4,))
    stds = Constant("floats", default=(1.0, 1.0, 1.0, 1.0), doc="differences are divided by them", sizes=(4,))

    def check(self) -> None:
        if not len(self.anchors) or len(self.anchors) % 4:
            raise self.argument_error(f"anchors should be four numbers each, got {len(self.anchors)} in all.")
        self._corners = np.asarray(self.anchors, np.float32).reshape(-1, 4)
        if not (self._corners[:, 2:] > self._corners[:, :2]).all():
            raise self.argument_error("anchors should be left, top, right, bottom, with right > left and bottom > top.")

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        count = len(self._corners)
        return [TensorSpec.of("float32", (count, 4)), TensorSpec.of("int32", (count,))]

    def run(self, sample: Sample, bboxes: Array, labels: Array) -> tuple[Array, Array]:
        boxes, classes = np.asarray(bboxes, np.float32).reshape(-1, 4), np.asarray(labels).ravel()
        if len(boxes) != len(classes):
            raise ValueError(f"there are {len(boxes)} boxes and {len(classes)} labels; expected one of each")
        anchors = _middles(self._corners)
        found, numbers = np.zeros_like(anchors) if self.offset else anchors.copy(), np.zeros(len(anchors), np.int32)
        if not len(boxes):
            return found, numbers
        shared = _overlaps(boxes, self._corners)
        # Of several that overlap equally the last one counts, as in DALI.
        shared[np.arange(len(boxes)), shared.shape[1] - 1 - shared[:, ::-1].argmax(axis=1)] = 2.0
        best = len(boxes) - 1 - shared[::-1].argmax(axis=0)
        matched = np.flatnonzero(shared.max(axis=0) > self.criteria)
        chosen = _middles(boxes)[best[matched]]
        if self.offset:
            own, scale = anchors[matched] * np.float32(self.scale), np.float32(self.scale)
            away = np.concatenate(
                [(chosen[:, :2] * scale - own[:, :2]) / own[:, 2:], np.log(chosen[:, 2:] * scale / own[:, 2:])], axis=1
            )
            chosen = (away - np.asarray(self.means, np.float32)) / np.asarray(self.stds, np.float32)
        found[matched], numbers[matched] = chosen, classes[best[matched]]
        return found, numbers


def _middles(boxes: Array) -> Array:
    """Left, top, right, bottom → centre, width and height."""
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) * np.float32(0.5), boxes[:, 2:] - boxes[:, :2]], axis=1)


def _overlaps(boxes: Array, anchors: Array) -> Array:
    """Intersection over union (boxes, anchors) float32."""
    ends = np.minimum(boxes[:, None, 2:], anchors[None, :, 2:])
    shared = np.prod(np.clip(ends - np.maximum(boxes[:, None, :2], anchors[None, :, :2]), 0.0, None), axis=2)
    areas = [np.prod(one[:, 2:] - one[:, :2], axis=1) for one in (boxes, anchors)]
    made: Array = shared / (areas[0][:, None] + areas[1][None, :] - shared)
    return made
