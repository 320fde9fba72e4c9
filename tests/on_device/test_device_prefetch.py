"""Stages: bounded buffers on threads whose ends, errors and deaths reach the consumer. No framework is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from beam_pipes.errors import LoaderError
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.on_device.ahead import PrefetchOptions, read_ahead

#: Threads of iterators that other files left open.
OLDER: set[threading.Thread] = set()


@pytest.fixture(autouse=True, scope="module")
def older_threads() -> None:
    OLDER.update(threading.enumerate())


def our_threads() -> list[threading.Thread]:
    return [thread for thread in set(threading.enumerate()) - OLDER if thread.name.startswith("beam-pipes-")]


def staged(items, size: int, *, name: str = "prefetch") -> OrderedPrefetcher:
    """The items as they are, read ahead."""
    return read_ahead(lambda item: item, items, size, name=name)


def wait_for(condition, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def test_items_come_in_order_through_two_stages():
    stage = read_ahead(lambda item: item * 2, staged(range(100), 2, name="host"), 3, name="device")

    assert list(stage) == [item * 2 for item in range(100)]
    assert wait_for(lambda: not our_threads())


def test_nothing_ends_at_once():
    assert list(staged([], 2)) == []
    assert list(read_ahead(str, staged([], 2), 2, name="device")) == []


def test_a_stage_that_has_ended_stays_ended():
    stage = staged([1], 2)

    assert list(stage) == [1]
    assert list(stage) == []


def test_it_reads_no_further_ahead_than_its_buffer_and_the_item_in_work():
    read = []

    def items():
        for item in range(1000):
            read.append(item)
            yield item

    stage = staged(items(), 3)
    first = next(stage)
    wait_for(lambda: len(read) >= 5)
    time.sleep(0.05)

    assert first == 0
    assert len(read) == 1 + 3 + 1
    stage.close()


def test_two_stages_hold_both_buffers_and_an_item_each():
    read = []
    stage = read_ahead(
        lambda item: item, staged((read.append(item) or item for item in range(1000)), 2), 3, name="device"
    )
    next(stage)
    wait_for(lambda: len(read) >= 1 + (3 + 1) + (2 + 1))
    time.sleep(0.05)

    assert len(read) == 1 + (3 + 1) + (2 + 1)
    stage.close()


def test_an_error_comes_after_the_items_before_it_with_its_own_traceback():
    def items():
        yield 1
        yield 2
        raise KeyError("broken record")

    stage = read_ahead(lambda item: item, staged(items(), 1), 1, name="device")

    assert [next(stage), next(stage)] == [1, 2]
    with pytest.raises(KeyError, match="broken record") as raised:
        next(stage)
    assert raised.traceback[-1].name == "items"
    assert list(stage) == []


def test_an_error_of_the_second_stage_reaches_the_consumer():
    stage = read_ahead(lambda item: 1 // (item - 1), staged(range(5), 2), 2, name="device")

    assert next(stage) == -1
    with pytest.raises(ZeroDivisionError):
        next(stage)
    stage.close()


def test_even_an_exit_in_the_producer_reaches_the_consumer():
    def items():
        yield 1
        raise SystemExit(3)

    stage = staged(items(), 1)

    assert next(stage) == 1
    with pytest.raises(SystemExit):
        next(stage)


def test_closing_ends_the_threads_and_closes_the_source():
    closed = threading.Event()

    def items():
        try:
            yield from range(10**9)
        finally:
            closed.set()

    stage = read_ahead(lambda item: item, staged(items(), 2), 2, name="device")
    next(stage)
    stage.close()
    stage.close()

    assert closed.is_set()
    assert not our_threads()
    assert list(stage) == []


def test_dropping_a_stage_ends_its_threads():
    stage = read_ahead(lambda item: item, staged(iter(int, 1), 2), 2, name="device")
    next(stage)
    del stage

    assert wait_for(lambda: not our_threads())


def test_a_consumer_in_a_forked_process_notices_that_the_thread_is_gone():
    program = """
import os, time
from beam_pipes.errors import LoaderError
from beam_pipes.on_device.ahead import read_ahead

def slow():
    yield 1
    time.sleep(60)

stage = read_ahead(abs, slow(), 1)
assert next(stage) == 1
time.sleep(0.1)
child = os.fork()
if child == 0:
    try:
        next(stage)
    except LoaderError as error:
        os._exit(7 if "threads are gone" in str(error) else 1)
    os._exit(2)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    finished = subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=30, cwd=os.getcwd())

    assert finished.returncode == 7


def test_a_process_ends_while_a_stage_is_open():
    program = """
from beam_pipes.on_device.ahead import read_ahead
stage = read_ahead(lambda item: item, read_ahead(abs, iter(int, 1), 2), 2, name="device")
next(stage)
"""
    finished = subprocess.run([sys.executable, "-c", program], timeout=30, capture_output=True, text=True)

    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("size", [0, -1, True, 1.5])
def test_a_buffer_needs_at_least_one_element(size):
    with pytest.raises(LoaderError, match=f"host_buffer of at least 1 element, got {size!r}"):
        PrefetchOptions(host_buffer=size)
