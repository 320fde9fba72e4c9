"""Files of web servers and of the Hugging Face Hub as inputs: `https://` and `hf://`, read-only.

    https://host/books/emma.txt                     one file; a web server has no listing
    hf://datasets/owner/name@revision/data/         files of a repository, listed by huggingface_hub

They are `ObjectStorage`s whose writing is refused, so readers, attempts and selections are those of `gs://` and `s3://`.
A file is bound by its strong ETag, or else by Last-Modified, and its size: an answer with other ones is an error, and
never a mixture of two files. A file of the Hub is bound by the digest that git or LFS has of it, and is read from the
commit in which it was found. Where a server ignores ranges, the whole file is copied to a temporary one, once.
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import re
import string
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import abstractmethod
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

from beam_pipes.errors import CacheNotFoundError, StorageError, StorageForbiddenError
from beam_pipes.extras import require
from beam_pipes.storage.objects import Answer, ObjectStorage, number_of
from beam_pipes.storage.requests import Kind, Refusal, RequestOptions, pieces, require_range
from beam_pipes.storage.transfer import ObjectReader, ObjectStatus, Page

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from types import ModuleType

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class WebOptions(RequestOptions):
    """`RequestOptions` of web servers and of the Hub, from variables `BEAM_PIPES_WEB_<OPTION>`."""

    PREFIX: ClassVar[str] = "BEAM_PIPES_WEB_"


class Found(NamedTuple):
    """A file as a server has it now. Every answer must repeat `binding`; None if the server sends none."""

    url: str
    size: int
    binding: str | None
    modified_ns: int


class _ReadOnly(ObjectStorage):
    """Base of both: reads ranges of a URL, and refuses to write."""

    writable = False
    OPTIONS = WebOptions
    REFUSALS = {Kind.MISSING: Refusal(CacheNotFoundError, "expected a file at {path!r}, and there is none ({said})")}

    @abstractmethod
    def _find(self, path: str, /) -> Found:
        """Where a file is, and what binds it; one attempt."""

    def _headers(self) -> dict[str, str]:
        """Headers for the server itself, which no redirection takes elsewhere."""
        return {}

    def _head(self, path: str, /) -> tuple[str, ObjectStatus]:
        found = self._find(path)
        return found.binding or "", _status(path, found.size, found.binding, found.modified_ns)

    def open_read(self, path: str) -> IO[bytes]:
        found = self.retrying(functools.partial(self._find, path), path, "read")
        return _WebReader(self, path, found)  # type: ignore[return-value]

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        with contextlib.closing(self.open_read(path)) as file:
            file.seek(offset)
            return file.read(size)

    def fetch(self, path: str) -> Answer:
        with contextlib.closing(self.open_read(path)) as file:
            return Answer(file.read(), "", None, datetime.now(timezone.utc))

    def request(self, url: str, ranges: str) -> HTTPResponse:
        """The open answer to a GET of a range; raises `HTTPError` if it is no success."""
        request = urllib.request.Request(url, headers={"Range": f"bytes={ranges}", "Accept-Encoding": "identity"})
        for name, value in self._headers().items():
            request.add_unredirected_header(name, value)
        try:
            answer: HTTPResponse = urllib.request.urlopen(request, timeout=self.options.attempt_timeout_secs)
            return answer
        except urllib.error.HTTPError as error:
            error.close()
            raise

    def _refuse(self, path: str, /, *rest: object) -> NoReturn:
        raise StorageError(
            f"{path}: cannot write: {self.SCHEME} is for inputs, and nothing is written or deleted there. Build into a "
            "local directory, gs://, s3:// or az://.",
            path=path,
        )

    _put = _send = _copy = _delete = _get = makedirs = _refuse


class _WebReader(ObjectReader):
    """Reads one file; every answer must repeat what was found when it was opened."""

    def __init__(self, storage: _ReadOnly, path: str, found: Found) -> None:
        status = _status(path, found.size, found.binding, 0)
        super().__init__(self._fetch_once, status, chunk_bytes=storage.options.chunk_bytes)
        self._storage, self._path, self._found = storage, path, found
        self._lock = threading.Lock()
        self._copy: IO[bytes] | None = None  # of the whole file, where the server ignores ranges

    def close(self) -> None:
        super().close()
        if self._copy is not None:
            self._copy.close()

    def _fetch_once(self, start: int, size: int) -> bytes:
        with self._lock:
            attempt = functools.partial(self._range, start, size)
            data = None if self._copy else self._storage.retrying(attempt, self._path, "read")
            if data is None:
                assert self._copy is not None
                self._copy.seek(start)
                data = self._copy.read(size)
            return data

    def _range(self, start: int, size: int) -> bytes | None:
        """The bytes of a range; None if the answer was the whole file, which is in the copy now."""
        deadline = time.monotonic() + self._storage.options.attempt_timeout_secs
        with self._storage.request(self._found.url, f"{start}-{start + size - 1}") as answer:
            self._require_same(answer)
            if answer.status == 206:
                require_range(
                    answer.headers.get("Content-Range"),
                    path=self._path,
                    start=start,
                    size=size,
                    length=answer.headers.get("Content-Length"),
                    total=self._found.size,
                )
                return b"".join(pieces(answer.read1, size, deadline=deadline))
            copy = tempfile.TemporaryFile()  # noqa: SIM115
            # For as long as bytes arrive: a whole file may take longer than the time allowed for a range.
            try:
                for piece in pieces(answer.read1, self._found.size, deadline=None):
                    copy.write(piece)
            except BaseException:
                copy.close()
                raise
            self._copy = copy
            return None

    def _require_same(self, answer: HTTPResponse) -> None:
        found = _found_in(answer, self._found.url)
        binding = self._found.binding
        if found.size != self._found.size or (binding and binding.startswith(_HTTP) and found.binding != binding):
            raise StorageError(
                f"{self._path}: changed while it was read: expected {self._found.size} bytes of "
                f"{binding or 'an unnamed version'}, found {found.size} of {found.binding or 'an unnamed version'}. "
                "Plan again.",
                path=self._path,
            )


# Prefix of the bindings from HTTP; those from the Hub do not have it.
_HTTP = ("etag:", "modified:")
# Names of files that are no web pages: with a suffix, and another one than pages have.
_DATA = re.compile(r"\.(?!\w*htm|php|aspx?$|jsp)\w+$", re.IGNORECASE)


def _found_in(answer: HTTPResponse, url: str) -> Found:
    """What an answer says about its file."""
    headers = answer.headers
    if answer.status not in (200, 206):  # 202 while an archive prepares a file, 203 of a proxy that changes it, 204
        raise StorageError(
            f"{url}: expected the file (status 200 or 206), and the server answers {answer.status} {answer.reason}. "
            "Try again later, or download it.",
            path=url,
        )
    if headers.get_content_type() == "text/html" and _DATA.search(urllib.parse.urlsplit(url).path):
        raise StorageError(
            f"{url}: expected the file, and the server sends a web page (text/html): one that shows the file, such as "
            "GitHub's …/blob/… (the file is under …/raw/…), or one to log in. Give the address of the file, or "
            "download it.",
            path=url,
        )
    if headers.get("Content-Encoding", "").strip().lower() not in ("", "identity"):
        raise StorageError(
            f"{url}: the server compresses it on the way ({headers['Content-Encoding']}), so that its bytes have no "
            "fixed places. Download it.",
            path=url,
        )
    total = headers.get("Content-Range", "").rpartition("/")[2] if answer.status == 206 else headers["Content-Length"]
    if not re.fullmatch("[0-9]{1,18}", total or ""):
        raise StorageError(f"{url}: the server does not report its length. Download it, and read the copy.", path=url)
    etag, modified = headers.get("ETag", ""), headers.get("Last-Modified")
    binding = f"modified:{modified}" if modified else None
    if etag and not etag.startswith("W/"):  # a weak one may stay the same while bytes change
        binding = f"etag:{etag.strip(chr(34))}"
    parsed = 0.0
    with contextlib.suppress(ValueError, OverflowError):  # of a date that is none
        parsed = email.utils.parsedate_to_datetime(modified).timestamp() if modified else 0
    return Found(url, int(total), binding, int(parsed) * 1_000_000_000)


def _status(path: str, size: int, binding: str | None, modified_ns: int) -> ObjectStatus:
    if binding is None:
        # Read and hashed as a file is; no other look finds the same generation, so no digest of it is kept.
        return ObjectStatus(path, size, time.time_ns(), None, None, modified_ns)  # type: ignore[arg-type]
    digest = f"{binding}:{size}"
    return ObjectStatus(path, size, number_of(digest), None, digest, modified_ns)


class HttpsStorage(_ReadOnly):
    """The `Storage` protocol over web servers, for inputs; `http://` only from this machine, where nobody listens."""

    SCHEME = "https://"
    REFUSALS = {
        **_ReadOnly.REFUSALS,
        Kind.FORBIDDEN: Refusal(
            StorageForbiddenError,
            "{path}: the server does not let an anonymous caller {doing} it ({said}). Only files that need no "
            "credentials are read: download it.",
        ),
    }

    @classmethod
    def split_path(cls, path: str) -> tuple[str, str]:
        """(host, path): `https://host/a/b` → `("host", "a/b")`."""
        return super().split_path(re.sub("^http://", cls.SCHEME, path))

    def _find(self, path: str, /) -> Found:
        parts = urllib.parse.urlsplit(path)
        if parts.query or parts.fragment:  # no server is sent a fragment: another file would be read
            raise self._no_listing(path)
        if parts.scheme == "http" and parts.netloc.rpartition(":")[0] not in _LOOPBACK:
            raise StorageError(
                f"{path}: anyone on the way could change what http:// gives. Give it as https://.", path=path
            )
        url = urllib.parse.quote(path, safe=string.punctuation)  # as browsers do: blanks, and what is not ASCII
        try:
            with self.request(url, "0-0") as answer:
                if answer.status == 206:
                    require_range(answer.headers.get("Content-Range"), path=path, start=0, size=1)
                found = _found_in(answer, url)
            if answer.status == 200 and found.size == 1:  # all of the file, or the byte that was asked for?
                with self.request(url, "0-1") as answer:
                    if answer.status == 200 and _found_in(answer, url).size == 2:
                        require_range(None, path=path, start=0, size=2)
            return found
        except urllib.error.HTTPError as error:
            # No first byte: the file is empty.
            if error.code != 416 or error.headers.get("Content-Range", "").rpartition("/")[2] != "0":
                raise
            return Found(url, 0, None, 0)

    def _page(self, path: str, prefix: str, delimiter: str | None, token: str | None, most: int, /) -> Page:
        raise self._no_listing(path)

    @staticmethod
    def _no_listing(path: str) -> StorageError:
        return StorageError(
            f"{path}: there is no file of this name, and a web server has no listing: directories, globs and URLs with "
            "a query (?…) or a fragment (#…) cannot be read. Name each file: ['https://host/a.txt', "
            "'https://host/b.txt'], with %3F for a question mark in its name, and %23 for a #.",
            path=path,
        )


class HubStorage(_ReadOnly):
    """The `Storage` protocol over repositories of the Hugging Face Hub, for inputs.

    `hf://datasets/owner/name@revision/data/train.parquet`; a model's repository is `hf://owner/name/…`, the revision is
    `main` by default. Token, endpoint and cache of credentials are huggingface_hub's (`HF_TOKEN`, `HF_ENDPOINT`).
    """

    SCHEME = "hf://"
    REFUSALS = {
        **_ReadOnly.REFUSALS,
        Kind.FORBIDDEN: Refusal(
            StorageForbiddenError,
            "{path}: {who} may not {doing} it ({said}). Set HF_TOKEN, or accept the conditions of the repository.",
        ),
    }
    _PATH = re.compile(
        r"hf://((?:datasets|spaces|models)/)?([^/@]+/[^/@]+)(?:@(refs/(?:pr|convert)/[^/]+|[^/]+))?(?:/(.*))?",
        re.DOTALL,  # names may hold line ends
    )

    def _named(self, path: str) -> tuple[dict[str, str], str]:
        """Repository, its kind and revision as huggingface_hub takes them, and the path within."""
        found = self._PATH.fullmatch(path)
        if found is None:
            raise StorageError(
                f"expected a path hf://datasets/owner/name/file, or with a revision hf://datasets/owner/name@v1/file, "
                f"got {path!r}",
                path=path,
            )
        kind = (found[1] or "models/").rstrip("s/")
        revision = urllib.parse.unquote(found[3]) if found[3] else "main"
        return {"repo_id": found[2], "repo_type": kind, "revision": revision}, found[4] or ""

    @property
    def _hub(self) -> ModuleType:
        return require("huggingface_hub", purpose="hf:// paths")

    def _headers(self) -> dict[str, str]:
        token = False if self.options.anonymous else None
        return dict(self._hub.utils.build_hf_headers(token=token, library_name="beam-pipes"))

    def _find(self, path: str, /) -> Found:
        hub, (where, name) = self._hub, self._named(path)
        if not name:
            raise CacheNotFoundError(f"expected a file at {path!r}, and there is none", path=path)
        of_file = functools.partial(hub.hf_hub_url, where["repo_id"], name, repo_type=where["repo_type"])
        metadata = hub.get_hf_file_metadata(
            of_file(revision=where["revision"]),
            token=False if self.options.anonymous else None,
            timeout=self.options.attempt_timeout_secs,
        )
        if metadata.etag is None or metadata.size is None:
            raise StorageError(f"{path}: the Hub does not say what it holds. Try again later.", path=path)
        fixed = of_file(revision=metadata.commit_hash or where["revision"])
        return Found(fixed, int(metadata.size), f"hub:{metadata.etag}", 0)

    def _page(self, path: str, prefix: str, delimiter: str | None, token: str | None, most: int, /) -> Page:
        # `prefix` follows the first part of the path, as in a bucket; the Hub takes the whole path.
        asked = f"{self.SCHEME}{self.split_path(path)[0]}/{prefix}".rstrip("/")
        where, name = self._named(asked)
        top = asked.removesuffix(name).rstrip("/")
        api = self._hub.HfApi(token=False if self.options.anonymous else None)
        objects, directories = [], []
        try:
            for entry in api.list_repo_tree(path_in_repo=name or None, recursive=delimiter is None, **where):
                if not hasattr(entry, "blob_id"):
                    directories.append(f"{entry.path}/")
                    continue
                digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
                objects.append(_status(f"{top}/{entry.path}", entry.size, f"hub:{digest}", 0))
        except Exception as error:
            if self.kind_of(error, path) is not Kind.MISSING:
                raise
        return Page(objects, directories, None)
