"""Rows of JSON by number, in files of a few each: what a job is told by numbers, so that its request stays small."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import BeamPipesError, CacheError

ROWS_PER_FILE = 64

Row = dict[str, Any]


class NumberedRows:
    """Rows below `directory`, written once for a job and read by its workers. Keeps the last files it read.

    `what` names them in messages (`tasks of the build`), and `error` is what is raised where one cannot be read.
    """

    def __init__(self, directory: str, *, what: str, error: type[BeamPipesError]) -> None:
        self._directory = directory
        self._what = what
        self._error = error
        self._rows = functools.lru_cache(maxsize=4)(self._read)

    def write(self, rows: Sequence[Row]) -> None:
        """Writes all rows; their numbers are `range(len(rows))`."""
        storage = storage_for(self._directory)
        storage.makedirs(self._directory)
        for start in range(0, len(rows), ROWS_PER_FILE):
            data = json.dumps(rows[start : start + ROWS_PER_FILE], separators=(",", ":"))
            storage.replace(self._path(start), data.encode())

    def remove(self) -> None:
        """Removes what was written; it is no error if there is nothing."""
        storage = storage_for(self._directory)
        if storage.is_directory(self._directory):
            storage.delete_tree(self._directory)

    def __getitem__(self, number: int) -> Row:
        start = number - number % ROWS_PER_FILE
        return self._rows(start)[number - start]

    def _read(self, start: int) -> list[Row]:
        path = self._path(start)
        try:
            rows: list[Row] = json.loads(storage_for(path).read_bytes(path))
        except (CacheError, OSError, ValueError) as error:
            raise self._error(
                f"expected the {self._what} in {path!r}, got {type(error).__name__}: {error}. The job was launched by "
                "another build, or its files were removed meanwhile: run the build again."
            ) from error
        return rows

    def _path(self, start: int) -> str:
        return f"{self._directory}/{start:08d}.json"
