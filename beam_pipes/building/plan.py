"""`make_plan`: a declaration and its input → source shards, fingerprints, and the snapshot they make.

`SavedPlan`: a plan as a small file, which a later build is checked against.

`published_results`: gives the analyzers of a declaration the results of an existing cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from beam_pipes.analysis.analyzer import BoundResult
from beam_pipes.building.analysis.declared import held_results
from beam_pipes.building.analysis.plan import AnalysisPlan, plan_analysis
from beam_pipes.building.commit import ASSETS, reuse, the_first
from beam_pipes.building.completion import find_completions
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import FILE_NAME as FINGERPRINT
from beam_pipes.building.declaration_fingerprint import (
    DeclarationFingerprint,
    explain_change,
    fingerprint_declaration,
    read_fingerprint,
    require_new_versions,
)
from beam_pipes.building.leftovers import mark_used, remove_temporaries, writing
from beam_pipes.building.limits import quarantined_snapshot, remembered
from beam_pipes.building.progress import every
from beam_pipes.building.reading import first_errors, graph_runner, read_batches
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.records import Records
from beam_pipes.errors import (
    AnalysisError,
    CacheNotFoundError,
    CorruptManifestError,
    DeclarationError,
    PlanError,
    SpecError,
    StalePlanError,
)
from beam_pipes.format.spec import INFER_EXAMPLES, Example, ExampleSpec
from beam_pipes.identity.canonical import digest_of
from beam_pipes.lineage.lineage import VERSION as LINEAGE_VERSION
from beam_pipes.publication.manifest import FORMAT_VERSION, Manifest
from beam_pipes.publication.publish import published_id, snapshot_directory
from beam_pipes.publication.terms import SourceTerms, noted, terms_by_range
from beam_pipes.sources.byte_stream import codec_of
from beam_pipes.sources.digests import DIGESTS_NAME, DigestCache
from beam_pipes.sources.source import SourcePlan
from beam_pipes.storage.checked_json import JsonValue, strict_json
from beam_pipes.storage.local import directory_path, output_file, storage_for
from beam_pipes.storage.locks import reached

# Undeclared features are inferred from `INFER_EXAMPLES` of each split, or from this many records.
INFER_RECORDS = 2048

# In the manifest's fingerprints: how often everything was rebuilt on request. Missing while that is zero.
GENERATION = "generation"

# Prefix of each analyzer's name in the manifest's fingerprints, for the digest of its result.
ANALYSIS = "analysis"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """What a build will do.

    `snapshot` is a digest of the input, the declaration and the format: the same input and declaration give the same
    snapshot on every machine. `published` is the manifest of the published snapshot, whichever it is. `overwrite`:
    nothing of it is reused. `analysis` has the results of the analyzers, all of which exist.
    """

    path: str
    snapshot: str
    declaration: Declaration
    fingerprint: DeclarationFingerprint
    source: SourcePlan
    header: BuildHeader
    tasks: tuple[ShardTask, ...]
    published: Manifest | None
    analysis: AnalysisPlan
    overwrite: bool = False

    @property
    def published_as_planned(self) -> Manifest | None:
        """The published manifest, if it is of exactly this snapshot."""
        return self.published if self.published is not None and self.published.snapshot == self.snapshot else None

    @property
    def previous_snapshot(self) -> str | None:
        """The id of the published snapshot, unless it is this very one."""
        return None if self.published is None or self.published_as_planned else self.published.snapshot

    def previous_fingerprint(self) -> DeclarationFingerprint | None:
        """The fingerprint that the published snapshot was built with; None if there is none."""
        if self.published is None:
            return None
        return read_fingerprint(snapshot_directory(self.path, self.published.snapshot))

    def require_continued(self, *, accept_code_change: bool) -> None:
        """Raises `DeclarationError` if classes would be renumbered, `CodeChangedError` if code changed unnoticed."""
        _require_same_classes(self)
        if not accept_code_change and (previous := self.previous_fingerprint()) is not None:
            require_new_versions(previous, self.fingerprint, path=self.path)

    def tasks_left(self) -> list[ShardTask]:
        """The tasks whose shards are not complete, or whose files are missing or too short."""
        done = find_completions(self.header, self.tasks)
        return [task for task in self.tasks if task.index not in done]

    def streams(self) -> dict[str, int]:
        """Compressed files that exceed the target and cannot be split, the largest first → their stored bytes.

        One worker reads each of them from beginning to end: no build ends before the first of them is read.
        """
        target = self.declaration.target_shard_bytes
        found = {
            piece.file: task.shard.num_bytes
            for task in self.tasks
            if task.shard.num_bytes > target
            and len(task.shard.slices) == 1
            and (piece := task.shard.slices[0]).stored is None
            and codec_of(piece.file)
        }
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def to_json(self) -> dict[str, JsonValue]:
        """The plan without the list of shards."""
        return {
            "name": self.header.name,
            "path": self.path,
            "snapshot": self.snapshot,
            "published": self.published_as_planned is not None,
            "num_files": self.source.num_files,
            "num_bytes": self.source.num_bytes,
            "num_shards": self.header.num_shards,
            "streams": self.streams(),
            "splits": {
                split: self.header.specs[split].to_json() if split in self.header.specs else kind
                for split, kind in self.header.kinds.items()
            },
            "stages": list(self.declaration.words),
            **({"analysis": self.analysis.to_json()} if self.analysis.analyzers else {}),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedInput:
    """What is known of a build before anything is analysed: its source shards, their terms, and what is published.

    `replaces` is the id of the manifest that readers see, whatever happens to it meanwhile.
    """

    root: str
    source: SourcePlan
    terms: tuple[SourceTerms, ...]
    manifest: Manifest | None
    replaces: str | None
    generation: int
    overwrite: bool


def _digests_before_the_cache(root: str) -> str:
    """A file of the user's, named by the path of the cache: `plan` writes nothing to the directory it plans for."""
    import platformdirs  # 10 ms, which a command that plans nothing need not wait for

    directory = os.path.join(platformdirs.user_cache_dir("beam-pipes"), "digests")
    return os.path.join(directory, hashlib.sha256(root.encode()).hexdigest()[:16])


def plan_input(declaration: Declaration, to: str | os.PathLike[str], *, overwrite: bool = False) -> PlannedInput:
    """The first half of `make_plan`: reads input to digest it, and what is published."""
    root, storage = directory_path(to), storage_for(to)
    # Unchanged files are recognised by their times: a build that overwrites may have reason not to trust these.
    digests, kept = DigestCache() if overwrite else DigestCache.load(f"{root}/{DIGESTS_NAME}"), None
    if not overwrite and not len(digests):  # there is no cache yet: use what an earlier plan for it has read
        kept = _digests_before_the_cache(root)
        digests = DigestCache.load(kept)
    source = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    with contextlib.suppress(OSError):  # safe to lose; a build in a full or read-only directory can still be planned
        if storage.is_directory(root):
            digests.save(f"{root}/{DIGESTS_NAME}")
            if kept is not None:
                os.unlink(kept)
        elif kept is not None:
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            digests.save(kept)
    terms = _checked_terms(declaration, source)
    replaces = published_id(root)
    manifest = None
    with contextlib.suppress(CacheNotFoundError, CorruptManifestError):  # a damaged one is published again
        manifest = Cache.open(root).manifest
    generation = (generation_of(manifest) + overwrite) if manifest is not None else 0
    return PlannedInput(
        root=root,
        source=source,
        manifest=manifest,
        replaces=replaces,
        generation=generation,
        overwrite=overwrite,
        terms=terms,
    )


#: The fingerprint in a manifest that says what was read.
SOURCE_FINGERPRINT = "source"


def source_fingerprint(source: SourcePlan) -> str:
    """What the manifest of a build that reads this input has as `SOURCE_FINGERPRINT`."""
    return digest_of([shard.fingerprint() for shard in source.shards])


def make_plan(
    declaration: Declaration,
    to: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    planned_input: PlannedInput | None = None,
    analysis: AnalysisPlan | None = None,
    require_results: bool = True,
) -> BuildPlan:
    """Plans a build of `declaration` in the directory `to`; reads input only to digest it and, where features are not
    declared, to infer them. Writes nothing but the digests of input files, so that the next plan need not read
    them, and the answers of services, so that nobody asks for them again.

    With `overwrite` nothing that was built before is reused: the plan is for another *generation*, a number that the
    published snapshot bears and that enters into all fingerprints. What is published stays until it is replaced.

    If the declaration has analyzers, their results must exist (`analyse`): the output of a stage that holds one depends
    on it. `planned_input` is the return value of `plan_input`, and `analysis` the plan of a finished analysis, if the
    caller has them. Without `require_results` results may be missing if no stage holds one: then everything is planned
    except the snapshot's id, which depends on them.

    Raises `SourceError`, `DeclarationError` or `SpecError`: everything that can be known before the build starts; and
    `AnalysisError` if a result is missing.
    """
    given = planned_input if planned_input is not None else plan_input(declaration, to, overwrite=overwrite)
    root, source, manifest, generation = directory_path(to), given.source, given.manifest, given.generation
    analysis = analysis or plan_analysis(declaration, root, source, generation=generation)
    if require_results:
        analysis.require_done()
    results = analysis.digests()
    specs = _specs(declaration, source, root)
    found = fingerprint_declaration(declaration, specs)
    digest = digest_of([found.digest, generation]) if generation else found.digest
    inputs = [shard.fingerprint() for shard in source.shards]
    tasks = tuple(
        ShardTask(shard=shard, fingerprint=digest_of([digest, each, LINEAGE_VERSION]))
        for shard, each in zip(source.shards, inputs, strict=True)
    )
    of_snapshot = [FORMAT_VERSION, LINEAGE_VERSION, declaration.name, digest, [task.fingerprint for task in tasks]]
    # Results are assets of the snapshot, even those that no stage holds.
    plain_snapshot = digest_of(noted([*of_snapshot, results] if results else of_snapshot, given.terms))[:16]
    quarantined = remembered(root, (task.fingerprint for task in tasks), declaration.record_limits)
    tasks = tuple(task.quarantining(quarantined.get(task.fingerprint, ())) for task in tasks)
    snapshot = quarantined_snapshot(plain_snapshot, {task.index: task.quarantined for task in tasks})
    header = dataclasses.replace(
        BuildHeader.of(declaration, root, snapshot, num_shards=len(tasks), specs=specs),
        replaces=given.replaces,
        plain_snapshot=plain_snapshot,
        fingerprints={
            **declaration.fingerprints,
            "declaration": found.digest,
            SOURCE_FINGERPRINT: digest_of(inputs),
            **{f"{ANALYSIS} {name}": result for name, result in results.items()},
            **({GENERATION: str(generation)} if generation else {}),
        },
        assets={name: result for name, result in analysis.results().items()},
        sources=given.terms,
    )
    return BuildPlan(
        path=root,
        snapshot=snapshot,
        declaration=declaration,
        fingerprint=found,
        source=source,
        header=header,
        tasks=tasks,
        published=manifest,
        analysis=analysis,
        overwrite=given.overwrite,
    )


def _checked_terms(declaration: Declaration, source: SourcePlan) -> tuple[SourceTerms, ...]:
    """The terms of all source shards; none if nothing is declared. Raises `SourceError` for malformed ones."""
    found = (terms for part in declaration.source.parts() for terms in part.all_terms())
    checked = {terms: terms.checked() for terms in found if terms}
    if not checked:
        return ()
    of_files = (declaration.source.terms_of(next(iter(shard.slices)).file) for shard in source.shards)
    return terms_by_range(checked.get(terms, terms) for terms in of_files)


def generation_of(manifest: Manifest) -> int:
    """How often the content of a manifest was rebuilt with `overwrite`."""
    text = manifest.fingerprints.get(GENERATION, "0")
    return int(text) if text.isdecimal() else 0


def prepare(plan: BuildPlan) -> list[ShardTask]:
    """Makes the snapshot's directory ready and returns the tasks that are left.

    Shards that an interrupted build of this snapshot committed are kept; shards with the same fingerprint in the
    published snapshot are linked, not built again; half-written files of dead builds are removed. Only for the holder
    of the build lock.
    """
    directory, storage = plan.header.directory, plan.header.storage
    with writing(plan.path):
        remove_temporaries(storage, plan.path)
        reached("prepare/swept")
        storage.makedirs(directory)
        storage.replace(f"{directory}/{FINGERPRINT}", plan.fingerprint.to_bytes())
        if plan.analysis.analyzers:
            mark_used(storage, plan.analysis, directory)
        reached("prepare/recorded")
        return reuse(plan.header, plan.tasks)


_SAVED_VERSION = 1
# Maximum number of declaration changes printed.
_MOST_CHANGES = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """What was planned: the snapshot that a build was to make, from which input, and its expected cost.

    A snapshot's id is a digest of the bytes of the input and of the declaration, so times and places do not count: a
    file that was touched but not changed leaves a plan valid.
    """

    name: str
    snapshot: str
    source: str
    num_files: int
    num_bytes: int
    fingerprint: DeclarationFingerprint
    forecast: Mapping[str, object] | None = None

    @classmethod
    def of(cls, plan: BuildPlan, forecast: Mapping[str, object] | None = None) -> SavedPlan:
        return cls(
            name=plan.header.name,
            snapshot=plan.header.plain_snapshot,
            source=plan.header.fingerprints[SOURCE_FINGERPRINT],
            num_files=plan.source.num_files,
            num_bytes=plan.source.num_bytes,
            fingerprint=plan.fingerprint,
            forecast=forecast,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON."""
        fields = {**dataclasses.asdict(self), "fingerprint": self.fingerprint.to_json(), "version": _SAVED_VERSION}
        with output_file(Path(path).expanduser()) as file:
            file.write(strict_json(fields, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedPlan:
        """Reads what `save` wrote; `PlanError` if it is something else."""
        try:
            fields = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
            if fields.pop("version") != _SAVED_VERSION:
                raise ValueError("another version")
            return cls(**{**fields, "fingerprint": DeclarationFingerprint.from_json(fields["fingerprint"])})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(
                f"expected a plan in {os.fspath(path)!r}, got {type(error).__name__}: {error}. Make one: beam-pipes "
                "plan package.module:name --to DIR --save FILE"
            ) from error

    def require_fresh(self, plan: BuildPlan) -> None:
        """Raises `StalePlanError`, naming what changed, if `plan` differs from what was planned then."""
        if plan.header.name == self.name and plan.header.plain_snapshot == self.snapshot:
            return
        changed = []
        if plan.header.name != self.name:
            changed.append(f"it is of {self.name!r}, and {plan.header.name!r} is to be built")
        if plan.header.fingerprints[SOURCE_FINGERPRINT] != self.source:
            changed.append(
                f"the input changed: {self.num_files:,} files with {self.num_bytes:,} bytes then, "
                f"{plan.source.num_files:,} files with {plan.source.num_bytes:,} bytes now"
            )
        lines = [line for each in explain_change(self.fingerprint, plan.fingerprint).values() for line in each]
        if lines:
            more = f" and {len(lines) - _MOST_CHANGES} more" if len(lines) > _MOST_CHANGES else ""
            changed.append(f"the declaration changed: {'; '.join(lines[:_MOST_CHANGES])}{more}")
        if not changed:
            changed.append("everything must be rebuilt, or has been since")
        raise StalePlanError(
            f"the plan is out of date: {'. '.join(changed)}. Nothing was built. Plan again, check the forecast, and "
            "build with the new plan.",
            planned=self.snapshot,
            found=plan.header.plain_snapshot,
        )


def _require_same_classes(plan: BuildPlan) -> None:
    """Raises `DeclarationError` if a class of the published snapshot has another number in the planned one."""
    published = {} if plan.published is None else plan.published.splits
    for split, spec in plan.header.specs.items():
        before = published[split].spec if split in published else None
        for name, feature in spec.items():
            old = None if before is None or name not in before else before[name].class_names
            new = feature.class_names
            if old is None or new is None or new[: len(old)] == old:
                continue
            numbers = {each: number for number, each in enumerate(new)}
            moved = [
                f"{each} {at} → {numbers.get(each, 'none')}" for at, each in enumerate(old) if numbers.get(each) != at
            ]
            order = [*old, *(each for each in new if each not in old)]
            listed = ",".join(order) if len(order) <= 20 and not any("," in each for each in order) else "FILE"
            file = ", a file with one name a line: the old ones in their order, then the new ones" * (listed == "FILE")
            raise DeclarationError(
                f"{plan.path}: classes of {name!r} would be renumbered: {', '.join(moved[:5])}"
                f"{f' and {len(moved) - 5} more' if len(moved) > 5 else ''}. Whoever has trained on them would read "
                f"other labels. Keep the numbers: --classes {shlex.quote(listed)}{file} (classes=[…] in Python). Or "
                "renumber them: --overwrite, or another directory.",
                feature=name,
                split=split,
            )


def _specs(declaration: Declaration, source: SourcePlan, root: str) -> dict[str, ExampleSpec]:
    """The features of each split of examples: as declared, or inferred from the first records."""
    specs: dict[str, ExampleSpec] = {}
    missing: list[str] = []
    for split in declaration.splits:
        if declaration.kinds[split] != "example":
            continue
        if split not in declaration.declared_specs:
            missing.append(split)
            continue
        specs[split] = declaration.declared_specs[split].with_class_names
    if missing:
        with _said_when_slow(declaration):
            examples, read, errors = _sample(declaration, source, missing, root)
        for split in missing:
            # A split that gets few records may have none among the first ones: its examples come from the same stages.
            found = examples[split] or [each for other in missing for each in examples[other]]
            if not found:
                raise DeclarationError(
                    f"declaration {declaration.name!r}: the features of {split!r} are not declared, and none of the "
                    f"first {read} records gives an example to infer them from.{the_first(errors)} Repair the input or "
                    "the stage, or declare features=...",
                    split=split,
                )
            specs[split] = _inferred(found)
    return {split: specs[split] for split in declaration.splits if split in specs}


# As long as a build waits for a sign of a source shard before it says so.
SLOW_SECS = 300.0


def _said_when_slow(declaration: Declaration) -> contextlib.AbstractContextManager[None]:
    """Reports on standard error, every `SLOW_SECS`, where the stages are: inferring runs them here, without limits."""
    caller, begun = threading.get_ident(), time.monotonic()

    def look() -> None:
        code, line = "a stage", 0
        if (frame := sys._current_frames().get(caller)) is not None:
            code, line = os.path.basename(frame.f_code.co_filename), frame.f_lineno
        print(
            f"beam-pipes: inferring features from the first records of declaration {declaration.name!r} has taken "
            f"{time.monotonic() - begun:.0f} s, and is at {code}, line {line}. Limits of records do not apply to "
            "it: declare features=... to build without it.",
            file=sys.stderr,
            flush=True,
        )

    return every(SLOW_SECS, look, name="inferring")


class _Sampled(NamedTuple):
    """An example, and the record that it comes from."""

    example: Example
    records: Records
    position: int


def _inferred(found: Sequence[_Sampled]) -> ExampleSpec:
    try:
        return ExampleSpec.infer([each.example for each in found])
    except SpecError as error:
        if error.example is not None:
            record = found[error.example].records.record_id(found[error.example].position)
            error.add(f"It comes from record {record!r}.", record=record)
        raise


def _sample(
    declaration: Declaration, source: SourcePlan, splits: list[str], root: str
) -> tuple[dict[str, list[_Sampled]], int, list[str]]:
    """The first examples of each split, the number of records that were read for them, and the first errors."""
    runner = graph_runner(declaration, root)
    examples: dict[str, list[_Sampled]] = {split: [] for split in splits}
    records, read, errors = 0, 0, list[str]()
    for shard in source.shards:
        for batch in read_batches(declaration, shard):
            runner.run(batch)
            records += batch.size
            read += batch.account.read
            errors += first_errors(declaration, batch)
            for split, column in runner.outputs(batch).items():
                if split in examples:
                    examples[split].extend(
                        _Sampled(value, batch.records, index) for index, values in enumerate(column) for value in values
                    )
            if records >= INFER_RECORDS or all(len(found) >= INFER_EXAMPLES for found in examples.values()):
                return examples, read, errors
    return examples, read, errors


@contextlib.contextmanager
def published_results(declaration: Declaration, cache: str | os.PathLike[str] | None) -> Iterator[None]:
    """Binds the results that the snapshot of `cache` was built with; without a cache, bound results stay.

    Raises `AnalysisError` if a stage holds a missing result, `CacheError` for a damaged cache.
    """
    before = [(each.result, each.result.bound, each.result.by_hand) for each in declaration.analyzers]
    try:
        if cache is not None and declaration.analyzers:
            with contextlib.suppress(CacheNotFoundError):
                _bind(declaration, Cache.open(cache))
        _require(declaration, cache)
        yield
    finally:
        for result, bound, by_hand in before:
            result.bind(bound, by_hand=by_hand)


def _bind(declaration: Declaration, cache: Cache) -> None:
    for analyzer in declaration.analyzers:
        found: BoundResult | None = None
        digest = cache.manifest.fingerprints.get(f"{ANALYSIS} {analyzer.name}")
        if digest is not None:
            with contextlib.suppress(CacheNotFoundError):
                found = BoundResult(cache.asset_path(f"{ASSETS}/{analyzer.name}"), digest)
        analyzer.result.bind(found, by_hand=False)


def _require(declaration: Declaration, cache: str | os.PathLike[str] | None) -> None:
    for unit in declaration.graph.units:
        for result in held_results(unit.stage):
            if result.bound is None:
                where = "no cache is given" if cache is None else f"the cache {os.fspath(cache)!r} has none"
                raise AnalysisError(
                    f"stage {unit.name!r} holds the result of the analyzer {result.name!r}, and {where}. Give the "
                    "cache that was built from this declaration: --cache DIR, or cache=... in Python.",
                    analyzer=result.name,
                )
