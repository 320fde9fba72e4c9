"""The protocol of sources: how raw input becomes units of work, and units of work become batches of records.

A *source* names raw files (or values in memory) and how to read records from them. Its *plan* is a list of *source
shards*, each of which is a few *slices*: byte ranges of single files that begin and end exactly between two records.
Reading a source shard gives its records in order, in *batches*. A plan depends on the files and on
`target_shard_bytes` alone: never on cores, clocks, absolute paths or directory order.

`JoinedSources` combines several sources, which may differ in their terms; with `SplitSources`, each is a split.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, overload

from beam_pipes.checks import integer
from beam_pipes.errors import SourceError
from beam_pipes.publication.terms import Terms
from beam_pipes.sources.record_batch import Piece, RecordBatch
from beam_pipes.storage.checked_json import JsonObject

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """A range of one input, exactly record-aligned.

    `file` is the name relative to the source's root, with `/` between its parts; `start` and `end` are bytes of the
    file as it is stored (rows for Parquet, indices for values in memory), `end` exclusive; `digest` is the sha256 of
    exactly these bytes, in hex.

    For a part of a compressed file `start` and `end` are bytes of the decompressed file. `stored` says where they are
    stored: `(begin, end, base)`, stored bytes, which the digest covers, and the decompressed position of `begin`.
    """

    file: str
    start: int
    end: int
    digest: str
    stored: tuple[int, int, int] | None = None

    def row(self) -> list[object]:
        """The slice's contribution to the fingerprint of its shard."""
        row: list[object] = [self.file, self.start, self.end, self.digest]
        return row if self.stored is None else [*row, list(self.stored)]

    def to_json(self) -> dict[str, object]:
        fields = {"file": self.file, "start": self.start, "end": self.end, "digest": self.digest}
        return fields if self.stored is None else {**fields, "stored": list(self.stored)}

    @classmethod
    def from_json(cls, fields: JsonObject) -> Slice:
        stored = fields.get("stored")
        return cls(
            file=str(fields["file"]),
            start=int(fields["start"]),
            end=int(fields["end"]),
            digest=str(fields["digest"]),
            stored=None if stored is None else (int(stored[0]), int(stored[1]), int(stored[2])),
        )


class WholeFiles(Sequence[Slice]):
    """The slices of a shard of whole files, equal to a tuple of them; created on access.

    A million small files take 80 MB as columns, and 300 MB as objects.
    """

    __slots__ = ("_names", "_sizes", "_digests")

    def __init__(self, names: Sequence[str], sizes: Sequence[int], digests: bytes) -> None:
        """`digests`: the sha256 of each file, 32 bytes."""
        self._names = "\0".join(names)
        self._sizes = array("q", sizes)
        self._digests = digests

    def rows(self) -> list[tuple[str, int, int, str]]:
        """`Slice.row` of all slices; as tuples, which the garbage collector does not visit."""
        digests = self._digests.hex()
        return [
            (name, 0, size, digests[at : at + 64])
            for name, size, at in zip(self._names.split("\0"), self._sizes, range(0, len(digests), 64), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[Slice]:
        return (Slice(file=name, start=start, end=end, digest=digest) for name, start, end, digest in self.rows())

    @overload
    def __getitem__(self, index: int) -> Slice: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Slice]: ...

    def __getitem__(self, index: int | slice) -> Slice | Sequence[Slice]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, WholeFiles):
            return (self._names, self._sizes, self._digests) == (other._names, other._sizes, other._digests)
        return tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceShard:
    """The unit of work: it is read, transformed and written as a whole. `num_bytes` counts stored bytes."""

    index: int
    slices: tuple[Slice, ...] | WholeFiles
    num_bytes: int

    def fingerprint(self) -> str:
        """Sha256 (hex) of the slices' names, ranges and digests; `index` and the location of the files do not enter."""
        rows = self.slices.rows() if isinstance(self.slices, WholeFiles) else [piece.row() for piece in self.slices]
        return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode("ascii")).hexdigest()

    def to_json(self) -> dict[str, object]:
        return {
            "index": self.index,
            "num_bytes": self.num_bytes,
            "slices": [piece.to_json() for piece in self.slices],
        }

    @classmethod
    def from_json(cls, fields: JsonObject) -> SourceShard:
        return cls(
            index=int(fields["index"]),
            num_bytes=int(fields["num_bytes"]),
            slices=tuple(Slice.from_json(piece) for piece in fields["slices"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePlan:
    """All source shards of an input, in order; `num_bytes` counts stored bytes, `num_files` matched files; `left_out`
    files that are found and not read, by reason: `{"hidden": 2, "empty": 1}`. It is no part of what is planned.
    """

    shards: tuple[SourceShard, ...]
    num_bytes: int
    num_files: int
    left_out: Mapping[str, int] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, object]:
        return {
            "num_bytes": self.num_bytes,
            "num_files": self.num_files,
            "shards": [shard.to_json() for shard in self.shards],
        }

    @classmethod
    def from_json(cls, fields: JsonObject) -> SourcePlan:
        return cls(
            shards=tuple(SourceShard.from_json(shard) for shard in fields["shards"]),
            num_bytes=int(fields["num_bytes"]),
            num_files=int(fields["num_files"]),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Source(ABC):
    """Raw input. Subclasses are frozen dataclasses, picklable, and check their options in `__post_init__`.

    `license`, `origin`, `collected` and `terms` are notes about the records, which stand in the manifest and change no
    shard: see `Terms`. They are checked when a build is planned, and not on workers, which need no library for them.
    """

    license: str = field(default="", repr=False)
    origin: str = field(default="", repr=False)
    collected: str = field(default="", repr=False)
    terms: str = field(default="", repr=False)

    @property
    @abstractmethod
    def output_type(self) -> type:
        """The class of every value."""

    @abstractmethod
    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        """Divides the input into source shards of about `target_shard_bytes` stored bytes.

        With `digests`, files whose size, inode and times are unchanged are not read again. Raises `SourceError` for
        input that is missing, unreadable or matches nothing.
        """

    @abstractmethod
    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        """Yields the shard's records in order, at most `batch_records` (and about `batch_bytes`) at a time.

        Rows that cannot be parsed are in `batch.bad`. Raises `SourceError`, naming file and offset, for input that
        vanished, is damaged beyond one record, or (seen when its slice ends) differs from what was planned.
        """

    @abstractmethod
    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        """The value of one record from `batch.raw(i)`, or from a repaired copy of it; `SourceError` if it is bad."""

    @abstractmethod
    def fingerprint_config(self) -> Mapping[str, object]:
        """The options that determine the values of the same bytes, as JSON-able data; no paths, no patterns."""

    def fingerprint_class(self) -> str:
        """The name under which the source counts in fingerprints: that of its class, unless it wraps another source."""
        return type(self).__name__

    def stages(self) -> Mapping[str, object]:
        """User code that `read` runs, by name, which is fingerprinted like stages. Most sources run none."""
        return {}

    def splits_of(self, shard: SourceShard) -> Sequence[str] | None:
        """The splits that records of this shard may go to; None for all of them.

        A shard has files only for these splits: `{"train": 1,000 shards, "test": 2 shards}` makes 1,002 files, not
        2,004.
        """
        return None

    def parts(self) -> Sequence[Source]:
        """The sources that it is made of: itself, but for `JoinedSources`."""
        return [self]

    def terms_of(self, file: str) -> Terms:
        """The terms of the records of a file, as they were declared. All files of a source shard have the same."""
        return Terms(license=self.license, origin=self.origin, collected=self.collected, terms=self.terms)

    def all_terms(self) -> Sequence[Terms]:
        """Every terms that `terms_of` gives: one, unless files differ."""
        return [self.terms_of("")]


def check_target(target_shard_bytes: int) -> None:
    integer(
        target_shard_bytes,
        least=1,
        what="target_shard_bytes",
        error=SourceError,
        target_shard_bytes=target_shard_bytes,
    )


@dataclass(frozen=True, eq=False)
class JoinedSources(Source):
    """The records of several sources, one source after the other, each with its own license and origin.

        JoinedSources({"books": TextLines("books", license="CC0-1.0"), "web": TextLines("web", license="CC-BY-4.0")})

    The names of files, and so of records, begin with the name of the source: `books/emma.txt@1024`. Raises
    `SourceError` without any source, if they give values of different types, or for notes about all of them together.
    """

    sources: Mapping[str, Source]

    _what: ClassVar[str] = "source"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", dict(self.sources))
        if not self.sources:
            raise SourceError(
                f'expected {self._what} → source, such as {{"train": TextLines("books")}}, got an empty dict'
            )
        for name, source in self.sources.items():
            if not isinstance(name, str) or not name or "/" in name:
                raise SourceError(f"{self._what}s are named by text without '/', got {name!r}", name=name)
            if not isinstance(source, Source):
                raise SourceError(
                    f"the {self._what} {name!r} should have a source, such as TextLines({source!r:.40}), got "
                    f"{type(source).__name__}: {source!r:.60}",
                    name=name,
                )
        types = {name: source.output_type for name, source in self.sources.items()}
        if len(set(types.values())) > 1:
            found = ", ".join(f"{name!r} gives {type_.__name__}" for name, type_ in types.items())
            raise SourceError(
                f"sources that are read together should give values of one type, for the same stages; {found}. Use "
                "sources of one kind, or build a cache for each"
            )
        for option, value in super().terms_of("").to_json().items():
            if value:
                raise SourceError(
                    f"{option}={value!r} is given for several sources together. Give it to each of the sources it is "
                    f"about: {', '.join(self.sources)}"
                )

    @property
    def output_type(self) -> type:
        return next(iter(self.sources.values())).output_type

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        shards: list[SourceShard] = []
        num_bytes = num_files = 0
        left_out = Counter[str]()
        for name, source in self.sources.items():
            plan = source.plan(target_shard_bytes=target_shard_bytes, digests=digests)
            num_bytes, num_files = num_bytes + plan.num_bytes, num_files + plan.num_files
            left_out.update(plan.left_out)
            for shard in plan.shards:
                slices = tuple(replace(piece, file=f"{name}/{piece.file}") for piece in shard.slices)
                shards.append(replace(shard, index=len(shards), slices=slices))
        return SourcePlan(shards=tuple(shards), num_bytes=num_bytes, num_files=num_files, left_out=left_out)

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        name, own = self._own(shard)
        for batch in self.sources[name].read(own, batch_records=batch_records, batch_bytes=batch_bytes):
            yield batch.replacing(
                values=batch.values if batch.table is None else batch.table,
                ordinals=batch.ordinals,
                bad=[replace(row, file=f"{name}/{row.file}") for row in batch.bad],
                piece_of=lambda piece: _NamedPiece(piece, f"{name}/{piece.file}"),  # noqa: B023
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        name, _, own = file.partition("/")
        return self.sources[name].parse(raw, file=own, position=position)

    def fingerprint_config(self) -> Mapping[str, object]:
        return {
            name: {"class": source.fingerprint_class(), **source.fingerprint_config()}
            for name, source in self.sources.items()
        }

    def stages(self) -> Mapping[str, object]:
        return {
            f"{name}.{stage_name}": stage
            for name, source in self.sources.items()
            for stage_name, stage in source.stages().items()
        }

    def splits_of(self, shard: SourceShard) -> Sequence[str] | None:
        name, own = self._own(shard)
        return self.sources[name].splits_of(own)

    def parts(self) -> Sequence[Source]:
        return [part for source in self.sources.values() for part in source.parts()]

    def terms_of(self, file: str) -> Terms:
        name, _, own = file.partition("/")
        return self.sources[name].terms_of(own)

    def _own(self, shard: SourceShard) -> tuple[str, SourceShard]:
        """The source that gave a shard, and the shard as that source names its files."""
        (name,) = {piece.file.partition("/")[0] for piece in shard.slices}
        slices = tuple(replace(piece, file=piece.file.partition("/")[2]) for piece in shard.slices)
        return name, replace(shard, slices=slices)


class SplitSources(JoinedSources):
    """The records of several sources, each of which is a split.

        SplitSources({"train": TextLines("books"), "eval": TextLines("essays")})

    As `JoinedSources`, and the shards of a split have files only for this split.
    """

    _what = "split"

    def splits_of(self, shard: SourceShard) -> Sequence[str]:
        return [self._own(shard)[0]]


class _NamedPiece(Piece):
    """A piece under a name that begins with that of its source."""

    __slots__ = ("_piece",)

    def __init__(self, piece: Piece, file: str) -> None:
        super().__init__(file=file, first_ordinal=piece.first_ordinal, is_named=piece.is_named)
        self._piece = piece

    def position(self, k: int) -> int:
        return self._piece.position(k)

    def raw(self, k: int) -> bytes:
        return self._piece.raw(k)

    def positions_of(self, start: int, stop: int) -> list[int]:
        return self._piece.positions_of(start, stop)

    def digests_of(self, start: int, stop: int) -> bytes:
        return self._piece.digests_of(start, stop)
