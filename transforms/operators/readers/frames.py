"""Readers of frames that follow each other: `readers.sequence`, of directories of images."""

from __future__ import annotations

import os

import numpy as np

from beam_pipes.graph.operator import Constant
from beam_pipes.graph.reader import Reader, RecordStore
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array
from beam_pipes.graph.types import DALIImageType
from beam_pipes.transforms.operators.decoders import CHANNELS, Image
from beam_pipes.transforms.operators.readers.files import Described


def windows(count: int, *, length: int, step: int, stride: int) -> range:
    """Where windows of `length` frames, `stride` apart, begin among `count` frames: those that are whole."""
    return range(0, max(count - (length - 1) * stride, 0), step)


class Sequence(Reader):
    """Reads frames that lie as image files in a directory for each stream: (frames, height, width, channels) uint8.

        root/a/0.png … root/a/3.png, root/b/0.png  →  readers.sequence(file_root="root", sequence_length=2, step=2)
        →  frames 0 and 1 of a, frames 2 and 3 of a

    Directories, and the files in them, are in the order of their names. Sequences are whole, and of one stream.
    """

    file_root = Constant("str", doc="the directory that holds a directory for each stream")
    sequence_length = Constant("int", doc="frames of a sequence")
    step = Constant("int", default=1, doc="frames from the beginning of a sequence to that of the next one")
    stride = Constant("int", default=1, doc="frames from one frame of a sequence to the next one")
    image_type = Constant(DALIImageType, default=DALIImageType.RGB, doc="the colour space of the output")

    def check(self) -> None:
        super().check()
        for name in ("sequence_length", "step", "stride"):
            if self.constants[name] < 1:
                raise self.argument_error(f"{name} should be at least 1, got {self.constants[name]}.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        shape = (self.sequence_length, None, None, CHANNELS.get(self.image_type))
        return TensorSpec(np.dtype("uint8"), shape, "FHWC")

    def open(self) -> RecordStore:
        files: dict[str, str] = {}
        names: list[str] = []
        sequences: list[list[str]] = []
        try:
            streams = sorted(entry.name for entry in os.scandir(self.file_root) if entry.is_dir())
            for stream in streams:
                frames = sorted(os.listdir(os.path.join(self.file_root, stream)))
                paths = [os.path.join(self.file_root, stream, frame) for frame in frames]
                files.update((f"{stream}/{frame}", path) for frame, path in zip(frames, paths, strict=True))
                starts = windows(len(paths), length=self.sequence_length, step=self.step, stride=self.stride)
                names += [f"{stream}@{start}" for start in starts]
                sequences += [paths[start :: self.stride][: self.sequence_length] for start in starts]
        except OSError as error:
            raise self.argument_error(
                f"file_root should be a directory of directories, got {self.file_root!r}: {error}."
            ) from error
        if not sequences:
            raise self.argument_error(
                f"no directory in {self.file_root!r} holds {self.sequence_length} frames that are {self.stride} apart."
            )
        decode = Image({"output_type": self.image_type}, name=self.name).decoded

        def load(index: int) -> list[Array]:
            return [np.stack([decode(np.fromfile(path, np.uint8).data) for path in sequences[index]])]

        return Described(names, files, load)
