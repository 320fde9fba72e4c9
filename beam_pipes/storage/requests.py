"""How every object store is accessed: options, attempts, and what answers and exceptions of clients mean.

A request is tried again for a bounded time, and ends in an error that says what to do. Pauses are drawn between zero
and a limit that doubles ("full jitter": Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015), so that
a thousand workers that fail together do not come back together. The clients' own retries are off: they count attempts
where a build needs a deadline, and none of them repeats an answer whose body breaks off.

What went wrong is looked up: first what the service calls it (`Requests.CODES`), then its HTTP status, then the class
of the exception. The text for it is in `REFUSALS`, or in the table of the same name of the service.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import random
import re
import time
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple, ParamSpec, TypeVar

from beam_pipes.checks import number
from beam_pipes.errors import (
    BeamPipesError,
    CacheNotFoundError,
    ChangedMeanwhileError,
    StorageError,
    StorageUnavailableError,
    logger,
)

_log = logger("beam_pipes.cache")

OptionsT = TypeVar("OptionsT", bound="RequestOptions")
P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """How an object store is accessed. Workers find the same options in the environment: see `from_environment`.

    Args:
        anonymous: send no credentials; for public buckets, and to look for none on a machine that has none.
        deadline_secs: how long one operation (a request, a part of an upload) is tried again before it is an error.
            Five minutes outlast what the service calls a transient failure, and limit how long a build waits in vain.
        attempt_timeout_secs: after how long without a byte, or without an end, an attempt counts as failed.
        most_backoff_secs: the longest pause between two attempts; pauses double up to it, and are drawn at random.
        chunk_bytes: an upload sends this much at once, and a reader reads ahead this much: what a broken connection
            costs, and what each open file takes of memory. A multiple of 256 KiB.
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
            if field.name != "anonymous":
                number(getattr(self, field.name), above=0, what=field.name, error=StorageError)
        if self.chunk_bytes % (256 << 10):
            raise StorageError(f"chunk_bytes should be a multiple of {256 << 10} (256 KiB), got {self.chunk_bytes}.")

    @classmethod
    def from_environment(cls: type[OptionsT]) -> OptionsT:
        """Each option from the variable `<PREFIX><OPTION>`, where that is set; `PREFIX` is that of the service.

        `BEAM_PIPES_GCS_ANONYMOUS=1 BEAM_PIPES_GCS_DEADLINE_SECS=60` → `GcsOptions(anonymous=True, deadline_secs=60.0)`.
        Raises `StorageError` if the value is invalid.
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


def per_process(*variables: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function that makes a client: one client per arguments, process and environment.

    A forked child gets clients of its own, because connections cannot be shared, and its parent's locks and threads do
    not work there. A client made before one of the `variables` was set would not see it.
    """

    def kept(make: Callable[P, T]) -> Callable[P, T]:
        @functools.lru_cache(maxsize=8)
        def made(process: tuple[object, ...], *args: P.args, **options: P.kwargs) -> T:
            return make(*args, **options)

        @functools.wraps(make)
        def get(*args: P.args, **options: P.kwargs) -> T:
            process = (os.getpid(), *map(os.environ.get, variables))
            return made(process, *args, **options)  # type: ignore[arg-type]  # what a client is made of has a hash

        return get

    return kept


class Incomplete(ConnectionError):
    """An answer that broke off, or whose bytes do not match their checksum."""


class Kind(enum.Enum):
    """What went wrong with a request, whichever service and client it was."""

    AGAIN = "the same request may well succeed the next time"
    NO_CREDENTIALS = "there are none on this machine"
    NO_ACCOUNT = "there is no such account"
    NO_BUCKET = "there is no such bucket"
    EXPIRED = "the credentials have expired"
    FORBIDDEN = "these credentials do not permit this"
    MISSING = "there is no such object"
    CHANGED = "a condition of the request does not hold"
    BLOCKED = "what is there does not allow it"
    REFUSED = "the service has another reason"


class Refusal(NamedTuple):
    """The error that stands for a kind, and its text: `{path}`, `{doing}`, `{bucket}`, `{key}`, `{who}`, `{said}`."""

    error: type[BeamPipesError]
    text: str


REFUSALS: Mapping[Kind, Refusal] = {
    Kind.MISSING: Refusal(CacheNotFoundError, "expected an object at {path!r}, and there is none"),
    Kind.CHANGED: Refusal(
        ChangedMeanwhileError,
        "{path}: cannot {doing}: another process has changed the object meanwhile. What it wrote is there, what this "
        "one would have written is not; look who builds there, and run again.",
    ),
    Kind.REFUSED: Refusal(StorageError, "{path}: cannot {doing}: the service refuses it ({said})."),
}

_STATUSES: Mapping[int, Kind] = {
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504, 529), Kind.AGAIN),
    **dict.fromkeys((401, 403), Kind.FORBIDDEN),
    **dict.fromkeys((404, 410), Kind.MISSING),
    412: Kind.CHANGED,
}

# By name, so that looking one up imports no client; the nearest base counts. None: raised as it is.
EXCEPTIONS: Mapping[str, Kind | None] = {
    **dict.fromkeys(
        (
            "builtins.ConnectionError",
            "builtins.TimeoutError",
            "http.client.HTTPException",
            "json.decoder.JSONDecodeError",
            "urllib.error.URLError",
            "urllib3.exceptions.HTTPError",
            "requests.exceptions.ConnectionError",
            "requests.exceptions.Timeout",
            "requests.exceptions.ChunkedEncodingError",
            "requests.exceptions.ContentDecodingError",
            "requests.exceptions.JSONDecodeError",
            "google.api_core.exceptions.RetryError",
            "google.auth.exceptions.TransportError",
            "google.resumable_media.common.DataCorruption",
            "botocore.exceptions.FlexibleChecksumError",
            "botocore.exceptions.HTTPClientError",
            "botocore.exceptions.IncompleteReadError",
            "azure.core.exceptions.DecodeError",
            "azure.core.exceptions.ServiceRequestError",
            "azure.core.exceptions.ServiceResponseError",
            "aiohttp.client_exceptions.ClientConnectionError",
            "httpx.TransportError",
            "httpx2.TransportError",
        ),
        Kind.AGAIN,
    ),
    **dict.fromkeys(
        (
            "azure.core.exceptions.ClientAuthenticationError",
            "botocore.exceptions.NoCredentialsError",
            "botocore.exceptions.PartialCredentialsError",
            "botocore.exceptions.ProfileNotFound",
        ),
        Kind.NO_CREDENTIALS,
    ),
    "google.auth.exceptions.InvalidOperation": Kind.FORBIDDEN,  # a 401, and no credentials that could be refreshed
    "ssl.SSLCertVerificationError": None,
    "urllib.error.HTTPError": Kind.REFUSED,  # with a status that has no other meaning
}

FIRST_BACKOFF_SECS = 0.2
# After this share of the deadline (10 s of 300) a line says what we are waiting for.
TOLD_AFTER = 1 / 30
_PIECE_BYTES = 256 << 10


class Requests(ABC):
    """Attempts at a service until its options' deadline, and its errors as ours."""

    SCHEME: ClassVar[str]
    OPTIONS: ClassVar[type[RequestOptions]]
    #: What the service calls its errors, where that says more than the status.
    CODES: ClassVar[Mapping[str, Kind]] = {}
    REFUSALS: ClassVar[Mapping[Kind, Refusal]] = {}

    def __init__(self, options: RequestOptions | None = None) -> None:
        self.options = self.OPTIONS.from_environment() if options is None else options
        self.parallel = self.options.num_threads

    @classmethod
    def split_path(cls, path: str) -> tuple[str, str]:
        """(bucket, key): `gs://bucket/a/b` → `("bucket", "a/b")`. Raises `StorageError` if there is no bucket."""
        bucket, _, key = os.fspath(path).removeprefix(cls.SCHEME).partition("/")
        if not path.startswith(cls.SCHEME) or not bucket:
            raise StorageError(f"expected a path {cls.SCHEME}bucket/directory, got {path!r}", path=path)
        return bucket, key

    @property
    def who(self) -> str:
        """The identity that the service knows us by, for messages."""
        return "an anonymous caller" if self.options.anonymous else "these credentials"

    def kind_of(self, error: BaseException, path: str) -> Kind | None:
        """What went wrong; None for an error of the program, which is raised as it is."""
        return kind_of(error, self.CODES)

    def refusal(self, error: BaseException, kind: Kind, path: str, doing: str) -> BeamPipesError:
        """Our error for a refusal."""
        bucket, key = self.split_path(path)
        made, text = self.REFUSALS.get(kind) or REFUSALS.get(kind) or REFUSALS[Kind.REFUSED]
        said, status = in_short(error), answer_of(error)[1]
        words = {"path": path, "doing": doing, "bucket": bucket, "key": key, "said": said, "who": self.who}
        return made(text.format(**words), path=path, bucket=bucket, status=status)

    def retrying(self, attempt: Callable[[], T], path: str, doing: str, *, deadline_secs: float | None = None) -> T:
        """What `attempt` returns, after as many attempts as fit into `options.deadline_secs`.

        `doing` names the operation in messages ("read", "write", "list", "delete"). An attempt that failed may have
        taken effect: pass only what may be done twice.

        Raises:
            CacheNotFoundError: there is no such object.
            BucketNotFoundError: there is no such bucket.
            StorageForbiddenError: the identity we authenticate as may not do this.
            ChangedMeanwhileError: a precondition does not hold.
            StorageUnavailableError: the deadline has passed; it names the last failure.
            StorageError: the service refuses the request for another reason.
        """
        options = self.options
        most_secs = options.deadline_secs if deadline_secs is None else deadline_secs
        started = time.monotonic()
        backoff = FIRST_BACKOFF_SECS
        attempts = 0
        has_told = False
        while True:
            attempts += 1
            try:
                return attempt()
            except BeamPipesError:
                raise
            except Exception as error:
                kind = self.kind_of(error, path)
                if kind is None:
                    raise
                if kind is not Kind.AGAIN:
                    raise self.refusal(error, kind, path, doing) from error
                if attempts == 1:  # an upload may have gone well for longer than any deadline
                    started = max(started, time.monotonic() - options.attempt_timeout_secs)
                pause = max(random.uniform(0, backoff), retry_after_secs(error))
                left = started + most_secs - time.monotonic()
                if pause >= left:
                    raise StorageUnavailableError(
                        f"{path}: cannot {doing}: {attempts} attempts in {time.monotonic() - started:.0f} s failed, "
                        f"the last with: {in_short(error)}. Nothing half done is visible; try again later, or allow "
                        f"more than deadline_secs={most_secs:g} ({options.PREFIX}DEADLINE_SECS).",
                        path=path,
                        attempts=attempts,
                    ) from error
                if not has_told and (secs := time.monotonic() - started) >= most_secs * TOLD_AFTER:
                    has_told = True
                    _log.warning(
                        "%s: cannot %s, %d attempts in %.0f s failed, the last with: %s. Trying for %.0f s more.",
                        *(path, doing, attempts, secs, in_short(error), left),
                    )
                time.sleep(pause)
                backoff = min(2 * backoff, options.most_backoff_secs)


def kind_of(error: BaseException, codes: Mapping[str, Kind] = MappingProxyType({})) -> Kind | None:
    """What went wrong with a request of any client, by what the service calls it, the HTTP status or the exception."""
    code, status = answer_of(error)
    kind = codes.get(code) or _STATUSES.get(status or 0)
    if kind is not None:
        return kind
    for each in (getattr(error, "reason", None), error):
        for cls in type(each).__mro__:
            if (name := f"{cls.__module__}.{cls.__qualname__}") in EXCEPTIONS:
                return EXCEPTIONS[name]
    if getattr(error, "retryable", False) is True:  # google.auth's RefreshError
        return Kind.AGAIN
    return None if status is None else Kind.REFUSED


def answer_of(error: BaseException) -> tuple[str, int | None]:
    """What the service called its error, and the HTTP status; ("", None) if it did not answer."""
    answer = getattr(error, "response", None)
    if isinstance(answer, Mapping):  # botocore's
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return str(answer.get("Error", {}).get("Code", "")), status if isinstance(status, int) else None
    named = getattr(error, "error_code", None)  # azure-core's
    for status in (
        getattr(error, "status_code", None),
        getattr(error, "code", None),
        getattr(answer, "status_code", None),
    ):
        if isinstance(status, int):
            return str(getattr(named, "value", named)), int(status)
    return "", None


def pieces(read1: Callable[[int], bytes], size: int | None, *, deadline: float | None) -> Iterator[bytes]:
    """The body of an answer, exactly `size` bytes of it; None: as much as there is.

    Raises `Incomplete` if it breaks off, or takes until after the deadline (of `time.monotonic`): a server that
    sends a byte now and then would hold a reader forever.
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


def body_of(
    read1: Callable[[int], bytes],
    *,
    path: str,
    start: int,
    size: int | None,
    length: int | None,
    is_part: bool,
    content_range: str | None,
    total_secs: float,
) -> bytes:
    """The requested part of a body of `length` bytes: `size` bytes from `start`, or as many as there are; None: all.

    Unless the answer is a part of the object (status 206), the body is the whole object, whatever was requested.
    """
    deadline = time.monotonic() + total_secs
    # Some send a part as if it were the whole, which has more bytes than are asked for behind its beginning.
    seems_part = is_part or content_range is not None or (start > 0 and length is not None and length <= (size or 0))
    if size is not None and seems_part:
        held = require_range(content_range, path=path, start=start, size=size, length=length)
        return b"".join(pieces(read1, held, deadline=deadline))
    if size is None:
        return b"".join(pieces(read1, length, deadline=deadline))
    most = None if length is None else min(length, start + size)
    return b"".join(pieces(read1, most, deadline=deadline))[start : start + size]


def require_range(
    content_range: str | None,
    *,
    path: str,
    start: int,
    size: int,
    length: int | str | None = None,
    total: int | None = None,
) -> int:
    """How many bytes an answer holds, by its `Content-Range`; fewer than `size` where the object ends before.

    Raises `StorageError` unless they are the requested ones, of a file of `total` bytes: a cache in between may answer
    with others. Raises `Incomplete` if the body is of another `length`: it was cut, or compressed on the way.
    """
    found = re.fullmatch(r"\s*bytes (\d+)-(\d+)/(\d+|\*)\s*", content_range or "", re.ASCII | re.IGNORECASE)
    if found is not None:
        first, last, whole = int(found[1]), int(found[2]), None if found[3] == "*" else int(found[3])
        end = start + size if whole is None else min(start + size, whole)
        if first == start and last + 1 == end and (total is None or whole in (None, total)):
            if length is not None and int(length) != end - start:
                raise Incomplete(f"the answer has {length} bytes, and by its Content-Range {end - start}")
            return end - start
    raise StorageError(
        f"{path}: asked for the bytes {start}-{start + size - 1}/{'*' if total is None else total}, and the answer "
        f"holds {content_range or 'others'}: a server or proxy on the way mixes up ranges, or the file changed. "
        "Download it, or go around the proxy.",
        path=path,
    )


def retry_after_secs(error: BaseException) -> float:
    headers = getattr(getattr(error, "response", error), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except (TypeError, ValueError):
        return 0.0


def in_short(error: BaseException) -> str:
    """An error as one line of a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
