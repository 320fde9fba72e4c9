"""Threads that share one iterator of a loader."""

from __future__ import annotations

import concurrent.futures
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


def assert_each_comes_once_and_in_order(
    elements: Iterator[Any], expected: list[Any], *, number_of: Callable[[Any], Any], threads: int = 4
) -> None:
    """Takes all elements on several threads at once: together they must get each of `expected` once, each thread in
    order."""
    barrier = threading.Barrier(threads)

    def take() -> list[Any]:
        barrier.wait()
        return [number_of(element) for element in elements]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            taken = [future.result() for future in [pool.submit(take) for _ in range(threads)]]
    finally:
        sys.setswitchinterval(before)

    parts = [[expected.index(number) for number in part] for part in taken]
    assert sorted(itertools.chain(*parts)) == list(range(len(expected)))
    assert all(part == sorted(part) for part in parts)
