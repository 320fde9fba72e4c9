"""The operators of graphs, by chapters, and the one table of their names.

`fn.readers.file` and `ops.readers.File` are made from the class that stands under `readers.file` here.
"""

from __future__ import annotations

import importlib

from beam_pipes.errors import GraphError
from beam_pipes.graph.operator import Operator, nearest

# Chapter → names of its operators. The class of `random.coin_flip` is `CoinFlip`, but for those of `_CLASSES`.
_CHAPTERS: dict[str, str] = {
    "arrays": (
        "cast math.abs math.acos math.acosh math.asin math.asinh math.atan math.atan2 math.atanh math.cbrt math.ceil "
        "math.clamp math.cos math.cosh math.exp math.fabs math.floor math.fpow math.log math.log10 math.log2 math.max "
        "math.min math.pow math.rsqrt math.sin math.sinh math.sqrt math.tan math.tanh reinterpret reshape"
    ),
    "audio": (
        "audio_resample decoders.audio mel_filter_bank mfcc nonsilent_region power_spectrum preemphasis_filter "
        "spectrogram to_decibels"
    ),
    "coordinates": (
        "bb_flip bbox_paste coord_flip coord_transform random_bbox_crop transforms.combine transforms.crop "
        "transforms.rotation transforms.scale transforms.shear transforms.translation"
    ),
    "decoders": "decoders.image decoders.image_crop decoders.image_random_crop decoders.image_slice peek_image_shape",
    "external_source": "external_source python_function",
    "image.colours": "brightness brightness_contrast color_space_conversion color_twist contrast hsv hue saturation",
    "image.crops": "crop crop_mirror_normalize flip",
    "image.effects": (
        "erase gaussian_blur grid_mask jpeg_compression_distortion noise.gaussian noise.salt_and_pepper noise.shot "
        "paste"
    ),
    "image.resize": "random_resized_crop resize resize_crop_mirror",
    "image.warps": "rotate warp_affine",
    "joining": "cat one_hot pad stack",
    "random": "random.choice random.coin_flip random.normal random.uniform",
    "readers.annotated": "readers.coco readers.nemo_asr readers.webdataset",
    "readers.files": "readers.file readers.numpy",
    "readers.tfrecord": "readers.tfrecord",
    "reductions": (
        "normalize reductions.max reductions.mean reductions.mean_square reductions.min reductions.rms "
        "reductions.std_dev reductions.sum reductions.variance"
    ),
    "shapes": (
        "batch_permutation cast_like copy decoders.numpy element_extract expand_dims full full_like get_property "
        "io.file.read lookup_table ones ones_like permute_batch squeeze transpose zeros zeros_like"
    ),
    "slicing": "slice",
    "text": "pack pad_batch tokenize",
}
_CLASSES = {
    "bbox_paste": "BBoxPaste",
    "coco": "COCO",
    "mfcc": "MFCC",
    "random_bbox_crop": "RandomBBoxCrop",
    "rms": "RMS",
    "tfrecord": "TFRecord",
}


def _place(chapter: str, name: str) -> str:
    last = name.rpartition(".")[2]
    return f"{__name__}.{chapter}:{_CLASSES.get(last) or ''.join(part.capitalize() for part in last.split('_'))}"


#: Name → where its class is, sorted.
OPERATORS: dict[str, str] = dict(
    sorted((name, _place(chapter, name)) for chapter, names in _CHAPTERS.items() for name in names.split())
)

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
