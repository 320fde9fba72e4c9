"""Rows about pictures: a manifest beside them or elsewhere, or a file of text beside each.

    file_name,text,label          metadata.csv or metadata.jsonl, as Hugging Face's imagefolder
    id_code,diagnosis             train.csv, as Kaggle's; names without their suffix
    a cat                         1.txt beside 1.jpg

`find_rows` finds them for a directory and decides which of their fields names the file, is the label, and is the split.
`ImageRows` gives the row of a picture; one without a row is dropped as `no_row`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from beam_pipes.checks import known
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.media_files import MediaFiles, at_depth, folders_of, is_hidden, layout_of
from beam_pipes.recipes.split_names import SPLITS, readers_of
from beam_pipes.recipes.written import Code, Common, Module, call, spelled
from beam_pipes.sources.tar import has_field
from beam_pipes.storage.local import is_remote
from beam_pipes.transforms.manifest_rows import ManifestRows, Row, rows_of_manifest

#: Suffixes of pictures that Pillow reads, among them all of torchvision's ImageFolder.
IMAGE_SUFFIXES = tuple(
    ".apng .avif .bmp .dib .gif .heic .heif .j2k .jfif .jp2 .jpe .jpeg .jpg .mpo .pbm .pcx .pgm .png .pnm .ppm .qoi "
    ".tga .tif .tiff .webp".split()
)
#: Fields that name the picture, that are its label, and its split; the first that the rows have is used.
IMAGE_FIELDS = ("file_name", "filename", "image", "image_path", "path", "file", "image_id", "img", "id_code", "id")
LABEL_FIELDS = ("label", "class", "cls", "category")
SPLIT_FIELD = "split"
#: The files of rows of a directory; the first kind that exists is used.
DIRECTORY_MANIFESTS = ("metadata.csv", "metadata.jsonl", "train.csv")
#: The suffixes of files of rows.
MANIFESTS = (".csv", ".tsv", ".jsonl", ".json", ".csv.gz", ".tsv.gz", ".jsonl.gz")
#: The field of the text in a file beside a picture.
CAPTION = "txt"
#: The feature of the split, until a record is in it.
SPLIT = "__split__"
_CAPTIONS = f"*.{CAPTION}"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ImageRows(ManifestRows):
    """Rows about pictures, read on first use.

    `ImageRows(files=[Asset("pets/metadata.csv")], root="pets").fields("1.jpg")` → `{"file_name": "1.jpg", "text": …}`

    Args:
        files: manifests, or files of text beside pictures (`1.txt` of `1.jpg`), whose field is `txt`.
        image_field: the field that names the picture.
        root: see `ManifestRows`.
    """

    image_field: str = "file_name"

    words = ("a row", "picture", "image_root=… (--image-root)")
    advice = "Put what is about one picture into one row, such as its boxes into a list."
    suffixes = IMAGE_SUFFIXES

    @property
    def file_field(self) -> str:
        return self.image_field

    def fields(self, path: str) -> Mapping[str, object] | None:
        """The fields of the row about a picture; None without one."""
        rows = self.rows(path)
        return fields_of_row(rows[0]) if rows else None


def fields_of_row(row: Row) -> Mapping[str, object]:
    """The fields of a row; of a text beside a picture, `txt`."""
    return {CAPTION: row.fields["text"]} if row.is_beside else row.fields


class RowsFound(NamedTuple):
    """Rows as Python; picture → its fields; which are the label and the split; and what is not read, by suffix."""

    code: Code
    about: Mapping[str, Mapping[str, object]]
    label_field: str | None
    split_field: str | None
    left_out: Mapping[str, int]

    def classes(self, *, named: bool) -> list[str] | None:
        """The classes by name; None for labels that are numbers.

        Raises `DeclarationError` for a missing label, several in one, and a number that is none of a class, unless
        the classes are `named`.
        """
        assert self.label_field is not None
        labels = {path: fields.get(self.label_field) for path, fields in self.about.items()}
        missing = next((path for path, value in labels.items() if value is None or not str(value).strip()), None)
        if missing is not None:
            raise DeclarationError(
                f"the row about {missing!r} has no value in {self.label_field!r}, which is the label. Add it, or take "
                "the row out: an image without one is left out, and counted as no_row."
            )
        texts = {path: str(value).strip() for path, value in labels.items()}
        if all(each.isdecimal() for each in texts.values()):
            spellings: dict[int, str] = {}
            for path, text in texts.items():
                if spellings.setdefault(int(text), text) != text:
                    raise DeclarationError(
                        f"the labels {spellings[int(text)]!r} and {text!r} (of {path!r}) are one number. If they are "
                        f"one class, write both alike; if they are two, write names: c{text}."
                    )
            return None
        odd = next((path for path, value in labels.items() if isinstance(value, list | dict)), None)
        if odd is None and not named and all(map(_is_number, texts.values())):
            odd = next(path for path, each in texts.items() if not each.isdecimal())
        if odd is not None:
            raise DeclarationError(
                f"the label of {odd!r} should be the name of a class or its number from 0 on, and "
                f"{self.label_field!r} has {labels[odd]!r:.60}. If they are classes, write names or such numbers, or "
                "name them in their order: --classes (classes=[…]). If not, omit labels (--no-label), and keep the "
                "field under another name than label: --keep-field NAME:float32, or NAME:int64[] for lists."
            )
        return sorted({str(value) for value in labels.values()})


def need_extra_of(names: Iterable[str]) -> None:
    """Raises `MissingExtraError` for files that another extra reads, before anything is built."""
    if name := next((name for name in names if name.lower().endswith((".heic", ".heif"))), None):
        require("pillow_heif.as_plugin", purpose=f"HEIC ({name})")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def find_rows(
    data: str,
    found: MediaFiles,
    *,
    root: str,
    label: bool,
    label_field: str | None,
    split_field: str | None,
    image_field: str | None,
    keep_fields: Mapping[str, str],
    time_field: str | None,
) -> RowsFound | None:
    """The rows about pictures in `root`, of a manifest or a directory; None if there are none.

    Raises `DeclarationError` if they lack a field that was asked for, and `DatasetError` unless each is about one
    picture.
    """
    one = {"label_field": label_field, "split_field": split_field, "split_by_time": time_field}
    asked = {option: [name] for option, name in one.items() if name}
    asked |= {"keep_fields": kept} if (kept := [name for name in keep_fields if name != time_field]) else {}
    pictures = [file.name for file in found.files]
    files, pattern = _files(data, image_field, has_text=CAPTION in (*keep_fields, label_field))
    if not files:
        if option := next(iter(asked), image_field and "image_field"):
            raise DeclarationError(
                f"{option} (--{option.removesuffix('s').replace('_', '-')}) is about rows, or samples of tar archives, "
                f"and {data!r} holds images alone. Put a metadata.csv beside them, with their names as file_name, or "
                "name a manifest in place of the directory."
            )
        return None
    assets: object = [call("Asset", file) for file in files]
    if pattern is not None and files != [os.path.join(data, pattern)]:
        assets = Code(f"[Asset(path) for path in sorted({call('Path', data).text}.rglob({spelled(pattern)}))]")
    field = "audio" if pattern == _CAPTIONS else _image_field(files[0], image_field)
    rows = ImageRows(files=[Asset(file) for file in files], image_field=field).matched(pictures, (), root=root)
    about = {path: fields for path in pictures if (fields := rows.fields(path)) is not None}
    if not about:
        raise DeclarationError(f"no image in {root!r} has a row in {files[0]}{' or others' * (len(files) > 1)}.")
    first = next(iter(about.values()))
    for option, names in asked.items():
        option += f" (--{option.removesuffix('s').replace('_', '-')})"
        for name in names:
            if not any(has_field(fields, name) for fields in about.values()):
                known(name, among=first, what="field", where=option, error=DeclarationError)
    if label and label_field is None:
        label_field = next((name for name in LABEL_FIELDS if name in first), None)
    inside = [file for file in files if not os.path.relpath(file, root).startswith("..")]
    suffixes = [f".{CAPTION}"] * len(about) if pattern == _CAPTIONS else [PurePosixPath(file).suffix for file in inside]
    used = Counter(map(str.lower, suffixes))
    return RowsFound(
        call("ImageRows", files=assets, image_field=field, root=None if rows.root is None else root),
        about,
        label_field,
        split_field or (SPLIT_FIELD if SPLIT_FIELD in first else None),
        {suffix: count - used[suffix] for suffix, count in found.others.items() if count > used[suffix]},
    )


def _image_field(file: str, given: str | None) -> str:
    has = list(next(rows_of_manifest(file), Row("", {})).fields)
    name = given or next((name for name in IMAGE_FIELDS if name in has), "")
    if name not in has:
        raise DeclarationError(
            f"{file} has no field {repr(name) if name else 'such as ' + ', '.join(IMAGE_FIELDS[:5])} that names the "
            f"image; it has {', '.join(has) or 'no rows'}. Name a different one as image_field=… (--image-field)."
        )
    return name


def _files(data: str, image_field: str | None, *, has_text: bool) -> tuple[list[str], str | None]:
    """The files of rows, and the pattern that finds them in a directory."""
    if is_remote(data) or not os.path.isdir(data):
        return ([data], None) if data.lower().endswith(MANIFESTS) else ([], None)
    for pattern in (*DIRECTORY_MANIFESTS, *([_CAPTIONS] if has_text else [])):
        files = sorted(str(path) for path in Path(data).rglob(pattern))
        files = [file for file in files if not is_hidden(os.path.relpath(file, data))]
        if files and pattern == DIRECTORY_MANIFESTS[-1]:  # a name that other tables have too
            has = next(rows_of_manifest(files[0]), Row("", {})).fields
            if not {image_field, *IMAGE_FIELDS} & has.keys():
                continue
        if files:
            return files, pattern
    return [], None


def _splits_of(found: RowsFound) -> tuple[str | None, list[str]]:
    """Which field says the split, and the splits; no field for those that are folders at the top.

    Raises `DeclarationError` for a picture whose row does not say it.
    """
    if found.split_field is not None:
        values = {path: fields.get(found.split_field) for path, fields in found.about.items()}
        bad = next((path for path, value in values.items() if not isinstance(value, str) or not value), None)
        if bad is not None:
            raise DeclarationError(
                f"the row about {bad!r} should name its split in {found.split_field!r}, found {values[bad]!r}. Repair "
                "it, or rename the field if it is something else."
            )
        return found.split_field, sorted({str(value) for value in values.values()})
    tops = {path.partition("/")[0] for path in found.about if "/" in path}
    is_all = len(tops) > 1 and all("/" in path for path in found.about) and {top.lower() for top in tops} <= SPLITS
    return None, sorted(tops) if is_all else []


# A file of COCO begins or ends with one of its lists.
_OF_COCO = re.compile(rb'"(images|annotations|categories)"\s*:\s*\[')


def check_no_annotations(root: str, found: MediaFiles) -> None:
    """Raises `DeclarationError` for images with annotations of COCO, YOLO or Pascal VOC: folders are no labels."""
    images = {os.path.splitext(file.name)[0] for file in found.files}
    stems = {name.rpartition("/")[2] for name in images}
    for name in found.other_names:
        parent, _, stem = os.path.splitext(name)[0].rpartition("/")
        path, kind = os.path.join(root, name), ""
        if name.endswith(".json") and stem not in stems and not is_remote(root):  # one beside each image is not COCO's
            with contextlib.suppress(OSError), open(path, "rb") as file:
                head = file.read(1 << 16)
                file.seek(max(0, os.path.getsize(path) - len(head)))
                kind = "COCO" if _OF_COCO.search(head) or _OF_COCO.search(file.read()) else ""
        elif name.endswith(".xml") and stem in stems and parent.rpartition("/")[2] == "Annotations":
            kind = "Pascal VOC"
        elif name.endswith(".txt") and f"/{parent}/{stem}".replace("/labels/", "/images/")[1:] in images:
            kind = "YOLO" if "labels" in parent.split("/") else ""
        if kind:
            keep = "--keep-field 'objects.bbox:float32[][4]' --keep-field 'objects.category_id:int64[]'"
            what = (
                f"Name that file as the data: beam-pipes images {path} --image-root {root} --no-label {keep}"
                if kind == "COCO"
                else 'Write them into a metadata.jsonl beside the images, with a line for each: {"file_name": "a.jpg", '
                f'"objects": {{"bbox": [[0, 0, 9, 9]], "category_id": [1]}}}}, and store them with --no-label {keep}'
            )
            raise DeclarationError(
                f"{path!r} has annotations as those of {kind}, so folders of {root!r} are no labels. {what}; or omit "
                "labels alone: label=False (--no-label). If the folders are classes: class_folder=1 (--class-folder 1)."
            )


def assign_rows(
    module: Module,
    root: str,
    files: MediaFiles,
    common: Common,
    rows: RowsFound,
    splits: Code | None,
    *,
    label: bool,
    class_folder: int | None,
    named: bool,
) -> tuple[list[str] | None, int | None, Code | None]:
    """Assigns rows and the source of their pictures; returns the classes (None for numbers), the depth of their folder,
    and the splits: those given, or those that the rows say.
    """
    field, names = _splits_of(rows)
    if names and (splits or common.splits):
        where = f"the field {field!r} of the rows names" if field else f"the folders {', '.join(names)} of {root!r} are"
        raise DeclarationError(f"{where} the splits, but splits were given too. Omit them, or rename that.")
    notes = common.notes_of(root)
    folders = names if field is None else []
    in_folders = readers_of(folders, root, None, patterns=files.patterns, notes=notes, relative_to=root)
    module.use("beam_pipes.sources", "Files")
    module.use("beam_pipes", "Asset")
    if ".rglob(" in rows.code.text:
        module.use("pathlib", "Path")
    module.assign("source", in_folders or call("Files", root, pattern=files.patterns, **notes))
    module.assign("rows", rows.code, "beam_pipes.recipes.image_rows")
    if field is not None:
        module.use("beam_pipes.transforms.by_key", "SplitByField")
        splits = call("SplitByField", names, field=SPLIT)
    if not label:
        return [], None, splits
    if rows.label_field is not None:
        return rows.classes(named=named), None, splits
    inside = {path: folders_of(path)[bool(in_folders) :] for path in rows.about}
    outside = next((path for path, folders in inside.items() if not folders), None)
    if outside is None and len({tuple(folders) for folders in inside.values()}) == 1:
        outside = next(iter(inside))  # one folder for all is no class
    if outside is not None:
        raise DeclarationError(
            f"the row about {outside!r} has no label: it has {', '.join(rows.about[outside])}, and the image is not in "
            "a folder that is a class. Name the label's field as label_field=… (--label-field), or omit labels with "
            "label=False (--no-label)."
        )
    if class_folder is None:
        class_folder = layout_of({"/".join(folders) for folders in inside.values()}, has_splits=False).above + 1
        class_folder += bool(in_folders)
    found = {at_depth(folders_of(path), class_folder, path) for path in rows.about}
    return sorted(found), class_folder, splits
