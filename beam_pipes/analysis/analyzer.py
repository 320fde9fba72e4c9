"""What an analyzer is: a question about all records, answered before the first of them is transformed.

    source shard ──Accumulator.add──▶ accumulator of the shard ──Analyzer.merge──▶ result ──Result──▶ stages

`Analyzer` declares the question, `Accumulator` holds what one source shard contributes, and `Result` is the handle by
which stages use an answer that does not exist yet when they are declared.
"""

from __future__ import annotations

import abc
import atexit
import dataclasses
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from beam_pipes.engine.graph import Graph, Stage, describe, graph_of
from beam_pipes.errors import AnalysisError, DeclarationError
from beam_pipes.format.spec import Record
from beam_pipes.identity.canonical import Asset
from beam_pipes.storage.local import is_remote, storage_for

# Values as an accumulator adds them: of the class that its analyzer analyses, or whatever `of` gives.
Values = Sequence[Any]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, eq=False)
class Analyzer(abc.ABC):
    """Computes something over all values: `Vocabulary("words", of=SplitWords())`.

    A subclass is a frozen dataclass with `eq=False`, its options keyword-only, and defines its accumulators and how
    to merge them:

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
        split: the split whose records are analysed; "train" by default, because what is learned from the records that
            a model is evaluated on flatters the evaluation. None analyses the records of all splits. In a declaration
            of a single split it makes no difference.

    Class attributes: `version` (raise it when results change in a way that the code does not show) and `input_type`
    (the class of values that it can analyse), or `accepts` (several classes of them). Values of a class that has
    nothing to do with these are refused where the declaration is made; where the class is not known, as with `object`,
    the accumulator refuses them.

    A fingerprint covers the class, its code and `fingerprint_config()`, together with the fingerprint of `of`, and
    neither the name nor anything else of the declaration. Accumulators are kept by it, one for each source shard.

    Raises `DeclarationError` if the name cannot be a file's, or `of` has no such output, or one of another type.
    """

    name: str
    _: dataclasses.KW_ONLY
    of: Stage | None = None
    output: str | None = None
    split: str | None = "train"

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
                    f"output={self.output!r} names an output of `of`, but `of` is not given. Give it, or omit output "
                    "to analyse the records themselves."
                ).about("analyzer", self.name)
            return
        if self.output not in (graph.outputs if self.output is not None or len(graph.outputs) != 1 else (None,)):
            raise DeclarationError(
                f"expected output=..., one of {sorted(graph.outputs)} that {graph.name!r} has, got {self.output!r}. "
                "Analyse each output by an analyzer of its own."
            ).about("analyzer", self.name)
        self.check_type(graph.output_type[self.analysed_output(graph)], f"{graph.name!r} gives")

    @functools.cached_property
    def result(self) -> Result:
        """The handle of the result, for stages to hold in their configuration; bound when the analysis has run."""
        return Result(self)

    @property
    def analysed_graph(self) -> Graph | None:
        """`of` as a graph; None if records are analysed as they are.

        Not called `graph`: an object with that attribute is taken for a pipeline, and fingerprinted by it alone.
        """
        return None if self.of is None else graph_of(self.of, default_output="values")

    def analysed_output(self, graph: Graph) -> str:
        """The name of the output of `graph` whose values are analysed."""
        return next(iter(graph.outputs)) if self.output is None else self.output

    @property
    def fingerprint_asset(self) -> Asset:
        """Replaces this object in the fingerprint of a stage that refers to it: the content of the result."""
        return self.result

    def fingerprint_config(self) -> Mapping[str, object]:
        """What determines the result; by default all fields but `name`, `of`, `output` and `split`; the last three
        count separately.
        """
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("name", "of", "output", "split")
        }

    def check_type(self, found: object, words: str) -> None:
        """Raises `DeclarationError` if values of the class `found` cannot be analysed."""
        if not isinstance(found, type):
            return
        possible = not self.accepts or any(issubclass(found, one) or issubclass(one, found) for one in self.accepts)
        if not possible or not issubclass(found, self.input_type):
            expected = " or ".join(map(describe, self.accepts)) or describe(self.input_type)
            raise DeclarationError(
                f"{type(self).__name__} analyses {expected}, but {words} {describe(found)}. Give of=..., a pipeline "
                f"that ends in {expected}."
            ).about("analyzer", self.name, expected=self.input_type, found=found)

    @abc.abstractmethod
    def accumulator(self) -> Accumulator:
        """A new accumulator, for one source shard."""

    @abc.abstractmethod
    def merge(self, accumulators: Sequence[str], target: str) -> None:
        """Writes the result, a file or a directory at the local path `target`, which does not exist yet.

        `accumulators` are local paths of what `Accumulator.save` has written, one for each source shard, in the order
        of source shards. The bytes depend on their contents alone. They may be many and large: read them as streams.
        """

    @abc.abstractmethod
    def read(self, path: str) -> Any:
        """The value in a result: what stages get from `result.value()`, and training code by the asset's path."""

    def class_names(self, value: Any) -> Sequence[str]:
        """The classes that the numbers assigned by stages with this result stand for; `value` as `read` returns it."""
        raise DeclarationError(f"analyzer {self.name!r}: {type(self).__name__} finds no classes.", analyzer=self.name)

    def content_digest(self, path: str) -> str:
        """What identifies the content of a result, in hex: it enters the fingerprints of stages that hold it.

        By default sha256 over all its bytes. A format whose bytes vary between writes should digest only what matters.
        """
        return Asset(path).digest()


_CHUNK_BYTES = 8 << 20


class BoundResult(NamedTuple):
    """An existing result: its path (local or on an object store), and the digest of its content."""

    path: str
    digest: str


class Result(Asset):
    """An analyzer's result as an asset: a stage that holds it is fingerprinted by its content.

        words = Vocabulary("words", of=SplitWords())

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class ToIds(Pipeline):
            input_type = str
            output_type = dict
            words: Result = words.result

            def transform(self, line):
                ids = self.words.value()
                return [{"tokens": np.array([ids[word] for word in line.split()], np.int32)}]

    A build binds it once the analysis has run, in every process that runs stages. Ask for `value()` where it is needed
    and keep nothing of it between records: another build in the same process binds another result.

    Raises `AnalysisError` while it is not bound.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.bound: BoundResult | None = None
        #: Whether it was bound by hand: then no declaration has to run the analyzer.
        self.by_hand = False
        self._known: tuple[str, object] | None = None

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        """The analyzer's name, and the asset's."""
        return self.analyzer.name

    @property
    def path(self) -> str:
        """The local path of the result; for one on an object store, the path of a copy that is removed when this
        process ends.
        """
        bound = self._require()
        return _local_copy(bound) if is_remote(bound.path) else bound.path

    def value(self) -> Any:
        """The result as `analyzer.read` gives it: read once, then the same object every time. Do not change it."""
        bound = self.bound
        if bound is not None and self._known is not None and self._known[0] == bound.digest:
            return self._known[1]
        bound = self._require()
        value = self.analyzer.read(self.path)
        self._known = bound.digest, value
        return value

    def class_names(self) -> tuple[str, ...] | None:
        """The classes that the analyzer has found, in the order of their numbers; None before it has run."""
        return None if self.bound is None else tuple(self.analyzer.class_names(self.value()))

    def digest(self) -> str:
        """The digest of the content (`analyzer.content_digest`)."""
        return self._require().digest

    def bind(self, bound: BoundResult | str | os.PathLike[str] | None, *, by_hand: bool = True) -> None:
        """Makes this the handle of an existing result, given directly or by its path; None releases it.

        Builds do this themselves (`by_hand=False`). Call it to try out a stage:
        `words.result.bind(cache.asset_path("words"))`.
        """
        if bound is not None and not isinstance(bound, BoundResult):
            path = os.fspath(bound)
            bound = BoundResult(path, self.analyzer.content_digest(path))
        if bound is not None and not is_remote(bound.path):
            bound = bound._replace(path=os.path.abspath(bound.path))
        self.bound = bound
        self.by_hand = by_hand and bound is not None

    def _require(self) -> BoundResult:
        if self.bound is None:
            raise AnalysisError(
                f"the result of the analyzer {self.name!r} ({type(self.analyzer).__name__}) was requested, but the "
                "analysis has not run. Build a declaration that lists it in analyzers=(...), or bind an existing "
                f"result: result.bind(cache.asset_path({self.name!r})).",
                analyzer=self.name,
            )
        return self.bound

    def __repr__(self) -> str:
        return f"<Result of {self.name!r}: {'not bound' if self.bound is None else self.bound.digest[:8]}>"

    def __getstate__(self) -> dict[str, object]:
        return {"analyzer": self.analyzer, "bound": self.bound, "by_hand": self.by_hand, "_known": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


_copies: dict[BoundResult, str] = {}


def _local_copy(bound: BoundResult) -> str:
    """A copy of a result on an object store, fetched once per process."""
    if bound not in _copies:
        directory = tempfile.mkdtemp(prefix="beam-pipes-result-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        target = os.path.join(directory, bound.path.rpartition("/")[2])
        fetch(bound.path, target)
        _copies[bound] = target
    return _copies[bound]


def fetch(path: str, target: str) -> None:
    """Copies a file, or a directory with all its files, from any storage to the local path `target`."""
    storage = storage_for(path)
    for file in storage.tree(path) or [""]:
        source, made = (f"{path}/{file}", os.path.join(target, *file.split("/"))) if file else (path, target)
        os.makedirs(os.path.dirname(made), exist_ok=True)
        with storage.open_read(source) as stream, open(made, "wb") as copy:
            shutil.copyfileobj(stream, copy, _CHUNK_BYTES)


class Accumulator(abc.ABC):
    """Takes the values of one source shard, in order, and is saved after the last.

    One accumulator sees one source shard from its first record to its last, in one process; after a failure a new one
    starts again, so nothing is ever added twice. What it holds in memory must be bounded, whatever the shard's size.
    """

    @abc.abstractmethod
    def add(self, values: Sequence[Record], record_ids: Sequence[str]) -> None:
        """Takes a batch of consecutive values.

        `values[i]` came from the record `record_ids[i]` (`file@position`); a record that gave three values is named
        three times, one that gave none does not occur. Names are computed when they are first asked for: an accumulator
        that does not look at them does not pay for them.
        """

    @abc.abstractmethod
    def save(self, path: str) -> None:
        """Writes a file, or a directory, at the local `path`, which does not exist yet.

        The bytes depend on what was added and on nothing else: no times, no hash order, no random numbers.
        """
