"""What the modules of `fn` and `ops` offer: names of the table, loaded when they are used."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from beam_pipes.graph.functions import class_of, function_of
from beam_pipes.graph.operator import nearest
from beam_pipes.transforms.operators import OPERATORS, OPS_ALIASES, families, operator_class


@functools.cache
def _function(name: str) -> Any:
    return function_of(operator_class(name))


@functools.cache
def _class(name: str) -> Any:
    return class_of(operator_class(name))


_Module = tuple[Callable[[str], Any], Callable[[], list[str]]]


def functions(module: str, family: str) -> _Module:
    """`__getattr__` and `__dir__` of a module of functions."""
    names = {name.rpartition(".")[2]: name for name in OPERATORS if name.rpartition(".")[0] == family}
    return _module(module, family, names, _function)


def classes(module: str, family: str) -> _Module:
    """`__getattr__` and `__dir__` of a module of classes."""
    names = {place.rpartition(":")[2]: name for name, place in OPERATORS.items() if name.rpartition(".")[0] == family}
    if not family:
        names |= OPS_ALIASES
    return _module(module, family, names, _class)


def _module(module: str, family: str, names: dict[str, str], make: Callable[[str], Any]) -> _Module:
    own_families = [] if family else families()

    def load(name: str) -> Any:
        if name in own_families:
            return importlib.import_module(f"{module}.{name}")
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}.{nearest(name, listed())}")
        made = make(names[name])
        setattr(sys.modules[module], name, made)
        return made

    def listed() -> list[str]:
        return sorted([*names, *own_families])

    return load, listed
