"""Examples as tensorflow-transform takes them: columns, Arrow, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import FeatureSpec
from beam_pipes.errors import CacheNotFoundError, SpecError
from beam_pipes.tft import RawFeatures, TransformFunction

FEATURES = {
    "age": FeatureSpec("int16"),
    "name": FeatureSpec("str"),
    "scores": FeatureSpec("float32", shape=(None,)),
    "tags": FeatureSpec("bytes", shape=(None,)),
    "place": FeatureSpec("float32", shape=(2,)),
}
FLOATS = st.floats(width=32, allow_nan=False)

EXAMPLES = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.integers(-(2**15), 2**15 - 1),
            "name": st.text(),
            "scores": st.lists(FLOATS, max_size=4),
            "tags": st.lists(st.binary(max_size=4), max_size=3),
            "place": st.lists(FLOATS, min_size=2, max_size=2),
        }
    ),
    max_size=5,
)


@settings(deadline=None)
@given(EXAMPLES)
def test_a_record_batch_holds_what_the_examples_do(examples: list[dict[str, Any]]) -> None:
    rows = RawFeatures.of(FEATURES).record_batch(examples).to_pylist()

    assert rows == [
        {
            "age": [example["age"]],
            "name": [example["name"].encode()],
            "place": example["place"],
            "scores": example["scores"],
            "tags": example["tags"],
        }
        for example in examples
    ]


@settings(deadline=None)
@given(EXAMPLES)
def test_columns_have_all_values_and_how_many_each_example_has(examples: list[dict[str, Any]]) -> None:
    columns = RawFeatures.of(FEATURES).columns(examples)

    assert columns["age"].dtype == np.int64
    assert columns["place"].shape == (len(examples), 2)
    assert columns["scores"].tolist() == [value for example in examples for value in example["scores"]]
    assert columns["tags/lengths"].tolist() == [len(example["tags"]) for example in examples]


def test_the_features_come_back_from_json() -> None:
    raw = RawFeatures.of(FEATURES, varying="ragged")

    again = RawFeatures.from_json(raw.to_json())

    assert again.features == raw.features
    assert again.varying == "ragged"


@pytest.mark.parametrize(
    ("feature", "dtype", "shape"),
    [
        pytest.param(FeatureSpec("bool"), "int64", (), id="bool"),
        pytest.param(FeatureSpec("uint32"), "int64", (), id="uint32"),
        pytest.param(FeatureSpec("uint64", maximum=100), "int64", (), id="bounded_uint64"),
        pytest.param(FeatureSpec("float16", shape=(2, 3)), "float32", (2, 3), id="float16_matrix"),
        pytest.param(FeatureSpec("str", shape=(None,)), "string", None, id="varying_text"),
    ],
)
def test_each_feature_has_one_type_of_tensorflow_transforms(
    feature: FeatureSpec, dtype: str, shape: tuple[int, ...] | None
) -> None:
    (found,) = RawFeatures.of({"x": feature})

    assert (found.dtype, found.shape) == (dtype, shape)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        pytest.param(
            {"x": FeatureSpec("float64")}, "'x': .*float64 fits none of them exactly. Declare float32", id="f64"
        ),
        pytest.param({"x": FeatureSpec("uint64")}, r"'x': .*uint64 .*Declare a maximum below 2\*\*63", id="uint64"),
        pytest.param(
            {"x": FeatureSpec("int8", shape=(None, 2))},
            r"'x': expected a fixed shape, or \(None,\) .*got \(None, 2\)",
            id="rank",
        ),
        pytest.param({}, "expected at least one feature, got none", id="none"),
    ],
)
def test_what_has_no_type_is_refused(features: dict[str, FeatureSpec], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        RawFeatures.of(features)


def test_another_form_of_varying_features_is_refused() -> None:
    with pytest.raises(SpecError, match="varying should be one of sparse, ragged, got 'dense'"):
        RawFeatures.of(FEATURES, varying="dense")  # type: ignore[arg-type]


EXAMPLE = {"age": 3, "name": "Ada", "scores": [1.5], "tags": [], "place": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"age": 1.5}, "'age': expected values that are exact in int64, got 1.5", id="inexact"),
        pytest.param({"name": 7}, "'name': expected bytes or str, got int 7", id="no_text"),
        pytest.param(
            {"name": ["Ada"]}, r"'name': expected text of shape \(\), got an array of shape \(1,\)", id="list"
        ),
        pytest.param(
            {"tags": "Ada"}, r"'tags': expected text of shape \(None,\), got an array of shape \(\)", id="text"
        ),
        pytest.param({"place": [1.0]}, r"'place': expected shape \(2,\) .*got an array of shape \(1,\)", id="shape"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        RawFeatures.of(FEATURES).columns([EXAMPLE, {**EXAMPLE, **change}])


def test_a_feature_that_is_missing_is_named_with_its_example() -> None:
    without = {name: value for name, value in EXAMPLE.items() if name != "age"}

    with pytest.raises(
        SpecError, match="example 1: expected the feature 'age', .* got .*'name'.* Give every example all"
    ):
        RawFeatures.of(FEATURES).columns([EXAMPLE, without])


def test_a_directory_without_a_transform_function_is_named(tmp_path: Any) -> None:
    with pytest.raises(CacheNotFoundError, match="expected a transform function in .*features.json, and there is none"):
        TransformFunction(tmp_path)
