"""The benchmark of tasks, on a corpus of a few hundred lines and without the alternatives that need TensorFlow."""

from __future__ import annotations

import ast
import itertools
import textwrap
from pathlib import Path

import pytest
from cached_tasks import fresh_registries

from benchmarks import tasks as benchmark
from benchmarks import text_to_text


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    text_to_text.write_pairs(directory, 150_000)
    text_to_text.train_vocabulary(directory, 500)
    return directory


def test_the_benchmark_builds_reads_and_mixes(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    lines = list(text_to_text.raw_lines(str(corpus)))
    vocabulary = text_to_text.vocabulary_of(str(corpus))
    with fresh_registries(tmp_path / "caches"):
        text_to_text.add_task(str(corpus))

        built = benchmark.build_ours(str(corpus), str(tmp_path / "caches"), 1)
        read = benchmark.read_ours(str(tmp_path / "caches"), 0.1)
        density = benchmark.densities(str(tmp_path / "caches"))
        many = benchmark.many_tasks(str(tmp_path / "caches"), str(tmp_path / "copies"), 5)

    made = [text_to_text.encoded(vocabulary, text_to_text.split_columns(line)) for line in lines]
    assert built["examples"] == len(lines) > 100
    assert 0 < built["cpu_secs"]
    assert built["targets_tokens"] == sum(len(example["targets"]) for example in made)
    assert read["tokens"] > 0 and read["rows"] > 0
    assert 0.5 < density["density"] <= 1 and density["density_online"] <= density["density"]
    assert all(0.5 < ratio <= 1 for ratio in density["rows_to_next_fit"].values())
    assert many["threads"] < 64 and many["tasks"] == 5


def test_code_and_its_docstrings_are_packed_too(corpus: Path) -> None:
    pairs = list(itertools.islice(text_to_text.documented_code(), 100))

    rows = benchmark.rows_of(pairs, text_to_text.vocabulary_of(str(corpus)))

    assert all(ast.parse(textwrap.dedent(pair["inputs"])) and pair["targets"] for pair in pairs)
    assert list(rows) == ["2048/512", "1024/256", "512/128"] and all(0.5 < ratio <= 1 for ratio in rows.values())


def test_a_part_of_the_corpus_is_its_beginning(corpus: Path, tmp_path: Path) -> None:
    part = benchmark.part_of(corpus, tmp_path / "part", 2_000)

    lines, whole = list(text_to_text.raw_lines(str(part))), text_to_text.raw_lines(str(corpus))
    assert lines == [line for line, _ in zip(whole, lines, strict=False)] and sum(map(len, lines)) < 20_000
    assert (part / "vocabulary.model").read_bytes() == (corpus / "vocabulary.model").read_bytes()
