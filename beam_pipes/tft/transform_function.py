"""`TransformFunction`: applies a learned transform function, with TensorFlow alone.

The same SavedModel transforms records in a build, after a loader, and at serving.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.errors import CacheNotFoundError, SpecError
from beam_pipes.extras import TfTensor, require
from beam_pipes.format.spec import DecodedExample
from beam_pipes.tft.raw_features import RawFeatures

if TYPE_CHECKING:
    import tensorflow as tf

    from beam_pipes.cache.reader import Cache

FEATURES_NAME = "features.json"

_PURPOSE = "a transform function"


class TransformFunction:
    """The transform function in `directory`: a batch of raw features → a batch of transformed ones.

        transform = TransformFunction.of(Cache.open("reviews"), "tft")
        transform({"stars": np.array([3.0, 5.0], np.float32)})  →  {"stars_z": <tf.Tensor: [-1.0, 1.0]>}
        DataLoader.from_cache("reviews", batch_size=32, ragged="values").map(transform)

    A call takes NumPy arrays or tensors and gives tensors; it can be traced (`Dataset.map`, `tf.function`). Outputs
    that depend on features missing from a batch, such as labels at serving, are left out. Features that the function
    does not take are refused, except those named in `keep`, which pass through unchanged.

    Not picklable: pass the directory to other processes instead. Thread-safe.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: Sequence[str] = ()) -> None:
        self.directory = os.fspath(directory)
        self.keep = tuple(keep)
        try:
            with open(os.path.join(self.directory, FEATURES_NAME), encoding="utf-8") as file:
                self.raw_features = RawFeatures.from_json(json.load(file))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CacheNotFoundError(
                f"expected a transform function in {self.directory!r}, a directory with {FEATURES_NAME}, and there is "
                "none. Take the asset of a TransformFn: TransformFunction.of(cache, name).",
                path=self.directory,
            ) from error

    @classmethod
    def of(cls, cache: Cache, name: str, *, keep: Sequence[str] = ()) -> TransformFunction:
        """The function that the `TransformFn` called `name` learned for the snapshot `cache`."""
        return cls(cache.asset_path(name), keep=keep)

    @functools.cached_property
    def _loaded(self) -> tf.Module:
        tf = require("tensorflow", purpose=_PURPOSE)
        with tf.init_scope():  # its tables outlive the graph of the first caller
            return tf.saved_model.load(os.path.join(self.directory, "transform_fn"))

    @functools.cached_property
    def _inputs_of(self) -> Mapping[str, frozenset[str]]:
        """Output → the features that it depends on."""
        tf = require("tensorflow", purpose=_PURPOSE)
        graph = self._loaded.transform_fn.graph
        given = dict(zip(_names(tf, graph.structured_input_signature[0][0]), graph.inputs, strict=False))
        feature_of = {tensor.op.name: name.partition("\0")[0] for name, tensor in given.items()}
        outputs = tf.nest.pack_sequence_as(graph.structured_outputs, graph.outputs, expand_composites=True)
        return {
            name: frozenset(
                feature_of[op] for op in _ancestors(tf.nest.flatten(value, expand_composites=True)) if op in feature_of
            )
            for name, value in outputs.items()
        }

    @property
    def outputs(self) -> list[str]:
        """The names of the transformed features, sorted."""
        return sorted(self._inputs_of)

    def __call__(self, batch: Mapping[str, object]) -> dict[str, TfTensor]:
        """Raises `SpecError` for features that the function does not take, or takes in another form."""
        tf = require("tensorflow", purpose=_PURPOSE)
        lengths = {f"{name}/lengths" for name in batch}
        strange = sorted(set(batch) - set(self.raw_features.names) - set(self.keep) - lengths)
        if strange:
            raise SpecError(
                f"the transform function in {self.directory!r} takes {self.raw_features.names}, and got {strange} "
                f"besides. Leave them out, or name those to pass through unchanged: keep={strange}.",
                feature=strange[0],
            )
        given = self.raw_features.tensors(batch)
        if not given:
            raise SpecError(
                f"the transform function in {self.directory!r} takes {self.raw_features.names}, and got none of them."
            )
        missing = [feature for feature in self.raw_features if feature.name not in given]
        if missing:
            first = next(iter(given.values()))
            rows = first.dense_shape[0] if isinstance(first, tf.SparseTensor) else None
            rows = rows if rows is not None else first.nrows() if hasattr(first, "nrows") else tf.shape(first)[0]
            rows = tf.cast(rows, tf.int64)
            given.update({feature.name: self.raw_features.absent(feature, rows) for feature in missing})
        made = self._loaded.transform_fn(*tf.nest.flatten(given, expand_composites=True))
        absent = {feature.name for feature in missing}
        result = {name: value for name, value in made.items() if not self._inputs_of[name] & absent}
        for name in self.keep:
            if name in result:
                raise SpecError(
                    f"{name!r} is both a transformed feature and one to keep. Leave it out of keep, or rename the "
                    "output of the preprocessing_fn.",
                    feature=name,
                )
            result.update({each: batch[each] for each in (name, f"{name}/lengths") if each in batch})
        return result

    def examples(self, examples: Sequence[Mapping[str, object]]) -> list[DecodedExample]:
        """Examples → transformed examples of NumPy arrays: strings are `bytes`, and varying features separate arrays.

        Raises `SpecError`, naming the feature, for what does not fit.
        """
        if not examples:
            return []
        tf = require("tensorflow", purpose=_PURPOSE)
        with tf.device("/cpu:0"):
            made = self(self.raw_features.columns(examples))
            rows: list[dict[str, object]] = [{} for _ in examples]
            for name in sorted(made):
                for row, value in zip(rows, _rows(tf, name, made[name], len(examples)), strict=True):
                    row[name] = value
        return rows


def _names(tf: ModuleType, signature: Mapping[str, object]) -> list[str]:
    """The features of the flat inputs of a function, each with the number of its component."""
    return [
        f"{name}\0{at}"
        for name in sorted(signature)
        for at in range(len(tf.nest.flatten(signature[name], expand_composites=True)))
    ]


def _ancestors(tensors: Sequence[tf.Tensor]) -> set[str]:
    """The names of all operations that the given tensors depend on."""
    seen: set[str] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs]
    return seen


def _rows(
    tf: ModuleType, name: str, value: tf.Tensor | tf.SparseTensor | tf.RaggedTensor, count: int
) -> Sequence[object]:
    """One transformed feature, row by row."""
    if isinstance(value, tf.SparseTensor):
        if value.shape.rank != 2:
            raise SpecError(
                f"the transformed feature {name!r} is sparse in {value.shape.rank - 1} dimensions, which an example "
                "cannot hold. Make it dense in the preprocessing_fn: tf.sparse.to_dense(...).",
                feature=name,
            )
        value = tf.RaggedTensor.from_sparse(value)
    if isinstance(value, tf.RaggedTensor):
        if value.ragged_rank != 1:
            raise SpecError(
                f"the transformed feature {name!r} is ragged in {value.ragged_rank} dimensions, which an example "
                "cannot hold. Flatten it in the preprocessing_fn.",
                feature=name,
            )
        splits = value.row_splits.numpy()
        values = value.flat_values.numpy()
        return [_own(values[start:stop]) for start, stop in zip(splits[:-1], splits[1:], strict=True)]
    array = value.numpy()
    if array.ndim == 0 or len(array) != count:
        raise SpecError(
            f"the transformed feature {name!r} has the shape {array.shape} for {count} examples: expected one row for "
            "each. A preprocessing_fn gives tensors whose first dimension is the batch's.",
            feature=name,
            found=array.shape,
        )
    return [_own(row) for row in array]


def _own(value: object) -> object:
    """A value that shares no memory with the batch."""
    return np.array(value, copy=True) if isinstance(value, np.ndarray) else value
