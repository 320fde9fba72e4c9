"""Which files a source reads: a directory, a file, a glob or a list of these → files with relative names, sorted.

Names are relative to the *base*: the directory itself, the file's directory, the part of a glob before its first
wildcard, or what the entries of a list have in common; `relative_to` sets it. They are what record ids and fingerprints
are made of, so that an input may be moved as a whole.

Regular files only. A name with a part that begins with a dot is hidden: left out unless `hidden=True` or given as a
single file. Symbolic links are followed, loops are not. Inputs on `gs://` are found by `remote_selection.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beam_pipes.cache.storage import absolute_path, is_remote
from beam_pipes.errors import SourceError
from beam_pipes.sources.found_file import FoundFile as FoundFile
from beam_pipes.sources.globs import WILDCARD, matcher
from beam_pipes.sources.remote_selection import remote_base, remote_files

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files, by what names; checked and normalised by `select`."""

    entries: tuple[str, ...]
    patterns: tuple[str, ...] = ("**/*",)
    exclude: tuple[str, ...] = ()
    recursive: bool = True
    hidden: bool = False
    relative_to: str | None = None

    def base(self) -> str:
        """The directory that names are relative to."""
        if any(map(is_remote, self.entries)):
            return remote_base(self)
        if self.relative_to is not None:
            return os.path.abspath(self.relative_to)
        bases = [_base_of(entry) for entry in self.entries]
        try:
            return os.path.commonpath(bases)
        except ValueError as error:
            raise SourceError(f"inputs {list(self.entries)!r} have no directory in common: {error}") from error

    def path_of(self, name: str) -> str:
        """Where the file of this name lies; refuses names that lead out of the base."""
        if name.startswith("/") or ".." in name.split("/") or os.path.isabs(name):
            raise SourceError(f"expected a file name relative to {self.base()}, without '..', got {name!r}", file=name)
        base = self.base()
        return f"{base}/{name}" if is_remote(base) else os.path.join(base, *name.split("/"))

    def find(self) -> list[FoundFile]:
        """All selected files, sorted by name; `SourceError` where there are none."""
        base = self.base()
        found: dict[str, FoundFile] = {}
        for entry in self.entries:
            if is_remote(base):
                found.update((file.name, file) for file in remote_files(self, entry, base))
                continue
            for path, status in self._matches(entry):
                name = os.path.relpath(path, base).replace(os.sep, "/")
                if name.startswith("../"):
                    raise SourceError(
                        f"expected all inputs to lie under relative_to={self.relative_to!r}, found {path}", file=path
                    )
                found[name] = FoundFile.of(name, path, status)
        if not found:
            raise SourceError(
                f"no file matches: looked in {', '.join(map(repr, self.entries))} for pattern "
                f"{' or '.join(map(repr, self.patterns))}"
                + (f", excluding {', '.join(map(repr, self.exclude))}" if self.exclude else "")
                + ("; hidden files are left out (pass hidden=True to take them)" if not self.hidden else ""),
                inputs=self.entries,
            )
        return [found[name] for name in sorted(found)]

    def _matches(self, entry: str) -> Iterator[tuple[str, os.stat_result]]:
        path = os.path.abspath(entry)
        try:
            status = os.stat(path)
        except OSError as error:
            if WILDCARD.search(entry):
                base = _base_of(entry)
                pattern = os.path.relpath(path, base).replace(os.sep, "/")
                if os.path.isdir(base):
                    yield from self._walk(base, (pattern,))
                    return
                raise SourceError(
                    f"input {entry!r} does not exist: there is no directory {base!r} to look in", file=entry
                ) from error
            raise SourceError(f"input {entry!r} cannot be read: {error.strerror or error}", file=entry) from error
        if stat.S_ISDIR(status.st_mode):
            yield from self._walk(path, self.patterns)
        elif stat.S_ISREG(status.st_mode):
            yield path, status
        else:
            raise SourceError(f"input {entry!r} should be a regular file or a directory", file=entry)

    def _walk(self, top: str, patterns: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
        wanted, unwanted = matcher(patterns), matcher(self.exclude)
        # Each entry: directory, its name relative to `top` with a final slash, identities of the directories above.
        waiting: list[tuple[str, str, tuple[tuple[int, int], ...]]] = [(top, "", ())]
        while waiting:
            directory, prefix, above = waiting.pop()
            try:
                identity = os.stat(directory)
                if (key := (identity.st_dev, identity.st_ino)) in above:
                    continue
                with os.scandir(directory) as entries:
                    for entry in entries:
                        if entry.name.startswith(".") and not self.hidden:
                            continue
                        name = prefix + entry.name
                        if entry.is_dir():
                            if self.recursive and not unwanted(name) and not unwanted(name + "/"):
                                waiting.append((entry.path, name + "/", (*above, key)))
                        elif wanted(name) and not unwanted(name):
                            status = entry.stat()
                            if stat.S_ISREG(status.st_mode):
                                yield entry.path, status
            except OSError as error:
                where = error.filename or directory
                raise SourceError(f"input {where} cannot be read: {error.strerror or error}", file=where) from error


def select(
    paths: Paths,
    *,
    pattern: str | Sequence[str] = "**/*",
    exclude: str | Sequence[str] = (),
    recursive: bool = True,
    hidden: bool = False,
    relative_to: str | os.PathLike[str] | None = None,
) -> Selection:
    """Checks and normalises; touches no file."""
    entries = _strings("paths", [paths] if isinstance(paths, (str, os.PathLike)) else paths)
    if not entries:
        raise SourceError("paths should name at least one directory, file or glob, got an empty list")
    patterns = _strings("pattern", [pattern] if isinstance(pattern, str) else pattern)
    if not patterns:
        raise SourceError("pattern should be a glob such as '**/*.txt', got an empty list")
    return Selection(
        entries=tuple(map(_absolute, entries)),
        patterns=patterns,
        exclude=_strings("exclude", [exclude] if isinstance(exclude, str) else exclude),
        recursive=bool(recursive),
        hidden=bool(hidden),
        relative_to=None if relative_to is None else absolute_path(relative_to),
    )


def _absolute(entry: str) -> str:
    """What the entry means now; a stage may change the working directory before its files are read."""
    return absolute_path(entry) + ("/" if entry.endswith("/") and not is_remote(entry) else "")


def _strings(option: str, values: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(values, bytes) or not isinstance(values, Sequence):
        raise SourceError(f"{option} should be a string or a list of strings, got {values!r}")
    strings = []
    for value in values:
        if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
            raise SourceError(f"{option} should hold non-empty strings, found {value!r}")
        strings.append(os.fspath(value))
    return tuple(strings)


def _base_of(entry: str) -> str:
    path = os.path.abspath(entry)
    if os.path.isdir(path):
        return path
    parent = os.path.dirname(path)
    if os.path.lexists(path):
        return parent
    while WILDCARD.search(parent):
        parent = os.path.dirname(parent)
    return parent
