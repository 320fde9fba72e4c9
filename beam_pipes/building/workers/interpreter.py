"""A fresh interpreter as a child process, which finds what this one finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def start_interpreter(code: str, *, files: Sequence[int], arguments: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """`python -c CODE FILES... ARGUMENTS...`, where FILES are descriptors that the child shares.

    Not `-m`: the package may import a module before it would be run.
    """
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, files), *arguments],
        pass_fds=files,
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
    )


def python_path() -> str:
    """This process's import path, for the environment of workers, so that they find what is found here."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)
