"""An object as a file: one generation of it, read in ranges, ahead of use where the reading goes on in order."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import google_crc32c

from beam_pipes.cache.gcs.retry import HttpError, Incomplete
from beam_pipes.cache.gcs.session import Session
from beam_pipes.errors import CorruptCacheError

# What the first read after a jump fetches at least; each further read in order fetches twice as much, up to a chunk.
FIRST_RANGE_BYTES = 256 << 10
_PIECE_BYTES = 256 << 10


def get_range(
    session: Session, url: str, *, generation: int, start: int, size: int, total_secs: float
) -> tuple[bytes, Any]:
    """The bytes of one range, exactly `size` of them, and the headers; one attempt.

    Raises `HttpError` for an answer that is no success, `Incomplete` for one that breaks off or takes longer than
    `total_secs`: a server that sends a byte now and then would hold a reader for ever.
    """
    deadline = time.monotonic() + total_secs
    headers = {"Range": f"bytes={start}-{start + size - 1}", "Accept-Encoding": "identity"}
    answer = session.http.request(
        "GET", f"{url}?alt=media&generation={generation}", headers=headers, timeout=session.timeout, stream=True
    )
    with answer:
        if answer.status_code not in (200, 206):
            raise HttpError(answer)
        pieces: list[bytes] = []
        left = size
        skip = start if answer.status_code == 200 else 0  # the range was ignored
        while left > 0 and (piece := answer.raw.read1(_PIECE_BYTES)):
            if time.monotonic() > deadline:
                raise Incomplete(f"{size} bytes did not arrive within {total_secs:g} s")
            if skip:
                dropped = min(skip, len(piece))
                skip, piece = skip - dropped, piece[dropped:]
            pieces.append(piece[:left])
            left -= len(pieces[-1])
        if left:
            raise Incomplete(f"the answer broke off {left} bytes before its end, of {size}")
        return b"".join(pieces), answer.headers


class GcsReader(io.RawIOBase):
    """Reads one generation of an object; what is written meanwhile is not seen. Memory: two chunks.

    `fetch(start, size)` gets a range. A reader that has read everything in order has checked the object's crc32c.
    Raises `CorruptCacheError` where it does not hold.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        *,
        path: str,
        size: int,
        crc32c: int | None,
        content_digest: str,
        chunk_bytes: int,
    ) -> None:
        self.name = path
        self.size = size
        self.content_digest = content_digest
        self._fetch = fetch
        self._crc32c = crc32c
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

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        at = self._position - self._window_start
        if not 0 <= at < len(self._window):
            if self._position >= self.size or not len(view):
                return 0
            self._move(len(view))
            at = 0
        piece = self._window[at : at + len(view)]
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def readall(self) -> bytes:
        return self.read(self.size - self._position) if self._position < self.size else b""

    def read(self, size: int | None = -1, /) -> bytes:
        """At least one byte unless at the end, and all of `size` where they are there."""
        if size is None or size < 0:
            size = max(0, self.size - self._position)
        pieces: list[bytes] = []
        left = size
        while left > 0:
            at = self._position - self._window_start
            if not 0 <= at < len(self._window):
                if self._position >= self.size:
                    break
                self._move(left)
                at = 0
            piece = self._window[at : at + left]
            self._position += len(piece)
            left -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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
        # Whoever jumps about (a table of contents at the end) gains nothing from what lies behind.
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
