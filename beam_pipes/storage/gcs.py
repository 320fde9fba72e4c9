"""`GcsStorage`: objects of Google Cloud Storage as the files of caches and inputs."""

from __future__ import annotations

import base64
import contextlib
import functools
import struct
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

import google_crc32c

from beam_pipes.errors import CacheNotFoundError, StorageError
from beam_pipes.storage.locks import reached
from beam_pipes.storage.objects import ObjectStorage, date_of
from beam_pipes.storage.requests import (
    GcsOptions,
    HttpError,
    Incomplete,
    Service,
    Session,
    is_transient,
    refused,
    session_for,
    status_of,
)
from beam_pipes.storage.transfer import Blob, ObjectReader, ObjectStatus, Page, ResumableUpload, get_range

if TYPE_CHECKING:
    import requests

_FIELDS = "size,generation,crc32c,md5Hash,updated,name"
_CRC = struct.Struct(">I")


class GcsStorage(ObjectStorage):
    """The `Storage` protocol over Google Cloud Storage; paths are `gs://bucket/directory/file`.

    A reader continues with the generation that it has opened. Thread-safe, picklable, safe to fork.
    """

    SCHEME = "gs://"
    options: GcsOptions

    def __init__(self, options: GcsOptions | None = None) -> None:
        self.options = GcsOptions.from_environment() if options is None else options
        self.parallel = self.options.num_threads
        self._known_buckets: set[str] = set()

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    # Reading.

    def open_read(self, path: str) -> IO[bytes]:
        """A `ObjectReader` of the present generation; it goes on reading it when another one is written."""
        status = self.status(path)
        url = self._media_url(path)

        def fetch(start: int, size: int) -> bytes:
            def attempt() -> bytes:
                total_secs = self.options.attempt_timeout_secs
                return get_range(self._session, url, status, start, size, total_secs=total_secs)

            return self._retrying(attempt, path, "read")

        return ObjectReader(  # type: ignore[return-value]
            fetch,
            path=path,
            size=status.size,
            crc32c=status.crc32c,
            content_digest=status.content_digest,
            chunk_bytes=self.options.chunk_bytes,
        )

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end of the object."""
        status = self.status(path)
        size = min(size, status.size - offset)
        if size <= 0:
            return b""
        url = self._media_url(path)

        def attempt() -> bytes:
            total_secs = self.options.attempt_timeout_secs
            return get_range(self._session, url, status, offset, size, total_secs=total_secs)

        return self._retrying(attempt, path, "read")

    def status(self, path: str) -> ObjectStatus:
        """Size, generation and checksums of an object. Raises `CacheNotFoundError` if there is none."""
        blob = self._blob(path)

        def attempt() -> Blob:
            blob.reload(client=self._session.client, timeout=self._session.timeout, retry=None)
            return blob

        return _status(path, self._retrying(attempt, path, "read"))

    # Writing.

    def put(
        self, path: str, data: bytes, *, if_generation_match: int | None = None, deadline_secs: float | None = None
    ) -> int:
        """Writes an object with one request; its generation. The service checks the checksum that goes with it.

        Raises `ChangedMeanwhileError` if the present generation (0: no object) is another one: also where an
        earlier attempt has written it, and its answer was lost.
        """
        blob = self._blob(path)
        crc32c = google_crc32c.value(data)

        def attempt() -> Blob:
            blob.upload_from_string(
                data,
                content_type="application/octet-stream",
                client=self._session.client,
                timeout=self._session.timeout,
                if_generation_match=if_generation_match,
                checksum="crc32c",
                retry=None,
            )
            return blob

        made = _status(path, self._retrying(attempt, path, "write", deadline_secs=deadline_secs))
        self._require(path, made.size == len(data) and made.crc32c == crc32c, made)
        reached("object/put")
        return made.generation

    def _upload(self, path: str, file: IO[bytes], size: int, crc32c: int) -> None:
        blob = self._blob(path)
        blob.crc32c = base64.b64encode(_CRC.pack(crc32c)).decode()
        upload = ResumableUpload(
            self._session, blob, file, size, options=self.options, retrying=self._retrying, path=path
        )
        upload.run(is_whole=lambda made: int(made["size"]) == size and _crc_of(made.get("crc32c")) == crc32c)

    def delete(self, path: str) -> None:
        with contextlib.suppress(CacheNotFoundError):
            self._delete(self._blob(path), path)

    def delete_generation(self, path: str, generation: int, *, deadline_secs: float | None = None) -> None:
        """Deletes an object if it is this generation of it; it is not an error if it is not."""
        with contextlib.suppress(CacheNotFoundError):
            self._delete(self._blob(path, generation), path, deadline_secs=deadline_secs)

    def link_or_copy(self, source: str, target: str) -> None:
        """A copy inside the service: no byte comes here."""
        blob, origin = self._blob(target), self._blob(source)
        token: str | None = None

        def attempt() -> tuple[str | None, int, int]:
            return blob.rewrite(
                origin, token=token, client=self._session.client, timeout=self._session.timeout, retry=None
            )

        while True:
            token, _, _ = self._retrying(attempt, source, "copy")
            if token is None:
                reached("object/copied")
                return

    # The build lock.

    def get_dated(self, path: str) -> tuple[bytes, int, datetime, datetime]:
        """Content, generation, when it was written, and the time now: both by the service's clock."""
        bucket, key = self.split_path(path)
        url = f"{self._session.endpoint}/storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"

        def attempt() -> requests.Response:
            answer = self._session.http.request("GET", url, timeout=self._session.timeout)
            if answer.status_code != 200:
                raise HttpError(answer)
            return answer

        for _ in range(5):
            answer = self._retrying(attempt, path, "read")
            fields = answer.json()
            try:
                data, generation = self._read_whole(path)
            except CacheNotFoundError:
                break
            if generation == int(fields["generation"]):
                updated = datetime.fromisoformat(fields["updated"].replace("Z", "+00:00"))
                return data, generation, updated, date_of(answer.headers["Date"])
        raise CacheNotFoundError(f"expected an object at {path!r}, and there is none", path=path)

    # Requests.

    @property
    def _session(self) -> Session:
        return session_for(self.options)

    def _blob(self, path: str, generation: int | None = None) -> Blob:
        bucket, key = self.split_path(path)
        blob: Blob = self._session.client.bucket(bucket).blob(key, generation=generation)
        return blob

    def _media_url(self, path: str) -> str:
        bucket, key = self.split_path(path)
        return f"{self._session.endpoint}/download/storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"

    def _service(self, path: str, doing: str) -> Service:
        who, bucket_exists = (lambda: self._session.who), (lambda: self._bucket_exists(path))
        meaning = functools.partial(refused, path=path, doing=doing, who=who, bucket_exists=bucket_exists)
        return Service(status_of, is_transient, meaning)

    def _bucket_exists(self, path: str) -> bool:
        bucket, _ = self.split_path(path)
        if bucket in self._known_buckets:
            return True
        try:
            # Not the bucket's own properties: who may use its objects often may not see those.
            self._list_page(bucket, "", None, None, 1)
        except Exception as error:
            return status_of(error) != 404
        self._known_buckets.add(bucket)
        return True

    def _read_whole(self, path: str) -> tuple[bytes, int]:
        """(bytes, generation), with one request; the checksum is checked."""
        url = self._media_url(path)

        def attempt() -> tuple[bytes, int]:
            answer = self._session.http.request(
                "GET",
                f"{url}?alt=media",
                headers={"Accept-Encoding": "identity"},
                timeout=self._session.timeout,
            )
            if answer.status_code != 200:
                raise HttpError(answer)
            data = bytes(answer.content)
            expected = answer.headers.get("Content-Length")
            if expected is not None and len(data) != int(expected):
                raise Incomplete(f"expected {expected} bytes, found {len(data)}")
            hashes = dict(part.strip().partition("=")[::2] for part in answer.headers.get("X-Goog-Hash", "").split(","))
            crc32c = _crc_of(hashes.get("crc32c"))
            if crc32c is not None and google_crc32c.value(data) != crc32c:
                raise Incomplete(f"the checksum of {len(data)} bytes differs from the service's")
            return data, int(answer.headers.get("X-Goog-Generation", -1))

        return self._retrying(attempt, path, "read")

    def _delete(self, blob: Blob, path: str, *, deadline_secs: float | None = None) -> None:
        def attempt() -> None:
            blob.delete(client=self._session.client, timeout=self._session.timeout, retry=None)

        self._retrying(attempt, path, "delete", deadline_secs=deadline_secs)

    def _page(
        self, path: str, prefix: str, delimiter: str | None, token: str | None, *, most: int | None = None
    ) -> Page:
        bucket, _ = self.split_path(path)
        return self._retrying(
            lambda: self._list_page(bucket, prefix, delimiter, token, most or self.options.page_names), path, "list"
        )

    def _list_page(self, bucket: str, prefix: str, delimiter: str | None, token: str | None, most: int) -> Page:
        found = self._session.client.list_blobs(
            bucket,
            prefix=prefix or None,
            delimiter=delimiter,
            page_token=token,
            page_size=most,
            fields=f"items({_FIELDS}),prefixes,nextPageToken",
            timeout=self._session.timeout,
            retry=None,
        )
        page = next(found.pages, ())
        objects = [_status(f"{self.SCHEME}{bucket}/{blob.name}", blob) for blob in page]
        return Page(objects, sorted(found.prefixes), found.next_page_token)

    def _require(self, path: str, holds: bool, found: object) -> None:
        if not holds:
            raise StorageError(
                f"{path}: the service has stored other bytes than it was sent (it says {found!r:.200}). Run again; "
                "where it comes back, something between here and the service changes bytes.",
                path=path,
            )


def _status(path: str, blob: Blob) -> ObjectStatus:
    generation = int(blob.generation)
    crc32c = _crc_of(blob.crc32c)
    digest = f"md5:{blob.md5_hash}" if blob.md5_hash else f"crc32c:{blob.crc32c}:{generation}"
    modified = blob.updated or datetime.fromtimestamp(0, timezone.utc)
    return ObjectStatus(
        path=path,
        size=int(blob.size),
        generation=generation,
        crc32c=crc32c,
        content_digest=f"{digest}:{int(blob.size)}",
        modified_ns=int(modified.timestamp() * 1_000_000) * 1000,
    )


def _crc_of(text: str | None) -> int | None:
    return int(_CRC.unpack(base64.b64decode(text))[0]) if text else None
