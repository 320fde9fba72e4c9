"""What the commands that take tasks have in common: how tasks are named, and what is said of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from beam_pipes.building.declaration import Declaration
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.cache_tasks import TaskCache, matching_tasks
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.task_declarations import task_declaration
from beam_pipes.tasks.caches.cache_dirs import get_task_dir_from_name
from beam_pipes.tasks.caches.task_reference import import_modules

TASKS_HELP = "regular expression: the registered tasks whose whole names match (may be repeated)"
MODULES_HELP = "module that registers tasks (may be repeated)"


def require_one_of(declaration: str | None, tasks: Sequence[str]) -> None:
    """Raises `DeclarationError` unless either a declaration or tasks are named."""
    if (declaration is None) == (not tasks):
        raise DeclarationError(
            "name what to build: either package.module:name of a Declaration, or --tasks REGEX with --module-import."
        )


def declarations_of(
    tasks: Sequence[str], excluded: Sequence[str], modules: Sequence[str], to: str, *, base_seed: int, encoding: str
) -> Iterator[tuple[Declaration, str]]:
    """The declaration and the directory of each task that matches and can be cached; the others are named."""
    import_modules(modules)
    for task in matching_tasks(tasks, excluded):
        path = os.path.join(to, get_task_dir_from_name(task.name))
        if not task.supports_caching:
            show_outcome(TaskCache(task=task.name, path=path, outcome="skipped", reason="no CacheDatasetPlaceholder"))
            continue
        declaration = task_declaration(
            task.name,
            modules_to_import=modules,
            base_seed=base_seed,
            encoding="raw" if encoding == "raw" else "list",
        )
        yield declaration, path


def show_outcome(cached: TaskCache) -> None:
    """One line for one task."""
    line = str(cached)
    if cached.result is not None and not cached.result.up_to_date:
        account = cached.result.account
        reused = f", {cached.result.reused_shards} of them reused" if cached.result.reused_shards else ""
        counts = ", ".join(f"{split} {count:,}" for split, count in account.outputs.items())
        line += (
            f": {account.read:,} read, {counts} written, {account.dropped:,} dropped, {account.dead:,} dead letters; "
            f"{cached.result.num_shards} source shards{reused}; {cached.result.secs:.1f} s"
        )
    console.print(line, markup=False)
