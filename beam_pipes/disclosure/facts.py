"""The facts that every disclosure is made from: what caches hold, under which terms, and what a run has read of it.

    facts_of([Cache.open("books"), Cache.open("web")])      what is there
    facts_of_run(loader)                                    what the run of a loader has read, by source and terms

All numbers are sums of numbers in manifests, or counts of a loader's order. There is no clock, host or path in them:
the same caches and the same state give the same facts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.cache.by_terms import count_by_terms, terms_of_records
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.engine.account import Account
from beam_pipes.errors import LoaderError
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.loader import Loader
from beam_pipes.publication.publish import manifest_with_id
from beam_pipes.publication.terms import Terms
from beam_pipes.storage.local import storage_for


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What one split of a cache has under one set of terms.

    `lengths` adds up the leading dimension of each feature whose length varies; of `tokens`, the number of tokens.
    `reads` counts how often a run has read one of these records (None without a run), `read_lengths` the lengths of
    what it read, once for each time.
    """

    cache: str
    split: str
    terms: Terms
    records: int
    num_bytes: int
    lengths: Mapping[str, int]
    reads: int | None = None
    read_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheFacts:
    """One snapshot of a cache. `label` distinguishes it from the others: `tokens-8868fe23`.

    `removed`: records that are taken down now, still stored and not read. `sources` in the order of splits and sources.
    """

    label: str
    cache: Cache
    account: Account
    removed: int
    sources: tuple[SourceFacts, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run of a loader up to a step: `rows` of its batches, which hold `reads` records, from a given `seed`."""

    steps: int
    rows: int
    reads: int
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is disclosed: caches, and what a run has read of them, if one is given."""

    caches: tuple[CacheFacts, ...]
    run: RunFacts | None = None

    @property
    def sources(self) -> list[SourceFacts]:
        return [source for cache in self.caches for source in cache.sources]

    def share(self, source: SourceFacts) -> float:
        """The part of all reads that a source has; without a run, its part of all records."""
        total = sum(self._weight(each) for each in self.sources)
        return self._weight(source) / total if total else 0.0

    def lengths(self) -> dict[str, int]:
        """The lengths of all sources together, stored once: feature → sum."""
        return added(source.lengths for source in self.sources)

    def features(self) -> Iterator[tuple[str, str, str, FeatureSpec]]:
        """(cache, split, name, feature) of every feature of examples."""
        for cache in self.caches:
            for split in dict.fromkeys(source.split for source in cache.sources):
                for name, feature in (cache.cache.manifest.splits[split].spec or {}).items():
                    yield cache.label, split, name, feature

    @staticmethod
    def _weight(source: SourceFacts) -> int:
        return source.records if source.reads is None else source.reads


def added(lengths: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """`[{"tokens": 3}, {"tokens": 4}]` → `{"tokens": 7}`."""
    total: dict[str, int] = {}
    for each in lengths:
        for name, length in each.items():
            total[name] = total.get(name, 0) + length
    return total


def facts_of(caches: Sequence[Cache]) -> Facts:
    """The facts about all splits of some caches, each snapshot once."""
    distinct = {cache.manifest.id: cache for cache in caches}
    return Facts(caches=tuple(_cache_facts(cache, cache.splits) for cache in distinct.values()))


def facts_of_run(loader: Loader) -> Facts:
    """The facts about the splits that a loader reads, and what its run has read of them up to its position.

    Restore the last state of the run first. Raises `LoaderError` if it reads something else than splits of caches.
    """
    read: dict[tuple[str, str], dict[Terms, tuple[int, dict[str, int]]]] = {}
    caches: dict[str, Cache] = {}
    splits: dict[str, list[str]] = {}
    rows = reads = 0
    for source in loader.times_read():
        split = source.split
        if not isinstance(split, Split):
            raise LoaderError(
                f"a disclosure is about splits of caches, and the run reads {type(split).__name__}. Make a loader over "
                "the splits that it is made from."
            )
        manifest = manifest_with_id(split.path, split.manifest_id.partition("?")[0], storage=storage_for(split.path))
        key = f"{split.path}\0{manifest.id}"
        if key not in caches:
            caches[key] = Cache.open(split.path, snapshot=manifest.snapshot)
            splits[key] = []
        if split.name not in splits[key]:
            splits[key].append(split.name)
        rows, reads = rows + source.rows, reads + int(source.times.sum())
        terms, codes = terms_of_records(split)
        of_terms = read.setdefault((key, split.name), {})
        lengths = {name: split.lengths(name) for name in manifest.splits[split.name].lengths}
        for code, of_source in enumerate(terms):
            mine = codes == code
            counts = source.times[mine]
            before = of_terms.get(of_source, (0, {}))
            here = {name: int(np.dot(lengths[name][mine].astype(np.int64), counts)) for name in lengths}
            of_terms[of_source] = (before[0] + int(counts.sum()), added([before[1], here]))
    found = []
    for key, cache in caches.items():
        made = _cache_facts(cache, splits[key])
        sources = []
        for each in made.sources:
            times, of_lengths = read[key, each.split].get(each.terms, (0, {}))
            sources.append(dataclasses.replace(each, reads=times, read_lengths=of_lengths))
        found.append(dataclasses.replace(made, sources=tuple(sources)))
    run = RunFacts(steps=loader.step, rows=rows, reads=reads, seed=loader.state.seed)
    return Facts(caches=tuple(found), run=run)


def _cache_facts(cache: Cache, splits: Sequence[str]) -> CacheFacts:
    manifest = cache.manifest
    label = f"{manifest.name}-{manifest.snapshot[:8]}"
    return CacheFacts(
        label=label,
        cache=cache,
        account=Account.from_json(manifest.accounting) if manifest.accounting else Account(),
        removed=sum(len(cache[split].removed_rows) for split in splits),
        sources=tuple(
            SourceFacts(
                cache=label,
                split=count.split,
                terms=count.terms,
                records=count.records,
                num_bytes=count.num_bytes,
                lengths=count.lengths,
            )
            for count in count_by_terms(cache)
            if count.split in splits
        ),
    )
