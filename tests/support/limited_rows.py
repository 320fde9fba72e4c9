"""Rows under limits, for workers that import them."""

from __future__ import annotations

from replay_declarations import rows

from beam_pipes.building import Declaration

_LIMITS = {"record_timeout_secs": 60.0, "record_memory_bytes": 1 << 30, "target_shard_bytes": 1_000}


def broken() -> Declaration:
    return rows(**_LIMITS)


def mended() -> Declaration:
    return rows(mended=("Measure",), **_LIMITS)
