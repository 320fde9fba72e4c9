"""What can be said of the analyzers of a declaration when it is made: names, types, and whose results who needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.analysis.analyzer import Analyzer
from beam_pipes.analysis.result import BoundResult, Result
from beam_pipes.building.analysis.held_results import held_results
from beam_pipes.engine.signature import describe
from beam_pipes.errors import DeclarationError, TypeMismatchException

if TYPE_CHECKING:
    from beam_pipes.building.declaration import Declaration


def check_analyzers(declaration: Declaration) -> None:
    """Raises `DeclarationError` or `TypeMismatchException` for analyzers that cannot run, or results nobody makes."""
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
                f"{where}: two analyzers are called {name!r}. The name is that of a file in the cache: give each its "
                "own."
            )
    for analyzer in analyzers:
        _check_input(declaration, analyzer, where)
    held = {analyzer.name: _held_by(analyzer) for analyzer in analyzers}
    for unit in declaration.graph.units:
        _check_declared(held_results(unit.stage), analyzers, f"{where}: stage {unit.name!r}")
    for name, results in held.items():
        _check_declared(results, analyzers, f"{where}: the analyzer {name!r}")
    _check_order({name: {result.name for result in results} & set(names) for name, results in held.items()}, where)


def bound_results(declaration: Declaration) -> dict[str, BoundResult]:
    """Analyzer → its result, of those that have one."""
    return {
        analyzer.name: analyzer.result.bound for analyzer in declaration.analyzers if analyzer.result.bound is not None
    }


def bind_results(declaration: Declaration, results: Mapping[str, BoundResult]) -> None:
    """Binds the handles of all analyzers of a declaration; those that `results` does not name are let go."""
    for analyzer in declaration.analyzers:
        analyzer.result.bind(results.get(analyzer.name), by_hand=False)


@contextlib.contextmanager
def assumed_results(declaration: Declaration) -> Iterator[None]:
    """For checks before the analysis has run: every result that is missing counts as an empty one meanwhile."""
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


def _check_input(declaration: Declaration, analyzer: Analyzer, where: str) -> None:
    given = declaration.source.output_type
    graph = analyzer.analysed_graph
    if graph is None:
        analyzer.check_type(given, f"the source {type(declaration.source).__name__} gives")
        return
    wanted: Any = graph.input_type
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
