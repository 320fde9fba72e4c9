"""The fingerprint of an analyzer: everything that decides its accumulators besides the source shard they are of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from beam_pipes.analysis.analyzer import Analyzer
from beam_pipes.building.declaration import Declaration
from beam_pipes.identity.canonical_digest import canonical_text, digest_of
from beam_pipes.identity.fingerprint import Fingerprint, fingerprint

# Raised when accumulators come out differently although nothing of an analyzer changed.
VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzerFingerprint:
    """`digest` names the accumulators, `parts` tell what is in it; `of` is the digest of the analyzer's `of` alone.

    Pipelines with equal digests give the same values: they run once for all analyzers that have one of them.
    """

    digest: str
    of: str
    parts: Mapping[str, str]


def fingerprint_analyzer(declaration: Declaration, analyzer: Analyzer, *, generation: int = 0) -> AnalyzerFingerprint:
    """The fingerprint of an analyzer in a declaration; raises `AnalysisError` while a result that it holds is missing.

    In it are the analyzer (class, version, options, code), `of` with all its stages, what the source does while it
    reads, and, where `of` is there, the seed that its draws are keyed by. Not in it are `on_error`, which decides
    whether a build goes on and not what is analysed, and the pipeline of the declaration.
    """
    own = fingerprint(analyzer)
    parts = dict(own.parts)
    source = declaration.source
    read: dict[str, Fingerprint] = {name: fingerprint(stage) for name, stage in source.stages().items()}
    options = {"source": canonical_text([source.fingerprint_class(), source.fingerprint_config()])}
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
