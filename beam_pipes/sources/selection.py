"""`FoundFile`: a file of an input, as it was found.

Globs over relative names with `/` between their parts.

Which objects of a remote input a source reads, and their names, as for files.

A listing says size, generation and checksums of every object, so nothing must be read to plan a build.

Which files a source reads: a directory, a file, a glob or a list of these → files with relative names, sorted.

Names are relative to the *base*: the directory itself, the file's directory, the part of a glob before its first
wildcard, or what the entries of a list have in common; `relative_to` sets it. Record ids and fingerprints are derived
from them, so an input may be moved as a whole.

Regular files only. A name with a part that begins with a dot is hidden: left out unless `hidden=True` or given as a
single file. Symbolic links are followed, loops are not. Inputs on `gs://`, `s3://`, `az://` and `hf://` are listed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from beam_pipes.cache.storage import absolute_path, is_remote, storage_for
from beam_pipes.errors import CacheNotFoundError, SourceError, StorageError


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read. `name` is relative to the base; the rest comes from `stat` when it was found.

    For an object, `content_digest` is its store's digest of the content, `inode` its generation, and both times are 0.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int = 0
    content_digest: str | None = None

    @classmethod
    def of(cls, name: str, path: str, status: os.stat_result) -> FoundFile:
        """A file on a file system, with its `stat`."""
        return cls(name, path, status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


WILDCARD = re.compile(r"[*?\[]")


@lru_cache(maxsize=256)
def matcher(patterns: tuple[str, ...]) -> Matcher:
    """Whether a relative name matches one of the globs; without globs, no name does."""
    return Matcher(patterns)


class Matcher:
    """Globs over relative names: `*` and `?` stay within one part, `**` crosses parts, `[…]` is a character class."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._regex = re.compile("|".join(map(_regex_of, patterns))) if patterns else None

    def __call__(self, name: str) -> bool:
        return self._regex is not None and self._regex.fullmatch(name) is not None


def _regex_of(pattern: str) -> str:
    out = ""
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            body = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, at = out + "[" + ("^" + body[1:] if body[0] == "!" else body) + "]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return f"(?:{out})"


def remote_base(selection: Selection) -> str:
    """The path that names are relative to. Raises `SourceError` for inputs that have none in common."""
    return _base(selection.entries, selection.relative_to)


@lru_cache(maxsize=64)
def _base(entries: tuple[str, ...], relative_to: str | None) -> str:
    schemes = {entry.partition("://")[0] if is_remote(entry) else "" for entry in entries}
    if len(schemes) > 1:
        raise SourceError(
            f"inputs {list(entries)!r} should all be on one service (gs://, s3:// or az://), or all on this machine"
        )
    scheme = f"{schemes.pop()}://"
    if relative_to is not None:
        return relative_to.rstrip("/")
    common = os.path.commonpath([_base_of(entry).removeprefix(scheme) for entry in entries])
    if not common:
        raise SourceError(f"inputs {list(entries)!r} have no bucket in common: declare one source for each bucket")
    return scheme + common


def _base_of(entry: str) -> str:
    if not WILDCARD.search(entry):
        return entry.rpartition("/")[0] if _is_object(entry) else entry.rstrip("/")
    parent = entry.rpartition("/")[0]
    while WILDCARD.search(parent):
        parent = parent.rpartition("/")[0]
    return parent


def remote_files(selection: Selection, entry: str, base: str) -> Iterator[FoundFile]:
    """The objects that one entry of a selection names. Raises `SourceError` if there is nothing to search."""
    storage: Any = storage_for(entry)
    patterns, top, recursive = selection.patterns, entry.rstrip("/"), selection.recursive
    try:
        if WILDCARD.search(entry):
            top = _base_of(entry)
            patterns, recursive = (entry[len(top) + 1 :],), True
        elif _is_object(entry):
            yield _found(storage.status(entry), base, selection)
            return
        objects: Iterable[Any] = storage.objects(top, recursive=recursive)
        if not objects and not storage.is_directory(top):
            raise SourceError(
                f"input {entry!r} does not exist: there is no object of this name, nor one below it", file=entry
            )
    except StorageError as error:
        raise SourceError(f"input {entry!r} cannot be read: {error}", file=entry) from error
    wanted, unwanted = matcher(patterns), matcher(selection.exclude)
    for status in objects:
        name = status.path[len(top) + 1 :]
        parts = name.split("/")
        directories = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if (
            wanted(name)
            and not unwanted(name)
            and not any(unwanted(each) or unwanted(f"{each}/") for each in directories)
            and (selection.hidden or not any(part.startswith(".") for part in parts))
        ):
            yield _found(status, base, selection)


def _found(status: Any, base: str, selection: Selection) -> FoundFile:
    if not status.path.startswith(f"{base}/"):
        raise SourceError(
            f"expected all inputs to be under relative_to={selection.relative_to!r}, found {status.path}",
            file=status.path,
        )
    name = status.path[len(base) + 1 :]
    return FoundFile(
        name, status.path, status.size, mtime_ns=0, inode=status.generation, content_digest=status.content_digest
    )


def _is_object(entry: str) -> bool:
    if entry.endswith("/") or not entry.partition("://")[2].partition("/")[2]:
        return False
    storage: Any = storage_for(entry)
    try:
        storage.status(entry)
    except CacheNotFoundError:
        return False
    except StorageError as error:
        raise SourceError(f"input {entry!r} cannot be read: {error}", file=entry) from error
    return True


Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected files and their names; checked and normalised by `select`."""

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
        bases = [_base_of_entry(entry) for entry in self.entries]
        try:
            return os.path.commonpath(bases)
        except ValueError as error:
            raise SourceError(f"inputs {list(self.entries)!r} have no directory in common: {error}") from error

    def path_of(self, name: str) -> str:
        """The path of the file with this name; refuses names that lead out of the base."""
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
                        f"expected all inputs to be under relative_to={self.relative_to!r}, found {path}", file=path
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
                base = _base_of_entry(entry)
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
                        if _leads_to_itself(entry):
                            continue
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


def _leads_to_itself(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link that leads only to itself, so that no content can be missed."""
    if not entry.is_symlink():
        return False
    try:
        entry.is_dir()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


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
    """The entry as an absolute path, because a stage may change the working directory before its files are read."""
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


def _base_of_entry(entry: str) -> str:
    path = os.path.abspath(entry)
    if os.path.isdir(path):
        return path
    parent = os.path.dirname(path)
    if os.path.lexists(path):
        return parent
    while WILDCARD.search(parent):
        parent = os.path.dirname(parent)
    return parent
