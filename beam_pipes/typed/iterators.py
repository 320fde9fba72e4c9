"""Iterators over input data: files of a directory, records of a TFRecord file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from beam_pipes.cache.framing import read_records
from beam_pipes.errors import SourceError


def file_iterator(
    root_dir: str | os.PathLike[str], extension: str | None = None, recurse: bool = True
) -> Iterator[bytes]:
    """Yields the raw bytes of each file under `root_dir`, in sorted order of their paths.

    `extension` keeps only files that end in it, with or without its dot, in upper or lower case: `mid` and `.MID` both
    take `a.mid` and `B.MID`. `recurse=False` stays in `root_dir` itself.
    Raises `SourceError` where `root_dir` is not a directory.
    """
    root = Path(root_dir)
    if not root.is_dir():
        raise SourceError(
            f"file_iterator expects a directory, and {str(root)!r} is none. Check root_dir.", path=str(root)
        )
    suffix = "." + extension.lstrip(".").lower() if extension else ""
    names = root.rglob("*") if recurse else root.glob("*")
    for path in sorted(names, key=lambda path: path.relative_to(root).parts):
        if path.is_file() and path.name.lower().endswith(suffix):
            yield path.read_bytes()


def tf_record_iterator(tfrecord_file: str | os.PathLike[str], proto: Any) -> Iterator[Any]:
    """Yields the records of a TFRecord file as messages of the class `proto`.

    Raises `CorruptRecordError`, with file and offset, where a length or a checksum is wrong, and `SourceError` where a
    record is no such message.
    """
    for position, record in enumerate(read_records(tfrecord_file)):
        try:
            message = proto.FromString(record)
        except DecodeError as error:
            raise SourceError(
                f"record {position} of {os.fspath(tfrecord_file)} should be a {proto.__name__}, but cannot be parsed "
                f"as one: {error}. Pass the message class that the file was written with.",
                path=os.fspath(tfrecord_file),
                position=position,
            ) from error
        yield message
