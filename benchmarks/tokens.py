"""From text to token ids on disk: encoders by themselves, and whole jobs against a bare loop and other tools.

The text is Python's own library and installed packages: every file once, files that are alike once, 200 MB. It is
written as JSON lines and as Parquet, 8 files of each.

Encoders, CPU seconds of this process, one document in ten in batches of 256, library threads off:

- tokenizers: `encode` text by text, `encode_batch`, `encode_batch_fast`
- tiktoken: `encode_ordinary` text by text
- vocabulary: `TokenizersVocabulary.encode` text by text, and `encode_batch`

Jobs, each in a fresh process, seconds and CPU seconds of it and its workers, imports left out:

- bare: `json.loads`, `tokenizers.encode_batch_fast`, ids to one file with `ndarray.tofile`, one process
- recipe: `beam_pipes.recipes.tokens`, one worker; two_cores: two of them; parquet and parquet_two_cores: the same from
  Parquet
- stage: a stage as people write it, which calls `vocabulary.encode` for each record, one worker
- datasets: `load_dataset("json")`, then `map(batched=True, num_proc=2)` of `encode_batch_fast`
- datatrove: `JsonlReader`, `DocumentTokenizer`, two workers, documents in their order
- megatron: what `tools/preprocess_data.py` of Megatron-LM does, as its documentation tells: a pool of two processes
  that encode line by line, and an `IndexedDatasetBuilder`. The wheel of megatron-core has the builder, not the script

When a job has ended, its ids are reread and compared, document by document, with those of all others: differing ids end
the benchmark. Rates are megabytes of UTF-8 text per CPU second, and per second; `recipe_to_bare` 3 means three times
the bare loop's rate per CPU second.

`two_cores` is a ratio of wall-clock seconds, and means little if other work runs: Linux gives a session one
share of a busy machine, however many processes it has. `two_cores_by_cpu` is the ratio for free cores: the CPU seconds
of one worker over those of the longest chain of processes that wait for each other (the build by itself; the build or
the server that forks, which import at the same time; the busiest worker).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from beam_pipes import FeatureSpec, declare, stage
from beam_pipes.sources import JSONLines
from beam_pipes.tasks import TokenizersVocabulary, Vocabulary
from benchmarks.harness import paired_seconds, parser, process_tree, ratio, report

OURS = ("recipe", "two_cores", "stage", "parquet", "parquet_two_cores")
OTHERS = ("datasets", "datatrove", "megatron")
JOBS = ("bare", *OURS, *OTHERS)
BATCH = 256
# The first token of the vocabulary, so its id is 0; all jobs append it to each text.
END = "<|endoftext|>"
_TRAINED_ON = 4_000_000
_FILES = 8


def documents(num_bytes: int) -> Iterator[str]:
    """Python sources of this installation, each once, up to this many bytes; none that contains the end-of-text
    token."""
    seen: set[bytes] = set()
    left = num_bytes
    for library in ("stdlib", "purelib"):
        root = Path(sysconfig.get_path(library))
        for path in sorted(root.rglob("*.py")):
            if library == "stdlib" and "site-packages" in path.parts:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if not text or digest in seen or END in text:
                continue
            seen.add(digest)
            yield text
            left -= len(text.encode())
            if left <= 0:
                return
    raise SystemExit(f"{left / 1e6:.0f} of {num_bytes / 1e6:.0f} MB of text are missing here. Give fewer --bytes")


def write_corpus(directory: Path, num_bytes: int) -> None:
    """JSON lines and Parquet, in files of about equal size, and the tokenizer that was trained on the first 4 MB."""
    parts: list[list[tuple[int, str]]] = [[] for _ in range(_FILES)]
    trained_on: list[str] = []
    size = 0
    for number, text in enumerate(documents(num_bytes)):
        parts[number % _FILES].append((number, text))
        if size < _TRAINED_ON:
            trained_on.append(text)
            size += len(text)
    for name, part in enumerate(parts):
        with open(directory / f"part-{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text, "number": number}) + "\n" for number, text in part)
        numbers, texts = zip(*part, strict=True)
        table = pyarrow.table({"text": texts, "number": numbers})
        parquet.write_table(table, directory / f"part-{name}.parquet", row_group_size=BATCH, compression="zstd")
    train(trained_on, vocab_size=32_000, path=str(directory / "tokenizer.json"))


def train(texts: Sequence[str], *, vocab_size: int, path: str) -> None:
    """A byte-level BPE, as GPT-2's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(path)


def texts_of(directory: str) -> Iterator[str]:
    for path in sorted(Path(directory).glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


# Encoders.


def encoders(directory: str) -> dict[str, Callable[[list[str]], Sequence[Sequence[int]]]]:
    """Name → function from texts to ids."""
    from tokenizers import Tokenizer

    from beam_pipes.tasks.vocabularies.byte_pairs import byte_pairs, make_encoding

    path = f"{directory}/tokenizer.json"
    library, vocabulary = Tokenizer.from_file(path), TokenizersVocabulary(path, backend="tiktoken")
    pairs = byte_pairs(Path(path).read_text(encoding="utf-8"))
    tiktoken = make_encoding("benchmark", pairs.pattern, pairs.ranks, {})

    def batch(texts: list[str]) -> list[list[int]]:
        return [each.ids for each in library.encode_batch(texts, add_special_tokens=False)]

    def batch_fast(texts: list[str]) -> list[list[int]]:
        return [each.ids for each in library.encode_batch_fast(texts, add_special_tokens=False)]

    return {
        "tokenizers_encode": lambda texts: [library.encode(text, add_special_tokens=False).ids for text in texts],
        "tokenizers_encode_batch": batch,
        "tokenizers_encode_batch_fast": batch_fast,
        "tiktoken": lambda texts: [tiktoken.encode_ordinary(text) for text in texts],
        "vocabulary_encode": lambda texts: [vocabulary.encode(text) for text in texts],
        "vocabulary_encode_batch": vocabulary.encode_batch,
    }


def encoding(directory: str, *, repeats: int) -> dict[str, Any]:
    """Megabytes of text per CPU second of every encoder; raises if two of them give different ids."""
    texts = list(itertools.islice(texts_of(directory), 0, None, 10))
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    made = encoders(directory)
    expected = made["tokenizers_encode_batch"](texts)
    for name, encode in made.items():
        if encode(texts) != expected:
            raise SystemExit(f"{name} gives other ids than tokenizers")
    runs = {name: lambda encode=encode: [encode(each) for each in batches] for name, encode in made.items()}
    secs = paired_seconds(runs, repeats=repeats, clock=time.process_time)
    return {
        **{f"{name}_mb_per_cpu_sec": round(megabytes / min(taken), 2) for name, taken in secs.items()},
        "tiktoken_to_tokenizers": round(ratio(secs, "tokenizers_encode_batch_fast", "tiktoken"), 2),
        "vocabulary_to_tiktoken": round(ratio(secs, "tiktoken", "vocabulary_encode_batch"), 2),
    }


# Jobs.


@stage
def by_record(row: dict[str, Any], *, vocabulary: Vocabulary) -> dict[str, object]:
    """A stage as people write it."""
    return {"tokens": np.array([*vocabulary.encode(row["text"]), vocabulary.eos_id], np.int32)}


def run_bare(directory: str, to: str) -> None:
    """The hand-written version."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(f"{directory}/tokenizer.json")
    texts = texts_of(directory)
    with open(f"{to}/bare.bin", "wb") as file:
        while some := list(itertools.islice(texts, BATCH)):
            for encoded in library.encode_batch_fast(some, add_special_tokens=False):
                np.array([*encoded.ids, 0], np.uint16).tofile(file)


def run_build(directory: str, to: str, job: str) -> None:
    """The recipe, or a custom stage."""
    from beam_pipes import build
    from beam_pipes.recipes import tokens

    corpus = f"{directory}/*.{'parquet' if job.startswith('parquet') else 'jsonl'}"
    recipe = tokens(corpus, tokenizer=f"{directory}/tokenizer.json")
    declaration = recipe.declaration()
    if job == "stage":
        vocabulary = recipe.vocabulary
        ids = FeatureSpec("int32", shape=(None,), minimum=0, maximum=vocabulary.vocab_size - 1)
        stages = [stage(by_record, vocabulary=vocabulary)]
        declaration = declare("tokens", JSONLines(corpus), stages, features={"tokens": ids})
    build(declaration, to=to, workers=2 if job.endswith("two_cores") else 1)


def run_datasets(directory: str, to: str) -> None:
    """A map over a dataset of Hugging Face, whose result is in Arrow files."""
    import datasets
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    library = Tokenizer.from_file(f"{directory}/tokenizer.json")

    def encode(rows: dict[str, list[str]]) -> dict[str, list[Any]]:
        encoded = library.encode_batch_fast(rows["text"], add_special_tokens=False)
        return {"tokens": [np.array([*each.ids, 0], np.int32) for each in encoded]}

    files = sorted(map(str, Path(directory).glob("*.jsonl")))
    rows = datasets.load_dataset("json", data_files=files, split="train", cache_dir=f"{to}/json", num_proc=2)
    columns = rows.column_names
    rows.map(encode, batched=True, num_proc=2, remove_columns=columns, cache_file_name=f"{to}/tokens.arrow")


def run_datatrove(directory: str, to: str) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    reading = JsonlReader(directory, glob_pattern="*.jsonl")
    writing = DocumentTokenizer(
        f"{to}/tokens", f"{directory}/tokenizer.json", eos_token=END, shuffle_documents=False, batch_size=BATCH
    )
    LocalPipelineExecutor([reading, writing], tasks=_FILES, workers=2, logging_dir=f"{to}/logs").run()


_library: Any = None


def _open_library(path: str) -> None:
    global _library
    from tokenizers import Tokenizer

    _library = Tokenizer.from_file(path)


def _encode_line(line: str) -> list[int]:
    return [*_library.encode(json.loads(line)["text"], add_special_tokens=False).ids, 0]


def run_megatron(directory: str, to: str) -> None:
    import multiprocessing

    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(f"{to}/tokens.bin", dtype=np.uint16)
    with multiprocessing.Pool(2, _open_library, (f"{directory}/tokenizer.json",)) as pool:
        for path in sorted(Path(directory).glob("*.jsonl")):
            with open(path, encoding="utf-8") as lines:
                for ids in pool.imap(_encode_line, lines, 32):
                    builder.add_document(ids, [len(ids)])
        pool.close()
        pool.join()
    builder.finalize(f"{to}/tokens.idx")


#: Imports of a job before its clock starts: imports do not grow with the input.
_IMPORTS = {
    "bare": ("tokenizers",),
    **dict.fromkeys(
        OURS, ("tokenizers", "tiktoken", "pyarrow.parquet", "beam_pipes.recipes", "beam_pipes.runners.build")
    ),
    "datasets": ("tokenizers", "datasets"),
    "datatrove": ("tokenizers", "datatrove.executor", "datatrove.pipeline.readers", "datatrove.pipeline.tokens"),
    "megatron": ("tokenizers", "megatron.core.datasets.indexed_dataset"),
}


def ids_written(to: str, job: str) -> Iterator[np.ndarray]:
    """A job's output, reread: arrays of whole texts, each followed by 0."""
    if job in OURS:
        from beam_pipes import Cache

        split = Cache.open(to)["train"]
        for start in range(0, len(split), 4096):
            yield split.gather_values("tokens", np.arange(start, min(start + 4096, len(split))))[0]
    elif job == "datasets":
        from datasets import Dataset

        for file in sorted(Path(to).glob("tokens*.arrow")):
            for batch in Dataset.from_file(str(file)).with_format("numpy").iter(4096):
                yield np.concatenate(batch["tokens"])
    else:
        for file in sorted([*Path(to).glob("*.bin"), *Path(to).glob("tokens/*.ds")]):
            yield np.fromfile(file, np.uint16)


def digest_of(arrays: Iterator[np.ndarray]) -> tuple[int, str]:
    """The number of ids, and a digest of all texts' ids that does not depend on their order."""
    found, num_tokens = list[bytes](), 0
    for array in arrays:
        num_tokens += len(array)
        ids = array.astype("<u2")
        start = 0
        for end in (np.flatnonzero(ids == 0) + 1).tolist():
            found.append(hashlib.blake2b(ids[start:end].tobytes(), digest_size=16).digest())
            start = end
        if start != len(ids):
            raise SystemExit(f"{len(ids) - start} ids are not followed by the end of a text")
    return num_tokens, hashlib.blake2b(b"".join(sorted(found)), digest_size=16).hexdigest()


def child(job: str, directory: str, to: str) -> None:
    """One job in this process; prints its figures."""
    for module in _IMPORTS[job]:
        importlib.import_module(module)
    by_name = {"bare": run_bare, "datasets": run_datasets, "datatrove": run_datatrove, "megatron": run_megatron}
    run = by_name.get(job, functools.partial(run_build, job=job))
    started, cpu_started = time.perf_counter(), _cpu_secs()
    with longest_chain() as chain:
        run(directory, to)
    secs, cpu_secs = time.perf_counter() - started, _cpu_secs() - cpu_started
    chain_secs = chain.secs()
    num_tokens, digest = digest_of(ids_written(to, job))
    figures = {"secs": secs, "cpu_secs": cpu_secs, "chain_secs": chain_secs, "tokens": num_tokens, "digest": digest}
    print(json.dumps(figures))


class Chain:
    """CPU seconds of this process, its children, and their children."""

    def __init__(self) -> None:
        self.started = time.process_time()
        self.own_alone: float | None = None
        self.own = 0.0
        self.children: dict[int, float] = {}
        self.workers: dict[int, float] = {}

    def look(self) -> None:
        for pid in _children(os.getpid()):
            if self.own_alone is None:
                self.own_alone = time.process_time() - self.started
            self.children[pid] = max(_secs_of(pid), self.children.get(pid, 0.0))
            for worker in _children(pid):
                self.workers[worker] = max(_secs_of(worker), self.workers.get(worker, 0.0))
        self.own = time.process_time() - self.started

    def secs(self) -> float:
        """CPU seconds of the longest chain: alone, then together with the server that forks, then the busiest
        worker."""
        alone = self.own if self.own_alone is None else self.own_alone
        together = max([self.own - alone, *self.children.values()])
        return alone + together + max(self.workers.values(), default=0.0)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):  # processes may end while they are inspected
        return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]
    return []


def _secs_of(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextlib.contextmanager
def longest_chain() -> Iterator[Chain]:
    """The chain of the work done within the block, sampled every 50 ms."""
    chain, ended = Chain(), threading.Event()

    def sample() -> None:
        while not ended.wait(0.05):
            chain.look()

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield chain
    finally:
        ended.set()
        sampler.join()
        chain.look()


def _cpu_secs() -> float:
    """CPU seconds of this process and all its descendants, including ended ones."""
    ticks = 0
    for pid in process_tree(os.getpid()):  # some libraries leave a server that forks running
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(directory: str, work: Path, names: Sequence[str], *, repeats: int) -> dict[str, dict[str, list[Any]]]:
    """Job → figure → its values, one per run; raises if two jobs wrote different ids."""
    found: dict[str, dict[str, list[Any]]] = {job: {} for job in names}
    first: dict[str, Any] = {}
    for repeat in range(repeats):
        for job in names if repeat % 2 == 0 else reversed(names):
            to = work / f"out-{job}"
            to.mkdir()
            command = [sys.executable, "-m", "benchmarks.tokens", "--child", job, directory, str(to)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures = json.loads(ran.stdout.strip().splitlines()[-1])
            shutil.rmtree(to)
            reported = ", ".join(f"{name} {figures[name]:.2f}" for name in ("secs", "cpu_secs", "chain_secs"))
            print(f"{job}: {reported}; ids {figures['digest']}", file=sys.stderr, flush=True)
            first = first or {"job": job, **figures}
            if figures["digest"] != first["digest"]:
                raise SystemExit(f"{job} wrote other ids than {first['job']}")
            for name, value in figures.items():
                found[job].setdefault(name, []).append(value)
    return found


def ratios(found: dict[str, dict[str, list[Any]]]) -> dict[str, float]:
    """The medians of paired runs, of all jobs that ran."""
    cpu, secs, chain = ({job: of[name] for job, of in found.items()} for name in ("cpu_secs", "secs", "chain_secs"))
    wanted = {
        "recipe_to_bare": (cpu, "bare", "recipe"),
        "stage_to_bare": (cpu, "bare", "stage"),
        "parquet_to_bare": (cpu, "bare", "parquet"),
        **{f"two_cores_to_{other}": (cpu, other, "two_cores") for other in OTHERS},
        **{f"two_cores_to_{other}_by_clock": (secs, other, "two_cores") for other in OTHERS},
        "two_cores": (secs, "recipe", "two_cores"),
        "two_cores_by_cpu": (chain, "recipe", "two_cores"),
        "parquet_two_cores": (secs, "parquet", "parquet_two_cores"),
        "parquet_two_cores_by_cpu": (chain, "parquet", "parquet_two_cores"),
    }
    return {
        name: round(ratio(of, top, bottom), 2)
        for name, (of, top, bottom) in wanted.items()
        if top in found and bottom in found
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parser(__doc__)
    options.add_argument("--bytes", type=int, default=200_000_000, help="bytes of text [200 MB]")
    options.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, metavar="JOB", help="only these [all]")
    options.add_argument("--child", nargs=3, metavar=("JOB", "CORPUS", "TO"), help="one job (used by itself)")
    given = options.parse_args(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if given.child:
        child(*given.child)
        return {}
    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        corpus = work / "corpus"
        corpus.mkdir()
        write_corpus(corpus, given.bytes)
        texts = [len(text.encode()) for text in texts_of(str(corpus))]
        results = {"documents": len(texts), "text_megabytes": round(sum(texts) / 1e6, 1)}
        results |= encoding(str(corpus), repeats=given.repeats)
        found = measured(str(corpus), work, given.jobs, repeats=given.repeats)
        results |= {"tokens": found[given.jobs[0]]["tokens"][0]} | ratios(found)
        for job, figures in found.items():
            for name in ("secs", "cpu_secs"):
                taken = statistics.median(figures[name])
                results[f"{job}_{name}"] = round(taken, 2)
                results[f"{job}_mb_per_{name.removesuffix('s')}"] = round(results["text_megabytes"] / taken, 2)
        for job in {"recipe", "parquet"} & {*given.jobs}:
            rate = results[f"{job}_mb_per_cpu_sec"]
            results[f"{job}_to_backend"] = round(rate / results["tiktoken_mb_per_cpu_sec"], 2)
        report(results, given.json)
        return results
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
