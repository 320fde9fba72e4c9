"""A published cache made readable for SeqIO: `info.{split}.json`, `stats.{split}.json`, `{split}.tfrecord-...`.

The statistics are those of `Task.get_cached_stats`: examples, tokens, characters, and the longest example.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from beam_pipes.cache import Cache, FeatureSpec, RecordWriter, Split, shard_file_name
from beam_pipes.errors import CacheNotFoundError, TaskError
from beam_pipes.format.exact import NotExactError, cast_exactly
from beam_pipes.format.spec import FeatureValue
from beam_pipes.storage.local import storage_for
from beam_pipes.tasks.sources.places import (
    COMPLETED,
    get_cached_info_path,
    get_cached_stats_path,
    get_cached_tfrecord_prefix,
)
from beam_pipes.tasks.steps.ragged import RAGGED_PREFIX, num_ragged, tfexample_ragged_length_key
from beam_pipes.tasks.vocabularies.vocabulary import DType

if TYPE_CHECKING:
    from beam_pipes.format import messages

#: Layout version in `info.{split}.json`; readers show it but do not compare it.
LAYOUT_VERSION = "0.0.20"

# In `info.{split}.json`: the snapshot that the files belong to. Other readers ignore it.
_MANIFEST_ID = "beam_pipes_manifest"


def write_seqio_sidecars(
    cache_dir: str,
    *,
    token_features: Mapping[str, Iterable[str]] | Iterable[str] | None = None,
    min_shards: int = 1,
    max_shards: int | None = None,
) -> list[str]:
    """Writes the files that readers of the other layout expect. Returns the paths, `COMPLETED` last.

    Shards whose features are all lists of values (`encoding="list"`) or texts are linked, not copied; others are
    rewritten as such lists. A feature whose inner dimensions vary is stored with its row lengths, and is ragged to
    those readers. Files of the published snapshot are left unchanged; files of an older one are removed once the new
    ones exist.

    Args:
        cache_dir: directory of a published cache of examples.
        token_features: features whose tokens are counted; None for those that the build counted, else all integer
            features of rank 1.
        min_shards: minimum number of files per split. If the cache has fewer, its records are rewritten in files of
            equal size (give or take one record) instead of linked: those readers distribute a split over hosts by file,
            so 64 files are shared evenly by 2, 4, … 64 hosts.
        max_shards: maximum number of files per split, in the same way; None for no maximum.

    Raises:
        TaskError: a number of files is not positive.
    """
    check_shard_numbers(min_shards, max_shards)
    cache = Cache.open(cache_dir)
    written = []
    for name in cache.splits:
        split = cache[name]
        info_path, stats_path = get_cached_info_path(cache_dir, name), get_cached_stats_path(cache_dir, name)
        shards = _shard_paths(split, cache_dir, min(max(split.num_shards, min_shards), max_shards or sys.maxsize))
        if not _is_current(cache, info_path, [*shards, stats_path]):
            _write_shards(cache, split, shards)
            features = list(token_features) if token_features is not None else None
            stats = split_statistics(split, features, statistics=cache.manifest.statistics)
            _replace(stats_path, json.dumps(stats, indent=2, sort_keys=True))
            info = {
                "num_shards": len(shards),
                "features": {
                    feature: _info(spec, num_ragged(feature, split.spec))
                    for feature, spec in split.spec.items()
                    if not feature.startswith(RAGGED_PREFIX)
                },
                "seqio_version": LAYOUT_VERSION,
                _MANIFEST_ID: cache.manifest.id,
            }
            _replace(info_path, json.dumps(info, indent=2, sort_keys=True))
        written += [*shards, info_path, stats_path]
    _remove_others(cache_dir, written)
    completed = os.path.join(cache_dir, COMPLETED)
    if not storage_for(completed).exists(completed):
        _replace(completed, "tfrecord")
    return [*written, completed]


def check_shard_numbers(min_shards: int, max_shards: int | None) -> None:
    """Raises `TaskError` unless both are numbers of files; if they contradict each other, `max_shards` wins."""
    if min_shards < 1 or (max_shards is not None and max_shards < 1):
        raise TaskError(
            f"min_shards and max_shards should be numbers of files, 1 or more, got min_shards={min_shards!r}, "
            f"max_shards={max_shards!r}"
        )


def _shard_paths(split: Split, cache_dir: str, num_shards: int) -> list[str]:
    prefix = get_cached_tfrecord_prefix(cache_dir, split.name)
    return [f"{prefix}-{index:05d}-of-{num_shards:05d}" for index in range(num_shards)]


def _is_current(cache: Cache, info_path: str, others: Iterable[str]) -> bool:
    storage = storage_for(info_path)
    try:
        known = json.loads(storage.read_bytes(info_path)).get(_MANIFEST_ID)
    except (CacheNotFoundError, OSError, ValueError, AttributeError):
        return False
    # File names contain the number of files: another number means other paths.
    return known == cache.manifest.id and all(map(storage.exists, others))


def _remove_others(cache_dir: str, written: Iterable[str]) -> None:
    """Removes files of this layout from an older snapshot, beginning with those that announce the others."""
    kept = set(map(os.path.basename, written))
    storage = storage_for(cache_dir)
    names = [name for name in storage.list(cache_dir) if name not in kept]
    for pattern in ("info.*.json", "stats.*.json", "*.tfrecord-*-of-*"):
        for name in fnmatch.filter(names, pattern):
            storage.delete(os.path.join(cache_dir, name))


def _info(spec: FeatureSpec, ragged: int) -> dict[str, object]:
    shape: list[int | None] = [*[None] * ragged, *spec.shape]
    if shape and not _varies_inside(spec):
        shape[0] = None  # those readers assume that the first dimension varies
    return {"dtype": "string" if spec.is_text else DType(spec.dtype).name, "shape": shape}


def _varies_inside(spec: FeatureSpec) -> bool:
    return None in spec.shape[1:]


def _write_shards(cache: Cache, split: Split, paths: list[str]) -> None:
    linkable = all(
        spec.is_text or (spec.encoding == "list" and not spec.has_shape_feature) for spec in split.spec.values()
    )
    manifest = cache.manifest.splits[split.name]
    if len(paths) == split.num_shards:
        starts = np.cumsum([0, *split.shard_sizes.tolist()])
    else:
        linkable = False
        starts = np.arange(len(paths) + 1) * len(split) // len(paths)
    for index, path in enumerate(paths):
        if linkable:
            file = shard_file_name(cache.manifest.name, split.name, manifest.numbers[index], manifest.shard_count)
            storage_for(path).link_or_copy(os.path.join(cache.directory, file), path)
        else:
            _write_lists(path, (split[i] for i in range(int(starts[index]), int(starts[index + 1]))), split)


def _replace(path: str, text: str) -> None:
    storage_for(path).replace(path, text.encode())


def _write_lists(path: str, examples: Iterator[Mapping[str, object]], split: Split) -> None:
    from beam_pipes.format.messages import Example

    staged = storage_for(path).stage(path)
    try:
        with RecordWriter(staged) as writer:
            for values in examples:
                message = Example()
                for name, spec in split.spec.items():
                    _fill(message.features.feature, name, spec, values[name])
                writer.write(message.SerializeToString(deterministic=True))
        staged.commit()
    finally:
        staged.abort()


def _fill(features: Mapping[str, messages.Feature], name: str, spec: FeatureSpec, value: FeatureValue) -> None:
    if spec.is_text:
        texts = value if spec.shape else [value]
        features[name].bytes_list.value.extend(t.encode() if isinstance(t, str) else t for t in texts)
        return
    array = np.asarray(value)
    if DType(spec.dtype).is_floating:
        try:
            values = cast_exactly(array, np.dtype(np.float32), rounds=True)
        except NotExactError as error:
            raise TaskError(
                f"feature {name!r}: files for SeqIO keep floats as float32, which does not hold {error}. Leave them "
                "out (seqio_files=False), or scale the feature.",
                feature=name,
                found=error.found,
            ) from None
        features[name].float_list.value.extend(values.reshape(-1).tolist())
    else:  # uint64 as two's complement, reversed on reading
        features[name].int64_list.value.extend(array.astype(np.int64).reshape(-1).tolist())
    if _varies_inside(spec):
        last = max(dim for dim, size in enumerate(spec.shape) if size is None)
        for dim in range(last):
            rows = [array.shape[dim + 1]] * int(np.prod(array.shape[: dim + 1]))
            features[tfexample_ragged_length_key(name, dim)].int64_list.value.extend(rows)


#: Suffix that tokenizers add to the name of a feature whose text they keep.
PRETOKENIZED = "_pretokenized"

#: The JSON states of statistics, as a manifest keeps them.
Statistics: TypeAlias = Sequence[Mapping[str, Any]]

#: The stage of a build that counts.
STAGE = "example"


def statistic_name(split: str, name: str) -> str:
    """A stage's name for a count of one split: `train/targets_tokens`."""
    return f"{split}/{name}"


def counted_statistics(statistics: Statistics, split: str) -> dict[str, int]:
    """The counts of a task's build for a split, from the statistics in its manifest; empty for other caches."""
    prefix = f"{STAGE}_{statistic_name(split, '')}"
    return {
        str(each["name"]).removeprefix(prefix): int(each["state"].get("count", each["state"].get("value", 0)))
        for each in statistics
        if str(each["name"]).startswith(prefix)
    }


def split_statistics(
    split: Split, token_features: Iterable[str] | None = None, *, statistics: Statistics = ()
) -> dict[str, int]:
    """Statistics of a split: those counted by a task's build, the others from the index. No record is read.

    `{"examples": 3, "targets_tokens": 18, "targets_max_tokens": 6, "targets_chars": 40}`. A build's counts exclude EOS
    and padding, and its characters are code points; the index knows only lengths, so its tokens are all entries, and
    its characters the bytes of the text kept as `<feature>_pretokenized`.

    Args:
        split: a `beam_pipes.cache.Split` of examples.
        token_features: features whose entries are tokens; None for all integer features of rank 1 and varying length.
        statistics: those of the cache's manifest.
    """
    counted = counted_statistics(statistics, split.name)
    if counted and token_features is None:
        return {"examples": len(split), **counted}
    spec = split.spec
    if token_features is None:
        token_features = [
            name
            for name, feature in spec.items()
            if feature.shape == (None,)
            and not feature.is_text
            and DType(feature.dtype).is_integer
            and not name.startswith(RAGGED_PREFIX)
            and not num_ragged(name, spec)
        ]
    stats = {"examples": len(split)}
    for name in token_features:
        lengths = split.lengths(name)
        stats[f"{name}_tokens"] = int(lengths.sum())
        stats[f"{name}_max_tokens"] = int(lengths.max()) if len(lengths) else 0
        text = name + PRETOKENIZED
        if text in spec and spec[text].is_text and spec[text].shape == ():
            stats[f"{name}_chars"] = int(split.lengths(text).sum())
    return stats
