"""The operators of graphs: one class a file, and the one table of their names.

`fn.readers.file` and `ops.readers.File` are made from the class that stands under `readers.file` here.
"""

from __future__ import annotations

import importlib

from beam_pipes.errors import GraphError
from beam_pipes.graph.operator import Operator, nearest

#: Name → where its class is. Sorted; a line an operator.
OPERATORS: dict[str, str] = {
    "brightness_contrast": "beam_pipes.transforms.operators.image.colours:BrightnessContrast",
    "cast": "beam_pipes.transforms.operators.arrays:Cast",
    "cat": "beam_pipes.transforms.operators.joining:Cat",
    "color_twist": "beam_pipes.transforms.operators.image.colours:ColorTwist",
    "crop": "beam_pipes.transforms.operators.image.crops:Crop",
    "crop_mirror_normalize": "beam_pipes.transforms.operators.image.crops:CropMirrorNormalize",
    "decoders.audio": "beam_pipes.transforms.operators.audio:Audio",
    "decoders.image": "beam_pipes.transforms.operators.decoders:Image",
    "external_source": "beam_pipes.transforms.operators.external_source:ExternalSource",
    "flip": "beam_pipes.transforms.operators.image.crops:Flip",
    "mel_filter_bank": "beam_pipes.transforms.operators.audio:MelFilterBank",
    "normalize": "beam_pipes.transforms.operators.normalize:Normalize",
    "one_hot": "beam_pipes.transforms.operators.joining:OneHot",
    "pack": "beam_pipes.transforms.operators.text:Pack",
    "pad": "beam_pipes.transforms.operators.joining:Pad",
    "pad_batch": "beam_pipes.transforms.operators.text:PadBatch",
    "python_function": "beam_pipes.transforms.operators.normalize:PythonFunction",
    "random.choice": "beam_pipes.transforms.operators.random:Choice",
    "random.coin_flip": "beam_pipes.transforms.operators.random:CoinFlip",
    "random.normal": "beam_pipes.transforms.operators.random:Normal",
    "random.uniform": "beam_pipes.transforms.operators.random:Uniform",
    "random_resized_crop": "beam_pipes.transforms.operators.image.resize:RandomResizedCrop",
    "readers.file": "beam_pipes.transforms.operators.readers.files:File",
    "readers.numpy": "beam_pipes.transforms.operators.readers.files:Numpy",
    "readers.tfrecord": "beam_pipes.transforms.operators.readers.tfrecord:TFRecord",
    "reinterpret": "beam_pipes.transforms.operators.arrays:Reinterpret",
    "reshape": "beam_pipes.transforms.operators.arrays:Reshape",
    "resize": "beam_pipes.transforms.operators.image.resize:Resize",
    "rotate": "beam_pipes.transforms.operators.image.warps:Rotate",
    "slice": "beam_pipes.transforms.operators.slicing:Slice",
    "spectrogram": "beam_pipes.transforms.operators.audio:Spectrogram",
    "stack": "beam_pipes.transforms.operators.joining:Stack",
    "to_decibels": "beam_pipes.transforms.operators.audio:ToDecibels",
    "tokenize": "beam_pipes.transforms.operators.text:Tokenize",
    "warp_affine": "beam_pipes.transforms.operators.image.warps:WarpAffine",
}

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
    """The prefixes of names: `random`, `readers`, …"""
    return sorted({name.rpartition(".")[0] for name in OPERATORS} - {""})
