"""Croissant: JSON-LD about the Parquet files of an export, for catalogues and for loaders that know nothing else."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from beam_pipes.cache import dtypes
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.spec import FeatureSpec
from beam_pipes.export.parquet import RECORD, write_parquet

FILE_NAME = "croissant.json"

# https://docs.mlcommons.org/croissant/docs/croissant-spec.html, appendix "JSON-LD context", version 1.0.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def write_croissant(cache: Cache, directory: str) -> None:
    """Writes the Parquet files, and `croissant.json`: a record set a split, a field a feature, a checksum a file."""
    write_parquet(cache, directory)
    text = strict_json(croissant_of(cache, directory), indent=2, ensure_ascii=False) + "\n"
    with open(os.path.join(directory, FILE_NAME), "w", encoding="utf-8") as file:
        file.write(text)


def croissant_of(cache: Cache, directory: str) -> dict[str, Any]:
    """The description of the Parquet files of `cache` that lie in `directory`, conforming to Croissant 1.0."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": cache.manifest.name,
        "description": f"Snapshot {cache.manifest.snapshot} of the cache {cache.manifest.name}.",
        "version": "1.0.0",
        "distribution": [_file(split, directory) for split in cache.splits],
        "recordSet": [_record_set(cache, split) for split in cache.splits],
    }


def _file(split: str, directory: str) -> dict[str, Any]:
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


def _record_set(cache: Cache, split: str) -> dict[str, Any]:
    spec = cache.manifest.splits[split].spec
    features = {RECORD: FeatureSpec("bytes")} if spec is None else dict(spec.items())
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{split}/{name}",
                "name": name,
                "description": f"{feature.dtype} of shape {list(feature.shape)}",
                "dataType": _data_type(feature),
                **({"repeated": True} if feature.shape else {}),
                "source": {"fileObject": {"@id": f"{split}.parquet"}, "extract": {"column": name}},
            }
            for name, feature in features.items()
        ],
    }


def _data_type(feature: FeatureSpec) -> str:
    if feature.is_text:
        return "sc:Text"
    if feature.dtype == dtypes.BOOL:
        return "sc:Boolean"
    return "sc:Integer" if feature.dtype in dtypes.INTEGERS else "sc:Float"
