"""The duration of read-only commands: `beam-pipes --help`, and those that read an up-to-date cache.

Each runs in its own process; wall time and processor time are those of the best run. The ratio is to a bare interpreter
that imports NumPy and typer, the minimum for such a command.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import parser, report

_JOB = """
from beam_pipes import Declaration, Pipeline
from beam_pipes.sources import TextLines


class Length(Pipeline):
    input_type, output_type = str, dict

    def transform(self, line):
        return [{"length": len(line)}]


declaration = Declaration(name="lines", source=TextLines("in"), pipeline=Length())
"""

_BEAM_PIPES = ("-m", "beam_pipes")
_LEAST = ("-c", "import numpy, typer.main")

# Command → its required output.
COMMANDS: dict[tuple[str, ...], str] = {
    ("--help",): "doctor-loader",
    ("status", "cache"): "100",
    ("inspect", "cache", "-n", "1"): "length",
    ("stats", "cache"): "100 records",
    ("dead", "cache"): "",
    ("build", "job:declaration", "--to", "cache"): "is up to date",
}


def timed(arguments: tuple[str, ...], place: Path, said: str) -> tuple[float, float]:
    """(seconds, seconds of processor time) of one process, whose output must contain `said`."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=place, env=env, check=True, capture_output=True, text=True)
    secs, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if said not in done.stdout:
        raise SystemExit(f"{arguments} does not say {said!r}: {done.stdout}")
    return secs, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = parser(__doc__).parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "in").mkdir()
        (place / "in" / "a.txt").write_text("a line\n" * 100)
        (place / "job.py").write_text(_JOB)
        timed((*_BEAM_PIPES, "build", "job:declaration", "--to", "cache"), place, "100 written")
        repeats = max(5, options.repeats)
        least = min(timed(_LEAST, place, "")[1] for _ in range(repeats))
        for command, said in COMMANDS.items():
            runs = [timed((*_BEAM_PIPES, *command), place, said) for _ in range(repeats)]
            name = command[0].strip("-")
            results[f"{name}_secs"] = min(secs for secs, _ in runs)
            results[f"{name}_cpu_secs"] = cpu = min(cpu for _, cpu in runs)
            results[f"{name}_to_least"] = cpu / least
    report(results, options.json)


if __name__ == "__main__":
    main()
