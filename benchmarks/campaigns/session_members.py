"""The processes of a session: campaigns start processes in sessions to be able to find them again."""

from __future__ import annotations

import os
import time
from pathlib import Path


def processes_left(session: int, *, wait_secs: float) -> int:
    """The number of processes left in the session, after a grace period."""
    deadline = time.monotonic() + wait_secs
    while (found := members(session)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(found)


def members(session: int) -> dict[int, int]:
    """The processes of the session, each with its parent."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found[int(entry)] = int(fields[1])
    return found
