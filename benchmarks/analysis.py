"""An analysis pass against a loop over lines that calls the same functions, over the same text, on one core.

Both compute a vocabulary with counts, the moments of the number of words per line, and repeated lines; both write their
results to files. The loop holds everything in memory; the analysis writes accumulators, which later builds reuse, and
merges them. Each run is a fresh process; times are taken inside it, after imports.

`analysis_to_bare` is seconds of the analysis over those of the loop (goal: at most 1.25). `rss_growth` is its peak
memory for the whole text over that for a quarter of it (goal: at most 1.2).

    python -m benchmarks.analysis --json analysis.json
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.build import _lines, write_corpus
from benchmarks.harness import parser, ratio, report, run_measured
from benchmarks.text_stages import CORPUS_VARIABLE

# One line in this many is unchanged in every pass over the sources: these are the duplicates.
PLANTED_EVERY = 20

# One line in this many has a unique word: vocabularies grow with their text.
RARE_EVERY = 16


def write_varied_corpus(directory: Path, num_bytes: int) -> None:
    """Real text that does not repeat: the Python sources of this installation, with different lines in each pass."""
    plain = directory.with_name("plain")
    write_corpus(plain, num_bytes)
    directory.mkdir()
    seen: set[bytes] = set()
    number = 0
    for path in sorted(plain.iterdir()):
        with open(path, "rb") as source, open(directory / path.name, "wb") as target:
            for line in source:
                number += 1
                digest = hashlib.blake2b(line, digest_size=8).digest()
                if digest in seen and number % PLANTED_EVERY:
                    line = line[:-1] + b" #%d\n" % number
                elif number % RARE_EVERY == 0:
                    line = line[:-1] + b" rare%x\n" % number
                seen.add(digest)
                target.write(line)
    shutil.rmtree(plain)


def run_bare(corpus: str, to: str) -> dict[str, Any]:
    """The hand-written version: one loop, tables in memory, three files at the end."""
    from beam_pipes.transforms.dedup.exact import content_digest
    from benchmarks.analysis_stages import words

    counts: collections.Counter[str] = collections.Counter()
    lines, mean, m2 = 0, 0.0, 0.0
    first: dict[bytes, int] = {}
    duplicates: list[tuple[int, int]] = []
    for line in _lines(corpus):
        found = words(line)
        counts.update(found)
        lines += 1
        apart = len(found) - mean
        mean += apart / lines
        m2 += apart * (len(found) - mean)
        kept = first.setdefault(content_digest(line), lines)
        if kept != lines:
            duplicates.append((lines, kept))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))
    with open(f"{to}/words", "w", encoding="utf-8") as file:
        for token, count in ordered:
            file.write(json.dumps([token, count]) + "\n")
    Path(to, "lengths").write_text(json.dumps([lines, mean, m2]))
    Path(to, "duplicates").write_text("".join(f"{removed} {kept}\n" for removed, kept in duplicates))
    return {"lines": lines, "words": counts.total(), "distinct": len(counts), "duplicates": len(duplicates)}


def run_analysis(corpus: str, to: str) -> dict[str, Any]:
    """The analyzers of a declaration, in this process."""
    from beam_pipes.building.analysis.analyse import analyse
    from beam_pipes.building.plan import plan_input
    from benchmarks.analysis_stages import declaration

    made = declaration()
    given = plan_input(made, to)
    analyse(made, given.root, given.source)
    return {}


def found_by_analysis(to: str) -> dict[str, Any]:
    """The results of the analysis in a directory, read for comparison outside the measured time."""
    from beam_pipes.building.analysis.plan import plan_analysis
    from beam_pipes.building.plan import plan_input
    from benchmarks.analysis_stages import declaration

    made = declaration()
    given = plan_input(made, to)
    plan_analysis(made, given.root, given.source)
    table, moments, duplicates = (analyzer.result.value() for analyzer in made.analyzers)
    return {
        "lines": moments.count,
        "words": table.total,
        "distinct": table.distinct,
        "duplicates": len(duplicates),
    }


def child(mode: str, corpus: str, to: str) -> None:
    """One run in this process; prints its figures."""
    import benchmarks.analysis_stages  # noqa: F401

    started, cpu_started = time.perf_counter(), time.process_time()
    found = run_bare(corpus, to) if mode == "bare" else run_analysis(corpus, to)
    secs, cpu_secs = time.perf_counter() - started, time.process_time() - cpu_started
    print(json.dumps({"secs": secs, "cpu_secs": cpu_secs, "found": found}))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--bytes", type=int, default=200_000_000, help="bytes of text [200,000,000]")
    arguments.add_argument("--child", nargs=3, metavar=("MODE", "CORPUS", "TO"), help="one run (used by itself)")
    options = arguments.parse_args()
    if options.child:
        child(*options.child)
        return
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        for name, num_bytes in (("corpus", options.bytes), ("quarter", options.bytes // 4)):
            write_varied_corpus(work / name, num_bytes)
        secs: dict[str, list[float]] = {"bare": [], "analysis": []}
        cpu_secs: dict[str, list[float]] = {"bare": [], "analysis": []}
        rss: dict[str, list[int]] = {"bare": [], "analysis": [], "quarter": []}
        found: dict[str, Any] = {}
        runs = [("bare", "corpus"), ("analysis", "corpus"), ("analysis", "quarter")]
        for repeat in range(options.repeats):
            for mode, corpus in runs if repeat % 2 == 0 else runs[::-1]:
                to = work / "out"
                to.mkdir()
                os.environ[CORPUS_VARIABLE] = str(work / corpus)
                measured = run_measured(
                    ["-m", "benchmarks.analysis", "--child", mode, str(work / corpus), str(to)], env={}
                )
                figures = json.loads(measured.output.strip().splitlines()[-1])
                rss[mode if corpus == "corpus" else corpus].append(measured.peak_rss_bytes)
                if corpus == "corpus":
                    secs[mode].append(figures["secs"])
                    cpu_secs[mode].append(figures["cpu_secs"])
                    found[mode] = figures["found"] if mode == "bare" else found_by_analysis(str(to))
                print(
                    f"{mode} of {corpus}: {figures['secs']:.2f} s, {measured.peak_rss_bytes / 2**20:.0f} MiB",
                    file=sys.stderr,
                )
                shutil.rmtree(to)
        if found["bare"] != found["analysis"]:
            raise SystemExit(f"the alternatives found different things: {found}")
        report(
            {
                "analysis_to_bare": ratio(secs, "analysis", "bare"),
                "analysis_to_bare_cpu": ratio(cpu_secs, "analysis", "bare"),
                "rss_growth": statistics.median(a / q for a, q in zip(rss["analysis"], rss["quarter"], strict=True)),
                "bytes": sum(os.path.getsize(path) for path in (work / "corpus").iterdir()),
                **found["analysis"],
                **{f"secs_{mode}": statistics.median(secs[mode]) for mode in secs},
                **{f"rss_bytes_{mode}": max(rss[mode]) for mode in rss},
            },
            options.json,
        )
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
