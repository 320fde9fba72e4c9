"""`fn.decoders.image`: the bytes of image files as pixels; `image_crop`, `image_slice`, `image_random_crop`:
windows of them, and `peek_image_shape`: their shape.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from beam_pipes.graph.operator import Constant, Device, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given, Value
from beam_pipes.graph.types import DALIImageType
from beam_pipes.transforms.image_files import MAX_PIXELS, decode, shape_of
from beam_pipes.transforms.operators.image.affine import with_size
from beam_pipes.transforms.operators.image.crops import Cropping
from beam_pipes.transforms.operators.image.resize import RandomResizedCrop, random_window
from beam_pipes.transforms.operators.slicing import Slice

CHANNELS = {DALIImageType.RGB: 3, DALIImageType.BGR: 3, DALIImageType.YCbCr: 3, DALIImageType.GRAY: 1}
_SPACES = {DALIImageType.BGR: "BGR", DALIImageType.GRAY: "GRAY", DALIImageType.ANY_DATA: "ANY"}
# RGB to luma and chroma in the studio range of BT.601: luma 16 to 235, chroma 16 to 240 with 128 for grey.
_LUMA = np.array([0.299, 0.587, 0.114])
_BLUE, _RED = (np.array([0.0, 0.0, 1.0]) - _LUMA) / 1.772, (np.array([1.0, 0.0, 0.0]) - _LUMA) / 1.402
YCBCR = np.stack([_LUMA * 219, _BLUE * 224, _RED * 224]) / 255


class Image(Operator):
    """Decodes JPEG, PNG, WebP, TIFF and BMP files: bytes → HWC.

    `decoders.image(jpegs)` → uint8, (height, width, 3), turned as the Exif orientation says

    The first bytes determine the kind of file. JPEG is decoded with libjpeg-turbo, strictly: a truncated or damaged
    file is an error, never a half grey image. Of 16 bits, uint8 has the upper 8. Transparency channels are dropped,
    unless `output_type` is ANY_DATA, which keeps the file's channels. Other dtypes than uint8 have their full range:
    255 becomes 1.0 as float. YCbCr is BT.601 in studio range, as in DALI: luma from 16 to 235.
    """

    inputs: ClassVar[tuple[str, ...]] = ("data",)
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "mixed")
    version = "3"
    without_effect = (
        *(*Operator.without_effect, "affine", "cache_batch_copy", "cache_debug", "cache_size", "cache_threshold"),
        *("cache_type", "device_memory_padding", "device_memory_padding_jpeg2k", "host_memory_padding", "memory_stats"),
        *("host_memory_padding_jpeg2k", "hw_decoder_load", "hybrid_huffman_threshold", "preallocate_height_hint"),
        *("preallocate_width_hint", "split_stages", "use_chunk_allocator"),
    )
    output_type = Constant(DALIImageType, default=DALIImageType.RGB, doc="the colour space of the output")
    dtype = Constant("dtype", default="uint8", doc="the dtype of the output; the range is stretched to it")
    adjust_orientation = Constant("bool", default=True, doc="whether images are turned as their Exif data says")
    jpeg_fancy_upsampling = Constant("bool", default=True, doc="whether colours of JPEG are interpolated, or repeated")
    use_fast_idct = Constant("bool", default=False, doc="whether JPEG is decoded faster and less exactly")
    max_pixels = Constant("int", default=MAX_PIXELS, doc="a larger image is an error, before it is decoded")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self.expect(inputs[0], "the bytes of files, uint8[·]", ranks=[1], dtype="uint8")
        return TensorSpec(self.dtype, (None, None, CHANNELS.get(self.output_type)), "HWC")

    def run(self, sample: Sample, data: Array) -> Array:
        return in_full_range(self.decoded(np.ascontiguousarray(data).data), self.dtype)

    def decoded(self, data: memoryview) -> Array:
        """(height, width, channels) uint8, or uint16 if the file has 16 bits and `dtype` more than 8. Raises
        `ValueError` for invalid bytes.
        """
        kind = self.output_type
        image: Array = decode(
            data,
            space=_SPACES.get(kind, "RGB"),
            upright=self.adjust_orientation,
            max_pixels=self.max_pixels,
            deep=self.dtype != np.uint8,
            fast_idct=self.use_fast_idct,
            fast_upsampling=not self.jpeg_fancy_upsampling,
        )
        return to_ycbcr(image) if kind == DALIImageType.YCbCr else image


class ImageCrop(Image, Cropping):
    """Decodes images and cuts windows out of them: `decoders.image` and `crop` in one."""

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = super().infer(*inputs)
        return with_size(spec, "HWC", *self.prepare(spec), self.dtype)

    def run(self, sample: Sample, data: Array, **given: Given) -> Array:
        return self.cut_one(super().run(sample, data), "HWC", given)


class ImageSlice(Image, Slice):
    """Decodes images and cuts windows out of them: `decoders.image` and `slice` in one."""

    devices: ClassVar[tuple[Device, ...]] = ("cpu", "mixed")
    inputs = Slice.inputs
    rounds_by_place = True

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return Slice.infer(self, super().infer(*inputs), *inputs[1:])

    def run(  # type: ignore[override]
        self, sample: Sample, data: Array, *windows: Array, **given: Given
    ) -> Value:
        return Slice.run(self, sample, super().run(sample, data), *windows, **given)


class ImageRandomCrop(Image):
    """Decodes images and cuts a window of random area and aspect ratio out of each, as `random_resized_crop` does."""

    random = True
    random_area, random_aspect_ratio = RandomResizedCrop.random_area, RandomResizedCrop.random_aspect_ratio
    num_attempts = RandomResizedCrop.num_attempts

    def run(self, sample: Sample, data: Array) -> Array:
        image = super().run(sample, data)
        draws = sample.uniform(4 * self.num_attempts).reshape(-1, 4)
        top, left, height, width = random_window(self, image.shape[0], image.shape[1], draws)
        return image[top : top + height, left : left + width]


class PeekImageShape(Operator):
    """Height, width and channels of `decoders.image`, read from the header of the file: → `[375, 500, 3]`."""

    inputs = ("data",)
    adjust_orientation = Image.adjust_orientation
    image_type = Constant(DALIImageType, default=DALIImageType.RGB, doc="the colour space of the output")
    dtype = Constant("dtype", default="int64", doc="the dtype of the output")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.dtype, (3,))

    def run(self, sample: Sample, data: Array) -> Array:
        height, width, channels = shape_of(data.data, upright=self.adjust_orientation)
        return np.array([height, width, CHANNELS.get(self.image_type, channels)], self.dtype)


def to_ycbcr(image: Array) -> Array:
    """RGB as YCbCr of BT.601, uint8 and uint16 alike: white is (235, 128, 128), black (16, 128, 128)."""
    wider = (int(np.iinfo(image.dtype).max) + 1) // 256
    limits = np.array([16, 128, 128]) * wider
    colours = image.astype(np.float32) @ (YCBCR.T * (wider * 255 / np.iinfo(image.dtype).max)).astype(np.float32)
    made: Array = np.floor(colours + (limits + 0.5).astype(np.float32)).astype(image.dtype)
    return made


def in_full_range(image: Array, dtype: np.dtype) -> Array:
    """Pixels of uint8 or uint16 as another dtype, the range of one stretched to that of the other."""
    if image.dtype == dtype:
        return image
    most = float(np.iinfo(image.dtype).max)
    if dtype.kind == "f":
        made: Array = (image.astype(np.float32) * np.float32(1 / most)).astype(dtype)
        return made
    made = np.floor(image * (float(np.iinfo(dtype).max) / most) + 0.5).astype(dtype)
    return made
