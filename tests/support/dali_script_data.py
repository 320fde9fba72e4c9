"""The files that the scripts of `references/dali_scripts` read, below `data/`; small ones."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np
from dali_environment import DALI, run_dali
from dali_file_cases import CLIP
from PIL import Image

from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.messages import Example


def write_data(root: Path) -> None:
    """Makes all of them."""
    data = root / "data"
    for folder in ("listed", "coco/images", "audio", "numpy", "web", "video", "records"):
        (data / folder).mkdir(parents=True)
    _write_images(data)
    _write_boxes(data / "coco")
    _write_sound(data)
    for at in range(3):
        np.save(data / f"numpy/{at}.npy", (np.arange(6 * (at + 1)).reshape(2, -1) * (at + 1)).astype(np.float32))
    (data / "numpy/list.txt").write_text("1.npy\n0.npy\n2.npy\n")
    shutil.copy(CLIP, data / "video")
    np.save(data / "frames.npy", np.stack([_pixels(at, 16, 20) for at in range(3)]))
    _write_archive(data / "web/train.tar")
    _write_records(data / "records/train.tfrecord")
    run_dali(DALI / "wds2idx", data / "web/train.tar", data / "web/train.idx")
    run_dali(DALI / "tfrecord2idx", data / "records/train.tfrecord", data / "records/train.idx")


def _pixels(seed: int, height: int, width: int) -> Any:
    """Smooth colours, other ones for each seed."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (5 + seed) + y / 9), np.cos(y / (4 + seed)), np.sin((x + y) / 7)], -1)
    return ((waves + 1) * 120).astype(np.uint8)


def _encoded(pixels: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return buffer.getvalue()


def _write_images(data: Path) -> None:
    sizes = iter([(30 + 4 * at, 40 + (3 if at % 2 else -2) * at) for at in range(10)])
    for name, count in (("cat", 4), ("dog", 3), ("fish", 3)):
        (data / "images" / name).mkdir(parents=True)
        for at in range(count):
            suffix, kind = ("jpg", "JPEG") if at else ("png", "PNG")
            height, width = next(sizes)
            content = _encoded(_pixels((height - 30) // 4, height, width), kind)
            (data / f"images/{name}/{at}.{suffix}").write_bytes(content)
    for at in range(6):
        (data / f"listed/{at}.jpg").write_bytes(_encoded(_pixels(at, 20 + at, 24), "JPEG"))
    (data / "listed/file_list.txt").write_text("".join(f"{at}.jpg {at % 3}\n" for at in range(6)))


def _write_boxes(folder: Path) -> None:
    """Three images with one, two and three boxes."""
    sizes = [(60, 48), (50, 40), (44, 64)]
    boxes = [(image, (4 + 6 * at, 6 + 5 * at, 18, 20), (2, 5)[at % 2]) for image in range(3) for at in range(image + 1)]
    for at, (width, height) in enumerate(sizes):
        (folder / f"images/{at}.jpg").write_bytes(_encoded(_pixels(at, height, width), "JPEG"))
    told = {
        "images": [
            {"id": 10 + at, "width": width, "height": height, "file_name": f"{at}.jpg"}
            for at, (width, height) in enumerate(sizes)
        ],
        "categories": [{"id": 2, "name": "a"}, {"id": 5, "name": "b"}],
        "annotations": [
            {"id": at, "image_id": 10 + image, "category_id": category, "bbox": [x, y, w, h], "iscrowd": 0}
            | {"area": w * h, "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]]}
            for at, (image, (x, y, w, h), category) in enumerate(boxes)
        ],
    }
    (folder / "instances.json").write_text(json.dumps(told))


def _write_sound(data: Path) -> None:
    """A mono and a stereo file, silent at their ends, and a wave."""
    for label, name in enumerate(("anna", "bert")):
        (data / "audio" / name).mkdir()
        times = np.arange(4000 + 800 * label)
        tone = (np.sin(times / (5 + label)) * 9000 + np.sin(times / 50) * 3000) * ((times > 600) & (times < 3300))
        channels = 1 + label
        with wave.open(str(data / f"audio/{name}/0.wav"), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes((tone[:, None] * (np.arange(channels) * 0.5 + 0.5)).astype("<i2").tobytes())
    times = np.arange(3000)
    np.save(data / "audio.npy", (np.sin(times / 6) + np.sin(times**1.3 / 40) * 0.3).astype(np.float32))


def _write_archive(path: Path) -> None:
    """Six samples; one has no class, one no image, and one a PNG."""
    with tarfile.open(path, "w") as archive:
        for at in range(6):
            suffix, kind = ("png", "PNG") if at == 4 else ("jpg", "JPEG")
            image = _encoded(_pixels(at, 20, 24 + at), kind)
            parts = {suffix: image, "cls": str(at).encode(), "json": b'{"a": 1}'}
            for part, content in parts.items():
                if (at, part) not in ((1, "cls"), (3, "jpg")):
                    member = tarfile.TarInfo(f"{at:04}.{part}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def _write_records(path: Path) -> None:
    with RecordWriter(str(path)) as writer:
        for at in range(6):
            example = Example()
            feature = example.features.feature
            feature["image/encoded"].bytes_list.value.append(_encoded(_pixels(at, 26 + at, 30), "JPEG"))
            feature["image/class/label"].int64_list.value.append(at % 3)
            feature["image/class/text"].bytes_list.value.append(f"class {at % 3}".encode())
            feature["image/object/bbox/xmin"].float_list.value.extend(0.1 * one for one in range(at + 1))
            feature["image/object/bbox/ymin"].float_list.value.extend(0.2 * one for one in range(at + 1))
            feature["image/hist"].int64_list.value.extend(range(at, at + 4))
            writer.write(example.SerializeToString())
