"""Readers of consecutive frames: `readers.sequence`, of directories of images, and `readers.video`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

import numpy as np

from beam_pipes.checks import exclusive
from beam_pipes.extras import require
from beam_pipes.graph.operator import Constant
from beam_pipes.graph.reader import MadeFrom, Reader, RecordStore
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array
from beam_pipes.graph.types import DALIImageType
from beam_pipes.transforms.operators.arrays import saturated
from beam_pipes.transforms.operators.decoders import CHANNELS, Image
from beam_pipes.transforms.operators.readers.files import Described, File


def windows(count: int, *, length: int, step: int, stride: int) -> range:
    """The starts of complete windows of `length` frames, `stride` apart, among `count` frames."""
    return range(0, max(count - (length - 1) * stride, 0), step)


class Sequence(Reader):
    """Reads frames stored as image files in one directory per stream: (frames, height, width, channels) uint8.

        root/a/0.png … root/a/3.png, root/b/0.png  →  readers.sequence(file_root="root", sequence_length=2, step=2)
        →  frames 0 and 1 of a, frames 2 and 3 of a

    Directories, and the files in them, are in the order of their names. Sequences are whole, and of one stream.
    """

    file_root = Constant("str", doc="the directory that holds a directory for each stream")
    sequence_length = Constant("int", doc="frames of a sequence", least=1)
    step = Constant("int", default=1, doc="frames from the beginning of a sequence to that of the next one", least=1)
    stride = Constant("int", default=1, doc="frames from one frame of a sequence to the next one", least=1)
    image_type = Constant(DALIImageType, default=DALIImageType.RGB, doc="the colour space of the output")

    def infer(self, *inputs: TensorSpec) -> TensorSpec | list[TensorSpec]:
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

        return Described(names, files, load, lambda index: MadeFrom(sequences[index]))


#: Names of files that `readers.video` takes below `file_root`.
VIDEO_FILTERS: Final = ("*.avi", "*.flv", "*.m4v", "*.mkv", "*.mov", "*.mp4", "*.mpg", "*.webm", "*.wmv")


def _mirrored(index: int, count: int, period: int) -> int:
    index %= max(period, 1)
    return index if index < count else period - index - (period == 2 * count)


#: Name → which of `count` frames replaces one after the end; -1 for `fill_value`.
PADS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "constant": lambda index, count: -1,
    **dict.fromkeys(("edge", "repeat"), lambda index, count: count - 1),
    **dict.fromkeys(("reflect_1001", "symmetric"), lambda index, count: _mirrored(index, count, 2 * count)),
    **dict.fromkeys(("reflect_101", "reflect"), lambda index, count: _mirrored(index, count, 2 * count - 2)),
}


@dataclasses.dataclass(frozen=True)
class VideoFile:
    """The frames of a file: the presentation time of each, in units of `unit` seconds, in order.

    `keys` are the points where decoding can begin: (presentation, decoding time) of key frames. It is empty if times do
    not identify frames, because two are equal or the file has only decoding times (AVI): such a file is decoded from
    its beginning, and its frames are counted.
    """

    path: str
    times: list[int]
    unit: float
    keys: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, path: str) -> VideoFile:
        """Reads the headers of all frames, and decodes none. Raises `ValueError` if there are none, or no times."""
        av = require("av", purpose="fn.readers.video")
        try:
            with av.open(path) as container:
                stream = next(iter(container.streams.video), None)
                packets = [] if stream is None else [one for one in container.demux(stream) if _is_shown(one)]
                unit = float(stream.time_base or 0) if stream is not None else 0.0
        except EOFError:
            packets = []
        _check_ends(path)
        if not packets:
            raise ValueError(f"{path} holds no frames of video, or its end is missing. Leave it out, or copy it again")
        times = [packet.dts if packet.pts is None else packet.pts for packet in packets]
        if None in times:
            raise ValueError(
                f"{path} does not say when its frames are shown. Encode it into a file that does: "
                f"ffmpeg -i {os.path.basename(path)} video.mp4"
            )
        keys = []
        if len(set(times)) == len(times) and all(packet.pts is not None for packet in packets):
            begins = [packets[0], *(packet for packet in packets if packet.is_keyframe)]
            keys = [(one.pts, one.pts if one.dts is None else min(one.pts, one.dts)) for one in begins]
        return cls(path, sorted(times), unit, keys)

    def frames(self, wanted: set[int]) -> dict[int, Array]:
        """Number → frame (height, width, 3), for all requested ones; raises `ValueError` if one cannot be decoded.

        Decodes from the last key frame before the first of them, or from the beginning if that does not find all:
        containers without an index seek only approximately, and frames found there may lack those they depend on.
        """
        first = self.times[min(wanted)]
        key = max((key for key in self.keys if key[0] <= first), default=None)
        found, error = ({}, None) if key is None else self._decoded(wanted, key[1])
        if len(found) < len(wanted):
            found, error = self._decoded(wanted, None)
        if len(found) < len(wanted):
            left = wanted - found.keys()
            raise ValueError(
                f"{self.path}: {len(left)} frames cannot be decoded, the first of them number {min(left)}. Encode it "
                f"again, or leave it out: ffmpeg -i {os.path.basename(self.path)} video.mp4"
            ) from error
        return found

    def _decoded(self, wanted: set[int], start: int | None) -> tuple[dict[int, Array], Exception | None]:
        """The requested frames from the time `start` or the beginning, and the error that ended decoding early."""
        av = require("av", purpose="fn.readers.video")
        numbers = {self.times[index]: index for index in wanted} if self.keys else {}
        found: dict[int, Array] = {}
        try:
            with av.open(self.path) as container:
                stream = container.streams.video[0]
                stream.codec_context.thread_count = 1  # batches are already made in threads
                if start is not None:
                    container.seek(start, stream=stream)
                for count, frame in enumerate(container.decode(stream)):
                    if count == 0 and start is not None and not frame.key_frame:
                        break
                    index = numbers.get(frame.pts) if self.keys else count
                    if index in wanted and index not in found:
                        found[index] = to_rgb(frame)
                    if len(found) == len(wanted):
                        break
        except (av.FFmpegError, OSError) as error:
            return found, error
        return found, None


# Matroska: a header, and behind it the segment that holds everything else.
_MATROSKA, _SEGMENT = b"\x1aE\xdf\xa3", b"\x18S\x80g"
# How MP4 and MOV begin; and what programs that write AVI to a pipe state as its length, or more.
_BOXES, _NO_LENGTH = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"), 0x7FFF_0000


def _end_of_element(file: BinaryIO, at: int) -> int:
    """Where an element of Matroska ends whose name of 4 bytes begins at `at`; 0 if it does not say."""
    file.seek(at + 4)
    size = file.read(8)
    width = 9 - size[0].bit_length() if size else 9  # as many bytes as the first has zeros in front, and one
    value = int.from_bytes(size[:width], "big") & ((1 << 7 * width) - 1)
    return 0 if width > 8 or value == (1 << 7 * width) - 1 else at + 4 + width + value


def _check_ends(path: str) -> None:
    """Raises `ValueError` for MP4, MOV, AVI, Matroska and WebM that end before the sizes they state.

    FFmpeg reads what is left of such a file silently. Sizes are those of the outermost boxes; numbers of frames in
    headers are often wrong. A file that was written to a pipe states none.
    """
    size, at, stated = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        start = file.read(64)
        if start[:4] == _MATROSKA:
            at = _end_of_element(file, 0)
            file.seek(at)
            stated = _end_of_element(file, at) if file.read(4) == _SEGMENT else 0
        is_riff = start[:4] == b"RIFF"
        while at + 8 <= size and (is_riff or start[4:8] in _BOXES):
            file.seek(at)
            box = file.read(16)
            if is_riff:
                kind, length = box[:4], 8 + int.from_bytes(box[4:8], "little")
            else:
                kind, length = box[4:8], int.from_bytes(box[:4], "big")
                length = int.from_bytes(box[8:], "big") if length == 1 else length
            if not kind.isalnum() or length < (9 if is_riff else 8) or (is_riff and length > _NO_LENGTH):
                break  # no box, or one that is as long as its file
            at = stated = at + length
    if stated > size:
        raise ValueError(
            f"{path} should have {stated:,} bytes, as its header says, and ends after {size:,}. Copy it again, or "
            "leave it out"
        )


def _is_shown(packet: Any) -> bool:
    """Whether a packet gives a frame: an empty one ends a stream, and an edit list or VP8 may hide one."""
    if not packet.size or packet.is_discard:
        return False
    return packet.stream.codec_context.name != "vp8" or bool(bytes(packet)[0] & 0x10)


# Weights of red and blue in luma, by FFmpeg's number of the colour space: BT.709, BT.2020; BT.601 if unspecified.
_LUMA_WEIGHTS = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593), 10: (0.2627, 0.0593)}
_FULL_RANGE = 2


def to_rgb(frame: Any) -> Array:
    """A decoded frame as (height, width, 3) uint8, colours interpolated linearly between their samples."""
    cv2 = require("cv2", purpose="fn.readers.video")
    planar = frame if frame.format.name in ("yuv420p", "yuvj420p", "yuv444p") else frame.reformat(format="yuv444p")
    planes = [
        np.frombuffer(one, np.uint8).reshape(one.height, one.line_size)[:, : one.width].astype(np.float32)
        for one in planar.planes
    ]
    size = (frame.width, frame.height)
    wide = cv2.merge([one if one.shape == size[::-1] else cv2.resize(one, size) for one in planes])
    red, blue = _LUMA_WEIGHTS.get(int(frame.colorspace), (0.299, 0.114))
    is_full = int(frame.color_range) == _FULL_RANGE
    luma, chroma, black = (1.0, 2.0, 0.0) if is_full else (255 / 219, 2 * 255 / 224, 16.0)
    green = 1 - red - blue
    rows = np.array(
        [
            [luma, 0, chroma * (1 - red)],
            [luma, -chroma * (1 - blue) * blue / green, -chroma * (1 - red) * red / green],
            [luma, chroma * (1 - blue), 0],
        ]
    )
    made: Array = cv2.transform(wide, np.column_stack([rows, rows @ [-black, -128, -128]]))
    return np.asarray(saturated(np, made, np.dtype("uint8")))


class Video(Reader):
    """Reads sequences of frames of video files: (frames, height, width, 3) uint8, RGB.

        a.mp4 of 20 frames  →  readers.video(filenames="a.mp4", sequence_length=6)  →  frames 0-5, 6-11 and 12-17

    Then, as far as they are asked for, the label of the file, (1,) int32; the numbers of frames, int32; and when they
    are shown, float64 seconds, both (frames,). All that FFmpeg decodes is read, by PyAV (`pip install
    'beam-pipes[video]'`). Headers of all frames are read once when files are opened. Files where two frames have the
    same time, and AVI, are decoded from their beginning for every sequence.
    """

    locations = ("file_root", "filenames")
    filenames = Constant("strs", default=None, doc="the files")
    file_root = Constant("str", default=None, doc="a directory of directories, numbered by name, that hold files")
    labels = Constant("ints", default=None, doc="a label for each of `filenames`, which is an output then")
    sequence_length = Constant("int", doc="frames of a sequence", least=1)
    step = Constant("int", default=-1, doc="frames from one sequence to the next; -1: as many as it spans", least=1)
    stride = Constant("int", default=1, doc="frames from one frame of a sequence to the next one", least=1)
    pad_mode = Constant(
        "str",
        default="none",
        doc=f"how the last sequence is completed: none, {', '.join(PADS)}",
        choices=("none", *PADS),
    )
    fill_value = Constant("ints", default=0, doc="the value for 'constant': one value, or one per channel")
    enable_frame_num = Constant(
        "any",
        default="none",
        doc="'scalar': the first number is an output; 'sequence': all",
        choices=("none", "scalar", "sequence", True, False),
    )
    enable_timestamps = Constant("bool", default=False, doc="whether times of frames are an output")

    def check(self) -> None:
        super().check()
        given = {"filenames": self.filenames, "file_root": self.file_root}
        exclusive(given, needed=True, error=self.argument_error)
        if self.labels is not None and len(self.labels) != len(self.filenames or ()):
            raise self.argument_error(f"labels needs filenames, and as many of them: {len(self.labels)} were given.")

    @property
    def _outputs(self) -> list[TensorSpec]:
        numbers = {"sequence": (None,), "scalar": (1,), True: (1,)}.get(self.enable_frame_num)
        made = [TensorSpec(np.dtype("uint8"), (self.sequence_length, None, None, 3), "FHWC")]
        made += [TensorSpec.of("int32", (1,))] if self.labels is not None or self.file_root is not None else []
        made += [] if numbers is None else [TensorSpec.of("int32", numbers)]
        return [*made, *([TensorSpec.of("float64", (None,))] if self.enable_timestamps else [])]

    def output_count(self) -> int:
        return len(self._outputs)

    def infer(self, *inputs: TensorSpec) -> TensorSpec | list[TensorSpec]:
        made = self._outputs
        return made if len(made) > 1 else made[0]

    def _found(self) -> tuple[list[str], list[str], list[int]]:
        """Names, paths and labels."""
        if self.filenames is not None:
            labels = [0] * len(self.filenames) if self.labels is None else self.labels.tolist()
            top = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in self.filenames])
            names = [os.path.relpath(path, top).replace(os.sep, "/") for path in self.filenames]
            return names, list(self.filenames), labels
        given = {"file_root": self.file_root, "file_filters": VIDEO_FILTERS}
        return File(given, name=self.name)._found()

    def open(self) -> RecordStore:
        names, paths, labels = self._found()
        try:
            videos = [VideoFile.of(path) for path in paths]
        except (OSError, ValueError) as error:
            raise self.argument_error(f"files should be videos: {type(error).__name__}: {error}.") from error
        records = [(at, start) for at, video in enumerate(videos) for start in self._starts(len(video.times))]
        if not records:
            raise self.argument_error(f"no file holds {self.sequence_length} frames that are {self.stride} apart.")

        def load(index: int) -> list[Array]:
            at, start = records[index]
            return self._sequence(videos[at], start, labels[at])

        files = {f"{at} {name}": path for at, (name, path) in enumerate(zip(names, paths, strict=True))}

        def made_from(index: int) -> MadeFrom:
            at, start = records[index]
            return MadeFrom([paths[at]], [start, labels[at]])

        return Described([f"{names[at]}@{start}" for at, start in records], files, load, made_from)

    def _starts(self, count: int) -> list[int]:
        """The starts of the sequences of a file: complete ones, and with `pad_mode` an incomplete one."""
        # DALI 2.4's video reader requires `stride` frames after the last one too, unlike that of sequences (`windows`):
        # among 20 frames, it finds no 7 that are 3 apart. We do the same.
        span = self.sequence_length * self.stride
        every = range(0, count, span if self.step == -1 else self.step)
        whole = [start for start in every if start + span <= count]
        return [*whole, *(every[len(whole) :][:1] if self.pad_mode != "none" else [])]

    def _sequence(self, video: VideoFile, start: int, label: int) -> list[Array]:
        count = len(video.times)
        numbers = [start + place * self.stride for place in range(self.sequence_length)]
        numbers = [at if at < count else PADS[self.pad_mode](at, count) for at in numbers]
        frames = video.frames(set(numbers) - {-1})
        if -1 in numbers:
            frames[-1] = np.empty_like(next(iter(frames.values())))
            frames[-1][...] = self.fill_value
        sizes = sorted({frame.shape[1::-1] for frame in frames.values()})
        if len(sizes) > 1:
            listed = " and ".join(f"{width}x{height}" for width, height in sizes)
            raise ValueError(
                f"{video.path}: frames from number {start} on have different sizes, {listed}, so they make no "
                f"sequence. Encode it with one: ffmpeg -i {os.path.basename(video.path)} video.mp4"
            )
        made = [np.stack([frames[at] for at in numbers])]
        made += [np.array([label], np.int32)] if self.labels is not None or self.file_root is not None else []
        if self.enable_frame_num not in ("none", False):
            made.append(np.array(numbers if self.enable_frame_num == "sequence" else numbers[:1], np.int32))
        times = [-1.0 if at < 0 else video.times[at] * video.unit for at in numbers]
        return [*made, *([np.array(times)] if self.enable_timestamps else [])]
