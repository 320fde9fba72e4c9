"""Columns beside shards: computed by builds, joined by row, usable wherever a split is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow_datasets as tfds

from beam_pipes import Cache, FeatureSpec, Loader, add_column, build, stage, with_columns, write_cache
from beam_pipes.building.takedown import take_down
from beam_pipes.columns import column_path
from beam_pipes.errors import CacheError, CacheNotFoundError, DeclarationError, ExpectationError, ExportError
from beam_pipes.export import export
from beam_pipes.loader import Mixture, Windows, pack
from beam_pipes.report.forgetting import forgetting
from beam_pipes.runners import BeamOptions
from beam_pipes.sources import TextLines

SCORE = FeatureSpec("float32")


@stage
def score(record: dict[str, Any]) -> dict[str, Any]:
    return {"score": np.float32(len(record["tokens"]) / 7)}


@stage
def halves(record: dict[str, Any]) -> dict[str, Any]:
    return {"halves": record["tokens"] // 2}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of two splits, the first in three shards, with two columns."""
    path = tmp_path_factory.mktemp("columns") / "cache"
    rows = [{"id": n, "tokens": np.arange(n, n + n % 7 + 1, dtype=np.int32)} for n in range(100)]
    features = {"id": FeatureSpec("int64"), "tokens": FeatureSpec("int32", shape=(None,))}
    write_cache(path, {"train": rows, "eval": rows[:5]}, features=features, num_shards=3)
    add_column("score", path, score, feature=SCORE, workers=1)
    add_column("halves", path, halves, workers=1)
    return path


def expected(split: Any) -> list[float]:
    return [np.float32(len(record["tokens"]) / 7) for record in split]


def test_every_record_has_its_value_however_it_is_read(path: Path) -> None:
    plain = Cache.open(path)
    for name in plain.splits:
        split = with_columns(plain[name], "score", "halves")
        assert list(split.spec) == ["halves", "id", "score", "tokens"] and split.spec["score"] == SCORE
        scores = expected(plain[name])
        assert [record["score"] for record in split] == scores
        assert [split[row]["score"] for row in range(-len(split), 0)] == scores
        rows = [4, 0, 3, 4]
        batch = split.gather(rows, features=["id", "score", "halves"])
        assert batch["score"].tolist() == [scores[row] for row in rows]
        for row, halved in zip(rows, batch["halves"], strict=True):
            assert np.trim_zeros(halved, "b").tolist() == np.trim_zeros(plain[name][row]["tokens"] // 2, "b").tolist()
        assert split.lengths("halves").tolist() == plain[name].lengths("tokens").tolist()
        again = pickle.loads(pickle.dumps(split))
        assert [record["score"] for record in again] == scores and list(again.spec) == list(split.spec)


def test_conditions_loaders_packing_windows_and_mixtures_take_it(path: Path) -> None:
    split = with_columns(path / "train", "score", "halves")
    chosen = split.where("score > 0.5 and id < 50")
    assert sorted(record["id"] for record in chosen) == [n for n in range(50) if n % 7 + 1 > 3]

    loader = Loader(chosen, batch_size=4, seed=3, epochs=1, features=["id", "score"])
    seen = {int(each): value for batch in loader for each, value in zip(batch["id"], batch["score"], strict=True)}
    assert seen == {record["id"]: record["score"] for record in chosen}

    rows = next(iter(Loader(pack(split, sequence_length=16, feature="halves"), batch_size=2, seed=1)))
    assert rows["halves"].shape == (2, 16)
    windows = next(iter(Loader(Windows(split, offsets={"halves": range(2)}), batch_size=3, seed=1)))
    assert windows["halves"].shape == (3, 2)
    mixed = Loader(Mixture([(split, 1), (chosen, 1)]), batch_size=4, seed=1, epochs=None, features=["id", "score"])
    for _, batch in zip(range(5), mixed, strict=False):
        assert batch["score"].tolist() == [np.float32((each % 7 + 1) / 7) for each in batch["id"].tolist()]


def test_order_and_states_are_those_without_columns(path: Path) -> None:
    def ids(split: Any, state: Any = None) -> Iterator[list[int]]:
        loader = Loader(split, batch_size=8, seed=9, epochs=2, features=["id"])
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            states.append(loader.state_dict())
            yield batch["id"].tolist()

    states: list[Any] = []
    plain = list(ids(path / "train"))
    assert list(ids(with_columns(path / "train", "score"))) == plain
    assert list(ids(with_columns(path / "train", "score"), states[6])) == plain[7:]


def test_exports_have_the_column(path: Path, tmp_path: Path) -> None:
    cache = with_columns(Cache.open(path), "score")
    export(cache, tmp_path / "parquet", format="parquet")
    table = pyarrow.parquet.read_table(tmp_path / "parquet" / "train.parquet")
    assert table.column("score").to_pylist() == expected(Cache.open(path)["train"])
    export(cache, tmp_path / "tfds", format="tfds")
    rows = tfds.builder_from_directory(tmp_path / "tfds").as_dataset(split="eval").as_numpy_iterator()
    assert [row["score"] for row in rows] == expected(Cache.open(path)["eval"])
    with pytest.raises(ExportError, match=r"stored records, without the columns score of split 'eval'"):
        export(cache, tmp_path / "arrayrecord", format="arrayrecord")


def test_a_record_that_is_taken_down_has_the_value_of_its_stand_in(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{'x' * n}\n" for n in range(1, 30)))
    build("lines", TextLines(tmp_path / "in.txt"), [tokens], to=tmp_path / "cache", workers=1)
    add_column("score", tmp_path / "cache", score, feature=SCORE, workers=1)
    loader = Loader(tmp_path / "cache" / "train", batch_size=4, seed=1, epochs=1)
    found = forgetting(loader, str(tmp_path / "cache"), ["in.txt@0"], last_step=1)
    words = "the column 'score' (columns/score) may hold what was computed from them"
    assert any(words in trace for trace in found.traces)
    take_down(tmp_path / "cache", ["in.txt@0"])

    split = with_columns(tmp_path / "cache" / "train", "score")

    assert len(split.removed_rows) == 1
    assert [record["score"] for record in split] == expected(split)
    assert (
        split.gather(split.removed_rows, features=["score"])["score"][0] == split[int(split.removed_rows[0])]["score"]
    )


@stage
def tokens(line: str) -> dict[str, Any]:
    return {"tokens": np.arange(len(line), dtype=np.int32)}


CALLS: list[int] = []


@stage
def counted(record: dict[str, Any]) -> dict[str, Any]:
    CALLS.append(len(record["tokens"]))
    return {"score": np.float32(len(record["tokens"]) / 7)}


def test_a_new_snapshot_computes_new_shards_and_the_older_one_keeps_its_column(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"in/{name}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / f"in/{name}.txt").write_text("to be\nor not\n")
    cache = tmp_path / "cache"
    build("lines", TextLines(tmp_path / "in"), [tokens], to=cache, workers=1, target_shard_bytes=1)
    older = Cache.open(cache)["train"]
    CALLS.clear()
    add_column("score", cache, counted, feature=SCORE, workers=1)
    assert CALLS == [5, 6, 5, 6]
    add_column("score", cache, counted, feature=SCORE, workers=1)
    assert CALLS == [5, 6, 5, 6]  # up to date

    (tmp_path / "in/c.txt").write_text("that is\n")
    build("lines", TextLines(tmp_path / "in"), [tokens], to=cache, workers=1, target_shard_bytes=1)
    with pytest.raises(CacheError, match=r"the column 'score' in .* was computed for another snapshot than [0-9a-f]+"):
        with_columns(cache / "train", "score")
    add_column("score", cache, counted, feature=SCORE, workers=1)

    assert CALLS == [5, 6, 5, 6, 7]
    assert [record["score"] for record in with_columns(cache / "train", "score")] == [
        np.float32(n / 7) for n in (5, 6, 5, 6, 7)
    ]
    assert len(with_columns(older, "score")) == 4


def test_beam_builds_it_too(path: Path, tmp_path: Path) -> None:
    add_column("by_beam", path, by_beam, options=BeamOptions(runner="DirectRunner"))

    split = with_columns(path / "train", "score", "by_beam")

    assert [record["by_beam"] for record in split] == [record["score"] for record in split]


@stage
def by_beam(record: dict[str, Any]) -> dict[str, Any]:
    return {"by_beam": np.float32(len(record["tokens"]) / 7)}


@stage
def some(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if record["id"] % 2:
        yield {"some": 1}


@stage
def twice(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if record["id"] % 2:
        yield from [{"twice": 1}, {"twice": 2}]


def test_a_value_for_each_record_is_there_or_none(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"train records between 100 and 100"):
        add_column("some", path, some, workers=1)
    assert not Path(column_path("some", path), "manifest.json").exists()

    write_cache(tmp_path / "cache", {"train": [{"id": n} for n in range(10)]})
    add_column("twice", tmp_path / "cache", twice, workers=1)  # as many values as records
    with pytest.raises(CacheError, match=r"has several values for some records and none for others\. A stage has to"):
        with_columns(tmp_path / "cache" / "train", "twice")


def test_errors_say_what_is_wrong(path: Path, tmp_path: Path) -> None:
    with pytest.raises(CacheNotFoundError, match=r"has no column 'scores'.*Compute it: add_column\('scores'"):
        with_columns(path / "train", "scores")
    with pytest.raises(DeclarationError, match=r"column 'score': .* is an open one\. Pass its path, '.*'\."):
        add_column("score", Cache.open(path), score)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"column 'tokens': the split 'eval' of .* has a feature of this name"):
        add_column("tokens", path, score)
    write_cache(tmp_path / "other", {"train": [{"tokens": [1]}]})
    with pytest.raises(CacheError, match=r"has columns that were computed for its own snapshot"):
        with_columns(path / "train", "score").in_snapshot("0" * 16, "")
