"""What became of one source record, from the cache alone."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from beam_pipes.cache.dead_letters import DeadLetter
from beam_pipes.cache.lineage import Fate
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.takedown import is_removed


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRow:
    """A record of the cache: its index in the split, the shard that holds it, whether it is taken down."""

    split: str
    row: int
    shard: str
    position: int
    taken_down: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordReport:
    """What became of a source record in one snapshot.

    `fate.status` is "written" (then `rows` are what it gave, in order of splits), "dropped" (`fate.drops` are the
    stages and reasons) or "dead" (`dead_letter` holds bytes, error and traceback, unless it is taken down).
    """

    record_id: str
    snapshot: str
    source_shard: int
    ordinal: int
    fate: Fate
    rows: tuple[StoredRow, ...]
    dead_letter: DeadLetter | None

    @property
    def status(self) -> str:
        return self.fate.status

    def to_json(self) -> dict[str, Any]:
        """The report without the bytes of a dead letter."""
        fields = dataclasses.asdict(self)
        letter = self.dead_letter
        fields["fate"] = {"status": self.fate.status, "drops": [list(drop) for drop in self.fate.drops]}
        fields["dead_letter"] = letter and {
            name: getattr(letter, name) for name in ("stage", "error_type", "message", "traceback")
        }
        return fields


def explain_record(path: str | os.PathLike[str], record_id: str, *, snapshot: str | None = None) -> RecordReport:
    """What became of the source record `file@position` in the published snapshot, or in another one.

        explain_record("demo", "plays/hamlet.txt@0").status  →  "dropped"

    Reads the cache alone: the input may be gone.

    Raises:
        UnknownRecordError: no record of this id was read; the message names the nearest ones.
        CacheNotFoundError: nothing is published, or the snapshot was built without lineage.
    """
    cache = Cache.open(path, snapshot=snapshot)
    origin = cache.lineage.find(record_id)
    rows = []
    for name in cache.splits:
        split = cache[name]
        found = split.rows_of(origin.source_shard, np.array([origin.ordinal]))
        removed = is_removed(found, split.removed_rows)
        for row, taken_down in zip(found.tolist(), removed.tolist(), strict=True):
            shard, position = split.place_of(row)
            rows.append(StoredRow(split=name, row=row, shard=shard, position=position, taken_down=taken_down))
    letter = None
    if origin.fate.status == "dead":
        letter = next((each for each in cache.dead_letters() if f"{each.source}@{each.position}" == record_id), None)
    return RecordReport(
        record_id=record_id,
        snapshot=cache.manifest.snapshot,
        source_shard=origin.source_shard,
        ordinal=origin.ordinal,
        fate=origin.fate,
        rows=tuple(rows),
        dead_letter=letter,
    )
