"""`preflight`: all checks of a build that need none of its input, those of its runner among them."""

from __future__ import annotations

import dataclasses
import os

from beam_pipes.building.checks import find_faults, raise_faults
from beam_pipes.building.declaration import Declaration, DeclarationHandle, load_declaration
from beam_pipes.building.shard_task import BuildHeader
from beam_pipes.cache.storage import directory_path
from beam_pipes.errors import BeamPipesError, PlanError
from beam_pipes.runners.options import BeamOptions, LocalOptions

# What Dataflow takes, the tightest limit of the services that Beam knows.
MAX_JOB_GRAPH_BYTES = 10 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """A build that nothing was read for yet."""

    path: str
    declaration: Declaration


def preflight(
    declaration: Declaration | str,
    to: str | os.PathLike[str],
    *,
    options: LocalOptions | BeamOptions | None = None,
    accept_code_change: bool = False,
) -> Declaration:
    """Checks a build of `declaration` (or of its reference) in the directory `to`; returns the declaration.

    No input file is opened, and a scan of file names is the longest part of it. Raises the fault that was found, or a
    `PlanError` that tells all of them.
    """
    options = options if options is not None else LocalOptions()
    resolved = load_declaration(declaration) if isinstance(declaration, str) else declaration
    handle = DeclarationHandle(resolved, declaration if isinstance(declaration, str) else None)
    elsewhere = isinstance(options, BeamOptions) or options.num_workers > 1
    found = find_faults(
        resolved,
        to,
        elsewhere=elsewhere and handle.reference is None,
        accept_code_change=accept_code_change,
    )
    if isinstance(options, BeamOptions):
        try:
            options.check(Draft(path=directory_path(to), declaration=resolved), handle)
            options.require_server()
            if not found:
                require_small_graph(graph_bytes(handle, resolved, to))
        except BeamPipesError as error:
            found.append(error)
    raise_faults(list({str(fault): fault for fault in found}.values()))
    return resolved


def graph_bytes(handle: DeclarationHandle, declaration: Declaration, to: str | os.PathLike[str]) -> int:
    """Bytes of the job graph without its list of source shards (which are numbers there)."""
    from beam_pipes.extras import require

    require("apache_beam", purpose="the runner")
    from beam_pipes.beam.build_graph import job_graph_bytes

    specs = {split: declaration.declared_spec(split) for split in declaration.splits}
    header = BuildHeader(
        name=declaration.name,
        root=directory_path(to),
        snapshot="0" * 16,
        num_shards=0,
        specs={split: spec for split, spec in specs.items() if spec is not None},
        fingerprints=declaration.fingerprints,
    )
    return job_graph_bytes(handle, header)


def require_small_graph(num_bytes: int) -> None:
    """Raises `PlanError` for a job graph that a service would refuse."""
    if num_bytes > MAX_JOB_GRAPH_BYTES:
        raise PlanError(
            f"the job graph has {num_bytes:,} bytes, and services take {MAX_JOB_GRAPH_BYTES:,}. What makes it large "
            "are values that travel inside of the declaration. Put it into a module (package.module:name), so that "
            "workers import it, or large values into files (Asset)."
        )
