"""Effects that keep pixels in place: `gaussian_blur`, `jpeg_compression_distortion`, `erase`, `grid_mask`, `paste`,
`multi_paste` and `noise.*`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import OperatorError
from beam_pipes.extras import require
from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given, TensorList
from beam_pipes.transforms.operators.arrays import Mapped, saturated
from beam_pipes.transforms.operators.image.affine import image_layout, layout_of, on_hwc


class _OfImages(Mapped):
    """An operator that returns images of the same size."""

    inputs = ("images",)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = image_layout(self, inputs[0])
        return super().infer(*inputs)


class GaussianBlur(_OfImages):
    """Blurs images with a Gaussian window; beyond the edge they are mirrored about their first and last pixels.

    `gaussian_blur(images, sigma=1)`: by a window of 7 pixels, as it reaches three deviations, rounded up, to each side
    """

    sigma = Argument("floats", default=0.0, doc="the deviation in pixels, or (height, width); 0: as window_size says")
    window_size = Argument("ints", default=0, doc="an odd number of pixels, or (height, width); 0: as sigma says")
    dtype = Constant("dtype", default=None, doc="float32; the dtype of the input by default")

    def run(self, sample: Sample, image: Array, *, sigma: Array | None, window_size: Array | None) -> Array:
        cv2 = require("cv2", purpose="fn.gaussian_blur")
        pairs = np.broadcast_arrays(np.asarray(sigma, np.float64), np.asarray(window_size), np.zeros(2))
        rows, columns = (_bell(float(one), int(size)) for one, size, _ in zip(*pairs, strict=True))
        dtype = image.dtype if self.dtype is None else self.dtype

        def blurred(one: Array) -> Any:
            made = cv2.sepFilter2D(one.astype(np.float32), -1, columns, rows, borderType=cv2.BORDER_REFLECT_101)
            return saturated(np, made.reshape(one.shape), dtype)

        return on_hwc(image, layout_of(self._layout, image.ndim), blurred)


def _bell(sigma: float, size: int) -> Any:
    """The weights of a window."""
    if sigma < 0 or size < 0 or not (sigma or size) or (size and size % 2 == 0):
        raise ValueError(f"give a sigma above 0, or an odd window_size, got {sigma:g} and {size}")
    radius = size // 2 if size else int(np.ceil(3 * sigma))
    sigma = sigma or (radius - 1) * 0.3 + 0.8
    weights = np.exp(-((np.arange(-radius, radius + 1) / sigma) ** 2) / 2)
    return weights / weights.sum()


class JpegCompressionDistortion(_OfImages):
    """RGB images (uint8) after compression as JPEG: `jpeg_compression_distortion(images, quality=20)`."""

    quality = Argument("int", default=50, doc="of JPEG", least=1, most=100)

    def run(self, sample: Sample, image: Array, *, quality: int) -> Array:
        cv2 = require("cv2", purpose="fn.jpeg_compression_distortion")

        def distorted(one: Array) -> Any:
            _, file = cv2.imencode(".jpg", one[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
            return cv2.imdecode(file, cv2.IMREAD_COLOR)[:, :, ::-1]

        return on_hwc(image, layout_of(self._layout, image.ndim), distorted)


class Erase(Mapped):
    """Fills boxes of samples: `erase([[1, 2, 3]], anchor=[1], shape=[2], axes=[1])` → `[[1, 0, 0]]`.

    Numbers are in the order of the axes, box after box; by default all axes but channels.
    """

    anchor = Argument("matrix", default=None, doc="starts of boxes; 0 by default")
    shape = Argument("matrix", default=None, doc="sizes of boxes")
    axis_names = Constant("str", default=None, doc="the axes that the numbers are for, by name: HW by default")
    axes = Constant("ints", default=None, doc="the same by number")
    fill_value = Argument("floats", default=0.0, doc="the fill value: one value, or one per channel")
    normalized = Constant("bool", default=False, doc="whether numbers are parts of the extents, not elements")
    normalized_anchor = Constant("bool", default=False, doc="the same for anchor alone")
    normalized_shape = Constant("bool", default=False, doc="the same for shape alone")
    centered_anchor = Constant("bool", default=False, doc="whether anchors are the middles of boxes")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = inputs[0].layout
        if self.axis_names is not None and not set(self.axis_names) <= set(self._layout):
            raise self.refuse(
                f"axis_names={self.axis_names!r} should be axes of samples with a layout, got {inputs[0]}"
            )
        return inputs[0]

    def run(
        self, sample: Sample, data: Array, *, anchor: Array | None, shape: Array | None, fill_value: Array
    ) -> object:
        names = self._layout or "HWC"[: data.ndim]
        axes = [names.index(one) for one in self.axis_names or names.replace("C", "")]
        if self.axis_names is None and self.axes is not None:
            axes = self.axes.tolist()
        extents = np.array([data.shape[axis] for axis in axes])
        sizes = np.zeros((0, len(axes))) if shape is None else np.reshape(shape, (-1, len(axes)))
        starts = np.zeros_like(sizes) if anchor is None else np.reshape(anchor, sizes.shape)
        starts = starts * (extents if self.normalized or self.normalized_anchor else 1)
        sizes = sizes * (extents if self.normalized or self.normalized_shape else 1)
        starts = starts - (sizes / 2 if self.centered_anchor else 0)
        channels = [len(fill_value) if name == "C" else 1 for name in names]
        value = saturated(np, np.reshape(fill_value, channels if len(fill_value) > 1 else ()), data.dtype)
        made = data.copy()
        for begin, end in zip(starts, starts + sizes, strict=True):
            box = [slice(None)] * data.ndim
            for axis, first, last in zip(axes, np.trunc(begin), np.trunc(end), strict=True):
                box[axis] = slice(max(int(first), 0), max(int(last), 0))
            made[tuple(box)] = value
        return made


class GridMask(_OfImages):
    """Fills the squares of a grid with 0: `grid_mask([[1, 1, 1, 1]], tile=2, ratio=0.5)` → `[[0, 1, 0, 1]]`."""

    tile = Argument("int", default=100, doc="pixels from one square to the next", least=1)
    ratio = Argument("float", default=0.5, doc="width of a square relative to a tile")
    angle = Argument("float", default=0.0, doc="radians by which the grid is turned")
    shift_x = Argument("float", default=0.0, doc="pixels by which it is moved to the right")
    shift_y = Argument("float", default=0.0, doc="pixels by which it is moved down")

    def run(self, sample: Sample, image: Array, **given: Given) -> object:
        tile, (height, width) = np.float32(given["tile"]), image.shape[:2]
        y, x = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None, :]
        cosine, sine = np.float32(np.cos(given["angle"])) / tile, np.float32(np.sin(given["angle"])) / tile
        across = (-np.float32(given["shift_x"]) / tile - y * sine) + x * cosine
        down = (-np.float32(given["shift_y"]) / tile + y * cosine) + x * sine
        kept = (across - np.floor(across) >= given["ratio"]) | (down - np.floor(down) >= given["ratio"])
        return image * kept.reshape(height, width, *[1] * (image.ndim - 2)).astype(image.dtype)


class Paste(Operator):
    """Puts images (HWC) on a canvas `ratio` times as large: `paste(images, ratio=2, fill_value=0)`, 60×90 → 120×180."""

    inputs = ("images",)
    ratio = Argument("float", doc="size of the canvas relative to the image", least=1)
    fill_value = Constant("ints", doc="colour of the canvas: one value, or one per channel")
    paste_x = Argument("float", default=0.5, doc="position of the image: 0 at the left, 1 at the right")
    paste_y = Argument("float", default=0.5, doc="position of the image: 0 at the top, 1 at the bottom")
    min_canvas_size = Argument("float", default=0.0, doc="the least height and width of the canvas")
    n_channels = Constant("int", default=3, doc="accepted for ported graphs: it is that of the images")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        shape = inputs[0].shape
        return inputs[0] if shape is None else inputs[0].replace(shape=(None, None, *shape[2:]))

    def run(self, sample: Sample, image: Array, **given: Given) -> object:
        size = [int(max(np.float32(given["ratio"]) * one, given["min_canvas_size"])) for one in image.shape[:2]]
        made = np.empty((*size, *image.shape[2:]), image.dtype)
        made[...] = self.fill_value.astype(image.dtype) if len(self.fill_value) > 1 else self.fill_value[0]
        top, left = (
            int(place * (one - own))
            for place, one, own in zip((given["paste_y"], given["paste_x"]), size, image.shape[:2], strict=True)
        )
        made[top : top + image.shape[0], left : left + image.shape[1]] = image
        return made


class MultiPaste(Operator):
    """Pastes regions of several images (HWC) on a black canvas, later ones over earlier ones.

    `multi_paste(images, in_ids=[2, 0], output_size=(480, 640))`: images 2 and 0 of the batch, on each canvas;
    `multi_paste(left, right, output_size=(480, 640))`: a sample of each input. Anchors and shapes are rows of (height,
    width), one for each region, in pixels, or with `_rel` as parts of the image or the canvas. Regions have to lie
    within their image and within the canvas.
    """

    inputs = ("images",)
    variadic = True
    in_ids = Argument("ints", default=None, doc="the samples of the batch that are pasted; each input's own by default")
    output_size = Argument("ints", default=None, doc="height and width of the canvas; those of the images by default")
    in_anchors = Argument("matrix", default=None, doc="starts of regions in their images; 0 by default")
    in_anchors_rel = Argument("matrix", default=None, doc="the same as parts of the image, rounded down")
    shapes = Argument("matrix", default=None, doc="sizes of regions; up to the end of the image by default")
    shapes_rel = Argument("matrix", default=None, doc="the same as parts of the image, rounded up")
    out_anchors = Argument("matrix", default=None, doc="positions of regions on the canvas; 0 by default")
    out_anchors_rel = Argument("matrix", default=None, doc="the same as parts of the canvas, rounded down")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the images by default")

    exclusive = tuple((name, f"{name}_rel") for name in ("in_anchors", "shapes", "out_anchors"))

    @property
    def mixes_samples(self) -> bool:
        return self.is_given("in_ids")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        if self.mixes_samples and len(inputs) > 1:
            raise self.refuse(f"in_ids takes samples of one input, got {len(inputs)} inputs")
        if len({one.dtype for one in inputs}) > 1 or any(one.ndim not in (None, 3) for one in inputs):
            raise self.refuse(f"expected images (HWC) of one dtype, got {', '.join(map(str, inputs))}")
        size = self.constants.get("output_size")
        shape = (None, None, None) if inputs[0].shape is None else inputs[0].shape
        shape = (*((None, None) if size is None else size.tolist()), shape[2])
        return inputs[0].replace(dtype=self.dtype or inputs[0].dtype, shape=shape)

    @property
    def run_batch(self) -> object:
        return self._run_batch if self.mixes_samples else None

    def _run_batch(
        self, samples: Samples, images: TensorList, *, in_ids: Sequence[Array], **given: Given
    ) -> TensorList:
        made = []
        for at, ids in enumerate(in_ids):
            own = {name: None if values is None else values[at] for name, values in given.items()}
            places = np.ravel(ids)
            try:
                if any((places < 0) | (places >= len(images))):
                    raise ValueError(f"in_ids should be places in a batch of {len(images)}, got {places.tolist()}")
                made.append(self._pasted([images[int(place)] for place in places], images[at], **own))
            except ValueError as error:
                raise OperatorError(f"{self.name}: sample {at} of the batch: {error}.", operator=self.name) from error
        return TensorList(made)

    def run(self, sample: Sample, *images: Array, in_ids: None, **given: Given) -> object:
        return self._pasted(images, images[0], **given)

    def _pasted(self, images: Sequence[Array], own: Array, *, output_size: Array | None, **given: Given) -> Any:
        if output_size is None and any(one.shape != own.shape for one in images):
            found = ", ".join(str(one.shape) for one in (own, *images))
            raise ValueError(f"images should have one shape where output_size is not given, got {found}")
        canvas = np.array(own.shape[:2] if output_size is None else output_size, np.int64)
        made = np.zeros((*canvas, own.shape[2]), self.dtype or own.dtype)

        def rows(name: str, extents: Array, towards: Callable[[Array], Array], default: Array) -> Array:
            relative = given[f"{name}_rel"]
            found = given[name] if relative is None else relative
            if found is None:
                return default
            if found.size != 2 * len(images):
                raise ValueError(f"{name} should be a row of two numbers for each of {len(images)} regions")
            found = np.reshape(found, (-1, 2))
            return found if relative is None else towards(found.astype(np.float32) * extents.astype(np.float32))

        sizes = np.array([one.shape[:2] for one in images], np.int64).reshape(-1, 2)
        none = np.zeros_like(sizes)
        begin = rows("in_anchors", sizes, np.floor, none).astype(np.int64)
        extent = rows("shapes", sizes, np.ceil, sizes - begin).astype(np.int64)
        target = rows("out_anchors", canvas, np.floor, none).astype(np.int64)
        for what, first, whole in (("image", begin, sizes), ("canvas", target, np.broadcast_to(canvas, sizes.shape))):
            outside = ((first < 0) | (extent < 0) | (first + extent > whole)).any(axis=1)
            if outside.any():
                at = int(outside.argmax())
                raise ValueError(
                    f"region {at}, {extent[at].tolist()} from {first[at].tolist()} on, should lie within its {what} of "
                    f"{whole[at].tolist()}"
                )
        for image, (top, left), (height, width), (y, x) in zip(images, begin, extent, target, strict=True):
            region = image[top : top + height, left : left + width]
            made[y : y + height, x : x + width] = saturated(np, region, made.dtype)
        return made


class Gaussian(Mapped):
    """Adds normal noise: `noise.gaussian(images, stddev=10)`."""

    random = True
    mean = Argument("float", default=0.0, doc="the mean of the noise")
    stddev = Argument("float", default=1.0, doc="its standard deviation")

    def run(self, sample: Sample, data: Array, *, mean: float, stddev: float) -> Array:
        return saturated(np, data + sample.generator.normal(mean, stddev, data.shape), data.dtype)


class Shot(Mapped):
    """Draws each element from a Poisson distribution about it, in multiples of `factor`: `noise.shot(images)`."""

    random = True
    factor = Argument("float", default=20.0, doc="the increment per event; 0 changes nothing")

    def run(self, sample: Sample, data: Array, *, factor: float) -> object:
        if not factor:
            return data
        return saturated(np, sample.generator.poisson(np.maximum(data / factor, 0)) * factor, data.dtype)


class SaltAndPepper(Mapped):
    """Replaces a part of the pixels by the highest or lowest value: `noise.salt_and_pepper(images, prob=0.1)`."""

    random = True
    prob = Argument("float", default=0.05, doc="fraction of pixels replaced")
    salt_vs_pepper = Argument("float", default=0.5, doc="fraction of these that becomes salt")
    per_channel = Constant("bool", default=False, doc="whether it is drawn for each channel, not for each pixel")
    salt_val = Argument("float", default=None, doc="value of salt: by default the highest of the dtype, 1 for floats")
    pepper_val = Argument(
        "float", default=None, doc="value of pepper: by default the lowest of the dtype, -1 for floats"
    )

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = inputs[0].layout
        return inputs[0]

    def run(self, sample: Sample, data: Array, **given: Given) -> object:
        names = self._layout or " " * (data.ndim - 1) + "C"
        shape = [
            1 if name == "C" and not self.per_channel else size for name, size in zip(names, data.shape, strict=True)
        ]
        lowest, highest = (-1, 1) if data.dtype.kind == "f" else (np.iinfo(data.dtype).min, np.iinfo(data.dtype).max)
        values = [
            saturated(np, np.asarray(default if given[name] is None else given[name]), data.dtype)
            for name, default in (("salt_val", highest), ("pepper_val", lowest))
        ]
        is_salt = sample.generator.random(shape) < given["salt_vs_pepper"]
        return np.where(sample.generator.random(shape) < given["prob"], np.where(is_salt, *values), data)
