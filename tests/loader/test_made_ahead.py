"""Batches made ahead, or when they are asked for: each once, in order, whichever way it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from beam_pipes.loader import prefetch
from beam_pipes.loader.prefetch import QUICK_SECS, MadeAhead


class Maker:
    """Makes batches, each as slow as `secs_of` says, and notes who made what."""

    def __init__(self, secs_of: Callable[[int], float]) -> None:
        self.secs_of = secs_of
        self.made: list[int] = []
        self.ahead: dict[int, bool] = {}

    def __call__(self, number: int) -> int:
        time.sleep(self.secs_of(number))
        self.made.append(number)
        self.ahead[number] = threading.current_thread() is not threading.main_thread()
        return number


def given(maker: Maker, count: int, **options: Any) -> tuple[list[int], MadeAhead[int, int]]:
    ahead = MadeAhead(maker, iter(range(count)), **{"workers": 2, "depth": 3, **options})
    return [batch for _, batch in ahead], ahead


def test_slow_batches_are_made_by_threads_to_the_end() -> None:
    maker = Maker(lambda number: 3 * QUICK_SECS)
    found, ahead = given(maker, 100)
    assert found == list(range(100)) and sorted(maker.made) == found
    assert all(maker.ahead.values()) and not ahead.is_quick


def test_quick_batches_are_made_when_they_are_asked_for_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "QUICK_SECS", 60.0)  # however busy the machine is
    maker = Maker(lambda number: 0.0)
    found, ahead = given(maker, 2000)
    assert found == list(range(2000)) and sorted(maker.made) == found
    assert maker.ahead[0] and not maker.ahead[1999] and ahead.is_quick


def test_threads_come_back_where_batches_become_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def secs_of(number: int) -> float:
        monkeypatch.setattr(prefetch, "QUICK_SECS", 60.0 if number < 1000 else -1.0)
        return 0.0

    maker = Maker(secs_of)
    found, ahead = given(maker, 1100)
    assert found == list(range(1100)) and sorted(maker.made) == found
    assert not maker.ahead[999] and maker.ahead[1099] and not ahead.is_quick


def test_a_loop_may_begin_without_threads() -> None:
    maker = Maker(lambda number: 0.0)
    found, _ = given(maker, 20, is_quick=True)
    assert found == list(range(20)) and not any(maker.ahead.values())


@pytest.mark.parametrize("is_quick", [False, True])
def test_an_error_is_raised_where_its_batch_was_due(is_quick: bool) -> None:
    def fail(number: int) -> int:
        if number == 7:
            raise ValueError("seven")
        return number

    ahead = MadeAhead(fail, iter(range(20)), workers=2, depth=3, is_quick=is_quick)
    assert [next(ahead)[1] for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match="seven"):
        next(ahead)


@pytest.mark.parametrize("is_quick", [False, True])
def test_closing_ends_threads_and_the_iteration(is_quick: bool) -> None:
    before = set(threading.enumerate())
    ahead = MadeAhead(Maker(lambda number: 0.001), iter(range(20)), workers=2, depth=3, is_quick=is_quick)
    next(ahead)
    ahead.close()
    assert set(threading.enumerate()) <= before and list(ahead) == []
