"""Amazon S3, and what speaks its protocol (MinIO, R2, Ceph), as a place for caches and inputs, through boto3.

    write_new       PUT with If-None-Match: *      only where there is no object
    replace_if      PUT with If-Match: <ETag>      only over the object that was read
    large objects   multipart upload               nothing is visible before its last request
    readers         GET with Range and If-Match    one generation, never a mixture of two

The promises are those of `gs://`; readers, listings, retries and the build lock are the same code. The CRC32 of
what goes out and comes in is checked. Each process makes its own client, so that forked workers may read: the reason
for boto3 rather than a client with threads of its own, which cannot be forked.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import os
import secrets
import time
import zlib
from datetime import datetime
from typing import IO, Any, ClassVar, Protocol

from beam_pipes.errors import (
    BucketNotFoundError,
    CacheNotFoundError,
    StorageError,
    StorageForbiddenError,
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
from beam_pipes.storage.transfer import ObjectStatus, Page

# What the service answered, as botocore has parsed it.
_Answer = dict[str, Any]


class _Client(Protocol):
    """What we use of boto3's client, a class that it makes at run time."""

    def abort_multipart_upload(self, **request: object) -> _Answer: ...
    def complete_multipart_upload(self, **request: object) -> _Answer: ...
    def copy(self, source: dict[str, str], *target: str, **options: object) -> None: ...
    def create_multipart_upload(self, **request: object) -> _Answer: ...
    def delete_object(self, **request: object) -> _Answer: ...
    def get_object(self, **request: object) -> _Answer: ...
    def head_object(self, **request: object) -> _Answer: ...
    def list_objects_v2(self, **request: object) -> _Answer: ...
    def put_object(self, **request: object) -> _Answer: ...
    def upload_part(self, **request: object) -> _Answer: ...


_MOST_PARTS = 10_000
_LEAST_PART_BYTES = 5 << 20
# Said with other statuses than 401 and 403 too.
_FORBIDDEN = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AllAccessDisabled")
# With statuses that mean something else otherwise: 400, and 409 for two conditional writes at once.
_TRANSIENT = ("RequestTimeout", "SlowDown", "BadDigest", "ConditionalRequestConflict")
_UPLOAD = "beam-pipes-upload"


@dataclasses.dataclass(frozen=True, kw_only=True)
class S3Options(RequestOptions):
    """`RequestOptions` of S3, from variables `BEAM_PIPES_S3_<OPTION>`.

    Credentials, region and endpoint are boto3's: `AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL`, roles of
    machines and containers.
    """

    PREFIX: ClassVar[str] = "BEAM_PIPES_S3_"


class S3Storage(EtagStorage):
    """The `Storage` protocol over S3; paths are `s3://bucket/directory/file`.

    Needs a service with conditional writes (`If-None-Match` and `If-Match` of PUT).
    """

    SCHEME = "s3://"
    options: S3Options

    def __init__(self, options: S3Options | None = None) -> None:
        self.options = S3Options.from_environment() if options is None else options
        self.parallel = self.options.num_threads

    # Writing.

    def put(
        self, path: str, data: bytes, *, if_generation_match: int | None = None, deadline_secs: float | None = None
    ) -> int:
        """Writes an object with one request; its generation, which is its ETag as a number.

        Raises `ChangedMeanwhileError` if the present generation (0: no object) is another one: also where an
        earlier attempt has written it, and its answer was lost.
        """
        condition: dict[str, str] = {}
        if if_generation_match is not None:
            condition = {"IfMatch": etag_of(if_generation_match)} if if_generation_match else {"IfNoneMatch": "*"}

        def attempt() -> int:
            made = self._client.put_object(**_named(path), Body=data, **condition)
            return generation_of(made["ETag"])

        made = self._retrying(attempt, path, "write", deadline_secs=deadline_secs)
        reached("object/put")
        return made

    def _upload(self, path: str, file: IO[bytes], size: int, crc32c: int) -> None:
        token, where = secrets.token_hex(8), _named(path)
        part_bytes = max(self.options.chunk_bytes, _LEAST_PART_BYTES, -(-size // _MOST_PARTS))
        started = self._retrying(
            lambda: self._client.create_multipart_upload(**where, ChecksumAlgorithm="CRC32", Metadata={_UPLOAD: token}),
            path,
            "write",
        )
        of_upload = {**where, "UploadId": started["UploadId"]}
        try:
            parts = []
            for number, start in enumerate(range(0, size, part_bytes), 1):
                file.seek(start)
                part = {"PartNumber": number, "Body": file.read(min(part_bytes, size - start))}
                send = functools.partial(self._client.upload_part, **of_upload, **part, ChecksumAlgorithm="CRC32")
                made = self._retrying(send, path, "write")
                checksum = {"ChecksumCRC32": made["ChecksumCRC32"]} if "ChecksumCRC32" in made else {}
                parts.append({"PartNumber": number, "ETag": made["ETag"], **checksum})
            tried = False

            def complete() -> None:
                nonlocal tried
                # An earlier attempt may have taken effect, and its answer was lost: the object has our token then.
                if not tried or not self._is_from(path, token, size):
                    tried = True
                    self._client.complete_multipart_upload(**of_upload, MultipartUpload={"Parts": parts})

            self._retrying(complete, path, "write")
        except BaseException:
            with contextlib.suppress(Exception):
                self._client.abort_multipart_upload(**of_upload)
            raise
        if (found := self.size(path)) != size:
            raise StorageError(
                f"{path}: the service has stored {found} bytes of {size} that it was sent. Run again; where it comes "
                "back, another process writes to the same path.",
                path=path,
            )

    def delete(self, path: str) -> None:
        with contextlib.suppress(CacheNotFoundError):
            self._retrying(lambda: self._client.delete_object(**_named(path)), path, "delete")

    def delete_generation(self, path: str, generation: int, *, deadline_secs: float | None = None) -> None:
        """As for every object store, in two requests: not all services that speak S3 delete under a condition."""
        with contextlib.suppress(CacheNotFoundError):
            if generation_of(self._head(path)[0]) == generation:
                self._retrying(
                    lambda: self._client.delete_object(**_named(path)), path, "delete", deadline_secs=deadline_secs
                )

    def link_or_copy(self, source: str, target: str) -> None:
        """A copy inside the service, in parts above 5 GB: no byte comes here."""
        alone = require("boto3.s3.transfer", purpose="s3:// paths").TransferConfig(use_threads=False)
        checked = {"ChecksumAlgorithm": "CRC32"}  # of the whole copy, also where the source was made of parts

        def attempt() -> None:
            self._client.copy(_named(source), *_named(target).values(), ExtraArgs=checked, Config=alone)

        self._retrying(attempt, source, "copy")
        reached("object/copied")

    # The build lock.

    def get_dated(self, path: str) -> tuple[bytes, int, datetime, datetime]:
        """Content, generation, when it was written, and the time now: both by the service's clock."""
        data, answer = self._get(path)
        now = date_of(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return data, generation_of(answer["ETag"]), answer["LastModified"], now

    # Requests.

    @property
    def _client(self) -> _Client:
        return _client(self.options, os.getpid(), _environment())

    def _service(self, path: str, doing: str) -> Service:
        return Service(_status_of, _is_transient, functools.partial(_refused, path=path, doing=doing))

    def _head(self, path: str) -> tuple[str, ObjectStatus]:
        found = self._retrying(lambda: self._client.head_object(**_named(path)), path, "read")
        return found["ETag"], status_by_etag(path, found["ETag"], found["ContentLength"], found["LastModified"])

    def _is_from(self, path: str, token: str, size: int) -> bool:
        """Whether the upload with this token has made the object that exists."""
        try:
            found = self._retrying(lambda: self._client.head_object(**_named(path)), path, "read")
        except CacheNotFoundError:
            return False
        return (found.get("Metadata") or {}).get(_UPLOAD) == token and found["ContentLength"] == size

    def _get(self, path: str, **options: str) -> tuple[bytes, _Answer]:
        def attempt() -> tuple[bytes, _Answer]:
            answer = self._client.get_object(**_named(path), **options)
            deadline = time.monotonic() + self.options.attempt_timeout_secs
            with contextlib.closing(answer["Body"]) as body:
                data = b"".join(pieces(body._raw_stream.read1, answer["ContentLength"], deadline=deadline))
            # Objects of parts have a checksum of their parts' checksums, and a dash with their number.
            told = "" if "Range" in options or "-" in answer["ETag"] else answer.get("ChecksumCRC32", "")
            if told and "-" not in told and _crc32(data) != told:
                raise Incomplete(f"the CRC32 of {len(data)} bytes is not the one that the service told")
            return data, answer

        return self._retrying(attempt, path, "read")

    def _get_range(self, path: str, start: int, size: int, etag: str, total: int) -> bytes:
        data, answer = self._get(path, Range=f"bytes={start}-{start + size - 1}", IfMatch=etag)
        if answer["ResponseMetadata"]["HTTPStatusCode"] == 200 and not answer.get("ContentRange"):
            return data[start : start + size]  # a server that ignores ranges
        require_range(answer.get("ContentRange"), path=path, start=start, size=size, total=total)
        return data

    def _read_whole(self, path: str) -> tuple[bytes, int]:
        data, answer = self._get(path)
        return data, generation_of(answer["ETag"])

    def _page(
        self, path: str, prefix: str, delimiter: str | None, token: str | None, *, most: int | None = None
    ) -> Page:
        bucket, _ = S3Storage.split_path(path)
        wanted: dict[str, object] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": most or self.options.page_names}
        wanted |= {"Delimiter": delimiter} if delimiter else {}
        wanted |= {"ContinuationToken": token} if token else {}
        found = self._retrying(lambda: self._client.list_objects_v2(**wanted), path, "list")
        objects = [
            status_by_etag(f"{self.SCHEME}{bucket}/{each['Key']}", each["ETag"], each["Size"], each["LastModified"])
            for each in found.get("Contents", ())
        ]
        directories = sorted(each["Prefix"] for each in found.get("CommonPrefixes", ()))
        return Page(objects, directories, found.get("NextContinuationToken"))


def _named(path: str) -> dict[str, str]:
    bucket, key = S3Storage.split_path(path)
    return {"Bucket": bucket, "Key": key}


def _crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def _environment() -> tuple[str | None, ...]:
    """What a client depends on besides its options: one made before they were set would not see them."""
    return tuple(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"))


@functools.lru_cache(maxsize=8)
def _client(options: S3Options, pid: int, environment: tuple[str | None, ...]) -> _Client:
    """The client of this process; a forked child gets one of its own, because connections cannot be shared."""
    boto3 = require("boto3", purpose="s3:// paths")
    import botocore
    from botocore.config import Config

    signing = {"signature_version": botocore.UNSIGNED} if options.anonymous else {}
    config = Config(
        connect_timeout=min(10.0, options.attempt_timeout_secs),
        read_timeout=options.attempt_timeout_secs,
        max_pool_connections=2 * options.num_threads,
        retries={"total_max_attempts": 1},  # `retrying` does it, with a deadline
        **signing,
    )
    made: _Client = boto3.session.Session().client("s3", config=config)
    return made


def _status_of(error: BaseException) -> int | None:
    answer = getattr(error, "response", None)
    code = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None
    return code if isinstance(code, int) else None


def _code_of(error: BaseException) -> str:
    answer = getattr(error, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def _is_transient(error: BaseException, status: int | None) -> bool:
    if status is not None:
        return _code_of(error) in _TRANSIENT
    import urllib3.exceptions
    from botocore import exceptions

    broken = (
        exceptions.HTTPClientError,
        exceptions.IncompleteReadError,
        exceptions.FlexibleChecksumError,
        exceptions.ResponseStreamingError,
        urllib3.exceptions.HTTPError,
    )
    return isinstance(error, broken)


def _refused(error: BaseException, status: int | None, *, path: str, doing: str) -> BaseException:
    bucket, code = S3Storage.split_path(path)[0], _code_of(error)
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"):
        return StorageError(
            f"there are no credentials for s3:// paths on this machine ({error}). Run: aws configure; or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; or, for public buckets, BEAM_PIPES_S3_ANONYMOUS=1.",
            path=path,
        )
    if code == "NoSuchBucket":
        return BucketNotFoundError(
            f"{path}: cannot {doing}: there is no bucket {bucket!r}. Check its name and AWS_ENDPOINT_URL, or "
            f"create it: aws s3 mb s3://{bucket}",
            path=path,
            bucket=bucket,
        )
    if code in ("ExpiredToken", "RequestExpired"):
        return StorageForbiddenError(
            f"{path}: cannot {doing}: the credentials have expired ({in_short(error)}). Get new ones (aws sso login, "
            "or what gave you AWS_SESSION_TOKEN), and run it again.",
            path=path,
            status=status,
        )
    if status in (401, 403) or code in _FORBIDDEN:
        return StorageForbiddenError(
            f"{path}: these credentials may not {doing} there ({in_short(error)}). Reading needs s3:GetObject and "
            f"s3:ListBucket on the bucket {bucket!r}, building s3:PutObject and s3:DeleteObject too; without "
            "s3:ListBucket an object that is missing looks forbidden.",
            path=path,
            status=status,
        )
    if status == 404:
        return CacheNotFoundError(f"expected an object at {path!r}, and there is none", path=path)
    return refused_anywhere(error, status, path=path, doing=doing)
