"""How a task or mixture is read: the arguments of `get_dataset` and `examples`, each declared once."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, SupportsIndex, get_args

from beam_pipes.checks import choice
from beam_pipes.errors import TaskError
from beam_pipes.tasks.steps.features import SequenceLength, ShardInfo

if TYPE_CHECKING:
    from typing import TypedDict

    class Reading(TypedDict, total=False):
        """Arguments of `examples` besides the lengths, the split, the cache and shuffling; see `Task.get_dataset`."""

        seed: int | None
        shard_info: ShardInfo | None
        num_epochs: int | None
        trim_output_features: bool


#: What happens when a task has given all of its examples; see `Mixture`.
Exhaustion = Literal["drop", "stop", "repeat"]


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """The arguments of `Task.get_dataset`, in the order of SeqIO."""

    sequence_length: SequenceLength | None = None
    split: str = "train"
    use_cached: bool = False
    shuffle: bool = True
    shuffle_buffer_size: int | None = None
    seed: int | None = None
    shard_info: ShardInfo | None = None
    num_epochs: int | None = 1
    trim_output_features: bool = True
    try_in_mem_cache: bool = True

    def check(self, name: str) -> None:
        """Raises `TaskError` unless the epochs and the seed are whole numbers, the epochs 0 or more."""
        if self.num_epochs is not None and not (is_whole(self.num_epochs) and self.num_epochs >= 0):
            raise TaskError(
                f"'{name}': num_epochs should be a whole number, 0 or more, or None for no end, got "
                f"{self.num_epochs!r}",
                num_epochs=self.num_epochs,
            )
        if self.seed is not None and not is_whole(self.seed):
            raise TaskError(f"'{name}': seed should be a whole number or None, got {self.seed!r}", seed=self.seed)


@dataclasses.dataclass(frozen=True)
class MixtureOptions:
    """The arguments of `Mixture.get_dataset`, in the order of SeqIO; the last two are those of the mixture if None."""

    sequence_length: SequenceLength | None = None
    split: str = "train"
    use_cached: bool = False
    shuffle: bool = True
    seed: int | None = None
    shard_info: ShardInfo | None = None
    num_epochs: int | None = None
    copy_pretokenized: bool = False
    compute_stats_empirically: bool = False
    log_mixing_proportions: bool = True
    passthrough_features: Sequence[str] | None = None
    trim_output_features: bool = True
    try_in_mem_cache: bool = True
    skip_missing_splits: bool | None = None
    exhaustion: Exhaustion | None = None

    @property
    def of_tasks(self) -> LoadOptions:
        """How each task is read."""
        shared = (field.name for field in dataclasses.fields(LoadOptions) if hasattr(self, field.name))
        options = LoadOptions(**{name: getattr(self, name) for name in shared})
        return dataclasses.replace(options, num_epochs=None) if self.exhaustion == "repeat" else options


def is_whole(value: SupportsIndex) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def checked_exhaustion(exhaustion: Exhaustion, mixture: str) -> Exhaustion:
    """The policy, or `TaskError` for an unknown one."""
    return choice(exhaustion, of=get_args(Exhaustion), what="exhaustion", error=TaskError, mixture=mixture)
