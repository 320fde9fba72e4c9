"""Builds in separate processes, which are killed or compete."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from beam_pipes.errors import CacheBusyError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.storage import locks as kill_points

BUSY = 7

# Forks of a process without threads; this process has threads of all libraries used by its tests.
_CONTEXT = multiprocessing.get_context("forkserver")


def start_build(declaration: str, to: str | Path, *, killed_at: str | None = None) -> ForkServerProcess:
    """Starts a build by one worker, with the environment of this process; it ends with `BUSY` if another one builds.

    Args:
        killed_at: the label of `kill_points` at which the process kills itself.
    """
    process = _CONTEXT.Process(target=_build, args=(declaration, str(to), killed_at, dict(os.environ)))
    process.start()
    return process


def _build(declaration: str, to: str, killed_at: str | None, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    if killed_at is not None:
        kill_points.arm(killed_at)
    try:
        build(declaration, to, options=LocalOptions(workers=1))
    except CacheBusyError as error:
        sys.exit(BUSY if "another build is writing to" in str(error) else str(error))
