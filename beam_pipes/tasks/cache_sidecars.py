"""Our caches, readable by readers of the layout `info.{split}.json`, `stats.{split}.json`, `{split}.tfrecord-...`,
`COMPLETED`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from beam_pipes.cache import Cache, FeatureSpec, RecordWriter, Split, shard_file_name
from beam_pipes.tasks.cache_dirs import get_cached_info_path, get_cached_stats_path, get_cached_tfrecord_prefix
from beam_pipes.tasks.cache_statistics import split_statistics
from beam_pipes.tasks.dtypes import DType
from beam_pipes.tasks.task_cache import COMPLETED
from beam_pipes.tasks.tfexample import tfexample_ragged_length_key

#: Version of the layout that `info.{split}.json` names; readers show it, and do not compare it.
LAYOUT_VERSION = "0.0.20"


def write_seqio_sidecars(
    cache_dir: str, *, token_features: Mapping[str, Iterable[str]] | Iterable[str] | None = None
) -> list[str]:
    """Writes what readers of the other layout look for beside a published cache. Returns the paths, `COMPLETED` last.

    Shards whose features are all lists of values (`encoding="list"`) and texts are linked, not copied; others are
    written again
    as such lists. A feature whose inner dimensions vary has its row lengths beside it, and is ragged to those readers.

    Args:
        cache_dir: directory of a published cache of examples.
        token_features: features to count tokens of; None for all integer features of rank 1.
    """
    cache = Cache.open(cache_dir)
    written = []
    for name in cache.splits:
        split = cache[name]
        written += _write_shards(cache, split, cache_dir)
        info = {
            "num_shards": split.num_shards,
            "features": {feature: _info(spec) for feature, spec in split.spec.items()},
            "seqio_version": LAYOUT_VERSION,
        }
        stats = split_statistics(split, list(token_features) if token_features is not None else None)
        for path, content in (
            (get_cached_info_path(cache_dir, name), info),
            (get_cached_stats_path(cache_dir, name), stats),
        ):
            _replace(path, json.dumps(content, indent=2, sort_keys=True))
            written.append(path)
    completed = os.path.join(cache_dir, COMPLETED)
    _replace(completed, "tfrecord")
    return [*written, completed]


def _info(spec: FeatureSpec) -> dict[str, Any]:
    shape: list[int | None] = list(spec.shape)
    if shape and not _varies_inside(spec):
        shape[0] = None  # those readers take the first dimension as varying
    return {"dtype": "string" if spec.is_text else DType(spec.dtype).name, "shape": shape}


def _varies_inside(spec: FeatureSpec) -> bool:
    return None in spec.shape[1:]


def _write_shards(cache: Cache, split: Split, cache_dir: str) -> list[str]:
    prefix = get_cached_tfrecord_prefix(cache_dir, split.name)
    paths = [f"{prefix}-{index:05d}-of-{split.num_shards:05d}" for index in range(split.num_shards)]
    linkable = all(
        spec.is_text or (spec.encoding == "list" and not spec.has_shape_feature) for spec in split.spec.values()
    )
    manifest = cache.manifest.splits[split.name]
    starts = np.cumsum([0, *split.shard_sizes.tolist()])
    for index, path in enumerate(paths):
        if linkable:
            file = shard_file_name(cache.manifest.name, split.name, manifest.numbers[index], manifest.shard_count)
            _link(os.path.join(cache.directory, file), path)
        else:
            _write_lists(path, (split[i] for i in range(int(starts[index]), int(starts[index + 1]))), split)
    return paths


def _link(source: str, target: str) -> None:
    temporary = f"{target}.tmp"
    if os.path.exists(temporary):
        os.unlink(temporary)
    os.link(source, temporary)
    os.replace(temporary, target)


def _replace(path: str, text: str) -> None:
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def _write_lists(path: str, examples: Iterator[Mapping[str, Any]], split: Split) -> None:
    from beam_pipes.cache.messages import Example

    temporary = f"{path}.tmp"
    with RecordWriter(temporary) as writer:
        for values in examples:
            message = Example()
            for name, spec in split.spec.items():
                _fill(message.features.feature, name, spec, values[name])
            writer.write(message.SerializeToString(deterministic=True))
    os.replace(temporary, path)


def _fill(features: Any, name: str, spec: FeatureSpec, value: Any) -> None:
    if spec.is_text:
        texts = value if spec.shape else [value]
        features[name].bytes_list.value.extend(t.encode() if isinstance(t, str) else t for t in texts)
        return
    array = np.asarray(value)
    if DType(spec.dtype).is_floating:
        features[name].float_list.value.extend(array.astype(np.float32).reshape(-1).tolist())
    else:
        features[name].int64_list.value.extend(array.astype(np.int64).reshape(-1).tolist())
    if _varies_inside(spec):
        last = max(dim for dim, size in enumerate(spec.shape) if size is None)
        for dim in range(last):
            rows = [array.shape[dim + 1]] * int(np.prod(array.shape[: dim + 1]))
            features[tfexample_ragged_length_key(name, dim)].int64_list.value.extend(rows)
