"""`ExactDuplicates`: records whose content occurred before.

Content is compared by digest: equal content has equal digests, different content different ones. Normalizers define
which differences between two texts do not count. `KeyGroups` brings equal digests together in bounded memory:
partitions by their first bits, each sorted on its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import struct
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Any

import numpy as np
from google.protobuf.message import Message

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.analysis.analyzer import Values
from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.dedup.duplicates import Duplicates, write_duplicates
from beam_pipes.transforms.dedup.row_file import Column, RowFiles, RowWriter

Array = np.ndarray

# Rows sorted at once. A row of two words and its ordinal takes 24 bytes, and sorting needs about three copies: 9 MB.
ROWS_IN_MEMORY = 1 << 17

# Each partition is an open file.
MAX_PARTITIONS = 256


class KeyGroups:
    """An external sort of (key, ordinal) by key; ordinals are added in ascending order, which equal keys keep.

    Keys are one or two words of 64 bits, distributed evenly, as digests are. Up to `rows_in_memory` rows nothing is
    written; more go to unnamed temporary files in `directory`, so nothing is left behind. Memory grows with the largest
    partition: beyond 256 × `rows_in_memory` rows, or with very many equal keys, partitions are larger.

        with KeyGroups(num_rows=3, words=1, directory="/tmp") as groups:
            groups.add(np.array([[7], [5], [7]], np.uint64), np.array([0, 1, 2]))
            list(groups.partitions())  →  [([[5], [7], [7]], [1, 0, 2])]
    """

    def __init__(self, *, num_rows: int, words: int, directory: str, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
        self._words = words
        partitions = 1
        while partitions < MAX_PARTITIONS and partitions * rows_in_memory < num_rows:
            partitions *= 2
        self._shift = np.uint64(64 - (partitions.bit_length() - 1))
        self._files: list[IO[bytes]] = []
        self._rows: list[Array] = []
        self._stack = ExitStack()
        if partitions > 1:
            files = (tempfile.TemporaryFile(dir=directory) for _ in range(partitions))
            self._files = [self._stack.enter_context(file) for file in files]

    def __enter__(self) -> KeyGroups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, keys: Array, ordinals: Array) -> None:
        """Takes keys, (rows, words) uint64, and ordinals, (rows,), all greater than earlier ones."""
        rows = np.empty((len(keys), self._words + 1), np.uint64)
        rows[:, : self._words] = keys
        rows[:, self._words] = ordinals
        if not self._files:
            self._rows.append(rows)
            return
        partition = rows[:, 0] >> self._shift
        order = np.argsort(partition, kind="stable")
        rows = rows[order]
        bounds = np.searchsorted(partition[order], np.arange(len(self._files) + 1))
        for index, file in enumerate(self._files):
            if bounds[index] < bounds[index + 1]:
                file.write(rows[bounds[index] : bounds[index + 1]].tobytes())

    def partitions(self) -> Iterator[tuple[Array, Array]]:
        """(keys, ordinals) of each partition, in the order of keys; equal keys in the order of ordinals."""
        if not self._files:
            rows = np.concatenate(self._rows) if self._rows else np.empty((0, self._words + 1), np.uint64)
            self._rows = []
            yield self._sorted(rows)
            return
        for file in self._files:
            file.seek(0)
            rows = np.frombuffer(file.read(), np.uint64).reshape(-1, self._words + 1)
            file.truncate(0)
            yield self._sorted(rows)

    def _sorted(self, rows: Array) -> tuple[Array, Array]:
        order = np.lexsort(rows.T[self._words - 1 :: -1])
        rows = rows[order]
        return rows[:, : self._words], rows[:, self._words].astype(np.int64)


def group_starts(keys: Array) -> Array:
    """The start of each run of equal keys, and the end: `[[5], [7], [7]]` → `[0, 1, 3]`."""
    if not len(keys):
        return np.zeros(1, np.int64)
    changes = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    return np.concatenate([[0], changes, [len(keys)]]).astype(np.int64)


DIGESTS = Column("digests", "<u8", 2)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ExactDuplicates(Analyzer):
    """Finds the records whose content equals that of a record before them, in the order of the source.

        exact = ExactDuplicates("exact", of=Text(), normalize=squeeze_whitespace)

        a.txt@0   "to be"       stays
        a.txt@6   "or not"      stays
        b.txt@0   "to  be"      is a duplicate of a.txt@0

    The result is a `Duplicates`; `DropDuplicates` takes `exact.result` and drops its records.

    Args:
        of: the part of a record that is compared, one value per record: text, bytes, or data that `content_digest`
            accepts. A record without a value is not compared, and stays. Default: the record itself.
        normalize: applied to the content before it is compared: a function, or several in order;
            `plain_text` folds case and whitespace. It affects only the comparison, not the records. Default: none,
            because only you know which differences do not matter.

    Only digests leave the source shard: 24 bytes per record in its accumulator. Merging sorts them in partitions of a
    million, on disk if there are more; it takes 80 MB of memory, and 50 bytes per removed record.

    Raises `DeclarationError` if a record gives two values, or one that has no digest.
    """

    normalize: Normalizer | Sequence[Normalizer] | None = None
    split: str | None = None  # a copy in another split is a duplicate too

    def accumulator(self) -> Accumulator:
        return _Digests(self)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        merge_exact(accumulators, target)

    def read(self, path: str) -> Duplicates:
        return Duplicates(path)


class _Digests(Accumulator):
    def __init__(self, analyzer: ExactDuplicates) -> None:
        self._normalize = analyzer.normalize
        self._rows = RowWriter(DIGESTS, owner=analyzer.name)

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        if self._normalize is not None:
            values = [normalized(value, self._normalize) for value in values]
        digests = np.frombuffer(b"".join(map(content_digest, values)), "<u8").reshape(-1, 2)
        self._rows.add(record_ids, {DIGESTS.name: digests})

    def save(self, path: str) -> None:
        self._rows.save(path)


def merge_exact(accumulators: Sequence[str], target: str, *, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
    """Writes the duplicates among the digests of all source shards, in order; the first of equal ones stays."""
    places = RowFiles(accumulators)
    removed, kept = _equal(places, os.path.dirname(target), rows_in_memory)
    similarities = np.ones(len(removed), np.float32)
    write_duplicates(target, kind="exact", removed=removed, kept=kept, similarities=similarities, places=places)


def _equal(places: RowFiles, directory: str, rows_in_memory: int) -> tuple[Array, Array]:
    """The ordinals of records whose digest occurred before, and of the first record with that digest."""
    removed = [np.empty(0, np.int64)]
    kept = [np.empty(0, np.int64)]
    with KeyGroups(num_rows=places.num_rows, words=2, directory=directory, rows_in_memory=rows_in_memory) as groups:
        for ordinals, digests in places.blocks(DIGESTS.name):
            groups.add(digests, ordinals)
        for keys, ordinals in groups.partitions():
            starts = group_starts(keys)
            is_first = np.zeros(len(keys), bool)
            is_first[starts[:-1]] = True
            firsts = np.repeat(ordinals[starts[:-1]], np.diff(starts))
            removed.append(ordinals[~is_first])
            kept.append(firsts[~is_first])
    return np.concatenate(removed), np.concatenate(kept)


DIGEST_BYTES = 16


def content_digest(value: object) -> bytes:
    """16 bytes (BLAKE2b) that name the content of `value`.

    Among 10^9 different records, two get the same digest with a probability of 10^-21: practically never.

    It accepts None, booleans, numbers, str, bytes, lists, tuples, mappings (their order does not count), NumPy arrays
    (dtype, shape and values count) and protocol buffers. A NumPy scalar counts as its number. Text and bytes never have
    the same content.

        content_digest("to be") == content_digest("to be")
        content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
        content_digest("1") != content_digest(1)

    Raises `DeclarationError` for values of any other class.

    Source: BLAKE2, RFC 7693.
    """
    # `person` keeps kinds apart without copying the text to put a letter before it.
    if isinstance(value, str):
        return hashlib.blake2b(
            value.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, person=b"text"
        ).digest()
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=DIGEST_BYTES, person=b"bytes").digest()
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"value")
    _feed(value, digest.update)
    return digest.digest()


def _feed(value: object, update: Callable[[bytes], object]) -> None:
    """Feeds `update` with bytes that no other value produces: each part begins with its kind and its size."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        update(b"N")
    elif isinstance(value, bool):
        update(b"T" if value else b"F")
    elif isinstance(value, str):
        _feed_sized(b"s", value.encode("utf-8", "surrogatepass"), update)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _feed_sized(b"b", bytes(value), update)
    elif isinstance(value, int):
        update(b"i%d;" % value)
    elif isinstance(value, float):
        update(b"f" + struct.pack("<d", value))
    elif isinstance(value, (list, tuple)):
        update(b"l%d;" % len(value))
        for each in value:
            _feed(each, update)
    elif isinstance(value, Mapping):
        update(b"m%d;" % len(value))
        items = {content_digest(key): item for key, item in value.items()}
        for key in sorted(items):
            update(key)
            _feed(items[key], update)
    elif isinstance(value, np.ndarray):
        _feed_array(value, update)
    elif isinstance(value, Message):
        _feed_sized(b"p", value.DESCRIPTOR.full_name.encode(), update)
        _feed_sized(b"b", value.SerializeToString(deterministic=True), update)
    else:
        raise DeclarationError(
            "content should be text, bytes, numbers, arrays, protocol buffers, or lists and mappings of these, got "
            f"{brief(value)}. Give the analyzer of=..., a pipeline that ends in the content to compare.",
            found=type(value),
        )


def _feed_sized(kind: bytes, data: bytes, update: Callable[[bytes], object]) -> None:
    update(kind + b"%d;" % len(data))
    update(data)


def _feed_array(array: np.ndarray, update: Callable[[bytes], object]) -> None:
    update(b"a%d;" % array.ndim + b"".join(b"%d;" % size for size in array.shape))
    if array.dtype.hasobject or array.dtype.kind in "SUV":
        update(b"O")
        for each in array.ravel().tolist():
            _feed(each, update)
        return
    little = array.dtype.newbyteorder("<")
    update(little.str.encode())
    update(np.ascontiguousarray(array, dtype=little).tobytes())


Normalizer = Callable[[Any], object]


def lower(text: str) -> str:
    """Folds case, as Unicode does for caseless comparison: `"Straße TO"` → `"strasse to"`."""
    return text.casefold()


def squeeze_whitespace(text: str) -> str:
    """Turns every run of whitespace into one space and strips both ends: `" to \\n be"` → `"to be"`."""
    return " ".join(text.split())


def compose(text: str) -> str:
    """Composes letters and their marks (Unicode NFC): `"e"` and an acute accent → `"é"`."""
    return unicodedata.normalize("NFC", text)


def plain_text(text: str) -> str:
    """All three: `"  TO\\tbe "` → `"to be"`. Composed last, because folding case may decompose."""
    return compose(squeeze_whitespace(lower(text)))


def normalized(value: object, normalizers: Normalizer | Sequence[Normalizer] | None) -> Any:
    """`value` after one normalizer, or several in order; None leaves it unchanged."""
    if normalizers is None:
        return value
    if callable(normalizers):
        return normalizers(value)
    for each in normalizers:
        value = each(value)
    return value
