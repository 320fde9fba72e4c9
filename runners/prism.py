"""`PrismOptions`: Beam's own portable runner, started for one build on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from beam_pipes.runners.portable import PortableOptions
from beam_pipes.runners.prism_process import find_prism, running_prism


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrismOptions(PortableOptions):
    """A job on Prism, which is started for it and ends with it.

        build("my_package.job:declaration", "cache", options=PrismOptions())

    What a declaration does on a portable runner shows here first, on one machine. It is no way to be fast: all work is
    done by one worker process, where the local runner takes all cores.

    Args:
        prism_location: the program; None: beside this Python, where Beam keeps its downloads, or on PATH.
        environment_type, environment_config, parallelism, job_name, beam_args: as for `PortableOptions`.

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    prism_location: str | None = None
    job_endpoint: str = dataclasses.field(default="", init=False)

    NAME: ClassVar[str] = "prism"

    _FOR_BEAM: ClassVar[tuple[str, ...]] = tuple(name for name in PortableOptions._FOR_BEAM if name != "job_endpoint")

    def __post_init__(self) -> None:
        self._check_environment()

    @property
    def server_is_here(self) -> bool:
        """Always: it is started here."""
        return True

    def require_server(self) -> None:
        """Raises `BuildError` where there is no Prism."""
        find_prism(self.prism_location)

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        with running_prism(find_prism(self.prism_location)) as endpoint:
            yield (f"--job_endpoint={endpoint}", *self.pipeline_args())
