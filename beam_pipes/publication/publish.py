"""`schema.pbtxt`: the features as a TensorFlow Metadata schema, for TensorFlow Transform and its relatives.

Publishing: a snapshot's own files first, its manifest, and last the manifest that readers open.

Afterwards: which shards of a newer snapshot hold those of an older one, also where the older one was removed.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import google_crc32c

from beam_pipes.errors import BeamPipesError, CacheError, CacheNotFoundError, StaleCacheError
from beam_pipes.format import dtypes
from beam_pipes.format.layout import Field, fields_of
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.publication.manifest import FILE_NAME, Manifest, SplitManifest
from beam_pipes.storage.checked_json import canonical_json, strict_json
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import in_words, reached, this_process
from beam_pipes.storage.protocol import Storage

_TYPES = {"raw": "BYTES", "shape": "BYTES", "text": "BYTES", "texts": "BYTES", "floats": "FLOAT", "ints": "INT"}


def schema_text(spec: ExampleSpec) -> str:
    """The schema in text format. The annotation of a raw feature says what it holds, because the schema cannot."""
    return "".join(_feature(field, spec[field.feature]) for field in fields_of(spec))


def _feature(field: Field, spec: FeatureSpec) -> str:
    lines = ["feature {", f"  name: {_quoted(field.name)}", f"  type: {_TYPES[field.kind]}"]
    lines.append("  presence { min_fraction: 1.0 min_count: 1 }")
    shape = () if field.kind in ("raw", "shape", "text") else spec.shape
    if None not in shape:
        lines.append("  shape {" + "".join(f" dim {{ size: {size} }}" for size in shape) + " }")
    else:
        lines.append("  value_count { min: 0 }")
    if field.kind == "ints":
        low, high = (0, 1) if spec.dtype == "bool" else spec.value_range
        lines.append(f"  int_domain {{ min: {low} max: {high} }}")
    lines.append(f"  annotation {{ comment: {_quoted(_comment(field, spec))} }}")
    return "\n".join([*lines, "}"]) + "\n"


def _comment(field: Field, spec: FeatureSpec) -> str:
    shape = "[" + ", ".join("?" if size is None else str(size) for size in spec.shape) + "]"
    if field.kind == "shape":
        return f"raw little-endian int64: the shape of {field.feature}"
    if field.kind == "raw":
        return f"raw little-endian {field.dtype} of shape {shape}, read as {spec.dtype}"
    if spec.dtype == dtypes.STR:
        return f"UTF-8, shape {shape}"
    return f"{spec.dtype} of shape {shape}"


def _quoted(text: str) -> str:
    """A string literal of the text format."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in text.encode()) + '"'


SNAPSHOTS = "snapshots"
STATISTICS = "statistics.json"
BUILD = "build.json"
SCHEMA = "schema.pbtxt"
REPORT = "report.html"

# Whatever is published is replaced.
ANYTHING = "*"


def snapshot_directory(path: str | os.PathLike[str], snapshot: str) -> str:
    """`DIR/snapshots/<id>`, the directory of a snapshot's files."""
    return os.path.join(os.fspath(path), SNAPSHOTS, snapshot)


def publish(
    path: str | os.PathLike[str],
    manifest: Manifest,
    *,
    build: Mapping[str, object] | None = None,
    storage: Storage | None = None,
    replaces: str | None = ANYTHING,
) -> str:
    """Makes a snapshot with committed shards the one that readers see. Returns the manifest's id.

    Writes schema, statistics and `build` (runner, times and whatever else must not affect the manifest) into
    `path/snapshots/<id>/`, then its manifest, then replaces `path/manifest.json`: a reader sees the old snapshot or the
    new one, whole. Publishing the same manifest again does nothing more than make it the current one.

    `replaces` is the id of the manifest that readers see until then (`published_id`, None: none). If they see
    another one, another process has published in the meantime: that stays, and this raises `ChangedMeanwhileError`.

    Raises `CacheError` if another manifest has been published under the same snapshot id.
    """
    store = storage_for(path) if storage is None else storage
    directory = snapshot_directory(path, manifest.snapshot)
    data = manifest.to_bytes()
    own = os.path.join(directory, FILE_NAME)
    store.makedirs(directory)
    specs = {name: split.spec for name, split in manifest.splits.items() if split.spec is not None}
    if not store.exists(own):
        for file, text in schema_files(specs).items():
            store.replace(os.path.join(directory, file), text.encode())
        store.replace(os.path.join(directory, STATISTICS), canonical_json(list(manifest.statistics)))
        if build is not None:
            rendered = strict_json(build, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
            store.replace(os.path.join(directory, BUILD), rendered.encode())
    reached("publish/described")
    try:
        store.write_new(own, data)
    except FileExistsError as error:
        if store.read_bytes(own) != data:
            raise CacheError(
                f"{own}: expected no manifest or the same one, found another of snapshot {manifest.snapshot}. The same "
                "inputs and declaration gave different records: look for a stage that is not deterministic, or "
                "delete the "
                "snapshot's directory and build again.",
                path=own,
                snapshot=manifest.snapshot,
            ) from error
    reached("publish/snapshot-manifest-written")
    _make_current(store, os.path.join(os.fspath(path), FILE_NAME), data, replaces)
    reached("publish/current-manifest-replaced")
    return manifest.id


def read_manifest(path: str, snapshot: str | None, *, storage: Storage) -> Manifest:
    """The manifest that readers see at `path`, or that of the snapshot with the id `snapshot`.

    Raises `CacheNotFoundError`, which says what exists instead; `CorruptManifestError` and `UnsupportedFormatError`
    as `Manifest.from_bytes` does.
    """
    file = os.path.join(path if snapshot is None else snapshot_directory(path, snapshot), FILE_NAME)
    try:
        data = storage.read_bytes(file)
    except CacheNotFoundError as error:
        known = storage.list(os.path.join(path, SNAPSHOTS))
        if snapshot is not None:
            found = f"the snapshots there are {known}" if known else "there are no snapshots"
            message = f"{path}: expected the snapshot {snapshot!r}, but it is not published; {found}"
        elif known:
            message = (
                f"{path}: nothing is published yet (expected {FILE_NAME}); a build of {', '.join(known)} was started. "
                "Run it again to resume where it stopped."
            )
        elif (cache := _cache_of_split(path, storage)) is not None:
            message = f"{path}: expected a cache, and this is a split of the cache {cache!r}. Give the cache."
        else:
            message = f"{path}: expected a cache, a directory with {FILE_NAME}, and there is none. Build it first."
        raise CacheNotFoundError(message, path=path, snapshot=snapshot) from error
    return Manifest.from_bytes(data, path=file)


def _cache_of_split(path: str, storage: Storage) -> str | None:
    """`cache` for `cache/train`, as loaders accept it; None for anything else."""
    cache, split = os.path.split(path.rstrip("/"))
    try:
        manifest = Manifest.from_bytes(storage.read_bytes(os.path.join(cache, FILE_NAME)), path=cache)
    except BeamPipesError:
        return None
    return cache if split in manifest.splits else None


def published_id(path: str | os.PathLike[str]) -> str | None:
    """The id of the manifest that readers see; None if there is none. It may be damaged: the id is of its bytes."""
    try:
        data = storage_for(path).read_bytes(os.path.join(os.fspath(path), FILE_NAME))
    except CacheNotFoundError:
        return None
    return hashlib.sha256(data).hexdigest()


def _make_current(store: Storage, file: str, data: bytes, replaces: str | None) -> None:
    if replaces == ANYTHING:
        store.replace(file, data)
        return
    try:
        seen: bytes | None = store.read_bytes(file)
    except CacheNotFoundError:
        seen = None
    as_expected = replaces == (None if seen is None else hashlib.sha256(seen).hexdigest())
    # What was expected is not known, only its id: nothing but the same manifest can be there then.
    store.replace_if(file, data, seen if as_expected else data)


def schema_files(specs: Mapping[str, ExampleSpec]) -> dict[str, str]:
    """File name → text: `schema.pbtxt`, and `schema-<split>.pbtxt` for splits that differ from the first."""
    made: dict[str, str] = {}
    first = next(iter(specs.values()), None)
    for split, spec in specs.items():
        made[SCHEMA if spec == first else f"schema-{split}.pbtxt"] = schema_text(spec)
    return made


# Below the directory of a cache: for each snapshot that was removed, `<id of its manifest>.json`, a manifest of shards.
REMOVED = "removed"

_CHUNK_BYTES = 1 << 23
_CANDIDATES = 4
_ID_DIGITS = 12  # of an id that is looked up: as many as the state of a mixture holds


def remember_shards(path: str, snapshot: str) -> None:
    """Keeps what `shards_of_older` needs of a snapshot that is about to be removed: some 40 bytes per shard."""
    storage = storage_for(path)
    try:
        manifest = read_manifest(path, snapshot, storage=storage)
    except CacheError:
        return  # never published, or damaged: no loader has a state of it
    shards = dataclasses.replace(manifest, statistics=(), accounting={}, fingerprints={}, assets=(), dead_letters=())
    storage.makedirs(os.path.join(path, REMOVED))
    storage.replace(os.path.join(path, REMOVED, f"{manifest.id}.json"), shards.to_bytes())


def remember_removal(path: str, snapshot: str, published: str | None) -> None:
    """Notes who removed a snapshot, for readers that miss it."""
    storage = storage_for(path)
    storage.makedirs(os.path.join(path, REMOVED))
    text = f"removed by {in_words(this_process())}; published then: {published}\n"
    storage.replace(os.path.join(path, REMOVED, f"{snapshot}.txt"), text.encode())


def removal_of(file: str) -> str | None:
    """What has become of the snapshot that a missing file belonged to, in words; None if it is there."""
    directory = os.path.dirname(file)
    above, snapshot = os.path.split(directory)
    storage = storage_for(file)
    if os.path.basename(above) != SNAPSHOTS or storage.is_directory(directory):
        return None
    try:
        note = storage.read_bytes(os.path.join(os.path.dirname(above), REMOVED, f"{snapshot}.txt"))
        return f"snapshot {snapshot} was {note.decode().strip()}"
    except (BeamPipesError, OSError, ValueError):
        return f"snapshot {snapshot} was removed"


def manifest_with_id(path: str, manifest_id: str, *, storage: Storage) -> Manifest:
    """The manifest whose id begins with `manifest_id`; for a removed snapshot, one with its shards alone.

    Raises `CacheNotFoundError` if no snapshot of the cache has or had such a manifest.
    """
    for snapshot in storage.list(os.path.join(path, SNAPSHOTS)):
        file = os.path.join(snapshot_directory(path, snapshot), FILE_NAME)
        data = storage.read_bytes(file) if storage.exists(file) else b""
        if len(manifest_id) >= _ID_DIGITS and hashlib.sha256(data).hexdigest().startswith(manifest_id):
            return Manifest.from_bytes(data, path=file)
    for name in storage.list(os.path.join(path, REMOVED)):
        if len(manifest_id) >= _ID_DIGITS and name.startswith(manifest_id):
            file = os.path.join(path, REMOVED, name)
            manifest = Manifest.from_bytes(storage.read_bytes(file), path=file)
            manifest.__dict__["id"] = name.removesuffix(".json")
            return manifest
    raise CacheNotFoundError(
        f"{path}: expected a snapshot with manifest {manifest_id[:16]!r}, and this cache has none, nor a record of one "
        f"that was removed (in {REMOVED}/). Pass the directory of the cache that the state or the plan was made with.",
        path=path,
        manifest=manifest_id,
    )


class OlderShards(NamedTuple):
    """Where a newer snapshot has the shards of an older one, `snapshot`, whose manifest has the id `manifest_id`.

    The `records[i]` records of the older one's shard i are the first ones of shard `shards[i]`. `shards` never descend.
    """

    manifest_id: str
    snapshot: str
    shards: tuple[int, ...]
    records: tuple[int, ...]


def shards_of_older(older: Manifest, newer: Manifest, split: str, *, path: str, storage: Storage) -> OlderShards:
    """The shards of a split that a newer snapshot of the cache at `path` has taken over from an older one.

    A shard counts as taken over where size, checksum and number of records are the same, or where the newer one begins
    with its bytes: records were added after those of the last small file. Only shards of the latter kind are read.

    Raises `StaleCacheError`, naming the first shard that changed or is gone, and where records are of another kind.
    """
    before, now = older.splits.get(split), newer.splits[split]
    if before is None:
        raise CacheNotFoundError(
            f"{path}: manifest {older.id[:16]}… has no split {split!r}; it has: {', '.join(older.splits)}.",
            path=path,
            split=split,
        )
    if (before.kind, before.spec, before.proto) != (now.kind, now.spec, now.proto):
        raise StaleCacheError(
            f"{path}: the records of split {split!r} are not read as in manifest {older.id[:16]}…: expected "
            f"{before.spec or before.proto or before.kind}, found {now.spec or now.proto or now.kind}. Start a new "
            "run, or build with the features of that manifest.",
            path=path,
            expected=before.spec,
            found=now.spec,
        )
    places: dict[tuple[int, int, int], list[int]] = {}
    for shard, key in enumerate(_keys(now)):
        places.setdefault(key, []).append(shard)
    shards: list[int] = []
    following = 0  # the first shard that is not taken yet
    keys = _keys(before)
    for number, key in enumerate(keys):
        if not before.records[number]:
            shards.append(following)
            continue
        found = _first(places.get(key, []), following)
        if found is None:
            ends = (_first(places.get(later, []), following) for later in keys[number + 1 :] if later[0])
            end = next((each for each in ends if each is not None), len(now.records))
            longer = [
                shard
                for shard in range(following, end)
                if now.bytes[shard] > before.bytes[number] and now.records[shard] > before.records[number]
            ]
            for shard in longer[:_CANDIDATES]:
                file = now.file_name(newer.name, split, shard)
                file = os.path.join(snapshot_directory(path, newer.snapshot), file)
                if _crc32c_of(file, before.bytes[number], storage) == before.crc32c[number]:
                    found = shard
                    break
        if found is None:
            raise _changed(older, newer, split, number, following, path)
        shards.append(found)
        following = found + 1
    return OlderShards(older.id, older.snapshot, tuple(shards), tuple(before.records))


def _keys(split: SplitManifest) -> list[tuple[int, int, int]]:
    return list(zip(split.records, split.bytes, split.crc32c, strict=True))


def _first(ascending: list[int], least: int) -> int | None:
    at = bisect.bisect_left(ascending, least)
    return ascending[at] if at < len(ascending) else None


def _crc32c_of(file: str, size: int, storage: Storage) -> int:
    """The checksum of the first bytes of a file."""
    crc = 0
    for offset in range(0, size, _CHUNK_BYTES):
        crc = google_crc32c.extend(crc, storage.read_range(file, offset, min(_CHUNK_BYTES, size - offset)))
    return crc


def _changed(older: Manifest, newer: Manifest, split: str, number: int, place: int, path: str) -> StaleCacheError:
    def named(manifest: Manifest, shard: int) -> str:
        shards = manifest.splits[split]
        facts = f"{shards.records[shard]} records, {shards.bytes[shard]} bytes, crc32c {shards.crc32c[shard]:#010x}"
        return f"{shards.file_name(manifest.name, split, shard)} ({facts})"

    now = newer.splits[split]
    found = named(newer, place) if place < len(now.records) else "nothing"
    return StaleCacheError(
        f"{path}: a shard of manifest {older.id[:16]}… has changed or is gone: expected {named(older, number)}, found "
        f"{found} in its place. A run continues over a newer snapshot if records were only added. Shards change when "
        "files are edited or removed, and when a new small file sorts between older ones. Undo the change, name new "
        "files so that they sort after the older ones, and build again; or finish the run over "
        f"Cache.open({path!r}, snapshot={older.snapshot!r}) while that snapshot is kept; or start a new run.",
        path=path,
        expected=older.splits[split].crc32c[number],
        found=now.crc32c[place] if place < len(now.records) else None,
    )
