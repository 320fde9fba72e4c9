"""Reuse: shards of other snapshots that have the same fingerprint are linked, not built again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from beam_pipes.cache.index import index_path
from beam_pipes.cache.kill_points import reached
from beam_pipes.cache.shard_entry import ShardEntry
from beam_pipes.cache.storage import storage_for
from beam_pipes.offline.completion import (
    DEAD_LETTERS,
    Completion,
    files_are_there,
    find_completion,
    read_completion,
    split_directory,
    write_completion,
)
from beam_pipes.offline.shard_task import BuildHeader, ShardTask


class Reusable(NamedTuple):
    """A task, and the completion in another snapshot's directory that has its fingerprint."""

    task: ShardTask
    directory: str
    completion: Completion


def find_reusable(header: BuildHeader, tasks: Iterable[ShardTask]) -> Iterator[Reusable]:
    """The tasks that are not complete in this snapshot, and are in another one."""
    wanted = {task.fingerprint: task for task in tasks if find_completion(header, task) is None}
    storage = storage_for(header.root)
    for snapshot in storage.list(f"{header.root}/snapshots"):
        other = f"{header.root}/snapshots/{snapshot}"
        if snapshot == header.snapshot:
            continue
        for name in storage.list(f"{other}/completions"):
            if not wanted:
                return
            completion = read_completion(f"{other}/completions/{name}")
            if completion is None or completion.fingerprint not in wanted:
                continue
            if files_are_there(other, completion):
                yield Reusable(wanted.pop(completion.fingerprint), other, completion)


def reuse(header: BuildHeader, tasks: Iterable[ShardTask]) -> int:
    """Links shards with the same fingerprint from other snapshots into this one, under their new names; how many."""
    reused = 0
    for found in find_reusable(header, tasks):
        _link(header, *found)
        reused += 1
    return reused


def _link(header: BuildHeader, task: ShardTask, other: str, completion: Completion) -> None:
    storage = storage_for(header.directory)
    renamed: dict[str, ShardEntry] = {}
    for split, entry in completion.all_entries():
        target = header.file_name(split, task.index)
        directory = split_directory(header.directory, split)
        storage.makedirs(directory)
        source = f"{split_directory(other, split)}/{entry.file}"
        storage.link_or_copy(index_path(source), index_path(f"{directory}/{target}"))
        reached("reuse/index-linked")
        storage.link_or_copy(source, f"{directory}/{target}")
        renamed[split] = dataclasses.replace(entry, file=target)
    reached("reuse/linked")
    dead_letters = renamed.pop(DEAD_LETTERS, None)
    write_completion(
        header, dataclasses.replace(completion, index=task.index, entries=renamed, dead_letters=dead_letters)
    )
