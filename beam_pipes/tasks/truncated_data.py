"""The same task with less data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.mixture import Mixture
from beam_pipes.tasks.provider import ShardInfo
from beam_pipes.tasks.rebuilding import rebuilt
from beam_pipes.tasks.sources.data_source import DataSource
from beam_pipes.tasks.task import Task


class TruncatedDatasetProvider(DataSource):
    """The first examples of a source, split by split. Read as one shard.

    Args:
        child: the source.
        split_sizes: split → number of examples; splits that are not named are whole.
        shuffle_buffer_size: size of the buffer that shuffles the examples that are left.
    """

    def __init__(self, child: Any, split_sizes: Mapping[str, int], shuffle_buffer_size: int | None = None) -> None:
        self.child = child
        self.split_sizes = dict(split_sizes)
        self.shuffle_buffer_size = shuffle_buffer_size
        super().__init__(splits=(), caching_permitted=child.caching_permitted)

    @property
    def splits(self) -> Sequence[str]:
        return self.child.splits  # type: ignore[no-any-return]

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"TruncatedDatasetProvider({self.child!r}, {self.split_sizes})"

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

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
        if shard_info is not None and shard_info.num_shards > 1:
            raise TaskError("`TruncatedDatasetProvider` does not support low-level sharding.")
        if split not in self.split_sizes:
            return self.child.get_dataset(split=split, shuffle=shuffle, seed=seed)
        # The same examples whatever the seed: those that come first.
        dataset = self.child.get_dataset(split=split, shuffle=False).take(self.split_sizes[split]).cache()
        return dataset.shuffle(self.shuffle_buffer_size, seed=seed) if shuffle and self.shuffle_buffer_size else dataset

    def num_input_examples(self, split: str) -> int | None:
        count = self.child.num_input_examples(split)
        if split not in self.split_sizes:
            return count  # type: ignore[no-any-return]
        return self.split_sizes[split] if count is None else min(count, self.split_sizes[split])


def mixture_or_task_with_truncated_data(
    mixture_or_task: Any,
    new_mixture_or_task_name: str,
    *,
    split_sizes: Mapping[str, int],
    add_to_seqio_registry: bool = True,
) -> Task | Mixture:
    """A task or mixture like another one, with the first examples of each task only.

    Args:
        mixture_or_task: a name or an object.
        new_mixture_or_task_name: the new name; tasks of a mixture become `{new name}.{task}`, and
            mixtures inside it `{new name}.{mixture}`. Rates that are functions are called with the new tasks.
        split_sizes: split → examples of each task.
        add_to_seqio_registry: register what is made.
    """

    def change(task: Task, name: str) -> Task:
        source = TruncatedDatasetProvider(task.source, split_sizes, task.shuffle_buffer_size)
        return task.replace(name=name, source=source)

    return rebuilt(mixture_or_task, new_mixture_or_task_name, change, register=add_to_seqio_registry)
