"""The same stage functions over the same text: a bare loop, our local runner on one core and on all, stock Beam.

(a) bare: a loop over lines that calls the functions and writes with tf.io.TFRecordWriter, one process
(b) one core: our local runner with one worker
(c) all cores: our local runner
(d) stock: element-wise Beam transforms and WriteToTFRecord on Beam's in-process DirectRunner

`ceiling_all_cores` is what all cores can give at most: the functions alone, in a process for each core with its share
of the files, side by side, by the records a second of all over those of one process that has the machine to itself.
Cores that share caches and memory give less than their number. `speedup_to_ceiling` is that of (c) over it.

The floor of (b) is the functions alone and the bytes written: a table says, for each part of a record's way (source,
engine, encode, write), the CPU time of one core over this floor, and how far that is from what (a) takes. Both sides of
the table run in one process, alternating by source shard, so that load on the machine affects both.

Each run is a fresh process; times are taken inside it, after imports, since a job's start-up does not grow with its
input. The start of worker processes, with their imports, counts: it is part of every build on several cores.

`speedup_all_cores_by_cpu` does not depend on what else the machine does: processor time of (b) over that of the longest
chain of (c), which is the process that builds, the server that its workers are forked from, and the busiest worker.
"""

from __future__ import annotations

import glob
import io
import itertools
import json
import os
import shutil
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import Measured, parser, ratio, report, run_measured
from benchmarks.text_stages import CORPUS_VARIABLE

MODES = ("functions", "bare", "one_core", "all_cores", "stock_beam")


def write_corpus(directory: Path, num_bytes: int) -> None:
    """Real text: the Python sources of this installation, repeated, in files of about 10 MB."""
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
    """The hand-written version."""
    return _write_bare(_lines(corpus), f"{to}/bare.tfrecord")


def _write_bare(lines: Iterable[str], path: str) -> int:
    import tensorflow as tf

    from benchmarks.text_stages import example, long_enough, normalize, tokenize

    kept = 0
    with tf.io.TFRecordWriter(path) as writer:
        for line in lines:
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
    from beam_pipes.format.framing import scan_records

    return sum(1 for path in glob.glob(f"{to}/stock*") for _ in scan_records(path))


PARTS = ("source", "engine", "encode", "write")


def way_of_a_record(corpus: str, to: str) -> dict[str, Any]:
    """CPU microseconds per record, by part of its way: our build's and the floor's, and the total of the bare loop."""
    from beam_pipes.building.plan import make_plan
    from beam_pipes.building.reading import graph_runner, source_batch
    from beam_pipes.building.shard_job import task_output, task_records
    from benchmarks.text_stages import declaration, example, long_enough, normalize, tokenize

    declared = declaration()
    plan = make_plan(declared, to)
    runner = graph_runner(declared, None)
    clock = time.process_time
    ours, floor = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
    bare, records = 0.0, 0
    for task in plan.tasks:
        for secs in (ours, floor):
            last = clock()

            def mark(part: str, secs: dict[str, float] = secs) -> None:
                nonlocal last
                secs[part] += clock() - last
                last = clock()

            if secs is ours:
                output = task_output(declared, plan.header, task)
                for sequence, read in enumerate(task_records(declared, task)):
                    batch = source_batch(declared, read)
                    read.digests()
                    records += batch.size
                    mark("source")
                    runner.run(batch)
                    mark("engine")
                    part = output.encode(batch, sequence)
                    mark("encode")
                    output.write(part)
                    mark("write")
                    del batch, read, part  # what it takes to free values belongs to those who made them
                    mark("engine")
                output.commit()
                mark("write")
                continue
            lines = list(_lines_of(corpus, task))
            mark("source")
            kept = [example(tokens) for line in lines if long_enough(tokens := tokenize(normalize(line)))]
            mark("engine")
            payloads = [each["tokens"].tobytes() for each in kept]
            mark("encode")
            with open(f"{to}/floor", "wb") as file:
                file.write(b"".join(payloads))
            mark("write")
            del lines, kept, payloads
            mark("engine")
        started = clock()
        _write_bare(_lines_of(corpus, task), f"{to}/bare.tfrecord")
        bare += clock() - started
    micros = {"ours": ours, "floor": floor}
    reported = {
        f"{part}_{name}_us": round(1e6 * secs[part] / records, 3) for part in PARTS for name, secs in micros.items()
    }
    return {**reported, "bare_us": round(1e6 * bare / records, 3), "ours_to_bare": round(sum(ours.values()) / bare, 3)}


def _lines_of(corpus: str, task: Any) -> Any:
    for piece in task.shard.slices:
        with open(f"{corpus}/{piece.file}", "rb") as file:
            file.seek(piece.start)
            data = io.BytesIO(file.read(piece.end - piece.start))
        for line in io.TextIOWrapper(data, encoding="utf-8", newline="\n"):
            yield line.rstrip("\n")


def table_of_the_way(reported: dict[str, Any]) -> str:
    """The figures of `way_of_a_record` as a table."""
    rows = [f"{'CPU us a record':>16} {'ours':>8} {'floor':>8} {'distance':>9} {'of bare':>8}"]
    for part in PARTS:
        ours, floor = reported[f"{part}_ours_us"], reported[f"{part}_floor_us"]
        share = (ours - floor) / reported["bare_us"]
        rows.append(f"{part:>16} {ours:8.2f} {floor:8.2f} {ours - floor:9.2f} {share:8.1%}")
    sums = [sum(reported[f"{part}_{name}_us"] for part in PARTS) for name in ("ours", "floor")]
    rows.append(f"{'all':>16} {sums[0]:8.2f} {sums[1]:8.2f} {sums[0] - sums[1]:9.2f}")
    rows.append(f"{'the bare loop':>16} {reported['bare_us']:8.2f} {'':8} {reported['bare_us'] - sums[1]:9.2f}")
    return "\n".join(rows)


def child(mode: str, corpus: str, to: str) -> None:
    """One run in this process; prints its figures."""
    import benchmarks.text_stages  # noqa: F401

    if mode in ("bare", "stock_beam", "way"):
        import tensorflow  # noqa: F401
    if mode == "stock_beam":
        import apache_beam  # noqa: F401

        import beam_pipes.runners.beam_job
    if mode in ("one_core", "all_cores"):
        import beam_pipes.runners.local  # noqa: F401
    if mode == "way":
        print(json.dumps(way_of_a_record(corpus, to)))
        return
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


def _functions_on_each_core(corpus: Path, work: Path) -> float:
    """Records a second of the functions alone, in a process for each core, all at once."""
    files, cores = sorted(corpus.glob("*.txt")), os.cpu_count() or 1
    shares = [work / f"share-{core}" for core in range(min(cores, len(files)))]
    for number, share in enumerate(shares):
        share.mkdir()
        for path in files[number :: len(shares)]:
            (share / path.name).symlink_to(path)
    with ThreadPoolExecutor(len(shares)) as pool:
        measured = list(pool.map(lambda share: _run("functions", share, work), shares))
    for share in shares:
        shutil.rmtree(share)
    found = [json.loads(each.output.strip().splitlines()[-1]) for each in measured]
    return float(sum(each["kept"] / each["secs"] for each in found))


def _run(mode: str, corpus: Path, to: Path) -> Measured:
    return run_measured(
        ["-m", "benchmarks.build", "--child", mode, str(corpus), str(to)],
        env={CORPUS_VARIABLE: str(corpus), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


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
        cpu_secs: dict[str, float] = {}
        kept: set[int] = set()
        ceilings: list[float] = []
        by_cpu: list[float] = []
        for repeat in range(options.repeats):
            for mode in MODES:
                if mode == "stock_beam" and repeat:
                    secs[mode].append(secs[mode][0])  # several times slower than the rest: one run is enough
                    continue
                to = work / f"out-{mode}"
                to.mkdir()
                measured = _run(mode, corpus, to)
                figures = json.loads(measured.output.strip().splitlines()[-1])
                secs[mode].append(figures["secs"])
                cpu_secs[mode] = figures["cpu_secs"] + measured.worker_cpu_secs
                rss[mode].append(measured.peak_rss_bytes)
                kept.add(figures["kept"])
                print(f"{mode}: {figures['secs']:.2f} s, {measured.peak_rss_bytes / 2**20:.0f} MiB", file=sys.stderr)
                shutil.rmtree(to)
            by_cpu.append(cpu_secs["one_core"] / cpu_secs["all_cores"])
            rate = _functions_on_each_core(corpus, work)
            ceilings.append(rate * secs["functions"][-1] / max(kept))
            print(f"functions on each core: {ceilings[-1]:.2f} times one", file=sys.stderr)
        (work / "way").mkdir()
        way = _run("way", corpus, work / "way").output
        reported = json.loads(way.strip().splitlines()[-1])
        print(table_of_the_way(reported), file=sys.stderr)
        if len(kept) != 1:
            raise SystemExit(f"the alternatives wrote different numbers of records: {sorted(kept)}")
        report(
            {
                "ratio_one_core_to_bare": ratio(secs, "one_core", "bare"),
                "speedup_all_cores": ratio(secs, "one_core", "all_cores"),
                "speedup_all_cores_by_cpu": statistics.median(by_cpu),
                "ceiling_all_cores": statistics.median(ceilings),
                "speedup_to_ceiling": ratio(secs, "one_core", "all_cores") / statistics.median(ceilings),
                "ratio_stock_beam_to_ours": ratio(secs, "stock_beam", "one_core"),
                "ratio_one_core_to_bare_in_turns": reported.pop("ours_to_bare"),
                "records": kept.pop(),
                "bytes": sum(os.path.getsize(path) for path in corpus.iterdir()),
                **{f"secs_{mode}": statistics.median(secs[mode]) for mode in MODES},
                **{f"rss_bytes_{mode}": max(rss[mode]) for mode in MODES},
                **reported,
            },
            options.json,
        )
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
