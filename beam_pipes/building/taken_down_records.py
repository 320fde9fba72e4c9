"""Which source records of one snapshot its takedowns hide: ids become contents, contents become rows.

An id is looked up once, in the snapshot that is published when it is named, or in the first later one that has it.
What it matched there is kept as digests of contents, and those are looked for in every other snapshot: in another
file, at another position, any number of times. A snapshot of a version that kept no digests is searched by ids.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.building.completion import read_completion
from beam_pipes.cache.split import Split
from beam_pipes.errors import CacheNotFoundError, TakenDownNotFoundError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.index import ORDINAL, decode_index, index_path
from beam_pipes.lineage.reader import Lineage
from beam_pipes.lineage.takedown import DEAD_LETTERS, Digests, Rows, Takedown, is_removed
from beam_pipes.publication.manifest import Manifest
from beam_pipes.publication.publish import snapshot_directory
from beam_pipes.storage.local import storage_for

# Messages name this many of a long list of ids.
SHOWN = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TakedownState:
    """The effect of one takedown on one snapshot.

    `records` source records are hidden by it. `followed` maps ids to other places with the same content,
    `file@position` (the first few); `missing` maps ids to the number of their contents that were not found; `pending`
    ids have matched nothing yet. `by_position`: the snapshot keeps no digests, and ids were looked up as they are.
    """

    takedown: Takedown
    records: int = 0
    followed: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    missing: dict[str, int] = dataclasses.field(default_factory=dict)
    pending: tuple[str, ...] = ()
    by_position: bool = False

    def to_json(self) -> dict[str, object]:
        made = self.takedown.to_json()
        del made["contents"]
        fields = {name: getattr(self, name) for name in ("records", "followed", "missing", "pending", "by_position")}
        return {**made, **fields}


class SnapshotRecords:
    """The source records of one snapshot, to be found by ids and by contents.

    Raises `CacheNotFoundError` if it was built without lineage.
    """

    def __init__(self, path: str | os.PathLike[str], manifest: Manifest) -> None:
        self._root = os.fspath(path)
        self.manifest = manifest
        self.directory = snapshot_directory(path, manifest.snapshot)
        self.lineage = Lineage(self._root, self.directory, manifest)

    @classmethod
    def open(cls, path: str | os.PathLike[str], manifest: Manifest) -> SnapshotRecords | None:
        """None if the snapshot was built without lineage."""
        try:
            return cls(path, manifest)
        except CacheNotFoundError:
            return None

    def bind(self, takedowns: Sequence[Takedown], *, next_build: bool = False) -> tuple[Takedown, ...]:
        """The takedowns, with pending ids that match something here bound to its contents.

        Ids that wait for the next build keep waiting, unless this is it. Contents noted as gone are not searched for.
        """

        def waits(takedown: Takedown) -> bool:
            return takedown.undone is None and takedown.gone is None and (next_build or not takedown.next_build)

        wanted = [each for takedown in takedowns if waits(takedown) for each in takedown.pending]
        if not wanted or not self.lineage.has_digests:
            return tuple(takedowns)
        found = self.lineage.contents_of(wanted)
        return tuple(
            takedown.with_contents({each: found[each] for each in takedown.pending if each in found})
            if waits(takedown)
            else takedown
            for takedown in takedowns
        )

    def grow(self, takedowns: Sequence[Takedown]) -> tuple[tuple[Takedown, ...], dict[str, int]]:
        """The takedowns, extended to the new records of whole files; and file → number of new records.

        A file of that name counts as the same file if it holds at least half of the records that are meant. If it holds
        fewer, another file was given its name, and its records are somebody else's.
        """
        files = {each for t in takedowns if t.undone is None for each in t.contents if _is_file(each)}
        now = self.lineage.contents_of(files) if files and self.lineage.has_digests else {}
        grown: dict[str, int] = {}
        made = []
        for takedown in takedowns:
            new: dict[str, Digests] = {}
            for file in takedown.contents if takedown.undone is None else ():
                meant = takedown.digests([file])
                found = now.get(file, meant[:0])
                if len(np.setdiff1d(found, meant)) and 2 * len(np.intersect1d(found, meant)) >= len(meant):
                    new[file] = found
                    grown[file] = len(np.setdiff1d(found, meant))
            made.append(takedown.with_contents(new) if new else takedown)
        return tuple(made), grown

    def rows(self, takedowns: Iterable[Takedown]) -> tuple[dict[str, Rows], int]:
        """Split → the rows that the takedowns in force remove, also dead letters; and the number of source records."""
        selected = self._selected([takedown for takedown in takedowns if takedown.undone is None])
        rows: dict[str, Rows] = {}
        for name in self.manifest.splits:
            split = Split(self._root, self.directory, self.manifest, name)
            parts = [split.rows_of(number, ordinals) for number, ordinals in selected.items()]
            if sum(map(len, parts)):
                rows[name] = np.sort(np.concatenate(parts))
        rows[DEAD_LETTERS] = self._dead_letters(selected)
        return rows, sum(map(len, selected.values()))

    def count(self, takedown: Takedown) -> int:
        """How many source records one takedown means here."""
        return sum(map(len, self._selected([takedown]).values()))

    def _selected(self, takedowns: Sequence[Takedown]) -> dict[int, Array]:
        """Source shard → ascending ordinals of the records that these takedowns mean."""
        if not self.lineage.has_digests:
            return self.lineage.select(each for t in takedowns if not t.next_build for each in t.ids)[0]
        digests = np.unique(np.concatenate([np.empty(0, np.uint64), *(each.digests() for each in takedowns)]))
        return {index: ordinals for index, _, ordinals in self.lineage.find_contents(digests)}

    def _dead_letters(self, selected: dict[int, Array]) -> Rows:
        """The numbers of the dead letters of the selected records; an index says which record each belongs to."""
        found = [np.empty(0, np.int64)]
        begin = 0
        for entry in self.manifest.dead_letters:
            number = int(entry.file.rpartition("-of-")[0].rpartition("-")[2])
            if number in selected:
                path = index_path(os.path.join(self.directory, *entry.file.split("/")))
                ordinals = decode_index(storage_for(path).read_bytes(path), path=path)[ORDINAL].astype(np.int64)
                found.append(begin + np.flatnonzero(is_removed(ordinals, selected[number])))
            begin += entry.records or 0
        return np.concatenate(found)

    def values_of(self, places: Mapping[int, Array]) -> set[bytes]:
        """The bytes of the values of these records' rows, of 8 bytes or more each; of rows that are hidden, nothing."""
        found: list[object] = []
        for name in self.manifest.splits:
            split = Split(self._root, self.directory, self.manifest, name)
            hidden = set(split.removed_rows.tolist())
            for row in (int(row) for number, ordinals in places.items() for row in split.rows_of(number, ordinals)):
                record = None if row in hidden else split[row]
                for value in record.values() if isinstance(record, dict) else [record]:
                    if isinstance(value, np.ndarray):
                        found += value.reshape(-1).tolist() if value.dtype == object else [value.tobytes()]
                    else:
                        found += value if isinstance(value, list) else [value]
        found = [each.encode() if isinstance(each, str) else each for each in found]
        return {each for each in found if isinstance(each, bytes) and len(each) >= 8}

    def files_of(self, places: Mapping[int, Array]) -> Iterator[str]:
        """The shards and dead letters with records of `places`, source shard → ordinals, as paths in the snapshot."""
        for name, shards in self.manifest.splits.items():
            split = Split(self._root, self.directory, self.manifest, name)
            for at, number in enumerate(shards.numbers):
                if number in places and len(split.rows_of(number, places[number])):
                    yield shards.file_name(self.manifest.name, name, at)
        for entry in self.manifest.dead_letters:
            number = int(entry.file.rpartition("-of-")[0].rpartition("-")[2])
            path = index_path(os.path.join(self.directory, *entry.file.split("/")))
            if number in places:
                ordinals = decode_index(storage_for(path).read_bytes(path), path=path)[ORDINAL].astype(np.int64)
                if is_removed(ordinals, places[number]).any():
                    yield entry.file

    def missing(self, takedowns: Iterable[Takedown]) -> dict[int, dict[str, Digests]]:
        """Number of a takedown in force → id → those of its contents that are nowhere in this snapshot."""
        takedowns = [takedown for takedown in takedowns if takedown.undone is None and takedown.contents]
        if not takedowns or not self.lineage.has_digests:
            return {}
        wanted = np.unique(np.concatenate([takedown.digests() for takedown in takedowns]))
        there = np.empty(0, np.uint64)
        for _, shard, ordinals in self.lineage.find_contents(wanted):
            assert shard.digests is not None
            there = np.union1d(there, shard.digests[ordinals])
        found: dict[int, dict[str, Digests]] = {}
        for takedown in takedowns:
            for each in takedown.contents:
                if len(lost := np.setdiff1d(takedown.digests([each]), there)):
                    found.setdefault(takedown.number, {})[each] = lost
        return found

    def states(self, takedowns: Iterable[Takedown]) -> Iterator[TakedownState]:
        """What each takedown does here; those that are undone do nothing."""
        takedowns = list(takedowns)
        missing = self.missing(takedowns)
        for takedown in takedowns:
            if takedown.undone is not None:
                yield TakedownState(takedown=takedown)
                continue
            if not self.lineage.has_digests:
                _, unmatched = self.lineage.select(takedown.ids)
                yield TakedownState(
                    takedown=takedown, records=self.count(takedown), pending=tuple(unmatched), by_position=True
                )
                continue
            records, followed = self._followed(takedown)
            yield TakedownState(
                takedown=takedown,
                records=records,
                followed=followed,
                missing={each: len(lost) for each, lost in missing.get(takedown.number, {}).items()},
                pending=takedown.pending,
            )

    def _followed(self, takedown: Takedown) -> tuple[int, dict[str, tuple[str, ...]]]:
        records = 0
        places: dict[str, list[str]] = {}
        ids_of: dict[int, list[str]] = {}
        for each in takedown.contents:
            for digest in takedown.digests([each]).tolist():
                ids_of.setdefault(digest, []).append(each)
        for _, shard, ordinals in self.lineage.find_contents(takedown.digests()):
            records += len(ordinals)
            assert shard.digests is not None
            for file, first, count in shard.runs:
                if file in takedown.contents:
                    continue  # a whole file, where it was: there is nothing to say about many records
                here = ordinals[np.searchsorted(ordinals, first) : np.searchsorted(ordinals, first + count)]
                columns = shard.positions[here].tolist(), shard.digests[here].tolist()
                for position, digest in zip(*columns, strict=True):
                    place = f"{file}@{position}"
                    for each in ids_of[digest]:
                        known = places.setdefault(each, [])
                        if each != place and len(known) < SHOWN:
                            known.append(place)
        return records, {each: tuple(found) for each, found in places.items() if found}

    def assets(self) -> tuple[str, ...]:
        """The results of analyses in the snapshot, which were learned from its source records."""
        names = [entry.file.split("/") for entry in self.manifest.assets]
        return tuple(dict.fromkeys("/".join(parts[:2]) for parts in names))

    def slices(self, file: str) -> set[tuple[int, int, str]]:
        """Which parts of a file were read: (start, end, digest)."""
        storage, directory = storage_for(self._root), f"{self.directory}/completions"
        completions = [read_completion(storage, f"{directory}/{name}") for name in storage.list(directory)]
        return {
            (piece.start, piece.end, piece.digest)
            for completion in completions
            if completion is not None
            for piece in completion.source
            if piece.file == file
        }


def require_known(
    path: str | os.PathLike[str], new: SnapshotRecords, before: SnapshotRecords | None, takedowns: Iterable[Takedown]
) -> None:
    """Raises `TakenDownNotFoundError` if an id matched a record whose content was not kept, in a file that has changed:
    which record is meant now cannot be known."""
    if before is None or before.lineage.has_digests:
        return
    for takedown in takedowns:
        if takedown.undone is not None or takedown.next_build or takedown.gone is not None:
            continue
        unmatched = set(before.lineage.select(takedown.pending)[1])
        for each in takedown.pending:
            file = each if _is_file(each) else each.rpartition("@")[0]
            if each not in unmatched and before.slices(file) != new.slices(file):
                raise TakenDownNotFoundError(
                    f"{os.fspath(path)}: takedown {takedown.number} means {each} as it was in snapshot "
                    f"{before.manifest.snapshot}, which was built by a version of beam-pipes that kept no digests of "
                    f"records, and {file} has changed since: which record is meant now cannot be known. Nothing was "
                    "published. Build once from the input as it was; or name the records again, as they stand in the "
                    f"input now (`beam-pipes takedown {os.fspath(path)} ids.txt --next`), say that those of the old "
                    f"takedown may be missing (`--gone {takedown.number}`), and build again.",
                    path=os.fspath(path),
                    takedown=takedown.number,
                )


def require_found(
    path: str | os.PathLike[str], new: SnapshotRecords, before: SnapshotRecords | None, takedowns: Iterable[Takedown]
) -> None:
    """Raises `TakenDownNotFoundError` if contents that were taken down, and that the previous snapshot had, are missing
    without being noted as gone: they may have been edited, and would be read again."""
    where = os.fspath(path)
    takedowns = [takedown for takedown in takedowns if takedown.gone is None]
    missing = new.missing(takedowns)
    known = {} if before is None or not missing else before.missing(takedowns)
    found = []
    for takedown in takedowns:
        for each, digests in missing.get(takedown.number, {}).items():
            lost = len(np.setdiff1d(digests, known.get(takedown.number, {}).get(each, digests[:0])))
            total = len(takedown.digests([each]))
            if lost:
                found.append(
                    f"takedown {takedown.number}, {each}" + (f" ({lost:,} of {total:,} records)" * (total > 1))
                )
    if not found:
        return
    numbers = sorted({int(each.split(",")[0].removeprefix("takedown ")) for each in found})
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    gone = "; ".join(f"`beam-pipes takedown {where} --gone {number}`" for number in numbers)
    raise TakenDownNotFoundError(
        f"{where}: records that were taken down are nowhere in the input any more: {'; '.join(found[:SHOWN])}{more}. "
        "They were removed, or edited, and what was edited would be read again. Nothing was published; readers keep "
        f"the previous snapshot. If they were removed on purpose, say so ({gone}) and build again. If they were "
        f"edited, first name them as they are in the input now (`beam-pipes takedown {where} ids.txt --next`).",
        path=where,
        takedowns=numbers,
    )


def _is_file(record_id: str) -> bool:
    """Whether an id names a whole file."""
    file, at, position = record_id.rpartition("@")
    return not (at and file and position.isascii() and position.isdecimal() and len(position) < 20)
