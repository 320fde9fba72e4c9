"""The same stage functions over the same text: a bare loop, our local runner on one core and on all, stock Beam.

(a) bare: a loop over lines that calls the functions and writes with tf.io.TFRecordWriter, one process
(b) one core: our local runner with one worker
(c) all cores: our local runner
(d) stock: element-wise Beam transforms and WriteToTFRecord on Beam's in-process DirectRunner

The physical floor of (b) is the functions themselves, `secs_functions_only`. Each run is a fresh process; times are
taken inside it, after imports, since a job's start-up does not grow with its input (`secs_with_imports` has both).
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import shutil
import statistics
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import parser, ratio, report, run_measured
from benchmarks.text_stages import CORPUS_VARIABLE

MODES = ("functions", "bare", "one_core", "all_cores", "stock_beam")


def write_corpus(directory: Path, num_bytes: int) -> None:
    """Real text: the Python sources of this installation, over and over, in files of about 10 MB."""
    sources = itertools.cycle(sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py")))
    directory.mkdir(parents=True)
    written = file_index = 0
    while written < num_bytes:
        with open(directory / f"part-{file_index:03d}.txt", "w", encoding="utf-8") as out:
            part = 0
            while part < 10_000_000 and written + part < num_bytes:
                # One line of text is a paragraph of the source: what lies between two empty lines.
                text = next(sources).read_bytes().decode("utf-8", "replace").replace("\r", " ")
                lines = "".join(" ".join(block.split("\n")) + "\n" for block in text.split("\n\n") if block.strip())
                out.write(lines)
                part += len(lines.encode("utf-8", "replace"))
        written += part
        file_index += 1


def _lines(corpus: str) -> Any:
    for path in sorted(glob.glob(f"{corpus}/*.txt")):
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")


def run_functions(corpus: str, to: str) -> int:
    """The functions alone, on every line."""
    from benchmarks.text_stages import example, long_enough, normalize, tokenize

    kept = 0
    for line in _lines(corpus):
        tokens = tokenize(normalize(line))
        if long_enough(tokens):
            example(tokens)
            kept += 1
    return kept


def run_bare(corpus: str, to: str) -> int:
    """What one writes by hand."""
    import tensorflow as tf

    from benchmarks.text_stages import example, long_enough, normalize, tokenize

    kept = 0
    with tf.io.TFRecordWriter(f"{to}/bare.tfrecord") as writer:
        for line in _lines(corpus):
            tokens = tokenize(normalize(line))
            if long_enough(tokens):
                raw = example(tokens)["tokens"].tobytes()
                feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[raw]))
                message = tf.train.Example(features=tf.train.Features(feature={"tokens": feature}))
                writer.write(message.SerializeToString())
                kept += 1
    return kept


def run_ours(corpus: str, to: str, workers: int | None) -> int:
    """Our local runner."""
    from beam_pipes.runners.build import build
    from beam_pipes.runners.options import LocalOptions

    result = build("benchmarks.text_stages:declaration", to, options=LocalOptions(workers=workers))
    return result.account.written


def run_stock_beam(corpus: str, to: str) -> int:
    """Stock Beam, as its documentation shows it."""
    import apache_beam as beam
    import tensorflow as tf
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
    from benchmarks.text_stages import example, long_enough, normalize, tokenize

    def serialize(made: dict[str, Any]) -> bytes:
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[made["tokens"].tobytes()]))
        message = tf.train.Example(features=tf.train.Features(feature={"tokens": feature}))
        return message.SerializeToString()  # type: ignore[no-any-return]

    with beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromText(f"{corpus}/*.txt")
            | beam.Map(normalize)
            | beam.Map(tokenize)
            | beam.Filter(long_enough)
            | beam.Map(example)
            | beam.Map(serialize)
            | beam.io.WriteToTFRecord(f"{to}/stock", num_shards=8)
        )
    from beam_pipes.cache.framing import scan_records

    return sum(1 for path in glob.glob(f"{to}/stock*") for _ in scan_records(path))


def child(mode: str, corpus: str, to: str) -> None:
    """One run in this process; prints its figures."""
    if mode in ("bare", "stock_beam"):
        import tensorflow  # noqa: F401
    started, cpu_started = time.perf_counter(), time.process_time()
    if mode == "functions":
        kept = run_functions(corpus, to)
    elif mode == "bare":
        kept = run_bare(corpus, to)
    elif mode == "stock_beam":
        kept = run_stock_beam(corpus, to)
    else:
        kept = run_ours(corpus, to, 1 if mode == "one_core" else None)
    secs, cpu_secs = time.perf_counter() - started, time.process_time() - cpu_started
    print(json.dumps({"secs": secs, "cpu_secs": cpu_secs, "kept": kept}))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--bytes", type=int, default=150_000_000, help="bytes of text [150,000,000]")
    arguments.add_argument("--child", nargs=3, metavar=("MODE", "CORPUS", "TO"), help="one run (used by itself)")
    options = arguments.parse_args()
    if options.child:
        child(*options.child)
        return
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        corpus = work / "corpus"
        write_corpus(corpus, options.bytes)
        secs: dict[str, list[float]] = {mode: [] for mode in MODES}
        rss: dict[str, list[int]] = {mode: [] for mode in MODES}
        kept: set[int] = set()
        for repeat in range(options.repeats):
            for mode in MODES:
                if mode == "stock_beam" and repeat:
                    secs[mode].append(secs[mode][0])  # several times slower than the rest: once is enough
                    continue
                to = work / f"out-{mode}"
                to.mkdir()
                measured = run_measured(
                    ["-m", "benchmarks.build", "--child", mode, str(corpus), str(to)],
                    env={CORPUS_VARIABLE: str(corpus), "TF_CPP_MIN_LOG_LEVEL": "3"},
                )
                figures = json.loads(measured.output.strip().splitlines()[-1])
                secs[mode].append(figures["secs"])
                rss[mode].append(measured.peak_rss_bytes)
                kept.add(figures["kept"])
                print(f"{mode}: {figures['secs']:.2f} s, {measured.peak_rss_bytes / 2**20:.0f} MiB", file=sys.stderr)
                shutil.rmtree(to)
        if len(kept) != 1:
            raise SystemExit(f"the alternatives wrote different numbers of records: {sorted(kept)}")
        report(
            {
                "ratio_one_core_to_bare": ratio(secs, "one_core", "bare"),
                "speedup_all_cores": ratio(secs, "one_core", "all_cores"),
                "ratio_stock_beam_to_ours": ratio(secs, "stock_beam", "one_core"),
                "records": kept.pop(),
                "bytes": sum(os.path.getsize(path) for path in corpus.iterdir()),
                **{f"secs_{mode}": statistics.median(secs[mode]) for mode in MODES},
                **{f"rss_bytes_{mode}": max(rss[mode]) for mode in MODES},
            },
            options.json,
        )
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
