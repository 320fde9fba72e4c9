"""Rows about pictures: manifests of several kinds, and texts beside pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.recipes import images
from reference_pages.formats.rows import LeftOut, Read, Refused, Row, library, of_recipe, several, stated, text


def _pictures(*names: str) -> Callable[[Path], object]:
    def write(directory: Path) -> None:
        for name in names:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            library("PIL.Image").fromarray(np.zeros((2, 3, 3), np.uint8)).save(path)

    return write


def _about(name: str, content: str, *pictures: str) -> Callable[[Path], object]:
    """Writes pictures, and a manifest about them."""
    return several(_pictures(*pictures or ("a.png",)), text(name, content))


def _json_lines(*rows: Mapping[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _stored(*features: str, name: str = "", **options: Any) -> Callable[[Path], Any]:
    """Paths and other features of what the recipe makes of the directory, or of a manifest of this name."""
    return of_recipe(lambda path: images(str(path / name), **options), "path", *features)


_TWO = "file_name,text\na.png,to be\nb.png,or not\n"
_BOXES = [[1.0, 2.0, 3.5, 4.0], [0.0, 0.0, 2.0, 2.0]]

_COCO = json.dumps({
    "images": [{"id": 3, "file_name": "b.png"}, {"id": 5, "file_name": "a.png"}],
    "annotations": [
        {"id": 1, "image_id": 3, "bbox": _BOXES[0], "category_id": 9},
        {"id": 2, "image_id": 3, "bbox": _BOXES[1], "category_id": 4},
    ],
    "categories": [{"id": 4, "name": "cat"}, {"id": 9, "name": "dog"}],
}, indent=1)  # fmt: skip

ROWS = [
    Row("imagefolder", "`metadata.csv`", _about("metadata.csv", _TWO, "a.png", "b.png"),
        _stored("text", label=False, keep_fields=["text"]),
        Read(stated("`csv`", ("a.png", "to be"), ("b.png", "or not")))),
    Row("imagefolder", "`metadata.jsonl`, with boxes as `float32[][4]`", _about("metadata.jsonl", _json_lines(
        {"file_name": "a.png", "objects": {"bbox": _BOXES}})),
        _stored("objects.bbox", label=False, keep_fields={"objects.bbox": "float32[][4]"}),
        Read(stated("`json`", ("a.png", _BOXES)))),
    Row("imagefolder", "`label`", _about("metadata.csv", "file_name,label\na.png,dog\nb.png,cat\n", "a.png", "b.png"),
        _stored("label"), Read(stated("`csv`", ("a.png", 1), ("b.png", 0)), "the class, in the order of names")),
    Row("Kaggle", "`train.csv`: names without suffix, labels that are numbers", _about(
        "train.csv", "id_code,diagnosis\n0a,4\n", "train_images/0a.png"),
        _stored("label", label_field="diagnosis"), Read(stated("`csv`", ("train_images/0a.png", 4)))),
    Row("COCO", "its JSON as the data; `objects.bbox`, `objects.category_id`, `objects.category`", several(
        _pictures("images/a.png", "images/b.png"), text("instances.json", _COCO)),
        _stored("objects.bbox", "objects.category_id", "objects.category", name="instances.json", label=False,
                keep_fields={"objects.bbox": "float32[][4]", "objects.category_id": "int64[]",
                             "objects.category": "str"}),
        Read(stated("`json`", ("images/a.png", np.empty((0, 4)), np.empty(0), "[]"),
                    ("images/b.png", _BOXES, [9, 4], '["dog", "cat"]')))),
    Row("COCO", "its JSON below a directory of images", several(
        _pictures("images/a.png"), text("annotations/instances.json", _COCO)), _stored(),
        Refused("has annotations as those of COCO, so folders of")),
    Row("COCO", "annotations of images that it does not have", several(
        _pictures("b.png"), text("instances.json", _COCO.replace('"id": 3', '"id": 4'))),
        _stored(name="instances.json", label=False), Refused("ids that are there, found KeyError: 3")),
    Row("YOLO", "`labels/a.txt` of `images/a.png`", several(
        _pictures("train/images/a.png"), text("train/labels/a.txt", "0 0.5 0.5 0.1 0.1\n")), _stored(),
        Refused("has annotations as those of YOLO")),
    Row("Pascal VOC", "`Annotations/a.xml`", several(
        _pictures("JPEGImages/a.png"), text("Annotations/a.xml", "<annotation/>")), _stored(),
        Refused("has annotations as those of Pascal VOC")),
    Row("Pascal VOC", "`SegmentationClass/a.png`", _pictures("JPEGImages/a.png", "SegmentationClass/a.png"), _stored(),
        Refused("so they are masks, and no class")),
    Row("all", "semicolons between the columns", _about("metadata.csv", "file_name;label\na.png;cat\n"), _stored(),
        Refused("with ';'. Write the file with commas")),
    Row("all", "labels that are lists", _about("metadata.jsonl", _json_lines({"file_name": "a.png", "label": [1]})),
        _stored(), Refused("should be the name of a class or its number from 0 on, and 'label' has [1]")),
    Row("all", "labels that are fractions or negative", _about("metadata.csv", "file_name,label\na.png,-1\n"),
        _stored(), Refused("should be the name of a class or its number from 0 on, and 'label' has '-1'")),
    Row("texts", "`a.txt` beside `a.png`, with `--keep-field txt`", _about("a.txt", "to be\n"),
        _stored("txt", label=False, keep_fields=["txt"]),
        Read(stated("–", ("a.png", "to be")), "read, without blanks at both ends")),
    Row("all", "an image without a row", _about("metadata.csv", "file_name,text\na.png,to be\n", "a.png", "b.png"),
        _stored("text", label=False, keep_fields=["text"]), LeftOut("no_row", stated("–", ("a.png", "to be")))),
    Row("all", "a row about an image that is not there", _about("metadata.csv", _TWO), _stored(label=False),
        Refused("a row is about the file 'b.png', and there is none")),
    Row("all", "two rows about the same image", _about("metadata.csv", "file_name\na.png\na.png\n"),
        _stored(label=False), Refused("two rows are about the file 'a.png'")),
    Row("all", "a row without a label", _about("metadata.csv", "file_name,label\na.png,\n"), _stored(),
        Refused("has no value in 'label', which is the label")),
    Row("all", "an empty split", _about("metadata.csv", "file_name,split\na.png,\n"), _stored(label=False),
        Refused("should name its split in 'split', found ''")),
    Row("folders", "images in `train` and `val` themselves", _pictures("train/a.png", "val/b.png"), _stored(),
        Refused("are called as splits are, and hold images themselves, so there are no classes")),
]  # fmt: skip
