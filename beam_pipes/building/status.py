"""What can be said of a cache directory from its files alone: published, being built, left unfinished."""

from __future__ import annotations

import dataclasses
import html
import os
from typing import Any

from beam_pipes.building.build_progress import BuildProgress, finished_words, read_progress
from beam_pipes.building.lock import lock_holder
from beam_pipes.building.uses import unfinished_uses
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import directory_path, storage_for
from beam_pipes.errors import CacheNotFoundError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """`published`: the current snapshot, or None. `unfinished`: snapshot → (shards done, shards), newest build last.

    `builder` names the process that holds the build lock, or is None where nobody builds. `progress` is of the
    unfinished snapshot that was written to last, None where there is none. `last_build`: how the published snapshot
    was built, in words. `analysis` is (accumulators done, accumulators) of an analysis that is not finished.
    """

    path: str
    published: str | None
    records: dict[str, int]
    unfinished: dict[str, tuple[int, int]]
    builder: str | None
    progress: BuildProgress | None = None
    last_build: tuple[str, ...] = ()
    analysis: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        value = dataclasses.asdict(dataclasses.replace(self, progress=None))
        return {**value, "progress": None if self.progress is None else self.progress.to_json()}

    def _repr_html_(self) -> str:
        """What a notebook shows: the words of `str`, and the progress of an unfinished build."""
        words = html.escape(str(self)).replace("\n", "<br>")
        return f"<p>{words}</p>" + ("" if self.progress is None else self.progress._repr_html_())

    def __str__(self) -> str:
        if self.published is None:
            lines = [f"{self.path}: nothing is published."]
        else:
            records = ", ".join(f"{split} {count:,}" for split, count in self.records.items())
            lines = [f"{self.path}: snapshot {self.published} is published ({records} records)."]
            lines += self.last_build
        for snapshot, (done, shards) in self.unfinished.items():
            progress = self.progress if self.progress is not None and self.progress.snapshot == snapshot else None
            if progress is not None:
                done, shards = progress.shards_done, progress.shards  # looked at later, and what its words are about
            lines.append(f"snapshot {snapshot}: {done} of {shards} source shards are done.")
            if progress is not None:
                lines.append(str(progress))
        if self.analysis is not None:
            done, wanted = self.analysis
            lines.append(f"analysis: {done} of {wanted} accumulators are done.")
        if self.builder is not None:
            lines.append(f"being built by {self.builder}.")
        elif self.unfinished or self.analysis is not None:
            lines.append("nobody is building: run the build again to go on from the finished shards.")
        return "\n".join(lines)


def read_status(path: str | os.PathLike[str]) -> Status:
    """The status of a cache directory. Raises `CacheNotFoundError` where there is no directory."""
    root, storage = directory_path(path), storage_for(path)
    if not storage.is_directory(root):
        raise CacheNotFoundError(f"there is no directory {str(path)!r}: nothing was built there.", path=str(path))
    last_build: tuple[str, ...] = ()
    try:
        cache = Cache.open(root)
        manifest = cache.manifest
        total = sum(split.num_records for split in manifest.splits.values())
        last_build = tuple(finished_words(cache.build_info, total))
    except CacheNotFoundError:
        manifest = None
    unfinished: dict[str, tuple[int, int]] = {}
    for snapshot in storage.list(f"{root}/snapshots"):
        directory = f"{root}/snapshots/{snapshot}"
        names = storage.list(f"{directory}/completions")
        if names and not storage.exists(f"{directory}/manifest.json"):
            unfinished[snapshot] = (len(names), int(names[0].removesuffix(".json").rpartition("-of-")[2]))
    builder = lock_holder(root)
    uses = unfinished_uses(root)
    newest = max(unfinished, key=lambda snapshot: storage.modified_ns(f"{root}/snapshots/{snapshot}"), default=None)
    progress = None
    if newest is not None:
        progress = read_progress(
            f"{root}/snapshots/{newest}",
            snapshot=newest,
            num_shards=unfinished[newest][1],
            running=builder is not None,
        )
    return Status(
        path=str(path),
        published=None if manifest is None else manifest.snapshot,
        records={} if manifest is None else {name: split.num_records for name, split in manifest.splits.items()},
        unfinished=unfinished,
        builder=builder,
        progress=progress,
        last_build=last_build,
        analysis=None if uses is None else uses.count_accumulators(root),
    )
