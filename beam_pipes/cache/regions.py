"""Files as memory: many files in one range of addresses, so that one NumPy call reads from all of them.

A loop over files costs as much as the copying (16 files: 504 against 1,185 million tokens a second). So a range of
addresses is reserved, without memory behind it, and each file is mapped at its place inside when it is first needed
(`MappedRegion`). Any byte of any file is then at `bases[file] + offset`: an *address*, counted from the start of the
range. `SeparateFiles` offers the same addresses over files that are mapped one by one, where a range cannot be
reserved.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from beam_pipes.cache.storage import open_regular, read_error
from beam_pipes.errors import CacheNotFoundError, CorruptCacheError, CorruptRecordError

Array = np.ndarray[Any, Any]

# From this mean number of elements on, copying run by run beats one index per element: measured on batches of 64, both
# take 90 µs at 100 elements; at 1,000 they take 120 and 224 µs.
LONG_RUN = 128


def overlapping_rows(memory: Array, row_bytes: int) -> Array:
    """A view of flat bytes as rows of `row_bytes` (at least 1), one starting at each byte.

    A fancy index into it copies whole rows. An opaque dtype makes that one `memcpy` a row: measured on rows of 4, 64,
    512 and 4,096 bytes, it takes 0.3, 0.3, 0.5 and 0.8 of the time of an index into a two-dimensional array.
    """
    count = max(0, len(memory) - row_bytes + 1)
    rows: Array = np.ndarray(shape=(count,), dtype=np.dtype((np.void, row_bytes)), buffer=memory, strides=(1,))
    return rows


def take_runs(memory: Array, starts: Array, counts: Array, dtype: np.dtype[Any]) -> Array:
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
    # Position of an element: where its run starts in memory, minus where it starts in the result, plus its place there.
    shifts = first - (np.cumsum(counts) - counts)
    taken: Array = units[np.repeat(shifts, counts) + np.arange(total)]
    return taken


class Located(NamedTuple):
    """Values stored in a region exactly as they are returned, those of one record at each address."""

    addresses: Array  # (n,) int64
    row_bytes: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    region: Region

    def rows(self, first: int, last: int) -> Array:
        """(last - first, *shape): a copy of these records."""
        rows = self.region.rows(self.addresses[first:last], self.row_bytes)
        return rows.view(self.dtype).reshape(last - first, *self.shape)


Check = Callable[[int, Array], None]  # (file, its bytes): raises where they are not what they should be

# Linux allows 65,530 maps a process by default: all regions together take at most this many, the rest is for others.
MAX_MAPS = 60_000
# Files that `SeparateFiles` keeps open.
MAX_SEPARATE_FILES = 1_000
# How often a file is asked for that another process removes before we have opened it.
_ATTEMPTS = 5


class Region(Protocol):
    """Many files as one memory."""

    bases: Array  # (files + 1,) int64: the address of each file's first byte
    keeps_files: bool  # whether a file that was opened stays open

    def prepare(self, files: Array) -> None:
        """Opens the given files if needed; call it before reading from them."""

    def rows(self, addresses: Array, row_bytes: int) -> Array:
        """(n, row_bytes) of opaque bytes flattened to (n,) void, a copy: `row_bytes` from each address."""

    def runs(self, addresses: Array, counts: Array, dtype: np.dtype[Any]) -> Array:
        """`counts[i]` elements from each address, one after the other, a copy. Addresses are aligned to the dtype."""

    def file(self, number: int) -> Array:
        """The bytes of one file, read-only and not copied."""

    def read(self, number: int, start: int, size: int) -> bytes:
        """A copy of `size` bytes of one file, or of fewer at its end."""


def open_region(
    paths: Callable[[int], str], sizes: Sequence[int], *, check: Check | None = None, max_bytes: int | None = None
) -> Region:
    """The region of files given by number; each is opened, and its size and content checked, when first needed.

    With `max_bytes`, files come and go: at most that many bytes of them stay open, and one that vanished between
    `paths` and opening it is requested again.
    """
    if max_bytes is not None:
        return SeparateFiles(paths, sizes, check=check, max_bytes=max_bytes)
    if sys.platform == "linux" and sys.maxsize > 1 << 32 and sum(_maps.values()) + len(sizes) <= MAX_MAPS:
        try:
            return MappedRegion(paths, sizes, check=check)
        except OSError:
            pass  # no address space left (ulimit -v)
    return SeparateFiles(paths, sizes, check=check)


def _bases(sizes: Array) -> Array:
    page = mmap.ALLOCATIONGRANULARITY
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(-(-sizes // page) * page)])


class MappedRegion:
    """See the module. Memory is unmapped when the last array over it is gone.

    Safe in threads and after a fork without a lock: two threads that map the same file put the same bytes in the same
    place, and the kernel swaps the maps under its own lock.
    """

    keeps_files = True

    def __init__(self, paths: Callable[[int], str], sizes: Sequence[int], *, check: Check | None = None) -> None:
        self._paths = paths
        self._sizes = np.asarray(sizes, np.int64)
        self._check = check
        self.bases = _bases(self._sizes)
        self._ready = np.zeros(len(self._sizes), bool)
        self._all_ready = False
        self._reservation = _Reservation(max(int(self.bases[-1]), mmap.ALLOCATIONGRANULARITY), len(self._sizes))
        self._bytes: Array = np.asarray(self._reservation)
        self._view = self._bytes.data
        self._begins: list[int] = self.bases.tolist()
        self._ends: list[int] = (self.bases[:-1] + self._sizes).tolist()
        self._mapped: set[int] = set()
        self._rows: dict[int, Array] = {}

    def prepare(self, files: Array) -> None:
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
            view = self._rows[row_bytes] = overlapping_rows(self._bytes, row_bytes)
        rows: Array = view[addresses]
        return rows

    def runs(self, addresses: Array, counts: Array, dtype: np.dtype[Any]) -> Array:
        return take_runs(self._bytes, addresses, counts, dtype)

    def file(self, number: int) -> Array:
        if not self._ready[number]:
            self._map(number)
        start = int(self.bases[number])
        return self._bytes[start : start + int(self._sizes[number])]

    def read(self, number: int, start: int, size: int) -> bytes:
        if number not in self._mapped:
            self.file(number)
            self._mapped.add(number)
        begin, end = self._begins[number], self._ends[number]
        # Never beyond the file, whatever a damaged index says: there is no memory behind it.
        first = min(max(begin + start, begin), end)
        return self._view[first : max(first, min(first + size, end))].tobytes()

    def _map(self, number: int) -> None:
        start, size = int(self.bases[number]), int(self._sizes[number])
        if size:
            descriptor = _open_checked(self._paths(number), size)
            try:
                self._reservation.map(descriptor, start, size)
            finally:
                os.close(descriptor)
        if self._check is not None:
            self._check(number, self._bytes[start : start + size])
        self._ready[number] = True


class SeparateFiles:
    """The slow, general way: one map per file, the latest ones kept open. Thread-safe."""

    keeps_files = False

    def __init__(
        self,
        paths: Callable[[int], str],
        sizes: Sequence[int],
        *,
        check: Check | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._paths = paths
        self._sizes = sizes
        self._check = check
        self._max_bytes = max_bytes
        self.bases = _bases(np.asarray(sizes, np.int64))
        self._open: dict[int, Array] = {}

    def prepare(self, files: Array) -> None:
        pass  # opened one by one

    def rows(self, addresses: Array, row_bytes: int) -> Array:
        files = np.searchsorted(self.bases, addresses, side="right") - 1
        made = np.empty(len(addresses), np.dtype((np.void, row_bytes)))
        for number in np.unique(files).tolist():
            chosen = files == number
            made[chosen] = overlapping_rows(self.file(number), row_bytes)[addresses[chosen] - self.bases[number]]
        return made

    def runs(self, addresses: Array, counts: Array, dtype: np.dtype[Any]) -> Array:
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
        found = self._open.get(number)
        if found is None:
            found = self._open[number] = self._map(number)
            for oldest in list(self._open)[: max(0, len(self._open) - MAX_SEPARATE_FILES)]:
                self._open.pop(oldest, None)
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
            self._open.pop(oldest, None)
            used -= int(self._sizes[oldest])

    def _map(self, number: int) -> Array:
        size = int(self._sizes[number])
        made: Array = np.empty(0, np.uint8)
        if size:
            descriptor = self._opened(number, size)
            try:
                made = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
            finally:
                os.close(descriptor)
        if self._check is not None:
            self._check(number, made)
        return made

    def _opened(self, number: int, size: int) -> int:
        if self._max_bytes is not None:
            for _ in range(_ATTEMPTS - 1):
                with contextlib.suppress(CacheNotFoundError):
                    return _open_checked(self._paths(number), size)
        return _open_checked(self._paths(number), size)


def _open_checked(path: str, size: int) -> int:
    """A descriptor of a file of exactly `size` bytes: reading a map beyond the end of its file kills the process."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError as error:
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


class _Reservation:
    """A range of addresses. Arrays made from it keep it alive; it is unmapped with the last of them."""

    def __init__(self, size: int, files: int) -> None:
        self._size = size
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self.address = _mmap(None, size, 0, flags, -1)
        _maps[self.address] = files
        weakref.finalize(self, _release, self.address, size).atexit = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self._size,), "typestr": "|u1", "data": (self.address, True)}

    def map(self, descriptor: int, offset: int, size: int) -> None:
        """Puts the file at `offset` of the range."""
        flags = mmap.MAP_SHARED | _MAP_FIXED
        _mmap(self.address + offset, size, mmap.PROT_READ, flags, descriptor)


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


def _mmap(address: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
    made = _libc().mmap(address, size, protection, flags, descriptor, 0)
    if made is None or made == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {size} bytes: {os.strerror(number)}")
    return int(made)


def _release(address: int, size: int) -> None:
    _maps.pop(address, None)
    _libc().munmap(address, size)
