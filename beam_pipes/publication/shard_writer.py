"""`ShardWriter`: records → one shard file and its index, which appear complete or not at all."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from beam_pipes.errors import SpecError
from beam_pipes.format.codec import IndexRow, RecordCodec
from beam_pipes.format.dtypes import Array
from beam_pipes.format.framing import FRAME_BYTES, HEADER_BYTES, RecordWriter, check_frame, check_header
from beam_pipes.format.index import OFFSET, ORDINAL, SIZE, column_names, encode_index, index_checksum, index_path
from beam_pipes.format.layout import FixedLayout, ShardEntry
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import reached
from beam_pipes.storage.protocol import Storage


class ShardWriter:
    """Streams records to a temporary file beside the final one; `commit` makes shard and index appear.

        with ShardWriter(directory, "demo-train.tfrecord-00000-of-00001", codec=ExampleCodec(spec)) as writer:
            writer.write({"tokens": [1, 2, 3]}, ordinal=0)
            entry = writer.commit()

    Equal records give equal bytes. Leaving a `with` block without `commit` aborts. Not thread-safe.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        file_name: str,
        *,
        codec: RecordCodec,
        storage: Storage | None = None,
    ) -> None:
        if not file_name or os.path.basename(file_name) != file_name:
            raise SpecError(f"a shard's file name should be a plain name without directories, got {file_name!r}")
        self.file_name = file_name
        self._path = os.path.join(os.fspath(directory), file_name)
        self._storage = storage_for(directory) if storage is None else storage
        self._codec = codec
        self._fixed: FixedLayout | None = getattr(codec, "fixed_layout", None)
        self._width = len(codec.index_columns)
        self._staged = self._storage.stage(self._path)
        self._records = RecordWriter(self._staged)
        self._sizes = array("I")
        self._ordinals = array("Q")
        self._rows = array("I")
        self._first: tuple[int, tuple[int, ...]] | None = None
        self._uniform = True

    @property
    def records(self) -> int:
        """Records written so far."""
        return len(self._ordinals)

    def write(self, value: object, ordinal: int) -> None:
        """Appends one record; `ordinal` is its position in the source shard.

        Raises `SpecError` if `value` does not match its spec; then nothing of it is written.
        """
        payload, row = self._codec.encode_indexed(value)
        self.write_encoded(payload, ordinal, row)

    def write_encoded(self, payload: bytes, ordinal: int, row: Sequence[int] = ()) -> None:
        """Appends what `codec.encode_indexed` returned, perhaps in another process: payload and index row."""
        if len(row) != self._width:
            raise SpecError(
                f"{self.file_name}: expected an index row of {self._width} values "
                f"({list(self._codec.index_columns)}), got "
                f"{tuple(row)}. Pass on both results of codec.encode_indexed."
            )
        self._ordinals.append(ordinal)
        self._records.write(payload)
        if self._fixed is None:
            self._sizes.append(len(payload))
            self._rows.extend(row)
            if self._uniform:
                current = (len(payload), tuple(row))
                if self._first is None:
                    self._first = current
                self._uniform = self._first == current

    def write_all_encoded(self, records: Iterable[tuple[bytes, int, IndexRow]]) -> None:
        """`write_encoded` of each (payload, ordinal, row): what a batch adds, at half the cost."""
        payloads, ordinals, rows = tuple(zip(*records, strict=True)) or ((), (), ())
        if {*map(len, rows)} - {self._width}:
            for payload, ordinal, row in zip(payloads, ordinals, rows, strict=True):
                self.write_encoded(payload, ordinal, row)  # says which
        self._ordinals.extend(ordinals)
        self._records.write_all(payloads)
        if self._fixed is None:
            sizes = [*map(len, payloads)]
            self._sizes.extend(sizes)
            self._rows.extend(chain.from_iterable(rows))
            if self._uniform and sizes:
                if self._first is None:
                    self._first = sizes[0], rows[0]
                self._uniform = {*zip(sizes, rows, strict=True)} == {self._first}

    def read_back(self) -> list[tuple[bytes, int, IndexRow]]:
        """Everything passed to `write_encoded` so far, for a shard to be finished elsewhere."""
        self._records.flush()
        data = self._staged.read_back()
        records: list[tuple[bytes, int, IndexRow]] = []
        offset = 0
        for position, ordinal in enumerate(self._ordinals):
            length = check_header(self._path, offset, data[offset : offset + HEADER_BYTES], len(data) - offset)
            payload = check_frame(self._path, offset, data[offset : offset + length + FRAME_BYTES])
            row = self._rows[position * self._width : (position + 1) * self._width]
            records.append((payload, ordinal, tuple(row)))
            offset += length + FRAME_BYTES
        return records

    def commit(self) -> ShardEntry:
        """Makes the index appear, then the shard, both durable; replaces existing ones."""
        self._records.close()
        reached("shard/written")
        index = encode_index(self._columns())
        entry = ShardEntry(
            file=self.file_name,
            records=self.records,
            bytes=self._records.bytes_written,
            crc32c=self._records.crc32c,
            index_crc32c=index_checksum(index),
            lengths=self._lengths(),
            layout=self._layout(),
        )
        self._storage.replace(index_path(self._path), index)
        reached("shard/index-renamed")
        self._staged.commit()
        reached("shard/renamed")
        return entry

    def abort(self) -> None:
        """Removes what was written; after `commit` it does nothing."""
        self._staged.abort()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    def _columns(self) -> dict[str, Array]:
        columns: dict[str, Array] = {ORDINAL: np.frombuffer(self._ordinals, np.uint64)}
        if self._fixed is None:
            sizes = np.frombuffer(self._sizes, np.uint32)
            ends = np.cumsum(sizes.astype(np.uint64) + np.uint64(FRAME_BYTES), dtype=np.uint64)
            columns[SIZE] = sizes
            columns[OFFSET] = np.concatenate([np.zeros(1, np.uint64), ends])[: len(sizes)]
            for position, name in enumerate(self._codec.index_columns):
                columns[name] = self._column(position)
        return {name: columns[name] for name in column_names(self._codec.index_columns, fixed=self._fixed is not None)}

    def _column(self, position: int) -> Array:
        return np.frombuffer(self._rows, np.uint32).reshape(-1, self._width)[:, position]

    def _lengths(self) -> dict[str, tuple[int, int]]:
        return {
            name.removeprefix("length/"): (int(column.sum(dtype=np.uint64)), int(column.max(initial=0)))
            for position, name in enumerate(self._codec.index_columns)
            if name.startswith("length/")
            for column in [self._column(position)]
        }

    def _layout(self) -> FixedLayout | None:
        if self._fixed is not None:
            return self._fixed
        return self._codec.layout_of(*self._first) if self._uniform and self._first is not None else None
