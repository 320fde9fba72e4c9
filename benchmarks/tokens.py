"""From JSON lines of text to token ids: encoders by themselves, and whole jobs against a bare loop.

Encoders, CPU seconds of this process, the same texts in batches of 256, library threads off:

- tokenizers: `encode` text by text, `encode_batch`, `encode_batch_fast`
- tiktoken: `encode_ordinary` text by text, its ids proved equal to those of tokenizers
- vocabulary: `TokenizersVocabulary.encode` text by text, and `encode_batch`

Jobs, each in a fresh process, CPU seconds of it and its workers:

- bare: `json.loads`, `tokenizers.encode_batch_fast`, ids to one file with `ndarray.tofile`, one process
- recipe: `beam_pipes.recipes.tokens`, one worker; two_cores: two of them
- stage: a stage as people write it, which calls `vocabulary.encode` for each record, one worker

Rates are megabytes of UTF-8 text a CPU second; `recipe_to_bare` 3 is three times the rate of the bare loop.

`two_cores` is a ratio of seconds by the wall clock, and says little where other work runs: Linux gives a session one
share of a busy machine, however many processes it has. `two_cores_by_cpu` is what cores that are free would give: the
CPU seconds of one worker, by those of the longest chain of processes that wait for each other (the build, the server
that forks, the busiest worker). Of 60 MB the start of processes is a quarter of that chain.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import resource
import shutil
import statistics
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes import FeatureSpec, declare, stage
from beam_pipes.sources import JSONLines
from beam_pipes.tasks import TokenizersVocabulary, Vocabulary
from benchmarks.harness import paired_seconds, parser, ratio, report, run_measured

JOBS = ("bare", "recipe", "two_cores", "stage")
BATCH = 256
_TRAINED_ON = 4_000_000
_FILES = 8


def documents(num_bytes: int) -> Iterator[str]:
    """The Python sources of this installation; another pass begins each file elsewhere: no text is repeated."""
    paths = [
        path for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")) if "site-packages" not in str(path)
    ]
    left = num_bytes
    for number in itertools.count():
        for path in paths:
            paragraphs = path.read_text(encoding="utf-8", errors="replace").split("\n\n")
            at = number % len(paragraphs)
            text = "\n\n".join([*paragraphs[at:], *paragraphs[:at]])
            if text:
                yield text
            left -= len(text.encode())
            if left <= 0:
                return


def write_corpus(directory: Path, num_bytes: int) -> None:
    """JSON lines in files of equal size, and the tokenizer that was trained on some of them."""
    files = [open(directory / f"part-{number}.jsonl", "w", encoding="utf-8") for number in range(_FILES)]
    trained_on: list[str] = []
    size = 0
    for number, text in enumerate(documents(num_bytes)):
        json.dump({"text": text, "number": number}, files[number % _FILES])
        files[number % _FILES].write("\n")
        if size < _TRAINED_ON:
            trained_on.append(text)
            size += len(text)
    for file in files:
        file.close()
    train(trained_on, vocab_size=32_000, path=str(directory / "tokenizer.json"))


def train(texts: Sequence[str], *, vocab_size: int, path: str) -> None:
    """A byte-level BPE, as GPT-2's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
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
    """Name → what makes ids of texts."""
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
    """Megabytes of text a CPU second of every encoder; raises where two of them give different ids."""
    texts = list(texts_of(directory))
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
        "tokens": sum(map(len, expected)),
        "documents": len(texts),
        "text_megabytes": round(megabytes, 1),
    }


# Jobs.


@stage
def by_record(row: dict[str, Any], *, vocabulary: Vocabulary) -> dict[str, object]:
    """A stage as people write it."""
    return {"tokens": np.array([*vocabulary.encode(row["text"]), vocabulary.eos_id], np.int32)}


def run_bare(directory: str, to: str) -> int:
    """What one writes by hand."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(f"{directory}/tokenizer.json")
    texts = texts_of(directory)
    written = 0
    with open(f"{to}/bare.bin", "wb") as file:
        while some := list(itertools.islice(texts, BATCH)):
            for encoded in library.encode_batch_fast(some, add_special_tokens=False):
                ids = np.array([*encoded.ids, 0], np.uint16)
                ids.tofile(file)
                written += len(ids)
    return written


def run_build(directory: str, to: str, job: str) -> int:
    """The recipe, or a stage of one's own."""
    from beam_pipes import build
    from beam_pipes.recipes import tokens

    corpus = f"{directory}/*.jsonl"
    recipe = tokens(corpus, tokenizer=f"{directory}/tokenizer.json")
    declaration = recipe.declaration()
    if job == "stage":
        vocabulary = recipe.vocabulary
        ids = FeatureSpec("int32", shape=(None,), minimum=0, maximum=vocabulary.vocab_size - 1)
        stages = [stage(by_record, vocabulary=vocabulary)]
        declaration = declare("tokens", JSONLines(corpus), stages, features={"tokens": ids})
    build(declaration, to=to, workers=2 if job == "two_cores" else 1)
    from beam_pipes import Cache

    return int(np.sum(Cache.open(to)["train"].lengths("tokens")))


def child(job: str, directory: str, to: str) -> None:
    """One job in this process; prints its figures, imports left out: they do not grow with the input."""
    for module in ("tokenizers", "tiktoken", "beam_pipes.recipes", "beam_pipes.runners.build"):
        importlib.import_module(module)
    started, cpu_started = time.perf_counter(), _cpu_secs()
    with longest_chain() as chain:
        written = run_bare(directory, to) if job == "bare" else run_build(directory, to, job)
        own_secs = time.process_time()
    secs, cpu_secs = time.perf_counter() - started, _cpu_secs() - cpu_started
    chain_secs = own_secs - cpu_started + max(chain.values(), default=0.0)
    print(json.dumps({"secs": secs, "cpu_secs": cpu_secs, "chain_secs": chain_secs, "tokens": written}))


@contextlib.contextmanager
def longest_chain() -> Iterator[dict[int, float]]:
    """Process below this one → CPU seconds of it and of those above it, this one left out; sampled every 50 ms."""
    chains: dict[int, float] = {}
    ended = threading.Event()

    def watch(pid: int, above: float) -> None:
        with contextlib.suppress(OSError):  # processes end while they are looked at
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                for child in map(int, children.read_text().split()):
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                    chains[child] = above + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                    watch(child, chains[child])

    def sample() -> None:
        while not ended.wait(0.05):
            watch(os.getpid(), 0.0)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield chains
    finally:
        ended.set()
        sampler.join()


def _cpu_secs() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def jobs(directory: str, work: Path, *, repeats: int) -> dict[str, Any]:
    """Seconds of every job, and their ratios; raises where two of them wrote different numbers of tokens."""
    secs: dict[str, list[float]] = {job: [] for job in JOBS}
    cpu: dict[str, list[float]] = {job: [] for job in JOBS}
    chain: dict[str, list[float]] = {job: [] for job in JOBS}
    written: set[int] = set()
    for repeat in range(repeats):
        for job in JOBS if repeat % 2 == 0 else reversed(JOBS):
            to = work / f"out-{job}"
            to.mkdir()
            measured = run_measured(["-m", "benchmarks.tokens", "--child", job, directory, str(to)])
            figures = json.loads(measured.output.strip().splitlines()[-1])
            secs[job].append(figures["secs"])
            cpu[job].append(figures["cpu_secs"])
            chain[job].append(figures["chain_secs"])
            written.add(figures["tokens"])
            print(f"{job}: {figures['secs']:.2f} s, {figures['cpu_secs']:.2f} s of CPU", file=sys.stderr)
            shutil.rmtree(to)
    if len(written) != 1:
        raise SystemExit(f"the jobs wrote different numbers of tokens: {sorted(written)}")
    return {
        "recipe_to_bare": round(ratio(cpu, "bare", "recipe"), 2),
        "stage_to_bare": round(ratio(cpu, "bare", "stage"), 2),
        "two_cores": round(ratio(secs, "recipe", "two_cores"), 2),
        "two_cores_by_cpu": round(ratio(chain, "recipe", "two_cores"), 2),
        **{f"{job}_secs": round(statistics.median(secs[job]), 2) for job in JOBS},
        **{f"{job}_cpu_secs": round(statistics.median(cpu[job]), 2) for job in JOBS},
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parser(__doc__)
    options.add_argument("--bytes", type=int, default=60_000_000, help="bytes of text [60 MB]")
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
        results = encoding(str(corpus), repeats=given.repeats)
        results |= jobs(str(corpus), work, repeats=given.repeats)
        rate = results["text_megabytes"] / results["recipe_cpu_secs"]
        results["recipe_to_backend"] = round(rate / results["tiktoken_mb_per_cpu_sec"], 2)
        report(results, given.json)
        return results
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
