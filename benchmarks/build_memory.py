"""Peak memory of a build, all processes together, at growing sizes of generated input.

`rss_growth` is the peak at the largest size over the peak at the smallest: 1.0 means that memory does not depend on the
input. The input is lines of text, generated from a fixed vocabulary by a keyed generator.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import parser, report, run_measured
from benchmarks.text_stages import CORPUS_VARIABLE

FILE_BYTES = 100_000_000


def write_corpus(directory: Path, num_bytes: int) -> None:
    """Lines of 20 to 200 words in files of 100 MB; each file is different."""
    directory.mkdir(parents=True)
    for index in range(-(-num_bytes // FILE_BYTES)):
        rng = np.random.Generator(np.random.Philox(key=index))
        words = [f"{word:x}" for word in rng.integers(0, 2**24, 5_000)]
        lines = [" ".join(words[i] for i in rng.integers(0, 5_000, length)) for length in rng.integers(20, 200, 1_000)]
        block = ("\n".join(lines) + "\n").encode()
        size = min(FILE_BYTES, num_bytes - index * FILE_BYTES)
        with open(directory / f"part-{index:03d}.txt", "wb") as out:
            for _ in range(max(1, size // len(block))):
                out.write(block)


_BUILD = """
import sys, json
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
result = build("benchmarks.text_stages:declaration", sys.argv[1], options=LocalOptions())
print(json.dumps({"secs": result.secs, "records": result.account.read}))
"""


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--gigabytes", type=float, nargs="+", default=[0.2, 1, 4], help="sizes [0.2 1 4]")
    options = arguments.parse_args()
    peaks: dict[float, int] = {}
    results: dict[str, object] = {}
    for size in options.gigabytes:
        work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
        try:
            write_corpus(work / "corpus", int(size * 1e9))
            measured = run_measured(["-c", _BUILD, str(work / "cache")], env={CORPUS_VARIABLE: str(work / "corpus")})
            figures = json.loads(measured.output.strip().splitlines()[-1])
            peaks[size] = measured.peak_rss_bytes
            print(f"{size} GB: {measured.peak_rss_bytes / 2**20:.0f} MiB, {figures['secs']:.1f} s", file=sys.stderr)
            results[f"peak_rss_bytes_{size:g}_gb"] = measured.peak_rss_bytes
            results[f"secs_{size:g}_gb"] = figures["secs"]
        finally:
            shutil.rmtree(work)
    results["rss_growth"] = peaks[max(peaks)] / peaks[min(peaks)]
    report(results, options.json)


if __name__ == "__main__":
    main()
