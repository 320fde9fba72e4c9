"""Data sets of TensorFlow Datasets as sources.

`TfdsDataSource` is the source; `LazyTfdsLoader` finds the data set by name and version, and makes its builder when it
is first used, so that declaring a task neither imports `tensorflow_datasets` nor reads the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, require, tensorflow
from beam_pipes.tasks.sources.data_source import LibrarySource
from beam_pipes.tasks.steps.features import ShardInfo

if TYPE_CHECKING:
    import tensorflow_datasets as tfds
    from typing_extensions import Unpack

    from beam_pipes.publication.terms import TermsOptions


class TfdsDataSource(LibrarySource):
    """A data set of TensorFlow Datasets, by name and version: `TfdsDataSource("wmt19_translate/de-en:1.0.0")`.

    Needs `tensorflow_datasets`. TFDS downloads and prepares data missing from `tfds_data_dir` when it is first read, or
    when its splits are first requested and not named here, but never when a task is declared.

    Args:
        tfds_name: `name/config:version`.
        tfds_data_dir: directory of the data; None for TFDS's own.
        splits: names of splits to offer, or a mapping: split → TFDS split (`{"validation": "train[90%:]"}`) or
            → `TfdsSplit`. None offers what the data set has.
        caching_permitted: a task over this source may be cached.
        decoders: how features are decoded, as TFDS takes them.
        tfds_builder_kwargs: further arguments of the builder.
        read_only: read prepared files only: nothing is downloaded or prepared.

    Raises:
        TaskError: the name has no version.
    """

    def __init__(
        self,
        tfds_name: str | None = None,
        tfds_data_dir: str | None = None,
        splits: Iterable[str] | Mapping[str, object] | None = None,
        caching_permitted: bool = True,
        decoders: object = None,
        tfds_builder_kwargs: Mapping[str, object] | None = None,
        read_only: bool = False,
        **declared: Unpack[TermsOptions],
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
        super().__init__(splits=(), caching_permitted=caching_permitted, **declared)

    @property
    def splits(self) -> Sequence[str]:
        if self._named_splits is not None:
            return self._named_splits
        return tuple(self._tfds_dataset.prepared_builder().info.splits)

    @property
    def tfds_dataset(self) -> LazyTfdsLoader:
        return self._tfds_dataset

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"TfdsDataSource(tfds_name={self._tfds_dataset.name}, splits={self._named_splits})"

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
        self._check_split(split)
        return self._tfds_dataset.load(split, shuffle_files=shuffle, seed=seed, shard_info=shard_info)

    def num_input_examples(self, split: str) -> int | None:
        return self._tfds_dataset.size(split) if split in self.splits else None

    def list_shards(self, split: str) -> Sequence[str]:
        return self._tfds_dataset.file_names(split)

    def fingerprint_config(self) -> dict[str, object]:
        return {"tfds": self._tfds_dataset.config()}

    def shard_identity(self, split: str, shard: str) -> list[str]:
        """The identity of a shard's data: data set, version, TFDS split, file."""
        return [*self._tfds_dataset.identity(split), shard]


_data_dir_override: str | None = None
_read_config_override: object = None


def set_tfds_data_dir_override(tfds_data_dir: str | None) -> None:
    """Reads every TFDS data set from this directory, overriding its source; None ends this."""
    global _data_dir_override
    _data_dir_override = tfds_data_dir


def set_tfds_read_config_override(tfds_read_config: object) -> None:
    """Uses this `tfds.ReadConfig` as the base of all reading; None ends this."""
    global _read_config_override
    _read_config_override = tfds_read_config


@dataclasses.dataclass(frozen=True)
class TfdsSplit:
    """A split that names its own data set.

    Attributes:
        dataset: `name/config:version`; None with a `data_dir` that holds the data set itself.
        split: TFDS split, such as `train[:90%]`; None for all splits.
        data_dir: directory of the data.
    """

    dataset: str | None
    split: str | None
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if self.dataset is not None:
            check_tfds_name(self.dataset)


def check_tfds_name(name: str) -> None:
    """Raises `TaskError` unless the name has a version: the data of a task must not change silently."""
    if ":" not in name:
        raise TaskError(
            f"TFDS name must contain a version number, got: {name} (write, for example, '{name}:1.0.0')", name=name
        )


class LazyTfdsLoader:
    """A TFDS data set by name and version. The builder is made on first use.

    Args:
        name: `name/config:version`; None if splits are `TfdsSplit`, or `data_dir` holds the data set itself.
        data_dir: directory of the data.
        split_map: split → TFDS split (`{"validation": "train[90%:]"}`), or → `TfdsSplit`.
        decoders: how features are decoded, as TFDS takes them.
        builder_kwargs: further arguments of the builder.
        read_only: read prepared files only: nothing is downloaded or prepared.
    """

    # Per process, by data set, directory and arguments: a hundred tasks over one data set read its description once.
    _MEMOIZED_BUILDERS: ClassVar[dict[tuple[str | None, str | None, str], tfds.core.DatasetBuilder]] = {}

    def __init__(
        self,
        name: str | None = None,
        data_dir: str | None = None,
        split_map: Mapping[str, object] | None = None,
        decoders: object = None,
        builder_kwargs: Mapping[str, object] | None = None,
        read_only: bool = False,
    ) -> None:
        if name is not None:
            check_tfds_name(name)
        self._name = name
        self._data_dir = data_dir
        self._own_override: str | None = None
        self._split_map = dict(split_map) if split_map is not None else None
        self._own_splits = bool(self._split_map) and all(
            isinstance(value, TfdsSplit) for value in (self._split_map or {}).values()
        )
        if self._own_splits and (name is not None or data_dir is not None):
            raise TaskError(
                "If split values are instances of `TfdsSplit`, `name` and `data_dir` must be `None`.", name=name
            )
        self._decoders = decoders
        self._builder_kwargs = dict(builder_kwargs or {})
        self._read_only = read_only

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def data_dir(self) -> str | None:
        """The data set's directory: overridden for it or for all, or as declared. None if splits name their own."""
        return None if self._own_splits else self._own_override or _data_dir_override or self._data_dir

    def override_data_dir(self, data_dir: str) -> None:
        """Reads this data set from another directory, whatever `set_tfds_data_dir_override` says for all."""
        self._own_override = data_dir

    @property
    def read_config(self) -> tfds.ReadConfig:
        """The `tfds.ReadConfig` that reading begins with."""
        return _read_config_override or require("tensorflow_datasets", purpose="TfdsDataSource").ReadConfig()

    def builder_cls(self, split: str | None = None) -> type[tfds.core.DatasetBuilder] | None:
        """The class of the data set's builder; None if no module known to TFDS has it."""
        tfds = require("tensorflow_datasets", purpose="TfdsDataSource")
        name = str(self.get_split_params(split)[0]).partition(":")[0].partition("/")[0]
        try:
            found: type = tfds.builder_cls(name)
            return found
        except ValueError:  # tfds.core.registered.DatasetNotFoundError
            return None

    def set_decoders(self, decoders: object) -> None:
        self._decoders = decoders

    @property
    def tfds_splits(self) -> Mapping[str, TfdsSplit] | None:
        """The splits that name their own data set; None if there is one for all."""
        if not self._own_splits:
            return None
        return {name: own for name, own in (self._split_map or {}).items() if isinstance(own, TfdsSplit)}

    def __repr__(self) -> str:
        return f"LazyTfdsLoader(name={self._name}, data_dir={self._data_dir}, split_map={self._split_map})"

    def get_split_params(self, split: str | None = None) -> tuple[str | None, str | None]:
        """Data set and directory of a split."""
        if not self._own_splits:
            return self._name, self.data_dir
        if split is None or self._split_map is None or split not in self._split_map:
            raise TaskError(
                "`LazyTfdsLoader` refers to multiple datasets, pass `split` value corresponding to one of them to "
                "`get_split_params()`.",
                split=split,
            )
        own = self._split_map[split]
        assert isinstance(own, TfdsSplit)
        return own.dataset, own.data_dir

    def resolved_tfds_name(self, split: str | None = None) -> str | None:
        """`name/config:version` of what is read."""
        builder = self._builder(split)
        return f"{builder.info.full_name.rpartition('/')[0]}:{builder.info.version}"

    def is_memoized(self, split: str | None = None) -> bool:
        return self._key(split) in self._MEMOIZED_BUILDERS

    @property
    def builder(self) -> tfds.core.DatasetBuilder:
        return self._builder()

    @property
    def info(self) -> tfds.core.DatasetInfo:
        return self.builder.info

    def _key(self, split: str | None) -> tuple[str | None, str | None, str]:
        return (*self.get_split_params(split), repr(sorted(self._builder_kwargs.items())))

    def _builder(self, split: str | None = None) -> tfds.core.DatasetBuilder:
        key = self._key(split)
        if key not in self._MEMOIZED_BUILDERS:
            tfds = require("tensorflow_datasets", purpose="TfdsDataSource")
            name, data_dir = self.get_split_params(split)
            if name is not None:
                made = tfds.builder(name, data_dir=data_dir, **self._builder_kwargs)
            elif data_dir is None:
                raise TaskError("a TFDS source needs a name with a version, or the directory of a data set")
            elif self._builder_kwargs:
                raise TaskError(
                    "`builder_kwargs` should be empty when `dataset` value is not present: the directory says all, got "
                    f"{self._builder_kwargs}"
                )
            else:
                made = tfds.builder_from_directory(data_dir)
            self._MEMOIZED_BUILDERS[key] = made
        return self._MEMOIZED_BUILDERS[key]

    def prepared_builder(self, split: str | None = None) -> tfds.core.DatasetBuilder:
        """The builder, with its data: missing data is downloaded and prepared, unless `read_only`."""
        builder = self._builder(split)
        if not builder.info.splits and not self._read_only:
            builder.download_and_prepare()
        return builder

    def _tfds_split(self, split: str | None) -> object:
        if self._split_map is None or split is None:
            return split
        mapped = self._split_map[split]
        return mapped.split if isinstance(mapped, TfdsSplit) else mapped

    def _split_info(self, split: str) -> tfds.core.SplitInfo:
        return self.prepared_builder(split).info.splits[self._tfds_split(split)]

    def config(self) -> dict[str, object]:
        """The settings that determine how examples are read."""
        return {"decoders": self._decoders, "builder_kwargs": self._builder_kwargs}

    def identity(self, split: str) -> list[str]:
        """`["mnist:3.0.1", "train[:80%]"]`: data set with its version, and the TFDS split."""
        return [str(self.resolved_tfds_name(split)), str(self._tfds_split(split))]

    def files(self, split: str) -> list[tfds.core.utils.shard_utils.FileInstruction]:
        """The file part to read: a TFDS `FileInstruction`, for `load_shard`."""
        return list(self._split_info(split).file_instructions)

    def file_names(self, split: str) -> list[str]:
        """Names of the files of a split."""
        return sorted(self._split_info(split).filenames)

    def size(self, split: str) -> int | None:
        """Number of examples of a split; None if TFDS does not know it."""
        count = self._split_info(split).num_examples
        return int(count) if count else None

    def load(
        self, split: str | None, shuffle_files: bool, seed: int | None = None, shard_info: ShardInfo | None = None
    ) -> TfDataset:
        """The examples of a split, or of one host's share of its files, as a `tf.data.Dataset`.

        Through `tfds.load`, which prepares the data if needed; with `read_only` only from prepared files.
        """
        tf = tensorflow("TfdsDataSource")
        tfds = require("tensorflow_datasets", purpose="TfdsDataSource")
        config = dataclasses.replace(self.read_config)
        config.shuffle_seed = seed
        config.skip_prefetch = True
        if shard_info is not None:
            config.input_context = tf.distribute.InputContext(
                num_input_pipelines=shard_info.num_shards, input_pipeline_id=shard_info.index
            )
        reading = {
            "split": self._tfds_split(split),
            "shuffle_files": shuffle_files,
            "decoders": self._decoders,
            "read_config": config,
        }
        name, data_dir = self.get_split_params(split)
        if self._read_only or name is None:
            return self._builder(split).as_dataset(**reading)
        return tfds.load(
            name, data_dir=data_dir, download=True, try_gcs=True, builder_kwargs=self._builder_kwargs or None, **reading
        )

    def load_shard(
        self, file_instruction: tfds.core.FileInstruction, shuffle_files: bool = False, seed: int | None = None
    ) -> TfDataset:
        """The examples of one of `files(split)`, as a `tf.data.Dataset`; one file has nothing to shuffle."""
        tf = tensorflow("TfdsDataSource")
        tfds = require("tensorflow_datasets", purpose="TfdsDataSource")
        info = self.prepared_builder().info
        records = tfds.core.file_adapters.ADAPTER_FOR_FORMAT[info.file_format].make_tf_data(file_instruction.filename)
        taken = records.skip(file_instruction.skip).take(file_instruction.take)
        return taken.map(info.features.deserialize_example, num_parallel_calls=tf.data.AUTOTUNE)
