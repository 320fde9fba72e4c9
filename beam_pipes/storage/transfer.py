"""Transfers between an object store and this machine: listings, objects as files, files that become objects.

Listing: a page holds a thousand names, and the next cannot be asked for before this one has arrived. What fits into a
page is one request; a larger prefix is listed directory by directory, each on a thread of its own.

Reading: one version of an object as a file, in ranges, read ahead while the reader goes on in order.

Writing: a temporary file, which the service's own client uploads when it is complete.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import google_crc32c

from beam_pipes.errors import CorruptCacheError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ObjectStatus(NamedTuple):
    """One version of an object: every version has another `generation`.

    `content_digest` is equal for equal content, whenever it was written. On gs:// it is the md5 where the service keeps
    one; objects that were composed of others have none, and are identified by their crc32c together with their
    generation. On s3:// it is the ETag, on az:// the MD5, or the ETag where there is none.
    """

    path: str
    size: int
    generation: int
    crc32c: int | None
    content_digest: str
    modified_ns: int


class Page(NamedTuple):
    """What one request gave: objects, names of directories (with a final `/`), and the token of the next page."""

    objects: list[ObjectStatus]
    directories: list[str]
    next_token: str | None


# (prefix, delimiter, token) → a page.
GetPage = Callable[[str, "str | None", "str | None"], Page]


def list_directory(get_page: GetPage, prefix: str) -> tuple[list[ObjectStatus], list[str]]:
    """The objects directly below a prefix, and its directories."""
    objects: list[ObjectStatus] = []
    directories: list[str] = []
    token = None
    while True:
        page = get_page(prefix, "/", token)
        objects += page.objects
        directories += page.directories
        token = page.next_token
        if token is None:
            return objects, directories


def list_tree(get_page: GetPage, prefix: str, *, num_threads: int) -> Iterable[ObjectStatus]:
    """All objects below a prefix, in no particular order."""
    found, directories = _list_part(get_page, prefix)
    if not directories:
        return found
    with ThreadPoolExecutor(num_threads, thread_name_prefix="beam_pipes-list") as pool:
        running = {pool.submit(_list_part, get_page, directory) for directory in directories}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    objects, directories = each.result()
                    found += objects
                    running |= {pool.submit(_list_part, get_page, directory) for directory in directories}
        finally:
            for each in running:
                each.cancel()
    return found


def _list_part(get_page: GetPage, prefix: str) -> tuple[list[ObjectStatus], list[str]]:
    page = get_page(prefix, None, None)
    if page.next_token is None:
        return page.objects, []
    return list_directory(get_page, prefix)


# The first read after a jump fetches at least this much; each further read in order twice as much, up to a chunk.
FIRST_RANGE_BYTES = 256 << 10


class ObjectReader(io.RawIOBase):
    """Reads one version of an object; what is written meanwhile is not seen. Memory: two chunks.

    `fetch(start, size)` gets a range. A reader that reads everything in order checks the object's crc32c, and raises
    `CorruptCacheError` if it differs.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], status: ObjectStatus, *, chunk_bytes: int) -> None:
        self.name = status.path
        self.size = status.size
        self.content_digest = status.content_digest
        self._fetch = fetch
        self._crc32c = status.crc32c
        self._chunk_bytes = chunk_bytes
        self._pool: ThreadPoolExecutor | None = None
        self._position = 0
        self._window = b""
        self._window_start = 0
        self._range_bytes = FIRST_RANGE_BYTES
        self._ahead: tuple[int, Future[bytes]] | None = None
        self._checked = 0  # bytes from the start that have gone into the checksum
        self._crc = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        piece = self._piece(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def readall(self) -> bytes:
        return self.read()

    def read(self, size: int | None = -1, /) -> bytes:
        """All of `size` bytes, or as many as there are."""
        left = max(0, self.size - self._position) if size is None or size < 0 else size
        pieces: list[bytes] = []
        while left > 0 and (piece := self._piece(left)):
            left -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, most: int) -> bytes:
        """At least one byte unless at the end, and at most `most`."""
        at = self._position - self._window_start
        if not 0 <= at < len(self._window):
            if self._position >= self.size or not most:
                return b""
            self._move(most)
            at = 0
        piece = self._window[at : at + most]
        self._position += len(piece)
        return piece

    def _move(self, wanted: int) -> None:
        """Makes the window begin at the present position."""
        start = self._position
        in_order = start == self._window_start + len(self._window) and (start > 0 or not self._window)
        self._range_bytes = min(2 * self._range_bytes, self._chunk_bytes) if in_order else FIRST_RANGE_BYTES
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == start:
            data = ahead[1].result()
        else:
            if ahead is not None:
                ahead[1].cancel()
            size = min(self.size - start, max(self._range_bytes, min(wanted, self._chunk_bytes)))
            data = self._fetch(start, size)
        self._window, self._window_start = data, start
        self._check(start, data)
        following = start + len(data)
        # A reader that jumps about (to a table of contents at the end) gains nothing from what follows.
        if in_order and following < self.size:
            size = min(self.size - following, self._range_bytes)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="beam_pipes-ahead")
            self._ahead = following, self._pool.submit(self._fetch, following, size)

    def _check(self, start: int, data: bytes) -> None:
        if start != self._checked:
            return
        self._crc = google_crc32c.extend(self._crc, data)
        self._checked += len(data)
        if self._checked == self.size and self._crc32c is not None and self._crc != self._crc32c:
            raise CorruptCacheError(
                f"{self.name}: expected {self.size} bytes with checksum {self._crc32c:#010x}, as the service says, "
                f"found {self._crc:#010x}. They changed on their way here; read again.",
                path=self.name,
                expected=self._crc32c,
                found=self._crc,
            )

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._ahead = None
        self._window = b""
        super().close()


class Upload(Protocol):
    """Makes an object of `size` bytes from a file whose checksum is known."""

    def __call__(self, file: IO[bytes], *, size: int, crc32c: int) -> None: ...


class StagedObject:
    """Written to an unnamed temporary file on this machine; an object of the service on commit."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._size = 0
        self._crc32c = 0
        self._file: IO[bytes] | None = tempfile.TemporaryFile()  # noqa: SIM115

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        self._file.write(data)
        self._size += len(data)
        self._crc32c = google_crc32c.extend(self._crc32c, bytes(data))
        return len(data)

    def read_back(self) -> bytes:
        assert self._file is not None
        self._file.seek(0)
        data = self._file.read()
        self._file.seek(0, os.SEEK_END)
        return data

    def commit(self) -> None:
        assert self._file is not None
        self._file.flush()
        self._upload(self._file, size=self._size, crc32c=self._crc32c)
        self.abort()

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.abort()
