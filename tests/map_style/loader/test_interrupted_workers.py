"""Ctrl-C at every line that starts or ends worker processes: no descriptor of theirs is left, nor a process."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from multiprocessing import active_children, popen_spawn_posix, resource_tracker
from types import FrameType

import pytest

from beam_pipes.map_style import DataLoader
from beam_pipes.map_style.workers import WorkerPool, interrupts_held_back

CODE = [
    function.__code__
    for function in (WorkerPool.__init__, WorkerPool._start, WorkerPool.close, popen_spawn_posix.Popen._launch)
]


class Interrupt:
    """Sends this process SIGINT at a line of `CODE` that no other one has come at, and adds it to `lines`."""

    def __init__(self, lines: set[tuple[str, int]]) -> None:
        self.lines, self.sent = lines, False

    def __enter__(self) -> Interrupt:
        self._tracer = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer)

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        if frame.f_code not in CODE:
            return None
        place = (frame.f_code.co_name, frame.f_lineno)
        if event == "line" and not self.sent and place not in self.lines:
            self.lines.add(place)
            self.sent = True
            signal.raise_signal(signal.SIGINT)
        return self._trace


def one_pass() -> None:
    with DataLoader(range(2), num_workers=1, worker_type="process") as loader:
        assert [batch.tolist() for batch in loader] == [[0], [1]]


def test_nothing_is_left_wherever_it_comes() -> None:
    resource_tracker.ensure_running()
    one_pass()
    before = set(os.listdir("/proc/self/fd"))
    lines: set[tuple[str, int]] = set()
    left = {}
    sent = True
    while sent:
        try:
            with Interrupt(lines) as interrupt:
                one_pass()
            sent = False
        except KeyboardInterrupt:
            assert interrupt.sent
        if set(os.listdir("/proc/self/fd")) - before:
            gc.collect()
        if descriptors := set(os.listdir("/proc/self/fd")) - before:
            left[max(lines)] = descriptors
            active_children()  # which lets go of those that ended

    assert left == {}
    assert {function for function, _ in lines} == {code.co_name for code in CODE} and len(lines) > 40
    assert active_children() == []


def test_it_is_answered_after_the_block_whichever_thread_it_reaches() -> None:
    steps, ended = [], threading.Event()
    other = threading.Thread(target=ended.wait, args=(60,))
    other.start()
    arrived, output = socket.socketpair()
    output.setblocking(False)
    before = signal.set_wakeup_fd(output.fileno())
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_held_back():
            with interrupts_held_back():
                signal.pthread_kill(other.ident, signal.SIGINT)  # type: ignore[arg-type]
                assert arrived.recv(1) == bytes([signal.SIGINT])
                steps.append("inner")
            steps.append("outer")
    finally:
        signal.set_wakeup_fd(before)
        ended.set()
    other.join()
    arrived.close()
    output.close()

    assert steps == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_nothing_to_hold_back() -> None:
    handlers = []

    def work() -> None:
        with interrupts_held_back():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert handlers == [signal.default_int_handler]
