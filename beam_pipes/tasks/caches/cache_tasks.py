"""`cache_tasks`: the caches of all tasks whose names match, built by the engine.

A task's cache as a declaration: what `cache_tasks` builds, and what `plan` explains.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from beam_pipes.building.declaration import DEFAULT_TARGET_SHARD_BYTES, Declaration, MaxBad
from beam_pipes.building.declaration_fingerprint import explain_change
from beam_pipes.building.leftovers import build_lock
from beam_pipes.building.plan import make_plan
from beam_pipes.building.reading import graph_runner, read_batches
from beam_pipes.engine.execute import OnError
from beam_pipes.errors import BeamPipesError, BuildError, DeclarationError, StaleCacheError, TaskError
from beam_pipes.format.spec import Encoding, ExampleSpec
from beam_pipes.identity.source_code import about_to_build
from beam_pipes.runners.build import BuildResult, build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.progress import Progress
from beam_pipes.storage.local import directory_path, storage_for
from beam_pipes.tasks import Task, TaskRegistry
from beam_pipes.tasks.caches.offline import TaskReference, cached_spec, import_modules
from beam_pipes.tasks.caches.task_source import TaskSource
from beam_pipes.tasks.caches.task_steps import SplitSteps, TaskSteps
from beam_pipes.tasks.providers.registry import registered
from beam_pipes.tasks.providers.task_cache import TRANSFORM_FN, fingerprint_digests
from beam_pipes.tasks.sources.places import COMPLETED, MANIFEST, get_task_dir_from_name
from beam_pipes.tasks.sources.sidecars import check_shard_numbers, write_seqio_sidecars
from beam_pipes.tft import RawFeatures, TransformFn

Outcome = Literal["built", "up to date", "skipped", "failed"]

# Maximum number of changes that an error lists.
_LINES_TOLD = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskCache:
    """The outcome for one task. `reason` says why it was skipped or failed (with `error`), `result` is that of its
    build.
    """

    task: str
    path: str
    outcome: Outcome
    reason: str | None = None
    result: BuildResult | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.task}: {self.outcome}" + (f": {self.reason}" if self.reason else f" in {self.path}")


def cache_tasks(
    task_names: str | Iterable[str],
    cache_dir: str | os.PathLike[str],
    *,
    excluded_tasks: str | Iterable[str] = (),
    modules_to_import: Sequence[str] = (),
    overwrite: bool = False,
    accept_code_change: bool = False,
    ignore_other_caches: bool = False,
    base_seed: int = 0,
    seqio_files: bool = True,
    min_shards: int = 1,
    max_shards: int | None = None,
    on_error: Literal["fail", "drop", "dead_letter"] = "fail",
    max_bad: MaxBad = "tenth",
    allow_empty: bool = False,
    enable_char_counts: bool = False,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
    options: LocalOptions | BeamOptions | None = None,
    progress: Callable[[], Progress] | None = None,
    report: Callable[[TaskCache], object] | None = None,
) -> list[TaskCache]:
    """Builds the caches of all registered tasks whose whole name matches one of `task_names`, with every split.

    `cache_tasks("wmt_.*", "caches", modules_to_import=["my.tasks"])` writes `caches/wmt_de_en/`, and so on; `:` in a
    task's name divides directories. Then `add_global_cache_dirs(["caches"])` and `use_cached=True` read them. Cached
    and uncached tasks give the same examples where both have the same seed.

    Tasks without a `CacheDatasetPlaceholder` are skipped, and so are tasks that have a cache in another one of the
    global cache directories. An existing cache is continued: built, unchanged parts are kept. If the task itself has
    changed since, it is refused with a list of the changes. A failing task does not stop the others.

    Args:
        task_names: regular expressions; `".*"` for all tasks.
        cache_dir: directory of the caches.
        excluded_tasks: regular expressions of tasks to leave out.
        modules_to_import: modules that register the tasks; worker processes import them. Without any, only
            `options=LocalOptions(workers=1)` can build.
        overwrite: rebuild everything, changed or not, and replace caches of another layout. Nothing is deleted first:
            the existing cache stays readable until the new snapshot replaces it.
        accept_code_change: build what depends on a task that changed, and keep the rest.
        ignore_other_caches: also build tasks that are cached in another global cache directory.
        base_seed: seed of random draws before the cut, like `seed` of `get_dataset`.
        seqio_files: keep numbers as int64 and float32 lists, and write `info.{split}.json`, `stats.{split}.json`,
            `COMPLETED` and links `{split}.tfrecord-00000-of-00064` to the shards, so that SeqIO reads the cache too.
            False keeps arrays as raw bytes: smaller, and several times faster to load here.
        min_shards, max_shards: bounds for the number of SeqIO files per split; see `write_seqio_sidecars`. The snapshot
            itself keeps the build's number.
        on_error: what happens to an example on which a Python step after the last dataset function fails; see
            `Declaration`.
        max_bad, allow_empty: how many examples of a task may fail, or be missing; see `Declaration`.
        enable_char_counts: count `<feature>_chars` even if the text is not kept, by decoding every example.
        target_shard_bytes: input bytes per source shard, if text can be read in parts.
        options: the runner; None for all cores of this machine.
        progress: makes the progress of each build.
        report: called with the outcome for each task, as soon as it is known.

    Returns:
        The outcome for each task, in the order of registration.

    Raises:
        DeclarationError: no task matches, or workers could not find the tasks.
        BuildError: some tasks failed; the message says which and why, and `results` holds all outcomes.
    """
    about_to_build()
    check_shard_numbers(min_shards, max_shards)
    import_modules(modules_to_import)
    options = options if options is not None else LocalOptions()
    if isinstance(options, LocalOptions) and options.num_workers > 1 and not modules_to_import:
        raise DeclarationError(
            "worker processes must import the modules that register the tasks: name them (modules_to_import=[...], "
            "--module-import), or use workers=1."
        )
    results = []
    for task in matching_tasks(task_names, excluded_tasks):
        path = os.path.join(directory_path(cache_dir), get_task_dir_from_name(task.name))
        reason = None if overwrite and task.supports_caching else _reason_to_skip(task, path, ignore_other_caches)
        if reason is not None:
            result = TaskCache(task=task.name, path=path, outcome="skipped", reason=reason)
        else:
            try:
                declaration = task_declaration(
                    task.name,
                    modules_to_import=modules_to_import,
                    base_seed=base_seed,
                    encoding="list" if seqio_files else "raw",
                    on_error=on_error,
                    max_bad=max_bad,
                    allow_empty=allow_empty,
                    enable_char_counts=enable_char_counts,
                    target_shard_bytes=target_shard_bytes,
                )
                if not (overwrite or accept_code_change):
                    _require_same_task(declaration, task.name, path)
                built = build(
                    declaration,
                    path,
                    options=options,
                    accept_code_change=True,
                    overwrite=overwrite,
                    progress=progress() if progress is not None else None,
                )
                if seqio_files:
                    with build_lock(path):
                        write_seqio_sidecars(path, min_shards=min_shards, max_shards=max_shards)
                outcome: Outcome = "up to date" if built.up_to_date else "built"
                result = TaskCache(task=task.name, path=path, outcome=outcome, result=built)
            except Exception as error:
                words = str(error) if isinstance(error, BeamPipesError) else f"{type(error).__name__}: {error}"
                result = TaskCache(task=task.name, path=path, outcome="failed", reason=words, error=error)
        results.append(result)
        if report is not None:
            report(result)
    failed = [result for result in results if result.outcome == "failed"]
    if failed:
        raise BuildError(
            f"{len(failed)} of {len(results)} tasks were not cached:\n" + "\n".join(map(str, failed)), results=results
        ) from failed[0].error
    return results


def matching_tasks(task_names: str | Iterable[str], excluded_tasks: str | Iterable[str] = ()) -> list[Task]:
    """The registered tasks whose whole names match. Raises `DeclarationError` if there are none."""
    chosen = matching_names(task_names, excluded_tasks)
    if not chosen:
        wanted = task_names if isinstance(task_names, str) else ", ".join(task_names)
        raise DeclarationError(f"no task matches {wanted!r}.{registered(wanted, list(TaskRegistry.names()))}")
    return [TaskRegistry.get(name) for name in chosen]


def matching_names(task_names: str | Iterable[str], excluded_tasks: str | Iterable[str] = ()) -> list[str]:
    """The names of registered tasks that match as a whole; `DeclarationError` for an invalid regular expression."""
    included, excluded = _pattern(task_names), _pattern(excluded_tasks)
    return [name for name in TaskRegistry.names() if included.fullmatch(name) and not excluded.fullmatch(name)]


def _pattern(expressions: str | Iterable[str]) -> re.Pattern[str]:
    listed = [expressions] if isinstance(expressions, str) else list(expressions)
    try:
        return re.compile("|".join(f"(?:{expression})" for expression in listed) or "(?!)")
    except re.error as error:
        raise DeclarationError(f"names of tasks are regular expressions, got {listed}: {error}") from error


def _reason_to_skip(task: Task, path: str, ignore_other_caches: bool) -> str | None:
    if not task.supports_caching:
        return "it does not support caching: it has no CacheDatasetPlaceholder"
    if _exists(path, COMPLETED) and not _exists(path, MANIFEST):
        return f"{path} holds a cache that SeqIO built; --overwrite (overwrite=True) replaces it"
    other = task.cache_dir
    if other is not None and not ignore_other_caches and os.path.abspath(other) != os.path.abspath(path):
        return f"it is cached in {other}; --ignore-other-caches (ignore_other_caches=True) builds it here too"
    return None


def _exists(path: str, name: str) -> bool:
    return storage_for(path).exists(os.path.join(path, name))


def _require_same_task(declaration: Declaration, name: str, path: str) -> None:
    """Raises `StaleCacheError` if the published cache was built for another version of the task."""
    if not _exists(path, MANIFEST):
        return
    plan = make_plan(declaration, path)
    previous = plan.previous_fingerprint()
    if previous is None or previous.digest == plan.fingerprint.digest:
        return
    changes = explain_change(previous, plan.fingerprint)
    lines = [
        f"{part}: {line}"
        for part, each in changes.items()
        for line in each
        if not line.startswith("fingerprint task/step")  # the step tells more
    ]
    listed = "; ".join(lines[:_LINES_TOLD]) + (f"; and {len(lines) - _LINES_TOLD} more" if lines[_LINES_TOLD:] else "")
    raise StaleCacheError(
        f"the cache {path} was built for another version of task {name!r}; what changed: {listed}. Undo the change, or "
        "build it for this version with --overwrite (overwrite=True): the existing cache stays until the new one is "
        "complete.",
        task=name,
        changed=lines,
    )


# Validation and test data are not learned from.
LEARNED_FROM = "train"


def task_declaration(
    task: str | Task,
    *,
    modules_to_import: Sequence[str] = (),
    base_seed: int = 0,
    encoding: Encoding = "list",
    on_error: OnError = "fail",
    max_bad: MaxBad = "tenth",
    allow_empty: bool = False,
    enable_char_counts: bool = False,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
) -> Declaration:
    """The cache of a task: every split of its source, after the steps before its `CacheDatasetPlaceholder`.

    `task_declaration("wmt_de_en", modules_to_import=["my.tasks"])` can be built like any declaration. It reads the
    beginning of each split to find the dtypes and ranks of the cached features. Arguments as in `cache_tasks`.

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
        allow_empty=allow_empty,
        target_shard_bytes=target_shard_bytes,
        fingerprints=fingerprint_digests(found),
    )
    specs = _specs(declaration, found, encoding)
    return dataclasses.replace(declaration, features=specs, analyzers=_analyzers(found, reference, base_seed, specs))


def _analyzers(
    task: Task, reference: TaskReference, seed: int, specs: Mapping[str, ExampleSpec]
) -> tuple[TransformFn, ...]:
    """The analysis for a task's preprocessing_fn, over the cached examples of its training split only."""
    if task.preprocessing_fn is None:
        return ()
    if LEARNED_FROM not in specs:
        raise TaskError(
            f"task '{task.name}' has a preprocessing_fn, whose analysis reads the split {LEARNED_FROM!r}; its splits "
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
    """For each split, the spec of its first example, as a build would infer it."""
    source = declaration.source
    assert isinstance(source, TaskSource)
    runner = graph_runner(declaration, None)
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
