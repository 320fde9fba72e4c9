"""What can be said of a cache directory from its files alone: published, being built, left unfinished."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import CacheNotFoundError
from beam_pipes.offline.lock import lock_holder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """`published`: the current snapshot, or None. `unfinished`: snapshot → (shards done, shards), newest build last.

    `builder` names the process that holds the build lock, or is None where nobody builds.
    """

    path: str
    published: str | None
    records: dict[str, int]
    unfinished: dict[str, tuple[int, int]]
    builder: str | None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if self.published is None:
            lines = [f"{self.path}: nothing is published."]
        else:
            records = ", ".join(f"{split} {count:,}" for split, count in self.records.items())
            lines = [f"{self.path}: snapshot {self.published} is published ({records} records)."]
        for snapshot, (done, shards) in self.unfinished.items():
            lines.append(f"snapshot {snapshot}: {done} of {shards} source shards are done.")
        if self.builder is not None:
            lines.append(f"being built by {self.builder}.")
        elif self.unfinished:
            lines.append("nobody is building: run the build again to go on from the finished shards.")
        return "\n".join(lines)


def read_status(path: str | os.PathLike[str]) -> Status:
    """The status of a cache directory. Raises `CacheNotFoundError` where there is no directory."""
    root = Path(path)
    if not root.is_dir():
        raise CacheNotFoundError(f"there is no directory {str(path)!r}: nothing was built there.", path=str(path))
    try:
        manifest = Cache.open(root).manifest
    except CacheNotFoundError:
        manifest = None
    storage = storage_for(root)
    unfinished: dict[str, tuple[int, int]] = {}
    for snapshot in storage.list(f"{root}/snapshots"):
        directory = f"{root}/snapshots/{snapshot}"
        names = storage.list(f"{directory}/completions")
        if names and not storage.exists(f"{directory}/manifest.json"):
            unfinished[snapshot] = (len(names), int(names[0].removesuffix(".json").rpartition("-of-")[2]))
    return Status(
        path=str(path),
        published=None if manifest is None else manifest.snapshot,
        records={} if manifest is None else {name: split.num_records for name, split in manifest.splits.items()},
        unfinished=unfinished,
        builder=lock_holder(root),
    )
