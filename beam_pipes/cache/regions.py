"""Files as memory: many files in one range of addresses, so that one NumPy call reads from all of them.

A loop over files costs as much as the copying (16 files: 504 against 1,185 million tokens a second). So a range of
addresses is reserved, an *arena*, and each file is mapped at its place inside when it is first needed (`MappedRegion`).
Any byte of any file is then at `bases[file] + offset`: an *address*, counted from the start of the arena. The splits of
a process share one arena, so that one call copies the rows of a mixture too. Where no arena can be had, `SeparateFiles`
maps files one by one and counts addresses in those.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import functools
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter as _now
from typing import NamedTuple

import numpy as np

from beam_pipes.errors import CacheNotFoundError, CorruptCacheError, CorruptRecordError
from beam_pipes.format.dtypes import Array
from beam_pipes.storage.local import open_regular, read_error

# Above this mean number of elements, copying run by run is faster than one index per element. On batches of 64, both
# take 90 µs at 100 elements; at 1,000 they take 120 and 224 µs.
LONG_RUN = 128


def overlapping_rows(memory: Array, row_bytes: int) -> Array:
    """A view of flat bytes as rows of `row_bytes` (at least 1), one starting at each byte.

    A fancy index into it copies whole rows. An opaque dtype makes that one `memcpy` per row: on rows of 4, 64, 512 and
    4,096 bytes, it takes 0.3, 0.3, 0.5 and 0.8 of the time of an index into a two-dimensional array.
    """
    count = max(0, len(memory) - row_bytes + 1)
    rows: Array = np.ndarray(shape=(count,), dtype=np.dtype((np.void, row_bytes)), buffer=memory, strides=(1,))
    return rows


def take_runs(memory: Array, starts: Array, counts: Array, dtype: np.dtype) -> Array:
    """`counts[i]` elements from each byte offset `starts[i]`, one run after the other: (sum of counts,), a copy.

    Offsets are multiples of the itemsize.
    """
    total = int(counts.sum())
    if total == 0:
        return np.empty(0, dtype)
    itemsize = dtype.itemsize
    units: Array = memory[: len(memory) // itemsize * itemsize].view(dtype)
    first = starts // itemsize if itemsize > 1 else starts
    if total >= LONG_RUN * len(counts):
        pairs = zip(first.tolist(), (first + counts).tolist(), strict=True)
        return np.concatenate([units[start:end] for start, end in pairs])
    # An element's address: the start of its run in memory, minus the start of the run in the result, plus its position.
    shifts = first - (np.cumsum(counts) - counts)
    taken: Array = units[np.repeat(shifts, counts) + np.arange(total)]
    return taken


class ArenaValues(NamedTuple):
    """Values that lie in an arena in the form in which they are returned, one record's at each address.

    For a ragged feature, `lengths` are the leading dimensions; `row_bytes` and `shape` are those of one entry.
    """

    addresses: Array  # (n,) int64
    row_bytes: int
    dtype: np.dtype
    shape: tuple[int, ...]
    regions: tuple[MappedRegion, ...]  # of one arena
    lengths: Array | None = None  # (n,) int64

    def rows(self, first: int, last: int) -> Array:
        """(last - first, *shape): a copy of these records."""
        rows = self.regions[0].rows(self.addresses[first:last], self.row_bytes)
        made: Array = np.ndarray((last - first, *self.shape), self.dtype, rows)
        return made


def merged(parts: Sequence[ArenaValues], order: Array) -> ArenaValues | None:
    """The records of several splits as one: record `order[i]` is the i-th of all parts. None if one call cannot."""
    first = parts[0]
    regions = tuple(region for part in parts for region in part.regions)
    arena = regions[0].arena
    if any(part[1:4] != first[1:4] for part in parts) or any(region.arena is not arena for region in regions):
        return None
    addresses = np.empty(len(order), np.int64)
    addresses[order] = np.concatenate([part.addresses for part in parts])
    return ArenaValues(addresses, *first[1:4], regions)


Check = Callable[[int, Array], None]  # (file, its bytes): raises where they are not what they should be

# Linux allows 65,530 maps per process by default: all regions together use at most this many, the rest is for others.
MAX_MAPS = 60_000
# Addresses of an arena: more than the files of a process need, and a hundredth of all that exist.
ARENA_BYTES = 1 << 40
# Longer rows are copied one by one: a view of rows at every byte of an arena may have no more bytes than 2^63.
_LONG_ROW_BYTES = 1 << 16
# Files that `SeparateFiles` keeps open.
MAX_SEPARATE_FILES = 1_000
# Files that `ReadFiles` keeps open: a process may have 1,024 by default.
_READ_FILES = 256
# How often to try a file that another process keeps removing before we have opened it.
_ATTEMPTS = 5


class Region(abc.ABC):
    """Many files as one memory. Files are opened, and their sizes and contents checked, when they are first needed."""

    bases: Array  # (files + 1,) int64: the address of each file's first byte

    def __init__(self, paths: Callable[[int], str], sizes: Sequence[int], *, check: Check | None = None) -> None:
        self._paths = paths
        self._sizes = np.asarray(sizes, np.int64)
        self._check = check
        page = mmap.ALLOCATIONGRANULARITY
        self.bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(-(-self._sizes // page) * page)])

    def prepare(self, files: Array) -> None:  # noqa: B027 - most open their files one by one
        """Opens the given files if needed; call it before reading from them."""

    @abc.abstractmethod
    def rows(self, addresses: Array, row_bytes: int) -> Array:
        """(n, row_bytes) of opaque bytes flattened to (n,) void, a copy: `row_bytes` from each address."""

    @abc.abstractmethod
    def runs(self, addresses: Array, counts: Array, dtype: np.dtype) -> Array:
        """`counts[i]` elements from each address, one after the other, a copy. Addresses are aligned to the dtype."""

    @abc.abstractmethod
    def file(self, number: int) -> Array:
        """The bytes of one file, read-only and not copied."""

    @abc.abstractmethod
    def read(self, number: int, start: int, size: int) -> bytes:
        """A copy of `size` bytes of one file, or of fewer at its end."""


def open_region(
    paths: Callable[[int], str],
    sizes: Sequence[int],
    *,
    check: Check | None = None,
    max_bytes: int | None = None,
    mmap: bool = True,
) -> Region:
    """The region of files given by number; each is opened, and its size and content checked, when first needed.

    With `max_bytes`, files come and go: at most that many bytes of them stay open, and one that vanished between
    `paths` and opening it is requested again. Without `mmap`, they are read by `pread`.
    """
    if not mmap:
        return ReadFiles(paths, sizes, check=check)
    if max_bytes is not None:
        return SeparateFiles(paths, sizes, check=check, max_bytes=max_bytes)
    if sys.platform == "linux" and sys.maxsize > 1 << 32 and sum(_maps.values()) + len(sizes) <= MAX_MAPS:
        try:
            return MappedRegion(paths, sizes, check=check)
        except OSError:
            pass  # no address space left (ulimit -v)
    return SeparateFiles(paths, sizes, check=check)


class _Watch:
    """Checks whether mapped files still have all of their bytes, a few files at a time.

    Checks take at most 1/400 of the time: a single file is checked every 0.8 ms, each of a hundred every 80 ms.
    """

    def __init__(self) -> None:
        self._files: dict[int, tuple[str, int, int]] = {}
        self._turn = 0
        #: When to check again; readers compare it with `_now()`, because a call costs more.
        self.next = 0.0

    def add(self, number: int, path: str, descriptor: int, size: int) -> None:
        self._files[number] = path, os.fstat(descriptor).st_ino, size

    def remove(self, number: int) -> None:
        self._files.pop(number, None)

    def look(self) -> None:
        """Raises `CorruptRecordError` for a file that has become shorter, `CacheReadError` for one that is lost."""
        began = _now()
        files = list(self._files.values())
        first, self._turn = self._turn, self._turn + _FILES_A_LOOK if self._turn + _FILES_A_LOOK < len(files) else 0
        for path, inode, size in files[first : first + _FILES_A_LOOK]:
            try:
                found = os.stat(path)
            except FileNotFoundError:
                continue  # a removed file stays readable
            except OSError as error:
                raise read_error(path, error) from error
            if found.st_size < size and found.st_ino == inode:
                raise wrong_size(path, size, found.st_size)
        now = _now()
        self.next = now + 400 * (now - began)


_FILES_A_LOOK = 16


class MappedRegion(Region):
    """See the module. Memory is unmapped when the last array over it is gone.

    Safe in threads and after a fork without a lock: two threads that map the same file put the same bytes in the same
    place, and the kernel swaps the maps under its own lock.
    """

    def __init__(self, paths: Callable[[int], str], sizes: Sequence[int], *, check: Check | None = None) -> None:
        super().__init__(paths, sizes, check=check)
        own = self.bases
        self._ready = np.zeros(len(self._sizes), bool)
        self._all_ready = False
        self._part = _part_of_an_arena(max(int(own[-1]), mmap.ALLOCATIONGRANULARITY), len(self._sizes))
        self.arena = self._part.arena
        self.bases = own + self._part.start
        self._bytes: Array = np.asarray(self._part)
        self._view = self._bytes.data
        self._memory: Array = np.asarray(self.arena)
        self.memory = self._memory.data  # all of the arena
        self._begins: list[int] = own.tolist()
        self._ends: list[int] = (own[:-1] + self._sizes).tolist()
        self._mapped: set[int] = set()
        self._rows: dict[int, Array] = {}
        self._watch = _Watch()

    def prepare(self, files: Array) -> None:
        if _now() >= self._watch.next:
            self._watch.look()
        if self._all_ready:
            return
        missing = files[~self._ready[files]]
        if missing.size:
            for number in np.unique(missing).tolist():
                self._map(number)
            self._all_ready = bool(self._ready.all())

    def rows(self, addresses: Array, row_bytes: int) -> Array:
        view = self._rows.get(row_bytes)
        if view is None:
            if row_bytes > _LONG_ROW_BYTES:
                counts = np.full(len(addresses), row_bytes)
                return take_runs(self._memory, addresses, counts, np.dtype(np.uint8)).view(
                    np.dtype((np.void, row_bytes))
                )
            view = self._rows[row_bytes] = overlapping_rows(self._memory, row_bytes)
        rows: Array = view[addresses]
        return rows

    def runs(self, addresses: Array, counts: Array, dtype: np.dtype) -> Array:
        return take_runs(self._memory, addresses, counts, dtype)

    def file(self, number: int) -> Array:
        if not self._ready[number]:
            self._map(number)
        return self._bytes[self._begins[number] : self._ends[number]]

    def read(self, number: int, start: int, size: int) -> bytes:
        if _now() >= self._watch.next:
            self._watch.look()
        if number not in self._mapped:
            self.file(number)
            self._mapped.add(number)
        begin, end = self._begins[number], self._ends[number]
        first = begin + start
        last = first + size
        if not begin <= first <= last <= end:  # never beyond the file, whatever a damaged index says
            first = min(max(first, begin), end)
            last = max(first, min(first + size, end))
        return self._view[first:last].tobytes()

    def _map(self, number: int) -> None:
        begin, end = self._begins[number], self._ends[number]
        if begin < end:
            path = self._paths(number)
            descriptor = _open_checked(path, end - begin)
            try:
                self._part.map(descriptor, begin, end - begin)
                self._watch.add(number, path, descriptor, end - begin)
            finally:
                os.close(descriptor)
        if self._check is not None:
            self._check(number, self._bytes[begin:end])
        self._ready[number] = True


class SeparateFiles(Region):
    """The slow, general way: one map per file, the latest ones kept open. Thread-safe."""

    def __init__(
        self,
        paths: Callable[[int], str],
        sizes: Sequence[int],
        *,
        check: Check | None = None,
        max_bytes: int | None = None,
    ) -> None:
        super().__init__(paths, sizes, check=check)
        self._max_bytes = max_bytes
        self._open: dict[int, Array] = {}
        self._watch = _Watch()

    def rows(self, addresses: Array, row_bytes: int) -> Array:
        files = np.searchsorted(self.bases, addresses, side="right") - 1
        made = np.empty(len(addresses), np.dtype((np.void, row_bytes)))
        for number in np.unique(files).tolist():
            chosen = files == number
            made[chosen] = overlapping_rows(self.file(number), row_bytes)[addresses[chosen] - self.bases[number]]
        return made

    def runs(self, addresses: Array, counts: Array, dtype: np.dtype) -> Array:
        files = np.searchsorted(self.bases, addresses, side="right") - 1
        ends = np.cumsum(counts)
        made = np.empty(int(ends[-1]) if len(ends) else 0, dtype)
        filled = np.flatnonzero(counts)
        for number in np.unique(files[filled]).tolist():
            chosen = filled[files[filled] == number]
            found = take_runs(self.file(number), addresses[chosen] - self.bases[number], counts[chosen], dtype)
            at = 0
            for count, end in zip(counts[chosen].tolist(), ends[chosen].tolist(), strict=True):
                made[end - count : end] = found[at : at + count]
                at += count
        return made

    def file(self, number: int) -> Array:
        if _now() >= self._watch.next:
            self._watch.look()
        found = self._open.get(number)
        if found is None:
            found = self._open[number] = self._map(number)
            for oldest in list(self._open)[: max(0, len(self._open) - MAX_SEPARATE_FILES)]:
                self._close(oldest)
            if self._max_bytes is not None:
                self._close_oldest(self._max_bytes)
        return found

    def read(self, number: int, start: int, size: int) -> bytes:
        return self.file(number)[start : start + size].tobytes()

    def _close_oldest(self, max_bytes: int) -> None:
        """An open map keeps the disk space of a removed file."""
        opened = list(self._open)
        used = sum(int(self._sizes[each]) for each in opened)
        for oldest in opened[:-1]:
            if used <= max_bytes:
                return
            self._close(oldest)
            used -= int(self._sizes[oldest])

    def _close(self, number: int) -> None:
        self._open.pop(number, None)
        self._watch.remove(number)

    def _map(self, number: int) -> Array:
        size = int(self._sizes[number])
        made: Array = np.empty(0, np.uint8)
        if size:
            path, descriptor = self._opened(number, size)
            try:
                made = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
                self._watch.add(number, path, descriptor, size)
            finally:
                os.close(descriptor)
        if self._check is not None:
            self._check(number, made)
        return made

    def _opened(self, number: int, size: int) -> tuple[str, int]:
        for _ in range(0 if self._max_bytes is None else _ATTEMPTS - 1):
            with contextlib.suppress(CacheNotFoundError):
                path = self._paths(number)
                return path, _open_checked(path, size)
        path = self._paths(number)
        return path, _open_checked(path, size)


class _OpenFile:
    """A descriptor that is closed with the last thread that reads from it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class ReadFiles(Region):
    """Reads files by `pread` and never maps them: an error where a map would end the process. Thread-safe.

    One call per row: on batches of 32 × 1,024 tokens, 81 µs against 23 µs.
    """

    def __init__(self, paths: Callable[[int], str], sizes: Sequence[int], *, check: Check | None = None) -> None:
        super().__init__(paths, sizes, check=check)
        self._open: dict[int, _OpenFile] = {}

    def rows(self, addresses: Array, row_bytes: int) -> Array:
        return self.runs(addresses, np.ones(len(addresses), np.int64), np.dtype((np.void, row_bytes)))

    def runs(self, addresses: Array, counts: Array, dtype: np.dtype) -> Array:
        files = np.searchsorted(self.bases, addresses, side="right") - 1
        starts, sizes = addresses - self.bases[files], counts * dtype.itemsize
        parts = bytearray().join(map(self.read, files.tolist(), starts.tolist(), sizes.tolist()))
        made: Array = np.ndarray((len(parts) // dtype.itemsize,), dtype, parts)
        return made

    def file(self, number: int) -> Array:
        return np.frombuffer(self.read(number, 0, int(self._sizes[number])), np.uint8)

    def read(self, number: int, start: int, size: int) -> bytes:
        whole = int(self._sizes[number])
        wanted = max(0, min(start + size, whole) - start)
        if not wanted:
            return b""
        file = self._open.get(number) or self._opened(number, whole)
        try:
            found = os.pread(file.descriptor, wanted, start)
        except OSError as error:
            raise read_error(self._paths(number), error) from error
        if len(found) < wanted:
            raise wrong_size(self._paths(number), whole, os.fstat(file.descriptor).st_size)
        return found

    def _opened(self, number: int, size: int) -> _OpenFile:
        path = self._paths(number)
        file = _OpenFile(_open_checked(path, size))
        if self._check is not None:
            self._check(number, np.frombuffer(os.pread(file.descriptor, size, 0), np.uint8))
        self._open[number] = file
        for oldest in list(self._open)[: max(0, len(self._open) - _READ_FILES)]:
            self._open.pop(oldest, None)
        return file


def refuse_removed(path: str, error: BaseException) -> None:
    """Raises `CacheNotFoundError`, naming who removed it, if a missing file is one of a snapshot that was removed."""
    from beam_pipes.publication.publish import removal_of  # publishing reads caches, and so imports this

    removed = removal_of(path)
    if removed is not None:
        raise CacheNotFoundError(
            f"{path}: {removed}. Open the cache again to read what is published now. A build keeps more old snapshots "
            "with --keep, and those on which readers have a lease (not with gc --ignore-leases).",
            path=path,
        ) from error


def _open_checked(path: str, size: int) -> int:
    """A descriptor of a file of exactly `size` bytes: reading a map beyond the end of its file kills the process."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError as error:
        refuse_removed(path, error)
        raise CacheNotFoundError(
            f"{path}: expected a file of {size} bytes, as the manifest says, but there is none. Copy the whole "
            "snapshot, or rebuild the cache.",
            path=path,
        ) from error
    except OSError as error:
        raise read_error(path, error) from error
    found = os.fstat(descriptor).st_size
    if found != size:
        os.close(descriptor)
        raise wrong_size(path, size, found)
    return descriptor


def wrong_size(path: str, expected: int, found: int) -> CorruptCacheError:
    return CorruptRecordError(
        f"{path}: expected {expected} bytes, as the manifest says, found {found}. The file was "
        f"{'truncated' if found < expected else 'changed after it was written'}; copy it again, or build the cache "
        "again.",
        path=path,
        offset=min(expected, found),
        expected=expected,
        found=found,
        problem="size",
    )


# Address of each region → the files that it may map.
_maps: dict[int, int] = {}

_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Arena:
    """A range of addresses for files: parts are taken from it in order, and no address is given out twice.

    Where no file is mapped it reads as zeros: no operation on an array of it can end the process. It is unmapped with
    the last of its parts.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self.address = _map_nothing(None, size)
        weakref.finalize(self, _unmap, self.address, size).atexit = False

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.address, True)}


class _Part:
    """Addresses of an arena. Arrays made from it keep its files mapped; the last of them unmaps the files."""

    def __init__(self, arena: _Arena, start: int, size: int, files: int) -> None:
        self.arena, self.start = arena, start
        self._address, self._size = arena.address + start, size
        _maps[self._address] = files
        weakref.finalize(self, _release, arena, self._address, size).atexit = False

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {"version": 3, "shape": (self._size,), "typestr": "|u1", "data": (self._address, True)}

    def map(self, descriptor: int, offset: int, size: int) -> None:
        """Puts the file at `offset` of the part."""
        _mmap(self._address + offset, size, mmap.MAP_SHARED | _MAP_FIXED, descriptor)


_arenas: list[_Arena] = []  # parts are taken from this one
_taking = threading.Lock()


def _new_lock() -> None:
    global _taking
    _taking = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


def _part_of_an_arena(size: int, files: int) -> _Part:
    """A part of the arena that the splits share, or of its own arena where there is no room for that (`ulimit -v`)."""
    size = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
    with _taking:
        arena = _arenas[-1] if _arenas else None
        if arena is None or arena.taken + size > arena.size:
            try:
                arena = _Arena(max(ARENA_BYTES, size))
            except OSError:
                arena = _Arena(size)
            _arenas[:] = [arena]
        start, arena.taken = arena.taken, arena.taken + size
    return _Part(arena, start, size, files)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _mmap(address: int | None, size: int, flags: int, descriptor: int) -> int:
    made = _libc().mmap(address, size, mmap.PROT_READ, flags, descriptor, 0)
    if made is None or made == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {size} bytes: {os.strerror(number)}")
    return int(made)


def _map_nothing(address: int | None, size: int) -> int:
    """Reserves addresses without memory: at `address` in place of what is there, or where there is room."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | (0 if address is None else _MAP_FIXED)
    return _mmap(address, size, flags, -1)


def _release(arena: _Arena, address: int, size: int) -> None:
    """Unmaps the files of a part; its arena is kept until then."""
    _maps.pop(address, None)
    _map_nothing(address, size)


def _unmap(address: int, size: int) -> None:
    _libc().munmap(address, size)
