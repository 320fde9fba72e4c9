"""How long a stage may work on one record, and how much memory that may take.

A record that goes beyond is put into quarantine: the worker that hangs on it is killed, another one goes on with the
source shard, and there the record fails in that stage without the stage being called (`quarantine.py`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import DeclarationError

if TYPE_CHECKING:
    from beam_pipes.building.declaration import Declaration

# A process is looked at ten times within its timeout or more often, but every 2 ms at most.
SHORTEST_TIMEOUT_SECS = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordLimits:
    """The limits of one stage; None is no limit."""

    timeout_secs: float | None = None
    memory_bytes: int | None = None

    def __bool__(self) -> bool:
        return self.timeout_secs is not None or self.memory_bytes is not None


def record_limits(declaration: Declaration) -> Mapping[str, RecordLimits]:
    """The limits in force: unit → limits; empty where there are none. What a stage says goes before the declaration.

    Raises `DeclarationError` for a limit that is none, or that this system cannot keep.
    """
    found = {}
    for unit in declaration.graph.units:
        where = f"stage {unit.name!r}"
        limits = RecordLimits(
            timeout_secs=_timeout(_first(unit.stage, declaration, "record_timeout_secs"), where),
            memory_bytes=_memory(_first(unit.stage, declaration, "record_memory_bytes"), where),
        )
        if limits:
            found[unit.name] = limits
    return found


def _first(stage: Any, declaration: Declaration, name: str) -> Any:
    own = getattr(stage, name, None)
    return getattr(declaration, name) if own is None else own


def _timeout(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= SHORTEST_TIMEOUT_SECS:
        raise DeclarationError(
            f"{where}: record_timeout_secs should be a number of seconds, at least {SHORTEST_TIMEOUT_SECS}, or None, "
            f"got {value!r}.",
            found=value,
        )
    return None if math.isinf(value) else float(value)


def _memory(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DeclarationError(
            f"{where}: record_memory_bytes should be a positive number of bytes, or None, got {value!r}.", found=value
        )
    if not os.path.exists("/proc/self/statm"):
        raise DeclarationError(
            f"{where}: record_memory_bytes needs the memory of processes under /proc, which this system does not have. "
            "Leave it out here.",
            found=value,
        )
    return value
