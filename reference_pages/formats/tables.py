"""Files of rows: CSV, TSV, JSON Lines, Parquet, Arrow, by the sources that read them and by the recipe `table`."""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.recipes import table
from beam_pipes.sources import CSV, TSV, ArrowRows, JSONLines, Parquet
from reference_pages.formats.rows import (
    BadRecord,
    LeftOut,
    Read,
    Reference,
    Refused,
    Row,
    library,
    of_recipe,
    of_source,
    only,
    several,
    stated,
    text,
)

read_csv = of_source(lambda path: CSV(only(path)))
read_tsv = of_source(lambda path: TSV(only(path)))
read_json = of_source(lambda path: JSONLines(only(path)))
read_parquet = of_source(lambda path: Parquet(only(path)))
read_arrow = of_source(lambda path: ArrowRows(only(path)))


def typed(**options: Any) -> Callable[[Path], Any]:
    """What the recipe `table` makes of a directory."""
    return of_recipe(lambda path: table(str(path), **options))


def parquet(columns: Callable[[], dict[str, Any]], name: str = "a.parquet", **options: Any) -> Callable[[Path], object]:
    """Writes a file of Parquet with these columns, by pyarrow."""

    def write(directory: Path) -> None:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        library("pyarrow.parquet").write_table(library("pyarrow").table(columns()), directory / name, **options)

    return write


def arrow(kind: str, **options: Any) -> Callable[[Path], object]:
    """Writes an Arrow file: of IPC a "stream" or a "file"."""

    def write(directory: Path) -> None:
        ipc, rows = library("pyarrow.ipc"), library("pyarrow").table({"n": [1, None], "v": [[0.5, 2.0], []]})
        made = ipc.IpcWriteOptions(**options)
        with getattr(ipc, f"new_{kind}")(str(directory / "a.arrow"), rows.schema, options=made) as writer:
            writer.write_table(rows)

    return write


# References.


def _rows_of_csv(directory: Path, **options: Any) -> list[dict[str, Any]]:
    with open(only(directory), encoding="utf-8-sig", newline="") as file:
        return [*csv.DictReader(file, **options)]


BY_CSV = Reference("`csv`", _rows_of_csv)
WITHOUT_QUOTES = Reference("`csv`, without quotes", lambda path: _rows_of_csv(
    path, delimiter="\t", quoting=csv.QUOTE_NONE))  # fmt: skip
BY_JSON = Reference("`json`", lambda path: [
    json.loads(line) for line in only(path).read_text("utf-8-sig").split("\n") if line.strip()])  # fmt: skip
BY_PYARROW = Reference("pyarrow", lambda path: library("pyarrow.parquet").ParquetFile(only(path)).read().to_pylist())
BY_IPC = Reference("pyarrow", lambda path: library("pyarrow.ipc").open_stream(only(path).read_bytes()).read_all(
    ).to_pylist())  # fmt: skip


def by_pandas(**options: Any) -> Reference:
    def read(directory: Path) -> Sequence[object]:
        found: Sequence[object] = library("pandas").read_csv(only(directory), **options).to_dict("records")
        return found

    return Reference("pandas", read)


def column(name: str, *values: object, of: str) -> Reference:
    """Rows with this one column, which the row states."""
    return stated(of, *({name: value} for value in values))


def _types() -> dict[str, Any]:
    pa = library("pyarrow")
    return {
        "bool": [True, None], "int8": pa.array([-128, 127], pa.int8()), "uint64": pa.array([2**64 - 1, 0], pa.uint64()),
        "half": pa.array(np.array([0.5, 2], np.float16)), "float": pa.array([0.1, None], pa.float32()),
        "double": [0.1, math.nan], "text": ["é", None], "large text": pa.array(["a", "b"], pa.large_string()),
        "bytes": [b"\xff", None], "fixed bytes": pa.array([b"ab", b"cd"], pa.binary(2)), "null": pa.nulls(2),
        "coded": pa.array(["x", "y"]).dictionary_encode(),
    }  # fmt: skip


def _nested() -> dict[str, Any]:
    pa = library("pyarrow")
    return {
        "numbers": [[1, 2], []], "holes": [[1, None], None], "texts": [["a"], ["b", "c"]], "deep": [[[1], [2, 3]], []],
        "struct": [{"a": 1, "b": ["x"]}, None], "structs": [[{"a": 1}], []],
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "fixed": pa.array([[0.5, 1.5], [2.5, 3.5]], pa.list_(pa.float32(), 2)),
    }  # fmt: skip


def _times() -> dict[str, Any]:
    pa, noon = library("pyarrow"), datetime.datetime(2024, 1, 2, 12, 30)
    return {
        "date": [noon.date()], "time": [noon.time()], "instant": [noon], "s": pa.array([noon], pa.timestamp("s")),
        "zoned": pa.array([noon], pa.timestamp("us", "Europe/Berlin")), "length": [datetime.timedelta(seconds=1.5)],
        "ns": pa.array([1_000_000], pa.timestamp("ns")),
    }  # fmt: skip


def _partitioned(directory: Path) -> None:
    dataset, pa = library("pyarrow.dataset"), library("pyarrow")
    rows = pa.table({"n": [1, 2, 3], "year": [2023, 2024, 2024], "city": ["Köln", "a b", None]})
    kinds = pa.schema([("year", pa.int64()), ("city", pa.string())])
    by_hive = dataset.partitioning(kinds, flavor="hive")
    dataset.write_dataset(rows, directory, format="parquet", partitioning=by_hive)


def _by_dataset(directory: Path) -> list[Any]:
    kinds = library("pyarrow").schema([("year", library("pyarrow").int64()), ("city", library("pyarrow").string())])
    by_hive = library("pyarrow.dataset").partitioning(kinds, flavor="hive")
    found = library("pyarrow.dataset").dataset(directory, format="parquet", partitioning=by_hive)
    return sorted(found.to_table().to_pylist(), key=lambda row: row["n"])


def _read_partitioned(directory: Path) -> Any:
    found = of_source(lambda path: Parquet(path, partitions={"year": "int64", "city": "str"}))(directory)
    return found._replace(values=sorted(found.values, key=lambda row: row["n"]))


def _encrypted(directory: Path) -> None:
    (directory / "a.parquet").write_bytes(b"PARE" + bytes(100) + b"PARE")


def _two_columns_of_a_name(directory: Path) -> None:
    pa = library("pyarrow")
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    library("pyarrow.parquet").write_table(rows, directory / "a.parquet")


def _cut(write: Callable[[Path], object]) -> Callable[[Path], object]:
    def write_half(directory: Path) -> None:
        write(directory)
        path = only(directory)
        path.write_bytes(path.read_bytes()[:-100])

    return write_half


def _by_standard_library(directory: Path) -> list[Any]:
    """Rows of one of the compressed files below."""
    path = only(directory)
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".zst": library("zstandard").open}[path.suffix]
    with opened(path, "rb") as file:
        return [*csv.DictReader(io.StringIO(file.read().decode()))]


N = "n\n1\n2\n"


def _one() -> dict[str, Any]:
    return {"n": [1]}


CSV_ROWS = [
    Row("CSV", "quotes, doubled quotes, delimiters and newlines in quotes",
        text("a.csv", 'a,b\n"x,y","say ""hi"""\n"two\r\nlines",z\n'), read_csv, Read(BY_CSV)),
    Row("CSV", "CRLF, blank lines, no newline at the end", text("a.csv", "a,b\r\n\r\n1,2\r\n3,4"), read_csv,
        Read(BY_CSV)),
    Row("CSV", "a byte order mark", text("a.csv", "\ufeff" + N), read_csv, Read(Reference(
        "`csv`, utf-8-sig", _rows_of_csv), "ignored")),
    Row("CSV", "no header, with `CSV(columns=[…], header=False)`", text("a.csv", "1\n2\n"), of_source(
        lambda path: CSV(only(path), columns=["n"], header=False)), Read(column("n", "1", "2", of="–"))),
    Row("CSV", "CR alone", text("a.csv", N.replace("\n", "\r")), read_csv, Refused("found CR alone")),
    Row("CSV", "UTF-16", text("a.csv", N.encode("utf-16")), read_csv, Refused(
        "It begins as UTF-16 does: convert it to UTF-8")),
    *(Row(name, "UTF-16 without a byte order mark", text(file, content.encode("utf-16-be")), read, Refused(
          "iconv -f UTF-16BE -t UTF-8"))
      for name, file, content, read in (("CSV", "a.csv", "n,m\n1,2\n", read_csv),
                                        ("TSV", "a.tsv", "n\tm\n1\t2\n", read_tsv),
                                        ("JSON Lines", "a.jsonl", '{"a": 1}\n', read_json))),
    Row("CSV", "a row that is not UTF-8", text("a.csv", b"n\n1\n\xff\n2\n"), read_csv,
        BadRecord("expected UTF-8, found byte 0xff in field 1", column("n", "1", "2", of="–"))),
    Row("CSV", "a row of another number of fields", text("a.csv", N + "3,4\n"), read_csv,
        BadRecord("expected 1 fields (n), found 2", column("n", "1", "2", of="–"))),
    Row("CSV", "a quote that is not closed", text("a.csv", 'n\n1\n"2\n3\n'), read_csv,
        BadRecord("expected every quote that opens in this row to be closed", column("n", "1", "3", of="–"))),
    Row("CSV", "columns without a name, names that are there twice", text("a.csv", ",a,a\n0,1,2\n"), typed(),
        Read(by_pandas(), "named as pandas names them, and told; the source `CSV` asks for `columns`")),
    Row("CSV", "text among numbers, such as `NA` or `1,234`", text("a.csv", "n\n1\nNA\n2\n"), typed(), Refused(
        "holds a number in 2 of the first 3 rows that have a value, but text in 'a.csv@4'")),
    Row("CSV", "a column that only some files have", several(text("a.csv", "n\n1\n"), text("b.csv", "n,more\n1,2\n"),
        text("c.csv", "n\n1\n")), typed(), Refused("the column 'more' is in 'b.csv', and 'a.csv' has none")),
    Row("CSV", "semicolons between the fields, no commas", text("a.csv", "a;b\n1;2\n"), typed(),
        Refused("has no comma, but 1 times ';'")),
    Row("CSV", "the same with `--delimiter ';'`", text("a.csv", "a;b\n1;2.5\n"), typed(delimiter=";"),
        Read(by_pandas(sep=";"))),
    Row("CSV", "integers, floats, words of truth", text("a.csv", "i,f,b,s\n1,0.5,true,x\n-2,1e3,false,y\n"), typed(),
        Read(by_pandas(), "`int64`, `float32`, `bool`, text")),
    Row("CSV", "a number is missing", text("a.csv", "i,f\n1,0.5\n,\n"), typed(), Read(by_pandas(), "NaN in a float")),
    Row("CSV", "integers with gaps that no float holds", text("a.csv", "i,s\n9007199254740993,x\n,y\n"), typed(),
        Read(BY_CSV, "text; pandas rounds them")),
    Row("CSV", "numbers with leading zeros, dates, amounts", text(
        "a.csv", "zip,day,euros\n02139,2024-01-02,1.234€\n"), typed(), Read(BY_CSV, "text")),
    Row("CSV", "`NA`, `null`, `None`", text("a.csv", "s\nNA\nnull\nNone\nx\n"), typed(), Read(
        BY_CSV, "text among text; pandas takes them for missing")),
    Row("CSV", "the same with `--null NA`", text("a.csv", "n\n1\nNA\n"), typed(null=["NA"]), Read(
        by_pandas(), "missing")),
    Row("CSV", "no header", text("a.csv", "5.5,2,wasp\n7,4,bee\n"), typed(), Refused(
        "to name the columns, found data")),
    Row("CSV", "the same with `--names a,b,c`", text("a.csv", "5.5,2,wasp\n7,4,bee\n"), typed(names=["a", "b", "c"]),
        Read(by_pandas(names=["a", "b", "c"]))),
    Row("CSV", "decimal commas, with `--delimiter ';' --decimal ,`", text("a.csv", "x;n\n1,5;2\n;-3\n"), typed(
        delimiter=";", decimal=","), Read(by_pandas(sep=";", decimal=","))),
    Row("CSV", "some of the columns, with `--columns a,c`", text("a.csv", "a,b,c\n1,x,0.5\n"), typed(
        columns=["a", "c"]), Read(by_pandas(usecols=["a", "c"]))),
    Row("CSV", "numbers beyond float64", text("a.csv", "x\n0.5\n1e400\n"), of_source(
        lambda path: CSV(only(path), schema={"x": float})),
        BadRecord("expected a number in the range of float64, got '1e400'", column("x", 0.5, of="–"))),
    Row("CSV", "integers that a column of floats does not hold", text("a.csv", "x\n0.5\n9007199254740993\n"), of_source(
        lambda path: CSV(only(path), schema={"x": float})),
        BadRecord("expected a number that is exact in float64, got 9007199254740993", column("x", 0.5, of="–"))),
    Row("CSV", "zeros in front, such as `007`, where rows that types were inferred from have none", text(
        "a.csv", "n\n7\n007\n"), of_source(lambda path: CSV(only(path), schema={"n": int}, inferred=["n"])),
        BadRecord("expected a number, got '007', whose zeros would be lost", column("n", 7, of="–"))),
    Row("CSV", "`1` where rows that types were inferred from have `true` and `false`", text("a.csv", "b\ntrue\n1\n"),
        of_source(lambda path: CSV(only(path), schema={"b": bool}, inferred=["b"])),
        BadRecord("expected true or false, as the rows that types were inferred from have them, got '1'",
                  column("b", True, of="–"))),
    Row("CSV", "a missing integer, with `--type n=int64`", text("a.csv", "n,s\n1,x\n,y\n"),
        typed(types={"n": "int64"}), Refused("expected an int, got ''. Repair the input, declare a different type")),
    *(Row("CSV", f"`{suffix}`", text(f"a.csv{suffix}", compress(N.encode())), read_csv, Read(
          Reference(name, _by_standard_library)))
      for suffix, compress, name in ((".gz", gzip.compress, "`gzip`"), (".bz2", bz2.compress, "`bz2`"))),
    Row("CSV", "`.zst`", lambda path: (path / "a.csv.zst").write_bytes(
        library("zstandard").compress(N.encode())), read_csv, Read(Reference("zstandard", _by_standard_library))),
    Row("CSV", "compressed, and the name does not say so", text("a.csv", gzip.compress(N.encode())),
        read_csv, Refused("It begins as gzip data do: give the file a name that ends in .gz")),
    Row("CSV", "a pointer of Git LFS", text("a.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        read_csv, Refused("stands for another file. It begins as a pointer of Git LFS does: fetch what")),
    Row("CSV", "a database of SQLite under its name", text("a.csv", b"SQLite format 3\0"), read_csv,
        Refused("It begins as a database of SQLite does: sqlite3 -header -csv FILE")),
    Row("CSV", "a page of HTML, or JSON Lines, under its name, in `table`", text("a.csv", "<!DOCTYPE html>\n<p>\n"),
        typed(), Refused("to name the columns, found a page of HTML or XML")),
    Row("CSV", "files of 0 bytes", several(text("a.csv", ""), text("b.csv", N)), typed(),
        LeftOut("empty", column("n", 1, 2, of="–"))),
    Row("TSV", "quotes", text("a.tsv", 'a\tb\n"Good-bye\tx\n1\t"y"\n'), read_tsv, Read(WITHOUT_QUOTES, "text")),
    Row("TSV", "quotes of a writer that quotes, as pandas", text("a.tsv", 'a\tb\n1\t"two\nlines"\n2\t"x\ty"\n'),
        typed(), Read(by_pandas(sep="\t"))),
]  # fmt: skip
JSON_ROWS = [
    Row("JSON Lines", "objects of any values; CRLF, blank lines", text(
        "a.jsonl", '{"a": 1, "b": [1, null, {"c": "\\u00e9"}]}\r\n\n{"a": 123456789012345678901234567890}'), read_json,
        Read(BY_JSON)),
    Row("JSON Lines", "a byte order mark", text("a.jsonl", '\ufeff{"a": 1}\n'), read_json, Read(
        Reference("`json`, utf-8-sig", BY_JSON.read), "ignored")),
    Row("JSON Lines", "a key that is there twice", text("a.jsonl", '{"a": 1, "a": 2}\n'), read_json, Read(
        BY_JSON, "the last one")),
    Row("JSON Lines", "`NaN`, `Infinity`", text("a.jsonl", '{"a": NaN, "b": -Infinity}\n'), read_json, Read(BY_JSON)),
    Row("JSON Lines", "numbers beyond float64", text("a.jsonl", '{"a": 1}\n{"a": 1e400}\n'), read_json,
        BadRecord("expected a number in the range of float64, got 1e400", column("a", 1, of="–"))),
    Row("JSON Lines", "a line that is not UTF-8", text("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n'), read_json,
        BadRecord("expected UTF-8, found byte 0xff at byte 7 of the record", column("a", 1, of="–"))),
    Row("JSON Lines", "no object", text("a.jsonl", '{"a": 1}\n[2]\n'), read_json,
        BadRecord("expected a JSON object, found '[2]'", column("a", 1, of="–"))),
    Row("JSON Lines", "a comma behind the object", text("a.jsonl", '{"a": 1}\n{"a": 2},\n'), read_json,
        BadRecord("has one object on each line, without a comma after it: sed", column("a", 1, of="–"))),
    Row("JSON Lines", "numbers, words of truth and lists of them, in `table`", text(
        "a.jsonl", '{"n": 1, "x": 0.5, "b": true, "v": [0.5, 1], "w": ["a"]}\n'), typed(), Read(
        BY_JSON, "`int64`, `float32`, `bool`, arrays")),
    Row("JSON Lines", "nested values, in `table`", text("a.jsonl", '{"d": {"a": [1, "é"]}, "m": [[1], [2]]}\n'),
        typed(), Read(Reference("`json.dumps`", lambda path: [
            {key: json.dumps(value) for key, value in row.items()} for row in BY_JSON.read(path)
        ]), "text with their JSON")),
    Row("JSON Lines", "text among numbers, numbers among lists and so on, in `table`", text(
        "a.jsonl", '{"n": 1}\n{"n": "x"}\n'), typed(), Refused("but text in 'a.jsonl@9': 'x'")),
    Row("JSON Lines", "a key that some rows lack, in `table`", text("a.jsonl", '{"n": 1, "s": "x"}\n{"s": null}\n'),
        typed(), Read(stated("–", {"n": 1.0, "s": "x"}, {"n": math.nan, "s": ""}), "missing: NaN, or empty text")),
    Row("JSON Lines", "whole numbers that the type does not hold, with `--type x=float32`", text(
        "a.jsonl", '{"x": 0.5}\n{"x": 16777217}\n'), typed(types={"x": "float32"}), Refused(
        "the column 'x' is float32, which does not hold 16777217: it would become 16777216")),
    Row("JSON Lines", "a missing integer, with `--type n=int64`", text("a.jsonl", '{"n": 1}\n{"n": null}\n'),
        typed(types={"n": "int64"}), Refused("the column 'n' is int64 and has no value here")),
    Row("JSON Lines", "half of a surrogate pair, in `table`", text("a.jsonl", '{"s": "\\ud800"}\n'), typed(),
        Refused("expected valid Unicode, got '\\ud800'")),
    Row("JSON array", "all", text("a.json", '[{"a": 1}]\n'), typed(),
        Refused("The file is a JSON array, not JSON Lines")),
    Row("JSON object", "over several lines", text("a.json", '{\n "a": 1\n}\n'), typed(),
        Refused("The file has an object over several lines, and JSON Lines one on each line")),
    Row("JSON object", "one that holds all rows, in `table`", text("a.json", '{"data": [{"a": 1}, {"a": 2}]}\n'),
        typed(), Refused("is one object, whose 'data' holds 2. If these are the rows, write one on each line: jq -c")),
    *(Row("JSON object", f"a frame of pandas, `orient={orient!r}`, in `table`", text("a.json", content), typed(),
          Refused("is one object with all rows, as pandas writes a frame"))
      for orient, content in (("columns", '{"a": {"0": 1, "1": 2}}'),
                              ("split", '{"columns": ["a"], "index": [0, 1], "data": [[1], [2]]}'))),
]  # fmt: skip
PARQUET_ROWS = [
    Row("Parquet", "bools, integers, floats, text, bytes, dictionaries, nulls", parquet(_types), read_parquet,
        Read(BY_PYARROW, "values of Python; None is null")),
    Row("Parquet", "lists, structs, maps, in each other", parquet(_nested), read_parquet,
        Read(BY_PYARROW, "the same; lists of numbers are arrays")),
    Row("Parquet", "dates, times, instants, lengths of time", parquet(_times), read_parquet,
        Read(BY_PYARROW, "values of `datetime`")),
    Row("Parquet", "nanoseconds that `datetime` does not hold", parquet(lambda: {
        "t": library("pyarrow").array([1001], library("pyarrow").timestamp("ns"))}), read_parquet,
        Read(column("t", np.datetime64(1001, "ns"), of="NumPy"), "`numpy.datetime64`")),
    Row("Parquet", "instants of 96 bits, as Spark writes them", parquet(lambda: {
        "t": [datetime.datetime(2024, 1, 2, 3)]}, use_deprecated_int96_timestamps=True), read_parquet,
        Read(BY_PYARROW, "values of `datetime`")),
    Row("Parquet", "decimals", parquet(lambda: {"d": [Decimal("1.10"), None]}), read_parquet,
        Read(BY_PYARROW, "`decimal.Decimal`")),
    Row("Parquet", "dates, times and decimals, in `table`", parquet(lambda: {
        "d": [Decimal("1.10")], "day": [datetime.date(2024, 1, 2)], "t": [datetime.datetime(2024, 1, 2, 3)]}), typed(),
        Read(Reference("`str` of pyarrow's values", lambda path: [
            {key: str(value) for key, value in row.items()} for row in BY_PYARROW.read(path)
        ]), "text")),
    Row("Parquet", "structs and maps, in `table`", parquet(lambda: {"s": [{"a": 1, "b": ["x"]}]}), typed(),
        Read(column("s", '{"a": 1, "b": ["x"]}', of="`json.dumps`"), "text with their JSON")),
    Row("Parquet", "integers with gaps, in `table`", parquet(lambda: {"n": [1, None], "id": [2**53 + 1, None]}),
        typed(), Read(stated("–", {"n": 1.0, "id": str(2**53 + 1)}, {"n": math.nan, "id": ""}),
             "floats with NaN where these hold all integers, else text")),
    *(Row("Parquet", f"compressed by {codec}", parquet(lambda: {"n": [1] * 99}, compression=codec), read_parquet,
          Read(BY_PYARROW)) for codec in ("snappy", "gzip", "zstd", "brotli", "lz4")),
    Row("Parquet", "a column that is there twice", _two_columns_of_a_name, read_parquet,
        Refused("should have each column once, found twice")),
    Row("Parquet", "a null in lists of a fixed size", parquet(lambda: {"v": library("pyarrow").array(
        [[1.0, 2.0], None], library("pyarrow").list_(library("pyarrow").float32(), 2))}), read_parquet,
        Refused("pyarrow reads no null in a column of lists of a fixed size")),
    Row("Parquet", "cut short", _cut(parquet(lambda: {"n": [1]})), read_parquet, Refused("cannot be read as Parquet")),
    Row("Parquet", "encrypted", _encrypted, read_parquet, Refused("Could not read encrypted metadata")),
    Row("Parquet", "a column that only some files have", several(parquet(lambda: {"n": [1]}, "a.parquet"), parquet(
        lambda: {"n": [2], "more": ["x"]}, "b.parquet")), typed(),
        Refused("the column 'more' is in 'b.parquet', and 'a.parquet' has none")),
    Row("Parquet", "integers in one file, text in another", several(parquet(lambda: {"n": [1]}, "a.parquet"), parquet(
        lambda: {"n": ["x"]}, "b.parquet")), typed(), Refused("is int64 in 'a.parquet' and str in 'b.parquet'")),
    Row("Parquet", "dates in one file, instants or text in another", several(parquet(lambda: {
        "t": [datetime.date(2024, 1, 2)]}, "a.parquet"), parquet(lambda: {"t": ["x"]}, "b.parquet")), typed(),
        Refused("is date in 'a.parquet' and str in 'b.parquet'")),
    Row("Parquet", "Hive: directories `year=2024`, `city=K%C3%B6ln`, nulls", _partitioned, _read_partitioned,
        Read(Reference("`pyarrow.dataset`", _by_dataset), "columns")),
    *(Row(format, "Hive: directories `year=2024`, in `table`", text(f"year=2024/a.{suffix}", content), typed(),
          Read(stated("–", {"n": 1, "year": 2024}), "columns"))
      for format, suffix, content in (("CSV", "csv", "n\n1\n"), ("JSON Lines", "jsonl", '{"n": 1}\n'))),
    *(Row("Spark, Hadoop", f"`{mark}`", several(parquet(_one), text(mark, "")), typed(),
          LeftOut(reason, column("n", 1, of="–")))
      for mark, reason in (("_SUCCESS", "_SUCCESS"), ("_metadata", "_metadata"), ("_committed_12", "_committed"))),
    Row("Spark, Hadoop", "checksums, `.a.parquet.crc`", several(parquet(_one), text(".a.parquet.crc", "crc")),
        typed(), LeftOut("hidden", column("n", 1, of="–"))),
    Row("Delta Lake", "all", several(parquet(_one), text("_delta_log/0.json", "{}")), typed(),
        Refused("is of a Delta table, whose log says which of the files count")),
    Row("Hudi", "all", several(parquet(_one), text(".hoodie/hoodie.properties", "")), typed(),
        Refused("is of a Hudi table, whose log says which of the files count")),
    Row("Iceberg", "all", several(parquet(_one, "data/a.parquet"), text("metadata/v1.metadata.json", "{}")), typed(),
        Refused("is of an Iceberg table, whose log says which of the files count")),
    Row("Arrow", "streams, as `save_to_disk` writes them", arrow("stream"), read_arrow, Read(BY_IPC)),
    *(Row("Arrow", f"compressed by {codec}", arrow("stream", compression=codec), read_arrow, Read(BY_IPC))
      for codec in ("lz4", "zstd")),
    Row("Arrow", "the file format, Feather", arrow("file"), read_arrow, Refused("It is in Arrow's file format")),
    Row("Arrow", "cut short", _cut(arrow("stream")), read_arrow, Refused("cannot be read as a stream of Arrow")),
    *(Row(name, "all", text(f"a{suffix}", "x"), typed(), Refused(
        f"'a{suffix}' is a table in a format that is not read; CSV, TSV, JSON Lines and Parquet are. Convert it first"))
      for name, suffix in (("Avro", ".avro"), ("ORC", ".orc"), ("Excel", ".xlsx"), ("SQLite", ".sqlite"),
                           ("Arrow", ".arrow"), ("Feather", ".feather"), ("pickle", ".pkl"), ("Stata", ".dta"))),
    *(Row(name, "all", text(f"a{suffix}", "x"), typed(), Refused(f"'a{suffix}' is compressed in a way that is"))
      for name, suffix in (("zip", ".csv.zip"), ("xz", ".csv.xz"))),
]  # fmt: skip
ROWS = [*CSV_ROWS, *JSON_ROWS, *PARQUET_ROWS]
