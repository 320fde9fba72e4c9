"""Completions: the small records that say which source shards are done, and with what."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beam_pipes.cache.index import index_path
from beam_pipes.cache.shard_entry import ShardEntry
from beam_pipes.cache.storage import TEMPORARY_PREFIX, storage_for
from beam_pipes.engine.account import Account
from beam_pipes.errors import ReconciliationError
from beam_pipes.offline.shard_task import BuildHeader, ShardTask

# The "split" under which dead letters are filed, and the directory they lie in.
DEAD_LETTERS = "dead_letters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion:
    """A source shard that is committed: its files by split, its dead letters if it has any, its account.

    Written last: what it names is there, whole. It holds no time and no path, so it is the same on every runner.
    """

    index: int
    fingerprint: str
    entries: Mapping[str, ShardEntry]
    dead_letters: ShardEntry | None
    account: Account

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "fingerprint": self.fingerprint,
            "entries": {split: entry.to_json() for split, entry in self.entries.items()},
            "dead_letters": None if self.dead_letters is None else self.dead_letters.to_json(),
            "account": self.account.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Completion:
        dead_letters = value["dead_letters"]
        return cls(
            index=value["index"],
            fingerprint=value["fingerprint"],
            entries={split: ShardEntry.from_json(entry) for split, entry in value["entries"].items()},
            dead_letters=None if dead_letters is None else ShardEntry.from_json(dead_letters),
            account=Account.from_json(value["account"]),
        )

    def all_entries(self) -> list[tuple[str, ShardEntry]]:
        """(split, entry) of every file pair, dead letters included."""
        dead = [] if self.dead_letters is None else [(DEAD_LETTERS, self.dead_letters)]
        return [*self.entries.items(), *dead]


def write_completion(header: BuildHeader, completion: Completion) -> None:
    """The last step of a shard: from here on it is done."""
    storage = storage_for(header.directory)
    storage.makedirs(f"{header.directory}/completions")
    text = json.dumps(completion.to_json(), separators=(",", ":"))
    storage.replace(_path(header.directory, completion.index, header.num_shards), text.encode())


def find_completion(header: BuildHeader, task: ShardTask) -> Completion | None:
    """The completion of this very task, its files being there in full; None where the shard has to be built.

    What cannot be read counts as not done: it is built again.
    """
    completion = _read(_path(header.directory, task.index, header.num_shards))
    if completion is None or completion.fingerprint != task.fingerprint:
        return None
    return completion if _files_are_there(header.directory, completion) else None


def read_completions(header: BuildHeader) -> list[Completion]:
    """All completions of a build, in the order of shards.

    Raises `ReconciliationError`, naming the shards, where some are missing.
    """
    found = [_read(_path(header.directory, index, header.num_shards)) for index in range(header.num_shards)]
    missing = [index for index, completion in enumerate(found) if completion is None]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + ("…" if len(missing) > 10 else "")
        raise ReconciliationError(
            f"{len(missing)} of {header.num_shards} source shards are not complete: {shown}. Nothing was published; "
            "run the build again to go on from there.",
            missing=missing,
        )
    return [completion for completion in found if completion is not None]


def reuse(header: BuildHeader, tasks: Sequence[ShardTask]) -> int:
    """Links shards with the same fingerprint from other snapshots into this one, under their new names; how many."""
    wanted = {task.fingerprint: task for task in tasks if find_completion(header, task) is None}
    reused = 0
    if not wanted:
        return reused
    storage = storage_for(header.root)
    for snapshot in storage.list(f"{header.root}/snapshots"):
        other = f"{header.root}/snapshots/{snapshot}"
        if snapshot == header.snapshot:
            continue
        for name in storage.list(f"{other}/completions"):
            completion = _read(f"{other}/completions/{name}")
            task = wanted.get(completion.fingerprint) if completion is not None else None
            if completion is not None and task is not None and _files_are_there(other, completion):
                _link(header, task, other, completion)
                del wanted[task.fingerprint]
                reused += 1
        if not wanted:
            break
    return reused


def _link(header: BuildHeader, task: ShardTask, other: str, completion: Completion) -> None:
    storage = storage_for(header.directory)
    renamed: dict[str, ShardEntry] = {}
    for split, entry in completion.all_entries():
        target = header.file_name(split, task.index)
        directory = _directory(header.directory, split)
        storage.makedirs(directory)
        source = f"{_directory(other, split)}/{entry.file}"
        storage.link_or_copy(index_path(source), index_path(f"{directory}/{target}"))
        storage.link_or_copy(source, f"{directory}/{target}")
        renamed[split] = dataclasses.replace(entry, file=target)
    dead_letters = renamed.pop(DEAD_LETTERS, None)
    write_completion(
        header, dataclasses.replace(completion, index=task.index, entries=renamed, dead_letters=dead_letters)
    )


def remove_partials(header: BuildHeader) -> None:
    """Removes the half-written files of builds that died; only for the holder of the build lock."""
    for directory in (header.directory, f"{header.directory}/completions", f"{header.directory}/{DEAD_LETTERS}"):
        if os.path.isdir(directory):
            for name in os.listdir(directory):
                if name.startswith(TEMPORARY_PREFIX):
                    Path(directory, name).unlink(missing_ok=True)


def _directory(snapshot_directory: str, split: str) -> str:
    return f"{snapshot_directory}/{DEAD_LETTERS}" if split == DEAD_LETTERS else snapshot_directory


def _files_are_there(directory: str, completion: Completion) -> bool:
    storage = storage_for(directory)
    for split, entry in completion.all_entries():
        path = f"{_directory(directory, split)}/{entry.file}"
        if not storage.exists(path) or storage.size(path) != entry.bytes or not storage.exists(index_path(path)):
            return False
    return True


def _path(directory: str, index: int, count: int) -> str:
    return f"{directory}/completions/{index:05d}-of-{count:05d}.json"


def _read(path: str) -> Completion | None:
    storage = storage_for(path)
    if not storage.exists(path):
        return None
    try:
        return Completion.from_json(json.loads(storage.read_bytes(path)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def merged_account(completions: Iterable[Completion]) -> Account:
    """The account of all shards, merged in their order."""
    account = Account()
    for completion in completions:
        account.merge_from(completion.account)
    return account
