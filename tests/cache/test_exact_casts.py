"""Every value keeps being the same number, or is refused: against an oracle of Python ints and fractions."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from beam_pipes.cache import ExampleCodec, ExampleSpec, FeatureSpec
from beam_pipes.errors import SpecError
from beam_pipes.format.messages import Example

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = {
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
    "float32": (24, -149, 128),
    "float64": (53, -1074, 1024),
}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

# The oracle


def number(value: Any) -> Fraction | float:
    """The number as a fraction; infinities and NaN as floats."""
    if isinstance(value, (bool, np.bool_)):
        return Fraction(bool(value))
    if isinstance(value, (int, np.integer)):
        return Fraction(int(value))
    if isinstance(value, np.longdouble):
        return Fraction(*value.as_integer_ratio()) if np.isfinite(value) else float(value)
    wide = float(value)
    return Fraction(wide) if math.isfinite(wide) else wide


def nearest(value: Fraction, dtype: str) -> Fraction | None:
    """The nearest number of a float dtype, of two the even one; None beyond its range."""
    precision, least_exponent, bound = FLOATS[dtype]
    if value == 0:
        return value
    exponent = math.floor(math.log2(abs(value.numerator)) - math.log2(value.denominator)) - precision
    unit = Fraction(2) ** max(least_exponent, exponent)
    while abs(value) / unit >= 2**precision:
        unit *= 2
    rounded = round(value / unit) * unit  # round() of a fraction takes the even one
    return rounded if abs(rounded) < Fraction(2) ** bound else None


def expected(value: Any, dtype: str) -> Fraction | float | None:
    """What has to be read back; None where the value has to be refused."""
    wanted = number(value)
    if dtype not in FLOATS:
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        fits = isinstance(wanted, Fraction) and wanted.denominator == 1 and int(low) <= wanted <= int(high)
        return wanted if fits else None
    if isinstance(wanted, float):
        return wanted
    made = nearest(wanted, dtype)
    return made if made == wanted or type(value) is float else None


def same(first: Fraction | float, second: Fraction | float) -> bool:
    return first == second or (first != first and second != second)


def leaves_of(value: Any) -> Iterator[Any]:
    """The numbers of nested lists and arrays, in order."""
    if isinstance(value, np.ndarray):
        yield from ([value[()]] if value.ndim == 0 else value.reshape(-1))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves_of(item)
    else:
        yield value


def rank_of(value: Any) -> int:
    return 1 + rank_of(value[0]) if isinstance(value, (list, tuple)) and value else np.ndim(value)


# The values

near_powers = st.builds(
    lambda sign, power, offset: sign * (2**power + offset),
    st.sampled_from([1, -1]),
    st.integers(0, 70) | st.sampled_from([128, 1024, 1300]),
    st.integers(-2, 2),
)
python_ints = st.integers(-300, 300) | near_powers
ties = st.sampled_from([1 + 2**-8 + 2**-40, 1 + 2**-8, 65519.99, 65520.0, 3.4e38, 3.3961e38, 2.0**53, 2.0**63, 2.0**64])
python_floats = st.integers(-9, 9).map(float) | st.floats() | st.floats(width=16) | ties
generics = st.sampled_from([*INTEGERS, "bool", "float16", "float32", "float64"])


@st.composite
def numpy_scalars(draw: st.DrawFn, kinds: st.SearchStrategy[str] = generics) -> Any:
    dtype = np.dtype(draw(kinds))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        ends = st.sampled_from([int(info.min), int(info.max), int(info.max) - 1])
        near = near_powers.filter(lambda value: int(info.min) <= value <= int(info.max))
        return dtype.type(draw(st.integers(0, 100) | ends | near))
    return draw(st_numpy.from_dtype(dtype))


other_scalars = st.one_of(
    python_floats.map(ml_dtypes.bfloat16),
    st.floats(allow_nan=False, width=32).map(np.longdouble),
    st.integers(-(2**63), 2**63 - 1).map(np.longdouble),
)
scalars = python_ints | python_floats | st.booleans() | numpy_scalars() | other_scalars


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    kind = numpy_scalars(st.just(draw(generics)))
    made = np.array(draw(st.lists(kind, min_size=1, max_size=6)))
    form = draw(st.sampled_from(["plain", "big", "column", "object", "bfloat16", "every other"]))
    if form == "bfloat16":
        with np.errstate(all="ignore"):
            return made.astype(BFLOAT16)
    return {
        "plain": made,
        "big": made.astype(made.dtype.newbyteorder(">")),
        "column": made[:, None],
        "object": np.array(list(made), object),
        "every other": np.repeat(made, 2)[::2],
    }[form]


@st.composite
def values(draw: st.DrawFn) -> Any:
    """One value: a scalar, an array, or lists and tuples of one kind of number or of any."""
    one_kind = st.sampled_from(
        [python_ints, python_floats, st.booleans(), numpy_scalars(), python_ints | python_floats]
    )
    leaf = draw(one_kind) if draw(st.booleans()) else scalars
    flat = st.lists(leaf, min_size=1, max_size=6)
    form = draw(st.sampled_from(["scalar", "list", "tuple", "nested", "array", "arrays", "0-d"]))
    if form == "nested":
        columns = draw(st.integers(1, 3))
        row = st.lists(leaf, min_size=columns, max_size=columns)
        return draw(st.lists(row | row.map(tuple), min_size=1, max_size=4))
    if form == "arrays":
        first = draw(arrays().filter(lambda made: made.dtype != object))
        with np.errstate(all="ignore"):
            return [first, first.astype(draw(st.sampled_from(["float64", "float32", "int64"]))), first.tolist()]
    if form == "0-d":
        return [np.array(each) for each in draw(flat)]
    return draw({"scalar": leaf, "list": flat, "tuple": flat.map(tuple), "array": arrays()}[form])


def specs(value: Any) -> Iterator[FeatureSpec]:
    shape = (None,) * rank_of(value)
    for dtype in ["bool", *INTEGERS, *FLOATS]:
        yield FeatureSpec(dtype, shape=shape)
        if dtype not in ("float64", "uint64"):
            yield FeatureSpec(dtype, shape=shape, encoding="list")
    yield FeatureSpec("uint64", shape=shape, encoding="list", maximum=2**63 - 1)


@settings(max_examples=400, deadline=None)
@given(values())
@example([2**63 + 1, 1])
@example([2**53 + 1, 1.0])
@example([2**53 + 1, 0.5])
@example([16777217, 0.5])
@example([np.float64(0.1)])
@example([np.uint64(2**63 + 1), np.int64(1)])
@example([np.longdouble(2) ** 62 + np.longdouble(0.5)])
@example([1 + 2**-8 + 2**-40])
@example(10**400)
@example([10**5000, 1])
@example(0.1)
@example(70000.0)
def test_a_value_is_read_back_as_the_same_number_or_refused_and_what_fits_is_not(value: Any) -> None:
    given_leaves = list(leaves_of(value))
    for spec in specs(value):
        codec = ExampleCodec(ExampleSpec({"x": spec}))
        wanted = [expected(leaf, spec.dtype) for leaf in given_leaves]
        if spec.maximum is not None:
            wanted = [None if each is None or each > spec.maximum else each for each in wanted]

        try:
            payload = codec.encode({"x": value})
        except SpecError:
            assert None in wanted, f"{value!r} fits {spec} and is refused"
            continue

        assert None not in wanted, f"{value!r} does not fit {spec} and is written"
        for form in (payload, Example.FromString(payload).SerializeToString()):
            found = codec.decode(form)["x"]
            assert found.dtype == spec.numpy_dtype
            pairs = zip(np.asarray(found).reshape(-1), wanted, strict=True)
            assert all(same(number(each), want) for each, want in pairs if want is not None), (value, spec, found)


def test_the_oracle_rounds_as_numpy_does() -> None:
    for bits in (0x3C00, 0x3C01, 0x0001, 0x7BFF):
        low, high = np.array([bits, bits + 1], np.uint16).view(np.float16).astype(np.float64)
        if np.isfinite(high):
            middle = (low + high) / 2
            assert nearest(Fraction(float(middle)), "float16") == Fraction(float(np.float16(middle)))
    assert nearest(Fraction(65520), "float16") is None
    assert nearest(Fraction(1 + 2**-8 + 2**-40), "bfloat16") == Fraction(1 + 2**-7)


# Lists, whatever the numbers beside them


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint64", [2**64 - 1, 2**63, 0]),
        ("uint64", collections.deque([2**63 + 1, 1])),
        ("uint64", np.array([2**63 + 1, 1], object)),
        ("uint64", array.array("Q", [2**63 + 1, 1])),
        ("int64", range(2**63 - 2, 2**63)),
        ("int64", memoryview(array.array("q", [2**53 + 1]))),
        ("int64", np.ma.array([2**53 + 1, 1], mask=[False, False])),
        ("int64", pa.array([2**53 + 1])),
        ("uint8", bytearray(b"ab")),
        ("float64", [2**64, 0.5]),
        ("float32", [2**100, np.float16(0.5), True]),
        ("float32", [np.array(0.5), 1]),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_sequences_of_other_types_keep_their_numbers(dtype: str, value: Any) -> None:
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec(dtype, shape=(None,))}))

    found = codec.decode(codec.encode({"x": value}))["x"]

    assert [number(each) for each in found] == [number(each) for each in np.asarray(value, object)]


@pytest.mark.parametrize(
    ("spec", "value", "words"),
    [
        (
            "uint64",
            [1, 2**64],
            r"exact in uint64, got 18446744073709551616 \(int\) at \[1\]. .* or declare str and keep",
        ),
        (
            "float64",
            [0.5, 2**53 + 1],
            r"exact in float64, got 9007199254740993 \(int64\) at \[1\]. .* or declare int64",
        ),
        ("float64", [[0.5, 1], [2**53 + 1, 0]], r"got 9007199254740993 \(int64\) at \[1, 0\]"),
        ("float64", [10**400], r"exact in float64, got 10{78}… \(int\) at \[0\]"),
        ("float64", 10**5000, r"got an int of 16610 bits \(int\)\. Convert"),
        ("float32", [np.float64(0.1)], r"exact in float32, got 0.1 \(float64\) at \[0\]. .* or declare float64"),
        ("float32", [1, np.array([0.1])[0], 0.1], r"got 0.1 \(float64\) at \[1\]"),
        ("float32", array.array("d", [0.1]), r"got 0.1 \(float64\) at \[0\]"),
        ("float32", [np.array([0.5, 0.1])], r"got 0.1 \(float64\) at \[0, 1\]"),
        ("float16", [65520.0], r"exact in float16, got 65520.0 \(float64\)"),
        ("int32", [1, 2.5, 2**31], r"exact in int32, got 2.5 \(float64\) at \[1\]"),
        ("int32", [1, np.ma.masked], r"the element at \[1\] is masked, so it has no value: fill it, or leave it out"),
        ("int32", np.ma.array([1, 2], mask=[False, True]), r"the element at \[1\] is masked"),
        ("int32", [[1, 2], np.ma.array([1, 2], mask=[True, False])], r"the element at \[1, 0\] is masked"),
        ("int64", pa.array([2**53 + 1, None]), "it has 1 nulls, which have no value: fill them, or leave them out"),
        (
            "int32",
            [1, None],
            r"got \[1, None\], which is not an array of numbers: the element at \[1\] is None, so it has no value",
        ),
        ("int32", [1, "2"], r"the element at \[1\] is of type str. Convert the values, or change the spec"),
        ("float32", [decimal.Decimal(1)], r"the element at \[0\] is of type Decimal"),
        ("float32", [Fraction(1, 3), 1], r"the element at \[0\] is of type Fraction"),
        ("int64", [np.datetime64("2020-01-01")], r"the element at \[0\] is of type datetime64"),
        ("int64", np.array(["2020-01-01"], "M8[D]"), r"it has the dtype datetime64\[D\]"),
        ("int64", [np.timedelta64(5, "s"), 1], r"the element at \[0\] has the dtype timedelta64\[s\]"),
        ("uint8", np.timedelta64(5, "s"), r"it has the dtype timedelta64\[s\]"),
        ("int64", [datetime.timedelta(1)], r"the element at \[0\] is of type timedelta"),
        ("float32", [1, 1j], r"the element at \[1\] is of type complex"),
        ("int32", [[1, 2], [3]], "it has inner lists of different lengths, 1 and 2"),
        ("int32", [1, [2]], r"it has elements of different shapes, \(\) and \(1,\)"),
        ("int32", [np.ones(2, int), np.ones(3, int)], r"it has elements of different shapes, \(2,\) and \(3,\)"),
        ("int32", {1}, "it is of type set"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_what_is_refused_is_named_with_its_place(spec: str, value: Any, words: str) -> None:
    rank = rank_of(value) if isinstance(value, list) else np.ndim(value) if not isinstance(value, (set, int)) else 0
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec(spec, shape=(None,) * rank)}))

    with pytest.raises(SpecError, match=rf"feature 'x': expected .*{words}") as caught:
        codec.encode({"x": value})
    assert caught.value.feature == "x"


# Floats keep their bits

PATTERNS = {
    "float16": (np.uint16, [0x7C01, 0x7E00, 0xFE01, 0xFC01, 0x7FFF, 0x8000, 0x0001, 0x7C00]),
    "bfloat16": (np.uint16, [0x7F81, 0x7FC0, 0xFFC1, 0xFF81, 0x7FFF, 0x8000, 0x0001, 0x7F80]),
    "float32": (np.uint32, [0x7F80_0001, 0x7FC0_0123, 0xFFC0_0001, 0xFFBF_FFFF, 0x8000_0000, 1, 0x7F80_0000]),
    "float64": (np.uint64, [0x7FF0_0000_0000_0001, 0xFFF8_0000_0000_0001, 1 << 63, 1]),
}


@pytest.mark.parametrize("shape", [(None,), (None, None), "fixed", ()], ids=str)
@pytest.mark.parametrize(
    ("dtype", "encoding"), [(dtype, encoding) for dtype in PATTERNS for encoding in ("raw", "list")][:-1]
)
def test_nan_and_signed_zero_keep_their_bits(dtype: str, encoding: Any, shape: Any) -> None:
    bits, patterns = PATTERNS[dtype]
    given_values = np.array(patterns, bits).view(FeatureSpec(dtype).numpy_dtype)
    spec = FeatureSpec(dtype, shape=given_values.shape if shape == "fixed" else shape, encoding=encoding)
    codec = ExampleCodec(ExampleSpec({"x": spec}))

    for value in given_values if shape == () else [given_values[:, None] if shape == (None, None) else given_values]:
        payload = codec.encode({"x": value})
        for form in (payload, Example.FromString(payload).SerializeToString()):
            assert codec.decode(form)["x"].tobytes() == value.tobytes()


def test_a_float_list_of_somebody_else_is_not_rounded_to_a_narrower_float() -> None:
    theirs = Example()
    theirs.features.feature["x"].float_list.value.extend([0.5, 0.1])
    codec = ExampleCodec(ExampleSpec({"x": FeatureSpec("float16", shape=(None,), encoding="list")}))

    with pytest.raises(
        SpecError, match=r"exact in float16, found 0.1\d* \(float32\) at \[1\] in a float_list.*declare"
    ):
        codec.decode(theirs.SerializeToString())
