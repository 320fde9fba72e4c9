"""Tables that are in memory: data frames and dicts of columns follow the rules for samples."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

from beam_pipes import DataLoader
from beam_pipes.errors import LoaderError, SpecError


def test_columns_of_a_data_frame_are_exact() -> None:
    frame = pd.DataFrame(
        {
            "id": pd.array([2**53 + 1, -(2**63)], "Int64"),
            "arrow": pd.array([2**53 + 1, 7], "int64[pyarrow]"),
            "score": pd.array([0.5, None], "Float64"),
            "seen": pd.array([True, False], "boolean"),
            "word": ["a", "né"],
            "kind": pd.Categorical(["x", "y"]),
            "vector": [[1.5, 2.5], [3.5, 4.5]],
            "plain": np.array([1, 2], np.int16),
        }
    )

    first, second = DataLoader(frame).as_numpy_iterator()

    assert (first["id"], second["id"], first["arrow"]) == (2**53 + 1, -(2**63), 2**53 + 1)
    assert (first["score"], first["seen"], second["word"], first["kind"]) == (0.5, True, "né".encode(), b"x")
    assert np.isnan(second["score"]) and second["vector"].tolist() == [3.5, 4.5]
    assert first["plain"].dtype == np.int16


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(pd.array([2**53 + 1, None], "Int64"), "no value in 1 of 2 rows, and a Int64", id="integer"),
        pytest.param(pd.array([True, None], "boolean"), r"dropna\(subset=\['x'\]\)", id="bool"),
        pytest.param(["a", None], "no value in 1 of 2 rows", id="text"),
        pytest.param(
            pd.to_datetime(["2024-01-01", "2024-01-02"]), "is datetime64.* Convert it to a num", id="instants"
        ),
        pytest.param([[1], [2, 3]], r"values of several shapes.*to_dict\('records'\)", id="uneven_lists"),
    ],
)
def test_columns_that_no_tensor_holds_are_refused_by_name(values: object, message: str) -> None:
    with pytest.raises(LoaderError, match=rf"column 'x'.*{message}"):
        DataLoader(pd.DataFrame({"x": values}))


def test_values_of_a_column_that_are_no_numbers_or_text_are_refused_by_name() -> None:
    with pytest.raises(SpecError, match="no tensor for key 'x': a date is not a tensor"):
        DataLoader(pd.DataFrame({"x": [datetime.date(2024, 1, 1)]}))


def test_a_dict_of_lists_is_refused_where_its_rows_are() -> None:
    with pytest.raises(
        SpecError, match=r"dtype of the column 'a' changed: .* convert its values, such as by df\['a'\].astype\(str\)"
    ):
        DataLoader({"a": [2**53 + 1, 0.5]})

    (row, _) = DataLoader({"a": [2**53 + 1, 2], "b": [0.1, 1.0]}).as_numpy_iterator()
    assert (row["a"], row["b"].dtype) == (2**53 + 1, np.float32)


def test_floats_of_a_data_frame_are_python_floats_unless_they_are_whole_numbers_beyond_float32() -> None:
    frame = pd.DataFrame(
        {
            "score": [0.1, np.nan],
            "nullable": pd.array([0.1, None], "Float64"),
            "time": [1_700_000_001.0, np.nan],
            "large": [1e300, 0.5],
        }
    )

    dtypes = {name: value.dtype for name, value in next(DataLoader(frame).as_numpy_iterator()).items()}
    (batch,) = DataLoader(frame[["score", "nullable"]]).batch(2).to_jax()

    assert dtypes == {"score": np.float32, "nullable": np.float32, "time": np.float64, "large": np.float64}
    assert batch["score"][0] == batch["nullable"][0] == np.float32(0.1)
    assert DataLoader({"score": np.array([0.1])}).element_spec["score"].dtype.name == "float64"


def test_columns_of_one_name_are_refused() -> None:
    with pytest.raises(LoaderError, match=r"expected different names of columns, got \['a', 'a'\]. Rename them"):
        DataLoader(pd.DataFrame([[1, 2]], columns=["a", "a"]))
