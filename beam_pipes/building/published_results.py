"""`published_results`: the analyzers of a declaration have the results of a cache that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from beam_pipes.analysis.result import BoundResult
from beam_pipes.building.analysis.held_results import held_results
from beam_pipes.building.commit import ASSETS
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.plan import ANALYSIS
from beam_pipes.cache.reader import Cache
from beam_pipes.errors import AnalysisError, CacheNotFoundError


@contextlib.contextmanager
def published_results(declaration: Declaration, cache: str | os.PathLike[str] | None) -> Iterator[None]:
    """Binds the results that the snapshot of `cache` was built with; without a cache those that are bound stay.

    Raises `AnalysisError` where a stage holds a result that is not there, `CacheError` for a cache that is damaged.
    """
    before = [(each.result, each.result.bound, each.result.by_hand) for each in declaration.analyzers]
    try:
        if cache is not None and declaration.analyzers:
            with contextlib.suppress(CacheNotFoundError):
                _bind(declaration, Cache.open(cache))
        _require(declaration, cache)
        yield
    finally:
        for result, bound, by_hand in before:
            result.bind(bound, by_hand=by_hand)


def _bind(declaration: Declaration, cache: Cache) -> None:
    for analyzer in declaration.analyzers:
        found: BoundResult | None = None
        digest = cache.manifest.fingerprints.get(f"{ANALYSIS} {analyzer.name}")
        if digest is not None:
            with contextlib.suppress(CacheNotFoundError):
                found = BoundResult(cache.asset_path(f"{ASSETS}/{analyzer.name}"), digest)
        analyzer.result.bind(found, by_hand=False)


def _require(declaration: Declaration, cache: str | os.PathLike[str] | None) -> None:
    for unit in declaration.graph.units:
        for result in held_results(unit.stage):
            if result.bound is None:
                where = "no cache is given" if cache is None else f"the cache {os.fspath(cache)!r} has none"
                raise AnalysisError(
                    f"stage {unit.name!r} holds the result of the analyzer {result.name!r}, and {where}. Give the "
                    "cache that was built from this declaration: --cache DIR, or cache=... in Python.",
                    analyzer=result.name,
                )
