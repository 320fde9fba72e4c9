"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from typing import Any

from numpy.typing import DTypeLike

from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.types import DALIDataType, DALIImageType

class Audio:
    """Decodes WAV, FLAC and OGG files: bytes → (samples, channels), and the sample rate in Hz (float32).

    `decoders.audio(files, sample_rate=16000, downmix=True)` → float32 (samples,) in [-1, 1], 16000.0

    Integer dtypes have their full range: 1.0 becomes 32767 as int16.

    Inputs: data.
    Args:
        sample_rate: resample to this many Hz; 0 keeps those of the file (a number, or a data node). Default: 0.0.
        quality: taken so that graphs move over; resampling has one quality here (a number). Default: 50.0.
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
    """Decodes JPEG, PNG and WebP files: bytes → HWC.

    `decoders.image(jpegs)` → uint8, (height, width, 3), turned as the Exif orientation says

    What kind of file it is, its first bytes say. JPEG is decoded with libjpeg-turbo, strictly: a file that is cut short
    or damaged is an error, and never a half grey image. Channels of transparency are left out, unless `output_type` is
    ANY_DATA, which keeps what the file has. Other dtypes than uint8 have their full range: 255 becomes 1.0 as float.
    YCbCr is that of BT.601 in studio range, as DALI's: luma from 16 to 235.

    Inputs: data.
    Args:
        output_type: the colour space of the output (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
        dtype: the dtype of the output; the range is stretched to it (a dtype such as types.FLOAT). Default: 'uint8'.
        adjust_orientation: whether images are turned as their Exif data says (a bool). Default: True.
        jpeg_fancy_upsampling: whether colours of JPEG are interpolated, or repeated (a bool). Default: True.
        use_fast_idct: whether JPEG is decoded faster and less exactly (a bool). Default: False.
        hw_decoder_load: taken so that graphs move over; it changes nothing here (a number). Default: 0.65.
        hybrid_huffman_threshold: taken so that graphs move over; it changes nothing here (an int). Default: 1000000.
        device_memory_padding: taken so that graphs move over; it changes nothing here (an int). Default: 16777216.
        host_memory_padding: taken so that graphs move over; it changes nothing here (an int). Default: 8388608.
        preallocate_width_hint: taken so that graphs move over; it changes nothing here (an int). Default: 0.
        preallocate_height_hint: taken so that graphs move over; it changes nothing here (an int). Default: 0.
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
        hw_decoder_load: float = 0.65,
        hybrid_huffman_threshold: int = 1000000,
        device_memory_padding: int = 16777216,
        host_memory_padding: int = 8388608,
        preallocate_width_hint: int = 0,
        preallocate_height_hint: int = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

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
