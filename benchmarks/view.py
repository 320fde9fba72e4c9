"""`beam-pipes view` over many records: seconds until the link, the first screen, and for what is asked then.

    python -m benchmarks.view --json view.json                      (10^7 records; 0.7 GB of temporary files)
    python -m benchmarks.view --records 1000000 --repeats 1         (seconds)

The cache is that of `benchmarks.where`. `first_screen_secs` is everything that the page asks for before it shows rows,
one request after the other; the time that a browser takes to draw 40 rows comes on top.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.where import write_cache

SCREEN = ("", "view.css", "view.js", "api/cache", "api/rows?split=train&start=0&count=100")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="records of the split [10,000,000]")
    options = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        write_cache(work / "cache", options.records)
        runs = [measured(work / "cache", options.records) for _ in range(options.repeats)]
        results = {"records": options.records, **{name: min(run[name] for run in runs) for name in runs[0]}}
        harness.report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


def measured(cache: Path, records: int) -> dict[str, float]:
    """One process of the command, asked once for each."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "beam_pipes", "view", str(cache), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                raise SystemExit("beam-pipes view printed no link")
            link = found[0]
            secs = {"link_secs": time.perf_counter() - started}
            secs["first_screen_secs"] = harness.seconds_of(lambda: [asked(link + path) for path in SCREEN])
            asks: dict[str, dict[str, object]] = {
                "middle": {"start": records // 2},
                "where": {"where": "score > 0.5"},
                "sort": {"sort": "score"},
            }
            for name, what in asks.items():
                path = "api/rows?" + urllib.parse.urlencode({"split": "train", "count": 100, **what})
                secs[f"{name}_secs"] = harness.seconds_of(lambda path=path: check(asked(link + path)))  # type: ignore[misc]
            secs["histogram_secs"] = harness.seconds_of(lambda: asked(f"{link}api/histogram?split=train&feature=score"))
            return secs
        finally:
            process.terminate()


def asked(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=600) as answer:
        content: bytes = answer.read()
    return content


def check(answer: bytes) -> None:
    if len(json.loads(answer)["rows"]) != 100:
        raise SystemExit(f"expected 100 rows, got {answer[:200]!r}")


if __name__ == "__main__":
    main()
