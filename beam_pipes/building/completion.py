"""Completions: the small records that say which source shards are done, and what they wrote."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import google_crc32c

from beam_pipes.building.limits import Quarantined
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.engine.account import Account
from beam_pipes.errors import CacheNotFoundError, ReconciliationError
from beam_pipes.format.index import index_path
from beam_pipes.format.layout import ShardEntry
from beam_pipes.lineage.lineage import lineage_checksum, lineage_file
from beam_pipes.sources.source import Slice
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.protocol import FileStatus, Storage, in_parallel

# The "split" under which dead letters are filed, and the directory they lie in.
DEAD_LETTERS = "dead_letters"

# The field that holds the crc32c of all others.
CHECKSUM = "crc32c"


class LineageEntry(NamedTuple):
    """The lineage file of a source shard: its size and crc32c."""

    bytes: int
    crc32c: int


_NO_ACCOUNT = Account()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A committed source shard: its input, its files by split, its dead letters if any, its account.

    It is written last, so everything it names exists and is complete. It holds no time and no absolute path, so it is
    the same on every runner. `dropped_errors` describes the first records that were dropped because of an error, which
    leave no dead letter.
    """

    index: int
    fingerprint: str
    source: Sequence[Slice]
    entries: Mapping[str, ShardEntry]
    dead_letters: ShardEntry | None
    lineage: LineageEntry
    account: Account
    quarantined: tuple[Quarantined, ...] = ()
    dropped_errors: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "index": self.index,
            "fingerprint": self.fingerprint,
            "source": [piece.to_json() for piece in self.source],
            "entries": {split: entry.to_json() for split, entry in self.entries.items()},
            "dead_letters": None if self.dead_letters is None else self.dead_letters.to_json(),
            "lineage": list(self.lineage),
            "account": self.account.to_json(),
            "quarantined": [record.to_json() for record in self.quarantined],
            **({"dropped_errors": list(self.dropped_errors)} if self.dropped_errors else {}),
        }

    def without_input(self) -> Completion:
        """What is kept of each of 10⁵ shards: neither the places of its input nor the account."""
        return Completion(
            index=self.index,
            fingerprint=self.fingerprint,
            source=(),
            entries=self.entries,
            dead_letters=self.dead_letters,
            lineage=self.lineage,
            account=_NO_ACCOUNT,
            quarantined=self.quarantined,
            dropped_errors=self.dropped_errors,
        )

    def to_bytes(self) -> bytes:
        """The file: one line of JSON, with a checksum over the rest of it."""
        value = self.to_json()
        return _text({**value, CHECKSUM: google_crc32c.value(_text(value))})

    @classmethod
    def from_bytes(cls, data: bytes) -> Completion:
        """The inverse of `to_bytes`. Raises `ValueError` (or what a wrong structure raises) for any other bytes."""
        rest, _, checksum = data.rpartition(_CHECKSUM_KEY)
        if checksum != b"%d}" % google_crc32c.value(rest + b"}"):
            raise ValueError("a completion does not match its checksum")
        return cls.from_json(json.loads(data))

    @classmethod
    def from_json(cls, value: JsonObject) -> Completion:
        dead_letters = value["dead_letters"]
        return cls(
            index=value["index"],
            fingerprint=value["fingerprint"],
            source=tuple(map(Slice.from_json, value["source"])),
            entries={split: ShardEntry.from_json(entry) for split, entry in value["entries"].items()},
            dead_letters=None if dead_letters is None else ShardEntry.from_json(dead_letters),
            lineage=LineageEntry(*map(int, value["lineage"])),
            account=Account.from_json(value["account"]),
            quarantined=tuple(map(Quarantined.from_json, value["quarantined"])),
            dropped_errors=tuple(map(str, value.get("dropped_errors", ()))),
        )

    def all_entries(self) -> list[tuple[str, ShardEntry]]:
        """(split, entry) of every file pair, dead letters included."""
        dead = [] if self.dead_letters is None else [(DEAD_LETTERS, self.dead_letters)]
        return [*self.entries.items(), *dead]


_CHECKSUM_KEY = f',"{CHECKSUM}":'.encode()


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def write_completion(header: BuildHeader, completion: Completion) -> None:
    """The last step of a shard: after it, the shard is done."""
    storage = header.storage
    storage.makedirs(f"{header.directory}/completions")
    storage.replace(completion_path(header.directory, completion.index, header.num_shards), completion.to_bytes())


def write_lineage(header: BuildHeader, index: int, data: bytes) -> LineageEntry:
    """Writes the lineage of a source shard, before its completion."""
    storage = header.storage
    path = f"{header.directory}/{lineage_file(index, header.num_shards)}"
    storage.makedirs(path.rpartition("/")[0])
    storage.replace(path, data)
    return LineageEntry(bytes=len(data), crc32c=lineage_checksum(data))


def find_completion(header: BuildHeader, task: ShardTask) -> Completion | None:
    """The completion of exactly this task if all its files are complete; None if the shard must be built.

    A completion that cannot be read counts as missing: its shard is built again.
    """
    storage, directory = header.storage, header.directory
    completion = read_completion(storage, completion_path(directory, task.index, header.num_shards))
    if completion is None or completion.fingerprint != task.fingerprint:
        return None

    def size_of(file: str) -> int | None:
        try:
            return storage.size(f"{directory}/{file}")
        except CacheNotFoundError:
            return None

    return completion if is_whole(completion, header.num_shards, size_of) else None


def find_completions(header: BuildHeader, tasks: Iterable[ShardTask]) -> dict[int, Completion]:
    """Like `find_completion`, for many tasks: the index of each that is done, and its completion without its input.

    Lists the directory once instead of asking for each file, and reads completions in parallel where that pays.
    """
    files = header.storage.tree(header.directory)
    size_of = sizes_in(files)
    top = len(header.directory) + 1
    paths = [(task, completion_path(header.directory, task.index, header.num_shards)) for task in tasks]
    present = [(task, path) for task, path in paths if path[top:] in files]
    found = completions_at(header.storage, [path for _, path in present])
    return {
        task.index: completion.without_input()
        for (task, _), completion in zip(present, found, strict=True)
        if completion is not None
        and completion.fingerprint == task.fingerprint
        and is_whole(completion, header.num_shards, size_of)
    }


# Held at once over a network: all of them, with inputs and accounts, would take 5 kB per shard.
_PORTION = 1024


def completions_at(storage: Storage, paths: Sequence[str]) -> Iterator[Completion | None]:
    """The completions in these files, read in portions, in parallel where that pays.

    From a disk, each is read on demand: holding them longer costs the garbage collector a third more CPU time.
    """
    read = functools.partial(read_completion, storage)
    if storage.parallel <= 1:
        yield from map(read, paths)
        return
    for start in range(0, len(paths), _PORTION):
        yield from in_parallel(storage, read, paths[start : start + _PORTION])


def read_completions(header: BuildHeader) -> Iterator[Completion]:
    """All completions of a build, in the order of shards.

    Raises `ReconciliationError`, naming the shards, at the end where some are missing.
    """
    paths = [completion_path(header.directory, index, header.num_shards) for index in range(header.num_shards)]
    missing = []
    for index, completion in enumerate(completions_at(header.storage, paths)):
        if completion is None:
            missing.append(index)
        else:
            yield completion
    if missing:
        shown = ", ".join(map(str, missing[:10])) + ("…" if len(missing) > 10 else "")
        raise ReconciliationError(
            f"{len(missing)} of {header.num_shards} source shards are not complete: {shown}. Nothing was published; "
            "run the build again to continue.",
            missing=missing,
        )


def split_directory(snapshot_directory: str, split: str) -> str:
    """Where the files of a split are; dead letters have a directory of their own."""
    return f"{snapshot_directory}/{DEAD_LETTERS}" if split == DEAD_LETTERS else snapshot_directory


# The size of a file in a snapshot's directory; None if it is missing.
SizeOf = Callable[[str], int | None]


def sizes_in(files: Mapping[str, FileStatus]) -> SizeOf:
    """The sizes in a listing."""
    return lambda file: files[file].size if file in files else None


def is_whole(completion: Completion, num_shards: int, size_of: SizeOf) -> bool:
    """Whether all files of a completion are in the directory of a snapshot of `num_shards`, in their full sizes."""
    if size_of(lineage_file(completion.index, num_shards)) != completion.lineage.bytes:
        return False
    for split, entry in completion.all_entries():
        file = f"{DEAD_LETTERS}/{entry.file}" if split == DEAD_LETTERS else entry.file
        if size_of(file) != entry.bytes or size_of(index_path(file)) is None:
            return False
    return True


def completion_path(directory: str, index: int, count: int) -> str:
    """Where the completion of a source shard is in a snapshot's directory."""
    return f"{directory}/completions/{index:05d}-of-{count:05d}.json"


def read_completion(storage: Storage, path: str) -> Completion | None:
    """The completion in a file; None if it is missing or unreadable."""
    try:
        return Completion.from_bytes(storage.read_bytes(path))
    except (CacheNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
