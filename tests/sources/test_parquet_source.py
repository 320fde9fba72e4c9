"""Parquet: row groups, types, selected columns, damage."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from beam_pipes.errors import MissingExtraError, SourceError
from beam_pipes.sources import Parquet


def write(path: Path, columns: dict[str, Any], *, row_group_size: int = 10) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)


def read(source: Parquet, target: int = 1 << 30) -> list[dict[str, Any]]:
    shards = source.plan(target_shard_bytes=target).shards
    return [value for shard in shards for batch in source.read(shard, batch_records=7) for value in batch.values]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


def test_values_are_pythons_and_lists_of_numbers_are_arrays(path):
    day = datetime.datetime(2024, 1, 2)
    columns = {
        "i": [1, None],
        "s": ["ä", "b"],
        "y": [b"x", b""],
        "ints": pyarrow.array([[1, 2], []], pyarrow.list_(pyarrow.int32())),
        "floats": [[0.5], None],
        "holes": [[1, None], [2]],
        "words": [["a"], ["b", "c"]],
        "when": [day, day],
        "both": [{"a": 1}, {"a": 2}],
        "coded": pyarrow.array(["x", "y"]).dictionary_encode(),
    }
    write(path, columns)

    first, second = read(Parquet(path))

    assert (first["i"], first["s"], first["y"], first["when"], first["both"]) == (1, "ä", b"x", day, {"a": 1})
    assert first["ints"].dtype == np.int32
    assert (first["ints"].tolist(), second["ints"].tolist()) == ([1, 2], [])
    assert (first["floats"].tolist(), second["floats"], second["i"]) == ([0.5], None, None)
    assert (first["holes"], second["holes"]) == ([1, None], [2])
    assert (second["words"], second["coded"]) == (["b", "c"], "y")


def test_large_files_are_split_between_row_groups(path):
    write(path, {"n": list(range(95))})
    source = Parquet(path)

    shards = source.plan(target_shard_bytes=100).shards

    assert [(piece.start, piece.end) for shard in shards for piece in shard.slices] == [
        (n, min(n + 10, 95)) for n in range(0, 95, 10)
    ]
    assert [value["n"] for value in read(source, 100)] == list(range(95))
    ids = [record_id for shard in shards for batch in source.read(shard) for record_id in batch.record_ids()]
    assert ids == [f"a.parquet@{n}" for n in range(95)]


def test_columns_are_selected_in_order_and_others_do_not_count(path):
    write(path, {"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    source = Parquet(path, columns=["c", "a"])
    before = source.plan(target_shard_bytes=100).shards
    assert [list(row.items()) for row in read(source)] == [[("c", 5), ("a", 1)], [("c", 6), ("a", 2)]]

    write(path, {"a": [1, 2], "b": [7, 8], "c": [5, 6]})
    assert source.plan(target_shard_bytes=100).shards[0].fingerprint() == before[0].fingerprint()

    write(path, {"a": [1, 9], "b": [7, 8], "c": [5, 6]})
    assert source.plan(target_shard_bytes=100).shards[0].fingerprint() != before[0].fingerprint()


def test_the_type_of_a_column_counts(path):
    def fingerprint(kind: Any) -> str:
        write(path, {"a": pyarrow.array([1, 2], kind)})
        return Parquet(path).plan(target_shard_bytes=100).shards[0].fingerprint()

    assert fingerprint(pyarrow.int64()) != fingerprint(pyarrow.timestamp("ns"))


def test_an_empty_table_has_no_records(path):
    write(path, {"a": pyarrow.array([], pyarrow.int64())})

    assert Parquet(path).plan(target_shard_bytes=100).shards == ()


def test_a_missing_column_is_named(path):
    write(path, {"a": [1]})

    with pytest.raises(SourceError, match=r"a.parquet should have columns \['b'\], found \['a'\]: \['b'\] missing"):
        Parquet(path, columns=["b"]).plan(target_shard_bytes=100)


@pytest.mark.parametrize("content", [b"PAR1", b"not parquet at all", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_named(path, content):
    path.write_bytes(content)

    with pytest.raises(SourceError, match="input a.parquet cannot be read"):
        Parquet(path).plan(target_shard_bytes=100)


def test_a_file_that_was_replaced_after_planning_is_named(path):
    write(path, {"n": list(range(30))})
    source = Parquet(path)
    (shard,) = source.plan(target_shard_bytes=1 << 20).shards
    write(path, {"n": list(range(20))})

    with pytest.raises(SourceError, match="input a.parquet has 20 rows, expected 30; plan again"):
        next(source.read(shard))

    write(path, {"n": list(range(40))}, row_group_size=40)
    with pytest.raises(SourceError, match="rows 0 to 30 should be whole row groups, found one from 0 to 40"):
        next(source.read(shard))


@pytest.mark.parametrize("columns", [[], "ab", [3]])
def test_columns_are_checked(columns):
    with pytest.raises(SourceError, match="columns should be a list of names"):
        Parquet("x", columns=columns)


def test_a_row_that_is_no_arrow_stream_does_not_parse():
    with pytest.raises(SourceError, match="expected one row as an Arrow stream"):
        Parquet("x").parse(b"nonsense", file="a", position=0)


def test_without_pyarrow_the_command_that_installs_it_is_named(path, monkeypatch):
    write(path, {"a": [1]})
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(MissingExtraError, match=r"Parquet needs pyarrow.*pip install 'beam-pipes\[sources\]'"):
        Parquet(path).plan(target_shard_bytes=100)
