"""The output of a call belongs to its record alone: it is taken over if nobody else holds it, and copied otherwise.

A stage may fill one buffer for all its records, and may change its input in place. So what leaves a stage must not be
reachable from anywhere else: not from the stage, not from another record, not from the input. Reference counts show
that: a dict made and returned by a call is held only by the caller. Everything else is copied.
"""

from __future__ import annotations

import sys
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from beam_pipes.format.spec import UNCHANGEABLE, Record, owned

# The references that `taken` counts for a value held by nobody else: its own parameter and that of `getrefcount`.
_OWN_REFERENCES = 2

_ARRAY = np.ndarray
_OWN_AND_WRITEABLE = 0x0404  # NPY_ARRAY_OWNDATA | NPY_ARRAY_WRITEABLE


def _taken(value: Record, held: int = 1) -> Record:
    """`value`, with copies of those parts that somebody besides the caller can reach.

    `held` is how many references the caller has: 1 for a local variable.
    """
    kind = type(value)
    if kind in UNCHANGEABLE:
        return value
    if getrefcount(value) > held + _OWN_REFERENCES:
        return owned(value)
    if kind is dict:
        for name in value:
            item = value[name]
            if type(item) not in UNCHANGEABLE and (mine := _taken(item, 2)) is not item:
                value[name] = mine
        return value
    if kind is _ARRAY:
        # The usual case is inlined: it owns its memory, is writable, and has no weak references.
        if value.flags.num & _OWN_AND_WRITEABLE == _OWN_AND_WRITEABLE and not getweakrefcount(value):
            return value
        return value if _is_whole_of_its_base(value) else value.copy(order="K")
    if kind is list:
        if value and type(value[0]) not in UNCHANGEABLE:
            for position in range(len(value)):
                item = value[position]
                value[position] = _taken(item, 2)
        return value
    return owned(value)  # messages too: somebody may hold a part of one without a reference to the whole


def _is_whole_of_its_base(array: np.ndarray) -> bool:
    """Whether an unshared array shows all of a base that only it holds: `np.array(…).reshape(…)`."""
    base: Any = array.base
    return (
        type(base) is _ARRAY
        and getrefcount(base) <= 1 + _OWN_REFERENCES
        and base.nbytes == array.nbytes
        and array.flags.writeable
        and base.flags.owndata
        and not getweakrefcount(array)
        and not getweakrefcount(base)
    )


def _counts_tell() -> bool:
    """Whether this Python counts references as `_taken` expects; tried once with each kind of value to copy."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    array, inner = np.zeros(4), [1]
    held = [array, inner, {"x": 1}, array.reshape(2, 2)]
    for position in range(len(held)):
        one: Any = held[position]
        if _taken(one) is one:
            return False
    one = {"x": array}
    if _taken(one)["x"] is array:
        return False
    one = [inner]
    if _taken(one)[0] is inner:
        return False
    one = array.reshape(2, 2)
    if _taken(one) is one:
        return False
    for make in (lambda: {"x": np.zeros(2)}, lambda: np.zeros(4).reshape(2, 2), lambda: [[1]]):
        one = make()
        if _taken(one) is not one:
            return False
    return True


def _copied(value: Record, held: int = 1) -> Record:
    return owned(value)


taken = _taken if _counts_tell() else _copied
