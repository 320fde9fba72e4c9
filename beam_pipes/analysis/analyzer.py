"""`Analyzer`: what is to be found out about all records, before the first of them is transformed."""

from __future__ import annotations

import abc
import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from beam_pipes.analysis.accumulator import Accumulator
from beam_pipes.analysis.result import Result
from beam_pipes.engine.graph import Graph, Stage, graph_of
from beam_pipes.engine.signature import describe
from beam_pipes.errors import DeclarationError
from beam_pipes.identity.asset import Asset

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, eq=False)
class Analyzer(abc.ABC):
    """Finds something out about all values: `Vocabulary("words", of=SplitWords())`.

    A subclass is a frozen dataclass with `eq=False`, its options keyword-only, and gives its accumulators and what
    becomes of them:

        @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
        class Longest(Analyzer):
            input_type = str
            unit: str = "characters"

            def accumulator(self):
                return LongestOfShard(self.unit)

            def merge(self, accumulators, target):
                Path(target).write_text(str(max(int(Path(each).read_text()) for each in accumulators)))

            def read(self, path):
                return int(Path(path).read_text())

    Args:
        name: what the result is called: the asset's name in the cache, `cache.asset_path("words")`.
        of: a typed pipeline, or a DAG, from a record of the source to the values that are analysed. None analyses the
            records themselves. It runs as the pipeline of the declaration does: the same draws, the same `on_error`.
        output: which output of `of` is analysed, where it has several. Analyzers of equal pipelines share their work:
            one DAG with an output for each of them runs once.

    Class attributes: `version` (raise it when results change in a way that the code does not show) and `input_type`
    (the class of values that it can analyse), or `accepts` (several classes of them). Values of a class that has
    nothing to do with these are refused where the declaration is made; where the class is not known, as with `object`,
    the accumulator refuses them.

    A fingerprint covers the class, its code and `fingerprint_config()`, together with the fingerprint of `of`, and
    neither the name nor anything else of the declaration. Accumulators are kept by it, one for each source shard.

    Raises `DeclarationError` where the name cannot be a file's, or `of` has no such output, or one of another type.
    """

    name: str
    _: dataclasses.KW_ONLY
    of: Stage | None = None
    output: str | None = None

    version = 1
    input_type = object
    accepts: ClassVar[tuple[type, ...]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DeclarationError(
                f"the name of an analyzer is a file's in the cache: letters, digits, '_', '.', '-' only; got "
                f"{self.name!r}."
            )
        graph = self.analysed_graph
        if graph is None:
            if self.output is not None:
                raise DeclarationError(
                    f"analyzer {self.name!r}: output={self.output!r} names an output of `of`, and there is no `of`. "
                    "Give one, or leave output out: then the records themselves are analysed.",
                    analyzer=self.name,
                )
            return
        if self.output not in (graph.outputs if self.output is not None or len(graph.outputs) != 1 else (None,)):
            raise DeclarationError(
                f"analyzer {self.name!r}: expected output=..., one of {sorted(graph.outputs)} that {graph.name!r} has, "
                f"got {self.output!r}. Analyse each output by an analyzer of its own.",
                analyzer=self.name,
            )
        self.check_type(graph.output_type[self.analysed_output(graph)], f"{graph.name!r} gives")

    @functools.cached_property
    def result(self) -> Result:
        """The handle of the result, for stages to hold in their configuration; bound when the analysis has run."""
        return Result(self)

    @property
    def analysed_graph(self) -> Graph | None:
        """`of` as a graph; None where records are analysed as they are.

        Not called `graph`: what has one is taken for a pipeline, and fingerprinted by that graph alone.
        """
        return None if self.of is None else graph_of(self.of, default_output="values")

    def analysed_output(self, graph: Graph) -> str:
        """The name of the output of `graph` whose values are analysed."""
        return next(iter(graph.outputs)) if self.output is None else self.output

    @property
    def fingerprint_asset(self) -> Asset:
        """What stands for this object where a stage or its code refers to it: the content of the result."""
        return self.result

    def fingerprint_config(self) -> Mapping[str, Any]:
        """What decides the result; by default all fields but `name`, and `of` and `output`, which count apart."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("name", "of", "output")
        }

    def check_type(self, found: Any, words: str) -> None:
        """Raises `DeclarationError` where values of the class `found` cannot be analysed."""
        if not isinstance(found, type):
            return
        possible = not self.accepts or any(issubclass(found, one) or issubclass(one, found) for one in self.accepts)
        if not possible or not issubclass(found, self.input_type):
            expected = " or ".join(map(describe, self.accepts)) or describe(self.input_type)
            raise DeclarationError(
                f"analyzer {self.name!r}: {type(self).__name__} analyses {expected}, but {words} {describe(found)}. "
                f"Give of=..., a pipeline that ends in {expected}.",
                analyzer=self.name,
                expected=self.input_type,
                found=found,
            )

    @abc.abstractmethod
    def accumulator(self) -> Accumulator:
        """A new accumulator, for one source shard."""

    @abc.abstractmethod
    def merge(self, accumulators: Sequence[str], target: str) -> None:
        """Writes the result, a file or a directory at the local path `target`, where there is nothing.

        `accumulators` are local paths of what `Accumulator.save` has written, one for each source shard, in the order
        of source shards. The bytes depend on their contents alone. They may be many and large: read them as streams.
        """

    @abc.abstractmethod
    def read(self, path: str) -> Any:
        """The value in a result: what stages get from `result.value()`, and training code by the asset's path."""

    def content_digest(self, path: str) -> str:
        """What identifies the content of a result, in hex: it enters the fingerprints of stages that hold it.

        By default sha256 over all its bytes. A format that cannot be written twice alike digests what matters of it.
        """
        return Asset(path).digest()
