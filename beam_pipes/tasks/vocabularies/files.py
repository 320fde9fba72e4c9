"""Files of vocabularies and sources: local files without TensorFlow, others through TensorFlow's file systems."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from types import ModuleType

from beam_pipes.extras import require


def is_remote(path: str) -> bool:
    return "://" in path


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; a path with a scheme (`gs://`) is read through TensorFlow's file systems."""
    path = os.fspath(path)
    if not is_remote(path):
        with open(path, "rb") as file:
            return file.read()
    with _gfile("reading " + path).GFile(path, "rb") as file:
        content: bytes = file.read()
    return content


def exists(path: str | os.PathLike[str]) -> bool:
    path = os.fspath(path)
    return bool(_gfile("looking for " + path).exists(path)) if is_remote(path) else os.path.exists(path)


def list_files(file_patterns: str | Iterable[str]) -> list[str]:
    """Files that match one pattern, a list of patterns, or a comma-separated string of them; sorted within each one.

    `["b*", "a.txt"]` → files of `b*`, sorted, then `a.txt`; a file that several patterns match is listed once. A plain
    name that does not exist is not listed.
    """
    patterns = file_patterns.split(",") if isinstance(file_patterns, str) else list(file_patterns)
    found: dict[str, None] = {}
    for pattern in patterns:
        found.update(dict.fromkeys(_matches(os.fspath(pattern))))
    return list(found)


def _matches(pattern: str) -> list[str]:
    if is_remote(pattern):
        return sorted(_gfile("listing " + pattern).glob(pattern))
    if os.path.exists(pattern):  # before globbing: a name may hold glob characters
        return [pattern]
    return sorted(glob.glob(pattern))


def _gfile(purpose: str) -> ModuleType:
    gfile: ModuleType = require("tensorflow", purpose=purpose).io.gfile
    return gfile
