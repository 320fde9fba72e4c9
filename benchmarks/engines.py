"""The same declaration over the same text on every engine that runs on one machine: the same bytes, and the seconds.

    python -m benchmarks.engines --flink-jars .venv/flink --spark-jars .venv/spark --json engines.json
    python -m benchmarks.engines --bytes 5000000 --engines one_core prism

one_core, all_cores   the local runner
beam                  Beam's in-process runner
prism                 Beam's portable runner; this process does the work
flink                 a Flink of one machine within Beam's job server; this process does the work. Needs `--flink-jars`,
                      the directory that `runners/flink/pom.xml` makes
spark                 a Spark of one machine within Beam's job server, likewise: `--spark-jars`, `runners/spark/pom.xml`

Each run is a fresh process with everything that a user waits for, including the start of servers. `bytes_per_sec` is
input over seconds, and `<engine>_to_one_core` seconds over those of one core.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beam_pipes.runners import PortableOptions
from beam_pipes.runners.flink import SERVES
from benchmarks.build import write_corpus
from benchmarks.harness import parser, ratio, report, run_measured
from benchmarks.text_stages import CORPUS_VARIABLE

ENGINES = ("one_core", "all_cores", "beam", "prism", "flink", "spark")

# Packages of Java's own that Spark looks into.
_OPENED = """java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent
    java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar""".split()


@contextlib.contextmanager
def spark(jars: str, directory: str) -> Iterator[PortableOptions]:
    """A Spark of one core within Beam's job server for it."""
    from beam_pipes.runners.servers import running_server

    settings = ["-Dspark.driver.host=127.0.0.1", "-Dspark.driver.bindAddress=127.0.0.1", "-Dspark.ui.enabled=false"]
    main = "org.apache.beam.runners.spark.SparkJobServerDriver"
    ports = ["--job-port=0", "--artifact-port=0", "--expansion-port=0", f"--artifacts-dir={directory}/artifacts"]
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    command = [
        "java",
        *opened,
        f"-Djava.io.tmpdir={directory}",
        *settings,
        "-cp",
        f"{jars}/*",
        main,
        "--spark-master-url=local[1]",
        *ports,
    ]
    with running_server("spark", command, serves=SERVES, hint="--spark-jars names its jars.") as endpoint:
        yield PortableOptions(job_endpoint=endpoint)


def child(engine: str, to: str, jars: str) -> None:
    """One build in this process; prints its seconds and a digest of what it published."""
    from beam_pipes.cache import Cache
    from beam_pipes.runners import BeamOptions, FlinkOptions, LocalOptions, PrismOptions, build

    made = {
        "one_core": lambda: LocalOptions(workers=1),
        "all_cores": LocalOptions,
        "beam": BeamOptions,
        "prism": PrismOptions,
        "flink": lambda: FlinkOptions(flink_job_server_jar=jars, parallelism=1),
    }
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if engine == "spark":
            options: Any = stack.enter_context(spark(jars, stack.enter_context(tempfile.TemporaryDirectory())))
        else:
            options = made[engine]()
        build("benchmarks.text_stages:declaration", to, options=options)
        secs = time.perf_counter() - started
    digest = hashlib.sha256()
    for path in sorted(Path(Cache.open(to).directory).glob("*.tfrecord-*")):
        digest.update(path.read_bytes())
    print(json.dumps({"secs": secs, "digest": digest.hexdigest()}))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--bytes", type=int, default=50_000_000, help="bytes of text [50,000,000]")
    arguments.add_argument("--engines", nargs="+", choices=ENGINES, help="only these; one_core is always measured")
    arguments.add_argument("--flink-jars", metavar="DIR", help="Beam's job server for Flink")
    arguments.add_argument("--spark-jars", metavar="DIR", help="Beam's job server for Spark")
    arguments.add_argument("--child", nargs=3, metavar=("ENGINE", "TO", "JARS"), help="one run (used by itself)")
    arguments.set_defaults(repeats=1)
    options = arguments.parse_args()
    if options.child:
        child(*options.child)
        return
    jars = {"flink": options.flink_jars, "spark": options.spark_jars}
    chosen = options.engines or [name for name in ENGINES if jars.get(name, "none")]
    engines = [name for name in ENGINES if name == "one_core" or name in chosen]
    for name in engines:
        if not jars.get(name, "none"):
            arguments.error(f"{name} needs --{name}-jars DIR")
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        corpus = work / "corpus"
        write_corpus(corpus, options.bytes)
        num_bytes = sum(os.path.getsize(path) for path in corpus.iterdir())
        secs: dict[str, list[float]] = {engine: [] for engine in engines}
        rss: dict[str, int] = dict.fromkeys(engines, 0)
        digests = set()
        for _ in range(options.repeats):
            for engine in engines:
                to = work / f"out-{engine}"
                measured = run_measured(
                    ["-m", "benchmarks.engines", "--child", engine, str(to), str(jars.get(engine))],
                    env={CORPUS_VARIABLE: str(corpus)},
                )
                figures = json.loads(measured.output.strip().splitlines()[-1])
                secs[engine].append(figures["secs"])
                rss[engine] = max(rss[engine], measured.peak_rss_bytes)
                digests.add(figures["digest"])
                print(f"{engine}: {figures['secs']:.1f} s", file=sys.stderr)
                shutil.rmtree(to)
        if len(digests) != 1:
            raise SystemExit(f"the engines wrote different bytes: {sorted(digests)}")
        report(
            {
                "bytes": num_bytes,
                **{f"secs_{engine}": statistics.median(secs[engine]) for engine in engines},
                **{f"bytes_per_sec_{engine}": num_bytes / statistics.median(secs[engine]) for engine in engines},
                **{f"{engine}_to_one_core": ratio(secs, engine, "one_core") for engine in engines[1:]},
                **{f"rss_bytes_{engine}": rss[engine] for engine in engines},
            },
            options.json,
        )
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
