"""`NearDuplicates`: the texts that are nearly the same as an earlier text."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.analysis.analyzer import Values
from beam_pipes.checks import instance, integer, number
from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.dedup.comparison import ROWS_AT_ONCE, Clusters, Comparison, Signatures, pair_parts
from beam_pipes.transforms.dedup.duplicates import Duplicates, write_duplicates
from beam_pipes.transforms.dedup.exact import (
    ROWS_IN_MEMORY,
    KeyGroups,
    Normalizer,
    group_starts,
    normalized,
    plain_text,
)
from beam_pipes.transforms.dedup.likeness import (
    Shingles,
    band_digests,
    estimated_jaccard,
    least_agreeing,
    min_hash,
    shingle_hashes,
)
from beam_pipes.transforms.dedup.row_file import Column, RowFiles, RowWriter

Array = np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NearDuplicates(Analyzer):
    """Finds the texts that are nearly the same as an earlier text, in the order of the source.

        near = NearDuplicates("near", of=Text(), threshold=0.8)

    The similarity of two texts is the Jaccard similarity of their sets of shingles: the size of the intersection
    divided by that of the union. It is estimated from MinHash signatures of `bands` × `rows` numbers. Texts that share
    all numbers of a band are compared; if the estimate reaches the threshold, they are joined to a cluster. The first
    text of each cluster stays. `found_probability` is the curve of detection:

    | true similarity | 0.6 | 0.7 | 0.75 | 0.8 | 0.85 | 0.9 | 0.95 | 1 |
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    | found (16 bands of 8 rows, threshold 0.8) | 0.000 | 0.005 | 0.089 | 0.496 | 0.934 | 1.000 | 1.000 | 1 |

    So equal texts are always found, and at the threshold half of the pairs are found: set it a little below the
    similarity that you want to remove. A cluster is a chain: its ends may be less similar than the threshold, and
    `Duplicate.similarity` is the similarity of a removed text to the one that stays.

    Args:
        of: the text of a record (str), one per record. A record without one is not compared, and stays.
        threshold: the least estimated similarity of two texts that count as the same.
        shingles: the pieces by which texts are compared. Default: five words.
        bands, rows: more bands find more pairs, more rows compare fewer pairs in vain; their product is the size of a
            signature and determines the error of the estimate. Default: 16 × 8, for thresholds of 0.7 to 0.9.
        normalize: applied to the text before it is compared: a function, or several in order.
            Default: `plain_text`, so that case and whitespace do not count. None compares the text itself, except
            for whitespace.
        seed: another seed, other hash functions.
        max_compared: a band that very many different texts share, such as boilerplate in short texts, would cost a
            comparison of every pair. Only this many texts of a group, the first ones, are compared with all after them;
            `Duplicates.facts["cut_groups"]` counts the groups for which that was incomplete.

    Only signatures leave the source shard: 656 bytes per record in its accumulator with the defaults. Merging takes 80
    MB of memory, 5 bytes per record, and 50 per removed record.

    Raises `DeclarationError` for options out of range, or if a record gives no text or several.

    Sources: A. Broder, "On the resemblance and containment of documents" (1997); P. Indyk and R. Motwani, "Approximate
    nearest neighbors" (1998), for bands.
    """

    threshold: float = 0.8
    shingles: Shingles = Shingles("words", 5)
    bands: int = 16
    rows: int = 8
    normalize: Normalizer | Sequence[Normalizer] | None = plain_text
    seed: int = 0
    split: str | None = None  # a copy in another split is a duplicate too
    max_compared: int = 1000

    input_type = str

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"analyzer {self.name!r}"
        number(self.threshold, above=0, most=1, what=f"{where}: threshold")
        for option in ("bands", "rows", "max_compared"):
            object.__setattr__(self, option, integer(getattr(self, option), least=1, what=f"{where}: {option}"))
        instance(self.shingles, Shingles, what=f"{where}: shingles", expected="Shingles, such as Shingles('words', 5)")

    def accumulator(self) -> Accumulator:
        return _Signatures(self)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        merge_near(
            accumulators,
            target,
            threshold=self.threshold,
            bands=self.bands,
            rows=self.rows,
            max_compared=self.max_compared,
        )

    def read(self, path: str) -> Duplicates:
        return Duplicates(path)


class _Signatures(Accumulator):
    def __init__(self, analyzer: NearDuplicates) -> None:
        self._analyzer = analyzer
        self._rows = RowWriter(
            Column("bands", "<u8", 1 + analyzer.bands, by_value=True),
            Column("signatures", "<u4", analyzer.bands * analyzer.rows),
            owner=analyzer.name,
        )

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        signatures = signatures_of(self._analyzer, values)
        bands = band_digests(signatures, bands=self._analyzer.bands, rows=self._analyzer.rows)
        self._rows.add(record_ids, {"signatures": signatures, "bands": bands})

    def save(self, path: str) -> None:
        self._rows.save(path)


def signatures_of(analyzer: NearDuplicates, texts: Sequence[str]) -> Array:
    """The MinHash signatures of texts, (texts, bands × rows) uint32, as the analyzer compares them."""
    normal = [normalized(text, analyzer.normalize) for text in texts]
    for text in normal:
        if not isinstance(text, str):
            raise DeclarationError(
                f"analyzer {analyzer.name!r} compares text (str), got {brief(text)}. Let `of` and `normalize` give a "
                "str.",
                analyzer=analyzer.name,
            )
    hashed = shingle_hashes(normal, analyzer.shingles)
    return min_hash(len(normal), hashed, count=analyzer.bands * analyzer.rows, seed=analyzer.seed)


def merge_near(
    accumulators: Sequence[str],
    target: str,
    *,
    threshold: float,
    bands: int,
    rows: int,
    max_compared: int,
    rows_in_memory: int = ROWS_IN_MEMORY,
) -> None:
    """Writes the near duplicates among the signatures of all source shards; the first text of a cluster stays.

    Band by band, the digests are sorted so that texts that share a band are adjacent. Two that are already in one
    cluster are not compared again, which changes nothing: clusters are the connected components of similar pairs.
    """
    places = RowFiles(accumulators)
    clusters = Clusters(places.num_rows)
    # Texts with equal signatures have the same pairs: only the first goes through the bands.
    repeated = np.zeros(places.num_rows, bool)
    cut_groups = 0
    with Signatures(places, count=bands * rows) as signatures:
        compare = Comparison(
            signatures,
            clusters,
            least=least_agreeing(threshold, bands * rows),
            rows_at_once=min(rows_in_memory, ROWS_AT_ONCE),
        )
        for band in range(bands + 1):
            with KeyGroups(
                num_rows=places.num_rows, words=1, directory=os.path.dirname(target), rows_in_memory=rows_in_memory
            ) as groups:
                for ordinals, digests in places.blocks("bands", value=band):
                    alone = ~repeated[ordinals]
                    groups.add(digests[alone, None], ordinals[alone])
                for keys, ordinals in groups.partitions():
                    if band == 0:
                        repeated[compare.identical(ordinals, group_starts(keys))] = True
                    else:
                        cut_groups += compare.groups(ordinals, group_starts(keys), max_compared=max_compared)
        removed, kept = clusters.members()
        similarities = np.empty(len(removed), np.float32)
        for part in pair_parts(len(removed)):
            similarities[part] = estimated_jaccard(signatures.of(removed[part]), signatures.of(kept[part]))
    write_duplicates(
        target,
        kind="near",
        removed=removed,
        kept=kept,
        similarities=similarities,
        places=places,
        facts={"cut_groups": cut_groups},
    )
