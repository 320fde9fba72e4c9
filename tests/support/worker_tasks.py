"""What tests have worker processes do."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def tell_until_it_fails(send: Callable[[Any], None]) -> None:
    """Tells something again and again; ends in the error of a connection that is gone."""
    deadline = time.monotonic() + 30
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
