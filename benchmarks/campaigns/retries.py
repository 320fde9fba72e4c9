"""The retry campaign: stages that fail once, on a runner that really retries bundles, must give the same bytes."""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter
from pathlib import Path

from beam_pipes.cache import Cache
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from benchmarks.campaigns.declarations import FAILURES_VARIABLE, INPUT_VARIABLE, LOG_VARIABLE, executions, write_input
from benchmarks.campaigns.kills import snapshot_files

REFERENCE = "benchmarks.campaigns.declarations:strict"

# The in-process runners do not retry; this one tries a bundle four times.
RUNNER = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
FAILURES_A_BUILD = 3


@dataclasses.dataclass(kw_only=True)
class RetryCounts:
    """`failures`: how often a stage raised; `extra_executions`: source shards that were started more than once."""

    builds: int = 0
    failures: int = 0
    extra_executions: int = 0
    different_builds: int = 0
    records_lost: int = 0
    records_duplicated: int = 0


def retry_campaign(directory: Path, *, builds: int, files: int = 6, seed: int = 0) -> RetryCounts:
    """`builds` builds, in each of which three records fail the first time they are read."""
    rng = random.Random(seed)
    counts = RetryCounts()
    environment = dict(os.environ)
    try:
        for number in range(builds):
            place = directory / f"retry-{number}"
            failures, log = place / "failures", place / "log"
            failures.mkdir(parents=True)
            fragile = rng.sample(range(files), FAILURES_A_BUILD)
            ids = write_input(place / "input", files=files, fragile=fragile, boom=False)
            os.environ[INPUT_VARIABLE] = str(place / "input")
            undisturbed = build(REFERENCE, place / "undisturbed", options=LocalOptions(workers=1))
            os.environ[FAILURES_VARIABLE], os.environ[LOG_VARIABLE] = str(failures), str(log)
            build(REFERENCE, place / "retried", options=BeamOptions(runner=RUNNER))
            del os.environ[FAILURES_VARIABLE], os.environ[LOG_VARIABLE]
            found = Counter(int(example["id"]) for example in Cache.open(place / "retried")["train"])
            counts.builds += 1
            counts.failures += len(list(failures.iterdir()))
            counts.extra_executions += executions(log) - files
            counts.records_lost += len(ids - found.keys())
            counts.records_duplicated += sum(count - 1 for count in found.values())
            counts.different_builds += snapshot_files(place / "retried", undisturbed.snapshot) != snapshot_files(
                place / "undisturbed", undisturbed.snapshot
            )
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return counts
