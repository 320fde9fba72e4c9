"""`Manifest`: the one file that says what is in a cache. Readers never list directories."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.cache.checked_json import MAX_CRC, Checked, canonical_json, corrupt, parse_object
from beam_pipes.cache.split_manifest import NAME, SplitManifest
from beam_pipes.errors import SpecError, UnsupportedFormatError

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

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, made: Any, *, path: str = "manifest", where: str = "file") -> FileEntry:
        """Raises `CorruptManifestError` where `made` is not what `to_json` returns, or leads out of the snapshot."""
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
    """A snapshot: its splits, and all that was known when it was built. The same bytes on every runner and machine.

    Args:
        name: what the files are called: `{name}-{split}.tfrecord-00000-of-00064`.
        snapshot: 16 hexadecimal digits, chosen by the builder: the digest of inputs and declaration.
        splits: split name → `SplitManifest`.
        statistics: JSON states of statistics; kept as they are.
        accounting: JSON counts per stage; kept as they are.
        fingerprints: name → string, such as those of source and declaration.
        assets: vocabularies and other files below `assets/`.
        dead_letters: files of records that failed, below `dead_letters/`.
    """

    name: str
    snapshot: str
    splits: Mapping[str, SplitManifest]
    statistics: Sequence[Any] = ()
    accounting: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    assets: Sequence[FileEntry] = ()
    dead_letters: Sequence[FileEntry] = ()

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
            }
        )

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
                "beam-pipes that wrote it, or build the cache again.",
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
        )
        manifest.__dict__["id"] = hashlib.sha256(data).hexdigest()  # of the bytes that were read, whatever they say
        return manifest


def _files(checked: Checked, field: str, path: str) -> list[FileEntry]:
    return [
        FileEntry.from_json(value, path=path, where=f"{field}[{position}]")
        for position, value in enumerate(checked.list(field))
    ]
