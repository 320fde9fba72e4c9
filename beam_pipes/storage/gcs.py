"""Google Cloud Storage as a place for caches and inputs, through google-cloud-storage.

    write_new       upload with ifGenerationMatch=0     only where there is no object
    replace_if      upload with ifGenerationMatch       only over the object that was read
    large objects   resumable upload                    nothing is visible before its last chunk
    readers         download of a range, generation     one generation, never a mixture of two

Credentials are found quickly or not at all, and connections serve many threads. Each process makes its own client, so
that forked workers may read. The crc32c of what goes out is announced, and that of what comes in is compared.
"""

from __future__ import annotations

import base64
import dataclasses
import os
import struct
from collections.abc import Callable
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, ClassVar, NamedTuple
from urllib.parse import quote

import google_crc32c

from beam_pipes.errors import BucketNotFoundError, StorageError, StorageForbiddenError
from beam_pipes.extras import require
from beam_pipes.storage.objects import UNNAMED_VERSION, Answer, ObjectStorage, date_of
from beam_pipes.storage.requests import (
    FIRST_BACKOFF_SECS,
    Incomplete,
    Kind,
    Refusal,
    RequestOptions,
    answer_of,
    body_of,
    in_short,
    per_process,
)
from beam_pipes.storage.transfer import ObjectStatus, Page

if TYPE_CHECKING:
    import requests
    from google.cloud.storage import Blob, Client

_FIELDS = "size,generation,crc32c,md5Hash,updated,name"
_CONTENT_TYPE = "application/octet-stream"
_CRC = struct.Struct(">I")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GcsOptions(RequestOptions):
    """`RequestOptions` of Google Cloud Storage, from variables `BEAM_PIPES_GCS_<OPTION>`."""

    PREFIX: ClassVar[str] = "BEAM_PIPES_GCS_"


EMULATOR = "STORAGE_EMULATOR_HOST"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"

# Google's own look-up waits 25 seconds for a machine that is not there. On Google's machines it takes a millisecond.
METADATA_SECS = 1.0


class Session(NamedTuple):
    """A client, and the HTTP session it speaks through. Thread-safe; not for a forked child."""

    client: Client
    http: requests.Session
    endpoint: str
    timeout: tuple[float, float]
    who: str


@per_process(EMULATOR)
def session_for(options: RequestOptions) -> Session:
    """The session of this process."""
    storage = require("google.cloud.storage", purpose="gs:// paths")
    from google.auth.transport.requests import AuthorizedSession
    from requests.adapters import HTTPAdapter

    anonymous = options.anonymous or bool(os.environ.get(EMULATOR))
    credentials, project = _credentials(anonymous=anonymous)
    authorized: Callable[[object], requests.Session] = AuthorizedSession
    http = authorized(credentials)
    for scheme in ("http://", "https://"):
        http.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=2 * options.num_threads))
    client: Client = storage.Client(project=project or "<none>", credentials=credentials, _http=http)
    timeout = (min(10.0, options.attempt_timeout_secs), options.attempt_timeout_secs)
    account = getattr(credentials, "service_account_email", None) or "the account of these credentials"
    who = "an anonymous caller" if anonymous else account
    return Session(client, http, str(client.api_endpoint).rstrip("/"), timeout, who)


def _credentials(*, anonymous: bool) -> tuple[object, str | None]:
    """(credentials, project). Raises `StorageError` if there are none, within a second or so."""
    import google.auth
    from google.auth import _cloud_sdk, environment_vars
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError

    if anonymous:
        return AnonymousCredentials(), None  # type: ignore[no-untyped-call]
    file = os.environ.get(environment_vars.CREDENTIALS)
    login: Callable[[], str] = _cloud_sdk.get_application_default_credentials_path
    try:
        if file or os.path.isfile(login()) or _on_google_cloud():
            found, project = google.auth.default(scopes=[SCOPE])
            return found, project
    except DefaultCredentialsError as error:
        raise StorageError(
            f"the credentials for gs:// paths cannot be used: {error}. Name a key file in "
            f"{environment_vars.CREDENTIALS}, or run: gcloud auth application-default login"
        ) from error
    raise StorageError(
        "there are no credentials for gs:// paths on this machine. Run: gcloud auth application-default login; or name "
        f"a key file in {environment_vars.CREDENTIALS}; or, for public buckets, set BEAM_PIPES_GCS_ANONYMOUS=1."
    )


def _on_google_cloud() -> bool:
    """Whether a Google metadata server gives this machine credentials."""
    from google.auth.compute_engine import _metadata
    from google.auth.transport.requests import Request

    if os.environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    ping: Callable[..., bool] = _metadata.ping
    return ping(Request(), timeout=METADATA_SECS, retry_count=1)


class GcsStorage(ObjectStorage):
    """The `Storage` protocol over Google Cloud Storage; paths are `gs://bucket/directory/file`."""

    SCHEME = "gs://"
    OPTIONS = GcsOptions
    REFUSALS = {
        Kind.NO_BUCKET: Refusal(
            BucketNotFoundError,
            "{path}: cannot {doing}: there is no bucket {bucket!r}. Check its name, or create it: gcloud storage "
            "buckets create gs://{bucket}",
        ),
        Kind.FORBIDDEN: Refusal(
            StorageForbiddenError,
            "{path}: {who} may not {doing} there ({said}). Reading needs the role roles/storage.objectViewer on the "
            "bucket, building roles/storage.objectUser: gcloud storage buckets add-iam-policy-binding gs://{bucket} "
            "--member=… --role=roles/storage.objectUser",
        ),
    }

    def __init__(self, options: RequestOptions | None = None) -> None:
        super().__init__(options)
        self._known_buckets: set[str] = set()

    @property
    def _session(self) -> Session:
        return session_for(self.options)

    @property
    def who(self) -> str:
        return self._session.who

    def kind_of(self, error: BaseException, path: str) -> Kind | None:
        kind = super().kind_of(error, path)
        return Kind.NO_BUCKET if kind is Kind.MISSING and not self._bucket_exists(path) else kind

    def _bucket_exists(self, path: str) -> bool:
        bucket, _ = self.split_path(path)
        if bucket in self._known_buckets:
            return True
        try:
            # Not the bucket's own properties: those who may use its objects often may not read them.
            self._page(path, "", None, None, 1)
        except Exception as error:
            return answer_of(error)[1] != 404
        self._known_buckets.add(bucket)
        return True

    def _blob(self, path: str, version: str | None = None) -> Blob:
        bucket, key = self.split_path(path)
        generation = None if version is None else int(version)
        blob: Blob = self._session.client.bucket(bucket).blob(key, generation=generation)
        return blob

    def _head(self, path: str, /) -> tuple[str, ObjectStatus]:
        blob = self._blob(path)
        blob.reload(client=self._session.client, timeout=self._session.timeout, retry=None)
        return str(blob.generation), _status(path, blob)

    def _get(self, path: str, start: int, size: int | None, version: str | None, /) -> Answer:
        # The client's own download reads the body 8 KiB at a time, for as long as bytes drip, and checks no range.
        session, (bucket, key) = self._session, self.split_path(path)
        url = f"{session.endpoint}/download/storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}?alt=media"
        # As stored: the service itself decompresses objects of `contentEncoding: gzip` for those who do not accept it,
        # and ignores ranges then.
        headers = {"Accept-Encoding": "gzip"}
        if version is not None:
            url += f"&generation={version}"
        if size is not None:
            headers["Range"] = f"bytes={start}-{start + size - 1}"
        with session.http.request("GET", url, headers=headers, timeout=session.timeout, stream=True) as answer:
            if answer.status_code not in (200, 206):
                raise require("google.api_core.exceptions", purpose="gs:// paths").from_http_response(answer)
            received = answer.headers
            data = body_of(
                answer.raw.read1,
                path=path,
                start=start,
                size=size,
                length=int(received["Content-Length"]) if "Content-Length" in received else None,
                is_part=answer.status_code == 206,
                content_range=received.get("Content-Range"),
                total_secs=self.options.attempt_timeout_secs,
            )
        hashes = dict(part.strip().partition("=")[::2] for part in received.get("X-Goog-Hash", "").split(","))
        crc32c = _crc_of(hashes.get("crc32c"))
        if size is None and crc32c is not None and google_crc32c.value(data) != crc32c:
            raise Incomplete(f"the checksum of {len(data)} bytes differs from the service's")
        modified = date_of(received["Last-Modified"]) if "Last-Modified" in received else None
        return Answer(data, received.get("X-Goog-Generation", UNNAMED_VERSION), modified, date_of(received["Date"]))

    def _put(self, path: str, data: bytes, version: str | None, /) -> str:
        blob = self._blob(path)
        blob.upload_from_string(
            data,
            content_type=_CONTENT_TYPE,
            client=self._session.client,
            timeout=self._session.timeout,
            if_generation_match=None if version is None else int(version or 0),
            checksum="crc32c",
            retry=None,
        )
        self._require_whole(blob, len(data), google_crc32c.value(data))
        return str(blob.generation)

    def _send(self, path: str, file: IO[bytes], size: int, crc32c: int, /) -> None:
        policy = require("google.cloud.storage.retry", purpose="gs:// paths").DEFAULT_RETRY
        options, blob = self.options, self._blob(path)
        blob.chunk_size = options.chunk_bytes
        blob.crc32c = base64.b64encode(_CRC.pack(crc32c)).decode()  # announced: the service refuses other bytes
        try:
            blob.upload_from_file(
                file,
                size=size,
                content_type=_CONTENT_TYPE,
                client=self._session.client,
                timeout=self._session.timeout,
                checksum=None,
                # Per chunk; when the client gives up, the whole upload starts again, until the deadline.
                retry=policy.with_deadline(options.attempt_timeout_secs).with_delay(
                    FIRST_BACKOFF_SECS, options.most_backoff_secs
                ),
            )
        except Exception as error:
            # The upload was lost with the server that kept it, or a repeated chunk was taken for a second one.
            status = answer_of(error)[1]
            if status in (400, 410, 499) or (status == 404 and self._bucket_exists(path)):
                raise Incomplete(f"the service has lost the upload ({in_short(error)})") from error
            raise
        self._require_whole(blob, size, crc32c)

    def _copy(self, source: str, target: str, size: int | None, /) -> None:
        blob, origin, token = self._blob(target), self._blob(source), None
        while True:
            token, _, _ = blob.rewrite(
                origin, token=token, client=self._session.client, timeout=self._session.timeout, retry=None
            )
            if token is None:
                return

    def _delete(self, path: str, version: str | None, /) -> None:
        self._blob(path, version).delete(client=self._session.client, timeout=self._session.timeout, retry=None)

    def _page(self, path: str, prefix: str, delimiter: str | None, token: str | None, most: int, /) -> Page:
        bucket, _ = self.split_path(path)
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

    @staticmethod
    def _require_whole(made: Blob, size: int, crc32c: int) -> None:
        if int(made.size) != size or _crc_of(made.crc32c) != crc32c:
            raise Incomplete(f"the service has stored {made.size} bytes with crc32c {made.crc32c}, and was sent others")


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
