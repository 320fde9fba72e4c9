"""Limits of a stage for one record, and quarantine: what becomes of a record that exceeds them.

A worker that hangs on a record, or whose memory grows too much, is killed. The record is put into *quarantine*: another
worker continues with the source shard, and there the record fails in that stage without the stage being called.
`on_error` decides whether that makes a dead letter, a drop or the end of the build.

Which records are in quarantine decides the bytes of their source shard, so it enters the shard's fingerprint and the
snapshot's id; without such records, both are the same as without limits. The list is kept in the directory of the
cache, one file for each source shard that has such records, so that the next build does not hang on them again. It
applies as long as the limit is the same.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Literal, cast

from beam_pipes.checks import integer, number
from beam_pipes.engine.graph import Graph
from beam_pipes.errors import (
    DeclarationError,
    RecordCrashError,
    RecordMemoryError,
    RecordQuarantinedError,
    RecordTimeoutError,
)
from beam_pipes.identity.canonical import digest_of
from beam_pipes.storage.checked_json import JsonValue
from beam_pipes.storage.local import storage_for

# A process is checked ten times within its timeout or more often, but every 2 ms at most.
SHORTEST_TIMEOUT_SECS = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordLimits:
    """The limits of one stage; None means no limit."""

    timeout_secs: float | None = None
    memory_bytes: int | None = None

    def __bool__(self) -> bool:
        return self.timeout_secs is not None or self.memory_bytes is not None


def record_limits(graph: Graph, timeout_secs: object, memory_bytes: object) -> Mapping[str, RecordLimits]:
    """The limits in force: unit → limits; empty if there are none. A stage's own limits override the arguments.

    Raises `DeclarationError` for an invalid limit, or one that this system cannot enforce.
    """
    found = {}
    for unit in graph.units:
        where, stage = f"stage {unit.name!r}", unit.stage
        limits = RecordLimits(
            timeout_secs=_timeout(_first(stage, "record_timeout_secs", timeout_secs), where),
            memory_bytes=_memory(_first(stage, "record_memory_bytes", memory_bytes), where),
        )
        if limits:
            found[unit.name] = limits
    return found


def _first(stage: object, name: str, otherwise: object) -> object:
    own = getattr(stage, name, None)
    return otherwise if own is None else own


def _timeout(value: object, where: str) -> float | None:
    if value is None:
        return None
    secs = number(cast("float", value), what=f"{where}: record_timeout_secs", least=SHORTEST_TIMEOUT_SECS, found=value)
    return None if math.isinf(secs) else float(secs)


def _memory(value: object, where: str) -> int | None:
    if value is None or value == math.inf:
        return None
    limit = integer(value, what=f"{where}: record_memory_bytes", least=1, found=value)
    if not os.path.exists("/proc/self/statm"):
        raise DeclarationError(
            f"{where}: record_memory_bytes needs the memory of processes under /proc, which this system does not have. "
            "Omit it here.",
            found=value,
        )
    return limit


DIRECTORY = ".quarantine"

Cause = Literal["timeout", "memory", "crash"]


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Quarantined:
    """A record in quarantine: its ordinal in the source shard, the unit it hung in, and why.

    `limit` is the limit that it exceeded, in seconds or bytes; for a crash it names the signal. It contains no measured
    time and no address: the same record gives the same dead letter everywhere.
    """

    ordinal: int
    unit: str
    cause: Cause
    limit: float | int | str

    def error(self) -> RecordQuarantinedError:
        """What the record fails with."""
        if self.cause == "timeout":
            return RecordTimeoutError(
                f"transform had not returned after record_timeout_secs={self.limit:g}; its process was killed",
                stage=self.unit,
            )
        if self.cause == "memory":
            return RecordMemoryError(
                f"transform took more than record_memory_bytes={self.limit}; its process was killed", stage=self.unit
            )
        return RecordCrashError(f"transform ended its process with {self.limit}", stage=self.unit)

    def is_in_force(self, limits: Mapping[str, RecordLimits]) -> bool:
        """Whether the record would also be put into quarantine under these limits, because they are the same."""
        own = limits.get(self.unit)
        if own is None:
            return False
        if self.cause == "crash":
            return True
        return self.limit == (own.timeout_secs if self.cause == "timeout" else own.memory_bytes)

    def to_json(self) -> list[object]:
        return [self.ordinal, self.unit, self.cause, self.limit]

    @classmethod
    def from_json(cls, value: JsonValue) -> Quarantined:
        """Raises `ValueError` or `TypeError` if `value` is not what `to_json` returns."""
        ordinal, unit, cause, limit = value
        kinds = (str,) if cause == "crash" else (int, float)
        if cause not in ("timeout", "memory", "crash") or not isinstance(limit, kinds):
            raise ValueError(f"not a record in quarantine: {value!r:.80}")
        return cls(ordinal=int(ordinal), unit=str(unit), cause=cause, limit=limit)


def quarantined_fingerprint(plain: str, records: Iterable[Quarantined]) -> str:
    """The fingerprint of a source shard with records in quarantine; `plain` is its fingerprint without any."""
    rows = [record.to_json() for record in sorted(records)]
    return digest_of(["quarantine", plain, rows]) if rows else plain


def quarantined_snapshot(plain: str, shards: Mapping[int, Iterable[Quarantined]]) -> str:
    """The id of a snapshot in which some source shards have records in quarantine; `plain` is its id without any."""
    rows = {str(index): [record.to_json() for record in sorted(records)] for index, records in shards.items()}
    rows = {index: records for index, records in rows.items() if records}
    return digest_of(["quarantine", plain, rows])[:16] if rows else plain


def remember(root: str, plain: str, records: Iterable[Quarantined]) -> None:
    """Stores the quarantined records of one source shard; `plain` is its fingerprint without them."""
    storage = storage_for(root)
    storage.makedirs(f"{root}/{DIRECTORY}")
    rows = [record.to_json() for record in sorted(records)]
    storage.replace(f"{root}/{DIRECTORY}/{plain}.json", (json.dumps(rows) + "\n").encode())


def remembered(
    root: str, plain: Iterable[str], limits: Mapping[str, RecordLimits]
) -> dict[str, tuple[Quarantined, ...]]:
    """The records in quarantine that apply under `limits`, by the plain fingerprint of their source shard.

    Unreadable files are ignored: at worst a record is tried once more.
    """
    storage = storage_for(root)
    known = {name.removesuffix(".json") for name in storage.list(f"{root}/{DIRECTORY}")} if limits else set()
    found = {}
    for fingerprint in known.intersection(plain):
        try:
            rows = json.loads(storage.read_bytes(f"{root}/{DIRECTORY}/{fingerprint}.json"))
            records = sorted(Quarantined.from_json(row) for row in rows)
        except (OSError, ValueError, TypeError):
            continue
        if counted := tuple(record for record in records if record.is_in_force(limits)):
            found[fingerprint] = counted
    return found
