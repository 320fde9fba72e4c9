"""`write_cache`: writes a cache of a program's examples in one call.

    write_cache("cache", {"train": rows(), "eval": [{"tokens": [1, 2]}]})  →  Loader("cache/train", batch_size=32)

Examples are streamed into the shards of a directory beside the final one. When all are there, the digest of what was
written names the snapshot, the files are linked to their final names, and the manifest is published: readers see all
splits or none, and the same examples give the same snapshot.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping

from beam_pipes.cache.reader import Cache
from beam_pipes.checks import integer
from beam_pipes.errors import CacheError, SpecError
from beam_pipes.format.codec import codec_for
from beam_pipes.format.index import index_path
from beam_pipes.format.layout import ShardEntry
from beam_pipes.format.spec import INFER_EXAMPLES, ExampleSpec, Features, FeaturesBySplit, is_by_split, owned
from beam_pipes.lineage.takedown import FILE_NAME as TAKEDOWNS
from beam_pipes.publication.manifest import FORMAT_VERSION, Manifest, SplitManifest, shard_file_name
from beam_pipes.publication.publish import publish, snapshot_directory
from beam_pipes.publication.shard_writer import ShardWriter
from beam_pipes.publication.terms import SourceTerms, Terms, noted, terms_by_range
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import TEMPORARY_PREFIX, directory_path, storage_for
from beam_pipes.storage.locks import BUILD_LOCK


def write_cache(
    path: str | os.PathLike[str],
    splits: Mapping[str, Iterable[Mapping[str, object]]],
    *,
    features: Features | FeaturesBySplit | None = None,
    name: str = "examples",
    num_shards: int = 1,
    terms: Terms | None = None,
) -> Cache:
    """Writes a cache of examples and publishes it; a cache published there before is replaced at once, or stays.

        rows = ({"tokens": np.arange(n), "label": n % 2} for n in range(1000))
        cache = write_cache("cache", {"train": rows})
        cache["train"][7]  →  {"tokens": array([0, 1, 2, 3, 4, 5, 6]), "label": 1}

    It keeps no source and no fingerprint: a program that runs again writes again. Use `beam_pipes.build` for stages,
    resuming, and rebuilding only what changed.

    Args:
        path: the directory of the cache, or a `gs://` path.
        splits: split → examples, dicts of feature → value; read once, as a stream, one split after the other.
        features: feature → `FeatureSpec`, for all splits, or split → such a mapping. By default dtypes and ranks are
            inferred from the first 64 examples of each split, and all dimensions vary.
        name: what the files are called: `{name}-train.tfrecord-00000-of-00004`.
        num_shards: files of each split; example i goes to file i modulo `num_shards`, and a split is stored file by
            file. 1, the default, keeps the order.
        terms: the license and the origin of all records, such as `Terms(license="CC-BY-4.0")`. None, the default,
            declares nothing.

    Returns the cache, opened. Raises `SpecError` for an example that does not fit, naming split, number and feature,
    `CacheBusyError` while a build writes there, `CacheError` if records of the cache are taken down; nothing is
    published then.
    """
    if not splits:
        raise SpecError("write_cache: expected split → examples, such as {'train': rows}, got no split.")
    integer(num_shards, what="write_cache: num_shards", least=1, error=SpecError)
    sources = terms_by_range([(terms or Terms()).checked()] * num_shards)
    root = directory_path(path)
    storage = storage_for(root)
    if storage.exists(f"{root}/{TAKEDOWNS}"):
        raise CacheError(
            f"{root}: records of this cache are taken down, but write_cache cannot tell which of its records they "
            "are: they might become visible again. Write to another directory.",
            path=root,
        )
    storage.makedirs(root)
    with storage.lock(f"{root}/{BUILD_LOCK}", root):
        staged = snapshot_directory(root, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")  # swept by the next build
        storage.makedirs(staged)
        try:
            written = {
                split: _write_split(staged, name, split, examples, _features_of(features, split, splits), num_shards)
                for split, examples in splits.items()
            }
            manifest = _linked(root, staged, name, written, sources)
        finally:
            storage.delete_tree(staged)
        publish(root, manifest)
    return Cache.open(root)


_Written = Mapping[str, tuple[ExampleSpec, list[ShardEntry]]]


def _linked(root: str, staged: str, name: str, written: _Written, sources: tuple[SourceTerms, ...]) -> Manifest:
    """The manifest of what was written, whose files are in the directory of the snapshot that their digest names."""
    content = [[split, spec.to_json(), [e.to_json() for e in entries]] for split, (spec, entries) in written.items()]
    snapshot = hashlib.sha256(canonical_json(noted([FORMAT_VERSION, name, content], sources))).hexdigest()[:16]
    storage, directory = storage_for(root), snapshot_directory(root, snapshot)
    storage.makedirs(directory)
    for _, entries in written.values():
        for file in (file for entry in entries for file in (index_path(entry.file), entry.file)):
            storage.link_or_copy(f"{staged}/{file}", f"{directory}/{file}")
    splits = {split: SplitManifest.from_entries(entries, spec=spec) for split, (spec, entries) in written.items()}
    return Manifest(name=name, snapshot=snapshot, splits=splits, sources=sources)


def _features_of(
    features: Features | FeaturesBySplit | None, split: str, splits: Mapping[str, object]
) -> Features | None:
    """The features of a split; None if they are to be inferred."""
    if features is None or not is_by_split(features):
        return features
    if split not in features:
        raise SpecError(
            f"write_cache: features are given for {sorted(features)}, but not for the split {split!r}. Give feature "
            f"name → FeatureSpec, or one such mapping for each of {sorted(splits)}."
        )
    return features[split]


def _write_split(
    directory: str,
    name: str,
    split: str,
    examples: Iterable[Mapping[str, object]],
    features: Features | None,
    num_shards: int,
) -> tuple[ExampleSpec, list[ShardEntry]]:
    stream: Iterator[Mapping[str, object]] = iter(examples)
    if features is None:
        # Copies: a generator may fill the same dict or array again for the next example.
        first = [owned(example) for example in itertools.islice(stream, INFER_EXAMPLES)]
        if not first:
            raise SpecError(f"write_cache: the split {split!r} has no example to infer features from. Give features=….")
        features, stream = ExampleSpec.infer(first), itertools.chain(first, stream)
    spec = features if isinstance(features, ExampleSpec) else ExampleSpec(features)
    codec = codec_for("example", spec=spec)
    files = [shard_file_name(name, split, shard, num_shards) for shard in range(num_shards)]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(ShardWriter(directory, file, codec=codec)) for file in files]
        for number, example in enumerate(stream):
            try:
                writers[number % num_shards].write(example, ordinal=number // num_shards)
            except SpecError as error:
                error.add(f"It is example {number} of the split {split!r}.", split=split, example=number)
                raise
        return spec, [writer.commit() for writer in writers]
