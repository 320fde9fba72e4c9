"""Images of another size: `resize`, `resize_crop_mirror`, and `random_resized_crop`, of a random part of each image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Device, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given, Namespace, Value
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.arrays import cast_to, dtype_of, placed_like, positive_range, saturated
from beam_pipes.transforms.operators.image.affine import image_layout, layout_of, on_hwc, with_size
from beam_pipes.transforms.operators.image.crops import Cropping
from beam_pipes.transforms.operators.image.resampling import (
    MODES,
    always_stretched,
    nearest_places,
    resampled_windows,
    resized,
    target_of,
    weights,
)

_SIZES = ("size", "resize_x", "resize_y", "resize_shorter", "resize_longer")


class Resize(Operator):
    """Resizes images (HWC, HW, CHW, or frames of them).

    `resize(images, size=[224, 224])`; `resize(images, resize_shorter=256)` keeps the aspect ratio: 600×1200 → 256×512.

    An extent of 0 is open: `mode` determines it ("default": scaled like the other one; "stretch": kept), and
    how two extents go together ("not_larger", "not_smaller": the aspect ratio is kept). A negative extent mirrors.
    If images shrink, filters are stretched against aliasing. With `save_attrs` the size of each image before, (height,
    width) int32, is a second output. On the host uint8 images are resampled in exact
    arithmetic, on the device with matrices in float32: results are within 1 of each other.
    """

    inputs = ("images",)
    without_effect = (*Operator.without_effect, "minibatch_size", "temp_buffer_hint")
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "gpu")
    rounds_by_place = True
    version = "3"
    size = Argument(
        "floats", default=None, doc="height and width in pixels, or one number for both", static=True, sizes=(1, 2)
    )
    resize_x = Argument("float", default=0.0, doc="the width in pixels", static=True)
    resize_y = Argument("float", default=0.0, doc="the height in pixels", static=True)
    resize_shorter = Argument("float", default=0.0, doc="the shorter side in pixels", static=True)
    resize_longer = Argument("float", default=0.0, doc="the longer side in pixels", static=True)
    mode = Constant("str", default="default", doc="how the sides are combined", choices=MODES)
    max_size = Constant("floats", default=None, doc="maximum size of the output: one number, or height and width")
    roi_start = Argument("floats", default=None, doc="start of the resized region (height, width)", static=True)
    roi_end = Argument("floats", default=None, doc="end of the region; mirrored if before its start", static=True)
    roi_relative = Constant("bool", default=False, doc="whether the region is in parts of the image, not pixels")
    subpixel_scale = Constant("bool", default=True, doc="whether the scale is that of the size before it is rounded")
    antialias = Constant("bool", default=True, doc="whether filters are stretched if images shrink")
    interp_type = Constant(DALIInterpType, default=DALIInterpType.INTERP_LINEAR, doc="how pixels are interpolated")
    min_filter = Constant(DALIInterpType, default=None, doc="the same if images shrink")
    mag_filter = Constant(DALIInterpType, default=None, doc="the same if images grow")
    dtype = Constant("dtype", default=None, doc="the dtype of the output: that of the input, or float32")
    save_attrs = Constant("bool", default=False, doc="whether sizes before are an output")

    together = (("roi_start", "roi_end"),)

    def check(self) -> None:
        given = [name for name in _SIZES if not self._is_open(name)]
        if not given:
            raise self.argument_error(f"give one of {', '.join(_SIZES)}.")
        if len(given) > 1 and given != ["resize_x", "resize_y"]:
            raise self.argument_error(f"{' and '.join(given)} do not go together: give one of {', '.join(_SIZES)}.")

    def _is_open(self, name: str) -> bool:
        value = self.constants.get(name, "a node")
        return value is None or (not isinstance(value, (str, np.ndarray)) and value == 0)

    def output_count(self) -> int:
        return 2 if self.save_attrs else 1

    def infer(self, *inputs: TensorSpec) -> TensorSpec | list[TensorSpec]:
        made = self._resized_spec(inputs[0])
        return [made, TensorSpec.of("int32", (2,))] if self.save_attrs else made

    def _resized_spec(self, spec: TensorSpec) -> TensorSpec:
        self._layout = image_layout(self, spec)
        if self.dtype is not None and spec.dtype is not None and self.dtype not in (spec.dtype, np.dtype("float32")):
            raise self.refuse(f"dtype should be that of the input ({spec.dtype}) or float32, got {self.dtype}")
        height, width = self._known_size(spec)
        return with_size(spec, self._layout, height, width, self.dtype)

    def _known_size(self, spec: TensorSpec) -> tuple[int | None, int | None]:
        names = (*_SIZES, "roi_start", "roi_end")
        if any(name not in self.constants for name in names):
            return None, None
        given = {name: self.constants[name] for name in names}
        extents = (None, None)
        if spec.shape is not None and self._layout:
            extents = (spec.shape[self._layout.index("H")], spec.shape[self._layout.index("W")])  # type: ignore[assignment]
        fixes_both = self.mode in ("default", "stretch") and (
            (given["size"] is not None and all(given["size"])) or (given["resize_x"] and given["resize_y"])
        )
        if None in extents:
            if not fixes_both or self.max_size is not None:
                return None, None
            extents = (1, 1)  # type: ignore[assignment]
            given["roi_start"] = given["roi_end"] = None
        try:
            target = target_of(extents, **given, **self._shared())  # type: ignore[arg-type]
        except ValueError as error:
            raise self.refuse(str(error)) from error
        return target.height, target.width

    def _shared(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "max_size": () if self.max_size is None else tuple(self.max_size),
            "roi_relative": self.roi_relative,
            "subpixel_scale": self.subpixel_scale,
        }

    @property
    def _filters(self) -> dict[str, DALIInterpType]:
        return {"min_filter": self.min_filter or self.interp_type, "mag_filter": self.mag_filter or self.interp_type}

    def run(self, sample: Sample, image: Array, **given: Given) -> Array | tuple[Array, Array]:
        made = self._resized(image, **given)
        if not self.save_attrs:
            return made
        names = layout_of(self._layout, image.ndim)
        return made, np.array([image.shape[names.index("H")], image.shape[names.index("W")]], np.int32)

    def _resized(self, image: Array, **given: Given) -> Array:
        names = layout_of(self._layout, image.ndim)
        target = target_of((image.shape[names.index("H")], image.shape[names.index("W")]), **given, **self._shared())
        dtype = image.dtype if self.dtype is None else self.dtype
        return on_hwc(
            image,
            names,
            lambda one: resized(one, target, antialias=self.antialias, dtype=dtype, **self._filters),
        )

    def run_arrays(self, xp: Namespace, images: Value, **given: Given) -> Value | tuple[Value, Value]:
        names = layout_of(self._layout, images.ndim - 1)
        dtype = dtype_of(images) if self.dtype is None else self.dtype
        axes = [1 + names.index("H"), 1 + names.index("W")]
        target = target_of([images.shape[axis] for axis in axes], **given, **self._shared())
        values = cast_to(xp, images, np.dtype("float32"))
        for axis, span, size in zip(axes, (target.rows, target.columns), (target.height, target.width), strict=True):
            start, end = sorted(span)
            scale = (end - start) / size
            one = self._filters["min_filter" if scale > 1 else "mag_filter"]
            stretched = scale > 1 and (self.antialias or always_stretched(one))
            matrix = weights(size, *span, images.shape[axis], one, stretched, is_rows=axis == axes[0])
            table = placed_like(xp, matrix, values)
            values = xp.moveaxis(xp.tensordot(values, table, axes=([axis], [1])), -1, axis)
        made = saturated(xp, values, dtype)
        if not self.save_attrs:
            return made
        sizes = np.array([[images.shape[axis] for axis in axes]] * len(images), np.int32)
        return made, placed_like(xp, sizes, images)


_DRAWS_EACH = 4


class ResizeCropMirror(Resize, Cropping):
    """Resizes images, cuts windows out of them and mirrors them left and right where `mirror` is not 0."""

    devices: ClassVar[tuple[Device, ...]] = ("cpu",)
    mirror = Argument("int", default=0, doc="1 mirrors left and right, 2 top and bottom, 3 both")

    def check(self) -> None:
        super().check()
        Cropping.check(self)
        if self.save_attrs:
            raise self.argument_error("it has no save_attrs: resize first, then crop and flip.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = self._resized_spec(inputs[0])
        return with_size(spec, self._layout, *self.prepare(spec), self.dtype)

    def run(self, sample: Sample, image: Array, **given: Given) -> Array:
        mirror = given.pop("mirror")
        window = {name: given.pop(name) for name in Cropping.arguments if name in given}
        names = layout_of(self._layout, image.ndim)
        cut = self.cut_one(self._resized(image, **given), names, window)
        flipped = {"W": mirror & 1, "H": mirror & 2}
        return cut[tuple(slice(None, None, -1 if flipped.get(name) else 1) for name in names)]


class RandomCropGenerator(Operator):
    """Draws windows as `random_resized_crop` does: the shape of an image → start and shape of a window, (2,) int32.

    start, shape = fn.random_crop_generator(fn.peek_image_shape(encoded))
    images = fn.decoders.image_slice(encoded, start, shape, axes=[0, 1])
    """

    inputs = ("shape",)
    random = True
    random_area = positive_range(default=(0.08, 1.0), doc="least and largest part of the image's area", most=1)
    random_aspect_ratio = positive_range(default=(0.75, 4.0 / 3.0), doc="least and largest width / height")
    num_attempts = Constant("int", default=10, doc="maximum number of windows tried", least=1)
    num_outputs = 2

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        return [TensorSpec.of("int32", (2,))] * 2

    def run(self, sample: Sample, shape: Array) -> list[Array]:
        if shape.ndim != 1 or len(shape) < 2 or shape[:2].min() < 1:
            raise ValueError(f"the shape of an image should be (height, width, …), got {shape.tolist()}")
        draws = sample.uniform(_DRAWS_EACH * self.num_attempts).reshape(-1, _DRAWS_EACH)
        window = random_window(self, int(shape[0]), int(shape[1]), draws)
        return [np.array(window[:2], np.int32), np.array(window[2:], np.int32)]


class RandomResizedCrop(Operator):
    """Cuts a window of random area and aspect ratio out of each image, and resizes it to `size`.

    `random_resized_crop(images, size=224)` → 224×224 of each, a different part in every epoch

    The area is a uniform part of the image's, the logarithm of the aspect ratio (width / height) is uniform, the place
    is uniform (Szegedy et al., CVPR 2015). If none of `num_attempts` windows fits, it is the largest one in the middle
    with an allowed aspect ratio.

    On a device the windows are those of the host, which draws them; pixels are resampled with matrices in float32, and
    are within 1 of the host's as integers.
    """

    inputs = ("images",)
    without_effect = (*Operator.without_effect, "minibatch_size", "temp_buffer_hint")
    devices = ("cpu", "gpu")
    random = True
    rounds_by_place = True
    version = "2"
    size = Constant("ints", doc="height and width of the output, or one number for both", least=1, sizes=(1, 2))
    random_area = positive_range(default=(0.08, 1.0), doc="least and largest part of the image's area", most=1)
    random_aspect_ratio = positive_range(default=(0.75, 4.0 / 3.0), doc="least and largest width / height")
    num_attempts = Constant("int", default=10, doc="maximum number of windows tried", least=1)
    antialias, interp_type, dtype = Resize.antialias, Resize.interp_type, Resize.dtype
    min_filter, mag_filter = Resize.min_filter, Resize.mag_filter
    _filters: Any = Resize._filters

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = image_layout(self, inputs[0])
        height, width = int(self.size[0]), int(self.size[-1])
        return with_size(inputs[0], self._layout, height, width, self.dtype)

    def window(self, height: int, width: int, draws: Array) -> tuple[int, int, int, int]:
        """(top, left, height, width) of the window in an image."""
        return random_window(self, height, width, draws)

    def run(self, sample: Sample, image: Array) -> Array:
        names = layout_of(self._layout, image.ndim)
        height, width = image.shape[names.index("H")], image.shape[names.index("W")]
        draws = sample.uniform(_DRAWS_EACH * self.num_attempts).reshape(-1, _DRAWS_EACH)
        top, left, h, w = self.window(height, width, draws)
        target = target_of(
            (height, width),
            size=(float(self.size[0]), float(self.size[-1])),
            roi_start=(top, left),
            roi_end=(top + h, left + w),
        )
        dtype = image.dtype if self.dtype is None else np.dtype(self.dtype)
        return on_hwc(
            image, names, lambda one: resized(one, target, antialias=self.antialias, dtype=dtype, **self._filters)
        )

    def host_draws(self, samples: Samples, shapes: Sequence[tuple[int, ...]]) -> dict[str, Array]:
        """`windows` (n, 4) int32, as `window` gives them; where a filter is INTERP_NN, the nearest rows and columns."""
        names = layout_of(self._layout, len(shapes[0]))
        height, width = shapes[0][names.index("H")], shapes[0][names.index("W")]
        draws = samples.uniform(_DRAWS_EACH * self.num_attempts).reshape(len(samples), -1, _DRAWS_EACH)
        windows = [self.window(height, width, one) for one in draws]
        made = {"windows": np.array(windows, np.int32).reshape(-1, 4)}
        if DALIInterpType.INTERP_NN in self._filters.values():
            rows, columns = int(self.size[0]), int(self.size[-1])
            made["rows"] = _stack(
                [nearest_places(rows, top, top + h, height, is_rows=True) for top, _, h, _ in windows], rows
            )
            made["columns"] = _stack(
                [nearest_places(columns, left, left + w, width, is_rows=False) for _, left, _, w in windows], columns
            )
        return made

    def run_arrays(
        self, xp: Namespace, images: Value, *, windows: Value, rows: Value | None = None, columns: Value | None = None
    ) -> Value:
        names = layout_of(self._layout, images.ndim - 1)
        values = cast_to(xp, images, np.dtype("float32"))
        for name, at, size, nearest in (("H", 0, self.size[0], rows), ("W", 1, self.size[-1], columns)):
            values = resampled_windows(
                xp,
                values,
                1 + names.index(name),
                starts=windows[:, at],
                extents=windows[:, 2 + at],
                nearest=nearest,
                size=int(size),
                antialias=self.antialias,
                **self._filters,
            )
        return saturated(xp, values, dtype_of(images) if self.dtype is None else np.dtype(self.dtype))


def _stack(places: Sequence[Array], size: int) -> Array:
    """(n, size) int32."""
    return np.array(places, np.int32).reshape(-1, size)


def random_window(operator: Any, height: int, width: int, draws: Array) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the window in an image; `draws` (attempts, 4) uniform numbers in [0, 1)."""
    (least_area, most_area), (least, most) = operator.random_area, operator.random_aspect_ratio
    for area, ratio, top, left in draws:
        wanted = height * width * (least_area + area * (most_area - least_area))
        aspect = math.exp(math.log(least) + ratio * (math.log(most) - math.log(least)))
        w, h = round(math.sqrt(wanted * aspect)), round(math.sqrt(wanted / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(top * (height - h + 1)), int(left * (width - w + 1)), h, w
    aspect = min(max(width / height, least), most)
    w, h = min(width, max(1, round(height * aspect))), min(height, max(1, round(width / aspect)))
    return (height - h) // 2, (width - w) // 2, h, w
