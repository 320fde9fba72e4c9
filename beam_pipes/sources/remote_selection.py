"""Which objects of a `gs://` input a source reads, and what they are called: as `selection.py` does for files.

A listing says size, generation and checksums of every object, so that nothing has to be read to plan a build.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from beam_pipes.cache.storage import is_remote, storage_for
from beam_pipes.errors import CacheNotFoundError, SourceError, StorageError
from beam_pipes.sources.found_file import FoundFile
from beam_pipes.sources.globs import WILDCARD, matcher

if TYPE_CHECKING:
    from beam_pipes.sources.selection import Selection

_GS = "gs://"


def remote_base(selection: Selection) -> str:
    """The path that names are relative to. Raises `SourceError` for inputs that have none in common."""
    return _base(selection.entries, selection.relative_to)


@lru_cache(maxsize=64)
def _base(entries: tuple[str, ...], relative_to: str | None) -> str:
    if not all(map(is_remote, entries)):
        raise SourceError(f"inputs {list(entries)!r} should lie either all on gs:// or all on this machine")
    if relative_to is not None:
        return relative_to.rstrip("/")
    common = os.path.commonpath([_base_of(entry).removeprefix(_GS) for entry in entries])
    if not common:
        raise SourceError(f"inputs {list(entries)!r} have no bucket in common: make a source of each bucket")
    return _GS + common


def _base_of(entry: str) -> str:
    if not WILDCARD.search(entry):
        return entry.rpartition("/")[0] if _is_object(entry) else entry.rstrip("/")
    parent = entry.rpartition("/")[0]
    while WILDCARD.search(parent):
        parent = parent.rpartition("/")[0]
    return parent


def remote_files(selection: Selection, entry: str, base: str) -> Iterator[FoundFile]:
    """The objects that one entry of a selection stands for. Raises `SourceError` where there is nothing to look in."""
    storage: Any = storage_for(entry)
    patterns, top, recursive = selection.patterns, entry.rstrip("/"), selection.recursive
    try:
        if WILDCARD.search(entry):
            top = _base_of(entry)
            patterns, recursive = (entry[len(top) + 1 :],), True
        elif _is_object(entry):
            yield _found(storage.status(entry), base, selection)
            return
        objects: Iterable[Any] = storage.objects(top, recursive=recursive)
        if not objects and not storage.is_directory(top):
            raise SourceError(
                f"input {entry!r} does not exist: there is no object of this name, nor one below it", file=entry
            )
    except StorageError as error:
        raise SourceError(f"input {entry!r} cannot be read: {error}", file=entry) from error
    wanted, unwanted = matcher(patterns), matcher(selection.exclude)
    for status in objects:
        name = status.path[len(top) + 1 :]
        parts = name.split("/")
        directories = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if (
            wanted(name)
            and not unwanted(name)
            and not any(unwanted(each) or unwanted(f"{each}/") for each in directories)
            and (selection.hidden or not any(part.startswith(".") for part in parts))
        ):
            yield _found(status, base, selection)


def _found(status: Any, base: str, selection: Selection) -> FoundFile:
    if not status.path.startswith(f"{base}/"):
        raise SourceError(
            f"expected all inputs to lie under relative_to={selection.relative_to!r}, found {status.path}",
            file=status.path,
        )
    name = status.path[len(base) + 1 :]
    return FoundFile(
        name, status.path, status.size, mtime_ns=0, inode=status.generation, content_digest=status.content_digest
    )


def _is_object(entry: str) -> bool:
    if entry.endswith("/") or not entry.removeprefix(_GS).partition("/")[2]:
        return False
    storage: Any = storage_for(entry)
    try:
        storage.status(entry)
    except CacheNotFoundError:
        return False
    except StorageError as error:
        raise SourceError(f"input {entry!r} cannot be read: {error}", file=entry) from error
    return True
