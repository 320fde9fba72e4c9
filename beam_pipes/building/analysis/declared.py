"""`held_results`: the handles of results that a stage holds in its configuration.

What can be checked about a declaration's analyzers at construction: names, types, and which needs whose result.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from beam_pipes.analysis.analyzer import Analyzer, BoundResult, Result
from beam_pipes.engine.graph import Graph, describe
from beam_pipes.errors import DeclarationError, TypeMismatchException
from beam_pipes.sources.source import Source

_SCALARS = (str, bytes, int, float, bool, type(None))
_LEAVES = (type, types.ModuleType, types.BuiltinFunctionType, np.ndarray, np.generic)

# A stage may hold a model with everything that belongs to it; handles lie near the surface.
MOST_OBJECTS = 20_000


def held_results(stage: object) -> list[Result]:
    """The handles in the fields of a stage, of objects, containers and closures in them, and of a DAG's units.

    What the *code* of a stage refers to is not searched: fingerprinting the stage finds it.
    """
    found: dict[int, Result] = {}
    seen: dict[int, object] = {}
    waiting: list[object] = [stage]
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


def _parts(value: object) -> list[object]:
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


class Analysed(Protocol):
    """The parts of a declaration that are read: its analyzers, and what they and the stages are given."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Source: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def analyzers(self) -> Sequence[Analyzer]: ...


def check_analyzers(declaration: Analysed) -> None:
    """Raises `DeclarationError` or `TypeMismatchException` for analyzers that cannot run, or results that no analyzer
    makes.
    """
    analyzers = declaration.analyzers
    where = f"declaration {declaration.name!r}"
    for analyzer in analyzers:
        if not isinstance(analyzer, Analyzer):
            raise DeclarationError(
                f"{where}: analyzers should be objects of classes derived from Analyzer, got {analyzer!r:.80}. "
                "Example: analyzers=(Vocabulary('words', of=SplitWords()),)."
            )
    names = [analyzer.name for analyzer in analyzers]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(
                f"{where}: two analyzers are called {name!r}. Each name is a file name in the cache: give every "
                "analyzer a different one."
            )
    for analyzer in analyzers:
        _check_input(declaration, analyzer, where)
    held = {analyzer.name: _held_by(analyzer) for analyzer in analyzers}
    for unit in declaration.graph.units:
        _check_declared(held_results(unit.stage), analyzers, f"{where}: stage {unit.name!r}")
    for name, results in held.items():
        _check_declared(results, analyzers, f"{where}: the analyzer {name!r}")
    _check_order({name: {result.name for result in results} & set(names) for name, results in held.items()}, where)


def bound_results(declaration: Analysed) -> dict[str, BoundResult]:
    """Analyzer → its result, of those that have one."""
    return {
        analyzer.name: analyzer.result.bound for analyzer in declaration.analyzers if analyzer.result.bound is not None
    }


def bind_results(declaration: Analysed, results: Mapping[str, BoundResult]) -> None:
    """Binds the handles of all analyzers of a declaration, and unbinds those that `results` does not name."""
    for analyzer in declaration.analyzers:
        analyzer.result.bind(results.get(analyzer.name), by_hand=False)


@contextlib.contextmanager
def assumed_results(declaration: Analysed) -> Iterator[None]:
    """For checks before the analysis has run: inside the block, every missing result counts as empty."""
    missing = [analyzer for analyzer in declaration.analyzers if analyzer.result.bound is None]
    for analyzer in missing:
        analyzer.result.bind(BoundResult("", "0" * 64), by_hand=False)
    try:
        yield
    finally:
        for analyzer in missing:
            analyzer.result.bind(None)


def _held_by(analyzer: Analyzer) -> list[Result]:
    return [result for result in held_results(analyzer) if result is not analyzer.result] + [
        result for result in held_results(analyzer.of) if result is analyzer.result
    ]


def _check_input(declaration: Analysed, analyzer: Analyzer, where: str) -> None:
    given = declaration.source.output_type
    graph = analyzer.analysed_graph
    if graph is None:
        analyzer.check_type(given, f"the source {type(declaration.source).__name__} gives")
        return
    wanted = graph.input_type
    if not isinstance(wanted, type) or not issubclass(given, wanted):
        raise TypeMismatchException(
            f"{where}: the source {type(declaration.source).__name__} gives {given.__name__}, but the analyzer "
            f"{analyzer.name!r} is of {graph.name!r}, which takes {describe(wanted)}. Put a pipeline in front that "
            "converts.",
            expected=wanted,
            found=given,
        )


def _check_declared(held: Sequence[Result], analyzers: Sequence[Analyzer], holder: str) -> None:
    for result in held:
        if not result.by_hand and not any(result is analyzer.result for analyzer in analyzers):
            known = ", ".join(repr(analyzer.name) for analyzer in analyzers) or "none"
            raise DeclarationError(
                f"{holder} holds the result of the analyzer {result.name!r}, which the declaration does not run. "
                f"List that very object in analyzers=(...); there are: {known}.",
                analyzer=result.name,
            )


def _check_order(needs: Mapping[str, set[str]], where: str) -> None:
    left = dict(needs)
    while ready := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in ready:
            del left[name]
    if left:
        told = ", ".join(f"{name!r} needs {', '.join(map(repr, sorted(needed)))}" for name, needed in left.items())
        raise DeclarationError(
            f"{where}: the analyzers wait for each other's results: {told}. An analyzer may hold the results of "
            "others that do not depend on it."
        )
