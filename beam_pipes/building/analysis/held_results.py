"""`held_results`: the handles of results that a stage holds in its configuration."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.analysis.analyzer import Analyzer
from beam_pipes.analysis.result import Result
from beam_pipes.engine.graph import Graph

_SCALARS = (str, bytes, int, float, bool, type(None))
_LEAVES = (type, types.ModuleType, types.BuiltinFunctionType, np.ndarray, np.generic)

# A stage may hold a model with everything that belongs to it; handles lie near the surface.
MOST_OBJECTS = 20_000


def held_results(stage: Any) -> list[Result]:
    """The handles in the fields of a stage, of objects, containers and closures in them, and of a DAG's units.

    What the *code* of a stage refers to is not looked at: it is met when the stage is fingerprinted.
    """
    found: dict[int, Result] = {}
    seen: dict[int, Any] = {}
    waiting: list[Any] = [stage]
    while waiting and len(seen) < MOST_OBJECTS:
        value = waiting.pop()
        if isinstance(value, _SCALARS) or isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that its id stays its own
        if isinstance(value, Result):
            found.setdefault(id(value), value)
        elif isinstance(value, Analyzer) and value is not stage:
            found.setdefault(id(value.result), value.result)
        else:
            waiting += _parts(value)
    return list(found.values())


def _parts(value: Any) -> list[Any]:
    graph = getattr(value, "graph", None)
    if isinstance(graph, Graph):
        return [unit.stage for unit in graph.units]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [each for each in value if not isinstance(each, _SCALARS)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    slots = [name for cls in type(value).__mro__ for name in _slots(cls)]
    return [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
