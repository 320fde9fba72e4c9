"""Amazon S3, and what speaks its protocol (MinIO, R2, Ceph), as a place for caches and inputs, through boto3.

    write_new       PUT with If-None-Match: *      only where there is no object
    replace_if      PUT with If-Match: <ETag>      only over the object that was read
    large objects   multipart upload               nothing is visible before its last request
    readers         GET with Range and If-Match    one generation, never a mixture of two

The promises are those of `gs://`; readers, listings, attempts and the build lock are the same code. The CRC32 of what
goes out and comes in is checked. Each process makes its own client, so that forked workers may read: the reason for
boto3 rather than a client with threads of its own, which cannot be forked.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import zlib
from typing import IO, TYPE_CHECKING, ClassVar

from beam_pipes.errors import BucketNotFoundError, StorageError, StorageForbiddenError
from beam_pipes.extras import require
from beam_pipes.storage.objects import Answer, ObjectStorage, date_of, status_by_etag
from beam_pipes.storage.requests import Incomplete, Kind, Refusal, RequestOptions, body_of, per_process
from beam_pipes.storage.transfer import ObjectStatus, Page

if TYPE_CHECKING:
    from botocore.client import BaseClient  # its methods are made at run time

# How often the client sends a part of an upload again; when it gives up, the whole upload starts again.
_PART_ATTEMPTS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class S3Options(RequestOptions):
    """`RequestOptions` of S3, from variables `BEAM_PIPES_S3_<OPTION>`.

    Credentials, region and endpoint are boto3's: `AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL`, roles of
    machines and containers.
    """

    PREFIX: ClassVar[str] = "BEAM_PIPES_S3_"


class S3Storage(ObjectStorage):
    """The `Storage` protocol over S3; paths are `s3://bucket/directory/file`.

    Needs a service with conditional writes (`If-None-Match` and `If-Match` of PUT).
    """

    SCHEME = "s3://"
    OPTIONS = S3Options
    CODES = {
        "NoSuchBucket": Kind.NO_BUCKET,
        # These also come with statuses other than 401 and 403.
        **dict.fromkeys(("ExpiredToken", "RequestExpired"), Kind.EXPIRED),
        **dict.fromkeys(
            ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled"), Kind.FORBIDDEN
        ),
        # With statuses that otherwise mean something else: 400; 409 for two conditional writes at once; 404 for an
        # upload that was completed, or lost.
        **dict.fromkeys(
            ("RequestTimeout", "SlowDown", "BadDigest", "ConditionalRequestConflict", "NoSuchUpload"), Kind.AGAIN
        ),
    }
    REFUSALS = {
        Kind.NO_CREDENTIALS: Refusal(
            StorageError,
            "there are no credentials for s3:// paths on this machine ({said}). Run: aws configure; or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; or, for public buckets, BEAM_PIPES_S3_ANONYMOUS=1.",
        ),
        Kind.NO_BUCKET: Refusal(
            BucketNotFoundError,
            "{path}: cannot {doing}: there is no bucket {bucket!r}. Check its name and AWS_ENDPOINT_URL, or create it: "
            "aws s3 mb s3://{bucket}",
        ),
        Kind.EXPIRED: Refusal(
            StorageForbiddenError,
            "{path}: cannot {doing}: the credentials have expired ({said}). Get new ones (aws sso login, or what gave "
            "you AWS_SESSION_TOKEN), and run it again.",
        ),
        Kind.FORBIDDEN: Refusal(
            StorageForbiddenError,
            "{path}: {who} may not {doing} there ({said}). Reading needs s3:GetObject and s3:ListBucket on the bucket "
            "{bucket!r}, building s3:PutObject and s3:DeleteObject too; without s3:ListBucket an object that is "
            "missing looks forbidden.",
        ),
    }

    @property
    def _client(self) -> BaseClient:
        return _client(self.options, 1)

    def _head(self, path: str, /) -> tuple[str, ObjectStatus]:
        found = self._client.head_object(**_named(path))
        return found["ETag"], status_by_etag(path, found["ETag"], found["ContentLength"], found["LastModified"])

    def _get(self, path: str, start: int, size: int | None, version: str | None, /) -> Answer:
        wanted = {**_named(path)}
        if size is not None:
            wanted["Range"] = f"bytes={start}-{start + size - 1}"
        if version is not None:
            wanted["IfMatch"] = version
        answer = self._client.get_object(**wanted)
        with contextlib.closing(answer["Body"]) as body:
            data = body_of(
                body._raw_stream.read1,
                path=path,
                start=start,
                size=size,
                length=answer["ContentLength"],
                is_part=answer["ResponseMetadata"]["HTTPStatusCode"] == 206,
                content_range=answer.get("ContentRange"),
                total_secs=self.options.attempt_timeout_secs,
            )
        # Objects uploaded in parts have a checksum of their parts' checksums, a dash, and the number of parts.
        checksum = "" if size is not None or "-" in answer["ETag"] else answer.get("ChecksumCRC32", "")
        if checksum and "-" not in checksum and _crc32(data) != checksum:
            raise Incomplete(f"the CRC32 of {len(data)} bytes is not that of the service")
        now = date_of(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return Answer(data, answer["ETag"], answer["LastModified"], now)

    def _put(self, path: str, data: bytes, version: str | None, /) -> str:
        condition: dict[str, str] = {}
        if version is not None:
            condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        made: str = self._client.put_object(**_named(path), Body=data, **condition)["ETag"]
        return made

    def _send(self, path: str, file: IO[bytes], size: int, crc32c: int, /) -> None:
        _client(self.options, _PART_ATTEMPTS).upload_fileobj(
            file, *_named(path).values(), ExtraArgs=_CHECKED, Config=_parts(self.options.chunk_bytes, above=0)
        )
        if (found := self._head(path)[1].size) != size:
            raise StorageError(
                f"{path}: the service has stored {found} bytes of {size} that it was sent. Run again; where it comes "
                "back, another process writes to the same path.",
                path=path,
            )

    def _copy(self, source: str, target: str, size: int | None, /) -> None:
        if size is not None and size <= _COPIED_AT_ONCE:  # the client below would ask for the size
            self._client.copy_object(CopySource=_named(source), **_named(target), **_CHECKED)
            return
        where, config = _named(target).values(), _parts(_COPIED_AT_ONCE, above=_COPIED_AT_ONCE)
        self._client.copy(_named(source), *where, ExtraArgs=_CHECKED, Config=config)

    def _delete(self, path: str, version: str | None, /) -> None:
        """In two requests if there is a condition: not every service that speaks S3 has conditional deletes."""
        if version is None or self._head(path)[0] == version:
            self._client.delete_object(**_named(path))

    def _page(self, path: str, prefix: str, delimiter: str | None, token: str | None, most: int, /) -> Page:
        bucket, _ = self.split_path(path)
        wanted: dict[str, object] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": most}
        wanted |= {"Delimiter": delimiter} if delimiter else {}
        wanted |= {"ContinuationToken": token} if token else {}
        found = self._client.list_objects_v2(**wanted)
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


_CHECKED = {"ChecksumAlgorithm": "CRC32"}  # of a whole copy, also where the source was made of parts


# One request takes a minute at most; larger parts could be faster, but would outlast an attempt.
_COPIED_AT_ONCE = 256 << 20


def _parts(part_bytes: int, *, above: int) -> object:
    """How boto3 divides an object. No threads, neither its own nor those of the CRT: they would not survive a fork.

    It makes the parts larger where the service wants that: at least 5 MiB, at most 10,000 parts. It closes a file
    that it sends in one piece.
    """
    made: object = require("boto3.s3.transfer", purpose="s3:// paths").TransferConfig(
        multipart_threshold=above + 1,
        multipart_chunksize=part_bytes,
        use_threads=False,
        preferred_transfer_client="classic",
    )
    return made


@per_process("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE")
def _client(options: RequestOptions, attempts: int) -> BaseClient:
    """A client that sends a request `attempts` times: once, as `retrying` has a deadline; parts more often."""
    boto3 = require("boto3", purpose="s3:// paths")
    import botocore
    from botocore.config import Config

    signing = {"signature_version": botocore.UNSIGNED} if options.anonymous else {}
    config = Config(
        connect_timeout=min(10.0, options.attempt_timeout_secs),
        read_timeout=options.attempt_timeout_secs,
        max_pool_connections=2 * options.num_threads,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        **signing,
    )
    made: BaseClient = boto3.session.Session().client("s3", config=config)
    return made
