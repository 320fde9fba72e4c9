"""Every request to the service: tried again for a bounded time, and in the end an error that says what to do.

Pauses are drawn between zero and a limit that doubles ("full jitter": Brooker, Exponential Backoff And Jitter, AWS
Architecture Blog, 2015), so that a thousand workers that fail together do not come back together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from beam_pipes.cache.gcs.options import GcsOptions
from beam_pipes.errors import (
    BucketNotFoundError,
    CacheNotFoundError,
    ChangedMeanwhileError,
    StorageError,
    StorageForbiddenError,
    StorageUnavailableError,
)

FIRST_BACKOFF_SECS = 0.2
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})

T = TypeVar("T")


class HttpError(Exception):
    """An answer that is no success, of a request that we made ourselves."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"{response.status_code} {response.reason}: {response.text[:200]}")
        self.code = int(response.status_code)
        self.response = response


class Incomplete(Exception):
    """An answer that broke off, or whose bytes do not have their checksum."""


def retrying(
    attempt: Callable[[], T],
    *,
    options: GcsOptions,
    path: str,
    doing: str,
    who: Callable[[], str] = lambda: "the caller",
    bucket_exists: Callable[[], bool] = lambda: True,
) -> T:
    """What `attempt` returns, after as many attempts as fit into `options.deadline_secs`.

    `doing` names the operation in messages ("read", "write", "list", "delete"). An attempt that failed may have
    taken effect: give only what may be done twice.

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
    while True:
        attempts += 1
        try:
            return attempt()
        except Exception as error:
            code = status_of(error)
            if not is_transient(error, code):
                if code is None:
                    raise
                raise _refused(error, code, path=path, doing=doing, who=who, bucket_exists=bucket_exists) from error
            pause = max(random.uniform(0, backoff), _retry_after_secs(error))
            left = started + options.deadline_secs - time.monotonic()
            if pause >= left:
                raise StorageUnavailableError(
                    f"{path}: cannot {doing}: {attempts} attempts in {time.monotonic() - started:.0f} s failed, the "
                    f"last with: {_words(error)}. Nothing half done is visible; try again later, or allow more than "
                    f"deadline_secs={options.deadline_secs:g} (BEAM_PIPES_GCS_DEADLINE_SECS).",
                    path=path,
                    attempts=attempts,
                ) from error
            time.sleep(pause)
            backoff = min(2 * backoff, options.most_backoff_secs)


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error; None where it is no answer of the service."""
    code = getattr(error, "code", None)
    if not isinstance(code, int):
        code = getattr(getattr(error, "response", None), "status_code", None)
    return int(code) if isinstance(code, int) else None


def is_transient(error: BaseException, code: int | None) -> bool:
    """Whether the same request may well succeed the next time."""
    if code is not None:
        return code in RETRIED_STATUSES
    if isinstance(error, (Incomplete, ConnectionError, TimeoutError)):
        return True
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


def _retry_after_secs(error: BaseException) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except (TypeError, ValueError):
        return 0.0


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip()[:300]


def _refused(
    error: BaseException,
    code: int,
    *,
    path: str,
    doing: str,
    who: Callable[[], str],
    bucket_exists: Callable[[], bool],
) -> Exception:
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
            f"{path}: {who()} may not {doing} there ({_words(error)}). Reading needs the role "
            "roles/storage.objectViewer on the bucket, building roles/storage.objectUser: gcloud storage buckets "
            "add-iam-policy-binding "
            f"gs://{bucket} --member=… --role=roles/storage.objectUser",
            path=path,
            status=code,
        )
    if code == 412:
        return ChangedMeanwhileError(
            f"{path}: cannot {doing}: another process has changed the object meanwhile. What it wrote is there, what "
            "this one would have written is not; look who builds there, and run again.",
            path=path,
        )
    return StorageError(f"{path}: cannot {doing}: the service refuses it ({_words(error)}).", path=path, status=code)
