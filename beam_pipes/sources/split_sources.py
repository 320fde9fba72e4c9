"""A source of its own for each split: what `build(name, {"train": …, "eval": …}, …)` reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import SourceError
from beam_pipes.sources.record_batch import Piece, RecordBatch
from beam_pipes.sources.source import Source, SourcePlan, SourceShard

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache


@dataclasses.dataclass(frozen=True, eq=False)
class SplitSources(Source):
    """The records of several sources, each of which is a split.

        SplitSources({"train": TextLines("books"), "eval": TextLines("essays")})

    Files, and so records, have the split in front of their names: `train/emma.txt@1024`. The shards of a split have
    files for this split alone. Raises `SourceError` where there is no source, or where they give values of different
    types.
    """

    sources: Mapping[str, Source]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", dict(self.sources))
        if not self.sources:
            raise SourceError('expected split → source, such as {"train": TextLines("books")}, got an empty dict')
        for split, source in self.sources.items():
            if not isinstance(split, str) or not split or "/" in split:
                raise SourceError(f"splits are named by text without '/', got {split!r}", split=split)
            if not isinstance(source, Source):
                raise SourceError(
                    f"the split {split!r} should have a source, such as TextLines({source!r:.40}), got "
                    f"{type(source).__name__}: {source!r:.60}",
                    split=split,
                )
        types = {split: source.output_type for split, source in self.sources.items()}
        if len(set(types.values())) > 1:
            found = ", ".join(f"{split!r} gives {type_.__name__}" for split, type_ in types.items())
            raise SourceError(
                f"the sources of the splits should give values of one type, for the same stages; {found}. Use "
                "sources of "
                "one kind, or build a cache for each"
            )

    @property
    def output_type(self) -> type:
        return next(iter(self.sources.values())).output_type

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        shards: list[SourceShard] = []
        num_bytes = num_files = 0
        for split, source in self.sources.items():
            plan = source.plan(target_shard_bytes=target_shard_bytes, digests=digests)
            num_bytes, num_files = num_bytes + plan.num_bytes, num_files + plan.num_files
            for shard in plan.shards:
                slices = tuple(dataclasses.replace(piece, file=f"{split}/{piece.file}") for piece in shard.slices)
                shards.append(dataclasses.replace(shard, index=len(shards), slices=slices))
        return SourcePlan(shards=tuple(shards), num_bytes=num_bytes, num_files=num_files)

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        (split,) = self.splits_of(shard)
        slices = tuple(dataclasses.replace(piece, file=piece.file.partition("/")[2]) for piece in shard.slices)
        own = dataclasses.replace(shard, slices=slices)
        for batch in self.sources[split].read(own, batch_records=batch_records, batch_bytes=batch_bytes):
            yield batch.replacing(
                values=batch.values,
                ordinals=batch.ordinals,
                bad=[dataclasses.replace(row, file=f"{split}/{row.file}") for row in batch.bad],
                piece_of=lambda piece: _PieceOfSplit(piece, f"{split}/{piece.file}"),  # noqa: B023
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> Any:
        split, _, own = file.partition("/")
        return self.sources[split].parse(raw, file=own, position=position)

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {
            split: {"class": source.fingerprint_class(), **source.fingerprint_config()}
            for split, source in self.sources.items()
        }

    def stages(self) -> Mapping[str, Any]:
        return {
            f"{split}.{name}": stage
            for split, source in self.sources.items()
            for name, stage in source.stages().items()
        }

    def splits_of(self, shard: SourceShard) -> Sequence[str]:
        return sorted({piece.file.partition("/")[0] for piece in shard.slices})


class _PieceOfSplit(Piece):
    """A piece under a name that begins with its split."""

    __slots__ = ("_piece",)

    def __init__(self, piece: Piece, file: str) -> None:
        super().__init__(file=file, first_ordinal=piece.first_ordinal)
        self._piece = piece

    def position(self, k: int) -> int:
        return self._piece.position(k)

    def raw(self, k: int) -> bytes:
        return self._piece.raw(k)

    def positions_of(self, start: int, stop: int) -> list[int]:
        return self._piece.positions_of(start, stop)

    def digests_of(self, start: int, stop: int) -> bytes:
        return self._piece.digests_of(start, stop)
