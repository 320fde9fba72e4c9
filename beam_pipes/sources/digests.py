"""Digests of files that have not changed since the last plan, so that they are not read again.

An entry is trusted for the same path, size, inode, time of modification and time of change. The last one matters most:
programs set the time of modification freely (`touch -r`, `tar`, `rsync -t`), and a file system gives the
inode of a removed file to the next one. A file that changed within the resolution of its file system's clock before it
was hashed is not entered: it could change again without its times moving.

Everything that an entry is trusted for is hashed to its *key*: a file of a million digests takes 48 bytes for each:

    magic, version        16 bytes
    number of rows        8 bytes
    key, digest           16 + 32 bytes per row, by key (two little-endian numbers): files that are one slice
    JSON                  key (hex) → slices, of all other files
    crc32c                4 bytes, of everything before

It is rewritten and renamed, and read whole: it needs no locks, which network file systems and object stores lack.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_pipes.sources.selection import FoundFile, FoundFiles
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import is_remote, storage_for, temporary_path, times_have_settled
from beam_pipes.storage.locks import reached

# In the directory of a cache.
DIGESTS_NAME = ".digests"

# The format's magic number and version. Versions up to 3 were JSON.
_MAGIC = b"\x89digests\r\n\x1a\n" + (4).to_bytes(4, "little")
_COUNT = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")

KEY_BYTES = 16
DIGEST_BYTES = 32
_ROW = np.dtype([("key", "<u8"), ("rest", "<u8"), ("digest", f"V{DIGEST_BYTES}")])
Rows = npt.NDArray[np.void]


class Cut(NamedTuple):
    """One slice of a file at planning: its range, how many stored bytes it stands for, and their digest.

    `stored` is as in `Slice`.
    """

    start: int
    end: int
    num_bytes: int
    digest: str
    stored: tuple[int, int, int] | None = None


def keys_of(files: FoundFiles, variant: str, variant_of_large: str, *, target: int) -> bytes:
    """`key_of` of every file; those larger than `target` are cut differently from the others."""
    small, large = (f"{each}\0{files.top}" for each in (variant, variant_of_large))
    blake2b = hashlib.blake2b
    columns = (files.names, files.sizes, files.mtimes_ns, files.inodes, files.ctimes_ns)
    return b"".join(
        blake2b(
            f"{small if size <= target else large}{name}\0{size} {mtime_ns} {inode} {ctime_ns}".encode(
                "utf-8", "surrogateescape"
            ),
            digest_size=KEY_BYTES,
        ).digest()
        for name, size, mtime_ns, inode, ctime_ns in zip(*columns, strict=True)
    )


def key_of(file: FoundFile, variant: str) -> bytes:
    """A digest of everything that identifies the slices of a file, 16 bytes; `variant` names the way in which it is
    cut.

    Paths are hashed: a cache is copied and published, and should not show where files are.
    """
    text = f"{variant}\0{file.path}\0{file.size} {file.mtime_ns} {file.inode} {file.ctime_ns}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


class Cuts:
    """The slices of files, by index: a digest for a file that is one slice of all its bytes, all slices for others."""

    def __init__(self, count: int) -> None:
        self.digests = np.zeros((count, DIGEST_BYTES), np.uint8)
        self.others: dict[int, list[Cut]] = {}

    def of(self, index: int, size: int) -> list[Cut]:
        """The slices of a file of `size` bytes."""
        cuts = self.others.get(index)
        return [Cut(0, size, size, self.digests[index].tobytes().hex())] if cuts is None else cuts

    @classmethod
    def of_all(cls, files: Iterable[tuple[int, list[Cut]]]) -> Cuts:
        """From the sizes and slices of all files."""
        digests, others, zeros = list[bytes](), dict[int, list[Cut]](), bytes(DIGEST_BYTES)
        for index, (size, cuts) in enumerate(files):
            if len(cuts) == 1 and cuts[0][:3] == (0, size, size) and cuts[0].stored is None:
                digests.append(bytes.fromhex(cuts[0].digest))
            else:
                digests.append(zeros)
                others[index] = cuts
        made = cls(len(digests))
        made.digests[:] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)
        made.others = others
        return made

    def take(self, indices: Sequence[int], part: Cuts) -> None:
        """Adds the slices of these files, which `part` numbers from 0."""
        self.digests[list(indices)] = part.digests
        self.others.update((indices[place], cuts) for place, cuts in part.others.items())


class DigestCache:
    """Slices by file, kept in a file between builds; safe to lose. Not for use by several processes at once."""

    def __init__(self, rows: Rows | None = None, cuts: JsonObject | None = None) -> None:
        self._rows = rows if rows is not None else np.empty(0, _ROW)
        self._firsts = np.ascontiguousarray(self._rows["key"])
        self._cuts = dict(cuts or {})
        self._used: list[Rows] = []
        self._used_cuts: dict[str, list[Cut]] = {}
        self._saved_at: str | None = None
        self.hits = 0
        self.misses = 0

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DigestCache:
        """From a file that `save` wrote; empty if it is missing or unreadable."""
        try:
            data = storage_for(path).read_bytes(os.fspath(path))
            head = len(_MAGIC) + _COUNT.size
            end = len(data) - _CHECKSUM.size
            if data[: len(_MAGIC)] != _MAGIC or google_crc32c.value(data[:end]) != _CHECKSUM.unpack_from(data, end)[0]:
                return cls()
            (count,) = _COUNT.unpack_from(data, len(_MAGIC))
            rows = np.frombuffer(data, _ROW, count, head)
            made = cls(rows, json.loads(data[head + rows.nbytes : end]))
            made._saved_at = os.fspath(path)
            return made
        except (OSError, ValueError, TypeError, struct.error):
            return cls()

    def __len__(self) -> int:
        return len(self._rows) + len(self._cuts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Atomically; keeps the entries that were looked up or added since `load`."""
        used = sum(map(len, self._used)), len(self._used_cuts)
        if self._saved_at == os.fspath(path) and not self.misses and used == (len(self._rows), len(self._cuts)):
            return  # it already holds exactly this
        rows = _sorted([np.empty(0, _ROW), *self._used])
        cuts = json.dumps(self._used_cuts, separators=(",", ":"), sort_keys=True).encode()
        parts = [_MAGIC, _COUNT.pack(len(rows)), rows.tobytes(), cuts]
        checksum = 0
        for part in parts:
            checksum = google_crc32c.extend(checksum, part)
        parts.append(_CHECKSUM.pack(checksum))
        if is_remote(path):
            storage_for(path).replace(os.fspath(path), b"".join(parts))
            return
        # Renamed, but not synced: what a power cut leaves of it is unreadable, and so rebuilt.
        temporary = temporary_path(os.path.abspath(path))
        try:
            with open(temporary, "xb") as file:
                file.writelines(parts)
            reached("digests/written")
            os.replace(temporary, path)
            reached("digests/renamed")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def lookup(self, keys: bytes) -> tuple[Cuts, list[int]]:
        """The slices of files by their keys, and the indices of the unknown ones."""
        halves = np.frombuffer(keys, "<u8").reshape(-1, 2)
        cuts, found = Cuts(len(halves)), np.zeros(len(halves), bool)
        if len(self._rows):
            firsts = np.ascontiguousarray(halves[:, 0])
            # If keys share their first half, only the first is found; the others are read again, which is harmless.
            at = np.minimum(np.searchsorted(self._firsts, firsts), len(self._rows) - 1)
            found = (self._firsts[at] == firsts) & (self._rows["rest"][at] == halves[:, 1])
            hits = self._rows[at[found]]
            cuts.digests[found] = np.ascontiguousarray(hits["digest"]).view(np.uint8).reshape(-1, DIGEST_BYTES)
            self._used.append(hits)
        for index in np.flatnonzero(~found).tolist() if self._cuts else ():
            if (known := self._known_cuts(keys[index * KEY_BYTES : (index + 1) * KEY_BYTES].hex())) is not None:
                cuts.others[index] = known
                found[index] = True
        unknown: list[int] = np.flatnonzero(~found).tolist()
        self.hits += len(found) - len(unknown)
        self.misses += len(unknown)
        return cuts, unknown

    def _known_cuts(self, key: str) -> list[Cut] | None:
        try:
            cuts = [
                Cut(int(start), int(end), int(size), str(digest), None if stored is None else _three(*stored))
                for start, end, size, digest, stored in self._cuts[key]
            ]
        except (KeyError, TypeError, ValueError):
            return None
        self._used_cuts[key] = cuts
        return cuts

    def get(self, file: FoundFile, variant: str) -> list[Cut] | None:
        """The slices of an unchanged file that was cut in the way called `variant`."""
        cuts, unknown = self.lookup(key_of(file, variant))
        return None if unknown else cuts.of(0, file.size)

    def put(self, file: FoundFile, variant: str, cuts: list[Cut], *, hashed_at_ns: int) -> None:
        """Stores what was read at `hashed_at_ns` (`time.time_ns()` before reading)."""
        if _has_settled(file.mtime_ns, file.ctime_ns, hashed_at_ns):
            key = key_of(file, variant).hex()
            self._cuts[key] = self._used_cuts[key] = cuts

    def put_all(self, files: FoundFiles, keys: bytes, cuts: Cuts, indices: Sequence[int], *, hashed_at_ns: int) -> None:
        """Stores some of the files that were read at `hashed_at_ns`, all of which have these keys and slices."""
        times = files.mtimes_ns, files.ctimes_ns
        is_settled = np.zeros(len(files), bool)
        for index in indices:
            is_settled[index] = _has_settled(times[0][index], times[1][index], hashed_at_ns)
        for index in [index for index in indices if index in cuts.others]:
            if is_settled[index]:
                key = keys[index * KEY_BYTES : (index + 1) * KEY_BYTES].hex()
                self._cuts[key] = self._used_cuts[key] = cuts.others[index]
                is_settled[index] = False
        if len(whole := np.flatnonzero(is_settled)):
            rows = np.empty(len(whole), _ROW)
            halves = np.frombuffer(keys, "<u8").reshape(-1, 2)[whole]
            rows["key"], rows["rest"] = halves[:, 0], halves[:, 1]
            rows["digest"] = cuts.digests[whole].view(f"V{DIGEST_BYTES}")[:, 0]
            self._used.append(rows)
            self._rows = _sorted([self._rows, rows])
            self._firsts = np.ascontiguousarray(self._rows["key"])


def _three(begin: int, end: int, base: int) -> tuple[int, int, int]:
    return int(begin), int(end), int(base)


def _has_settled(mtime_ns: int, ctime_ns: int, hashed_at_ns: int) -> bool:
    return times_have_settled(mtime_ns, read_at_ns=hashed_at_ns) and times_have_settled(
        ctime_ns, read_at_ns=hashed_at_ns
    )


def _sorted(parts: list[Rows]) -> Rows:
    """All rows in the order of their keys, each once."""
    rows = np.concatenate(parts)
    rows = rows[np.lexsort((rows["rest"], rows["key"]))]
    if len(rows):
        rows = rows[np.append(True, (rows["key"][1:] != rows["key"][:-1]) | (rows["rest"][1:] != rows["rest"][:-1]))]
    return rows
