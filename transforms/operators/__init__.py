"""The operators of graphs: one class a file, and the one table of their names.

`fn.readers.file` and `ops.readers.File` are made from the class that stands under `readers.file` here.
"""

from __future__ import annotations

import importlib

from beam_pipes.errors import GraphError
from beam_pipes.graph.operator import Operator, nearest

_MATH = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil clamp cos cosh exp fabs floor fpow log log10 log2 max min "
    "pow rsqrt sin sinh sqrt tan tanh"
)

# Name → chapter and class; a line an operator.
_PLACES: dict[str, str] = {
    "audio_resample": "audio:AudioResample",
    "batch_permutation": "shapes:BatchPermutation",
    "bb_flip": "coordinates:BbFlip",
    "bbox_paste": "coordinates:BBoxPaste",
    "brightness": "image.colours:Brightness",
    "brightness_contrast": "image.colours:BrightnessContrast",
    "cast": "arrays:Cast",
    "cast_like": "shapes:CastLike",
    "cat": "joining:Cat",
    "color_space_conversion": "image.colours:ColorSpaceConversion",
    "color_twist": "image.colours:ColorTwist",
    "contrast": "image.colours:Contrast",
    "coord_flip": "coordinates:CoordFlip",
    "coord_transform": "coordinates:CoordTransform",
    "copy": "shapes:Copy",
    "crop": "image.crops:Crop",
    "crop_mirror_normalize": "image.crops:CropMirrorNormalize",
    "decoders.audio": "audio:Audio",
    "decoders.image": "decoders:Image",
    "decoders.image_crop": "decoders:ImageCrop",
    "decoders.image_random_crop": "decoders:ImageRandomCrop",
    "decoders.image_slice": "decoders:ImageSlice",
    "decoders.numpy": "shapes:Numpy",
    "element_extract": "shapes:ElementExtract",
    "erase": "image.effects:Erase",
    "expand_dims": "shapes:ExpandDims",
    "external_source": "external_source:ExternalSource",
    "flip": "image.crops:Flip",
    "full": "shapes:Full",
    "full_like": "shapes:FullLike",
    "gaussian_blur": "image.effects:GaussianBlur",
    "get_property": "shapes:GetProperty",
    "grid_mask": "image.effects:GridMask",
    "hsv": "image.colours:Hsv",
    "hue": "image.colours:Hue",
    "io.file.read": "shapes:Read",
    "jpeg_compression_distortion": "image.effects:JpegCompressionDistortion",
    "lookup_table": "shapes:LookupTable",
    "mel_filter_bank": "audio:MelFilterBank",
    "mfcc": "audio:MFCC",
    "noise.gaussian": "image.effects:Gaussian",
    "noise.salt_and_pepper": "image.effects:SaltAndPepper",
    "noise.shot": "image.effects:Shot",
    "nonsilent_region": "audio:NonsilentRegion",
    "normalize": "reductions:Normalize",
    "one_hot": "joining:OneHot",
    "ones": "shapes:Ones",
    "ones_like": "shapes:OnesLike",
    "pack": "text:Pack",
    "pad": "joining:Pad",
    "pad_batch": "text:PadBatch",
    "paste": "image.effects:Paste",
    "peek_image_shape": "decoders:PeekImageShape",
    "permute_batch": "shapes:PermuteBatch",
    "power_spectrum": "audio:PowerSpectrum",
    "preemphasis_filter": "audio:PreemphasisFilter",
    "python_function": "external_source:PythonFunction",
    "random.choice": "random:Choice",
    "random.coin_flip": "random:CoinFlip",
    "random.normal": "random:Normal",
    "random.uniform": "random:Uniform",
    "random_bbox_crop": "coordinates:RandomBBoxCrop",
    "random_resized_crop": "image.resize:RandomResizedCrop",
    "readers.coco": "readers.annotated:COCO",
    "readers.file": "readers.files:File",
    "readers.nemo_asr": "readers.annotated:NemoAsr",
    "readers.numpy": "readers.files:Numpy",
    "readers.tfrecord": "readers.tfrecord:TFRecord",
    "readers.webdataset": "readers.annotated:Webdataset",
    "reductions.max": "reductions:Max",
    "reductions.mean": "reductions:Mean",
    "reductions.mean_square": "reductions:MeanSquare",
    "reductions.min": "reductions:Min",
    "reductions.rms": "reductions:RMS",
    "reductions.std_dev": "reductions:StdDev",
    "reductions.sum": "reductions:Sum",
    "reductions.variance": "reductions:Variance",
    "reinterpret": "arrays:Reinterpret",
    "reshape": "arrays:Reshape",
    "resize": "image.resize:Resize",
    "resize_crop_mirror": "image.resize:ResizeCropMirror",
    "rotate": "image.warps:Rotate",
    "saturation": "image.colours:Saturation",
    "slice": "slicing:Slice",
    "spectrogram": "audio:Spectrogram",
    "squeeze": "shapes:Squeeze",
    "stack": "joining:Stack",
    "to_decibels": "audio:ToDecibels",
    "tokenize": "text:Tokenize",
    "transforms.combine": "coordinates:Combine",
    "transforms.crop": "coordinates:Crop",
    "transforms.rotation": "coordinates:Rotation",
    "transforms.scale": "coordinates:Scale",
    "transforms.shear": "coordinates:Shear",
    "transforms.translation": "coordinates:Translation",
    "transpose": "shapes:Transpose",
    "warp_affine": "image.warps:WarpAffine",
    "zeros": "shapes:Zeros",
    "zeros_like": "shapes:ZerosLike",
    **{f"math.{name}": f"arrays:{name.title()}" for name in _MATH.split()},
}

#: Name → where its class is, sorted.
OPERATORS: dict[str, str] = {name: f"{__name__}.{place}" for name, place in sorted(_PLACES.items())}

#: Names that `ops` also offers at its top, as older graphs call them.
OPS_ALIASES: dict[str, str] = {
    "AudioDecoder": "decoders.audio",
    "CoinFlip": "random.coin_flip",
    "FileReader": "readers.file",
    "ImageDecoder": "decoders.image",
    "NormalDistribution": "random.normal",
    "NumpyReader": "readers.numpy",
    "TFRecordReader": "readers.tfrecord",
    "Uniform": "random.uniform",
}


def operator_class(name: str) -> type[Operator]:
    """The class of an operator, `random.coin_flip` → `CoinFlip`; loaded when it is first asked for."""
    place = OPERATORS.get(name)
    if place is None:
        raise GraphError(f"there is no operator {name!r}.{nearest(name, OPERATORS)}")
    module, _, attribute = place.partition(":")
    found: type[Operator] = getattr(importlib.import_module(module), attribute)
    found.op_name = name
    return found


def families() -> list[str]:
    """The prefixes of names, those that hold only families among them: `io`, `io.file`, `random`, …"""
    prefixes = [name.split(".")[:-1] for name in OPERATORS]
    return sorted({".".join(parts[: at + 1]) for parts in prefixes for at in range(len(parts))})


def families_of(family: str) -> list[str]:
    """The families right below one, by their last names: `io` → `file`; those of the top for ""."""
    return [name.rpartition(".")[2] for name in families() if name.rpartition(".")[0] == family]
