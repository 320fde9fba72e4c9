from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import time
import weakref

import pytest
from waiting import eventually

from beam_pipes.loader import prefetch
from beam_pipes.loader.prefetch import OrderedPrefetcher

OLDER: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _count_from_here():
    OLDER.clear()
    OLDER.update(threading.enumerate())


def _threads() -> int:
    begun = set(threading.enumerate()) - OLDER
    return sum(thread.name.startswith("beam_pipes-prefetch") for thread in begun)


def _wait_until_no_threads() -> None:
    eventually(lambda: _threads() == 0)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_tasks_whatever_finishes_first(workers):
    def slow_for_even(number):
        time.sleep(0.004 if number % 2 == 0 else 0)
        return number * 10

    results = list(OrderedPrefetcher(slow_for_even, iter(range(20)), workers=workers, depth=3))

    assert results == [number * 10 for number in range(20)]
    _wait_until_no_threads()


def test_no_task_is_an_end_at_once():
    assert list(OrderedPrefetcher(str, iter(()), workers=2, depth=2)) == []


def test_no_more_than_depth_results_are_made_ahead():
    made = []
    prefetcher = OrderedPrefetcher(made.append, itertools.count(), workers=2, depth=4)

    next(prefetcher)
    eventually(lambda: len(made) >= 5)
    time.sleep(0.1)  # in which a sixth would be made

    assert len(made) == 5
    prefetcher.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_reaches_the_consumer_after_the_results_before_it(workers):
    def fails_at_five(number):
        if number == 5:
            raise ZeroDivisionError("five")
        return number

    prefetcher = OrderedPrefetcher(fails_at_five, itertools.count(), workers=workers, depth=8)

    assert [next(prefetcher) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError, match="five"):
        next(prefetcher)
    _wait_until_no_threads()
    with pytest.raises(StopIteration):
        next(prefetcher)


def test_an_error_in_the_task_iterator_reaches_the_consumer():
    def tasks():
        yield 1
        raise KeyError("tasks ran out of luck")

    prefetcher = OrderedPrefetcher(str, tasks(), workers=1, depth=2)

    assert next(prefetcher) == "1"
    with pytest.raises(KeyError, match="out of luck"):
        next(prefetcher)


def test_results_are_had_while_the_next_task_is_being_made():
    release = threading.Event()

    def tasks():
        yield 1
        assert release.wait(60), "the consumer waited for the second task to get the first result"

    prefetcher = OrderedPrefetcher(str, tasks(), workers=1, depth=2)

    assert next(prefetcher) == "1"
    release.set()
    assert list(prefetcher) == []


def test_threads_that_end_while_the_consumer_looks_have_left_their_results(monkeypatch):
    monkeypatch.setattr(prefetch, "LOOK_SECS", 0.01)
    looked = threading.Event()
    prefetcher = OrderedPrefetcher(lambda number: looked.wait() and number, iter(range(3)), workers=2, depth=4)

    class EndsWhenAsked:
        """In the place of a thread: all work is done between a look for results and the answer."""

        def join(self, secs):
            pass

        def is_alive(self):
            looked.set()
            for thread in threads:
                thread.join()
            return False

    threads, prefetcher._threads = prefetcher._threads, [EndsWhenAsked()]
    assert list(prefetcher) == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_that_raises_stop_iteration_does_not_end_the_iteration_silently(workers):
    prefetcher = OrderedPrefetcher(next, iter([iter("a"), iter(""), iter("b")]), workers=workers, depth=2)

    assert next(prefetcher) == "a"
    with pytest.raises(RuntimeError, match="what was prefetched raised StopIteration"):
        next(prefetcher)


def test_a_generator_of_tasks_is_closed_when_the_prefetcher_is():
    closed = threading.Event()

    def tasks():
        try:
            yield from itertools.count()
        finally:
            closed.set()

    prefetcher = OrderedPrefetcher(str, tasks(), workers=2, depth=2)
    next(prefetcher)
    prefetcher.close()

    assert closed.is_set()


def test_a_waiting_thread_keeps_no_result():
    class Batch:
        pass

    alive = weakref.WeakSet()

    def made(_):
        batch = Batch()
        alive.add(batch)
        return batch

    prefetcher = OrderedPrefetcher(made, itertools.count(), workers=1, depth=2)
    taken = [next(prefetcher) for _ in range(3)]
    eventually(lambda: len(alive) == 5)
    assert len(alive) == 5  # three were taken, two wait
    taken.clear()

    assert len(alive) == 2
    prefetcher.close()
    assert len(alive) == 0


def test_close_and_garbage_collection_end_the_threads():
    closed = OrderedPrefetcher(str, itertools.count(), workers=2, depth=2)
    next(closed)
    closed.close()
    assert _threads() == 0

    dropped = OrderedPrefetcher(str, itertools.count(), workers=2, depth=2)
    next(dropped)
    del dropped
    gc.collect()
    _wait_until_no_threads()


# A thread inside compiled code, when the interpreter is gone, aborts the process: exit code 134, not the own one.
_LEAVES_ITS_LOOP = """
import itertools, sys, time
from beam_pipes.loader import prefetch
from beam_pipes.loader.prefetch import OrderedPrefetcher

def slowly(number):
    time.sleep(0.5 * bool(number))
    print("done", flush=True) if number == 1 else None

for number in OrderedPrefetcher(slowly, itertools.count(), workers=1, depth=2):
    sys.exit(3)
"""


def test_a_process_that_leaves_its_loop_ends_after_its_threads():
    ended = subprocess.run([sys.executable, "-c", _LEAVES_ITS_LOOP], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "done\n", "")


def test_closing_from_another_thread_wakes_a_waiting_consumer():
    release = threading.Event()
    prefetcher = OrderedPrefetcher(lambda _: release.wait(60), iter([1]), workers=1, depth=1)
    closer = threading.Timer(0.05, lambda: (release.set(), prefetcher.close()))
    closer.start()

    started = time.monotonic()
    list(prefetcher)

    assert time.monotonic() - started < 50
    closer.join()


_FRESH_PAGES = """
import resource
import numpy as np
from beam_pipes.loader import prefetch
from beam_pipes.loader.prefetch import OrderedPrefetcher

def batch(number):
    return sum(int(part[0]) for part in [np.ones(500_000, np.uint8) for _ in range(32)])

for number, _ in enumerate(OrderedPrefetcher(batch, iter(range(40)), workers=2, depth=2)):
    if number == 19:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def test_batches_are_made_in_the_memory_of_earlier_ones() -> None:
    faults = subprocess.run([sys.executable, "-c", _FRESH_PAGES], capture_output=True, text=True, check=True).stdout

    assert float(faults) < 200, "of the 3,900 pages of a batch; glibc alone returns and takes more than a thousand"
