"""Kill, retry, corruption and resumption campaigns, and counts of what went wrong.

    python -m benchmarks.reliability --json reliability.json                       full size (several minutes)
    python -m benchmarks.reliability --kills 4 --corruptions 500 --resumes 20      a smoke run

Exits with 1 where anything was lost, duplicated, undetected or different.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from beam_pipes.cache.kill_points import LABELS
from benchmarks import harness
from benchmarks.campaigns.corruptions import corrupt
from benchmarks.campaigns.declarations import INPUT_VARIABLE, REFERENCE, write_input
from benchmarks.campaigns.kills import labelled_kills, random_kills
from benchmarks.campaigns.resumes import resume_campaign
from benchmarks.campaigns.retries import retry_campaign
from runners.build import build
from runners.options import LocalOptions


def main() -> None:
    arguments = _parser().parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reliability-", dir=arguments.directory) as directory:
        results = run(
            Path(directory),
            kills=arguments.kills,
            retries=arguments.retries,
            corruptions=arguments.corruptions,
            resumes=arguments.resumes,
            seed=arguments.seed,
        )
    harness.report({**results, "secs": round(time.monotonic() - started, 1)}, arguments.json)
    if results["problems"]:
        sys.exit(1)


def run(directory: Path, *, kills: int, retries: int, corruptions: int, resumes: int, seed: int = 0) -> dict[str, Any]:
    """All four campaigns, in directories below `directory`; `problems` lists what should not have happened."""
    at_random = random_kills(directory / "random", kills=kills, seed=seed)
    at_steps = labelled_kills(directory / "labelled", LABELS)
    retried = retry_campaign(directory / "retries", builds=retries, seed=seed)
    corrupted = corrupt(_cache(directory / "corrupted", files=1), tries=corruptions, seed=seed)
    resumed = resume_campaign(_cache(directory / "resumed", files=6), tuples=resumes, seed=seed)
    problems = [*at_random.problems, *at_steps.problems, *corrupted.undetected[:20], *resumed.different[:20]]
    if retried.different_builds:
        problems.append(f"{retried.different_builds} of {retried.builds} retried builds gave other bytes")
    lost = at_random.records_lost + at_steps.records_lost + retried.records_lost
    duplicated = at_random.records_duplicated + at_steps.records_duplicated + retried.records_duplicated
    if lost or duplicated:
        problems.append(f"{lost} records lost, {duplicated} duplicated")
    return {
        "kills_tried": at_random.kills + at_steps.kills,
        "kills_survived": at_random.survived + at_steps.survived,
        "kills_at_random_moments": at_random.kills,
        "kills_at_labelled_steps": at_steps.kills,
        "shards": at_random.shards + at_steps.shards,
        "shard_executions": at_random.shard_executions + at_steps.shard_executions,
        "shard_executions_allowed": at_random.executions_allowed + at_steps.executions_allowed,
        "reads_while_killing": at_random.reads_meanwhile,
        "builds_with_retries": retried.builds,
        "failures_retried": retried.failures,
        "shards_executed_again_by_retries": retried.extra_executions,
        "records_lost": lost,
        "records_duplicated": duplicated,
        "bad_inputs_tried": corrupted.tried,
        "bad_inputs_by_damage": dict(corrupted.by_damage),
        "bad_inputs_by_kind_of_file": dict(corrupted.by_kind),
        "undetected_corruptions": len(corrupted.undetected),
        "resume_tuples_tried": resumed.tried,
        "resume_tuples_equal": resumed.equal,
        "problems": problems,
    }


def _parser() -> Any:
    parser = harness.parser(__doc__)
    parser.add_argument("--kills", type=int, default=50, help="builds to be killed at random moments [50]")
    parser.add_argument("--retries", type=int, default=10, help="builds whose stages fail transiently [10]")
    parser.add_argument("--corruptions", type=int, default=100_000, help="files to be damaged [100000]")
    parser.add_argument("--resumes", type=int, default=1_000, help="states to go on from [1000]")
    parser.add_argument("--seed", type=int, default=0, help="seed of all that is drawn [0]")
    parser.add_argument("--directory", help="where to work; a disk that can take a few megabytes [temporary]")
    return parser


def _cache(directory: Path, *, files: int) -> Path:
    write_input(directory / "input", files=files)
    os.environ[INPUT_VARIABLE] = str(directory / "input")
    build(REFERENCE, directory / "cache", options=LocalOptions(workers=1))
    return directory / "cache"


if __name__ == "__main__":
    main()
