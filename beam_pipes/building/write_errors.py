"""What the file system says when a cache cannot be written, as an error that says what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from beam_pipes.errors import BeamPipesError, CacheWriteError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_NOT_A_DIRECTORY = {errno.ENOTDIR, errno.EEXIST}


@contextlib.contextmanager
def writing(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Around steps that write to a cache directory: an `OSError` becomes a `CacheWriteError`, errors of ours pass."""
    try:
        yield
    except BeamPipesError:
        raise
    except OSError as error:
        raise cache_write_error(directory, error) from error


def cache_write_error(directory: str | os.PathLike[str], error: OSError) -> CacheWriteError:
    """The error that names the path, the reason and what to do about it."""
    # Not `error.filename`, which is often the temporary name of a file that nobody knows.
    path = os.fspath(directory)
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        what = "there is no room left" if error.errno != errno.EFBIG else "a file may not become larger"
        advice = "Free or allow more space, or build to another directory"
    elif error.errno in _FORBIDDEN:
        what, advice = "writing there is not allowed", "Make it writable, or build to another directory"
    elif error.errno in _NOT_A_DIRECTORY:
        what, advice = "a part of that path is a file", "Remove the file, or build to another directory"
    else:
        what, advice = "writing there failed", "Repair the file system, or build to another directory"
    return CacheWriteError(
        f"the cache {path!r} cannot be written: {what} ({reason}). {advice}, and run the build again: shards that are "
        "finished are kept, and what was published before is untouched.",
        path=path,
        errno=error.errno,
    )
