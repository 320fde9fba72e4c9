"""`readers.tfrecord`: features of Examples in TFRecord files.

The places of records are read from DALI's index files (a text file with a line for each record: offset and bytes of its
frame, separated by a space), or found by walking from header to header.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from beam_pipes.errors import CorruptIndexError
from beam_pipes.format.framing import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    check_frame,
    header_of,
    intact_payload,
    scan_records,
)
from beam_pipes.graph.functions import TFRecordFeature, string
from beam_pipes.graph.operator import Constant, Node
from beam_pipes.graph.reader import Indices, MadeFrom, Reader, RecordStore
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.sources.source import Source
from beam_pipes.sources.tfrecords import TFRecords
from beam_pipes.transforms.operators.readers.example_columns import LEAST_RECORDS, Column, ExampleColumns, Template


class TFRecord(Reader):
    """Reads declared features of `tf.train.Example` records; returns a dict of data nodes, by feature.

        features = {"image": tfrec.FixedLenFeature([], tfrec.string, "")}
        inputs = fn.readers.tfrecord(path="train.tfrecord", features=features)
        images = fn.decoders.image(inputs["image"])

    A record that lacks a feature gives its declared default. Checksums of all records are checked when they are first
    read. Unused features are not parsed. `index_path`, DALI's index files, is optional: it saves searching for the
    records once when files are opened.
    """

    path = Constant("strs", doc="the TFRecord files, in order")
    features = Constant("any", doc="name → tfrec.FixedLenFeature or tfrec.VarLenFeature")
    index_path = Constant("strs", default=None, doc="the index of each file, as DALI's tfrecord2idx makes it")

    def check(self) -> None:
        super().check()
        if not isinstance(self.features, Mapping) or not self.features:
            raise self.argument_error(f"features should be a dict of features by name, got {self.features!r:.60}.")
        for name, feature in self.features.items():
            if not isinstance(name, str) or not isinstance(feature, TFRecordFeature):
                raise self.argument_error(
                    f"features: {name!r} should be a tfrec.FixedLenFeature or VarLenFeature, got {feature!r:.60}."
                )
        if self.index_path is not None and len(self.index_path) != len(self.path):
            raise self.argument_error(
                f"index_path should name an index for each of {len(self.path)} files, got {len(self.index_path)}."
            )

    def fingerprint_config(self) -> Mapping[str, object]:
        declared = {
            name: [one.dtype, one.shape, one.partial_shape, one.default().tolist()]
            for name, one in self.features.items()
        }
        return {**super().fingerprint_config(), "features": declared}

    def output_count(self) -> int:
        return len(self.features)

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        return [_spec(feature) for feature in self.features.values()]

    def result(self, nodes: Sequence[Node]) -> dict[str, Node]:
        return dict(zip(self.features, nodes, strict=True))

    def open(self) -> TFRecordStore:
        for path in [*self.path, *(self.index_path or [])]:
            if not os.path.isfile(path):
                raise self.argument_error(f"there is no file {path!r}.")
        return TFRecordStore(self._names(), self.path, self.index_path, ExampleColumns(self.features))

    def _names(self) -> list[str]:
        """The names of files in record ids: relative to their common directory, as in `source()`."""
        selection = TFRecords(list(self.path)).selection()
        by_path = {os.path.abspath(found.path): found.name for found in selection.find()}
        return [by_path[os.path.abspath(path)] for path in self.path]

    def source(self) -> Source:
        return TFRecords(list(self.path)) if sorted(self.path) == list(self.path) else super().source()

    def from_source(self, value: bytes | int) -> Sequence[Array]:
        if isinstance(value, int):
            return super().from_source(value)
        return ExampleColumns(self.features).parse(value, range(len(self.features)))


def _spec(feature: TFRecordFeature) -> TensorSpec:
    if feature.dtype == string:
        return TensorSpec(feature.numpy_dtype, (None,))
    shape = feature.shape if feature.shape is not None else (None, *feature.partial_shape)
    return TensorSpec(feature.numpy_dtype, shape)


class TFRecordStore(RecordStore):
    """Records of mapped TFRecord files by number."""

    def __init__(
        self, names: Sequence[str], paths: Sequence[str], indexes: Sequence[str] | None, columns: ExampleColumns
    ) -> None:
        self._names = names
        self._paths = paths
        self._data = [file_bytes(path) for path in paths]
        places = [
            record_places(path, data, None if indexes is None else indexes[at])
            for at, (path, data) in enumerate(zip(paths, self._data, strict=True))
        ]
        counts = [len(offsets) for offsets, _ in places]
        self._first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._offsets = np.concatenate([offsets for offsets, _ in places]).astype(np.int64)
        self._sizes = np.concatenate([sizes for _, sizes in places]).astype(np.int64)
        self._is_checked = np.zeros(len(self._offsets), np.bool_)
        self._columns = columns
        # If all records have one length: that length, and a template with the records of the same layout.
        sizes = self._sizes
        self._size_of_all = int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else None
        self._laid_out: tuple[Template | None, Array] = (None, np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self._offsets)

    def record_ids(self, indices: Indices) -> list[str]:
        files = np.searchsorted(self._first, indices, side="right") - 1
        offsets = self._offsets[indices].tolist()
        return [f"{self._names[file]}@{offset}" for file, offset in zip(files.tolist(), offsets, strict=True)]

    def read(self, indices: Indices, outputs: Collection[int]) -> list[TensorList | None]:
        indices = np.asarray(indices, np.int64)
        unchecked = indices[~self._is_checked[indices]]
        for index in unchecked.tolist():
            self._check(index)
        if len(self._data) == 1:
            columns = self._of_one_file(indices, frozenset(outputs))
            return [None if column is None else TensorList(column) for column in columns]
        return self._of_files(indices, outputs)

    def _of_one_file(self, indices: Indices, wanted: frozenset[int]) -> list[Column | None]:
        data, starts = self._data[0], self._offsets[indices] + HEADER_BYTES
        if self._size_of_all is None or len(indices) < LEAST_RECORDS or not wanted:
            return self._columns.read(data, starts, self._sizes[indices], wanted)
        template = self._columns.template(data, int(starts[0]), self._size_of_all, wanted)
        if template is None:
            return self._columns.read(data, starts, self._sizes[indices], wanted)
        known_template, is_known = self._laid_out
        if known_template is not template:
            is_known = np.zeros(len(self._offsets), np.bool_)
            self._laid_out = template, is_known
        columns = self._columns.laid_out(template, data, starts, is_known=bool(is_known[indices].all()))
        if columns is None:
            return self._columns.read(data, starts, self._sizes[indices], wanted)
        is_known[indices] = True
        return columns

    def _of_files(self, indices: Indices, outputs: Collection[int]) -> list[TensorList | None]:
        """Records of several files: those of each file together."""
        files = np.searchsorted(self._first, indices, side="right") - 1
        order = np.argsort(files, kind="stable")
        pieces = []
        for own in np.split(order, np.flatnonzero(np.diff(files[order])) + 1):
            data, at = self._data[int(files[own[0]])], indices[own]
            pieces.append(self._columns.read(data, self._offsets[at] + HEADER_BYTES, self._sizes[at], outputs))
        back = np.argsort(order)
        made: list[TensorList | None] = []
        for index in range(len(self._columns.features)):
            if index not in outputs:
                made.append(None)
                continue
            parts = [piece[index] for piece in pieces]
            stacked = [part for part in parts if isinstance(part, np.ndarray)]
            if len(stacked) == len(parts) and len({part.shape[1:] for part in stacked}) == 1:
                made.append(TensorList(np.concatenate(stacked)[back]))
            else:
                samples = [sample for part in parts if part is not None for sample in part]
                made.append(TensorList([samples[at] for at in back]))
        return made

    def made_from(self, index: int) -> MadeFrom:
        file = int(np.searchsorted(self._first, index, side="right")) - 1
        return MadeFrom([self._paths[file]], int(self._offsets[index]))

    def _check(self, index: int) -> None:
        """Raises `CorruptRecordError` if a checksum is wrong, or the index does not lead to a record."""
        file = int(np.searchsorted(self._first, index, side="right")) - 1
        offset, size = int(self._offsets[index]), int(self._sizes[index])
        end = offset + HEADER_BYTES + size + FOOTER_BYTES
        frame = self._data[file][offset:end].tobytes()
        if int.from_bytes(frame[:8], "little") != size or intact_payload(frame) is None:
            check_frame(self._names[file], offset, frame)
            raise ValueError(
                f"{self._names[file]}: the index tells of a record of {size} bytes at offset {offset}; none is there"
            )
        self._is_checked[index] = True

    def identity(self) -> Mapping[str, object]:
        return self._identity

    @functools.cached_property
    def _identity(self) -> Mapping[str, object]:
        """Places and stored checksums of all records, which change with any byte of them."""
        digest = hashlib.sha256()
        opened = self._data or [file_bytes(path) for path in self._paths]
        for name, data, first, last in zip(self._names, opened, self._first, self._first[1:], strict=False):
            digest.update(f"{name}\0{len(data)}\0{last - first}\n".encode())
            ends = self._offsets[first:last] + HEADER_BYTES + self._sizes[first:last]
            digest.update(np.asarray(data[ends[:, None] + np.arange(FOOTER_BYTES)]).tobytes())
        digest.update(np.ascontiguousarray(self._offsets).tobytes())
        return {"files": digest.hexdigest()[:16]}

    def close(self) -> None:
        self._data = []


def record_places(path: str, data: Array, index_path: str | None) -> tuple[Array, Array]:
    """(offset of each frame, bytes of each payload), int64, in the order of the file; `data` are its bytes."""
    if index_path is not None:
        return read_dali_index(index_path, num_bytes=len(data))
    alike = _frames_alike(data)
    if alike is not None:
        return alike
    found = np.array(list(scan_records(path)), np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def read_dali_index(path: str, *, num_bytes: int) -> tuple[Array, Array]:
    """(offset of each frame, bytes of each payload) of a DALI index, for a file of `num_bytes`.

    Raises `CorruptIndexError` for a file that is not an index, or that belongs to another file.
    """
    with open(path, "rb") as file:
        text = file.read()
    words = text.split()
    try:
        numbers = np.array(words, dtype=np.int64)
    except ValueError:
        bad = next(word for word in words if not word.isdigit())
        raise _bad_index(path, f"expected numbers, found {bad[:20]!r}") from None
    if len(numbers) % 2 or len(numbers) != 2 * sum(1 for line in text.splitlines() if line.strip()):
        raise _bad_index(path, "expected two numbers a line")
    offsets, sizes = numbers[::2], numbers[1::2]
    if len(offsets) and (offsets.min() < 0 or sizes.min() < FRAME_BYTES or int((offsets + sizes).max()) > num_bytes):
        raise _bad_index(path, f"a record lies outside of the {num_bytes} bytes of the file")
    return offsets, sizes - FRAME_BYTES


def _bad_index(path: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path}: this is not an index of the TFRecord file: {problem}. Create it again, or leave index_path out.",
        path=path,
    )


def _frames_alike(data: Array) -> tuple[Array, Array] | None:
    """The places of records if all frames of a file have one length, found by comparing their headers together; else
    None.
    """
    if len(data) < FRAME_BYTES:
        return None
    length = int.from_bytes(data[:8].tobytes(), "little")
    stride = length + FRAME_BYTES
    count, rest = divmod(len(data), stride)
    if rest or data[:HEADER_BYTES].tobytes() != header_of(length):
        return None
    headers = np.lib.stride_tricks.as_strided(data, (count, HEADER_BYTES), (stride, 1), writeable=False)
    if not np.array_equal(headers, np.broadcast_to(data[:HEADER_BYTES], headers.shape)):
        return None
    return np.arange(count, dtype=np.int64) * stride, np.full(count, length, np.int64)


def file_bytes(path: str) -> Array:
    """The bytes of a file, mapped."""
    if os.path.getsize(path) == 0:
        return np.zeros(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r"))  # a plain array: slices of a subclass are slower
