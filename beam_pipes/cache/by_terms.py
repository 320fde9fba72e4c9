"""How many records, bytes and tokens of a cache stand under which terms: `count_by_terms`.

Records and bytes come from the manifest, which has them for each shard. Lengths are summed there over a whole split:
only for a split with shards of different terms they are read from the indexes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.format.dtypes import Array
from beam_pipes.publication.terms import Terms


@dataclasses.dataclass(frozen=True, kw_only=True)
class TermsCount:
    """What one split has under one set of terms.

    `num_bytes` counts stored bytes of records, `lengths` adds up the leading dimension of each feature whose length
    varies (for a text, its bytes): of `tokens`, the number of tokens. Records that are taken down are counted, as they
    are still stored.
    """

    split: str
    terms: Terms
    records: int
    num_bytes: int
    lengths: Mapping[str, int]

    def to_json(self) -> dict[str, object]:
        return {**self.terms.to_json(), **dataclasses.asdict(self), "terms": self.terms.terms}


def count_by_terms(cache: Cache) -> list[TermsCount]:
    """The counts of every split, and within it in the order of the sources; splits that have no records left out.

    Where no source declares anything, there is one count for each split, of `Terms()`.
    """
    return [count for split in cache.splits for count in _of_split(cache, split)]


def terms_of_records(split: Split) -> tuple[list[Terms], Array]:
    """The terms that the records of a split have, and (n,): for each record, the number of its terms among them.

    For chosen records, those of the choice.
    """
    whole = split.whole
    sizes = whole.shard_sizes
    begins = np.cumsum(sizes) - sizes
    filled = [whole.terms_of(begin) for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True) if size]
    number_of = {terms: number for number, terms in enumerate(dict.fromkeys(filled))}
    codes: Array = np.repeat([number_of[terms] for terms in filled], sizes[sizes > 0])
    return list(number_of), codes if split.choice is None else codes[split.choice.rows]


def _of_split(cache: Cache, split: str) -> list[TermsCount]:
    manifest = cache.manifest
    shards = manifest.splits[split]
    terms = [manifest.terms_of(number) for number in shards.numbers]
    filled = dict.fromkeys(each for each, records in zip(terms, shards.records, strict=True) if records)
    number_of = {each: number for number, each in enumerate(filled)}
    groups = np.array([number_of.get(each, 0) for each in terms], np.int64)

    def summed(of_shards: object) -> list[int]:
        totals = np.zeros(len(filled), np.int64)
        np.add.at(totals, groups, np.asarray(of_shards, np.int64))
        found: list[int] = totals.tolist()
        return found

    lengths: dict[str, list[int]] = {name: [total] for name, (total, _) in shards.lengths.items()}
    if len(filled) > 1:
        ends = np.cumsum([0, *shards.records])
        for name in lengths:
            until = np.cumsum([0, *cache[split].lengths(name)])
            lengths[name] = summed(np.diff(until[ends]))
    records, sizes = (summed(column) if filled else [] for column in (shards.records, shards.bytes))
    return [
        TermsCount(
            split=split,
            terms=each,
            records=records[number],
            num_bytes=sizes[number],
            lengths={name: of_groups[number] for name, of_groups in lengths.items()},
        )
        for number, each in enumerate(filled)
    ]
