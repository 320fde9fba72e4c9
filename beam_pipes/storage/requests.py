"""Requests to Google Cloud Storage: the options, one client for each process, and retries.

Credentials are found quickly or not at all, and connections serve many threads. A request is tried again for a bounded
time, and ends in an error that says what to do. Pauses are drawn between zero and a limit that doubles ("full jitter":
Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015), so that a thousand workers that fail together do
not come back together.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from beam_pipes.errors import (
    BucketNotFoundError,
    CacheNotFoundError,
    ChangedMeanwhileError,
    StorageError,
    StorageForbiddenError,
    StorageUnavailableError,
    logger,
)
from beam_pipes.extras import require

if TYPE_CHECKING:
    import requests

_log = logger("beam_pipes.cache")

OptionsT = TypeVar("OptionsT", bound="RequestOptions")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """How an object store is spoken to. Workers find the same options in the environment: see `from_environment`.

    Args:
        anonymous: send no credentials; for public buckets, and to look for none on a machine that has none.
        deadline_secs: how long one operation (a request, a chunk of an upload) is tried again before it is an error.
            Five minutes outlast what the service calls a transient failure, and bound what a build waits for nothing.
        attempt_timeout_secs: after how long without a byte, or without an end, an attempt counts as failed.
        most_backoff_secs: the longest pause between two attempts; pauses double up to it, and are drawn at random.
        chunk_bytes: a resumable upload sends this much at once, and a reader reads ahead this much: what a broken
            connection costs, and what each open file takes of memory. A multiple of 256 KiB.
        num_threads: requests at once where many files are listed, copied or deleted.
        page_names: names in a page of a listing; the service gives a thousand at most.
        lease_secs: the build lock ends this long after its holder was last heard of.
    """

    PREFIX: ClassVar[str] = ""

    anonymous: bool = False
    deadline_secs: float = 300.0
    attempt_timeout_secs: float = 60.0
    most_backoff_secs: float = 30.0
    chunk_bytes: int = 8 << 20
    num_threads: int = 16
    page_names: int = 1000
    lease_secs: float = 60.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "anonymous" and not value > 0:
                raise StorageError(f"{field.name} should be positive, got {value!r}.")
        if self.chunk_bytes % (256 << 10):
            raise StorageError(f"chunk_bytes should be a multiple of {256 << 10} (256 KiB), got {self.chunk_bytes}.")

    @classmethod
    def from_environment(cls: type[OptionsT]) -> OptionsT:
        """Each option from the variable `<PREFIX><OPTION>`, where that is set; `PREFIX` is that of the service.

        `BEAM_PIPES_GCS_ANONYMOUS=1 BEAM_PIPES_GCS_DEADLINE_SECS=60` → `GcsOptions(anonymous=True, deadline_secs=60.0)`.
        Raises `StorageError` for a value that is none.
        """
        found: dict[str, bool | int | float] = {}
        for field in dataclasses.fields(cls):
            name = cls.PREFIX + field.name.upper()
            text = os.environ.get(name)
            if text is None:
                continue
            try:
                if field.type == "bool":
                    found[field.name] = {"1": True, "true": True, "0": False, "false": False, "": False}[text.lower()]
                else:
                    found[field.name] = int(text) if field.type == "int" else float(text)
            except (KeyError, ValueError):
                expected = {"bool": "0 or 1", "int": "an int", "float": "a number"}[str(field.type)]
                raise StorageError(f"the variable {name} should be {expected}, got {text!r}.") from None
        return cls(**found)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GcsOptions(RequestOptions):
    """`RequestOptions` of Google Cloud Storage, from variables `BEAM_PIPES_GCS_<OPTION>`."""

    PREFIX: ClassVar[str] = "BEAM_PIPES_GCS_"


EMULATOR = "STORAGE_EMULATOR_HOST"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"

# Google's own look-up asks a machine that is not there for 25 seconds. On its machines the answer takes a millisecond.
METADATA_SECS = 1.0


class Session:
    """A `google.cloud.storage.Client` and the HTTP session it speaks through. Thread-safe; not for a forked child."""

    def __init__(self, options: GcsOptions) -> None:
        storage = require("google.cloud.storage", purpose="gs:// paths")
        from google.auth.transport.requests import AuthorizedSession
        from requests.adapters import HTTPAdapter

        self.emulator = os.environ.get(EMULATOR)
        self.credentials, project = _credentials(anonymous=options.anonymous or bool(self.emulator))
        authorized: Callable[[object], requests.Session] = AuthorizedSession
        self.http = authorized(self.credentials)
        for scheme in ("http://", "https://"):
            self.http.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=2 * options.num_threads))
        self.client = storage.Client(project=project or "<none>", credentials=self.credentials, _http=self.http)
        self.timeout = (min(10.0, options.attempt_timeout_secs), options.attempt_timeout_secs)

    @property
    def endpoint(self) -> str:
        """`https://storage.googleapis.com`, or the emulator."""
        return str(self.client.api_endpoint).rstrip("/")

    @property
    def who(self) -> str:
        """Whom the service takes us for, in words."""
        if self.emulator or type(self.credentials).__name__ == "AnonymousCredentials":
            return "an anonymous caller"
        return getattr(self.credentials, "service_account_email", None) or "the account of these credentials"


def session_for(options: GcsOptions) -> Session:
    """The session of this process; a forked child gets one of its own, because connections cannot be shared."""
    return _session(options, os.getpid(), os.environ.get(EMULATOR))


@functools.lru_cache(maxsize=8)
def _session(options: GcsOptions, pid: int, emulator: str | None) -> Session:
    return Session(options)


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
    """Whether a metadata server of Google's gives this machine credentials."""
    if os.environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    host = os.environ.get("GCE_METADATA_HOST", "169.254.169.254")
    request = urllib.request.Request(f"http://{host}/", headers={"Metadata-Flavor": "Google"})
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=METADATA_SECS) as response:
            return bool(response.headers.get("Metadata-Flavor") == "Google")
    except OSError:
        return False


FIRST_BACKOFF_SECS = 0.2
# After this share of the deadline (10 s of 300) a line says what is being waited for.
TOLD_AFTER = 1 / 30
_PIECE_BYTES = 256 << 10
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})

T = TypeVar("T")


class HttpError(Exception):
    """An answer that is no success, of a request that we made ourselves."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(f"{response.status_code} {response.reason}: {response.text[:200]}")
        self.code = int(response.status_code)
        self.response = response


class Incomplete(Exception):
    """An answer that broke off, or whose bytes do not have their checksum."""


class Service(NamedTuple):
    """What retries know of a service: the status behind an error, whether to try again, and a refusal in words.

    `is_transient` is asked about what is not transient at every service. `refused` gives an error that it has no words
    for back.
    """

    status_of: Callable[[BaseException], int | None]
    is_transient: Callable[[BaseException, int | None], bool]
    refused: Callable[[BaseException, int | None], BaseException]

    def may_pass(self, error: BaseException, code: int | None) -> bool:
        """Whether the same request may well succeed the next time."""
        broken = isinstance(error, (Incomplete, ConnectionError, TimeoutError)) if code is None else False
        return broken or code in RETRIED_STATUSES or self.is_transient(error, code)


def retrying(attempt: Callable[[], T], *, options: RequestOptions, path: str, doing: str, service: Service) -> T:
    """What `attempt` returns, after as many attempts as fit into `options.deadline_secs`.

    `doing` names the operation in messages ("read", "write", "list", "delete"). An attempt that failed may have
    taken effect: give only what may be done twice. `service.refused` makes the error of an answer that stays the same.

    Raises:
        CacheNotFoundError: there is no such object.
        BucketNotFoundError: there is no such bucket.
        StorageForbiddenError: who asks may not do this.
        ChangedMeanwhileError: a precondition does not hold.
        StorageUnavailableError: the deadline has passed; it tells the last failure.
        StorageError: the service refuses the request for another reason.
    """
    started = time.monotonic()
    backoff = FIRST_BACKOFF_SECS
    attempts = 0
    has_told = False
    while True:
        attempts += 1
        try:
            return attempt()
        except Exception as error:
            code = service.status_of(error)
            if not service.may_pass(error, code):
                meaning = service.refused(error, code)
                if meaning is error:
                    raise
                raise meaning from error
            pause = max(random.uniform(0, backoff), _retry_after_secs(error))
            left = started + options.deadline_secs - time.monotonic()
            if pause >= left:
                raise StorageUnavailableError(
                    f"{path}: cannot {doing}: {attempts} attempts in {time.monotonic() - started:.0f} s failed, the "
                    f"last with: {in_short(error)}. Nothing half done is visible; try again later, or allow more than "
                    f"deadline_secs={options.deadline_secs:g} ({options.PREFIX}DEADLINE_SECS).",
                    path=path,
                    attempts=attempts,
                ) from error
            if not has_told and (secs := time.monotonic() - started) >= options.deadline_secs * TOLD_AFTER:
                has_told = True
                _log.warning(
                    "%s: cannot %s, %d attempts in %.0f s failed, the last with: %s. Trying for %.0f s more.",
                    *(path, doing, attempts, secs, in_short(error), left),
                )
            time.sleep(pause)
            backoff = min(2 * backoff, options.most_backoff_secs)


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error; None if it is no answer of the service."""
    code = getattr(error, "code", None)
    if type(error).__name__ == "InvalidOperation":  # google.auth's, which refreshes no credentials after a 401
        return 401
    if not isinstance(code, int):
        code = getattr(getattr(error, "response", None), "status_code", None)
    return int(code) if isinstance(code, int) else None


def is_transient(error: BaseException, code: int | None) -> bool:
    """What Google's libraries raise for a request that may well succeed the next time."""
    if code is not None:
        return False
    import requests.exceptions
    import urllib3.exceptions
    from google.auth.exceptions import RefreshError, TransportError

    broken = (
        requests.exceptions.ConnectionError,
        requests.exceptions.Timeout,
        requests.exceptions.ChunkedEncodingError,
        requests.exceptions.ContentDecodingError,
        urllib3.exceptions.HTTPError,
        TransportError,
    )
    if isinstance(error, broken):
        return True
    if isinstance(error, RefreshError):
        return bool(error.retryable)
    # A checksum of the library's own that does not hold; an answer that is cut in the middle of its JSON.
    return type(error).__name__ in ("DataCorruption", "JSONDecodeError")


def pieces(read1: Callable[[int], bytes], size: int | None, *, deadline: float | None) -> Iterator[bytes]:
    """The body of an answer, exactly `size` bytes of it; None: as much as there is.

    Raises `Incomplete` if it breaks off, or takes until after the deadline (of `time.monotonic`): a server that
    sends a byte now and then would hold a reader for ever.
    """
    left = size
    while left != 0 and (piece := read1(_PIECE_BYTES)):
        if deadline is not None and time.monotonic() > deadline:
            raise Incomplete(f"{'all' if size is None else size} bytes did not arrive in time")
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        yield piece
    if left:
        raise Incomplete(f"the answer broke off {left} bytes before its end, of {size}")


def require_range(told: str | None, *, path: str, start: int, size: int, total: int | None) -> None:
    """Raises `StorageError` unless `Content-Range` of an answer is the range that was asked for, of a file of `total`
    bytes: a cache on the way may answer with another one, whose bytes would be taken for those asked for."""
    found = re.fullmatch(r"\s*bytes (\d+)-(\d+)/(\d+|\*)\s*", told or "")
    if (
        found is None
        or (int(found[1]), int(found[2])) != (start, start + size - 1)
        or (total is not None and found[3] not in ("*", str(total)))
    ):
        whole = "*" if total is None else total
        raise StorageError(
            f"{path}: asked for the bytes {start}-{start + size - 1}/{whole}, and the answer holds {told or 'others'}: "
            "a server or proxy on the way mixes up ranges, or the file changed. Download it, or go around the proxy.",
            path=path,
        )


def _retry_after_secs(error: BaseException) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except (TypeError, ValueError):
        return 0.0


def in_short(error: BaseException) -> str:
    """An error on one line of a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def refused(
    error: BaseException,
    code: int | None,
    *,
    path: str,
    doing: str,
    who: Callable[[], str],
    bucket_exists: Callable[[], bool],
) -> BaseException:
    """What Google's answer with this status means, and what to do."""
    bucket = path.removeprefix("gs://").partition("/")[0]
    if code == 404:
        if not bucket_exists():
            return BucketNotFoundError(
                f"{path}: cannot {doing}: there is no bucket {bucket!r}. Check its name, or create it: gcloud storage "
                f"buckets create gs://{bucket}",
                path=path,
                bucket=bucket,
            )
        return CacheNotFoundError(f"expected an object at {path!r}, and there is none", path=path)
    if code in (401, 403):
        return StorageForbiddenError(
            f"{path}: {who()} may not {doing} there ({in_short(error)}). Reading needs the role "
            "roles/storage.objectViewer on the bucket, building roles/storage.objectUser: gcloud storage buckets "
            "add-iam-policy-binding "
            f"gs://{bucket} --member=… --role=roles/storage.objectUser",
            path=path,
            status=code,
        )
    return refused_anywhere(error, code, path=path, doing=doing)


def refused_anywhere(error: BaseException, code: int | None, *, path: str, doing: str) -> BaseException:
    """A refusal that means the same at every object store; an error that is no answer, as it is."""
    if code is None:
        return error
    if code == 412:
        return ChangedMeanwhileError(
            f"{path}: cannot {doing}: another process has changed the object meanwhile. What it wrote is there, what "
            "this one would have written is not; look who builds there, and run again.",
            path=path,
        )
    return StorageError(f"{path}: cannot {doing}: the service refuses it ({in_short(error)}).", path=path, status=code)
