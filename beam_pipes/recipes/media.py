"""`images` and `audio`: files of pixels and of sound to arrays.

    pets/cat/1.jpg, pets/dog/2.png  ── images ──▶  {"image": uint8 (224, 224, 3), "label": 0, "path": "cat/1.jpg"}, …
    talks/a.flac, manifest.jsonl    ── audio ───▶  {"audio": float32 (51200,), "text": "to be", …}

`image_example` and `audio_example` are the stages that their modules use; `decode_images` decodes batches of images
that are stored as files.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from beam_pipes.cache.storage import is_remote
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.texts import kept
from beam_pipes.recipes.written import Code, Common, Module, Recipe, call, spelled
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.selection import FoundFile, select
from beam_pipes.transforms.audio.processor import AUDIO_SUFFIXES, Transcripts, read_wav, rows_of_manifest
from beam_pipes.transforms.chat import kept_fields
from beam_pipes.typed import count, drop, stage

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: How images of any shape become images of one: cut to it, filled up with black, or stretched.
FITS = ("crop", "pad", "stretch")
#: How images are stored: as arrays, or as files (as they are, or written anew).
ENCODINGS = ("pixels", "jpeg", "png", "files")
SOUND_DTYPES = ("float32", "int16")
AUDIO_FIELDS = ("audio", "audio_filepath", "path", "file", "file_name", "filename", "wav", "id")
TEXT_FIELDS = ("text", "transcript", "transcription", "sentence", "normalized_text")
SIDE_FILES, METADATA = "*.trans.txt", "metadata.csv"
# Folders of these names, and no others, are splits.
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "eval", "test"})


# Images.


@stage
def image_example(
    file: FileContent,
    *,
    classes: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    fit: str = "crop",
    encode: str = "pixels",
    quality: int = 90,
    group: str | None = None,
) -> dict[str, object] | None:
    """An image file to an example: `cat/1.jpg` → `{"image": uint8 (224, 224, 3), "label": 0, "path": "cat/1.jpg"}`.

    Args:
        classes: names of the folders that are classes; a label is a position in them. None for no label.
        size: height and width; None keeps those of the file.
        fit: one of `FITS`.
        encode: one of `ENCODINGS`; `image` is then bytes, but for "pixels".
        quality: of JPEG.
        group: a regular expression; its match in the path, or its first group, is stored as `group`. Files without a
            match are dropped as `no_group`.

    Images are RGB, turned as their Exif orientation says. Raises `ValueError` for a damaged file.
    """
    example: dict[str, object] = {"path": file.path}
    if group is not None:
        found = re.search(group, file.path)
        if found is None:
            return drop("no_group")
        example["group"] = found[1] if found.re.groups else found[0]
    if classes is not None:
        example["label"] = _numbers(tuple(classes))[file.path.partition("/")[0]]
    if encode == "files" and size is None:
        example["image"] = file.content
        return example
    image = decoded_image(file.content)
    if size is not None:
        image = fitted(image, size, fit=fit)
    example["image"] = image if encode == "pixels" else encoded_image(image, encode, quality=quality)
    return example


@functools.lru_cache(maxsize=8)
def _numbers(classes: tuple[str, ...]) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(classes)}


def decoded_image(content: bytes) -> Pixels:
    """The pixels of an image file: uint8 (height, width, 3), RGB. Raises `ValueError` for a damaged one."""
    from beam_pipes.transforms.operators.decoders import Image

    pixels: Pixels = Image({}).decoded(memoryview(content))
    return pixels


def fitted(image: Pixels, size: tuple[int, int], *, fit: str) -> Pixels:
    """An image of another size: `fitted(image, (224, 224), fit="crop")` of (300, 400, 3) → (224, 224, 3).

    "crop" scales it until it covers the size and cuts out the middle; "pad" scales it until it fits, and centres it on
    black; "stretch" changes its aspect ratio.
    """
    from beam_pipes.graph.types import DALIInterpType
    from beam_pipes.transforms.operators.image.resampling import resized, target_of

    linear = DALIInterpType.INTERP_LINEAR
    mode = {"crop": "not_smaller", "pad": "not_larger", "stretch": "stretch"}[fit]
    target = target_of(image.shape[:2], size=size, mode=mode)
    image = resized(image, target, min_filter=linear, mag_filter=linear, antialias=True, dtype=image.dtype)
    for axis, wanted in enumerate(size):
        extra = image.shape[axis] - wanted
        if extra > 0:
            image = np.take(image, np.arange(extra // 2, extra // 2 + wanted), axis)
        elif extra < 0:
            margins = [(-extra // 2, -extra - -extra // 2) if axis == each else (0, 0) for each in range(3)]
            image = np.pad(image, margins)
    return np.ascontiguousarray(image)


def encoded_image(image: Pixels, encode: str, *, quality: int = 90) -> bytes:
    """Pixels as a file, "jpeg" or "png"."""
    if encode == "jpeg":
        jpeg: bytes = require("simplejpeg", purpose="JPEG").encode_jpeg(np.ascontiguousarray(image), quality=quality)
        return jpeg
    file = io.BytesIO()
    require("PIL.Image", purpose="PNG").fromarray(image).save(file, "PNG")
    return file.getvalue()


def decode_images(batch: dict[str, Any], *, size: tuple[int, int]) -> dict[str, Any]:
    """Replaces image files in a batch by their pixels; for `Loader(…, transform=…)`.

    `{"image": [b"\\xff\\xd8…", …]}` with `size=(224, 224)` → `{"image": uint8 (rows, 224, 224, 3)}`. Images of another
    size are cut to it.
    """
    pixels = np.zeros((len(batch["image"]), *size, 3), np.uint8)
    for row, content in enumerate(batch["image"]):
        image = decoded_image(bytes(content))
        pixels[row] = image if image.shape[:2] == tuple(size) else fitted(image, size, fit="crop")
    return {**batch, "image": pixels}


def images(
    data: str | os.PathLike[str],
    *,
    resize: int | tuple[int, int] | None = None,
    fit: str = "crop",
    encode: str | None = None,
    quality: int = 90,
    label: bool = True,
    name: str = "images",
    splits: Mapping[str, float] | None = None,
    by: str | None = None,
    seed: int = 0,
    on_error: str = "fail",
) -> Recipe:
    """From a directory of images to a cache: `cat/1.jpg` → `{"image": uint8 (224, 224, 3), "label": 0, "path": …}`.

        images("pets", resize=224, splits={"train": 0.9, "eval": 0.1}).declaration()

    Args:
        data: a directory; its folders are the classes. If they are called `train`, `val`, `test` and the like, they are
            the splits, and the folders in them the classes.
        resize: the size of a square, or height and width.
        fit: one of `FITS`.
        encode: one of `ENCODINGS`. Default: "pixels" where images are resized, which load fastest, else "files".
        quality: of JPEG.
        label: whether folders are classes.
        splits: name → share of the images. Default: one, `train`, unless folders are splits.
        by: a regular expression; files with the same match (or first group, if it has one) in their paths stay in one
            split, and `group` is that match.
        name, seed, on_error: see `Common`.

    Raises `DeclarationError` if there are no images, some are not in a folder, or options contradict each other.
    """
    encode = encode or ("files" if resize is None else "pixels")
    size = (resize, resize) if isinstance(resize, int) else resize
    _check_images(size, fit=fit, encode=encode, quality=quality, by=by)
    common = Common(name=name, splits=splits, by=by, seed=seed, on_error=on_error)
    if by is not None:
        common = dataclasses.replace(common, by="group")
    root = os.fspath(data)
    files, patterns = _files_of(root, IMAGE_SUFFIXES, "images")
    tops = sorted({file.name.partition("/")[0] for file in files if "/" in file.name})
    by_folder = bool(tops) and set(tops) <= _SPLITS and all("/" in file.name for file in files)
    if by_folder and splits:
        raise DeclarationError(
            f"the folders {', '.join(tops)} of {root!r} are already splits, but splits were given too. Omit them, or "
            "name one of the folders as the data."
        )
    module = Module()
    folders = [f"{root.rstrip('/')}/{top}" for top in tops] if by_folder else [root]
    inner = [file.name.partition("/")[2] if by_folder else file.name for file in files]
    readers = [call("Files", folder, pattern=patterns) for folder in folders]
    module.use("beam_pipes.sources", "Files")
    module.assign("source", dict(zip(tops, readers, strict=True)) if by_folder else readers[0])
    classes = None
    if label:
        if outside := [path for path in inner if "/" not in path]:
            raise DeclarationError(
                f"the image {outside[0]!r} is not in a folder, so it has no class. Move it into one, or omit labels "
                "with label=False (--no-label)."
            )
        names = sorted({path.partition("/")[0] for path in inner})
        module.assign("classes", names)
        classes = Code("classes")
    module.use("beam_pipes.recipes", "image_example")
    making = call(
        "stage",
        Code("image_example"),
        classes=classes,
        size=size,
        fit=None if size is None or fit == "crop" else fit,
        encode=None if encode == "pixels" else encode,
        quality=quality if encode == "jpeg" else None,
        group=by,
    )
    pixels = call("FeatureSpec", "uint8", shape=(*(size or (None, None)), 3))
    features = {"image": pixels if encode == "pixels" else call("FeatureSpec", "bytes")}
    if label:
        features["label"] = call("FeatureSpec", "int64", minimum=0, maximum=Code("len(classes) - 1"))
    features |= {each: call("FeatureSpec", "str") for each in ("path", *(["group"] if by else []))}
    module.declare(common, [making], features=features)
    text = module.text("Images and their classes, as `beam-pipes images` declares them.")
    return Recipe(text, _loading_images(encode, size, list(features)))


def _check_images(size: tuple[int, int] | None, *, fit: str, encode: str, quality: int, by: str | None) -> None:
    for option, value, known in (("fit", fit, FITS), ("encode", encode, ENCODINGS)):
        if value not in known:
            raise DeclarationError(f"{option} should be one of {', '.join(known)}, got {value!r}.")
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
    try:
        re.compile(by or "")
    except re.error as error:
        raise DeclarationError(f"by={by!r} should be a regular expression: {error}.") from error


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
        f"decode = functools.partial(decode_images, size={size})\n"
        f"for batch in Loader(SPLIT, batch_size=ROWS, transform=decode, workers=2): ...  {shown}"
    )


def _files_of(root: str, suffixes: Sequence[str], what: str) -> tuple[list[FoundFile], list[str]]:
    """The files with these suffixes in a directory, and the patterns that find them."""
    if not is_remote(root) and not os.path.isdir(root):
        raise DeclarationError(f"{root!r} should be a directory of {what}, but is not a directory.")
    by_suffix: dict[str, list[FoundFile]] = {}
    for file in select(root).find():
        suffix = PurePosixPath(file.name).suffix
        if suffix.lower() in suffixes:
            by_suffix.setdefault(suffix, []).append(file)
    if not by_suffix:
        raise DeclarationError(f"there are no {what} in {root!r}; known are {', '.join(suffixes)}.")
    files = sorted((file for found in by_suffix.values() for file in found), key=lambda file: file.name)
    return files, [f"**/*{suffix}" for suffix in sorted(by_suffix)]


# Sound.


def find_transcripts(data: str, *, audio_field: str | None, text_field: str | None) -> tuple[Code, Transcripts] | None:
    """The transcripts of a manifest or a directory, with the Python expression for them; None if there are none."""
    files = [data]
    code: Code | None = None
    if os.path.isdir(data):
        files = sorted(map(str, Path(data).rglob(SIDE_FILES)))
        code = Code(f"[Asset(path) for path in sorted({call('Path', data).text}.rglob({spelled(SIDE_FILES)}))]")
        if not files and os.path.isfile(os.path.join(data, METADATA)):
            files, code = [os.path.join(data, METADATA)], None
        if not files:
            return None
    first: Mapping[str, Any] = next(rows_of_manifest(files[0]), {})
    fields = {
        "audio_field": _field(files[0], first, audio_field, AUDIO_FIELDS, "names the sound file"),
        "text_field": _field(files[0], first, text_field, TEXT_FIELDS, "is the transcript"),
    }
    made = Transcripts(files=[Asset(file) for file in files], **fields)
    assets = code or Code(f"[{call('Asset', files[0]).text}]")
    told = {option: field for option, field in fields.items() if field != option.removesuffix("_field")}
    return call("Transcripts", files=assets, **told), made


def _field(file: str, row: Mapping[str, Any], given: str | None, known: Sequence[str], what: str) -> str:
    for name in known if given is None else (given,):
        if name in row:
            return name
    option = "audio_field" if known is AUDIO_FIELDS else "text_field"
    raise DeclarationError(
        f"{file} has no field {given or ' or '.join(known)!r} that {what}; it has "
        f"{', '.join(map(str, row)) or 'no rows'}. Name a different one as {option}=… (--{option.replace('_', '-')})."
    )


@stage
def audio_example(
    file: FileContent,
    *,
    sample_rate: int,
    transcripts: Transcripts | None = None,
    keep: Mapping[str, str] | None = None,
    dtype: str = "float32",
    min_secs: float | None = None,
    max_secs: float | None = None,
) -> dict[str, object] | None:
    """A sound file to an example: `a.flac` → `{"audio": float32 (51200,), "num_samples": 51200, "text": "to be", …}`.

    Args:
        sample_rate: in Hz; files of another one are resampled, and channels averaged.
        transcripts: the transcripts of the files. Files without one are dropped as `no_transcript`.
        keep: further fields of transcripts to store, each with its dtype.
        dtype: "float32" in [-1, 1], or "int16", 32767 times as much.
        min_secs, max_secs: shorter or longer files are dropped as `too_short` or `too_long`.

    Raises `DatasetError` for a file that cannot be decoded.
    """
    example: dict[str, object] = {"path": file.path}
    if transcripts is not None:
        row = transcripts.row(file.path)
        if row is None:
            return drop("no_transcript")
        example |= {"text": kept_fields(row, {transcripts.text_field: "str"})[transcripts.text_field]}
        example |= kept_fields(row, keep)
    wave, _ = read_wav(file.content, sample_rate=sample_rate)
    secs = len(wave) / sample_rate
    if min_secs is not None and secs < min_secs:
        return drop("too_short")
    if max_secs is not None and secs > max_secs:
        return drop("too_long")
    count("milliseconds", round(1000 * secs))
    if dtype == "int16":
        return {**example, "audio": np.rint(np.clip(wave, -1, 1) * 32767).astype(np.int16), "num_samples": len(wave)}
    return {**example, "audio": wave, "num_samples": len(wave)}


def audio(
    data: str | os.PathLike[str],
    *,
    sample_rate: int = 16_000,
    audio_root: str | os.PathLike[str] | None = None,
    audio_field: str | None = None,
    text_field: str | None = None,
    keep_fields: Mapping[str, str] | Sequence[str] = (),
    dtype: str = "float32",
    min_secs: float | None = None,
    max_secs: float | None = None,
    name: str = "audio",
    splits: Mapping[str, float] | None = None,
    by: str | None = None,
    seed: int = 0,
    on_error: str = "fail",
) -> Recipe:
    """From sound files and transcripts to a cache of samples: `a.flac` → `{"audio": float32 (51200,), "text": …}`.

        audio("LibriSpeech/dev-clean", by="speaker", splits={"train": 0.9, "eval": 0.1}).declaration()

    Args:
        data: a manifest (`.jsonl`, `.csv` or `.tsv`, one row per file), or a directory of sound files. Transcripts of a
            directory are its `*.trans.txt`, as in LibriSpeech, or its `metadata.csv`; without them there is no text.
        sample_rate: in Hz; files of another one are resampled.
        audio_root: the directory of the sound files. Default: that of the manifest.
        audio_field, text_field: of the manifest. Default: the first of the well-known names that it has.
        keep_fields: further fields to store, as text; or field → dtype. LibriSpeech has `speaker` and `chapter`.
        dtype: of samples, one of `SOUND_DTYPES`.
        min_secs, max_secs: files that are shorter or longer are dropped, and counted.
        by: a field of the transcripts; files with the same value stay in one split. It is also stored.
        name, splits, seed, on_error: see `Common`.

    Raises `DeclarationError` where there are no sound files, the manifest names others, or it has no such field.
    """
    if dtype not in SOUND_DTYPES:
        raise DeclarationError(f"dtype should be one of {', '.join(SOUND_DTYPES)}, got {dtype!r}.")
    if isinstance(sample_rate, bool) or sample_rate < 1:
        raise DeclarationError(f"sample_rate is a number of Hz, such as 16000, got {sample_rate!r}.")
    common = Common(name=name, splits=splits, by=by, seed=seed, on_error=on_error)
    is_manifest = os.path.isfile(data)
    root = os.fspath(audio_root) if audio_root is not None else os.fspath(data)
    if is_manifest and audio_root is None:
        root = os.path.dirname(data) or "."
    files, patterns = _files_of(root, AUDIO_SUFFIXES, "sound files")
    keep = kept(keep_fields, by)
    module = Module()
    module.assign("source", call("Files", root, pattern=patterns), "beam_pipes.sources")
    found = find_transcripts(os.fspath(data), audio_field=audio_field, text_field=text_field)
    features = {"audio": call("FeatureSpec", dtype, shape=(None,)), "num_samples": call("FeatureSpec", "int32")}
    if found is not None:
        code, transcripts = found
        transcripts.check([file.name for file in files], [*keep])
        module.use("beam_pipes.identity.canonical", "Asset")
        if ".rglob(" in code.text:
            module.use("pathlib", "Path")
        module.assign("transcripts", code, "beam_pipes.transforms.audio")
        features["text"] = call("FeatureSpec", "str")
    elif keep:
        raise DeclarationError(
            f"the field {next(iter(keep))!r} belongs to transcripts, but there are none in {os.fspath(data)!r}. Give a "
            "manifest, or omit it."
        )
    module.use("beam_pipes.recipes", "audio_example")
    making = call(
        "stage",
        Code("audio_example"),
        sample_rate=sample_rate,
        transcripts=None if found is None else Code("transcripts"),
        keep=keep or None,
        dtype=None if dtype == "float32" else dtype,
        min_secs=min_secs,
        max_secs=max_secs,
    )
    features |= {each: call("FeatureSpec", of) for each, of in {"path": "str", **keep}.items()}
    module.declare(common, [making], features=features)
    loads = (
        "from beam_pipes.loader import Loader\n"
        "for batch in Loader(SPLIT, batch_size=ROWS): ...  "
        f"# audio {dtype} (ROWS, longest), {', '.join([*features][1:])}"
    )
    return Recipe(module.text("Sound and what is said in it, as `beam-pipes audio` declares them."), loads, rows=16)
