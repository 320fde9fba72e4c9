"""Feature specs: normalisation, storage dtypes, JSON, inference, and the words of their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.cache import ExampleSpec, FeatureSpec
from beam_pipes.errors import SpecError


@pytest.mark.parametrize(
    ("given_dtype", "name"),
    [
        ("int32", "int32"),
        (np.float32, "float32"),
        (np.dtype(">u2"), "uint16"),
        (int, "int64"),
        (float, "float64"),
        (bool, "bool"),
        (str, "str"),
        (bytes, "bytes"),
        (np.dtype("U3"), "str"),
        (np.dtype("S3"), "bytes"),
        ("bfloat16", "bfloat16"),
        ("i4", "int32"),
    ],
    ids=repr,
)
def test_dtypes_are_normalised_to_their_names(given_dtype: Any, name: str) -> None:
    assert FeatureSpec(given_dtype).dtype == name


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        (FeatureSpec("int64", minimum=0, maximum=1), "uint8"),
        (FeatureSpec("int64", minimum=0, maximum=255), "uint8"),
        (FeatureSpec("int64", minimum=0, maximum=256), "uint16"),
        (FeatureSpec("int64", minimum=-1, maximum=127), "int8"),
        (FeatureSpec("int64", minimum=-1, maximum=128), "int16"),
        (FeatureSpec("int32", minimum=0, maximum=50_000), "uint16"),
        (FeatureSpec("int32", minimum=0, maximum=70_000), "int32"),
        (FeatureSpec("int8", minimum=0, maximum=3), "int8"),
        (FeatureSpec("uint32", maximum=10), "uint8"),
        (FeatureSpec("int32", maximum=10), "int32"),
        (FeatureSpec("int32"), "int32"),
        (FeatureSpec("float32"), "float32"),
        (FeatureSpec("float16", encoding="list"), "float32"),
        (FeatureSpec("bool", encoding="list"), "int64"),
        (FeatureSpec("uint8", encoding="list"), "int64"),
        (FeatureSpec("str"), "str"),
    ],
    ids=str,
)
def test_the_narrowest_exact_dtype_is_stored(spec: FeatureSpec, stored: str) -> None:
    assert spec.storage_dtype == stored


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "complex64"}, r"dtype 'complex64' cannot be stored: expected one of bool, int8.*real and imaginary"),
        ({"dtype": "datetime64[s]"}, "cannot be stored.*dates: int64"),
        ({"dtype": "tokens"}, "expected a dtype, one of bool.*got 'tokens'"),
        ({"dtype": None}, "expected a dtype.*got None"),
        ({"dtype": "int32", "shape": 3}, r"shape should be a tuple of sizes and None, got 3: write \(3,\)"),
        ({"dtype": "int32", "shape": None}, r"shape should be a tuple of sizes and None, got None: write \(None,\)"),
        ({"dtype": "int32", "shape": (-1,)}, r"shape should hold sizes \(ints >= 0\) and None, got -1 in \(-1,\)"),
        ({"dtype": "int32", "encoding": "zip"}, "encoding should be one of raw, list, got 'zip'"),
        ({"dtype": "int32", "minimum": 0.5}, "minimum should be an int, got 0.5"),
        ({"dtype": "float32", "maximum": 1}, "maximum is for integer features, and this one is float32"),
        ({"dtype": "uint8", "maximum": 256}, r"maximum should be in the range of uint8, \[0, 255\], got 256"),
        ({"dtype": "int8", "classes": "cat"}, "classes should be a list of different names, got 'cat'"),
        ({"dtype": "int8", "classes": ["cat", "cat"]}, "classes should be a list of different names, got "),
        ({"dtype": "str", "classes": ["cat"]}, "classes are for integer features, and this one is str"),
        ({"dtype": "uint8", "minimum": 3, "maximum": 2}, "minimum should not exceed maximum.*minimum=3, maximum=2"),
        ({"dtype": "float64", "encoding": "list"}, 'float64 cannot be kept exactly in a float_list.*encoding="raw"'),
        ({"dtype": "uint64", "encoding": "list"}, r"uint64 does not fit an int64_list.*maximum below 2\*\*63"),
        ({"dtype": "str", "shape": (2, 2)}, r"str features are scalars or one-dimensional, got shape \(2, 2\)"),
    ],
    ids=str,
)
def test_a_malformed_spec_is_refused_with_what_was_expected(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        FeatureSpec(**arguments)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"x": "int32"}, r"feature 'x': expected a FeatureSpec, got 'int32'. Write FeatureSpec\('int32'"),
        ({"": FeatureSpec("int32")}, "a feature name should be a non-empty str, got ''"),
        ({3: FeatureSpec("int32")}, "a feature name should be a non-empty str, got 3"),
        ({"\ud800": FeatureSpec("int32")}, "a feature name should be valid Unicode"),
        (
            {"x": FeatureSpec("int8", shape=(None, None)), "x/shape": FeatureSpec("int8")},
            "feature 'x/shape': the name is taken by the shape of 'x'.*Rename one of the two",
        ),
    ],
    ids=["no spec", "empty name", "no str", "surrogate", "taken"],
)
def test_malformed_features_are_refused(features: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ExampleSpec(features)


def test_features_are_sorted_by_the_bytes_of_their_names() -> None:
    spec = ExampleSpec({name: FeatureSpec("int8") for name in ["z", "é", "a", "B", "\U0001f600", "\uffff"]})

    assert list(spec) == ["B", "a", "z", "é", "\uffff", "\U0001f600"]
    assert spec == ExampleSpec(dict(reversed(list(spec.items())))) and hash(spec) == hash(ExampleSpec(dict(spec)))


@pytest.mark.parametrize(
    ("feature", "fixed"),
    [
        (FeatureSpec("int8", shape=(3, 0)), True),
        (FeatureSpec("float32", shape=(3,), encoding="list"), True),
        (FeatureSpec("int8", shape=(3,), encoding="list"), False),
        (FeatureSpec("int8", shape=(None,)), False),
        (FeatureSpec("str"), False),
    ],
    ids=str,
)
def test_a_spec_is_fixed_where_every_record_takes_the_same_bytes(feature: FeatureSpec, fixed: bool) -> None:
    assert ExampleSpec({"x": feature}).fixed is fixed


feature_specs = st.one_of(
    st.builds(
        FeatureSpec,
        st.sampled_from(["bool", "int8", "uint16", "int64", "float32", "bfloat16"]),
        shape=st.lists(st.none() | st.integers(0, 5), max_size=3).map(tuple),
        encoding=st.sampled_from(["raw", "list"]),
    ),
    st.builds(FeatureSpec, st.sampled_from(["str", "bytes"]), shape=st.sampled_from([(), (None,), (3,)])),
    st.builds(FeatureSpec, st.just("int32"), minimum=st.integers(-9, 0), maximum=st.integers(0, 2**31 - 1)),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), feature_specs, max_size=4))
def test_json_holds_the_whole_spec(features: dict[str, FeatureSpec]) -> None:
    try:
        spec = ExampleSpec(features)
    except SpecError:
        return  # a name that is taken by the shape of another

    assert ExampleSpec.from_json(spec.to_json()) == spec


def test_names_of_classes_are_kept_and_not_compared() -> None:
    spec = ExampleSpec({"x": FeatureSpec("int8", classes=["cat", "dog"])})

    assert ExampleSpec.from_json(spec.to_json())["x"].class_names == ("cat", "dog")
    assert spec == ExampleSpec({"x": FeatureSpec("int8")}) and "classes" not in FeatureSpec("int8").to_json()
    assert hash(spec) == hash(ExampleSpec({"x": FeatureSpec("int8")}))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([], "expected an example spec, an object of feature name → spec"),
        (
            {"x": 3},
            "feature 'x': expected a feature spec, an object of classes, dtype, encoding, maximum, minimum, shape",
        ),
        ({"x": {"dtype": "int8", "color": 1}}, "feature 'x': expected a feature spec"),
        ({"x": {"dtype": "int8", "shape": "3"}}, "feature 'x': shape should be a list of sizes and nulls, got '3'"),
    ],
    ids=["no object", "no spec", "unknown field", "shape"],
)
def test_json_of_something_else_is_refused(made: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ExampleSpec.from_json(made)


def test_features_are_inferred_with_every_dimension_varying() -> None:
    spec = ExampleSpec.infer(
        [
            {"a": np.array([1], np.int32), "b": 3, "c": "x", "d": [], "e": np.zeros((2, 3), np.uint8), "f": [b"x"]},
            {"a": np.array([], np.int32), "b": 4, "c": "", "d": [1.5], "e": np.zeros((1, 9), np.uint8), "f": []},
        ]
    )

    assert spec == ExampleSpec(
        {
            "a": FeatureSpec("int32", shape=(None,)),
            "b": FeatureSpec("int64"),
            "c": FeatureSpec("str"),
            "d": FeatureSpec("float64", shape=(None,)),
            "e": FeatureSpec("uint8", shape=(None, None)),
            "f": FeatureSpec("bytes", shape=(None,)),
        }
    )


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([2**63 + 1, 1], "uint64"),
        ([np.uint64(2**63 + 1), np.int64(1)], "uint64"),
        ([[1, 2**63], [3, 4]], "uint64"),
        ([2**63 - 1, -1, True], "int64"),
        ([2**53, 0.5], "float64"),
    ],
    ids=str,
)
def test_integers_of_a_list_are_inferred_as_integers(value: Any, dtype: str) -> None:
    assert ExampleSpec.infer([{"x": value}])["x"].dtype == dtype


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ([], "features cannot be inferred without an example: declare them"),
        ([{"x": []}], "feature 'x': an empty list has no dtype, and no example has more"),
        ([{"x": 1}, {"x": 1.5}], "feature 'x': expected int64 of rank 0 .* got float64 of rank 0 in example 1"),
        ([{"x": 1}, {"x": [1]}], "feature 'x': expected int64 of rank 0 .* got int64 of rank 1 in example 1"),
        ([{"x": 1}, {"y": 1}], r"example 1: expected the features \['x'\] of the first example; \['x', 'y'\] differ"),
        ([{"x": [[1], [1, 2]]}], "feature 'x': expected an array, a scalar, bytes, str or an even list"),
        ([{"x": 1}, {"x": None}], r"'x': expected a value, got None.*no missing values\. Store one .* in example 1\."),
        ([{"x": ["a", None]}], r"'x': expected a value, got \['a', None\].*drop\(.no value.\)\. It is in example 0\."),
        (
            [{"x": {"y": 1}}],
            r"feature 'x': expected an array.*got objects of type \['dict'\]\. Convert it .* json.dumps\. It is in ex",
        ),
        (
            [{"x": -(2**63) - 1}],
            r"'x': expected integers within int64 or uint64, got -9223372036854775809\. Store ",
        ),
        ([{"x": 1j}], "feature 'x': dtype 'complex128' cannot be stored"),
        ([{"x": [-1, 2**63]}], r"one dtype holds exactly, got 9223372036854775808 \(uint64\) at \[1\]. Declare the"),
        (
            [{"x": [[0.5], [2**53 + 1]]}],
            r"holds exactly, got 9007199254740993 \(int64\) at \[1, 0\]. Declare the feature",
        ),
        ([{"x": [2**64]}], r"holds exactly, got 18446744073709551616 \(int\) at \[0\]"),
        ([{"x": [2**63]}, {"x": [1.5]}], "expected uint64 of rank 1 as in earlier examples, got float64 of rank 1"),
    ],
    ids=str,
)
def test_examples_that_tell_no_spec_are_refused(examples: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ExampleSpec.infer(examples)


@pytest.mark.parametrize("dtype", [("V", -1), ("int8", -3), {"names": [1]}, "int63", 5.5], ids=str)
def test_what_is_not_a_dtype_is_an_error_of_ours(dtype: Any) -> None:
    with pytest.raises(SpecError, match="expected a dtype, one of "):
        FeatureSpec(dtype)
