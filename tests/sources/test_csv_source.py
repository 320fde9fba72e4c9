"""CSV and TSV: quoting, headers, types, bad rows, splitting."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.sources import CSV, TSV, BadRecord
from beam_pipes.sources.delimited import Dialect, unique_names


def read(path: Path, content: bytes | str, *, kind: type[CSV] = CSV, target: int = 1 << 30, **options: Any):
    """Values and bad rows."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    source = kind(path, **options)
    values: list[dict[str, Any]] = []
    bad: list[BadRecord] = []
    for shard in source.plan(target_shard_bytes=target).shards:
        for batch in source.read(shard):
            values += batch.values
            bad += batch.bad
    return values, bad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param("a,b\n1,2\n", [("1", "2")], id="plain"),
        pytest.param("a,b\r\n1,2\r\n3,4", [("1", "2"), ("3", "4")], id="crlf, no final newline"),
        pytest.param('a,b\n"x,y","say ""hi"""\n', [("x,y", 'say "hi"')], id="quotes"),
        pytest.param('a,b\n"x\ny",2\n3,4\n', [("x\ny", "2"), ("3", "4")], id="newline in quotes"),
        pytest.param('a,b\n"x\r\ny",2\n', [("x\r\ny", "2")], id="crlf in quotes is data"),
        pytest.param("\n\na,b\n\n1,2\n\n", [("1", "2")], id="blank lines"),
        pytest.param("\ufeffa,b\n1,2\n", [("1", "2")], id="byte order mark"),
        pytest.param("a,b\n", [], id="only a header"),
        pytest.param("\n\n", [], id="only blank lines"),
        pytest.param("a,b\n,\n", [("", "")], id="empty fields"),
        pytest.param('"a","b\n"\n1,2\n', [("1", "2")], id="newline in a header"),
        pytest.param('a,b\n1,x"y"z\n', [("1", 'x"y"z')], id="quotes within a field are data"),
    ],
)
def test_rows_are_parsed(path, content, rows):
    values, bad = read(path, content)

    assert [tuple(value.values()) for value in values] == rows
    assert bad == []


@pytest.mark.parametrize(
    ("dtype", "fits", "refused"),
    [
        ("float16", ["65519.9", "-65519.9", "inf", "nan"], ["65520", "-65520", "1e400"]),
        ("bfloat16", ["3.39e38", "-Infinity"], ["3.3962e38", ".1e40"]),
        ("float32", ["3.4028e38", "1e-60"], ["3.4029e38", " 1e39 "]),
        (float, ["1.7e308", "9007199254740993.0"], ["1e309", "-1e999"]),
    ],
)
def test_digits_are_rounded_to_a_finite_float(path, dtype, fits, refused):
    values, bad = read(path, "\n".join(["x", *fits, *refused]), schema={"x": dtype})

    assert [repr(value["x"]) for value in values] == [repr(float(text)) for text in fits]
    name = "float64" if dtype is float else dtype
    for text, row in zip(refused, bad, strict=True):
        with pytest.raises(SourceError, match=f"column 'x': expected a number in the range of {name}, got '{text}'"):
            raise row.error


def test_a_schema_types_and_selects_columns(path):
    schema = {
        "b": bool,
        "i": int,
        "f": float,
        "s": str,
        "y": bytes,
        "o": int | None,
        "small": "int8",
        "spec": FeatureSpec("float32"),
    }
    content = "i,f,s,unused,b,y,o,small,spec\n 3 ,1e3,ä,x,True,ü,,-128,0.5\n-4,nan,,x,0,,7,127,1\n"

    values, bad = read(path, content, schema=schema)

    assert bad == []
    assert values[0] == {
        "b": True,
        "i": 3,
        "f": 1000.0,
        "s": "ä",
        "y": "ü".encode(),
        "o": None,
        "small": -128,
        "spec": 0.5,
    }
    assert list(values[0]) == list(schema)
    assert (values[1]["i"], values[1]["b"], values[1]["o"]) == (-4, False, 7)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param("1", r"expected 2 fields \(n, t\), found 1", id="too few"),
        pytest.param("1,2,3", r"expected 2 fields \(n, t\), found 3", id="too many"),
        pytest.param("x,2", "column 'n': expected an int, got 'x'", id="not an int"),
        pytest.param("1_0,2", "column 'n': expected an int, got '1_0'", id="an underscore"),
        pytest.param("1.5,2", "column 'n': expected an int, got '1.5'", id="not whole"),
        pytest.param("٣,2", "column 'n': expected an int, got '٣'", id="digits of another script"),
        pytest.param("300,2", r"column 'n': expected an uint8 in \[0, 255\], got 300", id="out of range"),
        pytest.param('1,"x"y', "expected a row of delimited fields: ',' expected after '\"'", id="after quotes"),
        pytest.param(
            b"1,\xff",
            "found byte 0xff in field 2. Convert it to UTF-8 if it is Latin-1: iconv -f latin1 ",
            id="not utf-8",
        ),
        pytest.param("9" * 5000 + ",2", "column 'n': expected an int", id="a huge int"),
    ],
)
def test_a_bad_row_is_kept_with_its_bytes_and_the_others_continue(path, row, message):
    row = row.encode() if isinstance(row, str) else row

    values, bad = read(path, b"n,t\n1,a\n" + row + b"\n2,b\n", schema={"n": "uint8", "t": str})

    assert values == [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}]
    assert [(b.ordinal, b.position, b.raw) for b in bad] == [(1, 8, row)]
    with pytest.raises(SourceError, match=message):
        raise bad[0].error
    with pytest.raises(SourceError, match=message):
        CSV(path, schema={"n": "uint8", "t": str}).parse(row, file="a.csv", position=8)


@pytest.mark.parametrize("text", ["maybe", "", "2"])
def test_a_bool_is_one_of_four_words(path, text):
    _, bad = read(path, f'b\n"{text}"\n', schema={"b": bool})

    assert "column 'b': expected a bool (true, false, 1 or 0), got" in str(bad[0].error)


def test_a_quote_that_is_never_closed_costs_its_line_alone(path):
    values, bad = read(path, 'a,b\n1,2\n3,"x\n4,5\n6,7')

    assert [value["a"] for value in values] == ["1", "4", "6"]
    assert [(b.position, b.raw) for b in bad] == [(8, b'3,"x')]
    words = "line 3: expected every quote that opens in this row to be closed: unexpected end of data."
    assert words in str(bad[0].error)


@pytest.mark.parametrize("later", ["", '"quoted, and","\nin two lines"\n'])
def test_a_stray_quote_in_a_large_file_costs_its_line_alone(path, later):
    """However far the next quote is, and wherever blocks end."""
    lines = [f"{number},{'x' * (number % 50)}\n" for number in range(60_000)]
    lines[30_000] = '30000,"stray\n'
    values, bad = read(path, "a,b\n" + "".join(lines) + later)

    assert [value["a"] for value in values[:59_999]] == [str(n) for n in range(60_000) if n != 30_000]
    assert len(values) == 59_999 + bool(later)
    assert [b.raw for b in bad] == [b'30000,"stray']
    assert str(bad[0].error).startswith("line 30002: expected every quote that opens in this row to be closed")


def test_a_quote_that_closes_within_a_field_of_another_row_costs_its_line_alone(path):
    values, bad = read(path, 'a,b\n1,"stray\n2,"two"\n3,"t\nh"\n')

    assert values == [{"a": "2", "b": "two"}, {"a": "3", "b": "t\nh"}]
    assert [b.raw for b in bad] == [b'1,"stray']


@pytest.mark.parametrize(("most", "rows"), [(3, 2), (2, 1), (None, 2)])
def test_a_quoted_field_has_as_many_lines_as_it_may(path, most, rows):
    values, bad = read(path, 'a,b\n1,"x\ny\nz"\n4,5\n', max_quoted_lines=most)

    assert (len(values), bool(bad)) == (rows, rows == 1)
    if bad:
        assert "one is not within max_quoted_lines=2 lines" in str(bad[0].error)
        assert "for a field of more lines raise max_quoted_lines (None: no limit)" in str(bad[0].error)


def test_a_field_over_many_blocks_is_read_whole(path):
    text = "".join(f'he said ""{number}""\n' for number in range(60_000))
    values, bad = read(path, f'a,b\n1,"{text}"\n2,3\n', max_quoted_lines=None)

    assert ([value["a"] for value in values], bad) == (["1", "2"], [])
    assert values[0]["b"] == text.replace('""', '"')


def test_an_overlong_quoted_field_is_a_bad_record_and_the_rest_continues(path):
    lines = "".join(f"line {n}\n" for n in range(400_000))

    values, bad = read(path, f'a,b\n1,2\n3,"{lines}"\n4,5\n', max_line_bytes=1 << 20, max_quoted_lines=None)

    assert values[0] == {"a": "1", "b": "2"}
    assert bad[0].position == 8
    assert "expected at most max_line_bytes=1048576" in str(bad[0].error)
    assert values[-1] == {"a": "4", "b": "5"}


def test_columns_name_the_fields_of_files_without_a_header(path):
    values, _ = read(path, "1,2\n", columns=["x", "y"], header=False)

    assert values == [{"x": "1", "y": "2"}]


def test_declared_columns_must_be_those_of_the_header(path):
    assert read(path, "x,y\n1,2\n", columns=["x", "y"])[0] == [{"x": "1", "y": "2"}]
    with pytest.raises(
        SourceError, match=r"the header of a.csv should be the declared columns \['x'\], found \['x', 'y'\]"
    ):
        read(path, "x,y\n1,2\n", columns=["x"])


def test_columns_name_what_a_header_leaves_empty_or_has_twice(path):
    """A table that pandas has written with its index has no name in front."""
    assert read(path, ",x,y,y\n0,1,2,3\n", columns=["id", "x", "y", "z"])[0] == [
        {"id": "0", "x": "1", "y": "2", "z": "3"}
    ]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "a,b,a\n",
            {},
            r"the header of a.csv should name each column once, found twice: \['a'\]. Name them in the file, or for "
            r"the source: columns=\['a', 'b', 'a.1'\]",
        ),
        (
            ",a,\n",
            {},
            r"header of a.csv leaves column 1 of 3 without a name. Name them in the file, or for the source: "
            r"columns=\['Unnamed: 0', 'a', 'Unnamed: 2'\]",
        ),
        (",a\n", {"columns": ["id", "b"]}, r"should be the declared columns \['id', 'b'\], found \['id', 'a'\]"),
        ("a,a\n", {"columns": ["a"]}, r"should name each column once, found twice: \['a'\]\. Name them in the file"),
        (
            "a,b\n",
            {"schema": {"c": int}},
            r"should hold all columns of the schema: \['c'\] missing, found \['a', 'b'\]",
        ),
        (b"\xff,b\n", {}, "the header of a.csv cannot be parsed: expected UTF-8"),
    ],
)
def test_a_wrong_header_is_an_error_of_the_file(path, content, options, message):
    with pytest.raises(SourceError, match=message):
        read(path, content, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"header": False}, "header=False leaves the columns unnamed"),
        ({"columns": []}, "columns should be a list of names"),
        ({"columns": "ab"}, "columns should be a list of names"),
        ({"columns": ["a", "a"]}, "columns should name each column once"),
        ({"columns": ["a"], "schema": {"b": int}}, "columns should hold all columns of the schema"),
        ({"delimiter": ",,"}, "delimiter should be one ASCII character, got ',,'"),
        ({"quote": "\n"}, "quote should be one ASCII character"),
        ({"max_quoted_lines": 0}, "max_quoted_lines should be an integer of at least 1, got 0"),
        ({"quote": ","}, "delimiter and quote should differ"),
        ({"schema": {"a": list}}, "column 'a': expected a type, one of int, float, str, bool, bytes"),
        ({"schema": {"a": "int33"}}, "got 'int33'"),
        ({"schema": {"a": int | str}}, "column 'a': expected a type"),
        ({"schema": {3: int}}, "schema should map column names to types, found the name 3"),
        ({"schema": {"a": FeatureSpec("int8", shape=(2,))}}, r"a column of text holds scalars, the schema says shape"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(SourceError, match=message):
        CSV("x", **options)


def test_a_line_of_tsv_is_a_row_unless_its_writer_quotes(path):
    content = 'a\tb\n1,5\t"Good-bye\n"all of it"\tsaid ""hi""\n2\t"x\ty"\n'
    values, bad = read(path, content, kind=TSV)

    assert values == [{"a": "1,5", "b": '"Good-bye'}, {"a": '"all of it"', "b": 'said ""hi""'}]
    assert [b.raw for b in bad] == [b'2\t"x\ty"']
    assert read(path, 'a\tb\n1,5\t"x\ty"\n', kind=TSV, quote='"')[0] == [{"a": "1,5", "b": "x\ty"}]


def test_texts_of_any_number_of_lines_are_the_records_of_csv_and_pandas(path):
    texts = ["first", "\n".join(f'line {n}, "{n}"' for n in range(30_000)), "", "last\n"]
    pandas.DataFrame({"n": range(4), "text": texts}).to_csv(path, index=False)

    values, bad = read(path, path.read_bytes())

    assert ([value["text"] for value in values], bad) == (texts, [])


def test_a_stray_quote_before_more_than_a_row_may_have_costs_its_line_alone(path):
    lines = [f"{number},{'x' * 60}\n" for number in range(60_000)]
    lines[5] = '5,"stray\n'
    values, bad = read(path, "a,b\n" + "".join(lines), max_line_bytes=1 << 20)

    assert [value["a"] for value in values] == [str(n) for n in range(60_000) if n != 5]
    assert [b.raw for b in bad] == [b'5,"stray']


@given(st.lists(st.sampled_from(["", "a", "a.1", "b", "Unnamed: 0", "a.1.1"]), min_size=2, max_size=8))
def test_columns_without_a_name_of_their_own_are_named_as_pandas_names_them(names):
    header = ",".join(names) + "\n" + ",".join("1" * len(names)) + "\n"

    assert unique_names(names) == list(pandas.read_csv(io.StringIO(header)).columns)


def test_texts_that_stand_for_nothing_are_empty(path):
    content = "n,s,NA\n1,NA,x\nNA,?,y\n"
    options = {"null": ["NA", "?"], "schema": {"n": int | None, "s": str | None, "NA": str}}

    assert read(path, content, **options)[0] == [
        {"n": 1, "s": None, "NA": "x"},
        {"n": None, "s": None, "NA": "y"},
    ]
    assert read(path, content, null=["NA"])[0][1] == {"n": "", "s": "?", "NA": "y"}
    assert CSV(path, null=["NA"]).fingerprint_config() != CSV(path).fingerprint_config()
    with pytest.raises(SourceError, match="null should be a list of texts that stand for nothing, got 'NA'"):
        CSV(path, null="NA")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a,b\r1,2\r",
            "lines that end in LF or CRLF, found CR alone, as old Macintoshes wrote it. Convert the file: tr",
        ),
        ("a,b\r\n1,2\r\n".encode("utf-16"), "begins as UTF-16 does: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_text_of_other_systems_is_named(path, content, message):
    with pytest.raises(SourceError, match=re.escape(message)):
        read(path, content)


def test_wide_tables_are_read_in_time_that_grows_with_their_columns(path):
    names = [f"c{number}" for number in range(50_000)]
    content = ",".join(names) + "\n" + ",".join(["7"] * len(names)) + "\n"

    (row,), bad = read(path, content, schema=dict.fromkeys(names, int))

    assert (len(row), row["c49999"], bad) == (50_000, 7, [])


def test_files_with_quoted_newlines_are_not_split_and_others_are(path):
    content = "n,t\n" + "".join(f"{n},word\n" for n in range(500))
    path.write_text(content)

    assert len(CSV(path).plan(target_shard_bytes=500).shards) == 1
    assert len(CSV(path, quoted_newlines=False).plan(target_shard_bytes=500).shards) > 5
    values, bad = read(path, content, quoted_newlines=False, target=500)
    assert [value["n"] for value in values] == [str(n) for n in range(500)]
    assert bad == []


def test_without_quoted_newlines_a_quote_spoils_its_line_only(path):
    values, bad = read(path, 'a,b\n1,"x\n2,y"\n"3",4\n', quoted_newlines=False)

    assert values == [{"a": "2", "b": 'y"'}, {"a": "3", "b": "4"}]
    assert [b.raw for b in bad] == [b'1,"x']


def test_the_header_counts_in_the_digest_of_every_slice(path):
    body = "".join(f"{n},word\n" for n in range(500))
    path.write_text("n,t\n" + body)
    before = CSV(path, quoted_newlines=False).plan(target_shard_bytes=500).shards
    path.write_text("n,u\n" + body)
    after = CSV(path, quoted_newlines=False).plan(target_shard_bytes=500).shards

    assert not {s.fingerprint() for s in before} & {s.fingerprint() for s in after}


def test_a_header_behind_blank_lines_belongs_to_the_first_slice(path):
    values, bad = read(path, "\n" * 300 + "n,t\n" + "1,a\n" * 300, quoted_newlines=False, target=50)

    assert values == [{"n": "1", "t": "a"}] * 300
    assert bad == []


def test_compressed_files_have_headers_too(tmp_path):
    path = tmp_path / "a.csv.gz"

    values, _ = read(path, gzip.compress(b"a,b\n1,2\n"))

    assert values == [{"a": "1", "b": "2"}]
    assert CSV(path).parse(b"3,4", file="a.csv.gz", position=9) == {"a": "3", "b": "4"}


def test_fields_may_be_longer_than_the_csv_modules_own_limit(path):
    values, bad = read(path, f'a,b\n1,"{"x" * 500_000}"\n')

    assert bad == []
    assert len(values[0]["b"]) == 500_000


fields = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(fields, fields, st.text('",\n\r', max_size=5)), max_size=20), st.integers(1, 40))
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, rows, batch_bytes):
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerows([("a", "b", "c"), *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(buffer.getvalue().encode())
    source = CSV(path)
    shards = source.plan(target_shard_bytes=1 << 20).shards

    batches = [batch for shard in shards for batch in source.read(shard, batch_bytes=batch_bytes)]

    assert [tuple(value.values()) for batch in batches for value in batch.values] == rows
    assert [bad for batch in batches for bad in batch.bad] == []
    for batch in batches:
        for i, value in enumerate(batch.values):
            assert source.parse(batch.raw(i), file="a.csv", position=batch.position(i)) == value


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.integers(1, 50))
def test_any_bytes_give_values_bad_records_or_our_own_error(tmp_path_factory, content, quoted_newlines, target):
    path = tmp_path_factory.mktemp("csv") / "a.csv"

    try:
        values, bad = read(path, b"a,b\n" + content, quoted_newlines=quoted_newlines, target=target)
    except SourceError:
        return
    assert all(list(value) == ["a", "b"] for value in values)
    assert sum(b.raw.count(b"\n") + 1 for b in bad) + len(values) <= content.count(b"\n") + 1


@pytest.mark.parametrize("count", [1, 40], ids=["by row", "by column"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_integer_is_rounded_in_a_column_of_floats(dtype: str, count: int, tmp_path: Path) -> None:
    first = 2**53 if dtype == "float64" else 2**24
    texts = [
        f"{first}",
        f"-{first + 1}",
        f" +{first + 1}",
        f"{first + 2}",
        f"{first + 1}.0",
        f"{first + 1}e0",
        "-7",
        "1e30",
    ]
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(texts * count) + "\n")
    source = CSV(tmp_path / "a.csv", schema={"x": dtype})

    batches = [batch for shard in source.plan(target_shard_bytes=1 << 20).shards for batch in source.read(shard)]

    bad = [str(row.error) for batch in batches for row in batch.bad]
    assert len(bad) == 2 * count and all(f"a number that is exact in {dtype}, got" in each for each in bad)
    kept = [float(text) for text in texts if text not in texts[1:3]] * count
    assert [row["x"] for batch in batches for row in batch.values] == kept


@given(
    st.lists(st.sampled_from(["a,b", '"a\nb",c', '"', "", " ", "é;ß", 'x"y', "a\rb", "\0", "1,2\r"]), max_size=5),
    st.booleans(),
    st.sampled_from([0, 3]),
)
def test_the_first_row_alone_is_that_of_all_rows(lines: list[str], ends: bool, start: int) -> None:
    data = b"\xef\xbb\xbf"[:start] + ("\n".join(lines) + "\n" * ends).encode()
    for quote in ('"', None):
        dialect = Dialect(delimiter=",", quote=quote, quoted_newlines=quote is not None)

        first, whole = dialect.first_rows(data, start), dialect.rows(data, start, is_last=True)

        assert (first.fields[:1], first.spans[:1]) == (whole.fields[:1], whole.spans[:1])
    # What stands after a header without quotes is not parsed to find it.
    assert len(dialect.first_rows(b"a,b\n" + b"1,2\n" * 1000).fields) == 1


def test_a_comment_above_the_header_is_named(path):
    _, bad = read(path, b"# made by hand\nn,t\n1,a\n")
    assert str(bad[0].error) == (
        "expected 1 fields (# made by hand), found 2. The header is the first row, and it begins with #: take comments "
        "out first, sed '/^#/d' FILE > NEW"
    )
