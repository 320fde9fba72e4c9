"""Croissant 1.1 about a cache: JSON-LD for catalogues, and for loaders that know nothing else.

    described(cache, distribution, source_of)  →  what it holds, its files, a record set for each split, provenance

Where the records come from is said as PROV-O says it, as the specification recommends: the data set and each record set
were derived from the sources that the manifest lists, by a build whose fingerprints it has.
https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence

from beam_pipes.cache.reader import Cache
from beam_pipes.export.tables import RECORD, write_parquet
from beam_pipes.format import dtypes
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.publication.manifest import FILE_NAME as MANIFEST
from beam_pipes.publication.terms import Terms
from beam_pipes.storage.checked_json import strict_json

FILE_NAME = "croissant.json"

# Appendix 1 of the specification, and the namespace of PROV-O.
_CONTEXT: dict[str, object] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    **{name: f"cr:{name}" for name in (
        "annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract",
        "field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath",
        "key", "md5", "parentField", "path", "readLines", "recordSet", "references", "regex", "repeated", "replace",
        "samplingRate", "sdVersion", "separator", "source", "subField", "transform", "unArchive", "value",
    )},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}  # fmt: skip

_SPDX_ID = re.compile(r"(?!LicenseRef-|DocumentRef-)[A-Za-z0-9.+-]+")

#: (split, feature) → where its values are in the files.
SourceOf = Callable[[str, str], Mapping[str, object]]


def write_croissant(cache: Cache, directory: str) -> None:
    """Writes the Parquet files, and `croissant.json`: a record set per split, field per feature, checksum per file."""
    write_parquet(cache, directory)

    def source_of(split: str, feature: str) -> Mapping[str, object]:
        return {"fileObject": {"@id": f"{split}.parquet"}, "extract": {"column": feature}}

    made = described(cache, [_file(split, directory) for split in cache.splits], source_of)
    with open(os.path.join(directory, FILE_NAME), "w", encoding="utf-8") as file:
        file.write(croissant_text(made))


def croissant_of_cache(cache: Cache) -> dict[str, object]:
    """Describes the TFRecord files of a cache where they are: the manifest by its sha256, and through it all shards."""
    manifest = cache.manifest
    distribution: list[dict[str, object]] = [
        {
            "@type": "cr:FileObject",
            "@id": MANIFEST,
            "name": MANIFEST,
            "description": "Names every file of the snapshot, with its size and its crc32c.",
            "contentUrl": MANIFEST,
            "contentSize": f"{len(manifest.to_bytes())} B",
            "encodingFormat": "application/json",
            "sha256": manifest.id,
        }
    ]
    for split, shards in manifest.splits.items():
        distribution.append(
            {
                "@type": "cr:FileSet",
                "@id": f"{split}-shards",
                "name": f"{split}-shards",
                "description": f"{len(shards.numbers)} files, {shards.num_records} records, {shards.num_bytes} bytes.",
                "encodingFormat": "application/x-tfrecord",
                "includes": f"snapshots/{manifest.snapshot}/{manifest.name}-{split}.tfrecord-*",
            }
        )

    def source_of(split: str, feature: str) -> Mapping[str, object]:
        return {"fileSet": {"@id": f"{split}-shards"}, "extract": {"column": feature}}

    return described(cache, distribution, source_of)


def croissant_text(made: Mapping[str, object]) -> str:
    return strict_json(made, indent=2, ensure_ascii=False) + "\n"


def described(cache: Cache, distribution: Sequence[Mapping[str, object]], source_of: SourceOf) -> dict[str, object]:
    """The description of a cache. What only its owner knows (url, creator, date) is left out."""
    manifest = cache.manifest
    terms = list(dict.fromkeys(source.terms for source in manifest.sources))
    licenses = list(dict.fromkeys(_license(each.license) for each in terms if each.license))
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": manifest.name,
        "description": f"Snapshot {manifest.snapshot} of the cache {manifest.name}.",
        "version": f"1.0.0+{manifest.snapshot}",
        **({"license": licenses} if licenses else {}),
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": "beam-pipes build",
            "prov:used": [
                {"@type": "prov:Entity", "@id": f"urn:beam-pipes:{name.replace(' ', ':')}:{digest}"}
                for name, digest in sorted(manifest.fingerprints.items())
            ],
        },
        **_derived(terms),
        "distribution": list(distribution),
        "recordSet": [_record_set(cache, split, source_of) for split in cache.splits],
    }


def _derived(terms: Sequence[Terms]) -> dict[str, object]:
    """`prov:wasDerivedFrom`: one entity for each source that declares something."""
    entities = [
        {
            "@type": "prov:Entity",
            **({"@id": each.origin} if "://" in each.origin else {}),
            "prov:label": each.origin or "a source without a declared origin",
            **({"license": _license(each.license)} if each.license else {}),
            **({"temporalCoverage": each.collected} if each.collected else {}),
            **({"usageInfo": each.terms} if each.terms else {}),
        }
        for each in terms
        if each
    ]
    return {"prov:wasDerivedFrom": entities} if entities else {}


def _license(license: str) -> str:
    """The URL of a license of SPDX; expressions and licenses of one's own as they are."""
    return f"https://spdx.org/licenses/{license}.html" if _SPDX_ID.fullmatch(license) else license


def _file(split: str, directory: str) -> dict[str, object]:
    path = os.path.join(directory, f"{split}.parquet")
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return {
        "@type": "cr:FileObject",
        "@id": f"{split}.parquet",
        "name": f"{split}.parquet",
        "contentUrl": f"{split}.parquet",
        "contentSize": f"{os.path.getsize(path)} B",
        "encodingFormat": "application/x-parquet",
        "sha256": digest.hexdigest(),
    }


def _record_set(cache: Cache, split: str, source_of: SourceOf) -> dict[str, object]:
    manifest = cache.manifest
    spec = manifest.splits[split].spec
    features = {RECORD: FeatureSpec("bytes")} if spec is None else dict(spec.items())
    numbers = manifest.splits[split].numbers if manifest.sources else ()
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        **_derived(list(dict.fromkeys(map(manifest.terms_of, numbers)))),
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{split}/{name}",
                "name": name,
                "description": f"{feature.dtype} of shape {list(feature.shape)}",
                "dataType": _data_type(feature),
                **_array(feature),
                "source": source_of(split, name),
            }
            for name, feature in features.items()
        ],
    }


def _array(feature: FeatureSpec) -> dict[str, object]:
    if not feature.shape:
        return {}
    return {"isArray": True, "arrayShape": ",".join("-1" if size is None else str(size) for size in feature.shape)}


def _data_type(feature: FeatureSpec) -> str:
    if feature.is_text:
        return "sc:Text"
    if feature.dtype == dtypes.BOOL:
        return "sc:Boolean"
    return "sc:Integer" if feature.dtype in dtypes.INTEGERS else "sc:Float"
