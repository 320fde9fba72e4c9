"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import DTypeLike

from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.types import DALIDataType, DALIImageType, DALIInterpType
from beam_pipes.transforms.ops import decoders as decoders
from beam_pipes.transforms.ops import experimental as experimental
from beam_pipes.transforms.ops import io as io
from beam_pipes.transforms.ops import math as math
from beam_pipes.transforms.ops import noise as noise
from beam_pipes.transforms.ops import random as random
from beam_pipes.transforms.ops import readers as readers
from beam_pipes.transforms.ops import reductions as reductions
from beam_pipes.transforms.ops import transforms as transforms
from beam_pipes.transforms.ops.random import CoinFlip as CoinFlip
from beam_pipes.transforms.ops.random import Uniform as Uniform

class AudioResample:
    """Waves, (samples,) or (samples, channels), at another rate: `audio_resample(wave, in_rate=44100, out_rate=16000)`.

    Uses a sinc under a Hann window, as DALI does: frequencies above half of a lower rate are not filtered out first.

    Inputs: data.
    Args:
        in_rate: the rate of the wave (a number, or a data node). Default: None.
        out_rate: the rate that it gets, in the same unit (a number, or a data node). Default: None.
        scale: how many samples there are for each one, instead of two rates (a number, or a data node). Default: None.
        out_length: how many samples there are, instead of rates or a scale (an int, or a data node). Default: None.
        quality: 0 to 100: how many lobes of the sinc count, 3, 16 at 50, up to 64 (a number). Default: 50.0.
        dtype: the dtype of the output, in its full range; the input's by default (a dtype such as types.FLOAT).
            Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        in_rate: float | DataNode | None = None,
        out_rate: float | DataNode | None = None,
        scale: float | DataNode | None = None,
        out_length: int | DataNode | None = None,
        quality: float = 50.0,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class BBoxPaste:
    """Boxes where `paste` puts their image on a canvas `ratio` times as large: `bbox_paste([[0, 0, 1, 1]], ratio=2)` →
    `[[0.25, 0.25, 0.5, 0.5]]`.

    Inputs: boxes.
    Args:
        ltrb: whether boxes are two corners, or left, top, width, height (a bool). Default: False.
        ratio: size of the canvas by that of the image, at least 1 (a number, or a data node).
        paste_x: where the image lies: 0 at the left, 1 at the right (a number, or a data node). Default: 0.5.
        paste_y: where the image lies: 0 at the top, 1 at the bottom (a number, or a data node). Default: 0.5.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        ratio: float | DataNode = ...,
        ltrb: bool = False,
        paste_x: float | DataNode = 0.5,
        paste_y: float | DataNode = 0.5,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, boxes: Any, **arguments: Any) -> DataNode: ...

class BatchPermutation:
    """For each sample, the number of a sample of the batch, for `permute_batch`: `batch_permutation()` → `2, 0, 1`.

    The permutation depends on the records of the batch and the seed.

    Args:
        allow_repetitions: whether a sample may occur more than once (a bool). Default: False.
        no_fixed_points: whether no sample gets its own number (a bool). Default: False.
    Places: cpu. Draws random numbers.
    """

    def __init__(
        self,
        *,
        allow_repetitions: bool = False,
        no_fixed_points: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
        seed: int | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> DataNode: ...

class BbFlip:
    """Mirrors boxes: `bb_flip([[0.1, 0.2, 0.3, 0.4]])` → `[[0.6, 0.2, 0.3, 0.4]]` (left, top, width, height).

    Inputs: boxes.
    Args:
        ltrb: whether boxes are two corners, or left, top, width, height (a bool). Default: False.
        horizontal: mirrors left and right where it is not 0 (an int, or a data node). Default: 1.
        vertical: mirrors top and bottom where it is not 0 (an int, or a data node). Default: 0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        ltrb: bool = False,
        horizontal: int | DataNode = 1,
        vertical: int | DataNode = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, boxes: Any, **arguments: Any) -> DataNode: ...

class Brightness:
    """`brightness_shift * range + brightness * x`: `brightness([200, 100, 50], brightness=0.5)` → `[100, 50, 25]`.

    Inputs: images.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
        brightness: factor of the brightness: 0 is black, 2 twice as bright (a number, or a data node). Default: 1.0.
        brightness_shift: what is added, in parts of the output's range (a number, or a data node). Default: 0.0.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        brightness: float | DataNode = 1.0,
        brightness_shift: float | DataNode = 0.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class BrightnessContrast:
    """`brightness_shift * range + brightness * (centre + contrast * (x - centre))`, of every element.

    `brightness_contrast([200, 100, 50], contrast=0.5)` → `[164, 114, 89]` (uint8: the centre is 128)

    `range` is the largest value of the output's dtype (255 for uint8, 1 for floats). The centre is half the range of
    the input's dtype unless `contrast_center` is given.

    Inputs: images.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
        brightness: factor of the brightness: 0 is black, 2 twice as bright (a number, or a data node). Default: 1.0.
        brightness_shift: what is added, in parts of the output's range (a number, or a data node). Default: 0.0.
        contrast: factor of the contrast: 0 is uniform grey (a number, or a data node). Default: 1.0.
        contrast_center: what contrast leaves as it is, in the input's units (a number, or a data node). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        brightness: float | DataNode = 1.0,
        brightness_shift: float | DataNode = 0.0,
        contrast: float | DataNode = 1.0,
        contrast_center: float | DataNode | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Cast:
    """Converts samples to another dtype: fractions are rounded, and values that do not fit are clamped.

    `cast([-3, 0.5, 2.4, 300], dtype=types.UINT8)` → `[0, 1, 2, 255]`

    Inputs: data.
    Args:
        dtype: the dtype to convert to (a dtype such as types.FLOAT).
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class CastLike:
    """Converts samples to the dtype of another input, as `cast` does: `cast_like([1.5, 300], uint8)` → `[2, 255]`.

    Inputs: data, dtype_like.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, dtype_like: Any, **arguments: Any) -> DataNode: ...

class Cat:
    """Joins samples along an existing axis.

    `cat([1, 2], [3])` → `[1, 2, 3]`

    Inputs: input ….
    Args:
        axis: along which axis (an int). Default: 0.
        axis_name: the same by its name in the layout (a str). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        axis: int = 0,
        axis_name: str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, *input: Any, **arguments: Any) -> DataNode: ...

class ColorSpaceConversion:
    """Images (uint8, channels last) in another colour space.

    `color_space_conversion([[[200, 100, 50]]], image_type=types.RGB, output_type=types.GRAY)` → `[[[124]]]`

    Inputs: images.
    Args:
        image_type: what the images are (one of types.RGB, types.BGR, types.GRAY, types.YCbCr, types.ANY_DATA).
        output_type: what they become; YCbCr is that of BT.601, luma from 16 to 235 (one of types.RGB, types.BGR,
            types.GRAY, types.YCbCr, types.ANY_DATA).
    Places: cpu.
    """

    def __init__(
        self,
        *,
        image_type: DALIImageType | str = ...,
        output_type: DALIImageType | str = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class ColorTwist:
    """Changes hue, saturation, brightness and contrast of RGB images (channels last).

    `color_twist([[[200, 100, 50]]], saturation=0.5)` → `[[[162, 112, 87]]]`

    Contrast is relative to half the range of the dtype.

    Inputs: images.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
        hue: degrees (a number, or a data node). Default: 0.0.
        saturation: 0 is grey, 1 changes nothing (a number, or a data node). Default: 1.0.
        brightness: 0 is black, 2 twice as bright (a number, or a data node). Default: 1.0.
        contrast: 0 is uniform grey, 1 changes nothing (a number, or a data node). Default: 1.0.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        hue: float | DataNode = 0.0,
        saturation: float | DataNode = 1.0,
        brightness: float | DataNode = 1.0,
        contrast: float | DataNode = 1.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Contrast:
    """`centre + contrast * (x - centre)`: `contrast([200, 100, 50], contrast=0.5)` → `[164, 114, 89]`.

    Inputs: images.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
        contrast: factor of the contrast: 0 is uniform grey (a number, or a data node). Default: 1.0.
        contrast_center: what contrast leaves as it is, in the input's units (a number, or a data node). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        contrast: float | DataNode = 1.0,
        contrast_center: float | DataNode | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class CoordFlip:
    """Mirrors points about a centre: `coord_flip([[0.25, 1]])` → `[[0.75, 1]]`.

    Inputs: data.
    Args:
        layout: which coordinate is which: xy, or xyz for three, by default (a str). Default: None.
        flip_x: mirrors x where it is not 0 (an int, or a data node). Default: 1.
        flip_y: mirrors y where it is not 0 (an int, or a data node). Default: 0.
        flip_z: mirrors z where it is not 0 (an int, or a data node). Default: 0.
        center_x: where x is mirrored at (a number, or a data node). Default: 0.5.
        center_y: where y is mirrored at (a number, or a data node). Default: 0.5.
        center_z: where z is mirrored at (a number, or a data node). Default: 0.5.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        layout: str | None = None,
        flip_x: int | DataNode = 1,
        flip_y: int | DataNode = 0,
        flip_z: int | DataNode = 0,
        center_x: float | DataNode = 0.5,
        center_y: float | DataNode = 0.5,
        center_z: float | DataNode = 0.5,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class CoordTransform:
    """`M @ x + T` for every point: (…, d) → (…, e).

    `coord_transform([[1, 2]], M=(1, 0, 0, 2), T=(10, 20))` → `[[11, 24]]`; `MT` is both, as returned by `transforms.*`.

    Inputs: data.
    Args:
        M: a matrix row by row, or a number: a factor of all coordinates (numbers, or rows of them, or a data node).
            Default: None.
        T: what is added (a number or a list of numbers, or a data node). Default: None.
        MT: matrix and what is added, as rows of d + 1 numbers (numbers, or rows of them, or a data node). Default:
            None.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        M: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        T: float | Sequence[float] | DataNode | None = None,
        MT: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Copy:
    """A copy of the samples: `copy([1, 2])` → `[1, 2]`.

    Inputs: data.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Crop:
    """Cuts a window out of images (HWC, HW, or of any layout with H and W).

    `crop(images, crop=(224, 224), crop_pos_x=0.0)` → the 224×224 at the left edge, vertically centred

    Inputs: images.
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
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu, gpu.
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
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class CropMirrorNormalize:
    """`scale * (x - mean) / std + shift` of a window of each image, mirrored where `mirror` is not zero.

        crop_mirror_normalize(images, crop=(224, 224), mean=[124, 116, 104], std=[58, 57, 57])  →  float32, CHW

    Without a window size, the whole image is used. `pad_output` adds channels of zeros up to a power of two.

    Inputs: images.
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
        mirror: mirrors left and right where it is not zero (an int, or a data node). Default: 0.
        mean: what is taken off: one number, or one a channel (a number or a list of numbers, or a data node). Default:
            0.0.
        std: what is divided by: one number, or one a channel (a number or a list of numbers, or a data node). Default:
            1.0.
        scale: a factor of the result (a number). Default: 1.0.
        shift: what is added to the result (a number). Default: 0.0.
        output_layout: the order of the axes of the output (a str). Default: 'CHW'.
        pad_output: whether channels are filled up to a power of two (a bool). Default: False.
        dtype: the dtype of the result; integers are rounded and held in range (a dtype such as types.FLOAT). Default:
            'float32'.
    Places: cpu, gpu.
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
        mirror: int | DataNode = 0,
        mean: float | Sequence[float] | DataNode = 0.0,
        std: float | Sequence[float] | DataNode = 1.0,
        scale: float = 1.0,
        shift: float = 0.0,
        output_layout: str = "CHW",
        pad_output: bool = False,
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class ElementExtract:
    """Elements along the first axis, one per output: `element_extract([[1, 2], [3, 4]], element_map=[1, 0])` → `[3, 4]`
    and `[1, 2]`.

    Inputs: data.
    Args:
        element_map: which elements are taken, counted from 0 (an int or a list of ints).
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        element_map: int | Sequence[int] = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> Any: ...

class Erase:
    """Fills boxes of samples: `erase([[1, 2, 3]], anchor=[1], shape=[2], axes=[1])` → `[[1, 0, 0]]`.

    Numbers are in the order of the axes, box after box; by default all axes but channels.

    Inputs: data.
    Args:
        anchor: where boxes begin; at 0 by default (numbers, or rows of them, or a data node). Default: None.
        shape: how large they are (numbers, or rows of them, or a data node). Default: None.
        axis_names: the axes that the numbers are for, by name: HW by default (a str). Default: None.
        axes: the same by number (an int or a list of ints). Default: None.
        fill_value: what is filled in: one value, or one a channel (a number or a list of numbers, or a data node).
            Default: 0.0.
        normalized: whether numbers are parts of the extents, not elements (a bool). Default: False.
        normalized_anchor: the same for anchor alone (a bool). Default: False.
        normalized_shape: the same for shape alone (a bool). Default: False.
        centered_anchor: whether anchors are the middles of boxes (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        anchor: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        shape: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        axis_names: str | None = None,
        axes: int | Sequence[int] | None = None,
        fill_value: float | Sequence[float] | DataNode = 0.0,
        normalized: bool = False,
        normalized_anchor: bool = False,
        normalized_shape: bool = False,
        centered_anchor: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class ExpandDims:
    """Inserts axes of extent 1 at `axes` of the output: `expand_dims([1, 2], axes=[0, 2])` → `[[[1], [2]]]`.

    Inputs: data.
    Args:
        axes: where the new axes are in the output (an int or a list of ints).
        new_axis_names: their names, where samples have a layout (a str). Default: ''.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] = ...,
        new_axis_names: str = "",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class ExternalSource:
    """Samples from Python code.

    `source` is one of

    - a callable: called for each batch, with nothing or the number of the batch in its epoch (`batch_info=True`: a
      `BatchInfo`); or, with `batch=False`, for each sample with its `SampleInfo`. It ends an epoch by raising
      `StopIteration`. A source that depends only on the info can be resumed anywhere;
    - an iterable or a generator function: of batches, or with `batch=False` of samples. It is iterated once per epoch;
      a generator lasts for one epoch, an object whose `__iter__` restarts and returns itself for all;
    - nothing: then batches are pushed, `pipe.feed_input(name, batch)`, and one is taken for each run. A loop over an
      iterator takes the waiting ones.

    A batch is an array with a leading axis, or a list of arrays; with `num_outputs`, a tuple of that many batches.

        external_source(lambda info: np.float32(info.idx_in_epoch), batch=False)  →  0.0, 1.0, 2.0, …

    Args:
        source: what gives the data; None where it is pushed (any value). Default: None.
        num_outputs: how many data nodes it gives, as a list; one node by default (an int). Default: None.
        cycle: at the end of the data: 'raise' ends the epoch with StopIteration and begins again after it, 'quiet'
            begins again at once, 'no' needs a reset in between (any value). Default: None.
        batch: whether `source` gives batches or samples (a bool). Default: True.
        batch_info: whether a callable of batches is told a BatchInfo (a bool). Default: False.
        repeat_last: whether a pushed batch is given again where no other waits (a bool). Default: False.
        parallel: accepted as DALI's: iterators make batches ahead in any case (a bool). Default: False.
        no_copy: accepted as DALI's: what the source gives is copied in any case (a bool). Default: False.
        prefetch_queue_depth: accepted as DALI's: the pipeline's own decides (an int). Default: 1.
        layout: names of the axes, such as 'HWC'; one, or one for each output (a str or a list of str). Default: None.
        dtype: the dtype of the samples, checked; one, or a list with one an output (any value). Default: None.
        ndim: the rank of the samples, checked; one, or one for each output (an int or a list of ints). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        source: Any = None,
        num_outputs: int | None = None,
        *,
        cycle: Any = None,
        batch: bool = True,
        batch_info: bool = False,
        repeat_last: bool = False,
        parallel: bool = False,
        no_copy: bool = False,
        prefetch_queue_depth: int = 1,
        layout: str | Sequence[str] | None = None,
        dtype: Any = None,
        ndim: int | Sequence[int] | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...

class Flip:
    """Mirrors images (HWC, HW, or of any layout with H and W) where `horizontal` or `vertical` is not zero.

    `flip([[1, 2], [3, 4]], horizontal=1)` → `[[2, 1], [4, 3]]`

    Inputs: images.
    Args:
        horizontal: mirrors left and right (an int, or a data node). Default: 1.
        vertical: mirrors top and bottom (an int, or a data node). Default: 0.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        horizontal: int | DataNode = 1,
        vertical: int | DataNode = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Full:
    """Samples of `shape` that are `fill_value` everywhere: `full(7, shape=[2])` → `[7, 7]`; it may be an array of the
    last extents: `full([1, 2], shape=[3, 2])`.

    Inputs: fill_value.
    Args:
        shape: the shape of each sample; that of the value by default (an int or a list of ints, or a data node).
            Default: None.
        layout: names of the axes (a str). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        shape: int | Sequence[int] | DataNode | None = None,
        layout: str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, fill_value: Any, **arguments: Any) -> DataNode: ...

class FullLike:
    """Samples of the shape and dtype of `data` that are `fill_value`: `full_like([[1], [2]], 7)` → `[[7], [7]]`.

    Inputs: data, fill_value.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, fill_value: Any, **arguments: Any) -> DataNode: ...

class GaussianBlur:
    """Blurs images with a Gaussian window; beyond the edge they are mirrored about their first and last pixels.

    `gaussian_blur(images, sigma=1)`: by a window of 7 pixels, as it reaches three deviations, rounded up, to each side

    Inputs: images.
    Args:
        sigma: the deviation in pixels, or (height, width); 0: as window_size says (a number or a list of numbers, or a
            data node). Default: 0.0.
        window_size: an odd number of pixels, or (height, width); 0: as sigma says (an int or a list of ints, or a data
            node). Default: 0.
        dtype: float32; the dtype of the input by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        sigma: float | Sequence[float] | DataNode = 0.0,
        window_size: int | Sequence[int] | DataNode = 0,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class GetProperty:
    """A property of samples, as bytes: the record that they come from, or their layout.

    `get_property(images, key="layout")` → the bytes of "HWC"

    Inputs: data.
    Args:
        key: 'source_info', such as cats/1.jpg@0, or 'layout' (a str).
    Places: cpu.
    """

    def __init__(
        self,
        *,
        key: str = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class GridMask:
    """Fills the squares of a grid with 0: `grid_mask([[1, 1, 1, 1]], tile=2, ratio=0.5)` → `[[0, 1, 0, 1]]`.

    Inputs: images.
    Args:
        tile: pixels from one square to the next (an int, or a data node). Default: 100.
        ratio: width of a square by that of a tile (a number, or a data node). Default: 0.5.
        angle: radians by which the grid is turned (a number, or a data node). Default: 0.0.
        shift_x: pixels by which it is moved to the right (a number, or a data node). Default: 0.0.
        shift_y: pixels by which it is moved down (a number, or a data node). Default: 0.0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        tile: int | DataNode = 100,
        ratio: float | DataNode = 0.5,
        angle: float | DataNode = 0.0,
        shift_x: float | DataNode = 0.0,
        shift_y: float | DataNode = 0.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Hsv:
    """Changes hue, saturation and value of RGB images: `hsv([[[200, 100, 50]]], value=0.5)` → `[[[100, 50, 25]]]`.

    Inputs: images.
    Args:
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'uint8'.
        hue: degrees (a number, or a data node). Default: 0.0.
        saturation: 0 is grey, 1 changes nothing (a number, or a data node). Default: 1.0.
        value: 0 is black, 2 twice as bright (a number, or a data node). Default: 1.0.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike = "uint8",
        hue: float | DataNode = 0.0,
        saturation: float | DataNode = 1.0,
        value: float | DataNode = 1.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Hue:
    """Turns the hue of RGB images: `hue([[[200, 100, 50]]], hue=30)` → `[[[169, 127, 0]]]`.

    Inputs: images.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
        hue: degrees (a number, or a data node). Default: 0.0.
        image_type: taken so that graphs move over: it is RGB (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        hue: float | DataNode = 0.0,
        image_type: DALIImageType | str = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class JpegCompressionDistortion:
    """RGB images (uint8) after compression as JPEG: `jpeg_compression_distortion(images, quality=20)`.

    Inputs: images.
    Args:
        quality: of JPEG, 1 to 100 (an int, or a data node). Default: 50.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        quality: int | DataNode = 50,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class LookupTable:
    """Replaces each integer by the value of its key: `lookup_table([1, 3, 9], keys=[1, 3], values=[10, 30])` →
    `[10, 30, 0]`.

    Inputs: data.
    Args:
        keys: integers from 0 to 65535 (an int or a list of ints). Default: ().
        values: what they are replaced by (a number or a list of numbers). Default: ().
        default_value: what all other integers are replaced by (a number). Default: 0.0.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        keys: int | Sequence[int] = ...,
        values: float | Sequence[float] = ...,
        default_value: float = 0.0,
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class MFCC:
    """Cepstral coefficients of a spectrogram in decibels: its cosine transform, (bins, …) → (n_mfcc, …) float32.

    `mfcc(fn.to_decibels(fn.mel_filter_bank(spectrogram)), n_mfcc=13)`

    Inputs: spectrogram.
    Args:
        n_mfcc: how many coefficients, at most as many as there are bins (an int). Default: 20.
        dct_type: 1 to 4: which cosine transform (an int). Default: 2.
        normalize: whether its basis is orthonormal; not for type 1 (a bool). Default: False.
        lifter: coefficient i is multiplied by 1 + lifter / 2 sin(π (i + 1) / lifter); 0: by 1 (a number). Default: 0.0.
        axis: where the bins are (an int). Default: 0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        n_mfcc: int = 20,
        dct_type: int = 2,
        normalize: bool = False,
        lifter: float = 0.0,
        axis: int = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, spectrogram: Any, **arguments: Any) -> DataNode: ...

class MelFilterBank:
    """Sums the frequencies of a spectrogram under triangular filters, equally wide in mels: (bins, …) → (nfilter,
    …).

    `mel_filter_bank(fn.spectrogram(wave, nfft=512), nfilter=80, sample_rate=16000)` → (80, frames) float32

    With `normalize` each filter has unit area in Hz. A filter without a bin gives zeros.

    Inputs: spectrogram.
    Args:
        nfilter: how many filters (an int). Default: 128.
        sample_rate: of the wave, in Hz (a number). Default: 44100.0.
        freq_low: where the first filter begins, in Hz (a number). Default: 0.0.
        freq_high: where the last one ends, in Hz; 0 is half the sample rate (a number). Default: 0.0.
        normalize: whether filters have unit area, instead of a peak of 1 (a bool). Default: True.
        mel_formula: 'slaney' or 'htk' (a str). Default: 'slaney'.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        nfilter: int = 128,
        sample_rate: float = 44100.0,
        freq_low: float = 0.0,
        freq_high: float = 0.0,
        normalize: bool = True,
        mel_formula: str = "slaney",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, spectrogram: Any, **arguments: Any) -> DataNode: ...

class MultiPaste:
    """Pastes regions of several images (HWC) on a black canvas, later ones over earlier ones.

    `multi_paste(images, in_ids=[2, 0], output_size=(480, 640))`: images 2 and 0 of the batch, on each canvas;
    `multi_paste(left, right, output_size=(480, 640))`: a sample of each input. Anchors and shapes are rows of (height,
    width), one for each region, in pixels, or with `_rel` as parts of the image or the canvas. Regions have to lie
    within their image and within the canvas.

    Inputs: images ….
    Args:
        in_ids: the samples of the batch that are pasted; each input's own by default (an int or a list of ints, or a
            data node). Default: None.
        output_size: height and width of the canvas; those of the images by default (an int or a list of ints, or a data
            node). Default: None.
        in_anchors: where regions begin in their images; at 0 by default (numbers, or rows of them, or a data node).
            Default: None.
        in_anchors_rel: the same as parts of the image, rounded down (numbers, or rows of them, or a data node).
            Default: None.
        shapes: how large regions are; up to the end of the image by default (numbers, or rows of them, or a data node).
            Default: None.
        shapes_rel: the same as parts of the image, rounded up (numbers, or rows of them, or a data node). Default:
            None.
        out_anchors: where regions go on the canvas; to 0 by default (numbers, or rows of them, or a data node).
            Default: None.
        out_anchors_rel: the same as parts of the canvas, rounded down (numbers, or rows of them, or a data node).
            Default: None.
        dtype: the dtype of the output; that of the images by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        in_ids: int | Sequence[int] | DataNode | None = None,
        output_size: int | Sequence[int] | DataNode | None = None,
        in_anchors: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        in_anchors_rel: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        shapes: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        shapes_rel: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        out_anchors: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        out_anchors_rel: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, *images: Any, **arguments: Any) -> DataNode: ...

class NonsilentRegion:
    """The start and length of the sound, as int32 scalars: `nonsilent_region(wave)` → `51, 99`.

    Windows whose mean square is `cutoff_db` below the reference are silent. Silence gives `0, 0`.

    Inputs: wave.
    Args:
        cutoff_db: what is less, in dB, is silent (a number, or a data node). Default: -60.0.
        window_length: samples of a window, at most those of the wave (an int, or a data node). Default: 2048.
        reference_power: the mean square that is 0 dB; 0: the highest of the wave (a number, or a data node). Default:
            0.0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        cutoff_db: float | DataNode = -60.0,
        window_length: int | DataNode = 2048,
        reference_power: float | DataNode = 0.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, wave: Any, **arguments: Any) -> list[DataNode]: ...

class Normalize:
    """`scale * (x - mean) / stddev + shift`, in float32.

    `normalize([[1, 2, 3], [4, 5, 9]], axes=[0])` → `[[-1, -1, -1], [1, 1, 1]]`

    Mean and deviation are those of each sample over `axes` (all by default), or of the whole batch with `batch`, unless
    given as one number, or as one for each element along the axis that is not in `axes`. The deviation is computed
    about a given mean. If the deviation is zero, the result is `shift`.

    Inputs: data.
    Args:
        axes: the axes that mean and deviation are taken over; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        batch: whether they are taken over all samples of the batch together (a bool). Default: False.
        mean: the mean; computed by default (a number or a list of numbers, or a data node). Default: None.
        stddev: the standard deviation; computed by default (a number or a list of numbers, or a data node). Default:
            None.
        ddof: the variance is divided by the number of elements less this (an int). Default: 0.
        epsilon: added to the variance (a number). Default: 0.0.
        scale: the deviation of the result (a number). Default: 1.0.
        shift: the mean of the result (a number). Default: 0.0.
        dtype: the dtype of the result; integers are rounded and held in range (a dtype such as types.FLOAT). Default:
            'float32'.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        batch: bool = False,
        mean: float | Sequence[float] | DataNode | None = None,
        stddev: float | Sequence[float] | DataNode | None = None,
        ddof: int = 0,
        epsilon: float = 0.0,
        scale: float = 1.0,
        shift: float = 0.0,
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class OneHot:
    """A new axis of `num_classes`, `on_value` at the class and `off_value` elsewhere.

    `one_hot(1, num_classes=3)` → `[0.0, 1.0, 0.0]`

    A number that is not a class gives `off_value` everywhere. A sample of shape (1,) counts as a scalar.

    Inputs: data.
    Args:
        num_classes: how many classes there are (an int). Default: 0.
        axis: where the new axis stands in the output (an int). Default: -1.
        axis_name: its name, one letter: the output then has a layout (a str). Default: None.
        on_value: what stands at the class (a number). Default: 1.0.
        off_value: what stands elsewhere (a number). Default: 0.0.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        num_classes: int = 0,
        axis: int = -1,
        axis_name: str | None = None,
        on_value: float = 1.0,
        off_value: float = 0.0,
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Ones:
    """Samples of `shape` that are 1 everywhere: `ones(shape=[2])` → `[1, 1]`.

    Args:
        shape: the shape of each sample; that of the value by default (an int or a list of ints, or a data node).
            Default: None.
        layout: names of the axes (a str). Default: None.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'int32'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        shape: int | Sequence[int] | DataNode | None = None,
        layout: str | None = None,
        dtype: DALIDataType | DTypeLike = "int32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> DataNode: ...

class OnesLike:
    """Samples of the shape of `data` that are 1 everywhere: `ones_like([[5], [6]])` → `[[1], [1]]`.

    Inputs: data.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
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

class Pack:
    """Packs the sequences of a batch into rows of `length`: tokens, segments, positions.

        pack([[7, 8], [5], [1, 2, 3]], length=4)
          → tokens     [[7, 8, 5, 0], [1, 2, 3, 0], [0, 0, 0, 0]]
            segments   [[1, 1, 2, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
            positions  [[0, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0]]

    A batch has as many rows as sequences; unused ones are at its end and empty (segment 0 everywhere). Segments count
    from 1 within each row. To pack over a whole data set with almost no waste, plan it from the cache's index
    (`beam_pipes.loader`) instead.

    Inputs: sequences.
    Args:
        length: tokens of a row (an int).
        method: 'first_fit' keeps the order of rows, 'best_fit' wastes less (a str). Default: 'first_fit'.
        truncate: whether sequences longer than a row are cut (a bool). Default: False.
        pad_value: what fills the rest of a row (an int). Default: 0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        length: int = ...,
        method: str = "first_fit",
        truncate: bool = False,
        pad_value: int = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, sequences: Any, **arguments: Any) -> list[DataNode]: ...

class Pad:
    """Pads samples at the end of `axes` to the largest extent of the batch, or to `shape`, a multiple of `align`.

    `pad([[0, 1], [0, 1, 2]], align=4, fill_value=-1)` → `[[0, 1, -1, -1], [0, 1, 2, -1]]`

    An extent of -1 in a constant `shape` means the largest of the batch; a sample larger than `shape` keeps its size.
    Padding to the largest of the batch is done on the host, after any cut.

    Inputs: data.
    Args:
        axes: the axes to pad; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        shape: extents of the output, one for each of the axes (an int or a list of ints, or a data node). Default:
            None.
        align: extents are multiples of it: one, or one for each of the axes (an int or a list of ints). Default: None.
        fill_value: what is padded with (a number, or a data node). Default: 0.0.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        shape: int | Sequence[int] | DataNode | None = None,
        align: int | Sequence[int] | None = None,
        fill_value: float | DataNode = 0.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class PadBatch:
    """Pads sequences (along their first axis) to the longest of the batch, and gives their lengths.

    `pad_batch([[7, 8, 9], [5]])` → `[[7, 8, 9], [5, 0, 0]]`, `[3, 1]`

    With `length`, all batches are that long: constant shapes are compiled once. Longer sequences are an error, or are
    cut with `truncate`; their length is then the remaining one.

    Inputs: sequences.
    Args:
        length: the length of all batches; that of the longest sequence by default (an int). Default: None.
        multiple_of: lengths are a multiple of it (an int). Default: 1.
        pad_value: what is padded with (a number). Default: 0.0.
        truncate: whether sequences longer than `length` are cut (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        length: int | None = None,
        multiple_of: int = 1,
        pad_value: float = 0.0,
        truncate: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, sequences: Any, **arguments: Any) -> list[DataNode]: ...

class Paste:
    """Puts images (HWC) on a canvas `ratio` times as large: `paste(images, ratio=2, fill_value=0)`, 60×90 → 120×180.

    Inputs: images.
    Args:
        ratio: size of the canvas by that of the image, at least 1 (a number, or a data node).
        fill_value: what the canvas is: one value, or one a channel (an int or a list of ints).
        paste_x: where the image lies: 0 at the left, 1 at the right (a number, or a data node). Default: 0.5.
        paste_y: where the image lies: 0 at the top, 1 at the bottom (a number, or a data node). Default: 0.5.
        min_canvas_size: the least height and width of the canvas (a number, or a data node). Default: 0.0.
        n_channels: taken so that graphs move over: it is that of the images (an int). Default: 3.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        ratio: float | DataNode = ...,
        fill_value: int | Sequence[int] = ...,
        paste_x: float | DataNode = 0.5,
        paste_y: float | DataNode = 0.5,
        min_canvas_size: float | DataNode = 0.0,
        n_channels: int = 3,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class PeekImageShape:
    """Height, width and channels of `decoders.image`, read from the header of the file: → `[375, 500, 3]`.

    Inputs: data.
    Args:
        adjust_orientation: whether images are turned as their Exif data says (a bool). Default: True.
        image_type: the colour space that is meant (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'int64'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        adjust_orientation: bool = True,
        image_type: DALIImageType | str = ...,
        dtype: DALIDataType | DTypeLike = "int64",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class PermuteBatch:
    """Sample i of the output is sample `indices[i]` of the batch: `permute_batch(images, indices=[2, 0, 1])`.

    Inputs: data.
    Args:
        indices: a list with a number for each sample of the batch, or one number a sample (an int or a list of ints, or
            a data node).
    Places: cpu.
    """

    def __init__(
        self,
        *,
        indices: int | Sequence[int] | DataNode = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class PowerSpectrum:
    """Power, or magnitude, of the spectrum along an axis: `power_spectrum([1, 1, 1, 1])` → `[16, 0, 0]`, float32.

    Inputs: data.
    Args:
        axis: along which axis (an int). Default: -1.
        nfft: points of the transform; the extent of the axis by default (an int). Default: None.
        power: 2 for the power, 1 for the magnitude (an int). Default: 2.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axis: int = -1,
        nfft: int | None = None,
        power: int = 2,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class PreemphasisFilter:
    """Subtracts from each sample a part of the previous one: `preemphasis_filter([1, 2, 4], preemph_coeff=0.5)` →
    `[0.5, 1.5, 3]`.

    Inputs: data.
    Args:
        preemph_coeff: which part (a number, or a data node). Default: 0.97.
        border: what is before the first: itself, 'clamp', 'zero', or the second, 'reflect' (a str). Default: 'clamp'.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        preemph_coeff: float | DataNode = 0.97,
        border: str = "clamp",
        dtype: DALIDataType | DTypeLike = "float32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class PythonFunction:
    """Calls a Python function for every sample, or once for the batch (`batch_processing=True`: with lists of samples).

    The graph assumes side effects: it runs even if its output is unused, in the order of the batches. It returns one
    array for each output; a tuple if there are several.

        python_function(image, function=lambda image: image[::-1])

    With `pure=True` it has none: it may be before a cut, where the function's code and the outside values that it uses
    are part of the cache's fingerprint, so that changing them rebuilds what depends on it.

    Inputs: input ….
    Args:
        function: what is called with NumPy arrays, one for each input (a callable).
        num_outputs: how many arrays it returns (an int). Default: 1.
        batch_processing: whether it takes and gives lists of all samples of a batch (a bool). Default: False.
        pure: whether what it returns depends on its inputs alone, and it does no more (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        function: Callable[..., Any] = ...,
        *,
        num_outputs: int = 1,
        batch_processing: bool = False,
        pure: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, *input: Any, **arguments: Any) -> Any: ...

class RandomBBoxCrop:
    """A random window of each image that keeps its boxes: anchor and shape, for `slice`, the boxes in it, their labels.

    For each sample, one of `thresholds` is drawn, or no crop. Windows are drawn until each box (without
    `all_boxes_above_threshold`, one of them) overlaps the window by that much. Boxes whose centre is outside are
    dropped, or, with `bbox_prune_threshold`, those with a smaller remaining part.

    Inputs: boxes, labels.
    Args:
        thresholds: least overlaps, of which one is drawn (a number or a list of numbers). Default: 0.0.
        threshold_type: 'iou', intersection by union, or 'overlap', by the box (a str). Default: 'iou'.
        all_boxes_above_threshold: whether each box has to overlap, or one of them (a bool). Default: True.
        aspect_ratio: least and largest width / height of the window (a number or a list of numbers). Default: (1.0,
            1.0).
        scaling: least and largest extent of the window, 0 to 1 (a number or a list of numbers). Default: (1.0, 1.0).
        crop_shape: the size of the window in pixels, instead of a drawn one (an int or a list of ints, or a data node).
            Default: None.
        input_shape: the size of the image in pixels; goes with crop_shape (an int or a list of ints, or a data node).
            Default: None.
        shape_layout: which extents these two are (a str). Default: 'WH'.
        bbox_layout: which numbers boxes are: xyXY or xyWH; by ltrb by default (a str). Default: None.
        ltrb: whether boxes are two corners, or left, top, width, height (a bool). Default: True.
        bbox_prune_threshold: the least part of a box that is kept (a number). Default: None.
        allow_no_crop: whether no crop is one of what is drawn; not with crop_shape (a bool). Default: True.
        num_attempts: how many windows are tried with a threshold before another is drawn (an int). Default: 1.
        total_num_attempts: after how many windows the whole image is taken; -1 is 10000 (an int). Default: -1.
        output_bbox_indices: whether the numbers of boxes that are kept are given (a bool). Default: False.
    Places: cpu. Draws random numbers.
    """

    def __init__(
        self,
        *,
        thresholds: float | Sequence[float] = 0.0,
        threshold_type: str = "iou",
        all_boxes_above_threshold: bool = True,
        aspect_ratio: float | Sequence[float] = ...,
        scaling: float | Sequence[float] = ...,
        crop_shape: int | Sequence[int] | DataNode | None = None,
        input_shape: int | Sequence[int] | DataNode | None = None,
        shape_layout: str = "WH",
        bbox_layout: str | None = None,
        ltrb: bool = True,
        bbox_prune_threshold: float | None = None,
        allow_no_crop: bool = True,
        num_attempts: int = 1,
        total_num_attempts: int = -1,
        output_bbox_indices: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
        seed: int | None = None,
    ) -> None: ...
    def __call__(self, boxes: Any, labels: Any = None, **arguments: Any) -> Any: ...

class RandomResizedCrop:
    """Cuts a window of random area and aspect ratio out of each image, and resizes it to `size`.

    `random_resized_crop(images, size=224)` → 224×224 of each, a different part in every epoch

    The area is a uniform part of the image's, the logarithm of the aspect ratio (width / height) is uniform, the place
    is uniform (Szegedy et al., CVPR 2015). If none of `num_attempts` windows fits, it is the largest one in the middle
    with an allowed aspect ratio.

    On a device the windows are those of the host, which draws them; pixels are resampled with matrices in float32, and
    are within 1 of the host's as integers.

    Inputs: images.
    Args:
        size: height and width of the output, or one number for both (an int or a list of ints).
        random_area: least and largest part of the image's area (a number or a list of numbers). Default: (0.08, 1.0).
        random_aspect_ratio: least and largest width / height (a number or a list of numbers). Default: (0.75,
            1.3333333333333333).
        num_attempts: how many windows are tried (an int). Default: 10.
        antialias: whether filters are stretched where images shrink (a bool). Default: True.
        interp_type: how pixels are interpolated (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default:
            <DALIInterpType.INTERP_LINEAR: 'linear'>.
        dtype: the dtype of the output: that of the input, or float32 (a dtype such as types.FLOAT). Default: None.
        min_filter: the same where images shrink (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default: None.
        mag_filter: the same where images grow (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default: None.
    Places: cpu, gpu. Draws random numbers.
    """

    def __init__(
        self,
        *,
        size: int | Sequence[int] = ...,
        random_area: float | Sequence[float] = ...,
        random_aspect_ratio: float | Sequence[float] = ...,
        num_attempts: int = 10,
        antialias: bool = True,
        interp_type: DALIInterpType | str = ...,
        dtype: DALIDataType | DTypeLike | None = None,
        min_filter: DALIInterpType | str | None = None,
        mag_filter: DALIInterpType | str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
        seed: int | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Reinterpret:
    """Interprets the bytes of samples as elements of another dtype (little-endian), optionally with another shape.

    `reinterpret([1, 0, 2, 1], dtype=types.UINT16)` → `[1, 258]`

    Without a shape, the last extent changes: 4 bytes make 2 elements of 2 bytes.

    Inputs: data, shape_input.
    Args:
        shape: extents of the output; one may be -1 (an int or a list of ints, or a data node). Default: None.
        rel_shape: extents of the output by those of the input (a number or a list of numbers, or a data node). Default:
            None.
        src_dims: which extents of the input are taken; -1 for an axis of 1 (an int or a list of ints). Default: None.
        layout: names of the axes; those of the input where the rank stays the same (a str). Default: None.
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        shape: int | Sequence[int] | DataNode | None = None,
        rel_shape: float | Sequence[float] | DataNode | None = None,
        src_dims: int | Sequence[int] | None = None,
        layout: str | None = None,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, shape_input: Any = None, **arguments: Any) -> DataNode: ...

class Reshape:
    """Gives samples another shape; the order of their elements stays.

    `reshape([[1, 2, 3], [4, 5, 6]], shape=[3, -1])` → `[[1, 2], [3, 4], [5, 6]]`

    `rel_shape` multiplies extents instead: `[0.5, 2]` makes 2×3 to 1×6. `src_dims=[1, 0]` says which extent of the
    input becomes which of the output; -1 there is a new axis of 1. An extent of -1 is inferred. The shape
    may also come as a second input, on the host.

    Inputs: data, shape_input.
    Args:
        shape: extents of the output; one may be -1 (an int or a list of ints, or a data node). Default: None.
        rel_shape: extents of the output by those of the input (a number or a list of numbers, or a data node). Default:
            None.
        src_dims: which extents of the input are taken; -1 for an axis of 1 (an int or a list of ints). Default: None.
        layout: names of the axes; those of the input where the rank stays the same (a str). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        shape: int | Sequence[int] | DataNode | None = None,
        rel_shape: float | Sequence[float] | DataNode | None = None,
        src_dims: int | Sequence[int] | None = None,
        layout: str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, shape_input: Any = None, **arguments: Any) -> DataNode: ...

class Resize:
    """Resizes images (HWC, HW, CHW, or frames of them).

    `resize(images, size=[224, 224])`; `resize(images, resize_shorter=256)` keeps the aspect ratio: 600×1200 → 256×512.

    An extent of 0 is open: `mode` determines it ("default": scaled like the other one; "stretch": kept), and
    how two extents go together ("not_larger", "not_smaller": the aspect ratio is kept). A negative extent mirrors.
    If images shrink, filters are stretched against aliasing. On the host uint8 images are resampled in exact
    arithmetic, on the device with matrices in float32: results are within 1 of each other.

    Inputs: images.
    Args:
        size: height and width in pixels, or one number for both (a number or a list of numbers, or a data node).
            Default: None.
        resize_x: the width in pixels (a number, or a data node). Default: 0.0.
        resize_y: the height in pixels (a number, or a data node). Default: 0.0.
        resize_shorter: the shorter side in pixels (a number, or a data node). Default: 0.0.
        resize_longer: the longer side in pixels (a number, or a data node). Default: 0.0.
        mode: 'default', 'stretch', 'not_larger' or 'not_smaller' (a str). Default: 'default'.
        max_size: the output is not larger: one number, or height and width (a number or a list of numbers). Default:
            None.
        roi_start: where the region begins that is resized (height, width) (a number or a list of numbers, or a data
            node). Default: None.
        roi_end: where it ends; before its start: mirrored (a number or a list of numbers, or a data node). Default:
            None.
        roi_relative: whether the region is in parts of the image, not pixels (a bool). Default: False.
        subpixel_scale: whether the scale is that of the size before it is rounded (a bool). Default: True.
        antialias: whether filters are stretched where images shrink (a bool). Default: True.
        interp_type: how pixels are interpolated (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default:
            <DALIInterpType.INTERP_LINEAR: 'linear'>.
        min_filter: the same where images shrink (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default: None.
        mag_filter: the same where images grow (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default: None.
        dtype: the dtype of the output: that of the input, or float32 (a dtype such as types.FLOAT). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        size: float | Sequence[float] | DataNode | None = None,
        resize_x: float | DataNode = 0.0,
        resize_y: float | DataNode = 0.0,
        resize_shorter: float | DataNode = 0.0,
        resize_longer: float | DataNode = 0.0,
        mode: str = "default",
        max_size: float | Sequence[float] | None = None,
        roi_start: float | Sequence[float] | DataNode | None = None,
        roi_end: float | Sequence[float] | DataNode | None = None,
        roi_relative: bool = False,
        subpixel_scale: bool = True,
        antialias: bool = True,
        interp_type: DALIInterpType | str = ...,
        min_filter: DALIInterpType | str | None = None,
        mag_filter: DALIInterpType | str | None = None,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class ResizeCropMirror:
    """Resizes images, cuts windows out of them and mirrors them left and right where `mirror` is not 0.

    Inputs: images.
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
        size: height and width in pixels, or one number for both (a number or a list of numbers, or a data node).
            Default: None.
        resize_x: the width in pixels (a number, or a data node). Default: 0.0.
        resize_y: the height in pixels (a number, or a data node). Default: 0.0.
        resize_shorter: the shorter side in pixels (a number, or a data node). Default: 0.0.
        resize_longer: the longer side in pixels (a number, or a data node). Default: 0.0.
        mode: 'default', 'stretch', 'not_larger' or 'not_smaller' (a str). Default: 'default'.
        max_size: the output is not larger: one number, or height and width (a number or a list of numbers). Default:
            None.
        roi_start: where the region begins that is resized (height, width) (a number or a list of numbers, or a data
            node). Default: None.
        roi_end: where it ends; before its start: mirrored (a number or a list of numbers, or a data node). Default:
            None.
        roi_relative: whether the region is in parts of the image, not pixels (a bool). Default: False.
        subpixel_scale: whether the scale is that of the size before it is rounded (a bool). Default: True.
        antialias: whether filters are stretched where images shrink (a bool). Default: True.
        interp_type: how pixels are interpolated (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default:
            <DALIInterpType.INTERP_LINEAR: 'linear'>.
        min_filter: the same where images shrink (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default: None.
        mag_filter: the same where images grow (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default: None.
        dtype: the dtype of the output: that of the input, or float32 (a dtype such as types.FLOAT). Default: None.
        mirror: 1 mirrors left and right, 2 top and bottom, 3 both (an int, or a data node). Default: 0.
    Places: cpu.
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
        size: float | Sequence[float] | DataNode | None = None,
        resize_x: float | DataNode = 0.0,
        resize_y: float | DataNode = 0.0,
        resize_shorter: float | DataNode = 0.0,
        resize_longer: float | DataNode = 0.0,
        mode: str = "default",
        max_size: float | Sequence[float] | None = None,
        roi_start: float | Sequence[float] | DataNode | None = None,
        roi_end: float | Sequence[float] | DataNode | None = None,
        roi_relative: bool = False,
        subpixel_scale: bool = True,
        antialias: bool = True,
        interp_type: DALIInterpType | str = ...,
        min_filter: DALIInterpType | str | None = None,
        mag_filter: DALIInterpType | str | None = None,
        dtype: DALIDataType | DTypeLike | None = None,
        mirror: int | DataNode = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Rotate:
    """Turns images counter-clockwise about their middle.

    `rotate([[1, 2], [3, 4]], angle=90)` → `[[2, 4], [1, 3]]`

    The canvas grows to hold the whole image, unless `keep_size` or `size` is given; on the device, one of them is
    required. Pixels beyond the image are `fill_value`, or those at its edge without one.

    Inputs: images.
    Args:
        angle: degrees, counter-clockwise (a number, or a data node).
        fill_value: what lies beyond the image; its edge by default (a number). Default: None.
        keep_size: whether the output has the size of the input (a bool). Default: False.
        size: height and width of the output (a number or a list of numbers, or a data node). Default: None.
        interp_type: nearest or linear (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default:
            <DALIInterpType.INTERP_LINEAR: 'linear'>.
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        angle: float | DataNode = ...,
        fill_value: float | None = None,
        keep_size: bool = False,
        size: float | Sequence[float] | DataNode | None = None,
        interp_type: DALIInterpType | str = ...,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Saturation:
    """Changes the saturation of RGB images: `saturation([[[200, 100, 50]]], saturation=0.5)` → `[[[162, 112, 87]]]`.

    Inputs: images.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
        saturation: 0 is grey, 1 changes nothing (a number, or a data node). Default: 1.0.
        image_type: taken so that graphs move over: it is RGB (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        dtype: DALIDataType | DTypeLike | None = None,
        saturation: float | DataNode = 1.0,
        image_type: DALIImageType | str = ...,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, **arguments: Any) -> DataNode: ...

class Slice:
    """Cuts a window out of each sample.

    `slice([0, 1, 2, 3, 4, 5], start=[1], end=[3], axes=[0])` → `[1, 2]`

    It begins at `start`, `rel_start` (times the extent) or the second input, and ends at `end`, `rel_end`, or by
    `shape`, `rel_shape` or the third input. Numbers are in the order of `axes`, or of `axis_names` if samples have a
    layout; by default width, then height. Float inputs are relative if `normalized_anchor` and `normalized_shape` are
    set.

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
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu, gpu.
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
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, anchor: Any = None, shape_input: Any = None, **arguments: Any) -> DataNode: ...

class Spectrogram:
    """Power (or magnitude, `power=1`) of the spectrum of each frame: (samples,) → (nfft // 2 + 1, frames) float32.

    A frame of `window_length` samples begins every `window_step`; with `center_windows` frame t is centred at sample
    `t * window_step`, and samples beyond the ends of the wave are its mirror image (`reflect_padding`) or silence. The
    window is Hann's, `sin²(π (i + 0.5) / window_length)`, or `window_fn`, and zeros follow it up to `nfft` points.

    Inputs: wave.
    Args:
        nfft: points of the transform; the length of the window by default (an int). Default: None.
        window_length: samples of a frame (an int). Default: 512.
        window_step: samples from one frame to the next (an int). Default: 256.
        window_fn: the weights of the window; Hann's by default (a number or a list of numbers). Default: None.
        power: 2 for the power of the spectrum, 1 for its magnitude (an int). Default: 2.
        center_windows: whether the wave is extended so that frames are centred (a bool). Default: True.
        reflect_padding: whether it is extended by its mirror image, or by zeros (a bool). Default: True.
        layout: 'ft': frequencies, then frames; 'tf': frames, then frequencies (a str). Default: 'ft'.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        nfft: int | None = None,
        window_length: int = 512,
        window_step: int = 256,
        window_fn: float | Sequence[float] | None = None,
        power: int = 2,
        center_windows: bool = True,
        reflect_padding: bool = True,
        layout: str = "ft",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, wave: Any, **arguments: Any) -> DataNode: ...

class Squeeze:
    """Removes axes of extent 1: `squeeze([[[1, 2]]], axes=[0, 1])` → `[1, 2]`.

    Inputs: data.
    Args:
        axes: the axes that go (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Stack:
    """Puts samples of one shape side by side along a new axis.

    `stack([1, 2], [3, 4])` → `[[1, 2], [3, 4]]`

    Inputs: input ….
    Args:
        axis: where the new axis stands in the output (an int). Default: 0.
        axis_name: its name, one letter, where the samples have a layout (a str). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        axis: int = 0,
        axis_name: str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, *input: Any, **arguments: Any) -> DataNode: ...

class ToDecibels:
    """`multiplier * log10(max(x / reference, least))`, float32; the least corresponds to `cutoff_db`.

    `to_decibels([1, 10, 100])` → `[-20, -10, 0]`

    The reference is the largest value of the sample unless it is given.

    Inputs: data.
    Args:
        multiplier: 10 for power, 20 for magnitude (a number). Default: 10.0.
        reference: what is 0 dB; 0 is the largest value of each sample (a number). Default: 0.0.
        cutoff_db: what is less counts as this many dB (a number). Default: -200.0.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        multiplier: float = 10.0,
        reference: float = 0.0,
        cutoff_db: float = -200.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Tokenize:
    """Turns text (UTF-8 bytes) into token ids, (tokens,) int32.

    `tokenize(text, vocabulary="tokenizer.json", append_eos=True)` → `[464, 3290, 318, 257, 3290, 50256]`

    `vocabulary` is one of `beam_pipes.tasks.vocabularies`, the path of a `tokenizer.json`, or that of a SentencePiece
    `.model`. Bytes that are not UTF-8 are an error.

    Inputs: text.
    Args:
        vocabulary: a vocabulary, or the path of a tokenizer.json or a .model (any value).
        append_eos: whether the id that ends a sequence follows (a bool). Default: False.
        max_length: longer sequences are cut to so many ids, the end of it included (an int). Default: None.
        dtype: the dtype of ids (a dtype such as types.FLOAT). Default: 'int32'.
    Places: cpu.
    """

    def __init__(
        self,
        vocabulary: Any = ...,
        *,
        append_eos: bool = False,
        max_length: int | None = None,
        dtype: DALIDataType | DTypeLike = "int32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, text: Any, **arguments: Any) -> DataNode: ...

class Transpose:
    """Puts axes in another order: `perm[i]` is the axis of the input that becomes axis i; by default they are reversed.

    `transpose([[1, 2, 3], [4, 5, 6]], perm=[1, 0])` → `[[1, 4], [2, 5], [3, 6]]`

    Inputs: data.
    Args:
        perm: the order of the axes; reversed by default (an int or a list of ints). Default: None.
        transpose_layout: whether names of axes move with them (a bool). Default: True.
        output_layout: names of the axes of the output; it moves nothing (a str). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        perm: int | Sequence[int] | None = None,
        transpose_layout: bool = True,
        output_layout: str | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class WarpAffine:
    """`output(x, y) = input(M11 x + M12 y + M13, M21 x + M22 y + M23)`, for `matrix=(M11, M12, M13, M21, M22, M23)`.

    `warp_affine([[0, 10, 20]], matrix=[1, 0, 1, 0, 1, 0])` → `[[10, 20, 20]]`

    (0, 0) is the corner of the first pixel, not its middle. With `inverse_map=False`, the matrix maps from the input to
    the output, and is inverted. Pixels beyond the input are `fill_value`, or those at its edge without one. The matrix
    may also come as a second input, (2, 3) or (6,).

    Inputs: images, matrix_input.
    Args:
        matrix: the six numbers of the map, row by row (numbers, or rows of them, or a data node). Default: None.
        inverse_map: whether the matrix leads from the output to the input (a bool). Default: True.
        size: height and width of the output; those of the input by default (a number or a list of numbers, or a data
            node). Default: None.
        fill_value: what lies beyond the input; its edge by default (a number). Default: None.
        interp_type: nearest or linear (one of types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC,
            types.INTERP_LANCZOS3, types.INTERP_TRIANGULAR, types.INTERP_GAUSSIAN). Default:
            <DALIInterpType.INTERP_LINEAR: 'linear'>.
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
    Places: cpu, gpu.
    """

    def __init__(
        self,
        *,
        matrix: float | Sequence[float] | Sequence[Sequence[float]] | DataNode | None = None,
        inverse_map: bool = True,
        size: float | Sequence[float] | DataNode | None = None,
        fill_value: float | None = None,
        interp_type: DALIInterpType | str = ...,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, images: Any, matrix_input: Any = None, **arguments: Any) -> DataNode: ...

class Zeros:
    """Samples of `shape` that are 0 everywhere: `zeros(shape=[2])` → `[0, 0]`.

    Args:
        shape: the shape of each sample; that of the value by default (an int or a list of ints, or a data node).
            Default: None.
        layout: names of the axes (a str). Default: None.
        dtype: the dtype of the output (a dtype such as types.FLOAT). Default: 'int32'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        shape: int | Sequence[int] | DataNode | None = None,
        layout: str | None = None,
        dtype: DALIDataType | DTypeLike = "int32",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> DataNode: ...

class ZerosLike:
    """Samples of the shape of `data` that are 0 everywhere: `zeros_like([[1], [2]])` → `[[0], [0]]`.

    Inputs: data.
    Args:
        dtype: the dtype of the output; that of the input by default (a dtype such as types.FLOAT). Default: None.
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

AudioDecoder = decoders.Audio
COCOReader = readers.COCO
FileReader = readers.File
ImageDecoder = decoders.Image
ImageDecoderCrop = decoders.ImageCrop
ImageDecoderRandomCrop = decoders.ImageRandomCrop
ImageDecoderSlice = decoders.ImageSlice
NormalDistribution = random.Normal
NumpyReader = readers.Numpy
TFRecordReader = readers.TFRecord
