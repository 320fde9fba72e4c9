"""Prism, Beam's own portable runner: where the program is, and how it is run."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from beam_pipes.errors import BuildError
from beam_pipes.runners.server_process import running_server

_SERVES = re.compile(r'"Serving JobManagement".*"endpoint":"(?P<endpoint>[^"]+)"')


def prism_places() -> list[Path]:
    """Where Prism is looked for, in this order: beside this Python, where Beam keeps what it downloads, on PATH."""
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
        f"{beam} has it as a file; name it with --prism-location.",
    )


@contextlib.contextmanager
def running_prism(program: Path) -> Iterator[str]:
    """Runs Prism on a free port of this machine; gives its endpoint. It ends with the block, or with this process.

    Raises:
        BuildError: the program ended, or is no Prism.
    """
    command = [str(program), "--job_port=0", "--serve_http=false", "--log_kind=json", "--log_level=info"]
    hint = "Is it Beam's prism? --prism-location names another one."
    with running_server("prism", command, serves=_SERVES, hint=hint) as endpoint:
        yield endpoint
