"""The base of sources: splits, their shards, and the examples of both."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from beam_pipes.checks import known
from beam_pipes.errors import TaskError, UnknownNameError
from beam_pipes.extras import TfDataset
from beam_pipes.publication.terms import FIELDS, Terms, TermsOptions
from beam_pipes.tasks.steps.examples import RawExample, examples_from_dataset
from beam_pipes.tasks.steps.features import DatasetProviderBase, Feature, SequenceLength, ShardInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DataSourceInterface(Protocol):
    """The interface that a task needs of a source; any object with these members will do."""

    def num_input_examples(self, split: str) -> int | None: ...

    @property
    def caching_permitted(self) -> bool: ...

    @property
    def splits(self) -> Sequence[str]: ...

    @property
    def supports_arbitrary_sharding(self) -> bool: ...

    @property
    def output_features(self) -> Mapping[str, Feature]: ...

    def list_shards(self, split: str) -> Sequence[str]: ...

    def read_shard(self, split: str, shard: str) -> Iterator[object]: ...

    def get_dataset(
        self, split: str, shuffle: bool = True, seed: int | None = None, shard_info: ShardInfo | None = None
    ) -> TfDataset: ...


# Attributes of sources that decide which input is read, and in what order, but not what an example is.
_NOT_CONTENT = frozenset(
    {
        "_block_length",
        "_caching_permitted",
        "_cycle_length",
        "_file_shuffle_buffer_size",
        "_num_input_examples",
        "_performs_internal_shuffling",
        "_split_to_filepattern",
        "_splits",
        "_terms",
        "reads_without_tensorflow",
    }
)


class DataSource(DatasetProviderBase):
    """Raw examples of a few splits, each in shards.

    A subclass writes `get_dataset` and `list_shards`; one that can read without TensorFlow also writes `read_shard` and
    sets `reads_without_tensorflow`. Builds fingerprint it by its class, its code and `fingerprint_config`, and shards
    that are not files by their name, or by what `shard_identity(split, shard)` returns where there is such a method.

    Args:
        splits: names of the splits.
        num_input_examples: number of examples in each split, where known.
        caching_permitted: a task over this source may have a `CacheDatasetPlaceholder`.
        performs_internal_shuffling: the source shuffles itself on request.
        license, origin, collected, terms: what is declared about the examples, see `Terms`: kept by a cache of them.
    """

    #: Whether `read_shard` needs no TensorFlow.
    reads_without_tensorflow: bool = False

    def __init__(
        self,
        splits: Iterable[str],
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        performs_internal_shuffling: bool = False,
        **declared: Unpack[TermsOptions],
    ) -> None:
        for unknown in declared.keys() - set(FIELDS):
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {unknown!r}")
        self._terms = Terms(**declared)
        self._splits = tuple(splits)
        self._num_input_examples = dict(num_input_examples) if num_input_examples is not None else None
        self._caching_permitted = caching_permitted
        self._performs_internal_shuffling = performs_internal_shuffling

    @property
    def caching_permitted(self) -> bool:
        return self._caching_permitted

    @property
    def splits(self) -> Sequence[str]:
        return self._splits

    @property
    @abc.abstractmethod
    def supports_arbitrary_sharding(self) -> bool:
        """Whether it divides examples evenly among any number of shards."""

    @property
    def output_features(self) -> Mapping[str, Feature]:
        """A source declares no features; a task does."""
        raise NotImplementedError("a source has no output features: those are declared on the task")

    @property
    def performs_internal_shuffling(self) -> bool:
        return self._performs_internal_shuffling

    @abc.abstractmethod
    def list_shards(self, split: str) -> Sequence[str]:
        """Names of the shards of a split: the units in which it can be read in parallel."""

    @abc.abstractmethod
    def get_dataset(  # type: ignore[override]
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        *,
        sequence_length: SequenceLength | None = None,
        use_cached: bool = False,
        num_epochs: int | None = 1,
    ) -> TfDataset:
        """The raw examples of a split as a `tf.data.Dataset`."""

    def num_input_examples(self, split: str) -> int | None:
        return None if self._num_input_examples is None else self._num_input_examples.get(split)

    def shard_dataset(self, split: str, shard: str) -> TfDataset:
        """One shard, in order, as a `tf.data.Dataset`."""
        shards = list(self.list_shards(split))
        index = self._shard_index(split, shard)
        if len(shards) == 1:
            return self.get_dataset(split, shuffle=False)
        return self.get_dataset(split, shuffle=False, shard_info=ShardInfo(index, len(shards)))

    def read_shard(self, split: str, shard: str) -> Iterator[RawExample]:
        """The examples of one shard, in order, as NumPy values. Through TensorFlow, unless the source overrides it."""
        return examples_from_dataset(self.shard_dataset(split, shard))

    def terms_of(self, split: str, shard: str) -> Terms:
        """What is declared about the examples of a shard."""
        return getattr(self, "_terms", Terms())  # a subclass may not call our `__init__`

    def fingerprint_config(self) -> dict[str, object]:
        """The options that determine the examples for a given input: a subclass's attributes without file names."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_CONTENT}

    def _shard_index(self, split: str, shard: str) -> int:
        try:
            return list(self.list_shards(split)).index(shard)
        except ValueError:
            raise UnknownNameError(f"split '{split}' of {self!r} has no shard {shard!r}", name=shard) from None

    def _check_split(self, split: str) -> None:
        known(split, among=self.splits, what="split", where=repr(self), error=UnknownNameError, name=split)


class LibrarySource(DataSource):
    """Base of this library's sources: they implement `_dataset_of`, and `get_dataset` is defined once here.

    The arguments after `shard_info` are those that tasks and mixtures take too; a source accepts and ignores them.
    """

    def get_dataset(  # type: ignore[override]
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        *,
        sequence_length: SequenceLength | None = None,
        use_cached: bool = False,
        num_epochs: int | None = 1,
    ) -> TfDataset:
        return self._dataset_of(split, shuffle, seed, shard_info)

    @abc.abstractmethod
    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
        """The raw examples of a split, or of one host's share of it, as a `tf.data.Dataset`."""


def declared_by(source: DataSourceInterface, split: str, shard: str) -> Terms:
    """What a source of any class declares about a shard."""
    found: Terms = source.terms_of(split, shard) if hasattr(source, "terms_of") else Terms()
    return found


def declared_as_one(source: DataSourceInterface, splits: Iterable[str]) -> Terms:
    """What a source declares about splits whose examples are mixed; raises `TaskError` if that differs."""
    found = {declared_by(source, split, shard) for split in splits for shard in source.list_shards(split)} or {Terms()}
    if len(found) > 1:
        licenses = ", ".join(sorted(repr(each.license) for each in found))
        raise TaskError(
            f"{source!r} has examples under different terms ({licenses}), and they are read here as one shard, where "
            "nobody can tell which is which. Make a task of each license."
        )
    return found.pop()


def too_few_files(num_files: int, shard_info: ShardInfo) -> TaskError:
    return TaskError(
        f"Dataset has too few files to shard. {num_files} files vs {shard_info.num_shards} shards requested.",
        files=num_files,
        num_shards=shard_info.num_shards,
    )
