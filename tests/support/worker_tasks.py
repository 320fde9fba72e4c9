"""Functions that tests run in worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def tell_until_it_fails(send: Callable[[Any], None]) -> None:
    """Sends something repeatedly; ends in the error of a closed connection."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        send(("tell", (1, 0, 0)))
        time.sleep(0.01)


def fail(send: Callable[[Any], None]) -> None:
    """Raises what cannot be pickled."""
    raise ValueError("local", lambda: None)


def leave(send: Callable[[Any], None], kind: str) -> None:
    """Raises what is no `Exception`."""
    if kind == "SystemExit":
        sys.exit(0)
    raise KeyboardInterrupt if kind == "KeyboardInterrupt" else GeneratorExit


def draw(send: Callable[[Any], None]) -> list[float]:
    """Draws from generators that a stage may use carelessly."""
    import random

    import numpy as np

    return [random.random(), float(np.random.random())]


def end(send: Callable[[Any], None], code: int) -> None:
    """Ends the process with an exit code, or with a signal (negative)."""
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def say(send: Callable[[Any], None], words: str) -> None:
    """Prints, as a stage may."""
    print(words)


def start_sleeper(send: Callable[[Any], None]) -> int:
    """Starts a program that inherits everything it can, and does not wait for it."""
    return subprocess.Popen(["sleep", "60"], close_fds=False).pid
