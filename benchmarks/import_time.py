"""How long `import beam_pipes` and its rooms take in a fresh interpreter, and the heavy modules they import."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.harness import parser, report

HEAVY = ("apache_beam", "tensorflow", "jax", "torch", "google.cloud.storage", "pyarrow")
ROOMS = (
    "beam_pipes",
    "beam_pipes.typed",
    "beam_pipes.cache",
    "beam_pipes.loader",
    "beam_pipes.building",
    "beam_pipes.tasks",
)

_PROBE = """
import json, sys, time
started = time.perf_counter()
import {room}
secs = time.perf_counter() - started
print(json.dumps([secs, [name for name in {heavy!r} if name in sys.modules]]))
"""


def probe(room: str) -> tuple[float, list[str]]:
    """(seconds, heavy modules loaded) of importing one room."""
    code = _PROBE.format(room=room, heavy=HEAVY)
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    secs, heavy = json.loads(output)
    return secs, heavy


def main() -> None:
    options = parser(__doc__).parse_args()
    results: dict[str, object] = {}
    for room in ROOMS:
        runs = [probe(room) for _ in range(max(3, options.repeats))]
        key = room.replace(".", "_")
        results[f"{key}_secs"] = statistics.median(secs for secs, _ in runs)
        results[f"{key}_heavy"] = sorted({name for _, heavy in runs for name in heavy})
    report(results, options.json)


if __name__ == "__main__":
    main()
