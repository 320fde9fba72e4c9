"""`writing_to`: files and directories that a user names to have something written there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

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
