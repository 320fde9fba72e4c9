"""The tasks of a build as files beside its shards: a job names them by number, so that its request stays small.

A source shard of small files lists all of them. With the tasks in the job graph, 10,000 shards of 224 files each made
a request of 156 MB, and services take 10 MB; with their numbers it has 0.05 MB.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from beam_pipes.building.numbered_rows import NumberedRows
from beam_pipes.building.quarantine import Quarantined
from beam_pipes.building.shard_task import BuildHeader, Prior, ShardTask
from beam_pipes.errors import BuildError
from beam_pipes.sources.source import SourceShard

DIRECTORY = "tasks"


def write_tasks(header: BuildHeader, tasks: Sequence[ShardTask]) -> None:
    """Writes the tasks of a job; their numbers are `range(len(tasks))`."""
    _rows(header).write([_to_json(task) for task in tasks])


def remove_tasks(header: BuildHeader) -> None:
    """Removes what `write_tasks` wrote; it is no error if there is nothing."""
    _rows(header).remove()


class TaskReader:
    """The tasks of a job by number."""

    def __init__(self, header: BuildHeader) -> None:
        self._rows = _rows(header)

    def task(self, number: int) -> ShardTask:
        return _from_json(self._rows[number])


def _rows(header: BuildHeader) -> NumberedRows:
    return NumberedRows(f"{header.directory}/{DIRECTORY}", what="tasks of the build", error=BuildError)


def _to_json(task: ShardTask) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "shard": task.shard.to_json(),
        "fingerprint": task.fingerprint,
        "plain_fingerprint": task.plain_fingerprint,
    }
    if task.quarantined:
        fields["quarantined"] = [dataclasses.asdict(record) for record in task.quarantined]
    if task.prior is not None:
        fields["prior"] = {**dataclasses.asdict(task.prior), "changed": sorted(task.prior.changed)}
    return fields


def _from_json(fields: dict[str, Any]) -> ShardTask:
    prior = fields.get("prior")
    return ShardTask(
        shard=SourceShard.from_json(fields["shard"]),
        fingerprint=fields["fingerprint"],
        plain_fingerprint=fields["plain_fingerprint"],
        quarantined=tuple(Quarantined(**record) for record in fields.get("quarantined", ())),
        prior=None if prior is None else Prior(**{**prior, "changed": frozenset(prior["changed"])}),
    )
