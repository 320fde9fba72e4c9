"""A list of stages and PTransforms as a Beam graph: a declaration of `BeamSteps` as the pipeline that one would write.

    ReadFromSource ── stages ── PTransform ── stages ──┬── WriteToCache
          └────────────── dead letters ────────────────┘

With `on_error="dead_letter"`, what failed in a step travels to `WriteToCache` beside the records.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

import apache_beam as beam
from google.protobuf.message import Message

from beam_pipes.beam.encode import features_of_schema
from beam_pipes.beam.lower import Lowered, Outputs, TypeHint, lower
from beam_pipes.beam.read_from_cache import ReadFromSource
from beam_pipes.beam.write_to_cache import WriteToCache
from beam_pipes.building.declaration import BeamSteps, Declaration
from beam_pipes.engine.graph import Step, graph_of
from beam_pipes.errors import DeclarationError
from beam_pipes.format.spec import Features
from beam_pipes.storage.local import directory_path

# Where a job that is launched for a cache keeps what its workers read of a large source.
SOURCE_TASKS = "source-tasks"


def build_regrouped_graph(root: beam.Pipeline, declaration: Declaration, to: str) -> beam.PCollection:
    """Adds the whole job to the pipeline `root`; returns a PCollection of the published manifest's id."""
    steps = declaration.beam_steps
    assert steps is not None
    source = ReadFromSource(
        declaration.source,
        on_error=declaration.on_error,
        target_shard_bytes=declaration.target_shard_bytes,
        scratch=f"{directory_path(to)}/{SOURCE_TASKS}",
    )
    letters: list[beam.PCollection] = []
    records = _without_letters(root | "Read source" >> source, letters)
    labels: Counter[str] = Counter(["Read source", "Dead letters", "Write to cache"])
    for step in steps.steps:
        label = _label(step, labels)
        if isinstance(step, beam.PTransform):
            records = records | label >> step
            if not isinstance(records, beam.PCollection):
                raise DeclarationError(
                    f"declaration {declaration.name!r}: the PTransform {label!r} gives {type(records).__name__}, and a "
                    "list of stages continues with one collection. Wrap it in a PTransform that returns one of its "
                    "outputs, or their Flatten."
                )
            continue
        lowered = records | label >> lower(step, seed=declaration.seed, on_error=declaration.on_error)
        outputs = _without_letters(lowered, letters)
        [records] = outputs.values() if isinstance(outputs, dict) else [outputs]
    writes = writer(declaration, steps, to, element_type=records.element_type)
    if letters:
        records = (records, *letters) | "Dead letters" >> beam.Flatten()
    return (records | "Write to cache" >> writes).published


def writer(declaration: Declaration, steps: BeamSteps, to: str, *, element_type: TypeHint = None) -> WriteToCache:
    """The end of the job, for elements of a type: what the last stage gives, or what a PTransform says it gives.

    Raises `DeclarationError` for options that do not go together.
    """
    last, proto = steps.steps[-1], None
    features = cast("Features | None", declaration.features)  # never by split, here
    if not isinstance(last, beam.PTransform):
        [element_type] = graph_of(last).output_type.values()
    if features is None:
        features = features_of_schema(element_type)
        if isinstance(element_type, type) and issubclass(element_type, Message):
            proto = element_type
        elif features is None and not isinstance(last, beam.PTransform) and not issubclass(element_type, bytes):
            raise DeclarationError(
                f"declaration {declaration.name!r}: the last stage gives examples, and with a PTransform in the list "
                "their features cannot be inferred before the job runs. Give features={name: FeatureSpec(…)}."
            )
    terms = {terms for part in declaration.source.parts() for terms in part.all_terms()}
    if len(terms) > 1:
        licenses = ", ".join(sorted(repr(each.license) for each in terms))
        raise DeclarationError(
            f"declaration {declaration.name!r}: its sources have different terms ({licenses}), and after a PTransform "
            "nobody can tell which record is from which. Build a cache of each, and mix them when they are loaded."
        )
    return WriteToCache(
        to,
        features=features,
        proto=proto,
        key=steps.key,
        splits=steps.splits,
        split_by=steps.split_by,
        name=declaration.name,
        seed=declaration.seed,
        num_shards=steps.num_shards,
        on_error=declaration.on_error,
        max_bad=declaration.max_bad,
        allow_empty=declaration.allow_empty,
        expectations=declaration.expectations,
        terms=terms.pop(),
    )


def _without_letters(found: Outputs | Lowered, letters: list[beam.PCollection]) -> Outputs:
    if not isinstance(found, Lowered):
        return found
    letters.append(found.dead_letters)
    return found.outputs


def _label(step: Step, labels: Counter[str]) -> str:
    """A label of its own for each step: Beam refuses two of one name."""
    label = (
        str(step.label) if isinstance(step, beam.PTransform) else " → ".join(unit.name for unit in graph_of(step).units)
    )
    labels[label] += 1
    return label if labels[label] == 1 else f"{label} {labels[label]}"
