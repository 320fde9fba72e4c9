"""`writing_to`: files and directories that a user names to have something written there.

Many operations of a storage at once, where that pays: one waits for the network, a hundred wait as long.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from beam_pipes.errors import BeamPipesError, OutputError


@contextlib.contextmanager
def writing_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """Around steps that write `path`: an `OSError` becomes an `OutputError` that names it, errors of ours pass."""
    try:
        yield
    except BeamPipesError:
        raise
    except OSError as error:
        target = os.fspath(path)
        raise OutputError(
            f"{target!r} cannot be written: {error.strerror or error}. Name a place that can be written, in a "
            "directory that is there.",
            path=target,
            errno=error.errno,
        ) from error


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
