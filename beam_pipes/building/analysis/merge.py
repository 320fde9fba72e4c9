"""The accumulators of all source shards → the result of an analyzer."""

from __future__ import annotations

import os

from beam_pipes.analysis.result import BoundResult, fetch
from beam_pipes.building.analysis.analysis_job import failure_of
from beam_pipes.building.analysis.analysis_plan import PlannedAnalyzer
from beam_pipes.building.analysis.stored import Stored, discard, scratch, store
from beam_pipes.building.write_errors import writing
from beam_pipes.cache.storage import is_remote
from beam_pipes.errors import AnalysisError, BuildError


def merge(planned: PlannedAnalyzer) -> Stored | None:
    """Merges all accumulators, in the order of source shards, stores the result and binds it.

    Reads and checks every accumulator first. Damaged ones are removed, and there is no result then: None. Doing it
    again gives the same bytes. Raises `AnalysisError` where the analyzer failed.
    """
    stored = [planned.accumulators[shard.index] for shard in planned.shards]
    damaged = [each for each in stored if not each.is_undamaged()]
    for each in damaged:
        discard(each.place)
    if damaged:
        return None
    analyzer = planned.analyzer
    with writing(planned.root), scratch(planned.root) as directory:
        paths = [each.path for each in stored]
        if is_remote(planned.root):
            paths = [os.path.join(directory, f"{number:06d}") for number in range(len(stored))]
            for each, path in zip(stored, paths, strict=True):
                fetch(each.path, path)
        target = os.path.join(directory, analyzer.name)
        try:
            analyzer.merge(paths, target)
        except (BuildError, OSError):
            raise
        except Exception as error:
            raise failure_of(analyzer, f"while it merged its {len(paths)} accumulators", error) from error
        if not os.path.exists(target):
            raise AnalysisError(
                f"the analyzer {analyzer.name!r} ({type(analyzer).__name__}): merge(accumulators, target) should write "
                "a file or a directory at `target`, and there is none.",
                analyzer=analyzer.name,
            )
        digest = analyzer.content_digest(target)
        result = store(planned.result_place, target, {**_merged_facts(stored), "digest": digest})
    analyzer.result.bind(BoundResult(result.path, digest), by_hand=False)
    return result


def _merged_facts(stored: list[Stored]) -> dict[str, object]:
    failed: dict[str, int] = {}
    for each in stored:
        for name, count in each.facts["failed"].items():
            failed[name] = failed.get(name, 0) + count
    return {
        "failed": failed,
        "records": sum(each.facts["records"] for each in stored),
        "values": sum(each.facts["values"] for each in stored),
    }
