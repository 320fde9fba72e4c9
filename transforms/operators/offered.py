"""What the modules of `fn` and `ops` offer: names of the table, loaded when they are used."""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

from beam_pipes.graph.functions import class_of, function_of
from beam_pipes.graph.operator import nearest
from beam_pipes.transforms.operators import OPERATORS, OPS_ALIASES, families, families_of, operator_class


@functools.cache
def _function(name: str) -> Any:
    return function_of(operator_class(name))


@functools.cache
def _class(name: str) -> Any:
    return class_of(operator_class(name))


_Module = tuple[Callable[[str], Any], Callable[[], list[str]]]


def functions(package: str) -> _Module:
    """`__getattr__` and `__dir__` of the package of functions; makes its modules, one for each family."""
    return _package(package, _functions)


def classes(package: str) -> _Module:
    """`__getattr__` and `__dir__` of the package of classes; makes its modules, one for each family."""
    return _package(package, _classes)


def _package(package: str, offered: Callable[[str, str], _Module]) -> _Module:
    for family in families():
        name = f"{package}.{family}"
        module = types.ModuleType(name, f"`{package.rpartition('.')[2]}.{family}`: see `{package}`.")
        # importlib.util.find_spec, which pkgutil and doctest ask, refuses a loaded module that has no spec.
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__package__ = package
        module.__dict__["__getattr__"], module.__dict__["__dir__"] = offered(name, family)
        # `import beam_pipes.transforms.fn.readers` finds a module that is known already.
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[parent], last, module)
    return offered(package, "")


def _functions(module: str, family: str) -> _Module:
    names = {name.rpartition(".")[2]: name for name in OPERATORS if name.rpartition(".")[0] == family}
    return _module(module, family, names, _function)


def _classes(module: str, family: str) -> _Module:
    names = {place.rpartition(":")[2]: name for name, place in OPERATORS.items() if name.rpartition(".")[0] == family}
    if not family:
        names |= OPS_ALIASES
    return _module(module, family, names, _class)


def _module(module: str, family: str, names: dict[str, str], make: Callable[[str], Any]) -> _Module:
    own_families = families_of(family)

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}.{nearest(name, listed())}")
        made = make(names[name])
        setattr(sys.modules[module], name, made)
        return made

    def listed() -> list[str]:
        return sorted([*names, *own_families])

    return load, listed
