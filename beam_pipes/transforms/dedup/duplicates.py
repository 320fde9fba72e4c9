"""`Duplicates`: the records to remove, each with the record that stays and the reason.

The file, all numbers little-endian:

| part | bytes |
| --- | --- |
| `BPDUPES1` | 8 |
| length of the header | 8 |
| header, JSON: format, kind, rows, files (sorted by name), facts; padded with spaces to a multiple of 8 | |
| where in the rows each file begins, and the end: uint64 | 8 × (files + 1) |
| positions of removed records, ascending within a file: uint64 | 8 × rows |
| positions of kept records: uint64 | 8 × rows |
| files of kept records: uint32 | 4 × rows |
| similarities: float32 | 4 × rows |

It holds no counts of compared records and no order of files: adding input without duplicates changes no byte of it.

`DropDuplicates`: the stage that drops the duplicates that an analysis found.

The duplicates found by the build of a cache.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from beam_pipes.analysis import Result
from beam_pipes.cache import Cache
from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import current_context
from beam_pipes.errors import CorruptCacheError, DeclarationError
from beam_pipes.storage.local import output_file
from beam_pipes.transforms.dedup.row_file import RowFiles, record_place
from beam_pipes.typed import Pipeline

MAGIC = b"BPDUPES1"
FORMAT = 1

# Each group reads the positions of all records once.
_ROWS_AT_ONCE = 1 << 18

Kind = Literal["exact", "near"]

Array = np.ndarray


class Duplicate(NamedTuple):
    """One record to remove: its id, the id of the record that stays, "exact" or "near", and their similarity.

    `similarity` is 1.0 for exact duplicates. For near ones it is the estimated Jaccard similarity of the two, which
    is below the threshold if they are similar only through a third record.
    """

    removed: str
    kept: str
    kind: Kind
    similarity: float

    @property
    def reason(self) -> str:
        """The reason under which the drop is counted: `exact duplicate`."""
        return f"{self.kind} duplicate"


class Duplicates:
    """The records to remove, sorted by file and position, looked up in a memory map without reading the rest.

        duplicates = exact.read(cache.asset_path("exact"))
        len(duplicates)                  →  2
        "b.txt@0" in duplicates          →  True
        duplicates.find("b.txt@0").kept  →  "a.txt@120"
        list(duplicates)                 →  [Duplicate("b.txt@0", "a.txt@120", "exact", 1.0), ...]

    A look-up takes microseconds, and memory only for the pages it touches. Thread-safe.

    Raises `CorruptCacheError` if the file is damaged or incomplete.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            size = Path(path).stat().st_size
            with open(path, "rb") as file:
                if file.read(8) != MAGIC:
                    raise ValueError(f"it does not begin with {MAGIC.decode()}")
                length = int.from_bytes(file.read(8), "little")
                if length > size - 16:
                    raise ValueError("the header is not whole")
                header = json.loads(file.read(length))
            if header["format"] != FORMAT:
                raise ValueError(f"it has format {header['format']}, and this version reads {FORMAT}")
            self.kind: Kind = header["kind"]
            #: Further facts from the analysis, by name.
            self.facts: Mapping[str, int] = header["facts"]
            self._names: list[str] = header["files"]
            rows, files = int(header["rows"]), len(self._names)
            if size != 16 + length + 8 * (files + 1) + 24 * rows:
                raise ValueError(f"{rows} rows are announced, but the file has {size} bytes")
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCacheError(
                f"{path!r} does not hold duplicates: {error}. Build again, or take the asset from another snapshot.",
                path=path,
            ) from error
        data = np.memmap(path, np.uint8, mode="r", offset=16 + length)
        bounds = np.cumsum([0, 8 * (files + 1), 8 * rows, 8 * rows, 4 * rows, 4 * rows])
        parts = [data[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]
        # Memory views: reading single numbers from arrays takes several times as long.
        self._starts, self._removed = (part.view("<u8").data for part in parts[:2])
        self._kept, self._kept_files, self._similarities = (
            part.view(dtype) for part, dtype in zip(parts[2:], ("<u8", "<u4", "<f4"), strict=True)
        )
        self._files = {name: number for number, name in enumerate(self._names)}

    @property
    def reason(self) -> str:
        """The reason under which drops are counted: `exact duplicate`."""
        return f"{self.kind} duplicate"

    def __len__(self) -> int:
        return len(self._removed)

    @property
    def num_kept(self) -> int:
        """The number of kept records that others duplicate."""
        order = np.lexsort((self._kept, self._kept_files))
        files, positions = self._kept_files[order], self._kept[order]
        changes = (files[1:] != files[:-1]) | (positions[1:] != positions[:-1])
        return int(np.count_nonzero(changes)) + min(1, len(self))

    def __iter__(self) -> Iterator[Duplicate]:
        for number, name in enumerate(self._names):
            for row in range(self._starts[number], self._starts[number + 1]):
                yield self._row(name, row)

    def __contains__(self, record_id: str) -> bool:
        return self._find(record_id) is not None

    def find(self, record_id: str) -> Duplicate | None:
        """The row of a record to remove; None if it stays or is unknown."""
        found = self._find(record_id)
        return None if found is None else self._row(*found)

    def cluster_key(self, record_id: str) -> str:
        """The id of the member that names a record's cluster; the record's own id if it has no duplicates.

        The name is the member whose id has the smallest hash. So it depends only on the records of the cluster, not on
        the order of files or on other clusters. If m records are added to a cluster of n, it changes with a probability
        of m / (n + m); `kept`, the first record in the order of the source, changes whenever one is added before it.

        The first call computes the names of all clusters: 40 bytes of memory per removed record.
        """
        place = record_place(record_id)
        clusters = self._clusters
        found = self._find(record_id)
        if found is not None:
            cluster = int(clusters.of_rows[found[1]])
        else:
            number = self._files.get(place.file)
            named = None if number is None else clusters.find(number, place.position)
            if named is None:
                return str(place)
            cluster = named
        row = int(clusters.names[cluster])
        if row < 0:
            return f"{self._names[clusters.kept_files[cluster]]}@{clusters.kept[cluster]}"
        file = bisect_right(self._starts, row) - 1
        return f"{self._names[file]}@{self._removed[row]}"

    @functools.cached_property
    def _clusters(self) -> _Clusters:
        return _clusters_of(
            np.frombuffer(self._starts, np.uint64),
            np.frombuffer(self._removed, np.uint64),
            self._kept_files,
            self._kept,
            self._names,
        )

    def write_tsv(self, path: str) -> None:
        """Writes all rows as a tab-separated table: removed, kept, kind, similarity."""
        with output_file(path, errors="surrogateescape") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(("removed", "kept", "kind", "similarity"))
            table.writerows((*each[:3], f"{each.similarity:.3f}") for each in self)

    def _find(self, record_id: str) -> tuple[str, int] | None:
        name, position = record_place(record_id)
        number = self._files.get(name)
        if number is None:
            return None
        end = self._starts[number + 1]
        row = bisect_left(self._removed, position, self._starts[number], end)
        return (name, row) if row < end and self._removed[row] == position else None

    def _row(self, name: str, row: int) -> Duplicate:
        return Duplicate(
            removed=f"{name}@{self._removed[row]}",
            kept=f"{self._names[self._kept_files[row]]}@{self._kept[row]}",
            kind=self.kind,
            similarity=float(self._similarities[row]),
        )


class _Clusters(NamedTuple):
    """The names of clusters. Clusters are sorted by the places of their kept records.

    `kept_files`, `kept`: those places; `starts`: the start of each file's places, and the end; `names`: the row of the
    removed record that names the cluster, -1 if the kept one does; `of_rows`: the cluster of each row.
    """

    kept_files: Array
    kept: memoryview
    starts: list[int]
    names: Array
    of_rows: Array

    def find(self, file: int, position: int) -> int | None:
        """The cluster whose kept record is at this place."""
        end = self.starts[file + 1]
        at = bisect_left(self.kept, position, self.starts[file], end)
        return at if at < end and self.kept[at] == position else None


def _clusters_of(starts: Array, removed: Array, kept_files: Array, kept: Array, names: list[str]) -> _Clusters:
    salts = np.array([_salt(name) for name in names], np.uint64)
    sizes = np.diff(starts).astype(np.int64)
    hashes = _place_hashes(np.repeat(salts, sizes), removed)
    order = np.lexsort((hashes, kept, kept_files))
    files, positions = kept_files[order], kept[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (files[1:] != files[:-1]) | (positions[1:] != positions[:-1])
    firsts = order[begins]
    of_rows = np.empty(len(order), np.uint32)
    of_rows[order] = np.cumsum(begins) - 1
    own = _place_hashes(salts[kept_files[firsts]], kept[firsts])
    return _Clusters(
        kept_files=kept_files[firsts],
        kept=kept[firsts].data,
        starts=np.searchsorted(kept_files[firsts], np.arange(len(names) + 1)).tolist(),
        names=np.where(hashes[firsts] < own, firsts, -1),
        of_rows=of_rows,
    )


def _salt(file: str) -> int:
    digest = hashlib.blake2b(file.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _place_hashes(salts: Array, positions: Array) -> Array:
    """64 bits for each place, evenly distributed: the finalizer of SplitMix64 over the file's digest and position."""
    words = (positions + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ salts
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    made: Array = words ^ (words >> np.uint64(31))
    return made


def write_duplicates(
    path: str,
    *,
    kind: Kind,
    removed: Array,
    kept: Array,
    similarities: Array,
    places: RowFiles,
    facts: Mapping[str, int] | None = None,
) -> None:
    """Writes the file; `removed` and `kept` are ordinals of records, row by row, in any order."""
    removed_files, removed_positions = _places_of(removed, places)
    kept_files, kept_positions = _places_of(kept, places)
    names = sorted(places.names)
    rank = np.empty(len(names), np.uint32)
    rank[[places.names[name] for name in names]] = np.arange(len(names))
    removed_files, kept_files = rank[removed_files], rank[kept_files]
    order = np.lexsort((removed_positions, removed_files))
    starts = np.concatenate([[0], np.cumsum(np.bincount(removed_files, minlength=len(names)))])
    header = json.dumps(
        {"format": FORMAT, "kind": kind, "rows": len(removed), "files": names, "facts": dict(facts or {})},
        separators=(",", ":"),
    ).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(MAGIC + len(header).to_bytes(8, "little") + header)
        for column, dtype in (
            (starts, "<u8"),
            (removed_positions[order], "<u8"),
            (kept_positions[order], "<u8"),
            (kept_files[order], "<u4"),
            (similarities[order], "<f4"),
        ):
            file.write(column.astype(dtype, copy=False).data)


def _places_of(ordinals: Array, places: RowFiles) -> tuple[Array, Array]:
    """(files, positions), in groups small enough that intermediate results stay small."""
    files, positions = np.empty(len(ordinals), np.uint32), np.empty(len(ordinals), np.uint64)
    for start in range(0, len(ordinals), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        files[part], positions[part] = places.of(ordinals[part])
    return files, positions


class DropDuplicates(Pipeline):
    """Drops the records listed in a result of `ExactDuplicates` or `NearDuplicates`, and passes on all others.

        exact = ExactDuplicates("exact")
        unique = DropDuplicates(str, exact.result)
        Declaration(..., analyzers=(exact,), pipeline=DAGPipeline({unique: Input(str), ...}))

    Drops are counted as `exact duplicate` or `near duplicate`, so that a build's counts add up: every record is
    written, dropped with a reason, or a dead letter. With several results, the first one that contains a record
    determines the reason.

    It identifies records by id, not by content, so it can be anywhere in a DAG: at the front it saves the most work. If
    a record that stays fails later, it is a dead letter, and its duplicates are still dropped.

    Args:
        type_: the class of the values that pass through.
        results: `analyzer.result` of one or more analyzers that the declaration lists in `analyzers`.
        name: the stage's name.

    Raises `DeclarationError` if there is no result, or something else in its place.
    """

    def __init__(self, type_: type, *results: Result, name: str = "DropDuplicates") -> None:
        for result in results:
            if not isinstance(result, Result):
                raise DeclarationError(
                    f"{name}: results are analyzer.result, got {brief(result)}. Example: DropDuplicates(str, "
                    "exact.result).",
                    stage=name,
                )
        if not results:
            raise DeclarationError(
                f"{name}: there is no result that says what to drop. Example: DropDuplicates(str, exact.result).",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=type_, name=name)
        self.results = results

    def transform(self, input_object: object) -> list[object]:
        context = current_context()
        assert context is not None  # set by whoever calls `transform`, see `Pipeline`
        for result in self.results:
            duplicates = result.value()
            if context.record_id in duplicates:
                dropped: list[object] = self.drop(duplicates.reason)
                return dropped
        return [input_object]


def cache_duplicates(cache: Cache) -> dict[str, Duplicates]:
    """Name of the analyzer → its findings, for every asset of the cache that holds duplicates.

        cache_duplicates(Cache.open("cache"))["near"].find("b.txt@0")

    For a cache on an object store, assets are fetched.
    """
    found = {}
    for entry in cache.manifest.assets:
        path = cache.asset_path(entry.file)
        with open(path, "rb") as file:
            holds = file.read(len(MAGIC)) == MAGIC
        if holds:
            found[entry.file.removeprefix("assets/")] = Duplicates(path)
    return found
