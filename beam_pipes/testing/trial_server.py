"""The process that forks for each trial: `TrialProcesses` starts it, with a pipe that signals when to end.

It has imported this package but no user code. A fork at that point is safe (user libraries have started no threads yet)
and cheap; the child imports the user's modules itself, so it inherits nothing from earlier trials. A hash seed applies
to a whole process, so each has its server.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import beam_pipes.testing.trials  # noqa: F401  what every trial would import
from beam_pipes.storage import locks as kill_points
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.testing.trial_process import tell_progress_in

_POLL_SECS = 0.002


def serve() -> None:
    """In the process that forks: one order per line in, one wait status per line out."""
    lifeline = int(sys.argv[1])
    sys.argv = sys.argv[:1]
    orders, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for line in orders:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(order, lifeline)
        replies.write(json.dumps(_wait(pid, order["timeout_secs"])) + "\n")
        replies.flush()


def _wait(pid: int, timeout_secs: float) -> int | None:
    """The wait status of a child, killed if late; whatever it started ends with it."""
    deadline = time.monotonic() + timeout_secs
    late = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if not late and time.monotonic() > deadline:
            late = True
            _kill_group(pid)
        time.sleep(_POLL_SECS)
    _kill_group(pid)
    return None if late else status


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # the child creates its group itself, shortly after it starts
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _child(order: JsonObject, lifeline: int) -> None:
    code = 1
    try:
        os.setsid()
        said = os.open(f"{order['directory']}/said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        tell_progress_in(Path(order["directory"], "progress"))
        os.environ.clear()
        os.environ.update(order["env"])
        time.tzset()
        os.chdir(order["working_directory"])
        sys.path[:] = order["path"]
        threading.Thread(target=_follow, args=(lifeline,), daemon=True).start()
        _call(order)
        code = 0
    finally:
        # Not by interpreter shutdown, where threads of user libraries may wait forever.
        sys.stderr.flush()
        os._exit(code)


def _follow(lifeline: int) -> None:
    """Ends this process and whatever it started once nobody waits for it."""
    os.read(lifeline, 1)
    os.killpg(os.getpid(), signal.SIGKILL)


def _call(order: JsonObject) -> None:
    random.seed()  # as in a fresh process: forks share the parent's seed
    np.random.seed()
    kill_points.arm(os.environ.get(kill_points.VARIABLE, ""))
    directory = Path(order["directory"])
    function, packed = pickle.loads((directory / "order").read_bytes())
    module, _, name = function.partition(":")
    outcome: tuple[object, tuple[str, str] | None]
    try:
        outcome = getattr(importlib.import_module(module), name)(pickle.loads(packed)), None
    except Exception as error:
        outcome = None, (type(error).__name__, str(error))
    (directory / "reply.part").write_bytes(pickle.dumps(outcome))
    os.replace(directory / "reply.part", directory / "reply")
