"""The dead-letter campaign: six kinds of corruption at 1 %, and the same dead letters byte for byte on every runner."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.sources import JSONLines
from beam_pipes.typed import Counter, DAGPipeline, Input, Output, Pipeline
from benchmarks.campaigns.declarations import FAILURES_VARIABLE, INPUT_VARIABLE
from benchmarks.campaigns.kills import snapshot_files

REFERENCE = "benchmarks.campaigns.corrupted_records:rows"

# The in-process runners do not retry; this one tries a bundle four times.
_RETRYING = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
_TWO_PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")

RUNNERS: Mapping[str, LocalOptions | BeamOptions] = {
    "local_1": LocalOptions(workers=1),
    "local_2": LocalOptions(workers=2),
    "beam_in_process": BeamOptions(),
    "beam_two_processes": BeamOptions(beam_args=_TWO_PROCESSES),
    "beam_with_retries": BeamOptions(runner=_RETRYING),
}

# A bundle is tried four times.
FRAGILE = (77, 177, 277)

#: Kind of corruption → the stage and the error it ends in.
KINDS = {
    "not_utf8": ("source", "SourceError"),
    "broken_json": ("source", "SourceError"),
    "missing_key": ("Tokens", "KeyError"),
    "wrong_type": ("Tokens", "AttributeError"),
    "wrong_output": ("Lengths", "InvalidTransformOutputException"),
    "out_of_range": ("write", "SpecError"),
}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Tokens(Pipeline):
    """A row → its id and words."""

    input_type = dict
    output_type = dict

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        words = row["text"].split()
        self._set_stats([Counter("words", len(words))])
        return [{"id": row["id"], "word": word} for word in words]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Lengths(Pipeline):
    """A word → its length; the word `bytes` gives a value that is not an example."""

    input_type = dict
    output_type = dict

    def transform(self, value: dict[str, Any]) -> list[Any]:
        if value["word"] == "bytes":
            return [b"no example"]
        return [{"id": value["id"], "length": len(value["word"])}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Fragile(Pipeline):
    """Passes everything through; if a directory for failures is named, three records fail the first time."""

    input_type = dict
    output_type = dict
    on_error = "fail"

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        directory = os.environ.get(FAILURES_VARIABLE)
        if directory is not None and example["id"] in FRAGILE:
            try:
                os.close(os.open(os.path.join(directory, str(example["id"])), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return [example]
            raise ConnectionError(f"id {example['id']} fails for the first time")
        return [example]


def rows() -> Declaration:
    """Rows → one example for each word."""
    tokens, lengths, fragile = Tokens(), Lengths(), Fragile()
    return Declaration(
        name="rows",
        source=JSONLines(os.environ[INPUT_VARIABLE], pattern="*.jsonl"),
        pipeline=DAGPipeline(
            {tokens: Input(dict), lengths: tokens, fragile: lengths, Output("train"): fragile}, "Rows"
        ),
        features={"id": FeatureSpec("int32", maximum=1 << 24), "length": FeatureSpec("int32")},
        on_error="dead_letter",
        target_shard_bytes=40_000,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Planted:
    """A corrupted line: where it is, its bytes, and where it should end."""

    file: str
    position: int
    line: bytes
    stage: str
    error: str


@dataclasses.dataclass(kw_only=True)
class DeadLetterCounts:
    """`missing` and `extra` dead letters over all runners; builds that differ from the first one are in `different`."""

    planted: int = 0
    planted_by_kind: dict[str, int] = dataclasses.field(default_factory=dict)
    records: int = 0
    failures_retried: int = 0
    missing: int = 0
    extra: int = 0
    incomplete: int = 0
    runners: list[str] = dataclasses.field(default_factory=list)
    different: list[str] = dataclasses.field(default_factory=list)


def plant(directory: Path, *, records: int, fraction: float = 0.01, seed: int = 0) -> list[Planted]:
    """Writes `records` rows into four files, `fraction` of them corrupted in each of the six ways."""
    rng = random.Random(seed)
    directory.mkdir(parents=True)
    kinds = [kind for kind in KINDS for _ in range(max(1, round(records * fraction)))]
    chosen = dict(zip(rng.sample(range(records), len(kinds)), kinds, strict=True))
    planted = []
    for number in range(4):
        name, data = f"part-{number}.jsonl", bytearray()
        for identity in range(number * records // 4, (number + 1) * records // 4):
            line = _line(identity, chosen.get(identity), rng)
            if identity in chosen:
                stage, error = KINDS[chosen[identity]]
                planted.append(Planted(file=name, position=len(data), line=line, stage=stage, error=error))
            data += line + b"\n"
        (directory / name).write_bytes(data)
    return planted


def dead_letter_campaign(
    directory: Path, *, records: int, runners: Sequence[str] = tuple(RUNNERS), seed: int = 0
) -> DeadLetterCounts:
    """Builds the same corrupted input on each runner and compares dead letters and all bytes."""
    planted = plant(directory / "input", records=records, seed=seed)
    counts = DeadLetterCounts(planted=len(planted), records=records)
    for kind in KINDS:
        counts.planted_by_kind[kind] = len(planted) // len(KINDS)
    environment = dict(os.environ)
    os.environ[INPUT_VARIABLE] = str(directory / "input")
    first: dict[str, bytes] | None = None
    try:
        for name in runners:
            failures = directory / f"failures-{name}"
            if name == "beam_with_retries":
                failures.mkdir()
                os.environ[FAILURES_VARIABLE] = str(failures)
            cache = directory / name
            snapshot = build(REFERENCE, cache, options=RUNNERS[name]).snapshot
            counts.runners.append(name)
            counts.failures_retried += len(list(failures.iterdir())) if failures.exists() else 0
            _compare(planted, cache, counts)
            files = snapshot_files(cache, snapshot)
            first = files if first is None else first
            if files != first:
                counts.different.append(name)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return counts


def _compare(planted: Sequence[Planted], cache: Path, counts: DeadLetterCounts) -> None:
    letters = list(Cache.open(cache, verify=True).dead_letters())
    found = {
        Planted(
            file=letter.source,
            position=letter.position,
            line=letter.record,
            stage=letter.stage,
            error=letter.error_type,
        )
        for letter in letters
    }
    counts.missing += len(set(planted) - found)
    counts.extra += len(letters) - len(set(planted) & found)
    for letter in letters:
        has_traceback = letter.stage == "source" or letter.traceback.endswith(f"{letter.error_type}: {letter.message}")
        counts.incomplete += not (letter.message and has_traceback)


def _line(identity: int, kind: str | None, rng: random.Random) -> bytes:
    words = " ".join("w" * rng.randint(1, 9) for _ in range(rng.randint(1, 6)))
    if kind == "not_utf8":
        return b'{"id": %d, "text": "caf\xe9"}' % identity
    if kind == "broken_json":
        return b'{"id": %d, "text": "%s' % (identity, words.encode())
    row: dict[str, Any] = {"id": identity, "text": words}
    if kind == "missing_key":
        del row["text"]
    elif kind == "wrong_type":
        row["text"] = identity
    elif kind == "wrong_output":
        row["text"] = f"{words} bytes"
    elif kind == "out_of_range":
        row["id"] = (1 << 24) + 1 + identity
    return json.dumps(row).encode()
