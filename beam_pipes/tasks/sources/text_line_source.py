"""Lines of text files."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_pipes.tasks.in_tensorflow.file_patterns import is_remote, read_bytes
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.sources.file_source import FileDataSource


class TextLineDataSource(FileDataSource):
    """One example a line: a string, without its line end. Read natively, so no TensorFlow is needed offline.

    Args:
        split_to_filepattern: split → a path, a glob, or a list of them.
        skip_header_lines: lines to leave out at the beginning of each file.
    """

    reads_without_tensorflow = True

    def __init__(
        self,
        split_to_filepattern: Mapping[str, str | Iterable[str]],
        skip_header_lines: int = 0,
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
    ) -> None:
        self._skip_header_lines = skip_header_lines

        def read_lines(path: Any) -> Any:
            lines = tensorflow("reading text lines").data.TextLineDataset(path)
            return lines.skip(skip_header_lines) if skip_header_lines else lines

        super().__init__(
            read_lines,
            split_to_filepattern,
            num_input_examples,
            caching_permitted,
            file_shuffle_buffer_size,
            cycle_length,
            block_length,
        )

    @property
    def skip_header_lines(self) -> int:
        return self._skip_header_lines

    def fingerprint_config(self) -> dict[str, Any]:
        return {"skip_header_lines": self._skip_header_lines}

    def read_shard(self, split: str, shard: str) -> Iterator[bytes]:
        self._shard_index(split, shard)
        return read_lines(shard, skip=self._skip_header_lines)


def read_lines(path: str, start: int = 0, end: int | None = None, *, skip: int = 0) -> Iterator[bytes]:
    """Lines as tf.data gives them: split at \\n, every \\r left out.

    Args:
        path: a file.
        start: the first byte of a line.
        end: where to stop, the first byte of another line; None for the end of the file.
        skip: lines to leave out at the beginning.
    """
    lines: Iterable[bytes]
    if is_remote(path):
        lines = io.BytesIO(read_bytes(path)[start:end])
    else:
        lines = _local_lines(path, start, end)
    for line in itertools.islice(lines, skip, None):
        yield (line[:-1] if line.endswith(b"\n") else line).replace(b"\r", b"")


def _local_lines(path: str, start: int, end: int | None) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        if end is None:
            yield from file
            return
        left = end - start
        for line in file:
            if left <= 0:
                return
            left -= len(line)
            yield line
