"""Completions: the small records that say which source shards are done, and with what."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from beam_pipes.cache.index import index_path
from beam_pipes.cache.shard_entry import ShardEntry
from beam_pipes.cache.storage import storage_for
from beam_pipes.engine.account import Account
from beam_pipes.errors import ReconciliationError
from beam_pipes.offline.shard_task import BuildHeader, ShardTask
from beam_pipes.sources.source import Slice

# The "split" under which dead letters are filed, and the directory they lie in.
DEAD_LETTERS = "dead_letters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion:
    """A source shard that is committed: its input, its files by split, its dead letters if it has any, its account.

    Written last: what it names is there, whole. It holds no time and no absolute path, so it is the same on every
    runner.
    """

    index: int
    fingerprint: str
    source: tuple[Slice, ...]
    entries: Mapping[str, ShardEntry]
    dead_letters: ShardEntry | None
    account: Account

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "fingerprint": self.fingerprint,
            "source": [piece.to_json() for piece in self.source],
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
            source=tuple(map(Slice.from_json, value["source"])),
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
    completion = read_completion(_path(header.directory, task.index, header.num_shards))
    if completion is None or completion.fingerprint != task.fingerprint:
        return None
    return completion if files_are_there(header.directory, completion) else None


def read_completions(header: BuildHeader) -> list[Completion]:
    """All completions of a build, in the order of shards.

    Raises `ReconciliationError`, naming the shards, where some are missing.
    """
    found = [read_completion(_path(header.directory, index, header.num_shards)) for index in range(header.num_shards)]
    missing = [index for index, completion in enumerate(found) if completion is None]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + ("…" if len(missing) > 10 else "")
        raise ReconciliationError(
            f"{len(missing)} of {header.num_shards} source shards are not complete: {shown}. Nothing was published; "
            "run the build again to go on from there.",
            missing=missing,
        )
    return [completion for completion in found if completion is not None]


def split_directory(snapshot_directory: str, split: str) -> str:
    """Where the files of a split lie; dead letters have a directory of their own."""
    return f"{snapshot_directory}/{DEAD_LETTERS}" if split == DEAD_LETTERS else snapshot_directory


def files_are_there(directory: str, completion: Completion) -> bool:
    """Whether all files of a completion are in a snapshot's directory, in their full sizes."""
    storage = storage_for(directory)
    for split, entry in completion.all_entries():
        path = f"{split_directory(directory, split)}/{entry.file}"
        if not storage.exists(path) or storage.size(path) != entry.bytes or not storage.exists(index_path(path)):
            return False
    return True


def _path(directory: str, index: int, count: int) -> str:
    return f"{directory}/completions/{index:05d}-of-{count:05d}.json"


def read_completion(path: str) -> Completion | None:
    """The completion in a file; None where there is none, or none that can be understood."""
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
