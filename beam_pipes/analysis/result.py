"""`Result`: the handle by which stages hold what an analyzer will find out."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_pipes.cache.storage import is_remote, storage_for
from beam_pipes.errors import AnalysisError
from beam_pipes.identity.asset import Asset

if TYPE_CHECKING:
    from beam_pipes.analysis.analyzer import Analyzer

_CHUNK_BYTES = 8 << 20


class BoundResult(NamedTuple):
    """A result that is there: where it lies (a path of this machine or `gs://`), and the digest of its content."""

    path: str
    digest: str


class Result(Asset):
    """What an analyzer has found out, as an asset: a stage that holds it is fingerprinted by its content.

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
        self._known: tuple[str, Any] | None = None

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        """The analyzer's name, and the asset's."""
        return self.analyzer.name

    @property
    def path(self) -> str:
        """The local path of the result; of one on an object store, of a copy that goes with this process."""
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

    def digest(self) -> str:
        """The digest of the content (`analyzer.content_digest`)."""
        return self._require().digest

    def bind(self, bound: BoundResult | str | os.PathLike[str] | None, *, by_hand: bool = True) -> None:
        """Makes this the handle of a result that is there, given as it is or by its path; None lets go of it.

        Builds do this themselves (`by_hand=False`). By hand it is for trying a stage out:
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
                f"the result of the analyzer {self.name!r} ({type(self.analyzer).__name__}) is asked for, and the "
                "analysis has not run. Build a declaration that lists it in analyzers=(...), or bind a result that is "
                f"there: result.bind(cache.asset_path({self.name!r})).",
                analyzer=self.name,
            )
        return self.bound

    def __repr__(self) -> str:
        return f"<Result of {self.name!r}: {'not bound' if self.bound is None else self.bound.digest[:8]}>"

    def __getstate__(self) -> dict[str, Any]:
        return {"analyzer": self.analyzer, "bound": self.bound, "by_hand": self.by_hand, "_known": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


_copies: dict[BoundResult, str] = {}


def _local_copy(bound: BoundResult) -> str:
    """A copy of a result on an object store, fetched once a process."""
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
