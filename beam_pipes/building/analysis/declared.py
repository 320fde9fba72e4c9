"""`held_results`: the handles of results that a stage holds in its configuration.

What can be checked about a declaration's analyzers at construction: names, types, which needs whose result, and
whether the records of its split are known before any stage runs (`Learned`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from beam_pipes.analysis.analyzer import Analyzer, BoundResult, Result
from beam_pipes.engine.graph import Graph, Ref, describe
from beam_pipes.errors import DeclarationError, TypeMismatchException
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import Source

_SCALARS = (str, bytes, int, float, bool, type(None))
_LEAVES = (type, types.ModuleType, types.BuiltinFunctionType, np.ndarray, np.generic)

# A stage may hold a whole model; handles lie near the surface.
MOST_OBJECTS = 20_000


def held_results(stage: object) -> list[Result]:
    """The handles in the fields of a stage, of objects, containers and closures in them, and of a DAG's units.

    The *code* of a stage is not searched: fingerprinting the stage finds what it refers to.
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
    def seed(self) -> int: ...

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


class Partition(Protocol):
    """A stage that sends each record to one of its outputs by the record's content: `RandomPartition` without a key."""

    name: str
    partition_names: Sequence[str]
    partition_probabilities: Sequence[float]
    seed: int

    def output_of(self, content: bytes, *, seed: int) -> str: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned:
    """The records of the source that an analyzer learns from: those of `split`; all of them where it is None.

    `choices` are the partitions on the way to the split, each with the output that leads there. A source whose shards
    belong to splits needs none.
    """

    split: str | None
    choices: Sequence[tuple[Partition, str]] = ()
    seed: int = 0

    def of_shard(self, splits: Sequence[str] | None) -> bool:
        """Whether a source shard can have such records; `splits` are the ones it belongs to, None for all."""
        return self.split is None or splits is None or self.split in splits

    def records(self, batch: RecordBatch) -> RecordBatch:
        """The records of the batch that the analyzer learns from."""
        for partition, output in self.choices:
            chosen = (partition.output_of(batch.content(i), seed=self.seed) for i in range(len(batch)))
            batch = batch.only([i for i, name in enumerate(chosen) if name == output])
        return batch

    def fingerprint_options(self) -> list[object]:
        """Enters the fingerprint of an analyzer that does not learn from everything."""
        shares = [[p.name, p.partition_names, p.partition_probabilities, p.seed, output] for p, output in self.choices]
        return [] if self.split is None else [self.split, self.seed if shares else 0, shares]


def learned_by(declaration: Analysed, analyzer: Analyzer) -> Learned:
    """What an analyzer of a declaration learns from; `DeclarationError` if its split depends on what stages do."""
    graph, split = declaration.graph, analyzer.split
    if split is None or list(graph.outputs) == [split] or (len(graph.outputs) == 1 and split == "train"):
        return Learned(split=None)
    output_names = ", ".join(map(repr, graph.outputs))
    where = f"declaration {declaration.name!r}: the analyzer {analyzer.name!r} learns from the split {split!r}"
    if split not in graph.outputs:
        raise DeclarationError(
            f"{where}, and the splits are {output_names}. Give it split='...', one of them, or split=None to learn "
            "from the records of all splits.",
            analyzer=analyzer.name,
        )
    if type(declaration.source).splits_of is not Source.splits_of:
        return Learned(split=split)
    units = {unit.name: unit for unit in graph.units}
    choices: list[tuple[Partition, str]] = []
    waiting, seen = [graph.outputs[split]], set[Ref]()
    while waiting:
        ref = waiting.pop()
        if ref in seen or ref.unit not in units:
            continue
        seen.add(ref)
        unit = units[ref.unit]
        waiting += unit.refs()
        if ref.key is None:
            continue
        stage: Any = unit.stage
        if not hasattr(stage, "output_of") or stage.key is not None:
            raise DeclarationError(
                f"{where}, but which records go there is only known after {unit.name!r} has seen what the stages made "
                "of them. Divide by splits={name: share}, give each split a source, or write split=None to learn from "
                f"the records of all splits ({output_names}).",
                analyzer=analyzer.name,
                stage=unit.name,
            )
        choices.append((stage, ref.key))
    return Learned(split=split if choices else None, choices=choices, seed=declaration.seed)


def bound_results(declaration: Analysed) -> dict[str, BoundResult]:
    """Analyzer → its result, for those that have one."""
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
        waiting = ", ".join(f"{name!r} needs {', '.join(map(repr, sorted(needed)))}" for name, needed in left.items())
        raise DeclarationError(
            f"{where}: the analyzers wait for each other's results: {waiting}. An analyzer may hold the results of "
            "others that do not depend on it."
        )
