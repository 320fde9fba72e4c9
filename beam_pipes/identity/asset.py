"""`Asset`: a file or directory that a stage reads, identified by its content."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from functools import lru_cache

from beam_pipes.cache.storage import absolute_path, times_have_settled
from beam_pipes.errors import DeclarationError


@dataclasses.dataclass(frozen=True)
class Asset:
    """A file or directory that belongs to a stage's configuration: `model: Asset = Asset("vocab.model")`.

    It can be opened as a path is (`open(stage.model)`). A fingerprint takes its content in, and neither its path nor
    its times; of a directory, the relative names and contents of all files.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        # A stage may change the working directory before it reads its files.
        object.__setattr__(self, "path", absolute_path(self.path))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(os.path.normpath(self.path))

    def digest(self) -> str:
        """Sha256 (hex) of the content; a file whose size, inode and times did not change is read once a process."""
        path = os.path.abspath(self.path)
        try:
            if not os.path.isdir(path):
                return _file_digest(path)
            total = hashlib.sha256()
            for directory, subdirectories, names in os.walk(path):
                subdirectories.sort()
                for name in sorted(names):
                    file = os.path.join(directory, name)
                    relative = os.path.relpath(file, path).replace(os.sep, "/")
                    total.update(f"{len(relative)}:{relative}:{_file_digest(file)}".encode())
            return total.hexdigest()
        except OSError as error:
            raise DeclarationError(
                f"asset {os.fspath(self.path)!r} cannot be read: {error.strerror or error}", asset=self.path
            ) from error


def _file_digest(path: str) -> str:
    now = time.time_ns()
    status = os.stat(path)
    # The time of change cannot be set: `touch -r` and `tar` set the other one, and an inode is soon used again.
    identity = status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
    if times_have_settled(status.st_ctime_ns, read_at_ns=now):
        return _remembered_digest(path, identity)
    return _remembered_digest.__wrapped__(path, identity)


@lru_cache(maxsize=4096)
def _remembered_digest(path: str, identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
