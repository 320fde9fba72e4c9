"""What the server of `view` answers, and whom."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dedup_declarations
import numpy as np
import pytest
from sample_media import jpeg
from typer.testing import CliRunner
from view_pages import ATTACK, fetched, hostile, media, served, texts

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.face import declare
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.recipes import open_tokenizer
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.view.rows import Answer, Question
from beam_pipes.view.server import Viewer


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return texts(tmp_path_factory.mktemp("texts") / "cache")


@pytest.fixture(scope="module")
def page(cache: Cache) -> Iterator[str]:
    packed = pack(cache["train"], sequence_length={"tokens": 64, "loss_mask": 64}, overlong="split")
    loader = Loader(packed, batch_size=4, seed=1, epochs=2)
    with served(Viewer(cache.path, vocabulary=open_tokenizer("bytes"), loader=loader)) as address:
        yield address


def told(page: str, name: str, **asked: object) -> Any:
    status, headers, body = fetched(f"{page}api/{name}?{urllib.parse.urlencode(asked)}")
    assert headers["content-type"] == "application/json"
    return json.loads(body) if status == 200 else (status, json.loads(body)["error"])


# Rows.


def rows_of(split: Any, **asked: Any) -> list[int]:
    answer = Answer(split, Question(**asked))
    answer.look_further(secs=60)
    return [int(row) for row in answer.rows(0, len(split))]


def test_rows_are_those_of_where_that_hold_the_text_in_the_order_of_a_column(cache: Cache) -> None:
    split = cache["train"]
    examples = list(split)

    assert rows_of(split) == list(range(500))
    assert rows_of(split, where="n <= 3") == [497, 498, 499]
    whales = [row for row in range(500) if row % 50 == 7]
    assert rows_of(split, search="whales") == rows_of(split, search="Whales") == whales
    assert rows_of(split, search="WHALES") == [] and rows_of(split, search="plumsrecord") == []  # over an end
    assert rows_of(split, where="lang == 'en'", search="whales") == [row for row in whales if row % 2 == 0]
    assert rows_of(split, sort="n") == list(range(499, -1, -1))
    both = rows_of(split, where="n > 400", sort="lang", descending=True)
    assert both == sorted(range(100), key=lambda row: (examples[row]["lang"] != "en", row))
    for descending in (False, True):
        scores = [float(examples[row]["score"]) for row in rows_of(split, sort="score", descending=descending)]
        known = [score for score in scores if not math.isnan(score)]
        assert known == sorted(known, reverse=descending) and all(map(math.isnan, scores[len(known) :]))
    by_length = [len(examples[row]["tokens"]) for row in rows_of(split, sort="tokens")]
    assert by_length == sorted(by_length)


def test_a_search_says_how_far_it_looked_and_goes_on(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beam_pipes.view.rows._MOST_SEARCHED", 100)
    answer = Answer(cache["train"], Question(search="whales", sort="n"))
    assert (answer.looked, answer.of, answer.count) == (0, 500, 0)

    answer.look_further(secs=0)
    assert (answer.looked, answer.count, answer.rows(0, 9).tolist()) == (100, 2, [57, 7])
    answer.look_further(secs=0)
    assert (answer.looked, answer.count, answer.rows(0, 9).tolist()) == (200, 4, [157, 107, 57, 7])


def test_bars_choose_the_records_that_they_count(page: str, cache: Cache) -> None:
    for feature, kind in [("n", "ranges"), ("tokens", "ranges"), ("lang", "values")]:
        found = told(page, "histogram", split="train", feature=feature)
        assert found["kind"] == kind and sum(bar["count"] for bar in found["bars"]) == found["records"] == 500
        for bar in found["bars"]:
            condition = bar.get("only") or " and ".join(filter(None, [bar["lower"], bar["upper"]]))
            assert len(cache["train"].where(condition)) == bar["count"]
    scores = told(page, "histogram", split="train", feature="score", where="n > 250")
    assert scores["of"] == 250 and sum(bar["count"] for bar in scores["bars"]) == 250 - 28


def test_rows_records_and_steps(page: str, cache: Cache) -> None:
    overview = told(page, "cache")
    assert [(split["name"], split["records"]) for split in overview["splits"]] == [("eval", 3), ("train", 500)]
    assert overview["snapshots"] == [overview["snapshot"]] == [cache.manifest.snapshot]
    found = told(page, "rows", split="train", where="n < 3", start=1, count=5)
    assert found["count"] == 2
    [row] = found["rows"]
    named = [
        each["name"] for each in next(split for split in overview["splits"] if split["name"] == "train")["features"]
    ]
    cells = dict(zip(named, row["cells"], strict=True))
    assert (row["row"], cells["text"], cells["n"], cells["lang"]) == (499, "record 499 is about plums", "1", "de")
    record = told(page, "record", split="train", row=7)
    tokens = next(each for each in record["features"] if each["name"] == "tokens")["tokens"]
    assert "".join(each["text"] for each in tokens) == "record 7 is about Whales"
    assert [each["loss"] for each in tokens] == [0.0] * 12 + [1.0] * 12
    assert record["id"] == "train/train.txt@14" and record["equal"] == []

    assert told(page, "record", split="train", row=1)["equal"] == ["equal content: eval/eval.txt@2"]

    step = told(page, "step", step=3)
    assert step["count"] == 4
    row = step["rows"][1]
    shown = {each["name"]: each for each in row["features"]}
    text = cache["train"][row["records"][0]["row"]]["text"]
    first = [each for each in shown["tokens"]["tokens"] if each["segment"] == 1]
    assert text.startswith("".join(each["text"] for each in first)) and {each["loss"] for each in first} == {0.0, 1.0}
    assert 3 in told(page, "steps", id=row["records"][0]["id"])["steps"]


def test_records_of_a_mixture_are_those_that_the_run_reads(cache: Cache, tmp_path: Path) -> None:
    lines = tmp_path / "in.txt"
    lines.write_text("0\n1\n")
    declared = declare(
        "other", TextLines(lines), [lambda line: {"photo": jpeg(30, 20), "tokens": np.int32([int(line)])}]
    )
    build(declared, tmp_path / "other", options=LocalOptions(workers=1))
    other = Cache.open(tmp_path / "other")
    mixture = Mixture([(cache["train"], 1), (other["train"], 1)])
    loader = Loader(mixture, batch_size=8, seed=1, epochs=None, features=["tokens"])
    with served(Viewer(cache.path, loader=loader)) as page:
        records = [each for row in told(page, "step", step=0)["rows"] for each in row["records"]]
        assert {each["source"] for each in records} == {0, 1}
        for each in records:
            found = told(page, "record", split=each["split"], row=each["row"], source=each["source"])
            of = (cache, other)[each["source"]]
            assert (found["id"], found["path"], found["snapshot"]) == (each["id"], of.path, of.manifest.snapshot)
        status, headers, picture = fetched(f"{page}api/media?source=1&split=train&row=1&feature=photo")
        assert (status, headers["content-type"], picture[:4]) == (200, "image/png", b"\x89PNG")
        wrong = told(page, "record", split="train", row=0, source=2)
        assert wrong == (404, "source should be a number from 0 to 1, got '2'.")


def test_only_the_snapshots_seen_last_are_kept_open(tmp_path: Path) -> None:
    viewer, lines = Viewer(str(tmp_path / "cache")), tmp_path / "in.txt"
    seen = []
    for number in range(6):
        lines.write_text(f"{number}\n")
        build(declare("one", TextLines(lines), [lambda line: {"n": int(line)}]), tmp_path / "cache")
        seen.append(viewer.cache().manifest.snapshot)

    assert len(set(seen)) == 6 and list(viewer._caches) == seen[-4:]
    assert viewer.cache() is viewer.cache(seen[-1])


def test_errors_say_what_cannot_be_answered(page: str) -> None:
    assert told(page, "rows", split="train", where="n >", count=1)[0] == 404
    assert "no feature of split 'train', which has lang, loss_mask, n" in told(page, "rows", split="train", sort="m")[1]
    assert "start should be a number from 0 to" in told(page, "rows", split="train", start="-1")[1]
    assert "expected one of the splits ['eval', 'train'], got 'x'" in told(page, "rows", split="x")[1]
    assert "has no snapshot '../..' any more" in told(page, "cache", snapshot="../..")[1]
    assert "neither a picture, a mask nor a sound" in told(page, "media", split="train", row=0, feature="n")[1]
    assert fetched(f"{page}api/rows", method="POST")[0] == 405 and fetched(f"{page}view.py")[0] == 404


# Who may ask.


def test_only_names_of_this_machine_are_answered_and_headers_forbid_the_rest(page: str) -> None:
    port = urllib.parse.urlsplit(page).port
    for host in (f"localhost:{port}", f"[::1]:{port}", f"127.0.0.1:{port}"):
        assert fetched(page, Host=host)[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example"):
        status, headers, body = fetched(f"{page}api/cache", Host=host)
        assert status == 421 and b"served to" in body and b"train" not in body

    for name in ("", "view.js", "view.css", "api/cache", "api/absent"):
        headers = fetched(page + name)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_on_other_addresses_a_token_opens_the_page(cache: Cache) -> None:
    with served(Viewer(cache.path), token="secret") as page:
        for url in (page, f"{page}api/cache", f"{page}?token=other", f"{page}api/cache?token=secret", f"{page}view.js"):
            status, _, body = fetched(url)
            assert status == 403 and b"open the link that beam-pipes view has printed" in body
        status, headers, _ = fetched(f"{page}?token=secret")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert fetched(f"{page}api/cache", Cookie=cookie.partition(";")[0])[0] == 200
        assert fetched(f"{page}api/cache", Cookie=cookie.partition("=")[0] + "=secre")[0] == 403


def test_media_have_fixed_types_whatever_the_bytes_are(tmp_path: Path) -> None:
    names = {"photo": ("image/jpeg", b"\xff\xd8"), "mask": ("image/png", b"\x89PNG"), "speech": ("audio/wav", b"RIFF")}
    cache = media(tmp_path / "media")
    with served(Viewer(cache.path)) as page:
        for feature, (form, begins) in names.items():
            status, headers, body = fetched(f"{page}api/media?split=train&row=1&feature={feature}")
            assert (status, headers["content-type"], body[: len(begins)]) == (200, form, begins)
        found = told(page, "record", split="train", row=1)
        boxes, label, mask, photo, speech = found["features"]
        assert photo["size"] == [300, 200] and boxes["boxes"][1] == [100, 50, 200, 150]
        assert (photo["medium"], mask["medium"], speech["medium"]) == ("picture", "mask", "sound")
        assert label["class"] == ATTACK == found["caption"]
    with served(Viewer(hostile(tmp_path / "hostile").path)) as page:
        for row in (0, 1):
            status, error = told(page, "media", split="train", row=row, feature="photo")
            assert status == 404 and "photo" in error or "image" in error


def test_records_that_are_taken_down_or_damaged_are_not_shown(tmp_path: Path) -> None:
    cache = texts(tmp_path / "cache", 20)
    [gone] = cache["train"].record_ids([4])
    (tmp_path / "ids.txt").write_text(f"{gone}\n")
    done = CliRunner().invoke(app, ["takedown", cache.path, str(tmp_path / "ids.txt"), "--reason", "asked"])
    assert done.exit_code == 0, done.output
    shard = next(Path(cache.directory).rglob("*train*-of-*[0-9]"))
    data = bytearray(shard.read_bytes())
    place = data.index(b"record 9 is")
    data[place] ^= 1
    shard.write_bytes(bytes(data))
    with served(Viewer(cache.path)) as page:
        rows = told(page, "rows", split="train", count=20)["rows"]
        assert rows[4] == {"row": 4, "error": "taken down: what it holds is not shown"}
        assert told(page, "record", split="train", row=4)["features"] == []
        assert "checksum" in rows[9]["error"] and len(rows[10]["cells"]) == 6


def test_the_command_says_what_is_missing(tmp_path: Path, cache: Cache) -> None:
    def said(*arguments: str) -> str:
        outcome = CliRunner().invoke(app, ["view", *arguments, "--no-browser"])
        assert outcome.exit_code != 0
        return f"{outcome.output}{outcome.exception}"

    assert "no directory" in said(str(tmp_path / "absent")) or "absent" in said(str(tmp_path / "absent"))
    assert "describe a run: give its --batch-size, too" in said(cache.path, "--state", "state.json")
    with served(Viewer(cache.path)) as page:
        taken = str(urllib.parse.urlsplit(page).port)
        assert "Choose another --port" in said(cache.path, "--port", taken)


def test_the_command_prints_a_link_and_ends_with_ctrl_c(cache: Cache) -> None:
    command = [sys.executable, "-m", "beam_pipes", "view", cache.path, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        link = process.stdout.readline().split()[1]
        assert link.startswith("http://127.0.0.1:") and told(link, "cache")["path"] == cache.path
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read()) == (0, "")


def test_large_numbers_and_nan_are_json(tmp_path: Path) -> None:
    from beam_pipes.cache import FeatureSpec, write_cache

    examples = [{"n": 2**62 + 1, "x": np.array([math.nan, math.inf], np.float32)}]
    features = {"n": FeatureSpec("int64"), "x": FeatureSpec("float32", shape=(2,))}
    write_cache(tmp_path, {"train": examples}, features=features)
    with served(Viewer(str(tmp_path))) as page:
        found = told(page, "record", split="train", row=0)
        assert [each["text"] for each in found["features"]] == ["4611686018427387905", "float32[2] [nan inf]"]


def test_a_dropped_duplicate_stands_beside_the_kept_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("to be or not to be\nanother line\nTo be  or not to be\n")
    monkeypatch.setenv(dedup_declarations.INPUT_VARIABLE, str(tmp_path / "in"))
    declaration = dedup_declarations.unique()
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    for given in (None, declaration):
        with served(Viewer(str(tmp_path / "cache"), declaration=given)) as page:
            pair, near = told(page, "duplicates")["pairs"]
        assert (pair["reason"], pair["similarity"], near["reason"]) == ("exact duplicate", 1.0, "near duplicate")
        assert [side["id"] for side in pair["sides"]] == ["a.txt@0", "a.txt@32"]
        sources = ["to be or not to be", "To be  or not to be"] if given else [None, None]
        assert [side["source"] for side in pair["sides"]] == sources
        assert pair["kept"][0]["features"][0]["text"] == "to be or not to be"
