"""`images`: files of pixels to arrays.

    pets/cat/1.jpg, pets/dog/2.png  ──▶  {"image": uint8 (224, 224, 3), "label": 0, "path": "cat/1.jpg"}, …

Images are in directories, whose folders are classes, or in tar archives in the layout of WebDataset, whose samples have
a label beside the image: `1.jpg` with `1.cls`. `image_example` and `class_of` are the stages that its modules use;
`decode_images` decodes batches of images that are stored as files.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt

from beam_pipes.analysis import Result
from beam_pipes.checks import choice, known
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.format.dtypes import Array
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.image_pixels import (
    MasksFound,
    check_no_masks,
    colour_of,
    decoded_image,
    encoded_image,
    find_masks,
    fitted,
    mask_of,
    numbers_of_mask,
)
from beam_pipes.recipes.image_rows import IMAGE_SUFFIXES as IMAGE_SUFFIXES
from beam_pipes.recipes.image_rows import (
    MANIFESTS,
    SPLIT,
    ImageRows,
    RowsFound,
    assign_rows,
    check_no_annotations,
    find_rows,
    need_extra_of,
)
from beam_pipes.recipes.media_files import (
    Layout,
    MediaFiles,
    are_archives,
    at_depth,
    check_archives,
    count_other_folders,
    field_of_samples,
    files_of,
    first_sample,
    folders_of,
    is_hidden,
    layout_of,
    names_in,
)
from beam_pipes.recipes.options import CLASSES_HELP, FIELDS_HELP, Option, ends_of, fields_of, names_of, size_of
from beam_pipes.recipes.row_files import assign_source
from beam_pipes.recipes.row_values import feature_of, number_of, numbers_of
from beam_pipes.recipes.split_names import readers_of
from beam_pipes.recipes.texts import kept
from beam_pipes.recipes.written import Code, Common, CommonOptions, EndsInTime, Module, Recipe, call, keep_time
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.selection import Paths
from beam_pipes.sources.tar import KEY, sample_file
from beam_pipes.transforms.analyzers.vocabulary import TokenTable, Vocabulary
from beam_pipes.transforms.image_files import MAX_PIXELS
from beam_pipes.transforms.kept_fields import field_of, kept_fields
from beam_pipes.typed import drop, stage

if TYPE_CHECKING:
    from typing_extensions import Unpack

Pixels = npt.NDArray[np.uint8]

#: How images are brought to one shape: cropped, padded with black, or stretched.
FITS = ("crop", "pad", "stretch")
#: How images are stored: as arrays, or as files (as they are, or written again).
ENCODINGS = ("pixels", "jpeg", "png", "files")
#: Fields of tar samples that may hold a label; the first that exists is used. `json.label` is in a `.json`.
LABEL_FIELDS = ("cls", "json.label", "json.class", "json.cls")


@stage(version=4)
def image_example(
    file: object,
    *,
    classes: Sequence[str] | Result | None = None,
    label_field: str | None = None,
    class_folder: int | None = None,
    size: tuple[int, int] | None = None,
    fit: str = "crop",
    encode: str = "pixels",
    quality: int = 90,
    background: str = "white",
    max_pixels: int = MAX_PIXELS,
    group: str | None = None,
    keep: Mapping[str, str] | None = None,
    rows: ImageRows | None = None,
    split_field: str | None = None,
    masks: Asset | None = None,
) -> dict[str, object] | None:
    """An image file to an example: `cat/1.jpg` → `{"image": uint8 (224, 224, 3), "label": 0, "path": "cat/1.jpg"}`.

    Args:
        file: a `FileContent`, or a sample of a tar archive; samples without an image are dropped as `no_image`, those
            in hidden folders as `hidden`.
        classes: names of the classes; a label is a position in them. Classes learned by an analyzer are sorted by name.
            None for numeric labels and without labels.
        label_field: which field of a sample is its label or class. Default: the class is a folder.
        class_folder: the number of the folder in the path, from 1 at the top. Default: the first one named as a class.
        size: height and width; None keeps those of the file.
        fit: one of `FITS`.
        encode: one of `ENCODINGS`; `image` is then bytes, but for "pixels".
        quality: of JPEG.
        background: the colour seen through transparent pixels: a name, `#ff8000`, or `none` for the colours
            that they hide.
        max_pixels: larger images are refused before they are decoded.
        group: a regular expression; its match in the path, or its first group, is stored as `group`. Files without a
            match are dropped as `no_group`.
        keep: further fields of a sample or row to store, each with its dtype: captions, masks as bytes, boxes; see
            `kept_fields`.
        rows: what is known about files; label, split and kept fields are then those of their rows, and files without a
            row are dropped as `no_row`.
        split_field: the field of a row that names its split, for `SplitByField(field="__split__")`.
        masks: the directory of masks; see `image_pixels`. They are fitted as images are, each pixel the nearest one,
            and stored as `mask`: numbers with "pixels", else files, PNG where they are written again.

    Images are RGB, turned as their Exif orientation says; `beam_pipes.transforms.image_files` decodes them. Raises
    `ValueError` for a file that is damaged or unsupported, `TaskError` for a sample without a label.
    """
    image_file = sample_file(file, IMAGE_SUFFIXES) if isinstance(file, Mapping) else file
    if image_file is None:
        return drop("no_image")
    assert isinstance(image_file, FileContent)
    if is_hidden(image_file.path):
        return drop("hidden")
    example: dict[str, object] = {"path": image_file.path}
    if rows is not None and (file := rows.fields(image_file.path)) is None:
        return drop("no_row")
    if isinstance(file, Mapping):
        example |= kept_fields(file, keep, sparse=True)
    if split_field is not None:
        example[SPLIT] = field_of(file, split_field, what="its split", option="--split-field")
    if group is not None:
        found = re.search(group, image_file.path)
        if found is None:
            return drop("no_group")
        example["group"] = found[1] if found.re.groups else found[0]
    if label_field is not None and classes is None:
        value = field_of(file, label_field, what="its label", option="--label-field")
        if rows is not None and isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if not isinstance(value, int):
            raise TaskError(
                f"expected the field {label_field!r} to hold a number, as in the first sample, found {value!r:.40} in "
                f"{image_file.path!r}. Repair the sample, or drop it with --on-error drop.",
                field=label_field,
            )
        example["label"] = value
    elif classes is not None:
        example["label"] = _label(file, image_file.path, classes, label_field, class_folder)
    # With "files" too: a damaged one would only be discovered in training.
    image = decoded_image(image_file.content, background=background, max_pixels=max_pixels)
    if masks is not None:
        content, mask = mask_of(masks, image_file.path, image.shape[:2])
        mask = mask if size is None else fitted(mask[..., None], size, fit=fit, nearest=True)[..., 0]
        example["mask"] = content if encode == "files" else mask if encode == "pixels" else encoded_image(mask, "png")
    if encode == "files":
        example["image"] = image_file.content
        return example
    if size is not None:
        image = fitted(image, size, fit=fit)
    example["image"] = image if encode == "pixels" else encoded_image(image, encode, quality=quality)
    return example


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Folders(Vocabulary):
    """Finds the folders of images, and by their layout which of them are classes."""

    def class_names(self, value: TokenTable) -> list[str]:
        return _layout(value).classes


@stage(version=2)
def class_of(
    sample: Mapping[str, object], *, label_field: str | None = None, class_folder: int | None = None
) -> str | None:
    """The class of a sample: the value of a field, or its folder: `{"__key__": "cat/1", "jpg": b"…"}` → `"cat"`.

    With neither a field nor `class_folder`, all its folders, `pets/cat`. None for a sample without an image, or hidden.
    Raises `TaskError` for an image without a class.
    """
    file = sample_file(sample, IMAGE_SUFFIXES)
    if file is None or is_hidden(file.path):
        return None
    if label_field is not None:
        return str(field_of(sample, label_field, what="its label", option="--label-field"))
    folders = _folders(file.path)
    return "/".join(folders) if class_folder is None else at_depth(folders, class_folder, file.path)


def _label(
    record: object, path: str, classes: Sequence[str] | Result, field: str | None, class_folder: int | None
) -> int:
    """The number of an image's class."""
    numbers = numbers_of(tuple(classes.class_names() or ()) if isinstance(classes, Result) else tuple(classes))
    if field is not None:
        name = str(field_of(record, field, what="its label", option="--label-field"))
    else:
        folders = _folders(path)
        if class_folder is None and isinstance(classes, Result):
            class_folder = _layout(classes.value()).above + 1
        if class_folder is not None:
            name = at_depth(folders, class_folder, path)
        else:
            name = next((each for each in folders if each in numbers), folders[0])
    return number_of(name, numbers, what=repr(path), field=field)


def _folders(path: str) -> list[str]:
    folders = folders_of(path)
    if not folders:
        raise TaskError(
            f"{path!r} is not in a folder, so it has no class. Move it into one, or name the field of the label."
        )
    return folders


@functools.lru_cache(maxsize=8)
def _layout(table: TokenTable) -> Layout:
    return layout_of(map(str, table.tokens), has_splits=False)


def decode_images(
    batch: dict[str, Array],
    *,
    size: tuple[int, int],
    background: str = "white",
    max_pixels: int = MAX_PIXELS,
    has_masks: bool = False,
) -> dict[str, Array]:
    """Replaces image files in a batch by their pixels; for `Loader(…, transform=…)`.

    `{"image": [b"\\xff\\xd8…", …]}` with `size=(224, 224)` → `{"image": uint8 (rows, 224, 224, 3)}`. Images of another
    size are cut to it. `background` and `max_pixels` are those of `image_example`. `has_masks` does the same to `mask`,
    to uint8 or uint16 (rows, 224, 224), by nearest pixels.
    """
    if has_masks:
        masks = [numbers_of_mask(bytes(content), f"row {row}") for row, content in enumerate(batch["mask"])]
        batch = {
            **batch,
            "mask": np.stack([fitted(mask[..., None], size, fit="crop", nearest=True) for mask in masks])[..., 0],
        }
    pixels = np.zeros((len(batch["image"]), *size, 3), np.uint8)
    for row, content in enumerate(batch["image"]):
        image = decoded_image(bytes(content), background=background, max_pixels=max_pixels)
        pixels[row] = image if image.shape[:2] == tuple(size) else fitted(image, size, fit="crop")
    return {**batch, "image": pixels}


def images(
    data: Annotated[
        Paths, Option("directory of images (folders are classes, or train, val and test), manifest, or tar archives")
    ],
    *,
    resize: Annotated[
        int | tuple[int, int] | None,
        Option("SIZE of a square, or HEIGHTxWIDTH, in pixels [as they are]", read=size_of),
    ] = None,
    fit: Annotated[str, Option(f"how images fit into that size: {', '.join(FITS)}")] = "crop",
    encode: Annotated[
        str | None,
        Option(f"how images are stored: {', '.join(ENCODINGS)} [pixels with --resize, files without]"),
    ] = None,
    quality: Annotated[int, Option("JPEG quality, 1 to 100")] = 90,
    background: Annotated[
        str, Option("colour seen through transparent pixels; none takes the colours that they hide")
    ] = "white",
    max_pixels: Annotated[int, Option("larger images fail, before they are decoded", least=1)] = MAX_PIXELS,
    label: Annotated[bool, Option("store the number of an image's class as label")] = True,
    label_field: Annotated[
        str | None,
        Option("tar member, json.KEY or manifest field that is the label [by name, else the folder]"),
    ] = None,
    class_folder: Annotated[
        int | None, Option("which folder of a path is the class, from 1 at the top [by the layout]", least=1)
    ] = None,
    classes: Annotated[Sequence[str] | None, Option(CLASSES_HELP, read=names_of)] = None,
    keep_fields: Annotated[
        Mapping[str, str] | Sequence[str], Option(FIELDS_HELP, name="--keep-field", read=fields_of, repeated=True)
    ] = (),
    image_root: Annotated[
        str | os.PathLike[str] | None, Option("directory of the images of a manifest [that of the manifest]")
    ] = None,
    image_field: Annotated[str | None, Option("manifest field that names the image [by name]")] = None,
    split_field: Annotated[str | None, Option("manifest field that names the split [split, if there is one]")] = None,
    split_by_time: Annotated[
        EndsInTime | None,
        Option(
            "FIELD:SPLIT=END,SPLIT: splits by this field of rows or samples, each up to its END in time", read=ends_of
        ),
    ] = None,
    masks: Annotated[
        str | os.PathLike[str] | None, Option("directory of masks, a/1.png of a/1.jpg: stored as mask, without labels")
    ] = None,
    stratify: Annotated[str | None, Option("FIELD: each of its classes has the shares of --split")] = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From images to a cache: `cat/1.jpg` → `{"image": uint8 (224, 224, 3), "label": 0, "path": "cat/1.jpg"}`.

        images("pets", resize=224, splits={"train": 0.9, "eval": 0.1}).declaration()
        images("pets-*.tar", resize=224).declaration()

    Args:
        data: a directory; its folders are the classes, or those in `train`, `val`, `test` and the like, which are then
            the splits. Or a manifest about images (`.csv`, `.tsv` or `.jsonl`), which is also found in a directory: see
            `image_rows.DIRECTORY_MANIFESTS`. Or tar archives in the layout of WebDataset.
        resize: the size of a square, or height and width.
        fit: one of `FITS`.
        encode: one of `ENCODINGS`. Default: "pixels" where images are resized, which load fastest, else "files".
        quality: of JPEG.
        background: the colour seen through transparent pixels, as for `image_example`.
        max_pixels: an image of more pixels fails before memory is allocated for it.
        label: whether there are labels.
        label_field: which field of a tar archive's samples, or of rows, is the label. Default: the first of
            `LABEL_FIELDS` that the first one has, else the folder. A number is the label itself; text is a class, and
            classes are learned from all samples, which takes one more pass over the archives.
        class_folder: which of the folders in a path is the class, from 1 at the top. Default: see `layout_of`.
        classes: the names of the classes in the order of their numbers; an image of another one fails. Default: the
            existing ones, by name. A class added later would then change the numbers of others, which a build into the
            same directory refuses.
        keep_fields: further fields of a tar archive's samples, or of rows, to store, as text; or field → dtype: `txt`
            is a caption (in a directory, the file `1.txt` beside `1.jpg`), `json.boxes` the JSON of boxes, as arrays
            `"objects.bbox": "float32[][4]"`, and `mask.png: "bytes"` the file of a mask.
        image_root, image_field: of a manifest: the directory of its images, by default its own, and the field that
            names them, by default the first of `image_rows.IMAGE_FIELDS`.
        split_field: the field of rows that names the split. Default: `split`, if they have it.
        split_by_time: a field of rows or samples, which is stored too, and the ends of `SplitByTime`, instead of
            `splits`: `("taken", {"train": "2024-06-01", "eval": None})`.
        masks: a directory of masks, stored as `mask`: that of `a/1.jpg` is `a/1.png` or `a/1_mask.png`. Their numbers
            are kept; see `image_pixels`. Labels are then stored only if `label_field`, `class_folder` or `classes` asks
            for them.
        stratify: "label", or a field that is kept: each of its classes has the shares of `splits`, by
            `Strata`, which runs the stages once more to count.
        options: see `Common`. `by` is a regular expression; files with the same match (or first group, if it has one)
            in their paths stay in one split, and `group` is that match.

    Raises `DeclarationError` if there are no images, some are not in a folder, or options contradict each other.
    """
    encode = encode or ("files" if resize is None else "pixels")
    size = (resize, resize) if isinstance(resize, int) else resize
    common = Common.of("images", options)
    by = common.by
    _check_images(size, fit=fit, encode=encode, quality=quality, by=by)
    colour_of(background)
    label = label and (masks is None or any(each is not None for each in (label_field, class_folder, classes)))
    if masks is not None and fit == "pad":
        raise DeclarationError(
            "fit='pad' (--fit pad) would add pixels to masks, and they have no number for what is outside of an image. "
            "Choose crop or stretch."
        )
    keep = keep_time(kept(keep_fields, None), split_by_time)
    names_taken = {"group", "image", "label", "path"} | ({"mask"} if masks is not None else set())
    if taken := next((name for name in keep if name in names_taken), None):
        raise DeclarationError(
            f"the field {taken!r} cannot be kept: images have one of that name. Rename it in the data."
        )
    if by is not None:
        common = dataclasses.replace(common, by="group")
    module = Module()
    analyzers: list[Code] | None = None
    given = None if classes is None else [*classes]
    names: Code | None = None
    rows: RowsFound | None = None
    splits = None if split_by_time is None else module.splits_by_time(common, split_by_time)
    of_masks: MasksFound | None = None
    is_number = False
    if class_folder is not None and (class_folder < 1 or label_field is not None or not label):
        raise DeclarationError(
            f"class_folder counts folders from 1 at the top, and is for labels that are folders; got {class_folder}."
        )
    if are_archives(data, IMAGE_SUFFIXES, "images"):
        for option, value in {"image_root": image_root, "image_field": image_field, "split_field": split_field}.items():
            if value is not None:
                raise DeclarationError(f"{option} is for manifests, but the data are tar archives. Omit it.")
        if masks is not None:
            raise DeclarationError(
                "masks (--masks) are for images in a directory; those of tar archives are fields of their samples, "
                "1.mask.png of 1.jpg: keep_fields={'mask.png': 'bytes'} (--keep-field mask.png:bytes)."
            )
        sample = first_sample(data, IMAGE_SUFFIXES, "an image")
        need_extra_of(f".{field}" for field in sample)
        check_archives(data, common.splits or splits)
        assign_source(module, common, data, "tar")
        for field in keep:
            field_of_samples(sample, field, (), "keep_fields" if field in keep_fields else "split_by_time")
        if label:
            label_field = field_of_samples(sample, label_field, LABEL_FIELDS, "label_field")
            if label_field is None and not folders_of(str(sample[KEY])):
                raise DeclarationError(
                    f"the first sample, {sample[KEY]!r}, has no label: it has {', '.join(names_in(sample))}, and is "
                    "not in a folder. Name the label's field as label_field=… (--label-field), or omit labels with "
                    "label=False (--no-label)."
                )
            is_number = label_field is not None and not isinstance(field_of(sample, label_field), str)
            if given is None and not is_number:
                module.use("beam_pipes.recipes", "class_of")
                of = call("stage", Code("class_of"), label_field=label_field, class_folder=class_folder)
                kind, home = "Vocabulary", "beam_pipes.transforms.analyzers"
                if label_field is None and class_folder is None:
                    kind, home = "Folders", "beam_pipes.recipes.images"
                module.assign("classes", call(kind, "classes", of=of, split=Code("None")), home)
                names, analyzers = Code("classes.result"), [Code("classes")]
    else:
        path = os.fspath(data if isinstance(data, str | os.PathLike) else data[0])
        is_manifest = path.lower().endswith(MANIFESTS)
        root = os.fspath(image_root or (os.path.dirname(path) or "." if is_manifest else path))
        files = files_of(root, IMAGE_SUFFIXES, "images", option="" if image_root or not is_manifest else "--image-root")
        need_extra_of(file.name for file in files.files)
        rows = find_rows(
            path,
            files,
            root=root,
            label=label,
            label_field=label_field,
            split_field=split_field,
            image_field=image_field,
            keep_fields=keep,
            time_field=None if split_by_time is None else split_by_time[0],
        )
        module.left_out.update(files.others if rows is None else rows.left_out)
        if masks is not None:
            of_masks = find_masks(os.fspath(masks), [file.name for file in files.files], data=root)
            module.left_out.update({"masks of no image": of_masks.num_unused} if of_masks.num_unused else {})
            module.use("beam_pipes", "Asset")
        if rows is None:
            found, class_folder = _assign_folders(module, root, files, common, label=label, class_folder=class_folder)
        else:
            found, class_folder, splits = assign_rows(
                module, root, files, common, rows, splits, label=label, class_folder=class_folder, named=bool(classes)
            )
            label_field, split_field, is_number = rows.label_field, rows.split_field, found is None
        if label and found is not None:
            given = found if given is None else given
            if unknown := sorted({*found} - {*given}):
                raise DeclarationError(
                    f"there are images of {', '.join(unknown[:5])}, which is not among the classes. Add it at their "
                    "end: --classes (classes=[…])."
                )
    if label and given is not None:
        module.assign("classes", given)
        names = Code("classes")
    highest = Code("len(classes) - 1") if label and given is not None else None
    module.use("beam_pipes.recipes", "image_example")
    making = call(
        "stage",
        Code("image_example"),
        classes=None if is_number else names,
        label_field=label_field if label else None,
        class_folder=class_folder if label else None,
        size=size,
        fit=None if size is None or fit == "crop" else fit,
        encode=None if encode == "pixels" else encode,
        quality=quality if encode == "jpeg" else None,
        background=None if background == "white" else background,
        max_pixels=None if max_pixels == MAX_PIXELS else max_pixels,
        group=by,
        keep=keep or None,
        rows=None if rows is None else Code("rows"),
        split_field=split_field if splits is not None and split_by_time is None else None,
        masks=None if masks is None else call("Asset", os.fspath(masks)),
    )
    pixels = call("FeatureSpec", "uint8", shape=(*(size or (None, None)), 3))
    features = {"image": pixels if encode == "pixels" else call("FeatureSpec", "bytes")}
    if of_masks is not None:
        is_array = encode == "pixels"
        features["mask"] = call(
            "FeatureSpec", of_masks.dtype if is_array else "bytes", shape=size if is_array else None
        )
    if label:
        features["label"] = call("FeatureSpec", "int64", minimum=0, maximum=highest, classes=names)
    features |= {each: call("FeatureSpec", "str") for each in ("path", *(["group"] if by else []))}
    features |= {name: feature_of(dtype) for name, dtype in keep.items()}
    if stratify is not None:
        known(stratify, among=[each for each in features if each in ("label", *keep)], what="field", where="stratify")
        making, strata, splits = module.stratified(common, stratify, making)
        analyzers = [*(analyzers or ()), strata]
    module.declare(common, [making], features=features, analyzers=analyzers, splits=splits)
    text = module.text("Images and their classes, as `beam-pipes images` declares them.")
    return Recipe(text, _loading_images(encode, size, list(features)), left_out=module.left_out)


def _assign_folders(
    module: Module, root: str, found: MediaFiles, common: Common, *, label: bool, class_folder: int | None
) -> tuple[list[str] | None, int | None]:
    """Assigns the source of a directory; returns the classes (none without labels) and their folder's depth."""
    files, patterns = found.files, found.patterns
    notes = common.notes_of(root)
    module.use("beam_pipes.sources", "Files")
    inside = [folders_of(file.name) for file in files]
    outside = next((file.name for file, folders in zip(files, inside, strict=True) if not folders), None)
    if class_folder is not None:
        module.assign("source", call("Files", root, pattern=patterns, **notes))
        return sorted(
            {at_depth(folders, class_folder, file.name) for file, folders in zip(files, inside, strict=True)}
        ), class_folder
    if outside is not None:
        if label:
            raise DeclarationError(
                f"the image {outside!r} is not in a folder, so it has no class. Move it into one, or omit labels with "
                "label=False (--no-label)."
            )
        module.assign("source", call("Files", root, pattern=patterns, **notes))
        return [], None
    if label:
        check_no_annotations(root, found)
        check_no_masks(inside, files)
    try:
        layout = layout_of({"/".join(folders) for folders in inside})
        if label and layout.splits and not layout.classes:
            raise DeclarationError(
                f"the folders {', '.join(layout.splits)} are called as splits are, and hold images themselves, so "
                "there are no classes. Omit labels, and they are the splits: label=False (--no-label). If they are the "
                "classes: class_folder=1 (--class-folder 1)."
            )
    except DeclarationError:
        if label:
            raise
        layout = Layout(0, [], [])
    readers = readers_of(layout.splits, root, common.splits, patterns=patterns, notes=notes)
    module.assign("source", readers or call("Files", root, pattern=patterns, **notes))
    if label:
        count_other_folders(module.left_out, layout, inside, found.other_names)
    return layout.classes, layout.above + 1 if layout.above else None


def _check_images(size: tuple[int, int] | None, *, fit: str, encode: str, quality: int, by: str | None) -> None:
    choice(fit, of=FITS, what="fit")
    choice(encode, of=ENCODINGS, what="encode")
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise DeclarationError(f"resize should be a number of pixels, or height and width, got {size!r}.")
    if size is None and encode == "pixels":
        raise DeclarationError(
            "pixels of images that differ in size do not fit into one array. Give them one with resize=… (--resize "
            "224), or store them as files: encode='files' (--encode files)."
        )
    if size is not None and encode == "files":
        raise DeclarationError(
            "files that are stored as they are cannot be resized. Choose encode='jpeg', 'png' or 'pixels' (--encode)."
        )
    if not 1 <= quality <= 100:
        raise DeclarationError(f"quality is that of JPEG, 1 to 100, got {quality}.")
    for option, value, usual, is_used, what in (
        ("fit", fit, FITS[0], size is not None, "is how images get their size. Give one: resize=… (--resize 224)"),
        ("quality", quality, 90, encode == "jpeg", "is that of images stored as JPEG: encode='jpeg' (--encode jpeg)"),
    ):
        if value != usual and not is_used:
            raise DeclarationError(f"{option} (--{option} {value}) {what}, or omit it.")
    try:
        re.compile(by or "")
    except re.error as error:
        raise DeclarationError(f"by={by!r} (--by) should be a regular expression: {error}.") from error


def _loading_images(encode: str, size: tuple[int, int] | None, features: list[str]) -> str:
    rest = "".join(f", {name}" for name in features[1:])
    if size is None:
        return (
            "from beam_pipes.loader import Loader\n"
            f"for batch in Loader(SPLIT, batch_size=ROWS): ...  # image (ROWS,) bytes of files{rest}"
        )
    shown = f"# image uint8 (ROWS, {size[0]}, {size[1]}, 3){rest}"
    if encode == "pixels":
        return f"from beam_pipes.loader import Loader\nfor batch in Loader(SPLIT, batch_size=ROWS): ...  {shown}"
    return (
        "import functools\n"
        "from beam_pipes.loader import Loader\n"
        "from beam_pipes.recipes import decode_images\n"
        f"decode = functools.partial(decode_images, size={size}{', has_masks=True' * ('mask' in features)})\n"
        f"for batch in Loader(SPLIT, batch_size=ROWS, transform=decode, workers=2): ...  {shown}"
    )
