"""`preflight`: all checks of a build that need none of its input.

`make_worker_environment`: a virtual environment like a remote worker's: Beam, what is staged for it, and nothing else
from this machine.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from beam_pipes.building.checks import find_faults, raise_faults
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_task import BuildHeader
from beam_pipes.errors import BeamPipesError, PlanError, WorkerEnvironmentError
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.storage.local import directory_path

# Dataflow's limit, the tightest one of the services that Beam knows.
MAX_JOB_GRAPH_BYTES = 10 << 20


def preflight(
    declaration: Declaration | str,
    to: str | os.PathLike[str],
    *,
    options: LocalOptions | BeamOptions | None = None,
    accept_code_change: bool = False,
) -> Declaration:
    """Checks a build of `declaration` (or of its reference) in the directory `to`; returns the declaration.

    No input file is opened; scanning file names takes the longest. Raises the fault that was found, or a `PlanError`
    that lists all of them.
    """
    options = options if options is not None else LocalOptions()
    handle = DeclarationHandle.of(declaration)
    resolved = handle.get()
    elsewhere = isinstance(options, BeamOptions) or options.num_workers > 1
    found = find_faults(
        resolved,
        to,
        elsewhere=elsewhere and handle.reference is None,
        accept_code_change=accept_code_change,
    )
    if isinstance(options, BeamOptions):
        try:
            options.check(directory_path(to), resolved.source, handle)
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

    header = BuildHeader.of(declaration, directory_path(to), "0" * 16, num_shards=0, specs=declaration.declared_specs)
    return job_graph_bytes(handle, header)


def require_small_graph(num_bytes: int) -> None:
    """Raises `PlanError` for a job graph that a service would refuse."""
    if num_bytes > MAX_JOB_GRAPH_BYTES:
        raise PlanError(
            f"the job graph has {num_bytes:,} bytes, and services take {MAX_JOB_GRAPH_BYTES:,}. Values inside the "
            "declaration make it large. Put the declaration into a module (package.module:name), so that workers "
            "import it, or move large values into files (Asset)."
        )


# The contents of Beam's own worker image.
_OF_THE_IMAGE = ("apache-beam[gcp,tfrecord]",)

_LOAD = """
import json, sys
from beam_pipes.building.references import DeclarationHandle, load_declaration
import pickle
declaration = load_declaration(sys.argv[1])
pickle.loads(pickle.dumps(DeclarationHandle(declaration, sys.argv[1]))).get()
modules = {part.__module__ for part in (declaration.source, *(unit.stage for unit in declaration.graph.units))}
print(json.dumps({name: sys.modules[name].__file__ for name in sorted(modules) if name in sys.modules}))
"""

_NO_BEAM_PIPES = "ModuleNotFoundError: No module named 'beam_pipes'"


class WorkerEnvironment:
    """A worker's Python in a directory; made by `make_worker_environment`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"

    def install(self, packages: Sequence[str], *, where: str) -> None:
        """Installs packages: requirements, sdists or wheels. Raises `WorkerEnvironmentError`."""
        # uv takes a tenth of pip's time.
        installer = (
            [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(self.python)]
            if importlib.util.find_spec("uv") is not None
            else [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        )
        done = subprocess.run([*installer, *packages], capture_output=True, text=True, check=False)
        if done.returncode:
            raise WorkerEnvironmentError(
                f"{where} cannot be installed on a worker: {_last_lines(done.stderr)}. Its dependencies must be in a "
                "package index that workers reach, or staged as extra packages."
            )

    def run(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs Python code as a worker would: from another directory, without this process's path or `__main__`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        with tempfile.TemporaryDirectory(prefix="beam-pipes-worker-") as elsewhere:
            return subprocess.run(
                [str(self.python), "-P" if sys.version_info >= (3, 11) else "-s", "-c", code, *arguments],
                capture_output=True,
                text=True,
                check=False,
                cwd=elsewhere,
                env={**kept, **(env or {})},
            )

    def load(self, reference: str) -> dict[str, str]:
        """Imports a declaration as workers do; returns the files of its stages and its source, by module.

        Raises `WorkerEnvironmentError` if it cannot be imported, naming the module that is missing.
        """
        done = self.run(_LOAD, reference)
        if done.returncode and _NO_BEAM_PIPES in done.stderr:
            raise WorkerEnvironmentError(
                f"a worker cannot import {reference!r}: it has no beam_pipes package, which reads the declaration "
                "there. Pass --extra-package with the sdist or wheel of beam-pipes, as for the job (extra_packages)."
            )
        if done.returncode:
            raise WorkerEnvironmentError(
                f"a worker cannot import {reference!r}: {_last_lines(done.stderr)}. Put what is missing into the "
                "packages or install_requires of the setup_file, or into an extra package."
            )
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return found


def make_worker_environment(
    directory: Path, *, setup_file: str | None = None, extra_packages: Sequence[str] = ()
) -> WorkerEnvironment:
    """Makes the environment of a worker that is given a `setup_file` and extra packages, as Beam stages them.

    Beam has the same version as here. Raises `WorkerEnvironmentError` if something cannot be built or installed.
    """
    for option, file in (("setup_file", setup_file), *(("an extra package", package) for package in extra_packages)):
        if file is not None and not Path(file).is_file():
            raise WorkerEnvironmentError(f"{option}: expected a file at {file!r}, but there is none.")
    venv.create(directory, with_pip=importlib.util.find_spec("uv") is None)
    environment = WorkerEnvironment(directory)
    beam = importlib.metadata.version("apache-beam")
    image = [requirement.replace("]", f"]=={beam}") for requirement in _OF_THE_IMAGE]
    environment.install(image, where="Beam")
    if extra_packages:
        environment.install([str(Path(package).resolve()) for package in extra_packages], where="an extra package")
    if setup_file is not None:
        with tempfile.TemporaryDirectory(prefix="beam-pipes-sdist-") as made:
            environment.install(
                [str(source_distribution(setup_file, Path(made)))], where=f"the setup_file {setup_file}"
            )
    return environment


def source_distribution(setup_file: str, to: Path) -> Path:
    """The source distribution (`.tar.gz`) that a `setup.py` describes, as Beam makes it; written into `to`."""
    command = [sys.executable, Path(setup_file).name, "--quiet", "sdist", "--dist-dir", str(to.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(setup_file).resolve().parent)
    made = sorted(to.glob("*.tar.gz"))
    if done.returncode or not made:
        raise WorkerEnvironmentError(f"{setup_file} gives no source distribution: {_last_lines(done.stderr)}.")
    return made[-1]


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "no message"
