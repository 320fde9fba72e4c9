"""The options of `build` and `plan` that say who runs a build, and the options object that comes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from beam_pipes.errors import DeclarationError
from beam_pipes.runners.dataflow import DataflowOptions
from beam_pipes.runners.flink import FlinkOptions
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.portable import ENVIRONMENT_TYPES, PortableOptions
from beam_pipes.runners.prism import PrismOptions

# Name on the command line → the options of those that are given a job over Beam's Job API.
PORTABLE: Mapping[str, type[PortableOptions]] = {
    "portable": PortableOptions,
    "prism": PrismOptions,
    "flink": FlinkOptions,
}
RUNNERS = ("local", "direct", "dataflow", *PORTABLE)

JobEndpoint = Annotated[str | None, typer.Option(help="HOST:PORT of a job server that runs [portable, flink]")]
EnvironmentType = Annotated[
    str | None, typer.Option(help=f"where its workers come from: {', '.join(ENVIRONMENT_TYPES)} [LOOPBACK]")
]
EnvironmentConfig = Annotated[
    str | None, typer.Option(help="HOST:PORT of the pool (EXTERNAL), image (DOCKER) or JSON (PROCESS)")
]
Parallelism = Annotated[int | None, typer.Option(help="worker processes of each machine; for Flink, slots")]
SharedFiles = Annotated[
    bool, typer.Option("--shared-files", help="workers elsewhere see this machine's files under the same paths")
]
PrismLocation = Annotated[str | None, typer.Option(help="the program prism [found beside Python or on PATH]")]
FlinkJobServerJar = Annotated[
    str | None, typer.Option(help="Beam's job server for Flink, to be started: a jar, or a directory of jars")
]
FlinkMaster = Annotated[str | None, typer.Option(help="HOST:PORT of the cluster [the job server's own]")]


def options_for(
    runner: str,
    *,
    workers: int | None,
    beam_args: Sequence[str],
    job_endpoint: str | None = None,
    environment_type: str | None = None,
    environment_config: str | None = None,
    parallelism: int | None = None,
    shared_files: bool = False,
    prism_location: str | None = None,
    flink_master: str | None = None,
    flink_job_server_jar: str | None = None,
) -> LocalOptions | BeamOptions:
    """The options object of a runner, by its name on the command line. Raises `DeclarationError`."""
    if runner not in RUNNERS:
        raise DeclarationError(f"unknown runner {runner!r}; choose one of: {', '.join(RUNNERS)}.")
    named = {
        "job_endpoint": job_endpoint,
        "environment_type": environment_type,
        "environment_config": environment_config,
        "parallelism": parallelism,
        "shared_files": shared_files or None,
        "prism_location": prism_location,
        "flink_master": flink_master,
        "flink_job_server_jar": flink_job_server_jar,
    }
    given = [f"--{name}={value}" for name, value in named.items() if value is not None]
    _require_own(runner, [name for name, value in named.items() if value is not None])
    if runner == "local":
        if beam_args:
            raise DeclarationError(
                f"options after -- go to Beam, which the local runner does not use: {' '.join(beam_args)}. "
                "Choose --runner direct, or leave them out."
            )
        return LocalOptions(workers=workers)
    if workers is not None:
        raise DeclarationError(f"--workers belongs to --runner local; {runner!r} takes Beam's options after --.")
    if runner == "dataflow":
        return DataflowOptions.from_args(beam_args)
    if runner in PORTABLE:
        return PORTABLE[runner].from_args([*given, *beam_args])
    return BeamOptions(runner="DirectRunner", beam_args=tuple(beam_args))


def _require_own(runner: str, names: Sequence[str]) -> None:
    """Raises `DeclarationError` for an option that is another runner's."""
    for name in names:
        owners = [
            other
            for other, options in PORTABLE.items()
            if any(field.init and field.name == name for field in dataclasses.fields(options))
        ]
        if runner not in owners:
            raise DeclarationError(
                f"--{name.replace('_', '-')} belongs to --runner {', '.join(owners)}; {runner!r} does not take it."
            )
