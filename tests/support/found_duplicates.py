"""Analyzers run over values as a build runs them, shard by shard, without a build."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_pipes.analysis import Analyzer
from beam_pipes.transforms.dedup import Duplicate


def result_file(analyzer: Analyzer, shards: Sequence[Sequence[Any]], directory: Path, *, batch: int = 256) -> Path:
    """The merged result over source shards of values; value number n of all is the record `f@n`."""
    paths, start = [], 0
    for index, shard in enumerate(shards):
        accumulator = analyzer.accumulator()
        for first in range(0, len(shard), batch):
            part = shard[first : first + batch]
            accumulator.add(part, [f"f@{start + first + offset}" for offset in range(len(part))])
        start += len(shard)
        paths.append(str(directory / f"accumulator-{index}"))
        accumulator.save(paths[-1])
    analyzer.merge(paths, str(directory / "result"))
    return directory / "result"


def found_duplicates(analyzer: Analyzer, shards: Sequence[Sequence[Any]], *, batch: int = 256) -> list[Duplicate]:
    """The rows of the result."""
    with tempfile.TemporaryDirectory() as directory:
        return list(analyzer.read(str(result_file(analyzer, shards, Path(directory), batch=batch))))


def removed_by_kept(analyzer: Analyzer, shards: Sequence[Sequence[Any]]) -> dict[int, int]:
    """Number of a removed value → number of the one that stays."""
    return {number(row.removed): number(row.kept) for row in found_duplicates(analyzer, shards)}


def number(record_id: str) -> int:
    return int(record_id.rpartition("@")[2])
