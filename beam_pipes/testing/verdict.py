"""What trials have shown: findings, and the verdict that they make."""

from __future__ import annotations

import dataclasses
from typing import Any

#: Every kind of finding, and what it means.
KINDS = {
    "aliasing": "what was given for one record changes when a later one is processed",
    "batch": "`transform_batch` and `transform` differ, or the cuts between batches show",
    "clock": "the time shows in what is given",
    "declaration": "the declaration is another one in another process",
    "entropy": "random bytes of the system show: `uuid`, `os.urandom`, an unseeded generator",
    "environment": "an environment variable shows",
    "fails": "the build would stop: a record fails, or cannot be stored",
    "hash_seed": "the order of a set, or `hash()` of a string, shows",
    "identity": "`id()` shows: where an object lies in memory",
    "key_order": "the order of a dict's keys, or of a set, goes from one stage to the next",
    "late": "a trial did not end in time",
    "lazy": "an iterator is given, which is worked out later and only once",
    "locale": "the locale shows",
    "mutation": "the input is changed",
    "not_importable": "another process cannot import what the declaration is made of",
    "not_picklable": "what the declaration is made of, or what a stage gives, cannot be pickled",
    "process": "which process it is shows",
    "random": "the state of a global random generator shows",
    "rebuild": "a build that was killed and run again, or retried, wrote other bytes",
    "rounding": "the last digits depend on the size of batches",
    "source": "the source gives other records when it is read again",
    "state": "records processed before show",
    "statistics": "statistics differ from run to run, or with the order in which they are merged",
    "time_zone": "the time zone shows",
    "unknown": "something shows that no trial could name",
    "working_directory": "the working directory shows",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong with one stage.

    Attributes:
        kind: one of `KINDS`.
        stage: the stage's name; "source", or the declaration's name where no single stage is at fault.
        message: what happens and what to do about it; the same in every run.
        record: the id of a record that shows it, or None where it takes none.
        expected: what the stage gave at first, shortened.
        found: what it gave in the trial, shortened.
        place: the line of the user's code that does it, where it was seen: `stages.py:31`.
    """

    kind: str
    stage: str
    message: str
    record: str | None = None
    expected: str | None = None
    found: str | None = None
    place: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.stage} [{self.kind}]: {self.message}"]
        if self.record is not None:
            lines.append(f"    record {self.record}")
        if self.place is not None:
            lines.append(f"    at {self.place}")
        if self.expected is not None:
            lines.append(f"    first: {self.expected}")
        if self.found is not None:
            lines.append(f"    then:  {self.found}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of `check_declaration`: what was tried, on how much, and what is wrong.

    `stages` and `findings` are in the order of the graph; `trials` are in words.
    """

    declaration: str
    records: int
    shards: int
    stages: tuple[str, ...]
    trials: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def robust(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def kinds(self, stage: str | None = None) -> set[str]:
        """The kinds of what was found, of one stage or of all."""
        return {finding.kind for finding in self.findings if stage is None or finding.stage == stage}

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "robust": self.robust}

    def __str__(self) -> str:
        what = f"{self.records} records of {self.shards} source shards through {' → '.join(self.stages)}"
        if self.robust:
            return f"declaration {self.declaration!r} is robust: {what}. Tried: {'; '.join(self.trials)}."
        count = "1 finding" if len(self.findings) == 1 else f"{len(self.findings)} findings"
        return "\n".join(
            [f"declaration {self.declaration!r} is not robust, {count}: {what}.", *map(str, self.findings)]
        )
