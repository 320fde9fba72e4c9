"""How many records each class has, and which features say nothing: the same value, or none, in every record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.reader import Cache
from beam_pipes.report.distributions import SAMPLED_RECORDS, features_with_lengths, record_lengths, spread_rows
from beam_pipes.report.shown import shown_value

# Labels of this many records of a split are read, in well below a second.
MAX_RECORDS = 1_000_000
# Larger than this, the largest class of a split is pointed out beside the smallest.
_UNBALANCED = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassCounts:
    """Records by class: `counts[c][s]` are those of class c in split s.

    `of` are the records of each split that were counted. The last class may be `another number`, of no name.
    """

    feature: str
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    of: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[str, tuple[int, ...]]]:
        """(class, its count in each split)."""
        return list(zip(self.classes, self.counts, strict=True))


def class_counts(cache: Cache) -> list[ClassCounts]:
    """The counts of every feature whose values have names, from at most a million records of each split."""
    by_names: dict[tuple[str, tuple[str, ...]], dict[str, npt.NDArray[np.int64]]] = {}
    for split in cache.splits:
        opened = cache[split]
        for feature, spec in (opened.spec if opened.kind == "example" else {}).items():
            if spec.class_names is not None and spec.shape == () and len(opened):
                rows = spread_rows(np.asarray(opened.shard_sizes), MAX_RECORDS, shards=opened.num_shards)
                labels = opened.gather(rows, features=[feature])[feature].astype(np.int64)
                known = len(spec.class_names)
                labels = np.where((labels >= 0) & (labels < known), labels, known)
                counted = np.bincount(labels, minlength=known + 1)
                by_names.setdefault((feature, spec.class_names), {})[split] = counted
    made = []
    for (feature, names), found in by_names.items():
        table = np.stack(list(found.values()), axis=1)
        classes = (*names, "another number") if table[-1].any() else names
        counts = tuple(tuple(row) for row in table[: len(classes)].tolist())
        of = tuple(table.sum(axis=0).tolist())
        made.append(ClassCounts(feature=feature, classes=classes, splits=tuple(found), counts=counts, of=of))
    return made


def noticed(cache: Cache, balance: list[ClassCounts]) -> Iterator[str]:
    """What is worth a look before training: classes without records, empty and constant features; a sentence each."""
    for one in balance:
        for at, split in enumerate(one.splits):
            counts = [row[at] for row in one.counts]
            missing = [name for name, count in zip(one.classes, counts, strict=True) if not count]
            if missing:
                more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
                yield f"{split}: no record has the {one.feature} {', '.join(map(repr, missing[:5]))}{more}."
            found = sorted((count, name) for name, count in zip(one.classes, counts, strict=True) if count)
            (least, rarest), (most, commonest) = found[0], found[-1]
            if most >= _UNBALANCED * least:
                yield f"{split}: {one.feature} {commonest!r} has {most:,} records, {rarest!r} has {least:,}."
    for split in cache.splits:
        yield from _empty(cache, split)
        yield from _constant(cache, split)


def _empty(cache: Cache, split: str) -> Iterator[str]:
    for name, lengths in record_lengths(cache, split, features_with_lengths(cache, split)).items():
        empty, count = int((lengths.values == 0).sum()), len(lengths.values)
        if empty:
            where = "every record" if empty == count == lengths.of else f"{empty:,} of {count:,} records"
            yield f"{split}: {name} is empty in {where}."


def _constant(cache: Cache, split: str) -> Iterator[str]:
    opened = cache[split]
    if opened.kind != "example" or len(opened) < 2:
        return
    rows = spread_rows(np.asarray(opened.shard_sizes), min(SAMPLED_RECORDS, len(opened)))
    names = [name for name, spec in opened.spec.items() if spec.shape == () and spec.dtype != "bytes"]
    for name, values in opened.gather(rows, features=names).items():
        first = values[0]
        same = bool((values == first).all()) or (values.dtype.kind == "f" and bool(np.isnan(values).all()))
        if same and len(values) > 1:
            value = shown_value(first, max_characters=60)
            yield f"{split}: {name} is {value} in all of {len(values):,} records that are spread over the split."
