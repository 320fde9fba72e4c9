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


def test_a_row_that_is_not_an_arrow_stream_does_not_parse():
    with pytest.raises(SourceError, match="expected one row as an Arrow stream"):
        Parquet("x").parse(b"nonsense", file="a", position=0)


def test_without_pyarrow_the_command_that_installs_it_is_named(path, monkeypatch):
    write(path, {"a": [1]})
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)

    with pytest.raises(MissingExtraError, match=r"Parquet needs pyarrow.*pip install 'beam-pipes\[sources\]'"):
        Parquet(path).plan(target_shard_bytes=100)


def test_a_change_of_a_column_with_a_dot_in_its_name_is_noticed(path):
    columns = {"user.id": [1, 2], "user": [{"id": 3, "tags": ["a"]}, {"id": 4, "tags": []}], "x": [0, 0]}
    sources = [Parquet(path), Parquet(path, columns=["user.id"]), Parquet(path, columns=["user"])]

    def plans() -> list[str]:
        return [source.plan(target_shard_bytes=100).shards[0].fingerprint() for source in sources]

    write(path, columns)
    before = plans()
    assert [row["user.id"] for row in read(sources[1])] == [1, 2]
    write(path, {**columns, "user.id": [7, 8]})
    of_dotted = plans()
    write(path, {**columns, "user": [{"id": 3, "tags": ["b"]}, {"id": 4, "tags": []}]})
    of_nested = plans()

    assert [a == b for a, b in zip(before, of_dotted, strict=True)] == [False, False, True]
    assert [a == b for a, b in zip(before, of_nested, strict=True)] == [False, True, False]


def test_a_column_that_is_there_twice_is_refused(path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
    pyarrow.parquet.write_table(table, path)

    with pytest.raises(SourceError, match=r"each column once, found twice: \['a'\]. Rename them"):
        read(Parquet(path))


def test_values_of_nanoseconds_are_those_of_pyarrow_wherever_they_are(path):
    whole = [1_700_000_000_000_000_000, None, -5000]
    kinds = [pyarrow.timestamp("ns"), pyarrow.timestamp("ns", "Europe/Berlin"), pyarrow.duration("ns")]
    kinds.append(pyarrow.time64("ns"))
    columns = {}
    for number, kind in enumerate(kinds):
        times = pyarrow.array([5_000_000, None, 7000] if pyarrow.types.is_time(kind) else whole, kind)
        columns[f"plain{number}"] = times
        columns[f"struct{number}"] = pyarrow.StructArray.from_arrays([times, times], ["a", "b"])
        columns[f"list{number}"] = pyarrow.array([times.to_pylist(), [], None], pyarrow.list_(kind))
        columns[f"deep{number}"] = pyarrow.array([[{"a": times.to_pylist()}], None, []])
        columns[f"map{number}"] = pyarrow.array([[("k", times[0].as_py())], None, []], pyarrow.map_("string", kind))
        columns[f"coded{number}"] = times.dictionary_encode()
    write(path, columns, row_group_size=2)
    with_pandas = pyarrow.parquet.read_table(path).to_pylist()

    rows = read(Parquet(path))

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(plain, value))
        to_python = getattr(value, "to_pydatetime", getattr(value, "to_pytimedelta", None))
        return value if to_python is None else to_python()

    assert rows == plain(with_pandas)
    assert {type(rows[0][f"plain{n}"]) for n in range(4)} == {datetime.datetime, datetime.timedelta, datetime.time}


def test_parts_of_a_microsecond_are_kept(path):
    kinds = [pyarrow.timestamp("ns"), pyarrow.timestamp("ns", "Europe/Berlin"), pyarrow.duration("ns")]
    kinds.append(pyarrow.time64("ns"))
    write(path, {str(kind): pyarrow.array([1001], kind) for kind in kinds} | {"n": [[{"t": np.datetime64(7, "ns")}]]})

    (row,) = read(Parquet(path))

    instant, zoned, length, time, nested = row.values()
    assert (instant, length, time) == (
        np.datetime64(1001, "ns"),
        np.timedelta64(1001, "ns"),
        "00:00:00.000001001",
    )
    assert zoned == "1970-01-01 01:00:00.000001001+01:00"
    assert nested == [{"t": np.datetime64(7, "ns")}]


def test_partitions_are_columns(tmp_path):
    import pyarrow.dataset

    sales = pyarrow.table({"n": [1, 2, 3, 4], "year": [2023, 2024, 2024, 2024], "city": ["Köln", "a b", None, "x=y"]})
    kinds = pyarrow.schema([("year", pyarrow.int64()), ("city", pyarrow.string())])
    pyarrow.dataset.write_dataset(
        sales, tmp_path, format="parquet", partitioning=pyarrow.dataset.partitioning(kinds, flavor="hive")
    )
    source = Parquet(tmp_path, partitions={"year": "int64", "city": "str"})

    rows = read(source)

    assert sorted(rows, key=lambda row: row["n"]) == sales.to_pylist()
    (batch,) = (batch for batch in source.read(source.plan(target_shard_bytes=1).shards[0]))
    assert source.parse(batch.raw(0), file=batch.file(0), position=0) == batch.values[0]
    with pytest.raises(
        SourceError, match=r"a directory of the partition 'month' .*\(such as month=1\), found \{'year'"
    ):
        read(Parquet(tmp_path, partitions={"month": "int64"}))


def test_a_null_in_lists_of_a_fixed_size_is_refused_with_what_to_do(path):
    write(path, {"v": pyarrow.array([[1.0, 2.0], None], pyarrow.list_(pyarrow.float32(), 2))})

    with pytest.raises(SourceError, match="no null in a column of lists of a fixed size: write it as a list of any"):
        read(Parquet(path))
