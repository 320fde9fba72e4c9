"""Checks of arguments: a choice, a number within bounds, a known name, one option of several, an object of a class.

Each returns the checked value, or raises with what was expected, what was found, and what to do:

    policy = choice(policy, of=POLICIES, what="on_error")
    count = integer(count, least=1, what="num_shards", error=SpecError)

`what` is the subject of the sentence, with its place in front (`what=f"declaration {name!r}: on_error"`). `error` is
the exception's class, or a function that makes or raises it. `advice` is a sentence that follows, and further keywords
become facts of the exception (`stage=name`).

`takes` gives a method the fields of a dataclass as its arguments, so that they are declared and checked in one place.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from beam_pipes.errors import DeclarationError

T = TypeVar("T")
N = TypeVar("N", bound=float)
P = ParamSpec("P")
Self = TypeVar("Self")
Options = TypeVar("Options")
#: Makes an exception from a message and facts, or raises it.
Failing = Callable[..., Exception]


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds of a number: `least` and `most` are allowed, `above` and `below` are not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def hold(self, value: Any) -> bool:
        """Whether a number is within; NaN is not."""
        return bool(
            value == value
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """` of at least 1`, ` from 0 to 1`, ` above 0 and below 1`; nothing without bounds."""
        if self.least is not None and self.most is not None:
            return f" from {self.least} to {self.most}"
        bounds = {"of at least": self.least, "above": self.above, "of at most": self.most, "below": self.below}
        words = [f"{words} {bound}" for words, bound in bounds.items() if bound is not None]
        return f" {' and '.join(words)}" if words else ""


def choice(
    value: T, *, of: Iterable[object], what: str, error: Failing = DeclarationError, advice: str = "", **facts: object
) -> T:
    """`value`, which should be one of the choices in `of`."""
    choices = list(of)
    if value not in choices:
        near = nearest(value, [one for one in choices if isinstance(one, str)]) if isinstance(value, str) else ""
        _fail(f"{what} should be one of {listed(choices)}, got {brief(value)}.{near}", error, advice, facts)
    return value


def integer(
    value: object,
    *,
    what: str,
    least: int | None = None,
    most: int | None = None,
    error: Failing = DeclarationError,
    advice: str = "",
    **facts: object,
) -> int:
    """`value` as Python's integer, within bounds: NumPy's have a width and are not JSON. A bool is not one."""
    bounds = Bounds(least, most)
    if not is_integer(value) or not bounds.hold(value):
        _fail(f"{what} should be an integer{bounds}, got {brief(value)}.", error, advice, facts)
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(
    value: N,
    *,
    what: str,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    error: Failing = DeclarationError,
    advice: str = "",
    **facts: object,
) -> N:
    """`value`, which should be a number within `Bounds`. A bool and NaN are no numbers."""
    bounds = Bounds(least, most, above, below)
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not bounds.hold(value):
        _fail(f"{what} should be a number{bounds}, got {brief(value)}.", error, advice, facts)
    return value


def known(
    *names: str,
    among: Iterable[str],
    what: str,
    where: str = "",
    error: Failing = DeclarationError,
    advice: str = "",
    **facts: object,
) -> None:
    """Each of `names` should be in `among`: `there is no feature 'txt'. Did you mean 'text'? There are: text, id.`"""
    there = list(among)
    for name in names:
        if name not in there:
            front = f"{where}: " if where else ""
            listed = f"There are: {', '.join(there)}." if there else "There are none."
            _fail(f"{front}there is no {what} {name!r}.{nearest(name, there)} {listed}", error, advice, facts)


def exclusive(
    options: Mapping[str, object],
    *,
    needed: bool = False,
    where: str = "",
    error: Failing = DeclarationError,
    advice: str = "",
    **facts: object,
) -> str | None:
    """The name of the option that is given, that is, not None: at most one of them, or exactly one if `needed`."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1 or (needed and not given):
        front = f"{where}: " if where else ""
        found = " and ".join(given) if given else "none"
        _fail(f"{front}give one of {' and '.join(_commas(options))}, got {found}.", error, advice, facts)
    return given[0] if given else None


def instance(
    value: object,
    of: type[T] | tuple[type[T], ...],
    *,
    what: str,
    expected: str | None = None,
    error: Failing = DeclarationError,
    advice: str = "",
    **facts: object,
) -> T:
    """`value`, which should be an object of a class; `expected` says so in other words than the class's name."""
    if not isinstance(value, of):
        classes = of if isinstance(of, tuple) else (of,)
        words = expected or " or ".join(_with_article(one.__name__) for one in classes)
        _fail(f"{what} should be {words}, got {type(value).__name__} {brief(value)}.", error, advice, facts)
    return value


def takes(
    options: Callable[P, Options],
) -> Callable[[Callable[[Self, Options], T]], Callable[Concatenate[Self, P], T]]:
    """Turns a method that takes one options object into one called with the fields of its dataclass."""

    def decorate(method: Callable[[Self, Options], T]) -> Callable[Concatenate[Self, P], T]:
        @functools.wraps(method)
        def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return method(self, options(*args, **kwargs))

        # Missing or unknown arguments raise as in a call of the method itself.
        options.__init__.__qualname__ = method.__qualname__
        declared = inspect.signature(method)
        own = next(iter(declared.parameters.values()))
        fields = inspect.signature(options).parameters.values()
        call.__dict__["__signature__"] = declared.replace(parameters=[own, *fields])
        return call

    return decorate


def is_integer(value: object) -> bool:
    """Whether `value` is an integer: Python's or NumPy's, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'horizontal'?`, or nothing if no name is close."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


def nearest_path(path: str) -> str:
    """` Did you mean 'corpus.jsonl'?` for a path that is not there, if a name beside it is close."""
    folder, name = os.path.split(path.rstrip("/"))
    try:
        return nearest(name, os.listdir(folder or "."))
    except OSError:
        return ""


def brief(value: object, *, limit: int = 80) -> str:
    """The repr of a value on one line, cut at `limit` characters; NumPy's scalars as the numbers they are."""
    is_wrapped = isinstance(value, numbers.Number) and type(value).__module__ == "numpy"
    try:
        text = " ".join((str(value) if is_wrapped else repr(value)).split())
    except Exception as error:
        if isinstance(value, int):  # may have more digits than Python converts
            return f"an int of {value.bit_length()} bits"
        text = f"(its repr raises {type(error).__name__})"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _fail(message: str, error: Failing, advice: str, facts: dict[str, object]) -> NoReturn:
    raise error(f"{message} {advice}" if advice else message, **facts)


def listed(choices: Iterable[object]) -> str:
    """Choices as users write them: `fail, drop, None`."""
    return ", ".join(one if isinstance(one, str) and one else repr(one) for one in choices)


def _commas(names: Iterable[str]) -> list[str]:
    """All but the last joined by commas, and the last."""
    *first, last = names
    return [", ".join(first), last] if first else [last]


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
