"""Python samples to columns: exact values or an error that names the sample and the key. NumPy only."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import LoaderError, SpecError
from beam_pipes.on_device.inference import ColumnSignature, build_column, infer_columns
from beam_pipes.on_device.python_source import PythonSource, RunLimits, runs
from beam_pipes.on_device.values import STRING, UnfitValueError, convert, read_value


def column(dtype, shape=(), *, declared=False) -> ColumnSignature:
    return ColumnSignature(path=("x",), dtype=np.dtype(dtype), shape=shape, declared=declared)


def inferred(*values):
    (found,) = infer_columns({"x": value} for value in values)
    return found.dtype, found.shape


# Inference


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        pytest.param([1, 2], np.int32, (), id="small ints"),
        pytest.param([1, 2**31], np.int64, (), id="an int beyond int32"),
        pytest.param([-(2**31), 2**31 - 1], np.int32, (), id="the ends of int32"),
        pytest.param([1.5, 2.0], np.float32, (), id="floats"),
        pytest.param([True, False], np.bool_, (), id="bools"),
        pytest.param(["a", b"b"], STRING, (), id="text and bytes"),
        pytest.param([1j], np.complex128, (), id="complex"),
        pytest.param([[1, 2], [3, 4]], np.int32, (2,), id="lists of one length"),
        pytest.param([[1, 2], [3]], np.int32, (None,), id="lists of two lengths"),
        pytest.param([[], [3]], np.int32, (None,), id="an empty list has no dtype"),
        pytest.param([[3], []], np.int32, (None,), id="an empty list later"),
        pytest.param([[], []], np.float32, (0,), id="only empty lists"),
        pytest.param([[1, 2.5]], np.float32, (2,), id="ints and floats in one list"),
        pytest.param([np.ones((2, 3)), np.ones((2, 5))], np.float64, (2, None), id="one of two dimensions"),
        pytest.param([np.int16(1), 5], np.int16, (), id="an int takes the NumPy dtype"),
        pytest.param([5, np.int64(1)], np.int64, (), id="and also the other way"),
        pytest.param([np.float64(1), 0.5], np.float64, (), id="a float takes the NumPy dtype"),
        pytest.param([["a"], ["b", "c"]], STRING, (None,), id="lists of text"),
        pytest.param([np.array(["né"])], STRING, (1,), id="NumPy text"),
        pytest.param([[[1, 2]], [[3, 4], [5, 6]]], np.int32, (None, 2), id="nested lists"),
        pytest.param([[np.ones(2, np.int8)] * 3], np.int8, (3, 2), id="a list of arrays"),
    ],
)
def test_dtype_and_shape_are_inferred(values, dtype, shape):
    assert inferred(*values) == (np.dtype(dtype), shape)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            [1, 2.5], "dtype of the column 'x' changed: sample 1 is float32, sample 0 was int32", id="int to float"
        ),
        pytest.param([1.5, 2], "sample 1 is int32, sample 0 was float32", id="float to int"),
        pytest.param([True, 2], "sample 1 is int32, sample 0 was bool", id="bool to int"),
        pytest.param([1, "a"], "sample 1 is string, sample 0 was int32", id="int to text"),
        pytest.param([np.int32(1), np.int64(1)], "sample 1 is int64, sample 0 was int32", id="int32 to int64"),
        pytest.param([[], [1], [2.5]], "sample 2 is float32, sample 1 was int32", id="after an empty list"),
        pytest.param([[1], 1], "rank of 'x' changed: sample 1 has shape (), sample 0 had (1,)", id="rank"),
        pytest.param([None], "sample 0 has no tensor for key 'x': it is None", id="None"),
        pytest.param([{1, 2}], "a set is not a tensor", id="a set"),
        pytest.param([2**63], "9223372036854775808 does not fit int64", id="beyond int64"),
        pytest.param([[1, 2**64]], "18446744073709551616 does not fit int64", id="beyond int64 in a list"),
        pytest.param([[1, True]], "one list mixes bool, int", id="bool and int in a list"),
        pytest.param([[[1], [2, 3]]], "inner lists have different lengths", id="ragged inside a sample"),
        pytest.param([np.array([object()])], "an object array holds object", id="an object array"),
        pytest.param([np.datetime64("2020-01-01")], "has no tensor dtype", id="a date"),
        pytest.param([[np.ones(2), np.ones(3)]], "the arrays of one list differ", id="arrays of two shapes"),
        pytest.param(
            [np.ma.array([1, 2], mask=[0, 1])], "the element at [1] is masked, so it has no value", id="masked"
        ),
        pytest.param([[-1, 2**63]], "9223372036854775808 does not fit int64", id="beyond int64 below zero"),
    ],
)
def test_what_cannot_be_inferred_says_which_sample_and_key(values, message):
    with pytest.raises(SpecError) as raised:
        inferred(*values)
    assert message in str(raised.value)
    assert raised.value.key == "x"


def test_keys_must_stay_the_same():
    with pytest.raises(SpecError, match=r"sample 1 has keys \['x', 'z'\], expected \['x', 'y'\]") as raised:
        infer_columns([{"x": 1, "y": 2}, {"x": 1, "z": 2}])
    assert (raised.value.missing, raised.value.unexpected) == (["y"], ["z"])


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        pytest.param(5, "sample 1 is a int, expected a dict of name to value: 5", id="a number"),
        pytest.param([1], "sample 1 is a list", id="a list"),
        pytest.param({}, "sample 1 is an empty dict", id="an empty dict"),
    ],
)
def test_a_sample_must_be_a_dict(sample, message):
    with pytest.raises(SpecError) as raised:
        infer_columns([{"x": 1}, sample])
    assert message in str(raised.value)


def test_no_sample_is_nothing_to_infer_from():
    with pytest.raises(SpecError, match="gave no sample to infer the output_signature from"):
        infer_columns([])


# Conversion


@pytest.mark.parametrize(
    ("value", "dtype", "declared", "message"),
    [
        pytest.param(2**31, np.int32, False, "2147483648 does not fit int32", id="no wrapping"),
        pytest.param(-1, np.uint8, True, "-1 does not fit uint8", id="no wrapping into unsigned"),
        pytest.param(1.5, np.int32, True, "the dtype is float32, expected int32", id="no truncation"),
        pytest.param(1.0, np.int32, True, "the dtype is float32, expected int32", id="not even of 1.0"),
        pytest.param(1, np.float32, False, "the dtype is int32, expected float32", id="an inferred dtype is kept"),
        pytest.param(2**24 + 1, np.float32, True, "16777217 has no exact float32", id="no rounded integers"),
        pytest.param(2**53 + 1, np.float64, True, "9007199254740993 has no exact float64", id="no rounded int64"),
        pytest.param(np.int64(2**63 - 1), np.float64, True, "9223372036854775807 has no exact float64", id="the end"),
        pytest.param(
            np.uint64(2**64 - 1), np.float32, True, "18446744073709551615 has no exact", id="the end of uint64"
        ),
        pytest.param(2**53 + 1, np.complex128, True, "9007199254740993 has no exact float64", id="no rounded complex"),
        pytest.param(2**64, np.uint64, True, "18446744073709551616 does not fit uint64 (0 to", id="beyond uint64"),
        pytest.param(10**400, np.float64, True, "000… has no exact float64", id="a huge int"),
        pytest.param([0.5, 2**24 + 1], np.float32, False, "16777217 has no exact float32", id="an int beside a float"),
        pytest.param([0.5, 2**53 + 1], np.float64, True, "9007199254740993 has no exact float64", id="and in float64"),
        pytest.param([0.5, 1e300], np.float32, True, "1e+300 overflows float32", id="a float beside a float"),
        pytest.param([1, 2**63], np.int64, True, "9223372036854775808 does not fit int64", id="a list beyond int64"),
        pytest.param(1e300, np.float32, False, "1e+300 overflows float32", id="no silent infinity"),
        pytest.param(np.float64(0.5), np.float32, False, "the dtype is float64, expected float32", id="float64"),
        pytest.param("a", np.int32, True, "the dtype is string, expected int32", id="text"),
        pytest.param(True, np.int32, True, "the dtype is bool, expected int32", id="bool"),
        pytest.param(1, np.bool_, True, "the dtype is int32, expected bool", id="int as bool"),
        pytest.param(1j, np.float64, True, "the dtype is complex128, expected float64", id="complex"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value, dtype, declared, message):
    with pytest.raises(UnfitValueError) as raised:
        convert(read_value(value), np.dtype(dtype), declared=declared)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("value", "dtype", "declared"),
    [
        pytest.param(2**40, np.int64, False, id="a wide int"),
        pytest.param(np.int16(7), np.int64, True, id="a narrower int"),
        pytest.param(7, np.float32, True, id="an exact int"),
        pytest.param(float("inf"), np.float16, True, id="infinity"),
        pytest.param(0.25, np.complex64, True, id="a real as complex"),
        pytest.param([], np.uint8, False, id="an empty list"),
        pytest.param(2**63 + 1, np.uint64, True, id="beyond int64"),
        pytest.param([2**63 + 1, 1], np.uint64, True, id="a list beyond int64"),
        pytest.param([[2**63 + 1, 1], [2, 3]], np.uint64, True, id="nested lists beyond int64"),
        pytest.param(2**64, np.float64, True, id="a float beyond all integers"),
        pytest.param([2**63, 0.5], np.float64, True, id="an exact int beside a float"),
    ],
)
def test_a_value_that_fits_keeps_its_value(value, dtype, declared):
    array = convert(read_value(value), np.dtype(dtype), declared=declared)

    assert array.dtype == dtype
    assert array.tolist() == value


scalars = st.one_of(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1),
    st.lists(st.booleans(), min_size=1),
    st.lists(st.binary(max_size=4), min_size=1),
)


@given(scalars)
def test_a_column_of_scalars_holds_the_values(values):
    (signature,) = infer_columns({"x": value} for value in values)

    built = build_column(values, signature, 0)

    assert built.values.tolist() == values


def stays(number, dtype):
    """Whether the column takes the number: an int exactly, a float rounded to a float."""
    if np.dtype(dtype).kind != "f":
        return isinstance(number, int) and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max
    if isinstance(number, float):
        return math.isinf(number) or dtype == "float64" or abs(number) < (2 - 2**-24) * 2.0**127
    return int(np.dtype(dtype).type(float(number))) == number


numbers = st.integers(-(2**65), 2**65) | st.integers(-(2**26), 2**26) | st.floats(allow_nan=False)


@given(
    st.lists(st.lists(numbers, max_size=4), min_size=1, max_size=6),
    st.sampled_from(["int32", "int64", "uint64", "float32", "float64"]),
)
def test_a_declared_column_holds_the_same_numbers_or_is_refused(values, dtype):
    try:
        built = build_column(values, column(dtype, (None,), declared=True), 0)
    except SpecError:
        assert not all(stays(number, dtype) for row in values for number in row)
        return

    assert all(stays(number, dtype) for row in values for number in row)
    expected = [np.float32(each).item() if dtype == "float32" else each for row in values for each in row]
    assert built.values.tolist() == expected
    assert built.values.dtype == dtype


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4), min_size=1, max_size=9))
def test_a_column_of_lists_holds_all_values_and_lengths(values):
    built = build_column(values, column(np.int32, (None,)), 0)

    assert built.values.tolist() == [item for row in values for item in row]
    assert built.extents.tolist() == [len(row) for row in values]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
def test_a_column_of_matrices_is_flat_and_keeps_the_shapes(shapes):
    matrices = [np.arange(a * b, dtype=np.int16).reshape(a, b) for a, b in shapes]

    built = build_column(matrices, column(np.int16, (None, None)), 0)

    assert built.values.tolist() == [item for matrix in matrices for item in matrix.flat]
    assert built.extents.tolist() == [list(shape) for shape in shapes]


@pytest.mark.parametrize("kind", ["list", "array", "mixed"])
def test_fast_and_general_ways_give_the_same_column(kind):
    rows = {"list": [[1, 2], [3, 4]], "array": [np.array([1, 2], np.int32), np.array([3, 4], np.int32)]}
    rows["mixed"] = [rows["list"][0], rows["array"][1]]

    built = build_column(rows[kind], column(np.int32, (2,)), 0)

    assert built.values.dtype == np.int32
    assert built.values.tolist() == [[1, 2], [3, 4]]


def test_the_error_of_a_column_counts_from_the_first_sample():
    with pytest.raises(
        SpecError, match=r"sample 12 does not fit key 'x': the dtype is float32, expected int32. Yield"
    ) as raised:
        build_column([1, 2, 2.5], column(np.int32), 10)
    assert (raised.value.sample, raised.value.key) == (12, "x")


def test_the_shape_of_a_column_is_checked():
    with pytest.raises(SpecError, match=r"sample 1 does not fit key 'x': the shape is \(3,\), expected \(2,\)"):
        build_column([[1, 2], [1, 2, 3]], column(np.int32, (2,)), 0)


# Runs


def all_runs(given, columns, **limits):
    return list(runs(given, columns, RunLimits(**limits)))


def test_runs_start_at_one_sample_and_double_to_their_limit():
    read = all_runs([{"x": i} for i in range(100)], [column(np.int32)], samples=8, seconds=60)

    assert [len(values["x"]) for values, _ in read] == [1, 2, 4, *[8] * 11, 5]
    assert np.concatenate([values["x"] for values, _ in read]).tolist() == list(range(100))


def test_a_run_is_bounded_in_bytes():
    samples = [{"x": np.zeros(1000, np.uint8)} for _ in range(40)]

    read = all_runs(samples, [column(np.uint8, (1000,))], bytes=4000, seconds=60)

    assert max(values["x"].nbytes for values, _ in read) <= 4000


def test_a_slow_generator_is_not_waited_for():
    def slow():
        for i in range(6):
            time.sleep(0.02)
            yield {"x": i}

    read = all_runs(slow(), [column(np.int32)], seconds=0.001)

    assert [len(values["x"]) for values, _ in read] == [1] * 6


def test_samples_before_a_bad_one_are_given_first():
    samples = [{"x": i} for i in range(7)] + [{"x": "seven"}, {"x": 8}]
    seen = []

    with pytest.raises(SpecError, match="sample 7 does not fit key 'x'"):
        for values, _ in runs(samples, [column(np.int32)], RunLimits(seconds=60)):
            seen.extend(values["x"].tolist())
    assert seen == list(range(7))


def test_samples_before_an_exception_are_given_first():
    def samples():
        yield from ({"x": i} for i in range(6))
        raise ZeroDivisionError("in user code")

    seen = []
    with pytest.raises(ZeroDivisionError, match="in user code"):
        for values, _ in runs(samples(), [column(np.int32)], RunLimits(seconds=60)):
            seen.extend(values["x"].tolist())
    assert seen == list(range(6))


@pytest.mark.parametrize("bad", [7, {"y": 1}, {"x": 1, "y": 2}, {}])
def test_a_sample_of_another_form_is_an_error_anywhere(bad):
    with pytest.raises(SpecError, match="sample 20 "):
        all_runs([{"x": i} for i in range(20)] + [bad], [column(np.int32)])


def test_one_long_matrix_does_not_multiply_the_memory_of_its_run():
    samples = [{"x": np.ones((1, 1))} for _ in range(1023)] + [{"x": np.ones((2000, 10))}]

    read = all_runs(samples, [column(np.float64, (None, None))], seconds=60)

    assert sum(len(extents["x"]) for _, extents in read) == 1024
    assert sum(values["x"].size for values, _ in read) == 1023 + 2000 * 10


def test_run_limits_are_checked():
    with pytest.raises(SpecError, match="samples and bytes of at least 1 and seconds above 0"):
        RunLimits(samples=0)


# Sources


def test_a_generator_function_can_be_read_again():
    source = PythonSource(lambda: ({"x": i} for i in range(3)))

    assert [sample["x"] for sample in source.sampled(2)] == [0, 1]
    assert [sample["x"] for sample in source] == [0, 1, 2] == [sample["x"] for sample in source]
    assert source.known_n_samples == 3


def test_a_class_and_an_iterable_are_sources():
    class Samples:
        def __iter__(self):
            return ({"x": i} for i in range(3))

    assert len(list(PythonSource(Samples))) == len(list(PythonSource(Samples()))) == 3


def test_the_length_of_a_list_is_known_without_a_pass():
    assert PythonSource([{"x": 1}] * 5).known_n_samples == 5


@pytest.mark.parametrize("infer_k", [1, 3, 10, -1])
def test_a_one_shot_iterator_loses_no_sample(infer_k):
    source = PythonSource(iter([{"x": i} for i in range(6)]))
    list(source.sampled(infer_k))

    assert [sample["x"] for sample in source] == list(range(6))


def test_a_one_shot_iterator_inferred_over_all_samples_can_be_read_again():
    source = PythonSource(iter([{"x": i} for i in range(6)]))
    list(source.sampled(-1))

    assert [sample["x"] for sample in source] == [sample["x"] for sample in source] == list(range(6))
    assert source.known_n_samples == 6


def test_a_second_pass_over_a_one_shot_iterator_is_refused():
    source = PythonSource(iter([{"x": 1}]))
    list(source)

    with pytest.raises(LoaderError, match="one-shot iterator can be read only once"):
        list(source)


def test_counting_does_not_use_up_a_one_shot_iterator():
    source = PythonSource(iter([{"x": 1}]))

    with pytest.raises(LoaderError, match="to count its samples would use up a one-shot iterator"):
        source.count()
    assert len(list(source)) == 1
    assert source.count() == 1


@pytest.mark.parametrize(
    ("declared", "message"), [(2, "but the iterable gives more"), (4, "but the iterable ended after 3")]
)
def test_a_wrong_number_of_samples_is_an_error(declared, message):
    with pytest.raises(LoaderError, match=f"python_iterable_n_samples is {declared}, {message}"):
        list(PythonSource(lambda: ({"x": i} for i in range(3)), declared))


@pytest.mark.parametrize("n_samples", [-1, 1.5, True])
def test_the_declared_number_is_checked(n_samples):
    with pytest.raises(LoaderError, match="python_iterable_n_samples should be an int of at least 0"):
        PythonSource([], n_samples)


@pytest.mark.parametrize("source", [5, {"x": [1, 2]}, "text"])
def test_what_is_not_an_iterable_of_samples_is_refused(source):
    with pytest.raises(LoaderError, match="python_iterable should be a generator function, a class or an iterable"):
        PythonSource(source)


def test_a_function_must_give_something_to_iterate_over():
    with pytest.raises(LoaderError, match="calling python_iterable gave a dict"):
        list(PythonSource(lambda: {"x": 1}))
