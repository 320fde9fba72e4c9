"""Resumable uploads: a file in chunks, going on after a broken connection from what the service has.

The object appears when the last byte has arrived and the checksum that was announced at the start holds; until then,
and if nobody ever finishes, nothing of it can be seen. (cloud.google.com/storage/docs/performing-resumable-uploads)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

from beam_pipes.cache.gcs.options import GcsOptions
from beam_pipes.cache.gcs.retry import HttpError, Incomplete, status_of
from beam_pipes.cache.gcs.session import Session
from beam_pipes.errors import StorageUnavailableError

# A session is lost with the server that keeps it: seldom, so a few of them are enough.
MOST_SESSIONS = 10

_RESUME = 308


class _SessionLost(Exception):
    """The service no longer knows the upload."""


class ResumableUpload:
    """One upload of `size` bytes of `file` to the object `blob`, whose `crc32c` is set."""

    def __init__(
        self, session: Session, blob: Any, file: IO[bytes], size: int, *, options: GcsOptions, retrying: Any, path: str
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

    def run(self, *, is_whole: Callable[[dict[str, Any]], bool]) -> None:
        """Uploads all of it; `is_whole` looks at the properties of what was stored, and what is not is sent anew.

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

    def _step(self) -> dict[str, Any] | None:
        """Sends the next chunk; the object's properties where it was the last, None where there is more."""
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

    def _put(self, data: bytes, content_range: str) -> Any:
        return self._session.http.request(
            "PUT",
            self._url,
            data=data,
            headers={"Content-Range": content_range, "Content-Type": "application/octet-stream"},
            timeout=self._session.timeout,
            allow_redirects=False,  # 308 is no redirect here
        )

    def _understood(self, answer: Any) -> dict[str, Any] | None:
        code = int(answer.status_code)
        if code in (200, 201):
            return dict(answer.json())
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
