"""Inputs on `https://` and `hf://`, from real servers on loopback: bound to what was planned, retried, read-only."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from beam_pipes import Cache, FeatureSpec, declare, stage
from beam_pipes.errors import CacheNotFoundError, SourceError, StorageError, StorageUnavailableError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import Parquet, TextLines, dataset_splits
from beam_pipes.storage.local import storage_for

LINES = [f"line {n} of a book" for n in range(2000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
COMMIT = "c0ffee" + "0" * 34


class Server(ThreadingHTTPServer):
    """Serves `files` by path. What it does wrong is in `mode`, and how often still in `times`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.mode, self.times = "", 0
        self.etags, self.modified = True, False
        self.ranges: list[str] = []
        self.seen: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def elsewhere(self) -> str:
        """The same server under another name, as the Hub's content delivery network is another host."""
        return f"http://localhost:{self.server_address[1]}"

    def goes_wrong(self, mode: str) -> bool:
        if self.mode != mode or not self.times:
            return False
        self.times -= 1
        return True


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        server, path = self.server, self.path.partition("?")[0]
        server.seen.append((self.path, self.headers.get("Authorization")))
        if path.startswith("/api/"):
            return self.api(path)
        if "/resolve/" in path:
            return self.resolve(path)
        data = server.files.get(path)
        if data is None:
            return self.answer(404, b"nothing here", {})
        if server.mode == "empty answer":
            return self.answer(204, b"", {})
        if server.mode == "page":
            return self.answer(200, b"<html>log in</html>", {"Content-Type": "text/html; charset=utf-8"})
        if server.goes_wrong("503"):
            return self.answer(503, b"busy", {"Retry-After": "0"})
        headers = {}
        if server.etags:
            headers["ETag"] = f'"{hashlib.md5(data).hexdigest()}"'
        if server.modified:
            headers["Last-Modified"] = "Tue, 24 Nov 2026 10:00:00 GMT" if server.mode != "bad date" else "yesterday"
        asked = self.headers.get("Range")
        if asked and server.mode != "no ranges":
            server.ranges.append(asked)
            first, last = (int(each) for each in asked.removeprefix("bytes=").split("-"))
            if first >= len(data):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            if server.mode == "other range" and (first > 0 or server.times):
                first, last = server.times, server.times + last - first
            part = data[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
            part = part + b"more" if server.mode == "compressed unsaid" and len(part) > 1 else part
            if server.mode == "part as a whole":
                return self.answer(200, part, {})
            if server.mode == "other spelling":
                headers |= {"Content-Range": headers["Content-Range"].title(), "Content-Encoding": "Identity"}
            return self.answer(206, part, headers, cut=first > 0 and server.goes_wrong("cut"))
        return self.answer(200, data, headers)

    def answer(self, code: int, body: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    # The part of the Hub's API that is asked for.

    def api(self, path: str) -> None:
        if path.count("/") < 6:
            return self.answer(404, b"{}", {})
        _, _, kind, owner, repository, tree, revision, *inside = path.split("/")
        assert (kind, tree) == ("datasets", "tree") and revision in ("main", "v1")
        top = f"/{owner}/{repository}/"
        if not any(each.startswith(top) for each in self.server.files):
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        within = "".join(f"{each}/" for each in inside)
        entries: list[dict[str, Any]] = []
        for each, data in self.server.files.items():
            name = each.removeprefix(top)
            if not each.startswith(top + within):
                continue
            below = name.removeprefix(within)
            if "/" in below and "recursive=true" not in self.path.lower():
                directory = {"type": "directory", "path": within + below.partition("/")[0], "oid": "0" * 40}
                entries += [] if directory in entries else [directory]
                continue
            entry = {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            if name.endswith(".parquet"):
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        if within and not entries:
            return self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        self.answer(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def resolve(self, path: str) -> None:
        _, _, owner, name, _, revision, *inside = path.split("/")
        key = f"/{owner}/{name}/{'/'.join(inside)}"
        data = self.server.files.get(key)
        if data is None:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"X-Repo-Commit": COMMIT}
        if key.endswith(".parquet"):  # LFS: elsewhere
            linked = {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
            return self.answer(302, b"", {**headers, **linked, "Location": f"{self.server.elsewhere}{key}"})
        headers["ETag"] = f'"{hashlib.sha1(data).hexdigest()}"'
        if self.command == "HEAD":
            return self.answer(200, data, headers)
        asked = self.headers["Range"]
        first, last = (int(each) for each in asked.removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        self.answer(206, part, {**headers, "Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(data)}"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("BEAM_PIPES_WEB_MOST_BACKOFF_SECS", "0.1")
    monkeypatch.setenv("BEAM_PIPES_WEB_CHUNK_BYTES", str(256 << 10))
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        made.files["/books/emma.txt"] = TEXT
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def lines_of(source: Any, target: int = 10**9) -> list[Any]:
    shards = source.plan(target_shard_bytes=target).shards
    return [value for shard in shards for batch in source.read(shard) for value in batch.values]


@stage
def as_text(line: str) -> dict[str, object]:
    return {"text": line}


class TestHttps:
    def test_a_file_is_read_in_slices_and_built(self, server: Server, tmp_path: Path) -> None:
        source = TextLines(f"{server.url}/books/emma.txt")
        assert lines_of(source, 5000) == LINES
        assert len(source.plan(target_shard_bytes=5000).shards) > 5

        declared = declare("books", source, [as_text], features={"text": FeatureSpec("str")}, target_shard_bytes=9000)
        made = build(declared, tmp_path / "cache", options=LocalOptions(workers=2))

        split = Cache.open(made.path)["train"]
        assert [split[row]["text"] for row in range(len(split))] == LINES
        assert Cache.open(made.path)["train"].record_ids([0]) == ["emma.txt@0"]
        server.seen.clear()
        assert build(declared, tmp_path / "cache", options=LocalOptions(workers=2)).up_to_date
        assert len(server.seen) < 5  # asked what there is, nothing is read

    @pytest.mark.parametrize("mode", ["503", "cut"])
    def test_answers_that_fail_or_break_off_are_asked_for_again(self, server: Server, mode: str) -> None:
        server.files["/books/emma.txt"] = TEXT * 20
        server.mode, server.times = mode, 3

        with storage_for(server.url).open_read(f"{server.url}/books/emma.txt") as file:
            assert file.read() == TEXT * 20
        assert server.times == 0

    def test_retries_end_with_the_deadline(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("BEAM_PIPES_WEB_DEADLINE_SECS", "0.5")
        server.mode, server.times = "503", 10**6

        words = r"emma.txt: cannot read: \d+ attempts in \d s failed, the last with: HTTPError: HTTP Error 503: Service"
        with pytest.raises(StorageUnavailableError, match=words):
            storage_for(server.url).size(f"{server.url}/books/emma.txt")
        [line] = [record.message for record in caplog.records if record.name == "beam_pipes.cache"]
        assert "emma.txt: cannot read, " in line and "503: Service Unavailable. Trying for 0 s more." in line

    def test_a_server_without_ranges_sends_the_file_once(self, server: Server) -> None:
        server.mode = "no ranges"
        server.files["/books/emma.txt"] = TEXT * 20
        url = f"{server.url}/books/emma.txt"

        with storage_for(url).open_read(url) as file:
            file.seek(100_000)
            assert file.read(1000) == (TEXT * 20)[100_000:101_000]
            file.seek(0)
            assert file.read() == TEXT * 20
        assert len(server.seen) == 2  # a look and the whole of it
        assert lines_of(TextLines(url), 300_000) == LINES * 20

    @pytest.mark.parametrize("bound", ["etag", "modified", "nothing"])
    def test_a_file_that_changed_is_not_taken_for_the_planned_one(self, server: Server, bound: str) -> None:
        server.etags, server.modified = bound == "etag", bound == "modified"
        source = TextLines(f"{server.url}/books/emma.txt")
        shard = source.plan(target_shard_bytes=10**9).shards[0]
        assert [value for batch in source.read(shard) for value in batch.values] == LINES
        other = TEXT.replace(b"book", b"BOOK") if bound != "modified" else TEXT + b"more\n"  # of a size of its own
        server.files["/books/emma.txt"] = other

        with pytest.raises(
            SourceError, match=r"input emma.txt changed after it was planned: bytes 0 to \d+ should have"
        ):
            list(source.read(shard))
        assert source.plan(target_shard_bytes=10**9).shards[0].slices[0].digest != shard.slices[0].digest

    def test_a_file_that_changes_while_it_is_read_is_never_mixed(self, server: Server) -> None:
        server.files["/books/emma.txt"] = TEXT * 40
        url = f"{server.url}/books/emma.txt"
        with storage_for(url).open_read(url) as file:
            assert file.read(1000) == TEXT[:1000]
            server.files["/books/emma.txt"] = (TEXT * 40).upper()
            with pytest.raises(
                StorageError, match=r"changed while it was read: expected \d+ bytes of etag:.*Plan again"
            ):
                file.seek(1_200_000)
                file.read(10)

    @pytest.mark.parametrize(("answered", "message"), [(0, "bytes 0-"), (1, "bytes 1-1/")])
    def test_an_answer_with_another_range_is_not_an_answer(self, server: Server, answered: int, message: str) -> None:
        server.files["/books/emma.txt"] = TEXT * 40
        server.mode, server.times = "other range", answered  # the byte at which answers begin
        words = rf"asked for the bytes \d+-\d+/(\d+|\*), and the answer holds {message}.*mixes up ranges, or the file"

        with pytest.raises(SourceError, match=words):
            lines_of(TextLines(f"{server.url}/books/emma.txt"))

    def test_an_empty_file_and_one_that_is_not_there(self, server: Server) -> None:
        server.files["/books/empty.txt"] = b""
        source = TextLines([f"{server.url}/books/empty.txt", f"{server.url}/books/emma.txt"])
        assert lines_of(source) == LINES
        with pytest.raises(CacheNotFoundError, match=r"expected a file at 'http://.*/books/x', and there is none"):
            storage_for(server.url).size(f"{server.url}/books/x")
        with pytest.raises(
            SourceError, match=r"there is no file of this name, and a web server has no listing: direct"
        ):
            TextLines(f"{server.url}/books/x.txt").plan(target_shard_bytes=100)

    @pytest.mark.parametrize("name", ["books/", "books/*.txt", "books/emma.txt?download=1", "books/emma.txt#1"])
    def test_what_would_need_a_listing_is_refused(self, server: Server, name: str) -> None:
        with pytest.raises(SourceError, match=r"a web server has no listing: directories, globs and URLs with a query"):
            TextLines(f"{server.url}/{name}").plan(target_shard_bytes=100)

    @pytest.mark.parametrize(
        ("name", "sent"),
        [("a b.txt", "a%20b.txt"), ("ü[1].txt", "%C3%BC[1].txt"), ("a%23b.txt", "a%23b.txt"), ("a\nb", "a%0Ab")],
    )
    def test_a_name_is_sent_as_browsers_send_it(self, server: Server, name: str, sent: str) -> None:
        server.files[f"/books/{sent}"] = TEXT
        assert lines_of(TextLines(f"{server.url}/books/{name}")) == LINES

    def test_a_body_that_is_not_as_long_as_its_range_is_not_read(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BEAM_PIPES_WEB_DEADLINE_SECS", "0.1")
        server.mode = "compressed unsaid"
        with pytest.raises(SourceError, match=r"the answer has \d+ bytes, and by its Content-Range \d+\."):
            lines_of(TextLines(f"{server.url}/books/emma.txt"))

    @pytest.mark.parametrize(
        ("mode", "words"),
        [
            (
                "empty answer",
                r"expected the file \(status 200 or 206\), and the server answers 204 No Content. Try again",
            ),
            ("page", r"sends a web page \(text/html\): one that shows the file, such as GitHub's …/blob/…"),
            (
                "part as a whole",
                "asked for the bytes 0-1/.*, and the answer holds others: a server or proxy on the way",
            ),
        ],
    )
    def test_what_is_no_answer_is_not_taken_for_the_file(self, server: Server, mode: str, words: str) -> None:
        server.mode = mode
        with pytest.raises(SourceError, match=words):
            lines_of(TextLines(f"{server.url}/books/emma.txt"))

    def test_a_page_is_read_where_its_name_says_that_it_is_one(self, server: Server) -> None:
        server.mode, server.files["/books/emma.html"] = "page", b""
        assert lines_of(TextLines(f"{server.url}/books/emma.html")) == ["<html>log in</html>"]

    @pytest.mark.parametrize("mode", ["bad date", "other spelling"])
    def test_headers_are_read_as_loosely_as_others_read_them(self, server: Server, mode: str) -> None:
        server.mode, server.etags, server.modified = mode, False, True
        assert lines_of(TextLines(f"{server.url}/books/emma.txt")) == LINES

    def test_a_file_of_one_byte_on_a_server_without_ranges(self, server: Server) -> None:
        server.mode, server.files["/books/emma.txt"] = "no ranges", b"a"
        assert lines_of(TextLines(f"{server.url}/books/emma.txt")) == ["a"]

    def test_parquet_is_read_by_its_footer(self, server: Server) -> None:
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table({"n": list(range(100))}), sink, row_group_size=10)
        server.files["/t.parquet"] = sink.getvalue().to_pybytes()
        assert [row["n"] for row in lines_of(Parquet(f"{server.url}/t.parquet"), 50)] == list(range(100))

    def test_http_is_for_this_machine_alone(self) -> None:
        with pytest.raises(
            StorageError, match=r"anyone on the way could change what http:// gives. Give it as https://"
        ):
            storage_for("http://example.org/a").size("http://example.org/a")

    @pytest.mark.parametrize("scheme", ["https", "hf"])
    def test_writing_is_refused(self, scheme: str, tmp_path: Path) -> None:
        target = f"{scheme}://datasets/owner/name/cache"
        storage = storage_for(target)
        words = rf"cannot write: {scheme}:// is for inputs, and nothing is written or deleted there. Build into a local"
        staged = storage.stage(f"{target}/x")
        staged.write(b"x")
        for write in (
            staged.commit,
            lambda: storage.write_new(target, b""),
            lambda: storage.replace(target, b""),
            lambda: storage.delete(target),
            lambda: storage.makedirs(target),
            lambda: storage.link_or_copy(target, target),
        ):
            with pytest.raises(StorageError, match=words):
                write()
        staged.abort()


class TestHub:
    @pytest.fixture
    def hub(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
        """A repository `o/n` with two splits of Parquet in LFS and a text in git."""
        import huggingface_hub.constants as constants

        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        for number, name in enumerate(["train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"]):
            sink = pyarrow.BufferOutputStream()
            pyarrow.parquet.write_table(pyarrow.table({"n": list(range(10 * number, 10 * number + 10))}), sink)
            server.files[f"/o/n/data/{name}.parquet"] = sink.getvalue().to_pybytes()
        server.files["/o/n/README.txt"] = b"a\nb\n"
        return server

    def test_splits_of_a_repository_are_listed_and_built(self, hub: Server, tmp_path: Path) -> None:
        splits = dataset_splits("hf://datasets/o/n")
        assert list(splits) == ["test", "train"]
        assert [row["n"] for row in lines_of(splits["train"])] == list(range(20))

        declared = declare("n", splits, [as_number], features={"n": FeatureSpec("int64")})
        cache = Cache.open(build(declared, tmp_path / "cache", options=LocalOptions(workers=1)).path)
        assert {name: len(cache[name]) for name in cache.splits} == {"test": 10, "train": 20}
        read = [path for path, _ in hub.seen if "/resolve/" in path and ".parquet" in path]
        assert any(f"/resolve/{COMMIT}/" in path for path in read)  # what was found is read from its commit
        tokens = {token for path, token in hub.seen if path.startswith("/o/n/data/")}
        assert tokens == {None}  # the token of the Hub goes to no other server

    def test_files_in_git_globs_and_revisions(self, hub: Server) -> None:
        assert lines_of(TextLines("hf://datasets/o/n@v1/README.txt")) == ["a", "b"]
        assert lines_of(TextLines("hf://datasets/o/n/*.txt")) == ["a", "b"]
        assert any("/resolve/v1/README.txt" in path for path, _ in hub.seen)
        for revision, asked in {"refs/pr/1": "refs%2Fpr%2F1", "my%2Fbranch": "my%2Fbranch"}.items():
            assert lines_of(TextLines(f"hf://datasets/o/n@{revision}/README.txt")) == ["a", "b"]
            assert any(f"/resolve/{asked}/README.txt" in path for path, _ in hub.seen)
        hub.files["/o/n/a%0Ab.txt"] = b"c\n"
        assert lines_of(TextLines("hf://datasets/o/n/a\nb.txt")) == ["c"]
        assert ("Bearer hf_secret") in {token for path, token in hub.seen if "README" in path}

    def test_a_listing_and_a_look_say_the_same_of_a_file(self, hub: Server) -> None:
        storage: Any = storage_for("hf://datasets/o/n")
        for status in storage.objects("hf://datasets/o/n"):
            assert storage.status(status.path).content_digest == status.content_digest
        assert storage.list("hf://datasets/o/n") == ["README.txt", "data"]

    def test_what_is_not_there_is_named(self, hub: Server) -> None:
        with pytest.raises(
            SourceError, match=r"input 'hf://datasets/o/n/none' does not exist: there is no object of this"
        ):
            TextLines("hf://datasets/o/n/none").plan(target_shard_bytes=100)
        with pytest.raises(SourceError, match=r"nor one below it \(a slash in a revision is written %2F\)"):
            TextLines("hf://datasets/o/n@main/branch/README.txt").plan(target_shard_bytes=100)
        with pytest.raises(
            SourceError, match=r"expected a path hf://datasets/owner/name/file, or with a revision hf://d"
        ):
            TextLines("hf://datasets").plan(target_shard_bytes=100)


@stage
def as_number(row: dict[str, Any]) -> dict[str, object]:
    return {"n": np.int64(row["n"])}
