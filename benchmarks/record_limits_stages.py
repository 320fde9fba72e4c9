"""The declarations that `benchmarks.record_limits` builds; a separate module, which workers import."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from typing import Any

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.typed import Pipeline

INPUT_VARIABLE = "RECORD_LIMITS_INPUT"
WAIT_SECS_VARIABLE = "RECORD_LIMITS_WAIT_SECS"
ROUNDS_VARIABLE = "RECORD_LIMITS_ROUNDS"

TIMEOUT_SECS = 0.5
MEMORY_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Work(Pipeline):
    """A line → its number, after some time; `hang` never returns, `memory` takes all memory."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        word, number = line.split()
        if word == "hang":
            time.sleep(3600)
        if word == "memory":
            taken = []
            while True:
                taken.append(b"x" * (4 << 20))
        time.sleep(float(os.environ[WAIT_SECS_VARIABLE]))
        hash_rounds(int(os.environ[ROUNDS_VARIABLE]))
        return [{"number": int(number)}]


def hash_rounds(rounds: int) -> None:
    """Hashes a kilobyte this often."""
    block = bytes(1024)
    for _ in range(rounds):
        block = hashlib.sha256(block).digest() * 32


def unlimited() -> Declaration:
    """Lines → numbers; a source shard has about 30 of them, so that workers end together."""
    return Declaration(
        name="limits",
        source=TextLines(os.environ[INPUT_VARIABLE], pattern="*.txt"),
        pipeline=Work(),
        features={"number": FeatureSpec("int64")},
        on_error="dead_letter",
        target_shard_bytes=300,
    )


def limited() -> Declaration:
    """The same under limits."""
    return dataclasses.replace(unlimited(), record_timeout_secs=TIMEOUT_SECS, record_memory_bytes=MEMORY_BYTES)
