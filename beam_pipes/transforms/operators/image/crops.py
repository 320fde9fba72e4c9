"""Windows of images: `crop`, with its size and place, `crop_mirror_normalize`, and `flip`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given, Namespace, Value
from beam_pipes.transforms.operators.arrays import cast_to, placed_like, saturated
from beam_pipes.transforms.operators.image.affine import image_layout, layout_of, with_size
from beam_pipes.transforms.operators.image.exact_linear import as_planes
from beam_pipes.transforms.operators.slicing import POLICIES, held, window

ROUNDINGS: Final = ("round", "truncate")


class Cropping(Operator):
    """An operator that cuts a window of `crop_h` × `crop_w` out of images; the place is 0 (left, top) to 1."""

    crop = Argument(
        "floats",
        default=None,
        doc="height and width of the window, or one number for both; 0 or less is that of the image",
        static=True,
        sizes=(1, 2),
    )
    crop_h = Argument(
        "float", default=None, doc="the height of the window; 0 or less is that of the image", static=True
    )
    crop_w = Argument("float", default=None, doc="the width of the window; 0 or less is that of the image", static=True)
    crop_pos_x = Argument(
        "float", default=0.5, doc="position of the window: 0 at the left, 1 at the right", least=0, most=1
    )
    crop_pos_y = Argument(
        "float", default=0.5, doc="position of the window: 0 at the top, 1 at the bottom", least=0, most=1
    )
    rounding = Constant("str", default="round", doc="how a place between pixels is rounded", choices=ROUNDINGS)
    out_of_bounds_policy = Constant(
        "str",
        default="error",
        doc="the policy for windows larger than the image",
        choices=POLICIES,
    )
    fill_values = Constant("floats", default=0.0, doc="the padding: one value, or one per channel")

    def check(self) -> None:
        given = [name for name in ("crop_h", "crop_w") if self.is_given(name)]
        if self.is_given("crop") and given:
            raise self.argument_error("give one of crop, and crop_h with crop_w.")
        if len(given) == 1:
            raise self.argument_error(f"crop_h and crop_w go together: {given[0]} was given alone.")

    def prepare(self, spec: TensorSpec) -> tuple[int | None, int | None]:
        """Checks the input at definition; returns the known size of the output."""
        self._layout = image_layout(self, spec)
        extents: tuple[int | None, int | None] = (None, None)
        if spec.shape is not None:
            extents = spec.shape[self._layout.index("H")], spec.shape[self._layout.index("W")]
        if any(name not in self.constants for name in ("crop", "crop_h", "crop_w")):
            return None, None
        wanted = self._size({name: self.constants[name] for name in ("crop", "crop_h", "crop_w")})
        found = [
            have if not want else want if self.out_of_bounds_policy != "trim_to_shape" else have and min(have, want)
            for want, have in zip(wanted, extents, strict=True)
        ]
        if self.out_of_bounds_policy == "error":
            for what, want, have in zip(("height", "width"), wanted, extents, strict=True):
                if have is not None and want > have:
                    raise self.refuse(
                        f"a window of {what} {want} is larger than the image ({spec}); allow it with "
                        "out_of_bounds_policy='pad' or 'trim_to_shape'"
                    )
        return found[0], found[1]

    def _size(self, given: dict[str, Given]) -> tuple[int, int]:
        """(height, width) of the window, fractions cut off as DALI does: 20.7 → 20; 0 for that of the image."""
        sides = given["crop"] if given["crop"] is not None else (given["crop_h"], given["crop_w"])
        return max(int(sides[0] or 0), 0), max(int(sides[-1] or 0), 0)

    def bounds(self, extents: tuple[int, int], given: dict[str, Given]) -> list[tuple[int, int]]:
        """(start, stop) of rows and columns, for an image of (height, width) `extents`."""
        made = []
        places = (given["crop_pos_y"], given["crop_pos_x"])
        for extent, size, place in zip(extents, self._size(given), places, strict=True):
            size = size or extent
            at = float(place) * (extent - size)
            start = math.trunc(at) if self.rounding == "truncate" else _nearest(at)
            made.append((start, start + size))
        return made

    def cut_one(self, image: Array, names: str, given: dict[str, Given]) -> Array:
        """The window of one image on the host."""
        spans = self.bounds((image.shape[names.index("H")], image.shape[names.index("W")]), given)
        return np.asarray(self._at(np, image, names, 0, spans))

    def cut_all(self, xp: Namespace, images: Value, names: str, given: dict[str, Given]) -> Value:
        """The windows of images of one shape; by gathering if their positions differ."""
        axes = [1 + names.index("H"), 1 + names.index("W")]
        extents = (images.shape[axes[0]], images.shape[axes[1]])
        places = [given["crop_pos_y"], given["crop_pos_x"]]
        if all(isinstance(one, np.ndarray) and (one == one[:1]).all() for one in places):
            first = {name: value[0] if name.startswith("crop_pos") else value for name, value in given.items()}
            return self._at(xp, images, names, 1, self.bounds(extents, first)) if len(images) else images
        sizes = [size or extent for size, extent in zip(self._size(given), extents, strict=True)]
        for axis, (size, extent) in enumerate(zip(sizes, extents, strict=True)):
            if size > extent and self.out_of_bounds_policy != "pad":
                held({axes[axis] - 1: (0, size)}, images.shape[1:], self.out_of_bounds_policy)
                sizes[axis] = extent
        if any(size > extent for size, extent in zip(sizes, extents, strict=True)):
            # Padded all around first, so that windows lie within.
            margins = [max(0, size - extent) for size, extent in zip(sizes, extents, strict=True)]
            spans = [(-margin, extent + margin) for margin, extent in zip(margins, extents, strict=True)]
            images = self._at(xp, images, names, 1, spans)
        else:
            margins = [0, 0]
        for axis, size, extent, place, margin in zip(axes, sizes, extents, places, margins, strict=True):
            at = cast_to(xp, place, np.dtype("float32")) * (extent - size)
            if self.rounding == "truncate":
                starts = xp.trunc(at)
            else:
                starts = xp.where(at < 0, -xp.floor(0.5 - at), xp.floor(at + 0.5))
            images = _gathered(xp, images, axis, cast_to(xp, starts, np.dtype("int64")) + margin, size)
        return images

    def _at(self, xp: Namespace, images: Value, names: str, lead: int, spans: list[tuple[int, int]]) -> Value:
        axes = [lead + names.index("H"), lead + names.index("W")]
        return window(
            xp,
            images,
            dict(zip(axes, spans, strict=True)),
            policy=self.out_of_bounds_policy,
            fill=tuple(self.fill_values),
            channel_axis=lead + names.index("C") if "C" in names else -1,
        )


def _gathered(xp: Namespace, images: Value, axis: int, starts: Value, size: int) -> Value:
    """`size` elements along `axis` from another place in each of (n, …) images."""
    order = (0, axis, *(one for one in range(1, images.ndim) if one != axis))
    moved = xp.permute_dims(images, order)
    n, extent = moved.shape[:2]
    index = xp.reshape(starts + placed_like(xp, np.arange(n, dtype=np.int64) * extent, images), (n, 1))
    index = xp.reshape(index + placed_like(xp, np.arange(size, dtype=np.int64)[None, :], images), (-1,))
    flat = xp.reshape(moved, (n * extent, -1))
    taken = xp.reshape(xp.take(flat, index, axis=0), (n, size, *moved.shape[2:]))
    back = sorted(range(images.ndim), key=order.__getitem__)
    return xp.permute_dims(taken, tuple(back))


def _nearest(value: float) -> int:
    """Rounds to the nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


class Crop(Cropping):
    """Cuts a window out of images (HWC, HW, or of any layout with H and W).

    `crop(images, crop=(224, 224), crop_pos_x=0.0)` → the 224×224 at the left edge, vertically centred
    """

    inputs = ("images",)
    version = "2"
    devices = ("cpu", "gpu")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return with_size(inputs[0], self._layout_after(inputs[0]), *self._known, self.dtype)

    def _layout_after(self, spec: TensorSpec) -> str:
        self._known = self.prepare(spec)
        return self._layout

    def run(self, sample: Sample, image: Array, **given: Given) -> Array:
        cut = self.cut_one(image, layout_of(self._layout, image.ndim), given)
        return cut if self.dtype is None else saturated(np, cut, self.dtype)

    def run_arrays(self, xp: Namespace, images: Value, **given: Given) -> Value:
        cut = self.cut_all(xp, images, layout_of(self._layout, images.ndim - 1), given)
        return cut if self.dtype is None else saturated(xp, cut, self.dtype)


#: Axis of a layout → the argument of `flip` that mirrors it.
_FLIPS: Final = {"D": "depthwise", "H": "vertical", "W": "horizontal"}


class Flip(Operator):
    """Mirrors images and volumes (HWC, HW, or of any layout with H and W) along the axes whose argument is not zero.

    `flip([[1, 2], [3, 4]], horizontal=1)` → `[[2, 1], [4, 3]]`
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    horizontal = Argument("int", default=1, doc="mirrors left and right if not zero")
    vertical = Argument("int", default=0, doc="mirrors top and bottom if not zero")
    depthwise = Argument("int", default=0, doc="mirrors front and back of volumes (axis D) if not zero")

    def fingerprint_config(self) -> Mapping[str, object]:
        # As before there was a depth: checkpoints of graphs that mirror images stay.
        return {name: one for name, one in super().fingerprint_config().items() if (name, one) != ("depthwise", 0)}

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = image_layout(self, inputs[0])
        return inputs[0]

    def run(self, sample: Sample, image: Array, **flips: int) -> Array:
        names = layout_of(self._layout, image.ndim)
        return image[tuple(slice(None, None, -1 if flips.get(_FLIPS.get(name, "")) else 1) for name in names)]

    def run_arrays(self, xp: Namespace, images: Value, **flips: Value) -> Value:
        for axis, name in enumerate(layout_of(self._layout, images.ndim - 1), start=1):
            if name in _FLIPS:
                flipped = xp.reshape(flips[_FLIPS[name]] != 0, (-1,) + (1,) * (images.ndim - 1))
                images = xp.where(flipped, xp.flip(images, axis=axis), images)
        return images


class CropMirrorNormalize(Cropping):
    """`scale * (x - mean) / std + shift` of a window of each image, mirrored where `mirror` is not zero.

        crop_mirror_normalize(images, crop=(224, 224), mean=[124, 116, 104], std=[58, 57, 57])  →  float32, CHW

    Without a window size, the whole image is used. `pad_output` adds channels of zeros up to a power of two.
    """

    inputs = ("images",)
    version = "2"
    devices = ("cpu", "gpu")
    rounds_by_place = True
    fills_rows = True
    mirror = Argument("int", default=0, doc="mirrors left and right if not zero")
    mean = Argument("floats", default=0.0, doc="the mean that is subtracted: one number, or one per channel")
    std = Argument("floats", default=1.0, doc="the divisor: one number, or one per channel")
    scale = Constant("float", default=1.0, doc="a factor of the result")
    shift = Constant("float", default=0.0, doc="an offset of the result")
    output_layout = Constant("str", default="CHW", doc="the order of the axes of the output")
    pad_output = Constant("bool", default=False, doc="whether channels are filled up to a power of two")
    dtype = Constant("dtype", default="float32", doc="the dtype of the result; integers are rounded and held in range")

    def check(self) -> None:
        super().check()
        if self.constants.get("std") is not None and any(self.constants["std"] == 0):
            raise self.argument_error("std should not be zero.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        height, width = self.prepare(spec)
        known = dict(zip(self._layout, spec.shape or (), strict=False))
        if self._layout and ("C" not in self._layout or sorted(self.output_layout) != sorted(self._layout)):
            raise self.refuse(
                "expected images with channels, and their axes in any order as output_layout, such as 'FCHW' for FHWC, "
                f"got {spec} and {self.output_layout!r}"
            )
        channels = known.get("C")
        for name in ("mean", "std"):
            given = self.constants.get(name)
            if given is not None and channels is not None and len(given) not in (1, channels):
                raise self.refuse(f"{name} should be one number or {channels}, got {len(given)}")
        if channels is not None and self.pad_output:
            channels = _power_of_two(channels)
        known |= {"H": height, "W": width, "C": channels}
        return TensorSpec(self.dtype, tuple(known.get(name) for name in self.output_layout), self.output_layout)

    def run(self, sample: Sample, image: Array, *, mirror: int, mean: Array, std: Array, **given: Given) -> Array:
        names = layout_of(self._layout, image.ndim)
        cut = self.cut_one(image, names, given)
        if names == "HWC":
            cut, names = as_planes(cut, mirrored=bool(mirror)), "CHW"
        elif mirror:
            cut = cut[tuple(slice(None, None, -1) if name == "W" else slice(None) for name in names)]
        moved = cut.transpose([names.index(name) for name in self.output_layout])
        channel = self.output_layout.index("C")
        count = moved.shape[channel]
        factor, offset = self._line(np.asarray(mean)[None], np.asarray(std)[None], count)
        shape = list(moved.shape)
        shape[channel] = _power_of_two(count) if self.pad_output else count
        made = sample.empty(tuple(shape), self.dtype)
        if shape[channel] != count:
            made.fill(0)
        inside = made[tuple(slice(extent) for extent in moved.shape)]
        values = inside if self.dtype == np.float32 else np.empty(moved.shape, np.float32)
        for index in range(count):
            place = (slice(None),) * channel + (index,)
            np.multiply(moved[place], factor[0, index], out=values[place])
            np.add(values[place], offset[0, index], out=values[place])
        if values is not inside:
            inside[...] = saturated(np, values, self.dtype)
        return made

    def _line(self, mean: Value, std: Value, channels: int) -> tuple[Value, Value]:
        """Factor and offset of each channel, (n, channels) float32."""
        mean = np.broadcast_to(np.asarray(mean, np.float64), (len(mean), channels))
        std = np.broadcast_to(np.asarray(std, np.float64), (len(std), channels))
        if np.any(std == 0):
            raise ValueError("std should not be zero")
        factor = self.scale / std
        return factor.astype(np.float32), (self.shift - mean * factor).astype(np.float32)

    def run_arrays(
        self, xp: Namespace, images: Value, *, mirror: Value, mean: Value, std: Value, **given: Given
    ) -> Value:
        names = layout_of(self._layout, images.ndim - 1)
        cut = self.cut_all(xp, images, names, given)
        single = np.dtype("float32")
        mirrored = xp.reshape(mirror != 0, (-1,) + (1,) * (cut.ndim - 1))
        cut = xp.where(mirrored, xp.flip(cut, axis=1 + names.index("W")), cut)
        moved = xp.permute_dims(cut, (0, *(1 + names.index(name) for name in self.output_layout)))
        channel = 1 + self.output_layout.index("C")
        count = moved.shape[channel]
        mean, std = cast_to(xp, mean, single), cast_to(xp, std, single)
        factor = self.scale / xp.broadcast_to(std, (std.shape[0], count))
        offset = self.shift - mean * factor
        shape = [images.shape[0]] + [1] * (cut.ndim - 1)
        shape[channel] = count
        values = cast_to(xp, moved, single) * xp.reshape(factor, tuple(shape)) + xp.reshape(offset, tuple(shape))
        made = saturated(xp, values, self.dtype)
        if self.pad_output and (missing := _power_of_two(count) - count):
            rest = list(made.shape)
            rest[channel] = missing
            zeros = xp.zeros_like(made)[tuple(slice(0, 1) if at == channel else slice(None) for at in range(cut.ndim))]
            made = xp.concat([made, xp.broadcast_to(zeros, tuple(rest))], axis=channel)
        return made


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
