"""Readers of samples described by files: `readers.webdataset` for archives, `readers.coco` for images and their boxes,
`readers.nemo_asr` for speech and its text.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.extras import require
from beam_pipes.graph.operator import Constant
from beam_pipes.graph.reader import MadeFrom, Reader, RecordStore
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array
from beam_pipes.sources.tar import SoundInfo, breaks_off
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.transforms.audio.sound_files import whole
from beam_pipes.transforms.manifest_rows import TOLERANCE_SECS, Row, json_rows
from beam_pipes.transforms.operators.audio import Audio
from beam_pipes.transforms.operators.readers.files import Described
from beam_pipes.transforms.operators.readers.tfrecord import file_bytes


def _by_name(paths: Sequence[str]) -> dict[str, str]:
    """Files by base name, numbered: their identity does not depend on their location."""
    return {f"{at} {os.path.basename(path)}": path for at, path in enumerate(paths)}


class Webdataset(Reader):
    """Reads tar archives in which the files of a sample are adjacent and share a name: the bytes of each of `ext`.

    0.jpg, 0.cls, 1.jpg, 1.cls  →  readers.webdataset(paths="a.tar", ext=["jpg", "cls"])  →  two samples
    """

    locations = ("paths",)
    without_effect = (*Reader.without_effect, "index_paths")
    paths = Constant("strs", doc="paths of the archives")
    ext = Constant("strs", doc="for each output what follows the first dot of names; alternatives as 'jpg;png'")
    dtypes = Constant("any", default=None, doc="the dtype of each output, as stored in files; uint8 by default")
    missing_component_behavior = Constant(
        "str", default="empty", doc="the policy for samples that lack a file", choices=("empty", "skip", "error", "")
    )
    case_sensitive_extensions = Constant("bool", default=True, doc="whether case matters")

    def check(self) -> None:
        super().check()
        if self.dtypes is not None and len(self._given_dtypes) != len(self.ext):
            raise self.argument_error(
                f"dtypes should hold one for each of {len(self.ext)} ext, not {len(self._given_dtypes)}."
            )

    @property
    def _given_dtypes(self) -> list[Any]:
        given = "uint8" if self.dtypes is None else self.dtypes
        return list(given) if isinstance(given, (list, tuple)) else [given] * len(self.ext)

    def output_count(self) -> int:
        return len(self.ext)

    def infer(self, *inputs: TensorSpec) -> TensorSpec | list[TensorSpec]:
        self._dtypes = [np.dtype(getattr(one, "value", one)) for one in self._given_dtypes]
        made = [TensorSpec(dtype, (None,)) for dtype in self._dtypes]
        return made if len(made) > 1 else made[0]

    def open(self) -> RecordStore:
        places: dict[str, int] = {}
        for output, alternatives in enumerate(self.ext):
            places.update(dict.fromkeys(map(self._cased, alternatives.split(";")), output))
        names: list[str] = []
        found = []
        for number, path in enumerate(self.paths):
            try:
                samples = self._samples(path, places)
            except (OSError, tarfile.TarError) as error:
                raise self.argument_error(f"paths: {path!r} should be a tar archive: {error}.") from error
            for name, files in samples:
                if len(files) < len(self.ext) and self.missing_component_behavior == "skip":
                    continue
                if len(files) < len(self.ext) and self.missing_component_behavior == "error":
                    missing = next(one for at, one in enumerate(self.ext) if at not in files)
                    raise self.argument_error(f"sample {name!r} of {path!r} has no file {missing!r}.")
                names.append(f"{os.path.basename(path)}/{name}@{len(names)}")
                found.append((number, files))
        archives = [file_bytes(path) for path in self.paths]

        def load(index: int) -> list[Array]:
            number, files = found[index]
            bounds = [files.get(output, (0, 0)) for output in range(len(self.ext))]
            raw = [np.array(archives[number][first : first + size]) for first, size in bounds]
            return [one.view(dtype) for one, dtype in zip(raw, self._dtypes, strict=True)]

        def made_from(index: int) -> MadeFrom:
            number, files = found[index]
            return MadeFrom([self.paths[number]], sorted(files.items()))

        return Described(names, _by_name(self.paths), load, made_from)

    def _cased(self, extension: str) -> str:
        return extension if self.case_sensitive_extensions else extension.lower()

    def _samples(self, path: str, places: Mapping[str, int]) -> list[tuple[str, dict[int, tuple[int, int]]]]:
        """Name and files of each sample: output → (offset, bytes)."""
        samples: list[tuple[str, dict[int, tuple[int, int]]]] = []
        with tarfile.open(path, "r:", tarinfo=SoundInfo) as archive:
            for member in archive:
                folder, _, file = member.name.rpartition("/")
                stem, _, extension = file.partition(".")
                if not member.isfile() or not stem:
                    continue
                name = "/".join(filter(None, [folder, stem]))
                if not samples or samples[-1][0] != name:
                    samples.append((name, {}))
                output = places.get(self._cased(extension))
                if output is not None:
                    samples[-1][1].setdefault(output, (member.offset_data, member.size))
            if breaks_off(archive):
                raise tarfile.ReadError("it breaks off after a member, without the zeros that end an archive")
        return samples


class COCO(Reader):
    """Reads images and their COCO annotations: bytes, boxes (n, 4) float32, and labels (n,) int32.

    With `polygon_masks` come polygons, (m, 3) int32 of a box's number and the vertices where it begins and ends, and
    vertices (k, 2) float32; with `pixelwise_masks` the label of every pixel, (height, width, 1) int32, 0 outside of all
    objects and the highest where several overlap; with `image_ids` the id, (1,) int32.
    """

    locations = ("file_root", "annotations_file")
    file_root = Constant("str", doc="the directory that holds the images")
    annotations_file = Constant("str", doc="the JSON file of annotations")
    images = Constant("strs", default=None, doc="names of the images that are read, in order; all, by id, by default")
    ltrb = Constant("bool", default=False, doc="whether boxes are two corners, or left, top, width, height")
    ratio = Constant("bool", default=False, doc="whether coordinates are parts of the image, not pixels")
    size_threshold = Constant("float", default=0.1, doc="boxes of a smaller width or height are left out")
    skip_empty = Constant("bool", default=False, doc="whether images without boxes are left out")
    include_iscrowd = Constant("bool", default=True, doc="whether boxes of crowds are read")
    avoid_class_remapping = Constant("bool", default=False, doc="whether labels are ids of categories, not 1, 2, 3 …")
    image_ids = Constant("bool", default=False, doc="whether ids of images are an output")
    polygon_masks = Constant("bool", default=False, doc="whether polygons and vertices are outputs")
    pixelwise_masks = Constant("bool", default=False, doc="whether labels of pixels are an output")

    def check(self) -> None:
        super().check()
        if self.polygon_masks and self.pixelwise_masks:
            raise self.argument_error("give one of polygon_masks and pixelwise_masks.")

    def output_count(self) -> int:
        return 3 + 2 * int(self.polygon_masks) + int(self.pixelwise_masks) + int(self.image_ids)

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        made = [TensorSpec.of("uint8", (None,)), TensorSpec.of("float32", (None, 4)), TensorSpec.of("int32", (None,))]
        if self.polygon_masks:
            made += [TensorSpec.of("int32", (None, 3)), TensorSpec.of("float32", (None, 2))]
        if self.pixelwise_masks:
            made.append(TensorSpec(np.dtype("int32"), (None, None, 1), "HWC"))
        return [*made, *([TensorSpec.of("int32", (1,))] if self.image_ids else [])]

    def open(self) -> RecordStore:
        try:
            with open(self.annotations_file, encoding="utf-8") as file:
                content = json.load(file)
            known = {one["file_name"]: one for one in sorted(content["images"], key=lambda one: one["id"])}
            boxes: dict[int, list[Any]] = {}
            for one in content["annotations"]:
                large = min(one["bbox"][2:]) >= self.size_threshold
                if large and (self.include_iscrowd or not one.get("iscrowd")):
                    boxes.setdefault(one["image_id"], []).append(one)
            ids = {one["id"]: at + 1 for at, one in enumerate(content["categories"])}
            chosen = [known[name] for name in self.images or known]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.argument_error(
                f"annotations_file: {self.annotations_file!r} should be JSON as COCO's, with images, annotations and "
                f"categories: {type(error).__name__}: {error}."
            ) from error
        chosen = [one for one in chosen if boxes.get(one["id"]) or not self.skip_empty]
        paths = [os.path.join(self.file_root, one["file_name"]) for one in chosen]

        def load(index: int) -> list[Array]:
            image = chosen[index]
            found = boxes.get(image["id"], [])
            size = (image["width"], image["height"]) if self.ratio else (1, 1)
            corners = np.array([one["bbox"] for one in found], np.float32).reshape(-1, 2, 2)
            corners = np.cumsum(corners, axis=1, dtype=np.float32) if self.ltrb else corners
            corners = np.divide(corners, size, dtype=np.float32)
            labels = [one["category_id"] if self.avoid_class_remapping else ids[one["category_id"]] for one in found]
            made: list[Array] = [
                np.fromfile(paths[index], np.uint8),
                corners.reshape(-1, 4),
                np.array(labels, np.int32),
            ]
            made += _polygons(found, np.array(size, np.float32)) if self.polygon_masks else []
            made += [_labels_of_pixels(found, labels, image)] if self.pixelwise_masks else []
            return [*made, *([np.array([image["id"]], np.int32)] if self.image_ids else [])]

        def made_from(index: int) -> MadeFrom:
            found = boxes.get(chosen[index]["id"], [])
            labels = [ids.get(one["category_id"]) for one in found]
            return MadeFrom([paths[index]], [chosen[index], found, labels], is_whole_file=True)

        names = [f"{one['file_name']}@0" for one in chosen]
        return Described(names, _by_name([self.annotations_file, *paths]), load, made_from)


def _polygons(found: Sequence[JsonObject], size: Array) -> list[Array]:
    rows, vertices = [], [np.zeros((0, 2), np.float32)]
    begin = 0
    for number, one in enumerate(found):
        if not isinstance(one["segmentation"], list):
            raise ValueError(f"annotation {one['id']} has a run-length mask, and polygon_masks takes polygons")
        for polygon in one["segmentation"]:
            vertices.append(np.array(polygon, np.float32).reshape(-1, 2) / size)
            rows.append((number, begin, begin + len(vertices[-1])))
            begin += len(vertices[-1])
    return [np.array(rows, np.int32).reshape(-1, 3), np.concatenate(vertices)]


def _labels_of_pixels(found: Sequence[JsonObject], labels: Sequence[int], image: JsonObject) -> Array:
    """Objects drawn over each other, from the lowest label to the highest."""
    masks = require("pycocotools.mask", purpose="pixelwise_masks of fn.readers.coco")
    height, width = image["height"], image["width"]
    made = np.zeros((height, width, 1), np.int32)
    runs: dict[int, list[object]] = {}
    for one, label in zip(found, labels, strict=True):
        segmentation = one["segmentation"]
        is_compressed = isinstance(segmentation, dict) and isinstance(segmentation["counts"], (str, bytes))
        drawn = segmentation if is_compressed else masks.frPyObjects(segmentation, height, width)
        runs.setdefault(label, []).extend(drawn if isinstance(drawn, list) else [drawn])
    for label in sorted(runs):
        made[masks.decode(masks.merge(runs[label])) != 0] = label
    return made


class NemoAsr(Reader):
    """Reads speech that manifests list, a line of JSON each with audio_filepath, duration, text and offset (seconds).

    It gives the wave, and on request the sample rate (float32), the bytes of the text, and the number
    of the line, (1,) int64.
    """

    version = "2"
    locations = ("manifest_filepaths",)
    manifest_filepaths = Constant("strs", doc="the manifests")
    sample_rate = Constant("float", default=-1.0, doc="resample to this many Hz; 0 or less keeps those of the file")
    downmix = Constant("bool", default=True, doc="whether channels are averaged to one, without an axis")
    dtype = Constant("dtype", default="float32", doc="the dtype of the waves: float32, int16 or int32")
    min_duration = Constant("float", default=0.0, doc="shorter ones are left out, in seconds")
    max_duration = Constant("float", default=0.0, doc="longer ones are left out, in seconds; 0 keeps all")
    read_sample_rate = Constant("bool", default=True, doc="whether sample rates are an output")
    read_text = Constant("bool", default=True, doc="whether texts are an output")
    read_idxs = Constant("bool", default=False, doc="whether numbers of lines are an output")
    quality = Constant("float", default=50.0, doc="0 to 100: how many lobes of the sinc count, 3, 16 at 50, up to 64")

    def output_count(self) -> int:
        return 1 + sum(self._reads)

    def infer(self, *inputs: TensorSpec) -> TensorSpec | list[TensorSpec]:
        self._audio = Audio({"downmix": self.downmix, "dtype": self.dtype, "quality": self.quality}, name=self.name)
        wave, rate = self._audio.infer(TensorSpec())
        others = [rate, TensorSpec.of("uint8", (None,)), TensorSpec.of("int64", (1,))]
        made = [wave, *(one for one, is_read in zip(others, self._reads, strict=True) if is_read)]
        return made if len(made) > 1 else wave

    @property
    def _reads(self) -> tuple[bool, bool, bool]:
        return self.read_sample_rate, self.read_text, self.read_idxs

    def open(self) -> RecordStore:
        entries: list[tuple[str, Any, Any, Row]] = []
        for path in self.manifest_filepaths:
            try:
                with open(path, encoding="utf-8-sig") as lines:
                    for row in json_rows(path, lines):
                        times = (row.fields["duration"], row.fields.get("offset") or 0)
                        if not all(isinstance(secs, int | float) and secs >= 0 for secs in times):
                            raise ValueError(f"{row.place}: duration and offset should be seconds, got {times}")
                        entries.append((str(row.fields["audio_filepath"]), *times, row))
            except (OSError, ValueError, KeyError) as error:
                raise self.argument_error(
                    f"manifest_filepaths: each line of {path!r} should be JSON with audio_filepath and duration: "
                    f"{type(error).__name__}: {error}."
                ) from error
        most = self.max_duration or float("inf")
        kept = [(at, *one) for at, one in enumerate(entries) if self.min_duration <= one[1] <= most]
        checked: dict[str, tuple[int, int]] = {}  # files that are whole → their rate and number of samples

        def load(index: int) -> list[Array]:
            number, path, duration, offset, row = kept[index]
            wanted = max(self.sample_rate, 0.0)

            def dtype_of(file: Any) -> str:
                return self._audio.read_as(file, wanted)

            sound = None
            if path not in checked or not offset:  # of most files there is one row, about all of it
                with open(path, "rb") as file:
                    sound = whole(file.read(), name=path, dtype_of=dtype_of)
                checked[path] = sound.rate, len(sound.samples)
            rate, total = checked[path]
            start, frames = int(offset * rate), int(duration * rate)
            if start + frames - total > TOLERANCE_SECS * rate:
                raise ValueError(
                    f"{row.place}: {duration} s from {offset} s on are not within {path!r}, which lasts "
                    f"{total / rate:g} s"
                )
            if sound is not None and not start:
                wave = sound.samples[:frames]
            else:  # a long file is not decoded whole for each of its pieces
                with require("soundfile", purpose="fn.readers.nemo_asr").SoundFile(path) as file:
                    file.seek(start)
                    wave = file.read(frames, dtype=dtype_of(file), always_2d=True)
            made = self._audio.finished(wave, rate, wanted)
            text = np.frombuffer(str(row.fields.get("text") or "").encode(), np.uint8)
            others = [made[1], text, np.array([number], np.int64)]
            return [made[0], *(one for one, is_read in zip(others, self._reads, strict=True) if is_read)]

        def made_from(index: int) -> MadeFrom:
            number, path, duration, offset, row = kept[index]
            return MadeFrom([path], [number, duration, offset, row.fields.get("text")])

        names = [f"{os.path.basename(path)}@{number}" for number, path, *_ in kept]
        return Described(names, _by_name(self.manifest_filepaths), load, made_from)
