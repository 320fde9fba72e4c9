"""Canonical forms: equal for equal values, different for different ones, refused for what has none."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import os
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import DeclarationError
from beam_pipes.format.messages import Example
from beam_pipes.identity.fingerprint import Asset, canonical


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass
class Point:
    x: int
    y: Any = 0


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


class Text(str):
    pass


class OwnConfig:
    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.handle = open  # noqa: SIM115 - stands for something that has no canonical form

    def fingerprint_config(self) -> dict[str, Any]:
        return {"kept": self.kept}


class OwnDigest:
    def __init__(self, digest: str) -> None:
        self.digest = digest

    def fingerprint(self) -> str:
        return self.digest


class WithCachedProperty:
    def __init__(self) -> None:
        self.x = 1

    @functools.cached_property
    def costly(self) -> int:
        return 2

    def method(self) -> int:
        return self.x


DIFFERENT = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "one as float": 1.0,
    "infinity": float("inf"),
    "nan": float("nan"),
    "complex": 1j,
    "text": "1",
    "text that looks like an array": "[1]",
    "text of a class": Text("1"),
    "bytes": b"1",
    "long bytes": b"1" * 100,
    "list": [1],
    "tuple": (1,),
    "set": {1},
    "nested list": [[1]],
    "dict": {"a": 1},
    "dict of another value": {"a": 2},
    "dict of another key": {1: 1},
    "dict like a tag": {"$tuple": [1]},
    "default dict": collections.defaultdict(int, {"a": 1}),
    "range": range(3),
    "slice": slice(1, 2),
    "ellipsis": ...,
    "array": np.array([1]),
    "array of another dtype": np.array([1], np.int8),
    "array of another shape": np.array([[1]]),
    "array of objects": np.array(["a"], object),
    "scalar": np.int64(1),
    "narrow scalar": np.int8(1),
    "dtype": np.dtype("int8"),
    "record dtype": np.dtype([("a", "int8")]),
    "enum": Colour.RED,
    "other enum": Colour.BLUE,
    "pattern": re.compile("a"),
    "pattern with a flag": re.compile("a", re.I),
    "date": datetime.date(2024, 1, 1),
    "time span": datetime.timedelta(1),
    "decimal": decimal.Decimal("1.0"),
    "class": int,
    "class of ours": Point,
    "generic": list[int],
    "union": int | None,
    "module": json,
    "builtin": len,
    "ufunc": np.add,
    "numpy function": np.sort,
    "method of a builtin": "a".upper,
    "unbound method": str.upper,
    "lambda": lambda x: x + 1,
    "other lambda": lambda x: x + 2,
    "partial": functools.partial(max, 1),
    "other partial": functools.partial(max, 2),
    "partial with a keyword": functools.partial(max, key=len),
    "bound method": WithCachedProperty().method,
    "named tuple": Pair(1, 2),
    "dataclass": Point(1),
    "other dataclass": Point(2),
    "slots": Slotted(1),
    "own configuration": OwnConfig(1),
    "own digest": OwnDigest("x"),
    "message": Example(),
    "generator": np.random.default_rng(3),
    "other generator": np.random.default_rng(4),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_form_is_json(name):
    form = canonical(DIFFERENT[name])

    assert json.loads(json.dumps(form)) == form


def test_different_values_have_different_forms():
    forms = collections.Counter(json.dumps(canonical(value)) for value in DIFFERENT.values())

    assert [form for form, count in forms.items() if count > 1] == []


def test_the_order_of_dicts_and_sets_does_not_count():
    assert canonical({"b": (1, 2), "a": {3, 1}}) == canonical({"a": {1, 3}, "b": (1, 2)})
    assert canonical({"b": (1, 2), "a": {3, 1}}) == {"$dict": [["a", {"$set": [1, 3]}], ["b", {"$tuple": [1, 2]}]]}
    assert canonical({1: "a", "1": "b", None: "c"}) == canonical({None: "c", "1": "b", 1: "a"})


def test_the_layout_of_an_array_does_not_count():
    array = np.arange(6).reshape(2, 3)

    assert canonical(array.T) == canonical(np.ascontiguousarray(array.T))


def test_what_an_object_works_out_later_does_not_count():
    thing = WithCachedProperty()
    before = canonical(thing)
    assert thing.costly == 2

    assert canonical(thing) == before


def test_fields_of_classes_of_two_versions_of_a_value_differ():
    assert canonical(OwnConfig(1)) != canonical(OwnConfig(2))
    assert canonical(OwnDigest("x")) != canonical(OwnDigest("y"))
    assert canonical(Slotted(1)) != canonical(Slotted(2))


def test_an_asset_is_its_content(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")

    assert canonical(Asset(tmp_path / "a")) == canonical(Asset(str(tmp_path / "b")))
    assert pathlib.Path(Asset(tmp_path / "a")).read_bytes() == b"1"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(pathlib.PurePosixPath("x/y"), "value is a path, 'x/y'. What a path names can change", id="path"),
        pytest.param({"a": [Point(pathlib.Path("x"))]}, r"value\['a'\]\[0\]\.x is a path", id="nested path"),
        pytest.param(object(), "value is a object, which has no canonical form. Use numbers", id="object"),
        pytest.param(Point(1, iter([])), r"value\.y is a list_iterator, which has no canonical form", id="iterator"),
        pytest.param({"a": (n for n in [])}, r"value\['a'\] is a generator", id="generator"),
    ],
)
def test_what_has_no_form_is_refused_by_its_path(value, message):
    with pytest.raises(DeclarationError, match=message):
        canonical(value)


def test_the_path_starts_with_the_given_name():
    with pytest.raises(DeclarationError, match=r"Tokenize\.vocab\[1\] is a object"):
        canonical([1, object()], path="Tokenize.vocab")


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append({"a": loop})

    with pytest.raises(DeclarationError, match=r"value\[0\]\['a'\] contains itself"):
        canonical(loop)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text("$abdictuple", max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain, plain)
def test_forms_are_equal_iff_values_are(a, b):
    same = json.dumps(canonical(a)) == json.dumps(canonical(b))

    assert same == (ordered(a) == ordered(b))


def ordered(value: Any) -> str:
    """A value as text, with dicts sorted: Python's own `==` takes 1 for True."""
    if isinstance(value, dict):
        return repr(sorted((key, ordered(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + repr([ordered(item) for item in value])
    return repr(value)


def test_an_asset_is_its_path_as_text_too(tmp_path: pathlib.Path) -> None:
    asset = Asset(tmp_path / "vocab.model")
    assert (str(asset), f"{asset}", os.fspath(asset)) == (str(tmp_path / "vocab.model"),) * 3
