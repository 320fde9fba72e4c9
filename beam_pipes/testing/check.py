"""`check_declaration`: tries everything that may happen to a build on a sample of a declaration's input."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.references import DeclarationHandle, declared_by, load_declaration
from beam_pipes.checks import integer, known, number
from beam_pipes.storage.locks import ANALYSIS_LABELS, LABELS, VARIABLE
from beam_pipes.testing.sample import (
    BuildOrder,
    Sample,
    SampledHandle,
    analyse_sample,
    first_difference,
    snapshot_difference,
    take_sample,
)
from beam_pipes.testing.stage_trials import finding_words
from beam_pipes.testing.surroundings import FACTORS
from beam_pipes.testing.trial_process import Ended, TrialProcesses, trial_processes
from beam_pipes.testing.trials import Elsewhere, ElsewhereOrder, TrialOrder, TrialReport, portability, run_trials
from beam_pipes.testing.values import Finding, Verdict, brief_value

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Two of the steps at which a build may die; `beam_pipes.storage.locks.LABELS` has them all.
KILL_AT = ("shard/renamed", "publish/snapshot-manifest-written")

# Kinds that make comparisons between processes pointless: the stage already differs within one.
_DIFFERS_BY_ITSELF = {"random", "entropy", "clock", "identity", "process", "state", "unknown", "lazy", "aliasing"}

_WITHIN = "records in order, twice, and in reverse; in batches of {sizes}; statistics merged in any order"
_ELSEWHERE = (
    "in another process, with another hash seed, in another directory, environment, time zone and locale, "
    "with delays and shards in reverse order"
)


class TrialOptions(TypedDict, total=False):
    """The options of `check_declaration`, where they are documented."""

    max_records: int
    batch_sizes: Sequence[int]
    kill_at: Sequence[str]
    beam: bool
    timeout_secs: float


def check_declaration(
    declaration: object,
    *,
    max_records: int = 256,
    batch_sizes: Sequence[int] = (1, 7, 64),
    kill_at: Sequence[str] = KILL_AT,
    beam: bool = False,
    timeout_secs: float = 120.0,
) -> Verdict:
    """Tries everything that must not change what a declaration builds, on a sample of its real input.

        verdict = check_declaration("examples.python_source:declaration")
        assert verdict.robust, str(verdict)

    Each stage is run alone, on recorded inputs: twice, in reverse, in batches of other sizes, in another process and in
    other surroundings; then the sample is built, killed and built again, and the bytes are compared. Differences are
    narrowed down by further trials until the cause has a name. A robust declaration takes five processes, forked before
    its module is imported: a second or two plus five times its import time; other declarations take some more.

    Args:
        declaration: a `Declaration`, or its reference, `package.module:name`. Other processes find it by name if a
            module holds it; otherwise it must be picklable, which is part of the verdict. If it is neither, its stages
            are tried in this process only.
        max_records: about how many records are tried, from a few evenly spaced source shards. Planning reads the
            whole input once, as every plan does. 256 records find a fault of one record in a hundred with a probability
            of 92 %.
        batch_sizes: sizes tried for stages with `transform_batch`; all records at once are tried too.
        kill_at: steps at which a build of the sample is killed, one after the other, before it may finish: labels of
            `beam_pipes.storage.locks`, with `#n` for the n-th visit.
        beam: build the sample on Beam's `BundleBasedDirectRunner` too, which retries bundles, with a failure in each
            stage. Adds Beam's import, about 3 s.
        timeout_secs: how long each process may take; one that takes longer is a finding that says where it was.

    Raises:
        DeclarationError: the reference leads nowhere, or an option is malformed.
        SourceError: the input cannot be planned or read.
    """
    reference = declaration if isinstance(declaration, str) else None
    name = type(declaration).__name__
    resolved = load_declaration(declaration) if isinstance(declaration, str) else declared_by(declaration, name)
    _check_options(max_records=max_records, batch_sizes=batch_sizes, kill_at=kill_at, timeout_secs=timeout_secs)
    handle = DeclarationHandle(resolved, reference, as_imported=True)
    sample = take_sample(resolved, max_records=max_records)
    with tempfile.TemporaryDirectory(prefix="beam-pipes-chaos-") as directory, trial_processes() as processes:
        check = _Check(resolved, handle, sample, Path(directory), processes, timeout_secs)
        findings = check.findings(batch_sizes=tuple(batch_sizes), kill_at=tuple(kill_at), beam=beam)
    order = {unit.name: position for position, unit in enumerate(resolved.graph.units)}
    return Verdict(
        declaration=resolved.name,
        records=len(sample.ids),
        shards=len(sample.shards),
        stages=tuple(order),
        trials=tuple(check.trials),
        findings=tuple(sorted(findings, key=lambda finding: order.get(finding.stage, -1))),
    )


def assert_robust(declaration: object, **options: Unpack[TrialOptions]) -> Verdict:
    """`check_declaration`, for a test: raises `AssertionError` with the whole verdict unless it is robust.

    def test_my_declaration() -> None:
        assert_robust("my_project.caches:declaration")
    """
    __tracebackhide__ = True
    verdict = check_declaration(declaration, **options)
    if not verdict.robust:
        raise AssertionError(str(verdict))
    return verdict


class _Check:
    def __init__(
        self,
        declaration: Declaration,
        handle: DeclarationHandle,
        sample: Sample,
        directory: Path,
        processes: TrialProcesses,
        timeout_secs: float,
    ) -> None:
        self.trials: list[str] = []
        self._declaration = declaration
        self._base = handle
        self._handle = SampledHandle(handle, sample)
        self._sample = sample
        self._directory = directory
        self._processes = processes
        self._timeout_secs = timeout_secs

    def findings(self, *, batch_sizes: tuple[int, ...], kill_at: tuple[str, ...], beam: bool) -> list[Finding]:
        """All findings, in the order of the graph's stages."""
        found = [*self._source(), *portability(self._declaration, self._base)]
        travels = not found or found[-1].kind == "source"
        order = TrialOrder(handle=self._handle, sample=self._sample, batch_sizes=batch_sizes)
        if self._declaration.analyzers:
            analysis = BuildOrder(handle=self._handle, to=str(self._directory / "analysis"))
            if travels:
                ended = self._run("analyse_sample", analysis, (), module="sample")
                if not isinstance(ended.result, dict):
                    return [*found, self._broken(ended, "an analysis of the sample ends in an error.")]
                self._handle.bind(ended.result)
            else:
                self._handle.bind(analyse_sample(analysis))
            self.trials.append("analysed")
        self.trials.append(_WITHIN.format(sizes=", ".join(map(str, batch_sizes))))
        if not travels:
            # The stage cannot be sent to another process: trials run in this one only.
            report = run_trials(order)
            return found + [finding for each in report.findings.values() for finding in each]
        ended = self._run("run_trials", order, ())
        if not isinstance(ended.result, TrialReport):
            return [*found, self._broken(ended)]
        report = ended.result
        found += [finding for each in report.findings.values() for finding in each]
        build = BuildOrder(handle=self._handle, to=str(self._directory / "undisturbed"))
        built = self._run("build_sample", build, (), module="sample")
        if built.result is None and not any(finding.kind == "fails" for finding in found):
            found.append(self._broken(built, "a build of the sample ends in an error."))
        found += self._elsewhere(report, kill_at, blameless=not found)
        if beam and not found:
            found += self._on_bundles()
        return found

    def _source(self) -> Iterator[Finding]:
        difference = first_difference(self._declaration, self._sample)
        if difference is not None:
            record, before, after = difference
            yield Finding(
                kind="source",
                stage="source",
                message="gives other records when the same source shard is read again. Reading has to depend on the "
                "shard alone: a build that is killed reads it twice.",
                record=record,
                expected=brief_value(before),
                found=brief_value(after),
            )
        if not self._sample.ids:
            yield Finding(kind="fails", stage="source", message="gives no record, so there is nothing to try.")

    def _elsewhere(self, report: TrialReport, kill_at: tuple[str, ...], *, blameless: bool) -> list[Finding]:
        """All surroundings at once; one after the other if something differs."""
        build = BuildOrder(handle=self._handle, to=str(self._directory / "killed"), backwards=True)
        killed = []
        if blameless:
            for label in kill_at:
                ended = self._run("build_sample", build, (), module="sample", **{VARIABLE: label})
                killed += [label] if ended.signal else []
            self.trials.append(f"built, killed at {' and '.join(killed) or 'no step'}, and built again")
        stages = [
            name
            for name, findings in report.findings.items()
            if report.inputs[name] is not None and not _DIFFERS_BY_ITSELF & {finding.kind for finding in findings}
        ]
        self.trials.append(_ELSEWHERE)
        order = ElsewhereOrder(
            handle=self._handle,
            sample=self._sample,
            report=report,
            stages=stages,
            factors=FACTORS,
            build=build if blameless else None,
        )
        ended = self._run("run_elsewhere", order, FACTORS)
        if not isinstance(ended.result, Elsewhere):
            return [self._broken(ended)]
        different = ended.result.different
        found = self._put_down(report, order, different) if different else []
        if not found and ended.result.passed_on is not None:
            stage, at, shown = ended.result.passed_on
            found.append(
                Finding(
                    kind="key_order",
                    stage=stage,
                    message="gives something else where the stages before it give equal values in another order of "
                    "their keys or elements. Sort them before the order matters.",
                    record=self._sample.ids[at],
                    expected=report.shown[stage].get(at),
                    found=shown,
                )
            )
        if not found and blameless:
            found += self._compare("killed", ended.result.build_error)
        return found

    def _put_down(
        self, report: TrialReport, order: ElsewhereOrder, different: dict[str, tuple[int, str]]
    ) -> list[Finding]:
        """Attributes each difference to the surroundings that cause it, each tried alone."""

        def alone(factor: str) -> Elsewhere | None:
            one = dataclasses.replace(
                order,
                stages=tuple(different),
                factors=(factor,),
                build=None,
                explain={stage: at for stage, (at, _) in different.items()} if factor == "process" else {},
            )
            return cast("Elsewhere | None", self._run("run_elsewhere", one, (factor,)).result)

        with ThreadPoolExecutor(2) as pool:
            tried = {factor: it for factor, it in zip(FACTORS, pool.map(alone, FACTORS), strict=True) if it is not None}
        findings = []
        for stage, (at, shown) in different.items():
            calls = tried["process"].calls.get(stage, {}) if "process" in tried else {}
            factors = [factor for factor in FACTORS if factor in tried and stage in tried[factor].different]
            # Per-process state varies with any factor that starts a new process.
            if factors and finding_words(factors[0], calls)[0] in _DIFFERS_BY_ITSELF or factors[:1] == ["process"]:
                factors = factors[:1]
            for factor in factors or ["unknown"]:
                if factor in tried:
                    at, shown = tried[factor].different[stage]
                kind, message, cause = finding_words(factor, calls)
                findings.append(
                    Finding(
                        kind=kind,
                        stage=stage,
                        message=message,
                        record=self._sample.ids[at],
                        expected=report.shown[stage].get(at),
                        found=shown,
                        place=None if cause is None else cause.place,
                    )
                )
        return findings

    def _compare(self, directory: str, error: str | None) -> list[Finding]:
        """Compares a disturbed build with the undisturbed one."""
        if error is not None:
            message = "a build that was disturbed could not be finished."
            return [self._about_all("rebuild", message, error)]
        difference = snapshot_difference(self._directory / "undisturbed", self._directory / directory)
        if difference is None:
            return []
        what, how = difference
        if what == "fingerprint":
            message = "is another declaration in another process, so nothing built there is reused. Configure stages "
            return [self._about_all("declaration", message + "with what is the same everywhere.", how)]
        message = "a build that was killed and run again, or retried, writes other bytes. A stage leaves something "
        return [self._about_all("rebuild", message + "behind outside of the build.", f"{what}: {how}")]

    def _on_bundles(self) -> list[Finding]:
        self.trials.append("built on BundleBasedDirectRunner, a bundle of each stage retried")
        build = BuildOrder(handle=self._handle, to=str(self._directory / "bundles"))
        ended = self._run("build_sample_on_bundles", build, (), module="sample")
        if ended.late is not None:
            return [self._broken(ended)]
        return self._compare("bundles", None if ended.error is None else ": ".join(ended.error))

    def _about_all(self, kind: str, message: str, found: str) -> Finding:
        return Finding(kind=kind, stage=self._declaration.name, message=message, found=found)

    def _broken(self, ended: Ended, message: str | None = None) -> Finding:
        """The finding for a process without a result."""
        if ended.late is not None:
            late = f"gave nothing within timeout_secs={self._timeout_secs:g}."
            return self._about_all("late", late, f"it was at: {ended.late}")
        if ended.error is not None:
            words = ": ".join(ended.error)
            if message is not None:
                return self._about_all("fails", message, words)
            message = "another process cannot import or run it. Import its module in a fresh interpreter to see."
            return self._about_all("not_importable", message, words)
        return self._about_all("fails", "a process that ran its stages was killed.", f"signal {ended.signal}")

    def _run(
        self, function: str, argument: object, factors: tuple[str, ...], *, module: str = "trials", **env: str
    ) -> Ended:
        return self._processes.run(
            f"beam_pipes.testing.{module}:{function}",
            argument,
            timeout_secs=self._timeout_secs,
            hash_seed=2 if "hash_seed" in factors else 1,
            env={VARIABLE: "", **env},
        )


def _check_options(
    *, max_records: int, batch_sizes: Sequence[int], kill_at: Sequence[str], timeout_secs: float
) -> None:
    integer(max_records, least=1, what="max_records")
    for size in batch_sizes:
        integer(size, least=1, what="each of batch_sizes")
    number(timeout_secs, above=0, what="timeout_secs")
    steps = [label.partition("#")[0] for label in kill_at]
    known(*steps, among={**LABELS, **ANALYSIS_LABELS}, what="step", where="kill_at")
