"""Export as a data set of TensorFlow Datasets: `tfds.builder_from_directory(…)` opens it.

| feature | TFDS feature |
| --- | --- |
| number, bool, array of them | `Tensor` with `encoding="bytes"`, of the stored dtype: what a cache holds |
| text; list of texts | `Text`; `Sequence(Text)` |
| bytes | `Tensor` of object dtype: an encoded picture stays as it is |
| whole number with `classes` | `ClassLabel` with their names |
| `a/b` | `b` in a `FeaturesDict` under `a` |
| `steps/…`, if all of these begin with a dimension that varies | an RLDS episode: `Dataset` of steps |

Where every feature is stored as TFDS stores it, the shards are copies of the cache's. Else TFDS serializes each record.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from beam_pipes.cache.joined import JoinedSplit
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.errors import ExportError
from beam_pipes.export.tables import kept_rows
from beam_pipes.extras import require
from beam_pipes.format import dtypes
from beam_pipes.format.feature_values import nested
from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.spec import FeatureSpec

STEPS = "steps/"
_NOT_RAW = ("uint32",)  # what `tf.io.decode_raw` does not give


def write_tfds(cache: Cache, directory: str) -> None:
    """Writes `examples-SPLIT.tfrecord-00000-of-00004`, one per shard, `dataset_info.json` and `features.json`.

    Raises `ExportError` for splits that hold no examples, or other features than the first: TFDS has one set of them.
    """
    tfds = require("tensorflow_datasets", purpose="export to TFDS")
    splits = [cache[name] for name in cache.splits]
    spec = _spec_of(splits)
    stored = not _steps_of(spec) and all(map(_is_stored_alike, spec.values()))
    stored = stored and not any(isinstance(split, JoinedSplit) for split in splits)
    features = _features_dict(tfds, spec, stored=stored)
    infos = []
    for split in splits:
        rows, sizes, num_bytes = kept_rows(split), [], 0
        ends = np.cumsum(split.shard_sizes).tolist()
        row = next(rows, None)
        for number, end in enumerate(ends):
            path = os.path.join(directory, f"examples-{split.name}.tfrecord-{number:05d}-of-{len(ends):05d}")
            sizes.append(0)
            with RecordWriter(path) as records:
                while row is not None and row < end:
                    records.write(split.record_bytes(row) if stored else _serialized(features, split, row))
                    sizes[-1] += 1
                    row = next(rows, None)
            num_bytes += records.bytes_written
        infos.append(tfds.core.SplitInfo(name=split.name, shard_lengths=sizes, num_bytes=num_bytes))
    tfds.folder_dataset.write_metadata(
        data_dir=directory, features=features, split_infos=infos, version="1.0.0", check_data=False
    )


def _serialized(features: Any, split: Split, row: int) -> bytes:
    try:
        payload: bytes = features.serialize_example(nested(split[row]))
    except ValueError as error:
        why = " ".join(str(error).split())
        raise ExportError(
            f"TFDS cannot serialize record {row} of split {split.name!r}: {why}. Drop such records in a stage, or "
            "export as parquet."
        ) from error
    return payload


def _spec_of(splits: Sequence[Split]) -> Mapping[str, FeatureSpec]:
    for split in splits:
        if split.kind != "example":
            raise ExportError(
                f"split {split.name!r} holds {split.kind} records, and TFDS takes examples. Export it as arrayrecord."
            )
        if dict(split.spec) != dict(splits[0].spec):
            raise ExportError(
                f"the splits {splits[0].name!r} and {split.name!r} have different features, and a TFDS data set has "
                "the same in all. Export it as parquet."
            )
    spec = splits[0].spec
    for name, feature in spec.items():
        if feature.dtype in _NOT_RAW and feature.shape.count(None) > 1:
            raise ExportError(
                f"feature {name!r} is {feature.dtype} and has {feature.shape.count(None)} dimensions that vary, which "
                "TFDS does not read. Declare it as int64, or export as parquet."
            )
        parents = name.split("/")[:-1]
        if taken := {"/".join(parents[: depth + 1]) for depth in range(len(parents))} & spec.keys():
            raise ExportError(
                f"the features {min(taken)!r} and {name!r} cannot both be in a TFDS data set, where the first would be "
                "a value and the group of the second. Rename one in a stage."
            )
    return spec


def _steps_of(spec: Mapping[str, FeatureSpec]) -> dict[str, FeatureSpec]:
    """The features of a step by their names in it, if the examples are episodes: `steps/a` of shape (None, 7) → `a` of
    shape (7,).
    """
    steps = {name[len(STEPS) :]: feature for name, feature in spec.items() if name.startswith(STEPS)}
    if not all(feature.shape[:1] == (None,) for feature in steps.values()):
        return {}
    return {name: dataclasses.replace(feature, shape=feature.shape[1:]) for name, feature in steps.items()}


def _is_stored_alike(feature: FeatureSpec) -> bool:
    """Whether TFDS reads the feature from the bytes that the cache stores."""
    if feature.class_names is not None and not feature.shape:
        return False
    return not feature.has_shape_feature and (feature.encoding == "list" or feature.storage_dtype not in _NOT_RAW)


def _features_dict(tfds: ModuleType, spec: Mapping[str, FeatureSpec], *, stored: bool) -> Any:
    steps = _steps_of(spec)
    made = {
        name: _feature(tfds, feature, stored=stored)
        for name, feature in spec.items()
        if not steps or not name.startswith(STEPS)
    }
    features = nested(made)
    if steps:
        inner = {name: _feature(tfds, feature, stored=stored) for name, feature in steps.items()}
        features["steps"] = tfds.features.Dataset(nested(inner))
    return tfds.features.FeaturesDict(features)


def _feature(tfds: ModuleType, feature: FeatureSpec, *, stored: bool) -> Any:
    kinds = tfds.features
    if feature.dtype == dtypes.STR:
        return kinds.Sequence(kinds.Text(), length=feature.shape[0]) if feature.shape else kinds.Text()
    if feature.dtype == dtypes.BYTES:
        return kinds.Tensor(shape=feature.shape, dtype=np.object_)
    if feature.class_names is not None and not feature.shape:
        return kinds.ClassLabel(names=list(feature.class_names))
    as_list = feature.encoding == "list" if stored else feature.dtype in _NOT_RAW
    dtype = feature.storage_dtype if stored and not as_list else feature.dtype
    return kinds.Tensor(shape=feature.shape, dtype=dtypes.numpy_dtype(dtype), encoding="none" if as_list else "bytes")
