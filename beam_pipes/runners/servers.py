"""Job servers that live as long as a build, and Prism, Beam's own portable runner, as one of them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, ClassVar

from beam_pipes.errors import BuildError
from beam_pipes.runners.options import Argument, BeamOptions
from beam_pipes.runners.portable import PortableOptions

# A Java process takes its time on a busy machine.
START_SECS = 120.0
_END_SECS = 10.0

# A server does not notice when the process that started it dies. This helper does, because its standard input is then
# closed, however the process died, and it stops the server.
_KEEPER = """
import subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (sys.stdin.read(), server.kill()), daemon=True).start()
sys.exit(server.wait() and 1)
"""


@contextlib.contextmanager
def running_server(runner: str, command: Sequence[str], *, serves: re.Pattern[str], hint: str) -> Iterator[str]:
    """Runs the command of a job server; yields HOST:PORT. It ends with the block, or with this process.

    Args:
        runner: the name of the runner on the command line, for the message.
        command: the program and its arguments.
        serves: finds the `endpoint` in a line of the server's output.
        hint: what to do if the program does not start serving within `START_SECS`, for the message.

    Raises:
        BuildError: the program cannot be run, ended, or did not print its endpoint.
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
            endpoint = endpoints.get(timeout=START_SECS)
        if endpoint is None:
            printed = " | ".join(last) or "nothing"
            raise BuildError(f"{runner}: {command[0]!r} did not start serving jobs; it printed {printed}. {hint}")
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
    """Finds the endpoint in the server's output, and keeps reading so that the server never blocks."""
    for line in stream:
        last.append(line.strip())
        found = serves.search(line)
        if found is not None:
            endpoints.put(found["endpoint"])
    endpoints.put(None)


_SERVES = re.compile(r'"Serving JobManagement".*"endpoint":"(?P<endpoint>[^"]+)"')


def prism_places() -> list[Path]:
    """Where Prism is looked for, in this order: beside this Python, where Beam keeps what it downloads, on
    PATH.
    """
    beam, machine = importlib.metadata.version("apache-beam"), platform.machine().lower()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    cached = Path.home() / ".apache_beam/cache/prism/bin"
    places = [
        Path(sys.executable).with_name("prism"),
        cached / f"apache_beam-v{beam}-prism-{platform.system().lower()}-{arch}",
        cached / "prism",
    ]
    on_path = shutil.which("prism")
    return places if on_path is None else [*places, Path(on_path)]


def find_prism(location: str | None = None) -> Path:
    """The program at `location`, or the first that `prism_places` finds. Raises `BuildError`; downloads nothing."""
    places = prism_places() if location is None else [Path(location)]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    beam = importlib.metadata.version("apache-beam")
    looked = " nor ".join(map(str, places)) if location is None else str(location)
    raise BuildError(
        f"prism: expected the program prism, found neither {looked} nor anything on PATH. "
        if location is None
        else f"prism: expected a program at {looked!r}, and there is none that can be run. "
        f"`go install github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam}` builds it in a minute, and Beam's release "
        f"{beam} offers it as a download; name it with --prism-location.",
    )


@contextlib.contextmanager
def running_prism(program: Path) -> Iterator[str]:
    """Runs Prism on a free port of this machine; yields its endpoint. It ends with the block, or with this process.

    Raises:
        BuildError: the program ended, or is not Prism.
    """
    command = [str(program), "--job_port=0", "--serve_http=false", "--log_kind=json", "--log_level=info"]
    hint = "Is it Beam's prism? --prism-location names another one."
    with running_server("prism", command, serves=_SERVES, hint=hint) as endpoint:
        yield endpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrismOptions(PortableOptions):
    """A job on Prism, which is started for it and ends with it.

        build("my_package.job:declaration", "cache", options=PrismOptions())

    Use it to test a declaration on a portable runner on one machine. It is not fast: one worker process does all work,
        whereas the local runner uses all cores.

    Args:
        prism_location: the program; None: beside this Python, where Beam keeps its downloads, or on PATH.
        environment_type, environment_config, parallelism, job_name, attempts, beam_args: as for `PortableOptions`.

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    prism_location: Annotated[str | None, Argument(beam="")] = None
    job_endpoint: str = dataclasses.field(default="", init=False)

    NAME: ClassVar[str] = "prism"

    def __post_init__(self) -> None:
        self._check_environment()
        BeamOptions.__post_init__(self)

    def needs_this_process(self) -> str | None:
        """Always: Prism ends with the build."""
        return (
            "Prism is started for the build and ends with it. Run one apart (prism --job_port=8073), and choose "
            "--runner portable --job-endpoint localhost:8073 with a pool of workers (--environment-type EXTERNAL)."
        )

    @property
    def server_is_here(self) -> bool:
        """Always: it is started here."""
        return True

    def require_server(self) -> None:
        """Raises `BuildError` if there is no Prism."""
        find_prism(self.prism_location)

    @contextlib.contextmanager
    def _served(self) -> Iterator[tuple[str, ...]]:
        with running_prism(find_prism(self.prism_location)) as endpoint:
            yield (f"--job_endpoint={endpoint}", *self.pipeline_args())
