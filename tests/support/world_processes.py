"""Processes that train together: a program, run as every rank of a world, and the results of each.

The ranks are forks of one process that has executed only the imports of the program: importing torch
takes 3 s of a core, TensorFlow 6, and a test has up to 13 ranks.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
TIMEOUT_SECS = 120.0


class Worlds:
    """Worlds of one program, one after the other, with the same environment."""

    def __init__(self, parent: subprocess.Popen[str], directory: Path) -> None:
        self._parent = parent
        self._directory = directory

    def run(self, count: int, *arguments: str, ports: int = 1) -> list[dict[str, Any]]:
        """Runs `python program rank count ports… arguments…` for every rank; returns the JSON that each printed last.

        The program gets free ports of this machine, `ports` of them.
        """
        given = [str(count), *(str(port) for port in free_ports(ports)), *arguments]
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(json.dumps({"count": count, "arguments": given}) + "\n")
        self._parent.stdin.flush()
        # A hanging rank does not end by itself: leaving `worlds` kills it.
        ready, _, _ = select.select([self._parent.stdout], [], [], TIMEOUT_SECS)
        told = self._parent.stdout.readline() if ready else ""
        logs = [(self._directory / f"{rank}.err").read_text()[-4000:] for rank in range(count) if told]
        assert told and json.loads(told) == [0] * count, f"{told or 'no answer'}\n" + "\n".join(logs)
        return [json.loads((self._directory / f"{rank}.out").read_text().splitlines()[-1]) for rank in range(count)]


@contextlib.contextmanager
def worlds(program: str, *, environment: Mapping[str, str] | None = None) -> Iterator[Worlds]:
    """Executes the program's imports once for all worlds."""
    with tempfile.TemporaryDirectory() as directory:
        parent = subprocess.Popen(
            [sys.executable, __file__, program, directory],
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}", **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group, to be killed with the ranks
        )
        with parent:
            try:
                yield Worlds(parent, Path(directory))
            finally:
                os.killpg(parent.pid, signal.SIGKILL)


def run_world(
    program: str, count: int, *arguments: str, environment: Mapping[str, str] | None = None, ports: int = 1
) -> list[dict[str, Any]]:
    """One world of a program: `Worlds.run`."""
    with worlds(program, environment=environment) as of_program:
        return of_program.run(count, *arguments, ports=ports)


def fork_ranks(program: Path, directory: Path) -> None:
    """Answers each line of input, a world, with the exit codes of its ranks; a rank returns when it has run."""
    statements = ast.parse(program.read_text(encoding="utf-8")).body
    imports = [statement for statement in statements if isinstance(statement, (ast.Import, ast.ImportFrom))]
    gc.disable()
    exec(compile(ast.Module(imports, type_ignores=[]), str(program), "exec"), {})
    gc.freeze()  # otherwise garbage collection in each rank would write to, and so copy, all shared memory
    gc.enable()
    for line in iter(sys.stdin.readline, ""):
        world = json.loads(line)
        ranks = []
        for rank in range(world["count"]):
            ranks.append(os.fork())
            if not ranks[-1]:
                for number, path in enumerate((os.devnull, directory / f"{rank}.out", directory / f"{rank}.err")):
                    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
                sys.argv = [str(program), str(rank), *world["arguments"]]
                runpy.run_path(str(program), run_name="__main__")
                return
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]), flush=True)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def words_of(call: Any) -> str:
    """The class and message of the error that a call raises; empty text if it raises nothing."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    fork_ranks(SUPPORT / sys.argv[1], Path(sys.argv[2]))
