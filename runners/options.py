"""One options object per runner; what a user chose is printed, and stored beside the snapshot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.errors import DeclarationError


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
