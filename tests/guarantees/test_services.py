"""Stages that call services: no finished call is repeated, whatever kills the build, and the bytes are the same."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built_files import built_files
from service_declarations import INPUT_VARIABLE, URL_VARIABLE, AskedService, asked, asked_service, embed, judge

from beam_pipes import Service, build, stage
from beam_pipes.building.declaration_fingerprint import ANSWERS
from beam_pipes.building.leftovers import collect
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.engine.resources import wait_for_turn
from beam_pipes.errors import DeclarationError, InvalidTypeSignatureException, ServiceError, StageError
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.runners import LocalOptions
from beam_pipes.runners import build as build_of
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.runners.options import BeamOptions
from beam_pipes.sources import Memory
from beam_pipes.typed import services
from beam_pipes.typed.services import Caller

REFERENCE = "service_declarations:judged"
LINES = [f"{number} " + "to be " * (number % 4) for number in range(120)]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedService]:
    (tmp_path / "input").mkdir()
    for number in range(4):
        (tmp_path / "input" / f"{number}.txt").write_text("\n".join(LINES[number::4]) + "\n")
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "machine"))
    monkeypatch.setattr(services, "_budgets", {})
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))
    with asked_service() as service:
        monkeypatch.setenv(URL_VARIABLE, service.url)
        yield service


def published(cache: Path) -> dict[str, bytes]:
    return {name: content for name, content in built_files(cache).items() if not name.startswith(ANSWERS)}


# Forks a build for each line, which names its directory: starting Python twenty times would take half a minute.
BUILDS = f"""
import os, sys
import service_declarations
from beam_pipes.runners import LocalOptions, build
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        build({REFERENCE!r}, line.strip(), options=LocalOptions(workers=1))
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Builds:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._asks, self._tells = process.stdin, process.stdout

    def start(self, cache: Path) -> int:
        """The process of a build that has begun."""
        self._asks.write(f"{cache}\n")
        self._asks.flush()
        return int(self._tells.readline())

    def ended(self) -> int:
        return int(self._tells.readline())


@pytest.fixture
def builds(service: AskedService) -> Iterator[Builds]:
    command, path = [sys.executable, "-c", BUILDS], os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tempfile.gettempdir())}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as own:
        yield Builds(own)


def test_a_build_that_is_killed_twenty_times_repeats_no_finished_call(
    service: AskedService, builds: Builds, tmp_path: Path
) -> None:
    result = build_of(REFERENCE, tmp_path / "never-killed", options=LocalOptions(workers=1))
    assert service.asked_about() == dict.fromkeys([*LINES, *(f"{line}?" for line in LINES)], 1)
    calls, service.requests = set(service.calls()), []
    draws, cache = random.Random(8), tmp_path / "cache"
    # Answers are named by a digest of the record, and what the stages are given is known.
    key_of = Caller("", Service(), classes=(), batches=iter, call=list)._key  # type: ignore[arg-type]
    places = {}
    for line in LINES:
        example = {"text": line, "vector": [len(line), line.count(" "), 0.5]}
        for text, asks, record in ((line, embed, line), (f"{line}?", judge, example)):
            key = key_of(record)
            places[text] = cache / ANSWERS / fingerprint(asks).digest / key[:2] / key[2:]
    finished: dict[tuple[str, ...], int] = {}  # a call → how often it had been made when its answers were all there
    for _ in range(20):
        # The fifth call is made when one of four is finished: so some are, and others are in flight.
        service.begin_round(draws.randint(1, 9))
        pid = builds.start(cache)
        service.wait_until_all_are_used()
        os.kill(pid, signal.SIGKILL)
        assert builds.ended() == signal.SIGKILL
        counts = service.calls()
        for call in [call for call in counts if all(places[text].exists() for text in call)]:
            assert counts[call] == finished.setdefault(call, counts[call]), call
    assert 10 < len(finished) < len(calls)
    service.begin_round(1 << 30)

    again = build_of(REFERENCE, cache, options=LocalOptions(workers=2))

    counts = service.calls()
    assert {call: counts[call] for call in finished} == finished
    assert set(counts) == calls
    assert published(cache) == published(tmp_path / "never-killed")
    assert str(again.account) == str(result.account)


def test_the_same_shards_on_beam_and_a_rebuild_asks_nothing(service: AskedService, tmp_path: Path) -> None:
    local = build_of(REFERENCE, tmp_path / "local", options=LocalOptions(workers=2))
    asked_once = len(service.requests)
    build_of(REFERENCE, tmp_path / "beam", options=BeamOptions(runner=IN_PROCESS_RUNNER))
    assert len(service.requests) == 2 * asked_once

    build_of(REFERENCE, tmp_path / "local", overwrite=True)

    assert len(service.requests) == 2 * asked_once
    shards = [
        sorted(content for name, content in published(tmp_path / cache).items() if ".tfrecord-" in name)
        for cache in ("beam", "local")
    ]
    assert shards[0] and set(shards[0]) == set(shards[1])
    figures = {each.name: each for unit in local.account.units.values() for each in unit.statistics.values()}
    assert figures["embed_calls"].count + figures["judge_calls"].count == asked_once  # type: ignore[attr-defined]
    assert figures["embed_tokens"].count == sum(map(len, LINES))  # type: ignore[attr-defined]
    assert figures["judge_retries"].count == 0  # type: ignore[attr-defined]
    assert Cache.open(tmp_path / "local").build_info is not None


def test_answers_go_with_the_last_snapshot_whose_stages_they_belong_to(service: AskedService, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    texts = Memory([{"text": line} for line in LINES[:3]])
    features = {"text": FeatureSpec("str"), "length": FeatureSpec("int64")}
    for version in (1, 2, 3):
        build("judged", texts, [stage(judge, version=version)], to=cache, features=features, workers=1)
    assert len(list((cache / ANSWERS).iterdir())) == 3

    would = collect(cache, keep=0, dry_run=True)
    collect(cache, keep=0)

    assert would.bytes > 0
    assert [path.name for path in (cache / ANSWERS).iterdir()] == [fingerprint(stage(judge, version=3)).digest]


def test_a_damaged_answer_is_asked_for_again(service: AskedService, tmp_path: Path) -> None:
    build_of(REFERENCE, tmp_path / "cache", options=LocalOptions(workers=1))
    asked_once = len(service.requests)
    damaged, emptied, *_ = sorted((tmp_path / "cache" / ANSWERS / fingerprint(judge).digest).glob("*/*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    emptied.write_bytes(b"")

    build_of(REFERENCE, tmp_path / "cache", options=LocalOptions(workers=1), overwrite=True)

    assert len(service.requests) == asked_once + 2


def run_ask(function: Any, records: list[Any], to: Path, **options: Any) -> Any:
    return build("asked", Memory(records), [function], to=to, features={"length": FeatureSpec("int64")}, **options)


def test_a_call_is_repeated_while_the_service_is_busy_and_its_retries_are_counted(
    service: AskedService, tmp_path: Path
) -> None:
    refused: set[str] = set()

    def busy_once(texts: list[str]) -> int | None:
        return None if texts[0] in refused else refused.add(texts[0]) or 503

    service.status_of = busy_once

    @stage(service=Service(retries=1))
    def ask(text: str) -> dict[str, object]:
        return {"length": asked([text])[0][0]}

    result = run_ask(ask, LINES[:8], tmp_path / "cache", workers=1)

    statistics = result.account.units["ask"].statistics
    assert (statistics["ask_calls"].count, statistics["ask_retries"].count) == (8, 8)
    assert service.asked_about() == dict.fromkeys(LINES[:8], 1)


def test_a_record_that_a_service_refuses_is_a_dead_letter_and_the_others_are_asked_about_once(
    service: AskedService, tmp_path: Path
) -> None:
    refusals: list[str] = []
    service.status_of = lambda texts: refusals.append(texts[0]) or 400 if LINES[3] in texts else None

    @stage(service=Service())
    def ask(text: str) -> dict[str, object]:
        return {"length": asked([text])[0][0]}

    @stage(batched=True, batch_tokens=60, tokens_of=len, service=Service())
    def ask_together(texts: list[str]) -> list[dict[str, object]]:
        return [{"length": length} for length, *_ in asked(texts)]

    alone = run_ask(ask, LINES[:8], tmp_path / "alone", workers=1, on_error="dead_letter")
    assert service.asked_about() == dict.fromkeys([*LINES[:3], *LINES[4:8]], 1) and refusals == [LINES[3]]
    together = run_ask(ask_together, LINES[:8], tmp_path / "together", workers=1, on_error="dead_letter")

    assert (alone.account.dead, together.account.dead) == (1, 1)
    assert max(service.asked_about().values()) == 2  # once for each build
    with pytest.raises(StageError, match="stage 'ask' failed on record .*: HTTPError: HTTP Error 400"):
        run_ask(ask, LINES[:8], tmp_path / "alone", workers=1)


def test_a_service_that_is_down_ends_the_build_and_its_answers_stay(service: AskedService, tmp_path: Path) -> None:
    service.status_of = lambda texts: 503 if len(service.requests) >= 5 else None

    @stage(service=Service(at_once=1, retries=30, retry_share=0))
    def ask(text: str) -> dict[str, object]:
        return {"length": asked([text])[0][0]}

    services._budget("ask").retries = 8  # two are left, which take half a second each at most
    with pytest.raises(
        ServiceError, match=r"stage 'ask': its service fails too often: 10 retries for 6 calls of this process.*503"
    ):
        run_ask(ask, LINES[:8], tmp_path / "cache", workers=1, on_error="dead_letter")
    service.status_of = lambda texts: None
    run_ask(ask, LINES[:8], tmp_path / "cache", workers=1)

    assert service.asked_about() == dict.fromkeys(LINES[:8], 1)


def test_calls_come_no_faster_than_their_rate_whichever_process_makes_them(
    tmp_path: Path, service: AskedService
) -> None:
    began = time.monotonic()
    turns: list[float] = []

    def turn() -> None:
        wait_for_turn("rated", per_sec=50)
        turns.append(time.monotonic())

    threads = [threading.Thread(target=turn) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(turns) == 10 and max(turns) - began >= 9 / 50  # each holds the time of its own, in a file


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "ß", b"\0"], "b": (1, {2})},
        {"vector": np.arange(6, dtype=np.float16).reshape(2, 3)},
        {"names": np.array(["a", "bc"]), "one": np.float32(0.1)},
    ],
)
def test_answers_are_kept_exactly(value: Any, tmp_path: Path) -> None:
    caller = Caller("ask", Service(), classes=(), batches=lambda records: iter([records]), call=lambda records: [value])
    caller._keep({"ab12": services._Answer(value, [])}, str(tmp_path))

    found = caller._read(str(tmp_path / "ab" / "12"))

    assert found is not None and pickle.dumps(found.produced) == pickle.dumps(value)


class Opaque:
    pass


def test_what_cannot_be_kept_or_named_is_said(tmp_path: Path) -> None:
    caller = Caller("ask", Service(), classes=(), batches=lambda records: iter([records]), call=lambda records: [])
    for value in (Opaque(), os.system, lambda: 0):
        with pytest.raises(DeclarationError, match="stage 'ask': the answers of a service are kept, so its function"):
            caller._keep({"ab12": services._Answer(value, [])}, str(tmp_path))
    with pytest.raises(DeclarationError, match="stage 'ask': answers of a service are kept by the content of records"):
        caller.results([Opaque()])
    with pytest.raises(DeclarationError, match="Service: calls_per_sec should be a number above 0, got 0"):
        Service(calls_per_sec=0)
    with pytest.raises(
        InvalidTypeSignatureException, match="a stage with a service cannot have 'rng', .* Leave service= out"
    ):
        stage(lambda text, rng: text, service=Service())
