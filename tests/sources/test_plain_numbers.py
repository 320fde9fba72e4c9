"""Blocks of nothing but numbers are read without a text for each, to the very values of the rows one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_pipes.recipes.column_types import types_of_columns, types_of_rows
from beam_pipes.sources.csv import CSV, RowConverter
from beam_pipes.sources.delimited import Dialect, PlainRows

SPELLINGS = st.one_of(
    st.integers(-(10**17), 10**17).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**6), 10**6, places=4).map(str),
    st.text(alphabet="0123456789.-+e", min_size=1, max_size=6),
    st.sampled_from(["-0", "-0.0", "0", ".5", "5.", "1e400", "1e-400", "007", "00.5", "9007199254740993", "1e5", "+5"]),
)


def rows_of(fields: list[str], delimiter: str, width: int) -> PlainRows | None:
    lines = [delimiter.join(fields[at : at + width]) + "\n" for at in range(0, len(fields), width)]
    return Dialect(delimiter, '"', True).plain_rows("".join(lines).encode(), 0, width)


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 3), st.sampled_from(",;\t|"), st.lists(SPELLINGS, min_size=1, max_size=5))
@example(width=2, delimiter=";", some=["1,5", "2"])
@example(width=1, delimiter=",", some=["-"])
@example(width=1, delimiter=",", some=["1.2.3"])
def test_numbers_are_those_that_float_reads(width: int, delimiter: str, some: list[str]) -> None:
    fields = some * width * 16
    rows = rows_of(fields, delimiter, width)
    numbers = None if rows is None else rows.numbers()
    if rows is None or numbers is None:
        return

    for at in range(width):
        column = fields[at::width]
        assert [value.hex() for value in numbers.values[at].tolist()] == [float(text).hex() for text in column]
        kinds = {"int64" if whole else "float" for whole in numbers.is_whole[at]}
        assert (types_of_columns({"x": column}, len(column))["x"] == "int64") == (kinds == {"int64"})
    schema = {str(at): int if numbers.is_whole[at].all() else float | None for at in range(width)}
    source = CSV("x", columns=[*schema], header=False, schema=schema, delimiter=delimiter, inferred=[*schema])
    converter = RowConverter(source, tuple(schema))
    table = converter.plain_table(rows)
    assert table is not None
    one_by_one = [converter.value(fields[at : at + width]) for at in range(0, len(fields), width)]
    assert repr(table.rows()) == repr(one_by_one)


@pytest.mark.parametrize(
    "fields", [["0.5", "-1.25"], ["123456789012345", "-7"], ["0.1234567890123456789", "3"], ["5e-324", "-1.5e+30"]]
)
def test_usual_numbers_are_read_so(fields: list[str]) -> None:
    rows = rows_of(fields, ",", 2)

    assert rows is not None and (numbers := rows.numbers()) is not None
    assert numbers.values.ravel().tolist() == [*map(float, fields)]


@pytest.mark.parametrize("fields", [["007", "1"], ["9007199254740993", "1"], ["nan", "1"], ["1e400", "1"], [" 1", "1"]])
def test_other_fields_are_left_to_their_rows(fields: list[str]) -> None:
    rows = rows_of(fields, ",", 2)

    assert rows is not None and rows.numbers() is None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_types_of_files_of_numbers_are_those_of_their_texts(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("numbers")
    columns = data.draw(st.integers(1, 3))
    files: list[Path] = []
    texts: dict[str, list[str]] = {f"c{at}": [] for at in range(columns)}
    for number in range(data.draw(st.integers(1, 2))):
        rows = data.draw(st.lists(st.tuples(*[SPELLINGS] * columns), min_size=1, max_size=4))
        files.append(directory / f"{number}.csv")
        files[-1].write_text("".join(",".join(row) + "\n" for row in [tuple(texts), *rows]))
        for row in rows:
            for name, text in zip(texts, row, strict=True):
                texts[name].append(text)

    expected = types_of_columns(texts, len(texts["c0"]))
    if "str" not in expected.values():  # else the rows are looked at once more
        assert types_of_rows([str(file) for file in files], "csv") == expected
