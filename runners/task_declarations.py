"""A task's cache as a declaration: what `cache_tasks` builds, and what `plan` explains."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from beam_pipes.building.declaration import DEFAULT_TARGET_SHARD_BYTES, Declaration
from beam_pipes.building.reading import graph_runner, read_batches
from beam_pipes.cache.spec import Encoding, ExampleSpec
from beam_pipes.engine.execute import OnError
from beam_pipes.errors import TaskError
from beam_pipes.tasks import Task
from beam_pipes.tasks.caches import SplitSteps, TaskReference, TaskSource, TaskSteps
from beam_pipes.tasks.caches.fingerprints import fingerprint_digests
from beam_pipes.tasks.caches.offline import cached_spec
from beam_pipes.tasks.in_tensorflow.learned_transform import TRANSFORM_FN
from beam_pipes.tft import RawFeatures, TransformFn

# Validation and test data are no part of what is learned.
LEARNED_FROM = "train"


def task_declaration(
    task: str | Task,
    *,
    modules_to_import: Sequence[str] = (),
    base_seed: int = 0,
    encoding: Encoding = "list",
    on_error: OnError = "fail",
    max_bad: int | float | None = None,
    enable_char_counts: bool = False,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
) -> Declaration:
    """The cache of a task: every split of its source, behind the steps before its `CacheDatasetPlaceholder`.

    `task_declaration("wmt_de_en", modules_to_import=["my.tasks"])` can be built as every declaration. It reads the
    beginning of each split, to see the dtypes and ranks of what is cached. Arguments as in `cache_tasks`.

    Raises:
        UnknownNameError: no task is registered under the name.
        TaskError: the task has no placeholder, or no splits.
    """
    reference = TaskReference(task, modules_to_import)
    found = reference.get()
    if not found.supports_caching:
        raise TaskError(
            f"task '{found.name}' cannot be cached: add a CacheDatasetPlaceholder to its preprocessors", task=found.name
        )
    declaration = Declaration(
        name=re.sub(r"[^A-Za-z0-9_.-]", "_", found.name.rpartition(":")[2].lstrip(".")) or "task",
        source=TaskSource(reference, seed=base_seed),
        pipeline=TaskSteps(reference, seed=base_seed, count_chars=enable_char_counts),
        seed=base_seed,
        on_error=on_error,
        max_bad=max_bad,
        target_shard_bytes=target_shard_bytes,
        fingerprints=fingerprint_digests(found),
    )
    specs = _specs(declaration, found, encoding)
    return dataclasses.replace(declaration, features=specs, analyzers=_analyzers(found, reference, base_seed, specs))


def _analyzers(
    task: Task, reference: TaskReference, seed: int, specs: Mapping[str, ExampleSpec]
) -> tuple[TransformFn, ...]:
    """What is learned for a task's preprocessing_fn: of the cached examples that it is trained on, and no others."""
    if task.preprocessing_fn is None:
        return ()
    if LEARNED_FROM not in specs:
        raise TaskError(
            f"task '{task.name}' has a preprocessing_fn, which is learned from the split {LEARNED_FROM!r}; its splits "
            f"are {list(specs)}",
            task=task.name,
        )
    features = {name: feature for name, feature in specs[LEARNED_FROM].items() if RawFeatures.can_hold(feature)}
    return (
        TransformFn(
            TRANSFORM_FN,
            of=SplitSteps(reference, split=LEARNED_FROM, seed=seed),
            preprocessing_fn=task.preprocessing_fn,
            features=features,
        ),
    )


def _specs(declaration: Declaration, task: Task, encoding: Encoding) -> dict[str, ExampleSpec]:
    """For each split the spec of its first example, as a build would make it."""
    source = declaration.source
    assert isinstance(source, TaskSource)
    runner = graph_runner(declaration)
    specs: dict[str, ExampleSpec] = {}
    for split in declaration.splits:
        example = None
        batches = (batch for shard in source.unplanned_shards(split) for batch in read_batches(declaration, shard))
        for batch in batches:
            runner.run(batch)
            example = next((one for made in runner.outputs(batch)[split] for one in made), None)
            if example is not None:
                break
        specs[split] = cached_spec(task, example, encoding=encoding)
    return specs
