"""Caching a text-to-text task, and reading packed batches from the cache.

    python -m benchmarks.tasks --bytes 150000000 --json tasks.json

The task tokenizes inputs and targets with a SentencePiece vocabulary that is trained on the corpus. Every run is a
process of its own, and times are taken inside it, after imports.

build_to_bare                  `cache_tasks` on all cores, per core, against a bare loop of the same functions that
                               writes with tf.io.TFRecordWriter: seconds · cores / seconds
build_to_bare_on_each_core     the same against bare loops on all cores at once, which take from each other what a
                               machine's cores share
build_one_core_to_bare         the same with one worker, against one bare loop
..._cpu                        each of these in CPU seconds of all processes, which others on the machine disturb less
examples_per_sec_to_reference  `cache_tasks` on all cores against the cache job of seqio, on `--reference-bytes` of the
                               corpus; null without an environment that has seqio (`--seqio-python`)
packed_read_to_tfdata          tokens per second of language-model rows: `get_loader` against TFRecordDataset, parsing,
                               shuffling and online packing in tf.data
packed_read_to_reference       the same against seqio's `get_dataset` over its own cache; null without it
density                        share of tokens in the rows of `get_loader`; `density_online` is that of online packing
enc_dec_rows_to_next_fit       encoder-decoder rows of the plan over rows of online packing, for some lengths of
                               inputs/targets: the fewer examples a row takes, the more next-fit wastes. `corpus` is the
                               task's, whose targets are a quarter of each paragraph, so that both run full together;
                               `documented_code` is the code of the standard library → its docstrings
mixture_of_300                 seconds to the first batch of 300 cached tasks, and threads begun
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import parser, ratio, report
from benchmarks.text_to_text import (
    CODE_LENGTHS,
    CORPUS_VARIABLE,
    PAIR_LENGTHS,
    ROW_LENGTH,
    TASK,
    documented_code,
    vocabulary_of,
)

BUILDS = ("bare", "one_core", "all_cores")
BATCH_SIZE = 32


def build_bare(corpus: str, to: str) -> dict[str, Any]:
    """The hand-written version."""
    import tensorflow as tf

    from benchmarks.text_to_text import encoded, raw_lines, split_columns

    vocabulary = vocabulary_of(corpus)
    vocabulary.encode("loaded")
    started, cpu_started = time.perf_counter(), _cpu_secs()
    examples = tokens = 0
    with tf.io.TFRecordWriter(f"{to}/bare.tfrecord") as writer:
        for line in raw_lines(corpus):
            made = encoded(vocabulary, split_columns(line))
            feature = {
                name: tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[value if isinstance(value, bytes) else value.tobytes()])
                )
                for name, value in made.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
            examples += 1
            tokens += len(made["targets"])
    secs, cpu_secs = time.perf_counter() - started, _cpu_secs() - cpu_started
    return {"secs": secs, "cpu_secs": cpu_secs, "examples": examples, "targets_tokens": tokens}


def _cpu_secs() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def build_ours(corpus: str, to: str, workers: int | None, seqio_files: bool = False) -> dict[str, Any]:
    """`cache_tasks`."""
    from beam_pipes.cache import Cache
    from beam_pipes.runners.options import LocalOptions
    from beam_pipes.tasks.caches.cache_tasks import cache_tasks
    from beam_pipes.tasks.sources.sidecars import split_statistics

    started, cpu_started = time.perf_counter(), _cpu_secs()
    cache_tasks(
        TASK,
        to,
        modules_to_import=["benchmarks.text_to_text"],
        options=LocalOptions(workers=workers),
        seqio_files=seqio_files,
    )
    secs, cpu_secs = time.perf_counter() - started, _cpu_secs() - cpu_started
    stats = split_statistics(Cache.open(f"{to}/{TASK}")["train"])
    counts = {name: stats[name] for name in ("examples", "targets_tokens")}
    return {"secs": secs, "cpu_secs": cpu_secs, **counts}


def read_ours(cached: str, secs: float) -> dict[str, Any]:
    """Packed language-model batches from `get_loader`, shuffled."""
    from beam_pipes import tasks
    from beam_pipes.transforms.converters import LMFeatureConverter

    tasks.set_global_cache_dirs([cached])
    started = time.perf_counter()
    plan = tasks.plan_loading(TASK, {"targets": ROW_LENGTH}, LMFeatureConverter())
    loader = plan.loader(batch_size=min(BATCH_SIZE, plan.rows), seed=1, num_epochs=None)
    plan_secs = time.perf_counter() - started
    return {**_count(iter(loader), secs), "plan_secs": plan_secs}


def read_tfdata(cached: str, secs: float) -> dict[str, Any]:
    """The same batches as tf.data makes them: files of tf.train.Example, shuffled in a buffer, packed online."""
    from beam_pipes import tasks
    from beam_pipes.tasks.sources.cached import CachedDataSource
    from beam_pipes.transforms.converters import LMFeatureConverter

    task = tasks.TaskRegistry.get(TASK)
    lengths = {"targets": ROW_LENGTH}
    dataset = CachedDataSource(f"{cached}/{TASK}", "train").get_dataset("train", seed=1).repeat()
    dataset = task.preprocess_postcache(dataset, lengths).shuffle(1000, seed=1)
    rows = LMFeatureConverter()(dataset.map(lambda example: {"targets": example["targets"][:ROW_LENGTH]}), lengths)
    return _count(rows.batch(BATCH_SIZE).prefetch(2).as_numpy_iterator(), secs)


def _count(batches: Any, secs: float) -> dict[str, Any]:
    next(batches)
    rows = tokens = 0
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < secs:
        batch = next(batches)
        rows += len(batch["decoder_target_tokens"])
        tokens += int(batch["decoder_loss_weights"].sum())
    return {"secs": now - started, "rows": rows, "tokens": tokens}


def densities(cached: str) -> dict[str, Any]:
    """The density of planned and online-packed rows; checks that both hold every token."""
    from beam_pipes import tasks
    from beam_pipes.transforms.converters import EncDecFeatureConverter, LMFeatureConverter

    tasks.set_global_cache_dirs([cached])
    task = tasks.TaskRegistry.get(TASK)
    lm = tasks.plan_loading(TASK, {"targets": ROW_LENGTH}, LMFeatureConverter())
    pairs = [tasks.plan_loading(TASK, lengths, EncDecFeatureConverter()).rows for lengths in PAIR_LENGTHS]

    def online(converter: Any, lengths: dict[str, int]) -> tuple[int, int]:
        examples = ({name: example[name] for name in lengths} for example in task.examples(lengths, use_cached=True))
        rows = tokens = 0
        for row in converter.convert_examples(examples, lengths):
            rows += 1
            tokens += int(row["decoder_loss_weights"].sum())
        return rows, tokens

    lm_rows, lm_tokens = online(LMFeatureConverter(), {"targets": ROW_LENGTH})
    pairs_online = [online(EncDecFeatureConverter(), lengths)[0] for lengths in PAIR_LENGTHS]
    delivered = sum(
        int(batch["decoder_loss_weights"].sum()) for batch in lm.loader(batch_size=BATCH_SIZE, last="partial")
    )
    if delivered != lm_tokens:
        raise AssertionError(f"the loader gave {delivered} tokens of {lm_tokens}")
    return {
        "density": 1 - (lm.waste or 0.0),
        "density_online": lm_tokens / (lm_rows * ROW_LENGTH),
        "rows_to_next_fit": {
            _slashed(lengths): planned / packed
            for lengths, planned, packed in zip(PAIR_LENGTHS, pairs, pairs_online, strict=True)
        },
    }


def rows_of(texts: Iterable[Mapping[str, str]], vocabulary: Any) -> dict[str, float]:
    """Planned rows of pairs of texts over rows of online packing."""
    from beam_pipes.loader.packing.fits import vector_fit
    from beam_pipes.transforms.converters import EncDecFeatureConverter

    pairs = [{name: np.asarray(vocabulary.encode(text), np.int32) for name, text in pair.items()} for pair in texts]
    ratios = {}
    for lengths in CODE_LENGTHS:
        trimmed = [{name: pair[name][:length] for name, length in lengths.items()} for pair in pairs]
        counted = np.array([[len(pair[name]) for name in lengths] for pair in trimmed])
        planned = int(vector_fit(counted, tuple(lengths.values())).max()) + 1
        ratios[_slashed(lengths)] = planned / sum(
            1 for _ in EncDecFeatureConverter().convert_examples(trimmed, lengths)
        )
    return ratios


def _slashed(lengths: Mapping[str, int]) -> str:
    return "/".join(map(str, lengths.values()))


def many_tasks(cached: str, to: str, count: int) -> dict[str, Any]:
    """The first batch of a mixture of copies of the task."""
    from beam_pipes import tasks
    from beam_pipes.transforms.converters import LMFeatureConverter

    task = tasks.TaskRegistry.get(TASK)
    for index in range(count):
        shutil.copytree(f"{cached}/{TASK}", f"{to}/copy_{index}", copy_function=os.link)
        tasks.TaskRegistry.add_provider(f"copy_{index}", task.replace(name=f"copy_{index}"))
    tasks.set_global_cache_dirs([to])
    mixture = tasks.Mixture("copies", [(f"copy_{index}", 1 + index % 7) for index in range(count)])
    threads_before = _threads()
    started, cpu_started = time.perf_counter(), time.process_time()
    loader = tasks.get_loader(
        mixture, {"targets": ROW_LENGTH}, LMFeatureConverter(), batch_size=BATCH_SIZE, seed=1, exhaustion="repeat"
    )
    next(iter(loader))
    secs, cpu_secs = time.perf_counter() - started, time.process_time() - cpu_started
    return {
        "first_batch_secs": secs,
        "first_batch_cpu_secs": cpu_secs,
        "threads": _threads() - threads_before,
        "tasks": count,
    }


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def child(mode: str, corpus: str, path: str, extra: str) -> None:
    """One run in this process; prints its figures."""
    if mode == "bare":
        result = build_bare(corpus, path)
    elif mode in BUILDS:
        result = build_ours(corpus, path, 1 if mode == "one_core" else None)
    elif mode == "seqio_files":
        result = build_ours(corpus, path, None, seqio_files=True)
    elif mode == "densities":
        result = densities(path)
    elif mode == "code":
        result = rows_of(documented_code(), vocabulary_of(corpus))
    elif mode == "many":
        result = many_tasks(path, extra, 300)
    else:
        result = (read_ours if mode == "read_ours" else read_tfdata)(path, float(extra))
    print(json.dumps(result))


def run(mode: str, corpus: Path, path: Path, extra: Any = "") -> dict[str, Any]:
    """One run in a fresh process."""
    if mode in (*BUILDS, "seqio_files"):
        path.mkdir()
    arguments = [sys.executable, "-m", "benchmarks.tasks", "--child", mode, corpus, path, extra]
    return _run(mode, arguments, {CORPUS_VARIABLE: str(corpus)})


def _run(name: str, arguments: Sequence[Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The figures that a process prints last."""
    ran = subprocess.run(
        list(map(str, arguments)),
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    print(f"{name}: {figures}", file=sys.stderr)
    return figures


def run_bare_on_each_core(corpus: Path, path: Path) -> dict[str, Any]:
    """A bare loop on every core, all at the same time; the figures of the last one to end."""
    path.mkdir()
    cores = range(os.cpu_count() or 1)
    with ThreadPoolExecutor(len(cores)) as threads:
        every = list(threads.map(lambda core: run("bare", corpus, path / str(core)), cores))
    return max(every, key=lambda figures: figures["secs"])


def run_seqio(python: Path | None, mode: str, *arguments: Any) -> dict[str, Any] | None:
    """One run of the reference in its own environment; None without one."""
    if python is None:
        return None
    script = Path(__file__).with_name("seqio_job.py")
    return _run(f"seqio {mode}", [python, script, mode, *arguments], {"PYTHONPATH": ""})


def part_of(corpus: Path, to: Path, num_bytes: int) -> Path:
    """The first lines of the corpus, with its vocabulary."""
    to.mkdir()
    shutil.copy(corpus / "vocabulary.model", to / "vocabulary.model")
    written = 0
    with open(to / "part-000.tsv", "wb") as out:
        for path in sorted(corpus.glob("*.tsv")):
            with open(path, "rb") as lines:
                for line in lines:
                    if written >= num_bytes:
                        return to
                    out.write(line)
                    written += len(line)
    return to


def main(arguments: list[str] | None = None) -> dict[str, Any] | None:
    from benchmarks.text_to_text import train_vocabulary, write_pairs

    options_of = parser(__doc__)
    options_of.add_argument(
        "--bytes",
        type=int,
        default=150_000_000,
        help="bytes of raw text, of which three quarters are cached [150,000,000]",
    )
    options_of.add_argument("--vocab-size", type=int, default=8_000)
    options_of.add_argument("--reference-bytes", type=int, default=5_000_000, help="text for seqio's job [5,000,000]")
    options_of.add_argument("--read-secs", type=float, default=5.0, help="seconds of each reading run [5]")
    options_of.add_argument(
        "--seqio-python", type=Path, default=Path(".venv-seqio/bin/python"), help="interpreter with seqio"
    )
    options_of.add_argument("--child", nargs=4, metavar=("MODE", "CORPUS", "PATH", "EXTRA"), help="one run (by itself)")
    options = options_of.parse_args(arguments)
    if options.child:
        child(*options.child)
        return None
    seqio_python = options.seqio_python.absolute() if options.seqio_python.exists() else None
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        corpus = work / "corpus"
        corpus.mkdir()
        write_pairs(corpus, options.bytes)
        train_vocabulary(corpus, options.vocab_size)
        secs: dict[str, list[float]] = {mode: [] for mode in (*BUILDS, "bare_on_each_core")}
        cpu_secs: dict[str, list[float]] = {mode: [] for mode in secs}
        counted = set()
        for _ in range(options.repeats):
            for mode in secs:
                each_core = mode == "bare_on_each_core"
                figures = run_bare_on_each_core(corpus, work / mode) if each_core else run(mode, corpus, work / mode)
                secs[mode].append(figures["secs"])
                cpu_secs[mode].append(figures["cpu_secs"])
                counted.add((figures["examples"], figures["targets_tokens"]))
                shutil.rmtree(work / mode)
        if len(counted) != 1:
            raise SystemExit(f"the alternatives cached other examples or tokens: {sorted(counted)}")
        ((examples, _),) = counted
        cores = os.cpu_count() or 1
        results: dict[str, Any] = {
            "build_to_bare": ratio(secs, "all_cores", "bare") * cores,
            "build_to_bare_on_each_core": ratio(secs, "all_cores", "bare_on_each_core") * cores,
            "build_one_core_to_bare": ratio(secs, "one_core", "bare"),
            "build_to_bare_cpu": ratio(cpu_secs, "all_cores", "bare"),
            "build_to_bare_on_each_core_cpu": ratio(cpu_secs, "all_cores", "bare_on_each_core"),
            "build_one_core_to_bare_cpu": ratio(cpu_secs, "one_core", "bare"),
            "examples_per_sec": examples / statistics.median(secs["all_cores"]),
            **_against_the_reference(seqio_python, corpus, work, options.reference_bytes),
        }
        results |= _reading(seqio_python, corpus, work, options.read_secs, options.repeats)
        results["examples"] = examples
        results["bytes"] = sum(path.stat().st_size for path in corpus.glob("*.tsv"))
        results |= {f"secs_{mode}": statistics.median(times) for mode, times in secs.items()}
        report(results, options.json)
        return results
    finally:
        shutil.rmtree(work)


def _against_the_reference(python: Path | None, corpus: Path, work: Path, num_bytes: int) -> dict[str, Any]:
    part = part_of(corpus, work / "part", num_bytes)
    theirs = run_seqio(python, "cache", part, work / "theirs")
    if theirs is None:
        return {"examples_per_sec_to_reference": None}
    ours = run("all_cores", part, work / "ours_of_part")
    if any(ours[name] != theirs[name] for name in ("examples", "targets_tokens")):
        raise SystemExit(f"ours and the reference's cache differ: {ours}, {theirs}")
    rates = [figures["examples"] / figures["secs"] for figures in (ours, theirs)]
    return {"examples_per_sec_to_reference": rates[0] / rates[1], "examples_per_sec_reference": rates[1]}


def _reading(python: Path | None, corpus: Path, work: Path, secs: float, repeats: int) -> dict[str, Any]:
    run("all_cores", corpus, work / "raw")
    run("seqio_files", corpus, work / "lists")
    rates: dict[str, list[float]] = {"read_ours": [], "read_tfdata": []}
    for _ in range(repeats):
        for mode, cached in (("read_ours", "raw"), ("read_tfdata", "lists")):
            figures = run(mode, corpus, work / cached, secs)
            rates[mode].append(figures["tokens"] / figures["secs"])
    paired = zip(rates["read_ours"], rates["read_tfdata"], strict=True)
    results: dict[str, Any] = {
        "packed_read_to_tfdata": statistics.median(ours / theirs for ours, theirs in paired),
        "tokens_per_sec": statistics.median(rates["read_ours"]),
        "packed_read_to_reference": None,
    }
    if python is not None:
        figures = run_seqio(python, "read", work / "part", work / "theirs", secs) or {}
        results["packed_read_to_reference"] = results["tokens_per_sec"] / (figures["tokens"] / figures["secs"])
    results |= run("densities", corpus, work / "raw")
    results["enc_dec_rows_to_next_fit"] = {
        "corpus": results.pop("rows_to_next_fit"),
        "documented_code": run("code", corpus, work / "raw"),
    }
    many = work / "many"
    many.mkdir()
    results["mixture_of_300"] = run("many", work / "part", _small_cache(work), many)
    return results


def _small_cache(work: Path) -> Path:
    """A cache of the part, from which 300 copies are made."""
    small = work / "ours_of_part"
    if not small.exists():
        run("all_cores", work / "part", small)
    return small


if __name__ == "__main__":
    main()
