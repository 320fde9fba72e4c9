"""`select`: which files a source reads: a directory, a file, a glob or a list of these → files with relative names.

    select("talks", pattern="**/*.txt").find()  →  talks/a.txt as "a.txt", talks/en/b.txt as "en/b.txt"

Names are relative to the *base*: the directory itself, the file's directory, the part of a glob before its first
wildcard, or what the entries of a list have in common; `relative_to` sets it. Record ids and fingerprints are derived
from them, so an input may be moved as a whole. They have `/` between their parts, and globs are matched with them.

A file that several entries match, as `corpus` and `corpus/a*.txt` do, is read once; the same entry twice is refused.

Regular files only. A name with a part that begins with a dot is hidden: left out unless `hidden=True` or given as a
single file. Symbolic links are followed, loops are not. Directories are walked, by `Helpers` once there are many files.
Inputs on `gs://`, `s3://`, `az://` and `hf://` are listed, which says the size, generation and checksums of every
object, so that nothing must be read to plan a build.

What was found is a `FoundFile`, a row of the columns of `FoundFiles`.
"""

from __future__ import annotations

import difflib
import errno
import itertools
import os
import re
import stat
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from beam_pipes.errors import CacheNotFoundError, SourceError, StorageError
from beam_pipes.sources.helpers import Helpers
from beam_pipes.storage.local import absolute_path, is_remote, path_below, storage_for

if TYPE_CHECKING:
    from beam_pipes.storage.objects import ObjectStorage
    from beam_pipes.storage.transfer import ObjectStatus

WILDCARD = re.compile(r"[*?\[]")

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


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
    absolute = tuple(map(_absolute, entries))
    counts = Counter(path.rstrip("/") for path in absolute)
    if twice := [path for path, count in counts.items() if count > 1]:
        # Not read twice: ids of records would repeat. Not silently read once: a path may be repeated on purpose.
        raise SourceError(
            f"paths should name each input once, found {twice[0]!r} {counts[twice[0]]} times: a file is read "
            "once, however often it is named. Name it once; to see its records more often than others, build it "
            "into a cache of its own and load that at a higher rate of a Mixture",
            inputs=tuple(twice),
        )
    return Selection(
        entries=absolute,
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


#: Suffixes of compressed files, those that sources decompress and others.
_COMPRESSED = (".bz2", ".gz", ".lz4", ".xz", ".zip", ".zst", ".zstd")


_HIDDEN = "; hidden files are left out, but for one that is named itself (in a declaration also with hidden=True)"


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
            return _remote_base(self.entries, self.relative_to)
        if self.relative_to is not None:
            return os.path.abspath(self.relative_to)
        bases = [_top_of(os.path.abspath(entry))[0] for entry in self.entries]
        try:
            return os.path.commonpath(bases)
        except ValueError as error:
            raise SourceError(f"inputs {list(self.entries)!r} have no directory in common: {error}") from error

    def path_of(self, name: str) -> str:
        """The path of the file with this name; refuses names that lead out of the base."""
        base = self.base()
        if ".." in name.split("/") or (name.startswith("/") and not is_remote(base)):
            raise SourceError(f"expected a file name relative to {base}, without '..', got {name!r}", file=name)
        if is_remote(base):
            return f"{base}/{name}"
        return os.path.join(base, *name.split("/"))

    def find(self, helpers: Helpers | None = None) -> FoundFiles:
        """All selected files, sorted by name, listed by `helpers` where there are many; `SourceError` for none."""
        base = self.base()
        found = FoundFiles(base)
        known: dict[str, str] = {}
        for entry in self.entries:
            if (other := known.setdefault(entry if is_remote(base) else os.path.realpath(entry), entry)) != entry:
                raise SourceError(
                    f"paths should name each input once, and {other!r} and {entry!r} are one, because a link leads "
                    "from one to the other: every record would be there twice. Name one of them."
                )
            if is_remote(base):
                for file in _remote_files(self, entry, base, found.left_out):
                    found.add_object(file)
            else:
                self._find_local(entry, base, found, helpers)
        if not found:
            raise SourceError(
                f"no file matches: looked in {', '.join(map(repr, self.entries))} for pattern "
                f"{' or '.join(map(repr, self.patterns))}"
                + (f", excluding {', '.join(map(repr, self.exclude))}" if self.exclude else "")
                + ("" if self.hidden else _HIDDEN)
                + self._compressed(),
                inputs=self.entries,
            )
        return found.in_order()

    def entry_that_finds(self, names: Sequence[str], directory: str) -> str | None:
        """The entry that would find files of these names in a directory, which need not exist; None if none would."""
        for entry in self.entries:
            remote = is_remote(entry)
            if entry.split("/")[:3] != directory.split("/")[:3] if remote else is_remote(directory):  # another bucket
                continue
            top, named, is_file = _top_of(entry if remote else os.path.abspath(entry))
            inside = None if is_file else path_below(directory, top)
            shown = inside is not None and (self.hidden or "/." not in f"/{inside}")
            if shown and (self.recursive or remote and named):
                wanted, unwanted = matcher((named,) if named else self.patterns), matcher(self.exclude)
                if any(wanted(f"{inside}{name}") and not unwanted(f"{inside}{name}") for name in names):
                    return entry
        return None

    def _compressed(self) -> str:
        """What to add to a message about files that are not there, if they are there with a suffix of compression."""
        names = [entry for entry in self.entries if WILDCARD.search(entry)] or self.patterns
        if any(name.endswith(_COMPRESSED) for name in names) or any(map(is_remote, self.entries)):
            return ""
        longer = tuple(f"{name}{suffix}" for name in names for suffix in _COMPRESSED)
        try:
            is_glob = names is not self.patterns
            found = (replace(self, entries=longer) if is_glob else replace(self, patterns=longer)).find()
        except SourceError:
            return ""
        name = next(iter(found)).name
        return (
            f"; {len(found):,} that match but for their suffix are compressed ({name!r}): name them with it if this "
            "source decompresses them (.gz, .bz2, .zst), else decompress them first"
        )

    def _find_local(self, entry: str, base: str, found: FoundFiles, helpers: Helpers | None) -> None:
        path, patterns = os.path.abspath(entry), self.patterns
        try:
            status = os.stat(path)
        except OSError as error:
            if not WILDCARD.search(entry):
                raise SourceError(
                    f"input {entry!r} cannot be read: {error.strerror or error}{_beside(path)}", file=entry
                ) from error
            top, pattern, _ = _top_of(path)
            if not os.path.isdir(top):
                raise SourceError(
                    f"input {entry!r} does not exist: there is no directory {top!r} to look in", file=entry
                ) from error
            patterns, path, status = (pattern,), top, os.stat(top)
        if stat.S_ISDIR(status.st_mode):
            self._walk(path, patterns, base, found, helpers)
        elif stat.S_ISREG(status.st_mode):
            found.add(self._name_of(path, base), status)
        else:
            raise SourceError(f"input {entry!r} should be a regular file or a directory", file=entry)

    def _name_of(self, path: str, base: str) -> str:
        name = os.path.relpath(path, base).replace(os.sep, "/")
        if f"{name}/".startswith("../"):
            raise SourceError(
                f"expected all inputs to be under relative_to={self.relative_to!r}, found {path}", file=path
            )
        return name

    def _walk(self, top: str, patterns: tuple[str, ...], base: str, found: FoundFiles, helpers: Helpers | None) -> None:
        above = self._name_of(top, base)
        walk = _Walk(self, patterns, base, "" if above == "." else f"{above}/")
        waiting: list[Waiting] = [(top, "", ())]
        while waiting:
            if helpers is None or len(found) < MANY_FILES or len(waiting) == 1:
                parts = [walk.listed([waiting.pop()])]
            else:
                size = min(-(-len(waiting) // (2 * helpers.count)), 64)
                parts = helpers.map(walk.listed, [waiting[at : at + size] for at in range(0, len(waiting), size)])
                waiting = []
            for files, directories in parts:
                found.extend(files)
                waiting += directories


def _beside(path: str) -> str:
    """What is where a path should be: `. In '/data' there is: a.csv, b.csv`; nothing if that cannot be read."""
    directory, name = os.path.split(path)
    try:
        there = sorted(each for each in os.listdir(directory) if not each.startswith("."))
    except OSError:
        return ""
    close = difflib.get_close_matches(name, there, n=5, cutoff=0.4) or there[:5]
    more = ", …" if len(there) > len(close) else ""
    return f". In {directory!r} there is: {', '.join(close) or 'nothing'}{more}"


def _top_of(path: str) -> tuple[str, str, bool]:
    """(directory, what a path names in it, whether that is one file); '' names the directory itself.

    On every store, an existing path with exactly this name is meant, also for directories before a glob: `a[1]/*.txt`
    looks into `a[1]` if there is one.
    """
    if remote := is_remote(path):
        _require_no_dots(path)
    is_directory = _is_directory if remote else os.path.isdir
    top, _, name = path.rpartition("/")
    if _is_object(path) if remote else (os.path.lexists(path) and not os.path.isdir(path)):
        return top or "/", name, True
    if not WILDCARD.search(path) or is_directory(path):
        return (path.rstrip("/") if remote else path), "", False
    while WILDCARD.search(top) and not is_directory(top):
        top = top.rpartition("/")[0]
    return top or "/", path[len(top) + 1 :], False


# On this machine.

# From this number of files on, helper processes save more than they take to start: 0.4 s of a core each.
MANY_FILES = 20_000

# A directory to be listed: its path, its name relative to the top of the walk with a final slash, and the identities of
# the directories above it.
Waiting: TypeAlias = "tuple[str, str, tuple[tuple[int, int], ...]]"


class _Walk(NamedTuple):
    """How the directories below one entry are listed; names begin with `prefix`."""

    selection: Selection
    patterns: tuple[str, ...]
    base: str
    prefix: str

    def listed(self, waiting: list[Waiting]) -> tuple[FoundFiles, list[Waiting]]:
        """The files in some directories, and the directories in them."""
        takes_all = self.patterns == ("**/*",) and not self.selection.exclude
        wanted, unwanted = matcher(self.patterns), matcher(self.selection.exclude)
        recursive, hidden = self.selection.recursive, self.selection.hidden
        crosses = recursive and any("**" in pattern for pattern in self.patterns)  # into hidden directories too
        found, directories = FoundFiles(self.base), list[Waiting]()
        for directory, inside, above in waiting:
            try:
                identity = os.stat(directory)
                if (key := (identity.st_dev, identity.st_ino)) in above:
                    found.left_out[self.prefix + inside] = "link to itself"
                    continue
                with os.scandir(directory) as entries:
                    for entry in entries:
                        name = inside + entry.name
                        if not hidden and entry.name.startswith("."):
                            if takes_all or wanted(name) or (crosses and entry.is_dir() and not unwanted(name + "/")):
                                found.left_out[self.prefix + name] = "hidden"
                        elif _leads_to_itself(entry):
                            found.left_out[self.prefix + name] = "link to itself"
                        elif entry.is_dir():
                            if recursive and not unwanted(name) and not unwanted(name + "/"):
                                directories.append((entry.path, name + "/", (*above, key)))
                        elif takes_all or (wanted(name) and not unwanted(name)):
                            status = entry.stat()
                            if stat.S_ISREG(status.st_mode):
                                found.add(self.prefix + name, status)
                            else:
                                found.left_out[self.prefix + name] = "pipe or device"
            except OSError as error:
                where = error.filename or directory
                said = f"input {where} cannot be read: {error.strerror or error}"
                if error.errno == errno.ENOENT and os.path.islink(where):
                    said = f"input {where} is a link to nothing: there is no {os.readlink(where)!r}"
                    said += ". Restore what it leads to, or remove the link"
                elif error.errno == errno.EACCES:
                    said += ". Give this account the right to list it (chmod a+rx DIRECTORY)"
                raise SourceError(said, file=where) from error
        return found, directories


def _leads_to_itself(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link that leads only to itself, so that no content can be missed."""
    if not entry.is_symlink():
        return False
    try:
        entry.is_dir()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


# On object stores.


@lru_cache(maxsize=64)
def _remote_base(entries: tuple[str, ...], relative_to: str | None) -> str:
    """The path that names are relative to. Raises `SourceError` for inputs that have none in common."""
    schemes = {entry.partition("://")[0] if is_remote(entry) else "" for entry in entries}
    if len(schemes) > 1:
        raise SourceError(
            f"inputs {list(entries)!r} should all be on one service (gs://, s3:// or az://), or all on this machine"
        )
    scheme = f"{schemes.pop()}://"
    if relative_to is not None:
        return relative_to.rstrip("/")
    if len({entry.removeprefix(scheme).partition("/")[0] for entry in entries}) > 1:
        raise SourceError(f"inputs {list(entries)!r} have no bucket in common: declare one source for each bucket")
    # Not `os.path.commonpath`, which takes `a//b` for `a/b`: keys of objects are not paths.
    parts = zip(*(_top_of(entry)[0].removeprefix(scheme).split("/") for entry in entries), strict=False)
    return scheme + "/".join(each[0] for each in itertools.takewhile(lambda each: len(set(each)) == 1, parts))


def _objects(entry: str) -> ObjectStorage:
    storage: Any = storage_for(entry)  # a path with a scheme has an object store
    made: ObjectStorage = storage
    return made


def _remote_files(selection: Selection, entry: str, base: str, left_out: dict[str, str]) -> Iterator[FoundFile]:
    """The objects that one entry of a selection names. Raises `SourceError` if there is nothing to search."""
    storage = _objects(entry)
    patterns, recursive = selection.patterns, selection.recursive
    try:
        top, named, is_file = _top_of(entry)
        if is_file:
            yield _found(storage.status(entry), base, selection)
            return
        if named:
            patterns, recursive = (named,), True
        objects = storage.objects(top, recursive=recursive)
        if not objects and not storage.is_directory(top):
            raise SourceError(
                f"input {entry!r} does not exist: there is no object of this name, nor one below it"
                + (" (a slash in a revision is written %2F)" if entry.startswith("hf://") and "@" in entry else ""),
                file=entry,
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
        ):
            _require_no_dots(status.path)
            if not selection.hidden and any(part.startswith(".") for part in parts):
                left_out[status.path] = "hidden"
                continue
            yield _found(status, base, selection)


def _require_no_dots(path: str) -> None:
    if {".", ".."} & set(path.split("/")):
        raise SourceError(
            f"object {path!r} cannot be read: its name has a part '.' or '..', which is another path to what reads "
            "URLs. Rename it, or leave it out of the pattern.",
            file=path,
        )


def _found(status: ObjectStatus, base: str, selection: Selection) -> FoundFile:
    path, name = status.path, status.path[len(base) + 1 :]
    if not path.startswith(f"{base}/"):
        raise SourceError(
            f"expected all inputs to be under relative_to={selection.relative_to!r}, found {path}", file=path
        )
    return FoundFile(name, path, status.size, 0, status.generation, content_digest=status.content_digest)


def _is_object(entry: str) -> bool:
    if entry.endswith("/") or not entry.partition("://")[2].partition("/")[2]:
        return False
    try:
        _objects(entry).status(entry)
    except CacheNotFoundError:
        return False
    except StorageError as error:
        raise SourceError(f"input {entry!r} cannot be read: {error}", file=entry) from error
    return True


def _is_directory(entry: str) -> bool:
    try:
        return _objects(entry).is_directory(entry)
    except StorageError as error:
        raise SourceError(f"input {entry!r} cannot be read: {error}", file=entry) from error


# Globs.


@lru_cache(maxsize=256)
def matcher(patterns: tuple[str, ...]) -> Matcher:
    """Whether a relative name matches one of the globs; without globs, no name does."""
    return Matcher(patterns)


class Matcher:
    """Globs over relative names: `*` and `?` stay within one part, `**` crosses parts, `[…]` is a character class."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        try:
            # Names may hold line ends.
            self._regex = re.compile("|".join(map(_regex_of, patterns)), re.DOTALL) if patterns else None
        except re.error as error:
            raise SourceError(f"{patterns!r} should be globs: {error}. Write '[[]' for a bracket in a name.") from error

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
            body = re.sub(r"([\\\[^&~|])", r"\\\1", pattern[at + 1 : end])
            out, at = out + "[" + ("^" + body[1:] if body[0] == "!" else body) + "]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return f"(?:{out})"


# What was found.


class FoundFile(NamedTuple):
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


class FoundFiles:
    """Files below one base, as columns: a million of them take 110 MB, against 500 as objects.

    `left_out`: entries of directories that are not among them → why; of a hidden directory, only itself.
    """

    def __init__(self, base: str) -> None:
        self.left_out: dict[str, str] = {}
        self.top = base if base.endswith("/") else f"{base}/"
        self.names: list[str] = []
        self.sizes = array("q")
        self.mtimes_ns = array("q")
        self.ctimes_ns = array("q")
        # Generations of objects may be longer than inodes.
        self.inodes: array[int] | list[int] = [] if is_remote(base) else array("Q")
        self.content_digests: list[str | None] = []  # of objects only

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> FoundFile:
        name = self.names[index]
        return FoundFile(
            name,
            self.top + name,
            self.sizes[index],
            self.mtimes_ns[index],
            self.inodes[index],
            self.ctimes_ns[index],
            self.content_digests[index] if self.content_digests else None,
        )

    def __iter__(self) -> Iterator[FoundFile]:
        paths = map(self.top.__add__, self.names)
        digests = self.content_digests or itertools.repeat(None)
        columns = (self.names, paths, self.sizes, self.mtimes_ns, self.inodes, self.ctimes_ns, digests)
        return map(FoundFile._make, zip(*columns, strict=False))

    def add(self, name: str, status: os.stat_result) -> None:
        """Adds a file of a file system."""
        self.names.append(name)
        self.sizes.append(status.st_size)
        self.mtimes_ns.append(status.st_mtime_ns)
        self.inodes.append(status.st_ino)
        self.ctimes_ns.append(status.st_ctime_ns)

    def add_object(self, file: FoundFile) -> None:
        """Adds an object of a store."""
        for column, value in zip(self._columns(), (file.name, file.size, 0, file.inode, 0), strict=True):
            column.append(value)
        self.content_digests.append(file.content_digest)

    def extend(self, other: FoundFiles) -> None:
        for column, more in zip(self._columns(), other._columns(), strict=True):
            column.extend(more)
        self.left_out |= other.left_out

    def _columns(self) -> tuple[Any, ...]:
        return self.names, self.sizes, self.mtimes_ns, self.inodes, self.ctimes_ns

    def selected(self, indices: Sequence[int]) -> FoundFiles:
        """These files alone, in this order."""
        made = FoundFiles(self.top)
        for column, mine in zip(made._columns(), self._columns(), strict=True):
            if isinstance(mine, array):
                column.frombytes(np.frombuffer(mine, mine.typecode)[indices].tobytes())
            else:
                column.extend(map(mine.__getitem__, indices))
        if self.content_digests:
            made.content_digests = [self.content_digests[index] for index in indices]
        return made

    def in_order(self) -> FoundFiles:
        """Sorted by name, each once."""
        made = self.selected(sorted(range(len(self)), key=self.names.__getitem__))
        names = made.names
        if any(map(str.__eq__, names, itertools.islice(names, 1, None))):
            made = made.selected([at for at, name in enumerate(names) if not at or names[at - 1] != name])
        made.left_out = self.left_out
        return made

    def __getstate__(self) -> dict[str, object]:
        # Joined to one string, names travel in a third of the time.
        return {**vars(self), "names": "\0".join(self.names)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, names=state["names"].split("\0") if state["names"] else [])
