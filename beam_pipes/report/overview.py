"""`report.html` about a directory of caches: one line per cache, with a link to the page of each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from beam_pipes.cache.manifest import FILE_NAME
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import directory_path, storage_for, writing_to
from beam_pipes.engine.account import Account
from beam_pipes.errors import BeamPipesError, CacheNotFoundError
from beam_pipes.report.difference import difference_to_previous
from beam_pipes.report.shown import render, shown_value

REPORT = "report.html"

# The name of a task may have parts, each a directory.
MAX_DEPTH = 6
_MAX_CACHES = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheLine:
    """The overview's line for one cache: `name` is its directory, `page` the link to its report, if there is one.

    `changes` lists the differences from the previous snapshot, None if there is none; `unreadable` says why nothing is
    known.
    """

    name: str
    snapshot: str = ""
    page: str | None = None
    splits: tuple[tuple[str, int], ...] = ()
    num_bytes: int = 0
    account: Account | None = None
    changes: tuple[str, ...] | None = None
    unreadable: str | None = None


def cache_directories(path: str | os.PathLike[str], *, max_depth: int = MAX_DEPTH) -> list[str]:
    """The directories below `path` in which a cache is published, sorted; `path` itself where it is one.

    `["caches/wmt", "caches/glue/cola"]` for `caches`. Caches are not searched for inside a cache.
    """
    return sorted(_found(directory_path(path), max_depth))


def _found(path: str, depth: int) -> Iterator[str]:
    storage = storage_for(path)
    if storage.exists(f"{path}/{FILE_NAME}"):
        yield path
    elif depth:
        for name in storage.list(path):
            if not name.startswith(".") and storage.is_directory(f"{path}/{name}"):
                yield from _found(f"{path}/{name}", depth - 1)


def write_overview(path: str | os.PathLike[str], *, to: str | os.PathLike[str] | None = None) -> str:
    """Writes the page about all caches below the directory `path`; returns its path.

        write_overview("caches")  →  "caches/report.html"

    It links to the report of each cache that has one (`write_report` writes them). `to` is another file to write.
    Raises `CacheNotFoundError` if there is no cache.
    """
    root = directory_path(path)
    target = f"{root}/{REPORT}" if to is None else os.fspath(to)
    html = overview_html(root, beside=target)
    with writing_to(target):
        storage_for(target).replace(target, html.encode("utf-8", errors="backslashreplace"))
    return target


def overview_html(path: str | os.PathLike[str], *, beside: str | os.PathLike[str] | None = None) -> str:
    """The page; links to other pages are relative to the file `beside`, by default `report.html` in `path`."""
    root = directory_path(path)
    directories = cache_directories(root)
    if not directories:
        raise CacheNotFoundError(
            f"no cache is published in {os.fspath(path)!r}, nor in a directory below it. Build one with "
            "`beam-pipes build DECLARATION --to DIR`, or with --tasks.",
            path=os.fspath(path),
        )
    base = os.path.dirname(f"{root}/{REPORT}" if beside is None else os.fspath(beside)) or "."
    lines = [_line(root, directory, base) for directory in directories[:_MAX_CACHES]]
    accounts = [line.account for line in lines if line.account is not None]
    totals = {name: sum(getattr(one, name) for one in accounts) for name in ("read", "written", "dropped", "dead")}
    return render(
        "overview.html.j2",
        {
            "name": os.path.basename(root) or root,
            "lines": lines,
            "left_out": len(directories) - len(lines),
            "totals": totals,
            "shown": shown_value,
        },
    )


def _line(root: str, directory: str, base: str) -> CacheLine:
    name = os.path.relpath(directory, root)
    name = os.path.basename(directory) if name == "." else name
    try:
        cache = Cache.open(directory)
        manifest = cache.manifest
        difference = difference_to_previous(cache)
        page = f"{cache.directory}/{REPORT}"
        return CacheLine(
            name=name,
            snapshot=manifest.snapshot,
            page=os.path.relpath(page, base) if storage_for(page).exists(page) else None,
            splits=tuple((split, each.num_records) for split, each in manifest.splits.items()),
            num_bytes=sum(each.num_bytes for each in manifest.splits.values()),
            account=Account.from_json(manifest.accounting) if manifest.accounting else None,
            changes=None if difference is None else tuple(difference.in_brief()),
        )
    except BeamPipesError as error:  # one damaged cache hides no other
        return CacheLine(name=name, unreadable=str(error))
