"""Digests of content: equal exactly where content is equal, and the same for ever; normalizers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.dedup import compose, content_digest, lower, plain_text, squeeze_whitespace
from beam_pipes.transforms.dedup.exact import normalized

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(PLAIN, PLAIN)
def test_digests_are_equal_exactly_where_values_are(one: Any, other: Any) -> None:
    # repr, because 1 == True == 1.0 are three contents.
    assert (content_digest(one) == content_digest(other)) == (repr(_sorted(one)) == repr(_sorted(other)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="order_of_keys"),
        pytest.param([1, 2], (1, 2), True, id="list_and_tuple"),
        pytest.param("1", 1, False, id="text_and_number"),
        pytest.param("to be", b"to be", False, id="text_and_bytes"),
        pytest.param(["ab", "c"], ["a", "bc"], False, id="where_parts_end"),
        pytest.param([[1], 2], [1, [2]], False, id="nesting"),
        pytest.param(np.int32(5), 5, True, id="numpy_scalar"),
        pytest.param({"text": "x"}, {"text": np.str_("x")}, True, id="numpy_text"),
        pytest.param(np.arange(4), np.arange(4).reshape(2, 2), False, id="shape"),
        pytest.param(np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int64), False, id="dtype"),
        pytest.param(np.arange(8)[::2], np.array([0, 2, 4, 6]), True, id="strides"),
        pytest.param(np.arange(4, dtype=">i4"), np.arange(4, dtype="<i4"), True, id="byte_order"),
        pytest.param(np.array(["a", None], object), np.array(["a", "b"], object), False, id="objects"),
    ],
)
def test_what_counts_as_the_same_content(one: Any, other: Any, same: bool) -> None:
    assert (content_digest(one) == content_digest(other)) is same


def test_protocol_buffers_are_compared_by_their_fields() -> None:
    one, same, other = Struct(), Struct(), Struct()
    one.update({"a": 1, "b": "x"})
    same.update({"b": "x", "a": 1})
    other.update({"a": 2, "b": "x"})

    assert content_digest(one) == content_digest(same) != content_digest(other)


def test_digests_are_frozen() -> None:
    # Written down: accumulators are kept from build to build.
    assert content_digest("to be").hex() == "5294a7398bff7509b7465d654f1d8dea"
    assert content_digest(b"to be").hex() == "926bbdaaa081df50819a0131a390039a"
    assert (
        content_digest({"a": [1, 2.5, None, True], "b": np.arange(3, dtype=np.int16)}).hex()
        == "c3068dc6571084c2a674d4bdb3fea5eb"
    )


def test_what_has_no_digest_is_named() -> None:
    message = (
        "content should be text, bytes, numbers, arrays, protocol buffers, or lists and mappings of these, got set: "
        "{1}. Give the analyzer of=..., a pipeline that ends in the content to compare."
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
        content_digest([{1}])


def test_normalizers_fold_what_they_say() -> None:
    assert lower("Straße TO") == "strasse to"
    assert squeeze_whitespace(" to \n\tbe ") == "to be"
    assert compose("e\u0301") == "é"
    assert plain_text("  TO\tbE\u0301 ") == "to bé"
    assert normalized(" A ", None) == " A "
    assert normalized(" A ", (lower, str.strip)) == "a"


@settings(deadline=None)
@given(st.text())
def test_normalizing_twice_is_normalizing_once(text: str) -> None:
    for normalize in (squeeze_whitespace, compose):
        assert normalize(normalize(text)) == normalize(text)
