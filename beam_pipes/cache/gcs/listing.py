"""Objects below a prefix, in as many requests at once as there are directories.

A page holds a thousand names, and the next one cannot be asked for before this one is there: what fits into a page is
one request, and a prefix that does not is listed directory by directory, each on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any, NamedTuple


class Page(NamedTuple):
    """What one request gave: objects, names of directories (with a final `/`), and the token of the next page."""

    objects: list[Any]
    directories: list[str]
    next_token: str | None


# (prefix, delimiter, token) → a page.
GetPage = Callable[[str, "str | None", "str | None"], Page]


def list_directory(get_page: GetPage, prefix: str) -> tuple[list[Any], list[str]]:
    """The objects directly below a prefix, and its directories."""
    objects: list[Any] = []
    directories: list[str] = []
    token = None
    while True:
        page = get_page(prefix, "/", token)
        objects += page.objects
        directories += page.directories
        token = page.next_token
        if token is None:
            return objects, directories


def list_tree(get_page: GetPage, prefix: str, *, num_threads: int) -> Iterable[Any]:
    """All objects below a prefix, in no particular order."""
    found, directories = _list_part(get_page, prefix)
    if not directories:
        return found
    with ThreadPoolExecutor(num_threads, thread_name_prefix="beam_pipes-list") as pool:
        running = {pool.submit(_list_part, get_page, directory) for directory in directories}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    objects, directories = each.result()
                    found += objects
                    running |= {pool.submit(_list_part, get_page, directory) for directory in directories}
        finally:
            for each in running:
                each.cancel()
    return found


def _list_part(get_page: GetPage, prefix: str) -> tuple[list[Any], list[str]]:
    page = get_page(prefix, None, None)
    if page.next_token is None:
        return page.objects, []
    return list_directory(get_page, prefix)
