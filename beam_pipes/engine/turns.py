"""Turns: a stage that may keep state of a call on itself is run by one thread of a process at a time.

A declaration that workers import by its name is one object for all threads of a worker, and so are its class stages.
What the engine needs to know about a call (drops, statistics) it keeps with the runner. But a class may keep anything
between two lines of its `transform`: a buffer, the data of its own `get_stats`. So a runner takes the turn of a stage
for a batch; a class with `is_shared = True` keeps nothing, and its threads do not wait for each other.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable

from beam_pipes.engine.records import Left


class Turn:
    """The turn of one object: a lock, and where the run that holds it collects what calls leave behind."""

    __slots__ = ("left", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.left: Left | None = None


# By id, since a stage may be of any class: with slots, without a hash, with its own `__getstate__`.
_turns: dict[int, tuple[Callable[[], object], Turn]] = {}
_making = threading.Lock()


def turn_of(stage: object) -> Turn:
    """The turn of `stage`, the same for every thread of this process."""
    found = _turns.get(id(stage))
    if found is None:
        with _making:
            found = _turns.get(id(stage))
            if found is None:
                found = _turns[id(stage)] = (_known(stage), Turn())
    return found[1]


def left_in_turn(stage: object) -> Left | None:
    """Where the run that has the turn of `stage` collects; None if no run has it."""
    found = _turns.get(id(stage))
    return None if found is None else found[1].left


def _known(stage: object) -> Callable[[], object]:
    """An object that lives as long as the entry does, and ends it with the stage."""
    try:
        return weakref.ref(stage, functools.partial(_forget, id(stage)))
    except TypeError:  # it has slots and cannot be referenced weakly: the entry stays
        return lambda: stage


def _forget(key: int, _: object) -> None:
    _turns.pop(key, None)


def _begin_anew() -> None:
    """In a forked process: the threads that hold turns do not exist there."""
    global _making
    _making = threading.Lock()
    _turns.clear()


os.register_at_fork(after_in_child=_begin_anew)
