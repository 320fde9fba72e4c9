"""SIGKILL, Ctrl-C and exceptions at random moments of loading: nothing is left, the next pass starts; late ones are
named."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from waiting import eventually

from beam_pipes.loader import prefetch as waiting
from beam_pipes.loader.prefetch import OrderedPrefetcher, Waiting, join_saying_who
from beam_pipes.map_style import DataLoader, Dataset
from beam_pipes.map_style import workers as processes
from beam_pipes.on_device.ahead import read_ahead
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from benchmarks.campaigns.declarations import INPUT_VARIABLE, REFERENCE, write_input
from benchmarks.campaigns.loading import ENDINGS, WAYS, loading_campaign


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("loading")
    write_input(directory / "input", files=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(INPUT_VARIABLE, str(directory / "input"))
        build(REFERENCE, directory / "cache", options=LocalOptions(workers=1))
    return directory / "cache"


def test_an_end_at_a_random_moment_leaves_nothing_and_the_next_pass_gives_the_same_batches(
    cache: Path, tmp_path: Path
) -> None:
    counts = loading_campaign(cache, tmp_path, moments=2 * len(WAYS))

    assert counts.problems == []
    assert counts.in_time == 2 * len(WAYS) and counts.next_starts == counts.moments
    assert (set(counts.by_way), set(counts.by_ending)) == (set(WAYS), set(ENDINGS))


ROOT = Path(__file__).resolve().parents[2]
LEAKS = """
import json, subprocess, threading, time
from benchmarks.campaigns import loading

open_files, children = [], []

def leaks(way, cache, store):
    open_files.append(open("/dev/null"))
    children.append(subprocess.Popen(["sleep", "20"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    threading.Thread(target=time.sleep, args=(30,), name="beam_pipes-leaked", daemon=True).start()
    yield 1

loading.load, loading._GONE_SECS = leaks, 0.2
told = loading.fork_pass({"way": "x", "cache": "", "store": "", "ending": None, "after_secs": 0.0})
print(json.dumps(list(loading.problems_of(told, None))))
"""


def test_the_campaign_notices_what_is_left_behind() -> None:
    """A pass that opens files, starts threads and children, and keeps them.

    In a process of its own: one that has run other tests holds threads of JAX and torch, which a fork may deadlock on.
    """
    printed = subprocess.run([sys.executable, "-c", LEAKS], capture_output=True, text=True, timeout=120, cwd=ROOT)

    assert printed.returncode == 0, printed.stderr
    assert json.loads(printed.stdout) == [
        "1 processes are left",
        "1 descriptors are left open",
        "threads are left: ['beam_pipes-leaked']",
    ]


def lines() -> tuple[list[str], Callable[[str], None]]:
    output: list[str] = []
    return output, output.append


def test_a_wait_says_who_is_late_each_time_that_as_much_has_passed() -> None:
    output, report = lines()
    never = Waiting(lambda: "worker 3 is at examples [7]", late_secs=60, report=report)
    now = Waiting(lambda: "worker 3 is at examples [7]", late_secs=0.0, report=report)

    never.look()
    assert output == []
    now.look()
    now.look()
    assert output == ["beam-pipes: nothing has come for 0 s; worker 3 is at examples [7]."] * 2


@dataclasses.dataclass
class Said:
    """What was said of waits, and a file that is there once example 2 was named: whoever is late may go on then."""

    file: Path
    lines: list[str] = dataclasses.field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if "[2]" in line:
            self.file.touch()


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    said = Said(tmp_path / "said")
    monkeypatch.setattr(waiting, "_print", said)
    monkeypatch.setattr(waiting, "LATE_SECS", 0.01)
    for module in (waiting, processes):
        monkeypatch.setattr(module, "LOOK_SECS", 0.05)
    return said


def test_waits_are_reported_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    Waiting(lambda: "worker 3 is late", late_secs=0.0).look()

    assert capfd.readouterr().err == "beam-pipes: nothing has come for 0 s; worker 3 is late.\n"


def test_a_thread_of_the_native_loader_that_is_late_is_named_with_its_place(said: Said) -> None:
    assert list(OrderedPrefetcher(lambda _: eventually(lambda: said.lines), iter([1]), workers=1, depth=1)) == [None]

    line = said.lines[0]
    assert line.startswith("beam-pipes: nothing has come for ")
    assert "; thread beam_pipes-prefetch-0 is at " in line and ".py, line " in line


def test_a_prefetching_thread_that_is_late_is_named_with_its_place(said: Said) -> None:
    def slow() -> Iterator[int]:
        while not said.lines:
            time.sleep(0.01)
        yield 1

    assert list(read_ahead(abs, slow(), 1, name="host")) == [1]
    assert "; thread beam-pipes-host-0 is at test_leftovers_of_loading.py, line " in said.lines[0]


def test_a_thread_that_was_asked_to_end_and_does_not_is_named(said: Said) -> None:
    thread = threading.Thread(target=eventually, args=(lambda: said.lines,), name="sleeper")
    thread.start()

    join_saying_who(thread)

    assert not thread.is_alive()
    assert "thread sleeper is at " in said.lines[0] and ".py, line " in said.lines[0]


class Slow(Dataset):
    """Is at example 2 until a file is there; another one says that it is."""

    def __init__(self, until: Path) -> None:
        self.until, self.begun = until, until.with_name("begun")

    def __len__(self) -> int:
        return 4

    def get_example(self, index: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if index == 2:
            self.begun.touch()
            eventually(self.until.exists)
        return np.arange(index)


@pytest.mark.parametrize(
    ("worker_type", "words"),
    [
        pytest.param("thread", "a thread of the loader is at examples [2].", id="thread"),
        pytest.param("process", ") is at examples [2]; DataLoader(timeout=…) makes an error of it.", id="process"),
    ],
)
def test_a_late_worker_of_the_map_style_loader_is_named_with_its_examples(
    worker_type: str, words: str, said: Said
) -> None:
    with DataLoader(Slow(said.file), num_workers=1, worker_type=worker_type, prefetch=1, collate_fn=len) as loader:
        assert list(loader) == [1, 1, 1, 1]

    assert any(words in line for line in said.lines)


def test_closing_a_loader_whose_thread_is_busy_names_the_examples(said: Said) -> None:
    slow = Slow(said.file)
    batches = iter(DataLoader(slow, num_workers=1, prefetch=3, collate_fn=len))
    next(batches)
    eventually(slow.begun.exists)

    batches.close()  # type: ignore[attr-defined]

    assert "a thread of the loader that was closed is still at one of the examples [2]." in said.lines[0]


def interrupt_at(event: int) -> tuple[bool, str]:
    """Interrupts the consumer of a pass at its n-th step in `threading`; returns whether it did, and the ending."""
    left = event

    def trace(frame: FrameType, kind: str, _: object) -> Callable[..., Any] | None:
        nonlocal left
        if not frame.f_code.co_filename.endswith("threading.py"):
            return trace
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return trace

    def slowly(task: int) -> int:
        time.sleep(0.001)
        return task

    results = OrderedPrefetcher(slowly, iter(range(3)), workers=2, depth=2)
    try:
        sys.settrace(trace)
        try:
            for _ in results:
                pass
        finally:
            sys.settrace(None)
    except BaseException as error:
        ended = type(error).__name__
    else:
        ended = "the end"
    results.close(most_secs=5.0)
    assert not any(thread.is_alive() for thread in results._threads), f"threads are left after event {event}"
    return left <= 0, ended


def test_ctrl_c_inside_any_lock_of_a_prefetcher_ends_in_itself_and_leaves_no_thread() -> None:
    events, endings = 0, set()
    while (one := interrupt_at(events + 1))[0]:
        events += 1
        endings.add(one[1])

    assert events > 20
    assert endings == {"KeyboardInterrupt"}
