"""What a row holds, as JSON for the page: every value as a short text, and what can be seen or heard besides.

    {"name": "tokens", "type": "uint16[4]", "text": "…", "tokens": [{"text": "The", "loss": 0, "segment": 1}, …]}
    {"name": "photo", "type": "bytes", "text": "a picture, 8,112 bytes", "medium": "picture", "size": [400, 200]}

Texts are data: the page never reads them as markup. Pictures are decoded and encoded anew, so that no file of a cache
reaches the browser as it is.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np

from beam_pipes.cache import Cache, Split
from beam_pipes.errors import BeamPipesError, CacheError
from beam_pipes.extras import require
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import FeatureSpec, FeatureValue, Record
from beam_pipes.report.blame import duplicates_of
from beam_pipes.report.examples import (
    MAX_FEATURES,
    captions,
    kind_of,
    picture_file,
    pixels_of,
    shown_file,
    sound_file,
)
from beam_pipes.report.language import Tokenizer, pieces_with_ends, token_features
from beam_pipes.report.shown import shown_value
from beam_pipes.view.rows import features_of_split

# Characters of a value in a cell, and in the panel of a record.
CELL, PANEL = 160, 20_000
# Decoding the beginning of a text again for each token takes 50 ms for so many.
MOST_TOKENS = 512
# 20 s of sound at 16 kHz.
_SOUND_BYTES = 640_000
_MOST_BOXES = 500
TAKEN_DOWN = "taken down: what it holds is not shown"


def cells(split: Split, rows: Array, features: Sequence[str]) -> list[dict[str, object]]:
    """The rows of a table, each with a short text per feature, or the reason why it cannot be read."""
    removed, made = set(split.removed_rows.tolist()), []
    for row in rows.tolist():
        shown: dict[str, object] = {"row": row}
        if row in removed:
            shown["error"] = TAKEN_DOWN
        else:
            try:
                values = _values(split, row)
                shown["cells"] = [_text(values[name], CELL) if name in values else "" for name in features]
            except BeamPipesError as error:
                shown["error"] = shown_value(str(error))
        made.append(shown)
    return made


def record(
    cache: Cache, split: Split, row: int, *, vocabulary: Tokenizer | None, sample_rate: int | None, light: bool = False
) -> dict[str, object]:
    """A whole record; `light` leaves out what only its panel shows: where it is and which others equal it."""
    shown: dict[str, object] = {"row": row, "split": split.name}
    if not light:
        file, number = split.place_of(row)
        shown |= {"shard": file, "number": number, "offset": split.offset_of(row)}
    if row in split.removed_rows:
        return {**shown, "error": TAKEN_DOWN, "features": []}
    try:
        values = _values(split, row)
    except BeamPipesError as error:
        return {**shown, "error": shown_value(str(error)), "features": []}
    spec = features_of_split(split)
    ids = set() if vocabulary is None else set(token_features(cache, split.name))
    shown["features"] = features(values, spec, vocabulary, ids, sample_rate)
    shown["caption"] = ", ".join(captions(values, spec))
    if not light:
        try:
            [record_id] = split.record_ids([row])
            shown |= {"id": record_id, "equal": list(duplicates_of(split, record_id))}
        except BeamPipesError:  # built without lineage
            shown |= {"id": None, "equal": []}
    return shown


def features(
    values: Mapping[str, FeatureValue],
    spec: Mapping[str, FeatureSpec],
    vocabulary: Tokenizer | None,
    ids: set[str],
    sample_rate: int | None,
) -> list[dict[str, object]]:
    """The features of a record or of the row of a batch."""
    made = []
    for name, value in list(values.items())[:MAX_FEATURES]:
        one: dict[str, object] = {"name": name, "type": _type(value), "text": _text(value, PANEL)}
        medium = "mask" if is_mask(name, value) else kind_of(name, value, sample_rate)
        if medium is not None:
            one["medium"] = medium
        if medium == "picture":
            one["size"] = _size(value)
        if "box" in name.lower() and isinstance(value, np.ndarray) and value.shape[-1:] == (4,):
            boxes = np.nan_to_num(value.reshape(-1, 4)[:_MOST_BOXES].astype(np.float64))
            one["boxes"] = boxes.tolist()
        names = spec[name].class_names if name in spec else None
        if names and np.ndim(value) == 0 and 0 <= int(value) < len(names):
            one["class"] = shown_value(names[int(value)])
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu" and _is_sequence(name, ids):
            one["tokens"] = _tokens(name, value, values, vocabulary)
            one["more_tokens"] = max(0, len(value) - MOST_TOKENS)
        made.append(one)
    if (left := len(values) - MAX_FEATURES) > 0:
        made.append({"name": "…", "type": "", "text": f"{left} more features"})
    return made


def _is_sequence(name: str, ids: set[str]) -> bool:
    return name in ids or (not ids and name in ("tokens", "input_ids"))


def _tokens(
    name: str, ids: Array, values: Mapping[str, FeatureValue], vocabulary: Tokenizer | None
) -> list[dict[str, object]]:
    """Each token or piece of text, whether the loss counts it, and the number of its segment."""
    segments = _beside(ids, values, f"{name}_segment_ids", "segment_ids")
    weights = _beside(ids, values, f"{name}_loss_weights", "loss_weights", "loss_mask", "mask", f"{name}_mask")
    shown: list[dict[str, object]] = []
    bounds = [0, len(ids)] if segments is None else [0, *(np.flatnonzero(np.diff(segments)) + 1).tolist(), len(ids)]
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        end = min(end, MOST_TOKENS)
        some = [int(each) for each in ids[begin:end]]
        if vocabulary is None or (segments is not None and not segments[begin : begin + 1].any()):
            pieces = [(number + 1, str(each)) for number, each in enumerate(some)]  # padding is no text
        else:
            pieces = list(pieces_with_ends(vocabulary, some))
        first = 0
        for last, text in pieces:
            at: dict[str, object] = {"text": text, "ids": some[first:last]}
            if segments is not None:
                at["segment"] = int(segments[begin + first])
            if weights is not None:
                at["loss"] = float(weights[begin + first])
            shown.append(at)
            first = last
    return shown


def _beside(ids: Array, values: Mapping[str, FeatureValue], *names: str) -> Array | None:
    found = (values[name] for name in names if name in values)
    return next((each for each in found if isinstance(each, np.ndarray) and each.shape == ids.shape), None)


def _values(split: Split, row: int) -> dict[str, FeatureValue]:
    """The features of a record; of a message or bytes, the whole of it."""
    if split.kind == "example":
        found: Record = split[row]
        assert isinstance(found, dict)
        return found
    try:
        value = split[row]
    except CacheError:  # the class of a message is not imported here
        value = split.record_bytes(row)
    return {"record": value if isinstance(value, bytes) else str(value)}


def _text(value: FeatureValue, characters: int) -> str:
    return shown_file(value) or shown_value(value, max_characters=characters)


def _type(value: FeatureValue) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return value.dtype.name if isinstance(value, np.generic) else type(value).__name__


# Pictures, masks and sound, as files of fixed types.


def is_mask(name: str, value: FeatureValue) -> bool:
    """Whether a feature marks the pixels of a picture: its name says so, and it has one number for each."""
    if not any(word in name.lower() for word in ("mask", "segmentation")):
        return False
    if isinstance(value, np.ndarray):
        return value.ndim == 2 and value.dtype.kind in "iub"
    return kind_of(name, value, None) == "picture"


def medium(name: str, value: FeatureValue, *, side: int, sample_rate: int | None) -> tuple[str, bytes]:
    """(content type, file) of a feature. Raises `CacheError` for one that can neither be seen nor heard."""
    kind = kind_of(name, value, sample_rate)
    try:
        if is_mask(name, value):
            return "image/png", _mask_file(pixels_of(value), side)
        if kind == "picture":
            return picture_file(value, side=side)[:2]
        if kind == "sound":
            return sound_file(value, sample_rate, most_bytes=_SOUND_BYTES)[:2]
    except (ValueError, OSError) as error:  # a damaged file
        raise CacheError(f"{name} cannot be shown: {error}") from error
    raise CacheError(f"{name} is neither a picture, a mask nor a sound.")


def _mask_file(pixels: Array, side: int) -> bytes:
    """A transparent PNG in which each number above 0 has a colour of its own."""
    image = require("PIL.Image", purpose="masks in view")
    numbers = (pixels if pixels.ndim == 2 else pixels[..., :3].astype(np.int64).sum(axis=-1)).astype(np.int64)
    colours = np.stack([numbers * 67 % 206, numbers * 149 % 206, numbers * 97 % 206], axis=-1) + 50
    made = np.concatenate([colours, np.where(numbers != 0, 140, 0)[..., None]], axis=-1).astype(np.uint8)
    picture, file = image.fromarray(made), io.BytesIO()
    picture.thumbnail((side, side), image.Resampling.NEAREST)
    picture.save(file, "PNG")
    return file.getvalue()


def _size(value: FeatureValue) -> list[int]:
    """Width and height; [] of a file that cannot be decoded."""
    if isinstance(value, np.ndarray):
        return [value.shape[1], value.shape[0]]
    image = require("PIL.Image", purpose="pictures in view")
    try:
        with image.open(io.BytesIO(value)) as picture:
            return list(picture.size)
    except (OSError, ValueError, image.DecompressionBombError):
        return []
