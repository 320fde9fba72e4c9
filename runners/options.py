"""One options object for each runner; what a user chose is printed, and stored beside the snapshot.

What a build needs of this machine alone is found here too: local files that workers elsewhere do not see, and whether a
HOST:PORT is this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from beam_pipes.building.declaration import Declaration, DeclarationHandle
from beam_pipes.cache.storage import is_remote
from beam_pipes.errors import DeclarationError
from beam_pipes.sources.file_source import FileSource
from beam_pipes.sources.source import SplitSources


class Planned(Protocol):
    """What a runner's own checks look at: a `BuildPlan`, or what there is before one is made."""

    @property
    def path(self) -> str: ...
    @property
    def declaration(self) -> Declaration: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """The local runner: worker processes on this machine.

    `workers`: how many; None takes as many as there are cores for this process. With 1 everything runs in the calling
    process, which also works for declarations that cannot be imported (a notebook).

    `stall_secs`: after how many seconds without a sign of life from a shard one line on standard error names it. A sign
    of life comes with every batch of records, so the default of five minutes is far beyond what costly stages take.
    """

    workers: int | None = None
    stall_secs: float = 300.0

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise DeclarationError(f"workers should be at least 1, got {self.workers}.")
        if not self.stall_secs > 0:
            raise DeclarationError(f"stall_secs should be positive, got {self.stall_secs}.")

    @property
    def num_workers(self) -> int:
        """The number of workers, resolved."""
        return self.workers if self.workers is not None else len(os.sched_getaffinity(0))

    def to_json(self) -> dict[str, Any]:
        return {"runner": "local", "workers": self.num_workers}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """A Beam runner, by name, and the options that go to Beam as they are (`--name=value`).

    Runners with options of their own have a subclass (`DataflowOptions`, `PortableOptions`).
    """

    runner: str = "DirectRunner"
    beam_args: tuple[str, ...] = ()

    def pipeline_args(self) -> tuple[str, ...]:
        """All options for Beam."""
        return self.beam_args

    def check(self, plan: Planned, handle: DeclarationHandle) -> None:
        """Raises `DeclarationError` where this runner cannot do what is planned."""

    def require_server(self) -> None:
        """Raises `BuildError` where the server that runs the job is not there."""

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        """Held while a job runs: what the runner needs is there. Gives all options for Beam."""
        yield self.pipeline_args()

    def cancel(self, result: Any, beam_args: Sequence[str]) -> None:
        """Cancels the job of Beam's `result`, which was submitted with `beam_args`."""
        result.cancel()

    def to_json(self) -> dict[str, Any]:
        return {"runner": self.runner, "beam_args": list(self.pipeline_args())}


def local_cache(plan: Planned) -> str | None:
    """The directory of the cache where it is on this machine, else None."""
    return None if is_remote(plan.path) else plan.path


def local_input(plan: Planned) -> str | None:
    """The first file or directory of the input that is no `gs://…`, else None."""
    source = plan.declaration.source
    sources = source.sources.values() if isinstance(source, SplitSources) else [source]
    entries = [entry for each in sources if isinstance(each, FileSource) for entry in each.selection().entries]
    return next((entry for entry in entries if not is_remote(entry)), None)


# As gRPC takes it: a name or an IPv4 address, or an IPv6 address in brackets.
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def require_endpoint(runner: str, name: str, value: object, *, example: str) -> str:
    """`value` where it is HOST:PORT, such as `localhost:8099`; raises `DeclarationError` where it is not."""
    found = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < int(found["port"]) < 65536:
        raise DeclarationError(f"{runner}: {name} should be HOST:PORT, such as {example!r}, got {value!r}.")
    return found[0]


def is_this_machine(endpoint: str) -> bool:
    """Whether HOST:PORT is a loopback address or bears this machine's own name. Nothing is looked up."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname())
