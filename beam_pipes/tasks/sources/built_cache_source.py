"""A cache that beam-pipes built, as a source."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.cache import Cache, Split
from beam_pipes.loader.order import KeyedPermutation
from beam_pipes.tasks.dtypes import DType
from beam_pipes.tasks.in_python.examples import dataset_of
from beam_pipes.tasks.provider import ShardInfo
from beam_pipes.tasks.sources.data_source import DataSource

_CHUNK = 256


class BuiltCacheSource(DataSource):
    """One split of a published snapshot. Records are read by index: any number of hosts has equal shares, and
    shuffling is a
    permutation of the whole split, not of a buffer.

    Raises:
        CacheNotFoundError: nothing is published, or there is no such split.
    """

    reads_without_tensorflow = True

    def __init__(self, cache_dir: str, split: str) -> None:
        cache = Cache.open(cache_dir)
        self._records = cache[split]
        #: Name → digest of what the cache was built from.
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

    def read_shard(self, split: str, shard: str) -> Iterator[dict[str, Any]]:
        index = self._shard_index(split, shard)
        ends = np.cumsum(self._records.shard_sizes)
        yield from self.examples_at(np.arange(ends[index] - self._records.shard_sizes[index], ends[index]))

    def get_dataset(  # type: ignore[override]
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        *,
        sequence_length: Mapping[str, Any] | None = None,
        use_cached: bool = False,
        num_epochs: int | None = 1,
    ) -> Any:
        self._check_split(split)
        epochs = iter(range(1 << 62))

        def examples() -> Iterator[dict[str, Any]]:
            return self.examples_at(self.indices(shuffle=shuffle, seed=seed, epoch=next(epochs), shard_info=shard_info))

        return dataset_of(examples, self._element_spec(), name=repr(self))

    def indices(
        self, *, shuffle: bool, seed: int | None, epoch: int = 0, shard_info: ShardInfo | None = None
    ) -> np.ndarray[Any, Any]:
        """The records of one epoch in order: this host's share of one order of all hosts.

        Without a seed the order is another one every time; several hosts, who have to agree on one, have always the
        same then.
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

    def examples_at(self, indices: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
        """The examples of some records, in the order asked for."""
        spec = self._records.spec
        plain = [n for n, f in spec.items() if not f.has_shape_feature and not (f.is_text and f.shape)]
        others = [name for name in spec if name not in plain]
        for start in range(0, len(indices), _CHUNK):
            chunk = indices[start : start + _CHUNK]
            batch = self._records.gather(chunk, features=plain, ragged="values")
            columns = {name: _rows(batch, name) for name in plain}
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


def _rows(batch: Mapping[str, Any], name: str) -> Any:
    lengths = batch.get(f"{name}/lengths")
    return batch[name] if lengths is None else np.split(batch[name], np.cumsum(lengths)[:-1])


def _bytes_of(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (list, np.ndarray)) and len(value) and isinstance(value[0], str):
        encoded = np.empty(len(value), object)
        encoded[:] = [item.encode("utf-8", "surrogatepass") for item in value]
        return encoded
    return value
