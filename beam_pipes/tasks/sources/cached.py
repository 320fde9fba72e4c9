"""The cache of a task as a source, in either layout.

`BuiltCacheSource` reads a snapshot that beam-pipes published, record by record. `CachedDataSource` reads the layout of
SeqIO: `info.{split}.json` next to `{split}.tfrecord-00000-of-00064`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.cache import Cache, Split
from beam_pipes.errors import CacheNotFoundError, CorruptRecordError, SourceError
from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.format.framing import read_records
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.order import KeyedPermutation
from beam_pipes.publication.terms import Terms
from beam_pipes.tasks.sources.data_source import LibrarySource
from beam_pipes.tasks.sources.files import FileDataSource
from beam_pipes.tasks.sources.places import get_cached_info_path, get_cached_stats_path, get_cached_tfrecord_prefix
from beam_pipes.tasks.steps.dataset_map import SHAPE_PREFIX, map_parallelism
from beam_pipes.tasks.steps.examples import dataset_of, with_ragged
from beam_pipes.tasks.steps.features import ShardInfo
from beam_pipes.tasks.steps.ragged import RAGGED_PREFIX, Ragged, assembled, num_ragged
from beam_pipes.tasks.vocabularies.files import exists, read_bytes
from beam_pipes.tasks.vocabularies.vocabulary import DType

if TYPE_CHECKING:
    import tensorflow as tf

_CHUNK = 256


class BuiltCacheSource(LibrarySource):
    """One split of a published snapshot. Records are read by index: any number of hosts get equal shares, and shuffling
    permutes the whole split, not a buffer.

    Raises:
        CacheNotFoundError: nothing is published, or the split does not exist.
    """

    reads_without_tensorflow = True

    def __init__(self, cache_dir: str, split: str) -> None:
        cache = Cache.open(cache_dir)
        self._records = cache[split]
        self._manifest = cache.manifest
        #: Name → digest of the inputs of the cache.
        self.fingerprints: Mapping[str, str] = cache.manifest.fingerprints
        self._cache_dir = cache_dir
        super().__init__([split], {split: len(self._records)})

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"BuiltCacheSource({self._cache_dir!r}, {self.splits[0]!r})"

    def list_shards(self, split: str) -> Sequence[str]:
        self._check_split(split)
        return [str(index) for index in range(self._records.num_shards)]

    def read_shard(self, split: str, shard: str) -> Iterator[dict[str, object]]:
        index = self._shard_index(split, shard)
        ends = np.cumsum(self._records.shard_sizes)
        yield from self.examples_at(np.arange(ends[index] - self._records.shard_sizes[index], ends[index]))

    def terms_of(self, split: str, shard: str) -> Terms:
        """Those of the cache."""
        return self._manifest.terms_of(self._manifest.splits[split].numbers[self._shard_index(split, shard)])

    def shard_identity(self, split: str, shard: str) -> object:
        """What changes when a record of the shard does."""
        shards, index = self._manifest.splits[split], self._shard_index(split, shard)
        return [shards.crc32c[index], shards.bytes[index], shards.records[index]]

    def fingerprint_config(self) -> dict[str, object]:
        return {"spec": self._records.spec.to_json()}

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
        self._check_split(split)
        epochs = iter(range(1 << 62))

        def examples() -> Iterator[dict[str, object]]:
            return self._stored_at(self.indices(shuffle=shuffle, seed=seed, epoch=next(epochs), shard_info=shard_info))

        dataset = dataset_of(examples, self._element_spec(), name=repr(self))
        return with_ragged(dataset) if self.ragged else dataset

    @functools.cached_property
    def ragged(self) -> list[str]:
        """The features whose rows have different lengths."""
        return [name for name in self._records.spec if num_ragged(name, self._records.spec)]

    def indices(
        self, *, shuffle: bool, seed: int | None, epoch: int = 0, shard_info: ShardInfo | None = None
    ) -> np.ndarray:
        """The records of one epoch in order: this host's share of one order of all hosts.

        Without a seed the order differs every time, except with several hosts, which have to agree: it is then always
        the same.
        """
        if seed is None:
            seed = secrets.randbits(63) if shard_info is None else 0
        share = shard_info or ShardInfo(0, 1)
        positions = np.arange(share.index, len(self._records), share.num_shards)
        if not shuffle or not len(positions):
            return positions
        return KeyedPermutation(len(self._records), seed=seed, epoch=epoch).records(positions)

    @property
    def records(self) -> Split:
        """The split itself."""
        return self._records

    def examples_at(self, indices: np.ndarray) -> Iterator[dict[str, object]]:
        """The examples of some records, in the requested order."""
        examples = self._stored_at(indices)
        return map(assembled, examples) if self.ragged else examples

    def _stored_at(self, indices: np.ndarray) -> Iterator[dict[str, object]]:
        spec = self._records.spec
        plain = [n for n, f in spec.items() if not f.has_shape_feature and not (f.is_text and f.shape)]
        others = [name for name in spec if name not in plain]
        for start in range(0, len(indices), _CHUNK):
            chunk = indices[start : start + _CHUNK]
            batch = self._records.gather(chunk, features=plain, ragged="values")
            columns: dict[str, np.ndarray | Sequence[object]] = {name: _rows(batch, name) for name in plain}
            columns.update({name: list(map(_bytes_of, columns[name])) for name in plain if spec[name].is_text})
            for row, index in enumerate(chunk.tolist()):
                example = {name: rows[row] for name, rows in columns.items()}
                if others:
                    record = self._records[index]
                    example.update({name: _bytes_of(record[name]) for name in others})
                yield example

    def _element_spec(self) -> dict[str, tuple[str, int]]:
        """Feature → dtype and rank."""
        return {
            name: ("string" if feature.is_text else DType(feature.dtype).name, len(feature.shape))
            for name, feature in self._records.spec.items()
        }


def _rows(batch: Batch, name: str) -> np.ndarray | list[np.ndarray]:
    lengths = batch.get(f"{name}/lengths")
    return batch[name] if lengths is None else np.split(batch[name], np.cumsum(lengths)[:-1])


def _bytes_of(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (list, np.ndarray)) and len(value) and isinstance(value[0], str):
        encoded = np.empty(len(value), object)
        encoded[:] = [item.encode("utf-8", "surrogatepass") for item in value]
        return encoded
    return value


class CachedDataSource(FileDataSource):
    """One split of a cache. Read natively, or through TensorFlow for a `tf.data.Dataset`.

    Values are stored as int64, float32 or bytes and come back in the dtype of `info.{split}.json`: `uint8`, `float16`,
    `bool` and all others. A feature of rank 2 or more whose inner dimensions vary has its shape in another feature,
    `_sh:<name>`; a ragged one has its row lengths in `_rl:<dim>:<name>`. In caches without a version int64 is read as
    int32, as SeqIO does, and the text `<name>_plaintext` is `<name>_pretokenized` in all.

    Args:
        cache_dir: directory of the cache.
        split: name of the split.

    Raises:
        CacheNotFoundError: the split is not there.
    """

    reads_without_tensorflow = True

    def __init__(
        self,
        cache_dir: str,
        split: str,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
    ) -> None:
        info_path = get_cached_info_path(cache_dir, split)
        if not exists(info_path):
            raise CacheNotFoundError(
                f"the cache {cache_dir} has no split '{split}': {info_path} is missing", split=split
            )
        info = json.loads(read_bytes(info_path))
        # Caches without a version declare every integer int64, and mean int32.
        meant = {"int64": "int32"} if str(info.get("seqio_version", "0.pre")).startswith("0.pre") else {}
        self._features: dict[str, tuple[DType, list[int | None]]] = {
            name: (DType(meant.get(f["dtype"], f["dtype"])), list(f["shape"])) for name, f in info["features"].items()
        }
        stats_path = get_cached_stats_path(cache_dir, split)
        stats = json.loads(read_bytes(stats_path)) if exists(stats_path) else {}
        num_shards = int(info["num_shards"])
        prefix = get_cached_tfrecord_prefix(cache_dir, split)
        self._files_of_split = [f"{prefix}-{index:05d}-of-{num_shards:05d}" for index in range(num_shards)]
        super().__init__(
            self._read_with_tensorflow,
            {split: self._files_of_split},
            num_input_examples={split: stats["examples"]} if "examples" in stats else None,
            file_shuffle_buffer_size=file_shuffle_buffer_size,
            cycle_length=cycle_length,
            block_length=block_length,
        )

    def _files(self, split: str) -> list[str]:
        self._check_split(split)
        missing = [path for path in self._files_of_split if not exists(path)]
        if missing:
            raise SourceError(
                f"{len(missing)} of the {len(self._files_of_split)} files of the cache are missing, first {missing[0]}",
                files=missing,
            )
        return self._files_of_split

    def list_shards(self, split: str) -> Sequence[str]:
        self._check_split(split)
        return self._files_of_split

    def __repr__(self) -> str:
        return f"CachedDataSource({os.path.dirname(self._files_of_split[0])!r}, {self.splits[0]!r})"

    # Through TensorFlow.

    def _read_with_tensorflow(self, path: object) -> object:
        tf = tensorflow("reading a cache as a tf.data.Dataset")
        description = {}
        for name, (dtype, shape) in self._features.items():
            description[name] = tf.io.RaggedFeature(_stored(tf, dtype))
            for side in _side_features(name, shape):
                description[side] = tf.io.RaggedFeature(tf.int64)

        def parse(record: object) -> dict[str, object]:
            parsed = tf.io.parse_single_example(record, description)
            return {
                _name_now(name): _tensor(tf, name, parsed, dtype, shape)
                for name, (dtype, shape) in self._features.items()
            }

        return tf.data.TFRecordDataset(path).map(parse, num_parallel_calls=map_parallelism())

    # Natively.

    def read_shard(self, split: str, shard: str) -> Iterator[dict[str, object]]:
        from beam_pipes.format.messages import Example

        self._shard_index(split, shard)
        for number, payload in enumerate(read_records(shard)):
            stored = Example.FromString(payload).features.feature
            yield {
                _name_now(name): _array(name, stored, dtype, shape, f"{shard} record {number}")
                for name, (dtype, shape) in self._features.items()
            }


def _name_now(name: str) -> str:
    """`targets_plaintext` of old caches is `targets_pretokenized`."""
    return name.removesuffix("plaintext") + "pretokenized" if name.endswith("_plaintext") else name


def _is_ragged(shape: list[int | None]) -> bool:
    return shape.count(None) > 1


def _side_features(name: str, shape: list[int | None]) -> list[str]:
    if _is_ragged(shape):
        last = max(dim for dim, size in enumerate(shape) if size is None)
        return [f"{RAGGED_PREFIX}{dim}:{name}" for dim in range(last)] + [SHAPE_PREFIX + name]
    return [SHAPE_PREFIX + name] if len(shape) > 1 else []


def _stored(tf: ModuleType, dtype: DType) -> TfTensor:
    return tf.string if dtype.is_string else tf.float32 if dtype.is_floating else tf.int64


def _tensor(
    tf: ModuleType, name: str, parsed: Mapping[str, TfTensor], dtype: DType, shape: list[int | None]
) -> TfTensor:
    values = parsed[name] if dtype.is_string else tf.cast(parsed[name], dtype)
    if not shape:
        return tf.reshape(values, [])
    if len(shape) == 1:
        return tf.ensure_shape(values, shape)
    if _is_ragged(shape):
        lengths = [parsed[side] for side in _side_features(name, shape) if side.startswith(RAGGED_PREFIX)]
        inner = [-1, *shape[len(lengths) + 1 :]]
        return tf.RaggedTensor.from_nested_row_lengths(tf.reshape(values, inner), lengths)
    kept = parsed[SHAPE_PREFIX + name]
    declared = [-1 if size is None else size for size in shape]
    actual = tf.cond(tf.size(kept) > 0, lambda: kept, lambda: tf.constant(declared, tf.int64))
    return tf.ensure_shape(tf.reshape(values, actual), [None] * len(shape))


def _array(
    name: str, stored: Mapping[str, tf.train.Feature], dtype: DType, shape: list[int | None], where: str
) -> object:
    values = _values(stored, name, dtype)
    if not shape:
        if len(values) != 1:
            raise CorruptRecordError(
                f"{where}: feature '{name}' is a scalar, but has {len(values)} values", feature=name
            )
        return values[0]
    if len(shape) == 1:
        return values
    if _is_ragged(shape):
        sides = [side for side in _side_features(name, shape) if side.startswith(RAGGED_PREFIX)]
        lengths = [_values(stored, side, DType("int64")) for side in sides]
        if not all(len(set(rows.tolist())) <= 1 for rows in lengths):
            return Ragged(values.reshape([-1, *(size or 0 for size in shape[len(lengths) + 1 :])]), lengths)
        sizes = [len(lengths[0]), *(int(rows[0]) if len(rows) else 0 for rows in lengths)]
        return values.reshape([*sizes, *(size or 0 for size in shape[len(sizes) :])])
    kept = _values(stored, SHAPE_PREFIX + name, DType("int64"))
    declared = kept.tolist() if len(kept) else [-1 if size is None else size for size in shape]
    inner = math.prod(declared[1:])
    if len(values) != math.prod(declared) and (not inner or len(values) % inner):
        raise CorruptRecordError(f"{where}: feature '{name}' has {len(values)} values, not {shape}", feature=name)
    return values.reshape([len(values) // inner if inner else 0, *declared[1:]] if declared[0] < 0 else declared)


def _values(stored: Mapping[str, tf.train.Feature], name: str, dtype: DType) -> np.ndarray:
    if name not in stored:
        return np.zeros(0, dtype.as_numpy_dtype)
    feature = stored[name]
    if dtype.is_string:
        values = np.empty(len(feature.bytes_list.value), object)
        values[:] = list(feature.bytes_list.value)
        return values
    source = feature.float_list.value if dtype.is_floating else feature.int64_list.value
    return np.array(source, np.float32 if dtype.is_floating else np.int64).astype(dtype.as_numpy_dtype)
