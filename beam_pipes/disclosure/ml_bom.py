"""An ML-BOM: CycloneDX 1.6, with the sources and the caches as data, and the model that was trained on them.

https://cyclonedx.org/docs/1.6/json/. It has no serial number and no time stamp, which are optional: the same "
"caches give
the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from beam_pipes.disclosure.facts import CacheFacts, Facts, SourceFacts, added
from beam_pipes.storage.checked_json import strict_json

_TO_COMPLETE = "to be completed"
_MODEL = "model"


def ml_bom(facts: Facts) -> dict[str, object]:
    """The bill of materials: a component for each source, which the cache depends on, which the model depends on."""
    sources = facts.sources
    refs = {id(source): f"source-{number}" for number, source in enumerate(sources)}
    caches = [cache.label for cache in facts.caches]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "machine-learning-model",
                "bom-ref": _MODEL,
                "name": _TO_COMPLETE,
                "modelCard": {"modelParameters": {"datasets": [{"ref": label} for label in caches]}},
            }
        },
        "components": [
            *(_cache(cache) for cache in facts.caches),
            *(_source(source, refs[id(source)], facts) for source in sources),
        ],
        "dependencies": [
            {"ref": _MODEL, "dependsOn": caches},
            *(
                {"ref": cache.label, "dependsOn": [refs[id(source)] for source in cache.sources]}
                for cache in facts.caches
            ),
            *({"ref": ref} for ref in refs.values()),
        ],
    }


def ml_bom_text(facts: Facts) -> str:
    return strict_json(ml_bom(facts), indent=2, ensure_ascii=False) + "\n"


def _cache(cache: CacheFacts) -> dict[str, object]:
    manifest = cache.cache.manifest
    numbers = [
        ("records", sum(source.records for source in cache.sources)),
        ("bytes", sum(source.num_bytes for source in cache.sources)),
        *((f"lengths of {name}", total) for name, total in added(source.lengths for source in cache.sources).items()),
        ("taken down", cache.removed),
    ]
    return {
        "type": "data",
        "bom-ref": cache.label,
        "name": manifest.name,
        "version": manifest.snapshot,
        "description": "A cache of TFRecords; the hash is that of its manifest.",
        "hashes": [{"alg": "SHA-256", "content": manifest.id}],
        "data": [{"type": "dataset", "name": manifest.name, "contents": {"properties": _properties(numbers)}}],
    }


def _source(source: SourceFacts, ref: str, facts: Facts) -> dict[str, object]:
    terms = source.terms
    numbers: list[tuple[str, object]] = [
        ("records", source.records),
        ("bytes", source.num_bytes),
        *((f"lengths of {name}", total) for name, total in source.lengths.items()),
    ]
    if source.reads is not None:
        numbers += [("times read", source.reads), ("share of reads", f"{facts.share(source):.6f}")]
    numbers += [("collected", terms.collected)] if terms.collected else []
    numbers += [("terms", terms.terms)] if terms.terms else []
    contents: dict[str, object] = {"properties": _properties(numbers)}
    if "://" in terms.origin:
        contents["url"] = terms.origin
    return {
        "type": "data",
        "bom-ref": ref,
        "name": terms.origin or f"{source.cache}, split {source.split}: a source without a declared origin",
        "description": f"Records in the split {source.split} of {source.cache}.",
        **({"licenses": [{"expression": terms.license}]} if terms.license else {}),
        "data": [{"type": "dataset", "contents": contents}],
    }


def _properties(values: Sequence[tuple[str, object]]) -> list[dict[str, str]]:
    return [{"name": f"beam-pipes:{name}", "value": str(value)} for name, value in values]
