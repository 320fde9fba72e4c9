"""Pages of `view`, served from a thread: caches of text, media, packed rows, and of names and texts that attack."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import uvicorn
from sample_media import jpeg, wav

from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.face import declare
from beam_pipes.recipes import open_tokenizer
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.view.server import Viewer, application

ATTACK = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'


@contextlib.contextmanager
def served(viewer: Viewer, *, token: str | None = None) -> Iterator[str]:
    """The address of a page, as long as the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(application(viewer, port=port, token=token), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.should_exit = True
            thread.join(60)


def fetched(url: str, *, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """(status, headers in lower case, body), without following redirects."""
    request = urllib.request.Request(url, method=method, headers=headers)
    opener = urllib.request.build_opener(_Stays)
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()


def answers(path: str) -> tuple[object, ...]:
    """What the page of a cache says of its first split, wherever the cache lies."""
    with served(Viewer(path)) as page:
        overview = json.loads(fetched(f"{page}api/cache")[2])
        split = overview["splits"][0]["name"]
        rows = fetched(f"{page}api/rows?split={split}&count=50&snapshot={overview['snapshot']}")
        record = json.loads(fetched(f"{page}api/record?split={split}&row=1")[2])
        status = json.loads(fetched(f"{page}api/status")[2])
    assert rows[0] == 200 and record.pop("path") == path
    return rows[2], record, overview["snapshots"], status["published"]


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def texts(directory: Path, records: int = 500) -> Cache:
    """`n` counts down, `lang` alternates, `tokens` are the bytes of `text`, half of them in the loss."""
    vocabulary = open_tokenizer("bytes")

    def example(line: str) -> dict[str, object]:
        number = int(line)
        text = f"record {number} is about {'Whales' if number % 50 == 7 else 'plums'}"
        ids = np.array(vocabulary.encode(text), np.int32)
        return {
            "text": text,
            "n": records - number,
            "score": number / 7 if number % 9 else float("nan"),
            "lang": ("en", "de")[number % 2],
            "tokens": ids,
            "loss_mask": (np.arange(len(ids)) >= len(ids) // 2).astype(np.int32),
        }

    features = {
        "text": FeatureSpec("str"),
        "n": FeatureSpec("int64"),
        "score": FeatureSpec("float32"),
        "lang": FeatureSpec("str"),
        "tokens": FeatureSpec("int32", shape=(None,)),
        "loss_mask": FeatureSpec("int32", shape=(None,), maximum=1, minimum=0),
    }
    given = directory.with_name(f"{directory.name}-in")
    given.mkdir()
    for split, count in {"train": records, "eval": 3}.items():
        (given / f"{split}.txt").write_text("".join(f"{number}\n" for number in range(count)))
    sources = {split: TextLines(str(given / f"{split}.txt")) for split in ("train", "eval")}
    build(declare("texts", sources, [example], features=features), directory, options=LocalOptions(workers=1))
    return Cache.open(directory)


def media(directory: Path) -> Cache:
    """Pictures with boxes and masks, and sound."""
    mask = np.zeros((20, 30), np.int32)
    mask[5:10, 5:20] = 3
    examples = [
        {
            "photo": jpeg(300, 200),
            "boxes": np.array([[30, 20, 90, 80], [100, 50, 200, 150]], np.float32),
            "mask": mask,
            "speech": wav(4000, 8000),
            "label": label,
        }
        for label in (0, 1, 0, 1)
    ]
    features = {
        "photo": FeatureSpec("bytes"),
        "boxes": FeatureSpec("float32", shape=(None, 4)),
        "mask": FeatureSpec("int32", shape=(20, 30)),
        "speech": FeatureSpec("bytes"),
        "label": FeatureSpec("int64", classes=("cat", ATTACK)),
    }
    write_cache(directory, {"train": examples}, features=features)
    return Cache.open(directory)


def hostile(directory: Path) -> Cache:
    """Names and texts that would be markup, control characters, files that are no pictures, very long texts."""
    name = "<b onclick=alert(1)>&\"'"
    examples = [
        {name: ATTACK, "text": "\x1b[31m\u202e" + "x" * 300_000, "photo": b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "n": 1},
        {
            name: "</script></table>",
            "text": "javascript:alert(1)",
            "photo": b"\xff\xd8\xff<svg onload=alert(1)>",
            "n": 2,
        },
    ]
    features = {
        name: FeatureSpec("str"),
        "text": FeatureSpec("str"),
        "photo": FeatureSpec("bytes"),
        "n": FeatureSpec("int64"),
    }
    write_cache(directory, {"train": examples}, features=features)
    return Cache.open(directory)
