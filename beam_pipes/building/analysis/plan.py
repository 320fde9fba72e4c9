"""Which accumulators and results exist, and which are missing.

An accumulator belongs to a source shard and to the fingerprint of its analyzer: everything besides the shard itself
that determines it. `plan_analysis` compares these with what is stored and gives one `AnalysisTask` for each source
shard that lacks an accumulator of some analyzer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from beam_pipes.analysis.analyzer import Analyzer, BoundResult
from beam_pipes.building.analysis.declared import learned_by
from beam_pipes.building.analysis.stored import Stored, accumulator_place, find_stored, result_place
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.reading import ShardFigures, StageFigures
from beam_pipes.errors import AnalysisError
from beam_pipes.identity.canonical import canonical_text, digest_of
from beam_pipes.identity.fingerprint import Fingerprint, fingerprint
from beam_pipes.sources.source import SourcePlan, SourceShard
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import FileStatus, Storage, in_parallel


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisTask:
    """`places` maps the name of each analyzer to the path for its accumulator of this shard.

    `of` maps it to the digest of the pipeline whose values it analyses.
    """

    shard: SourceShard
    places: Mapping[str, str]
    of: Mapping[str, str]

    @property
    def index(self) -> int:
        return self.shard.index

    @property
    def stages(self) -> list[str]:
        """Its analyzers, as they are shown among the stages of a build."""
        return [f"analyse {name}" for name in self.places]

    def book(self, figures: ShardFigures, records: int) -> None:
        """Adds records that were read once for all of them."""
        figures.add(ShardFigures(records=records, stages={name: StageFigures(inputs=records) for name in self.stages}))

    def to_json(self) -> dict[str, object]:
        return {"shard": self.shard.to_json(), "places": dict(self.places), "of": dict(self.of)}

    @classmethod
    def from_json(cls, value: JsonObject) -> AnalysisTask:
        return cls(shard=SourceShard.from_json(value["shard"]), places=value["places"], of=value["of"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisReport:
    """A worker's report on a finished task. It holds times, so it is never part of the cache."""

    index: int
    records: int
    secs: float


# Raised when accumulators come out differently although nothing of an analyzer changed.
VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzerFingerprint:
    """`digest` names the accumulators, `parts` list what it covers; `of` is the digest of the analyzer's `of` alone.

    Pipelines with equal digests give the same values, so they run once for all their analyzers.
    """

    digest: str
    of: str
    parts: Mapping[str, str]


def fingerprint_analyzer(declaration: Declaration, analyzer: Analyzer, *, generation: int = 0) -> AnalyzerFingerprint:
    """The fingerprint of an analyzer in a declaration; raises `AnalysisError` while a result that it holds is missing.

    It covers the analyzer (class, version, options, code), `of` with all its stages, what the source does while it
    reads, which records belong to its split, and, if there is an `of`, the seed of its draws. It leaves out `on_error`,
    which decides whether a build continues and not what is analysed, and the declaration's stages.
    """
    own = fingerprint(analyzer)
    parts = dict(own.parts)
    source = declaration.source
    read: dict[str, Fingerprint] = {name: fingerprint(stage) for name, stage in source.stages().items()}
    options = {"source": canonical_text([source.fingerprint_class(), source.fingerprint_config()])}
    if learned := learned_by(declaration, analyzer).fingerprint_options():
        options["split"] = canonical_text(learned)
    if analyzer.of is not None:
        options["seed"] = str(declaration.seed)
        pipeline = fingerprint(analyzer.of)
        parts |= {f"of.{key}": value for key, value in pipeline.parts.items()}
    of = digest_of(
        [options, {name: stage.digest for name, stage in read.items()}, analyzer.of is not None and pipeline.digest]
    )
    if analyzer.output is not None:
        options["output"] = analyzer.output
    for name, stage in read.items():
        parts |= {f"source.{name}.{key}": value for key, value in stage.parts.items()}
    if generation:
        options["generation"] = str(generation)
    return AnalyzerFingerprint(
        digest=digest_of([VERSION, own.digest, of, analyzer.output, generation]), of=of, parts={**options, **parts}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedAnalyzer:
    """An analyzer whose fingerprint is known.

    `accumulators` are the existing ones, by the index of their source shard; `result` is None until it is
    merged. `names` are the fingerprints of the source shards.
    """

    root: str
    analyzer: Analyzer
    fingerprint: AnalyzerFingerprint
    shards: tuple[SourceShard, ...]
    names: tuple[str, ...]
    accumulators: Mapping[int, Stored]
    result: Stored | None

    @property
    def result_place(self) -> str:
        """Where the result of exactly these source shards is."""
        return result_place(self.root, self.fingerprint.digest, self.names)

    @property
    def missing(self) -> list[SourceShard]:
        """The source shards to analyse; none if the result exists."""
        return [] if self.result is not None else [s for s in self.shards if s.index not in self.accumulators]

    def place_of(self, shard: SourceShard) -> str:
        """Where the accumulator of a source shard is."""
        return accumulator_place(self.root, self.fingerprint.digest, self.names[shard.index])


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisPlan:
    """What an analysis will do. `waiting` maps analyzers that hold a missing result to the error that says so.

    Existing results are bound to the handles of the declaration.
    """

    root: str
    source: SourcePlan
    analyzers: tuple[PlannedAnalyzer, ...]
    waiting: Mapping[str, AnalysisError]

    @property
    def done(self) -> bool:
        """Whether every result is there."""
        return not self.waiting and all(planned.result is not None for planned in self.analyzers)

    def tasks(self) -> list[AnalysisTask]:
        """The reads that are needed: each source shard once, for all analyzers that lack it."""
        found: dict[int, list[PlannedAnalyzer]] = {}
        for planned in self.analyzers:
            for shard in planned.missing:
                found.setdefault(shard.index, []).append(planned)
        return [
            AnalysisTask(
                shard=shard,
                places={planned.analyzer.name: planned.place_of(shard) for planned in found[shard.index]},
                of={planned.analyzer.name: planned.fingerprint.of for planned in found[shard.index]},
            )
            for shard in self.source.shards
            if shard.index in found
        ]

    def results(self) -> dict[str, Stored]:
        """Analyzer → its result, for those that have one."""
        return {planned.analyzer.name: planned.result for planned in self.analyzers if planned.result is not None}

    def digests(self) -> dict[str, str]:
        """Analyzer → the digest of its result's content, for those that have one."""
        return {name: result.facts["digest"] for name, result in self.results().items()}

    def require_done(self) -> None:
        """Raises `AnalysisError`, naming what is missing, if any result is."""
        unfinished = [
            f"{planned.analyzer.name!r} ({len(planned.missing)} of {len(planned.shards)} source shards to be analysed)"
            for planned in self.analyzers
            if planned.result is None
        ]
        unfinished += [f"{name!r} (it waits for the result of another analyzer)" for name in self.waiting]
        if unfinished:
            raise AnalysisError(
                f"what a build of {self.root!r} would write depends on results that do not exist yet: "
                f"{', '.join(unfinished)}. Build it: a build runs its analyzers first.",
                analyzers=tuple(planned.analyzer.name for planned in self.analyzers if planned.result is None),
            )

    def to_json(self) -> list[dict[str, object]]:
        """A row for each analyzer, in the order in which they run."""
        rows: list[dict[str, object]] = [
            {
                "name": planned.analyzer.name,
                "fingerprint": planned.fingerprint.digest,
                "done": planned.result is not None,
                "num_shards": len(planned.shards),
                "num_shards_missing": len(planned.missing),
            }
            for planned in self.analyzers
        ]
        return rows + [{"name": name, "done": False, "waits": True} for name in self.waiting]


def plan_analysis(declaration: Declaration, root: str, source: SourcePlan, *, generation: int = 0) -> AnalysisPlan:
    """Plans the analyzers of a declaration over the source shards of its input, and binds the existing results.

    Writes nothing. Raises `DeclarationError` for configuration without a fingerprint.
    """
    for analyzer in declaration.analyzers:
        analyzer.result.bind(None, by_hand=False)
    storage = storage_for(root)
    names = tuple(shard.fingerprint() for shard in source.shards) if declaration.analyzers else ()
    planned: list[PlannedAnalyzer] = []
    waiting: dict[str, AnalysisError] = {}
    left, found_more = list(declaration.analyzers), True
    while left and found_more:  # a result may be what another analyzer waits for
        found_more, waiting = False, {}
        for analyzer in list(left):
            try:
                found = fingerprint_analyzer(declaration, analyzer, generation=generation)
            except AnalysisError as error:
                waiting[analyzer.name] = error
                continue
            left.remove(analyzer)
            each = PlannedAnalyzer(
                root=root,
                analyzer=analyzer,
                fingerprint=found,
                shards=source.shards,
                names=names,
                accumulators={},
                result=find_stored(storage, result_place(root, found.digest, names)),
            )
            each = dataclasses.replace(each, accumulators=dict(_accumulators(storage, each)))
            planned.append(each)
            if each.result is not None:
                analyzer.result.bind(BoundResult(each.result.path, each.result.facts["digest"]), by_hand=False)
                found_more = True
    return AnalysisPlan(root=root, source=source, analyzers=tuple(planned), waiting=waiting)


def _accumulators(storage: Storage, planned: PlannedAnalyzer) -> Iterator[tuple[int, Stored]]:
    """The existing accumulators, by the index of their source shard."""
    directory = accumulator_place(planned.root, planned.fingerprint.digest, "").rstrip("/")
    by_place: dict[str, dict[str, FileStatus]] = {}
    for file, status in storage.tree(directory).items():
        place, _, name = file.partition("/")
        by_place.setdefault(place, {})[name] = status
    places = [planned.place_of(shard) for shard in planned.shards]
    there = [
        (shard.index, place, by_place[place.rpartition("/")[2]])
        for shard, place in zip(planned.shards, places, strict=True)
        if place.rpartition("/")[2] in by_place
    ]
    found = in_parallel(storage, lambda each: find_stored(storage, each[1], each[2]), there)
    for (index, _, _), stored in zip(there, found, strict=True):
        if stored is not None:
            yield index, stored
