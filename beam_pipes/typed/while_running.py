"""What a stage reports while it works on a record: `drop`, `count`, `observe`.

They are plain functions, so that helpers of a stage can call them too. Outside of a running stage `count` and
`observe` do nothing, so that a unit test can call a stage function directly.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import TypeVar

from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import current_context
from beam_pipes.engine.statistics import Counter, Histogram, Statistic
from beam_pipes.errors import InvalidStatisticsException, storable

T = TypeVar("T")
S = TypeVar("S", bound=Statistic)

# 0, 1, 2, 4, … 2^40: ranges of a factor of two show the shape of lengths, of tokens as well as of bytes.
DEFAULT_BUCKETS: tuple[float, ...] = (0, *(2**power for power in range(41)))


@dataclasses.dataclass(frozen=True)
class Drop:
    """What `drop` returns: no output, and the reason. Two drops for one reason are equal."""

    reason: str


def drop(reason: str) -> T:  # type: ignore[type-var]
    """No output for this record, with a reason that is counted: `return drop("too_short")`.

    To type checkers the result fits every return type. A test may compare it: `tokenize("") == drop("too_short")`.
    A function that yields may `return drop("reason")` too, or `yield drop("reason")` for one of several outputs.

    Raises `InvalidStatisticsException` if the reason is not text.
    """
    if not isinstance(reason, str) or not reason:
        raise InvalidStatisticsException(
            f"drop: the reason should be a text that is not empty, got {brief(reason)}. Example: return "
            'drop("too_short").'
        )
    return Drop(storable(reason))  # type: ignore[return-value]


def count(name: str, number: int = 1) -> None:
    """Adds `number` to the counter `name` of the stage that is running: `count("words", len(words))`.

    The account of a build has it as `<stage>_<name>`. If the record then fails, its counts are dropped. Does nothing
    outside of a running stage.

    Raises `InvalidStatisticsException` if `number` is not an int, or if the stage observes `name`.
    """
    if not hasattr(number, "__index__"):
        raise InvalidStatisticsException(f"count({name!r}, …): expected an int, got {brief(number)}.", name=name)
    counter = _own(name, Counter, lambda: Counter(storable(name) if isinstance(name, str) else name))
    if counter is not None:
        counter.increment(int(number))


def observe(name: str, value: float, *, buckets: Iterable[float] = DEFAULT_BUCKETS) -> None:
    """Adds `value` to the histogram `name` of the stage that is running: `observe("length", len(tokens))`.

    Args:
        name: appears in the account of a build as `<stage>_<name>`.
        value: a number; NaN is counted as such.
        buckets: lower bounds of the ranges, the same in every call; powers of two from 1 to 2^40 if left out.

    Does nothing outside of a running stage. Raises `InvalidStatisticsException` if `value` is not a number, or if
    `name` is what the stage counts.
    """
    if not hasattr(value, "__float__") or isinstance(value, str):
        raise InvalidStatisticsException(f"observe({name!r}, …): expected a number, got {brief(value)}.", name=name)
    histogram = _own(name, Histogram, lambda: _empty(tuple(buckets)).copy())
    if histogram is not None:
        histogram.name = name
        histogram.increment(value)


def _own(name: str, kind: type[S], make: Callable[[], S]) -> S | None:
    """The statistic of this name in the running call; None if no stage is running."""
    name = storable(name) if isinstance(name, str) else name
    context = current_context()
    if context is None:
        return None
    if context.counted is None:
        context.counted = {}
    found = context.counted.get(name)
    if found is None:
        found = context.counted[name] = make()
    if not isinstance(found, kind):
        raise InvalidStatisticsException(
            f"stage {context.unit!r}: {name!r} is both counted and observed. Give the counter and the histogram "
            "different names.",
            name=name,
        )
    return found


@functools.lru_cache(maxsize=256)
def _empty(buckets: tuple[float, ...]) -> Histogram:
    return Histogram("", buckets)
