"""Analyzers learn from the records of one split, `train` by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from beam_pipes import Cache, Declaration, build, declare, stage
from beam_pipes.analysis import Analyzer
from beam_pipes.errors import DeclarationError
from beam_pipes.sources import CSV, TextLines
from beam_pipes.transforms.analyzers import Count, Moments
from beam_pipes.transforms.by_key import SplitByKey
from beam_pipes.transforms.dedup import ExactDuplicates
from beam_pipes.typed import DAGPipeline, Input, Output, RandomPartition

SHARES = {"train": 0.8, "eval": 0.2}


@stage
def number(row: dict[str, str]) -> float:
    return float(row["x"])


@stage
def example(row: dict[str, str]) -> dict[str, float]:
    return {"x": float(row["x"])}


@pytest.fixture
def rows(tmp_path: Path) -> CSV:
    (tmp_path / "rows.csv").write_text("x\n" + "".join(f"{value}\n" for value in range(500)))
    return CSV(tmp_path / "rows.csv")


def declared(source: Any, analyzers: Sequence[Analyzer], splits: Any = SHARES, **options: Any) -> Declaration:
    return declare("rows", source, [example], splits=splits, analyzers=analyzers, **options)


def learned(declaration: Declaration, path: Path) -> tuple[Cache, Any]:
    """The cache, and the result of its only analyzer."""
    build(declaration, to=path, workers=1)
    cache = Cache.open(path)
    (analyzer,) = declaration.analyzers
    return cache, analyzer.read(cache.asset_path(analyzer.name))


@pytest.mark.parametrize("split", ["train", "eval"])
def test_an_analyzer_sees_the_records_of_its_split(rows: CSV, tmp_path: Path, split: str) -> None:
    moments = Moments("m", of=number, split=split)

    cache, found = learned(declared(rows, [moments], seed=3, target_shard_bytes=200), tmp_path / "cache")

    values = [row["x"] for row in cache[split]]
    assert found.count == len(values) and found.mean == pytest.approx(sum(values) / len(values))


def test_train_is_the_default_and_none_is_everything(rows: CSV, tmp_path: Path) -> None:
    cache, seen = learned(declared(rows, [Count("n")]), tmp_path / "cache")
    assert seen == len(cache["train"]) < 500
    assert learned(declared(rows, [Count("n", split=None)]), tmp_path / "all")[1] == 500


def test_other_shares_are_another_result(rows: CSV, tmp_path: Path) -> None:
    for share in (0.8, 0.5):
        splits = {"train": share, "eval": 1 - share}
        cache, seen = learned(declared(rows, [Count("n")], splits), tmp_path / "cache")
        assert seen == len(cache["train"])


def test_with_a_source_for_each_split_other_shards_are_not_read(tmp_path: Path) -> None:
    for split, lines in (("train", 30), ("eval", 20)):
        (tmp_path / f"{split}.csv").write_text("x\n" + "".join(f"{value}\n" for value in range(lines)))
    source = {split: CSV(tmp_path / f"{split}.csv") for split in ("train", "eval")}
    assert learned(declared(source, [Count("n")], None), tmp_path / "cache")[1] == 30


def test_partitions_one_after_the_other(rows: CSV, tmp_path: Path) -> None:
    first = RandomPartition(dict, ["rest", "test"], [0.8])
    second = RandomPartition(dict, ["train", "eval"], [0.5], name="Second")
    stored = stage(example)
    dag = DAGPipeline(
        {
            stored: Input(dict),
            first: stored,
            second: first["rest"],
            Output(): {"train": second["train"], "eval": second["eval"], "test": first["test"]},
        }
    )
    cache, seen = learned(Declaration(name="rows", source=rows, pipeline=dag, analyzers=[Count("n")]), tmp_path / "c")
    assert seen == len(cache["train"]) and 120 < seen < 280


def test_duplicates_are_looked_for_in_all_splits(rows: CSV, tmp_path: Path) -> None:
    assert ExactDuplicates("d").split is None
    declared(rows, [ExactDuplicates("d")], SplitByKey(SHARES, key="x"))


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        pytest.param(
            SplitByKey(SHARES, key="x"),
            "the analyzer 'n' learns from the split 'train', but which records go there is only known after "
            "'SplitByKey' has seen what the stages made of them. Divide by splits={name: share}, give each split a "
            "source, or write split=None to learn from the records of all splits ('train', 'eval').",
            id="by_key",
        ),
        pytest.param(
            {"a": 0.5, "b": 0.5},
            "the analyzer 'n' learns from the split 'train', and the splits are 'a', 'b'. Give it split='...', one of "
            "them, or split=None to learn from the records of all splits.",
            id="no_train",
        ),
    ],
)
def test_what_cannot_be_known_is_asked(rows: CSV, splits: Any, words: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(rows, [Count("n")], splits)
    assert words in str(caught.value)
    declared(rows, [Count("n", split=None)], splits)


def test_a_single_split_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")

    def text(line: str) -> dict[str, str]:
        return {"text": line}

    declaration = declare("a", TextLines(tmp_path / "a.txt"), [text], split="all", analyzers=[Count("n")])
    assert learned(declaration, tmp_path / "cache")[1] == 2


def test_the_build_says_what_was_learned_from(rows: CSV, tmp_path: Path) -> None:
    result = build(declared(rows, [Count("n"), Count("m", split=None)]), to=tmp_path / "cache", workers=1)
    assert result.analysis is not None
    found: dict[str, Mapping[str, Any]] = {row["name"]: row for row in result.analysis.rows}
    train = len(Cache.open(tmp_path / "cache")["train"])
    assert (found["n"]["split"], found["n"]["records"]) == ("train", train)
    assert (found["m"]["split"], found["m"]["records"]) == (None, 500)
