"""The server of the page: what is asked of it, and who may ask.

    Viewer(path, …)       what is open: snapshots, answers to questions, the loader of a run
    application(viewer)   routes → JSON, files of fixed types, three files of the page
    serve(viewer, …)      a socket on this machine, a link, and no end but Ctrl-C

Only GET is answered, and nothing is written. A page of another site cannot read it: `Host` has to name this machine
(which stops names that are bound to it anew), or, with `--host`, a cookie has to hold the token of the printed link.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import importlib.resources
import itertools
import secrets
import shlex
import socket
import sys
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.progress import read_status
from beam_pipes.cache import Cache, Split
from beam_pipes.errors import BeamPipesError, CacheError, CacheNotFoundError, LoaderError
from beam_pipes.loader import Loader
from beam_pipes.loader.delivery import Delivery, splits_of
from beam_pipes.publication.publish import SNAPSHOTS
from beam_pipes.report.blame import cache_of
from beam_pipes.report.examples import MAX_FEATURES, source_records
from beam_pipes.report.forgetting import epochs_until
from beam_pipes.report.language import Tokenizer
from beam_pipes.report.page import sample_rate_of
from beam_pipes.report.shown import shown_bytes, shown_value
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import storage_for
from beam_pipes.transforms.dedup import cache_duplicates
from beam_pipes.view import shown
from beam_pipes.view.rows import Answer, Question, features_of_split, splits_in_words, spread

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SEARCH_SECS = 0.4
_MOST_ROWS, _MOST_TILES, _MOST_LETTERS, _MOST_ANSWERS, _MOST_SNAPSHOTS = 200, 24, 50, 8, 4
# Steps of a run that are searched for a record where the run has no end.
_SEARCHED_STEPS = 100_000

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_FILES = {"": "text/html", "view.js": "text/javascript", "view.css": "text/css"}

_K = TypeVar("_K")
_T = TypeVar("_T")


class Viewer:
    """What a page looks at: the snapshots of a cache, and the run of a loader if one is given.

    Args:
        path: a directory, `gs://…` or `s3://…`. It may hold nothing that is published yet.
        vocabulary: shows ids as tokens.
        loader: of the run whose steps are shown.
        declaration: with it, dropped duplicates are read from the source; `named` is what a command calls it.
    """

    def __init__(
        self,
        path: str,
        *,
        vocabulary: Tokenizer | None = None,
        loader: Loader | None = None,
        declaration: Declaration | None = None,
        named: str = "DECLARATION",
    ) -> None:
        self.path, self.vocabulary, self.loader = path, vocabulary, loader
        self._declaration, self._named = declaration, named
        self._caches: OrderedDict[str, Cache] = OrderedDict()
        self._answers: OrderedDict[tuple[str, str, Question], Answer] = OrderedDict()
        self._rates: dict[tuple[str, str], int | None] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # a loader has one cursor

    def cache(self, snapshot: str = "") -> Cache:
        """A snapshot; without its id the published one, as it is now."""
        if not snapshot:
            published = Cache.open(self.path)
            with self._lock:
                known = self._caches.get(published.manifest.snapshot, published)
                return _kept(self._caches, published.manifest.snapshot, known, _MOST_SNAPSHOTS)
        with self._lock:
            found = self._caches.get(snapshot)
        if found is None:
            if snapshot not in self._snapshots():  # never a path that somebody has put together
                raise CacheNotFoundError(f"{self.path} has no snapshot {snapshot!r} any more.", path=self.path)
            found = Cache.open(self.path, snapshot=snapshot)
        with self._lock:
            return _kept(self._caches, snapshot, found, _MOST_SNAPSHOTS)

    def _snapshots(self) -> list[str]:
        root = self.path.rstrip("/")
        storage = storage_for(root)
        names = storage.list(f"{root}/{SNAPSHOTS}")
        return [name for name in names if storage.exists(f"{root}/{SNAPSHOTS}/{name}/manifest.json")]

    def overview(self, asked: Asked) -> object:
        cache = self.cache(asked.text("snapshot"))
        return {
            "path": cache.path,
            "name": cache.manifest.name,
            "snapshot": cache.manifest.snapshot,
            "snapshots": self._snapshots(),
            "splits": splits_in_words(cache),
            "assets": [{"file": entry.file, "bytes": entry.bytes} for entry in cache.manifest.assets],
            "dead": sum(entry.records or 0 for entry in cache.manifest.dead_letters),
            "run": None if self.loader is None else self.loader.describe(),
            "step": self._first_step(),
            "tokens": self.vocabulary is not None,
        }

    def _first_step(self) -> int:
        try:
            return 0 if self.loader is None else self.loader.step
        except LoaderError:  # rates that changed: its steps have other numbers
            return 0

    def answer(self, asked: Asked) -> tuple[Cache, Split, Answer]:
        cache, split = self._split(asked)
        question = Question(
            where=asked.text("where"),
            search=asked.text("search"),
            sort=asked.text("sort"),
            descending=asked.text("descending") == "1",
        )
        key = (cache.manifest.snapshot, split.name, question)
        with self._lock:
            found = self._answers.get(key)
        if found is None:
            found = Answer(split, question)
            with self._lock:
                _kept(self._answers, key, found, _MOST_ANSWERS)
        return cache, split, found

    def _split(self, asked: Asked) -> tuple[Cache, Split]:
        """What a request names: a split of a snapshot, or a source of the run, which may be that of another cache."""
        if asked.text("source"):
            splits = splits_of(self._run()._reader.stream)
            split: Split = splits[asked.number("source", most=len(splits) - 1)]
            return cache_of(split), split
        cache = self.cache(asked.text("snapshot"))
        return cache, cache[asked.text("split")]

    def rows(self, asked: Asked) -> object:
        """Some rows of an answer; the first time for a search, it is looked for a moment."""
        _, split, answer = self.answer(asked)
        if asked.text("search") and (not answer.looked or asked.text("further") == "1"):
            answer.look_further(secs=_SEARCH_SECS)
        rows = answer.rows(asked.number("start"), asked.number("count", most=_MOST_ROWS))
        columns = list(features_of_split(split)) or ["record"]
        return {
            "count": answer.count,
            "looked": answer.looked,
            "of": answer.of,
            "rows": shown.cells(split, rows, columns[:MAX_FEATURES]),
        }

    def tiles(self, asked: Asked) -> object:
        cache, split, answer = self.answer(asked)
        rows = answer.rows(asked.number("start"), asked.number("count", most=_MOST_TILES))
        return {"count": answer.count, "tiles": [self._record(cache, split, row, light=True) for row in rows.tolist()]}

    def record(self, asked: Asked) -> object:
        cache, split = self._split(asked)
        found = self._record(cache, split, asked.number("row", most=len(split) - 1), light=False)
        return {**found, "source": asked.text("source"), "path": cache.path, "snapshot": cache.manifest.snapshot}

    def _record(self, cache: Cache, split: Split, row: int, *, light: bool) -> dict[str, object]:
        return shown.record(cache, split, row, vocabulary=self.vocabulary, sample_rate=self._rate(cache), light=light)

    def _rate(self, cache: Cache) -> int | None:
        key = (cache.path, cache.manifest.snapshot)
        if key not in self._rates:
            self._rates[key] = sample_rate_of(cache)
        return self._rates[key]

    def medium(self, asked: Asked) -> Response:
        """A picture, mask or sound."""
        cache, split = self._split(asked)
        row, feature = asked.number("row", most=len(split) - 1), asked.text("feature")
        if split.kind != "example" or row in split.removed_rows:
            raise CacheError(f"record {row} of {split.name!r} cannot be shown.")
        values = split[row]
        assert isinstance(values, dict)
        if feature not in values:
            raise CacheError(f"{feature!r} is no feature of split {split.name!r}.")
        side = asked.number("side", most=2000) or 256
        rate = self._rate(cache)
        form, content = shown.medium(feature, values[feature], side=side, sample_rate=rate)
        return Response(content, media_type=form)

    def histogram(self, asked: Asked) -> object:
        _, split, answer = self.answer(asked)
        return spread(split, answer, asked.text("feature"))

    def dead_letters(self, asked: Asked) -> object:
        cache, start = self.cache(asked.text("snapshot")), asked.number("start")
        letters = itertools.islice(cache.dead_letters(), start, start + _MOST_LETTERS)
        rows = [
            {
                "id": letter.record_id,
                "stage": letter.stage,
                "error": f"{letter.error_type}: {letter.message}",
                "traceback": letter.traceback,
                "record": shown_bytes(letter.record, max_characters=2000),
            }
            for letter in letters
        ]
        replay = f"beam-pipes replay-dead {shlex.quote(self.path)} {self._named}"
        return {"letters": rows, "replay": replay, "trace": f"beam-pipes trace {self._named}"}

    def duplicates(self, asked: Asked) -> object:
        """Some dropped records, each beside the one that was kept."""
        cache, start = self.cache(asked.text("snapshot")), asked.number("start")
        every = (each for found in cache_duplicates(cache).values() for each in found)
        pairs = list(itertools.islice(every, start, start + _MOST_TILES))
        sources: Mapping[str, bytes] = {}
        if self._declaration is not None and pairs:
            ids = [name for pair in pairs for name in (pair.removed, pair.kept)]
            sources = source_records(self._declaration, ids, cache=self.path)
        made = []
        for pair in pairs:
            sides = [{"id": each, "source": _source(sources.get(each))} for each in (pair.kept, pair.removed)]
            rows = [(name, row) for name in cache.splits for row in cache[name].find_rows(pair.kept).tolist()]
            kept = [self._record(cache, cache[name], row, light=True) for name, row in rows[:1]]
            made.append({"reason": pair.reason, "similarity": pair.similarity, "sides": sides, "kept": kept})
        return {"pairs": made, "declared": self._declaration is not None}

    def step(self, asked: Asked) -> object:
        """The batch of a step: its rows as the model gets them, and the source records in each."""
        loader, step, start = self._run(), asked.number("step"), asked.number("start")
        with self._reading:
            batch = loader.batch_at(step)
            try:
                delivered = loader.who(step)
            except CacheNotFoundError:  # built without lineage
                delivered = []
        places: dict[int, list[Delivery]] = {}
        for each in delivered:
            places.setdefault(each.position, []).append(each)
        named = [name for name in batch if f"{name}/lengths" not in batch and name != "cu_seqlens"]
        ids = {"tokens", "input_ids", "inputs", "targets"} if self.vocabulary is not None else set()
        members = list(places.values()) or [[] for _ in range(len(batch[named[0]]) if named else 0)]
        rows = []
        for number, records in enumerate(members[start : start + _MOST_TILES], start):
            # Of the rows of other hosts, only the records are known.
            index = number if not records else None if records[0].host_index else records[0].index
            values = {} if index is None else {name: batch[name][index] for name in named}
            records_of_row = [
                {"id": each.record_id, "split": each.split, "row": each.record, "segment": each.segment}
                | {"source": each.source}
                for each in records
            ]
            made = shown.features(values, {}, self.vocabulary, ids, None)
            rows.append({"number": number, "features": made, "records": records_of_row})
        epoch = delivered[0].epoch if delivered else 0
        return {"step": step, "epoch": epoch, "count": len(members), "rows": rows}

    def steps_of(self, asked: Asked) -> object:
        """The steps of the run that read a record."""
        loader, record_id = self._run(), asked.text("id")
        last = max(self._first_step(), _SEARCHED_STEPS if loader.steps_per_epoch is None else loader.steps_per_epoch)
        with self._reading:
            found = loader.when_record(record_id, epochs=epochs_until(loader, last), last_step=last)
        return {"steps": list(dict.fromkeys(each.step for each in found))[:100], "last": last}

    def _run(self) -> Loader:
        if self.loader is None:
            raise LoaderError(
                "which run? Start view with --state STATE.json and --batch-size of the run, or with its options "
                "(--split, --batch-size, --seed, --shuffle)."
            )
        return self.loader

    def status(self, asked: Asked) -> object:
        found = read_status(self.path)
        return {**found.to_json(), "words": str(found)}


def _source(record: bytes | None) -> str | None:
    return None if record is None else shown_bytes(record, max_characters=4000)


def _kept(kept: OrderedDict[_K, _T], key: _K, value: _T, most: int) -> _T:
    """`value`, which is kept with those that were used last."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return value


class Asked:
    """The parameters of a request; `CacheError` for an invalid number."""

    def __init__(self, request: Request) -> None:
        self._given = request.query_params

    def text(self, name: str) -> str:
        return str(self._given.get(name, ""))

    def number(self, name: str, *, most: int = 1 << 53) -> int:
        given = self.text(name) or "0"
        if not given.isascii() or not given.isdecimal() or len(given) > 18 or int(given) > max(0, most):
            raise CacheError(f"{name} should be a number from 0 to {most:,}, got {shown_value(given[:40])!r}.")
        return int(given)


def application(viewer: Viewer, *, port: int, token: str | None = None) -> ASGIApp:
    """The page of a viewer. Without a `token`, only requests to this machine's own names at `port` are answered."""
    asked_for: dict[str, Callable[[Asked], object]] = {
        "cache": viewer.overview,
        "rows": viewer.rows,
        "tiles": viewer.tiles,
        "record": viewer.record,
        "media": viewer.medium,
        "histogram": viewer.histogram,
        "dead": viewer.dead_letters,
        "duplicates": viewer.duplicates,
        "step": viewer.step,
        "steps": viewer.steps_of,
        "status": viewer.status,
    }
    routes = [Route(f"/{name}", functools.partial(_file, name or "view.html", form)) for name, form in _FILES.items()]
    routes.append(Route("/favicon.ico", lambda request: Response(status_code=204)))
    routes += [Route(f"/api/{name}", functools.partial(_answered, answer)) for name, answer in asked_for.items()]
    return _Guard(Starlette(routes=routes), port=port, token=token)


async def _file(name: str, form: str, request: Request) -> Response:
    content = importlib.resources.files("beam_pipes.view").joinpath(name).read_bytes()
    return Response(content, media_type=form)


async def _answered(answer: Callable[[Asked], object], request: Request) -> Response:
    try:
        found = await run_in_threadpool(answer, Asked(request))
    except BeamPipesError as error:
        return _json({"error": shown_value(str(error), max_characters=4000)}, status=404)
    except Exception as error:  # one damaged record should not end the page
        print(f"{request.url.path}: {type(error).__name__}: {shown_value(str(error))}", file=sys.stderr)
        return _json({"error": shown_value(f"{type(error).__name__}: {error}", max_characters=4000)}, status=500)
    return found if isinstance(found, Response) else _json(found)


def _json(value: object, *, status: int = 200) -> Response:
    return Response(strict_json(value), status, media_type="application/json")


class _Guard:
    """Lets in who may ask, and adds the headers that keep a page from doing anything else."""

    def __init__(self, app: ASGIApp, *, port: int, token: str | None) -> None:
        self._app, self._token = app, token
        self._cookie = f"beam_pipes_view_{port}"
        self._hosts = {f"{name}:{port}" for name in LOOPBACK}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        if self._token is None:
            if request.headers.get("host", "").lower() in self._hosts:
                return None
            return _json({"error": f"this page is served to {', '.join(sorted(self._hosts))} only."}, status=421)
        if _equal(request.cookies.get(self._cookie, ""), self._token):
            return None
        if request.url.path == "/" and _equal(request.query_params.get("token", ""), self._token):
            entered = RedirectResponse("/", 303)
            entered.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return entered
        return _json({"error": "open the link that beam-pipes view has printed: it holds the token."}, status=403)


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def serve(viewer: Viewer, *, host: str | None, port: int, browser: bool, say: Callable[[str], None]) -> None:
    """Serves until it is interrupted. `host` is an address of this machine to listen on, by default loopback alone."""
    token = None if host is None else secrets.token_urlsafe(24)
    try:
        family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
        listening = socket.create_server((host or "127.0.0.1", port), family=family)
    except OSError as error:
        raise CacheError(
            f"cannot listen on {host or '127.0.0.1'}:{port}: {error.strerror or error}. Choose another --port, or "
            "leave it out for one that is free."
        ) from error
    with listening:
        port = listening.getsockname()[1]
        name = host or "127.0.0.1"
        reached = socket.gethostname() if name in ("0.0.0.0", "::") else f"[{name}]" if ":" in name else name
        link = f"http://{reached}:{port}/"
        link += "" if token is None else f"?token={token}"
        say(f"{viewer.path}: {link} (Ctrl-C ends it)")
        config = uvicorn.Config(application(viewer, port=port, token=token), log_level="warning", lifespan="off")
        if browser:
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # nothing is left unfinished, unlike in other commands
            uvicorn.Server(config).run(sockets=[listening])
