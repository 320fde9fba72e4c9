"""The operators of graphs: one class a file, and the one table of their names.

`fn.readers.file` and `ops.readers.File` are made from the class that stands under `readers.file` here.
"""

from __future__ import annotations

import importlib

from beam_pipes.errors import GraphError
from beam_pipes.graph.argument import nearest
from beam_pipes.graph.operator import Operator

#: Name → where its class is. Sorted; a line an operator.
OPERATORS: dict[str, str] = {
    "brightness_contrast": "beam_pipes.transforms.operators.image.brightness_contrast:BrightnessContrast",
    "cast": "beam_pipes.transforms.operators.generic.cast:Cast",
    "cat": "beam_pipes.transforms.operators.generic.cat:Cat",
    "color_twist": "beam_pipes.transforms.operators.image.color_twist:ColorTwist",
    "crop": "beam_pipes.transforms.operators.image.crop:Crop",
    "crop_mirror_normalize": "beam_pipes.transforms.operators.image.crop_mirror_normalize:CropMirrorNormalize",
    "decoders.audio": "beam_pipes.transforms.operators.decoders.audio:Audio",
    "decoders.image": "beam_pipes.transforms.operators.decoders.image:Image",
    "external_source": "beam_pipes.transforms.operators.generic.external_source:ExternalSource",
    "flip": "beam_pipes.transforms.operators.image.flip:Flip",
    "mel_filter_bank": "beam_pipes.transforms.operators.audio.mel_filter_bank:MelFilterBank",
    "normalize": "beam_pipes.transforms.operators.generic.normalize:Normalize",
    "one_hot": "beam_pipes.transforms.operators.generic.one_hot:OneHot",
    "pack": "beam_pipes.transforms.operators.text.pack:Pack",
    "pad": "beam_pipes.transforms.operators.generic.pad:Pad",
    "pad_batch": "beam_pipes.transforms.operators.text.pad_batch:PadBatch",
    "python_function": "beam_pipes.transforms.operators.generic.python_function:PythonFunction",
    "random.choice": "beam_pipes.transforms.operators.random.choice:Choice",
    "random.coin_flip": "beam_pipes.transforms.operators.random.coin_flip:CoinFlip",
    "random.normal": "beam_pipes.transforms.operators.random.normal:Normal",
    "random.uniform": "beam_pipes.transforms.operators.random.uniform:Uniform",
    "random_resized_crop": "beam_pipes.transforms.operators.image.random_resized_crop:RandomResizedCrop",
    "readers.file": "beam_pipes.transforms.operators.readers.file:File",
    "readers.numpy": "beam_pipes.transforms.operators.readers.numpy:Numpy",
    "readers.tfrecord": "beam_pipes.transforms.operators.readers.tfrecord:TFRecord",
    "reinterpret": "beam_pipes.transforms.operators.generic.reinterpret:Reinterpret",
    "reshape": "beam_pipes.transforms.operators.generic.reshape:Reshape",
    "resize": "beam_pipes.transforms.operators.image.resize:Resize",
    "rotate": "beam_pipes.transforms.operators.image.rotate:Rotate",
    "slice": "beam_pipes.transforms.operators.generic.slice:Slice",
    "spectrogram": "beam_pipes.transforms.operators.audio.spectrogram:Spectrogram",
    "stack": "beam_pipes.transforms.operators.generic.stack:Stack",
    "to_decibels": "beam_pipes.transforms.operators.audio.to_decibels:ToDecibels",
    "tokenize": "beam_pipes.transforms.operators.text.tokenize:Tokenize",
    "warp_affine": "beam_pipes.transforms.operators.image.warp_affine:WarpAffine",
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
