"""What tasks, mixtures and sources have in common: features, splits, a dataset."""

from __future__ import annotations

import abc
import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.features import Feature

SequenceLength = Mapping[str, Any]

_VALID_NAME = re.compile(r"^[\w\d\.\:_#]+$")


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """The share of one host: its `index` among `num_shards`.

    Raises:
        TaskError: the index is not below the number of shards.
    """

    index: int
    num_shards: int

    def __post_init__(self) -> None:
        if self.num_shards < 1 or not 0 <= self.index < self.num_shards:
            raise TaskError(
                f"a shard index lies between 0 and num_shards - 1, got ShardInfo(index={self.index}, "
                f"num_shards={self.num_shards})",
                index=self.index,
                num_shards=self.num_shards,
            )


@dataclasses.dataclass(frozen=True)
class SourceInfo:
    """Where something was declared: a file and a line."""

    file_path: str | None = None
    line_number: int | None = None

    @classmethod
    def for_class(cls, klass: type) -> SourceInfo:
        """The place of a class; empty where the interpreter does not know it."""
        try:
            return cls(inspect.getsourcefile(klass), inspect.getsourcelines(klass)[1])
        except (OSError, TypeError):
            return cls()

    @property
    def has_meaningful_info(self) -> bool:
        return self.file_path is not None


class DatasetProviderBase(abc.ABC):
    """Anything that gives a `tf.data.Dataset` of examples for a split."""

    @property
    @abc.abstractmethod
    def output_features(self) -> Mapping[str, Feature]:
        """What every example holds."""

    @property
    @abc.abstractmethod
    def splits(self) -> Sequence[str]:
        """Names of the splits."""

    @abc.abstractmethod
    def get_dataset(
        self,
        sequence_length: SequenceLength | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        num_epochs: int | None = 1,
    ) -> Any:
        """The examples of a split as a `tf.data.Dataset`."""

    @abc.abstractmethod
    def num_input_examples(self, split: str) -> int | None:
        """Number of raw examples of a split; None where it is not known."""


def checked_name(name: Any, what: str) -> str:
    """The name of a task or mixture, which names its directories too; raises `TaskError` for one that cannot."""
    if not isinstance(name, str):
        raise TaskError(f"{what} name should be a str, got {name!r}", **{what.lower(): name})
    if not _VALID_NAME.fullmatch(name):
        raise TaskError(
            f"{what} name '{name}' contains invalid characters. Must match regex: {_VALID_NAME.pattern}",
            **{what.lower(): name},
        )
    return name
