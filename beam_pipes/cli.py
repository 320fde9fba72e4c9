"""The command line: `beam-pipes build | plan | inspect | stats | verify | status | gc | chaos`."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable

from beam_pipes.errors import BeamPipesError, visible
from beam_pipes.extras import require

# Typer's exit code for Ctrl-C, as shells expect it.
INTERRUPTED = 130
TERMINATED = 128 + signal.SIGTERM
# Commands whose next run goes on with finished shards.
_BUILDS = {"build", "tokens", "images", "audio", "table", "attach", "work", "replay-dead"}

_terminated = threading.Event()


def main() -> None:
    """The entry point `beam-pipes`. Exits with 1 and one message for a `BeamPipesError`."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without arrows (latin-1) still shows the rest
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # declarations are named as modules of the working directory
    # gRPC's fork handlers can deadlock a process with threads, and our code never uses gRPC after a fork.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    # SIGTERM, which Kubernetes, Slurm and spot machines send before SIGKILL, ends a command as Ctrl-C does.
    signal.signal(signal.SIGTERM, _terminate)
    arguments, beam_args = split_beam_args(sys.argv[1:])
    run(_commands, arguments, beam_args)


def _commands(**options: object) -> None:
    require("typer", purpose="the command line")
    require("rich", purpose="the command line")
    gc.disable()  # imports make no garbage: a tenth of the time of a start; `commands` enables it when they are done
    try:
        from beam_pipes.commands import app

        app(**options)
    finally:
        gc.enable()


def _terminate(*_: object) -> None:
    _terminated.set()
    raise KeyboardInterrupt


def split_beam_args(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before and after `--`: `['build', 'm:d', '--', '--x=1']` → `(['build', 'm:d'], ['--x=1'])`."""
    if "--" not in arguments:
        return arguments, []
    position = arguments.index("--")
    return arguments[:position], arguments[position + 1 :]


def run(app: Callable[..., object], arguments: list[str], beam_args: list[str]) -> None:
    """Runs one command and exits with its code; our own errors end in one message instead of a traceback."""
    code: str | int | None = 0
    try:
        app(args=arguments, prog_name="beam-pipes", obj=beam_args)
    except BeamPipesError as error:
        print(visible(f"beam-pipes: {error}"), file=sys.stderr)
        code = 1
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:  # while modules are imported; afterwards typer handles it
        code = INTERRUPTED
    if code == INTERRUPTED:
        how = "terminated" if _terminated.is_set() else "interrupted"
        code = TERMINATED if _terminated.is_set() else INTERRUPTED
        again = " Run the same command again to resume from the finished shards." if _BUILDS & {*arguments[:1]} else ""
        print(f"beam-pipes: {how}.{again}", file=sys.stderr)
    sys.exit(code)
