"""`ExactDuplicates`: the records whose content has been there before."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.transforms.dedup.content_digest import content_digest
from beam_pipes.transforms.dedup.duplicates import Duplicates, write_duplicates
from beam_pipes.transforms.dedup.key_groups import ROWS_IN_MEMORY, KeyGroups, group_starts
from beam_pipes.transforms.dedup.normalizers import Normalizer, normalized
from beam_pipes.transforms.dedup.places import Places
from beam_pipes.transforms.dedup.row_file import Column, RowWriter

Array = np.ndarray[Any, Any]

DIGESTS = Column("digests", "<u8", 2)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ExactDuplicates(Analyzer):
    """Finds the records whose content equals that of a record before them, in the order of the source.

        exact = ExactDuplicates("exact", of=Text(), normalize=squeeze_whitespace)

        a.txt@0   "to be"       stays
        a.txt@6   "or not"      stays
        b.txt@0   "to  be"      is a duplicate of a.txt@0

    The result is a `Duplicates`; `DropDuplicates` holds `exact.result` and removes what is in it.

    Args:
        of: what of a record is compared, one value a record: text, bytes, or data as `content_digest` takes it. A
            record for which it gives nothing is not compared, and stays. Default: the record as it is.
        normalize: what the content is turned into before it is compared: a function, or several, the first one first;
            `plain_text` folds case and whitespace. It decides what is a duplicate and changes no record. Default: as
            is, because only the user knows which differences do not matter.

    Only digests leave the source shard: 24 bytes a record in its accumulator. Merging sorts them in partitions of a
    million, on disk where there are more: it takes 80 MB of memory, and 50 bytes for each record that is removed.

    Raises `DeclarationError` where a record gives two values, or one that has no digest.
    """

    normalize: Normalizer | Sequence[Normalizer] | None = None

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

    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
        if self._normalize is not None:
            values = [normalized(value, self._normalize) for value in values]
        digests = np.frombuffer(b"".join(map(content_digest, values)), "<u8").reshape(-1, 2)
        self._rows.add(record_ids, {DIGESTS.name: digests})

    def save(self, path: str) -> None:
        self._rows.save(path)


def merge_exact(accumulators: Sequence[str], target: str, *, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
    """Writes the duplicates among the digests of all source shards, in their order; the first of equal ones stays."""
    places = Places(accumulators)
    removed, kept = _equal(places, os.path.dirname(target), rows_in_memory)
    similarities = np.ones(len(removed), np.float32)
    write_duplicates(target, kind="exact", removed=removed, kept=kept, similarities=similarities, places=places)


def _equal(places: Places, directory: str, rows_in_memory: int) -> tuple[Array, Array]:
    """The ordinals of records whose digest was there before, and of the first record with that digest."""
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
