"""A job server as a process that lives as long as a build."""

from __future__ import annotations

import collections
import contextlib
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO

from beam_pipes.errors import BuildError

# A process of Java on a busy machine takes its time.
START_SECS = 120.0
_END_SECS = 10.0

# A server does not notice that who started it has died. This process does: its standard input ends then, however that
# happened, and it ends the server.
_KEEPER = """
import subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (sys.stdin.read(), server.kill()), daemon=True).start()
sys.exit(server.wait() and 1)
"""


@contextlib.contextmanager
def running_server(
    runner: str, command: Sequence[str], *, serves: re.Pattern[str], hint: str, start_secs: float = START_SECS
) -> Iterator[str]:
    """Runs the command of a job server; gives HOST:PORT. It ends with the block, or with this process.

    Args:
        runner: the name of the runner on the command line, for the message.
        command: the program and its arguments.
        serves: finds, in a line that the server says, its `endpoint`.
        hint: what to do where the program does not start to serve, for the message.
        start_secs: how long that may take.

    Raises:
        BuildError: the program cannot be run, ended, or did not say where it serves.
    """
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _KEEPER, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for us: the job is cancelled first
    )
    assert keeper.stdin is not None and keeper.stdout is not None
    endpoints: queue.Queue[str | None] = queue.Queue()
    last: collections.deque[str] = collections.deque(maxlen=5)
    arguments = (keeper.stdout, serves, endpoints, last)
    reader = threading.Thread(target=_read, args=arguments, name="beam_pipes job server", daemon=True)
    reader.start()
    try:
        endpoint = None
        with contextlib.suppress(queue.Empty):
            endpoint = endpoints.get(timeout=start_secs)
        if endpoint is None:
            told = " | ".join(last) or "nothing"
            raise BuildError(f"{runner}: {command[0]!r} did not start to serve jobs; it said {told}. {hint}")
        yield endpoint
    finally:
        keeper.stdin.close()
        try:
            keeper.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        reader.join(_END_SECS)
        keeper.stdout.close()


def _read(
    stream: IO[str], serves: re.Pattern[str], endpoints: queue.Queue[str | None], last: collections.deque[str]
) -> None:
    """Finds the endpoint in what the server says, and reads on, so that it never waits for a reader."""
    for line in stream:
        last.append(line.strip())
        found = serves.search(line)
        if found is not None:
            endpoints.put(found["endpoint"])
    endpoints.put(None)
