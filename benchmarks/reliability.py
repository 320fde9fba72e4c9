"""Kill, ending, retry, corruption, dead-letter, resumption and loading campaigns, and counts of what went wrong.

    python -m benchmarks.reliability --json reliability.json     full size (several minutes)

A smoke run: `--kills 4 --endings 6 --corruptions 500 --resumes 20 --moments 5 --dead-letter-records 400`.

Exits with 1 if anything was lost, duplicated, undetected or different.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.storage.locks import LABELS
from benchmarks import harness
from benchmarks.campaigns.corrupted_records import dead_letter_campaign
from benchmarks.campaigns.corruptions import corrupt
from benchmarks.campaigns.declarations import INPUT_VARIABLE, REFERENCE, write_input
from benchmarks.campaigns.endings import endings_campaign
from benchmarks.campaigns.kills import labelled_kills, random_kills
from benchmarks.campaigns.loading import loading_campaign
from benchmarks.campaigns.resumes import resume_campaign
from benchmarks.campaigns.retries import retry_campaign


def main() -> None:
    arguments = _parser().parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reliability-", dir=arguments.directory) as directory:
        results = run(
            Path(directory),
            kills=arguments.kills,
            endings=arguments.endings,
            retries=arguments.retries,
            corruptions=arguments.corruptions,
            resumes=arguments.resumes,
            moments=arguments.moments,
            dead_letter_records=arguments.dead_letter_records,
            seed=arguments.seed,
        )
    harness.report({**results, "secs": round(time.monotonic() - started, 1)}, arguments.json)
    if results["problems"]:
        sys.exit(1)


def run(
    directory: Path,
    *,
    kills: int,
    endings: int,
    retries: int,
    corruptions: int,
    resumes: int,
    moments: int,
    dead_letter_records: int,
    seed: int = 0,
) -> dict[str, Any]:
    """All seven campaigns, in directories below `directory`; `problems` lists what should not have happened."""
    at_random = random_kills(directory / "random", kills=kills, seed=seed)
    at_steps = labelled_kills(directory / "labelled", LABELS)
    ended = endings_campaign(directory / "endings", endings=endings, seed=seed)
    retried = retry_campaign(directory / "retries", builds=retries, seed=seed)
    corrupted = corrupt(_cache(directory / "corrupted", files=1), tries=corruptions, seed=seed)
    resumed = resume_campaign(_cache(directory / "resumed", files=6), tuples=resumes, seed=seed)
    loaded = loading_campaign(directory / "resumed" / "cache", directory / "loaded", moments=moments, seed=seed)
    problems = [*at_random.problems, *at_steps.problems, *corrupted.undetected[:20], *resumed.different[:20]]
    dead = dead_letter_campaign(directory / "dead", records=dead_letter_records, seed=seed)
    problems += [*ended.problems[:20], *loaded.problems[:20]]
    if dead.missing or dead.extra or dead.incomplete:
        problems.append(f"dead letters: {dead.missing} missing, {dead.extra} extra, {dead.incomplete} incomplete")
    problems += [f"dead letters on {name} are not those on {dead.runners[0]}" for name in dead.different]
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
        "endings_tried": ended.ended,
        "endings_by_kind": dict(ended.by_ending),
        "endings_after_which_the_build_finished": ended.finished,
        "records_that_ended_their_workers": ended.deadly_records,
        "builds_with_retries": retried.builds,
        "failures_retried": retried.failures,
        "shards_executed_again_by_retries": retried.extra_executions,
        "records_lost": lost,
        "records_duplicated": duplicated,
        "bad_inputs_tried": corrupted.tried,
        "bad_inputs_by_damage": dict(corrupted.by_damage),
        "bad_inputs_by_kind_of_file": dict(corrupted.by_kind),
        "undetected_corruptions": len(corrupted.undetected) + dead.missing,
        "corrupted_records_planted": dead.planted,
        "corrupted_records_by_kind": dict(dead.planted_by_kind),
        "dead_letters_missing": dead.missing,
        "dead_letters_extra": dead.extra,
        "dead_letters_incomplete": dead.incomplete,
        "dead_letters_equal_on": [name for name in dead.runners if name not in dead.different],
        "resume_tuples_tried": resumed.tried,
        "resume_tuples_equal": resumed.equal,
        "loading_moments_tried": loaded.moments,
        "loading_moments_in_time": loaded.in_time,
        "loading_moments_by_ending": dict(loaded.by_ending),
        "loading_next_starts": loaded.next_starts,
        "problems": problems,
    }


def _parser() -> Any:
    parser = harness.parser(__doc__)
    parser.add_argument("--kills", type=int, default=50, help="builds to be killed at random moments [50]")
    parser.add_argument("--endings", type=int, default=60, help="commands to be ended by signals [60]")
    parser.add_argument("--retries", type=int, default=10, help="builds whose stages fail transiently [10]")
    parser.add_argument("--corruptions", type=int, default=100_000, help="files to be damaged [100000]")
    parser.add_argument("--resumes", type=int, default=1_000, help="states to go on from [1000]")
    parser.add_argument(
        "--moments", type=int, default=100, help="passes of loading to be ended at random moments [100]"
    )
    parser.add_argument(
        "--dead-letter-records", type=int, default=10_000, help="records of which 6 %% are corrupted [10000]"
    )
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
