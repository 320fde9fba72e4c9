"""Azure Blob Storage as a place for caches and inputs, through azure-storage-blob.

    write_new       Put Blob with If-None-Match: *     only where there is no blob
    replace_if      Put Blob with If-Match: <ETag>     only over the blob that was read
    large blobs     Put Block, then Put Block List     nothing is visible before the last request
    readers         Get Blob with a range, If-Match    one generation, never a mixture of two

The promises are those of `gs://` and `s3://`; readers, listings, attempts and the build lock are the same code. The
service checks the MD5 of what it receives, and sends that of each range. Each process makes its own client, so that
forked workers may read.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import os
import re
import socket
import time
from collections.abc import Iterable
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, ClassVar, TypedDict

from beam_pipes.errors import BucketNotFoundError, StorageError, StorageForbiddenError
from beam_pipes.extras import require
from beam_pipes.storage.objects import SINGLE_REQUEST_BYTES, Answer, ObjectStorage, date_of, status_by_etag
from beam_pipes.storage.requests import (
    Incomplete,
    Kind,
    Refusal,
    RequestOptions,
    answer_of,
    per_process,
    pieces,
    require_range,
)
from beam_pipes.storage.transfer import ObjectStatus, Page

if TYPE_CHECKING:
    import requests
    from azure.core import MatchConditions
    from azure.core.pipeline.transport import RequestsTransport
    from azure.storage.blob import (
        BlobClient,
        BlobPrefix,
        BlobProperties,
        BlobServiceClient,
        ContentSettings,
        LinearRetry,
    )

    class _Client(TypedDict):
        transport: RequestsTransport
        retry_policy: LinearRetry
        max_single_put_size: int
        max_block_size: int

    class _IfMatch(TypedDict, total=False):
        etag: str
        match_condition: MatchConditions


# How often the client sends a block again; when it gives up, the whole upload starts again.
_BLOCK_RETRIES = 5
# The variables that the Azure command line reads.
_CONNECTION, _ACCOUNT, _KEY, _SAS = (
    f"AZURE_STORAGE_{name}" for name in ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN")
)
_COPY_PAUSE_SECS = 0.2


class AzureOptions(RequestOptions):
    """`RequestOptions` of Azure Blob Storage, from variables `BEAM_PIPES_AZURE_<OPTION>`.

    Account and credentials are those of the Azure command line: `AZURE_STORAGE_CONNECTION_STRING`, or
    `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`, or else those that azure-identity
    finds (`az login`, managed identities, `AZURE_CLIENT_ID`, …).
    """

    PREFIX: ClassVar[str] = "BEAM_PIPES_AZURE_"


class AzureStorage(ObjectStorage):
    """The `Storage` protocol over Azure Blob Storage; paths are `az://container/directory/file`.

    Beam's spelling with the storage account, `azfs://account/container/directory/file`, is read too.
    """

    SCHEME = "az://"
    OPTIONS = AzureOptions
    CODES = {
        "ContainerNotFound": Kind.NO_BUCKET,
        **dict.fromkeys(("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"), Kind.CHANGED),
        # Md5Mismatch: the bytes changed on their way. InvalidBlockList: another process wrote the same blob while our
        # blocks were sent, and the service has dropped them.
        **dict.fromkeys(
            (
                "Md5Mismatch",
                "InvalidBlockList",
                "PendingCopyOperation",
                "ContainerBeingDeleted",
                "AccountBeingCreated",
            ),
            Kind.AGAIN,
        ),
    }
    REFUSALS = {
        Kind.NO_CREDENTIALS: Refusal(
            StorageError,
            "there are no credentials for az:// paths on this machine ({said}). Run: az login; or set "
            "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or "
            "AZURE_STORAGE_SAS_TOKEN; or, for public containers, BEAM_PIPES_AZURE_ANONYMOUS=1.",
        ),
        Kind.NO_ACCOUNT: Refusal(
            StorageError,
            "{path}: cannot {doing}: there is no storage account of this name ({said}). Check AZURE_STORAGE_ACCOUNT, "
            "AZURE_STORAGE_CONNECTION_STRING or the path.",
        ),
        Kind.NO_BUCKET: Refusal(
            BucketNotFoundError,
            "{path}: cannot {doing}: there is no container {bucket!r}. Check its name and the account, or create it: "
            "az storage container create --name {bucket}",
        ),
        Kind.FORBIDDEN: Refusal(
            StorageForbiddenError,
            "{path}: {who} may not {doing} there ({said}). Reading needs the role Storage Blob Data Reader on the "
            "container {bucket!r}, building Storage Blob Data Contributor; a SAS token needs the permissions r and l, "
            "for building c, w and d too.",
        ),
        Kind.BLOCKED: Refusal(
            StorageError,
            "{path}: cannot {doing}: what is there does not allow it ({said}): a lease of somebody else, snapshots, "
            "the archive tier, or a blob of another type. Look at it: az storage blob show --container-name {bucket} "
            "--name {key!r}",
        ),
    }
    _PATH = re.compile(r"(?:az://|azfs://([^/]+)/)([^/]+)(?:/(.*))?", re.DOTALL)

    @classmethod
    def split_path(cls, path: str) -> tuple[str, str]:
        """(container, key): `az://container/a/b` and `azfs://account/container/a/b` → `("container", "a/b")`."""
        found = cls._PATH.fullmatch(os.fspath(path))
        if found is None:
            raise StorageError(
                f"expected a path az://container/directory or azfs://account/container/directory, got {path!r}",
                path=path,
            )
        return found[2], found[3] or ""

    def kind_of(self, error: BaseException, path: str) -> Kind | None:
        code, status = answer_of(error)
        if status in (409, 412) and code not in self.CODES:
            return Kind.BLOCKED
        if status is None and _is_unknown_host(error):
            return Kind.NO_ACCOUNT
        # The library's exception for a wrong MD5 has no class of its own.
        if type(error).__name__ == "AzureError" and "MD5" in str(error):
            return Kind.AGAIN
        return super().kind_of(error, path)

    def _account(self, path: str) -> BlobServiceClient:
        found = self._PATH.fullmatch(path)
        return _account(self.options, found[1] if found else None)

    def _blob(self, path: str) -> BlobClient:
        return self._account(path).get_blob_client(*self.split_path(path))

    def _head(self, path: str, /) -> tuple[str, ObjectStatus]:
        found = self._blob(path).get_blob_properties()
        return found.etag, _status(path, found)

    def _get(self, path: str, start: int, size: int | None, version: str | None, /) -> Answer:
        dates: list[str] = []

        try:
            # In requests of 4 MiB, the most for which the service sends an MD5, bound to the ETag of the first.
            answer = self._blob(path).download_blob(
                offset=None if size is None else start,
                length=size,
                validate_content=True,
                max_concurrency=1,
                raw_response_hook=lambda response: dates.append(response.http_response.headers["Date"]),
                **_if_match(version),
            )
            data = answer.readall()
        except Exception as error:
            if version is None and self.CODES.get(answer_of(error)[0]) is Kind.CHANGED:
                raise Incomplete("another blob was written there while this one was read") from error
            raise
        if len(data) != answer.size:
            raise Incomplete(f"expected {answer.size} bytes, found {len(data)}")
        found = answer.properties
        return Answer(data, found.etag, found.last_modified, date_of(dates[-1]))

    def _put(self, path: str, data: bytes, version: str | None, /) -> str:
        overwrite, condition = version != "", _if_match(version or None)
        made = self._blob(path).upload_blob(
            data, overwrite=overwrite, validate_content=True, content_settings=_with_md5([data]), **condition
        )
        etag: str = made["etag"]
        return etag

    def _send(self, path: str, file: IO[bytes], size: int, crc32c: int, /) -> None:
        """In blocks, whose MD5 the service compares."""
        content = _with_md5(iter(functools.partial(file.read, 1 << 20), b""))
        file.seek(0)
        self._blob(path).upload_blob(
            file,
            length=size,
            overwrite=True,
            validate_content=True,
            content_settings=content,
            max_concurrency=1,
            retry_total=_BLOCK_RETRIES,
            retry_connect=_BLOCK_RETRIES,
            retry_read=_BLOCK_RETRIES,
            retry_status=_BLOCK_RETRIES,
        )

    def _copy(self, source: str, target: str, size: int | None, /) -> None:
        """Within an account the answer means that it is complete; otherwise this waits for it."""
        blob = self._blob(target)
        if blob.start_copy_from_url(self._blob(source).url).get("copy_status") == "success":
            return
        while (copy := blob.get_blob_properties().copy).status == "pending":
            time.sleep(_COPY_PAUSE_SECS)
        if copy.status != "success":
            raise StorageError(
                f"{source}: cannot copy: the service ended with {copy.status!r} ({copy.status_description}). Run "
                "again.",
                path=source,
            )

    def _delete(self, path: str, version: str | None, /) -> None:
        self._blob(path).delete_blob(**_if_match(version))

    def _page(self, path: str, prefix: str, delimiter: str | None, token: str | None, most: int, /) -> Page:
        name, key = self.split_path(path)
        root = path.removesuffix(key).rstrip("/")
        container = self._account(path).get_container_client(name)
        list_blobs = functools.partial(container.walk_blobs, delimiter=delimiter) if delimiter else container.list_blobs
        found: list[BlobProperties | BlobPrefix] = []
        while True:
            pages: Any = list_blobs(name_starts_with=prefix or None, results_per_page=most).by_page(token)
            found += next(pages, ())
            token = pages.continuation_token or None
            if found or not token:  # between two of its servers the service gives pages without names
                break
        prefix_type: type[BlobPrefix] = _package().BlobPrefix
        directories = sorted(entry.name for entry in found if isinstance(entry, prefix_type))
        objects = [_status(f"{root}/{entry.name}", entry) for entry in found if not isinstance(entry, prefix_type)]
        return Page(objects, directories, token)


def _package() -> ModuleType:
    return require("azure.storage.blob", purpose="az:// paths")


def _if_match(version: str | None) -> _IfMatch:
    if version is None:
        return {}
    conditions = require("azure.core", purpose="az:// paths").MatchConditions
    return {"etag": version, "match_condition": conditions.IfNotModified}


def _with_md5(pieces: Iterable[bytes]) -> ContentSettings:
    """The MD5 of a whole blob, which identifies inputs: the service keeps it, but makes none for blocks."""
    md5 = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        md5.update(piece)
    make: type[ContentSettings] = _package().ContentSettings
    return make(content_type="application/octet-stream", content_md5=bytearray(md5.digest()))


def _require_asked_range(answer: requests.Response) -> None:
    """Every answer of a download must cover the requested range, or end before it where the blob does. Looked at before
    the client does, which fails at the first bytes that it cannot read.
    """
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", str(answer.request.headers.get("x-ms-range", "")))
    if asked and answer.status_code in (200, 206):
        start, last = int(asked[1]), int(asked[2])
        path = str(answer.url).partition("?")[0]  # what follows may be a token
        require_range(answer.headers.get("Content-Range"), path=path, start=start, size=last - start + 1)


def _status(path: str, found: Any) -> ObjectStatus:
    # Writers to page blobs and append blobs leave their MD5 as it was.
    md5 = found.content_settings.content_md5 if found.blob_type == "BlockBlob" else None
    digest = f"md5:{base64.b64encode(md5).decode()}" if md5 else None
    return status_by_etag(path, found.etag, found.size, found.last_modified, digest=digest)


def _is_unknown_host(error: BaseException | None) -> bool:
    """Whether the name service says that there is no such name, rather than that it cannot answer now."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return error.errno == socket.EAI_NONAME
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return False


@per_process(_CONNECTION, _ACCOUNT, _KEY, _SAS)
def _account(options: RequestOptions, name: str | None) -> BlobServiceClient:
    """The client for one account, or for the account of the environment."""
    make: type[BlobServiceClient] = _package().BlobServiceClient
    connection, default_name, key, sas = map(os.environ.get, (_CONNECTION, _ACCOUNT, _KEY, _SAS))
    pause_secs = min(1.0, options.most_backoff_secs)
    how: _Client = {
        "transport": _transport(options),
        # `retrying` repeats requests, with a deadline; only uploads ask for more, for each of their blocks.
        "retry_policy": _package().LinearRetry(backoff=pause_secs, random_jitter_range=pause_secs, retry_total=0),
        "max_single_put_size": SINGLE_REQUEST_BYTES,
        "max_block_size": options.chunk_bytes,
    }
    if connection:
        try:
            made = make.from_connection_string(connection, **how)
        except ValueError as error:
            raise StorageError(f"{_CONNECTION} cannot be used: {error}.") from error
        if name and made.account_name != name:
            raise StorageError(
                f"expected paths of the account {made.account_name!r}, which {_CONNECTION} names, got one of {name!r}. "
                "Unset the variable, or give az://container/directory."
            )
        return make(made.url.partition("?")[0], **how) if options.anonymous else made
    if not (name or default_name):
        raise StorageError(
            "az:// paths do not name their storage account, and the environment does not either. Set "
            f"{_ACCOUNT} or {_CONNECTION}, or give azfs://account/container/directory."
        )
    if options.anonymous:
        credential = None
    elif key or sas:
        credential = key or sas
    else:
        credential = require("azure.identity", purpose="az:// paths").DefaultAzureCredential()
    return make(f"https://{name or default_name}.blob.core.windows.net", credential=credential, **how)


class _Body(io.BytesIO):
    """A body that has arrived, in place of the connection it came over."""

    enforce_content_length = True  # set from outside, and looked at before it is here


def _transport(options: RequestOptions) -> RequestsTransport:
    """Requests whose answers are read to their end, within the time of an attempt, before anything uses them."""
    import requests
    from azure.core.pipeline.transport import RequestsTransport
    from requests.adapters import HTTPAdapter

    def take(answer: requests.Response, **_: object) -> None:
        if answer.request.method != "HEAD":
            _require_asked_range(answer)
            length = answer.headers.get("Content-Length")
            deadline = time.monotonic() + options.attempt_timeout_secs
            body = pieces(answer.raw.read1, None if length is None else int(length), deadline=deadline)
            try:
                data = b"".join(body)
            except BaseException:
                answer.close()
                raise
            answer.raw = _Body(data)

    session = requests.Session()
    session.hooks["response"].append(take)
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=2 * options.num_threads))
    return RequestsTransport(
        session=session,
        connection_timeout=min(10.0, options.attempt_timeout_secs),
        read_timeout=options.attempt_timeout_secs,
    )
