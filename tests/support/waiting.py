"""Waiting for what another thread or process does: tests wait for events, and never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far more than anything takes on a machine that is busy with other things.
_MOST_SECS = 60.0


def eventually(holds: Callable[[], object]) -> None:
    """Returns as soon as `holds()` is true, and fails after a minute."""
    deadline = time.monotonic() + _MOST_SECS
    while not holds():
        assert time.monotonic() < deadline, "this did not happen within a minute"
        time.sleep(0.01)
