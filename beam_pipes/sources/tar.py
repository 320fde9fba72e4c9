"""Samples of tar archives in the layout of WebDataset: adjacent members that share a name up to its first dot.

    cats/0001.jpg, cats/0001.json, cats/0002.jpg, cats/0002.json
    → {"__key__": "cats/0001", "jpg": b"\\xff\\xd8…", "json": {"label": 3}}
      {"__key__": "cats/0002", "jpg": b"\\xff\\xd8…", "json": {"label": 7}}

Reading is `tarfile`'s. A large archive is split where a sample begins: the rest of a tar is also a tar.
"""

from __future__ import annotations

import functools
import io
import json
import re
import shlex
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from beam_pipes.checks import integer
from beam_pipes.errors import SourceError, TaskError
from beam_pipes.format.spec import FeatureValue
from beam_pipes.sources.byte_stream import (
    CODEC_OF_SUFFIX,
    advice_if_not_utf8,
    codec_of,
    decompressed,
    open_input,
    read_error,
    read_range,
    slice_chunks,
    text_of,
)
from beam_pipes.sources.file_source import FileContent, FileSource, Range, even_cuts
from beam_pipes.sources.record_batch import Batcher, RecordBatch, StoredPiece
from beam_pipes.sources.schema import number_of_json
from beam_pipes.sources.selection import FoundFile, Paths, matcher
from beam_pipes.sources.source import Slice
from beam_pipes.storage.local import storage_for

if TYPE_CHECKING:
    from typing_extensions import Self

#: How features of archives are handled: feature, what happens, reference; docs/file-formats.md shows them.
FEATURES = (
    ("headers of ustar, GNU and pax, sparse members", "read", "`tarfile`"),
    ("keys and extensions, samples", "read", "`webdataset`"),
    ("links", "left out, counted as `link`", "`webdataset` leaves them out"),
    ("devices and pipes", "left out, counted as `special`", "`webdataset` leaves them out"),
    ("names that begin with a dot, or have none", "left out, counted as `hidden`, `no_suffix`", "`webdataset`"),
    ("`.cls` that is not a number, `.json` and `.txt` that cannot be decoded", "a bad record", "–"),
    ("a damaged header, a member that is cut", "refused", "GNU tar"),
    ("no block of zeros at the end", "refused: it may have been cut there", "POSIX; GNU tar does not ask"),
    ("data after the end", "refused", "–"),
    ("compressed by gzip, bzip2 or Zstandard", "read as a stream", "`gzip`, `bz2`, `zstandard`"),
)
# Everything up to the first dot of the last part, and what follows that dot.
_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
KEY = "__key__"
_BLOCK = tarfile.BLOCKSIZE
_ARCHIVES = ("**/*.tar", *(f"**/*.tar{suffix}" for suffix in CODEC_OF_SUFFIX))
_is_archive = matcher(_ARCHIVES)


def is_archive(name: str) -> bool:
    """Whether a file is a tar archive by its name: `a.tar`, `A.TAR.GZ`; not `a.tar.idx`, the index of one."""
    return _is_archive(PurePosixPath(name).name.lower())


_DECODERS: Mapping[str, Callable[[bytes], object]] = {
    "json": functools.partial(json.loads, parse_float=number_of_json),
    "txt": text_of,
    "text": text_of,
    "cls": lambda content: int(content.decode("ascii")),
}


@dataclass(frozen=True)
class Tar(FileSource):
    """Every sample of a tar archive in the layout of WebDataset is one record. Record ids are `name@offset`.

    A value is a dict: `"__key__"`, the name without its extension, and extension → content for each member of the
    sample, in their order. Contents are `bytes`, but for `.json` (its value), `.txt` and `.text` (str) and `.cls`
    (int); with `decode=False` all are `bytes`. Members that are links or no regular files, have no extension, or begin
    with a dot are left out, and counted in the account of the source (`link`, `special`, `no_suffix`, `hidden`).

    A sample with an extension twice, or whose text cannot be decoded, is a bad record. What makes an archive unreadable
    (a damaged header, a truncated member, no zeros at its end, more data after it) is a `SourceError` that names file
    and offset, as is a sample above `max_record_bytes`, because a sample is held in memory as a whole.

    `.tar` is split between samples; `.tar.gz`, `.tar.bz2` and `.tar.zst` are read as a stream.
    """

    paths: Paths
    _: KW_ONLY
    pattern: str | Sequence[str] = _ARCHIVES
    decode: bool = True
    max_record_bytes: int = 1 << 30

    VERSION: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.decode, bool):
            raise SourceError(f"decode should be True or False, got {self.decode!r}")
        most = integer(self.max_record_bytes, least=1, what="max_record_bytes", error=SourceError)
        object.__setattr__(self, "max_record_bytes", most)

    def _inputs(self) -> Paths:
        return self.paths

    @property
    def output_type(self) -> type:
        return dict

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        if file.size <= target_shard_bytes or codec_of(file.name):
            return [Range(0, file.size, file.size)]
        bounds = [0]
        cuts = iter(even_cuts(file.size, target_shard_bytes))
        cut, before = next(cuts, None), ""
        try:
            with open_input(file.path) as handle, tarfile.open(fileobj=handle, mode="r:", tarinfo=SoundInfo) as archive:
                for member in _members(archive):
                    if cut is None:
                        break
                    key, _ = _parts(member)
                    if key and key != before and member.offset >= cut:
                        bounds.append(member.offset)
                        while cut is not None and cut <= member.offset:
                            cut = next(cuts, None)
                    before = key or before
        except tarfile.TarError:
            pass  # the rest is one range: reading it reports what is wrong
        except OSError as error:
            raise read_error(file.name, error, offset=bounds[-1]) from error
        bounds.append(file.size)
        return [Range(start, end, end - start) for start, end in zip(bounds[:-1], bounds[1:], strict=True)]

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        chunks = slice_chunks(path, part)
        for offset, members in self._samples(_Chunks(chunks), part, path=path, left_out=batcher.left_out):
            raw = _archive(members)
            piece = StoredPiece(file=part.file, first_ordinal=batcher.next_ordinal, positions=[offset], raws=[raw])

            def parse(_: int, members: list[_Member] = members, offset: int = offset) -> dict[str, object]:
                return self._value(members, file=part.file, position=offset)

            yield from batcher.add_parsed(piece, 1, parse, num_bytes=len(raw))
        for _ in chunks:  # to the end of the slice, where its digest is compared
            pass

    def samples(self) -> Iterator[dict[str, object]]:
        """The samples in order, read as they are asked for: the first ones show what samples have."""
        for file in self.selection().find():
            stored = read_range(file.path, file.name, 0, file.size)
            chunks = decompressed(stored, codec=codec_of(file.name), file=file.name)
            part = Slice(file=file.name, start=0, end=file.size, digest="")
            for offset, members in self._samples(_Chunks(chunks), part):
                yield self._value(members, file=file.name, position=offset)

    def _samples(
        self, stream: _Chunks, part: Slice, *, path: str | None = None, left_out: Counter[str] | None = None
    ) -> Iterator[tuple[int, list[_Member]]]:
        """The offset of each sample, and its members; counts the other members in `left_out`.

        `path` is that of the archive, whose last slice must include its end; None for a part without it.
        """
        offset, sample, size = part.start, list[_Member](), 0
        at = part.start
        try:
            # Not `tarfile.open(mode="r|")`, which reads blocks of 10 KiB and copies each of them twice.
            with tarfile.TarFile(fileobj=stream, tarinfo=SoundInfo) as archive:
                for info in _members(archive):
                    at = part.start + info.offset
                    key, extension = _parts(info)
                    if not key:
                        if left_out is not None and not info.isdir():
                            left_out[_reason(info)] += 1
                        continue
                    if sample and sample[0][0] != key:
                        yield offset, sample
                        sample, size = [], 0
                    if not sample:
                        offset = at
                    size += info.size
                    if size > self.max_record_bytes:
                        raise SourceError(
                            f"input {part.file} has a sample of {size} bytes or more at byte {offset} ({key!r}), "
                            f"expected at most {self.max_record_bytes}. Make the sample smaller, or raise the limit in "
                            "a declaration: max_record_bytes=… of Tar (--print-python shows that of a command)",
                            file=part.file,
                            offset=offset,
                        )
                    content = _content(archive, info, stream)
                    if len(content) < info.size:
                        raise tarfile.ReadError(f"{len(content)} of {info.size} bytes of {info.name!r} are there")
                    sample.append((key, extension, content))
                if path is not None and breaks_off(archive) and _is_last(path, part):
                    at = part.start + archive.offset
                    raise SourceError(
                        f"input {part.file} breaks off at byte {at}, after a member: the zeros are missing that end an "
                        "archive, so it may have been cut there. Create or download it again; if nothing is missing, "
                        f"append them: head -c 1024 /dev/zero >> {shlex.quote(path)}",
                        file=part.file,
                        offset=at,
                    )
            end = part.start + stream.tell()
            while rest := stream.read(1 << 20):
                if rest.count(0) != len(rest):
                    raise SourceError(
                        f"input {part.file} goes on after the end of its archive, which is at byte {end}: it may be "
                        "several archives in one file. Give each its own file, or join them with tar --concatenate",
                        file=part.file,
                        offset=end,
                    )
        except tarfile.TarError as error:
            raise SourceError(
                f"input {part.file} is not a tar archive, or is damaged or truncated, at or after byte {at}: {error}"
                f"{advice_if_not_utf8(stream.beginning)}. Create or download it again, or leave it out",
                file=part.file,
                offset=at,
            ) from error
        if sample:
            yield offset, sample

    def _value(self, members: list[_Member], *, file: str, position: int) -> dict[str, object]:
        value: dict[str, object] = {KEY: members[0][0]}
        for key, extension, content in members:
            if extension in value:
                raise SourceError(
                    f"the sample {key!r} has two members with the extension {extension!r}, expected one of each",
                    file=file,
                    offset=position,
                )
            decode = _DECODERS.get(extension.rpartition(".")[2].lower()) if self.decode else None
            try:
                value[extension] = content if decode is None else decode(content)
            except (ValueError, RecursionError) as error:
                words = f"cannot be decoded: {type(error).__name__}: {error}"
                if extension.rpartition(".")[2].lower() == "cls":
                    words = (
                        f"holds {content[:40]!r}, and a .cls is the number of a class. Put the name of a class into a "
                        ".txt, and name that as the label (--label-field txt)"
                    )
                raise SourceError(
                    f"{key}.{extension} of {file} {words}",
                    file=file,
                    offset=position,
                ) from error
        return value

    def parse(self, raw: bytes, *, file: str, position: int) -> dict[str, object]:
        part = Slice(file=file, start=0, end=len(raw), digest="")
        samples = [members for _, members in self._samples(_Chunks(iter([raw])), part)]
        if len(samples) != 1:
            raise SourceError(f"expected one sample, as a tar, found {len(samples)}", file=file, offset=position)
        return self._value(samples[0], file=file, position=position)


def sample_file(sample: Mapping[str, FeatureValue], suffixes: Sequence[str]) -> FileContent | None:
    """The first member of a sample with one of these suffixes, as a file; None if there is none.

    `{"__key__": "cat/1", "cls": 0, "jpg": b"\\xff…"}` with `IMAGE_SUFFIXES` → `FileContent("cat/1.jpg", b"\\xff…")`

    If no extension is one of them, an ending such as that of `img.jpg` counts. Raises `TaskError` for several of these:
    with `1.a.jpg` and `1.b.jpg` the sample does not say which one is meant.
    """
    for extension, content in sample.items():
        if f".{extension.lower()}" in suffixes:
            return FileContent(f"{sample[KEY]}.{extension}", content)
    ends = [each for each in sample if f".{each.lower().rpartition('.')[2]}" in suffixes and "." in each]
    if len(ends) > 1:
        raise TaskError(
            f"the sample {sample[KEY]!r} has {', '.join(ends)}, because members that share their name up to its first "
            "dot are one sample. Rename them, so that the names differ before the first dot."
        )
    return FileContent(f"{sample[KEY]}.{ends[0]}", sample[ends[0]]) if ends else None


def values_at(record: object, field: str) -> list[object]:
    """The value of a field, or of a key within its value; an empty list if there is none.

    `values_at({"json": {"meta": {"label": 3}}}, "json.meta.label")` → `[3]`. A name with a dot comes before a key. In a
    sample of a tar archive, `txt` is also `TXT`, as in `webdataset`.
    """
    if not isinstance(record, Mapping):
        return []
    if field not in record and KEY in record:
        record = {name.lower(): value for name, value in record.items()} | dict(record)
    if field in record:
        return [record[field]]
    outer, dot, inner = field.partition(".")
    return values_at(record.get(outer), inner) if dot else []


def has_field(sample: Mapping[str, object], field: str) -> bool:
    """Whether a sample has a member, or its `.json` a key: `{"json": {"label": 3}}` has `json.label`."""
    return bool(values_at(sample, field))


class SoundInfo(tarfile.TarInfo):
    """Headers of members, for `tarfile.open(…, tarinfo=SoundInfo)`: raises `tarfile.ReadError` for a damaged one.

    `tarfile` raises only for the first header. It takes a later one that is damaged or cut off for the end of the
    archive, and what follows would be missing silently.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf.count(0) == len(buf):  # the end, with or without zeros
                raise
            raise tarfile.ReadError(str(error)) from error


def breaks_off(archive: tarfile.TarFile) -> bool:
    """Whether an archive that was read to its end lacks both blocks of zeros that mark it as complete.

    `tarfile` and GNU tar do not require them, and take an archive that was cut between two members for a whole one. One
    block is enough, as for GNU tar: nothing can be missing before it.
    """
    assert archive.fileobj is not None
    return archive.fileobj.tell() <= archive.offset


def _is_last(path: str, part: Slice) -> bool:
    return codec_of(part.file) is not None or storage_for(path).size(path) <= part.end


# Key, extension, content.
_Member = tuple[str, str, bytes]


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a stream for `tarfile`, which moves forward only."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._left = memoryview(b"")
        self._position = 0
        self.beginning = b""

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise tarfile.StreamError(f"expected a place from byte {self._position} on, got {offset}")
        while self._position < offset and self._part(offset - self._position):
            pass
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        wanted = sys.maxsize if size is None or size < 0 else size
        first = self._part(wanted)
        if len(first) == wanted:
            return bytes(first)
        found, wanted = [first], wanted - len(first)
        while wanted and (part := self._part(wanted)):
            found.append(part)
            wanted -= len(part)
        return b"".join(found)

    def _part(self, most: int) -> memoryview:
        """The next bytes of one chunk; none at the end."""
        while most and not self._left:
            if not (chunk := next(self._chunks, b"")):
                break
            self._left = memoryview(chunk)
            self.beginning = self.beginning or chunk[:16]
        part, self._left = self._left[:most], self._left[most:]
        self._position += len(part)
        return part


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo, stream: _Chunks) -> bytes:
    if info.issparse():
        opened = archive.extractfile(info)
        assert opened is not None  # a regular file
        return opened.read()
    stream.seek(info.offset_data)
    return stream.read(info.size)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in order, without keeping them."""
    while (member := archive.next()) is not None:
        yield member
        archive.members = []  # type: ignore[attr-defined]


def _parts(member: tarfile.TarInfo) -> tuple[str, str]:
    """Key and extension; two empty texts for a member that is not part of a sample."""
    found = _NAME.fullmatch(member.name) if member.isreg() else None
    return ("", "") if found is None else (found[1], found[2])


def _reason(member: tarfile.TarInfo) -> str:
    """Why a member is left out."""
    if not member.isreg():
        return "link" if member.islnk() or member.issym() else "special"
    return "hidden" if member.name.rpartition("/")[2].startswith(".") else "no_suffix"


def _archive(members: list[_Member]) -> bytes:
    """The raw bytes of a sample: a tar of its members with only their names and contents."""
    parts = []
    for key, extension, content in members:
        parts += [_header(f"{key}.{extension}", len(content)), content, bytes(-len(content) % _BLOCK)]
    return b"".join(parts)


def _header(name: str, size: int) -> bytes:
    """What `tarfile` writes in front of a file; for usual names without its many calls, in a tenth of the time."""
    if not (name.isascii() and len(name) <= 100 and size < 8**11):
        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.PAX_FORMAT)
    path, digits = name.encode("ascii"), b"%011o" % size
    # The checksum is the sum of all bytes: start from an empty header's, and add those of the name and the size.
    total = _SUM + sum(path) + sum(digits)
    return b"".join(
        [path, bytes(100 - len(path)), _EMPTY[100:124], digits, _EMPTY[135:148], b"%06o\0" % total, _EMPTY[155:]]
    )


_EMPTY = tarfile.TarInfo().tobuf(tarfile.USTAR_FORMAT)
_SUM = sum(_EMPTY[:124]) + sum(_EMPTY[135:148]) + 8 * ord(" ") + sum(_EMPTY[156:])
