"""A source of its own for each split: what `build(name, {"train": …, "eval": …}, …)` reads.

`dataset_splits`: the splits of a folder of Hugging Face datasets, Arrow or Parquet.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.cache.storage import directory_path, storage_for
from beam_pipes.errors import CacheNotFoundError, SourceError, StorageError
from beam_pipes.sources.record_batch import Piece, RecordBatch
from beam_pipes.sources.selection import select
from beam_pipes.sources.source import Source, SourcePlan, SourceShard
from beam_pipes.sources.tables import ArrowRows, Parquet

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


# `train-00000-of-00002`, also with a digest behind it.
_SHARDED = re.compile(r"(.+?)-\d{5}-of-\d{5}(-[0-9a-f]+)?")


def dataset_splits(directory: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> dict[str, Source]:
    """The splits of a folder of Hugging Face datasets, each with its source: `build(name, dataset_splits("wiki"), …)`.

    | folder | splits |
    | --- | --- |
    | `DatasetDict.save_to_disk` (`dataset_dict.json`) | those that it names: `ArrowRows` |
    | `Dataset.save_to_disk` (`state.json`) | its own split, else `train`: `ArrowRows` |
    | Parquet: `data/train-00000-of-00002.parquet`, `train/0000.parquet`, `train.parquet` | `train`: `Parquet` |

    A Parquet file belongs to the split in front of `-00000-of-`, else to that of its directory (but `data`), else to
    that of its own name. The folder may be on an object store. Raises `SourceError` for a folder with none of these,
    for files of one split in several directories (configurations, of which one should be named), and for a dataset that
    was saved with a mapping of indices.
    """
    top = directory_path(directory)
    named = _json_in(top, "dataset_dict.json")
    if named is not None:
        return {split: _saved(f"{top}/{split}", columns)[1] for split in named["splits"]}
    if _json_in(top, "state.json") is not None:
        return dict([_saved(top, columns)])
    places: dict[str, dict[str, list[str]]] = {}
    for file in select(top, pattern="**/*.parquet").find():
        parent, _, name = file.name.rpartition("/")
        stem, last = name.removesuffix(".parquet"), parent.rpartition("/")[2]
        sharded = _SHARDED.fullmatch(stem)
        split = sharded[1] if sharded else stem if last in ("", "data") else last
        places.setdefault(split, {}).setdefault(parent, []).append(file.path)
    for split, parents in places.items():
        if len(parents) > 1:
            raise SourceError(
                f"the folder {top!r} has files of the split {split!r} in {', '.join(map(repr, sorted(parents)))}: "
                "these are several configurations or versions. Name the directory of one.",
                file=top,
            )
    return {
        split: Parquet(paths, relative_to=top, columns=columns)
        for split, (paths,) in sorted((split, parents.values()) for split, parents in places.items())
    }


def _saved(directory: str, columns: Sequence[str] | None) -> tuple[str, Source]:
    """The split that `save_to_disk` has written into a directory, and its source."""
    state = _json_in(directory, "state.json")
    files = [each.get("filename") for each in (state or {}).get("_data_files", ())]
    if state is None or not files or not all(isinstance(each, str) for each in files):
        raise SourceError(
            f"expected a dataset that save_to_disk has written, with its files in state.json, in {directory!r}. Save "
            "it again, or copy the whole folder.",
            file=directory,
        )
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise SourceError(
            f"the dataset in {directory!r} was saved with a mapping of indices, which is not read. Write it again: "
            "load_from_disk(…).flatten_indices().save_to_disk(…).",
            file=directory,
        )
    paths = [f"{directory}/{name}" for name in files]
    return state.get("_split") or "train", ArrowRows(paths, relative_to=directory, columns=columns)


def _json_in(directory: str, name: str) -> dict[str, Any] | None:
    path = f"{directory}/{name}"
    try:
        found = json.loads(storage_for(path).read_bytes(path))
    except CacheNotFoundError:
        return None
    except (StorageError, ValueError) as error:
        raise SourceError(f"input {path} cannot be read: {error}", file=path) from error
    return found if isinstance(found, dict) else {}
