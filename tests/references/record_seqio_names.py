"""Runs in the environment of SeqIO itself: its modules, their public names, and the arguments and members of each.

    .venv-seqio/bin/python tests/references/record_seqio_names.py > tests/references/seqio_names.json

Names that begin with an underscore are left out, and modules of other libraries that a module has imported.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import sys
import types
import typing
from typing import Any

import seqio


def recorded() -> dict[str, Any]:
    modules = {"": seqio}
    for found in pkgutil.walk_packages(seqio.__path__, "seqio."):
        # The scripts define the same flags: only one of them can be imported.
        if not found.name.endswith(("_test", "inspect_tasks_main", "registration_provenance_main")):
            modules[found.name.removeprefix("seqio.")] = importlib.import_module(found.name)
    return {name: names_of(module) for name, module in modules.items()}


def names_of(module: types.ModuleType) -> dict[str, Any]:
    return {
        name: described(value)
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and not (isinstance(value, types.ModuleType) and not of_seqio(value.__name__))
    }


def of_seqio(name: Any) -> bool:
    return isinstance(name, str) and name.split(".")[0] == "seqio"


def described(value: Any) -> dict[str, Any]:
    if isinstance(value, types.ModuleType):
        return {"kind": "module", "of": value.__name__}
    home = getattr(value, "__module__", None)
    if inspect.isclass(value) and of_seqio(home):
        return {"kind": "class", "of": home, "arguments": arguments(value), "members": members(value)}
    if inspect.isfunction(value) or (callable(value) and inspect.isfunction(inspect.unwrap(value))):
        return {"kind": "function", "of": home, "arguments": arguments(value)}
    typing_kinds = (type(typing.Any), type(typing.Union[int, str, None]), type(typing.Callable), type(typing.Optional))  # noqa: UP007
    if home in ("typing", "typing_extensions", "__future__") or isinstance(value, typing_kinds):
        of_typing = getattr(typing, getattr(value, "_name", None) or "", None) is value or home == "__future__"
        return {"kind": "typing" if of_typing or not getattr(value, "__args__", ()) else "alias", "of": home}
    return {"kind": "value", "type": type(value).__name__}


def members(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dir(cls):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(cls, name)
        owner = next((base for base in cls.__mro__ if name in vars(base)), cls)
        if not of_seqio(owner.__module__) and not issubclass(owner, enum.Enum):
            continue
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        found[name] = arguments(function) if inspect.isfunction(function) else None
    return found


def arguments(function: Any) -> list[str] | None:
    """`["a", "b=1", "*", "c=None"]`; defaults that are no plain values as `...`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    told, keyword_only = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            told.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        keyword_only = keyword_only or star == "*"
        plain = isinstance(parameter.default, (int, float, str, bool, type(None)))
        default = f"={parameter.default!r}" if plain else "=..."
        told.append(star + parameter.name + ("" if parameter.default is parameter.empty else default))
    return told


if __name__ == "__main__":
    json.dump(recorded(), sys.stdout, indent=1, sort_keys=True)
    print()
