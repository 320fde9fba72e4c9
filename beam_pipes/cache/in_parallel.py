"""Many operations of a storage at once, where that pays: one waits for the network, a hundred wait as long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(storage: Any, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """`[function(item) for item in items]`: in `storage.parallel` threads, or one after the other where that is 1.

    Raises what the first item that fails raises.
    """
    if storage.parallel <= 1:
        return [function(item) for item in items]
    # Threads of this call alone: they cost less than one request, and none is left behind.
    with ThreadPoolExecutor(storage.parallel, thread_name_prefix="beam_pipes-requests") as pool:
        return list(pool.map(function, items))
