"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.types import DALIDataType, DALIImageType

class Audio:
    """Decodes WAV, FLAC and OGG files: bytes → (samples, channels), and the sample rate in Hz (float32).

    `decoders.audio(files, sample_rate=16000, downmix=True)` → float32 (samples,) in [-1, 1], 16000.0

    Integer dtypes have their full range: 1.0 becomes 32767 as int16. Files of integers give those that they store,
    unless they are mixed or resampled.

    Inputs: data.
    Args:
        sample_rate: resample to this many Hz, as `audio_resample`; 0: as in the file (a number, or a data node).
            Default: 0.0.
        quality: 0 to 100: how many lobes of the sinc count, 3, 16 at 50, up to 64 (a number). Default: 50.0.
        downmix: whether channels are averaged to one, without an axis (a bool). Default: False.
        dtype: the dtype of the samples: float32, int16 or int32 (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        sample_rate: float | DataNode = 0.0,
        quality: float = 50.0,
        downmix: bool = False,
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> list[DataNode]: ...

class Image:
    """Decodes JPEG, PNG, WebP, TIFF and BMP files: bytes → HWC.

    `decoders.image(jpegs)` → uint8, (height, width, 3), turned as the Exif orientation says

    The first bytes determine the kind of file. JPEG is decoded with libjpeg-turbo, strictly: a truncated or damaged
    file is an error, never a half grey image. Of 16 bits, uint8 has the upper 8. Transparency channels are dropped,
    unless `output_type` is ANY_DATA, which keeps the file's channels. Other dtypes than uint8 have their full range:
    255 becomes 1.0 as float. YCbCr is BT.601 in studio range, as in DALI: luma from 16 to 235.

    Inputs: data.
    Args:
        output_type: the colour space of the output (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
        dtype: the dtype of the output; the range is stretched to it (a dtype such as types.FLOAT). Default: 'uint8'.
        adjust_orientation: whether images are turned as their Exif data says (a bool). Default: True.
        jpeg_fancy_upsampling: whether colours of JPEG are interpolated, or repeated (a bool). Default: True.
        use_fast_idct: whether JPEG is decoded faster and less exactly (a bool). Default: False.
        max_pixels: a larger image is an error, before it is decoded (an int). Default: 178956970.
    Places: cpu, mixed.
    """

    def __init__(
        self,
        *,
        output_type: DALIImageType | str = ...,
        dtype: DALIDataType | DTypeLike = "uint8",
        adjust_orientation: bool = True,
        jpeg_fancy_upsampling: bool = True,
        use_fast_idct: bool = False,
        max_pixels: int = 178956970,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class ImageCrop:
    """Decodes images and cuts windows out of them: `decoders.image` and `crop` in one.

    Inputs: data.
    Args:
        crop: height and width of the window, or one number for both (a number or a list of numbers, or a data node).
            Default: None.
        crop_h: the height of the window; 0 is that of the image (a number, or a data node). Default: 0.0.
        crop_w: the width of the window; 0 is that of the image (a number, or a data node). Default: 0.0.
        crop_pos_x: where it lies: 0 at the left, 1 at the right (a number, or a data node). Default: 0.5.
        crop_pos_y: where it lies: 0 at the top, 1 at the bottom (a number, or a data node). Default: 0.5.
        rounding: how a place between pixels is rounded: 'round' or 'truncate' (a str). Default: 'round'.
        out_of_bounds_policy: where the window is larger than the image: 'error', 'pad' or 'trim_to_shape' (a str).
            Default: 'error'.
        fill_values: what is padded with: one value, or one a channel (a number or a list of numbers). Default: 0.0.
        output_type: the colour space of the output (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
        dtype: the dtype of the output; the range is stretched to it (a dtype such as types.FLOAT). Default: 'uint8'.
        adjust_orientation: whether images are turned as their Exif data says (a bool). Default: True.
        jpeg_fancy_upsampling: whether colours of JPEG are interpolated, or repeated (a bool). Default: True.
        use_fast_idct: whether JPEG is decoded faster and less exactly (a bool). Default: False.
        max_pixels: a larger image is an error, before it is decoded (an int). Default: 178956970.
    Places: cpu, mixed.
    """

    def __init__(
        self,
        *,
        crop: float | Sequence[float] | DataNode | None = None,
        crop_h: float | DataNode = 0.0,
        crop_w: float | DataNode = 0.0,
        crop_pos_x: float | DataNode = 0.5,
        crop_pos_y: float | DataNode = 0.5,
        rounding: str = "round",
        out_of_bounds_policy: str = "error",
        fill_values: float | Sequence[float] = 0.0,
        output_type: DALIImageType | str = ...,
        dtype: DALIDataType | DTypeLike = "uint8",
        adjust_orientation: bool = True,
        jpeg_fancy_upsampling: bool = True,
        use_fast_idct: bool = False,
        max_pixels: int = 178956970,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class ImageRandomCrop:
    """Decodes images and cuts a window of random area and aspect ratio out of each, as `random_resized_crop` does.

    Inputs: data.
    Args:
        output_type: the colour space of the output (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
        dtype: the dtype of the output; the range is stretched to it (a dtype such as types.FLOAT). Default: 'uint8'.
        adjust_orientation: whether images are turned as their Exif data says (a bool). Default: True.
        jpeg_fancy_upsampling: whether colours of JPEG are interpolated, or repeated (a bool). Default: True.
        use_fast_idct: whether JPEG is decoded faster and less exactly (a bool). Default: False.
        max_pixels: a larger image is an error, before it is decoded (an int). Default: 178956970.
        random_area: least and largest part of the image's area (a number or a list of numbers). Default: (0.08, 1.0).
        random_aspect_ratio: least and largest width / height (a number or a list of numbers). Default: (0.75,
            1.3333333333333333).
        num_attempts: how many windows are tried (an int). Default: 10.
    Places: cpu, mixed. Draws random numbers.
    """

    def __init__(
        self,
        *,
        output_type: DALIImageType | str = ...,
        dtype: DALIDataType | DTypeLike = "uint8",
        adjust_orientation: bool = True,
        jpeg_fancy_upsampling: bool = True,
        use_fast_idct: bool = False,
        max_pixels: int = 178956970,
        random_area: float | Sequence[float] = ...,
        random_aspect_ratio: float | Sequence[float] = ...,
        num_attempts: int = 10,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
        seed: int | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class ImageSlice:
    """Decodes images and cuts windows out of them: `decoders.image` and `slice` in one.

    Inputs: data, anchor, shape_input.
    Args:
        start: where the window begins, in elements (an int or a list of ints, or a data node). Default: None.
        rel_start: where it begins, 0 to 1 (a number or a list of numbers, or a data node). Default: None.
        end: where it ends, in elements (an int or a list of ints, or a data node). Default: None.
        rel_end: where it ends, 0 to 1 (a number or a list of numbers, or a data node). Default: None.
        shape: how many elements it has (an int or a list of ints, or a data node). Default: None.
        rel_shape: which part of the extent it has (a number or a list of numbers, or a data node). Default: None.
        axes: the axes that the numbers are for (an int or a list of ints). Default: (1, 0).
        axis_names: the same by name; taken where samples have a layout with these names (a str). Default: 'WH'.
        normalized_anchor: whether an anchor of floats is relative (a bool). Default: True.
        normalized_shape: whether a shape of floats is relative (a bool). Default: True.
        out_of_bounds_policy: where it reaches beyond the sample: 'error', 'pad' or 'trim_to_shape' (a str). Default:
            'error'.
        fill_values: what is padded with: one value, or one a channel (a number or a list of numbers). Default: 0.0.
        dtype: the dtype of the output; the range is stretched to it (a dtype such as types.FLOAT). Default: 'uint8'.
        output_type: the colour space of the output (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
        adjust_orientation: whether images are turned as their Exif data says (a bool). Default: True.
        jpeg_fancy_upsampling: whether colours of JPEG are interpolated, or repeated (a bool). Default: True.
        use_fast_idct: whether JPEG is decoded faster and less exactly (a bool). Default: False.
        max_pixels: a larger image is an error, before it is decoded (an int). Default: 178956970.
    Places: cpu, mixed.
    """

    def __init__(
        self,
        *,
        start: int | Sequence[int] | DataNode | None = None,
        rel_start: float | Sequence[float] | DataNode | None = None,
        end: int | Sequence[int] | DataNode | None = None,
        rel_end: float | Sequence[float] | DataNode | None = None,
        shape: int | Sequence[int] | DataNode | None = None,
        rel_shape: float | Sequence[float] | DataNode | None = None,
        axes: int | Sequence[int] = ...,
        axis_names: str = "WH",
        normalized_anchor: bool = True,
        normalized_shape: bool = True,
        out_of_bounds_policy: str = "error",
        fill_values: float | Sequence[float] = 0.0,
        dtype: DALIDataType | DTypeLike = "uint8",
        output_type: DALIImageType | str = ...,
        adjust_orientation: bool = True,
        jpeg_fancy_upsampling: bool = True,
        use_fast_idct: bool = False,
        max_pixels: int = 178956970,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, anchor: Any = None, shape_input: Any = None, **arguments: Any) -> DataNode: ...

class Numpy:
    """Decodes `.npy` files: `decoders.numpy(files)` → their arrays. Arrays of Python objects are refused.

    Inputs: data.
    Args:
        dtype: the dtype of the output; that of the file by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...
