"""The data card: everything that the accounts know, as one page of Markdown."""

from __future__ import annotations

from beam_pipes.disclosure.facts import Facts
from beam_pipes.disclosure.forms import dropped_table, filled, sources_table, table

_CARD = """
## Caches
Snapshots
Records that are taken down now
## The run
What was read
## Sources
License, origin and size
## Content
Features
What the records are about, and in which languages
Personal or sensitive information
## Processing
Stages
What stages left out
## Use
Purpose
Known limitations and biases
Contact and maintenance
## Fields of the other files
Croissant: url, creator, datePublished, citeAs
ML-BOM: name, version and supplier of the model
"""


def data_card(facts: Facts) -> str:
    """The card, with the questions that only people can answer left blank."""
    manifests = [(cache, cache.cache.manifest, cache.account) for cache in facts.caches]
    stages = [
        (cache.label, stage, unit.inputs, unit.kept, unit.outputs, unit.dead)
        for cache, _, account in manifests
        for stage, unit in account.units.items()
    ]
    snapshots = [
        (cache.label, manifest.name, manifest.snapshot, manifest.id, account.read, account.dropped, account.dead)
        for cache, manifest, account in manifests
    ]
    features = [(*place, feature.dtype, str(list(feature.shape))) for *place, feature in facts.features()]
    run, read = facts.run, "No run was given: shares are of the records that are stored."
    if run is not None:
        read = f"{run.steps:,} steps, {run.rows:,} rows, {run.reads:,} reads of records, seed {run.seed}."
    return filled(
        _CARD,
        title="Data card",
        about="Made from the manifests of the caches below.",
        answers={
            "Snapshots": table(
                ["cache", "name", "snapshot", "sha256 of the manifest", "records read", "dropped", "failed"], snapshots
            ),
            "Records that are taken down now": table(
                ["cache", "records"], [(cache.label, cache.removed) for cache in facts.caches]
            ),
            "What was read": [read],
            "License, origin and size": sources_table(facts),
            "Features": table(["cache", "split", "feature", "dtype", "shape"], features)
            if features
            else ["Records are not examples: they have no features."],
            "Stages": table(["cache", "stage", "in", "kept", "out", "failed"], stages)
            if stages
            else ["No stages are on record: the examples were written directly."],
            "What stages left out": dropped_table(facts) or ["Nothing."],
        },
        notes={},
    )
