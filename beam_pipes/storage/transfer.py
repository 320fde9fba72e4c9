"""Listing, reading and writing objects of Google Cloud Storage.

Listing: a page holds a thousand names, and the next cannot be asked for before this one has arrived. What fits into a
page is one request; a larger prefix is listed directory by directory, each on a thread of its own.

Reading: one generation of an object as a file, in ranges, read ahead while the reader goes on in order.

Writing: a resumable upload in chunks, which continues after a broken connection from what the service has. The object
appears when the last byte has arrived and the checksum that was announced at the start holds; until then nothing of it
can be seen. (cloud.google.com/storage/docs/performing-resumable-uploads)
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, TypedDict, TypeVar

import google_crc32c

from beam_pipes.errors import CorruptCacheError, StorageUnavailableError
from beam_pipes.storage.requests import GcsOptions, HttpError, Incomplete, Session, pieces, require_range, status_of

if TYPE_CHECKING:
    from datetime import datetime

    import requests
    from _typeshed import WriteableBuffer

T = TypeVar("T")


class Blob(Protocol):
    """What we use of a `google.cloud.storage.Blob`, which has no types."""

    name: str
    size: int
    generation: int
    crc32c: str
    md5_hash: str | None
    updated: datetime | None

    def reload(self, *, client: object, timeout: object, retry: None) -> None: ...
    def delete(self, *, client: object, timeout: object, retry: None) -> None: ...
    def rewrite(
        self, source: Blob, *, token: str | None, client: object, timeout: object, retry: None
    ) -> tuple[str | None, int, int]: ...
    def upload_from_string(
        self,
        data: bytes,
        *,
        content_type: str,
        client: object,
        timeout: object,
        if_generation_match: int | None,
        checksum: str,
        retry: None,
    ) -> None: ...
    def create_resumable_upload_session(
        self, *, size: int, content_type: str, client: object, timeout: object, checksum: None, retry: None
    ) -> str: ...


class Properties(TypedDict, total=False):
    """What we look at of an object as the service describes it in JSON."""

    size: str
    crc32c: str


class Retrying(Protocol):
    """`ObjectStorage._retrying`: what an attempt returns, after as many as it takes."""

    def __call__(self, attempt: Callable[[], T], path: str, doing: str, /) -> T: ...


class ObjectStatus(NamedTuple):
    """One generation of an object. `content_digest` is equal for equal content, whenever it was written.

    On gs:// it is the md5 where the service keeps one; objects that were composed of others have none, and are told by
    their crc32c together with their generation. On s3:// it is the ETag, on az:// the MD5, or the ETag where there is
    none.
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


# What the first read after a jump fetches at least; each further read in order fetches twice as much, up to a chunk.
FIRST_RANGE_BYTES = 256 << 10


def get_range(session: Session, url: str, status: ObjectStatus, start: int, size: int, *, total_secs: float) -> bytes:
    """The bytes of one range of an object, exactly `size` of them; one attempt.

    Raises `HttpError` for an answer that is no success, `Incomplete` for one that breaks off or takes longer than
    `total_secs`.
    """
    deadline = time.monotonic() + total_secs
    headers = {"Range": f"bytes={start}-{start + size - 1}", "Accept-Encoding": "identity"}
    answer = session.http.request(
        "GET", f"{url}?alt=media&generation={status.generation}", headers=headers, timeout=session.timeout, stream=True
    )
    with answer:
        if answer.status_code not in (200, 206):
            raise HttpError(answer)
        skip = start if answer.status_code == 200 else 0  # the range was ignored
        if answer.status_code == 206:
            told = answer.headers.get("Content-Range")
            require_range(told, path=status.path, start=start, size=size, total=status.size)
        return b"".join(pieces(answer.raw.read1, skip + size, deadline=deadline))[skip:]


class ObjectReader(io.RawIOBase):
    """Reads one generation of an object; what is written meanwhile is not seen. Memory: two chunks.

    `fetch(start, size)` gets a range. A reader that has read everything in order has checked the object's crc32c.
    Raises `CorruptCacheError` if it does not hold.
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

    def readinto(self, buffer: WriteableBuffer) -> int:
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


class StagedObject:
    """Written to a temporary file of this machine that has no name; an object of the service on commit."""

    def __init__(self, upload: Callable[..., None]) -> None:
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


# A session is lost with the server that keeps it: seldom, so a few of them are enough.
MOST_SESSIONS = 10

_RESUME = 308


class _SessionLost(Exception):
    """The service no longer knows the upload."""


class ResumableUpload:
    """One upload of `size` bytes of `file` to the object `blob`, whose `crc32c` is set."""

    def __init__(
        self,
        session: Session,
        blob: Blob,
        file: IO[bytes],
        size: int,
        *,
        options: GcsOptions,
        retrying: Retrying,
        path: str,
    ) -> None:
        self._session = session
        self._blob = blob
        self._file = file
        self._size = size
        self._options = options
        self._retrying = retrying
        self._path = path
        self._url = ""
        self._sent = 0
        self._unsure = False

    def run(self, *, is_whole: Callable[[Properties], bool]) -> None:
        """Uploads all of it; `is_whole` looks at the properties of what was stored, and what is not is sent again.

        Raises as `retrying` does; the deadline is for each chunk.
        """

        def begin() -> str:
            url = self._blob.create_resumable_upload_session(
                size=self._size,
                content_type="application/octet-stream",
                client=self._session.client,
                timeout=self._session.timeout,
                checksum=None,  # announced with the object's own properties
                retry=None,
            )
            return str(url)

        for _ in range(MOST_SESSIONS):
            self._url = self._retrying(begin, self._path, "write")
            self._sent, self._unsure = 0, False
            try:
                while True:
                    made = self._retrying(self._step, self._path, "write")
                    if made is not None and is_whole(made):
                        return
                    if made is not None:
                        raise _SessionLost
            except _SessionLost:
                continue
        raise StorageUnavailableError(
            f"{self._path}: cannot write: the service lost the upload {MOST_SESSIONS} times, or stored other bytes "
            "than it was sent. Try again later.",
            path=self._path,
        )

    def _step(self) -> Properties | None:
        """Sends the next chunk; the object's properties where it was the last, None if there is more."""
        if self._unsure:
            answer = self._put(b"", f"bytes */{self._size}")
            made = self._understood(answer)
            self._unsure = False
            if made is not None:
                return made
        self._file.seek(self._sent)
        chunk = self._file.read(min(self._options.chunk_bytes, self._size - self._sent))
        last = self._sent + len(chunk) - 1
        self._unsure = True  # until the answer is here, nobody knows what has arrived
        answer = self._put(chunk, f"bytes {self._sent}-{last}/{self._size}" if chunk else f"bytes */{self._size}")
        made = self._understood(answer)
        self._unsure = False
        return made

    def _put(self, data: bytes, content_range: str) -> requests.Response:
        return self._session.http.request(
            "PUT",
            self._url,
            data=data,
            headers={"Content-Range": content_range, "Content-Type": "application/octet-stream"},
            timeout=self._session.timeout,
            allow_redirects=False,  # 308 is no redirect here
        )

    def _understood(self, answer: requests.Response) -> Properties | None:
        code = int(answer.status_code)
        if code in (200, 201):
            made: Properties = answer.json()
            return made
        if code == _RESUME:
            received = answer.headers.get("Range", "")
            before, self._sent = self._sent, int(received.rpartition("-")[2]) + 1 if received else 0
            if not 0 <= self._sent <= self._size:
                raise _SessionLost
            if not self._unsure and self._sent == before:
                raise Incomplete(f"the service took nothing of the chunk at byte {before}")
            return None
        # 400: also what a service says that was sent other bytes than were announced; a new session tells which it was.
        if code in (400, 404, 410, 499):
            raise _SessionLost
        error = HttpError(answer)
        assert status_of(error) == code
        raise error
