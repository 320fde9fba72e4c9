"""Azure Blob Storage as a place for caches and inputs, through azure-storage-blob.

    write_new       Put Blob with If-None-Match: *     only where there is no blob
    replace_if      Put Blob with If-Match: <ETag>     only over the blob that was read
    large blobs     Put Block, then Put Block List     nothing is visible before the last request
    readers         Get Blob with a range, If-Match    one generation, never a mixture of two

The promises are those of `gs://` and `s3://`; readers, listings, retries and the build lock are the same code. The
service checks the MD5 of what it receives, and sends that of each range. Each process makes its own client, so that
forked workers may read.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, ClassVar, TypedDict

from beam_pipes.errors import (
    BucketNotFoundError,
    CacheNotFoundError,
    ChangedMeanwhileError,
    StorageError,
    StorageForbiddenError,
    StorageUnavailableError,
)
from beam_pipes.extras import require
from beam_pipes.storage.locks import reached
from beam_pipes.storage.objects import EtagStorage, date_of, etag_of, generation_of, status_by_etag
from beam_pipes.storage.requests import (
    Incomplete,
    RequestOptions,
    Service,
    in_short,
    pieces,
    refused_anywhere,
    require_range,
)
from beam_pipes.storage.transfer import MOST_SESSIONS, ObjectStatus, Page

if TYPE_CHECKING:
    from azure.core import MatchConditions
    from azure.core.pipeline.transport import RequestsTransport
    from azure.storage.blob import BlobBlock, BlobClient, BlobPrefix, BlobProperties, BlobServiceClient
    from typing_extensions import Unpack

    class _Client(TypedDict):
        transport: RequestsTransport
        retry_total: int

    class _IfMatch(TypedDict, total=False):
        etag: str
        match_condition: MatchConditions

    class _Get(_IfMatch, total=False):
        offset: int
        length: int
        raw_response_hook: Callable[[Any], object]


def _require_asked_range(path: str, response: Any) -> None:
    """Every answer of a download is of the range that was asked for, or ends before it where the blob does."""
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", response.http_request.headers.get("x-ms-range", ""))
    told = response.http_response.headers.get("Content-Range")
    if asked and response.http_response.status_code in (200, 206) and (told or int(asked[1])):
        start, last, (_, _, total) = int(asked[1]), int(asked[2]), (told or "").rpartition("/")
        last = min(last, int(total) - 1) if total.isdigit() else last
        require_range(told, path=path, start=start, size=last - start + 1, total=None)


_MOST_BLOCKS = 50_000
# The names that the Azure command line reads.
_CONNECTION, _ACCOUNT, _KEY, _SAS = (
    f"AZURE_STORAGE_{name}" for name in ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN")
)
# With statuses that mean something else otherwise. Md5Mismatch: the bytes changed on their way to the service.
_TRANSIENT = ("Md5Mismatch", "PendingCopyOperation", "ContainerBeingDeleted", "AccountBeingCreated")
_CHANGED = ("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet")
_LOST_BLOCKS = "InvalidBlockList"
_COPY_PAUSE_SECS = 0.2


class AzureOptions(RequestOptions):
    """`RequestOptions` of Azure Blob Storage, from variables `BEAM_PIPES_AZURE_<OPTION>`.

    Account and credentials are those of the Azure command line: `AZURE_STORAGE_CONNECTION_STRING`, or
    `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`, or else those that azure-identity
    finds (`az login`, managed identities, `AZURE_CLIENT_ID`, …).
    """

    PREFIX: ClassVar[str] = "BEAM_PIPES_AZURE_"


class AzureStorage(EtagStorage):
    """The `Storage` protocol over Azure Blob Storage; paths are `az://container/directory/file`.

    Beam's spelling with the storage account, `azfs://account/container/directory/file`, is read too.
    """

    SCHEME = "az://"
    options: AzureOptions
    _PATH = re.compile(r"(?:az://|azfs://([^/]+)/)([^/]+)(?:/(.*))?", re.DOTALL)

    def __init__(self, options: AzureOptions | None = None) -> None:
        self.options = AzureOptions.from_environment() if options is None else options
        self.parallel = self.options.num_threads

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

    # Writing.

    def put(
        self, path: str, data: bytes, *, if_generation_match: int | None = None, deadline_secs: float | None = None
    ) -> int:
        """Writes a blob with one request; its generation, which is its ETag as a number.

        Raises `ChangedMeanwhileError` if the present generation (0: no blob) is another one: also where an earlier
        attempt has written it, and its answer was lost.
        """
        condition = _if_match(etag_of(if_generation_match)) if if_generation_match else {}

        def attempt() -> int:
            made = self._blob(path).upload_blob(
                data, overwrite=if_generation_match != 0, validate_content=True, **condition
            )
            return generation_of(made["etag"])

        made = self._retrying(attempt, path, "write", deadline_secs=deadline_secs)
        reached("object/put")
        return made

    def _upload(self, path: str, file: IO[bytes], size: int, crc32c: int) -> None:
        for _ in range(MOST_SESSIONS):
            if self._upload_blocks(path, file, size):
                return
        raise StorageUnavailableError(
            f"{path}: cannot write: {MOST_SESSIONS} times, another process wrote the same blob while its blocks were "
            "sent. Look who builds there, and run again.",
            path=path,
        )

    def _upload_blocks(self, path: str, file: IO[bytes], size: int) -> bool:
        """False if the service has dropped our blocks, because another process wrote to the same path meanwhile."""
        storage = _package()
        token, whole = secrets.token_hex(8), hashlib.md5(usedforsecurity=False)
        blocks: list[BlobBlock] = []
        part_bytes = max(self.options.chunk_bytes, -(-size // _MOST_BLOCKS))
        for start in range(0, size, part_bytes):
            file.seek(start)
            part = file.read(min(part_bytes, size - start))
            whole.update(part)
            blocks.append(storage.BlobBlock(f"{token}-{len(blocks):05d}"))
            send = functools.partial(self._blob(path).stage_block, blocks[-1].id, part, validate_content=True)
            self._retrying(send, path, "write")
        content = storage.ContentSettings(
            content_type="application/octet-stream", content_md5=bytearray(whole.digest())
        )

        def commit() -> bool:
            # A second time, after a lost answer, it takes the blocks that the first time has committed.
            try:
                self._blob(path).commit_block_list(blocks, content_settings=content, validate_content=True)
            except Exception as error:
                if _code_of(error) != _LOST_BLOCKS:
                    raise
                return False
            return True

        return self._retrying(commit, path, "write")

    def delete(self, path: str) -> None:
        with contextlib.suppress(CacheNotFoundError):
            self._retrying(lambda: self._blob(path).delete_blob(), path, "delete")

    def delete_generation(self, path: str, generation: int, *, deadline_secs: float | None = None) -> None:
        condition = _if_match(etag_of(generation))
        with contextlib.suppress(CacheNotFoundError, ChangedMeanwhileError):
            self._retrying(
                lambda: self._blob(path).delete_blob(**condition), path, "delete", deadline_secs=deadline_secs
            )

    def link_or_copy(self, source: str, target: str) -> None:
        """A copy inside the service; within an account it is complete with the answer, and else waited for."""
        self._retrying(lambda: self._blob(target).start_copy_from_url(self._blob(source).url), source, "copy")
        while (copy := self._properties(target).copy).status == "pending":
            time.sleep(_COPY_PAUSE_SECS)
        if copy.status != "success":
            raise StorageError(
                f"{source}: cannot copy: the service ended with {copy.status!r} ({copy.status_description}). Run "
                "again.",
                path=source,
            )
        reached("object/copied")

    # The build lock.

    def get_dated(self, path: str) -> tuple[bytes, int, datetime, datetime]:
        dates: list[str] = []
        data, found = self._get(path, raw_response_hook=lambda told: dates.append(told.http_response.headers["Date"]))
        return data, generation_of(found.etag), found.last_modified, date_of(dates[-1])

    # Requests.

    def _account(self, path: str) -> BlobServiceClient:
        found = self._PATH.fullmatch(path)
        return _account(self.options, found[1] if found else None, os.getpid(), _environment())

    def _blob(self, path: str) -> BlobClient:
        return self._account(path).get_blob_client(*self.split_path(path))

    def _service(self, path: str, doing: str) -> Service:
        return Service(_status_of, _is_transient, functools.partial(_refused, path=path, doing=doing))

    def _properties(self, path: str) -> BlobProperties:
        return self._retrying(lambda: self._blob(path).get_blob_properties(), path, "read")

    def _head(self, path: str) -> tuple[str, ObjectStatus]:
        found = self._properties(path)
        return found.etag, _status(path, found)

    def _get(self, path: str, **options: Unpack[_Get]) -> tuple[bytes, BlobProperties]:
        told = options.pop("raw_response_hook", None)

        def looked_at(response: Any) -> None:
            _require_asked_range(path, response)
            if told is not None:
                told(response)

        def attempt() -> tuple[bytes, BlobProperties]:
            try:
                # In requests of 4 MiB, the most that the service sends an MD5 of, bound to the ETag of the first.
                answer = self._blob(path).download_blob(
                    validate_content=True,
                    max_concurrency=1,
                    raw_response_hook=looked_at,
                    **options,
                )
                data = answer.readall()
            except Exception as error:
                if "etag" not in options and _code_of(error) in _CHANGED:
                    raise Incomplete("another blob was written there while this one was read") from error
                raise
            if len(data) != answer.size:
                raise Incomplete(f"expected {answer.size} bytes, found {len(data)}")
            return data, answer.properties

        return self._retrying(attempt, path, "read")

    def _get_range(self, path: str, start: int, size: int, etag: str, total: int) -> bytes:
        return self._get(path, offset=start, length=size, **_if_match(etag))[0]

    def _read_whole(self, path: str) -> tuple[bytes, int]:
        data, found = self._get(path)
        return data, generation_of(found.etag)

    def _page(
        self, path: str, prefix: str, delimiter: str | None, token: str | None, *, most: int | None = None
    ) -> Page:
        name, key = self.split_path(path)
        root = path.removesuffix(key).rstrip("/")

        def attempt() -> tuple[list[BlobProperties | BlobPrefix], str | None]:
            container = self._account(path).get_container_client(name)
            list_blobs = (
                functools.partial(container.walk_blobs, delimiter=delimiter) if delimiter else container.list_blobs
            )
            listing = list_blobs(name_starts_with=prefix or None, results_per_page=most or self.options.page_names)
            pages: Any = listing.by_page(token)  # its type there knows no token
            return list(next(pages, ())), pages.continuation_token or None

        found, token = self._retrying(attempt, path, "list")
        while not found and token:  # between two of its servers the service gives pages without names
            found, token = self._retrying(attempt, path, "list")
        prefix_type: type[BlobPrefix] = _package().BlobPrefix
        directories = sorted(entry.name for entry in found if isinstance(entry, prefix_type))
        objects = [_status(f"{root}/{entry.name}", entry) for entry in found if not isinstance(entry, prefix_type)]
        return Page(objects, directories, token)


def _package() -> ModuleType:
    return require("azure.storage.blob", purpose="az:// paths")


def _if_match(etag: str) -> _IfMatch:
    return {"etag": etag, "match_condition": require("azure.core", purpose="az:// paths").MatchConditions.IfNotModified}


def _status(path: str, found: Any) -> ObjectStatus:
    # What writes into page blobs and append blobs leaves their MD5 as it was.
    md5 = found.content_settings.content_md5 if found.blob_type == "BlockBlob" else None
    digest = f"md5:{base64.b64encode(md5).decode()}" if md5 else None
    return status_by_etag(path, found.etag, found.size, found.last_modified, digest=digest)


def _environment() -> tuple[str | None, ...]:
    """What a client depends on besides its options: one made before they were set would not see them."""
    return tuple(os.environ.get(name) for name in (_CONNECTION, _ACCOUNT, _KEY, _SAS))


@functools.lru_cache(maxsize=8)
def _account(
    options: AzureOptions, name: str | None, pid: int, environment: tuple[str | None, ...]
) -> BlobServiceClient:
    """The client of this process for one account; a forked child gets its own: connections cannot be shared."""
    make: type[BlobServiceClient] = _package().BlobServiceClient
    connection, default_name, key, sas = environment
    how: _Client = {"transport": _transport(options), "retry_total": 0}  # `retrying` does it, with a deadline
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
    """A body that has arrived, in place of the connection that it came over."""

    enforce_content_length = True  # set from outside, and looked at before it is here


def _transport(options: AzureOptions) -> RequestsTransport:
    """Requests whose answers are read to their end, within the time of an attempt, before anybody looks at them."""
    import requests
    from azure.core.pipeline.transport import RequestsTransport
    from requests.adapters import HTTPAdapter

    def take(answer: requests.Response, **_: object) -> None:
        if answer.request.method != "HEAD":
            told = answer.headers.get("Content-Length")
            deadline = time.monotonic() + options.attempt_timeout_secs
            body = pieces(answer.raw.read1, None if told is None else int(told), deadline=deadline)
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


def _status_of(error: BaseException) -> int | None:
    code = getattr(error, "status_code", None)
    return code if isinstance(code, int) else None


def _code_of(error: BaseException) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code))


def _is_transient(error: BaseException, status: int | None) -> bool:
    if status is not None:
        return _code_of(error) in _TRANSIENT
    import urllib3.exceptions
    from azure.core import exceptions

    if isinstance(error, exceptions.ClientAuthenticationError) or _is_unknown_host(error):
        return False
    broken = (
        exceptions.ServiceRequestError,
        exceptions.ServiceResponseError,
        exceptions.IncompleteReadError,
        exceptions.DecodeError,
        urllib3.exceptions.HTTPError,
    )
    # What the library raises for an MD5 that does not hold has no class of its own.
    return isinstance(error, broken) or (type(error) is exceptions.AzureError and "MD5" in str(error))


def _is_unknown_host(error: BaseException | None) -> bool:
    """Whether the name service answers that there is no such name, and not that it cannot say now."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return error.errno == socket.EAI_NONAME
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return False


def _refused(error: BaseException, status: int | None, *, path: str, doing: str) -> BaseException:
    container, code = AzureStorage.split_path(path)[0], _code_of(error)
    said: Mapping[str, object] = {"path": path, "status": status}
    if type(error).__name__ in ("ClientAuthenticationError", "CredentialUnavailableError") and status is None:
        return StorageError(
            f"there are no credentials for az:// paths on this machine ({in_short(error)}). Run: az login; or set "
            f"{_CONNECTION}, or {_ACCOUNT} with {_KEY} or {_SAS}; or, for public containers, "
            "BEAM_PIPES_AZURE_ANONYMOUS=1.",
            path=path,
        )
    if status is None and _is_unknown_host(error):
        return StorageError(
            f"{path}: cannot {doing}: there is no storage account of this name ({in_short(error)}). Check {_ACCOUNT}, "
            f"{_CONNECTION} or the path.",
            path=path,
        )
    if code == "ContainerNotFound":
        return BucketNotFoundError(
            f"{path}: cannot {doing}: there is no container {container!r}. Check its name and the account, or create "
            f"it: az storage container create --name {container}",
            path=path,
            bucket=container,
        )
    if status in (401, 403):
        return StorageForbiddenError(
            f"{path}: these credentials may not {doing} there ({in_short(error)}). Reading needs the role Storage Blob "
            f"Data Reader on the container {container!r}, building Storage Blob Data Contributor; a SAS token needs "
            "the permissions r and l, for building c, w and d too.",
            **said,
        )
    if status == 404:
        return CacheNotFoundError(f"expected an object at {path!r}, and there is none", path=path)
    if code in _CHANGED:
        return refused_anywhere(error, 412, path=path, doing=doing)
    if status in (409, 412):
        return StorageError(
            f"{path}: cannot {doing}: what is there does not allow it ({in_short(error)}): a lease of somebody else, "
            "snapshots, the archive tier, or a blob of another type. Look at it: az storage blob show --container-name "
            f"{container} --name {AzureStorage.split_path(path)[1]!r}",
            **said,
        )
    return refused_anywhere(error, status, path=path, doing=doing)
