"""The text-to-text task of `benchmarks.tasks`: its corpus, its vocabulary, its functions for every alternative.

Imported by workers of builds, which need the task registered: the corpus stands in an environment variable.
"""

from __future__ import annotations

import ast
import glob
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes import tasks

CORPUS_VARIABLE = "BEAM_PIPES_BENCHMARK_PAIRS"
TASK = "text_to_text"
PAIR_LENGTHS = [{"inputs": 512, "targets": 128}, {"inputs": 96, "targets": 32}, {"inputs": 64, "targets": 24}]
CODE_LENGTHS = [{"inputs": 2048, "targets": 512}, {"inputs": 1024, "targets": 256}, {"inputs": 512, "targets": 128}]
ROW_LENGTH = 1024

_LONGEST_WORDS = 400


def write_pairs(directory: Path, num_bytes: int) -> None:
    """Real text (the Python sources of this installation) as lines `inputs TAB targets`: the end of a paragraph is to
    be predicted from its beginning. Files of about 10 MB."""
    from benchmarks.build import write_corpus

    paragraphs = directory / "paragraphs"
    write_corpus(paragraphs, num_bytes)
    for path in sorted(paragraphs.glob("*.txt")):
        with open(path, encoding="utf-8") as lines, open(directory / f"{path.stem}.tsv", "w", encoding="utf-8") as out:
            for line in lines:
                words = line.split()[:_LONGEST_WORDS]
                cut = len(words) - len(words) // 4
                if len(words) >= 4:
                    out.write(f"{' '.join(words[:cut])}\t{' '.join(words[cut:])}\n")
        path.unlink()
    paragraphs.rmdir()


def documented_code() -> Iterator[dict[str, str]]:
    """The functions and classes of this Python's standard library that have a docstring: the code as inputs, the
    docstring as targets. Their lengths are nearly independent."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (UnicodeDecodeError, SyntaxError):  # not every file is meant to be parsed
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (said := ast.get_docstring(node)):
                yield {"inputs": ast.get_source_segment(source, node) or "", "targets": said}


def train_vocabulary(directory: Path, vocab_size: int) -> None:
    """A SentencePiece model of the corpus, with the ids of T5."""
    import sentencepiece

    files = sorted(map(str, directory.glob("*.tsv")))
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(files),
        model_prefix=str(directory / "vocabulary"),
        vocab_size=vocab_size,
        model_type="unigram",
        hard_vocab_limit=False,
        input_sentence_size=20_000,
        shuffle_input_sentence=True,
        max_sentence_length=2_000,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=os.cpu_count() or 1,
        minloglevel=2,
    )


def split_columns(line: bytes) -> dict[str, str]:
    """The two columns of a line."""
    inputs, targets = line.decode().split("\t")
    return {"inputs": inputs, "targets": targets}


def raw_lines(corpus: str) -> Iterator[bytes]:
    """The lines of the corpus."""
    for path in sorted(glob.glob(f"{corpus}/*.tsv")):
        with open(path, "rb") as file:
            for line in file:
                yield line.rstrip(b"\n")


def encoded(vocabulary: Any, example: dict[str, str]) -> dict[str, Any]:
    """The result of `tokenize` for an example."""
    made: dict[str, Any] = {}
    for name, text in example.items():
        made[f"{name}_pretokenized"] = text.encode()
        made[name] = np.asarray(vocabulary.encode(text), np.int32)
    return made


def vocabulary_of(corpus: str) -> tasks.Vocabulary:
    return tasks.SentencePieceVocabulary(f"{corpus}/vocabulary.model")


def add_task(corpus: str) -> tasks.Task:
    """Registers the task."""
    vocabulary = vocabulary_of(corpus)
    return tasks.TaskRegistry.add(
        TASK,
        tasks.TextLineDataSource({"train": f"{corpus}/*.tsv"}),
        {"inputs": tasks.Feature(vocabulary, add_eos=False), "targets": tasks.Feature(vocabulary)},
        [
            tasks.python_map(split_columns),
            tasks.preprocessors.tokenize,
            tasks.CacheDatasetPlaceholder(),
            tasks.preprocessors.append_eos_after_trim,
        ],
    )


if CORPUS_VARIABLE in os.environ:
    add_task(os.environ[CORPUS_VARIABLE])
