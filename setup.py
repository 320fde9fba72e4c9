"""The step of the build that is a program; all else stands in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithStubs(build_py):
    """Writes the stubs of operators, which are made from their table: into the wheel, or beside editable sources."""

    def run(self) -> None:
        super().run()
        tree = os.path.abspath("." if self.editable_mode else self.build_lib)
        path = os.pathsep.join(filter(None, [tree, os.environ.get("PYTHONPATH")]))
        # -B: what is compiled in `build_lib` would become part of the wheel.
        command = [sys.executable, "-B", "-m", "beam_pipes.transforms.operators.stubs"]
        subprocess.run(command, check=True, cwd=tree, env={**os.environ, "PYTHONPATH": path})


setup(cmdclass={"build_py": BuildWithStubs})
