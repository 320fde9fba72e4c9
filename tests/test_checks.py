"""The checks of arguments: what they let through, and the words with which they refuse."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

from beam_pipes import checks
from beam_pipes.errors import DeclarationError, LoaderError, SpecError


class TestChoice:
    def test_it_returns_the_value(self) -> None:
        assert checks.choice("drop", of=("fail", "drop"), what="on_error") == "drop"
        assert checks.choice(None, of=(None, True, "padded"), what="cu_seqlens") is None

    @pytest.mark.parametrize(
        ("value", "of", "said"),
        [
            ("dorp", ("fail", "drop"), "p should be one of fail, drop, got 'dorp'. Did you mean 'drop'?"),
            ("qq", ("fail", "drop"), "p should be one of fail, drop, got 'qq'."),
            (["a"], {"a": 1, "b": 2}, "p should be one of a, b, got ['a']."),
            (2, (True, False, "padded"), "p should be one of True, False, padded, got 2."),
            ("x", ("", "skip"), "p should be one of '', skip, got 'x'."),
        ],
    )
    def test_it_says_what_there_is_and_what_is_near(self, value: object, of: tuple[object, ...], said: str) -> None:
        with pytest.raises(DeclarationError) as caught:
            checks.choice(value, of=of, what="p")
        assert str(caught.value) == said


class TestInteger:
    def test_numpys_integers_come_back_as_pythons(self) -> None:
        found = checks.integer(np.int8(7), least=1, most=7, what="n")
        assert found == 7 and type(found) is int

    @pytest.mark.parametrize(
        ("value", "bounds", "expected", "found"),
        [
            (0, {"least": 1}, "an integer of at least 1", "0"),
            (np.int64(0), {"least": 1}, "an integer of at least 1", "0"),
            (9, {"least": 0, "most": 8}, "an integer from 0 to 8", "9"),
            (9, {"most": 8}, "an integer of at most 8", "9"),
            (True, {}, "an integer", "True"),
            (np.True_, {}, "an integer", "np.True_"),
            (1.0, {}, "an integer", "1.0"),
            (None, {"least": 1}, "an integer of at least 1", "None"),
            ("3", {"least": 1}, "an integer of at least 1", "'3'"),
        ],
    )
    def test_it_refuses(self, value: object, bounds: dict[str, int], expected: str, found: str) -> None:
        with pytest.raises(LoaderError) as caught:
            checks.integer(value, what="n", error=LoaderError, **bounds)  # type: ignore[arg-type]
        assert str(caught.value) == f"n should be {expected}, got {found}."

    def test_an_integer_too_long_to_print_is_described(self) -> None:
        with pytest.raises(DeclarationError, match="got an int of 20001 bits"):
            checks.integer(1 << 20000, most=9, what="n")


class TestNumber:
    @pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.25), np.int64(1)])
    def test_it_returns_what_it_was_given(self, value: float) -> None:
        assert checks.number(value, least=0, most=1, what="rate") is value

    @pytest.mark.parametrize(
        ("value", "bounds", "expected"),
        [
            (1.5, {"least": 0, "most": 1}, "a number from 0 to 1"),
            (0, {"above": 0}, "a number above 0"),
            (0.0, {"above": 0, "most": 1}, "a number above 0 and of at most 1"),
            (1, {"least": 0, "below": 1}, "a number of at least 0 and below 1"),
            (float("nan"), {}, "a number"),
            (False, {"least": 0}, "a number of at least 0"),
            ("1", {}, "a number"),
            (None, {}, "a number"),
        ],
    )
    def test_it_refuses(self, value: float, bounds: dict[str, float], expected: str) -> None:
        with pytest.raises(DeclarationError) as caught:
            checks.number(value, what="rate", **bounds)  # type: ignore[arg-type]
        assert str(caught.value) == f"rate should be {expected}, got {value!r}."


class TestKnown:
    def test_known_names_pass(self) -> None:
        checks.known("text", "id", among={"id": 1, "text": 2}, what="feature")

    def test_it_says_the_first_unknown_name_and_the_nearest(self) -> None:
        with pytest.raises(SpecError) as caught:
            checks.known("id", "txt", "x", among=["id", "text"], what="feature", where="where", error=SpecError)
        assert str(caught.value) == "where: there is no feature 'txt'. Did you mean 'text'? There are: id, text."

    def test_it_says_that_there_are_none(self) -> None:
        with pytest.raises(DeclarationError, match=r"^there is no reader 'a'\. There are none\.$"):
            checks.known("a", among=(), what="reader")


class TestExclusive:
    def test_it_returns_the_name_of_the_given_one(self) -> None:
        assert checks.exclusive({"axes": None, "axis_names": ()}) == "axis_names"
        assert checks.exclusive({"axes": None, "axis_names": None}) is None

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"a": 1, "b": 2}, "give one of a and b, got a and b."),
            ({"a": 1, "b": None, "c": 2}, "give one of a, b and c, got a and c."),
            ({"a": None, "b": None}, "give one of a and b, got none."),
        ],
    )
    def test_it_refuses(self, options: dict[str, object], said: str) -> None:
        with pytest.raises(DeclarationError) as caught:
            checks.exclusive(options, needed=True)
        assert str(caught.value) == said


class TestInstance:
    def test_it_returns_the_value(self) -> None:
        assert checks.instance("a", str, what="name") == "a"

    def test_it_says_the_class_and_the_value(self) -> None:
        with pytest.raises(DeclarationError, match=r"^name should be a str, got int 1\.$"):
            checks.instance(1, str, what="name")
        with pytest.raises(DeclarationError, match=r"^n should be an int or a float, got str 'x'\.$"):
            checks.instance("x", (int, float), what="n")

    def test_it_takes_other_words(self) -> None:
        with pytest.raises(DeclarationError, match=r"^split should be one split of a cache, got int 1\.$"):
            checks.instance(1, str, what="split", expected="one split of a cache")


def test_advice_follows_and_facts_are_attributes() -> None:
    with pytest.raises(SpecError) as caught:
        checks.choice("a", of=("b", "c"), what="kind", error=SpecError, advice="Omit it.", feature="text")
    assert str(caught.value) == "kind should be one of b, c, got 'a'. Omit it."
    assert caught.value.feature == "text"


def test_what_raises_itself_may_be_the_error() -> None:
    def refuse(message: str) -> NoReturn:
        raise LoaderError(f"Resize: {message}")

    with pytest.raises(LoaderError, match=r"^Resize: n should be an integer of at least 1, got 0\.$"):
        checks.integer(0, least=1, what="n", error=refuse)


def test_a_value_is_shown_on_one_line_and_cut() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert checks.brief("a\nb" * 80) == "'" + ("a\\nb" * 80)[:78] + "…"
    assert checks.brief(Broken()) == "(its repr raises RuntimeError)"
    assert checks.brief(np.float32(0.5)) == "0.5"
