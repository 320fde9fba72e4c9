"""`fn.crop_mirror_normalize`: window, mirroring, normalisation and layout in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.operator import Argument, Constant
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.transforms.operators.arrays import cast_to, saturated
from beam_pipes.transforms.operators.image.affine import layout_of
from beam_pipes.transforms.operators.image.crops import Cropping


class CropMirrorNormalize(Cropping):
    """`scale * (x - mean) / std + shift` of a window of each image, mirrored where `mirror` is not zero.

        crop_mirror_normalize(images, crop=(224, 224), mean=[124, 116, 104], std=[58, 57, 57])  →  float32, CHW

    Without a size of the window the whole image is taken. `pad_output` adds channels of zeros up to a power of two.
    """

    inputs = ("images",)
    version = "2"
    devices = ("cpu", "gpu")
    rounds_by_place = True
    mirror = Argument("int", default=0, doc="mirrors left and right where it is not zero")
    mean = Argument("floats", default=0.0, doc="what is taken off: one number, or one a channel")
    std = Argument("floats", default=1.0, doc="what is divided by: one number, or one a channel")
    scale = Constant("float", default=1.0, doc="a factor of the result")
    shift = Constant("float", default=0.0, doc="what is added to the result")
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
        if self._layout and (self._layout not in ("HWC", "CHW") or sorted(self.output_layout) != ["C", "H", "W"]):
            raise self.refuse(
                f"expected images HWC or CHW and output_layout 'CHW' or 'HWC', got {spec} and {self.output_layout!r}"
            )
        channels = spec.shape[self._layout.index("C")] if spec.shape is not None else None
        for name in ("mean", "std"):
            given = self.constants.get(name)
            if given is not None and channels is not None and len(given) not in (1, channels):
                raise self.refuse(f"{name} should be one number or {channels}, got {len(given)}")
        if channels is not None and self.pad_output:
            channels = _power_of_two(channels)
        extents = {"H": height, "W": width, "C": channels}
        return TensorSpec(self.dtype, tuple(extents[name] for name in self.output_layout), self.output_layout)

    def run(self, sample: Any, image: Any, *, mirror: int, mean: Any, std: Any, **given: Any) -> Any:
        names = layout_of(self._layout, image.ndim)
        cut = self.cut_one(image, names, given)
        if mirror:
            cut = cut[tuple(slice(None, None, -1) if name == "W" else slice(None) for name in names)]
        moved = cut.transpose([names.index(name) for name in self.output_layout])
        channel = self.output_layout.index("C")
        count = moved.shape[channel]
        factor, offset = self._line(np.asarray(mean)[None], np.asarray(std)[None], count)
        shape = list(moved.shape)
        shape[channel] = _power_of_two(count) if self.pad_output else count
        if self.dtype != np.float32:
            along = [1, 1, 1]
            along[channel] = count
            values = moved.astype(np.float32) * factor.reshape(along) + offset.reshape(along)
            made = np.zeros(shape, self.dtype)
            made[tuple(slice(0, extent) for extent in moved.shape)] = saturated(np, values, self.dtype)
            return made
        made = np.zeros(shape, np.float32) if shape[channel] != count else np.empty(shape, np.float32)
        for index in range(count):
            place: list[Any] = [slice(None)] * 3
            place[channel] = index
            plane = made[tuple(place)]
            np.multiply(moved[tuple(place)], factor[0, index], out=plane)
            np.add(plane, offset[0, index], out=plane)
        return made

    def _line(self, mean: Any, std: Any, channels: int) -> tuple[Any, Any]:
        """Factor and offset of each channel, (n, channels) float32."""
        mean = np.broadcast_to(np.asarray(mean, np.float64), (len(mean), channels))
        std = np.broadcast_to(np.asarray(std, np.float64), (len(std), channels))
        if np.any(std == 0):
            raise ValueError("std should not be zero")
        factor = self.scale / std
        return factor.astype(np.float32), (self.shift - mean * factor).astype(np.float32)

    def run_arrays(self, xp: Any, images: Any, *, mirror: Any, mean: Any, std: Any, **given: Any) -> Any:
        names = layout_of(self._layout, images.ndim - 1)
        cut = self.cut_all(xp, images, names, given)
        single = np.dtype("float32")
        mirrored = xp.reshape(mirror != 0, (-1, 1, 1, 1))
        cut = xp.where(mirrored, xp.flip(cut, axis=1 + names.index("W")), cut)
        moved = xp.permute_dims(cut, (0, *(1 + names.index(name) for name in self.output_layout)))
        channel = 1 + self.output_layout.index("C")
        count = moved.shape[channel]
        mean, std = cast_to(xp, mean, single), cast_to(xp, std, single)
        factor = self.scale / xp.broadcast_to(std, (std.shape[0], count))
        offset = self.shift - mean * factor
        shape = [images.shape[0], 1, 1, 1]
        shape[channel] = count
        values = cast_to(xp, moved, single) * xp.reshape(factor, tuple(shape)) + xp.reshape(offset, tuple(shape))
        made = saturated(xp, values, self.dtype)
        if self.pad_output and (missing := _power_of_two(count) - count):
            rest = list(made.shape)
            rest[channel] = missing
            zeros = xp.zeros_like(made)[tuple(slice(0, 1) if at == channel else slice(None) for at in range(4))]
            made = xp.concat([made, xp.broadcast_to(zeros, tuple(rest))], axis=channel)
        return made


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
