"""`readers.video` gives the frames of a whole decode, or names the file and says what to do, whatever containers hold.

Files are made here, as cameras and cutters make them: frames at odd times or at the same one, B-frames, containers
without an index, lengths that are wrong, ends that are missing. Each frame has a shade of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from beam_pipes.errors import BeamPipesError
from beam_pipes.graph import Pipeline
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.readers.frames import VideoFile, to_rgb

RATE = 25
IRREGULAR = (0, 1, 5, 6, 20, 21, 22, 40, 60, 61)


def halved(packet: Any) -> None:
    """Two frames at each time."""
    packet.pts = packet.dts = packet.pts // 2


def write(
    path: Path,
    times: Iterable[int],
    *,
    codec: str = "libx264",
    change: Callable[[Any], None] | None = None,
    size: tuple[int, int] = (32, 24),
    **options: str,
) -> None:
    """A video of grey frames, brighter by 10 each; `change` is done to packets on their way to the file."""
    container_options = {"movflags": "faststart"} if path.suffix == ".mp4" else {}
    with av.open(str(path), "w", options=container_options) as container:
        stream = container.add_stream(codec, rate=RATE, options=options)
        (stream.width, stream.height), stream.pix_fmt = size, "yuvj420p" if codec == "mjpeg" else "yuv420p"

        def mux(frame: av.VideoFrame | None) -> None:
            for packet in stream.encode(frame):
                if change is not None:
                    change(packet)
                container.mux(packet)

        for number, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(np.full((*size[::-1], 3), 10 * number + 20, np.uint8), format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, RATE)
            mux(frame)
        mux(None)


def whole(path: Path) -> list[Any]:
    with av.open(str(path)) as container:
        return [to_rgb(frame) for frame in container.decode(video=0)]


def read(path: Path | list[Path], **options: Any) -> list[Any]:
    """All outputs for all sequences."""
    files = [str(one) for one in (path if isinstance(path, list) else [path])]
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(*fn.readers.video(filenames=files, name="R", enable_frame_num="sequence", **options))
    return [[np.asarray(one[0]) for one in pipe.run()] for _ in range(pipe.epoch_size("R"))]


FILES = {
    "irregular.mp4": {"times": IRREGULAR, "g": "5", "bf": "2"},
    "irregular.mkv": {"times": IRREGULAR, "g": "5", "bf": "2"},
    "before-zero.mkv": {"times": range(-3, 10), "g": "5", "bf": "0"},
    "b-frames.mp4": {"times": range(20), "g": "5", "bf": "2"},
    "b-frames.ts": {"times": range(20), "g": "5", "bf": "2"},
    "b-frames.avi": {"times": range(20), "g": "5", "bf": "2"},
    "mpeg4.mp4": {"times": range(20), "codec": "mpeg4", "g": "5", "bf": "2"},
    "same-time.mkv": {"times": range(12), "codec": "mjpeg", "change": halved},
    "same-time-of-gops.mkv": {"times": range(12), "g": "4", "bf": "0", "tune": "zerolatency", "change": halved},
    "hidden.webm": {"times": range(20), "codec": "libvpx", "auto-alt-ref": "1", "lag-in-frames": "16"},
}


@pytest.mark.parametrize("name", FILES)
def test_every_frame_is_that_of_the_whole_video(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write(path, **FILES[name])
    expected = whole(path)
    count = len(FILES[name]["times"])

    made = read(path, sequence_length=2, step=1)

    assert len(expected) == count and len(made) == count - 1
    for start, (frames, numbers) in enumerate(made):
        assert numbers.tolist() == [start, start + 1]
        np.testing.assert_array_equal(frames, expected[start : start + 2])


def test_only_padding_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    write(path, range(5), codec="mjpeg", change=halved)

    ((_, first), (frames, numbers)) = read(path, sequence_length=4, pad_mode="constant", fill_value=7)

    assert (first.tolist(), numbers.tolist()) == ([0, 1, 2, 3], [4, -1, -1, -1])
    np.testing.assert_array_equal(frames[0], whole(path)[4])
    assert (frames[1:] == 7).all()


def test_a_length_that_the_header_exaggerates_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write(path, range(12), codec="mpeg4", bf="2")
    data = bytearray(path.read_bytes())
    for header, offset in ((b"avih", 16), (b"strh", 32)):
        at = data.index(header) + 8 + offset
        assert struct.unpack_from("<I", data, at) == (12,)
        struct.pack_into("<I", data, at, 500)
    path.write_bytes(data)

    made = read(path, sequence_length=12)

    assert len(made) == 1
    np.testing.assert_array_equal(made[0][0], whole(path))


def test_frames_that_change_their_size_are_named(tmp_path: Path) -> None:
    parts = [tmp_path / "a.ts", tmp_path / "b.ts"]
    write(parts[0], range(4))
    write(parts[1], range(4, 8), size=(48, 36))
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))

    with pytest.raises(
        BeamPipesError, match=r"joined.ts: frames from number 0 on have different sizes, 32x24 and 48x36"
    ):
        read(joined, sequence_length=8)


def test_frames_before_the_cut_are_read_and_those_after_it_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    write(path, range(20), g="5", bf="0")
    video, expected = VideoFile.of(str(path)), whole(path)
    path.write_bytes(path.read_bytes()[:-60])

    np.testing.assert_array_equal(video.frames({3})[3], expected[3])
    with pytest.raises(
        ValueError, match=r"cut.mp4: 1 frames cannot be decoded, the first of them number 19. Encode it again, or leave"
    ):
        video.frames({3, 19})


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.avi", "a.mkv", "a.webm"])
def test_a_file_that_was_cut_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write(path, range(20), codec="libvpx" if name == "a.webm" else "mpeg4", g="5")
    assert len(VideoFile.of(str(path)).times) == 20
    with path.open("r+b") as file:
        if name == "a.mov":  # whose headers are at the end: they move in front of the frames
            content = file.read()
            at = content.index(b"moov") - 4
            file.seek(0)
            file.write(content[at:] + content[:at])
        file.truncate(path.stat().st_size - 40)
    stated = path.stat().st_size + 40

    with pytest.raises(ValueError, match=rf"{name} should have {stated:,} bytes, as its header says, and ends after "):
        VideoFile.of(str(path))


@pytest.mark.parametrize("name", ["a.avi", "a.mkv"])
def test_a_file_that_does_not_state_its_length_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write(path, range(20), codec="mpeg4", g="5")
    content = path.read_bytes()
    segment = content.find(b"\x18S\x80g") + 4
    unknown = b"\x01" + b"\xff" * 7 if name == "a.mkv" else b"\xff" * 4
    at = segment if name == "a.mkv" else 4
    path.write_bytes(content[:at] + unknown + content[at + len(unknown) :])

    assert len(VideoFile.of(str(path)).times) == 20


def nothing(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        container.start_encoding()


def sound(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("empty.mkv", nothing, "'?.*empty.mkv holds no frames of video, or its end is missing. Leave it out, or copy"),
        ("sound.mkv", sound, "'?.*sound.mkv holds no frames of video, or its end is missing. Leave it out, or copy it"),
        (
            "raw.h264",
            lambda path: write(path, range(5)),
            "raw.h264 does not say when its frames are shown. Encode it into a file that does: ffmpeg -i raw.h264 vide",
        ),
    ],
)
def test_a_file_without_frames_or_times_is_named(name: str, make: Any, message: str, tmp_path: Path) -> None:
    path, good = tmp_path / name, tmp_path / "good.mp4"
    make(path)
    write(good, range(5))

    with pytest.raises(BeamPipesError, match=message):
        read([good, path], sequence_length=2, pad_mode="edge")
