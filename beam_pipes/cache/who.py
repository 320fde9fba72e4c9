"""Who holds a lock: a process, named so that others can say who it is, and on its own machine whether it lives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any


def this_process() -> dict[str, Any]:
    """This process, for a lock file: pid, host, since when; and what tells it from a later one of the same pid."""
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "machine": _machine(),
        "started": _started(os.getpid()),
    }


def in_words(who: Any) -> str:
    """`process 4711 on build-3, since 2026-01-31 12:00:00`."""
    try:
        return f"process {who['pid']} on {who['host']}, since {who['since']}"
    except (KeyError, TypeError):
        return "it has just started"


def is_dead(who: Any) -> bool:
    """Whether a process is surely gone: it ran on this very machine, and is there no more. False where unknown."""
    if not isinstance(who, Mapping):
        return False
    machine, pid = _machine(), who.get("pid")
    if not machine or who.get("machine") != machine or not isinstance(pid, int):
        return False
    return _started(pid) != who.get("started")


def _machine() -> str:
    """This boot of this machine, and the numbering of processes that we see; empty where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did; empty where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""
