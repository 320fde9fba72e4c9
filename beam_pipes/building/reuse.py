"""Reuse: shards of other snapshots that have the same fingerprint are linked, not built again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from beam_pipes.building.completion import (
    DEAD_LETTERS,
    Completion,
    files_are_there,
    find_completions,
    read_completion,
    split_directory,
    write_completion,
)
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.cache.in_parallel import in_parallel
from beam_pipes.cache.index import index_path
from beam_pipes.cache.kill_points import reached
from beam_pipes.cache.lineage import lineage_file
from beam_pipes.cache.shard_entry import ShardEntry
from beam_pipes.cache.storage import FileStatus, storage_for

# Completions that are read at once: few enough to stop early where everything is found among the first.
_PORTION = 256


class Reusable(NamedTuple):
    """A task, and the completion in another snapshot's directory that has its fingerprint."""

    task: ShardTask
    directory: str
    completion: Completion
    lineage: str


def link_snapshot(source: BuildHeader, target: BuildHeader, completions: Iterable[Completion]) -> None:
    """Links all shards of one snapshot into another one with as many."""

    def link(completion: Completion) -> None:
        lineage = f"{source.directory}/{lineage_file(completion.index, source.num_shards)}"
        link_shard(target, completion.index, source.directory, completion, lineage)

    in_parallel(storage_for(target.directory), link, completions)


def find_reusable(header: BuildHeader, tasks: Iterable[ShardTask]) -> Iterator[Reusable]:
    """The tasks that are not complete in this snapshot, and are in another one."""
    tasks = list(tasks)
    done = find_completions(header, tasks)
    wanted = {task.fingerprint: task for task in tasks if task.index not in done}
    storage = storage_for(header.root)
    for snapshot in storage.list(f"{header.root}/snapshots"):
        other = f"{header.root}/snapshots/{snapshot}"
        if snapshot == header.snapshot:
            continue
        if not wanted:
            return
        names = storage.list(f"{other}/completions")
        files: Mapping[str, FileStatus] | None = None
        for start in range(0, len(names), _PORTION):
            if not wanted:
                return
            portion = names[start : start + _PORTION]
            found = in_parallel(storage, read_completion, [f"{other}/completions/{name}" for name in portion])
            for name, completion in zip(portion, found, strict=True):
                if completion is None or completion.fingerprint not in wanted:
                    continue
                if files is None:
                    files = storage.tree(other)
                num_shards = int(name.removesuffix(".json").rpartition("-of-")[2])
                if files_are_there(files, completion, num_shards):
                    lineage = f"{other}/{lineage_file(completion.index, num_shards)}"
                    yield Reusable(wanted.pop(completion.fingerprint), other, completion, lineage)


def reuse(header: BuildHeader, tasks: Iterable[ShardTask]) -> int:
    """Links shards with the same fingerprint from other snapshots into this one, under their new names; how many."""

    def link(found: Reusable) -> None:
        link_shard(header, found.task.index, found.directory, found.completion, found.lineage)

    return len(in_parallel(storage_for(header.directory), link, find_reusable(header, tasks)))


def link_shard(header: BuildHeader, index: int, other: str, completion: Completion, lineage: str) -> None:
    """Links the files of a completion in the snapshot's directory `other` into this one, as its source shard `index`.

    `lineage` is the path of the shard's lineage there.
    """
    storage = storage_for(header.directory)
    renamed: dict[str, ShardEntry] = {}
    for split, entry in completion.all_entries():
        target = header.file_name(split, index)
        directory = split_directory(header.directory, split)
        storage.makedirs(directory)
        source = f"{split_directory(other, split)}/{entry.file}"
        storage.link_or_copy(index_path(source), index_path(f"{directory}/{target}"))
        reached("reuse/index-linked")
        storage.link_or_copy(source, f"{directory}/{target}")
        renamed[split] = dataclasses.replace(entry, file=target)
    linked_lineage = f"{header.directory}/{lineage_file(index, header.num_shards)}"
    storage.makedirs(linked_lineage.rpartition("/")[0])
    storage.link_or_copy(lineage, linked_lineage)
    reached("reuse/linked")
    dead_letters = renamed.pop(DEAD_LETTERS, None)
    write_completion(header, dataclasses.replace(completion, index=index, entries=renamed, dead_letters=dead_letters))
