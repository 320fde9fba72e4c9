"""What `benchmarks.sizing` builds: a few kinds of data, each as people cache it. Input lies in `SIZING_INPUT`."""

from __future__ import annotations

import dataclasses
import functools
import io
import os
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.identity.canonical import Asset
from beam_pipes.sources import FileContent, Files, JSONLines, TextLines
from beam_pipes.transforms.audio import AudioProcessor, LogMagnitude
from beam_pipes.typed import Pipeline

INPUT_VARIABLE = "BEAM_PIPES_SIZING_INPUT"

IMAGE_SIDE = 224
SAMPLE_RATE = 22_050
_SHARD_BYTES = 4 << 20

# The sizes of compressible input would depend on its compression, so inputs here are stored uncompressed.


def _input(kind: str) -> str:
    return os.path.join(os.environ.get(INPUT_VARIABLE, "."), kind)


@functools.cache
def _tokenizer(path: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)


@functools.cache
def _audio() -> AudioProcessor:
    return AudioProcessor(sample_rate=SAMPLE_RATE, n_fft=1024, win_length=1024, hop_length=256, f_max=8000)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KeepText(Pipeline):
    """A paragraph as it is."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"text": line}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ByteIds(Pipeline):
    """A paragraph as the bytes of its UTF-8, in the stored dtype that their range allows."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"tokens": np.frombuffer(line.encode(), np.uint8).astype(np.int32)}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SubwordIds(Pipeline):
    """A paragraph as ids of a trained byte-pair vocabulary below 65,536."""

    input_type = str
    output_type = dict
    tokenizer: Asset

    def transform(self, line: str) -> list[dict[str, Any]]:
        ids = _tokenizer(os.path.abspath(self.tokenizer)).encode(line).ids
        return [{"tokens": np.array(ids, np.int32)}] if ids else self.drop("empty")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RowFeatures(Pipeline):
    """A row of numbers as fixed features."""

    input_type = dict
    output_type = dict

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"user": row["user"], "label": row["label"], "values": np.array(row["values"], np.float32)}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KeepFile(Pipeline):
    """A file as it is, to be decoded when it is read."""

    input_type = FileContent
    output_type = dict

    def transform(self, file: FileContent) -> list[dict[str, Any]]:
        return [{"encoded": file.content}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Pixels(Pipeline):
    """A JPEG, decoded and resized to uint8 (224, 224, 3)."""

    input_type = FileContent
    output_type = dict

    def transform(self, file: FileContent) -> list[dict[str, Any]]:
        from PIL import Image

        with Image.open(io.BytesIO(file.content)) as image:
            small = image.convert("RGB").resize((IMAGE_SIDE, IMAGE_SIDE))
        return [{"pixels": np.asarray(small, np.uint8)}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LogMel(Pipeline):
    """A WAV file as its log mel spectrogram, float16 (frames, 80)."""

    input_type = FileContent
    output_type = dict

    def transform(self, file: FileContent) -> list[dict[str, Any]]:
        processor = _audio()
        mel = LogMagnitude().transform(processor.mel_spectrogram(processor.read_wav(file.content)))
        return [{"mel": mel.T.astype(np.float16)}]


def _declare(name: str, source: Any, pipeline: Pipeline, features: dict[str, FeatureSpec]) -> Declaration:
    return Declaration(name=name, source=source, pipeline=pipeline, features=features, target_shard_bytes=_SHARD_BYTES)


def text() -> Declaration:
    """Paragraphs, kept as text."""
    return _declare("text", TextLines(_input("text")), KeepText(), {"text": FeatureSpec("str")})


def byte_ids() -> Declaration:
    """Paragraphs as bytes."""
    spec = FeatureSpec("int32", shape=(None,), minimum=0, maximum=255)
    return _declare("byte_ids", TextLines(_input("text")), ByteIds(), {"tokens": spec})


def subword_ids() -> Declaration:
    """Paragraphs as ids of 16 bits."""
    spec = FeatureSpec("int32", shape=(None,), minimum=0, maximum=65_535)
    stage = SubwordIds(tokenizer=Asset(_input("tokenizer.json")))
    return _declare("subword_ids", TextLines(_input("text")), stage, {"tokens": spec})


def subword_ids_as_list() -> Declaration:
    """The same as int64 lists, for other readers of Examples."""
    spec = FeatureSpec("int32", shape=(None,), minimum=0, maximum=65_535, encoding="list")
    stage = SubwordIds(tokenizer=Asset(_input("tokenizer.json")))
    return _declare("subword_ids_as_list", TextLines(_input("text")), stage, {"tokens": spec})


def rows() -> Declaration:
    """Rows of JSON as fixed features: a user, a label, sixteen numbers."""
    features = {
        "user": FeatureSpec("int64"),
        "label": FeatureSpec("int32", minimum=0, maximum=9),
        "values": FeatureSpec("float32", shape=(16,)),
    }
    return _declare("rows", JSONLines(_input("rows")), RowFeatures(), features)


def encoded_images() -> Declaration:
    """JPEG files as they are."""
    return _declare("encoded_images", Files(_input("images")), KeepFile(), {"encoded": FeatureSpec("bytes")})


def pixels() -> Declaration:
    """JPEG files, decoded and resized."""
    spec = FeatureSpec("uint8", shape=(IMAGE_SIDE, IMAGE_SIDE, 3))
    return _declare("pixels", Files(_input("images")), Pixels(), {"pixels": spec})


def mel() -> Declaration:
    """WAV files as spectrograms."""
    return _declare("mel", Files(_input("sound")), LogMel(), {"mel": FeatureSpec("float16", shape=(None, 80))})
