"""`beam-pipes doctor`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from beam_pipes.building.reference import load_declaration
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.worker_environment import make_worker_environment


def doctor_command(
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    setup_file: Annotated[str | None, typer.Option(help="the setup.py whose package workers install")] = None,
    extra_package: Annotated[list[str] | None, typer.Option(help="sdist or wheel that workers install too")] = None,
) -> None:
    """Check that workers get all that a declaration imports: in a virtual environment that holds what they would.

    Example: beam-pipes doctor my_package.job:declaration --setup-file setup.py --extra-package beam_pipes.tar.gz
    """
    load_declaration(declaration)  # what cannot be imported here is said at once
    with tempfile.TemporaryDirectory(prefix="beam-pipes-doctor-") as directory:
        console.print("Installing what a worker would have…")
        environment = make_worker_environment(
            Path(directory), setup_file=setup_file, extra_packages=tuple(extra_package or ())
        )
        files = environment.load(declaration)
        for module, file in files.items():
            console.print(f"  {module}: {Path(file).relative_to(directory)}", markup=False, soft_wrap=True)
    console.print(f"Workers can import {declaration} and everything that it consists of.", markup=False)
