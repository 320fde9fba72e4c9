"""The offline side of a task: one shard of its source, streamed through the steps before the cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.cache.spec import Encoding, ExampleSpec, FeatureSpec
from beam_pipes.errors import TaskError
from beam_pipes.tasks.in_python.examples import dtype_name, examples_from_dataset, normalised, rank_of
from beam_pipes.tasks.seeds import map_seed_manager
from beam_pipes.tasks.steps import dataset_steps, run_over_dataset, run_over_examples

if TYPE_CHECKING:
    from beam_pipes.tasks.task import Task


def run_offline(task: Task, examples: Iterable[Any], *, seed: int) -> Iterator[dict[str, Any]]:
    """Raw examples → cached examples, lazily and in order.

    Python steps run natively; dataset functions run in tf.data over the stream. Draws depend on the seed, the step and
    the content of the example: not on how the source is divided. `examples` is read once.

    Raises:
        TaskError: a step fails, or what comes out is no mapping of features.
    """
    with map_seed_manager(seed, keyed_by="content"):
        stream = run_over_examples(task.offline_steps(), examples, task.step_context())
    return (as_mapping(task, example) for example in stream)


def stream_shard(task: Task, split: str, shard: str, *, seed: int, num_steps: int | None = None) -> Iterator[Any]:
    """The examples of one shard of the source, behind its first `num_steps` offline steps (None: all of them).

    Where source and first steps are both tf.data, nothing passes through Python between them.
    """
    steps = list(task.offline_steps()[:num_steps])
    native = getattr(task.source, "reads_without_tensorflow", False)
    leading = [] if native or not hasattr(task.source, "shard_dataset") else dataset_steps(steps)
    with map_seed_manager(seed, keyed_by="content"):
        if leading:
            dataset = run_over_dataset(leading, task.source.shard_dataset(split, shard), task.step_context())
            examples: Iterable[Any] = examples_from_dataset(dataset)
        else:
            examples = task.source.read_shard(split, shard)
        return run_over_examples(steps[len(leading) :], examples, task.step_context())


def as_mapping(task: Task, example: Any) -> dict[str, Any]:
    """What is cached of an example, normalised. Raises `TaskError` where it is no mapping of features."""
    if type(example) is not dict and not isinstance(example, Mapping):
        raise TaskError(
            f"task '{task.name}': what is cached should be a dict of features, got {type(example).__name__}. Make one "
            f"in a step before the CacheDatasetPlaceholder",
            task=task.name,
        )
    return normalised(example, task.output_features)  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True)
class TaskDeclarationParts:
    """What a build needs to know of a task.

    Attributes:
        task: the task.
        shards: split → names of the shards of its source, in order: the units of work.
        fingerprints: part of the task → digest of what it depends on: features with their vocabularies, and each
            offline step (its name, bound arguments and code, and the code that it refers to).
    """

    task: Task
    shards: Mapping[str, Sequence[str]]
    fingerprints: Mapping[str, str]

    def spec(self, split: str, *, seed: int, encoding: Encoding = "raw") -> ExampleSpec:
        """The spec of the cached examples of a split: reads until there is one."""
        examples = (example for shard in self.shards[split] for example in self.stream(split, shard, seed=seed))
        return cached_spec(self.task, next(examples, None), encoding=encoding)

    def stream(self, split: str, shard: str, *, seed: int) -> Iterator[dict[str, Any]]:
        """The cached examples of one shard."""
        return (as_mapping(self.task, example) for example in stream_shard(self.task, split, shard, seed=seed))


def task_declaration_parts(task: Task, splits: Iterable[str] | None = None) -> TaskDeclarationParts:
    """A task as units of work, for a build.

    Raises:
        TaskError: the task has no `CacheDatasetPlaceholder`.
    """
    from beam_pipes.tasks.caches.fingerprints import task_fingerprints

    if not task.supports_caching:
        raise TaskError(
            f"task '{task.name}' cannot be cached: add a CacheDatasetPlaceholder to its preprocessors", task=task.name
        )
    shards = {split: tuple(task.source.list_shards(split)) for split in (splits or task.splits)}
    return TaskDeclarationParts(task, shards, task_fingerprints(task))


def cached_spec(task: Task, example: Mapping[str, Any] | None, *, encoding: Encoding = "raw") -> ExampleSpec:
    """The spec of a task's cached examples, from one of them; every dimension may vary.

    `{"targets": int32 [5], "targets_pretokenized": b"hi"}` → `targets: int32 (None,), targets_pretokenized: bytes ()`.

    Args:
        task: the task.
        example: a cached example; None, for a split without any, takes the output features.
        encoding: "list" for caches that readers of `tf.train.Example` lists are to open. Features that such lists do
            not hold exactly (float64, uint64) stay raw.
    """
    if example is None:
        found = {name: (f.dtype.name, f.rank) for name, f in task.output_features.items()}
    else:
        found = {name: (dtype_name(value), rank_of(value)) for name, value in example.items()}
    features = {}
    for name, (dtype, rank) in found.items():
        kept: Encoding = "raw" if dtype in ("float64", "uint64") else encoding
        features[name] = FeatureSpec("bytes" if dtype == "string" else dtype, shape=(None,) * rank, encoding=kept)
    return ExampleSpec(features)
