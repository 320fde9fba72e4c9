"""Data sets of TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_pipes.tasks.provider import ShardInfo
from beam_pipes.tasks.sources.data_source import DataSource
from beam_pipes.tasks.sources.lazy_tfds_loader import LazyTfdsLoader


class TfdsDataSource(DataSource):
    """A data set of TensorFlow Datasets, by name and version: `TfdsDataSource("wmt19_translate/de-en:1.0.0")`.

    Needs `tensorflow_datasets`, and the data prepared in `tfds_data_dir`.

    Args:
        tfds_name: `name/config:version`.
        tfds_data_dir: directory of the data; None for TFDS's own.
        splits: names of splits to offer, or a mapping: split → TFDS split (`{"validation": "train[90%:]"}`) or
            → `TfdsSplit`. None offers what the data set has.
        caching_permitted: a task over this source may be cached.
        decoders: how features are decoded, as TFDS takes them.
        tfds_builder_kwargs: further arguments of the builder.
        read_only: read prepared files only.

    Raises:
        TaskError: the name has no version.
    """

    def __init__(
        self,
        tfds_name: str | None = None,
        tfds_data_dir: str | None = None,
        splits: Iterable[str] | Mapping[str, Any] | None = None,
        caching_permitted: bool = True,
        decoders: Any = None,
        tfds_builder_kwargs: Mapping[str, Any] | None = None,
        read_only: bool = False,
    ) -> None:
        self._named_splits = None if splits is None else tuple(splits)
        self._tfds_dataset = LazyTfdsLoader(
            tfds_name,
            data_dir=tfds_data_dir,
            split_map=splits if isinstance(splits, Mapping) else None,
            decoders=decoders,
            builder_kwargs=tfds_builder_kwargs,
            read_only=read_only,
        )
        super().__init__(splits=(), caching_permitted=caching_permitted)

    @property
    def splits(self) -> Sequence[str]:
        if self._named_splits is not None:
            return self._named_splits
        return tuple(self._tfds_dataset.info.splits)

    @property
    def tfds_dataset(self) -> LazyTfdsLoader:
        return self._tfds_dataset

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"TfdsDataSource(tfds_name={self._tfds_dataset.name}, splits={self._named_splits})"

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
        return self._tfds_dataset.load(split, shuffle_files=shuffle, seed=seed, shard_info=shard_info)

    def num_input_examples(self, split: str) -> int | None:
        return self._tfds_dataset.size(split) if split in self.splits else None

    def list_shards(self, split: str) -> Sequence[str]:
        return self._tfds_dataset.files(split)

    def fingerprint_config(self) -> dict[str, Any]:
        return {"tfds": self._tfds_dataset.config()}

    def shard_identity(self, split: str, shard: str) -> list[str]:
        """What identifies the data of a shard: data set, version, the split as TFDS has it, the file."""
        return [*self._tfds_dataset.identity(split), shard]
