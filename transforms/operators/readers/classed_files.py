"""`ClassedFiles`: files whose directories are numbered classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from beam_pipes.sources.files import Files
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import SourcePlan, SourceShard
from beam_pipes.transforms.operators.readers.labelled_files import Classes

if TYPE_CHECKING:
    from beam_pipes.sources.digest_cache import DigestCache

# Between the digest of a file and its label.
_LABEL = "#"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassedFiles(Files):
    """`Files` in directories that are numbered.

    The label of a file counts in its digest: one more directory moves the labels of those behind it, and a build does
    their files again.
    """

    classes: Classes

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        plan = super().plan(target_shard_bytes=target_shard_bytes, digests=digests)
        shards = [
            dataclasses.replace(
                shard,
                slices=tuple(
                    dataclasses.replace(piece, digest=f"{piece.digest}{_LABEL}{self.classes.label_of(piece.file)}")
                    for piece in shard.slices
                ),
            )
            for shard in plan.shards
        ]
        return dataclasses.replace(plan, shards=tuple(shards))

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        slices = (dataclasses.replace(piece, digest=piece.digest.partition(_LABEL)[0]) for piece in shard.slices)
        plain = dataclasses.replace(shard, slices=tuple(slices))
        return super().read(plain, batch_records=batch_records, batch_bytes=batch_bytes)
