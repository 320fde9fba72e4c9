"""`SplitManifest`: the shards of one split, as parallel arrays.

`Manifest`: the one file that says what is in a cache. Readers never list directories.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence

from beam_pipes.errors import SpecError, UnsupportedFormatError
from beam_pipes.format.codec import ExampleCodec, RecordKind
from beam_pipes.format.layout import FixedLayout, ShardEntry
from beam_pipes.format.spec import ExampleSpec
from beam_pipes.publication.terms import FIELDS, SourceTerms, Terms
from beam_pipes.storage.checked_json import MAX_CRC, Checked, JsonObject, canonical_json, corrupt, parse_object

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FILE = re.compile(r"(?P<prefix>.*)\.tfrecord-(?P<number>\d{5,})-of-(?P<count>\d{5,})")

RECORD_KINDS: tuple[RecordKind, ...] = ("example", "proto", "bytes")


def shard_file_name(name: str, split: str, number: int, count: int) -> str:
    """`shard_file_name("demo", "train", 3, 64)` → "demo-train.tfrecord-00003-of-00064" """
    return f"{name}-{split}.tfrecord-{number:05d}-of-{count:05d}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitManifest:
    """A manifest's entry for one split. The lists are parallel, one element per shard, in the order of the split.

    `numbers` and `shard_count` give the file names: `{name}-{split}.tfrecord-{number}-of-{shard_count}`. `layout` is
    set if all records of the split have the same layout. `lengths` as in `ShardEntry`, over all shards.
    """

    kind: RecordKind
    spec: ExampleSpec | None = None
    proto: str | None = None
    shard_count: int
    numbers: Sequence[int]
    records: Sequence[int]
    bytes: Sequence[int]
    crc32c: Sequence[int]
    index_crc32c: Sequence[int]
    layout: FixedLayout | None = None
    lengths: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_entries(
        cls,
        entries: Sequence[ShardEntry],
        *,
        kind: RecordKind = "example",
        spec: ExampleSpec | None = None,
        proto: str | None = None,
        shard_count: int | None = None,
    ) -> SplitManifest:
        """The manifest of the given shards, in this order; `shard_count` is needed if there are no shards.

        Raises `SpecError` if a file is not named as shards are.
        """
        numbers: list[int] = []
        counts = set() if shard_count is None else {shard_count}
        for entry in entries:
            match = _FILE.fullmatch(entry.file)
            if match is None:
                raise SpecError(
                    f"a shard should be named {shard_file_name('NAME', 'SPLIT', 3, 64)!r}, got {entry.file!r}",
                    found=entry.file,
                )
            numbers.append(int(match["number"]))
            counts.add(int(match["count"]))
        if len(counts) > 1:
            raise SpecError(f"the shards of a split should all have the same count, got {sorted(counts)}")
        filled = [entry for entry in entries if entry.records] or list(entries)
        layout = filled[0].layout if filled else None
        if any(entry.layout != layout for entry in filled):
            layout = None
        if spec is not None and spec.fixed:
            layout = ExampleCodec(spec).fixed_layout
        lengths: dict[str, tuple[int, int]] = {}
        for entry in entries:
            for name, (total, most) in entry.lengths.items():
                before = lengths.get(name, (0, 0))
                lengths[name] = (before[0] + total, max(before[1], most))
        return cls(
            kind=kind,
            spec=spec,
            proto=proto,
            shard_count=counts.pop() if counts else 0,
            numbers=numbers,
            records=[entry.records for entry in entries],
            bytes=[entry.bytes for entry in entries],
            crc32c=[entry.crc32c for entry in entries],
            index_crc32c=[entry.index_crc32c for entry in entries],
            layout=layout,
            lengths=lengths,
        )

    @property
    def num_records(self) -> int:
        return sum(self.records)

    @property
    def num_bytes(self) -> int:
        return sum(self.bytes)

    def file_name(self, name: str, split: str, shard: int) -> str:
        """The file of the shard at a position of the lists."""
        return shard_file_name(name, split, self.numbers[shard], self.shard_count)

    def to_json(self) -> dict[str, object]:
        """A JSON object; `from_json` is the inverse."""
        return {
            "bytes": self.num_bytes,
            "kind": self.kind,
            "layout": None if self.layout is None else self.layout.to_json(),
            "lengths": {name: list(pair) for name, pair in self.lengths.items()},
            "proto": self.proto,
            "records": self.num_records,
            "shard_count": self.shard_count,
            "shards": {
                "bytes": list(self.bytes),
                "crc32c": list(self.crc32c),
                "index_crc32c": list(self.index_crc32c),
                "number": list(self.numbers),
                "records": list(self.records),
            },
            "spec": None if self.spec is None else self.spec.to_json(),
        }

    @classmethod
    def from_json(cls, made: object, *, path: str = "manifest", where: str = "split") -> SplitManifest:
        """Raises `CorruptManifestError`, naming the field, where `made` is not what `to_json` returns."""
        fields = ("bytes", "kind", "layout", "lengths", "proto", "records", "shard_count", "shards", "spec")
        checked = Checked(path, where, made, fields)
        kind = checked.text("kind")
        if kind not in RECORD_KINDS:
            raise checked.fail("kind", f"one of {', '.join(RECORD_KINDS)}")
        spec = checked.any("spec")
        if (kind == "example") != (spec is not None):
            raise checked.fail("spec", "there for examples, and null for other records")
        if (kind == "proto") != (checked.any("proto") is not None):
            raise checked.fail("proto", "the full name of a message for protos, and null for other records")
        lists = Checked(
            path, f"{where}.shards", checked.any("shards"), ("bytes", "crc32c", "index_crc32c", "number", "records")
        )
        numbers = lists.counts("number")
        columns = {name: lists.counts(name) for name in ("records", "bytes")}
        columns |= {name: lists.counts(name, most=MAX_CRC) for name in ("crc32c", "index_crc32c")}
        for name, column in columns.items():
            if len(column) != len(numbers):
                raise lists.fail(name, f"a list of {len(numbers)} values, as number is; it has {len(column)}")
        shard_count = checked.count("shard_count")
        if len(set(numbers)) != len(numbers) or (numbers and max(numbers) >= shard_count):
            raise lists.fail("number", f"different ints below the shard_count of {shard_count}")
        for name in ("records", "bytes"):
            if checked.count(name) != sum(columns[name]):
                raise checked.fail(name, f"the sum over all shards, {sum(columns[name])}")
        try:
            parsed_spec = None if spec is None else ExampleSpec.from_json(spec)
        except SpecError as error:
            raise checked.fail("spec", f"an example spec ({error})") from error
        return cls(
            kind=kind,
            spec=parsed_spec,
            proto=checked.text("proto") if kind == "proto" else None,
            shard_count=shard_count,
            numbers=numbers,
            records=columns["records"],
            bytes=columns["bytes"],
            crc32c=columns["crc32c"],
            index_crc32c=columns["index_crc32c"],
            layout=_layout(checked, parsed_spec, columns["records"], columns["bytes"]),
            lengths=_lengths(checked),
        )


def _layout(
    checked: Checked, spec: ExampleSpec | None, records: Sequence[int], sizes: Sequence[int]
) -> FixedLayout | None:
    made = checked.any("layout")
    if made is None:
        if spec is not None and spec.fixed:
            raise checked.fail("layout", "there for a spec whose features all have a known size")
        return None
    try:
        layout = FixedLayout.from_json(made)
    except SpecError as error:
        raise checked.fail("layout", f"a layout ({error})") from error
    if any(count * layout.stride != size for count, size in zip(records, sizes, strict=True)):
        raise checked.fail("layout", "one whose stride, times the records of each shard, gives the bytes of the shard")
    codec = None if spec is None else ExampleCodec(spec)
    names = set() if codec is None else {field.name for field in codec.fields}
    if layout.fields.keys() != names:
        raise checked.fail("layout", f"one of the fields {sorted(names)}")
    if codec is not None and codec.fixed_layout is not None and codec.fixed_layout != layout:
        raise checked.fail("layout", f"that of the spec, {codec.fixed_layout}")
    for field in () if codec is None else codec.fields:
        offset, size = layout.fields[field.name]
        known = codec.constant_starts.get(field.name) if codec is not None else None
        if (
            not field.direct
            or field.num_bytes not in (None, size)
            or (field.row_bytes and size % field.row_bytes)
            or (offset - 4) % field.alignment
            or known not in (None, offset)
        ):
            raise checked.fail("layout", f"one that fits the field {field}")
    return layout


def _lengths(checked: Checked) -> dict[str, tuple[int, int]]:
    lengths: dict[str, tuple[int, int]] = {}
    for name, pair in checked.object("lengths").items():
        if not isinstance(pair, list) or len(pair) != 2 or any(type(value) is not int or value < 0 for value in pair):
            raise checked.fail("lengths", "pairs [sum, greatest] by feature")
        lengths[name] = (pair[0], pair[1])
    return lengths


FORMAT_VERSION = 1
FILE_NAME = "manifest.json"
_SNAPSHOT = re.compile(r"[0-9a-f]{16}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of a snapshot beside its shards: path within the snapshot, size, crc32c, and records where it has some."""

    file: str
    bytes: int
    crc32c: int
    records: int | None = None

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, made: object, *, path: str = "manifest", where: str = "file") -> FileEntry:
        """Raises `CorruptManifestError` if `made` is not what `to_json` returns, or leads out of the snapshot."""
        checked = Checked(path, where, made, ("bytes", "crc32c", "file", "records"))
        file = checked.text("file")
        if not is_inside(file):
            raise checked.fail("file", "a relative path within the snapshot")
        records = None if checked.any("records") is None else checked.count("records")
        return cls(
            file=file, bytes=checked.count("bytes"), crc32c=checked.count("crc32c", most=MAX_CRC), records=records
        )


def is_inside(file: str) -> bool:
    """Whether a path is relative, normal and stays below the directory it is relative to."""
    return (
        bool(file)
        and "\\" not in file
        and "\0" not in file
        and not posixpath.isabs(file)
        and posixpath.normpath(file) == file
        and file.split("/")[0] not in ("..", ".")
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A snapshot: its splits, and everything known when it was built. The same bytes on every runner and machine.

    Args:
        name: what the files are called: `{name}-{split}.tfrecord-00000-of-00064`.
        snapshot: 16 hexadecimal digits, chosen by the builder: the digest of inputs and declaration.
        splits: split name → `SplitManifest`.
        statistics: JSON states of statistics; kept as they are.
        accounting: JSON counts per stage; kept as they are.
        fingerprints: name → string, such as those of source and declaration.
        assets: vocabularies and other files below `assets/`.
        dead_letters: files of records that failed, below `dead_letters/`.
        sources: the terms of each source, if any source declares some; then they cover all source shards.
    """

    name: str
    snapshot: str
    splits: Mapping[str, SplitManifest]
    statistics: Sequence[Mapping[str, object]] = ()
    accounting: JsonObject = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    assets: Sequence[FileEntry] = ()
    dead_letters: Sequence[FileEntry] = ()
    sources: Sequence[SourceTerms] = ()

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), *(("a split's name", split) for split in self.splits)):
            if not NAME.fullmatch(value):
                raise SpecError(
                    f"{what} is part of file names and should consist of letters, digits, '_', '.', '-', got {value!r}"
                )
        if not _SNAPSHOT.fullmatch(self.snapshot):
            raise SpecError(f"snapshot should be 16 hexadecimal digits, got {self.snapshot!r}")
        for entry in (*self.assets, *self.dead_letters):
            if not is_inside(entry.file):
                raise SpecError(f"a file of a snapshot should have a relative path within it, got {entry.file!r}")

    @functools.cached_property
    def id(self) -> str:
        """The sha256 of the manifest's bytes, 64 hexadecimal digits: names the data of a snapshot exactly."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Canonical JSON: equal manifests give equal bytes."""
        return canonical_json(
            {
                "accounting": self.accounting,
                "assets": [entry.to_json() for entry in self.assets],
                "dead_letters": [entry.to_json() for entry in self.dead_letters],
                "fingerprints": dict(self.fingerprints),
                "format_version": FORMAT_VERSION,
                "name": self.name,
                "snapshot": self.snapshot,
                "splits": {name: split.to_json() for name, split in self.splits.items()},
                "statistics": list(self.statistics),
                **({"sources": [source.to_json() for source in self.sources]} if self.sources else {}),
            }
        )

    def terms_of(self, shard: int) -> Terms:
        """The terms of the records of a source shard, which is also the number in the names of its shards."""
        at = bisect.bisect_right(self.sources, shard, key=lambda source: source.first_shard) - 1
        return self.sources[at].terms if self.sources else Terms()

    def declared_by_shard(self, split: str) -> dict[str, list[str]]:
        """Name of what sources declare → its text for each shard of a split; empty if no source declares anything."""
        terms = [self.terms_of(number) for number in self.splits[split].numbers] if self.sources else []
        return {field: [getattr(each, field) for each in terms] for field in FIELDS} if self.sources else {}

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str = FILE_NAME) -> Manifest:
        """The manifest that was written as `data`.

        Raises:
            CorruptManifestError: naming the field that is wrong.
            UnsupportedFormatError: the format version is not known here.
        """
        made = parse_object(data, path=path)
        version = made.get("format_version")
        if type(version) is not int:
            raise corrupt(path, "format_version", "an int", version)
        if version != FORMAT_VERSION:
            raise UnsupportedFormatError(
                f"{path}: expected format version {FORMAT_VERSION}, found {version}. Read it with the version of "
                "beam-pipes that wrote it, or build to another directory: a build here would replace what that version "
                "reads.",
                path=path,
                expected=FORMAT_VERSION,
                found=version,
            )
        fields = (
            "accounting",
            "assets",
            "dead_letters",
            "fingerprints",
            "format_version",
            "name",
            "snapshot",
            "splits",
            "statistics",
            *(["sources"] if "sources" in made else []),
        )
        checked = Checked(path, "", made, fields)
        fingerprints = checked.object("fingerprints")
        if not all(isinstance(value, str) for value in fingerprints.values()):
            raise checked.fail("fingerprints", "an object of strings")
        if not NAME.fullmatch(checked.text("name")):
            raise checked.fail("name", "a name of letters, digits, '_', '.', '-'")
        if not _SNAPSHOT.fullmatch(checked.text("snapshot")):
            raise checked.fail("snapshot", "16 hexadecimal digits")
        splits: dict[str, SplitManifest] = {}
        for split, value in checked.object("splits").items():
            if not NAME.fullmatch(split):
                raise checked.fail("splits", f"an object of names of letters, digits, '_', '.', '-'; {split!r} is none")
            splits[split] = SplitManifest.from_json(value, path=path, where=f"splits.{split}")
        manifest = cls(
            name=checked.text("name"),
            snapshot=checked.text("snapshot"),
            splits=splits,
            statistics=checked.list("statistics"),
            accounting=checked.object("accounting"),
            fingerprints=fingerprints,
            assets=_files(checked, "assets", path),
            dead_letters=_files(checked, "dead_letters", path),
            sources=_sources(checked, path) if "sources" in made else (),
        )
        manifest.__dict__["id"] = hashlib.sha256(data).hexdigest()  # of the bytes that were read, whatever they say
        return manifest


def _files(checked: Checked, field: str, path: str) -> list[FileEntry]:
    return [
        FileEntry.from_json(value, path=path, where=f"{field}[{position}]")
        for position, value in enumerate(checked.list(field))
    ]


def _sources(checked: Checked, path: str) -> tuple[SourceTerms, ...]:
    sources = tuple(
        SourceTerms.from_json(value, path=path, where=f"sources[{position}]")
        for position, value in enumerate(checked.list("sources"))
    )
    ends = [0, *(source.end_shard for source in sources)]
    if not sources or ends[:-1] != [source.first_shard for source in sources]:
        raise checked.fail("sources", "sources of one or more source shards each, which follow each other from shard 0")
    return sources
