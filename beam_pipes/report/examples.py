"""A few decoded records of a split, with their source records if these are available; its pictures and sound.

Source records by id, read again from the input without running any stage.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import itertools
import os
import re
import wave
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.taken_down_records import SnapshotRecords
from beam_pipes.building.trace import trace_record
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.engine.account import Account
from beam_pipes.errors import BeamPipesError
from beam_pipes.extras import require
from beam_pipes.format.spec import FeatureSpec, FeatureValue
from beam_pipes.lineage.reader import split_id
from beam_pipes.publication.publish import REPORT
from beam_pipes.report.shown import shown_bytes, shown_value
from beam_pipes.sources.digests import DIGESTS_NAME, DigestCache
from beam_pipes.sources.source import SourceShard
from beam_pipes.storage.local import storage_for

MAX_FEATURES = 40
# Source shards that are searched for dropped records, and reasons that have examples.
_SEARCHED_SHARDS, _MOST_REASONS = 64, 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageOutput:
    """The output of a stage for the source record."""

    stage: str
    value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodedExample:
    """A record of the cache as features with their values.

    `before` is its source record and `stages` the output of each stage for it, if requested.
    """

    row: int
    record_id: str | None
    features: tuple[tuple[str, str], ...]
    before: str | None = None
    stages: tuple[StageOutput, ...] = ()


def decoded_examples(
    cache: Cache, split: str, *, count: int = 3, declaration: Declaration | None = None, run_stages: bool = True
) -> list[DecodedExample]:
    """`count` records, spread evenly over a split and not taken down.

    With the declaration, their source records are read again; with `run_stages`, each is run stage by stage. Without it
    they come from the report beside the snapshot, if there is one.
    """
    opened = cache[split]
    ids = {row: _record_id(opened, row) for row in _rows(opened, count)}
    found: dict[str, str] = {}
    if declaration is None:
        found = sources_shown(cache)
    elif not run_stages:
        found = _sources(cache, declaration, [each for each in ids.values() if each is not None])
    made = []
    for row, record_id in ids.items():
        before: str | None = found.get(record_id or "")
        stages: tuple[StageOutput, ...] = ()
        if declaration is not None and run_stages:
            before, stages = _way(cache, declaration, record_id)
        made.append(
            DecodedExample(
                row=row,
                record_id=record_id,
                features=tuple(features_of(opened, row)),
                before=before,
                stages=stages,
            )
        )
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedExample:
    """A record that a stage dropped for a reason, and its source record if it is available."""

    stage: str
    reason: str
    record_id: str
    before: str | None


def dropped_examples(cache: Cache, *, declaration: Declaration | None = None, count: int = 3) -> list[DroppedExample]:
    """The first `count` records of each reason for which a stage dropped any, from up to 64 source shards.

    Empty for a cache built without lineage. With the declaration, their source records are read again; without it, they
    come from the report beside the snapshot. A cache with takedowns shows none of them, as they may be taken down too.
    """
    account = Account.from_json(cache.manifest.accounting) if cache.manifest.accounting else Account()
    reasons = [(stage, reason) for stage, unit in account.units.items() for reason in sorted(unit.dropped)]
    found: dict[tuple[str, str], list[str]] = {each: [] for each in reasons[:_MOST_REASONS]}
    records = SnapshotRecords.open(cache.path, cache.manifest) if found else None
    for shard in itertools.islice(() if records is None else records.lineage, _SEARCHED_SHARDS):
        for code, fate in enumerate(shard.fates):
            for ids in (found[each] for each in dict.fromkeys(fate.drops) if each in found):
                places = np.flatnonzero(shard.codes == code)[: count - len(ids)].tolist()
                ids += map(shard.record_id, places)
        if all(len(ids) >= count for ids in found.values()):
            break
    named = list(dict.fromkeys(itertools.chain.from_iterable(found.values())))
    sources: dict[str, str] = {}
    if named and not cache.takedowns.in_force:
        sources = sources_shown(cache) if declaration is None else _sources(cache, declaration, named)
    return [
        DroppedExample(stage=stage, reason=reason, record_id=each, before=sources.get(each))
        for (stage, reason), ids in found.items()
        for each in ids
    ]


def _rows(opened: Split, count: int) -> list[int]:
    """`count` rows, spread evenly over a split and not taken down."""
    rows = np.setdiff1d(np.arange(len(opened)), opened.removed_rows) if len(opened.removed_rows) else None
    available = len(opened) if rows is None else len(rows)
    if not available:
        return []
    chosen = np.unique(np.linspace(0, available - 1, min(count, available), dtype=np.int64))
    found: list[int] = (chosen if rows is None else rows[chosen]).tolist()
    return found


def _sources(cache: Cache, declaration: Declaration, record_ids: list[str]) -> dict[str, str]:
    try:
        found = source_records(declaration, record_ids, cache=cache.path)
    except BeamPipesError as error:  # the input has changed or is gone since
        return dict.fromkeys(record_ids, f"(not at hand: {error})"[:300])
    return {
        record_id: _shown_record(found[record_id])
        if record_id in found
        else "(not at hand: it is not in the input now)"
        for record_id in record_ids
    }


# A source record on the page, see report.html.j2.
_SHOWN = re.compile('<td class="value" data-record="([^"]*)">([^<]*)</td>')


def sources_shown(cache: Cache) -> dict[str, str]:
    """Record id → source record, from the report beside the snapshot: a new report shows them too."""
    path = os.path.join(cache.directory, REPORT)
    storage = storage_for(path)
    if not storage.exists(path):
        return {}
    page = storage.read_bytes(path).decode("utf-8", errors="replace")
    return {html.unescape(record_id): html.unescape(before) for record_id, before in _SHOWN.findall(page)}


def features_of(opened: Split, row: int) -> list[tuple[str, str]]:
    """The features of a record as (name, short text), up to `MAX_FEATURES`; a file of pixels or sound in a word."""
    if opened.kind == "example":
        items = list(opened[row].items())
        shown = [(name, shown_file(value) or shown_value(value)) for name, value in items[:MAX_FEATURES]]
        return shown if len(items) <= MAX_FEATURES else [*shown, ("…", f"{len(items) - MAX_FEATURES} more features")]
    try:
        value = opened[row]
    except BeamPipesError:  # the class of a message is not imported here
        value = opened.record_bytes(row)
    return [("record", shown_value(value if isinstance(value, bytes) else str(value)))]


def _record_id(opened: Split, row: int) -> str | None:
    try:
        return str(opened.record_ids([row])[0])
    except BeamPipesError:  # built without lineage
        return None


def _way(cache: Cache, declaration: Declaration, record_id: str | None) -> tuple[str | None, tuple[StageOutput, ...]]:
    if record_id is None:
        return None, ()
    try:
        trace = trace_record(declaration, record_id, cache=cache.path)
    except BeamPipesError as error:  # the input has changed or is gone since
        return f"(not at hand: {error})"[:300], ()
    stages = []
    for stage in trace.stages:
        if stage.reached and stage.name != "write":
            values = [shown_value(value, max_characters=200) for column in stage.outputs.values() for value in column]
            more = f" (and {len(values) - 2} more)" if len(values) > 2 else ""
            given = "\n".join(values[:2]) + more if values else "nothing"
            if stage.failure is not None:
                given = f"failed: {stage.failure.error_type}: {stage.failure.message}"[:300]
            stages.append(StageOutput(stage=stage.name, value=given))
    return _shown_record(trace.raw), tuple(stages)


def source_records(
    declaration: Declaration, record_ids: Iterable[str], *, cache: str | os.PathLike[str] | None = None
) -> dict[str, bytes]:
    """Record id → the bytes of the record in the source; an id that is not found is left out.

        source_records(declaration, ["a.txt@14"])  →  {"a.txt@14": b"to be"}

    Each source shard that may hold one is read once, and only as far as needed. `cache`: a cache built from the same
    input, whose digests of input files save reading them all. Raises `SourceError` for input that cannot be
    read.
    """
    wanted = {split_id(record_id) for record_id in record_ids}
    digests = None if cache is None else DigestCache.load(os.path.join(cache, DIGESTS_NAME))
    plan = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    slices = Counter(piece.file for shard in plan.shards for piece in shard.slices)
    found: dict[str, bytes] = {}
    for shard in plan.shards:
        here = {(file, position) for file, position in wanted if _may_hold(shard, file, position, slices[file])}
        if here:
            found |= _read(declaration, shard, here)
    return found


def _may_hold(shard: SourceShard, file: str, position: int, num_slices: int) -> bool:
    # A file that is read whole may be compressed: positions refer to its content.
    return any(
        piece.file == file and (num_slices == 1 or piece.start <= position < piece.end) for piece in shard.slices
    )


def _read(declaration: Declaration, shard: SourceShard, wanted: set[tuple[str, int]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for batch in declaration.source.read(shard):
        ordinal = batch.first_ordinal
        for file, positions in batch.places():
            for position in {position for name, position in wanted if name == file}.intersection(positions):
                at = ordinal + positions.index(position)
                if at in batch.ordinals:
                    found[f"{file}@{position}"] = batch.raw(batch.ordinals.index(at))
            ordinal += len(positions)
        if len(found) == len(wanted):
            break
    return found


# Pictures and sound.

# How files of these kinds begin, whatever made them.
_PICTURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG|GIF8|BM|II\*\0|MM\0\*|RIFF....WEBP|....ftyp(?:avif|avis|heic|heix|mif1)", re.DOTALL
)
_SOUND = re.compile(rb"(?:RIFF|RF64)....WAVE|FORM....AIF[FC]|fLaC|OggS|ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]", re.DOTALL)
#: Features of this name hold waves, if a stage has a `sample_rate`; a wave itself does not say what it is.
SOUND_FEATURES = ("audio", "samples", "sound", "speech", "wave", "waveform")
# Side of a thumbnail in pixels; bytes of samples of one sound: 4 s at 16 kHz. Pictures and sounds of a split.
_SIDE, _WAVE_BYTES, _PICTURES, _SOUNDS = 128, 128_000, 12, 3
_PREVIEW_HZ = 16_000
# Larger pictures would take seconds to decode.
_MOST_PIXELS = 50_000_000
# Characters of pictures and sound on one page.
MAX_MEDIA = 1_200_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Medium:
    """A picture or a sound of a record. `url` holds a file, empty if none is shown, and `about` says what it is or why.

    `kind` is "picture" or "sound"; `caption` is the class and the text of the record.
    """

    row: int
    feature: str
    kind: str
    url: str
    about: str
    caption: str


def media_of(cache: Cache, split: str, *, sample_rate: int | None, most: int = MAX_MEDIA) -> list[Medium]:
    """The pictures and sounds of some records, spread over a split, small enough for a page: `most` characters in all.

        media_of(cache, "train", sample_rate=None)
        →  [Medium(row=0, feature="image", kind="picture", url="data:image/jpeg;base64,…", caption="cat", …), …]

    Pictures are files of pixels in a feature of bytes, or uint8 of shape (height, width, 1 or 3). Sounds are files, or
    waves with this sample rate in Hz in one of `SOUND_FEATURES`. Thumbnails have 128 pixels, sounds begin with 4 s.
    """
    opened = cache[split]
    if opened.kind != "example":
        return []
    spec: Mapping[str, FeatureSpec] = cache.manifest.splits[split].spec or {}
    found: list[Medium] = []
    left = most
    sounding = {*_rows(opened, _SOUNDS)}
    for row in sorted({*_rows(opened, _PICTURES), *sounding}):
        for made in media_of_record(opened, row, spec, sample_rate=sample_rate, sound=row in sounding):
            left -= len(made.url)
            if left < 0:  # the rest would be as large
                return found
            found.append(made)
    return found


def media_of_record(
    opened: Split, row: int, spec: Mapping[str, FeatureSpec], *, sample_rate: int | None, sound: bool = True
) -> Iterator[Medium]:
    """The pictures of a record of a split of examples, and with `sound` its sounds."""
    example = opened[row]
    caption = ", ".join(captions(example, spec))
    for feature, value in example.items():
        kind = kind_of(feature, value, sample_rate)
        if kind == "picture" or (kind == "sound" and sound):
            yield _medium(row, feature, kind, value, sample_rate, caption)


def captions(example: Mapping[str, FeatureValue], spec: Mapping[str, FeatureSpec]) -> Iterator[str]:
    """The class of a record and its text."""
    for feature, value in example.items():
        names = spec[feature].class_names if feature in spec else None
        if names and np.ndim(value) == 0 and 0 <= int(value) < len(names):
            yield shown_value(names[int(value)], max_characters=80)
        elif feature in ("caption", "text") and isinstance(value, str):
            yield shown_value(value, max_characters=120)


def kind_of(feature: str, value: FeatureValue, rate: int | None) -> str | None:
    """ "picture" or "sound", or None for anything else; `rate` is that of waves, which do not say what they are."""
    if isinstance(value, bytes):
        return "picture" if _PICTURE.match(value) else "sound" if _SOUND.match(value) else None
    if not isinstance(value, np.ndarray):
        return None
    is_picture = value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3))
    if value.dtype == np.uint8 and is_picture and min(value.shape[:2]) >= 8:
        return "picture"
    is_wave = value.ndim == 1 and value.dtype in (np.int16, np.float16, np.float32)
    return "sound" if is_wave and rate is not None and feature in SOUND_FEATURES else None


def shown_file(value: FeatureValue) -> str | None:
    """A file of pixels or sound in a word, not as its bytes."""
    kind = kind_of("", value, None) if isinstance(value, bytes) else None
    return None if kind is None else f"a {kind}, {len(value):,} bytes"


def _shown_record(raw: bytes) -> str:
    return shown_file(raw) or shown_bytes(raw)


def _medium(row: int, feature: str, kind: str, value: FeatureValue, rate: int | None, caption: str) -> Medium:
    try:
        form, content, about = picture_file(value) if kind == "picture" else sound_file(value, rate)
        url = f"data:{form};base64,{base64.b64encode(content).decode()}"
    except (BeamPipesError, ValueError) as error:  # a damaged file, or no library to decode it
        url, about = "", shown_value(f"not shown: {error}", max_characters=200)
    return Medium(row=row, feature=feature, kind=kind, url=url, about=about, caption=caption)


def picture_file(value: FeatureValue, *, side: int = _SIDE) -> tuple[str, bytes, str]:
    """A picture at most `side` pixels wide and high, as (content type, file, its true width and height in words).

    Raises what decoding raises, `ValueError` for pixels that are no picture, `MissingExtraError` without Pillow.
    """
    image = require("PIL.Image", purpose="pictures in reports")
    pixels = pixels_of(value)
    thumbnail = image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels)
    thumbnail.thumbnail((side, side))
    file = io.BytesIO()
    is_small = max(pixels.shape[:2]) <= _SIDE // 2  # its pixels can be seen
    thumbnail.save(file, "PNG" if is_small else "JPEG")
    height, width = pixels.shape[:2]
    return "image/png" if is_small else "image/jpeg", file.getvalue(), f"{width} × {height}"


def pixels_of(value: FeatureValue) -> np.ndarray:
    """The pixels of a file, or those given."""
    from beam_pipes.transforms.image_files import decode

    return decode(memoryview(value), max_pixels=_MOST_PIXELS) if isinstance(value, bytes) else np.asarray(value)


def sound_file(value: FeatureValue, rate: int | None, *, most_bytes: int = _WAVE_BYTES) -> tuple[str, bytes, str]:
    """The beginning of a sound as a mono WAV of 16 bits: (content type, file, its true length in words)."""
    from beam_pipes.transforms.audio.sound_files import decoded
    from beam_pipes.transforms.audio.spectra import resample

    if isinstance(value, bytes):
        sound = decoded(value, name="the record")
        samples, rate = sound.wave(), sound.rate
    else:
        samples = np.asarray(value)
    assert rate is not None
    preview = min(rate, _PREVIEW_HZ)
    part = samples[: most_bytes // 2 * rate // preview]
    if part.dtype != np.int16:
        part = np.nan_to_num(part.astype(np.float32))
        if preview != rate:
            part = resample(part, rate, preview)
        part = np.clip(np.rint(part * 32767), -32768, 32767).astype(np.int16)
    else:
        preview = rate
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(preview)
        written.writeframes(part.astype("<i2").tobytes())
    secs, shown = len(samples) / rate, len(part) / preview
    more = f", the first {shown:.2f}" if shown < secs - 0.01 else ""
    return "audio/wav", file.getvalue(), f"{secs:.2f} s{more}"
