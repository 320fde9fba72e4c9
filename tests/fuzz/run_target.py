"""Fuzzes targets with coverage as its guide: `python run_target.py TARGET CORPUS… -max_total_time=5`.

Of several targets, `manifest,index`, the first byte of each input chooses one. Everything after the names goes to
libFuzzer. A finding ends the process with a traceback, and the input lies in `crash-<sha1>` below `-artifact_prefix`.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

# Beyond what is there after importing: what asks for more on the word of a length field gets a MemoryError.
_MORE_BYTES = 2 << 30


def main() -> None:
    names = sys.argv.pop(1).split(",")
    with atheris.instrument_imports(include=["beam_pipes"]):
        import targets
    for each in ("seeds", "small_cache"):
        getattr(targets, each)()  # imports what the targets need, before memory is limited
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MORE_BYTES, resource.RLIM_INFINITY))

    def run(data: bytes) -> None:
        if len(names) == 1:
            targets.run(names[0], data)
        elif data:
            targets.run(names[data[0] % len(names)], data[1:])

    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
